/* apps/weir/bench/stored.h: products of weights that are read as they are stored. */
#ifndef APPS_WEIR_BENCH_STORED_H
#define APPS_WEIR_BENCH_STORED_H

#include <stdio.h>
#include <weir/weir.h>

/* Writes to `to` the rates of one core, for each format and some numbers of rows. WEIR_OK, or the error is in weir_error(). */
weir_status bench_stored(bool json, bool quick, FILE *to);

#endif
