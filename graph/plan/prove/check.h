/* graph/plan/prove/check.h: the token game.
 *
 * A plan is a synchronous dataflow graph (Lee and Messerschmitt 1987): actors fire, registers hold at most `slots`
 * tokens, fill and hold are the rates. No two actors compete for a token, so firing one never disables another;
 * therefore if one order of firings completes a step and comes back to the initial marking, every order does, for
 * ever. The game plays one step, counting only, in O(firings).
 *
 *     live     every actor fired as often as a step asks, and the marking is the initial one again
 *     stalled  none can fire and some have not fired enough: then everyone who waits, waits for another who waits, and
 *              following them leads into a circle. The circle is the message. Somewhere in it an actor waits for a free
 *              slot of a register (short_of), or nothing in it starts full.
 *
 * The plan must have passed plan_validate(). Nothing is kept between calls; any thread.
 */
#ifndef GRAPH_PLAN_PROVE_CHECK_H
#define GRAPH_PLAN_PROVE_CHECK_H

#include "graph/plan/form/plan.h"

typedef struct check_result {
    bool live;
    uint32_t firings;       /* done before the end or the stall */
    plan_regst_id short_of; /* the register to give more slots to, or PLAN_NONE: of those in the circle that alone make
                               the plan live the one that costs least, best one that the user did not fix */
    uint32_t slots_needed;  /* of short_of, to make the plan live with no other change; 0: that is not enough */
    char text[1024];        /* "not live: a waits for ...", or "" */
} check_result;

/* WEIR_OK and *result, live or not; WEIR_E_MEMORY (and weir_error()) when there is no memory to play. */
weir_status check_play(const weir_plan *plan, check_result *result);

#endif
