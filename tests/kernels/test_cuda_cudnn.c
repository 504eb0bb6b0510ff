/* test_cuda_cudnn.c: attention by cuDNN (kernels/attention/cudnn.cu), on the stand-in for that library, or with
 * WEIR_TEST_CARDS=real on this machine's card and library: held against the CPU's kernels.
 *
 * A process reads WEIR_CUDA_ATTENTION once, so a test begins with choose(). The library for a problem is chosen once,
 * too: each case of a refusal has sizes of its own. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/attention/formula.h"
#include "kernels/common/ops.h"
#include "regst/device.h"
#include "tests/support/card.h"
#include "tests/support/effort.h"
#include "tests/support/kernel_check.h"
#include "tests/support/run.h"

TestSuite(cuda_cudnn, .timeout = 300);

/* Statuses of the library's, of each category that is a refusal. */
enum { LOADING_FAILED = 1008, BAD_PARAM = 2000, NOT_SUPPORTED = 3000 };
enum { SEED = 77, WAVERS = 1, WAVERS_NOT = 6, PINNED = 5, ERROR_BYTES = 400, STRIDE = EFFORT(2, 5, 17) };

typedef struct attention_case {
    int64_t batch, seq, keys, heads, head_dim, causal;
} attention_case;

static const standin_options usual = {.cudnn = 91900};

static struct attention_attrs attrs_of(attention_case at)
{
    return (struct attention_attrs){at.head_dim, at.causal, 1 / sqrt((double)at.head_dim)};
}

/* Chooses the library for attention in this process; NULL: the default. cuDNN is there, as a stand-in; or the test is
 * skipped. */
static void choose(const char *by)
{
    struct device_facts facts;
    by ? setenv("WEIR_CUDA_ATTENTION", by, 1) : unsetenv("WEIR_CUDA_ATTENTION");
    setenv("STANDIN_CUDNN", "91900", 1);
    kernel_check_kernel(&op_attention); /* which opens the card */
    cr_assert_eq(device_find(WEIR_CUDA)->describe(0, &facts), WEIR_OK, "%s", weir_error());
    if (strstr(facts.more, "without cuDNN") || (by && !strcmp(by, "cudnn") && !strstr(facts.more, "by cuDNN")))
        cr_skip_test("%s", facts.more);
}

static void only_a_stand_in(void)
{
    if (card_real())
        cr_skip_test("only a stand-in is such a library");
}

/* How many graphs cuDNN has computed since the stand-in was set, and by which engine the last one. */
static void expect_runs(uint64_t runs, int64_t engine)
{
    const standin_seen seen = card_look();
    if (card_real())
        return;
    cr_expect_eq(seen.cudnn_runs, runs, "%d graphs, not %d", (int)seen.cudnn_runs, (int)runs);
    cr_expect(!runs || seen.cudnn_engine == engine, "engine %d", (int)seen.cudnn_engine);
}

/* ---- runs ---- */

static size_t workspace_bytes(const kernel_check *c, weir_device_kind kind)
{
    weir_type in[6], out[3];
    for (int i = 0; i < c->in_count; i++)
        in[i] = (weir_type){c->in[i].dtype, c->in[i].shape};
    for (int i = 0; i < c->out_count; i++)
        out[i] = (weir_type){c->out[i].dtype, c->out[i].shape};
    const weir_op_args args = {.op = c->op, .in = in, .in_count = c->in_count, .out = out, .out_count = c->out_count, .attrs = c->attrs};
    return c->op->workspace(&args, kind);
}

/* Infers what comes out, which is garbage yet. */
static void outputs_new(kernel_check *c)
{
    weir_type in[6], out[3];
    for (int i = 0; i < c->in_count; i++)
        in[i] = (weir_type){c->in[i].dtype, c->in[i].shape};
    kernel_check_infers(c->op, c->attrs, in, c->in_count, out);
    c->out_count = c->op->out_count;
    for (int i = 0; i < c->out_count; i++)
        c->out[i] = kernel_view_new(out[i], KERNEL_GARBAGE);
}

/* By the CPU's kernel. */
static void run_here(kernel_check *c)
{
    outputs_new(c);
    const size_t bytes = workspace_bytes(c, WEIR_CPU);
    void *workspace = aligned_alloc(64, (bytes + 63) / 64 * 64 + 64);
    char error[ERROR_BYTES] = "";
    const weir_kernel_args args = {.in = c->in, .in_count = c->in_count, .out = c->out, .out_count = c->out_count,
                                   .attrs = c->attrs, .workspace = workspace, .workspace_bytes = bytes, .error = error,
                                   .error_bytes = sizeof error};
    cr_assert_eq(c->op->kernel[WEIR_CPU](&args), WEIR_OK, "%s", error);
    free(workspace);
}

static kernel_check forward_new(const struct attention_attrs *attrs, attention_case at, weir_dtype dtype)
{
    kernel_check c = kernel_check_new(&op_attention, attrs, SEED);
    for (int i = 0; i < 3; i++)
        kernel_check_in(&c, dtype, SHAPE(at.batch, i ? at.keys : at.seq, at.heads * at.head_dim));
    return c;
}

static void copy_view(const weir_view *to, const weir_view *from)
{
    memcpy(to->data, from->data, (size_t)weir_shape_count(&to->shape) * weir_dtype_bytes(to->dtype));
}

/* A gradient call with the inputs and outputs of a forward pass that has run. */
static kernel_check gradient_new(const struct attention_attrs *attrs, const kernel_check *forward)
{
    kernel_check c = kernel_check_new(&op_attention_grad, attrs, SEED);
    for (int i = 0; i < 6; i++) {
        const weir_view *like = i < 3 ? &forward->in[i] : &forward->out[i == 4];
        weir_view *in = kernel_check_in(&c, like->dtype, like->shape);
        if (i < 5)
            copy_view(in, like);
    }
    return c;
}

static void expect_near(const kernel_check *a, const kernel_check *b, int out, double tolerance)
{
    const int64_t count = weir_shape_count(&a->out[out].shape);
    for (int64_t i = 0; i < count; i++) {
        const double got = kernel_at(&a->out[out], i), want = kernel_at(&b->out[out], i);
        cr_assert(kernel_near(got, want, tolerance), "%s: output %d, element %d: %g, not %g", a->op->name, out, (int)i, got,
                  want);
    }
}

/* The results are the CPU's, but for rounding; and a gradient goes with the forward pass of either. */
static void compare(attention_case at, weir_dtype dtype)
{
    const struct attention_attrs attrs = attrs_of(at);
    const double digit = kernel_digit(dtype);
    kernel_check cpu = forward_new(&attrs, at, dtype), fused = forward_new(&attrs, at, dtype);
    run_here(&cpu);
    kernel_check_run(&fused);
    expect_near(&fused, &cpu, 0, 8 * digit + 1e-5);
    expect_near(&fused, &cpu, 1, 1e-4);
    kernel_check want = gradient_new(&attrs, &cpu), got = gradient_new(&attrs, &cpu), both = gradient_new(&attrs, &fused);
    run_here(&want);
    kernel_check_run(&got);
    kernel_check_run(&both);
    for (int out = 0; out < 3; out++) {
        expect_near(&got, &want, out, 16 * digit + 1e-5);
        expect_near(&both, &want, out, 32 * digit + 1e-5);
    }
    kernel_check_free(&cpu);
    kernel_check_free(&fused);
    kernel_check_free(&want);
    kernel_check_free(&got);
    kernel_check_free(&both);
}

Test(cuda_cudnn, makes_what_the_cpu_s_kernels_make)
{
    const attention_case cases[] = {{2, 5, 7, 3, 8, 0}, {2, 1, 6, 1, 16, 0}, {1, 9, 33, 2, 40, 1}, {2, 33, 20, 1, 128, 1},
                                    {1, 70, 70, 2, 64, 1}};
    const size_t count = EFFORT(5, 5, 3);
    choose("cudnn");
    for (size_t i = 0; i < count; i++) {
        compare(cases[i], WEIR_BF16);
        compare(cases[i], WEIR_F16);
    }
    if (card_real()) /* of many blocks, which come in any order */
        compare((attention_case){4, 1024, 1024, 8, 64, 1}, WEIR_BF16);
    cr_expect(card_real() || card_look().cudnn_runs >= 12 * count);
    cr_expect(card_real() || card_look().cudnn_engine == WAVERS_NOT);
    cr_expect(card_real() || card_look().cudnn_plans == 4 * count, "one for each problem");
}

/* Its sums lie where dS of the other one would: in parts of as many sequences as there is room for, or not at all. */
Test(cuda_cudnn, the_fastest_gradient_is_made_where_a_process_chooses_it)
{
    static const struct {
        attention_case at;
        uint64_t parts;
        bool fast;
    } table[] = {{{2, 5, 7, 3, 8, 0}, 1, true}, {{1, 70, 70, 2, 64, 1}, 1, true}, {{2, 64, 20, 1, 128, 1}, 2, true},
                 {{1, 64, 20, 1, 128, 0}, 1, false}};
    choose("fast");
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        card_set(NULL);
        compare(table[i].at, WEIR_BF16);
        expect_runs(2 * (1 + 2 * table[i].parts), table[i].fast ? WAVERS : WAVERS_NOT);
    }
    struct device_facts facts;
    cr_assert_eq(device_find(WEIR_CUDA)->describe(0, &facts), WEIR_OK);
    cr_expect(strstr(facts.more, "with gradients that differ from run to run"), "%s", facts.more);
}

/* ---- single calls ---- */

/* A forward pass or gradient whose operands stay, and what the CPU makes of them. */
typedef struct call {
    struct attention_attrs attrs;
    kernel_check forward, check, want;
    void *workspace;
    size_t bytes;
    char error[ERROR_BYTES];
} call;

static void call_open(call *c, attention_case at, weir_dtype dtype, bool gradient)
{
    c->attrs = attrs_of(at);
    c->forward = forward_new(&c->attrs, at, dtype);
    run_here(&c->forward);
    c->check = gradient ? gradient_new(&c->attrs, &c->forward) : forward_new(&c->attrs, at, dtype);
    c->want = gradient ? gradient_new(&c->attrs, &c->forward) : forward_new(&c->attrs, at, dtype);
    run_here(&c->want);
    outputs_new(&c->check);
    c->bytes = workspace_bytes(&c->check, WEIR_CUDA);
    c->workspace = aligned_alloc(64, (c->bytes + 63) / 64 * 64 + 64);
    cr_assert_not_null(c->workspace);
}

static weir_status call_run(call *c)
{
    const weir_kernel_args args = {.in = c->check.in, .in_count = c->check.in_count, .out = c->check.out,
                                   .out_count = c->check.out_count, .attrs = &c->attrs, .workspace = c->workspace,
                                   .workspace_bytes = c->bytes, .error = c->error, .error_bytes = sizeof c->error};
    c->error[0] = 0;
    return kernel_check_kernel(c->check.op)(&args);
}

/* It runs, and what it makes is right. */
static void call_well(call *c)
{
    cr_assert_eq(call_run(c), WEIR_OK, "%s", c->error);
    for (int out = 0; out < c->check.out_count; out++)
        expect_near(&c->check, &c->want, out, 32 * kernel_digit(c->check.in[0].dtype) + 1e-4);
}

static void call_close(call *c)
{
    kernel_check_free(&c->want);
    kernel_check_free(&c->check);
    kernel_check_free(&c->forward);
    free(c->workspace);
}

static const attention_case small = {2, 5, 7, 2, 8, 1};

/* Calls that the library does not take, and why. */
static const struct {
    attention_case at;
    weir_dtype dtype;
    bool gradient;
    standin_options is;
    const char *sentence;
} refusals[] = {
    {{2, 5, 7, 2, 8, 1}, WEIR_BF16, false, {.cudnn = -1}, "cudnn, but there is no libcudnn.so.9"},
    {{2, 5, 7, 2, 8, 1}, WEIR_BF16, true, {.cudnn = 91802}, "cuDNN 9.18.2 is older than 9.19"},
    {{2, 5, 7, 2, 8, 1}, WEIR_F32, false, {.cudnn = 91900}, "by cuDNN where it is of halves"},
    {{1, 5, 7, 1, 12, 0}, WEIR_F16, true, {.cudnn = 91900}, "heads of a multiple of 8, up to 128"},
    {{1, 5, 7, 1, 136, 0}, WEIR_F16, false, {.cudnn = 91900}, "heads of a multiple of 8, up to 128"},
    {{2, 1, 1, 1, 8, 0}, WEIR_F16, true, {.cudnn = 91900}, "no gradient of one query of one key"},
    {{2, 5, 7, 2, 8, 1}, WEIR_F16, true, {.cudnn = 91900, .arch = 120}, "the same bits each time on this card"},
    {{2, 5, 7, 2, 8, 1}, WEIR_F16, true, {.cudnn = 92300, .arch = 100}, "the same bits each time on this card"},
    {{2, 5, 8, 2, 8, 1}, WEIR_F16, true, {.cudnn = 91900, .cudnn_more = 1 << 20}, "has no engine for it on this card"},
    {{2, 5, 8, 2, 8, 1}, WEIR_BF16, false, {.cudnn = 91900, .cudnn_more = 4096}, "in 4096 bytes of workspace"},
    {{2, 5, 9, 2, 8, 1}, WEIR_F16, false, {.cudnn = 91900, .fail_cudnn = 9, .fail_cudnn_with = LOADING_FAILED},
     "cuDNN refuses it: a descriptor cannot be made: another status, the stand-in was told to fail"},
    {{2, 5, 9, 2, 8, 1}, WEIR_F16, true, {.cudnn = 91900, .fail_cudnn = 9, .fail_cudnn_with = BAD_PARAM},
     "cuDNN refuses it: a descriptor cannot be made: CUDNN_STATUS_BAD_PARAM, the stand-in was told to fail"},
};
enum { REFUSALS = sizeof refusals / sizeof *refusals };

Test(cuda_cudnn, what_it_does_not_take_is_an_error_where_it_is_demanded)
{
    only_a_stand_in();
    choose("cudnn");
    for (int i = 0; i < REFUSALS; i++) {
        call c;
        call_open(&c, refusals[i].at, refusals[i].dtype, refusals[i].gradient);
            card_set(&refusals[i].is);
        for (int again = 0; again < 2; again++) {
            cr_expect_eq(call_run(&c), WEIR_E_UNSUPPORTED, "refusal %d: %s", i, c.error);
            cr_expect(strstr(c.error, refusals[i].sentence), "\"%s\" is not in: %s", refusals[i].sentence, c.error);
        }
        expect_runs(0, 0);
        cr_expect_eq(card_look().cudnn_descriptors, 0);
        call_close(&c);
    }
}

Test(cuda_cudnn, what_it_does_not_take_is_made_by_weirs_own_kernels)
{
    only_a_stand_in();
    choose(NULL);
    for (int i = 0; i < REFUSALS; i++) {
        call c;
        call_open(&c, refusals[i].at, refusals[i].dtype, refusals[i].gradient);
            card_set(&refusals[i].is);
        call_well(&c);
        card_set(&refusals[i].is);
        call_well(&c);
        expect_runs(0, 0);
        cr_expect_eq(card_look().cudnn_descriptors, 0);
        call_close(&c);
    }
}

Test(cuda_cudnn, who_wants_none_of_it_has_none)
{
    only_a_stand_in();
    call c;
    choose("own");
    call_open(&c, small, WEIR_BF16, true);
    card_set(&usual);
    call_well(&c);
    cr_expect_eq(card_look().cudnn_calls, 0);
    call_close(&c);
}

Test(cuda_cudnn, a_plan_that_has_no_room_for_it_has_weirs_own)
{
    only_a_stand_in();
    call c;
    choose("cudnn");
    call_open(&c, small, WEIR_BF16, true);
    c.bytes = 4 * 5 * 2 * 2;
    cr_expect_eq(call_run(&c), WEIR_E_UNSUPPORTED);
    cr_expect(strstr(c.error, "workspace"), "%s", c.error);
    call_close(&c);
}

Test(cuda_cudnn, another_choice_is_an_error)
{
    only_a_stand_in();
    call c;
    choose("flash");
    call_open(&c, small, WEIR_BF16, false);
    cr_expect_eq(call_run(&c), WEIR_E_UNSUPPORTED);
    cr_expect(strstr(c.error, "WEIR_CUDA_ATTENTION is \"flash\"; it may be own, cudnn or fast"), "%s", c.error);
    call_close(&c);
}

/* The newest cards have one configuration that repeats, which is asked for by its number, and takes no room. */
Test(cuda_cudnn, a_card_of_the_tenth_generation_has_its_own_engine)
{
    only_a_stand_in();
    call c;
    choose("cudnn");
    call_open(&c, (attention_case){16388, 2, 3, 1, 8, 1}, WEIR_F16, true);
    card_set(&(standin_options){.cudnn = 91900, .arch = 100});
    call_well(&c);
    expect_runs(1, PINNED);
    call_close(&c);
}

/* ---- calls that fail ---- */

/* Runs with each call of the library's failing in turn, until none does. How many failed. */
static int fail_each(call *c, int64_t *descriptors)
{
    for (int n = 1;; n++) {
        card_set(&(standin_options){.cudnn = 91900, .fail_cudnn = (uint64_t)n});
        const weir_status status = call_run(c);
        const standin_seen seen = card_look();
        if (!*seen.failed) {
            cr_assert_eq(status, WEIR_OK, "%s", c->error);
            return n - 1;
        }
        cr_assert_eq(status, WEIR_E_KERNEL, "%s fails, and nobody sees it", seen.failed);
        cr_assert(strstr(c->error, "cuDNN: attention") && strstr(c->error, "told to fail") && strstr(c->error, "=own"), "%s",
                  c->error);
        cr_assert(!seen.cudnn_descriptors || !*descriptors || seen.cudnn_descriptors == *descriptors,
                  "%s leaves %d descriptors, not %d", seen.failed, (int)seen.cudnn_descriptors, (int)*descriptors);
        *descriptors = seen.cudnn_descriptors;
    }
}

static void expect_failures(bool gradient)
{
    call c;
    int64_t before = 0, after = 0;
    only_a_stand_in();
    choose(NULL);
    call_open(&c, small, WEIR_BF16, gradient);
    const int first = fail_each(&c, &before);
    after = card_look().cudnn_descriptors; /* of the plan, which is kept */
    cr_expect_gt(first, 100);
    cr_expect_gt(after, 0);
    before = after;
    cr_expect_eq(fail_each(&c, &before), 7, "the calls of a plan that is there");
    cr_expect_eq(card_look().cudnn_descriptors, after);
    call_close(&c);
}

Test(cuda_cudnn, each_call_that_fails_is_a_sentence_and_nothing_is_left)
{
    expect_failures(false);
}

Test(cuda_cudnn, each_call_of_a_gradient_that_fails_is_a_sentence)
{
    expect_failures(true);
}

/* Each time of other sizes. It may also be that another engine is taken, but then the library runs. */
Test(cuda_cudnn, each_call_may_be_refused_the_first_time)
{
    bool reached = true;
    int fell_back = 0;
    only_a_stand_in();
    choose(NULL);
    for (int n = 1; reached; n += STRIDE) {
        call c;
        call_open(&c, (attention_case){1, 2, 2 + n, 1, 8, 0}, WEIR_F16, n % 2);
            const int64_t before = card_look().cudnn_descriptors;
        card_set(&(standin_options){.cudnn = 91900, .fail_cudnn = (uint64_t)n, .fail_cudnn_with = NOT_SUPPORTED});
        call_well(&c);
        reached = *card_look().failed;
        const bool own = card_look().cudnn_runs == 0;
        cr_assert_eq(card_look().cudnn_descriptors == before, own, "call %d, %s", n, card_look().failed);
        fell_back += own;
        card_set(&usual);
        call_well(&c);
        expect_runs(!own, WAVERS_NOT);
        call_close(&c);
    }
    cr_expect_gt(fell_back, 100 / STRIDE);
}

Test(cuda_cudnn, what_is_refused_later_is_an_error)
{
    call c;
    only_a_stand_in();
    choose(NULL);
    call_open(&c, small, WEIR_BF16, false);
    call_well(&c);
    card_set(&(standin_options){.cudnn = 91900, .fail_cudnn = 7, .fail_cudnn_with = NOT_SUPPORTED});
    cr_expect_eq(call_run(&c), WEIR_E_KERNEL);
    cr_expect(strstr(c.error, "it does not start: CUDNN_STATUS_NOT_SUPPORTED"), "%s", c.error);
    card_set(&usual);
    call_well(&c);
    expect_runs(1, WAVERS_NOT);
    call_close(&c);
}

/* ---- sessions ---- */

static int attention_line;

static weir_graph *model(const char *device, int64_t batch, int64_t seq)
{
    weir_graph *g = weir_graph_new("attention");
    weir_mesh_new(g, device);
    weir_tensor *x = weir_input(g, WEIR_F32, {batch, seq, 16}, .name = "x", .micro = true);
    weir_tensor *q = weir_linear(x, 16, .name = "q"), *k = weir_linear(x, 16, .name = "k");
    weir_tensor *v = weir_linear(x, 16, .name = "v");
    attention_line = __LINE__ + 1;
    weir_tensor *a = weir_attention(q, k, v, .heads = 2, .causal = true, .name = "seen");
    weir_tensor *loss = weir_mean(weir_mul(a, a), .name = "loss");
    weir_train(loss, weir_sgd(.lr = 0.5));
    weir_fetch(loss, .name = "loss");
    return g;
}

static weir_plan *plan_of(const char *device, int64_t batch, int64_t seq)
{
    weir_graph *g = model(device, batch, seq);
    weir_plan *plan = weir_compile(g, .seed = 5, .precision = WEIR_BF16, .micro_batches = 2);
    cr_assert_not_null(plan, "%s", weir_error());
    weir_graph_free(g);
    return plan;
}

Test(cuda_cudnn, a_model_trains_as_on_a_cpu_and_plans_are_made_when_a_session_opens)
{
    choose(NULL);
    weir_plan *card = plan_of("cuda:0", 4, 9), *cpu = plan_of("cpu:0", 4, 9);
    weir_session *s = weir_session_open(card);
    cr_assert_not_null(s, "%s", weir_error());
    cr_expect(card_real() || card_look().cudnn_plans == 2, "of the forward pass, and of the gradient");
    expect_runs(2, WAVERS_NOT);
    weir_session_close(s);
    run got = run_plan(card, 3, 1), want = run_plan(cpu, 3, 1);
    cr_expect(card_real() || card_look().cudnn_plans == 2, "by no step, and no other session of the kind");
    expect_runs(2 + 3 * 2 * 2, WAVERS_NOT);
    run_near(&got, &want, 2e-2, "bf16");
    run_free(&got);
    run_free(&want);
    card_close();
    weir_plan_free(card);
    weir_plan_free(cpu);
}

/* A forward pass of zeros has a logarithm that is none. */
Test(cuda_cudnn, what_runs_when_a_session_opens_leaves_zeros)
{
    const struct attention_attrs attrs = attrs_of(small);
    struct device_queue *queue;
    choose("cudnn");
    kernel_check c = forward_new(&attrs, small, WEIR_BF16);
    outputs_new(&c);
    const struct device_ops *cuda = device_find(WEIR_CUDA);
    const weir_kernel_fn kernel = cuda->kernel(c.op);
    enum { PLACE = 4096, BYTES = 6 * PLACE };
    unsigned char *space, all[BYTES];
    weir_view in[3], out[2];
    char error[ERROR_BYTES] = "";
    cr_assert_eq(cuda->queue_open(0), WEIR_OK, "%s", weir_error());
    cr_assert_eq(cuda->queue_new(0, DEVICE_COMPUTE, &queue), WEIR_OK, "%s", weir_error());
    cr_assert_eq(cuda->space_new("", 0, BYTES + PLACE, (void **)&space), WEIR_OK, "%s", weir_error());
    for (int i = 0; i < 5; i++) {
        weir_view *view = i < 3 ? &in[i] : &out[i - 3];
        *view = i < 3 ? c.in[i] : c.out[i - 3];
        view->data = space + i * PLACE;
    }
    const weir_kernel_args args = {.in = in, .in_count = 3, .out = out, .out_count = 2, .attrs = &attrs,
                                   .workspace = space + 5 * PLACE, .workspace_bytes = workspace_bytes(&c, WEIR_CUDA),
                                   .error = error, .error_bytes = sizeof error};
    cr_assert_eq(cuda->prepare(queue, kernel, &args), WEIR_OK, "%s", error);
    expect_runs(1, WAVERS_NOT);
    cr_assert_eq(cuda->prepare(queue, kernel, &args), WEIR_OK, "%s", error);
    expect_runs(1, WAVERS_NOT);
    cr_assert_eq(cuda->copy_out(all, space, BYTES), WEIR_OK, "%s", weir_error());
    for (int i = 0; i < BYTES; i++)
        cr_assert_eq(all[i], 0, "byte %d", i);
    cuda->space_free(space, BYTES + PLACE);
    cuda->queue_free(queue);
    kernel_check_free(&c);
    card_close();
}

/* Each time of other sizes, which nobody has asked for yet. */
Test(cuda_cudnn, each_call_may_fail_while_a_session_opens)
{
    enum { STEP = EFFORT(37, 73, 131) };
    bool reached = true;
    uint64_t number = 1;
    char where[160];
    only_a_stand_in();
    choose(NULL);
    for (; reached; number += STEP) {
        weir_plan *plan = plan_of("cuda:0", 2 * (int64_t)number, 3);
        card_set(&(standin_options){.fail_cudnn = number});
        weir_session *s = weir_session_open(plan);
        reached = *card_look().failed;
        cr_assert_eq(s == NULL, reached, "call %d, %s", (int)number, card_look().failed);
        snprintf(where, sizeof where, "%s:%d: seen", __FILE__, attention_line);
        cr_expect(!reached || (strstr(weir_error(), where) && strstr(weir_error(), " on cuda:0: cuDNN: attention") &&
                               !strchr(weir_error(), '\n')), "%s", weir_error());
        weir_session_close(s);
        cr_assert_null(card_left(), "call %d: %s", (int)number, card_left());
        card_set(NULL);
        s = reached && number % 3 == 1 ? weir_session_open(plan) : NULL;
        cr_expect(s || !reached || number % 3 != 1, "and again without: %s", weir_error());
        weir_session_close(s);
        weir_plan_free(plan);
    }
    cr_expect_gt(number, 300);
    card_close();
}

/* A step, as far as it goes. */
static weir_status one_step(weir_session *s)
{
    static float x[4 * 3 * 16];
    const weir_array in = {x, WEIR_F32, {3, {4, 3, 16}}};
    weir_status status = weir_session_start(s, 1);
    for (int micro = 0; micro < 2 && !status; micro++)
        status = weir_session_push(s, "x", &in, 20000);
    return status ? status : weir_session_wait(s, 20000);
}

Test(cuda_cudnn, a_call_that_fails_in_a_step_is_one_error)
{
    only_a_stand_in();
    choose(NULL);
    weir_plan *plan = plan_of("cuda:0", 4, 3);
    for (uint64_t number = 1; number < 29; number += EFFORT(3, 5, 9)) {
        weir_session *s = weir_session_open(plan);
        cr_assert_not_null(s, "%s", weir_error());
        card_set(&(standin_options){.fail_cudnn = number});
        weir_status status = one_step(s);
        cr_expect_neq(status, WEIR_OK, "call %d, %s", (int)number, card_look().failed);
        cr_expect(strstr(weir_error(), "cuDNN: attention") && strstr(weir_error(), "told to fail") &&
                  strstr(weir_error(), "(WEIR_CUDA_ATTENTION=own does without)") && !strchr(weir_error(), '\n'), "%s",
                  weir_error());
        weir_session_close(s);
        cr_assert_null(card_left(), "call %d: %s", (int)number, card_left());
        card_set(NULL);
    }
    card_close();
    weir_plan_free(plan);
}

/* ---- parts ---- */

Test(cuda_cudnn, parts_divide_a_gradient_and_fit)
{
    const int64_t most = FUSED_BYTES_MOST, gpt = 1024 * 1024 * 2;
    struct attention_parts p = parts_of(64, 12, 1024, 1024);
    cr_expect(p.batch == 8 && p.heads == 12 && p.bytes == 96 * gpt);
    p = parts_of(3, 12, 4096, 4096);
    cr_expect(p.batch == 1 && p.heads == 6 && p.bytes == 6 * 16 * gpt);
    p = parts_of(7, 5, 1, 1);
    cr_expect(p.batch == 7 && p.heads == 5 && p.bytes == 35 * 64 * 128 * 2);
    p = parts_of(2, 2, 16384, 16384);
    cr_expect(p.heads == 0, "a head is more than there may be");
    p = parts_of(0, 2, 8, 8);
    cr_expect_eq(p.bytes, 0);
    for (int64_t batch = 1; batch < 40; batch += 3)
        for (int64_t seq = 100; seq < 9000; seq += 777) {
            p = parts_of(batch, 6, seq, seq);
            cr_expect(p.heads == 0 || (batch % p.batch == 0 && 6 % p.heads == 0 && p.bytes > 0 && p.bytes <= most));
        }
}

#if EFFORT(1, 1, 0) /* not under ThreadSanitizer: it takes long, and one thread runs */

/* All sequences, or heads, are the same: so are the results, whatever part they were made in. */
static void expect_parts(attention_case at, uint64_t parts)
{
    call c;
    const int64_t dim = at.heads * at.head_dim, head = at.head_dim;
    c.attrs = attrs_of(at);
    c.forward = forward_new(&c.attrs, at, WEIR_BF16);
    for (int i = 0; i < 3; i++) {
        const weir_view *in = &c.forward.in[i];
        for (int64_t e = 0; e < weir_shape_count(&in->shape); e++) /* as in the first sequence and head */
            kernel_set(in, e, kernel_at(in, e / dim % in->shape.dim[1] * dim + e % head));
    }
    choose("cudnn");
    kernel_check_run(&c.forward);
    c.check = gradient_new(&c.attrs, &c.forward);
    for (int64_t e = 0; e < weir_shape_count(&c.check.in[5].shape); e++)
        kernel_set(&c.check.in[5], e, 1 + (double)(e % head));
    card_set(NULL);
    kernel_check_run(&c.check);
    expect_runs(2 * parts, WAVERS_NOT);
    for (int out = 0; out < 3; out++)
        for (int64_t e = 0; e < weir_shape_count(&c.check.out[out].shape); e++) {
            const int64_t like = e / dim % c.check.out[out].shape.dim[1] * dim + e % head;
            cr_assert_eq(kernel_at(&c.check.out[out], e), kernel_at(&c.check.out[out], like), "output %d, element %d", out,
                         (int)e);
        }
    cr_expect_neq(kernel_at(&c.check.out[1], 0), 0);
    kernel_check_free(&c.check);
    kernel_check_free(&c.forward);
}

Test(cuda_cudnn, a_gradient_is_made_in_parts_of_sequences)
{
    expect_parts((attention_case){16388, 2, 3, 1, 8, 1}, 2);
}

Test(cuda_cudnn, a_gradient_is_made_in_parts_of_heads)
{
    expect_parts((attention_case){2, 2, 3, 16388, 8, 0}, 4);
}
#endif
