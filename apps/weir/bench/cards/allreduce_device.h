/* apps/weir/bench/cards/allreduce_device.h: `weir bench allreduce --device cuda`: a partial sum on accelerators becomes the whole
 * sum on each (P -> B), f32. Alone, all devices are this process's; under `weir launch -n N` each of N processes has its
 * share of them, and the first one writes.
 *
 *     moves_us      weir's sum: parts are moved, added by each device in the order of the devices, and moved again
 *     fast_us       with .reduce = WEIR_FAST (--fast-reduce): as the devices' communicator adds
 *     kernels_us    the same step without a sum: what makes the terms and what reads the sum, which are in all three
 *
 * A step's terms wait for what the step before came to, so no two sums overlap. Figures are medians of rounds, which
 * alternate; that the sums were right is checked at the end.
 */
#ifndef APPS_WEIR_BENCH_ALLREDUCE_DEVICE_H
#define APPS_WEIR_BENCH_ALLREDUCE_DEVICE_H

#include "apps/weir/bench/allreduce.h"

/* opts->ranks: so many devices [one for each process; alone, all that there are]. Writes a JSON object or a table to `to`. */
weir_status bench_allreduce_device(const char *device, const bench_allreduce_opts *opts, bool json, bool quick, FILE *to);

#endif
