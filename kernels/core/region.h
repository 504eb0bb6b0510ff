/* kernels/core/region.h: where two shards of a tensor meet; what a conversion moves. Pure functions; any thread. */
#ifndef KERNELS_CORE_REGION_H
#define KERNELS_CORE_REGION_H

#include <string.h>

#include <weir/op.h>

/* The intersection of two boxes is a box. */
typedef struct region {
    int64_t count[WEIR_DIMS_MAX];       /* elements of the intersection */
    int64_t from_stride[WEIR_DIMS_MAX]; /* in elements */
    int64_t to_stride[WEIR_DIMS_MAX];
    int64_t from_first, to_first;
    int outer;                          /* dimensions that are looped over; the rest is one run */
    int64_t run;
} region;

/* False when the two do not meet. */
static inline bool region_meet(const weir_view *from, const weir_view *to, region *r)
{
    int64_t from_stride = 1, to_stride = 1;
    memset(r, 0, sizeof *r);
    r->run = 1;
    for (int d = to->shape.rank - 1; d >= 0; d--) {
        int64_t lo = from->offset[d] > to->offset[d] ? from->offset[d] : to->offset[d];
        int64_t from_end = from->offset[d] + from->shape.dim[d], to_end = to->offset[d] + to->shape.dim[d];
        int64_t hi = from_end < to_end ? from_end : to_end;
        if (hi <= lo)
            return false;
        r->count[d] = hi - lo;
        r->from_stride[d] = from_stride;
        r->to_stride[d] = to_stride;
        r->from_first += (lo - from->offset[d]) * from_stride;
        r->to_first += (lo - to->offset[d]) * to_stride;
        from_stride *= from->shape.dim[d];
        to_stride *= to->shape.dim[d];
    }
    return true;
}

/* Folds the trailing dimensions that are whole on both sides into one run. */
static inline void region_fold(const weir_view *from, const weir_view *to, region *r)
{
    r->outer = to->shape.rank;
    while (r->outer > 0) {
        int d = --r->outer;
        r->run *= r->count[d];
        if (r->count[d] != from->shape.dim[d] || r->count[d] != to->shape.dim[d])
            break;
    }
}

/* Whether both are the same box. */
static inline bool views_alike(const weir_view *a, const weir_view *b)
{
    size_t bytes = sizeof *a->offset * (size_t)a->shape.rank;
    return !memcmp(a->offset, b->offset, bytes) && !memcmp(a->shape.dim, b->shape.dim, bytes);
}

#endif
