/* apps/weir/bench/cards/instant.h: a kind of device whose queues run ahead, and are done with everything the moment that it is
 * enqueued: what is left is what firing on such a queue costs the host. It takes the place of WEIR_FAKE.
 */
#ifndef APPS_WEIR_BENCH_INSTANT_H
#define APPS_WEIR_BENCH_INSTANT_H

/* Makes the kind known to the process. */
void bench_instant(void);

#endif
