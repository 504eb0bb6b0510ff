/* tests/actors/session/test_cuda_session.c: sessions on CUDA devices, of the plugin that is emulated: its driver's code
 * is that of cards, its kernels are compiled for the host, CUDA is a stand-in (tests/cuda). Results are those of CPUs,
 * within rounding; and the same bits each time, whatever order streams are taken in.
 */
#include <criterion/criterion.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "graph/model/build.h"
#include "graph/plan/form/plan.h"
#include "regst/plugin.h"
#include "tests/support/card.h"
#include "tests/support/effort.h"
#include "tests/support/fakes.h"
#include "tests/support/folder.h"
#include "tests/support/run.h"

enum { STEPS = 2, SEEDS = EFFORT(2, 1, 1) };

static void with_cards(void)
{
    fakes_kind = WEIR_CUDA;
    setenv("WEIR_CUDA_LOGICAL", "4", 1);
}

TestSuite(cuda_session, .init = with_cards, .timeout = 300);

#define assert_ok(call) cr_assert_eq(call, WEIR_OK, "%s: %s", #call, weir_error())

/* Near what it is on CPUs; and with other orders the same bits. */
static void same_run(const weir_plan *plan, const weir_plan *cpu, const char *what)
{
    run want = run_plan(cpu, STEPS, 1), first = {.count = 0};
    for (uint64_t seed = 0; seed <= SEEDS; seed++) {
        card_open(&(standin_options){.seed = 1 + seed});
        run got = run_plan(plan, STEPS, 1 + (int)(seed % 3));
        run_near(&got, seed ? &first : &want, seed ? 0 : 1e-4, what);
        card_close();
        if (seed)
            run_free(&got);
        else
            first = got;
    }
    run_free(&first);
    run_free(&want);
}

/* ---- a small model, forward ---- */

static weir_plan *forward_on(const char *devices)
{
    weir_graph *g = weir_graph_new("forward");
    WEIR_ON(weir_mesh_new(g, devices)) {
        weir_tensor *x = weir_input(g, WEIR_F32, {12, 16}, .name = "x", .sbp = {WEIR_S(0)});
        weir_tensor *h = weir_layernorm(weir_linear(x, 24, .name = "up"), .name = "norm");
        weir_fetch(weir_softmax(weir_linear(h, 8, .name = "down")), .name = "y");
    }
    weir_plan *plan = weir_compile(g, .seed = 3);
    cr_assert_not_null(plan, "%s: %s", devices, weir_error());
    weir_graph_free(g);
    return plan;
}

static void forward_is_the_same(const char *cuda, const char *cpu)
{
    weir_plan *plan = forward_on(cuda), *same = forward_on(cpu);
    same_run(plan, same, cuda);
    weir_plan_free(plan);
    weir_plan_free(same);
}

Test(cuda_session, a_model_on_one_device)
{
    forward_is_the_same("cuda:0", "cpu:0");
}

Test(cuda_session, a_model_on_four_devices)
{
    forward_is_the_same("cuda:0-3", "cpu:0-3");
}

Test(cuda_session, devices_of_one_plan_may_be_on_several_cards)
{
    unsetenv("WEIR_CUDA_LOGICAL");
    weir_plan *plan = forward_on("cuda:0-2"), *cpu = forward_on("cpu:0-2");
    run want = run_plan(cpu, STEPS, 1);
    card_open(&(standin_options){.cards = 3});
    run got = run_plan(plan, STEPS, 1);
    run_near(&got, &want, 1e-4, "three cards");
    card_close();
    run_free(&got);
    run_free(&want);
    weir_plan_free(plan);
    weir_plan_free(cpu);
}

/* ---- many kernels by one launch ---- */

enum { DEEP = 30, DEEP_STEPS = 3 };

static weir_status draw_x(void *ctx, const weir_view *to, int64_t step, int micro)
{
    (void)ctx, (void)micro;
    for (int i = 0; i < 4 * 12; i++)
        ((float *)to->data)[i] = (float)weir_random_uniform(5, (uint64_t)(step * 48 + i)) - 0.5f;
    return WEIR_OK;
}

static weir_status draw_label(void *ctx, const weir_view *to, int64_t step, int micro)
{
    (void)ctx, (void)micro;
    for (int i = 0; i < 4; i++)
        ((int32_t *)to->data)[i] = (int32_t)((step + 3 * i) % 12);
    return WEIR_OK;
}

/* 61 parameters, of which a gain and the biases do not decay; in halves there are casts of them, too. */
static weir_plan *deep_plan(weir_dtype precision)
{
    weir_graph *g = weir_graph_new("deep");
    weir_mesh_new(g, "cuda:0");
    weir_tensor *x = weir_input(g, WEIR_F32, {4, 12}, .name = "x", .source = draw_x);
    for (int i = 0; i < DEEP; i++)
        x = weir_tanh(weir_linear(x, 12));
    x = weir_mul(x, weir_param(g, WEIR_F32, {12}, .name = "gain", .init = WEIR_UNIFORM(0.9, 1.1)));
    weir_tensor *loss = weir_cross_entropy(x, weir_input(g, WEIR_I32, {4}, .name = "labels", .source = draw_label));
    weir_fetch(loss, .name = "loss");
    weir_train(loss, weir_adamw(.lr = 0.01, .weight_decay = 0.1, .clip_norm = 1));
    weir_plan *plan = weir_compile(g, .seed = 3, .precision = precision);
    cr_assert_not_null(plan, "%s", weir_error());
    weir_graph_free(g);
    return plan;
}

/* How many kernels are launched, sessions' first ones too. */
static uint64_t launches_of(const weir_plan *plan, bool joined, run *got)
{
    card_open(&(standin_options){.seed = 2});
    cr_assert_eq(plugin_need(WEIR_CUDA), WEIR_OK);
    const struct device_ops *device = device_find(WEIR_CUDA);
    struct device_ops alone = *device;
    alone.joins = NULL;
    alone.launch_many = NULL;
    if (!joined)
        device_register(WEIR_CUDA, &alone);
    uint64_t before = card_look().kernels;
    *got = run_plan(plan, DEEP_STEPS, 1);
    device_register(WEIR_CUDA, device);
    uint64_t kernels = card_look().kernels - before;
    card_close();
    return kernels;
}

Test(cuda_session, kernels_of_an_update_are_launched_together_and_compute_the_same_bits)
{
    for (int half = 0; half < 2; half++) {
        weir_plan *plan = deep_plan(half ? WEIR_BF16 : WEIR_F32);
        run joined, alone;
        uint64_t few = launches_of(plan, true, &joined), many = launches_of(plan, false, &alone);
        uint64_t updates = 2 * 2 * 61 + (half ? 30 : 0); /* adamw and square_sum of 61 parameters, two launches each */
        run_near(&joined, &alone, 0, "joined");
        printf("%s: %lu kernels in %d steps, %lu without\n", half ? "bf16" : "f32", (unsigned long)few, DEEP_STEPS,
               (unsigned long)many);
        cr_expect_gt(many - few, DEEP_STEPS * (updates - 20), "%lu and %lu", (unsigned long)few, (unsigned long)many);
        run_free(&joined);
        run_free(&alone);
        weir_plan_free(plan);
    }
}

/* ---- what is there ---- */

static void expect_no_session(const weir_plan *plan, const char *sentence)
{
    cr_expect_null(weir_session_open(plan));
    cr_expect_str_eq(weir_error(), sentence);
}

Test(cuda_session, a_plan_for_a_device_that_is_not_there_is_refused)
{
    unsetenv("WEIR_CUDA_LOGICAL");
    weir_plan *plan = forward_on("cuda:5");
    card_open(&(standin_options){.cards = 4});
    expect_no_session(plan, "there is no cuda:5: this machine has 4 (cuda:0-3)");
    card_close();
    weir_plan_free(plan);
}

Test(cuda_session, a_session_without_a_plugin_says_where_it_was_looked_for)
{
    weir_plan *plan = forward_on("cuda:0");
    setenv("WEIR_CUDA_PLUGIN", "/nowhere/libweir-cuda.so", 1);
    expect_no_session(plan, "there is no plugin for CUDA devices where WEIR_CUDA_PLUGIN says: /nowhere/libweir-cuda.so: "
                            "cannot open shared object file: No such file or directory");
    weir_plan_free(plan);
}

Test(cuda_session, a_plan_that_needs_more_memory_than_there_is_is_refused)
{
    weir_plan *plan = forward_on("cuda:0");
    card_open(&(standin_options){.bytes = 1000});
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < plan->spaces_count; i++)
        bytes += plan->spaces[i].kind == WEIR_CUDA ? plan->spaces[i].bytes : 0;
    char sentence[128];
    snprintf(sentence, sizeof sentence, "cuda:0: cudaMalloc of %.1f KB: out of memory (1.0 KB free of 1.0 KB)",
             (double)bytes / 1000);
    expect_no_session(plan, sentence);
    card_close();
    weir_plan_free(plan);
}

Test(cuda_session, a_driver_that_is_too_old_is_refused)
{
    weir_plan *plan = forward_on("cuda:0");
    card_open(&(standin_options){.driver = 12040});
    expect_no_session(plan, "there is no cuda:0: the driver is one for CUDA 12.4, and this build of weir needs one for CUDA "
                            "13.0");
    card_close();
    weir_plan_free(plan);
}

Test(cuda_session, a_card_without_kernels_is_refused)
{
    weir_plan *plan = forward_on("cuda:0");
    card_open(&(standin_options){.arch = 75});
    expect_no_session(plan, "cuda:0 is a stand-in (sm_75), and this build of weir has kernels for sm 80 90 100");
    card_close();
    weir_plan_free(plan);
}

/* ---- state ---- */

Test(cuda_session, parameters_are_written_read_and_traced)
{
    folder_make();
    weir_plan *plan = forward_on("cuda:0-1");
    card_open(NULL);
    const char *trace = folder_path("trace");
    weir_session *s = weir_session_open(plan, .trace = trace);
    cr_assert_not_null(s, "%s", weir_error());
    float given[16 * 24], got[16 * 24] = {0}, x[12 * 16] = {0}, y[12 * 8];
    for (int i = 0; i < 16 * 24; i++)
        given[i] = (float)i / 100;
    weir_array value = {.data = given, .dtype = WEIR_F32, .shape = {.rank = 2, .dim = {16, 24}}}, back = value;
    back.data = got;
    assert_ok(weir_session_write(s, "up/weight", &value));
    assert_ok(weir_session_read(s, "up/weight", &back));
    cr_expect_arr_eq(given, got, sizeof given);
    assert_ok(weir_session_start(s, 1));
    assert_ok(weir_session_push(s, "x", &(weir_array){x, WEIR_F32, {.rank = 2, .dim = {12, 16}}}, 20000));
    assert_ok(weir_session_pull(s, "y", &(weir_array){y, WEIR_F32, {.rank = 2, .dim = {12, 8}}}, 20000));
    assert_ok(weir_session_wait(s, 20000));
    assert_ok(weir_session_close(s));
    FILE *file = fopen(trace, "r");
    cr_assert_not_null(file);
    char events[1 << 16] = {0};
    cr_expect_gt(fread(events, 1, sizeof events - 1, file), 0);
    cr_expect(strstr(events, "cuda:1"), "%s", events);
    fclose(file);
    card_close();
    weir_plan_free(plan);
    folder_remove();
}

/* ---- threads of the program's ---- */

struct call {
    const weir_plan *plan;
    weir_session *s;
    weir_status status;
    float weight[16 * 24], x[12 * 16], y[12 * 8];
};

static void opens(struct call *c)
{
    c->s = weir_session_open(c->plan, .trace = folder_path("trace"));
    c->status = c->s ? WEIR_OK : WEIR_E_STATE;
}

static void writes(struct call *c)
{
    c->status = weir_session_write(c->s, "up/weight", &(weir_array){c->weight, WEIR_F32, {2, {16, 24}}});
}

static void reads(struct call *c)
{
    c->status = weir_session_read(c->s, "up/weight", &(weir_array){c->weight, WEIR_F32, {2, {16, 24}}});
}

static void begins(struct call *c)
{
    c->status = weir_session_start(c->s, 1);
    if (!c->status)
        c->status = weir_session_push(c->s, "x", &(weir_array){c->x, WEIR_F32, {2, {12, 16}}}, 20000);
}

static void ends(struct call *c)
{
    c->status = weir_session_pull(c->s, "y", &(weir_array){c->y, WEIR_F32, {2, {12, 8}}}, 20000);
    if (!c->status)
        c->status = weir_session_wait(c->s, 20000);
}

static void looks(struct call *c)
{
    weir_session_stats stats;
    weir_session_get_stats(c->s, &stats);
    c->status = stats.steps == 1 ? WEIR_OK : WEIR_E_STATE;
}

static void saves(struct call *c)
{
    c->status = weir_session_save(c->s, folder_path("kept"));
    if (!c->status)
        c->status = weir_session_save_wait(c->s, -1);
}

static void loads(struct call *c)
{
    c->status = weir_session_load(c->s, folder_path("kept"));
}

static void closes(struct call *c)
{
    c->status = weir_session_close(c->s);
}

static void (*const calls[])(struct call *c) = {opens, writes, reads, begins, ends, looks, saves, loads, reads, closes};

static void *call_all(void *data)
{
    struct call *c = data;
    for (size_t i = 0; i < sizeof calls / sizeof *calls && !c->status; i++)
        calls[i](c);
    return NULL;
}

static void *call_one(void *data)
{
    void **both = data;
    (*(void (*const *)(struct call *))both[0])(both[1]);
    return NULL;
}

/* A plan that uses the second and third card leaves the first alone, whoever calls: a context there is 500 MB. */
Test(cuda_session, threads_of_a_program_open_no_context_on_a_card_that_is_not_the_plan_s)
{
    unsetenv("WEIR_CUDA_LOGICAL");
    folder_make();
    weir_plan *plan = forward_on("cuda:1-2");
    card_open(&(standin_options){.cards = 3});
    struct call one = {.plan = plan}, each = {.plan = plan};
    pthread_t thread;
    cr_assert_eq(pthread_create(&thread, NULL, call_all, &one), 0);
    pthread_join(thread, NULL);
    cr_expect_eq(one.status, WEIR_OK, "%d", one.status);
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
        void *both[] = {(void *)&calls[i], &each};
        cr_assert_eq(pthread_create(&thread, NULL, call_one, both), 0);
        pthread_join(thread, NULL);
        cr_expect_eq(each.status, WEIR_OK, "call %d: %d", (int)i, each.status);
    }
    card_close();
    weir_plan_free(plan);
    folder_remove();
}
