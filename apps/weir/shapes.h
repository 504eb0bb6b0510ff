/* apps/weir/shapes.h: a block of a transformer, and its training, whose calls have given shapes: to measure, and to predict. */
#ifndef APPS_WEIR_SHAPES_H
#define APPS_WEIR_SHAPES_H

#include <weir/weir.h>

typedef struct shapes {
    int64_t batch, seq, dim, heads, hidden, classes; /* heads must divide dim */
} shapes;

/* Its plan on one CPU device. NULL and weir_error(). */
weir_plan *shapes_plan(const shapes *s);

/* Blocks of sizes that lie evenly between small and large ones: shapes_grid(0), shapes_grid(1), ... False: there are no more. */
bool shapes_grid(int number, shapes *s);

#endif
