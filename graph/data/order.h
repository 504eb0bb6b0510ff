/* graph/data/order.h: the order of the samples of an epoch.
 *
 * A random permutation of 0 .. count - 1 for each seed and epoch, as a function of one index: it needs no memory and no earlier
 * index, so each process finds the samples of a step by itself.
 *
 * It is a Feistel network (Luby and Rackoff 1988) over the smallest even number of bits that holds all indexes, whose rounds
 * draw from Philox. A network permutes all numbers of so many bits; an index whose image is `count` or more goes through the
 * network again, until it is less (Black and Rogaway 2002, "cycle walking"). There are fewer than 4 count numbers, so this takes
 * fewer than 4 walks on average. Pure; any thread.
 */
#ifndef GRAPH_DATA_ORDER_H
#define GRAPH_DATA_ORDER_H

#include <stdint.h>

/* The sample at place `index` < count of this epoch; count is at most 2^62. */
uint64_t order_at(uint64_t count, uint64_t seed, uint64_t epoch, uint64_t index);

#endif
