/* apps/weir/bench/figures.h: measures of the same at several sizes, held against each other. The rounds of all alternate;
 * a figure is the median of its rounds, and a ratio the median of the rounds' ratios. */
#ifndef APPS_WEIR_BENCH_FIGURES_H
#define APPS_WEIR_BENCH_FIGURES_H

#include <stdio.h>

#include "apps/weir/bench/ranks.h"

enum { BENCH_ROUNDS_MAX = 5, BENCH_MEASURES_MAX = 16, BENCH_CELLS_MAX = 16 };

struct bench_measure {
    const char *name, *text;
    bench_over over;
    weir_status (*run)(const struct bench_round *round, double *seconds);
};

/* The time of one over that of another; both are over the same. */
struct bench_ratio {
    const char *name;
    int one, other; /* in `measures` */
};

/* All measures, of so many ranks and bytes. */
struct bench_cell {
    struct bench_round round;
    double seconds[BENCH_MEASURES_MAX][BENCH_ROUNDS_MAX];
    double median[BENCH_MEASURES_MAX], ratio[BENCH_MEASURES_MAX];
};

struct bench_figures {
    const struct bench_measure *measures;
    const struct bench_ratio *ratios;
    int measure_count, ratio_count, rounds;
    bench_over over;                  /* only these are measured */
    struct bench_cell cell[BENCH_CELLS_MAX];
    int cell_count;
    const char *unit;                 /* of a key in JSON: "us" */
    double per_second;                /* so many of them */
    int decimals;
    int text_width, us_decimals;      /* in a table, which tells us */
};

weir_status bench_figures_take(struct bench_figures *f);

/* Writes a cell's figures, each behind a comma: `, "shm_us": 1.234, "shm_of_bare": 1.100`. */
void bench_figures_json(const struct bench_figures *f, const struct bench_cell *cell, FILE *to);

/* The rest of a line that begins with its head, and those below it: a column for each of `count` cells. */
void bench_figures_table(const struct bench_figures *f, const struct bench_cell *cells, int count, FILE *to);

#endif
