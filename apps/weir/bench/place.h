/* apps/weir/bench/place.h: `weir bench place FILE.csv`: how well the compiler packs memory.
 *
 * The file is an instance of static memory allocation, a block per line, with the header `id,lower,upper,size`: the
 * block `id` takes `size` bytes and is alive on [lower, upper). place(), which gives temporaries and registers their
 * offsets, packs it as it packs an arena. The report gives the height, and a lower bound: the most bytes that are alive
 * at one time.
 */
#ifndef APPS_WEIR_BENCH_PLACE_H
#define APPS_WEIR_BENCH_PLACE_H

#include <stdbool.h>
#include <stdio.h>

/* Writes a JSON object or a table to `to`; returns the exit status. A mistake in the file is told on stderr, with file and
 * line. */
int bench_place(const char *program, const char *path, bool json, FILE *to);

#endif
