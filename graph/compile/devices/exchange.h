/* graph/compile/devices/exchange.h: conversions between accelerators, as collectives.
 *
 * A device cannot read what lies on another accelerator, so a conversion there is three nodes (copies.c makes them):
 *
 *     t --give--> parts of shards that others need     box, on the devices of t
 *       --take--> the same, on the devices of u        collective, on both: each device has one pop
 *       --box---> u                                    as on CPUs, from what was taken and the device's own shard
 *
 * So whoever adds has all terms at hand, in the order of the devices, and the bits are those of CPUs. The first and the last
 * are there where they must be: a part that lies in one piece in its shard is given as it lies (`within` in ir.h); and
 * where parts are all of u's shard and lie in one piece there, that is where they are taken, the device's own among them.
 *
 * Devices that hand nothing to each other need not wait for each other: of the pops of a conversion those that do, over
 * any number of others, are one collective. A tensor that nobody reads in the end is not moved.
 *
 * Where devices are to add by themselves, a sum along one axis is no such conversion, but one collective (sums.h).
 */
#ifndef GRAPH_COMPILE_DEVICES_EXCHANGE_H
#define GRAPH_COMPILE_DEVICES_EXCHANGE_H

#include "graph/compile/devices/sources.h"

#include <assert.h>

typedef struct exchanging {        /* the conversion that is being lowered */
    compile *c;
    sources *sources;
    int gives, takes;              /* tensors of parts */
    int node;                      /* that makes the former */
    POOL_LIST(int) in;             /* what each destination's box reads, one after the other */
    int *first;                    /* by destination: in `in`; one more than there are */
    int *terms;                    /* by destination, */
    bool *zero;                    /* as in sources.h */
    bool *gathered;                /* by destination: the collective has made it, and no box need */
    POOL_LIST(int) part, next;     /* parts that are given, and 1 + the next one of the same shard */
    int *part_of;                  /* by shard of the source: 1 + its last part; 0 */
    int *pop_of;                   /* by device: its pop, or -1 */
} exchanging;

/* Lowers the first two of the three nodes, of which `n` is the first. False: the error is set. */
bool exchange_lower(exchanging *x, int n);

/* Which of an exchange's moves somebody needs, given what is used; then what they give is used, too. */
void exchange_sweep(compile *c, int exchange, bool *used);

/* Makes collectives of what is left. False: no memory. */
bool exchanges_settle(compile *c);

/* Room for the operands of a pop: gives or takes of so many moves. And one more: of moves each is there once. */
bool collective_room(compile *c, pop *op, int gives, int takes);
void collective_operand(compile *c, int id, bool input, int tensor, bool once);

/* The place of a pop among the members: both come by rising device. */
static inline int collective_member(const pcollective *of, int pop_id)
{
    int first = 0, last = of->members.count - 1;
    while (first < last) {
        int middle = first + (last - first) / 2;
        if (of->members.item[middle] < pop_id)
            first = middle + 1;
        else
            last = middle;
    }
    assert(of->members.item[first] == pop_id);
    return first;
}

#endif
