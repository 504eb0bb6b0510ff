/* graph/compile/windows.h: which registers could lie within what is gathered from them (graph/plan/window.h).
 *
 * A device's own share of a sum, or of anything else, that it gathers need not be copied when it is made where it belongs.
 * Layout asks for all there are, once, and lets each be placed as a guest of the part that it lies within. Of shares of one
 * tensor each may be a guest, but no guest is a host: of a gather by levels (teams.h) it is the last, which moves most,
 * that is spared.
 */
#ifndef GRAPH_COMPILE_WINDOWS_H
#define GRAPH_COMPILE_WINDOWS_H

#include "graph/compile/ir.h"
#include "graph/plan/lives.h"

typedef struct window_wish {
    int device, reg, tensor;       /* a register, and the ptensor that it is gathered into */
    uint64_t bytes, at;            /* of the register; from the start of the tensor */
} window_wish;

typedef struct window_list {
    window_wish *item;             /* by device, the largest first; the compilation's pool */
    int count;
} window_list;

/* Looks for all, in the plan that the compilation was written as without offsets. False: no memory. */
bool windows_list(compile *c, window_list *list);

/* Makes guests of those of one device for which it is proven safe, as far as both were to be placed: `known` has entered
 * the device. Returns how many. */
int windows_enter(compile *c, const lives *known, const window_list *list, int device);
void windows_leave(compile *c, const window_list *list, int device);

/* The life of a part, in the plan's terms. */
life windows_life(const compile *c, const block *b);

#endif
