/* kernels/reduce/prod.c: the gradient of a product: (x, dy) -> dx, each dx the product of all other terms, times dy.
 *
 * A division by x would fail where x is 0. So the terms of a result are walked twice: forwards for the products of the terms before
 * each, which lie in the workspace as double, and backwards for those behind it.
 */
#include "kernels/reduce/reduce.h"

#include "kernels/common/nest.h"
#include "kernels/common/ops.h"
#include "kernels/common/real.h"
#include "kernels/common/rules.h"

#include "graph/base/base.h"

static bool prod_grad_infer(weir_op_args *args, char *error, size_t error_bytes)
{
    char got[RULES_SHAPE_TEXT];
    const weir_type *dy = &args->in[1];
    weir_op_args x = *args;
    x.in_count = 1;
    if (!reduce_infer(&x, error, error_bytes))
        return false;
    if (!type_equal(dy, &args->out[0]))
        return REFUSE("input 1 is %s of shape %s, not f32 of that of the product", weir_dtype_name(dy->dtype),
                      shape_text(&dy->shape, got, sizeof got));
    args->out[0] = args->in[0];
    return true;
}

static void prod_grad_signatures(const weir_op_args *args, weir_signature_list *list)
{
    const reduce_attrs *attrs = args->attrs;
    const int rank = args->in[0].shape.rank;
    const unsigned mask = reduced_mask(attrs, rank);
    for (int d = 0, own = 0; d < rank; d++) {
        const bool reduced = mask >> d & 1;
        if (!reduced) {
            weir_signature *s = weir_signature_new(list);
            s->in[0] = s->out[0] = WEIR_S(d);
            s->in[1] = WEIR_S(own);
        }
        own += !reduced || attrs->keep;
    }
    sign_linear_in(args, list, 1);
}

static void prod_grad_cost(const weir_op_args *args, weir_cost *cost)
{
    cost_moved(args, cost, 4 * (double)weir_shape_count(&args->in[0].shape));
}

/* For shapes that no memory can hold it is more than any memory, too. On a GPU all results are walked at once. */
static size_t prod_grad_workspace(const weir_op_args *args, weir_device_kind kind)
{
    const int64_t most = INT64_C(1) << 48, all = weir_shape_count(&args->in[0].shape);
    (void)kind;
    return (size_t)(all < most ? all : most) * (sizeof(double) + sizeof(int64_t));
}

/* The terms of each result, and where they lie behind the first. */
typedef struct prod_terms {
    nest results;   /* operand 0: the first term; 1: the result */
    int64_t count, *at;
    double *before;
} prod_terms;

static void add_dim(nest *to, const nest *from, int d)
{
    for (int k = 0; k < from->operands; k++)
        to->stride[k][to->rank] = from->stride[k][d];
    to->dim[to->rank++] = from->dim[d];
}

static prod_terms prod_terms_of(const weir_kernel_args *args)
{
    const weir_shape *in = &args->in[0].shape, kept = kept_shape(in, reduced_mask(args->attrs, in->rank));
    int64_t own[WEIR_DIMS_MAX] = {0};
    nest n = nest_over(in), terms = {.operands = 2}, results = {.operands = 2};
    nest_strides(in, own);
    nest_operand(&n, own);
    nest_broadcast(&n, &kept);
    for (int d = 0; d < n.rank; d++)
        add_dim(in->dim[d] == kept.dim[d] ? &results : &terms, &n, d);
    nest_collapse(&results);
    nest_collapse(&terms);
    const int64_t count = nest_rows(&terms) * nest_inner(&terms);
    prod_terms t = {results, count, args->workspace, (double *)((int64_t *)args->workspace + count)};
    nest_pos pos = {0};
    for (int64_t i = 0; i < count; i++, nest_step_outside(&terms, &pos, 0))
        t.at[i] = pos.at[0];
    return t;
}

static double real_at(const weir_view *view, int64_t at)
{
    float x;
    weir_to_f32(view->dtype, (const char *)view->data + (size_t)at * weir_dtype_bytes(view->dtype), 1, &x);
    return (double)x;
}

static void real_set(const weir_view *view, int64_t at, double value)
{
    const float x = (float)value;
    weir_from_f32(&x, 1, view->dtype, (char *)view->data + (size_t)at * weir_dtype_bytes(view->dtype));
}

static void prod_grad_result(const weir_kernel_args *args, const prod_terms *t, int64_t first, double dy)
{
    double product = 1;
    for (int64_t i = 0; i < t->count; i++) {
        t->before[i] = product;
        product *= real_at(&args->in[0], first + t->at[i]);
    }
    product = dy;
    for (int64_t i = t->count; i-- > 0;) {
        const double x = real_at(&args->in[0], first + t->at[i]);
        real_set(&args->out[0], first + t->at[i], t->before[i] * product);
        product *= x;
    }
}

static weir_status prod_grad_kernel(const weir_kernel_args *args)
{
    if (!view_count(&args->in[0]))
        return WEIR_OK;
    const prod_terms t = prod_terms_of(args);
    const int64_t count = nest_rows(&t.results) * nest_inner(&t.results);
    nest_pos pos = {0};
    for (int64_t r = 0; r < count; r++, nest_step_outside(&t.results, &pos, 0))
        prod_grad_result(args, &t, pos.at[0], (double)view_f32(&args->in[1])[pos.at[1]]);
    return WEIR_OK;
}

const weir_op op_prod_grad = {
    .name = "prod_grad",
    .fields = reduce_fields,
    .field_count = 3,
    .attrs_bytes = sizeof(reduce_attrs),
    .in_min = 2,
    .in_max = 2,
    .out_count = 1,
    .infer = prod_grad_infer,
    .signatures = prod_grad_signatures,
    .cost = prod_grad_cost,
    .workspace = prod_grad_workspace,
    .kernel = {[WEIR_CPU] = prod_grad_kernel},
    .half = WEIR_HALF_FOLLOW,
    .full_in = 1 << 1,
};
