/* test_compile.c: what weir_compile() promises about its plans: they are valid and live, the same every time, within
 * the limit or refused with a reason; and what they compute does not depend on how the model is laid out.
 */
#include "graph/model/build.h"
#include "tests/support/effort.h"
#include "tests/support/random_model.h"
#include "tests/support/run.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static weir_plan *compile_and_free(weir_graph *g, weir_compile_opts opts)
{
    opts.size = sizeof opts;
    opts.src = WEIR_HERE;
    weir_plan *plan = weir_compile_at(g, &opts);
    cr_assert_not_null(plan, "%s", weir_error());
    weir_graph_free(g);
    return plan;
}

/* Compiles with the options in `...`, frees the graph, runs `steps` steps and frees the plan. */
#define run_graph(g, steps, ...) run_graph_at(g, steps, (weir_compile_opts){__VA_ARGS__})
static run run_graph_at(weir_graph *g, int64_t steps, weir_compile_opts opts)
{
    weir_plan *plan = compile_and_free(g, opts);
    run r = run_plan(plan, steps, 2);
    weir_plan_free(plan);
    return r;
}

static double value_of(const run *r, const char *name, int64_t i)
{
    const run_entry *e = run_find(r, name);
    cr_assert_not_null(e, "nothing is called %s", name);
    cr_assert_lt(i, e->count);
    return e->value[i];
}

/* ---- memory that kernels share ---- */

/* Both operands take 64 bytes in the arena; one is repeated, so the result may not lie in its place. */
Test(compile, a_repeated_operand_is_not_overwritten, .timeout = 120)
{
    weir_graph *g = weir_graph_new("inplace");
    weir_tensor *x = weir_input(g, WEIR_F32, {4, 1}, .name = "x"), *y = weir_input(g, WEIR_F32, {4, 4}, .name = "y");
    weir_fetch(weir_neg(weir_add(weir_affine(x, 2), weir_affine(y, 3))), .name = "columns");
    weir_fetch(weir_neg(weir_sub(weir_reshape(weir_affine(x, 2), {4}), weir_affine(y, 3))), .name = "rows");
    run r = run_graph(g, 1);
    for (int i = 0; i < 16; i++) {
        double y3 = 3 * run_input("y", WEIR_F32, 0, 0, i);
        cr_assert_float_eq(value_of(&r, "columns", i), -2 * run_input("x", WEIR_F32, 0, 0, i / 4) - y3, 1e-5);
        cr_assert_float_eq(value_of(&r, "rows", i), -2 * run_input("x", WEIR_F32, 0, 0, i % 4) + y3, 1e-5);
    }
    run_free(&r);
}

Test(compile, a_narrower_operand_is_not_overwritten, .timeout = 120)
{
    weir_graph *g = weir_graph_new("inplace");
    weir_tensor *x = weir_input(g, WEIR_I32, {16}, .name = "x");
    weir_fetch(weir_neg(weir_cast(weir_cast(x, WEIR_U8), WEIR_F32)), .name = "y");
    run r = run_graph(g, 1);
    for (int i = 0; i < 16; i++)
        cr_expect_eq(value_of(&r, "y", i), -run_input("x", WEIR_I32, 0, 0, i));
    run_free(&r);
}

/* ---- random models in random layouts ---- */

enum { MODELS = EFFORT(24, 12, 8), STEPS = 2 };

static weir_plan *plan_of(uint64_t model, uint64_t layout)
{
    weir_graph *g = random_model(model, layout);
    weir_compile_opts opts = {.size = sizeof opts, .micro_batches = random_model_micro(model), .seed = model};
    weir_plan *plan = weir_compile_at(g, &opts), *again = weir_compile_at(g, &opts);
    cr_assert(plan && again, "model %lu, layout %lu: %s", (long)model, (long)layout, weir_error());
    cr_assert_eq(plan->hash, again->hash, "model %lu, layout %lu: another plan", (long)model, (long)layout);
    cr_assert_eq(plan_validate(plan), WEIR_OK, "%s", weir_error());
    cr_assert_eq(weir_plan_check(plan), WEIR_OK, "%s", weir_error());
    weir_plan_free(again);
    weir_graph_free(g);
    return plan;
}

static run run_of(uint64_t model, uint64_t layout, int workers)
{
    weir_plan *plan = plan_of(model, layout);
    run r = run_plan(plan, STEPS, workers);
    weir_plan_free(plan);
    return r;
}

/* All fetches and parameters, but not guesses: two logits that are almost equal may change places. */
static void expect_same_model(run *got, run *want, const char *what)
{
    for (int e = 0; e < got->count; e++)
        if (!strcmp(got->entry[e].name, "guess"))
            got->entry[e].count = want->entry[e].count = 0;
    run_near(got, want, 2e-4, what);
}

Test(compile, random_models_compute_the_same_in_random_layouts, .timeout = 120)
{
    for (uint64_t model = 1; model <= MODELS; model++) {
        run one = run_of(model, 0, 1);
        for (uint64_t layout = 2 * model; layout < 2 * model + 2; layout++) {
            char what[64];
            snprintf(what, sizeof what, "model %lu, layout %lu", (long)model, (long)layout);
            run many = run_of(model, layout, 2);
            expect_same_model(&many, &one, what);
            run_free(&many);
        }
        run_free(&one);
    }
}

Test(compile, one_slot_everywhere_is_live_and_changes_nothing, .timeout = 60)
{
    for (uint64_t model = 1; model <= MODELS / 2; model++) {
        weir_graph *g = random_model(model, model);
        for (int t = 0; t < g->tensors.count; t++)
            weir_slots(g->tensors.item[t], 1);
        weir_plan *tight = compile_and_free(g, (weir_compile_opts){.micro_batches = random_model_micro(model),
                                                                   .seed = model});
        for (uint32_t r = 0; r < tight->regsts_count; r++)
            cr_assert(tight->regsts[r].slots == 1 || !tight->regsts[r].fixed, "a fixed register was raised");
        weir_plan *loose = plan_of(model, model);
        run a = run_plan(tight, STEPS, 2), b = run_plan(loose, STEPS, 2);
        run_near(&a, &b, 0, "one slot");
        run_free(&a);
        run_free(&b);
        weir_plan_free(tight);
        weir_plan_free(loose);
    }
}

Test(compile, a_saved_plan_runs_to_the_same_bits, .timeout = 60)
{
    char path[] = "/tmp/test_compile_XXXXXX";
    cr_assert_geq(mkstemp(path), 0);
    for (uint64_t model = 1; model <= MODELS / 4; model++) {
        weir_plan *plan = plan_of(model, model);
        cr_assert_eq(weir_plan_save(plan, path), WEIR_OK, "%s", weir_error());
        weir_plan *loaded = weir_plan_load(path);
        cr_assert_not_null(loaded, "%s", weir_error());
        cr_expect_eq(loaded->hash, plan->hash);
        run a = run_plan(plan, STEPS, 1), b = run_plan(loaded, STEPS, 2);
        run_near(&b, &a, 0, "loaded");
        run_free(&a);
        run_free(&b);
        weir_plan_free(plan);
        weir_plan_free(loaded);
    }
    remove(path);
}

/* ---- memory ---- */

static uint64_t largest_device(const weir_plan *plan)
{
    uint64_t most = 0;
    for (uint32_t s = 0; s < plan->spaces_count; s++)
        most = plan->spaces[s].bytes > most ? plan->spaces[s].bytes : most;
    return most;
}

static weir_plan *within(uint64_t model, uint64_t layout, uint64_t bytes)
{
    char limit[32];
    snprintf(limit, sizeof limit, "%lu", (unsigned long)bytes);
    weir_graph *g = random_model(model, layout);
    weir_plan *plan = weir_compile(g, .micro_batches = random_model_micro(model), .seed = model, .memory = limit);
    weir_graph_free(g);
    return plan;
}

/* The plan of least memory, of which one byte is refused; *bytes: what its largest device takes. */
static weir_plan *tightest(uint64_t model, uint64_t layout, uint64_t *bytes)
{
    static const char words[] = "The smallest limit that would do is ";
    cr_assert_null(within(model, layout, 1));
    const char *said = strstr(weir_error(), words);
    cr_assert_not_null(said, "%s", weir_error());
    *bytes = strtoull(said + strlen(words), NULL, 10);
    weir_plan *plan = within(model, layout, *bytes);
    cr_assert_not_null(plan, "%s", weir_error());
    cr_assert_leq(largest_device(plan), *bytes);
    cr_assert_eq(weir_plan_check(plan), WEIR_OK, "%s", weir_error());
    cr_assert_null(within(model, layout, *bytes - 1));
    return plan;
}

Test(compile, a_limit_is_kept_to_the_byte_or_refused_with_the_bytes_by_kind, .timeout = 60)
{
    for (uint64_t model = 1; model <= 4; model++) {
        uint64_t bytes;
        weir_plan *loose = plan_of(model, model), *same = within(model, model, largest_device(loose));
        cr_assert_not_null(same, "what it needs without a limit is enough: %s", weir_error());
        cr_expect_eq(same->hash, loose->hash);
        weir_plan *tight = tightest(model, model, &bytes);
        cr_expect_not_null(strstr(weir_error(), ", 1 B more than the limit of "), "%s", weir_error());
        cr_expect_not_null(strstr(weir_error(), "parameters "), "%s", weir_error());
        cr_expect_not_null(strstr(weir_error(), "activations "), "%s", weir_error());
        cr_expect_not_null(strstr(weir_error(), "make it less"), "%s", weir_error());
        run a = run_plan(tight, STEPS, 2), b = run_plan(loose, STEPS, 2);
        run_near(&a, &b, 0, "less memory");
        run_free(&a);
        run_free(&b);
        weir_plan_free(loose);
        weir_plan_free(same);
        weir_plan_free(tight);
    }
}

/* More firings than a plan may have: every fetch fires once for each micro-batch. */
Test(compile, too_many_firings_are_refused_with_the_place_of_the_call, .timeout = 120)
{
    weir_graph *g = weir_graph_new("busy");
    weir_tensor *x = weir_input(g, WEIR_F32, {2}, .name = "x", .micro = true);
    for (int i = 0; i < 1100; i++) {
        char name[16];
        snprintf(name, sizeof name, "y%d", i);
        weir_fetch(x, .name = name);
    }
    int line = __LINE__ + 1;
    weir_plan *plan = weir_compile(g, .micro_batches = 65536);
    char place[64];
    snprintf(place, sizeof place, "test_compile.c:%d: compile: ", line);
    cr_assert_null(plan);
    cr_expect(strstr(weir_error(), place), "%s", weir_error());
    cr_expect(strstr(weir_error(), "fire"), "%s", weir_error());
    weir_graph_free(g);
}

/* ---- slots ---- */

static const plan_regst *register_of(const weir_plan *plan, const char *tensor)
{
    for (uint32_t r = 0; r < plan->regsts_count; r++) {
        const plan_range *range = &plan->regsts[r].tensors;
        for (uint32_t t = range->first; t < range->first + range->count; t++)
            if (!strcmp(plan_text(plan, plan->tensors[t].name), tensor))
                return &plan->regsts[r];
    }
    return NULL;
}

/* Stages, each x -> gelu(linear(x)), of which the backward pass needs what linear made. */
static weir_graph *pipeline(int stages)
{
    weir_graph *g = weir_graph_new("pipeline");
    weir_tensor *x = NULL;
    for (int s = 0; s < stages; s++) {
        char devices[32];
        snprintf(devices, sizeof devices, "cpu:%d-%d", 2 * s, 2 * s + 1);
        WEIR_ON(weir_mesh_new(g, devices), .name = "s%d", s) {
            x = s ? x : weir_input(g, WEIR_F32, {4, 8}, .name = "x", .micro = true, .sbp = {S(0)});
            x = weir_gelu(weir_linear(x, 8, .name = "linear"), .name = "gelu");
        }
    }
    weir_tensor *t = NULL;
    WEIR_ON(weir_tensor_mesh(x))
        t = weir_input(g, WEIR_F32, {4, 8}, .name = "t", .micro = true, .sbp = {S(0)});
    weir_tensor *loss = weir_mean(weir_mul(x, t), .name = "loss");
    weir_train(loss, weir_sgd());
    weir_fetch(loss, .name = "loss");
    return g;
}

Test(compile, one_forward_one_backward_comes_from_slots, .timeout = 120)
{
    weir_plan *plan = compile_and_free(pipeline(4), (weir_compile_opts){.micro_batches = 8});
    for (int s = 0; s < 4; s++) {
        char name[32];
        snprintf(name, sizeof name, "s%d/linear", s);
        const plan_regst *saved = register_of(plan, name);
        cr_assert_not_null(saved, "%s is not kept", name);
        cr_expect_eq((int)saved->slots, 4 - s, "stage %d keeps %u micro-batches", s, saved->slots);
    }
    cr_assert_not_null(register_of(plan, "t>S(0)"));
    cr_expect_eq(register_of(plan, "t>S(0)")->slots, 2, "an input of the last stage is not kept longer than that");
    weir_plan_free(plan);
    plan = compile_and_free(pipeline(4), (weir_compile_opts){.micro_batches = 2});
    cr_expect_eq(register_of(plan, "s0/linear")->slots, 2, "no more than there are");
    weir_plan_free(plan);
}

Test(compile, slots_that_the_user_fixed_are_kept, .timeout = 120)
{
    weir_graph *g = weir_graph_new("slots");
    weir_mesh_new(g, "cpu:0-1");
    weir_tensor *x = weir_input(g, WEIR_F32, {8}, .name = "x", .micro = true, .sbp = {S(0)});
    weir_tensor *y = weir_shard(weir_relu(x, .name = "relu"), .name = "y", .sbp = {B});
    weir_slots(x, 5);
    weir_slots(y, 7);
    weir_fetch(y);
    weir_plan *plan = compile_and_free(g, (weir_compile_opts){.micro_batches = 16});
    const plan_regst *of_x = register_of(plan, "x"), *of_y = register_of(plan, "relu>B");
    cr_assert(of_x && of_y);
    cr_expect_eq(of_x->slots, 5, "%u", of_x->slots);
    cr_expect(of_x->fixed);
    cr_expect_eq(of_y->slots, 7, "%u", of_y->slots);
    cr_expect(of_y->fixed);
    weir_plan_free(plan);
}

Test(compile, a_fetch_takes_no_slots_away, .timeout = 120)
{
    weir_graph *g = pipeline(4);
    for (int t = 0; t < g->tensors.count; t++)
        if (!strcmp(weir_tensor_name(g->tensors.item[t]), "s0/linear"))
            weir_fetch(g->tensors.item[t], .slots = 1);
    weir_plan *plan = compile_and_free(g, (weir_compile_opts){.micro_batches = 8});
    cr_expect_eq(register_of(plan, "s0/linear")->slots, 4);
    weir_plan_free(plan);
}

/* ---- functions of the user ---- */

typedef struct counter {
    int calls;
    int fail_at;
} counter;

static weir_status square(const weir_kernel_args *args)
{
    counter *c = args->host;
    if (++c->calls == c->fail_at) {
        snprintf(args->error, args->error_bytes, "had enough");
        return WEIR_E_KERNEL;
    }
    const float *x = args->in[0].data;
    float *y = args->out[0].data;
    for (int64_t i = 0; i < weir_shape_count(&args->out[0].shape); i++)
        y[i] = x[i] * x[i];
    return WEIR_OK;
}

static weir_graph *calling(counter *c)
{
    weir_graph *g = weir_graph_new("call");
    weir_mesh_new(g, "cpu:0-63");
    weir_tensor *x = weir_input(g, WEIR_F32, {3, 2}, .name = "x", .micro = true, .sbp = {S(0)});
    weir_tensor *y = weir_call(square, {x}, .name = "square", .dtype = WEIR_F32, .shape = {3, 2}, .ctx = c);
    weir_fetch(weir_neg(y), .name = "y");
    return g;
}

Test(compile, a_function_is_called_once_for_every_value, .timeout = 120)
{
    counter c = {0};
    run r = run_graph(calling(&c), 2, .micro_batches = 3);
    cr_expect_eq(c.calls, 6, "%d calls", c.calls);
    for (int i = 0; i < 6; i++) {
        double x = run_input("x", WEIR_F32, 1, 2, i);
        cr_assert_float_eq(value_of(&r, "y", 5 * 6 + i), -x * x, 1e-5);
    }
    run_free(&r);
}

static void pass_over(void *ctx, const char *text)
{
    (void)ctx, (void)text;
}

Test(compile, a_function_that_fails_is_named_with_its_place, .timeout = 120)
{
    counter c = {.fail_at = 2};
    weir_plan *plan = compile_and_free(calling(&c), (weir_compile_opts){.micro_batches = 1});
    weir_session *s = weir_session_open(plan, .report = pass_over);
    float x[6] = {0};
    weir_shape shape = {.rank = 2, .dim = {3, 2}};
    cr_assert_not_null(s, "%s", weir_error());
    weir_session_start(s, 2);
    for (int i = 0; i < 2; i++)
        weir_session_push(s, "x", &(weir_array){x, WEIR_F32, shape}, 5000);
    weir_session_pull(s, "y", &(weir_array){x, WEIR_F32, shape}, 5000);
    cr_expect_eq(weir_session_wait(s, 5000), WEIR_E_KERNEL);
    cr_expect_not_null(strstr(weir_error(), "square"), "%s", weir_error());
    cr_expect_not_null(strstr(weir_error(), "test_compile.c:"), "%s", weir_error());
    cr_expect_not_null(strstr(weir_error(), "had enough"), "%s", weir_error());
    weir_session_close(s);
    weir_plan_free(plan);
}

/* ---- parameters ---- */

Test(compile, frozen_parameters_stay_and_others_move, .timeout = 120)
{
    run start = run_of(3, 0, 1), more;
    weir_graph *g = random_model(3, 3);
    weir_plan *plan = compile_and_free(g, (weir_compile_opts){.micro_batches = random_model_micro(3), .seed = 3});
    more = run_plan(plan, 2 * STEPS, 2);
    cr_expect_arr_eq(run_find(&start, "frozen")->value, run_find(&more, "frozen")->value,
                     (size_t)run_find(&more, "frozen")->count * sizeof(double));
    cr_expect_neq(value_of(&start, "head/weight", 0), value_of(&more, "head/weight", 0));
    weir_plan_free(plan);
    run_free(&start);
    run_free(&more);
}

static weir_graph *tied(const char *second)
{
    weir_graph *g = weir_graph_new("tied");
    weir_mesh *a = weir_mesh_new(g, "cpu:0-1"), *b = weir_mesh_new(g, second);
    weir_tensor *w = weir_param(g, WEIR_F32, {8, 8}, .name = "w", .init = WEIR_NORMAL(0.3));
    weir_tensor *x = weir_input(g, WEIR_F32, {4, 8}, .name = "x", .micro = true), *y = NULL;
    WEIR_ON(a, .name = "first")
        y = weir_gelu(weir_matmul(x, w));
    WEIR_ON(b, .name = "second")
        y = weir_matmul(y, w, .trans_b = true);
    weir_tensor *loss = weir_mean(weir_mul(y, y), .name = "loss");
    weir_train(loss, weir_sgd(.lr = 0.5, .clip_norm = 1));
    weir_fetch(loss, .name = "loss");
    weir_fetch(w, .name = "w now");
    return g;
}

Test(compile, a_parameter_may_be_used_on_two_stages, .timeout = 120)
{
    run one = run_graph(tied("cpu:0-1"), 4, .micro_batches = 3);
    run two = run_graph(tied("cpu:5-6"), 4, .micro_batches = 3);
    run_near(&two, &one, 1e-5, "tied");
    cr_expect_lt(value_of(&two, "loss", 11), value_of(&two, "loss", 0), "it learns");
    cr_expect_neq(value_of(&two, "w now", 0), value_of(&two, "w now", 64), "a parameter can be fetched, step by step");
    run_free(&one);
    run_free(&two);
}

/* ---- inputs and outputs ---- */

Test(compile, an_input_that_nobody_reads_is_not_in_the_plan, .timeout = 120)
{
    weir_graph *g = weir_graph_new("unused");
    weir_tensor *x = weir_input(g, WEIR_F32, {4}, .name = "x");
    weir_relu(weir_input(g, WEIR_F32, {4}, .name = "unused"));
    weir_fetch(x, .name = "y");
    weir_plan *plan = compile_and_free(g, (weir_compile_opts){0});
    cr_expect_eq(weir_plan_host_count(plan), 2);
    for (uint32_t k = 0; k < plan->kernels_count; k++)
        cr_expect(strcmp(plan_text(plan, plan->kernels[k].op), "relu"));
    weir_plan_free(plan);
}

Test(compile, values_of_a_step_are_read_by_every_micro_batch, .timeout = 120)
{
    weir_graph *g = weir_graph_new("rates");
    weir_mesh_new(g, "cpu:0-1");
    weir_tensor *x = weir_input(g, WEIR_F32, {4}, .name = "x", .micro = true, .sbp = {S(0)});
    weir_tensor *s = weir_input(g, WEIR_F32, {4}, .name = "s");
    weir_tensor *twice = weir_affine(s, 2);
    weir_fetch(weir_add(x, twice), .name = "sum");
    weir_fetch(twice, .name = "twice");
    run r = run_graph(g, 3, .micro_batches = 5);
    cr_assert_eq(run_find(&r, "sum")->count, 3 * 5 * 4);
    cr_assert_eq(run_find(&r, "twice")->count, 3 * 4, "once a step");
    for (int i = 0; i < 3 * 5 * 4; i++) {
        int step = i / 20, micro = i / 4 % 5;
        double want = run_input("x", WEIR_F32, step, micro, i % 4) + 2 * run_input("s", WEIR_F32, step, 0, i % 4);
        cr_assert_float_eq(value_of(&r, "sum", i), want, 1e-5, "step %d, micro-batch %d", step, micro);
    }
    run_free(&r);
}

static weir_graph *dropping(const char *devices, weir_sbp a, weir_sbp b)
{
    weir_graph *g = weir_graph_new("dropout");
    weir_mesh_new(g, devices);
    weir_tensor *x = weir_input(g, WEIR_F32, {13, 7}, .name = "x", .micro = true);
    weir_fetch(weir_shard(weir_dropout(weir_shard(x, .sbp = {a}), 0.5, .name = "drop"), .sbp = {b}), .name = "y");
    return g;
}

Test(compile, every_layout_drops_the_same, .timeout = 120)
{
    run one = run_graph(dropping("cpu:0", WEIR_AUTO, WEIR_AUTO), 2, .micro_batches = 2, .seed = 5);
    static const weir_sbp how[][2] = {{WEIR_B, WEIR_B}, {WEIR_S(0), WEIR_S(0)}, {WEIR_S(1), WEIR_S(1)},
                                      {WEIR_P, WEIR_B}, {WEIR_S(0), WEIR_P}};
    for (size_t i = 0; i < sizeof how / sizeof *how; i++) {
        run many = run_graph(dropping("cpu:0-2", how[i][0], how[i][1]), 2, .micro_batches = 2, .seed = 5);
        run_near(&many, &one, 0, "dropout");
        run_free(&many);
    }
    run other = run_graph(dropping("cpu:0", WEIR_AUTO, WEIR_AUTO), 2, .micro_batches = 2, .seed = 6);
    int same = 0, count = (int)one.entry[0].count;
    for (int i = 0; i < count; i++)
        same += one.entry[0].value[i] == other.entry[0].value[i];
    cr_expect(same > count / 3 && same < 2 * count / 3, "another seed drops others: %d of %d are alike", same, count);
    run_free(&one);
    run_free(&other);
}

Test(compile, many_outputs_of_one_tensor_and_many_tensors, .timeout = 120)
{
    weir_graph *g = weir_graph_new("outputs");
    weir_mesh_new(g, "cpu:0-2");
    weir_tensor *x = weir_input(g, WEIR_F32, {6}, .name = "x", .micro = true, .sbp = {S(0)});
    for (int i = 0; i < 20; i++) {
        char name[16];
        snprintf(name, sizeof name, "out%d", i);
        weir_fetch(i % 2 ? weir_affine(x, i) : x, .name = name);
    }
    run r = run_graph(g, 1, .micro_batches = 4);
    for (int i = 0; i < 20; i++) {
        char name[16];
        snprintf(name, sizeof name, "out%d", i);
        cr_assert_float_eq(value_of(&r, name, 23), (i % 2 ? i : 1) * run_input("x", WEIR_F32, 0, 3, 5), 1e-5);
    }
    run_free(&r);
}

/* ---- layouts that cannot be ---- */

Test(compile, a_layout_that_an_op_cannot_have_is_refused_with_its_place, .timeout = 120)
{
    weir_graph *g = weir_graph_new("refused");
    weir_mesh_new(g, "cpu:0-1");
    weir_tensor *x = weir_input(g, WEIR_F32, {4, 4}, .name = "x");
    weir_tensor *y = weir_softmax(x, .name = "soft");
    y->sbp[0] = S(1);
    weir_fetch(y);
    cr_expect_null(weir_compile(g));
    cr_expect_not_null(strstr(weir_error(), "test_compile.c:"), "%s", weir_error());
    cr_expect_not_null(strstr(weir_error(), "softmax: no layout that the op supports on mesh axis 0 agrees with what is fixed for \"soft\""), "%s",
                       weir_error());
    weir_graph_free(g);
}

/* The gradient of w is a sum of as many terms as w is read, more than one op takes. */
Test(compile, a_parameter_may_be_read_a_thousand_times, .timeout = 120)
{
    weir_graph *g = weir_graph_new("unrolled");
    weir_tensor *w = weir_param(g, WEIR_F32, {4}, .name = "w", .init = WEIR_VALUE(0));
    weir_tensor *x = weir_input(g, WEIR_F32, {4}, .name = "x");
    for (int i = 0; i < 1200; i++)
        x = weir_add(x, w);
    weir_tensor *loss = weir_sum(x, .name = "loss");
    weir_train(loss, weir_sgd(.lr = 0.001));
    weir_fetch(loss, .name = "loss");
    run r = run_graph(g, 1);
    for (int i = 0; i < 4; i++)
        cr_expect_float_eq(value_of(&r, "w", i), -1.2, 1e-5, "%g", value_of(&r, "w", i));
    run_free(&r);
}

/* ---- sizes that 64 bits cannot add up ---- */

static void expect_too_large(int count, int log2_elements, const char *memory, const char *needs, const char *largest)
{
    char name[16], part[160];
    weir_tensor *loss = NULL;
    weir_graph *g = weir_graph_new("large");
    weir_mesh_new(g, "cpu:0");
    for (int i = 0; i < count; i++) {
        snprintf(name, sizeof name, "p%d", i);
        weir_tensor *sum = weir_sum(weir_param(g, WEIR_F32, {INT64_C(1) << log2_elements}, .name = name));
        loss = loss ? weir_add(loss, sum) : sum;
    }
    weir_train(loss, weir_adamw());
    cr_assert_null(weir_compile(g, .memory = memory));
    snprintf(part, sizeof part, "cpu:0 needs %s, but a process can map no more than 128 TiB; the largest is \"p0\" (", needs);
    cr_expect(strstr(weir_error(), part) && strstr(weir_error(), largest) && strstr(weir_error(), "test_compile.c:"), "%s",
              weir_error());
    weir_graph_free(g);
}

/* Each parameter has two states of its size, a gradient, and the ones that it is made of. */
Test(compile, sizes_that_wrap_64_bits_are_told_as_they_are)
{
    for (int limited = 0; limited < 2; limited++) {
        const char *memory = limited ? "1GiB" : NULL;
        expect_too_large(4, 44, memory, "1.0 PiB", "64.0 TiB");
        expect_too_large(40, 53, memory, "6.3 EiB", "32.0 PiB"); /* 40 * 5 * 2^55 */
        expect_too_large(40, 55, memory, "25.0 EiB", "128 PiB");
        expect_too_large(128, 53, memory, "20.0 EiB", "32.0 PiB");
        expect_too_large(128, 55, memory, "80.0 EiB", "128 PiB");
    }
}
