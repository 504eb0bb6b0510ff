/* tests/support/together.h: does everybody come to their end when devices do things together? A small model of hosts that
 * launch, queues that run ahead, and the rule of NCCL: a collective runs when it is the head of the queue of each of its
 * members, whichever group it is of, and until then nothing behind it does.
 *
 *     host:     launches a kernel on its queue when credits allow; on a queue for collectives, only the next of its order
 *     queues:   fake:0 compute      a2 a3          heads run in an order drawn from a seed, when what they read was made
 *               fake:0 collective   c0 c1          c0 runs, for it is the head of both
 *               fake:1 collective   c0
 *
 * A launched kernel's tokens are told at once, so that others launch behind it, or when it has run; which of the two is
 * drawn for each actor on an accelerator. A collective's are told when it has run; where its queue is awaited that is
 * drawn, too, for what other queues of the device are told. Queues have room for so many launches, which is drawn.
 *
 * Nothing is taken from the token game or from the runtime, which are held against this.
 */
#ifndef TESTS_SUPPORT_TOGETHER_H
#define TESTS_SUPPORT_TOGETHER_H

#include "graph/plan/form/plan.h"

enum { TOGETHER_TEXT_BYTES = 256 };

/* The collectives that a queue launches in a step, in this order; may be changed. Each program has its own. */
struct together_order {
    uint32_t *collectives;
    uint32_t count;
};

struct together;

/* Borrows the plan; orders are those of its turns. */
struct together *together_new(const weir_plan *plan);
void together_free(struct together *together);
struct together_order *together_order(struct together *together, uint32_t queue);

/* By actor, borrowed: queues of a member's device may be told what it does when it is launched. Then copies from the host to
 * there are told nothing before it has run. NULL: no member's. */
void together_await(struct together *together, const bool *members);

/* Plays so many steps of each program, and true; or false, and in `why` who waits. */
bool together_play(struct together *together, uint32_t steps, uint64_t seed, char why[TOGETHER_TEXT_BYTES]);

/* Writes as many turns as the plan has: in an order in which a step can be played, drawn from the seed. Where there is
 * none, the rest come in the order of their numbers. */
void together_draw_turns(const weir_plan *plan, uint64_t seed, plan_collective_id *turns);

#endif
