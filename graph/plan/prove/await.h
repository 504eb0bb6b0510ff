/* graph/plan/prove/await.h: whether kernels may be enqueued behind a collective that is not over.
 *
 * A device runs its queues by itself. A kernel that reads the result of a collective can be enqueued, behind an await, as
 * soon as the device's own part of the collective is. The host then has nothing to do between the two. But the queue with
 * that await stands until all other members have come, and so does everything that is enqueued behind the await:
 *
 *     device 0    compute      K1 awaits M | K2          M needs K2: nothing goes on
 *                 collective   its part of M
 *     device 1    compute      K3 waits for what K2 made, by way of the host
 *                 collective   its part of M, after K3
 *
 * So a device may await a collective if everything that this collective and earlier ones need of the device is launched
 * before the device's own part in it. Copies from the host are excepted: where queues await collectives, the device's
 * queue for these copies awaits nothing at all, so it never stands. (Inputs need that: the host reads the next one when all
 * devices have copied the last one.) The rule for a device and a collective M:
 *
 *     Let all(M) be the firings that M needs, and those that collectives with earlier turns need, with all members. Let
 *     own(M) be the firings that must be launched before the device's own parts in M and in earlier ones. The device may
 *     await M if each firing in all(M) on a queue of the device that may stand is in own(M).
 *
 * Then nothing stands for ever. Suppose that it does. Take the first collective L, by turn, that is not over, and of all(L)
 * a firing F that is not over although everything that F needs is. F has been told of that. So F either stands behind an
 * await on a queue of some device, or finds no room for its mark behind one. That await is of a collective M that is not
 * over, so M is L or a later one, and it was enqueued after the device's own part in M. But F is in all(L), so in all(M), so
 * in own(M): it was launched before the device's part in M, hence before the await. That contradicts the first.
 *
 * A firing needs the slots that it reads, free slots to write, and, as a member of a collective, the other members. These are
 * the rules of the token game (graph/plan/prove/game.h), followed backwards.
 */
#ifndef GRAPH_PLAN_PROVE_AWAIT_H
#define GRAPH_PLAN_PROVE_AWAIT_H

#include "graph/plan/form/plan.h"

/* may[a], for each actor `a` that is a member of a collective on the device of `space`: whether queues of the device may
 * await what it does as soon as that is launched. Other places are left as they are. E_MEMORY. */
weir_status plan_may_await(const weir_plan *plan, plan_space_id space, bool *may);

#endif
