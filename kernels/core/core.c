/* kernels/core/core.c: source, sink, call, shard, copy, accumulate and grad_seed. box has a file of its own. */
#include "kernels/core/core.h"
#include "graph/base/binding.h"
#include "graph/base/error.h"
#include "graph/base/filed.h"
#include "kernels/common/ops.h"
#include "kernels/common/rules.h"
#include "kernels/common/view.h"

#include <inttypes.h>
#include <string.h>

enum { CALL_OPERANDS_MAX = 128 }; /* of a call some of whose inputs vary */

/* ---- rules ---- */

static bool typed_is(const typed_attrs *a, weir_type *out, char *error, size_t error_bytes)
{
    if (a->dtype <= WEIR_DTYPE_NONE || a->dtype >= WEIR_DTYPES)
        return REFUSE("there is no dtype %lld", (long long)a->dtype);
    if (a->rank < 0 || a->rank > WEIR_DIMS_MAX)
        return REFUSE("there are no tensors of %lld dimensions", (long long)a->rank);
    out->dtype = (weir_dtype)a->dtype;
    out->shape.rank = (int)a->rank;
    for (int d = 0; d < out->shape.rank; d++) {
        if (a->dim[d] < 1)
            return REFUSE("dimension %d is %lld", d, (long long)a->dim[d]);
        out->shape.dim[d] = a->dim[d];
    }
    return true;
}

/* Attributes hold the logical shape, of which the output is a part. */
static bool typed_holds(const typed_attrs *a, const weir_type *out, char *error, size_t error_bytes)
{
    weir_type whole;
    if (!typed_is(a, &whole, error, error_bytes))
        return false;
    if (out->dtype != whole.dtype || out->shape.rank != whole.shape.rank)
        return REFUSE("the output is not of the dtype and rank that the op makes");
    for (int d = 0; d < whole.shape.rank; d++)
        if (out->shape.dim[d] > whole.shape.dim[d])
            return REFUSE("dimension %d is %lld of %lld", d, (long long)out->shape.dim[d],
                          (long long)whole.shape.dim[d]);
    return true;
}

static bool typed_infer(weir_op_args *args, char *error, size_t error_bytes)
{
    return typed_is(args->attrs, &args->out[0], error, error_bytes);
}

static bool typed_fits(const weir_op_args *local, char *error, size_t error_bytes)
{
    return typed_holds(local->attrs, &local->out[0], error, error_bytes);
}

static bool call_infer(weir_op_args *args, char *error, size_t error_bytes)
{
    const call_attrs *a = args->attrs;
    args->out_count = 0;
    while (args->out_count < CALL_OUTS_MAX && a->out[args->out_count].dtype) {
        if (!typed_is(&a->out[args->out_count], &args->out[args->out_count], error, error_bytes))
            return false;
        args->out_count++;
    }
    return true;
}

/* Whether those of `count` operands that vary have rows, and their lengths, behind the others, are such. */
static bool lengths_fit(const weir_type *type, int count, int64_t varies)
{
    int lengths = __builtin_popcountll((uint64_t)varies), all = count - lengths;
    if (all < 0 || (all < 64 && (uint64_t)varies >> all))
        return false;
    for (int i = 0; i < all; i++)
        if ((uint64_t)varies >> i & 1 && (!type[i].shape.rank || type[i].shape.dim[0] > INT32_MAX))
            return false;
    for (int i = all; i < count; i++)
        if (type[i].dtype != WEIR_I32 || type[i].shape.rank)
            return false;
    return true;
}

static bool call_fits(const weir_op_args *local, char *error, size_t error_bytes)
{
    const call_attrs *a = local->attrs;
    for (int o = 0; o < local->out_count; o++)
        if (!typed_holds(&a->out[o], &local->out[o], error, error_bytes))
            return false;
    if (local->in_count > CALL_OPERANDS_MAX && a->in_varies)
        return REFUSE("of so many inputs none can vary");
    if (!lengths_fit(local->in, local->in_count, a->in_varies) || !lengths_fit(local->out, local->out_count, a->out_varies))
        return REFUSE("what varies has no rows or no length");
    return local->out_count == CALL_OUTS_MAX || !a->out[local->out_count].dtype || REFUSE("it has more outputs");
}

static bool same_infer(weir_op_args *args, char *error, size_t error_bytes)
{
    (void)error;
    (void)error_bytes;
    args->out[0] = args->in[0];
    return true;
}

static bool accumulate_infer(weir_op_args *args, char *error, size_t error_bytes)
{
    return rule_all_f32(args, error, error_bytes) && same_infer(args, error, error_bytes);
}

static bool sink_infer(weir_op_args *args, char *error, size_t error_bytes)
{
    const weir_type *in = args->in;
    return args->in_count == 1 || (in[0].shape.rank && in[0].shape.dim[0] <= INT32_MAX && in[1].dtype == WEIR_I32 &&
                                   !in[1].shape.rank) ||
           REFUSE("what varies has no rows or no length");
}

static bool is_row_of(const weir_type *row, const weir_type *rows)
{
    bool is = row->dtype == rows->dtype && rows->shape.rank == row->shape.rank + 1;
    for (int d = 0; is && d < row->shape.rank; d++)
        is = row->shape.dim[d] == rows->shape.dim[d + 1];
    return is;
}

static bool batch_infer(weir_op_args *args, char *error, size_t error_bytes)
{
    const batch_attrs *a = args->attrs;
    const weir_shape *in = &args->in[0].shape;
    weir_shape *out = &args->out[0].shape;
    if (in->rank == WEIR_DIMS_MAX || a->values < 1)
        return REFUSE("no %" PRId64 " values of %d dimensions can come together", a->values, in->rank);
    args->out[0].dtype = args->in[0].dtype;
    out->rank = in->rank + 1;
    out->dim[0] = a->values;
    for (int d = 0; d < in->rank; d++)
        out->dim[d + 1] = in->dim[d];
    return true;
}

static bool unbatch_infer(weir_op_args *args, char *error, size_t error_bytes)
{
    const weir_shape *in = &args->in[0].shape;
    weir_shape *out = &args->out[0].shape;
    if (!in->rank)
        return REFUSE("a scalar has no rows");
    args->out[0].dtype = args->in[0].dtype;
    out->rank = in->rank - 1;
    for (int d = 0; d < out->rank; d++)
        out->dim[d] = in->dim[d + 1];
    return true;
}

/* A row more or less: what is split is another dimension. */
static void batch_signatures(const weir_op_args *args, weir_signature_list *list)
{
    for (int d = 0; d < args->in[0].shape.rank; d++) {
        weir_signature *s = weir_signature_new(list);
        s->in[0] = WEIR_S(d);
        s->out[0] = WEIR_S(d + 1);
    }
}

static void unbatch_signatures(const weir_op_args *args, weir_signature_list *list)
{
    for (int d = 1; d < args->in[0].shape.rank; d++) {
        weir_signature *s = weir_signature_new(list);
        s->in[0] = WEIR_S(d);
        s->out[0] = WEIR_S(d - 1);
    }
}

static bool batch_fits(const weir_op_args *local, char *error, size_t error_bytes)
{
    return is_row_of(&local->in[0], &local->out[0]) || REFUSE("the input is no row of the output");
}

static bool unbatch_fits(const weir_op_args *local, char *error, size_t error_bytes)
{
    return is_row_of(&local->out[0], &local->in[0]) || REFUSE("the output is no row of the input");
}

static bool seed_infer(weir_op_args *args, char *error, size_t error_bytes)
{
    if (args->in[0].shape.rank || args->in[0].dtype != WEIR_F32)
        return REFUSE("the loss must be one f32 number");
    if (args->in_count > 1 && (args->in[1].shape.rank || args->in[1].dtype != WEIR_F32))
        return REFUSE("the scale of the loss must be one f32 number");
    args->out[0] = args->in[0];
    return true;
}

static void seed_signatures(const weir_op_args *args, weir_signature_list *list)
{
    (void)args;
    weir_signature_new(list)->in[0] = WEIR_P; /* the value is not looked at */
}

/* An identity may lie in any way in which its input does. */
static void identity_signatures(const weir_op_args *args, weir_signature_list *list)
{
    for (int d = 0; d < args->in[0].shape.rank; d++) {
        weir_signature *s = weir_signature_new(list);
        s->in[0] = s->out[0] = WEIR_S(d);
    }
    if (!weir_dtype_real(args->in[0].dtype))
        return; /* nothing else is summed */
    weir_signature *s = weir_signature_new(list);
    s->in[0] = s->out[0] = WEIR_P;
}

static void shard_grad(weir_grad_args *args)
{
    if (!args->needed[0] || !args->dout[0])
        return;
    args->din[0] = weir_shard_at(args->dout[0], WEIR_OPTS_AT(args->src, weir_shard_opts,
                                                               .mesh = weir_tensor_mesh(args->in[0])));
}

/* ---- kernels ---- */

/* The shard of a device may be empty, if the value is split. */
static weir_status source_kernel(const weir_kernel_args *args)
{
    const callback_binding *bound = args->host;
    if (!weir_shape_count(&args->out[0].shape))
        return WEIR_OK;
    error_set(WEIR_OK, "%s", ""); /* of this call there is none yet */
    const weir_status status = bound->fn.source(bound->ctx, &args->out[0], args->step, args->micro);
    if (status && args->error_bytes)
        snprintf(args->error, args->error_bytes, "%s", weir_error());
    return status;
}

/* Whether a length is that of the view, as it must be wherever it comes from. */
static bool length_ok(const weir_view *view, const char *what, int number, char *error, size_t error_bytes)
{
    if (!view->length || (*view->length >= 0 && *view->length <= view->shape.dim[0]))
        return true;
    return REFUSE("%s %d has %" PRId32 " rows, where there are 0 to %" PRId64, what, number, *view->length,
                  view->shape.dim[0]);
}

static weir_status sink_kernel(const weir_kernel_args *args)
{
    const callback_binding *bound = args->host;
    if (args->in_count == 1)
        return bound->fn.sink(bound->ctx, &args->in[0], args->step, args->micro);
    weir_view value = args->in[0];
    value.length = args->in[1].data;
    return length_ok(&value, "input", 0, args->error, args->error_bytes)
               ? bound->fn.sink(bound->ctx, &value, args->step, args->micro)
               : WEIR_E_KERNEL;
}

/* Gives those of the operands that vary their lengths, which lie behind the others. Returns how many others there are. */
static int views_varying(const weir_view *from, int count, int64_t varies, weir_view *to)
{
    int all = count - __builtin_popcountll((uint64_t)varies), length = all;
    memcpy(to, from, sizeof *to * (size_t)all);
    for (int i = 0; i < all && i < 64; i++)
        if ((uint64_t)varies >> i & 1)
            to[i].length = from[length++].data;
    return all;
}

static bool any_empty(const weir_kernel_args *args)
{
    for (int i = 0; i < args->in_count; i++)
        if (args->in[i].length && !*args->in[i].length)
            return true;
    return false;
}

/* `inner` is the call with lengths among its operands. */
static weir_status call_varying(const weir_kernel_args *args, weir_kernel_args inner)
{
    const callback_binding *bound = args->host;
    const call_attrs *attrs = args->attrs;
    weir_view in[CALL_OPERANDS_MAX], out[CALL_OUTS_MAX];
    if (attrs->in_varies) {
        inner.in_count = views_varying(args->in, args->in_count, attrs->in_varies, in);
        inner.in = in;
    }
    inner.out_count = views_varying(args->out, args->out_count, attrs->out_varies, out);
    inner.out = out;
    for (int i = 0; i < inner.in_count; i++)
        if (!length_ok(&inner.in[i], "input", i, args->error, args->error_bytes))
            return WEIR_E_KERNEL;
    for (int o = 0; o < inner.out_count; o++)
        if (out[o].length)
            *out[o].length = 0;
    weir_status status = attrs->skips && any_empty(&inner) ? WEIR_OK : bound->fn.call(&inner);
    for (int o = 0; o < inner.out_count && !status; o++)
        if (!length_ok(&out[o], "output", o, args->error, args->error_bytes))
            return WEIR_E_KERNEL;
    return status;
}

static weir_status call_kernel(const weir_kernel_args *args)
{
    const callback_binding *bound = args->host;
    const call_attrs *attrs = args->attrs;
    weir_kernel_args inner = *args;
    inner.host = bound->ctx;
    return attrs->in_varies | attrs->out_varies ? call_varying(args, inner) : bound->fn.call(&inner);
}

static weir_status copy_kernel(const weir_kernel_args *args)
{
    if (args->in[0].data != args->out[0].data)
        memcpy(args->out[0].data, args->in[0].data,
               (size_t)view_count(&args->out[0]) * weir_dtype_bytes(args->out[0].dtype));
    return WEIR_OK;
}

/* On the queue of a disk, to it or from it. */
static weir_status copy_filed(const weir_kernel_args *args)
{
    return filed_copy(args->out[0].data, args->in[0].data,
                      (uint64_t)view_count(&args->out[0]) * weir_dtype_bytes(args->out[0].dtype), args->error,
                      args->error_bytes);
}

static weir_status accumulate_kernel(const weir_kernel_args *args)
{
    if (!args->accumulate)
        return copy_kernel(args);
    const float *from = view_f32(&args->in[0]);
    float *to = view_f32(&args->out[0]);
    int64_t count = view_count(&args->out[0]);
    for (int64_t i = 0; i < count; i++)
        to[i] += from[i];
    return WEIR_OK;
}

/* Where the micro-batch's row lies in `rows`; NULL: there is no such row. */
static char *row_of(const weir_kernel_args *args, const weir_view *rows, size_t bytes)
{
    if (args->micro < rows->shape.dim[0])
        return (char *)rows->data + bytes * (size_t)args->micro;
    snprintf(args->error, args->error_bytes, "there are %" PRId64 " rows, and none for micro-batch %d",
             rows->shape.dim[0], args->micro);
    return NULL;
}

static weir_status batch_kernel(const weir_kernel_args *args)
{
    size_t bytes = (size_t)view_count(&args->in[0]) * weir_dtype_bytes(args->in[0].dtype);
    char *to = row_of(args, &args->out[0], bytes);
    if (to && bytes)
        memcpy(to, args->in[0].data, bytes);
    return to ? WEIR_OK : WEIR_E_KERNEL;
}

static weir_status unbatch_kernel(const weir_kernel_args *args)
{
    size_t bytes = (size_t)view_count(&args->out[0]) * weir_dtype_bytes(args->out[0].dtype);
    const char *from = row_of(args, &args->in[0], bytes);
    if (from && bytes)
        memcpy(args->out[0].data, from, bytes);
    return from ? WEIR_OK : WEIR_E_KERNEL;
}

static weir_status seed_kernel(const weir_kernel_args *args)
{
    const seed_attrs *a = args->attrs;
    view_f32(&args->out[0])[0] = (float)a->value * (args->in_count > 1 ? view_f32(&args->in[1])[0] : 1.0f);
    return WEIR_OK;
}

static const weir_field typed_fields[] = {WEIR_FIELD_INT(typed_attrs, dtype), WEIR_FIELD_INT(typed_attrs, rank),
                                          WEIR_FIELD_INT(typed_attrs, dim)};
static const weir_field call_fields[] = {WEIR_FIELD_INT(call_attrs, out), WEIR_FIELD_INT(call_attrs, in_varies),
                                         WEIR_FIELD_INT(call_attrs, out_varies), WEIR_FIELD_INT(call_attrs, skips)};
static const weir_field seed_fields[] = {WEIR_FIELD_REAL(seed_attrs, value)};

const weir_op op_source = {.name = "source",
                           .fields = typed_fields,
                           .field_count = 3,
                           .attrs_bytes = sizeof(typed_attrs),
                           .out_count = 1,
                           .infer = typed_infer,
                           .fits = typed_fits,
                           .kernel = {[WEIR_CPU] = source_kernel}};

const weir_op op_sink = {.name = "sink",
                         .in_min = 1,
                         .in_max = 2,
                         .infer = sink_infer,
                         .effect = true,
                         .kernel = {[WEIR_CPU] = sink_kernel}};

const weir_op op_call = {.name = "call",
                         .fields = call_fields,
                         .field_count = 4,
                         .attrs_bytes = sizeof(call_attrs),
                         .in_max = WEIR_ARGS_MAX,
                         .out_count = CALL_OUTS_MAX,
                         .out_fewer = true,
                         .infer = call_infer,
                         .fits = call_fits,
                         .effect = true,
                         .kernel = {[WEIR_CPU] = call_kernel}};

const weir_op op_shard = {.name = "shard",
                          .in_min = 1,
                          .in_max = 1,
                          .out_count = 1,
                          .infer = same_infer,
                          .signatures = identity_signatures,
                          .grad = shard_grad,
                          .kernel = {[WEIR_CPU] = copy_kernel},
                          .half = WEIR_HALF_FOLLOW};

const weir_op op_copy = {.name = "copy",
                         .in_min = 1,
                         .in_max = 1,
                         .out_count = 1,
                         .infer = same_infer,
                         .signatures = identity_signatures,
                         .kernel = {[WEIR_CPU] = copy_kernel, [WEIR_DISK] = copy_filed}};

/* The plan says which tensor is moved where (graph/plan/prove/validate_collective.c). */
static bool collective_fits(const weir_op_args *local, char *error, size_t error_bytes)
{
    return local->in_count + local->out_count > 0 || REFUSE("nothing is given, and nothing taken");
}

const weir_op op_collective = {.name = "collective",
                               .in_max = WEIR_ARGS_MAX,
                               .out_count = WEIR_ARGS_MAX,
                               .out_fewer = true,
                               .infer = infer_never,
                               .fits = collective_fits};

const weir_op op_accumulate = {.name = "accumulate",
                               .in_min = 1,
                               .in_max = 1,
                               .out_count = 1,
                               .infer = accumulate_infer,
                               .signatures = identity_signatures,
                               .kernel = {[WEIR_CPU] = accumulate_kernel},
                               .accumulates = true};

static const weir_field batch_fields[] = {WEIR_FIELD_INT(batch_attrs, values)};

const weir_op op_batch = {.name = "batch",
                          .fields = batch_fields,
                          .field_count = 1,
                          .attrs_bytes = sizeof(batch_attrs),
                          .in_min = 1,
                          .in_max = 1,
                          .out_count = 1,
                          .infer = batch_infer,
                          .fits = batch_fits,
                          .signatures = batch_signatures,
                          .kernel = {[WEIR_CPU] = batch_kernel}};

const weir_op op_unbatch = {.name = "unbatch",
                            .in_min = 1,
                            .in_max = 1,
                            .out_count = 1,
                            .infer = unbatch_infer,
                            .fits = unbatch_fits,
                            .signatures = unbatch_signatures,
                            .kernel = {[WEIR_CPU] = unbatch_kernel}};

const weir_op op_grad_seed = {.name = "grad_seed",
                              .fields = seed_fields,
                              .field_count = 1,
                              .attrs_bytes = sizeof(seed_attrs),
                              .in_min = 1,
                              .in_max = 2,
                              .out_count = 1,
                              .infer = seed_infer,
                              .signatures = seed_signatures,
                              .kernel = {[WEIR_CPU] = seed_kernel}};
