/* tests/graph/verify/models.h: small models whose plans are proven, and changed to see that the proof notices.
 *
 *     mlp   two linear layers and a cross-entropy: over devices by rows (DATA), by columns (TENSOR), or by what is summed (TERMS)
 *     gpt   two blocks of apps/common/model/gpt.h, in any layout
 *     odd   the ops that neither has: slices, a concatenation, a mask of dropout, one weight in two places, a square weight, casts by
 *           hand, labels that are ignored, a mean
 *
 * Inputs of mlp and odd are pushed: floats, and integers below RUN_CLASSES.
 */
#ifndef TESTS_GRAPH_VERIFY_MODELS_H
#define TESTS_GRAPH_VERIFY_MODELS_H

#include <criterion/criterion.h>
#include <weir/weir.h>

#include "apps/common/model/gpt.h"
#include "tests/support/run.h"

enum way { DATA, TENSOR, TERMS };

static inline weir_graph *graph_made(weir_graph *g)
{
    cr_assert(g && !weir_graph_mistake(g), "%s", g ? weir_graph_mistake(g) : "no memory");
    return g;
}

static inline weir_graph *mlp(enum way way, bool adamw)
{
    weir_graph *g = weir_graph_new("mlp");
    const weir_sbp rows = way == DATA ? WEIR_S(0) : WEIR_B, input = way == TERMS ? WEIR_S(1) : rows;
    const weir_sbp up = way == DATA ? WEIR_B : way == TENSOR ? WEIR_S(1) : WEIR_S(0), down = way == TENSOR ? WEIR_S(0) : WEIR_B;
    WEIR_ON(weir_mesh_new(g, "cpu:0-1")) {
        weir_tensor *x = weir_input(g, WEIR_F32, {8, 6}, .name = "x", .sbp = {input}, .micro = true);
        weir_tensor *labels = weir_input(g, WEIR_I32, {8}, .name = "labels", .sbp = {rows}, .micro = true);
        weir_tensor *z = weir_linear(x, 12, .name = "up", .weight = {up});
        weir_tensor *h = weir_gelu(way == TERMS ? weir_shard(z, .sbp = {WEIR_B}) : z);
        weir_tensor *y = weir_linear(h, RUN_CLASSES, .name = "down", .weight = {down});
        weir_tensor *loss = weir_cross_entropy(y, labels);
        if (adamw)
            weir_train(loss, weir_adamw(.lr = 0.01, .clip_norm = 1, .weight_decay = 0.1));
        else
            weir_train(loss, weir_sgd(.lr = 0.1, .momentum = 0.9));
        weir_fetch(loss, .name = "loss");
    }
    return graph_made(g);
}

static inline weir_graph *gpt(layout lies)
{
    static const text corpus = {.bytes = (uint8_t *)"a text of which nobody reads a word", .count = 35};
    static gpt_config config;
    config = (gpt_config){.layers = 2, .dim = 8, .heads = 2, .seq = 4, .vocab = 16, .batch = 4, .layout = lies,
                          .optimizer = weir_adamw(.lr = 0.01, .clip_norm = 1), .corpus = &corpus};
    return graph_made(gpt_train_graph(&config));
}

/* Half of the columns, changed places. */
static inline weir_tensor *turned(weir_tensor *x, int64_t columns)
{
    weir_tensor *left = weir_slice(x, 1, 0, columns / 2, .name = "left");
    weir_tensor *right = weir_slice(x, 1, columns / 2, columns / 2, .name = "right");
    return weir_concat(1, {right, left}, .name = "turned");
}

/* Over devices of one mesh: the rows, or with `classes` the columns of the logits, which are then many enough for class_lse. */
static inline weir_graph *odd(int devices, bool classes, bool zero)
{
    enum { DIM = 6 };
    char names[32];
    weir_graph *g = weir_graph_new("odd");
    snprintf(names, sizeof names, "cpu:0-%d", devices - 1);
    const weir_sbp rows = classes ? WEIR_B : WEIR_S(0), columns = classes ? WEIR_S(1) : WEIR_B;
    WEIR_ON(weir_mesh_new(g, names)) {
        weir_tensor *x = weir_input(g, WEIR_F32, {14, DIM}, .name = "x", .sbp = {rows}, .micro = true);
        weir_tensor *labels = weir_input(g, WEIR_I32, {14}, .name = "labels", .sbp = {rows}, .micro = true);
        weir_tensor *tied = weir_param(g, WEIR_F32, {DIM, DIM}, .name = "tied", .init = WEIR_NORMAL(0.5));
        weir_tensor *h = weir_dropout(weir_gelu(weir_matmul(x, tied, .name = "first")), 0.25, .name = "dropout");
        h = weir_cast(weir_cast(turned(h, DIM), WEIR_BF16, .name = "narrow"), WEIR_F32, .name = "wide");
        h = weir_gelu(weir_linear(weir_matmul(h, tied, .name = "second"), DIM, .name = "square"));
        weir_tensor *y = weir_linear(h, classes ? 128 * devices : RUN_CLASSES + 1, .name = "head", .weight = {columns});
        weir_tensor *loss = weir_cross_entropy(y, labels, .ignore = true, .ignore_index = 1, .sum = true);
        weir_train(loss, weir_adamw(.lr = 0.01, .clip_norm = 1), .zero = {zero},
                   .count = weir_label_count(labels, .ignore = true, .ignore_index = 1, .name = "count"));
        weir_fetch(weir_mean(h, .name = "mean"), .name = "mean");
        weir_fetch(loss, .name = "loss");
    }
    return graph_made(g);
}

#endif
