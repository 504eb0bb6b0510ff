/* tests/graph/verify/test_gradients.c: gradients that the library and its ops make are proven to be gradients, and wrong ones are
 * not, with the parameter and the op named.
 *
 * Wrong gradients are of two kinds: ops of this suite with a wrong `grad`, and right graphs of built-in ops that are changed in
 * one place.
 */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <weir/weir.h>

#include "apps/common/model/gpt.h"
#include "graph/model/build.h"
#include "kernels/common/ops.h"
#include "kernels/core/core.h"
#include "kernels/reduce/reduce.h"
#include "kernels/shape/shape.h"
#include "tests/support/effort.h"
#include "tests/support/random_model.h"

TestSuite(gradients, .timeout = 300);

enum { MODELS = EFFORT(FULL(300, 24), 4, 1), LAYOUTS = 2, SEED = 4711 };

/* ---- what is expected ---- */

struct told {
    int count;
    char last[200];
};

static void note(void *ctx, const char *name, const char *op, weir_src src)
{
    struct told *told = ctx;
    told->count++;
    snprintf(told->last, sizeof told->last, "%s (%s) %s:%d", name, op, src.file ? strrchr(src.file, '/') + 1 : "?", src.line);
}

/* Right in 1 to 3 micro-batches, with nothing left out. */
static void expect_right(weir_graph *g, const char *what)
{
    struct told told = {0};
    cr_assert_null(weir_graph_mistake(g), "%s: %s", what, weir_graph_mistake(g));
    for (int micro = 1; micro <= 3; micro++)
        cr_expect_eq(weir_gradients_verify(g, .seed = SEED, .micro_batches = micro, .not_covered = note, .ctx = &told), WEIR_OK,
                     "%s, %d micro-batches: %s", what, micro, weir_error());
    cr_expect_eq(told.count, 0, "%s: %s is not covered", what, told.last);
}

/* Frees the graph. */
static void expect_right_once(weir_graph *g, const char *what)
{
    expect_right(g, what);
    weir_graph_free(g);
}

/* Wrong, and the sentence has all of these parts. */
static void expect_wrong(const weir_graph *g, const char *one, const char *two)
{
    cr_assert_null(weir_graph_mistake(g), "%s", weir_graph_mistake(g));
    cr_expect_eq(weir_gradients_verify(g, .seed = SEED), WEIR_E_WRONG, "%s goes by unseen", one);
    cr_expect(strstr(weir_error(), one) && strstr(weir_error(), two) && strstr(weir_error(), "test_gradients.c:"),
              "\"%s\" should have \"%s\" and \"%s\"", weir_error(), one, two);
}

/* ---- ops ---- */

static weir_tensor *matrix(weir_graph *g, int64_t rows, int64_t columns, const char *name)
{
    return weir_param(g, WEIR_F32, {rows, columns}, .name = name);
}

/* Weights of its own for each element: so no two elements may change places. */
static weir_tensor *weighted(weir_tensor *x)
{
    const weir_type type = weir_tensor_type(x);
    weir_param_opts opts = {.size = sizeof opts, .src = WEIR_HERE, .name = weir_name_for(x, NULL, "weights"), .frozen = true};
    memcpy(opts.shape, type.shape.dim, sizeof opts.shape);
    return weir_sum(weir_mul(x, weir_param_at(weir_tensor_graph(x), WEIR_F32, &opts)));
}

static weir_tensor *functions(weir_graph *g)
{
    weir_tensor *x = matrix(g, 3, 4, "x");
    weir_tensor *all[] = {weir_neg(x), weir_exp(x), weir_log(x), weir_sqrt(x), weir_tanh(x), weir_sigmoid(x), weir_relu(x),
                          weir_gelu(x), weir_silu(x), weir_affine(x, -1.5, .shift = 0.1), weir_softmax(x), weir_abs(x),
                          weir_sin(x), weir_cos(x), weir_erf(x), weir_gelu_erf(x), weir_reciprocal(x), weir_softplus(x)};
    weir_tensor *sum = weir_add_many_at(all, sizeof all / sizeof *all, WEIR_OPTS(weir_op_opts, .name = "all"));
    return weighted(weir_tanh(weir_mul(sum, weir_log(weir_exp(sum)))));
}

static weir_tensor *pairs(weir_graph *g)
{
    weir_tensor *a = matrix(g, 3, 4, "a"), *b = matrix(g, 1, 4, "b"), *c = weir_param(g, WEIR_F32, {4}, .name = "c");
    /* The minus signs of div and sub would cancel without exp between them. */
    weir_tensor *below = weir_exp(weir_sub(weir_mul(b, b), weir_mul(c, weir_mul(a, a))));
    return weighted(weir_div(weir_sub(weir_add(a, b), weir_mul(c, a)), below));
}

static weir_tensor *choices(weir_graph *g)
{
    weir_tensor *a = matrix(g, 3, 4, "a"), *b = matrix(g, 1, 4, "b"), *c = weir_param(g, WEIR_F32, {3, 1}, .name = "c");
    weir_tensor *small = weir_min2(a, b), *large = weir_max2(c, a), *power = weir_pow(weir_exp(a), c);
    weir_tensor *condition = weir_or(weir_and(weir_less(a, b), weir_not(weir_equal(a, c))), weir_is_nan(b));
    weir_tensor *chosen = weir_where(weir_xor(condition, weir_greater_equal(b, c)), weir_mul(small, c), large);
    weir_tensor *clipped = weir_clip(weir_mul(a, b), .lo = -0.5, .hi = 0.5), *bounded = weir_clip(c, .lo = WEIR_ZERO);
    weir_tensor *flat[] = {weir_floor(a), weir_ceil(a), weir_round(a), weir_sign(a), weir_mul(chosen, power)};
    weir_tensor *all = weir_add_many_at(flat, sizeof flat / sizeof *flat, WEIR_OPTS(weir_op_opts, .name = "all"));
    return weir_add(weighted(all), weir_add(weighted(clipped), weighted(bounded)));
}

static weir_tensor *sums(weir_graph *g)
{
    weir_tensor *x = weir_param(g, WEIR_F32, {2, 3, 4}, .name = "x");
    weir_tensor *rows = weir_sum(x, .axes = {0, -1}, .axis_count = 2), *most = weir_max(x, .axes = {1}, .axis_count = 1);
    weir_tensor *mean = weir_mean(x, .axes = {1}, .axis_count = 1, .keep = true);
    weir_tensor *least = weir_max(weir_neg(weir_relu(x))); /* of zeros that are equal */
    const weir_shape small = {2, {3, 1}}, large = {3, {2, 3, 4}};
    weir_tensor *repeated = shape_broadcast_to(reduce_sum_to(weir_mul(x, x), &small, WEIR_HERE), &large, WEIR_HERE);
    return weir_add(weir_add(weir_add(weighted(rows), weighted(most)), weir_add(weighted(mean), least)), weighted(repeated));
}

static weir_tensor *shapes(weir_graph *g)
{
    weir_tensor *x = weir_param(g, WEIR_F32, {2, 3, 4}, .name = "x"), *y = weir_transpose(x, {2, 0, 1});
    weir_tensor *both = weir_concat(-1, {weir_reshape(y, {4, 6}), weir_slice(weir_reshape(x, {4, 6}), 1, 2, 3)});
    return weighted(weir_mul(shape_pad(both, 0, 1, 2, WEIR_HERE), shape_pad(both, 0, 2, 1, WEIR_HERE)));
}

static weir_tensor *indexes(weir_graph *g)
{
    weir_tensor *x = weir_param(g, WEIR_F32, {2, 3, 4}, .name = "x");
    weir_tensor *back = weir_slice(x, 2, 3, 2, .step = -2), *wide = weir_expand(weir_slice(x, 1, 0, 1), {2, 3, 4});
    weir_tensor *least = weir_min(x, .axes = {1}, .axis_count = 1), *all = weir_prod(x, .axes = {0, 2}, .axis_count = 2);
    weir_tensor *ids = weir_input(g, WEIR_I32, {2, 2}, .name = "ids", .micro = true);
    weir_tensor *slices = weir_gather(x, ids, 1), *elements = weir_gather_elements(x, weir_reshape(ids, {2, 1, 2}), 2);
    weir_tensor *picked = weir_add(weighted(weir_mul(slices, slices)), weighted(weir_mul(elements, elements)));
    picked = weir_add(picked, weighted(weir_gather_nd(weir_mul(x, x), ids, 0)));
    weir_tensor *sums_so_far = weir_cumsum(x, 1, .reverse = true), *best = weir_top_k(x, 2, -1, NULL);
    picked = weir_add(picked, weir_add(weighted(weir_mul(sums_so_far, sums_so_far)), weighted(weir_mul(best, best))));
    weir_tensor *sized = weir_resize(weir_pad(x, .after = {0, 1}, .mode = WEIR_PAD_EDGE), {2, 5, 7}, .mode = WEIR_RESIZE_LINEAR);
    picked = weir_add(picked, weighted(weir_mul(sized, sized)));
    all = weir_add(all, picked);
    weir_tensor *scale = weir_add(weir_range(g, WEIR_F32, 4, .start = 1), weir_constant(g, WEIR_F32, {3, 1}, .value = 0.5));
    return weir_add(weir_add(weighted(weir_mul(back, back)), weighted(weir_mul(weir_mul(wide, x), scale))),
                    weir_add(weighted(least), weighted(all)));
}

static weir_tensor *halves(weir_graph *g)
{
    weir_tensor *x = weir_input(g, WEIR_F32, {4, 6}, .name = "x", .micro = true);
    weir_tensor *half = weir_cast(weir_linear(x, 6), WEIR_BF16);
    return weighted(weir_cast(weir_gelu(weir_linear(half, 5)), WEIR_F32));
}

static weir_tensor *products(weir_graph *g)
{
    weir_tensor *a = weir_param(g, WEIR_F32, {2, 3, 4}, .name = "a"), *b = weir_param(g, WEIR_F32, {2, 5, 4}, .name = "b");
    weir_tensor *c = matrix(g, 5, 3, "c"), *d = weir_param(g, WEIR_F32, {2, 4, 3}, .name = "d");
    weir_tensor *ab = weir_matmul(a, b, .trans_b = true), *da = weir_matmul(d, a, .trans_a = true, .trans_b = true);
    weir_tensor *wide = weir_matmul(weir_reshape(a, {2, 1, 3, 4}), b, .trans_b = true); /* [2, 2, 3, 5] */
    ab = weir_add(ab, weir_sum(weir_matmul(wide, wide, .trans_b = true)));
    weir_tensor *rows = weir_linear(weir_matmul(ab, c), 3, .by_row = true, .name = "rows");
    weir_tensor *plain = weir_linear(da, 4, .no_bias = true, .name = "plain");
    return weir_add(weighted(rows), weighted(plain));
}

static weir_tensor *stored(weir_graph *g)
{
    weir_tensor *x = matrix(g, 3, 32, "x"), *dense = matrix(g, 5, 32, "dense"), *table = matrix(g, 7, 8, "table");
    weir_tensor *blocks = weir_input(g, WEIR_U8, {8, 1, 20}, .name = "blocks"), *ids = weir_input(g, WEIR_I32, {3}, .name = "ids");
    weir_tensor *y = weir_mul(weir_linear_stored(x, blocks, .format = WEIR_Q4_1), weir_embedding_stored(ids, table));
    return weir_add(weighted(y), weighted(weir_linear_stored(x, dense)));
}

static weir_tensor *windows(weir_graph *g)
{
    weir_tensor *x = weir_param(g, WEIR_F32, {2, 4, 5, 4}, .name = "x");
    weir_tensor *y = weir_conv(x, 6, {3, 2}, .stride = {2, 1}, .pad = {1, 0}, .dilation = {1, 2}, .groups = 2, .name = "conv");
    weir_tensor *w = weir_param(g, WEIR_F32, {6, 2, 2, 2}, .name = "w"), *b = weir_param(g, WEIR_F32, {2}, .name = "b");
    weir_tensor *back = weir_conv_transpose_with(y, w, b, .stride = {2, 2}, .output_pad = {1, 0});
    weir_tensor *most = weir_max_pool(weir_mul(back, back), {3, 2}, .stride = {2, 1}, .pad = {1, 0});
    weir_tensor *mean = weir_average_pool(weir_lrn(back, 3), {2, 3}, .stride = {1, 2}, .pad = {0, 1}, .ceil = true);
    return weir_add(weighted(most), weighted(mean));
}

static weir_tensor *norms(weir_graph *g)
{
    weir_tensor *x = matrix(g, 3, 5, "x");
    return weighted(weir_rmsnorm(weir_mul(x, weir_layernorm(x, .name = "ln")), .name = "rms"));
}

static weir_tensor *batches(weir_graph *g)
{
    weir_tensor *x = weir_input(g, WEIR_F32, {2, 3, 2}, .name = "x", .micro = true);
    return weighted(weir_batchnorm(weir_mul(x, weir_param(g, WEIR_F32, {2, 3, 2}, .name = "by")), .name = "bn"));
}

static weir_tensor *model(weir_graph *g)
{
    weir_tensor *ids = weir_input(g, WEIR_I32, {2, 4}, .name = "ids", .micro = true);
    weir_tensor *labels = weir_input(g, WEIR_I32, {2, 4}, .name = "labels", .micro = true);
    weir_tensor *table = matrix(g, 7, 8, "table"), *x = weir_dropout(weir_embedding_with(ids, table), 0.3, .name = "drop");
    weir_tensor *q = weir_rope(weir_linear(x, 8, .name = "q"), NULL, .heads = 2);
    weir_tensor *k = weir_rope(weir_linear(x, 8, .name = "k"), NULL, .heads = 2, .interleaved = true);
    weir_tensor *y = weir_attention(q, k, weir_linear(x, 8, .name = "v"),
                                    .heads = 2, .causal = true);
    weir_tensor *few = weir_linear(x, 4, .name = "few", .no_bias = true), *mask = weir_input(g, WEIR_U8, {2, 4}, .name = "mask", .micro = true);
    weir_tensor *bias = weir_input(g, WEIR_F32, {2, 1, 4}, .name = "bias");
    y = weir_add(y, weir_attention(q, few, few, .heads = 4, .kv_heads = 2, .causal = true, .window = 2, .mask = mask));
    y = weir_add(y, weir_attention(q, k, x, .heads = 2, .mask = weir_reshape(bias, {1, 2, 1, 4})));
    weir_tensor *logits = weir_matmul(weir_add(x, y), table, .trans_b = true); /* the table is tied */
    return weir_cross_entropy(logits, labels, .ignore = true, .ignore_index = 3);
}

/* Classes are split into groups. */
static weir_tensor *classes(weir_graph *g)
{
    weir_mesh_new(g, "cpu:0-1");
    weir_tensor *x = weir_input(g, WEIR_F32, {3, 4}, .name = "x", .micro = true);
    weir_tensor *labels = weir_input(g, WEIR_I32, {3}, .name = "labels", .micro = true);
    weir_tensor *logits = weir_linear(x, 32, .name = "logits", .weight = {WEIR_S(1)});
    return weir_cross_entropy(logits, labels, .ignore = true, .ignore_index = 1);
}

/* A function over inputs, which are constants, and of what gradients do not go through. */
static weir_tensor *constants(weir_graph *g)
{
    weir_tensor *x = weir_input(g, WEIR_F32, {3, 4}, .name = "x", .micro = true), *w = matrix(g, 4, 4, "w");
    weir_tensor *h = weir_matmul(weir_exp(x), w), *each = weir_sum(h), *all = weir_batch(weir_sum(h), 3);
    weir_tensor *back = weir_unbatch(all), *chosen = weir_cast(weir_argmax(h), WEIR_F32);
    return weir_add(weir_mul(each, back), weir_sum(chosen));
}

typedef weir_tensor *(*model_fn)(weir_graph *g);
static const struct {
    const char *name;
    model_fn make;
} models[] = {{"functions", functions}, {"pairs", pairs}, {"choices", choices}, {"sums", sums}, {"shapes", shapes}, {"halves", halves}, {"indexes", indexes},
              {"products", products}, {"stored", stored}, {"windows", windows}, {"norms", norms}, {"batches", batches}, {"model", model}, {"classes", classes}};
enum { MODEL_COUNT = sizeof models / sizeof *models };

static weir_graph *trained(model_fn make, bool recompute)
{
    weir_graph *g = weir_graph_new("gradients");
    weir_train(make(g), weir_sgd(.lr = 0.1), .recompute = recompute);
    cr_assert_null(weir_graph_mistake(g), "%s", weir_graph_mistake(g));
    return g;
}

Test(gradients, each_op_that_has_one_has_the_right_one)
{
    bool seen[OPS_COUNT] = {false};
    for (int i = 0; i < 2 * MODEL_COUNT; i++) {
        weir_graph *g = trained(models[i / 2].make, i % 2);
        expect_right(g, models[i / 2].name);
        for (int n = 0; n < g->nodes.count; n++)
            for (int o = 0; o < OPS_COUNT && g->nodes.item[n]->gradients; o++)
                seen[o] |= level_ops[o] == g->nodes.item[n]->op;
        weir_graph_free(g);
    }
    for (int o = 0; o < OPS_COUNT; o++)
        cr_expect(seen[o] || !level_ops[o]->grad || level_ops[o] == &op_shard, "no model has the op %s", level_ops[o]->name);
}

Test(gradients, those_of_a_gpt_are_right_in_every_layout)
{
    static text corpus = {.bytes = (uint8_t *)"a text of which nobody reads a word", .count = 35};
    const layout lies[] = {{0}, {.dp = 2, .tp = 2, .micro = 2}, {.dp = 2, .tp = 2, .pp = 2, .micro = 4, .zero = true}};
    for (size_t i = 0; i < sizeof lies / sizeof *lies; i++) {
        const gpt_config config = {.layers = 2, .dim = 8, .heads = 2, .seq = 4, .vocab = 16, .batch = 4, .layout = lies[i],
                                   .optimizer = weir_adamw(.lr = 0.01, .clip_norm = 1), .corpus = &corpus};
        expect_right_once(gpt_train_graph(&config), "gpt");
    }
}

Test(gradients, those_of_random_models_are_right)
{
    for (uint64_t model = 0; model < MODELS; model++)
        for (uint64_t lies = 0; lies < LAYOUTS; lies++) {
            char what[64];
            snprintf(what, sizeof what, "model %llu, layout %llu", (unsigned long long)model, (unsigned long long)lies);
            expect_right_once(random_model(SEED + model, lies), what);
        }
}

Test(gradients, what_is_no_parameter_and_what_no_gradient_passes_is_a_constant)
{
    weir_graph *g = trained(constants, false);
    struct told told = {0};
    cr_expect_eq(weir_gradients_verify(g, .micro_batches = 3, .not_covered = note, .ctx = &told), WEIR_OK, "%s", weir_error());
    cr_expect_eq(told.count, 0, "%s", told.last);
    weir_graph_free(g);
}

/* A sum over labels, which the update divides by the number of labels of the step. */
Test(gradients, the_gradient_of_a_sum_is_not_divided_by_the_micro_batches)
{
    weir_graph *g = weir_graph_new("sum");
    weir_tensor *x = weir_input(g, WEIR_F32, {4, 3}, .name = "x", .micro = true);
    weir_tensor *labels = weir_input(g, WEIR_I32, {4}, .name = "labels", .micro = true);
    weir_tensor *loss = weir_cross_entropy(weir_linear(x, 5), labels, .ignore = true, .ignore_index = 2, .sum = true);
    weir_train(loss, weir_adamw(.clip_norm = 1), .count = weir_label_count(labels, .ignore = true, .ignore_index = 2));
    expect_right_once(g, "sum");
}

/* A recurrent cell that is unrolled in a step and goes on in the next. */
Test(gradients, a_state_is_a_constant_of_its_step)
{
    weir_graph *g = weir_graph_new("cell");
    weir_tensor *x = weir_input(g, WEIR_F32, {2, 3}, .name = "x"), *w = matrix(g, 3, 3, "w");
    weir_tensor *state = weir_state(g, WEIR_F32, {2, 3}, .name = "h", .delay = 2), *h = state;
    for (int i = 0; i < 3; i++)
        h = weir_tanh(weir_add(weir_matmul(h, w), x));
    weir_state_set(state, h);
    weir_train(weighted(h), weir_sgd());
    expect_right_once(g, "cell");
}

Test(gradients, a_program_beside_that_which_trains_is_left_alone)
{
    weir_graph *g = weir_graph_new("beside");
    weir_tensor *x = weir_input(g, WEIR_F32, {4, 3}, .name = "x");
    weir_train(weighted(weir_gelu(weir_linear(x, 2, .name = "l"))), weir_sgd());
    WEIR_PROGRAM(g, "apply") {
        weir_tensor *in = weir_input(g, WEIR_F32, {4, 3}, .name = "x");
        weir_fetch(weir_exp(weir_linear(in, 2, .name = "l")), .name = "y");
    }
    expect_right_once(g, "beside");
}

/* ---- ops with a wrong gradient ---- */

static bool like_input(weir_op_args *args, char *error, size_t error_bytes)
{
    (void)error, (void)error_bytes;
    args->out[0] = args->in[0];
    return true;
}

/* y = a b, element by element. */
static weir_status product_exact(const weir_kernel_args *args)
{
    const weir_exact *a = args->in[0].data, *b = args->in[1].data;
    for (int64_t i = 0; i < weir_shape_count(&args->in[0].shape); i++)
        ((weir_exact *)args->out[0].data)[i] = weir_exact_mul(a[i], b[i]);
    return WEIR_OK;
}

static weir_status no_kernel(const weir_kernel_args *args)
{
    (void)args;
    return WEIR_OK;
}

static void right(weir_grad_args *args)
{
    for (int i = 0; i < 2; i++)
        if (args->needed[i])
            args->din[i] = weir_mul(args->dout[0], args->in[1 - i]);
}

static void twice(weir_grad_args *args)
{
    right(args);
    args->din[1] = weir_affine(args->din[1], 2);
}

static void of_the_other_input(weir_grad_args *args)
{
    for (int i = 0; i < 2; i++)
        args->din[i] = weir_mul(args->dout[0], args->in[i]);
}

static void without_a_factor(weir_grad_args *args)
{
    args->din[0] = args->din[1] = args->dout[0];
}

static void transposed(weir_grad_args *args)
{
    right(args);
    args->din[0] = weir_transpose(args->din[0], {1, 0});
}

static void of_one_row(weir_grad_args *args)
{
    right(args);
    args->din[0] = shape_pad(weir_slice(args->din[0], 0, 0, 3), 0, 0, 1, args->src);
}

#define OWN(called, gradient) \
    {.name = called, .in_min = 2, .in_max = 2, .out_count = 1, .infer = like_input, .grad = gradient, .exact = product_exact, \
     .kernel = {[WEIR_CPU] = no_kernel}}
static const weir_op own[] = {OWN("own_right", right), OWN("own_twice", twice), OWN("own_other", of_the_other_input),
                              OWN("own_without", without_a_factor), OWN("own_transposed", transposed),
                              OWN("own_row", of_one_row)};
enum { OWN_COUNT = sizeof own / sizeof *own };

/* Two linear layers, the op of what the first gives and a parameter, and the second. */
static weir_graph *graph_with(const weir_op *op)
{
    weir_graph *g = weir_graph_new("own");
    weir_tensor *x = weir_input(g, WEIR_F32, {4, 3}, .name = "x", .micro = true);
    weir_tensor *in[2] = {weir_gelu(weir_linear(x, 4, .name = "first")), matrix(g, 4, 4, "factor")};
    weir_tensor *h = weir_op_apply(&(weir_apply){WEIR_HERE, "act", op, g, in, 2, NULL}, NULL);
    weir_train(weighted(weir_exp(weir_linear(h, 2, .name = "last"))), weir_sgd());
    return g;
}

Test(gradients, wrong_ones_of_a_program_s_ops_are_named)
{
    for (int i = 0; i < OWN_COUNT; i++) {
        cr_assert_eq(weir_op_register(&own[i]), WEIR_OK);
        weir_graph *g = graph_with(&own[i]);
        if (!i)
            expect_right(g, "a right one");
        else
            expect_wrong(g, own[i].name, "act");
        weir_graph_free(g);
    }
}

/* ---- ops that cannot be followed ---- */

static const weir_op blind_right = {.name = "blind_right", .in_min = 2, .in_max = 2, .out_count = 1, .infer = like_input,
                                    .grad = right, .kernel = {[WEIR_CPU] = no_kernel}};
static const weir_op half_blind_grad = {.name = "half_blind_grad", .in_min = 2, .in_max = 2, .out_count = 1, .infer = like_input,
                                        .kernel = {[WEIR_CPU] = no_kernel}};

static void half_blind_backward(weir_grad_args *args)
{
    weir_tensor *in[2] = {args->dout[0], args->in[0]};
    for (int i = 0; i < 2; i++)
        args->din[i] = weir_op_apply(&(weir_apply){args->src, NULL, &half_blind_grad, NULL, in, 2, NULL}, NULL);
}

static const weir_op half_blind = {.name = "half_blind", .in_min = 2, .in_max = 2, .out_count = 1, .infer = like_input,
                                   .grad = half_blind_backward, .exact = product_exact, .kernel = {[WEIR_CPU] = no_kernel}};

static void register_blind(void)
{
    cr_assert_eq(weir_op_register(&blind_right), WEIR_OK);
    cr_assert_eq(weir_op_register(&half_blind), WEIR_OK);
    cr_assert_eq(weir_op_register(&half_blind_grad), WEIR_OK);
}

Test(gradients, an_op_without_a_rule_is_told_and_the_rest_is_proven)
{
    const weir_op *ops[] = {&blind_right, &half_blind};
    register_blind();
    for (int i = 0; i < 2; i++) {
        struct told told = {0};
        weir_graph *g = graph_with(ops[i]);
        cr_expect_eq(weir_gradients_verify(g, .not_covered = note, .ctx = &told), WEIR_OK, "%s", weir_error());
        cr_expect_eq(told.count, 1);
        cr_expect(strstr(told.last, "act (") && strstr(told.last, ops[i]->name) && strstr(told.last, "test_gradients.c:"), "%s",
                  told.last);
        weir_graph_free(g);
    }
}

/* The n-th node of an op in the backward pass. */
static graph_node *backward_of(weir_graph *g, const char *op, int n)
{
    for (int i = 0; i < g->nodes.count; i++)
        if (g->nodes.item[i]->phase == PLAN_BACKWARD && !strcmp(g->nodes.item[i]->op->name, op) && !n--)
            return g->nodes.item[i];
    return NULL;
}

/* Before it and behind it a wrong gradient is seen as before. */
Test(gradients, a_wrong_one_beside_an_op_without_a_rule_is_seen)
{
    const char *ops[] = {"gelu_grad", "mul"}; /* of what the op reads, and of what reads it: exp's gradient is a product */
    const char *named[] = {"gelu", "exp"};
    register_blind();
    for (int i = 0; i < 2; i++) {
        weir_graph *g = graph_with(&blind_right);
        graph_node *node = backward_of(g, ops[i], i); /* the first product is that of the weights */
        cr_assert_not_null(node);
        weir_tensor *kept = node->in[0];
        node->in[0] = node->in[1];
        node->in[1] = i ? node->in[1] : kept;
        expect_wrong(g, named[i], "gives back a wrong gradient");
        weir_graph_free(g);
    }
}

/* ---- graphs of built-in ops, changed in one place ---- */

/* Changes the n-th of something: what the sentence has to name. NULL: there is no n-th. */
typedef const char *(*mutant)(weir_graph *g, int n);

/* Not of sums and products, which are the same then. */
static const char *inputs_are_swapped(weir_graph *g, int n)
{
    for (int i = 0; i < g->nodes.count; i++) {
        graph_node *node = g->nodes.item[i];
        if (node->phase != PLAN_BACKWARD || !node->forward || node->in_count < 2 || !strcmp(node->op->name, "mul") ||
            !strcmp(node->op->name, "add_many") || !weir_shape_equal(&node->in[0]->type.shape, &node->in[1]->type.shape) ||
            node->in[0]->type.dtype != node->in[1]->type.dtype || node->in[0] == node->in[1] || n--)
            continue;
        weir_tensor *kept = node->in[0];
        node->in[0] = node->in[1];
        node->in[1] = kept;
        return node->forward->name;
    }
    return NULL;
}

/* Attention does not depend on the bias of its keys, so the gradient of that is 0 whatever is done to it. Each row of its
 * weights adds up to 1, so the bias of the values has the gradient that a bias behind the attention would have. */
static bool is_of_key_or_value(const graph_node *node)
{
    return !strncmp(node->name, "k.grad/linear_db", 16) || !strncmp(node->name, "v.grad/linear_db", 16) ||
           !strcmp(node->name, "k/bias.grad");
}

/* Single numbers are left out: most are the gradient of the loss. */
static const char *a_gradient_is_another(weir_graph *g, int n)
{
    for (int i = 0; i < g->nodes.count; i++) {
        graph_node *node = g->nodes.item[i];
        for (int k = 0; node->phase == PLAN_BACKWARD && node->forward && !is_of_key_or_value(node) && k < node->in_count; k++)
            for (int t = 0; t < node->in[k]->id; t++) {
                weir_tensor *other = g->tensors.item[t];
                if (!other->node || other->node->phase != PLAN_BACKWARD || other->node->id >= node->id ||
                    weir_shape_count(&other->type.shape) == 1 ||
                    !weir_shape_equal(&other->type.shape, &node->in[k]->type.shape) ||
                    other->type.dtype != node->in[k]->type.dtype || other->micro != node->in[k]->micro || n--)
                    continue;
                node->in[k] = other;
                return node->forward->name;
            }
    }
    return NULL;
}

static const char *a_constant_is_another(weir_graph *g, int n)
{
    for (int i = 0; i < g->nodes.count; i++) {
        graph_node *node = g->nodes.item[i];
        if (node->phase != PLAN_BACKWARD || !node->forward || strcmp(node->op->name, "affine") || n--)
            continue;
        *(double *)node->attrs *= 1.5;
        return node->forward->name;
    }
    return NULL;
}

static const char *a_term_is_left_out(weir_graph *g, int n)
{
    for (int i = 0; i < g->nodes.count; i++) {
        graph_node *node = g->nodes.item[i];
        if (node->phase != PLAN_BACKWARD || strcmp(node->op->name, "add_many") || n--)
            continue;
        node->in_count--;
        return "are not added up";
    }
    return NULL;
}

static const char *a_micro_batch_is_not_added(weir_graph *g, int n)
{
    for (int i = 0; i < g->nodes.count; i++) {
        graph_node *node = g->nodes.item[i];
        if (strcmp(node->op->name, "accumulate") || !node->fills || node->phase != PLAN_BACKWARD || is_of_key_or_value(node) || n--)
            continue;
        node->fills = false;
        return "micro-batches";
    }
    return NULL;
}

static const char *the_seed_is_another(weir_graph *g, int n)
{
    graph_node *node = n ? NULL : backward_of(g, "grad_seed", 0);
    if (node)
        ((seed_attrs *)node->attrs)->value = 2;
    return node ? "begins with another number" : NULL;
}

static const char *an_update_reads_another_gradient(weir_graph *g, int n)
{
    for (int t = 0; t < g->tensors.count; t++)
        for (int s = t + 1; s < g->tensors.count; s++) {
            weir_tensor *a = g->tensors.item[t], *b = g->tensors.item[s];
            if (!a->trains || !b->trains || a->node || b->node || !a->update || !b->update ||
                !weir_shape_equal(&a->type.shape, &b->type.shape) || n--)
                continue;
            a->update->in[0] = b->update->in[0];
            return a->name;
        }
    return NULL;
}

#define MUTANTS(X) X(inputs_are_swapped) X(a_gradient_is_another) X(a_constant_is_another) X(a_term_is_left_out) \
    X(a_micro_batch_is_not_added) X(the_seed_is_another) X(an_update_reads_another_gradient)
static const struct {
    const char *name;
    mutant make;
} mutants[] = {
#define X(name) {#name, name},
    MUTANTS(X)
#undef X
};
enum { MUTANT_KINDS = sizeof mutants / sizeof *mutants, OF_EACH = FULL(100, 20) };

static void try_mutants(model_fn make, const char *what, int *made)
{
    for (int kind = 0; kind < MUTANT_KINDS; kind++)
        for (int n = 0; n < OF_EACH; n++) {
            weir_graph *g = trained(make, false);
            const char *name = mutants[kind].make(g, n);
            weir_status status = name ? weir_gradients_verify(g, .seed = SEED, .rounds = 1) : WEIR_OK;
            if (name) {
                made[kind]++;
                cr_expect_eq(status, WEIR_E_WRONG, "%s, %s, number %d (%s) goes by unseen", what, mutants[kind].name, n, name);
                cr_expect(status != WEIR_E_WRONG || strstr(weir_error(), name), "%s, %s, number %d: \"%s\" should name %s", what,
                          mutants[kind].name, n, weir_error(), name);
            }
            weir_graph_free(g);
            if (!name)
                break;
        }
}

Test(gradients, each_change_of_a_graph_of_built_in_ops_is_caught)
{
    int made[MUTANT_KINDS] = {0};
    for (int i = 0; i < MODEL_COUNT; i++)
        if (models[i].make != choices) /* many of its gradients are 0, so two of them may change places */
            try_mutants(models[i].make, models[i].name, made);
    for (int kind = 0; kind < MUTANT_KINDS; kind++)
        cr_expect_gt(made[kind], 0, "no %s could be made", mutants[kind].name);
}

/* ---- the call ---- */

Test(gradients, a_graph_that_trains_nothing_has_none)
{
    weir_graph *g = weir_graph_new("none");
    weir_fetch(weir_input(g, WEIR_F32, {4}, .name = "x"), .name = "y");
    cr_expect_eq(weir_gradients_verify(g), WEIR_E_ARGUMENT);
    cr_expect(strstr(weir_error(), "test_gradients.c:") && strstr(weir_error(), "call weir_train() before"), "%s", weir_error());
    weir_graph_free(g);
}

Test(gradients, a_proof_that_takes_more_memory_than_it_may_is_not_begun)
{
    weir_graph *g = trained(model, false);
    cr_expect_eq(weir_gradients_verify(g, .memory = "1KiB"), WEIR_E_MEMORY);
    cr_expect(strstr(weir_error(), "weir_gradients_verify: the proof of \"gradients\" takes"), "%s", weir_error());
    cr_expect_eq(weir_gradients_verify(g, .memory = "some"), WEIR_E_ARGUMENT);
    weir_graph_free(g);
}

Test(gradients, the_environment_asks_for_a_proof_of_them)
{
    cr_assert_eq(weir_op_register(&own[1]), WEIR_OK);
    weir_graph *g = graph_with(&own[1]);
    setenv("WEIR_VERIFY", "1", 1);
    cr_expect_null(weir_compile(g));
    cr_expect(strstr(weir_error(), "compile: ") && strstr(weir_error(), "own_twice"), "%s", weir_error());
    unsetenv("WEIR_VERIFY");
    weir_graph_free(g);
}
