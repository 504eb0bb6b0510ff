/* graph/compile/backend/pace.h: slots by prediction. With rates, registers get as few slots as a step needs to be as short as it
 * can be, where the rule of actors/slots.c gives more, or too few.
 *
 *     pace_begin() -> pace_next(), until what it gives fits -> pace_end()
 *
 * The plan is played against a clock with the rates (graph/time/walk.h). It does not say on which processes it will run: the devices
 * of one host (.per_host; else all of them) share the cores that were measured.
 */
#ifndef GRAPH_COMPILE_BACKEND_PACE_H
#define GRAPH_COMPILE_BACKEND_PACE_H

#include "graph/compile/ir/ir.h"
#include "graph/time/walk.h"

typedef struct pace {
    compile *c;            /* borrowed */
    weir_predict_opts opts;
    prediction prediction; /* owned, as the next */
    walk walk;             /* without points: a device's times are not known */
    uint32_t at;           /* the point that the registers have; PLAN_NONE: none yet */
    int tries;
} pace;

/* Finds slots for a plan that has all but offsets. False: an error, which is set. Ended in any case. */
bool pace_begin(pace *p, compile *c, weir_plan *plan);

/* Gives registers the best slots; the next time fewer, with which steps are longer. False: none are left, and registers have those
 * that they had before. Registers that the user fixed and those with slots for a link keep theirs. */
bool pace_next(pace *p);

void pace_end(pace *p);

#endif
