/* cast.c: from any dtype to any other. What does not fit saturates; f32 is truncated towards zero, and NaN becomes 0.
 *
 * Between two floating-point types a gradient would flow; there is only one, so the only cast that has a gradient is
 * the one that changes nothing.
 */
#include "kernels/elementwise/fastmath.h"
#include "kernels/ops.h"
#include "kernels/rules.h"
#include "kernels/view.h"

#include <weir/ops.h>

typedef struct cast_attrs {
    int64_t dtype;
} cast_attrs;

static const weir_field cast_fields[] = {WEIR_FIELD_INT(cast_attrs, dtype)};

static bool cast_infer(weir_op_args *args, char *error, size_t error_bytes)
{
    const cast_attrs *attrs = args->attrs;
    if (attrs->dtype <= WEIR_DTYPE_NONE || attrs->dtype >= WEIR_DTYPES)
        return REFUSE("there is no dtype %lld", (long long)attrs->dtype);
    args->out[0] = (weir_type){(weir_dtype)attrs->dtype, args->in[0].shape};
    return true;
}

/* ---- one element ---- */

static inline int32_t f32_to_i32(float x)
{
    float in_range = x >= -0x1p31f && x < 0x1p31f ? x : 0;
    int32_t y = (int32_t)in_range;
    y = x >= 0x1p31f ? INT32_MAX : y;
    return x < -0x1p31f ? INT32_MIN : y;
}

static inline uint8_t f32_to_u8(float x)
{
    x = x > 0 ? x : 0;
    x = x < 255 ? x : 255;
    return (uint8_t)(int32_t)x;
}

static inline uint8_t i32_to_u8(int32_t x)
{
    x = x > 0 ? x : 0;
    return (uint8_t)(x < 255 ? x : 255);
}

/* ---- loops ---- */

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

static const cast_loop loops[WEIR_DTYPES][WEIR_DTYPES] = {
    [WEIR_F32] = {[WEIR_I32] = f32_to_i32_loop, [WEIR_U8] = f32_to_u8_loop},
    [WEIR_I32] = {[WEIR_F32] = i32_to_f32_loop, [WEIR_U8] = i32_to_u8_loop},
    [WEIR_U8] = {[WEIR_F32] = u8_to_f32_loop, [WEIR_I32] = u8_to_i32_loop},
};

static weir_status cast_kernel(const weir_kernel_args *args)
{
    const weir_view *in = &args->in[0], *out = &args->out[0];
    int64_t count = view_count(out);
    if (in->dtype == out->dtype)
        memcpy(out->data, in->data, (size_t)count * weir_dtype_bytes(out->dtype));
    else
        loops[in->dtype][out->dtype](in->data, out->data, count);
    return WEIR_OK;
}

static void cast_backward(weir_grad_args *args)
{
    const cast_attrs *attrs = args->attrs;
    if (attrs->dtype == WEIR_F32)
        args->din[0] = args->dout[0];
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
    .signatures = sign_alike,
    .grad = cast_backward,
    .kernel = {[WEIR_CPU] = cast_kernel},
};

weir_tensor *weir_cast_at(weir_tensor *x, weir_dtype dtype, weir_op_opts opts)
{
    cast_attrs attrs = {dtype};
    return weir_op_apply(&(weir_apply){opts.src, opts.name, &op_cast, NULL, &x, 1, &attrs}, NULL);
}
