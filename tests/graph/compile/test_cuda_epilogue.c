/* test_cuda_epilogue.c: products with what comes behind them, on emulated devices (tests/support/card.h): each such call against
 * the CPU's ops one by one, which calls the compiler makes, and when and how often the library is asked.
 */
#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "graph/plan/form/plan.h"
#include "kernels/matmul/sizes.h"
#include "kernels/common/ops.h"
#include "regst/plugin.h"
#include "tests/support/calls.h"
#include "tests/support/card.h"
#include "tests/support/effort.h"
#include "tests/support/kernel_check.h"
#include "tests/support/run.h"

enum { STRIDE = EFFORT(5, 17, 17) };

static void with_cards(void)
{
    setenv("WEIR_CUDA_LOGICAL", "2", 1);
}

TestSuite(cuda_epilogue, .init = with_cards, .timeout = 120);

/* ---- single calls ---- */

/* Within what terms of `k` products lose, and, between the two ops, a rounding to a half; and besides, by element of a half,
 * as much as `loss`. */
static void expect_within(const weir_view *got, const weir_view *want, const double *loss, const char *what)
{
    const double tolerance = 1e-5 + 3 * kernel_digit(want->dtype);
    for (int64_t i = 0; i < weir_shape_count(&want->shape); i++) {
        const double is = kernel_at(got, i), should = kernel_at(want, i), more = loss && want->dtype != WEIR_F32 ? loss[i] : 0;
        cr_assert(kernel_near(is, should, tolerance) || fabs(is - should) <= more + tolerance * fabs(should),
                  "%s, %s, element %ld: %g and not %g", what, weir_dtype_name(want->dtype), (long)i, is, should);
    }
}

static void expect_near(const weir_view *got, const weir_view *want, const char *what)
{
    expect_within(got, want, NULL, what);
}

/* The library's tanh has 11 bits. So much may gelu(z) lose by that, or gelu'(z) dy. */
static void expect_gelu_near(const weir_view *got, const weir_view *want, const weir_view *z, const weir_view *dy,
                             const char *what)
{
    const int64_t count = weir_shape_count(&want->shape);
    double *loss = calloc((size_t)count + 1, sizeof *loss);
    for (int64_t i = 0; i < count; i++) {
        const double x = fabs(kernel_at(z, i));
        loss[i] = dy ? fabs(kernel_at(dy, i)) * ldexp(1 + 2 * x * (1 + 0.134145 * x * x), -12) : ldexp(x, -12);
    }
    expect_within(got, want, loss, what);
    free(loss);
}

static void views_free(weir_view *views, int count)
{
    for (int i = 0; i < count; i++)
        kernel_view_free(&views[i]);
}

static void check_linear_gelu(weir_dtype dtype, weir_dtype result, int64_t rows, int64_t k, int64_t n, int inputs, int outputs)
{
    uint64_t random = 7;
    weir_view in[] = {view_drawn(dtype, SHAPE(2, rows, k), &random), view_drawn(dtype, SHAPE(k, n), &random),
                      view_drawn(WEIR_F32, SHAPE(n), &random)};
    weir_view want[2], got[2];
    for (int o = 0; o < 2; o++) {
        want[o] = view_blank(result, SHAPE(2, rows, n));
        got[o] = view_blank(result, SHAPE(2, rows, n));
    }
    call_on_cpu(&op_linear, NULL, in, inputs, &want[1]);
    call_on_cpu(&op_gelu, NULL, &want[1], 1, &want[0]);
    call_on_card(&op_linear_gelu, NULL, in, inputs, got, outputs);
    expect_gelu_near(&got[0], &want[0], &want[1], NULL, "gelu");
    if (outputs > 1)
        expect_near(&got[1], &want[1], "what gelu is computed of");
    views_free(in, 3);
    views_free(want, 2);
    views_free(got, 2);
}

static void check_matmul_gelu_grad(weir_dtype dtype, int64_t rows, int64_t k, int64_t n, bool transposed)
{
    uint64_t random = 8;
    const struct matmul_attrs attrs = {.trans_b = transposed};
    weir_view in[] = {view_drawn(dtype, SHAPE(rows, k), &random),
                      view_drawn(dtype, transposed ? SHAPE(n, k) : SHAPE(k, n), &random),
                      view_drawn(dtype, SHAPE(rows, n), &random)};
    weir_view want = view_blank(dtype, SHAPE(rows, n)), got = view_blank(dtype, SHAPE(rows, n)), dy = view_blank(dtype, SHAPE(rows, n));
    call_on_cpu(&op_matmul, &attrs, in, 2, &dy);
    call_on_cpu(&op_gelu_grad, NULL, (weir_view[]){in[2], dy}, 2, &want);
    call_on_card(&op_matmul_gelu_grad, &attrs, in, 3, &got, 1);
    expect_gelu_near(&got, &want, &in[2], &dy, "gelu's gradient");
    views_free(in, 3);
    views_free(&want, 1);
    views_free(&got, 1);
    views_free(&dy, 1);
}

/* `exact`: of whole numbers, so that the order of many terms is of no matter. */
static void check_dw_db(weir_dtype dtype, int64_t rows, int64_t k, int64_t n, bool exact)
{
    uint64_t random = 9;
    weir_view in[] = {view_drawn(dtype, SHAPE(rows, k), &random), view_drawn(dtype, SHAPE(rows, n), &random)};
    for (int i = 0; exact && i < 2; i++)
        for (int64_t at = 0; at < weir_shape_count(&in[i].shape); at++)
            kernel_set(&in[i], at, (double)((at * 7 + i) % 5) - 2);
    weir_view want[] = {view_blank(WEIR_F32, SHAPE(k, n)), view_blank(WEIR_F32, SHAPE(n))};
    weir_view got[] = {view_blank(WEIR_F32, SHAPE(k, n)), view_blank(WEIR_F32, SHAPE(n))};
    call_on_cpu(&op_linear_dw, NULL, in, 2, &want[0]);
    call_on_cpu(&op_linear_db, NULL, &in[1], 1, &want[1]);
    call_on_card(&op_linear_dw_db, NULL, in, 2, got, 2);
    expect_near(&got[0], &want[0], "dW");
    expect_near(&got[1], &want[1], "db");
    views_free(in, 2);
    views_free(want, 2);
    views_free(got, 2);
}

/* Checks all kinds and dtypes, with `n` results a row. */
static void check_all(int64_t rows, int64_t k, int64_t n)
{
    static const weir_dtype dtypes[] = {WEIR_F32, WEIR_BF16, WEIR_F16};
    for (int d = 0; d < 3; d++) {
        check_linear_gelu(dtypes[d], dtypes[d], rows, k, n, 3, 2);
        check_linear_gelu(dtypes[d], dtypes[d], rows, k, n, 2, 2);
        check_linear_gelu(dtypes[d], dtypes[d], rows, k, n, 3, 1);
        check_linear_gelu(dtypes[d], dtypes[d], rows, k, n, 2, 1);
        check_linear_gelu(dtypes[d], WEIR_F32, rows, k, n, 3, 2);
        check_matmul_gelu_grad(dtypes[d], rows, k, n, true);
        check_matmul_gelu_grad(dtypes[d], rows, k, n, false);
        check_dw_db(dtypes[d], rows, k, n, false);
    }
}

static void open_device(const standin_options *options)
{
    if (card_real())
        cr_skip_test("operands are the host's; sessions are compared on a card, too");
    card_open(options);
    cr_assert_eq(plugin_need(WEIR_CUDA), WEIR_OK, "%s", weir_error());
}

Test(cuda_epilogue, each_call_is_what_the_cpu_s_two_are)
{
    open_device(NULL);
    check_all(5, 12, 16);
    check_all(3, 33, 8);
    const uint64_t ways = card_look().ways;
    check_all(3, 33, 8);
    cr_expect_eq(card_look().ways, ways, "what was asked is kept");
    card_close();
}

/* The library takes no rows of what gelu is computed of that are no multiple of 8; nor does one know all of them. */
Test(cuda_epilogue, what_the_library_has_no_way_for_is_made_in_two)
{
    open_device(NULL);
    check_all(5, 12, 13);
    card_set(&(standin_options){.no_epilogues = true});
    check_all(6, 12, 16);
    card_set(&(standin_options){.refuses_epilogues = true});
    check_all(7, 12, 16);
    check_all(7, 12, 16);
    card_close();
}

Test(cuda_epilogue, a_process_may_ask_for_kernels_of_their_own)
{
    setenv("WEIR_CUDA_EPILOGUES", "apart", 1);
    open_device(NULL);
    check_all(5, 12, 16);
    const uint64_t ways = card_look().ways;
    card_set(&(standin_options){.no_epilogues = true});
    check_all(5, 12, 16);
    cr_expect_eq(card_look().ways, 0, "no epilogue was asked for, and of %d products each was", (int)ways);
    card_close();
}

/* A bias's gradient is no epilogue where that keeps the library from splitting a small product of many terms. */
Test(cuda_epilogue, a_small_product_of_many_terms_makes_no_sums)
{
    open_device(NULL);
    check_dw_db(WEIR_BF16, 4095, 8, 16, true);
    const uint64_t sums = card_look().sums;
    cr_expect_gt(sums, 0);
    check_dw_db(WEIR_BF16, 4096, 8, 16, true);
    cr_expect_eq(card_look().sums, sums);
    card_close();
}

Test(cuda_epilogue, of_no_terms_or_no_rows_there_is_what_is_left)
{
    open_device(NULL);
    check_linear_gelu(WEIR_F32, WEIR_F32, 3, 0, 8, 3, 2);
    check_matmul_gelu_grad(WEIR_BF16, 3, 0, 8, false);
    check_linear_gelu(WEIR_F16, WEIR_F16, 0, 4, 8, 3, 2);
    check_dw_db(WEIR_F32, 0, 4, 8, false);
    card_close();
}

/* ---- which calls the compiler makes ---- */

static int up_line;

/* Two layers and gelu between; trained. `fetch_z`: the value before gelu is needed outside. */
static weir_graph *model(const char *device, int64_t columns, bool fetch_z)
{
    weir_graph *g = weir_graph_new("epilogue");
    weir_mesh_new(g, device);
    weir_tensor *x = weir_input(g, WEIR_F32, {8, 16}, .name = "x", .micro = true);
    up_line = __LINE__ + 1;
    weir_tensor *z = weir_linear(x, columns, .name = "up"), *y = weir_linear(weir_gelu(z, .name = "act"), 24, .name = "down");
    weir_tensor *loss = weir_mean(weir_mul(y, y), .name = "loss");
    weir_train(loss, weir_sgd(.lr = 0.05));
    weir_fetch(loss, .name = "loss");
    if (fetch_z)
        weir_fetch(z, .name = "z");
    return g;
}

static weir_plan *plan_of(const char *device, int64_t columns, bool fetch_z, weir_compile_opts opts)
{
    return run_compile(model(device, columns, fetch_z), opts);
}

/* Kernels of the op, and the outputs of the last of them. */
static int count_of(const weir_plan *plan, const char *op, uint32_t *outputs)
{
    int count = 0;
    for (uint32_t k = 0; k < plan->kernels_count; k++)
        if (!strcmp(plan_text(plan, plan->kernels[k].op), op)) {
            count++;
            *outputs = plan->kernels[k].out.count;
        }
    return count;
}

static void expect_calls(weir_plan *plan, int gelu, int gelu_grad, int dw_db, const char *what)
{
    uint32_t outputs;
    cr_expect_eq(count_of(plan, "linear_gelu", &outputs), gelu, "%s", what);
    cr_expect_eq(count_of(plan, "matmul_gelu_grad", &outputs), gelu_grad, "%s", what);
    cr_expect_eq(count_of(plan, "linear_dw_db", &outputs), dw_db, "%s", what);
    weir_plan_free(plan);
}

Test(cuda_epilogue, products_take_in_what_comes_behind_them)
{
    uint32_t outputs = 0;
    weir_plan *plan = plan_of("cuda:0", 32, false, (weir_compile_opts){.seed = 0});
    cr_expect_eq(count_of(plan, "linear_gelu", &outputs), 1);
    cr_expect_eq(outputs, 2, "its gradient reads what gelu is computed of");
    char *shown = NULL;
    size_t bytes = 0;
    FILE *to = open_memstream(&shown, &bytes);
    cr_assert_eq(weir_plan_show(plan, to), WEIR_OK, "%s", weir_error());
    fclose(to);
    cr_expect(strstr(shown, "fused(linear, gelu)") && strstr(shown, "fused(matmul, gelu_grad)") &&
              strstr(shown, "fused(linear_dw, linear_db)"), "%s", shown);
    free(shown);
    expect_calls(plan, 1, 1, 1, "one micro-batch");
    expect_calls(plan_of("cuda:0", 32, true, (weir_compile_opts){.seed = 0}), 0, 1, 1,
                 "what is between is fetched, so an actor ends there");
    expect_calls(plan_of("cuda:0", 32, false, (weir_compile_opts){.precision = WEIR_BF16}), 1, 1, 1, "bf16");
    expect_calls(plan_of("cuda:0", 32, false, (weir_compile_opts){.micro_batches = 2}), 1, 1, 0, "gradients add up");
    expect_calls(plan_of("cuda:0", 32, false, (weir_compile_opts){.no_fusion = true}), 0, 0, 0, "no fusion");
    expect_calls(plan_of("cpu:0", 32, false, (weir_compile_opts){.seed = 0}), 0, 0, 0, "on a CPU");
}

/* Nothing trains, so nobody reads what gelu is computed of; and of one that two read, one alone joins. */
Test(cuda_epilogue, what_nobody_else_reads_is_nowhere)
{
    uint32_t outputs = 0;
    for (int readers = 1; readers < 3; readers++) {
        weir_graph *g = weir_graph_new("forward");
        weir_mesh_new(g, "cuda:0");
        weir_tensor *z = weir_linear(weir_input(g, WEIR_F32, {8, 16}, .name = "x"), 8, .name = "up");
        weir_fetch(weir_gelu(z, .name = "act"), .name = "y");
        if (readers > 1)
            weir_fetch(weir_relu(z), .name = "other");
        weir_plan *plan = weir_compile(g);
        cr_assert_not_null(plan, "%s", weir_error());
        cr_expect_eq(count_of(plan, "linear_gelu", &outputs), 1);
        cr_expect_eq(outputs, (uint32_t)readers);
        weir_plan_free(plan);
        weir_graph_free(g);
    }
}

/* ---- sessions ---- */

static void trains_as_on_a_cpu(const char *device, int64_t columns, weir_compile_opts opts, double tolerance)
{
    weir_plan *card = plan_of(device, columns, true, opts), *cpu = plan_of("cpu:0", columns, true, opts);
    run got = run_plan(card, 2, 1), want = run_plan(cpu, 2, 1);
    run_near(&got, &want, tolerance, device);
    run_free(&got);
    run_free(&want);
    weir_plan_free(card);
    weir_plan_free(cpu);
}

Test(cuda_epilogue, a_model_trains_as_on_a_cpu)
{
    card_open(NULL);
    for (int micro = 1; micro < 3; micro++)
        trains_as_on_a_cpu("cuda:0", 40, (weir_compile_opts){.micro_batches = micro}, 1e-4);
    trains_as_on_a_cpu("cuda:0", 13, (weir_compile_opts){.seed = 0}, 1e-4);
    trains_as_on_a_cpu("cuda:0", 40, (weir_compile_opts){.precision = WEIR_BF16}, 2e-2);
    if (!card_real()) {
        card_set(&(standin_options){.no_epilogues = true});
        trains_as_on_a_cpu("cuda:0", 48, (weir_compile_opts){.seed = 0}, 1e-4);
        card_set(&(standin_options){.refuses_epilogues = true});
        trains_as_on_a_cpu("cuda:0", 72, (weir_compile_opts){.seed = 0}, 1e-4);
        trains_as_on_a_cpu("cuda:0", 72, (weir_compile_opts){.precision = WEIR_BF16}, 2e-2);
    }
    card_close();
}

Test(cuda_epilogue, another_word_of_the_environment_is_refused)
{
    if (card_real())
        cr_skip_test("a session on a card is tried in others");
    setenv("WEIR_CUDA_EPILOGUES", "kernels", 1);
    card_open(NULL);
    weir_plan *plan = plan_of("cuda:0", 32, false, (weir_compile_opts){.precision = WEIR_BF16});
    cr_expect_null(weir_session_open(plan));
    cr_expect(strstr(weir_error(), "WEIR_CUDA_EPILOGUES is \"kernels\"; it may be apart"), "%s", weir_error());
    card_close();
    weir_plan_free(plan);
}

Test(cuda_epilogue, ways_are_asked_for_when_a_session_opens_and_never_later)
{
    if (card_real())
        cr_skip_test("only a stand-in counts questions");
    weir_plan *plan = plan_of("cuda:0", 56, false, (weir_compile_opts){.seed = 0});
    card_open(NULL);
    weir_session *s = weir_session_open(plan);
    cr_assert_not_null(s, "%s", weir_error());
    const uint64_t ways = card_look().ways, kernels = card_look().kernels;
    cr_expect_gt(ways, 4, "for each product");
    cr_expect_gt(kernels, ways - 1, "and each has run once");
    weir_session_close(s);
    for (int i = 0; i < 2; i++) {
        run one = run_plan(plan, 2, 1);
        run_free(&one);
    }
    cr_expect_eq(card_look().ways, ways, "by no step, and no other session of the kind");
    card_close();
    weir_plan_free(plan);
}

/* The state at the beginning of a session is the same as without them: zeros, and drawn values. */
Test(cuda_epilogue, products_that_run_when_a_session_opens_leave_nothing_behind)
{
    weir_plan *plan = plan_of("cuda:0", 64, false, (weir_compile_opts){.seed = 0});
    float bias[64], weight[16 * 64];
    weir_array to = {bias, WEIR_F32, {1, {64}}}, drawn_to = {weight, WEIR_F32, {2, {16, 64}}};
    card_open(NULL);
    weir_session *s = weir_session_open(plan);
    cr_assert_not_null(s, "%s", weir_error());
    cr_assert_eq(weir_session_read(s, "up/bias", &to), WEIR_OK, "%s", weir_error());
    cr_assert_eq(weir_session_read(s, "up/weight", &drawn_to), WEIR_OK, "%s", weir_error());
    for (int i = 0; i < 64; i++)
        cr_expect_eq(bias[i], 0);
    cr_expect_neq(weight[0], 0);
    weir_session_close(s);
    card_close();
    weir_plan_free(plan);
}

/* ---- errors ---- */

Test(cuda_epilogue, a_product_without_a_way_is_one_error_when_the_session_opens)
{
    char want[200];
    if (card_real())
        cr_skip_test("only a stand-in lacks what it is told to");
    weir_plan *plan = plan_of("cuda:0", 72, false, (weir_compile_opts){.seed = 0});
    card_open(&(standin_options){.no_products = true});
    cr_expect_null(weir_session_open(plan));
    snprintf(want, sizeof want, "%s:%d: fused(linear, gelu) up..act (linear_gelu) on cuda:0: cuBLASLt has no way for 1 products "
             "[8, 16] [16, 72] of f32 into f32 with a workspace of ", __FILE__, up_line);
    cr_expect_eq(strncmp(weir_error(), want, strlen(want)), 0, "%s", weir_error());
    card_close();
    weir_plan_free(plan);
}

/* Each time with products of other sizes, which nobody has asked for yet. */
Test(cuda_epilogue, each_call_of_the_library_may_fail)
{
    if (card_real())
        cr_skip_test("only a stand-in fails when it is told to");
    bool reached = true;
    uint64_t number = 1;
    card_open(NULL);
    for (; reached; number += STRIDE) {
        weir_plan *plan = plan_of("cuda:0", 80 + 8 * (int64_t)number, false, (weir_compile_opts){.seed = 0});
        card_set(&(standin_options){.fail_blas = number});
        weir_session *s = weir_session_open(plan);
        const char *left = NULL, *error = weir_error();
        reached = *card_look().failed;
        cr_assert_eq(s == NULL, reached, "call %lu, %s", (unsigned long)number, card_look().failed);
        cr_expect(!reached || (strstr(error, __FILE__) && strstr(error, " on cuda:0: cuBLASLt ") && !strchr(error, '\n')),
                  "%s", error);
        weir_session_close(s);
        left = card_left();
        cr_assert_null(left, "call %lu: %s", (unsigned long)number, left);
        card_set(NULL);
        s = reached && number % 3 == 1 ? weir_session_open(plan) : NULL;
        cr_expect(s || !reached || number % 3 != 1, "and again without: %s", weir_error());
        weir_session_close(s);
        weir_plan_free(plan);
    }
    cr_expect_gt(number, 60);
    card_close();
}

/* ---- plans from anywhere ---- */

Test(cuda_epilogue, calls_that_do_not_fit_are_refused)
{
    weir_type x = {WEIR_F32, {2, {4, 8}}}, w = {WEIR_F32, {2, {8, 16}}}, y = {WEIR_F32, {2, {4, 16}}};
    weir_type half = {WEIR_BF16, {2, {4, 16}}}, wide = {WEIR_F32, {2, {4, 24}}}, b = {WEIR_F32, {1, {16}}};
    const struct matmul_attrs plain = {.trans_a = 0};
    weir_type in[3] = {x, w, b}, out[2] = {y, y}, z[3] = {x, w, y}, rows[2] = {x, y}, sums[2] = {w, b};
    char error[256];
#define FITS(op, ins, in_count, outs, out_count, attrs) \
    (op).fits(&(weir_op_args){&(op), ins, in_count, outs, out_count, attrs}, error, sizeof error)
    cr_expect(FITS(op_linear_gelu, in, 3, out, 2, NULL));
    cr_expect(FITS(op_linear_gelu, in, 2, out, 1, NULL));
    cr_expect_not(FITS(op_linear_gelu, in, 3, out, 0, NULL));
    out[1] = half;
    cr_expect_not(FITS(op_linear_gelu, in, 3, out, 2, NULL));
    out[0] = wide;
    cr_expect_not(FITS(op_linear_gelu, in, 3, out, 1, NULL));
    cr_expect(FITS(op_matmul_gelu_grad, z, 3, &y, 1, &plain));
    z[2] = half;
    cr_expect_not(FITS(op_matmul_gelu_grad, z, 3, &y, 1, &plain));
    cr_expect_not(FITS(op_matmul_gelu_grad, z, 3, &wide, 1, &plain));
    cr_expect(FITS(op_linear_dw_db, rows, 2, sums, 2, NULL));
    sums[1] = w;
    cr_expect_not(FITS(op_linear_dw_db, rows, 2, sums, 2, NULL));
    rows[0] = wide;
    rows[1] = (weir_type){WEIR_F32, {2, {5, 16}}};
    cr_expect_not(FITS(op_linear_dw_db, rows, 2, sums, 2, NULL));
}
