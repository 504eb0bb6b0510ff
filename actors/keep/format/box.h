/* actors/keep/format/box.h: boxes of elements: what a shard holds of a logical tensor, and what somebody asks for.
 *
 * A box is a first element and as many as `size` in every dimension. It lies in memory, or in a file, row-major without
 * gaps, so the elements of one box that are in another are a number of *runs*: elements that follow each other in both.
 * Pure functions; any thread.
 */
#ifndef ACTORS_KEEP_FORMAT_BOX_H
#define ACTORS_KEEP_FORMAT_BOX_H

#include <weir/base.h>

struct keep_box {
    int rank;
    int64_t start[WEIR_DIMS_MAX], size[WEIR_DIMS_MAX];
};

struct keep_box keep_box_of(const int64_t *start, const weir_shape *shape); /* start NULL: from the first element */
bool keep_box_equal(const struct keep_box *a, const struct keep_box *b);

/* Elements; 1 of a scalar. */
int64_t keep_box_count(const struct keep_box *box);

/* The box that both share; false when nothing is. */
bool keep_box_common(const struct keep_box *a, const struct keep_box *b, struct keep_box *common);

/* Whether the box lies in a tensor of this shape. The numbers may be anything. */
bool keep_box_inside(const struct keep_box *box, const weir_shape *shape);

/* The runs of `common` in the boxes `from` and `to`, both of which hold it, in ascending order: elements from the
 * beginning of each box.
 *
 *     struct keep_runs runs = keep_runs_of(&common, &from, &to);
 *     do
 *         copy(to + runs.to, from + runs.from, runs.count);
 *     while (keep_runs_next(&runs));
 */
struct keep_runs {
    int64_t from, to, count;
    int outer;                        /* dimensions that are counted through */
    int64_t at[WEIR_DIMS_MAX], size[WEIR_DIMS_MAX], from_stride[WEIR_DIMS_MAX], to_stride[WEIR_DIMS_MAX];
};
struct keep_runs keep_runs_of(const struct keep_box *common, const struct keep_box *from, const struct keep_box *to);
bool keep_runs_next(struct keep_runs *runs);

#endif
