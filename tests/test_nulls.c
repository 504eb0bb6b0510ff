/* test_nulls.c: every public function, with NULL in every place of a pointer, one or several at a time. None may crash or
 * hang; those that make something of a graph leave a mistake that weir_compile() tells, the others an error or what their
 * header says of NULL. Left out are pure functions of arrays (weir_philox(), weir_to_f32()), and sessions that are NULL.
 */
#include "tests/support/folder.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>
#include <weir/weir.h>

TestSuite(nulls, .timeout = 120);

/* ---- what is built ---- */

enum { INPUTS_MAX = 6 };

typedef weir_tensor *build_fn(weir_tensor **x);

struct builder {
    const char *name;
    build_fn *build;
    int inputs;
    unsigned may;  /* bit i: input i may be NULL */
};

#define BUILDER(name, ...)                        \
    static weir_tensor *build_##name(weir_tensor **x) \
    {                                             \
        return __VA_ARGS__;                       \
    }
#define X(name) BUILDER(name, weir_##name(x[0]))
WEIR_UNARY_LIST(X)
#undef X
#define X(name) BUILDER(name, weir_##name(x[0], x[1]))
WEIR_BINARY_LIST(X)
#undef X
BUILDER(add_many, weir_add_many_at(x, 3, WEIR_OPTS(weir_op_opts)))
BUILDER(affine, weir_affine(x[0], 2))
BUILDER(not, weir_not(x[0]))
BUILDER(is_nan, weir_is_nan(x[0]))
BUILDER(where, weir_where(x[0], x[1], x[2]))
BUILDER(clip, weir_clip(x[0], .lo = 1))
BUILDER(matmul, weir_matmul(x[0], x[1]))
BUILDER(linear, weir_linear(x[0], 2))
BUILDER(linear_with, weir_linear_with_at(x[0], x[1], x[2], WEIR_OPTS(weir_op_opts)))
BUILDER(softmax, weir_softmax(x[0]))
BUILDER(conv, weir_conv(x[0], 4, {3, 3}))
BUILDER(conv_with, weir_conv_with(x[0], x[1], x[2]))
BUILDER(conv_transpose_with, weir_conv_transpose_with(x[0], x[1], x[2], .stride = {2, 2}))
BUILDER(max_pool, weir_max_pool(x[0], {2, 2}))
BUILDER(average_pool, weir_average_pool(x[0], {2, 2}))
BUILDER(lrn, weir_lrn(x[0], 5))
BUILDER(layernorm, weir_layernorm(x[0]))
BUILDER(rmsnorm, weir_rmsnorm(x[0]))
BUILDER(batchnorm, weir_batchnorm(x[0]))
BUILDER(argmax, weir_argmax(x[0]))
BUILDER(embedding, weir_embedding(x[0], 4, 4))
BUILDER(embedding_with, weir_embedding_with(x[0], x[1]))
BUILDER(linear_stored, weir_linear_stored(x[0], x[1]))
BUILDER(embedding_stored, weir_embedding_stored(x[0], x[1], .format = WEIR_Q4_0))
BUILDER(attention, weir_attention(x[0], x[1], x[2]))
BUILDER(attention_masked, weir_attention(x[0], x[1], x[2], .mask = x[3]))
BUILDER(attention_kept, weir_attention_kept(x[0], x[1], x[2], x[3], x[4], x[5]))
BUILDER(rope, weir_rope(x[0], x[1], .heads = 1))
BUILDER(append, weir_append(x[0], x[1], x[2]))
BUILDER(cross_entropy, weir_cross_entropy(x[0], x[1]))
BUILDER(cross_entropy_ignore, weir_cross_entropy(x[0], x[1], .ignore = true))
BUILDER(mse, weir_mse(x[0], x[1]))
BUILDER(binary_cross_entropy, weir_binary_cross_entropy(x[0], x[1]))
BUILDER(tied, weir_tied(x[0], x[1]))
BUILDER(lora, weir_lora(x[0], x[1], 2, 4))
BUILDER(sum, weir_sum(x[0]))
BUILDER(mean, weir_mean(x[0], .axes = {0}, .axis_count = 1))
BUILDER(max, weir_max(x[0], .axes = {1}))
BUILDER(reshape, weir_reshape(x[0], {4}))
BUILDER(transpose, weir_transpose(x[0], {1, 0}))
BUILDER(slice, weir_slice(x[0], 0, 0, 1))
BUILDER(concat, weir_concat(0, {x[0]}))
BUILDER(slice_step, weir_slice(x[0], 0, 0, 1, .step = 2))
BUILDER(expand, weir_expand(x[0], {2, 2}))
BUILDER(min, weir_min(x[0]))
BUILDER(prod, weir_prod(x[0]))
BUILDER(argmin, weir_argmin(x[0], .axis = 0))
BUILDER(argmax_along, weir_argmax(x[0], .axis = 0, .keep = true))
BUILDER(argmax_last, weir_argmax_at(x[0], WEIR_OPTS(weir_op_opts)))
BUILDER(pad, weir_pad(x[0], .before = {1}, .value = 2))
BUILDER(resize, weir_resize(x[0], {2, 4}))
BUILDER(one_hot, weir_one_hot(x[0], 4, -1))
BUILDER(cumsum, weir_cumsum(x[0], 0))
BUILDER(top_k, weir_top_k(x[0], 1, 0, NULL))
BUILDER(top_k_smallest, weir_top_k(x[0], 1, 0, &x[1], .smallest = true))
BUILDER(gather, weir_gather(x[0], x[1], 0))
BUILDER(gather_nd, weir_gather_nd(x[0], x[1], 0))
BUILDER(gather_elements, weir_gather_elements(x[0], x[1], 0))
BUILDER(dropout, weir_dropout(x[0], 0.5))
BUILDER(cast, weir_cast(x[0], WEIR_BF16))
BUILDER(shard, weir_shard(x[0], .sbp = {WEIR_B}))
BUILDER(fetch, (weir_fetch(x[0]), NULL))
BUILDER(slots, (weir_slots(x[0], 2), NULL))
BUILDER(train, (weir_train(x[0], weir_sgd()), NULL))
BUILDER(state_set, (weir_state_set(x[0], x[1]), NULL))
BUILDER(state_append, (weir_state_append(x[0], x[1], x[2]), NULL))
BUILDER(mistake, weir_mistake(x[0], WEIR_HERE, "mine"))

static weir_status nothing(const weir_kernel_args *args)
{
    (void)args;
    return WEIR_OK;
}

BUILDER(call, weir_call(nothing, {x[0]}, .dtype = WEIR_F32))
BUILDER(batch, weir_batch(x[0], 2))
BUILDER(unbatch, weir_unbatch(x[0]))
BUILDER(apply, weir_op_apply(&(weir_apply){.src = WEIR_HERE, .op = weir_op_find("relu"), .in = x, .in_count = 1}, NULL))

static const struct builder builders[] = {
#define X(name) {#name, build_##name, 1, 0},
    WEIR_UNARY_LIST(X)
#undef X
#define X(name) {#name, build_##name, 2, 0},
    WEIR_BINARY_LIST(X)
#undef X
#define TAKES(name, count, may) {#name, build_##name, count, may}
    TAKES(add_many, 3, 0), TAKES(affine, 1, 0), TAKES(not, 1, 0), TAKES(is_nan, 1, 0), TAKES(where, 3, 0),
    TAKES(clip, 1, 0), TAKES(matmul, 2, 0), TAKES(linear, 1, 0), TAKES(linear_with, 3, 4),
    TAKES(softmax, 1, 0), TAKES(layernorm, 1, 0), TAKES(rmsnorm, 1, 0), TAKES(batchnorm, 1, 0), TAKES(argmax, 1, 0), TAKES(embedding, 1, 0),
    TAKES(linear_stored, 2, 0), TAKES(embedding_stored, 2, 0), TAKES(embedding_with, 2, 0), TAKES(attention, 3, 0), TAKES(attention_masked, 4, 8), TAKES(attention_kept, 6, 0), TAKES(append, 3, 0), TAKES(rope, 2, 2),
    TAKES(cross_entropy, 2, 0), TAKES(cross_entropy_ignore, 2, 0), TAKES(mse, 2, 0), TAKES(binary_cross_entropy, 2, 0),
    TAKES(tied, 2, 0), TAKES(lora, 2, 0), TAKES(sum, 1, 0), TAKES(mean, 1, 0), TAKES(max, 1, 0),
    TAKES(reshape, 1, 0), TAKES(transpose, 1, 0), TAKES(slice, 1, 0), TAKES(concat, 1, 0), TAKES(dropout, 1, 0),
    TAKES(cast, 1, 0), TAKES(shard, 1, 0), TAKES(fetch, 1, 0), TAKES(slots, 1, 0), TAKES(train, 1, 0),
    TAKES(state_set, 2, 0), TAKES(state_append, 3, 0), TAKES(mistake, 1, 0), TAKES(call, 1, 0), TAKES(apply, 1, 0),
    TAKES(batch, 1, 0), TAKES(unbatch, 1, 0),
    TAKES(slice_step, 1, 0), TAKES(expand, 1, 0), TAKES(min, 1, 0), TAKES(prod, 1, 0), TAKES(argmin, 1, 0),
    TAKES(argmax_along, 1, 0), TAKES(argmax_last, 1, 0),
    TAKES(conv, 1, 0), TAKES(conv_with, 3, 4), TAKES(conv_transpose_with, 3, 4), TAKES(max_pool, 1, 0), TAKES(average_pool, 1, 0),
    TAKES(lrn, 1, 0),
    TAKES(gather, 2, 0), TAKES(gather_nd, 2, 0),
    TAKES(gather_elements, 2, 0), TAKES(pad, 1, 0), TAKES(resize, 1, 0), TAKES(one_hot, 1, 0), TAKES(cumsum, 1, 0), TAKES(top_k, 1, 0),
    TAKES(top_k_smallest, 1, 0),
};

/* The graph does something, but for the mistake it is to have. */
static weir_graph *graph_with(weir_tensor **x)
{
    weir_graph *g = weir_graph_new("nulls");
    for (int i = 0; i < INPUTS_MAX; i++)
        x[i] = weir_input(g, WEIR_F32, {2, 2});
    weir_fetch(x[0], .name = "whole");
    return g;
}

static void expect_told(const weir_graph *g, const char *name, unsigned mask)
{
    weir_plan *plan = weir_compile(g);
    cr_expect_null(plan, "%s, NULL in %#x: nobody noticed", name, mask);
    cr_expect(plan || strstr(weir_error(), "tests/test_nulls.c:"), "%s, NULL in %#x: %s", name, mask, weir_error());
    weir_plan_free(plan);
}

Test(nulls, tensors)
{
    for (const struct builder *b = builders; b < builders + sizeof builders / sizeof *builders; b++)
        for (unsigned mask = 1; mask < 1u << b->inputs; mask++) {
            weir_tensor *x[INPUTS_MAX];
            weir_graph *g = graph_with(x);
            for (int i = 0; i < b->inputs; i++)
                x[i] = mask >> i & 1 ? NULL : x[i];
            b->build(x);
            if (mask & ~b->may)
                expect_told(g, b->name, mask);
            weir_graph_free(g);
        }
}

Test(nulls, graphs_and_meshes)
{
    weir_tensor *x[INPUTS_MAX];
    weir_graph *g = graph_with(x);
    cr_expect_null(weir_mesh_new(NULL, NULL));
    expect_told(g, "mesh_new", 0);
    cr_expect_null(weir_input(NULL, WEIR_F32, {2}));
    expect_told(g, "input", 0);
    cr_expect_null(weir_param(NULL, WEIR_F32, {2}));
    expect_told(g, "param", 0);
    cr_expect_null(weir_state(NULL, WEIR_F32, {2}, .delay = -1));
    expect_told(g, "state", 0);
    cr_expect_null(weir_constant(NULL, WEIR_F32, {2}));
    expect_told(g, "constant", 0);
    cr_expect_null(weir_range(NULL, WEIR_F32, 2));
    expect_told(g, "range", 0);
    weir_graph_program(NULL, NULL);
    expect_told(g, "program", 0);
    WEIR_PROGRAM(NULL, NULL)
        weir_relu(NULL);
    expect_told(g, "PROGRAM", 0);
    WEIR_NAMED((weir_graph *)NULL, NULL)
        weir_relu(NULL);
    expect_told(g, "NAMED", 0);
    weir_op_apply(NULL, NULL);
    cr_expect_null(weir_compile(g));
    weir_op_apply(&(weir_apply){.src = WEIR_HERE}, NULL);
    expect_told(g, "apply", 0);
    weir_op_apply(&(weir_apply){.src = WEIR_HERE, .op = weir_op_find("relu"), .in_count = 1}, NULL);
    expect_told(g, "apply to nothing", 0);
    weir_add_many_at(NULL, 2, WEIR_OPTS(weir_op_opts));
    expect_told(g, "add_many", 0);
    weir_call(NULL, {NULL});
    expect_told(g, "call", 0);
    weir_call_many(NULL, nothing, {NULL}, .out = {{WEIR_F32, {2}}});
    expect_told(g, "call_many", 0);
    weir_plan *plan = weir_compile(g);
    cr_expect_not_null(plan, "%s", weir_error());
    weir_plan_free(plan);
    weir_op_apply(&(weir_apply){.src = WEIR_HERE, .op = weir_op_find("cast"), .in = x, .in_count = 1}, NULL);
    expect_told(g, "apply without attributes", 0);
    weir_graph_free(g);
    weir_graph_free(NULL);
}

Test(nulls, queries)
{
    cr_expect_not_null(weir_graph_mistake(NULL));
    cr_expect_not(weir_graph_trains(NULL));
    cr_expect_eq(weir_mesh_size(NULL), 0);
    cr_expect_null(weir_tensor_graph(NULL));
    cr_expect_null(weir_length(NULL));
    cr_expect_eq(weir_tensor_type(NULL).dtype, WEIR_DTYPE_NONE);
    cr_expect_not_null(weir_tensor_name(NULL));
    cr_expect_null(weir_tensor_mesh(NULL));
    cr_expect(weir_tensor_poisoned(NULL));
    cr_expect_null(weir_mesh_for(NULL));
    weir_name_for(NULL, NULL, NULL);
    weir_scope_leave(NULL);
    cr_expect_eq(weir_shape_count(NULL), 0);
    cr_expect(weir_shape_equal(NULL, NULL));
    cr_expect_not(weir_shape_equal(&(weir_shape){1, {2}}, NULL));
    cr_expect_str_eq(weir_sbp_text(WEIR_B, NULL), "");
    cr_expect_null(weir_op_find(NULL));
    cr_expect_eq(weir_op_register(NULL), WEIR_E_ARGUMENT);
    cr_expect_eq(weir_op_register(&(weir_op){.infer = NULL}), WEIR_E_ARGUMENT);
    cr_expect_eq(weir_key_new(NULL), WEIR_E_ARGUMENT);
    weir_graph *g = weir_graph_new(NULL);
    cr_expect_not_null(g);
    weir_graph_free(g);
}

/* ---- plans ---- */

static weir_plan *small_plan(void)
{
    weir_tensor *x[INPUTS_MAX];
    weir_graph *g = weir_graph_new("small");
    x[0] = weir_input(g, WEIR_F32, {2, 2}, .name = "x");
    weir_fetch(weir_linear(x[0], 2, .name = "up"), .name = "y");
    weir_plan *plan = weir_compile(g);
    weir_graph_free(g);
    cr_assert_not_null(plan, "%s", weir_error());
    return plan;
}

#define REFUSED(call) cr_expect_eq((call), WEIR_E_ARGUMENT, #call)

Test(nulls, plans)
{
    weir_plan *plan = small_plan();
    weir_host_info host;
    weir_param_info param;
    char text[160];
    cr_expect_null(weir_compile(NULL));
    cr_expect_null(weir_plan_load(NULL));
    cr_expect_null(weir_plan_load_part(NULL));
    REFUSED(weir_plan_save(NULL, "/tmp/x"));
    REFUSED(weir_plan_save(plan, NULL));
    REFUSED(weir_plan_check(NULL));
    REFUSED(weir_plan_verify(NULL, plan));
    REFUSED(weir_gradients_verify(NULL));
    weir_graph *empty = weir_graph_new("empty");
    REFUSED(weir_plan_verify(empty, NULL));
    weir_graph_free(empty);
    weir_graph *kept;
    REFUSED(weir_plan_graph(NULL, &kept));
    REFUSED(weir_plan_graph(plan, NULL));
    REFUSED(weir_plan_graph(plan, &kept));
    cr_expect_null(kept);
    weir_prediction prediction;
    REFUSED(weir_predict(NULL, NULL, &prediction));
    REFUSED(weir_predict(plan, NULL, &prediction));
    REFUSED(weir_predict_slots(NULL, NULL, NULL, NULL));
    REFUSED(weir_predict_slots(plan, NULL, NULL, NULL));
    REFUSED(weir_rates_save(NULL, "/tmp/x"));
    cr_expect_null(weir_rates_load(NULL));
    weir_rates_free(NULL);
    REFUSED(weir_plan_same(NULL, plan));
    REFUSED(weir_plan_same(plan, NULL));
    cr_expect_eq(weir_plan_bytes(NULL, 0), 0);
    cr_expect_eq(weir_plan_micro_batches(NULL), 0);
    cr_expect_eq(weir_plan_host_count(NULL), 0);
    REFUSED(weir_plan_host(NULL, 0, &host));
    REFUSED(weir_plan_host(plan, 0, NULL));
    cr_expect_eq(weir_plan_param_count(NULL), 0);
    REFUSED(weir_plan_param(NULL, 0, &param));
    REFUSED(weir_plan_param(plan, 0, NULL));
    cr_expect_not(weir_plan_limited(NULL, text, sizeof text));
    cr_expect_not(weir_plan_limited(plan, NULL, 10));
    REFUSED(weir_plan_show(NULL, stderr));
    REFUSED(weir_plan_show(plan, NULL));
    REFUSED(weir_plan_json(NULL, stderr));
    REFUSED(weir_plan_json(plan, NULL));
    REFUSED(weir_plan_dot(NULL, stderr));
    REFUSED(weir_plan_dot(plan, NULL));
    REFUSED(weir_plan_picture(NULL, stderr));
    REFUSED(weir_plan_picture(plan, NULL));
    REFUSED(weir_plan_list(NULL, stderr));
    REFUSED(weir_plan_list(plan, NULL));
    cr_expect_null(weir_session_open(NULL));
    weir_plan_free(plan);
    weir_plan_free(NULL);
}

Test(nulls, onnx_files)
{
    weir_graph *g = weir_graph_new("empty");
    weir_graph_value value;
    cr_expect_null(weir_graph_from_onnx(NULL));
    cr_expect_null(weir_graph_tensor(NULL, "x"));
    cr_expect_null(weir_graph_tensor(g, NULL));
    cr_expect_eq(weir_graph_values(NULL, &value, 1), 0);
    REFUSED(weir_graph_to_onnx(NULL, "/tmp/x"));
    REFUSED(weir_graph_to_onnx(g, NULL));
    weir_graph_free(g);
}

/* ---- what a session is given ---- */

Test(nulls, arguments_of_sessions)
{
    weir_plan *plan = small_plan();
    weir_session *s = weir_session_open(plan);
    float number[4] = {0};
    weir_array array = {number, WEIR_F32, {2, {2, 2}}}, nowhere = {NULL, WEIR_F32, {2, {2, 2}}};
    cr_assert_not_null(s, "%s", weir_error());
    REFUSED(weir_session_push(s, NULL, &array, 0));
    REFUSED(weir_session_push(s, "x", NULL, 0));
    REFUSED(weir_session_push(s, "x", &nowhere, 0));
    REFUSED(weir_session_pull(s, NULL, &array, 0));
    REFUSED(weir_session_pull(s, "y", NULL, 0));
    REFUSED(weir_session_pull(s, "y", &nowhere, 0));
    REFUSED(weir_session_read(s, NULL, &array));
    REFUSED(weir_session_read(s, "up/weight", NULL));
    REFUSED(weir_session_read(s, "up/weight", &nowhere));
    REFUSED(weir_session_write(s, NULL, &array));
    REFUSED(weir_session_write(s, "up/weight", NULL));
    REFUSED(weir_session_write(s, "up/weight", &nowhere));
    REFUSED(weir_session_visit(s, NULL, NULL, NULL));
    cr_expect_eq(weir_session_write_values(s, NULL), WEIR_OK); /* no graph has no values */
    REFUSED(weir_session_save(s, NULL));
    REFUSED(weir_session_load(s, NULL));
    cr_expect_eq(weir_session_params(s, NULL, 4), 2);
    weir_session_get_stats(s, NULL);
    REFUSED(weir_session_link(s, 0, NULL));
    REFUSED(weir_session_predict(s, NULL, NULL));
    cr_expect_null(weir_session_open(plan, .bindings = (weir_binding[]){{.name = "x"}, {.name = NULL}}));
    cr_expect_eq(weir_session_close(s), WEIR_OK);
    weir_plan_free(plan);
}

/* ---- checkpoints ---- */

static void write_one(const char *path)
{
    float number[4] = {1, 2, 3, 4};
    weir_checkpoint_value value = {.name = "w", .value = {number, WEIR_F32, {2, {2, 2}}}}, nameless = value, empty = value;
    weir_checkpoint_writer *w = weir_checkpoint_create(path);
    nameless.name = NULL;
    empty.value.data = NULL;
    cr_assert_not_null(w, "%s", weir_error());
    REFUSED(weir_checkpoint_add(w, NULL));
    REFUSED(weir_checkpoint_add(NULL, &value));
    REFUSED(weir_checkpoint_add(w, &nameless));
    REFUSED(weir_checkpoint_add(w, &empty));
    REFUSED(weir_checkpoint_add_source(w, NULL));
    REFUSED(weir_checkpoint_add_source(NULL, &(weir_checkpoint_source){.name = "x"}));
    REFUSED(weir_checkpoint_add_source(w, &(weir_checkpoint_source){.bytes = number, .count = 4}));
    REFUSED(weir_checkpoint_add_source(w, &(weir_checkpoint_source){.name = "x", .count = 4}));
    cr_assert_eq(weir_checkpoint_add(w, &value), WEIR_OK, "%s", weir_error());
    cr_assert_eq(weir_checkpoint_finish(w), WEIR_OK, "%s", weir_error());
}

Test(nulls, checkpoints, .init = folder_make, .fini = folder_remove)
{
    float number[4];
    weir_array array = {number, WEIR_F32, {2, {2, 2}}}, nowhere = {NULL, WEIR_F32, {2, {2, 2}}};
    cr_expect_null(weir_checkpoint_create(NULL));
    cr_expect_null(weir_checkpoint_open(NULL));
    REFUSED(weir_checkpoint_finish(NULL));
    weir_checkpoint_abandon(NULL);
    write_one(folder_path("one.safetensors"));
    write_one(folder_path("one"));
    weir_checkpoint *c = weir_checkpoint_open(folder_path("one"));
    cr_assert_not_null(c, "%s", weir_error());
    const weir_checkpoint_tensor *t = weir_checkpoint_find(c, "w");
    cr_expect_null(weir_checkpoint_find(c, NULL));
    cr_expect_null(weir_checkpoint_find(NULL, "w"));
    cr_expect_null(weir_checkpoint_get_info(NULL));
    cr_expect_null(weir_checkpoint_get_tensor(NULL, 0));
    cr_expect_null(weir_checkpoint_get_file(NULL, 0));
    cr_expect_null(weir_checkpoint_get_source(NULL, 0));
    cr_expect_not(weir_checkpoint_reads_as(NULL, WEIR_F32));
    REFUSED(weir_checkpoint_read(NULL, t, 0, NULL, &array));
    REFUSED(weir_checkpoint_read(c, NULL, 0, NULL, &array));
    REFUSED(weir_checkpoint_read(c, t, 0, NULL, NULL));
    REFUSED(weir_checkpoint_read(c, t, 0, NULL, &nowhere));
    cr_expect_eq(weir_checkpoint_read(c, t, 0, NULL, &array), WEIR_OK, "%s", weir_error());
    REFUSED(weir_checkpoint_verify(NULL, NULL, NULL));
    cr_expect_eq(weir_checkpoint_verify(c, NULL, NULL), WEIR_OK, "%s", weir_error());
    weir_checkpoint_close(c);
    weir_checkpoint_close(NULL);
}
