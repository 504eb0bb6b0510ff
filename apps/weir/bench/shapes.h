/* apps/weir/bench/shapes.h: times of calls of random shapes, as they follow from those of others, beside measured ones. */
#ifndef APPS_WEIR_BENCH_SHAPES_H
#define APPS_WEIR_BENCH_SHAPES_H

#include <weir/base.h>

#include <stdbool.h>
#include <stdio.h>

weir_status bench_shapes(bool json, bool quick, FILE *to);

#endif
