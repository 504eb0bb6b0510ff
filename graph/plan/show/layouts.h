/* graph/plan/show/layouts.h: logical tensors, and how they lie over devices. A plan has shards; which of them are one tensor is
 * told by their names, and how it lies by where they begin. So a plan need not carry it.
 *
 *     S(d)/k   dimension d is cut into k parts
 *     P/k      so many shards of the same elements are terms: some kernel, or collective, reads them to add them up
 *     B/k      so many shards have the same elements: alike, or terms which nothing adds, but an op that is linear takes on
 *
 * A plan has the sizes of mesh axes, but not which axis each size belongs to.
 *
 * A stage is what shares parameters: devices that hold shards of the same one, and those that share others with these.
 */
#ifndef GRAPH_PLAN_SHOW_LAYOUTS_H
#define GRAPH_PLAN_SHOW_LAYOUTS_H

#include "graph/plan/form/plan.h"

typedef struct logical {
    uint32_t first, count;  /* in layouts->shard: its shards, one per device and box of elements */
    uint32_t parts[WEIR_DIMS_MAX];
    uint32_t terms, alike;
    const char *file;       /* where the user's program makes it; "" and 0: not known */
    uint32_t line;
} logical;

typedef struct layouts {
    const weir_plan *plan;  /* borrowed */
    logical *tensor;        /* owned, as all here: in the plan's order */
    uint32_t tensor_count;
    uint32_t *shard;        /* ids of tensors */
    uint32_t *stage;        /* of each space, from 1 on */
    uint32_t stage_count;
} layouts;

/* False: no memory. layouts_free() is due in any case. */
bool layouts_make(layouts *l, const weir_plan *plan);
void layouts_free(layouts *l);

/* "S(0)/2 P/2"; "" where it is whole on one device. */
const char *layouts_text(const logical *of, char *text, size_t bytes);

/* "cpu:0-3" */
const char *layouts_devices(const layouts *l, const logical *of, char *text, size_t bytes);

/* Whether a shard lies on a space for which `there` is set. */
bool layouts_there(const layouts *l, const logical *of, const bool *there);

#endif
