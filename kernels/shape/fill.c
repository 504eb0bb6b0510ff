/* fill.c: see the header. An integer tensor takes whole numbers that its dtype has, and no others: a number that would be rounded
 * or cut is the program's mistake. */
#include "kernels/shape/fill.h"

#include "kernels/common/ops.h"
#include "kernels/common/view.h"
#include "kernels/shape/shape.h"

#include <math.h>
#include <string.h>

static const weir_field constant_fields[] = {
    WEIR_FIELD_INT(constant_attrs, dim),
    WEIR_FIELD_INT(constant_attrs, rank),
    WEIR_FIELD_INT(constant_attrs, dtype),
    WEIR_FIELD_REAL(constant_attrs, value),
};

static const weir_field range_fields[] = {
    WEIR_FIELD_INT(steps_attrs, dtype),
    WEIR_FIELD_INT(steps_attrs, count),
    WEIR_FIELD_REAL(steps_attrs, start),
    WEIR_FIELD_REAL(steps_attrs, step),
};

/* ---- rules ---- */

static bool dtype_is_one(int64_t dtype, char *error, size_t error_bytes)
{
    if (dtype <= WEIR_DTYPE_NONE || dtype >= WEIR_DTYPES)
        return REFUSE("there is no dtype %lld", (long long)dtype);
    return true;
}

/* The integers that a dtype has; of i64 those that a double has, too. */
static void integers_of(weir_dtype dtype, double *least, double *most)
{
    *least = dtype == WEIR_U8 ? 0 : dtype == WEIR_I8 ? INT8_MIN : dtype == WEIR_I64 ? -0x1p53 : INT32_MIN;
    *most = dtype == WEIR_U8 ? UINT8_MAX : dtype == WEIR_I8 ? INT8_MAX : dtype == WEIR_I64 ? 0x1p53 : INT32_MAX;
}

static bool dtype_has(weir_dtype dtype, double value, char *error, size_t error_bytes)
{
    double least, most;
    if (weir_dtype_real(dtype))
        return true;
    integers_of(dtype, &least, &most);
    return (value == floor(value) && value >= least && value <= most) ||
           REFUSE("%g is no %s: it must be a whole number from %.0f to %.0f", value, weir_dtype_name(dtype), least, most);
}

static bool constant_infer(weir_op_args *args, char *error, size_t error_bytes)
{
    const constant_attrs *attrs = args->attrs;
    shape_attrs shape = {.rank = attrs->rank};
    memcpy(shape.dim, attrs->dim, sizeof shape.dim);
    if (!dtype_is_one(attrs->dtype, error, error_bytes) || !shape_of_attrs(&shape, &args->out[0].shape, error, error_bytes))
        return false;
    args->out[0].dtype = (weir_dtype)attrs->dtype;
    return dtype_has(args->out[0].dtype, attrs->value, error, error_bytes);
}

static bool range_infer(weir_op_args *args, char *error, size_t error_bytes)
{
    const steps_attrs *attrs = args->attrs;
    if (!dtype_is_one(attrs->dtype, error, error_bytes))
        return false;
    if (attrs->count < 1)
        return REFUSE("a range of %lld numbers: it must have at least 1", (long long)attrs->count);
    args->out[0] = (weir_type){(weir_dtype)attrs->dtype, {1, {attrs->count}}};
    return dtype_has(args->out[0].dtype, attrs->start, error, error_bytes) &&
           (attrs->count == 1 || weir_dtype_real(args->out[0].dtype) || attrs->step == floor(attrs->step) ||
            REFUSE("a step of %g between numbers that are %s: it must be a whole number", attrs->step,
                   weir_dtype_name(args->out[0].dtype))) &&
           dtype_has(args->out[0].dtype, attrs->start + attrs->step * (double)(attrs->count - 1), error, error_bytes);
}

/* The attributes have the logical shape, of which the output is a part. */
static bool fill_fits(const weir_op_args *local, char *error, size_t error_bytes)
{
    weir_type whole = {0};
    weir_op_args args = *local;
    const weir_type *out = &local->out[0];
    args.out = &whole;
    if (!local->op->infer(&args, error, error_bytes))
        return false;
    bool part = out->dtype == whole.dtype && out->shape.rank == whole.shape.rank;
    for (int d = 0; part && d < whole.shape.rank; d++)
        part = out->shape.dim[d] <= whole.shape.dim[d];
    return part || REFUSE("the output is no part of what the op makes");
}

static void fill_signatures(const weir_op_args *args, weir_signature_list *list)
{
    for (int d = 0; d < args->out[0].shape.rank; d++)
        weir_signature_new(list)->out[0] = WEIR_S(d);
}

/* ---- kernels ---- */

/* Writes element `at`. */
static void put(const weir_view *out, int64_t at, double value)
{
    const float real = (float)value;
    char *to = (char *)out->data + (size_t)at * weir_dtype_bytes(out->dtype);
    if (weir_dtype_real(out->dtype))
        weir_from_f32(&real, 1, out->dtype, to);
    else if (out->dtype == WEIR_U8)
        *(uint8_t *)to = (uint8_t)value;
    else if (out->dtype == WEIR_I8)
        *(int8_t *)to = (int8_t)value;
    else if (out->dtype == WEIR_I64)
        *(int64_t *)to = (int64_t)value;
    else
        *(int32_t *)to = (int32_t)value;
}

/* The first element again and again: what is filled doubles with each copy. */
static weir_status constant_kernel(const weir_kernel_args *args)
{
    const weir_view *out = &args->out[0];
    const size_t all = (size_t)view_count(out) * weir_dtype_bytes(out->dtype);
    if (!all)
        return WEIR_OK;
    put(out, 0, ((const constant_attrs *)args->attrs)->value);
    for (size_t have = weir_dtype_bytes(out->dtype), more; have < all; have += more) {
        more = have < all - have ? have : all - have;
        memcpy((char *)out->data + have, out->data, more);
    }
    return WEIR_OK;
}

static weir_status range_kernel(const weir_kernel_args *args)
{
    const steps_attrs *attrs = args->attrs;
    const weir_view *out = &args->out[0];
    for (int64_t i = 0; i < view_count(out); i++)
        put(out, i, attrs->start + attrs->step * (double)(out->offset[0] + i));
    return WEIR_OK;
}

const weir_op op_constant = {
    .name = "constant",
    .fields = constant_fields,
    .field_count = 4,
    .attrs_bytes = sizeof(constant_attrs),
    .out_count = 1,
    .infer = constant_infer,
    .fits = fill_fits,
    .signatures = fill_signatures,
    .kernel = {[WEIR_CPU] = constant_kernel},
};

const weir_op op_range = {
    .name = "range",
    .fields = range_fields,
    .field_count = 4,
    .attrs_bytes = sizeof(steps_attrs),
    .out_count = 1,
    .infer = range_infer,
    .fits = fill_fits,
    .signatures = fill_signatures,
    .kernel = {[WEIR_CPU] = range_kernel},
};
