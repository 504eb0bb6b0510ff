/* graph/compile/budget/limit.h: what a plan gives up to keep within a limit.
 *
 * A limit on the bytes of a device (weir_compile(.memory)) is an input like the graph: what is over it is traded for
 * time. These are given up, in this order:
 *
 *     edges      gradients are reduced before the backward phase goes on (tie.c); first, as it costs next to nothing
 *     slots      less is under way between hosts; what moves between devices no longer overlaps with its use; then
 *                pipelines get less deep
 *     recompute  what forward made is made again in the backward phase (recompute.h)
 *     offload    or waits on a disk, where one is given (offload.h), and at last the states of updates do
 *
 * Every trade has a price in seconds a step, by the model of a machine, or by rates (sbp/machine.h), and none changes what is computed: the
 * same kernels get the same values. A limit that cannot be kept is refused with the smallest that can be kept.
 *
 * Three files say for how long something is needed, each as exactly as its question asks:
 *
 *     estimate.h estimates, in the order of events: a value is there from its event to its last reader; what several
 *                slots hold is there always; parameters and packing are left out. It chooses the order of rungs alone.
 *     lives.h    proves, for every order of firings that credits allow: it finds more parts alive together than the
 *                estimate does, because two actors that nothing orders may run in either order. Only this proof lets
 *                parts share bytes.
 *     fit.c      counts a register that loses a slot as if it shared no bytes (backend/). Offsets have the last word on every
 *                rung.
 *
 * So a wrong estimate costs seconds or bytes, and never a value.
 */
#ifndef GRAPH_COMPILE_BUDGET_LIMIT_H
#define GRAPH_COMPILE_BUDGET_LIMIT_H

#include "graph/compile/ir/ir.h"

/* Rungs of the ladder that are tried when the last does not fit, before the best is refined. Tests try all. */
extern int limit_grid;

/* Called for each rung that is tried, with the ladder's estimate and with the bytes of its real layout. For tests; NULL. */
extern void (*limit_heard)(double counted, uint64_t bytes);

/* The plan of a compilation with a limit, behind the box pass. NULL: an error, or nothing fits (E_MEMORY). */
weir_plan *limit_plan(compile *c);

#endif
