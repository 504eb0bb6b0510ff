/* graph/verify/claim.c: see the header. */
#include "graph/verify/claim.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "graph/base/base.h"

enum { CELLS_MAX = 1 << 24 };

/* ---- cells ---- */

field_value claim_share_at(const claim *c, const int64_t *index, int rank)
{
    for (int i = 0; i < c->cell_count; i++) {
        bool within = true;
        for (int d = 0; within && d < rank; d++)
            within = c->cells[i].start[d] <= index[d] && index[d] < c->cells[i].end[d];
        if (within)
            return c->cells[i].share;
    }
    return c->cells ? field_int(0) : c->share;
}

static int compare_cuts(const void *a, const void *b)
{
    const int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

/* A random function of a place, along a dimension of a tensor. */
static field_value measure(uint64_t seed, const claim *c, int d, int64_t place)
{
    return field_draw(seed, "place", (const int64_t[]){c->tensor ? c->tensor->id : -1, d, place}, 3);
}

field_value claim_mean_share(const claim *c, const rule_array *box, uint64_t seed)
{
    field_value mean = field_int(0), all = field_int(1);
    if (!c->cells)
        return c->share;
    for (int d = 0; d < box->rank; d++)
        all = field_mul(all, field_sub(measure(seed, c, d, box->start[d] + box->shape[d]), measure(seed, c, d, box->start[d])));
    for (int i = 0; i < c->cell_count; i++) {
        field_value part = c->cells[i].share;
        for (int d = 0; d < box->rank; d++)
            part = field_mul(part, field_sub(measure(seed, c, d, c->cells[i].end[d]), measure(seed, c, d, c->cells[i].start[d])));
        mean = field_add(mean, part);
    }
    return field_div(mean, all);
}

/* Sorts cuts, each once; returns how many there are. */
static int sort_cuts(int64_t *cuts, int count)
{
    int kept = 0;
    qsort(cuts, (size_t)count, sizeof *cuts, compare_cuts);
    for (int c = 0; c < count; c++)
        if (!kept || cuts[kept - 1] != cuts[c])
            cuts[kept++] = cuts[c];
    return kept;
}

/* Sets the shares of a claim from cells that are all of its box. False: no memory. */
static bool set_cells(claim *made, pool *p, const claim_cell *cells, int64_t count)
{
    int64_t kept = 0;
    bool same = true;
    for (int64_t c = 0; c < count; c++) {
        same = same && field_equal(cells[c].share, cells[0].share);
        kept += !field_equal(cells[c].share, field_int(0));
    }
    made->share = count && same ? cells[0].share : field_int(0);
    made->cells = NULL;
    made->cell_count = 0;
    if (same || !kept)
        return true;
    claim_cell *own = POOL_NEW(p, claim_cell, kept);
    for (int64_t c = 0; own && c < count; c++)
        if (!field_equal(cells[c].share, field_int(0)))
            own[made->cell_count++] = cells[c];
    made->cells = own;
    return own != NULL;
}

/* ---- conversions ---- */

static int64_t cell_of(const int64_t *cuts, int count, int64_t place)
{
    int low = 0, high = count;
    while (low < high) {
        const int middle = (low + high) / 2;
        if (cuts[middle] < place)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* A conversion whose dimensions are shrunk: between two neighbouring cuts all elements are treated alike, so one stands for them. */
struct conversion {
    rule_array *arrays; /* inputs, then the output; elements are owned */
    const claim *claims;
    uint32_t count;     /* of arrays */
    int64_t *cuts[WEIR_DIMS_MAX]; /* owned, each */
    int cut_count[WEIR_DIMS_MAX];
};

static bool shrink(struct conversion *c, int d)
{
    size_t room = 2 * (size_t)c->count;
    int made = 0;
    for (uint32_t i = 0; i + 1 < c->count; i++)
        room += 2 * (size_t)c->claims[i].cell_count;
    int64_t *cuts = c->cuts[d] = calloc(room, sizeof *cuts);
    if (!cuts)
        return false;
    for (uint32_t i = 0; i < c->count; i++) {
        cuts[made++] = c->arrays[i].start[d];
        cuts[made++] = c->arrays[i].start[d] + c->arrays[i].shape[d];
        for (int k = 0; i + 1 < c->count && k < c->claims[i].cell_count; k++) {
            cuts[made++] = c->claims[i].cells[k].start[d];
            cuts[made++] = c->claims[i].cells[k].end[d];
        }
    }
    const int kept = c->cut_count[d] = sort_cuts(cuts, made);
    for (uint32_t i = 0; i < c->count; i++) {
        rule_array *array = &c->arrays[i];
        const int64_t first = cell_of(cuts, kept, array->start[d]);
        array->shape[d] = cell_of(cuts, kept, array->start[d] + array->shape[d]) - first;
        array->start[d] = first;
        array->global[d] = kept;
    }
    return true;
}

/* The n-th cell of a shrunk array, in logical indexes. */
static claim_cell cell_at(const struct conversion *c, const rule_array *array, int64_t n)
{
    claim_cell cell = {.share = field_int(0)};
    int64_t index[WEIR_DIMS_MAX] = {0};
    rule_index(array, n, index);
    for (int d = 0; d < array->rank && c->cuts[d]; d++) {
        cell.start[d] = c->cuts[d][array->start[d] + index[d]];
        cell.end[d] = c->cuts[d][array->start[d] + index[d] + 1];
    }
    return cell;
}

static field_value converted(uint64_t seed, bool output, int64_t place)
{
    return field_draw(seed, "converted", (const int64_t[]){output, place}, 2);
}

/* An input has its share of each logical value, the output something else. */
static bool fill_shrunk(uint64_t seed, struct conversion *c)
{
    bool ok = true;
    for (uint32_t i = 0; ok && i < c->count; i++) {
        rule_array *array = &c->arrays[i];
        const bool output = i + 1 == c->count;
        array->count = rule_size(array, 0, array->rank);
        array->at = malloc((size_t)array->count * sizeof(field_value) + 1);
        ok = array->at != NULL;
        for (int64_t n = 0; ok && n < array->count; n++) {
            array->at[n] = converted(seed, output, rule_logical(array, n));
            if (!output)
                array->at[n] = field_mul(array->at[n], claim_share_at(&c->claims[i], cell_at(c, array, n).start, array->rank));
        }
    }
    return ok;
}

/* The share that the output has of each logical value. */
static bool take_shares(uint64_t seed, const struct conversion *c, pool *p, claim *made)
{
    const rule_array *out = &c->arrays[c->count - 1];
    claim_cell *cells = calloc((size_t)out->count + 1, sizeof *cells);
    for (int64_t n = 0; cells && n < out->count; n++) {
        cells[n] = cell_at(c, out, n);
        cells[n].share = field_div(out->at[n], converted(seed, false, rule_logical(out, n)));
    }
    const bool ok = cells && set_cells(made, p, cells, out->count);
    free(cells);
    return ok;
}

/* Whether the arrays are small enough: the sizes of a plan from a file may multiply to anything. */
static bool is_small(const struct conversion *c)
{
    const rule_array *out = &c->arrays[c->count - 1];
    int64_t cells = 1;
    for (int d = 0; d < out->rank && cells <= CELLS_MAX; d++)
        cells *= out->global[d];
    return cells <= CELLS_MAX;
}

static weir_status convert(struct conversion *c, pool *p, const rule_call *call, claim *made)
{
    const rule_array *out = &c->arrays[c->count - 1];
    rule_call own = *call;
    bool fits = true, ok = true;
    for (uint32_t i = 0; i + 1 < c->count; i++)
        fits = fits && rule_same_whole(&c->arrays[i], out);
    for (int d = 0; fits && ok && d < out->rank; d++)
        ok = shrink(c, d);
    if (!fits)
        return WEIR_E_WRONG;
    if (!ok || !is_small(c) || !fill_shrunk(call->seed, c))
        return WEIR_E_MEMORY;
    own.in = c->arrays;
    own.out = out;
    if (!rule_find(call->op->name)(&own))
        return WEIR_E_WRONG;
    return take_shares(call->seed, c, p, made) ? WEIR_OK : WEIR_E_MEMORY;
}

weir_status claim_convert(claim *made, pool *p, const rule_call *given, const claim *claims, char *error, size_t error_bytes)
{
    struct conversion c = {.claims = claims, .count = (uint32_t)given->in_count + 1};
    rule_call call = *given;
    weir_status status = WEIR_E_MEMORY;
    call.error = error;
    call.error_bytes = error_bytes;
    c.arrays = calloc(c.count, sizeof *c.arrays);
    if (c.arrays) {
        memcpy(c.arrays, call.in, (size_t)call.in_count * sizeof *c.arrays);
        c.arrays[call.in_count] = call.out[0];
        for (uint32_t i = 0; i < c.count; i++)
            c.arrays[i].at = NULL;
        snprintf(error, error_bytes, "its operands do not fit each other");
        status = convert(&c, p, &call, made);
    }
    if (status == WEIR_E_MEMORY)
        snprintf(error, error_bytes, "no memory");
    for (uint32_t i = 0; c.arrays && i < c.count; i++)
        free(c.arrays[i].at);
    for (int d = 0; d < WEIR_DIMS_MAX; d++)
        free(c.cuts[d]);
    free(c.arrays);
    return status;
}
