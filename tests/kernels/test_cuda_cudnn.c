/* test_cuda_cudnn.c: attention by cuDNN (kernels/attention/cudnn.cu), on the stand-in for that library, or with
 * WEIR_TEST_CARDS=real on this machine's card and library: there it compares cuDNN with weir's own kernels. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/attention/formula.h"
#include "kernels/ops.h"
#include "tests/support/card.h"
#include "tests/support/kernel_check.h"

TestSuite(cuda_cudnn, .timeout = 120);

enum { SEED = 77, WAVERS_NOT = 6, PINNED = 5, ERROR_BYTES = 400 };

typedef struct attention_case {
    int64_t batch, seq, keys, heads, head_dim, causal;
} attention_case;

static const char usual[] = "91900";

static struct attention_attrs attrs_of(attention_case at)
{
    return (struct attention_attrs){at.head_dim, at.causal, 1 / sqrt((double)at.head_dim)};
}

/* Who makes attention from now on; NULL: who can. And which library there is, on a stand-in; NULL: none. */
static void choose(const char *by, const char *version)
{
    by ? setenv("WEIR_CUDA_ATTENTION", by, 1) : unsetenv("WEIR_CUDA_ATTENTION");
    version ? setenv("STANDIN_CUDNN", version, 1) : unsetenv("STANDIN_CUDNN");
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

/* Of the inputs and outputs of a forward pass that has run. */
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
        cr_assert(kernel_near(got, want, tolerance), "%s: output %d, element %d: %g, not %g", a->op->name, out, (int)i, got, want);
    }
}

/* Both make the same of the same operands, but for rounding; and a gradient goes with either's forward pass. */
static void compare(attention_case at, weir_dtype dtype)
{
    const struct attention_attrs attrs = attrs_of(at);
    const double digit = kernel_digit(dtype);
    kernel_check own = forward_new(&attrs, at, dtype), fused = forward_new(&attrs, at, dtype);
    choose("own", usual);
    kernel_check_run(&own);
    choose("cudnn", usual);
    kernel_check_run(&fused);
    expect_near(&fused, &own, 0, 8 * digit + 1e-5);
    expect_near(&fused, &own, 1, 1e-4);
    kernel_check there = gradient_new(&attrs, &own), here = gradient_new(&attrs, &fused);
    kernel_check_run(&there);
    choose("own", usual);
    kernel_check_run(&here);
    for (int out = 0; out < 3; out++)
        expect_near(&there, &here, out, 16 * digit + 1e-5);
    kernel_check_free(&own);
    kernel_check_free(&fused);
    kernel_check_free(&there);
    kernel_check_free(&here);
}

Test(cuda_cudnn, makes_what_weirs_own_kernels_make)
{
    const attention_case cases[] = {{2, 5, 7, 3, 8, 0}, {1, 70, 70, 2, 64, 1}, {2, 33, 20, 1, 128, 1}, {1, 9, 33, 2, 40, 1},
                                    {2, 1, 6, 1, 16, 0}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        compare(cases[i], WEIR_BF16);
        compare(cases[i], WEIR_F16);
    }
    cr_expect(card_real() || card_look().cudnn_runs >= 20);
    cr_expect(card_real() || card_look().cudnn_engine == WAVERS_NOT);
}

/* ---- single calls ---- */

/* A forward pass or gradient whose operands stay, by whoever is chosen. */
typedef struct call {
    struct attention_attrs attrs;
    kernel_check forward, check;
    void *workspace;
    size_t bytes;
    char error[ERROR_BYTES];
} call;

static void call_open(call *c, attention_case at, weir_dtype dtype, bool gradient)
{
    c->attrs = attrs_of(at);
    c->forward = forward_new(&c->attrs, at, dtype);
    choose("own", NULL);
    kernel_check_run(&c->forward);
    c->check = gradient ? gradient_new(&c->attrs, &c->forward) : c->forward;
    if (gradient)
        kernel_check_run(&c->check);
    weir_type in[6], out[3];
    for (int i = 0; i < c->check.in_count; i++)
        in[i] = (weir_type){c->check.in[i].dtype, c->check.in[i].shape};
    const weir_op_args args = {.in = in, .in_count = c->check.in_count, .out = out, .out_count = c->check.out_count,
                               .attrs = &c->attrs};
    c->bytes = c->check.op->workspace(&args, WEIR_CUDA);
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

static void call_close(call *c)
{
    if (c->check.op != c->forward.op)
        kernel_check_free(&c->check);
    kernel_check_free(&c->forward);
    free(c->workspace);
}

static const attention_case small = {2, 5, 7, 2, 8, 1};

/* The call is one clear error where cuDNN is demanded, and weir's own where it is not. */
static void expect_refusal(attention_case at, weir_dtype dtype, bool gradient, const standin_options *is, const char *sentence)
{
    call c;
    call_open(&c, at, dtype, gradient);
    card_set(is);
    choose("cudnn", NULL);
    cr_expect_eq(call_run(&c), WEIR_E_UNSUPPORTED);
    cr_expect(strstr(c.error, sentence), "\"%s\" is not in: %s", sentence, c.error);
    choose(NULL, NULL);
    cr_expect_eq(call_run(&c), WEIR_OK, "%s", c.error);
    expect_runs(0, 0);
    call_close(&c);
}

static void only_a_stand_in(void)
{
    if (card_real())
        cr_skip_test("only a stand-in is such a library");
}

Test(cuda_cudnn, what_it_does_not_take_is_weirs_own_or_an_error)
{
    only_a_stand_in();
    const attention_case odd = {1, 5, 7, 1, 12, 0}, single = {2, 1, 1, 1, 8, 0};
    expect_refusal(small, WEIR_BF16, false, &(standin_options){.cudnn = 0}, "cudnn, but there is no libcudnn.so.9");
    expect_refusal(small, WEIR_BF16, true, &(standin_options){.cudnn = 91802}, "cuDNN 9.18.2 is older than 9.19");
    expect_refusal(small, WEIR_F32, false, &(standin_options){.cudnn = 91900}, "by cuDNN where it is of halves");
    expect_refusal(odd, WEIR_F16, true, &(standin_options){.cudnn = 91900}, "heads of a multiple of 8, up to 128");
    expect_refusal(single, WEIR_F16, true, &(standin_options){.cudnn = 91900}, "no gradient of one query of one key");
    expect_refusal(small, WEIR_F16, true, &(standin_options){.cudnn = 91900, .arch = 120}, "the same bits each time on this card");
    expect_refusal(small, WEIR_F16, true, &(standin_options){.cudnn = 92300, .arch = 100}, "the same bits each time on this card");
}

Test(cuda_cudnn, a_plan_that_has_no_room_for_it_has_weirs_own)
{
    only_a_stand_in();
    call c;
    call_open(&c, small, WEIR_BF16, true);
    card_set(&(standin_options){.cudnn = 91900});
    choose("cudnn", NULL);
    c.bytes = 4 * 5 * 2 * 2;
    cr_expect_eq(call_run(&c), WEIR_E_UNSUPPORTED);
    cr_expect(strstr(c.error, "workspace"), "%s", c.error);
    call_close(&c);
}

Test(cuda_cudnn, another_choice_is_an_error)
{
    call c;
    call_open(&c, small, WEIR_BF16, false);
    choose("flash", NULL);
    cr_expect_eq(card_real() ? WEIR_E_UNSUPPORTED : call_run(&c), WEIR_E_UNSUPPORTED);
    cr_expect(card_real() || strstr(c.error, "WEIR_CUDA_ATTENTION is \"flash\"; it may be own or cudnn"), "%s", c.error);
    call_close(&c);
}

/* The newest cards have one configuration that repeats, which is asked for by its number. */
Test(cuda_cudnn, a_card_of_the_tenth_generation_has_its_own_engine)
{
    only_a_stand_in();
    call c;
    call_open(&c, small, WEIR_F16, true);
    card_set(&(standin_options){.cudnn = 91900, .arch = 100});
    choose("cudnn", NULL);
    cr_expect_eq(call_run(&c), WEIR_OK, "%s", c.error);
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
        cr_assert(!seen.cudnn_descriptors || !*descriptors || seen.cudnn_descriptors == *descriptors, "%s leaves %d descriptors, not %d",
                  seen.failed, (int)seen.cudnn_descriptors, (int)*descriptors);
        *descriptors = seen.cudnn_descriptors;
    }
}

static void expect_failures(bool gradient)
{
    call c;
    int64_t before = 0, after = 0;
    call_open(&c, small, WEIR_BF16, gradient);
    choose("cudnn", NULL);
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
    only_a_stand_in();
    expect_failures(false);
}

Test(cuda_cudnn, each_call_of_a_gradient_that_fails_is_a_sentence)
{
    only_a_stand_in();
    expect_failures(true);
}

/* ---- parts ---- */

Test(cuda_cudnn, parts_divide_a_gradient_and_fit)
{
    const int64_t most = FUSED_BYTES_MOST, gpt = 1024 * 1024 * 2;
    struct attention_parts p = parts_of(64, 12, 1024, 1024);
    cr_expect(p.batch == 4 && p.heads == 12 && p.bytes == 48 * gpt);
    p = parts_of(3, 12, 4096, 4096);
    cr_expect(p.batch == 1 && p.heads == 4 && p.bytes == 4 * 16 * gpt);
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
    choose("cudnn", usual);
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
            cr_assert_eq(kernel_at(&c.check.out[out], e), kernel_at(&c.check.out[out], like), "output %d, element %d", out, (int)e);
        }
    cr_expect_neq(kernel_at(&c.check.out[1], 0), 0);
    kernel_check_free(&c.check);
    kernel_check_free(&c.forward);
}

Test(cuda_cudnn, a_gradient_is_made_in_parts_of_sequences)
{
    expect_parts((attention_case){8194, 2, 3, 1, 8, 1}, 2);
}

Test(cuda_cudnn, a_gradient_is_made_in_parts_of_heads)
{
    expect_parts((attention_case){2, 2, 3, 8194, 8, 0}, 4);
}
