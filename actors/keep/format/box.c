/* actors/keep/format/box.c: boxes of elements.
 *
 * Runs take in as many of the innermost dimensions as are whole in both boxes, and one more; the rest is counted
 * through like an odometer. So rows of a matrix that was split by rows are one run, and columns one a row.
 */
#include "actors/keep/format/box.h"

struct keep_box keep_box_of(const int64_t *start, const weir_shape *shape)
{
    struct keep_box box = {.rank = shape->rank};
    for (int d = 0; d < shape->rank; d++) {
        box.start[d] = start ? start[d] : 0;
        box.size[d] = shape->dim[d];
    }
    return box;
}

bool keep_box_equal(const struct keep_box *a, const struct keep_box *b)
{
    bool equal = a->rank == b->rank;
    for (int d = 0; equal && d < a->rank; d++)
        equal = a->start[d] == b->start[d] && a->size[d] == b->size[d];
    return equal;
}

int64_t keep_box_count(const struct keep_box *box)
{
    int64_t count = 1;
    for (int d = 0; d < box->rank; d++)
        count *= box->size[d];
    return count;
}

bool keep_box_common(const struct keep_box *a, const struct keep_box *b, struct keep_box *common)
{
    *common = (struct keep_box){.rank = a->rank};
    for (int d = 0; d < a->rank; d++) {
        int64_t a_end = a->start[d] + a->size[d], b_end = b->start[d] + b->size[d];
        common->start[d] = a->start[d] > b->start[d] ? a->start[d] : b->start[d];
        common->size[d] = (a_end < b_end ? a_end : b_end) - common->start[d];
        if (common->size[d] <= 0)
            return false;
    }
    return true;
}

bool keep_box_inside(const struct keep_box *box, const weir_shape *shape)
{
    if (box->rank != shape->rank)
        return false;
    for (int d = 0; d < box->rank; d++)
        if (box->start[d] < 0 || box->size[d] < 0 || box->start[d] > shape->dim[d] ||
            box->size[d] > shape->dim[d] - box->start[d])
            return false;
    return true;
}

struct keep_runs keep_runs_of(const struct keep_box *common, const struct keep_box *from, const struct keep_box *to)
{
    struct keep_runs runs = {.count = 1};
    int64_t from_stride = 1, to_stride = 1;
    bool whole = true; /* all dimensions inside of d are, in both */
    for (int d = common->rank - 1; d >= 0; d--) {
        runs.from += (common->start[d] - from->start[d]) * from_stride;
        runs.to += (common->start[d] - to->start[d]) * to_stride;
        if (whole) {
            runs.count *= common->size[d];
        } else {
            runs.size[runs.outer] = common->size[d];
            runs.from_stride[runs.outer] = from_stride;
            runs.to_stride[runs.outer++] = to_stride;
        }
        whole = whole && common->size[d] == from->size[d] && common->size[d] == to->size[d];
        from_stride *= from->size[d];
        to_stride *= to->size[d];
    }
    return runs;
}

bool keep_runs_next(struct keep_runs *runs)
{
    for (int i = 0; i < runs->outer; i++) {
        runs->from += runs->from_stride[i];
        runs->to += runs->to_stride[i];
        if (++runs->at[i] < runs->size[i])
            return true;
        runs->from -= runs->size[i] * runs->from_stride[i];
        runs->to -= runs->size[i] * runs->to_stride[i];
        runs->at[i] = 0;
    }
    return false;
}
