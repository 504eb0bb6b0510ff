/* weir/train.h: from a loss to updated parameters.
 *
 * weir_train() adds the backward graph, the clipping and one update op per parameter to the graph; what follows treats
 * them as any other op. The gradient is that of the mean of the loss over the micro-batches of a step; with .count that of
 * its sum over them, divided by what they count together. An update runs
 * once a step: it owns the parameter's register and changes it in place when the last reader has let go of it.
 *
 *     weir_tensor *loss = weir_cross_entropy(logits, labels);
 *     weir_train(loss, weir_adamw(.lr = 0.001, .clip_norm = 1));
 */
#ifndef WEIR_TRAIN_H
#define WEIR_TRAIN_H

#include <weir/graph.h>

WEIR_C_BEGIN

typedef enum weir_optimizer_kind { WEIR_SGD, WEIR_ADAMW } weir_optimizer_kind;

/* A member that is left out has the default in brackets; WEIR_ZERO is the number 0: .lr = WEIR_ZERO. */
typedef struct weir_optimizer {
    size_t size;
    weir_src src;
    weir_optimizer_kind kind;
    double lr;              /* learning rate [0.01 SGD, 0.001 AdamW] */
    double momentum;        /* SGD [0] */
    double beta1, beta2;    /* AdamW [0.9, 0.999] */
    double eps;             /* AdamW [1e-8] */
    double weight_decay;    /* [0] of parameters with two or more dimensions: AdamW takes lr * decay * p off p, SGD adds
                               decay * p to the gradient */
    double clip_norm;       /* [0: no clipping] gradients are scaled by min(1, clip_norm / norm of all of them); a step whose
                               norm is not finite updates and counts nothing, and is counted as skipped: the state
                               "grad_norm/clip:clip_scale.skipped" (i32) */
    int64_t warmup;         /* steps over which the rate rises linearly to lr [0]: lr (step + 1) / warmup */
    int64_t total;          /* [0: constant] from warmup to this step a half cosine leads from lr to lr_min */
    double lr_min;          /* [0] */
} weir_optimizer;

#define WEIR_OPTIMIZER_(...) (*WEIR_OPTS(weir_optimizer, __VA_ARGS__))
/* p -= lr (g + decay p), or with momentum v = momentum v + g + decay p; p -= lr v */
#define weir_sgd(...) WEIR_OPTIMIZER_(.kind = WEIR_SGD, __VA_ARGS__)
/* Loshchilov and Hutter 2019. The bias of each parameter's m and v is corrected by the updates that are in them, which a
 * state of the parameter counts ("h0/q/weight:adamw.updates", i32): a parameter that is new in a loaded checkpoint starts
 * at 0. The rate's warm-up and decay go by the run's step. */
#define weir_adamw(...) WEIR_OPTIMIZER_(.kind = WEIR_ADAMW, __VA_ARGS__)

typedef struct weir_train_opts {
    size_t size;
    weir_src src;
    bool zero[WEIR_AXES_MAX]; /* split parameters' master copies and optimizer state over these mesh axes, and gather the
                                 parameters once a step (Rajbhandari et al. 2020): {[DP] = true} */
    weir_tensor *count;       /* an f32 scalar, of each micro-batch: `loss` is a sum over so many, as with
                                 weir_cross_entropy(.sum = true) and weir_label_count(). A step that counts 0 updates and
                                 counts nothing, and is counted as skipped, as one whose norm is not finite (.clip_norm)
                                 [none: `loss` is a mean, and each micro-batch weighs the same] */
    bool recompute;           /* compute what cheap ops made (normalisation, gelu, silu) again in the backward pass instead of
                                 keeping it (Chen et al. 2016): less memory for activations, a little more time */
} weir_train_opts;

/* Trains all parameters that `loss` (a scalar) depends on and that are not frozen. Once per graph. */
#define weir_train(loss, optimizer, ...) \
    weir_train_at(loss, WEIR_COPY_(weir_optimizer, optimizer), WEIR_OPTS(weir_train_opts, __VA_ARGS__))
void weir_train_at(weir_tensor *loss, const weir_optimizer *optimizer, const weir_train_opts *opts);

WEIR_C_END
#endif
