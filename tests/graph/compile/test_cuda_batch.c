/* test_cuda_batch.c: several products of one tensor as one call, on emulated devices (tests/support/card.h): the call against the
 * CPU's, which calls the compiler makes of a model's, and that it trains as on a CPU.
 */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "graph/plan/form/plan.h"
#include "kernels/common/ops.h"
#include "regst/plugin.h"
#include "tests/support/calls.h"
#include "tests/support/card.h"
#include "tests/support/run.h"

enum { COUNT_MAX = 4, ROWS = 5, TERMS_MANY = 4096, INPUTS = 8, COLUMNS = 16 };

static void with_cards(void)
{
    setenv("WEIR_CUDA_LOGICAL", "2", 1);
}

TestSuite(cuda_batch, .init = with_cards, .timeout = 120);

static void open_device(const standin_options *options)
{
    if (card_real())
        cr_skip_test("operands are the host's; sessions are compared on a card, too");
    card_open(options);
    cr_assert_eq(plugin_need(WEIR_CUDA), WEIR_OK, "%s", weir_error());
}

/* ---- single calls ---- */

/* Views of one block: at equal distances, or with a gap behind the second. */
static weir_view *views_beside(weir_dtype dtype, weir_shape shape, int count, int gap, uint64_t *random, weir_view *block)
{
    static weir_view views[3][COUNT_MAX];
    static int next;
    weir_view *list = views[next++ % 3];
    const int64_t one = weir_shape_count(&shape), bytes = (int64_t)weir_dtype_bytes(dtype);
    const weir_shape all = SHAPE((int64_t)count * one + gap);
    *block = random ? view_drawn(dtype, all, random) : view_blank(dtype, all);
    for (int i = 0; i < count; i++) {
        list[i] = *block;
        list[i].shape = list[i].global = shape;
        list[i].data = (char *)block->data + ((int64_t)i * one + (i > 1 ? gap : 0)) * bytes;
    }
    return list;
}

static void expect_near(const weir_view *got, const weir_view *want, const char *what)
{
    for (int64_t i = 0; i < weir_shape_count(&want->shape); i++)
        cr_assert(kernel_near(kernel_at(got, i), kernel_at(want, i), 1e-5 + 3 * kernel_digit(want->dtype)),
                  "%s, %s, element %ld: %g and not %g", what, weir_dtype_name(want->dtype), (long)i, kernel_at(got, i),
                  kernel_at(want, i));
}

static void check_linears(weir_dtype dtype, weir_dtype result, int count, bool biased, int gap)
{
    uint64_t random = 3;
    weir_view x = view_drawn(dtype, SHAPE(ROWS, INPUTS), &random), weights, biases, results, in[1 + 2 * COUNT_MAX] = {x};
    const weir_view *w = views_beside(dtype, SHAPE(INPUTS, COLUMNS), count, gap, &random, &weights);
    const weir_view *b = views_beside(WEIR_F32, SHAPE(COLUMNS), count, 0, &random, &biases);
    const weir_view *y = views_beside(result, SHAPE(ROWS, COLUMNS), count, 0, NULL, &results);
    memcpy(in + 1, w, sizeof *w * (size_t)count);
    memcpy(in + 1 + count, b, sizeof *b * (size_t)count);
    call_on_card(&op_linear_many, NULL, in, biased ? 1 + 2 * count : 1 + count, y, count);
    for (int i = 0; i < count; i++) {
        weir_view want = view_blank(result, SHAPE(ROWS, COLUMNS));
        call_on_cpu(&op_linear, NULL, (weir_view[]){x, w[i], b[i]}, biased ? 3 : 2, &want);
        expect_near(&y[i], &want, "linear");
        kernel_view_free(&want);
    }
    kernel_view_free(&x);
    kernel_view_free(&weights);
    kernel_view_free(&biases);
    kernel_view_free(&results);
}

static void check_gradients(weir_dtype dtype, int count, int gap)
{
    uint64_t random = 4;
    weir_view x = view_drawn(dtype, SHAPE(ROWS, INPUTS), &random), given, results, in[1 + COUNT_MAX] = {x};
    const weir_view *dy = views_beside(dtype, SHAPE(ROWS, COLUMNS), count, gap, &random, &given);
    const weir_view *dw = views_beside(WEIR_F32, SHAPE(INPUTS, COLUMNS), count, 0, NULL, &results);
    memcpy(in + 1, dy, sizeof *dy * (size_t)count);
    call_on_card(&op_linear_dw_many, NULL, in, 1 + count, dw, count);
    for (int i = 0; i < count; i++) {
        weir_view want = view_blank(WEIR_F32, SHAPE(INPUTS, COLUMNS));
        call_on_cpu(&op_linear_dw, NULL, (weir_view[]){x, dy[i]}, 2, &want);
        expect_near(&dw[i], &want, "dW");
        kernel_view_free(&want);
    }
    kernel_view_free(&x);
    kernel_view_free(&given);
    kernel_view_free(&results);
}

static void check_all(int gap)
{
    static const weir_dtype dtypes[] = {WEIR_F32, WEIR_BF16, WEIR_F16};
    for (int d = 0; d < 3; d++)
        for (int count = 1; count <= COUNT_MAX; count++) {
            check_linears(dtypes[d], dtypes[d], count, true, gap);
            check_linears(dtypes[d], dtypes[d], count, false, gap);
            check_linears(dtypes[d], WEIR_F32, count, true, gap);
            check_gradients(dtypes[d], count, gap);
        }
}

Test(cuda_batch, one_call_makes_all_products)
{
    open_device(NULL);
    check_all(0);
    card_close();
}

Test(cuda_batch, matrices_at_other_distances_are_multiplied_one_by_one)
{
    open_device(NULL);
    check_all(8);
    card_close();
}

Test(cuda_batch, a_library_without_a_way_for_the_batch_makes_them_one_by_one)
{
    open_device(&(standin_options){.no_epilogues = true});
    check_all(0);
    card_set(&(standin_options){.refuses_epilogues = true});
    check_all(0);
    card_close();
}

Test(cuda_batch, the_library_is_asked_once_for_a_batch)
{
    open_device(NULL);
    check_linears(WEIR_BF16, WEIR_BF16, 3, true, 0);
    cr_expect_eq(card_look().ways, 1);
    check_linears(WEIR_BF16, WEIR_BF16, 3, true, 0);
    cr_expect_eq(card_look().ways, 1);
    check_gradients(WEIR_BF16, 3, 0);
    cr_expect_eq(card_look().ways, 2);
    card_close();
}

/* ---- which calls the compiler makes ---- */

typedef struct shape_of_model {
    const char *device;
    int64_t rows, other;           /* columns of the third product: COLUMNS, or not */
    bool gelu, no_bias;
} shape_of_model;

/* Three products of one tensor, which meet again; trained. */
static weir_plan *plan_of(const shape_of_model *m, weir_compile_opts opts)
{
    weir_graph *g = weir_graph_new("batch");
    weir_mesh_new(g, m->device);
    weir_tensor *given = weir_input(g, WEIR_F32, {m->rows, INPUTS}, .name = "x", .micro = true);
    weir_tensor *x = weir_linear(given, INPUTS, .name = "first");
    weir_tensor *q = weir_linear(x, COLUMNS, .name = "q", .no_bias = m->no_bias);
    weir_tensor *k = weir_linear(x, COLUMNS, .name = "k", .no_bias = m->no_bias);
    weir_tensor *v = weir_linear(x, m->other, .name = "v", .no_bias = m->no_bias);
    weir_tensor *y = weir_tanh(weir_mul(q, m->gelu ? weir_gelu(k) : k));
    weir_tensor *loss = weir_mean(m->other == COLUMNS ? weir_mul(y, v) : weir_matmul(weir_transpose(y, {1, 0}), v), .name = "loss");
    weir_train(loss, weir_sgd(.lr = 0.05));
    weir_fetch(loss, .name = "loss");
    return run_compile(g, opts);
}

static void expect_calls(shape_of_model m, weir_compile_opts opts, uint32_t linears, uint32_t gradients, const char *what)
{
    weir_plan *plan = plan_of(&m, opts);
    uint32_t made[2] = {0};
    for (uint32_t k = 0; k < plan->kernels_count; k++) {
        const char *op = plan_text(plan, plan->kernels[k].op);
        made[0] += strcmp(op, "linear_many") ? 0 : plan->kernels[k].out.count;
        made[1] += strcmp(op, "linear_dw_many") ? 0 : plan->kernels[k].out.count;
    }
    cr_expect_eq(made[0], linears, "%s: %u linear", what, made[0]);
    cr_expect_eq(made[1], gradients, "%s: %u linear_dw", what, made[1]);
    weir_plan_free(plan);
}

Test(cuda_batch, products_of_one_tensor_become_one_call)
{
    const shape_of_model card = {"cuda:0", TERMS_MANY, COLUMNS, false, false};
    const weir_compile_opts none = {.seed = 0}, half = {.precision = WEIR_BF16};
    shape_of_model m = card;
    expect_calls(card, none, 3, 3, "f32");
    expect_calls(card, half, 3, 3, "bf16");
    expect_calls(card, (weir_compile_opts){.micro_batches = 2}, 3, 0, "gradients add up");
    expect_calls(card, (weir_compile_opts){.no_fusion = true}, 0, 0, "no fusion");
    m.device = "cpu:0";
    expect_calls(m, half, 0, 0, "on a CPU");
    m = card;
    m.no_bias = true;
    expect_calls(m, half, 3, 3, "without biases");
    m = card;
    m.rows = TERMS_MANY / 2;
    expect_calls(m, half, 3, 0, "few terms, which one product makes with the sums for its bias");
    m = card;
    m.other = COLUMNS + 8;
    expect_calls(m, half, 2, 2, "the third is larger");
    m = card;
    m.gelu = true;
    expect_calls(m, half, 2, 3, "one has a gelu behind it");
    m = card;
    m.device = "cuda:0-1";
    expect_calls(m, half, 6, 0, "two devices, of 2048 rows each");
    m.rows = 2 * TERMS_MANY;
    expect_calls(m, half, 6, 6, "two devices");
}

/* ---- sessions ---- */

static void trains_as_on_a_cpu(shape_of_model m, weir_compile_opts opts, double tolerance)
{
    weir_plan *card = plan_of(&m, opts);
    m.device = "cpu:0";
    weir_plan *cpu = plan_of(&m, opts);
    run got = run_plan(card, 2, 1), want = run_plan(cpu, 2, 1);
    run_near(&got, &want, tolerance, m.device);
    run_free(&got);
    run_free(&want);
    weir_plan_free(card);
    weir_plan_free(cpu);
}

Test(cuda_batch, a_model_trains_as_on_a_cpu)
{
    shape_of_model m = {"cuda:0", TERMS_MANY, COLUMNS, false, false};
    card_open(NULL);
    trains_as_on_a_cpu(m, (weir_compile_opts){.seed = 0}, 1e-4);
    trains_as_on_a_cpu(m, (weir_compile_opts){.precision = WEIR_BF16}, 2e-2);
    trains_as_on_a_cpu(m, (weir_compile_opts){.precision = WEIR_BF16, .micro_batches = 2}, 2e-2);
    if (!card_real()) {
        card_set(&(standin_options){.refuses_epilogues = true});
        trains_as_on_a_cpu(m, (weir_compile_opts){.seed = 0}, 1e-4);
    }
    card_close();
}

/* ---- plans from anywhere ---- */

Test(cuda_batch, calls_that_do_not_fit_are_refused)
{
    const weir_type x = {WEIR_F32, {2, {4, 8}}}, w = {WEIR_F32, {2, {8, 16}}}, y = {WEIR_F32, {2, {4, 16}}};
    const weir_type wide = {WEIR_F32, {2, {8, 24}}}, b = {WEIR_F32, {1, {16}}}, half = {WEIR_BF16, {2, {4, 16}}};
    weir_type in[9] = {x, w, w, b, b}, out[4] = {y, y};
    char error[256];
#define FITS(op, ins, in_count, outs, out_count) \
    (op).fits(&(weir_op_args){&(op), ins, in_count, outs, out_count, NULL}, error, sizeof error)
    cr_expect(FITS(op_linear_many, in, 5, out, 2), "%s", error);
    cr_expect(FITS(op_linear_many, in, 3, out, 2), "%s", error);
    cr_expect_not(FITS(op_linear_many, in, 4, out, 2), "a bias is missing");
    cr_expect_not(FITS(op_linear_many, in, 3, out, 0), "no output");
    in[2] = wide;
    cr_expect_not(FITS(op_linear_many, in, 5, out, 2), "products differ");
    in[2] = w;
    out[1] = half;
    cr_expect_not(FITS(op_linear_many, in, 5, out, 2), "results differ");
    in[1] = in[2] = y;
    out[0] = out[1] = w;
    cr_expect(FITS(op_linear_dw_many, in, 3, out, 2), "%s", error);
    cr_expect_not(FITS(op_linear_dw_many, in, 5, out, 2), "a bias");
    out[0] = out[1] = wide;
    cr_expect_not(FITS(op_linear_dw_many, in, 3, out, 2), "not what it makes");
}
