/* test_op_check.c: weir_op_check() lets every family of built-in ops pass, and finds each mistake that a user can make in an
 * op of their own. The wrong ops are `fold`, the sum over the columns of x {rows, columns}, and `ramp`, which gives x times a
 * slope for each column, each with one fault.
 */
#include "kernels/elementwise/elementwise.h"
#include "kernels/common/ops.h"
#include "kernels/reduce/reduce.h"
#include "kernels/shape/shape.h"
#include "kernels/random/dropout.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>
#include <weir/weir.h>

TestSuite(op_check, .timeout = 120);

#define F32(...) WEIR_ARRAY(NULL, WEIR_F32, __VA_ARGS__)
#define I32(...) WEIR_ARRAY(NULL, WEIR_I32, __VA_ARGS__)
#define PASSES(op, ...) cr_expect_eq(weir_op_check(op, __VA_ARGS__), WEIR_OK, "%s", weir_error())

/* ---- what is right ---- */

static float *positive(int count)
{
    static float value[64];
    for (int i = 0; i < count; i++)
        value[i] = 0.5f + 0.25f * (float)(i % 9);
    return value;
}

Test(op_check, elementwise_ops_pass)
{
    const weir_op *ops[] = {&op_neg, &op_exp, &op_tanh, &op_sigmoid, &op_relu, &op_gelu, &op_silu};
    for (size_t o = 0; o < sizeof ops / sizeof *ops; o++)
        PASSES(ops[o], .inputs = {F32(5, 2, 7)});
    PASSES(&op_log, .inputs = {WEIR_ARRAY(positive(35), WEIR_F32, 5, 7)});
    PASSES(&op_sqrt, .inputs = {WEIR_ARRAY(positive(35), WEIR_F32, 5, 7)});
    PASSES(&op_affine, .attrs = &(affine_attrs){2, 1}, .inputs = {F32(5, 7)});
    PASSES(&op_neg, .inputs = {WEIR_ARRAY(NULL, WEIR_F32)});
}

Test(op_check, binary_ops_pass)
{
    const weir_op *ops[] = {&op_add, &op_sub, &op_mul, &op_div};
    for (size_t o = 0; o < sizeof ops / sizeof *ops; o++) {
        PASSES(ops[o], .inputs = {F32(5, 7), WEIR_ARRAY(positive(35), WEIR_F32, 5, 7)});
        PASSES(ops[o], .inputs = {F32(5, 7), WEIR_ARRAY(positive(7), WEIR_F32, 7)});
    }
    PASSES(&op_add_many, .inputs = {F32(5, 7), F32(5, 7), F32(5, 7)});
}

Test(op_check, reductions_and_softmax_pass)
{
    const weir_op *ops[] = {&op_sum, &op_mean, &op_max};
    for (size_t o = 0; o < sizeof ops / sizeof *ops; o++) {
        PASSES(ops[o], .attrs = &(reduce_attrs){{1}, 1, 0}, .inputs = {F32(5, 2, 7)});
        PASSES(ops[o], .attrs = &(reduce_attrs){{0, -1}, 2, 1}, .inputs = {F32(5, 2, 7)});
    }
    PASSES(&op_softmax, .inputs = {F32(5, 7)});
    PASSES(&op_argmax, .inputs = {F32(5, 7)});
}

Test(op_check, shape_ops_pass)
{
    PASSES(&op_reshape, .attrs = &(shape_attrs){{6, 2, 5}, 3}, .inputs = {F32(12, 5)});
    PASSES(&op_broadcast_to, .attrs = &(shape_attrs){{5, 2, 7}, 3}, .inputs = {F32(2, 1)});
    PASSES(&op_transpose, .attrs = &(transpose_attrs){{2, 0, 1}}, .inputs = {F32(5, 2, 7)});
    PASSES(&op_slice, .attrs = &(range_attrs){1, {2, 3}}, .inputs = {F32(5, 7)});
    PASSES(&op_pad, .attrs = &(range_attrs){-1, {2, 3}}, .inputs = {F32(5, 7)});
    PASSES(&op_concat, .attrs = &(concat_attrs){0}, .inputs = {F32(5, 7), F32(2, 7)});
    int32_t position = 1;
    PASSES(&op_append, .inputs = {F32(5, 6, 7), F32(5, 2, 7), WEIR_ARRAY(&position, WEIR_I32)});
}

Test(op_check, dropout_and_casts_pass)
{
    int64_t half = WEIR_BF16;
    PASSES(&op_dropout, .attrs = &(dropout_attrs){0.5}, .inputs = {F32(5, 7)}, .gradient_outputs = 1);
    PASSES(&op_cast, .attrs = &half, .inputs = {F32(5, 7)});
    half = WEIR_F32;
    PASSES(&op_cast, .attrs = &half, .inputs = {WEIR_ARRAY(NULL, WEIR_BF16, 5, 7)});
}

Test(op_check, products_pass)
{
    PASSES(&op_matmul, .attrs = (int64_t[2]){0, 0}, .inputs = {F32(5, 7), F32(7, 3)});
    PASSES(&op_matmul, .attrs = (int64_t[2]){0, 1}, .inputs = {F32(2, 5, 7), F32(2, 3, 7)});
    PASSES(&op_linear, .inputs = {F32(5, 7), F32(7, 3), F32(3)});
    PASSES(&op_linear_by_row, .inputs = {F32(5, 7), F32(7, 3), F32(3)});
    PASSES(&op_linear_dw, .inputs = {F32(5, 7), F32(5, 3)});
    PASSES(&op_linear_db, .inputs = {F32(5, 3)});
    PASSES(&op_matmul, .attrs = (int64_t[2]){0, 0},
           .inputs = {WEIR_ARRAY(NULL, WEIR_BF16, 5, 7), WEIR_ARRAY(NULL, WEIR_BF16, 7, 3)});
}

Test(op_check, norms_pass)
{
    PASSES(&op_layernorm, .attrs = (double[1]){1e-5}, .inputs = {F32(9, 7), F32(7), F32(7)}, .gradient_outputs = 1);
    PASSES(&op_rmsnorm, .attrs = (double[1]){1e-5}, .inputs = {F32(9, 7), F32(7)}, .gradient_outputs = 1);
}

Test(op_check, attention_embedding_and_losses_pass)
{
    struct { int64_t heads, causal; double scale; } attention = {2, 1, 0.5};
    PASSES(&op_attention, .attrs = &attention, .inputs = {F32(3, 5, 8), F32(3, 5, 8), F32(3, 5, 8)}, .gradient_outputs = 1);
    PASSES(&op_attention, .attrs = &attention, .inputs = {F32(3, 5, 12), F32(3, 5, 4), F32(3, 5, 4)}, .gradient_outputs = 1);
    PASSES(&op_attention, .attrs = &attention, .inputs = {F32(3, 5, 12), F32(3, 5, 2), F32(3, 5, 2)}, .gradient_outputs = 1);
    struct { int64_t heads, causal; double scale; int64_t window; } masked = {2, 1, 0.5, 3};
    PASSES(&op_attention_masked, .attrs = &masked, .inputs = {F32(3, 5, 8), F32(3, 5, 8), F32(3, 5, 8)}, .gradient_outputs = 1);
    PASSES(&op_attention_masked, .attrs = &masked, .gradient_outputs = 1,
           .inputs = {F32(3, 5, 12), F32(3, 5, 6), F32(3, 5, 6), WEIR_ARRAY(NULL, WEIR_U8, 3, 6, 1, 5)});
    PASSES(&op_attention_masked, .attrs = &masked, .gradient_outputs = 1,
           .inputs = {F32(3, 5, 8), F32(3, 5, 2), F32(3, 5, 2), WEIR_ARRAY(NULL, WEIR_U8, 3, 5)});
    struct { int64_t sizes[5]; double base[4]; } rope = {{4, 4, 0, 0, 0}, {100, 1, 0, 0}};
    PASSES(&op_rope, .attrs = &rope, .inputs = {F32(3, 5, 8)});
    PASSES(&op_rope, .attrs = &rope, .inputs = {F32(3, 5, 8), I32(1)});
    PASSES(&op_rope, .attrs = &rope, .inputs = {F32(3, 5, 8), I32(3, 5)});
    PASSES(&op_embedding, .inputs = {I32(5, 3), F32(10, 7)});
    PASSES(&op_cross_entropy, .attrs = (int64_t[2]){0, 0}, .inputs = {F32(5, 10), I32(5)}, .gradient_outputs = 1);
}

/* The updates themselves read what their output held, which no other op may. */
Test(op_check, ops_of_backward_passes_and_clipping_pass)
{
    PASSES(&op_clip_scale, .attrs = (double[1]){0.5}, .inputs = {WEIR_ARRAY(positive(2), WEIR_F32, 2)});
    PASSES(&op_square_sum, .inputs = {F32(5, 7)});
    PASSES(&op_lamb, .attrs = &(double[9]){1, 0, 0, 0.9, 0.99, 0.1, 0.1, 0, 0}, .inputs = {F32(5, 7), F32(5, 7)});
    PASSES(&op_embedding_grad, .attrs = (int64_t[1]){10}, .inputs = {I32(5, 3), F32(5, 3, 7)});
    PASSES(&op_sum_to, .attrs = &(shape_attrs){{2, 1}, 2}, .inputs = {F32(5, 2, 7)});
}

/* ---- what is wrong ---- */

enum fault {
    RIGHT,
    NOT_PARTIAL,      /* the sum over columns that are split is not P */
    WRONG_AXIS,       /* and rows that are split give another axis */
    NO_AXIS,
    NUMBER,           /* .in[0] = 1 */
    READS_BEYOND,     /* all columns of the whole tensor, on a part */
    READS_NEXT,       /* one element behind the input */
    WRITES_BEYOND,
    LEAVES_OUT,       /* the last element is not written */
    CHANGES_INPUT,
    COUNTS_CALLS,
    SUMS_CALLS,       /* adds to what an earlier call left in the kernel's own memory */
    USES_WORKSPACE,
    WRONG_SHAPE,      /* infer forgets that the columns are gone */
    REFUSES_PARTS,    /* infer takes an even number of columns */
    SQUARES,          /* the sum of squares of terms is not that of their sum */
    EQUAL_PARTS,      /* takes all parts for equally large */
    FAILS
};

static enum fault fault;

static bool fold_infer(weir_op_args *args, char *error, size_t error_bytes)
{
    const weir_shape *x = &args->in[0].shape;
    if (x->rank != 2)
        return snprintf(error, error_bytes, "x has rows and columns"), false;
    if (fault == REFUSES_PARTS && x->dim[1] % 2)
        return snprintf(error, error_bytes, "%d columns are odd", (int)x->dim[1]), false;
    args->out[0] = args->in[0];
    if (fault != WRONG_SHAPE)
        args->out[0].shape = (weir_shape){1, {x->dim[0]}};
    return true;
}

static void fold_signatures(const weir_op_args *args, weir_signature_list *list)
{
    (void)args;
    weir_signature *rows = weir_signature_new(list), *columns;
    rows->in[0] = WEIR_S(0);
    rows->out[0] = WEIR_S(0);
    columns = weir_signature_new(list);
    columns->in[0] = fault == NUMBER ? 1 : fault == SQUARES ? WEIR_P : WEIR_S(1);
    columns->out[0] = fault == NOT_PARTIAL ? WEIR_B : fault == WRONG_AXIS ? WEIR_S(0) : fault == NO_AXIS ? WEIR_S(1) : WEIR_P;
}

static size_t fold_workspace(const weir_op_args *args, weir_device_kind kind)
{
    (void)args, (void)kind;
    return 64;
}

static weir_status fold_kernel(const weir_kernel_args *args)
{
    static float calls, sum_of_calls;
    const weir_view *in = &args->in[0];
    const int64_t rows = in->shape.dim[0], columns = in->shape.dim[1];
    float *x = in->data, *y = args->out[0].data;
    for (int64_t r = 0; r < rows; r++) {
        float sum = 0;
        for (int64_t c = 0; c < (fault == READS_BEYOND ? in->global.dim[1] : columns); c++)
            sum += fault == SQUARES ? x[r * columns + c] * x[r * columns + c] : x[r * columns + c];
        if (fault == EQUAL_PARTS && rows && in->offset[0] % rows)
            sum = 0;
        if (fault == READS_NEXT && r + 1 == rows)
            sum += x[rows * columns];
        if (fault == USES_WORKSPACE)
            sum += ((float *)args->workspace)[0];
        if (fault == COUNTS_CALLS)
            sum += calls;
        if (fault == SUMS_CALLS)
            sum = sum_of_calls = 0.5f * sum_of_calls + sum;
        if (fault != LEAVES_OUT || r + 1 < rows)
            y[r] = sum;
    }
    calls++;
    if (fault == WRITES_BEYOND)
        y[rows] = 0;
    if (fault == CHANGES_INPUT && rows && columns)
        x[0] = 0;
    return fault == FAILS ? (snprintf(args->error, args->error_bytes, "no luck"), WEIR_E_KERNEL) : WEIR_OK;
}

static const weir_op fold = {.name = "fold", .in_min = 1, .in_max = 1, .out_count = 1, .infer = fold_infer,
                             .signatures = fold_signatures, .workspace = fold_workspace,
                             .kernel = {[WEIR_CPU] = fold_kernel}};

static void finds(enum fault which, weir_status status, const char *sentence)
{
    fault = which;
    cr_expect_eq(weir_op_check(&fold, .inputs = {F32(7, 6)}), status, "%s: %s", sentence, weir_error());
    cr_expect(strstr(weir_error(), "test_op_check.c:") && strstr(weir_error(), sentence), "fault %d: %s", which,
              weir_error());
}

Test(op_check, a_right_op_of_one_s_own_passes)
{
    fault = RIGHT;
    PASSES(&fold, .inputs = {F32(7, 6)});
    PASSES(&fold, .inputs = {F32(1, 1)}, .devices = 16);
    float x[6] = {1e6f, 2, 3, 4, 5, 6};
    PASSES(&fold, .inputs = {WEIR_ARRAY(x, WEIR_F32, 2, 3)});
}

Test(op_check, a_signature_that_is_no_promise_kept_is_named_with_the_element)
{
    finds(NOT_PARTIAL, WEIR_E_KERNEL, "op_check: fold: signature 2 (S(1) -> B) on 2 devices: element [0] of output 0 is ");
    finds(WRONG_AXIS, WEIR_E_KERNEL, "fold: signature 2 (S(1) -> S(0)) on 2 devices: infer refuses these operands: output 0 "
          "is f32 [4], of these inputs it would be f32 [7]");
    finds(NO_AXIS, WEIR_E_KERNEL, "fold: signature 2 (S(1) -> S(1)) on 2 devices: output 0 is S(1) and has 1 dimensions");
    finds(NUMBER, WEIR_E_KERNEL, "on 2 devices: input 0 has the number 1; allowed: WEIR_S(dimension), WEIR_B and WEIR_P");
    finds(SQUARES, WEIR_E_KERNEL, "fold: signature 2 (P -> P) on 2 devices: element [0] of output 0 is ");
    finds(EQUAL_PARTS, WEIR_E_KERNEL, "fold: signature 1 (S(0) -> S(0)) on 2 devices: element [4] of output 0 is 0 split and ");
    finds(REFUSES_PARTS, WEIR_E_KERNEL, "fold: signature 2 (S(1) -> P) on 2 devices: infer refuses these operands: 3 columns "
          "are odd");
}

Test(op_check, a_kernel_that_takes_the_whole_for_its_part_is_found)
{
    finds(READS_BEYOND, WEIR_E_KERNEL, "fold: signature 2 (S(1) -> P) on 2 devices: ");
    finds(READS_NEXT, WEIR_E_KERNEL, "the kernel reads beyond an input");
    finds(WRITES_BEYOND, WEIR_E_KERNEL, "fold: the kernel writes behind the memory of output 0");
    finds(WRONG_SHAPE, WEIR_E_KERNEL, "fold: element [1, 1] of output 0 is ");
    finds(WRONG_SHAPE, WEIR_E_KERNEL, "the kernel must write each element of its outputs, and no other");
}

Test(op_check, a_kernel_that_depends_on_more_than_its_arguments_is_found)
{
    finds(COUNTS_CALLS, WEIR_E_KERNEL, "when it is called again with the same arguments");
    finds(SUMS_CALLS, WEIR_E_KERNEL, "when it is called again with the same arguments");
    finds(LEAVES_OUT, WEIR_E_KERNEL, "fold: element [6] of output 0 is ");
    finds(USES_WORKSPACE, WEIR_E_KERNEL, "when the workspace held something else before");
    finds(CHANGES_INPUT, WEIR_E_KERNEL, "fold: the kernel changes input 0");
    finds(FAILS, WEIR_E_KERNEL, "fold: the kernel fails with E_KERNEL: no luck");
}

/* Rows in the order from the last to the first. */
static bool turn_infer(weir_op_args *args, char *error, size_t error_bytes)
{
    (void)error, (void)error_bytes;
    args->out[0] = args->in[0];
    return true;
}

static weir_status turn_kernel(const weir_kernel_args *args)
{
    const int64_t count = weir_shape_count(&args->in[0].shape);
    for (int64_t i = 0; i < count; i++)
        ((float *)args->out[0].data)[i] = ((const float *)args->in[0].data)[count - 1 - i];
    return WEIR_OK;
}

/* The sums over rows. They are right when a call that continues another finds its workspace as that one left it. */
static bool sums_infer(weir_op_args *args, char *error, size_t error_bytes)
{
    (void)error, (void)error_bytes;
    args->out[0] = (weir_type){WEIR_F32, {1, {args->in[0].shape.dim[1]}}};
    return true;
}

static size_t sums_workspace(const weir_op_args *args, weir_device_kind kind)
{
    (void)kind;
    return (size_t)args->in[0].shape.dim[1] * sizeof(double);
}

static bool sums_by_fours; /* so that the bits depend on where rows are cut */

static weir_status sums_kernel(const weir_kernel_args *args)
{
    const int64_t rows = args->in[0].shape.dim[0], columns = args->in[0].shape.dim[1];
    const float *x = args->in[0].data;
    double *sum = args->workspace;
    for (int64_t c = 0; c < columns; c++) {
        sum[c] = args->continues ? sum[c] : 0;
        for (int64_t r = 0, four; r < rows; r += four) {
            float part = 0;
            four = sums_by_fours ? rows - r < 4 ? rows - r : 4 : 1;
            for (int64_t i = r; i < r + four; i++)
                part += x[i * columns + c];
            sum[c] += (double)part;
        }
        ((float *)args->out[0].data)[c] = (float)sum[c];
    }
    return WEIR_OK;
}

Test(op_check, sums_over_rows_go_on_in_the_workspace_wherever_rows_are_cut)
{
    const weir_op sums = {.name = "sums", .in_min = 1, .in_max = 1, .out_count = 1, .infer = sums_infer,
                          .workspace = sums_workspace, .kernel = {[WEIR_CPU] = sums_kernel}, .rows_in = 1};
    PASSES(&sums, .inputs = {F32(50, 40)});
    sums_by_fours = true;
    cr_expect_eq(weir_op_check(&sums, .inputs = {F32(50, 40)}), WEIR_E_KERNEL);
    cr_expect(strstr(weir_error(), "for the first 3 rows and then for the rest"), "%s", weir_error());
    sums_by_fours = false;
}

static weir_status fails_to_open(const weir_kernel_args *args, void **state)
{
    (void)state;
    snprintf(args->error, args->error_bytes, "no table");
    return WEIR_E_IO;
}

Test(op_check, a_promise_that_a_flag_makes_and_the_kernel_breaks_is_found)
{
    const weir_op turn = {.name = "turn", .in_min = 1, .in_max = 1, .out_count = 1, .infer = turn_infer,
                          .kernel = {[WEIR_CPU] = turn_kernel}};
    weir_op over = turn, adds = turn, rows = turn, opens = turn;
    const struct { const weir_op *op; const char *sentence; } wrong[] = {
        {&over, "in the memory of the input that .inplace names"},
        {&adds, "an op with .accumulates heeds args->accumulate"},
        {&rows, "when the kernel is called for the first 3 rows and then for the rest"},
        {&opens, "turn: open fails with E_IO: no table"},
    };
    over.inplace = 1;
    adds.accumulates = true;
    rows.rows_in = rows.rows_out = 1;
    opens.open = fails_to_open;
    PASSES(&turn, .inputs = {F32(7, 5)});
    for (size_t w = 0; w < sizeof wrong / sizeof *wrong; w++) {
        cr_expect_eq(weir_op_check(wrong[w].op, .inputs = {F32(7, 5)}), WEIR_E_KERNEL, "%zu", w);
        cr_expect(strstr(weir_error(), wrong[w].sentence), "%s", weir_error());
    }
}

/* ---- gradients ---- */

static enum { TRUE_SLOPE, WRONG_SIGN, NO_SUM, ROWS_NOT_PARTIAL, FORGETS_INPUT } slope_fault;

/* x * slope of its column; with a third input dy: dx and dslope. */
static bool ramp_infer(weir_op_args *args, char *error, size_t error_bytes)
{
    const weir_shape *x = &args->in[0].shape, *slope = &args->in[1].shape;
    if (x->rank != 2 || slope->rank != 1 || slope->dim[0] != x->dim[1])
        return snprintf(error, error_bytes, "slope has one value for each column of x"), false;
    for (int i = 0; i < args->out_count; i++)
        args->out[i] = args->in[i];
    return true;
}

static void ramp_signatures(const weir_op_args *args, weir_signature_list *list)
{
    for (int d = 0; d < 2; d++) {
        weir_signature *s = weir_signature_new(list);
        for (int i = 0; i < args->in_count; i++)
            s->in[i] = i == 1 ? (d ? WEIR_S(0) : WEIR_B) : WEIR_S(d);
        s->out[0] = WEIR_S(d);
        if (args->out_count > 1)
            s->out[1] = d ? WEIR_S(0) : slope_fault == ROWS_NOT_PARTIAL ? WEIR_B : WEIR_P;
    }
}

static weir_status ramp_kernel(const weir_kernel_args *args)
{
    const int64_t rows = args->in[0].shape.dim[0], columns = args->in[0].shape.dim[1];
    const float *x = args->in[0].data, *slope = args->in[1].data;
    for (int64_t i = 0; i < rows * columns; i++)
        ((float *)args->out[0].data)[i] = x[i] * slope[i % columns];
    return WEIR_OK;
}

static weir_status ramp_grad_kernel(const weir_kernel_args *args)
{
    const int64_t rows = args->in[0].shape.dim[0], columns = args->in[0].shape.dim[1];
    const float *x = args->in[0].data, *slope = args->in[1].data, *dy = args->in[2].data;
    float *dx = args->out[0].data, *dslope = args->out[1].data;
    for (int64_t c = 0; c < columns; c++)
        dslope[c] = 0;
    for (int64_t i = 0; i < rows * columns; i++) {
        dx[i] = slope_fault == WRONG_SIGN ? -slope[i % columns] * dy[i] : slope[i % columns] * dy[i];
        dslope[i % columns] = (slope_fault == NO_SUM ? 0 : dslope[i % columns]) + x[i] * dy[i];
    }
    return WEIR_OK;
}

static const weir_op ramp_grad = {.name = "ramp_grad", .in_min = 3, .in_max = 3, .out_count = 2, .infer = ramp_infer,
                                  .signatures = ramp_signatures, .kernel = {[WEIR_CPU] = ramp_grad_kernel}};

static void ramp_backward(weir_grad_args *args)
{
    weir_tensor *in[3] = {args->in[0], args->in[1], args->dout[0]}, *out[2];
    weir_op_apply(&(weir_apply){.src = args->src, .op = &ramp_grad, .in = in, .in_count = 3}, out);
    for (int i = 0; i < 2; i++)
        if (args->needed[i] && !(slope_fault == FORGETS_INPUT && i == 1))
            args->din[i] = out[i];
}

static const weir_op ramp = {.name = "ramp", .in_min = 2, .in_max = 2, .out_count = 1, .infer = ramp_infer,
                             .signatures = ramp_signatures, .grad = ramp_backward, .kernel = {[WEIR_CPU] = ramp_kernel}};

Test(op_check, a_wrong_gradient_is_named_with_the_element_and_the_difference)
{
    const struct { int which; const char *sentence; } faults[] = {
        {WRONG_SIGN, "op_check: ramp: the gradient by element ["},
        {NO_SUM, "op_check: ramp: its gradient's op ramp_grad: signature 1 (S(0), B, S(0) -> S(0), P) on 2 devices: element [0] "
                 "of output 1 is "},
        {ROWS_NOT_PARTIAL, "op_check: ramp: its gradient's op ramp_grad: signature 1 (S(0), B, S(0) -> S(0), B) on 2 devices: "
                           "element [0] of output 1 is "},
        {FORGETS_INPUT, "ramp"},
    };
    PASSES(&ramp, .inputs = {F32(7, 5), F32(5)});
    for (size_t f = 0; f < sizeof faults / sizeof *faults; f++) {
        slope_fault = faults[f].which;
        cr_expect_eq(weir_op_check(&ramp, .inputs = {F32(7, 5), F32(5)}), WEIR_E_KERNEL, "fault %zu", f);
        cr_expect(strstr(weir_error(), faults[f].sentence), "fault %zu: %s", f, weir_error());
    }
}

/* ---- the call ---- */

#define REFUSES(status, sentence, op, ...)                                           \
    do {                                                                             \
        cr_expect_eq(weir_op_check(op, __VA_ARGS__), status, "%s", weir_error());    \
        cr_expect(strstr(weir_error(), sentence), "%s", weir_error());               \
    } while (0)

Test(op_check, a_wrong_call_says_what_is_wrong)
{
    weir_op bare = fold, wild = fold;
    bare.kernel[WEIR_CPU] = NULL;
    wild.infer = NULL;
    REFUSES(WEIR_E_ARGUMENT, "the op is NULL", NULL, .inputs = {NULL});
    REFUSES(WEIR_E_ARGUMENT, "fold: 0 inputs; it takes 1 to 1", &fold, .inputs = {NULL});
    REFUSES(WEIR_E_ARGUMENT, "x has rows and columns", &fold, .inputs = {F32(3)});
    REFUSES(WEIR_E_ARGUMENT, "input 0 has a dimension of 0", &fold, .inputs = {F32(3, 0)});
    REFUSES(WEIR_E_ARGUMENT, "a tolerance of -1", &fold, .inputs = {F32(3, 3)}, .tolerance = -1);
    REFUSES(WEIR_E_ARGUMENT, ".devices is 17; from 2 to 16 can be", &fold, .inputs = {F32(3, 3)}, .devices = 17);
    REFUSES(WEIR_E_ARGUMENT, "it has attributes, and .attrs is left out", &op_affine, .inputs = {F32(3, 3)});
    REFUSES(WEIR_E_ARGUMENT, "has no rule infer", &wild, .inputs = {F32(3, 3)});
    REFUSES(WEIR_E_UNSUPPORTED, "fold has no kernel for the CPU", &bare, .inputs = {F32(3, 3)});
    REFUSES(WEIR_E_KERNEL, "which has no gradient; give .inputs", &op_log, .inputs = {F32(5, 7)});
}
