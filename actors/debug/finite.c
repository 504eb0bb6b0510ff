/* actors/debug/finite.c: a run in which the first value that is no number ends it.
 *
 * With `.check_finite` each output of a kernel, and what the kernel keeps (an optimizer's moments), is looked at right
 * after the call, before anybody is told of it: an element that is NaN or infinite is the kernel's failure. So the op
 * that is named had finite inputs, unless one came unseen, as a parameter that was loaded or written, and then the
 * sentence says so. Pushed values are looked at, too, and refused. Integers hold no such values.
 *
 *     on CPUs              every kernel of this rank
 *     on accelerators nothing: a queue runs ahead of its device. Values that they compute are looked at where they reach the
 *     host, in sinks, calls and pulls: the sentence names that and the step, not the op
 *     with a loss scale    not the backward pass and the updates, whose gradients may overflow: what follows of that is
 *                          the scale's to decide
 *
 * A session that does not check pays nothing: kernels are called through a function that is put in front of them when
 * the session is built. Each rank looks at its own.
 *
 * A float is finite when its exponent is not all ones, whatever its width; so blocks of words are looked at, which a
 * compiler makes vectors of, and only a block that has such a word is searched. The function in front of a kernel
 * finds struct finite through the worker, and the worker through the buffer of the kernel's error, which is the worker's:
 * struct actor_kernel has no room to spare.
 */
#include "actors/debug/debug.h"
#include "actors/worker.h"

#include "graph/base/base.h"
#include "graph/base/error.h"

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BLOCK = 4096 }; /* elements */

struct checked {
    weir_kernel_fn call; /* the op's own */
    bool outs, ins;      /* which are looked at */
    bool knows_ins;      /* its inputs can be looked at when it has failed */
};

struct finite {
    const weir_plan *plan;   /* borrowed */
    struct checked *kernels; /* owned; by kernel */
    bool accelerators;       /* there are some in the plan */
};

/* ---- values ---- */

#define ANY_WORD(name, type, mask)                                    \
    static bool name(const void *data, int64_t first, int64_t count)  \
    {                                                                 \
        const type *word = (const type *)data + first;                \
        unsigned any = 0;                                             \
        for (int64_t i = 0; i < count; i++)                           \
            any |= (word[i] & (mask)) == (mask);                      \
        return any;                                                   \
    }
ANY_WORD(any_f32, uint32_t, 0x7f800000u)
ANY_WORD(any_f16, uint16_t, 0x7c00)
ANY_WORD(any_bf16, uint16_t, 0x7f80)

static bool any_of(weir_dtype dtype, const void *data, int64_t first, int64_t count)
{
    return dtype == WEIR_F32   ? any_f32(data, first, count)
           : dtype == WEIR_F16 ? any_f16(data, first, count)
                               : any_bf16(data, first, count);
}

/* The first element that is not finite; -1: there is none. */
static int64_t first_of(weir_dtype dtype, const void *data, int64_t count)
{
    for (int64_t at = 0; weir_dtype_real(dtype) && at < count; at += BLOCK) {
        int64_t end = count - at < BLOCK ? count : at + BLOCK;
        if (!any_of(dtype, data, at, end - at))
            continue;
        while (!any_of(dtype, data, at, 1))
            at++;
        return at;
    }
    return -1;
}

static const char *value_text(weir_dtype dtype, const void *data, int64_t at)
{
    float value;
    weir_to_f32(dtype, (const char *)data + (size_t)at * weir_dtype_bytes(dtype), 1, &value);
    return value > 0 ? "inf" : value < 0 ? "-inf" : "NaN";
}

static bool finite_view(const weir_view *view, char *text, size_t bytes)
{
    char place[128], shape[128];
    int64_t at = first_of(view->dtype, view->data, weir_shape_count(&view->shape)), left = at;
    if (at < 0)
        return true;
    weir_shape index = {.rank = view->shape.rank};
    for (int d = index.rank - 1; d >= 0; d--) {
        index.dim[d] = view->offset[d] + left % view->shape.dim[d];
        left /= view->shape.dim[d];
    }
    snprintf(text, bytes, "%s at %s of %s %s", value_text(view->dtype, view->data, at),
             shape_text(&index, place, sizeof(place)), weir_dtype_name(view->dtype),
             shape_text(&view->global, shape, sizeof(shape)));
    return false;
}

/* ---- while it runs ---- */

static const struct finite *finite_of(const weir_kernel_args *args)
{
    const struct worker *worker = (const struct worker *)(args->error - offsetof(struct worker, error));
    return worker->owner->finite;
}

static bool overlap(const weir_view *a, const weir_view *b)
{
    const char *x = a->data, *y = b->data;
    return x < y + weir_shape_count(&b->shape) * (int64_t)weir_dtype_bytes(b->dtype) &&
           y < x + weir_shape_count(&a->shape) * (int64_t)weir_dtype_bytes(a->dtype);
}

/* An input that was written over by an output is gone; it was looked at when it was made. */
static bool is_gone(const weir_kernel_args *args, const weir_view *in)
{
    for (int o = 0; o < args->out_count; o++)
        if (overlap(&args->out[o], in))
            return true;
    return false;
}

/* The first input that was not finite; -1: there is none. */
static int bad_input(const weir_kernel_args *args, char *text, size_t bytes)
{
    for (int i = 0; i < args->in_count; i++)
        if (!is_gone(args, &args->in[i]) && !finite_view(&args->in[i], text, bytes))
            return i;
    return -1;
}

static weir_status refuse(const struct finite *f, const struct actor_kernel *kernel, const char *which,
                          int number, const char *what)
{
    const weir_kernel_args *args = &kernel->args;
    const struct checked *c = &f->kernels[kernel->id];
    const plan_actor *actor = &f->plan->actors[f->plan->kernels[kernel->id].actor.i];
    char micro[48] = "", where[256], cause[384] = "";
    int input = -1;
    if (actor->fires > 1)
        snprintf(micro, sizeof(micro), "in micro-batch %d ", args->micro);
    if (c->ins)
        snprintf(cause, sizeof(cause), "; it comes from a device whose ops are not looked at");
    else if (c->knows_ins && (input = bad_input(args, where, sizeof(where))) >= 0)
        snprintf(cause, sizeof(cause), "; input %d is not finite either: %s", input, where);
    else if (c->knows_ins)
        snprintf(cause, sizeof(cause), "%s", args->in_count ? "; its inputs are finite" : "");
    snprintf(args->error, args->error_bytes, "%s%s %d is %s%s", micro, which, number, what, cause);
    return WEIR_E_KERNEL;
}

static weir_status look(const struct finite *f, const struct actor_kernel *kernel, const char *which,
                        const weir_view *views, int count)
{
    char what[256];
    for (int i = 0; i < count; i++)
        if (!finite_view(&views[i], what, sizeof(what)))
            return refuse(f, kernel, which, i, what);
    return WEIR_OK;
}

static weir_status call_checked(const weir_kernel_args *args)
{
    const struct actor_kernel *kernel =
        (const struct actor_kernel *)((const char *)args - offsetof(struct actor_kernel, args));
    const struct finite *f = finite_of(args);
    const struct checked *c = &f->kernels[kernel->id];
    weir_status status = c->ins ? look(f, kernel, "input", args->in, args->in_count) : WEIR_OK;
    if (!status)
        status = c->call(args);
    if (!status && c->outs)
        status = look(f, kernel, "output", args->out, args->out_count);
    if (!status && c->outs)
        status = look(f, kernel, "state", args->state, args->state_count);
    return status;
}

weir_status debug_pushed(const struct session_debug *debug, const char *name, const weir_array *value)
{
    weir_view view = {.data = value->data, .dtype = value->dtype, .shape = value->shape, .global = value->shape};
    char what[256];
    if (!debug->finite || finite_view(&view, what, sizeof(what)))
        return WEIR_OK;
    return error_set(WEIR_E_ARGUMENT, "weir_session_push: '%s' is %s", name, what);
}

weir_status debug_pulled(const struct session_debug *debug, const char *name, const weir_array *value, int64_t step)
{
    weir_view view = {.data = value->data, .dtype = value->dtype, .shape = value->shape, .global = value->shape};
    char what[256];
    if (!debug->finite || !debug->finite->accelerators || finite_view(&view, what, sizeof(what)))
        return WEIR_OK;
    return error_set(WEIR_E_KERNEL, "weir_session_pull: '%s' of step %lld is %s; it comes from a device whose ops are "
                     "not looked at", name, (long long)step, what);
}

/* ---- when kernels are built ---- */

static bool reaches(const weir_plan *plan, plan_range operands)
{
    for (uint32_t o = operands.first; o < operands.first + operands.count; o++) {
        const plan_tensor *tensor = &plan->tensors[plan->operands[o].tensor.i];
        if (!device_host_reaches((weir_device_kind)plan->spaces[plan_tensor_space(plan, tensor).i].kind))
            return false;
    }
    return true;
}

static bool is_scaled(const weir_plan *plan)
{
    for (uint32_t p = 0; p < plan->params_count; p++)
        if (strstr(plan_text(plan, plan->params[p].name), PLAN_LOSS_SCALE))
            return true;
    return false;
}

static void stand_in_front(const struct finite *f, struct actor_kernel *kernel, uint32_t k, bool scaled)
{
    const plan_kernel *from = &f->plan->kernels[k];
    const plan_actor *actor = &f->plan->actors[from->actor.i];
    struct checked *c = &f->kernels[k];
    *c = (struct checked){.call = kernel->call};
    c->knows_ins = reaches(f->plan, from->in);
    c->outs = reaches(f->plan, from->out) && reaches(f->plan, from->state) && !(scaled && actor->phase != PLAN_FORWARD);
    c->ins = f->accelerators && from->host != PLAN_NONE && c->knows_ins;
    if (c->call && (c->outs || c->ins))
        kernel->call = call_checked;
}

weir_status debug_check_finite(struct session_debug *debug, struct built *built)
{
    const weir_plan *plan = built->plan;
    const bool scaled = is_scaled(plan);
    struct finite *f = debug->finite = calloc(1, sizeof *f);
    if (f)
        f->kernels = calloc(plan->kernels_count + (size_t)1, sizeof *f->kernels);
    if (!f || !f->kernels)
        return error_set(WEIR_E_MEMORY, "no memory to look at what %u kernels compute", plan->kernels_count);
    f->plan = plan;
    for (uint32_t i = 0; i < plan->spaces_count; i++)
        f->accelerators |= device_is_accelerator((weir_device_kind)plan->spaces[i].kind);
    for (uint32_t k = 0; k < plan->kernels_count; k++) {
        const uint32_t a = plan->kernels[k].actor.i;
        if (built_runs(built, a) && !built->actors[a].ahead)
            stand_in_front(f, &built->kernels[k], k, scaled);
    }
    return WEIR_OK;
}

void finite_close(struct finite *finite)
{
    if (finite)
        free(finite->kernels);
    free(finite);
}
