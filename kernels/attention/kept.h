/* kernels/attention/kept.h: what the rules of attention behind kept rows (kept.c) and its CPU kernel (kept_rows.c) know of each other.
 * Pure functions; any thread.
 */
#ifndef KERNELS_ATTENTION_KEPT_H
#define KERNELS_ATTENTION_KEPT_H

#include "kernels/attention/formula.h"

#include <stddef.h>

/* Scratch bytes for `rows` new rows and `room` kept ones, for one group of heads of `width` columns. */
size_t kept_rows_workspace(int64_t rows, int64_t room, int64_t group, int64_t width);

/* The kernel of attention_kept, and with a window (0: none) or a mask that of attention_kept_masked. */
weir_status kept_rows_run(const weir_kernel_args *args, int64_t window);

/* The error of a position at which the new rows do not fit. */
weir_status kept_refused(const weir_kernel_args *args, int64_t at, int32_t position);

#endif
