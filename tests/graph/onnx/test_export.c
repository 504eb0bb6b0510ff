/* Graphs as ONNX files: each op that has a form in ONNX is written, read again, and run beside the graph that it comes from. With
 * WEIR_EXPORT_KEEP=FOLDER the file, its input and its outputs (NAME.bin, as they are in memory) stay there, for another reader:
 * tests/models/run compares them with ONNX Runtime. */
#include "graph/base/dtype.h"
#include "graph/onnx/emit.h"
#include "kernels/common/ops.h"
#include "tests/support/folder.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <weir/weir.h>

TestSuite(export, .init = folder_make, .fini = folder_remove, .timeout = 120);

enum { FETCHES_MAX = 200 };

/* ---- running ---- */

typedef struct outputs {
    const char *name[FETCHES_MAX];
    weir_array value[FETCHES_MAX]; /* owned */
    int count;
} outputs;

static weir_array array_of(weir_type type)
{
    weir_array a = {.dtype = type.dtype, .shape = type.shape};
    a.data = calloc((size_t)weir_shape_count(&type.shape) + 1, 8);
    cr_assert(a.data);
    return a;
}

static void free_outputs(outputs *o)
{
    for (int i = 0; i < o->count; i++)
        free(o->value[i].data);
    o->count = 0;
}

/* Element i of an input: reals of both signs. Integers are small and never negative. */
static void fill(const weir_array *a)
{
    const int64_t count = weir_shape_count(&a->shape);
    for (int64_t i = 0; i < count; i++)
        dtype_set(a->dtype, a->data, i, weir_dtype_real(a->dtype) ? sin((double)(7 * i + 1)) * 1.5 : (double)(i * 5 % 3));
}

/* `steps` steps of what is pushed and pulled in main. The parameters come from the file that `values` was read from, or from `file`, or
 * are what they start as. */
static weir_session *run(weir_plan *plan, const weir_graph *values, const char *file, int steps, outputs *o)
{
    weir_session *s = weir_session_open(plan, .workers = 1);
    cr_assert(s, "%s", weir_error());
    if (values)
        cr_assert_eq(weir_session_write_values(s, values), WEIR_OK, "%s", weir_error());
    if (file)
        cr_assert_eq(weir_session_load(s, file), WEIR_OK, "%s", weir_error());
    for (int step = 0; step < steps; step++) {
        free_outputs(o);
        cr_assert_eq(weir_session_start(s, 1), WEIR_OK, "%s", weir_error());
        for (int h = 0; h < weir_plan_host_count(plan); h++) {
            weir_host_info info;
            cr_assert_eq(weir_plan_host(plan, h, &info), WEIR_OK);
            weir_array a = array_of(info.type);
            fill(&a);
            if (info.kind == WEIR_HOST_PUSH) {
                cr_assert_eq(weir_session_push(s, info.name, &a, 5000), WEIR_OK, "%s", weir_error());
                free(a.data);
                continue;
            }
            cr_assert_eq(weir_session_pull(s, info.name, &a, 5000), WEIR_OK, "%s: %s", info.name, weir_error());
            o->name[o->count] = info.name;
            o->value[o->count++] = a;
        }
        cr_assert_eq(weir_session_wait(s, 5000), WEIR_OK, "%s", weir_error());
    }
    return s;
}

static const weir_array *output_of(const outputs *o, const char *name)
{
    for (int i = 0; i < o->count; i++)
        if (!strcmp(o->name[i], name))
            return &o->value[i];
    return NULL;
}

/* `b` has a value of each of a's names, and these are equal but for the rounding of a few operations. */
static void expect_alike(const outputs *a, const outputs *b)
{
    cr_expect_leq(a->count, b->count); /* a state is an output of the file, too */
    for (int k = 0; k < a->count; k++) {
        const weir_array *x = &a->value[k], *y = output_of(b, a->name[k]);
        cr_expect(y && weir_shape_equal(&x->shape, &y->shape), "%s", a->name[k]);
        double worst = 0;
        for (int64_t i = 0; y && i < weir_shape_count(&x->shape); i++) {
            const double p = dtype_get(x->dtype, x->data, i), q = dtype_get(y->dtype, y->data, i);
            const double error = p == q || (p != p && q != q) ? 0 : fabs(p - q) / fmax(1, fabs(p));
            worst = error > worst || error != error ? error : worst;
        }
        cr_expect(worst < (x->dtype == WEIR_F32 ? 1e-5 : x->dtype == WEIR_F16 || x->dtype == WEIR_BF16 ? 0.02 : 1e-30), "%s is off by %g", a->name[k], worst);
    }
}

/* Leaves outputs in the folder for another reader, if one is named. */
static void keep(const char *folder, const char *name, const outputs *o)
{
    char path[512];
    for (int i = 0; folder && i < o->count; i++) {
        const weir_array *a = &o->value[i];
        snprintf(path, sizeof path, "%s/%s.%s.bin", folder, name, o->name[i]);
        folder_write(path, a->data, (size_t)weir_shape_count(&a->shape) * weir_dtype_bytes(a->dtype));
    }
}

/* The graph goes to a file, as it is after so many steps, and comes back: both give the same. `state`: of the graph, or NULL. */
static void check_round(weir_graph *g, const char *name, int steps, const char *state)
{
    outputs first = {.count = 0}, second = {.count = 0}, third = {.count = 0};
    const char *folder = steps == 1 ? getenv("WEIR_EXPORT_KEEP") : NULL;
    char path[512];
    snprintf(path, sizeof path, "%s/%s.onnx", folder ? folder : folder_path("."), name);
    weir_plan *plan = weir_compile(g);
    cr_assert(plan, "%s", weir_error());
    weir_session *s = run(plan, NULL, NULL, steps, &first);
    cr_assert_eq(weir_graph_to_onnx(g, path, .session = s), WEIR_OK, "%s", weir_error());
    weir_session_close(s);
    keep(folder, name, &first);
    const char *next = folder_path("%s.next", state ? state : "");
    weir_graph *again = state ? weir_graph_from_onnx(path, .fetch = true, .state = {{state, strrchr(next, '/') + 1}}) : weir_graph_from_onnx(path, .fetch = true);
    cr_assert(again, "%s", weir_error());
    weir_plan *other = weir_compile(again);
    cr_assert(other, "%s", weir_error());
    weir_session_close(run(other, again, NULL, steps, &second));
    expect_alike(&first, &second);
    weir_session_close(run(other, NULL, path, steps, &third));
    expect_alike(&second, &third);
    free_outputs(&first);
    free_outputs(&second);
    free_outputs(&third);
    weir_plan_free(other);
    weir_graph_free(again);
    weir_plan_free(plan);
    weir_graph_free(g);
}

/* ---- every op ---- */

#define FETCH(name_, ...) weir_fetch(__VA_ARGS__, .name = #name_)
#define TENSOR(g, ...) weir_input(g, WEIR_F32, __VA_ARGS__)

static void functions(weir_graph *g)
{
    weir_tensor *x = TENSOR(g, {2, 4, 6}, .name = "x"), *p = weir_affine(weir_abs(x), 1, .shift = 0.1);
    weir_tensor *i = weir_input(g, WEIR_I32, {2, 4, 6}, .name = "i");
    FETCH(neg, weir_neg(x)), FETCH(exp, weir_exp(x)), FETCH(log, weir_log(p)), FETCH(sqrt, weir_sqrt(p));
    FETCH(tanh, weir_tanh(x)), FETCH(sigmoid, weir_sigmoid(x)), FETCH(relu, weir_relu(x)), FETCH(gelu, weir_gelu(x));
    FETCH(silu, weir_silu(x)), FETCH(sin, weir_sin(x)), FETCH(cos, weir_cos(x)), FETCH(erf, weir_erf(x));
    FETCH(gelu_erf, weir_gelu_erf(x)), FETCH(reciprocal, weir_reciprocal(p)), FETCH(softplus, weir_softplus(x));
    FETCH(floor, weir_floor(x)), FETCH(ceil, weir_ceil(x)), FETCH(round, weir_round(weir_affine(x, 3))), FETCH(sign, weir_sign(x));
    FETCH(affine, weir_affine(x, 2, .shift = -1)), FETCH(shifted, weir_affine(x, 1, .shift = 3)), FETCH(scaled, weir_affine(x, 4));
    FETCH(clip, weir_clip(x, .lo = -0.5, .hi = 1)), FETCH(above, weir_clip(x, .lo = WEIR_ZERO)), FETCH(neg_i, weir_neg(i));
    FETCH(wide, weir_cast(i, WEIR_F32)), FETCH(i64, weir_cast(i, WEIR_I64)), FETCH(u8, weir_cast(i, WEIR_U8));
    FETCH(cut, weir_cast(weir_affine(x, 5), WEIR_I32)), FETCH(half, weir_cast(x, WEIR_F16)), FETCH(dropout, weir_dropout(x, 0.0));
}

static void pairs(weir_graph *g)
{
    weir_tensor *x = TENSOR(g, {2, 4, 6}, .name = "x"), *y = TENSOR(g, {4, 1}, .name = "y"), *z = TENSOR(g, {2, 4, 6}, .name = "z");
    weir_tensor *i = weir_input(g, WEIR_I32, {2, 4, 6}, .name = "i"), *j = weir_input(g, WEIR_I32, {6}, .name = "j");
    weir_tensor *less = weir_less(x, y), *equal = weir_equal(i, j);
    FETCH(add, weir_add(x, y)), FETCH(sub, weir_sub(x, y)), FETCH(mul, weir_mul(x, y)), FETCH(div, weir_div(x, weir_affine(y, 1, .shift = 4)));
    FETCH(min2, weir_min2(x, y)), FETCH(max2, weir_max2(x, y)), FETCH(pow, weir_pow(weir_affine(weir_abs(x), 1, .shift = 0.2), y));
    FETCH(less, less), FETCH(equal, equal), FETCH(less_equal, weir_less_equal(x, y)), FETCH(greater, weir_greater(x, y));
    FETCH(and, weir_and(less, equal)), FETCH(or, weir_or(less, equal)), FETCH(xor, weir_xor(less, equal)), FETCH(not, weir_not(less));
    FETCH(is_nan, weir_is_nan(weir_log(x))), FETCH(where, weir_where(less, x, y)), FETCH(add_i, weir_add(i, j)), FETCH(mul_i, weir_mul(i, j));
    weir_tensor *many[3] = {x, z, weir_neg(x)};
    weir_fetch(weir_add_many_at(many, 3, WEIR_OPTS(weir_op_opts)), .name = "add_many");
}

static void shapes(weir_graph *g)
{
    weir_tensor *x = TENSOR(g, {3, 4, 6}, .name = "x"), *c = TENSOR(g, {4, 6}, .name = "c");
    weir_tensor *ids = weir_input(g, WEIR_I32, {5}, .name = "ids"), *pairs = weir_input(g, WEIR_I32, {3, 2}, .name = "pairs");
    weir_tensor *places = weir_input(g, WEIR_I64, {2, 3, 6}, .name = "places"), *at = NULL, *least = NULL;
    FETCH(sum, weir_sum(x)), FETCH(sum_1, weir_sum(x, .axes = {1}, .axis_count = 1)), FETCH(mean, weir_mean(x, .axes = {0, -1}, .axis_count = 2, .keep = true));
    FETCH(max, weir_max(x, .axes = {1}, .axis_count = 1)), FETCH(min, weir_min(x)), FETCH(prod, weir_prod(x, .axes = {2}, .axis_count = 1));
    FETCH(softmax, weir_softmax(x)), FETCH(argmax, weir_argmax(x)), FETCH(argmin, weir_argmin(x, .axis = 1, .keep = true));
    FETCH(reshape, weir_reshape(x, {8, 9})), FETCH(expand, weir_expand(c, {3, 4, 6})), FETCH(transpose, weir_transpose(x, {2, 0, 1}));
    FETCH(slice, weir_slice(x, -1, 1, 3)), FETCH(by_step, weir_slice(x, 2, 1, 3, .step = 2)), FETCH(back, weir_slice(x, 1, 3, 4, .step = -1));
    FETCH(pad, weir_pad(x, .before = {0, 1}, .after = {1, 2})), FETCH(edge, weir_pad(x, .before = {0, 2}, .mode = WEIR_PAD_EDGE));
    FETCH(concat, weir_concat(1, {x, x, weir_slice(x, 1, 0, 1)})), FETCH(gather, weir_gather(x, ids, 1)), FETCH(nd, weir_gather_nd(x, pairs, 0));
    FETCH(elements, weir_gather_elements(x, places, 1)), FETCH(one_hot, weir_one_hot(ids, 4, -1)), FETCH(cumsum, weir_cumsum(x, 1));
    FETCH(reverse, weir_cumsum(x, -1, .reverse = true, .exclusive = true)), FETCH(top, weir_top_k(x, 2, -1, &at)), FETCH(top_at, at);
    FETCH(least, weir_top_k(x, 2, 1, &least, .smallest = true)), FETCH(least_at, least), FETCH(one_constant, weir_add(c, weir_constant(g, WEIR_F32, {4, 6}, .value = 2.5)));
    FETCH(range, weir_add(ids, weir_range(g, WEIR_I32, 5, .start = 3, .step = 2)));
}

static void layers(weir_graph *g)
{
    weir_tensor *x = TENSOR(g, {2, 4, 6}, .name = "x"), *y = TENSOR(g, {2, 6, 3}, .name = "y");
    weir_tensor *ids = weir_input(g, WEIR_I32, {2, 4}, .name = "ids");
    weir_tensor *wide = weir_linear(x, 8, .name = "linear", .init = WEIR_NORMAL(0.3));
    FETCH(matmul, weir_matmul(x, y)), FETCH(trans_a, weir_matmul(x, x, .trans_a = true)), FETCH(trans_b, weir_matmul(x, x, .trans_b = true));
    FETCH(linear, wide), FETCH(no_bias, weir_linear(x, 8, .name = "no_bias", .no_bias = true)), FETCH(by_row, weir_linear(x, 8, .name = "by_row", .by_row = true));
    FETCH(layernorm, weir_layernorm(x, .name = "ln")), FETCH(rmsnorm, weir_rmsnorm(x, .name = "rms"));
    FETCH(embedding, weir_embedding(ids, 9, 5, .name = "table")), FETCH(attention, weir_attention(wide, wide, wide, .heads = 2));
    FETCH(causal, weir_attention(wide, wide, wide, .heads = 4, .causal = true, .scale = 0.3)), FETCH(tied, weir_tied(x, wide = weir_linear(y, 6, .name = "odd"))), FETCH(odd, wide);
    weir_tensor *labels = weir_input(g, WEIR_I32, {2, 4}, .name = "labels");
    FETCH(loss, weir_cross_entropy(x, labels)), FETCH(ignoring, weir_cross_entropy(x, labels, .ignore = true, .ignore_index = 2));
    FETCH(sum_loss, weir_cross_entropy(x, labels, .ignore = true, .ignore_index = 0, .sum = true)), FETCH(count, weir_label_count(labels, .ignore = true, .ignore_index = 1));
    FETCH(all, weir_label_count(labels)), FETCH(mse, weir_mse(x, weir_tanh(x))), FETCH(bce, weir_binary_cross_entropy(x, weir_sigmoid(x)));
}

static void windows(weir_graph *g)
{
    weir_tensor *x = TENSOR(g, {2, 4, 9, 7}, .name = "x"), *line = TENSOR(g, {1, 4, 11}, .name = "line");
    weir_tensor *back = weir_param(g, WEIR_F32, {4, 3, 3, 2}, .name = "back", .init = WEIR_NORMAL(0.4));
    FETCH(conv, weir_conv(x, 6, {3, 2}, .stride = {2, 1}, .pad = {1, 0}, .pad_end = {0, 1}, .name = "c"));
    FETCH(grouped, weir_conv(x, 8, {3, 3}, .groups = 4, .dilation = {2, 1}, .no_bias = true, .name = "d"));
    FETCH(line_conv, weir_conv(line, 2, {5}, .name = "e")), FETCH(transposed, weir_conv_transpose_with(x, back, NULL, .stride = {2, 3}, .output_pad = {1, 2}));
    FETCH(max_pool, weir_max_pool(x, {2, 3}, .stride = {2, 1}, .pad = {0, 1})), FETCH(ceil_pool, weir_max_pool(x, {2, 2}, .ceil = true));
    FETCH(average, weir_average_pool(x, {3, 3}, .stride = {1, 2}, .pad = {1, 1})), FETCH(counted, weir_average_pool(x, {3, 3}, .pad = {1, 1}, .count_pad = true));
    FETCH(lrn, weir_lrn(x, 3)), FETCH(nearest, weir_resize(x, {2, 4, 18, 14})), FETCH(linear, weir_resize(x, {2, 4, 5, 14}, .mode = WEIR_RESIZE_LINEAR));
    FETCH(asymmetric, weir_resize(x, {2, 4, 18, 7}, .coordinates = WEIR_COORDINATES_ASYMMETRIC, .round = WEIR_ROUND_FLOOR));
    FETCH(corners, weir_resize(x, {2, 4, 13, 7}, .mode = WEIR_RESIZE_LINEAR, .coordinates = WEIR_COORDINATES_ALIGN_CORNERS));
}

/* As Llama and BERT have it. */
static void heads(weir_graph *g)
{
    weir_tensor *x = TENSOR(g, {2, 5, 12}, .name = "x"), *k = TENSOR(g, {2, 5, 6}, .name = "k"), *v = TENSOR(g, {2, 5, 6}, .name = "v");
    weir_tensor *hidden = weir_input(g, WEIR_U8, {2, 5}, .name = "hidden"), *bias = TENSOR(g, {1, 4, 5, 5}, .name = "bias");
    FETCH(rope, weir_rope(x, NULL, .heads = 3)), FETCH(pairs, weir_rope(x, NULL, .heads = 3, .interleaved = true, .base = 500));
    FETCH(part, weir_rope(x, NULL, .heads = 2, .rotary_dim = 4));
    FETCH(scaled, weir_rope(x, NULL, .scaling = {.factor = 8, .low_freq_factor = 1, .high_freq_factor = 4, .original_max_position = 64}));
    FETCH(groups, weir_attention(x, k, v, .heads = 4, .kv_heads = 2)), FETCH(window, weir_attention(x, k, v, .heads = 4, .kv_heads = 2, .causal = true, .window = 2));
    FETCH(padding, weir_attention(x, k, v, .heads = 4, .kv_heads = 2, .mask = hidden)), FETCH(biased, weir_attention(x, x, x, .heads = 4, .mask = bias));
    FETCH(nothing, weir_attention(x, x, x, .heads = 2, .mask = weir_and(hidden, weir_not(hidden))));
}

/* An op in its half form needs nodes around it. */
static void halves(weir_graph *g)
{
    weir_tensor *x = weir_cast(TENSOR(g, {2, 4, 6}, .name = "x"), WEIR_F16), *h = weir_linear(x, 6, .name = "h");
    FETCH(linear, h), FETCH(norm, weir_layernorm(h, .name = "ln")), FETCH(rms, weir_rmsnorm(h, .name = "rms")), FETCH(attention, weir_attention(h, h, h, .heads = 2, .causal = true));
    FETCH(sum, weir_sum(h)), FETCH(gelu, weir_gelu(h));
}

static const struct group {
    const char *name;
    void (*build)(weir_graph *g);
} groups[] = {{"functions", functions}, {"pairs", pairs}, {"shapes", shapes}, {"layers", layers}, {"windows", windows}, {"heads", heads}, {"halves", halves}};

static weir_graph *graph_of(const struct group *group)
{
    weir_graph *g = weir_graph_new(group->name);
    group->build(g);
    cr_assert_null(weir_graph_mistake(g), "%s", weir_graph_mistake(g));
    return g;
}

Test(export, what_each_op_makes_comes_back_from_the_file)
{
    for (size_t i = 0; i < sizeof groups / sizeof *groups; i++)
        check_round(graph_of(&groups[i]), groups[i].name, 1, NULL);
}

/* Ops that a user's forward pass does not have: made by the compiler, by gradients and by optimizers, or functions of the program. And
 * products of weights as they are stored, which ONNX has no operator for. */
static bool has_no_form(const char *op)
{
    static const char *const none[] = {"source", "sink", "call", "box", "accumulate", "batch", "unbatch", "grad_seed", "fused", "fused_over",
                                       "collective", "place_step", "pow_da", "pow_db", "linear_dw", "linear_db", "linear_gelu", "matmul_gelu_grad",
                                       "linear_dw_db", "linear_many", "linear_dw_many", "conv_dw", "sgd", "nesterov", "adagrad", "lion",
                                       "adamw", "adam", "lamb", "lamb_apply", "schedule", "ema", "square_sum", "clip_scale",
                                       "clip_norm", "loss_scale", "fused_launch", "fused_launch_over", "linear_stored", "linear_stored_dx",
                                       "embedding_stored"};
    const size_t length = strlen(op);
    for (size_t i = 0; i < sizeof none / sizeof *none; i++)
        if (!strcmp(none[i], op))
            return true;
    return (length > 5 && !strcmp(op + length - 5, "_grad")) || (length > 6 && !strcmp(op + length - 6, "_moved"));
}

Test(export, every_op_has_a_form_or_is_none_of_a_forward_pass)
{
#define X(name) cr_expect_neq(export_find(#name) != NULL, has_no_form(#name), "%s", #name);
    OPS_LIST(X)
#undef X
}

/* ---- more than one step, more than one program ---- */

Test(export, a_state_is_an_input_and_an_output)
{
    weir_graph *g = weir_graph_new("recurrent");
    weir_tensor *x = TENSOR(g, {2, 3}, .name = "x"), *h = weir_state(g, WEIR_F32, {2, 3}, .name = "h");
    weir_tensor *next = weir_tanh(weir_add(weir_linear(x, 3, .name = "in"), weir_linear(h, 3, .name = "over")));
    weir_state_set(h, next);
    weir_fetch(next, .name = "y");
    check_round(g, "recurrent", 3, "h");
}

static void kept_rows(weir_graph *g)
{
    weir_tensor *x = TENSOR(g, {1, 2, 6}, .name = "x"), *rows = weir_linear(x, 6, .name = "rows"), *where = weir_input(g, WEIR_I32, {0}, .name = "where");
    weir_tensor *position = weir_add(where, weir_constant(g, WEIR_I32, {0}, .value = 3)), *keys = weir_linear(TENSOR(g, {1, 8, 6}, .name = "kept"), 6, .name = "keys");
    FETCH(seen, weir_attention_kept(rows, rows, rows, keys, keys, position, .heads = 2)), FETCH(appended, weir_append(keys, rows, position));
    weir_tensor *half = weir_cast(rows, WEIR_F16), *halves = weir_cast(keys, WEIR_F16);
    FETCH(halved, weir_attention_kept(rows, half, half, halves, halves, position, .heads = 2));
    weir_tensor *hidden = weir_input(g, WEIR_U8, {1, 8}, .name = "hidden"), *wide = weir_concat(2, {rows, rows});
    FETCH(masked, weir_attention_kept(wide, rows, rows, keys, keys, position, .heads = 4, .kv_heads = 2, .window = 3, .mask = hidden));
    FETCH(turned, weir_rope(rows, position, .heads = 3)), FETCH(each, weir_rope(rows, weir_input(g, WEIR_I32, {1, 2}, .name = "each_at"), .heads = 3));
}

/* How many rows are read is data there, so weir does not read the file again; tests/models/run has ONNX Runtime do it. */
Test(export, rows_that_are_kept_are_written)
{
    const char *folder = getenv("WEIR_EXPORT_KEEP");
    const char *path = folder_path("kept.onnx");
    char other[512];
    outputs o = {.count = 0};
    weir_graph *g = weir_graph_new("kept");
    kept_rows(g);
    weir_plan *plan = weir_compile(g);
    cr_assert(plan, "%s", weir_error());
    weir_session *s = run(plan, NULL, NULL, 1, &o);
    snprintf(other, sizeof other, "%s/kept.onnx", folder ? folder : "");
    cr_expect_eq(weir_graph_to_onnx(g, folder ? other : path, .session = s), WEIR_OK, "%s", weir_error());
    keep(folder, "kept", &o);
    free_outputs(&o);
    weir_session_close(s);
    weir_plan_free(plan);
    weir_graph_free(g);
}

/* A training net with a program that evaluates. */
static weir_graph *trained(void)
{
    weir_graph *g = weir_graph_new("trained");
    weir_tensor *labels = weir_input(g, WEIR_I32, {4}, .name = "labels");
    weir_tensor *logits = weir_linear(TENSOR(g, {4, 5}, .name = "x"), 3, .name = "net"), *loss = weir_cross_entropy(logits, labels);
    weir_fetch(logits, .name = "logits");
    weir_fetch(loss, .name = "loss");
    weir_train(loss, weir_adamw(.lr = 0.1), .norm = "norm");
    WEIR_PROGRAM(g, "eval")
    {
        weir_tensor *y = weir_softmax(weir_linear(TENSOR(g, {2, 5}, .name = "x"), 3, .name = "net"));
        weir_fetch(y, .name = "y");
    }
    WEIR_PROGRAM(g, "weights")
        weir_fetch(weir_param(g, WEIR_F32, {5, 3}, .name = "net/weight"), .name = "net/weight");
    return g;
}

static int names_of(const char *path, const char *names)
{
    weir_graph *g = weir_graph_from_onnx(path, .fetch = true);
    cr_assert(g, "%s", weir_error());
    int found = 0;
    char list[200];
    snprintf(list, sizeof list, "%s", names);
    for (const char *name = strtok(list, " "); name; name = strtok(NULL, " "))
        found += weir_graph_tensor(g, name) != NULL;
    weir_graph_free(g);
    return found;
}

Test(export, the_forward_pass_of_a_program_is_written_with_what_it_needs)
{
    const char *path = folder_path("m.onnx");
    weir_graph *g = trained();
    weir_plan *plan = weir_compile(g);
    cr_assert(plan, "%s", weir_error());
    outputs o = {.count = 0};
    weir_session *s = weir_session_open(plan, .workers = 1);
    cr_expect_eq(weir_graph_to_onnx(g, path, .session = s), WEIR_OK, "%s", weir_error());
    cr_expect_eq(names_of(path, "x labels logits loss net/weight"), 5);
    cr_expect_eq(weir_graph_to_onnx(g, path, .session = s, .fetch = {"logits"}), WEIR_OK, "%s", weir_error());
    cr_expect_eq(names_of(path, "x logits net/bias"), 3);
    cr_expect_eq(names_of(path, "labels loss"), 0);
    cr_expect_eq(weir_graph_to_onnx(g, path, .session = s, .program = "eval"), WEIR_OK, "%s", weir_error());
    cr_expect_eq(names_of(path, "x y net/weight net/bias"), 4);
    cr_expect_eq(names_of(path, "labels logits"), 0);
    cr_expect_eq(weir_graph_to_onnx(g, path, .session = s, .program = "weights"), WEIR_OK, "%s", weir_error());
    cr_expect_eq(names_of(path, "net/weight"), 1);
    weir_session_close(s);
    free_outputs(&o);
    weir_plan_free(plan);
    weir_graph_free(g);
}

/* Only parameters of the same names and sizes are taken, and all of them. */
Test(export, a_session_loads_no_other_models_file)
{
    weir_graph *g = weir_graph_new("other"), *net = trained();
    weir_fetch(weir_linear(TENSOR(g, {4, 5}, .name = "x"), 2, .name = "net"), .name = "y");
    weir_plan *plan = weir_compile(g), *whole = weir_compile(net);
    weir_session *s = weir_session_open(plan, .workers = 1), *from = weir_session_open(whole, .workers = 1);
    cr_assert_eq(weir_graph_to_onnx(net, folder_path("m.onnx"), .session = from), WEIR_OK, "%s", weir_error());
    cr_expect_eq(weir_session_load(s, folder_path("m.onnx")), WEIR_E_ARGUMENT);
    cr_expect(strstr(weir_error(), "weir_session_load: 'net/weight' is f32 [5, 2], the array given is f32 [5, 3]"), "%s", weir_error());
    cr_expect_eq(weir_session_load(s, folder_path("none.onnx")), WEIR_E_IO);
    cr_expect(strstr(weir_error(), "none.onnx: cannot be read: No such file"), "%s", weir_error());
    cr_expect_eq(weir_session_load(from, folder_path("m.onnx")), WEIR_OK, "%s", weir_error());
    weir_session_close(s);
    weir_session_close(from);
    weir_plan_free(plan);
    weir_plan_free(whole);
    weir_graph_free(g);
    weir_graph_free(net);
}

/* A plan that keeps its graph is enough, with a checkpoint. */
Test(export, a_plan_and_a_checkpoint_make_the_file_of_the_session)
{
    const char *params = folder_path("params.safetensors"), *file = folder_path("p.plan");
    weir_graph *g = trained(), *again = NULL;
    weir_plan *plan = weir_compile(g, .keep_graph = true);
    weir_session *s = weir_session_open(plan, .workers = 1);
    cr_assert_eq(weir_session_save(s, folder_path("saved")), WEIR_OK, "%s", weir_error());
    cr_assert_eq(weir_graph_to_onnx(g, folder_path("a.onnx"), .session = s, .program = "eval"), WEIR_OK, "%s", weir_error());
    weir_session_close(s);
    cr_assert_eq(weir_plan_save(plan, file), WEIR_OK);
    weir_plan_free(plan);
    weir_graph_free(g);
    plan = weir_plan_load(file);
    cr_assert_eq(weir_plan_graph(plan, &again), WEIR_OK, "%s", weir_error());
    cr_assert_eq(weir_graph_to_onnx(again, folder_path("b.onnx"), .params = folder_path("saved"), .program = "eval"), WEIR_OK, "%s", weir_error());
    cr_expect_eq(folder_size(folder_path("a.onnx")), folder_size(folder_path("b.onnx")));
    cr_expect_eq(weir_graph_to_onnx(again, folder_path("c.onnx"), .params = params), WEIR_E_IO);
    weir_plan_free(plan);
    weir_graph_free(again);
}

/* Over two devices the loss is made by groups of classes. */
Test(export, a_graph_on_two_devices_is_written_whole)
{
    weir_graph *g = weir_graph_new("split");
    WEIR_ON(weir_mesh_new(g, "cpu:0-1"))
    {
        weir_tensor *x = TENSOR(g, {4, 6}, .name = "x", .sbp = {S(0)}), *labels = weir_input(g, WEIR_I32, {4}, .name = "labels");
        weir_tensor *logits = weir_linear(x, 64, .name = "net", .weight = {S(1)});
        weir_fetch(weir_cross_entropy(logits, labels), .name = "loss");
        weir_fetch(weir_cross_entropy(logits, labels, .ignore = true, .ignore_index = 2), .name = "ignoring");
    }
    check_round(g, "split", 1, NULL);
}

/* ---- large values ---- */

static weir_status sevens(void *ctx, const char *name, weir_array *value)
{
    (void)name;
    ++*(int *)ctx;
    for (int64_t i = 0; i < weir_shape_count(&value->shape); i++)
        ((float *)value->data)[i] = 7 + (float)i;
    return WEIR_OK;
}

Test(export, large_values_lie_in_a_file_beside_the_model)
{
    weir_graph *g = weir_graph_new("large");
    int reads = 0;
    weir_fetch(weir_linear(TENSOR(g, {1, 3}, .name = "x"), 2, .name = "net"), .name = "y");
    const onnx_export_opts opts = {.read = sevens, .ctx = &reads, .inline_most = 31, .writes = true};
    cr_assert_eq(onnx_export(g, folder_path("m.onnx"), &opts), WEIR_OK, "%s", weir_error());
    cr_expect_eq(reads, 2);
    cr_expect_eq(folder_size(folder_path("m.onnx.data")), 32);
    weir_graph *again = weir_graph_from_onnx(folder_path("m.onnx"));
    cr_assert(again, "%s", weir_error());
    weir_graph_value list[2];
    cr_assert_eq(weir_graph_values(again, list, 2), 2);
    for (int i = 0; i < 2; i++)
        for (int64_t e = 0; e < weir_shape_count(&list[i].value.shape); e++)
            cr_expect_eq(((const float *)list[i].value.data)[e], 7 + (float)e);
    weir_graph_free(again);
    weir_graph_free(g);
}

/* ---- mistakes ---- */

#define REFUSED(status, text, ...)                                           \
    do {                                                                     \
        cr_expect_eq(weir_graph_to_onnx(__VA_ARGS__), status);               \
        cr_expect(strstr(weir_error(), text), "%s", weir_error());           \
    } while (0)

static weir_status nothing(const weir_kernel_args *args)
{
    (void)args;
    return WEIR_OK;
}

Test(export, a_mistake_is_one_sentence_and_leaves_the_old_file)
{
    const char *path = folder_path("m.onnx"), *nowhere = folder_path("none/m.onnx");
    weir_graph *g = trained(), *empty = weir_graph_new("empty");
    weir_plan *plan = weir_compile(g);
    weir_session *s = weir_session_open(plan, .workers = 1);
    folder_write(path, "old", 3);
    REFUSED(WEIR_E_ARGUMENT, "graph is NULL", NULL, path);
    REFUSED(WEIR_E_ARGUMENT, "path is NULL", g, NULL);
    REFUSED(WEIR_E_ARGUMENT, "not both", g, path, .session = s, .params = "x");
    REFUSED(WEIR_E_ARGUMENT, "m.onnx: the parameter \"net/weight\" has no value", g, path);
    REFUSED(WEIR_E_ARGUMENT, "no program 'evil'; did you mean 'eval'", g, path, .session = s, .program = "evil");
    REFUSED(WEIR_E_ARGUMENT, "no 'los'; did you mean 'loss'", g, path, .session = s, .fetch = {"los"});
    REFUSED(WEIR_E_ARGUMENT, "'norm' is made by training", g, path, .session = s, .fetch = {"norm"});
    REFUSED(WEIR_E_ARGUMENT, "fetches nothing", empty, path, .session = s);
    REFUSED(WEIR_E_IO, "none/m.onnx: cannot be written: No such file", g, nowhere, .session = s);
    cr_expect_eq(folder_size(path), 3);
    weir_session_close(s);
    weir_plan_free(plan);
    weir_graph_free(empty);
    weir_graph_free(g);
}

Test(export, all_ops_without_a_form_are_named_with_their_lines)
{
    weir_graph *g = weir_graph_new("odd");
    weir_tensor *x = TENSOR(g, {1, 2, 8, 8}, .name = "x");
    weir_tensor *y = weir_call(nothing, {x}, .dtype = WEIR_F32, .shape = {1, 2, 8, 8}, .name = "first");
    weir_fetch(weir_call(nothing, {weir_relu(y)}, .dtype = WEIR_F32, .shape = {3}, .name = "second"), .name = "z");
    weir_fetch(weir_average_pool(x, {2, 2}, .dilation = {2, 2}), .name = "pool");
    REFUSED(WEIR_E_UNSUPPORTED, "2 ops of the graph have no form in ONNX: call (tests/graph/onnx/test_export.c:", g, folder_path("m.onnx"));
    REFUSED(WEIR_E_UNSUPPORTED, "average_pool: an average pool of this version of ONNX has no dilation", g, folder_path("m.onnx"), .fetch = {"pool"});
    weir_graph_free(g);
}

/* Names that a file would have twice get numbers; an input that is fetched as it is stays an input. */
Test(export, names_of_a_file_are_its_own)
{
    weir_graph *g = weir_graph_new("names");
    weir_tensor *x = TENSOR(g, {2}, .name = "x");
    weir_fetch(x, .name = "x");
    weir_fetch(weir_neg(x), .name = "y");
    weir_fetch(weir_neg(x, .name = "y"), .name = "z");
    cr_expect_eq(weir_graph_to_onnx(g, folder_path("m.onnx")), WEIR_OK, "%s", weir_error());
    cr_expect_eq(names_of(folder_path("m.onnx"), "x y z x_2"), 4);
    weir_graph_free(g);
}
