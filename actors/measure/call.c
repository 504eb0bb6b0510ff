/* actors/measure/call.c: a kernel's call with made-up values.
 *
 * Operands lie to each other as the plan has them: what overlaps there (an output in the place of an input) overlaps here. So
 * each piece of an arena that the call touches becomes a piece of one block of memory, which is filled anew before each sample.
 */
#include "actors/measure/measure.h"

#include "graph/base/base.h"
#include "graph/plan/form/view.h"
#include "transport/mail/park.h"

#include <stdlib.h>
#include <string.h>

enum { ALIGN = 64, REPEATS = 64 };
#define WARM_NS 100000 /* a sample of a warm call takes at least so long, */
#define SAMPLE_NS 40000000 /* and all samples of a place about so long at most */
#define NS_PS 1000

/* ---- memory ---- */

/* Where a tensor lies in its arena, in the first slot. */
static measured_piece place_of(const weir_plan *plan, const plan_tensor *tensor)
{
    uint64_t begin = tensor->offset;
    if (tensor->home == PLAN_IN_REGST)
        begin += plan->regsts[tensor->owner].offset;
    else if (tensor->home == PLAN_IN_TEMP)
        begin += plan->queues[plan->actors[tensor->owner].queue.i].workspace_offset;
    return (measured_piece){plan_tensor_space(plan, tensor).i, begin, begin + plan_tensor_bytes(tensor), 0};
}

static int compare_pieces(const void *a, const void *b)
{
    const measured_piece *x = a, *y = b;
    if (x->space != y->space)
        return x->space < y->space ? -1 : 1;
    return x->begin < y->begin ? -1 : x->begin > y->begin;
}

static void add_pieces(measured_call *m, const plan_range *operands)
{
    for (uint32_t o = operands->first; o < operands->first + operands->count; o++)
        m->pieces[m->piece_count++] = place_of(m->plan, &m->plan->tensors[m->plan->operands[o].tensor.i]);
}

/* Pieces that overlap become one. */
static void unite_pieces(measured_call *m)
{
    uint32_t kept = 0;
    qsort(m->pieces, m->piece_count, sizeof *m->pieces, compare_pieces);
    for (uint32_t i = 0; i < m->piece_count; i++) {
        measured_piece *last = kept ? &m->pieces[kept - 1] : NULL;
        if (!last || last->space != m->pieces[i].space || m->pieces[i].begin >= last->end)
            m->pieces[kept++] = m->pieces[i];
        else if (m->pieces[i].end > last->end)
            last->end = m->pieces[i].end;
    }
    m->piece_count = kept;
    for (uint32_t i = 0; i < kept; i++) {
        m->pieces[i].offset = m->bytes;
        m->bytes += (m->pieces[i].end - m->pieces[i].begin + ALIGN - 1) / ALIGN * ALIGN;
    }
}

static char *address_of(const measured_call *m, char *block, const plan_tensor *tensor)
{
    const measured_piece at = place_of(m->plan, tensor);
    for (uint32_t i = 0; i < m->piece_count; i++)
        if (m->pieces[i].space == at.space && at.begin >= m->pieces[i].begin && at.end <= m->pieces[i].end)
            return block + m->pieces[i].offset + (at.begin - m->pieces[i].begin);
    return block;
}

/* Between 0.25 and 1.25: no zeros, no infinities, nothing subnormal. Whole numbers are 0, which every table has. */
static void fill(char *to, const plan_tensor *tensor, uint64_t key)
{
    const uint64_t count = plan_tensor_bytes(tensor) / weir_dtype_bytes((weir_dtype)tensor->dtype);
    for (uint64_t i = 0; i < count; i++) {
        const uint64_t drawn = hash_more(key, &i, sizeof i);
        const float x = 0.25F + (float)(drawn >> 40) * 0x1p-24F;
        if (tensor->dtype == WEIR_F32)
            memcpy(to + i * sizeof x, &x, sizeof x);
        else if (weir_dtype_real((weir_dtype)tensor->dtype))
            weir_from_f32(&x, 1, (weir_dtype)tensor->dtype, to + i * weir_dtype_bytes((weir_dtype)tensor->dtype));
        else
            memset(to + i * weir_dtype_bytes((weir_dtype)tensor->dtype), 0, weir_dtype_bytes((weir_dtype)tensor->dtype));
    }
}

static void set_image(measured_call *m, const plan_range *operands)
{
    for (uint32_t i = 0; i < operands->count; i++) {
        const plan_tensor *tensor = &m->plan->tensors[m->plan->operands[operands->first + i].tensor.i];
        fill(address_of(m, m->image, tensor), tensor, HASH_START + i);
    }
}

static void set_views(measured_call *m, const plan_range *operands, weir_view *views)
{
    for (uint32_t i = 0; i < operands->count; i++) {
        const plan_tensor *tensor = &m->plan->tensors[m->plan->operands[operands->first + i].tensor.i];
        views[i] = plan_view_of(tensor);
        views[i].data = address_of(m, m->block, tensor);
    }
}

static void *aligned(uint64_t bytes)
{
    return aligned_alloc(ALIGN, (bytes / ALIGN + 1) * ALIGN);
}

/* The bytes of all pieces, without the workspace. */
static uint64_t pieces_bytes(const measured_call *m)
{
    return m->bytes - m->kernel->workspace_bytes;
}

bool measured_call_open(measured_call *m, const weir_plan *plan, uint32_t kernel)
{
    const plan_kernel *of = &plan->kernels[kernel];
    *m = (measured_call){.plan = plan, .kernel = of};
    add_pieces(m, &of->in);
    add_pieces(m, &of->out);
    add_pieces(m, &of->state);
    unite_pieces(m);
    m->image = aligned(m->bytes);
    m->bytes += of->workspace_bytes;
    if (!m->image)
        return false;
    set_image(m, &of->in);
    set_image(m, &of->out);
    set_image(m, &of->state);
    return true;
}

void measured_call_set(measured_call *m, void *block)
{
    const plan_kernel *of = m->kernel;
    const weir_op *op = weir_op_find(plan_text(m->plan, of->op));
    m->block = block;
    set_views(m, &of->in, m->in);
    set_views(m, &of->out, m->out);
    set_views(m, &of->state, m->state);
    m->args = (weir_kernel_args){
        .in = m->in, .in_count = (int)of->in.count, .out = m->out, .out_count = (int)of->out.count, .state = m->state,
        .state_count = (int)of->state.count, .attrs = of->attrs.count ? m->plan->words + of->attrs.first : NULL,
        .workspace = of->workspace_bytes ? m->block + pieces_bytes(m) : NULL, .workspace_bytes = of->workspace_bytes, .key = of->key,
        .accumulate = of->accumulate, .host = op->ctx, .error = m->error, .error_bytes = sizeof m->error};
}

void measured_call_close(measured_call *m)
{
    free(m->image);
}

/* ---- time ---- */

/* Calls it so often; picoseconds of one. False: it failed, or the thread had to wait for a core. */
static bool sample(const sampler *s, measured_call *m, time_place place, int times, uint64_t *ps)
{
    memcpy(m->block, m->image, pieces_bytes(m));
    if (place == TIME_WARM && m->call(&m->args))
        return false;
    sampler_push_out(s, place, m->block, m->bytes);
    const uint64_t waited = sampler_waited(s);
    const int64_t start = park_now_ns();
    for (int i = 0; i < times; i++)
        if (m->call(&m->args))
            return false;
    const int64_t ns = park_now_ns() - start;
    *ps = (uint64_t)ns * NS_PS / (uint64_t)times;
    return sampler_waited(s) - waited < (uint64_t)ns / 500;
}

/* The median of some samples; those that were disturbed count only if there are no others. */
static bool measure_place(const sampler *s, measured_call *m, time_place place, uint64_t *ps, uint64_t *samples)
{
    uint64_t good[SAMPLES], one = 0;
    int count = 0, tries = 0;
    memcpy(m->block, m->image, pieces_bytes(m));
    if (m->call(&m->args) || (!sample(s, m, place, 1, &one) && !one))
        return false;
    const uint64_t ns = one / NS_PS + 1;
    const int times = place != TIME_WARM || ns > WARM_NS ? 1 : WARM_NS / ns > REPEATS ? REPEATS : (int)(WARM_NS / ns) + 1;
    const int wanted = ns * SAMPLES > SAMPLE_NS ? 3 : SAMPLES;
    while (count < wanted && tries++ < 2 * SAMPLES)
        count += sample(s, m, place, times, &good[count]);
    *ps = count ? sampler_median(good, count) : one;
    *samples += (uint64_t)count;
    return true;
}

/* Differences that small are noise. */
static uint64_t above_noise(uint64_t with_others, uint64_t alone)
{
    return with_others > alone + alone / 25 ? with_others : alone;
}

static bool measure_beside_others(const sampler *s, const measure_beside *by, measured_call *m, time_call *to)
{
    bool ok = true;
    if (by->stream) {
        beside_set(by->beside, BESIDE_STREAM, UINT32_MAX);
        ok = measure_place(s, m, TIME_FAR, &to->band, &to->samples);
    }
    if (ok && by->arithmetic) {
        beside_set(by->beside, BESIDE_ARITHMETIC, UINT32_MAX);
        ok = measure_place(s, m, TIME_WARM, &to->core, &to->samples);
    }
    beside_set(by->beside, BESIDE_NOBODY, 0);
    to->band = above_noise(to->band, to->ps[TIME_FAR]);
    to->core = above_noise(to->core, to->ps[TIME_WARM]);
    return ok;
}

static bool open_here(measured_call *m, const weir_plan *plan, uint32_t kernel)
{
    const weir_op *op = weir_op_find(plan_text(plan, plan->kernels[kernel].op));
    if (!measured_call_open(m, plan, kernel))
        return false;
    m->call = op ? op_kernel(op, WEIR_CPU) : NULL;
    void *block = m->call ? aligned(m->bytes) : NULL;
    if (block)
        measured_call_set(m, block);
    return block;
}

bool measure_call(const sampler *s, const measure_beside *by, const weir_plan *plan, uint32_t kernel, time_call *to)
{
    measured_call *m = calloc(1, sizeof *m);
    bool ok = m && open_here(m, plan, kernel);
    for (int p = 0; ok && p < TIME_PLACES; p++)
        ok = measure_place(s, m, (time_place)p, &to->ps[p], &to->samples);
    /* disturbances may turn the order round */
    for (int p = 1; ok && p < TIME_PLACES; p++)
        to->ps[p] = to->ps[p] > to->ps[p - 1] ? to->ps[p] : to->ps[p - 1];
    ok = ok && measure_beside_others(s, by, m, to);
    if (m) {
        free(m->block);
        measured_call_close(m);
    }
    free(m);
    return ok;
}
