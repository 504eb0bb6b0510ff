/* graph/plan/lives/arrivals.h: what comes from another rank may come to where it is to lie in the end.
 *
 *     rank 0   [ sum of 0 |          ]   gathered    the sum of 1 is to be copied there, and is received there instead:
 *                              ^                     no receive slot, and no copy
 *     rank 1              sum of 1
 *
 * A gather leaves an input be that lies in its place of the output (window.h). A tensor of another rank is nowhere in this
 * rank's arena until it comes, so it may come there if nobody needs these bytes from then on: from the end of the firing that
 * makes it, for nothing is sent before, to the firing of the gather, which is what the gathered tensor's own life begins
 * with. D is as in lives.h; P makes the part, A gathers, and
 *
 *     - the next part is not made before the last reader of what was gathered is done:   D(readers, P) <= 1
 *     - for all else that has some of these bytes, D(its ends, end of P) + D(A, its start) <= 1
 *
 * where D(P, end of P) is 0: what P itself reads has been read when its firing is over. So the terms of a sum, which were
 * sent to P, are done with when the sum comes back. If a tensor lies where the gathered one does, as terms do, only those
 * readers count that read the same elements.
 *
 * All of this is between firings of actors that fire once a step, which conversions of gradients and parameters do. A
 * transfer without such a proof comes into a receive slot. The sender has nothing to do with it.
 *
 * Reads a plan that was validated; any thread.
 */
#ifndef GRAPH_PLAN_LIVES_ARRIVALS_H
#define GRAPH_PLAN_LIVES_ARRIVALS_H

#include <weir/weir.h>

#include "graph/plan/form/plan.h"

typedef struct arrival {
    uint32_t port;         /* on the register of another rank */
    bool proven;           /* and if so: */
    plan_tensor_id within; /* what is gathered, in a register of one slot or a temporary */
    plan_space_id space;   /* of the reader */
    uint64_t place;        /* byte of its arena */
} arrival;

/* Looks at all ports of the list, and fills in the rest. E_MEMORY. */
weir_status arrivals_prove(const weir_plan *plan, arrival *list, uint32_t count);

#endif
