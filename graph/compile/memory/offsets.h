/* graph/compile/memory/offsets.h: where everything lies on each device.
 *
 * Lives follow from who fires when, not from where anything lies. So backend/ writes a plan that has no offsets yet; lives.h is
 * asked about every pair of its parts, place() finds offsets, which are entered into that plan, and plan_validate() looks at all
 * that overlaps once more.
 */
#ifndef GRAPH_COMPILE_MEMORY_OFFSETS_H
#define GRAPH_COMPILE_MEMORY_OFFSETS_H

#include "graph/compile/memory/temps.h"
#include "graph/plan/lives/lives.h"

typedef struct offsets {           /* of one devices' form; the compilation's pool owns the lists */
    compile *c;
    bool hasty;                    /* they are to be found quickly, rather than as low as can be */
    temps temps;
    const weir_plan *plan;         /* borrowed: that of the question under way, */
    lives *known;                  /* borrowed: and its lives */
    block **of_reg;                /* by register: the part that it was placed as; NULL: it shares nothing */
} offsets;

/* When groups and registers are made. False: no memory. */
bool offsets_begin(offsets *o, compile *c, bool hasty);

/* Places everything, with as many slots as registers have now, and enters it in the devices' form: the bytes of each device are
 * phys.device.item[d].bytes then. `plan` is what was written of that form, and has the same slots. False: no memory. */
bool offsets_find(offsets *o, const weir_plan *plan, lives *known);

/* Whether parts of an arena share bytes where that is proven safe. Tests turn it off; nothing else does. */
extern bool offsets_share;

#endif
