/* apps/weir/bench/scale.h: `weir bench scale`: what it takes to compile plans for many devices.
 *
 * The model is GPT's small one (dim 128, 4 heads, seq 128), data parallel over 8 to 1,024 devices with 4 layers, and
 * 16 x 8 x 8 (dp, tp, pp) with 64: a row per device and micro-batch, and as many micro-batches as there are stages.
 * For each plan it prints the seconds that weir_compile() took, the bytes of its file, and its ports, which are the edges
 * between actors. Nothing is run: one machine compiles for more devices than it has.
 */
#ifndef APPS_WEIR_BENCH_SCALE_H
#define APPS_WEIR_BENCH_SCALE_H

#include <stdbool.h>
#include <stdio.h>
#include <weir/weir.h>

enum { BENCH_SCALE_LAYERS = 4 }; /* where nobody says another number */

typedef struct bench_scale_opts {
    int devices;            /* only plans of at most so many; 0: all */
    int layers, dp, tp, pp; /* a plan of one's own instead of the list: where one of them is not 0 */
} bench_scale_opts;

/* Writes a JSON object or a table to `to`. `quick` compiles each plan once, rather than small ones several times. */
weir_status bench_scale(const bench_scale_opts *opts, bool json, bool quick, FILE *to);

#endif
