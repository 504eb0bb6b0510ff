/* cast.c: from any dtype to any other. A value that does not fit into an integer saturates; fractions are truncated towards
 * zero, and NaN becomes 0. f16 and bf16 round to the nearest (graph/base/half.c); between them and integers the way is
 * through f32, a block at a time.
 *
 * Between two real dtypes a gradient flows. It comes in the dtype of the output or, where it was summed in f32, already
 * as that of the input.
 */
#include "graph/base/names.h"
#include "kernels/cast/formula.h"
#include "kernels/elementwise/fastmath.h"
#include "kernels/common/ops.h"
#include "kernels/common/opts.h"
#include "kernels/common/rules.h"
#include "kernels/common/view.h"

#include <weir/ops.h>

static const weir_field cast_fields[] = {WEIR_FIELD_INT(cast_attrs, dtype)};

static bool cast_infer(weir_op_args *args, char *error, size_t error_bytes)
{
    const cast_attrs *attrs = args->attrs;
    if (attrs->dtype <= WEIR_DTYPE_NONE || attrs->dtype >= WEIR_DTYPES)
        return REFUSE("there is no dtype %lld; there are " DTYPES_TEXT, (long long)attrs->dtype);
    args->out[0] = (weir_type){(weir_dtype)attrs->dtype, args->in[0].shape};
    return true;
}

/* A sum of terms may be widened term by term; narrowed terms would each be rounded. */
static void cast_signatures(const weir_op_args *args, weir_signature_list *list)
{
    sign_alike(args, list);
    if (weir_dtype_real(args->in[0].dtype) && args->out[0].dtype == WEIR_F32)
        sign_linear(args, list);
}

/* ---- loops ---- */

enum { BLOCK = 1024 }; /* elements that pass through f32 at a time */

typedef void (*cast_loop)(const void *x, void *y, int64_t count);

#define CAST_LOOP(from, from_type, to, to_type, convert)                      \
    static void from##_to_##to##_loop(const void *x, void *y, int64_t count)  \
    {                                                                         \
        const from_type *in = x;                                              \
        to_type *out = y;                                                     \
        FAST_LOOP                                                             \
        for (int64_t i = 0; i < count; i++)                                   \
            out[i] = (to_type)convert(in[i]);                                 \
    }
CAST_LOOP(f32, float, i32, int32_t, f32_to_i32)
CAST_LOOP(f32, float, u8, uint8_t, f32_to_u8)
CAST_LOOP(i32, int32_t, f32, float, )
CAST_LOOP(i32, int32_t, u8, uint8_t, i32_to_u8)
CAST_LOOP(u8, uint8_t, f32, float, )
CAST_LOOP(u8, uint8_t, i32, int32_t, )
CAST_LOOP(f32, float, i64, int64_t, f32_to_i64)
CAST_LOOP(f32, float, i8, int8_t, f32_to_i8)
CAST_LOOP(i64, int64_t, f32, float, )
CAST_LOOP(i8, int8_t, f32, float, )
CAST_LOOP(i64, int64_t, i32, int32_t, i64_to_i32)
CAST_LOOP(i32, int32_t, i64, int64_t, )

static void bf16_to_f32_loop(const void *x, void *y, int64_t count)
{
    weir_to_f32(WEIR_BF16, x, count, y);
}

static void f16_to_f32_loop(const void *x, void *y, int64_t count)
{
    weir_to_f32(WEIR_F16, x, count, y);
}

static void f32_to_bf16_loop(const void *x, void *y, int64_t count)
{
    weir_from_f32(x, count, WEIR_BF16, y);
}

static void f32_to_f16_loop(const void *x, void *y, int64_t count)
{
    weir_from_f32(x, count, WEIR_F16, y);
}

/* All pairs that are not here go through f32: those of integers have at most eight bits on one side, so it changes nothing. */
static const cast_loop loops[WEIR_DTYPES][WEIR_DTYPES] = {
    [WEIR_F32] = {[WEIR_I32] = f32_to_i32_loop, [WEIR_U8] = f32_to_u8_loop, [WEIR_F16] = f32_to_f16_loop,
                  [WEIR_BF16] = f32_to_bf16_loop, [WEIR_I64] = f32_to_i64_loop, [WEIR_I8] = f32_to_i8_loop},
    [WEIR_I32] = {[WEIR_F32] = i32_to_f32_loop, [WEIR_U8] = i32_to_u8_loop, [WEIR_I64] = i32_to_i64_loop},
    [WEIR_U8] = {[WEIR_F32] = u8_to_f32_loop, [WEIR_I32] = u8_to_i32_loop},
    [WEIR_F16] = {[WEIR_F32] = f16_to_f32_loop},
    [WEIR_BF16] = {[WEIR_F32] = bf16_to_f32_loop},
    [WEIR_I64] = {[WEIR_F32] = i64_to_f32_loop, [WEIR_I32] = i64_to_i32_loop},
    [WEIR_I8] = {[WEIR_F32] = i8_to_f32_loop},
};

static void cast_through_f32(const weir_view *in, const weir_view *out, int64_t count)
{
    const size_t from = weir_dtype_bytes(in->dtype), to = weir_dtype_bytes(out->dtype);
    float block[BLOCK];
    for (int64_t first = 0; first < count; first += BLOCK) {
        const int64_t part = count - first < BLOCK ? count - first : BLOCK;
        loops[in->dtype][WEIR_F32]((const char *)in->data + (size_t)first * from, block, part);
        loops[WEIR_F32][out->dtype](block, (char *)out->data + (size_t)first * to, part);
    }
}

static weir_status cast_kernel(const weir_kernel_args *args)
{
    const weir_view *in = &args->in[0], *out = &args->out[0];
    int64_t count = view_count(out);
    if (in->dtype == out->dtype)
        memcpy(out->data, in->data, (size_t)count * weir_dtype_bytes(out->dtype));
    else if (loops[in->dtype][out->dtype])
        loops[in->dtype][out->dtype](in->data, out->data, count);
    else
        cast_through_f32(in, out, count);
    return WEIR_OK;
}

static void cast_backward(weir_grad_args *args)
{
    const weir_dtype to = weir_tensor_type(args->in[0]).dtype, from = weir_tensor_type(args->out[0]).dtype;
    weir_tensor *dy = args->dout[0];
    if (weir_dtype_real(from) && weir_dtype_real(to))
        args->din[0] = weir_tensor_type(dy).dtype == to ? dy
                                                        : weir_cast_at(dy, to, WEIR_OPTS_AT(args->src, weir_op_opts));
}

const weir_op op_cast = {
    .name = "cast",
    .fields = cast_fields,
    .field_count = 1,
    .attrs_bytes = sizeof(cast_attrs),
    .in_min = 1,
    .in_max = 1,
    .out_count = 1,
    .infer = cast_infer,
    .signatures = cast_signatures,
    .grad = cast_backward,
    .kernel = {[WEIR_CPU] = cast_kernel},
    .rows_in = 1,
    .rows_out = 1,
};

weir_tensor *weir_cast_at(weir_tensor *x, weir_dtype dtype, const weir_op_opts *given)
{
    weir_op_opts opts;
    x = op_opts(x, "cast", given, &opts, sizeof opts);
    cast_attrs attrs = {dtype};
    return weir_op_apply(&(weir_apply){opts.src, opts.name, &op_cast, NULL, &x, 1, &attrs}, NULL);
}
