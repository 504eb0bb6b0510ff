/* apps/weir/bench/fuse.h: what one pass over memory gains over several. */
#ifndef APPS_WEIR_BENCH_FUSE_H
#define APPS_WEIR_BENCH_FUSE_H

#include <stdio.h>
#include <weir/weir.h>

/* Writes to `to` the median step of chains of tensors of several sizes, fused and not, in turns. WEIR_OK, or the error
 * is in weir_error(). */
weir_status bench_fuse(bool json, bool quick, FILE *to);

#endif
