/* apps/weir-digits/model.h: a perceptron for the handwritten digits, or a small convolutional net in front of one.
 *
 *     pixels [rows, 64] -> ln -> fc0 -> relu -> dropout -> fc1 -> ... -> out -> logits [rows, 10]
 *
 *     with .conv:  ln -> [rows, 1, 8, 8] -> conv 3x3, relu -> conv 3x3, relu -> max pool 2x2 -> conv 3x3, relu -> [rows, 512] -> fc0
 *
 * The layer norm at the front takes out how hard a writer presses. Over TP, even layers are split by columns and odd
 * ones by rows, so that a pair needs one conversion. Placement is that of apps/common/train/layout.h.
 */
#ifndef APPS_WEIR_DIGITS_MODEL_H
#define APPS_WEIR_DIGITS_MODEL_H

#include "apps/common/train/layout.h"
#include "apps/weir-digits/digits.h"

#include <weir/weir.h>

#define MODEL_TEST "test"
#define MODEL_ACCURACY "test_accuracy"

typedef struct model_config {
    bool conv;
    int layers;               /* hidden */
    int dim;
    int batch;                /* rows per step */
    double dropout;
    double ema;               /* the test reads averages of the parameters, as .ema of weir_train() has them; 0: the parameters */
    layout layout;
    const char *device; /* kind of device that it trains on; NULL: "cpu" */
    weir_optimizer optimizer;
    const char *norm;         /* the norm of all gradients is fetched under this name; NULL: it is not */
    const digits *data;       /* borrowed; must outlive the sessions */
    uint64_t data_seed;
} model_config;

/* A new graph that trains on the training images; the fetch "loss" is to be pulled once per micro-batch. A step of its
 * second program, MODEL_TEST, reads the test images, after which the state MODEL_ACCURACY [1] is the share of them that
 * is read rightly. `config` is borrowed while sessions of the plan run. NULL when there is no memory. */
weir_graph *model_train_graph(const model_config *config);

#endif
