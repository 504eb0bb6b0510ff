/* kernels/core/core.c: source, sink, call, shard, copy, accumulate and grad_seed. box has a file of its own. */
#include "kernels/core/core.h"
#include "graph/base/binding.h"
#include "graph/base/filed.h"
#include "kernels/ops.h"
#include "kernels/rules.h"
#include "kernels/view.h"

#include <string.h>

/* ---- rules ---- */

static bool typed_infer(weir_op_args *args, char *error, size_t error_bytes)
{
    const typed_attrs *a = args->attrs;
    if (a->dtype <= WEIR_DTYPE_NONE || a->dtype >= WEIR_DTYPES)
        return REFUSE("there is no dtype %lld", (long long)a->dtype);
    if (a->rank < 0 || a->rank > WEIR_DIMS_MAX)
        return REFUSE("there are no tensors of %lld dimensions", (long long)a->rank);
    weir_type *out = &args->out[0];
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
static bool typed_fits(const weir_op_args *local, char *error, size_t error_bytes)
{
    weir_type whole, *out = local->out;
    weir_op_args args = {.op = local->op, .out = &whole, .out_count = 1, .attrs = local->attrs};
    if (!typed_infer(&args, error, error_bytes))
        return false;
    if (out->dtype != whole.dtype || out->shape.rank != whole.shape.rank)
        return REFUSE("the output is not of the dtype and rank that it makes");
    for (int d = 0; d < whole.shape.rank; d++)
        if (out->shape.dim[d] > whole.shape.dim[d])
            return REFUSE("dimension %d is %lld of %lld", d, (long long)out->shape.dim[d],
                          (long long)whole.shape.dim[d]);
    return true;
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
    (void)args;
    (void)error;
    (void)error_bytes;
    return true;
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

static weir_status source_kernel(const weir_kernel_args *args)
{
    const host_binding *bound = args->host;
    return bound->fn.source(bound->ctx, &args->out[0], args->step, args->micro);
}

static weir_status sink_kernel(const weir_kernel_args *args)
{
    const host_binding *bound = args->host;
    return bound->fn.sink(bound->ctx, &args->in[0], args->step, args->micro);
}

static weir_status call_kernel(const weir_kernel_args *args)
{
    const host_binding *bound = args->host;
    weir_kernel_args inner = *args;
    inner.host = bound->ctx;
    return bound->fn.call(&inner);
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

static weir_status seed_kernel(const weir_kernel_args *args)
{
    const seed_attrs *a = args->attrs;
    view_f32(&args->out[0])[0] = (float)a->value * (args->in_count > 1 ? view_f32(&args->in[1])[0] : 1.0f);
    return WEIR_OK;
}

static const weir_field typed_fields[] = {WEIR_FIELD_INT(typed_attrs, dtype), WEIR_FIELD_INT(typed_attrs, rank),
                                          WEIR_FIELD_INT(typed_attrs, dim)};
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
                         .in_max = 1,
                         .infer = sink_infer,
                         .kernel = {[WEIR_CPU] = sink_kernel}};

const weir_op op_call = {.name = "call",
                         .fields = typed_fields,
                         .field_count = 3,
                         .attrs_bytes = sizeof(typed_attrs),
                         .in_max = 8,
                         .out_count = 1,
                         .infer = typed_infer,
                         .fits = typed_fits,
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

static bool collective_infer(weir_op_args *args, char *error, size_t error_bytes)
{
    (void)args;
    return REFUSE("the compiler alone makes collectives");
}

/* What is moved where is the plan's business (graph/plan/validate_collective.c). */
static bool collective_fits(const weir_op_args *local, char *error, size_t error_bytes)
{
    return local->in_count + local->out_count > 0 || REFUSE("nothing is given, and nothing taken");
}

const weir_op op_collective = {.name = "collective",
                               .in_max = WEIR_ARGS_MAX,
                               .out_count = WEIR_ARGS_MAX,
                               .out_fewer = true,
                               .infer = collective_infer,
                               .fits = collective_fits};

const weir_op op_accumulate = {.name = "accumulate",
                               .in_min = 1,
                               .in_max = 1,
                               .out_count = 1,
                               .infer = accumulate_infer,
                               .signatures = identity_signatures,
                               .kernel = {[WEIR_CPU] = accumulate_kernel},
                               .accumulates = true};

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
