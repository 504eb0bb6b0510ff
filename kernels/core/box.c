/* kernels/core/box.c: the conversion kernel. One rule serves every pair of layouts: the output is the destination's
 * shard, the inputs are those source shards that intersect it, and each view says where in the logical tensor it
 * lies. The intersection of two boxes is a box; it is copied (or summed, for the terms of a partial sum) row by row,
 * where a row is the longest run that is contiguous on both sides.
 *
 * Terms are added in the order of the inputs, so the bits do not depend on which of them came first. Terms of f16 or bf16 are
 * added in f32 and rounded once. A row goes block by block through all its terms: what has been added so far stays in the
 * nearest cache, and each byte of the output goes to memory once. The first two terms need no copy: their sum is written.
 * Stores that pass the caches by are not used: a large copy gained a tenth with them, and what read it next took twice as
 * long.
 *
 * A shard that is gathered may lie where it belongs in the output: then it is not copied (box_stays()). And a sum may be
 * written over one of its terms (box_onto()), whichever that is: those before it are then added up beside it.
 */
#include "kernels/core/core.h"
#include "kernels/core/region.h"
#include "kernels/common/ops.h"
#include "kernels/common/view.h"

#include <string.h>

enum { BLOCK = 4096, HALF_BLOCK = 1024 }; /* elements of a sum that stay in the nearest cache until all terms are in */

static void run_add(float *restrict to, const float *restrict from, int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        to[i] += from[i];
}

static void run_sum(float *restrict to, const float *restrict a, const float *restrict b, int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        to[i] = a[i] + b[i];
}

/* The term whose elements from `from` on are those at `to`; none: as many as there are. */
static int term_at(const float *to, const weir_view *term, int terms, int64_t from)
{
    int t = 0;
    while (t < terms && view_f32(&term[t]) + from != to)
        t++;
    return t;
}

/* A block of a sum, written over its term `own`. An addition gives the same whichever of the two comes first. */
static void block_onto(float *to, const weir_view *term, int terms, int own, int64_t from, int64_t count)
{
    float before[BLOCK];
    if (own > 1)
        run_sum(before, view_f32(&term[0]) + from, view_f32(&term[1]) + from, count);
    for (int t = 2; t < own; t++)
        run_add(before, view_f32(&term[t]) + from, count);
    run_add(to, own > 1 ? before : view_f32(&term[!own]) + from, count);
    for (int t = own > 1 ? own + 1 : 2; t < terms; t++)
        run_add(to, view_f32(&term[t]) + from, count);
}

/* to[0 .. count) = (or, with `add`, +=) the sum of elements [from, from + count) of the terms. */
static void run_terms(float *to, const weir_view *term, int terms, int64_t from, int64_t count, bool add)
{
    int own = add ? terms : term_at(to, term, terms, from);
    for (int64_t at = 0; at < count; at += BLOCK) {
        int64_t part = count - at < BLOCK ? count - at : BLOCK;
        int done = add ? 0 : 2;
        if (own < terms) {
            block_onto(to + at, term, terms, own, from + at, part);
            continue;
        }
        if (!add)
            run_sum(to + at, view_f32(&term[0]) + from + at, view_f32(&term[1]) + from + at, part);
        for (; done < terms; done++)
            run_add(to + at, view_f32(&term[done]) + from + at, part);
    }
}

/* The same of halves, through a block of f32. */
static void run_half_terms(const weir_view *to, int64_t t, const weir_view *term, int terms, int64_t from,
                           int64_t count, bool add)
{
    float sum[HALF_BLOCK], next[HALF_BLOCK];
    for (int64_t at = 0; at < count; at += HALF_BLOCK) {
        int64_t part = count - at < HALF_BLOCK ? count - at : HALF_BLOCK;
        uint16_t *out = view_half(to) + t + at;
        weir_to_f32(to->dtype, add ? out : view_half(&term[0]) + from + at, part, sum);
        for (int done = !add; done < terms; done++) {
            weir_to_f32(to->dtype, view_half(&term[done]) + from + at, part, next);
            run_add(sum, next, part);
        }
        weir_from_f32(sum, part, to->dtype, out);
    }
}

static void run_copy(const weir_view *to, int64_t t, const weir_view *from, int64_t f, int64_t count)
{
    size_t bytes = weir_dtype_bytes(to->dtype);
    char *there = (char *)to->data + (size_t)t * bytes;
    const char *here = (const char *)from->data + (size_t)f * bytes;
    if (here != there)
        memcpy(there, here, (size_t)count * bytes);
}

/* Puts the terms, which all lie as the first does, where they meet the output; with `add` onto what is there. */
static void region_move(const weir_view *term, int terms, const weir_view *to, const region *r, bool add)
{
    int64_t index[WEIR_DIMS_MAX] = {0};
    int64_t f = r->from_first, t = r->to_first;
    for (;;) {
        if ((terms > 1 || add) && to->dtype != WEIR_F32)
            run_half_terms(to, t, term, terms, f, r->run, add);
        else if (terms > 1 || add)
            run_terms(view_f32(to) + t, term, terms, f, r->run, add);
        else
            run_copy(to, t, term, f, r->run);
        int d = r->outer - 1;
        for (; d >= 0; d--) {
            f += r->from_stride[d];
            t += r->to_stride[d];
            if (++index[d] < r->count[d])
                break;
            f -= r->count[d] * r->from_stride[d];
            t -= r->count[d] * r->to_stride[d];
            index[d] = 0;
        }
        if (d < 0)
            return;
    }
}

/* Terms of which each has all of the output as one run, and some no more than that: what came from another host is the
 * part that is read. False: they are not such ones. */
static bool runs_move(const weir_view *term, int terms, const weir_view *to)
{
    weir_view run[WEIR_ARGS_MAX];
    region r = {.run = view_count(to)};
    for (int i = 0; i < terms; i++) {
        region each;
        if (terms > WEIR_ARGS_MAX || !region_meet(&term[i], to, &each))
            return false;
        region_fold(&term[i], to, &each);
        if (each.run != r.run)
            return false;
        run[i] = term[i];
        run[i].data = (char *)term[i].data + (size_t)each.from_first * weir_dtype_bytes(to->dtype);
    }
    region_move(run, terms, to, &r, false);
    return true;
}

/* The terms of one slice; those that lie in still another way go one by one. */
static void slice_move(const weir_view *term, int terms, const weir_view *to)
{
    int alike = 1;
    region r;
    while (alike < terms && views_alike(&term[0], &term[alike]))
        alike++;
    if (alike < terms && runs_move(term, terms, to))
        return;
    for (int done = 0, count = alike == terms ? terms : 1; done < terms; done += count) {
        if (!region_meet(&term[done], to, &r))
            continue;
        region_fold(&term[done], to, &r);
        region_move(&term[done], count, to, &r, done > 0);
    }
}

static weir_status box_kernel(const weir_kernel_args *args)
{
    const box_attrs *a = args->attrs;
    const weir_view *to = &args->out[0];
    if (a->zero)
        memset(to->data, 0, (size_t)view_count(to) * weir_dtype_bytes(to->dtype));
    for (int i = 0, terms; i < args->in_count; i += terms) {
        terms = a->terms < args->in_count - i ? (int)a->terms : args->in_count - i;
        slice_move(&args->in[i], terms, to);
    }
    return WEIR_OK;
}

static bool box_infer(weir_op_args *args, char *error, size_t error_bytes)
{
    if (args->in_count < 1)
        return REFUSE("a conversion has a source");
    args->out[0] = args->in[0];
    return true;
}

/* The kernel goes by intersections, which lie within both shards wherever these are said to be. */
static bool box_fits(const weir_op_args *local, char *error, size_t error_bytes)
{
    const box_attrs *attrs = local->attrs;
    const weir_type *to = &local->out[0];
    if (attrs->terms < 1)
        return REFUSE("%lld terms", (long long)attrs->terms);
    if (attrs->terms > 1 && !weir_dtype_real(to->dtype))
        return REFUSE("sums are of real numbers, not of %s", weir_dtype_name(to->dtype));
    for (int i = 0; i < local->in_count; i++)
        if (local->in[i].dtype != to->dtype || local->in[i].shape.rank != to->shape.rank)
            return REFUSE("input %d and the output differ in dtype or rank", i);
    return true;
}

/* Where the source meets the output. */
static void box_reads(const weir_kernel_args *call, int input, weir_view *part)
{
    const weir_view *from = &call->in[input], *to = &call->out[0];
    for (int d = 0; d < to->shape.rank; d++) {
        int64_t end = from->offset[d] + from->shape.dim[d], to_end = to->offset[d] + to->shape.dim[d];
        int64_t first = from->offset[d] > to->offset[d] ? from->offset[d] : to->offset[d];
        end = end < to_end ? end : to_end;
        part->offset[d] = first;
        part->shape.dim[d] = end > first ? end - first : 0;
    }
}

/* Whether any other input has elements of the output that this one has. */
static bool met_by_others(const weir_kernel_args *call, int input)
{
    region r;
    for (int i = 0; i < call->in_count; i++)
        if (i != input && region_meet(&call->in[i], &call->in[input], &r))
            return true;
    return false;
}

/* The part that is copied, whole, as one run, and by nobody else's elements. */
static int64_t box_stays(const weir_kernel_args *call, int input)
{
    const box_attrs *attrs = call->attrs;
    const weir_view *from = &call->in[input], *to = &call->out[0];
    region r;
    if (attrs->terms != 1 || attrs->zero || !region_meet(from, to, &r) || met_by_others(call, input))
        return -1;
    region_fold(from, to, &r);
    return r.run == view_count(from) ? r.to_first : -1;
}

/* A sum of all inputs, which lie alike, and in each of which the output is one run. */
static int64_t box_onto(const weir_kernel_args *call, int input)
{
    const box_attrs *attrs = call->attrs;
    const weir_view *from = &call->in[input], *to = &call->out[0];
    region r;
    if (attrs->terms < 2 || attrs->terms != call->in_count || attrs->zero || !region_meet(from, to, &r))
        return -1;
    for (int i = 0; i < call->in_count; i++)
        if (!views_alike(from, &call->in[i]))
            return -1;
    region_fold(from, to, &r);
    return r.run == view_count(to) ? r.from_first : -1;
}

static const weir_field box_fields[] = {WEIR_FIELD_INT(box_attrs, terms), WEIR_FIELD_INT(box_attrs, zero)};

const weir_op op_box = {.name = "box",
                        .fields = box_fields,
                        .field_count = 2,
                        .attrs_bytes = sizeof(box_attrs),
                        .in_max = WEIR_ARGS_MAX,
                        .out_count = 1,
                        .infer = box_infer,
                        .fits = box_fits,
                        .kernel = {[WEIR_CPU] = box_kernel},
                        .reads = box_reads,
                        .stays = box_stays,
                        .onto = box_onto};
