/* apps/weir/measure_link.h: links between ranks, measured for weir measure: of processes on this machine over each carrier, and of two hosts.
 *
 * Two ranks pass values of 64 bytes to 16 MiB: there and back, halved (once), and one way as fast as they go (stream). Then one
 * rank's worker computes all the time, which takes it longer by as much as the values cost its processor (sends, receives).
 */
#ifndef APPS_WEIR_MEASURE_LINK_H
#define APPS_WEIR_MEASURE_LINK_H

#include "graph/time/rates.h"

/* Links of this machine, and how long a message takes from process to process in shared memory. Takes about twenty seconds. UCX is left out
 * where it is not there. Forks: to be called by a process that has no other threads. */
weir_status measure_links(weir_rates *rates);

/* How long a message takes from process to process in shared memory, alone. Forks, as the above. */
weir_status measure_process(weir_rates *rates);

/* The link of two hosts, by ranks 0 and 1 of a cluster, which call it at the same time: over UCX if WEIR_CARRIER names it, else over
 * TCP; without a key if WEIR_INSECURE is 1. Both get the rates. */
weir_status measure_link_between(weir_rates *rates);

#endif
