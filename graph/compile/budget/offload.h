/* graph/compile/budget/offload.h: results of forward that wait for the backward phase on a disk.
 *
 *     cpu    make t ..... B ............ A ....... reader of t'
 *                 \       ^             /          ^
 *     disk         store -'  ~~~~~~~   '-> fetch --'
 *
 * A tensor that forward makes and a later phase reads may be moved: *store* copies it to a file right after it was made,
 * *fetch* copies it back before it is read. Both are ordinary actors on a queue of the disk's own; they run while the
 * device computes, and a register carries the value in each of the three places. To have room for something else
 * meanwhile, two orders are needed that no value makes:
 *
 *   - B, some way behind, waits for the store: from there on the bytes are free for certain, not only when the disk
 *     happened to be quick;
 *   - the fetch waits for A, some way ahead of the reader: it would otherwise come back at once.
 *
 * Such an order is a register without bytes (tie.c). How far away B and A are is what the copy is thought to take
 * (disk_seconds()), twice over, in seconds of the nodes between, and never more than a quarter of what there is between
 * the last reader in forward and the first behind it. A disk that is slower holds the device up, and nothing else
 * happens.
 *
 * States of updates (AdamW's m and v) live on the disk then: each is a register there that starts full, fetched before
 * its update and stored behind it. The update becomes an op that takes them as inputs and gives the new ones as outputs
 * (kernels/optim/moved.c).
 *
 * Which tensors are moved is decided along the ladder of recompute.h, as another way to drop one: there the two are
 * weighed in seconds per byte. Bits do not change.
 */
#ifndef GRAPH_COMPILE_BUDGET_OFFLOAD_H
#define GRAPH_COMPILE_BUDGET_OFFLOAD_H

#include "graph/compile/ir/ir.h"

/* How many times as long as the copy B and A are away. Tests shrink it; nothing else changes it. */
extern double offload_window;

typedef struct offload_way {       /* where a tensor that is read later first at a certain node is stored and fetched */
    int hold;                      /* B: the node that waits for the store */
    int ahead;                     /* A: the node that the fetch waits for; -1: it cannot be moved */
} offload_way;

/* The way of tensor `t`, of which node `last` of forward is the last to read it there (its maker if none does), and
 * `reader` the first that reads it later. */
offload_way offload_find(const weir_rates *rates, const ir_graph *ir, int t, int last, int reader);

/* Seconds that a step takes longer for so many bytes that go and come back, when `before` do already: what the device
 * loses of its memory's speed, and where the disk has more to do than the step is long, the rest of that. */
double offload_seconds(const weir_rates *rates, double step, double before, double bytes);

/* The mesh of the disks beside a mesh; NULL: no memory. */
const weir_mesh *offload_mesh(compile *c, const weir_mesh *mesh);

/* Whether other nodes may wait for this one, and it for them: it is a kernel of its own on every device of the mesh. */
bool offload_anchor(const ir_node *node, const weir_mesh *mesh, bool micro);

/* Fills a node that copies tensor `from` to `to`, which is, like `t`, made for the sake of node `of`: to the disk, or
 * (the phase is not FORWARD) back. False: no memory. */
bool offload_copy(compile *c, const ir_graph *ir, int t, const ir_node *of, int from, int to, plan_phase phase,
                  ir_node *node);

/* States of an update that may wait on a disk: none, if not all of them can. And the op that it becomes then. */
enum { OFFLOAD_STATES = 2 };
int offload_states(const ir_node *node);
const weir_op *offload_update(const weir_op *op);

#endif
