/* graph/check/call.c: see check.h.
 *
 * Each call gets copies of its inputs and fresh outputs, each in the middle of a buffer of its own. Three bytes fill what a
 * kernel is not to depend on: `beside` the margins, `inside` the outputs, `scratch` the workspace. A call is repeated with
 * one of them changed, and must give the same bits; what it was that it depends on is known then. 0xFF makes NaN of a
 * float and -1 of an index; 0 makes both 0, which is a place in every table.
 */
#include "graph/check/check.h"

#include "graph/base/base.h"
#include "graph/base/dtype.h"
#include "graph/base/error.h"
#include "graph/base/locale.h"
#include "graph/plan/prove/validate.h"
#include "kernels/fused/fused.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { ALIGN = 64, STATES = 4, ONES = 0xFF, BLOCK = 3 /* rows */ };

typedef struct call {
    trial *t;
    pool *pool;
    weir_view *in, *out;         /* of these types; inputs are copied, outputs are made unless they have data */
    unsigned char beside, inside, scratch;
    int64_t firing;
    int over;                    /* 1 + the input in whose memory out[0] lies; 0 */
    bool accumulate, continues;
    void *left;                  /* the workspace after the call, which one that continues it begins with */
    size_t left_bytes;
} call;

/* ---- texts ---- */

bool trial_broken(const trial *t, const char *format, ...)
{
    char text[512];
    va_list args;
    va_start(args, format);
    text_vprint(text, sizeof text, format, args);
    va_end(args);
    const bool own = !strcmp(t->asked, t->op->name);
    *t->status = error_set(WEIR_E_KERNEL, "%s:%d: op_check: %s%s%s: %s%s", t->src.file, t->src.line, own ? "" : t->asked,
                           own ? "" : ": its gradient's op ", t->op->name, t->where, text);
    return false;
}

bool trial_no_memory(const trial *t)
{
    *t->status = error_set(WEIR_E_MEMORY, "%s:%d: op_check: no memory to try %s", t->src.file, t->src.line, t->op->name);
    return false;
}

const char *element_text(const weir_view *view, int64_t i, char *text, size_t bytes)
{
    weir_shape at = {.rank = view->shape.rank};
    for (int d = at.rank - 1; d >= 0; d--) {
        at.dim[d] = i % view->shape.dim[d];
        i /= view->shape.dim[d];
    }
    char index[160];
    snprintf(text, bytes, at.rank ? "element %s of " : "%.0s", shape_text(&at, index, sizeof index));
    return text;
}

/* ---- values ---- */

double view_get(const weir_view *view, int64_t i)
{
    return dtype_get(view->dtype, view->data, i);
}

void view_set(const weir_view *view, int64_t i, double value)
{
    dtype_set(view->dtype, view->data, i, value);
}

bool values_near(double a, double b, double tolerance, double scale)
{
    if (isnan(a) || isnan(b))
        return isnan(a) && isnan(b);
    return a == b || fabs(a - b) <= tolerance * scale;
}

/* ---- memory ---- */

static size_t padded(size_t bytes)
{
    return (bytes + ALIGN - 1) / ALIGN * ALIGN;
}

/* Room for `bytes`, which are `fill`, between margins. NULL: the pool has failed. */
static unsigned char *room_new(const call *c, size_t bytes, unsigned char fill)
{
    const size_t margin = c->t->margin;
    unsigned char *all = pool_alloc(c->pool, 2 * margin + padded(bytes) + ALIGN);
    if (!all)
        return NULL;
    all += (ALIGN - (uintptr_t)all % ALIGN) % ALIGN;
    memset(all, c->beside, 2 * margin + padded(bytes));
    memset(all + margin, fill, bytes);
    return all + margin;
}

static bool all_are(const unsigned char *bytes, size_t count, unsigned char fill)
{
    for (size_t i = 0; i < count; i++)
        if (bytes[i] != fill)
            return false;
    return true;
}

static bool margins_hold(const call *c, const void *data, size_t bytes, const char *what, int index)
{
    const unsigned char *at = data;
    const size_t margin = c->t->margin;
    if (!all_are(at - margin, margin, c->beside))
        return trial_broken(c->t, "the kernel writes before the memory of %s %d; it may write outputs, states and workspace, "
                            "each as large as its view says", what, index);
    if (!all_are(at + bytes, margin + padded(bytes) - bytes, c->beside))
        return trial_broken(c->t, "the kernel writes behind the memory of %s %d; it may write outputs, states and workspace, "
                            "each as large as its view says", what, index);
    return true;
}

/* ---- one call ---- */

static void types_of(const weir_view *view, int count, weir_type *type)
{
    for (int i = 0; i < count; i++)
        type[i] = (weir_type){view[i].dtype, view[i].shape};
}

typedef struct operands {
    weir_view *in, *out, state[STATES];
    weir_type *type;
    int state_count;
    void *workspace;
    size_t workspace_bytes;
} operands;

static bool inputs_make(const call *c, operands *o)
{
    for (int i = 0; i < c->t->in_count; i++) {
        o->in[i] = c->in[i];
        o->in[i].data = room_new(c, view_bytes(&c->in[i]), 0);
        if (!o->in[i].data)
            return trial_no_memory(c->t);
        if (view_bytes(&c->in[i]))
            memcpy(o->in[i].data, c->in[i].data, view_bytes(&c->in[i]));
    }
    return true;
}

static bool outputs_make(const call *c, operands *o)
{
    for (int i = 0; i < c->t->out_count; i++) {
        void *given = c->out[i].data;
        o->out[i] = c->out[i];
        if (i == 0 && c->over)
            o->out[i].data = o->in[c->over - 1].data;
        else
            o->out[i].data = room_new(c, view_bytes(&c->out[i]), c->inside);
        if (!o->out[i].data)
            return trial_no_memory(c->t);
        if (given && view_bytes(&c->out[i]))
            memcpy(o->out[i].data, given, view_bytes(&c->out[i]));
    }
    return true;
}

static bool rest_make(const call *c, operands *o, const weir_op_args *local)
{
    const weir_op *op = c->t->op;
    weir_type type[STATES] = {{0}};
    o->state_count = op->states ? op->states(local, type) : 0;
    if (o->state_count < 0 || o->state_count > STATES)
        return trial_broken(c->t, "the rule states gives %d; an op has at most %d", o->state_count, STATES);
    for (int i = 0; i < o->state_count; i++) {
        o->state[i] = (weir_view){.dtype = type[i].dtype, .shape = type[i].shape, .global = type[i].shape};
        o->state[i].data = room_new(c, view_bytes(&o->state[i]), 0);
        if (!o->state[i].data)
            return trial_no_memory(c->t);
    }
    o->workspace_bytes = op->workspace ? op->workspace(local, c->t->kind) : 0;
    if (c->continues && c->left_bytes > o->workspace_bytes)
        o->workspace_bytes = c->left_bytes;
    o->workspace = room_new(c, o->workspace_bytes, c->scratch);
    if (!o->workspace)
        return trial_no_memory(c->t);
    if (c->continues && c->left_bytes)
        memcpy(o->workspace, c->left, c->left_bytes);
    return true;
}

static bool margins_all_hold(const call *c, const operands *o)
{
    for (int i = 0; i < c->t->in_count; i++)
        if (!margins_hold(c, o->in[i].data, view_bytes(&o->in[i]), "input", i))
            return false;
    for (int i = 0; i < c->t->out_count; i++)
        if (!margins_hold(c, o->out[i].data, view_bytes(&o->out[i]), "output", i))
            return false;
    for (int i = 0; i < o->state_count; i++)
        if (!margins_hold(c, o->state[i].data, view_bytes(&o->state[i]), "state", i))
            return false;
    return margins_hold(c, o->workspace, o->workspace_bytes, "workspace", 0);
}

static bool inputs_are_left(const call *c, const operands *o)
{
    for (int i = 0; i < c->t->in_count; i++)
        if (i + 1 != c->over && view_bytes(&o->in[i]) && memcmp(o->in[i].data, c->in[i].data, view_bytes(&o->in[i])))
            return trial_broken(c->t, "the kernel changes input %d; others read it, too", i);
    return true;
}

/* Opens what the op keeps between calls, calls the kernel, and closes it. */
static bool kernel_call(const call *c, weir_kernel_args *args)
{
    const weir_op *op = c->t->op;
    char error[256] = "";
    args->error = error;
    args->error_bytes = sizeof error;
    weir_status status = op->open ? op->open(args, &args->host_state) : WEIR_OK;
    if (status)
        return trial_broken(c->t, "open fails with %s: %s", weir_status_name(status), error);
    status = c->t->kernel(args);
    if (op->close)
        op->close(op->ctx, args->host_state);
    return !status || trial_broken(c->t, "the kernel fails with %s: %s", weir_status_name(status), error);
}

/* c->out get the data that the kernel made. */
static bool call_run(call *c)
{
    trial *t = c->t;
    operands o = {.in = POOL_NEW(c->pool, weir_view, t->in_count + 1),
                  .out = POOL_NEW(c->pool, weir_view, t->out_count + 1),
                  .type = POOL_NEW(c->pool, weir_type, t->in_count + t->out_count + 1)};
    if (!o.in || !o.out || !o.type)
        return trial_no_memory(t);
    if (!inputs_make(c, &o) || !outputs_make(c, &o))
        return false;
    types_of(c->in, t->in_count, o.type);
    types_of(c->out, t->out_count, o.type + t->in_count);
    weir_op_args local = {t->op, o.type, t->in_count, o.type + t->in_count, t->out_count, t->attrs};
    if (!rest_make(c, &o, &local))
        return false;
    const weir_clock clock = {.firing = t->firing + c->firing, .step = t->step + c->firing};
    weir_kernel_args args = {
        .in = o.in, .in_count = t->in_count, .out = o.out, .out_count = t->out_count,
        .state = o.state, .state_count = o.state_count, .attrs = t->attrs, .workspace = o.workspace,
        .workspace_bytes = o.workspace_bytes, .key = t->key, .firing = clock.firing, .step = clock.step,
        .clock = t->kind == WEIR_CUDA ? &clock : NULL, .accumulate = c->accumulate, .continues = c->continues, .host = t->op->ctx,
    };
    if (!kernel_call(c, &args) || !margins_all_hold(c, &o) || !inputs_are_left(c, &o))
        return false;
    for (int i = 0; i < t->out_count; i++)
        c->out[i].data = o.out[i].data;
    c->left = o.workspace;
    c->left_bytes = o.workspace_bytes;
    return true;
}

static weir_view *views_of(pool *p, const weir_view *from, int count)
{
    weir_view *copy = POOL_NEW(p, weir_view, count + 1);
    for (int i = 0; i < count && copy; i++) {
        copy[i] = from[i];
        copy[i].data = NULL;
    }
    return copy;
}

bool trial_run(trial *t, pool *p)
{
    call c = {.t = t, .pool = p, .in = t->in, .out = views_of(p, t->out, t->out_count), .beside = ONES, .inside = ONES,
              .scratch = ONES};
    if (!c.out)
        return trial_no_memory(t);
    if (!call_run(&c))
        return false;
    for (int i = 0; i < t->out_count; i++)
        t->out[i].data = c.out[i].data;
    return true;
}

/* ---- what holds for every call ---- */

/* Output and element in which two results differ; false when there is none. */
static bool first_difference(const trial *t, const weir_view *other, int *out, int64_t *at)
{
    for (*out = 0; *out < t->out_count; ++*out) {
        const size_t width = weir_dtype_bytes(t->out[*out].dtype);
        const char *a = t->out[*out].data, *b = other[*out].data;
        const int64_t count = weir_shape_count(&t->out[*out].shape);
        for (*at = 0; *at < count; ++*at)
            if (memcmp(a + (size_t)*at * width, b + (size_t)*at * width, width))
                return true;
    }
    return false;
}

/* Whether the call gives t->out, bit for bit. The text ends the sentence "element [..] of output 0 is 1, but 2 ". */
static bool same_bits(call c, const char *otherwise)
{
    pool local = {0};
    int out = 0;
    int64_t at = 0;
    char element[200];
    c.pool = &local;
    c.out = views_of(&local, c.t->out, c.t->out_count);
    bool ok = c.out ? call_run(&c) : trial_no_memory(c.t);
    if (ok && first_difference(c.t, c.out, &out, &at))
        ok = trial_broken(c.t, "%soutput %d is %.9g, but %.9g %s",
                          element_text(&c.t->out[out], at, element, sizeof element), out,
                          view_get(&c.t->out[out], at), view_get(&c.out[out], at), otherwise);
    pool_free(&local);
    return ok;
}

static bool over_holds(call c)
{
    const weir_op *op = c.t->op;
    c.over = op->inplace;
    if (!c.over || c.over > c.t->in_count || !c.t->out_count ||
        weir_shape_count(&c.t->in[c.over - 1].shape) != weir_shape_count(&c.t->out[0].shape) ||
        weir_dtype_bytes(c.t->in[c.over - 1].dtype) != weir_dtype_bytes(c.t->out[0].dtype))
        return true;
    return same_bits(c, "in the memory of the input that .inplace names; the kernel must read each element of it before "
                     "it writes that element");
}

/* From a start that is not zero, an accumulating call gives start + value. */
static bool sum_holds(call c)
{
    if (!c.t->op->accumulates || !c.t->out_count || c.t->out[0].dtype != WEIR_F32)
        return true;
    pool local = {0};
    c.pool = &local;
    c.accumulate = true;
    c.out = views_of(&local, c.t->out, c.t->out_count);
    const weir_view *value = &c.t->out[0];
    float *start = POOL_NEW(&local, float, weir_shape_count(&value->shape) + 1);
    bool ok = (c.out && start) || trial_no_memory(c.t);
    for (int64_t i = 0; i < weir_shape_count(&value->shape) && ok; i++)
        start[i] = weir_random_normal(c.t->key, (uint64_t)i);
    if (ok)
        c.out[0].data = start;
    ok = ok && call_run(&c);
    for (int64_t i = 0; i < weir_shape_count(&value->shape) && ok; i++) {
        const double want = (double)start[i] + view_get(value, i), got = view_get(&c.out[0], i);
        char element[200];
        if (!values_near(got, want, c.t->tolerance + 1e-6, 1 + fabs((double)start[i]) + fabs(want)))
            ok = trial_broken(c.t, "%soutput 0 is %.9g where it was %.9g and the kernel was to add %.9g; an op with "
                              ".accumulates heeds args->accumulate", element_text(value, i, element, sizeof element), got,
                              (double)start[i], view_get(value, i));
    }
    pool_free(&local);
    return ok;
}

/* ---- rows ---- */

static fused_kind kind_at(const trial *t, bool input, int i, const weir_shape *like)
{
    return fused_kind_of(t->op, input, i, input ? &t->in[i].shape : &t->out[i].shape, like);
}

/* The first or the second block of a view whose rows are blocked along its first dimension. */
static weir_view block_of(weir_view view, fused_kind kind, int64_t from, int64_t to)
{
    if (kind != FUSED_ROWS && kind != FUSED_PER_ROW)
        return view;
    const int64_t all = view.shape.dim[0];
    if (view.data)
        view.data = (char *)view.data + view_bytes(&view) / (size_t)all * (size_t)from;
    view.shape.dim[0] = to - from;
    view.offset[0] += from;
    return view;
}

/* Calls the kernel for some rows and then for the others, and puts together what comes out. */
static bool blocks_run(call *c, const weir_shape *like, weir_view *joined)
{
    const int64_t cut[3] = {0, BLOCK, like->dim[0]};
    weir_view *in = c->in;
    c->in = POOL_NEW(c->pool, weir_view, c->t->in_count + 1);
    if (!c->in)
        return trial_no_memory(c->t);
    for (int b = 0; b < 2; b++) {
        for (int i = 0; i < c->t->in_count; i++)
            c->in[i] = block_of(in[i], kind_at(c->t, true, i, like), cut[b], cut[b + 1]);
        for (int o = 0; o < c->t->out_count; o++) {
            const fused_kind kind = kind_at(c->t, false, o, like);
            c->out[o] = block_of(joined[o], kind, cut[b], cut[b + 1]);
            if (kind == FUSED_ROWS || kind == FUSED_PER_ROW || b == 0)
                c->out[o].data = NULL;
        }
        c->continues = b > 0;
        if (!call_run(c))
            return false;
        for (int o = 0; o < c->t->out_count; o++) {
            const weir_view place = block_of(joined[o], kind_at(c->t, false, o, like), cut[b], cut[b + 1]);
            memcpy(place.data, c->out[o].data, view_bytes(&place));
        }
    }
    return true;
}

static bool rows_are_cut(const trial *t, const weir_shape *like)
{
    if (like->rank < 2 || like->dim[0] <= BLOCK)
        return false;
    for (int i = 0; i < t->in_count; i++)
        if (kind_at(t, true, i, like) == FUSED_NEVER)
            return false;
    for (int o = 0; o < t->out_count; o++)
        if (kind_at(t, false, o, like) == FUSED_NEVER)
            return false;
    return true;
}

static bool rows_hold(call c)
{
    trial *t = c.t;
    int first = 0, out = 0;
    int64_t at = 0;
    while (first < t->in_count && !(t->op->rows_in >> (first < 31 ? first : 31) & 1))
        first++;
    if (t->kind != WEIR_CPU || !t->op->rows_in || first == t->in_count || !rows_are_cut(t, &t->in[first].shape))
        return true;
    pool local = {0};
    c.pool = &local;
    c.out = views_of(&local, t->out, t->out_count);
    weir_view *joined = views_of(&local, t->out, t->out_count);
    bool ok = (c.out && joined) || trial_no_memory(t);
    for (int o = 0; o < t->out_count && ok; o++) {
        joined[o].data = pool_alloc(&local, view_bytes(&t->out[o]) + 1);
        ok = joined[o].data || trial_no_memory(t);
    }
    ok = ok && blocks_run(&c, &t->in[first].shape, joined);
    char element[200];
    if (ok && first_difference(t, joined, &out, &at))
        ok = trial_broken(t, "%soutput %d is %.9g, but %.9g when the kernel is called for the first %d rows and then for the "
                          "rest; .rows_in promises the same bits", element_text(&t->out[out], at, element, sizeof element),
                          out, view_get(&t->out[out], at), view_get(&joined[out], at), (int)BLOCK);
    pool_free(&local);
    return ok;
}

/* Whether the op's own rule takes the operands: those that a signature makes may be others than infer was asked about. */
static bool rule_holds(const trial *t, pool *p)
{
    char error[512] = "";
    weir_type *type = POOL_NEW(p, weir_type, t->in_count + t->out_count + 1);
    if (!type)
        return trial_no_memory(t);
    types_of(t->in, t->in_count, type);
    types_of(t->out, t->out_count, type + t->in_count);
    const weir_op_args local = {t->op, type, t->in_count, type + t->in_count, t->out_count, t->attrs};
    return op_fits(&local, error, sizeof error) ||
           trial_broken(t, "%s refuses these operands: %s; mend the rule%s", t->op->fits ? "fits" : "infer", error,
                        *t->where ? ", or the signature" : "");
}

bool trial_hold(trial *t, pool *p)
{
    if (!rule_holds(t, p) || !trial_run(t, p))
        return false;
    const call c = {.t = t, .in = t->in, .beside = ONES, .inside = ONES, .scratch = ONES};
    call other = c, beside = c, inside = c, scratch = c;
    pool local = {0};
    other.firing = 1;
    other.pool = &local;
    other.out = views_of(&local, t->out, t->out_count);
    bool ok = other.out ? call_run(&other) : trial_no_memory(t);
    pool_free(&local);
    beside.beside = inside.inside = scratch.scratch = 0;
    return ok &&
           same_bits(c, "when it is called again with the same arguments; a kernel keeps nothing between calls outside its "
                     "arguments") &&
           same_bits(beside, "when other memory lies around the operands: the kernel reads beyond an input; args->in gives "
                     "the shape of the part that is there") &&
           same_bits(inside, "when the output held something else before: the kernel must write each element of its "
                     "outputs, and no other, as infer gives their shapes") &&
           same_bits(scratch, "when the workspace held something else before; its contents are undefined") &&
           over_holds(c) && sum_holds(c) && rows_hold(c);
}
