/* graph/compile/devices/sources.h: what the box of one device, or of a chunk of its shard, reads.
 *
 * The sources of a conversion: of each slice of the source that meets the destination's, one copy (its own, if it can
 * be), or all terms if it is a partial sum, in the order of the devices.
 *
 * Devices of which the part does not meet the destination's are not looked at one by one, so that to find the few that a
 * conversion by tiers has (teams.h) does not take time in proportion to all of them.
 */
#ifndef GRAPH_COMPILE_DEVICES_SOURCES_H
#define GRAPH_COMPILE_DEVICES_SOURCES_H

#include "graph/compile/ir/ir.h"

typedef struct sources {           /* of one destination; its memory is the compilation's pool */
    int *item, count;              /* ptensors, terms of one slice next to each other */
    int terms;                     /* how many of each slice */
    bool zero;                     /* they may not cover the destination */
    int *places;                   /* of devices that have some; sources_find()'s own */
} sources;

/* Room for the largest conversion there is; chunks are chosen. False: no memory. */
bool sources_new(sources *s, compile *c);

/* Finds the sources of the device `at` of tensor `to`, a conversion of `from`, for this part of it. */
void sources_find(sources *s, const compile *c, int from, int to, int at, const slice *part);

/* Whether every device of the destination reads nothing but what it holds itself. */
bool sources_local(const ir_tensor *from, const ir_tensor *to);

#endif
