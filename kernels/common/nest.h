/* kernels/common/nest.h: loops over up to six dimensions in which every operand has its own stride per dimension.
 *
 * Broadcasting, reductions, transposes and slices are all the same walk: over one shape, row-major, with a stride of 0
 * where an operand is repeated (or summed into). nest_collapse() drops dimensions of 1 and merges neighbours that every
 * operand passes through without a jump, so that what is left is as few and as long loops as can be; the kernel runs
 * its fast code over the last dimension and nest_step() moves over the others:
 *
 *     nest n = nest_over(&out->shape);
 *     nest_broadcast(&n, &in->shape);              // operand 0
 *     nest_collapse(&n);                           // the walked shape itself: position row * nest_inner(&n)
 *     nest_pos pos = {0};
 *     for (int64_t row = 0; row < nest_rows(&n); row++, nest_step(&n, &pos))
 *         use(x + pos.at[0], n.stride[0][n.rank - 1], y + row * nest_inner(&n), nest_inner(&n));
 *
 * Values only; owns nothing; any thread.
 */
#ifndef KERNELS_COMMON_NEST_H
#define KERNELS_COMMON_NEST_H

#include <weir/op.h>

enum { NEST_OPERANDS = 3 };

typedef struct nest {
    int rank; /* at least 1 once collapsed */
    int operands;
    int64_t dim[WEIR_DIMS_MAX];
    int64_t stride[NEST_OPERANDS][WEIR_DIMS_MAX]; /* in elements */
} nest;

/* Where a walk stands: the index of the outer dimensions, and every operand's offset in elements. */
typedef struct nest_pos {
    int64_t index[WEIR_DIMS_MAX];
    int64_t at[NEST_OPERANDS];
} nest_pos;

nest nest_over(const weir_shape *shape);

/* An operand without gaps of a shape that broadcasts to the walked one: stride 0 where it repeats. */
void nest_broadcast(nest *n, const weir_shape *shape);

/* An operand with these strides, one per walked dimension. */
void nest_operand(nest *n, const int64_t *stride);

void nest_collapse(nest *n);

/* Row-major strides of a shape without gaps. */
void nest_strides(const weir_shape *shape, int64_t *stride);

static inline int64_t nest_inner(const nest *n)
{
    return n->dim[n->rank - 1];
}

/* Positions of the dimensions outside the last. */
static inline int64_t nest_rows(const nest *n)
{
    int64_t rows = 1;
    for (int d = 0; d + 1 < n->rank; d++)
        rows *= n->dim[d];
    return rows;
}

/* To the next position of the dimensions before the last `inside` ones. */
static inline void nest_step_outside(const nest *n, nest_pos *pos, int inside)
{
    for (int d = n->rank - inside - 1; d >= 0; d--) {
        for (int k = 0; k < n->operands; k++)
            pos->at[k] += n->stride[k][d];
        if (++pos->index[d] < n->dim[d])
            return;
        for (int k = 0; k < n->operands; k++)
            pos->at[k] -= n->stride[k][d] * n->dim[d];
        pos->index[d] = 0;
    }
}

static inline void nest_step(const nest *n, nest_pos *pos)
{
    nest_step_outside(n, pos, 1);
}

#endif
