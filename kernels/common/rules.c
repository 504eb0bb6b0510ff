/* rules.c: see the header. */
#include "kernels/common/rules.h"

#include "graph/base/base.h"
#include "kernels/common/view.h"

bool rule_all_f32(const weir_op_args *args, char *error, size_t error_bytes)
{
    for (int i = 0; i < args->in_count; i++)
        if (args->in[i].dtype != WEIR_F32)
            return REFUSE("input %d is %s, and only f32 will do", i, weir_dtype_name(args->in[i].dtype));
    return true;
}

bool infer_never(weir_op_args *args, char *error, size_t error_bytes)
{
    (void)args;
    return REFUSE("the compiler alone makes this call");
}

static bool rule_same_dtype(const weir_op_args *args, char *error, size_t error_bytes)
{
    for (int i = 1; i < args->in_count; i++)
        if (args->in[i].dtype != args->in[0].dtype)
            return REFUSE("dtypes %s and %s differ", weir_dtype_name(args->in[0].dtype),
                          weir_dtype_name(args->in[i].dtype));
    return true;
}

bool rule_all_real(const weir_op_args *args, char *error, size_t error_bytes)
{
    for (int i = 0; i < args->in_count; i++)
        if (!weir_dtype_real(args->in[i].dtype))
            return REFUSE("input %d is %s, and only f32, f16 or bf16 will do", i, weir_dtype_name(args->in[i].dtype));
    return rule_same_dtype(args, error, error_bytes);
}

bool rule_all_numbers(const weir_op_args *args, char *error, size_t error_bytes)
{
    for (int i = 0; i < args->in_count; i++) {
        const weir_dtype dtype = args->in[i].dtype;
        if (!weir_dtype_real(dtype) && dtype != WEIR_I32 && dtype != WEIR_I64)
            return REFUSE("input %d is %s, and only f32, f16, bf16, i32 or i64 will do", i, weir_dtype_name(dtype));
    }
    return rule_same_dtype(args, error, error_bytes);
}

bool infer_alike(weir_op_args *args, char *error, size_t error_bytes)
{
    char first[RULES_SHAPE_TEXT], other[RULES_SHAPE_TEXT];
    for (int i = 1; i < args->in_count; i++)
        if (!weir_shape_equal(&args->in[0].shape, &args->in[i].shape))
            return REFUSE("shapes %s and %s differ", shape_text(&args->in[0].shape, first, sizeof first),
                          shape_text(&args->in[i].shape, other, sizeof other));
    args->out[0] = args->in[0];
    return rule_same_dtype(args, error, error_bytes);
}

bool infer_alike_real(weir_op_args *args, char *error, size_t error_bytes)
{
    return rule_all_real(args, error, error_bytes) && infer_alike(args, error, error_bytes);
}

bool infer_alike_number(weir_op_args *args, char *error, size_t error_bytes)
{
    return rule_all_numbers(args, error, error_bytes) && infer_alike(args, error, error_bytes);
}

bool infer_alike_f32(weir_op_args *args, char *error, size_t error_bytes)
{
    return rule_all_f32(args, error, error_bytes) && infer_alike(args, error, error_bytes);
}

bool fits_either(const weir_op_args *local, char *error, size_t error_bytes)
{
    weir_type out[8] = {0};
    weir_op_args args = *local;
    args.out = out;
    if (!local->op->infer(&args, error, error_bytes))
        return false;
    if (local->out[0].dtype == WEIR_F32 && weir_dtype_real(out[0].dtype))
        out[0].dtype = WEIR_F32;
    for (int o = 0; o < local->out_count; o++)
        if (!type_equal(&out[o], &local->out[o]))
            return REFUSE("output %d is not of the dtype and shape that the op makes", o);
    return true;
}

void sign_split_alike(const weir_op_args *args, weir_signature_list *list, int dims)
{
    for (int d = 0; d < dims; d++) {
        weir_signature *s = weir_signature_new(list);
        for (int i = 0; i < args->in_count; i++)
            s->in[i] = WEIR_S(d);
        for (int i = 0; i < args->out_count; i++)
            s->out[i] = WEIR_S(d);
    }
}

void sign_linear_in(const weir_op_args *args, weir_signature_list *list, int in)
{
    (void)args;
    weir_signature *s = weir_signature_new(list);
    s->in[in] = WEIR_P;
    s->out[0] = WEIR_P;
}

void sign_linear(const weir_op_args *args, weir_signature_list *list)
{
    weir_signature *s = weir_signature_new(list);
    for (int i = 0; i < args->in_count; i++)
        s->in[i] = WEIR_P;
    s->out[0] = WEIR_P;
}

void sign_alike(const weir_op_args *args, weir_signature_list *list)
{
    sign_split_alike(args, list, args->in[0].shape.rank);
}

void sign_alike_linear(const weir_op_args *args, weir_signature_list *list)
{
    sign_alike(args, list);
    if (weir_dtype_real(args->in[0].dtype))
        sign_linear(args, list);
}

void sign_alike_grad(const weir_op_args *args, weir_signature_list *list)
{
    sign_alike(args, list);
    sign_linear_in(args, list, args->in_count - 1);
}

void cost_moved(const weir_op_args *args, weir_cost *cost, double flops)
{
    double bytes = 0;
    for (int i = 0; i < args->in_count; i++)
        bytes += (double)type_bytes(&args->in[i]);
    for (int i = 0; i < args->out_count; i++)
        bytes += (double)type_bytes(&args->out[i]);
    *cost = (weir_cost){.flops = flops, .bytes = bytes};
}
