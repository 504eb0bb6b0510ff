/* nest.c: see the header. */
#include "kernels/common/nest.h"

#include <assert.h>

nest nest_over(const weir_shape *shape)
{
    nest n = {.rank = shape->rank};
    for (int d = 0; d < shape->rank; d++)
        n.dim[d] = shape->dim[d];
    return n;
}

void nest_strides(const weir_shape *shape, int64_t *stride)
{
    int64_t step = 1;
    for (int d = shape->rank - 1; d >= 0; d--) {
        stride[d] = step;
        step *= shape->dim[d];
    }
}

void nest_operand(nest *n, const int64_t *stride)
{
    assert(n->operands < NEST_OPERANDS);
    for (int d = 0; d < n->rank; d++)
        n->stride[n->operands][d] = stride[d];
    n->operands++;
}

void nest_broadcast(nest *n, const weir_shape *shape)
{
    int64_t own[WEIR_DIMS_MAX] = {0}, stride[WEIR_DIMS_MAX] = {0};
    int missing = n->rank - shape->rank;
    assert(missing >= 0);
    nest_strides(shape, own);
    for (int d = 0; d < shape->rank; d++)
        stride[d + missing] = shape->dim[d] == 1 ? 0 : own[d];
    nest_operand(n, stride);
}

/* Whether walking `outer` then `inner` is one walk for every operand. */
static bool joins(const nest *n, int outer, int inner)
{
    for (int k = 0; k < n->operands; k++)
        if (n->stride[k][outer] != n->stride[k][inner] * n->dim[inner])
            return false;
    return true;
}

static void move_dim(nest *n, int from, int to)
{
    n->dim[to] = n->dim[from];
    for (int k = 0; k < n->operands; k++)
        n->stride[k][to] = n->stride[k][from];
}

/* Dimension `last` swallows `d`, which lies just inside it. */
static void join(nest *n, int last, int d)
{
    int64_t outer = n->dim[last];
    move_dim(n, d, last);
    n->dim[last] *= outer;
}

void nest_collapse(nest *n)
{
    int last = -1;
    for (int d = 0; d < n->rank; d++) {
        if (n->dim[d] == 1)
            continue;
        if (last >= 0 && joins(n, last, d))
            join(n, last, d);
        else
            move_dim(n, d, ++last);
    }
    if (last < 0) {
        n->dim[++last] = 1;
        for (int k = 0; k < n->operands; k++)
            n->stride[k][last] = 0;
    }
    n->rank = last + 1;
}
