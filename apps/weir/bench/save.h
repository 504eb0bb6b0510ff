/* apps/weir/bench/save.h: `weir bench save`: what it costs a training run to keep a checkpoint.
 *
 * The model of `weir bench gpt` on one device. Beside a step as it is: a save whose copy holds training up, and whose
 * writing goes on while steps run; what these take longer than steps as they are is the rest of its cost, in per cent
 * of a step per checkpoint. And how fast the bytes get to the disk, beside the same bytes written and synced by hand,
 * in the same folder: below TMPDIR, or /tmp.
 */
#ifndef APPS_WEIR_BENCH_SAVE_H
#define APPS_WEIR_BENCH_SAVE_H

#include <stdbool.h>
#include <stdio.h>
#include <weir/weir.h>

/* Runs for about a minute; writes a JSON object or a table to `to`. */
weir_status bench_save(bool json, bool quick, FILE *to);

#endif
