/* graph/plan/lives/touch.h: by which kernels of a firing a life in a slot begins and ends.
 *
 * Kernels are counted from the first of their actor. The arrays are the caller's, one place for each port or register.
 */
#ifndef GRAPH_PLAN_LIVES_TOUCH_H
#define GRAPH_PLAN_LIVES_TOUCH_H

#include "graph/plan/form/plan.h"

typedef struct touch {
    uint32_t *last_read;   /* by port: the last kernel that reads through it; UINT32_MAX where none does: the end */
    uint32_t *first_write; /* by register: the first kernel that writes there; 0 where none does */
    uint32_t *last_use;    /* by register: the last kernel of its producer that touches it; UINT32_MAX: the end */
    uint8_t *outside;      /* by register: whether its producer or a reader is on an outside queue */
} touch;

void touch_find(const weir_plan *plan, touch *t);

#endif
