/* kernels/stored/op.c: the ops linear_stored, linear_stored_dx and embedding_stored.
 *
 *     y = x w^T            linear_stored       x [..., in], w [out, in] or [out, blocks, bytes] -> [..., out]
 *     dx = dy w            linear_stored_dx    dy [..., out], w -> [..., in]
 *     w[ids]               embedding_stored    ids i32 [...], w -> [..., in]
 *
 * All but a weight that is stored as halves or blocks is f32, in every precision: the ops round by themselves what they round.
 *
 * Over a mesh axis: rows, or `out`: its devices have some rows of w each. They do not share out `in`: a block would have to stay
 * whole, and a sum of rounded terms would differ.
 */
#include "kernels/stored/stored.h"

#include "kernels/common/ops.h"
#include "kernels/common/opts.h"
#include "kernels/embedding/embedding.h"
#include "kernels/stored/rounded.h"

#include <string.h>
#include <weir/ops.h>

static const weir_field stored_fields[] = {WEIR_FIELD_INT(struct stored_attrs, format),
                                           WEIR_FIELD_INT(struct stored_attrs, f32_activations)};

static const struct stored_attrs *attrs_of(const weir_op_args *args)
{
    return args->attrs;
}

static stored_weight weight_of(const weir_op_args *args)
{
    return stored_weight_of(attrs_of(args)->format, args->in[1].dtype, &args->in[1].shape, NULL);
}

static void signature(weir_signature_list *list, weir_sbp a, weir_sbp w, weir_sbp out)
{
    weir_signature *s = weir_signature_new(list);
    s->in[0] = a;
    s->in[1] = w;
    s->out[0] = out;
}

/* ---- the weight ---- */

static bool dense_fits(const weir_type *w, char *error, size_t error_bytes)
{
    return (weir_dtype_real(w->dtype) && w->shape.rank == 2) ||
           REFUSE("the weight is %s with %d dimensions; without a .format it needs to be f32, f16 or bf16 with two",
                  weir_dtype_name(w->dtype), w->shape.rank);
}

/* Sets *in to its elements of a row. */
static bool weight_fits(const weir_op_args *args, int64_t *in, char *error, size_t error_bytes)
{
    const weir_type *w = &args->in[1];
    const int64_t format = attrs_of(args)->format;
    const block_format *is = block_format_of(format);
    if (!is && format != WEIR_DENSE)
        return REFUSE("format %lld: is none of weir_format", (long long)format);
    if (!is && !dense_fits(w, error, error_bytes))
        return false;
    if (is && (w->dtype != WEIR_U8 || w->shape.rank != 3 || w->shape.dim[2] != is->bytes))
        return REFUSE("the weight is not u8 [out, blocks, %d], which %s needs", is->bytes, is->name);
    return !__builtin_mul_overflow(w->shape.dim[1], is ? is->elements : 1, in) || REFUSE("the weight is too large");
}

/* ---- what the two products share ---- */

static void stored_cost(const weir_op_args *args, weir_cost *cost)
{
    const stored_weight w = weight_of(args);
    cost->flops = 2.0 * (double)shape_rows(&args->in[0].shape) * (double)w.in * (double)w.out;
    cost->bytes = (double)(type_bytes(&args->in[0]) + type_bytes(&args->in[1]) + type_bytes(&args->out[0]));
}

static stored_product product_of(const weir_kernel_args *args)
{
    return (stored_product){
        .w = stored_weight_in(args, 1),
        .exact = ((const struct stored_attrs *)args->attrs)->f32_activations,
        .rows = shape_rows(&args->in[0].shape),
        .x = view_f32(&args->in[0]),
        .y = view_f32(&args->out[0]),
        .workspace = args->workspace,
    };
}

#define PRODUCT_OP(op, ...)                         \
    const weir_op op_##op = {                       \
        .name = #op,                                \
        .fields = stored_fields,                    \
        .field_count = 2,                           \
        .attrs_bytes = sizeof(struct stored_attrs), \
        .in_min = 2,                                \
        .in_max = 2,                                \
        .out_count = 1,                             \
        .infer = op##_infer,                        \
        .signatures = op##_signatures,              \
        .cost = stored_cost,                        \
        .workspace = op##_workspace,                \
        .kernel = {[WEIR_CPU] = op##_cpu},          \
        __VA_ARGS__                                 \
    };

/* ---- y = x w^T ---- */

static bool linear_stored_infer(weir_op_args *args, char *error, size_t error_bytes)
{
    const weir_type *x = &args->in[0];
    int64_t in;
    if (!weight_fits(args, &in, error, error_bytes))
        return false;
    if (x->dtype != WEIR_F32 || x->shape.rank < 1)
        return REFUSE("x is %s with %d dimensions; it needs to be f32 with at least one", weir_dtype_name(x->dtype), x->shape.rank);
    if (shape_last(&x->shape) != in)
        return REFUSE("inner sizes %lld and %lld differ", (long long)shape_last(&x->shape), (long long)in);
    args->out[0] = *x;
    args->out[0].shape.dim[x->shape.rank - 1] = args->in[1].shape.dim[0];
    return true;
}

static void linear_stored_signatures(const weir_op_args *args, weir_signature_list *list)
{
    const int last = args->in[0].shape.rank - 1;
    for (int d = 0; d < last; d++)
        signature(list, WEIR_S(d), WEIR_B, WEIR_S(d));
    signature(list, WEIR_B, WEIR_S(0), WEIR_S(last));
    if (attrs_of(args)->f32_activations)
        signature(list, WEIR_P, WEIR_B, WEIR_P);
}

static size_t linear_stored_workspace(const weir_op_args *args, weir_device_kind kind)
{
    const stored_weight w = weight_of(args);
    const int64_t rows = shape_rows(&args->in[0].shape);
    if (kind == WEIR_CUDA)
        return w.is && !attrs_of(args)->f32_activations ? rounded_bytes(w.is, rows, w.in) : 0;
    return stored_product_bytes(&w, attrs_of(args)->f32_activations, rows);
}

static weir_status linear_stored_cpu(const weir_kernel_args *args)
{
    const stored_product product = product_of(args);
    stored_multiply(&product);
    return WEIR_OK;
}

/* The gradient of a dense weight is dy^T x. */
static void linear_stored_grad(weir_grad_args *args)
{
    weir_tensor *dy = args->dout[0], *dy_w[2] = {dy, args->in[1]}, *dy_x[2] = {dy, args->in[0]};
    if (args->needed[0])
        args->din[0] = weir_op_apply(&(weir_apply){args->src, NULL, &op_linear_stored_dx, NULL, dy_w, 2, args->attrs}, NULL);
    if (args->needed[1])
        args->din[1] = weir_op_apply(&(weir_apply){args->src, NULL, &op_linear_dw, NULL, dy_x, 2, NULL}, NULL);
}

PRODUCT_OP(linear_stored, .grad = linear_stored_grad)

/* ---- dx = dy w ---- */

static bool linear_stored_dx_infer(weir_op_args *args, char *error, size_t error_bytes)
{
    const weir_type *dy = &args->in[0];
    int64_t in;
    if (!weight_fits(args, &in, error, error_bytes))
        return false;
    if (dy->dtype != WEIR_F32 || dy->shape.rank < 1 || shape_last(&dy->shape) != args->in[1].shape.dim[0])
        return REFUSE("dy does not consist of rows of %lld f32", (long long)args->in[1].shape.dim[0]);
    args->out[0] = *dy;
    args->out[0].shape.dim[dy->shape.rank - 1] = in;
    return true;
}

static void linear_stored_dx_signatures(const weir_op_args *args, weir_signature_list *list)
{
    const int last = args->in[0].shape.rank - 1;
    for (int d = 0; d < last; d++)
        signature(list, WEIR_S(d), WEIR_B, WEIR_S(d));
    signature(list, WEIR_S(last), WEIR_S(0), WEIR_P);
    signature(list, WEIR_P, WEIR_B, WEIR_P);
}

static size_t linear_stored_dx_workspace(const weir_op_args *args, weir_device_kind kind)
{
    const stored_weight w = weight_of(args);
    return kind == WEIR_CUDA ? 0 : stored_back_bytes(&w, attrs_of(args)->f32_activations, shape_rows(&args->in[0].shape));
}

static weir_status linear_stored_dx_cpu(const weir_kernel_args *args)
{
    const stored_product back = product_of(args);
    stored_multiply_back(&back);
    return WEIR_OK;
}

PRODUCT_OP(linear_stored_dx)

/* ---- w[ids] ---- */

static bool embedding_stored_infer(weir_op_args *args, char *error, size_t error_bytes)
{
    int64_t in;
    if (!embedding_ids_fit(&args->in[0], error, error_bytes) || !weight_fits(args, &in, error, error_bytes))
        return false;
    args->out[0] = (weir_type){WEIR_F32, args->in[0].shape};
    args->out[0].shape.dim[args->out[0].shape.rank++] = in;
    return true;
}

static void embedding_stored_signatures(const weir_op_args *args, weir_signature_list *list)
{
    for (int d = 0; d < args->in[0].shape.rank; d++)
        signature(list, WEIR_S(d), WEIR_B, WEIR_S(d));
    signature(list, WEIR_B, WEIR_S(0), WEIR_P);
}

static void embedding_stored_cost(const weir_op_args *args, weir_cost *cost)
{
    cost->flops = (double)weir_shape_count(&args->out[0].shape);
    cost->bytes = 2.0 * (double)type_bytes(&args->out[0]) + (double)type_bytes(&args->in[0]);
}

static weir_status embedding_stored_cpu(const weir_kernel_args *args)
{
    const stored_weight w = stored_weight_in(args, 1);
    const int32_t *ids = view_i32(&args->in[0]);
    float *to = view_f32(&args->out[0]);
    for (int64_t i = 0; i < view_count(&args->in[0]); i++, to += w.in) {
        if (!id_known(ids[i], args->in[1].global.dim[0]))
            return embedding_refused(args, i, ids[i]);
        const int64_t row = row_at(ids[i], args->in[1].offset[0], w.out);
        if (row >= 0)
            stored_read(&w, row, 0, w.in, to);
        else
            memset(to, 0, (size_t)w.in * sizeof *to);
    }
    return WEIR_OK;
}

static void embedding_stored_grad(weir_grad_args *args)
{
    struct embedding_attrs attrs = {weir_tensor_type(args->in[1]).shape.dim[0]};
    weir_tensor *in[2] = {args->in[0], args->dout[0]};
    if (args->needed[1])
        args->din[1] = weir_op_apply(&(weir_apply){args->src, NULL, &op_embedding_grad, NULL, in, 2, &attrs}, NULL);
}

const weir_op op_embedding_stored = {
    .name = "embedding_stored",
    .fields = stored_fields,
    .field_count = 1,
    .attrs_bytes = sizeof(int64_t),
    .in_min = 2,
    .in_max = 2,
    .out_count = 1,
    .infer = embedding_stored_infer,
    .signatures = embedding_stored_signatures,
    .grad = embedding_stored_grad,
    .cost = embedding_stored_cost,
    .kernel = {[WEIR_CPU] = embedding_stored_cpu},
    .refused = embedding_refused,
};

/* ---- the DSL ---- */

weir_tensor *weir_linear_stored_at(weir_tensor *x, weir_tensor *w, const weir_linear_stored_opts *given)
{
    weir_linear_stored_opts opts;
    x = op_opts(x, "linear_stored", given, &opts, sizeof opts);
    weir_tensor *in[2] = {x, w};
    const struct stored_attrs attrs = {opts.format, opts.f32_activations};
    return weir_op_apply(&(weir_apply){opts.src, opts.name, &op_linear_stored, NULL, in, 2, &attrs}, NULL);
}

weir_tensor *weir_embedding_stored_at(weir_tensor *ids, weir_tensor *w, const weir_embedding_stored_opts *given)
{
    weir_embedding_stored_opts opts;
    ids = op_opts(ids, "embedding_stored", given, &opts, sizeof opts);
    weir_tensor *in[2] = {ids, w};
    const struct stored_attrs attrs = {opts.format, false};
    return weir_op_apply(&(weir_apply){opts.src, opts.name, &op_embedding_stored, NULL, in, 2, &attrs}, NULL);
}
