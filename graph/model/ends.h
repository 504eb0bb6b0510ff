/* graph/model/ends.h: what inputs, fetches and calls have in common (ends.c, input.c, call.c): they are built from shapes, dtypes
 * and layouts that the user wrote, which are checked here. They live on one
 * device, or on all devices of a mesh if they are split by hand. */
#ifndef GRAPH_MODEL_ENDS_H
#define GRAPH_MODEL_ENDS_H

#include "graph/model/build.h"
#include "kernels/core/core.h"

/* Of an option: it ends at the first 0. */
weir_shape ends_shape(const int64_t *dim);

/* Whether it can be a tensor's: sizes of at least 1, none behind the first 0, bytes that fit. Reports; `what` is the word
 * for it. */
bool ends_shape_ok(weir_graph *g, weir_src src, const char *what, weir_dtype dtype, const int64_t *dim);

/* Copies the user's SBP to `to`, with negative dimensions counted from the end. Reports what cannot be. */
bool ends_sbp(weir_graph *g, weir_src src, const char *what, const weir_type *type, const weir_mesh *mesh,
              const weir_sbp *from, weir_sbp *to);

/* The same for an operand of a node that is split by hand: B on each axis of the mesh for which no SBP is given. */
bool ends_by_hand(weir_graph *g, weir_src src, const char *what, const weir_type *type, const weir_mesh *mesh,
                  const weir_sbp *from, weir_sbp *to);

typed_attrs ends_typed(weir_dtype dtype, const weir_shape *shape);

/* The output of a node on one device, laid out over `mesh`. */
weir_tensor *ends_spread(weir_tensor *x, weir_mesh *mesh, weir_src src, const weir_sbp *sbp);

/* The queue of a node that calls a function of the program's; `queue` may be NULL. */
void ends_queue(graph_node *node, const char *queue);

#endif
