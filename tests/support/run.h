/* tests/support/run.h: runs a plan as it is and keeps all that comes out of it.
 *
 * Every input that is to be pushed gets values that follow from (its name, step, micro-batch, element) alone; all
 * values of all fetches are kept, and the parameters as they are at the end. So a model in two layouts is compared by
 *
 *     run a = run_plan(one, 3, 1), b = run_plan(four, 3, 2);      // steps, workers
 *     run_near(&a, &b, 1e-5, "data parallel");
 *     run_free(&a), run_free(&b);
 *
 * f32 inputs are N(0, 1), i32 inputs 0 .. RUN_CLASSES - 1. Pushes and pulls take turns without waiting, so no plan can
 * wait for the test. Faults fail the Criterion test.
 */
#ifndef TESTS_SUPPORT_RUN_H
#define TESTS_SUPPORT_RUN_H

#include <weir/weir.h>

enum { RUN_CLASSES = 5, RUN_ENTRIES_MAX = 512 };

typedef struct run_entry { /* a fetch or a parameter */
    char name[64];
    double *value;         /* owned; of all steps, one after the other */
    int64_t count;
} run_entry;

typedef struct run {
    run_entry entry[RUN_ENTRIES_MAX]; /* by name */
    int count;
} run;

run run_plan(const weir_plan *plan, int64_t steps, int workers);
void run_free(run *r);
const run_entry *run_find(const run *r, const char *name); /* NULL: not there */

/* The same names with values within tolerance * (1 + |value|); tolerance 0: the same bits. `what` begins messages. */
void run_near(const run *got, const run *want, double tolerance, const char *what);

/* Element `i` of what is pushed to the input `name`. */
double run_input(const char *name, weir_dtype dtype, int64_t step, int micro, int64_t i);

/* The graph's plan, which is as plans have to be; its values begin at a seed of the tests'. Frees the graph. */
weir_plan *run_compile(weir_graph *graph, weir_compile_opts opts);

#endif
