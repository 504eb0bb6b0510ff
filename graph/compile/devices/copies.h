/* graph/compile/devices/copies.h: what an accelerator and the host hand to each other.
 *
 * An accelerator computes in memory of its own. Beside it lies memory of the host's, PINNED, with the accelerator's index
 * and so of its rank: there the host's functions, and conversions between devices, do for it what they do on a CPU.
 * Between the two go copies, on two queues of the accelerator's:
 *
 *     accelerator     ... make t ---.                    .---> reader of u ...
 *                                copy out             copy in
 *     pinned                         '--> t.out   u -----'
 *                                           \    ^
 *     pinned or cpu, here or elsewhere       conversion, source, sink, call, push, pull
 *
 * These move, of nodes on a mesh of accelerators:
 *
 *   - sources, sinks, calls, push and pull: to the PINNED memory of the same devices. They run on its queues as they would
 *     on a CPU's;
 *   - a conversion from accelerators to accelerators of the same kind, for one that computes there: it is split into what
 *     they give to each other, a collective, and what each makes of it (exchange.h), or is a sum of theirs (sums.h). One that
 *     reads on each device what it holds itself needs no more than that;
 *   - any other conversion that reads another device: it runs on the PINNED memory of the destination, and reads PINNED
 *     copies of its sources, or those of them that are on CPUs where they lie. A value that such conversions make for each
 *     other alone never sees the accelerator;
 *   - what goes to a disk, and comes back, passes through the same memory.
 *
 * A value is copied at most once a step and program, and each way only if someone there reads it. A copy out stands in
 * front of its first reader, which for a conversion is right behind what it converts; a copy in right behind what makes
 * the value. Where no accelerator is, nothing changes.
 *
 * The pass works on the nodes that limit.c has chosen, so repetitions and what waits on a disk get their copies too, and
 * it leaves what it is given as it was: c->ir is then another graph.
 */
#ifndef GRAPH_COMPILE_DEVICES_COPIES_H
#define GRAPH_COMPILE_DEVICES_COPIES_H

#include "graph/compile/ir/ir.h"

#endif
