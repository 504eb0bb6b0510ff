/* tests/graph/base/test_opts.c: options of programs that were compiled with an older or a newer version of the headers:
 * structures that are smaller or larger than the library's, as such a program's WEIR_OPTS() makes them. */
#include "graph/base/opts.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>
#include <weir/weir.h>

TestSuite(opts, .timeout = 60);

static const weir_src there = {"model.c", 12};

/* A structure of an older version, of this one, and of a newer one. */
typedef struct older {
    size_t size;
    weir_src src;
    int first;
} older;
typedef struct known {
    size_t size;
    weir_src src;
    int first, second;
    double third;
} known;
typedef struct newer {
    known known;
    double fourth, fifth;
} newer;

Test(opts, what_an_older_program_does_not_know_is_zero)
{
    struct {
        older opts;
        char behind[64];
    } program = {.opts = {.size = sizeof(older), .src = there, .first = 7}};
    memset(program.behind, 0xAA, sizeof program.behind);
    known own;
    program.opts.size = offsetof(older, first) + sizeof(int);
    cr_assert_null(opts_take(&own, sizeof own, &program.opts));
    cr_expect(own.first == 7 && own.second == 0 && own.third == 0);
    cr_expect(own.size == sizeof own && own.src.line == 12);
}

Test(opts, what_a_newer_program_leaves_out_may_be_unknown_and_what_it_sets_may_not)
{
    newer program = {.known = {.size = sizeof program, .src = there, .first = 7, .second = 8, .third = 9}};
    known own;
    cr_assert_null(opts_take(&own, sizeof own, &program));
    cr_expect(own.first == 7 && own.second == 8 && own.third == 9 && own.size == sizeof own);
    program.fifth = -0.0; /* WEIR_ZERO is set, too */
    const char *wrong = opts_take(&own, sizeof own, &program);
    cr_assert_not_null(wrong);
    cr_expect_not_null(strstr(wrong, "compiled for a newer weir"));
    cr_expect(own.first == 0 && own.src.line == 12, "nothing is taken but the place");
}

Test(opts, a_size_that_is_not_set_is_an_error_and_no_options_are_none)
{
    known program = {.src = there, .first = 7}, own;
    cr_expect_not_null(strstr(opts_take(&own, sizeof own, &program), "WEIR_OPTS()"));
    program.size = sizeof(opts_head) - 1;
    cr_expect_not_null(opts_take(&own, sizeof own, &program));
    cr_expect(own.first == 0);
    cr_assert_null(opts_take(&own, sizeof own, NULL));
    cr_expect(own.first == 0 && own.size == sizeof own && !strcmp(own.src.file, "?"));
}

/* ---- the API: calls that return a status, or NULL ---- */

/* A newer program's structure of a type: the same with one more member, which is set. */
#define NEWER(type) \
    union {         \
        type now;   \
        char bytes[sizeof(type) + 16]; \
    }

static weir_tensor *matrix(weir_graph *g, const char *name)
{
    return weir_param(g, WEIR_F32, {4, 4}, .name = name);
}

static weir_graph *small(void)
{
    weir_graph *g = weir_graph_new("small");
    weir_fetch(weir_relu(matrix(g, "w")), .name = "y");
    return g;
}

static void expect_error(const char *text)
{
    cr_expect_not_null(strstr(weir_error(), text), "'%s' does not say '%s'", weir_error(), text);
}

Test(opts, an_older_and_a_newer_program_compile)
{
    weir_graph *g = small();
    NEWER(weir_compile_opts) with = {.now = {.size = sizeof with, .src = there, .seed = 5}};
    weir_plan *plan = weir_compile_at(g, &with.now);
    cr_assert(plan, "%s", weir_error());
    weir_plan_free(plan);
    with.bytes[sizeof with - 1] = 1;
    cr_assert_null(weir_compile_at(g, &with.now));
    expect_error("model.c:12: compile: this call was compiled for a newer weir");
    /* one that ends with the number of micro-batches: what lies behind is not its */
    with.now = (weir_compile_opts){.size = offsetof(weir_compile_opts, memory), .src = there, .micro_batches = 2,
                                   .memory = (const char *)1, .offload = (const char *)1, .per_host = -1,
                                   .rates = (const weir_rates *)1};
    plan = weir_compile_at(g, &with.now);
    cr_assert(plan, "%s", weir_error());
    cr_expect_eq(weir_plan_micro_batches(plan), 2);
    weir_plan_free(plan);
    with.now.size = 0;
    cr_assert_null(weir_compile_at(g, &with.now));
    expect_error("model.c:12: compile: the size of its options is not set");
    plan = weir_compile_at(g, NULL);
    cr_assert(plan, "%s", weir_error());
    weir_plan_free(plan);
    weir_graph_free(g);
}

Test(opts, sessions_and_checkpoints_ask_for_the_size)
{
    weir_graph *g = small();
    weir_plan *plan = weir_compile(g);
    weir_session *s = weir_session_open(plan, .cluster.alone = true);
    cr_assert(s, "%s", weir_error());
    cr_assert_null(weir_session_open_at(plan, &(weir_session_opts){.src = there}));
    expect_error("model.c:12: weir_session_open: the size");
    cr_expect_eq(weir_session_run_at(s, &(weir_run_opts){.src = there, .steps = 1}), WEIR_E_ARGUMENT);
    expect_error("model.c:12: weir_session_start: the size");
    cr_expect_eq(weir_session_save_at(s, "/nowhere", &(weir_save_opts){.src = there}), WEIR_E_ARGUMENT);
    expect_error("model.c:12: weir_session_save: the size");
    cr_expect_eq(weir_session_load_at(s, "/nowhere", &(weir_load_opts){.src = there}), WEIR_E_ARGUMENT);
    expect_error("model.c:12: weir_session_load: the size");
    cr_assert_null(weir_checkpoint_open_at("/nowhere", &(weir_checkpoint_opts){.src = there}));
    expect_error("model.c:12: weir_checkpoint_open: the size");
    cr_assert_null(weir_checkpoint_create_at("/nowhere/c", &(weir_checkpoint_create_opts){.src = there}));
    expect_error("model.c:12: weir_checkpoint_create: the size");
    NEWER(weir_run_opts) run = {.now = {.size = sizeof run, .src = there, .steps = 3}};
    cr_expect_eq(weir_session_start_at(s, &run.now), WEIR_OK, "%s", weir_error());
    for (int step = 0; step < 3; step++) {
        float y[16];
        cr_assert_eq(weir_session_pull(s, "y", &(weir_array){y, WEIR_F32, {2, {4, 4}}}, -1), WEIR_OK);
    }
    cr_expect_eq(weir_session_wait(s, -1), WEIR_OK);
    cr_expect_eq(weir_session_step(s), 3);
    weir_session_close(s);
    weir_plan_free(plan);
    weir_graph_free(g);
}

static weir_status count(void *ctx, const weir_view *value, int64_t step, int micro)
{
    (void)value, (void)step, (void)micro;
    ++*(int *)ctx;
    return WEIR_OK;
}

/* Bindings are a list: how far apart they lie is the program's, too. */
Test(opts, bindings_of_other_sizes_are_found)
{
    weir_graph *g = weir_graph_new("small");
    weir_fetch(matrix(g, "a"), .name = "x", .sink = count);
    weir_fetch(matrix(g, "b"), .name = "y", .sink = count);
    weir_plan *plan = weir_compile(g);
    int seen[2] = {0};
    NEWER(weir_binding) bind[3] = {{.now = {.name = "x", .sink = count, .ctx = &seen[0]}},
                                   {.now = {.name = "y", .sink = count, .ctx = &seen[1]}}};
    weir_session_opts with = {.size = sizeof with, .src = there, .bindings = &bind[0].now, .cluster.alone = true};
    with.binding_size = sizeof bind[0];
    weir_session *s = weir_session_open_at(plan, &with);
    cr_assert(s, "%s", weir_error());
    cr_expect_eq(weir_session_run(s, 2), WEIR_OK);
    weir_session_close(s);
    cr_expect(seen[0] == 2 && seen[1] == 2, "%d, %d", seen[0], seen[1]);
    bind[1].bytes[sizeof bind[1] - 1] = 1;
    cr_assert_null(weir_session_open_at(plan, &with));
    expect_error("model.c:12: weir_session_open: bindings: this call was compiled for a newer weir");
    with.binding_size = 0;
    cr_assert_null(weir_session_open_at(plan, &with));
    expect_error("model.c:12: weir_session_open: binding_size");
    weir_plan_free(plan);
    weir_graph_free(g);
}

/* ---- the DSL: mistakes of the graph ---- */

static weir_graph *graph;
static weir_tensor *x, *ids;
static weir_mesh *mesh;

static weir_status call(const weir_kernel_args *args)
{
    (void)args;
    return WEIR_OK;
}

/* Every function of the DSL: its word, its options, how it is called with the options `o`. */
#define DSL_LIST(X)                                                         \
    X(mesh, mesh, weir_mesh_new_at(graph, "cpu:1", o))                      \
    X(scope, scope, weir_scope_enter((o->mesh = mesh, o)))                  \
    X(program, program, weir_graph_program_at(graph, "eval", o))            \
    X(input, input, weir_input_at(graph, WEIR_F32, o))                      \
    X(param, param, weir_param_at(graph, WEIR_F32, o))                      \
    X(state, state, weir_state_at(graph, WEIR_F32, o))                      \
    X(fetch, fetch, weir_fetch_at(x, o))                                    \
    X(shard, shard, weir_shard_at(x, o))                                    \
    X(call, call, weir_call_at(call, (o->in[0] = x, o)))                    \
    X(train, train, weir_train_at(x, NULL, o))                              \
    X(neg, op, weir_neg_at(x, o))                                           \
    X(gelu, op, weir_gelu_at(x, o))                                         \
    X(add, op, weir_add_at(x, x, o))                                        \
    X(div, op, weir_div_at(x, x, o))                                        \
    X(add_many, op, weir_add_many_at(&x, 1, o))                             \
    X(affine, affine, weir_affine_at(x, o))                                 \
    X(matmul, matmul, weir_matmul_at(x, x, o))                              \
    X(linear, linear, weir_linear_at(x, 4, o))                              \
    X(linear_with, op, weir_linear_with_at(x, x, NULL, o))                  \
    X(lora, lora, weir_lora_at(x, x, 2, 4, o))                              \
    X(conv, conv, weir_conv_at(x, 4, o))                                    \
    X(conv_with, conv_with, weir_conv_with_at(x, x, NULL, o))               \
    X(conv_transpose_with, conv_with, weir_conv_transpose_with_at(x, x, NULL, o)) \
    X(max_pool, pool, weir_max_pool_at(x, o))                               \
    X(average_pool, pool, weir_average_pool_at(x, o))                       \
    X(lrn, lrn, weir_lrn_at(x, 3, o))                                       \
    X(softmax, op, weir_softmax_at(x, o))                                   \
    X(layernorm, norm, weir_layernorm_at(x, o))                             \
    X(rmsnorm, norm, weir_rmsnorm_at(x, o))                                 \
    X(batchnorm, batchnorm, weir_batchnorm_at(x, o))                        \
    X(argmax, op, weir_argmax_at(x, o))                                     \
    X(embedding, embedding, weir_embedding_at(ids, 4, 4, o))                \
    X(embedding_with, op, weir_embedding_with_at(ids, x, o))                \
    X(linear_stored, linear_stored, weir_linear_stored_at(x, x, o))         \
    X(embedding_stored, embedding_stored, weir_embedding_stored_at(ids, x, o)) \
    X(attention, attention, weir_attention_at(x, x, x, o))                  \
    X(attention_kept, attention_kept, weir_attention_kept_at(x, x, x, x, x, ids, o)) \
    X(rope, rope, weir_rope_at(x, NULL, o))                                 \
    X(append, op, weir_append_at(x, x, ids, o))                             \
    X(cross_entropy, cross_entropy, weir_cross_entropy_at(x, ids, o))       \
    X(sum, reduce, weir_sum_at(x, o))                                       \
    X(mean, reduce, weir_mean_at(x, o))                                     \
    X(max, reduce, weir_max_at(x, o))                                       \
    X(reshape, dims, weir_reshape_at(x, o))                                 \
    X(transpose, dims, weir_transpose_at(x, o))                             \
    X(slice, slice, weir_slice_at(x, 0, 0, 1, o))                           \
    X(one_hot, op, weir_one_hot_at(ids, 4, 0, o))                           \
    X(cumsum, cumsum, weir_cumsum_at(x, 0, o))                              \
    X(top_k, top_k, weir_top_k_at(x, 2, 0, NULL, o))                        \
    X(pad, pad, weir_pad_at(x, o))                                          \
    X(resize, resize, weir_resize_at(x, (o->dims[0] = 4, o)))               \
    X(gather, op, weir_gather_at(x, ids, 0, o))                             \
    X(gather_nd, op, weir_gather_nd_at(x, ids, 0, o))                       \
    X(gather_elements, op, weir_gather_elements_at(x, ids, 0, o))           \
    X(expand, dims, weir_expand_at(x, o))                                   \
    X(constant, constant, weir_constant_at(graph, WEIR_F32, o))             \
    X(range, range, weir_range_at(graph, WEIR_F32, 4, o))                   \
    X(min, reduce, weir_min_at(x, o))                                       \
    X(prod, reduce, weir_prod_at(x, o))                                     \
    X(argmax, arg, weir_argmax_along_at(x, o))                              \
    X(argmin, arg, weir_argmin_along_at(x, o))                              \
    X(concat, concat, weir_concat_at(0, (o->x[0] = x, o)))                  \
    X(dropout, op, weir_dropout_at(x, 0.5, o))                              \
    X(cast, op, weir_cast_at(x, WEIR_BF16, o))

static void begin(void)
{
    graph = weir_graph_new("sizes");
    mesh = weir_mesh_new(graph, "cpu:0");
    x = weir_input(graph, WEIR_F32, {4, 4}, .name = "x");
    ids = weir_input(graph, WEIR_I32, {4}, .name = "ids");
    cr_assert_null(weir_graph_mistake(graph));
}

static void expect_mistake(const char *what, const char *wrong)
{
    char text[256];
    const char *mistake = weir_graph_mistake(graph);
    snprintf(text, sizeof text, "model.c:12: %s: %s", what, wrong);
    cr_expect(mistake && !strncmp(mistake, text, strlen(text)), "%s: '%s'", what, mistake ? mistake : "no mistake");
    weir_graph_free(graph);
}

Test(opts, every_function_of_the_dsl_asks_for_the_size)
{
#define X(what, type, made)                                \
    {                                                      \
        weir_##type##_opts with = {.src = there}, *o = &with; \
        begin();                                           \
        (void)(made);                                      \
        expect_mistake(#what, "the size of its options");  \
    }
    DSL_LIST(X)
#undef X
}

Test(opts, every_function_of_the_dsl_refuses_what_only_a_newer_one_knows)
{
#define X(what, type, made)                                                 \
    {                                                                       \
        NEWER(weir_##type##_opts) with = {.now = {.size = sizeof with, .src = there}}; \
        weir_##type##_opts *o = &with.now;                                  \
        with.bytes[sizeof(weir_##type##_opts)] = 1;                         \
        begin();                                                            \
        (void)(made);                                                       \
        expect_mistake(#what, "this call was compiled for a newer weir");   \
    }
    DSL_LIST(X)
#undef X
}

Test(opts, an_older_optimizer_trains_and_a_newer_one_does_not)
{
    NEWER(weir_optimizer) by = {.now = weir_sgd(.lr = 0.5)};
    by.now.size = offsetof(weir_optimizer, momentum);
    by.now.momentum = -1; /* out of range, and not the program's */
    begin();
    weir_train_at(weir_mean(weir_linear(x, 2, .name = "l")), &by.now, WEIR_OPTS(weir_train_opts));
    cr_expect_null(weir_graph_mistake(graph), "%s", weir_graph_mistake(graph));
    weir_graph_free(graph);
    by.now = weir_sgd(.lr = 0.5);
    by.now.src = there;
    by.now.size = sizeof by;
    by.bytes[sizeof(weir_optimizer)] = 1;
    begin();
    weir_train_at(weir_mean(weir_linear(x, 2, .name = "l")), &by.now, WEIR_OPTS(weir_train_opts));
    expect_mistake("optimizer", "this call was compiled for a newer weir");
}

/* A structure without a member for its size is passed with its size, by functions that are compiled with the
 * program. */
Test(opts, what_is_applied_and_added_may_have_another_size)
{
    NEWER(weir_apply) apply = {.now = {.src = there, .op = weir_op_find("relu"), .in = &x, .in_count = 1}};
    begin();
    weir_tensor *y = weir_op_apply_of(&apply.now, offsetof(weir_apply, attrs), NULL);
    cr_expect(!weir_tensor_poisoned(y) && weir_op_apply_of(&apply.now, sizeof apply, NULL) != y);
    apply.bytes[sizeof(weir_apply)] = 1;
    cr_expect(weir_tensor_poisoned(weir_op_apply_of(&apply.now, sizeof apply, NULL)));
    expect_mistake("relu", "this call was compiled for a newer weir");

    float value = 1;
    NEWER(weir_checkpoint_value) add = {.now = {.name = "w", .value = {&value, WEIR_F32, {0, {0}}}}};
    weir_checkpoint_writer *w = weir_checkpoint_create("/nowhere/w.safetensors");
    cr_assert(w, "%s", weir_error());
    cr_expect_eq(weir_checkpoint_add_of(w, &add.now, sizeof add), WEIR_OK, "%s", weir_error());
    add.bytes[sizeof add - 1] = 1;
    cr_expect_eq(weir_checkpoint_add_of(w, &add.now, sizeof add), WEIR_E_ARGUMENT);
    expect_error("tensor w: this call was compiled for a newer weir");
    weir_checkpoint_abandon(w);
}
