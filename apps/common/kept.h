/* apps/common/kept.h: the keys and values that a model which writes a row a step keeps.
 *
 * One layer's are two matrices [seq, dim]. An attention over them is a function of the program's own in the graph
 * (weir_call): it looks at the rows that were kept and at the new ones, which it then keeps too.
 *
 * Belongs to the one session that runs the graph; between runs to whoever opened it.
 */
#ifndef APPS_COMMON_KEPT_H
#define APPS_COMMON_KEPT_H

#include <weir/weir.h>

typedef struct kept_rows kept_rows;

/* Room for `seq` rows of every layer. NULL when there is no memory. Owned by the caller, outlives the session. */
kept_rows *kept_new(int layers, int seq, int dim, int heads);
void kept_free(kept_rows *k); /* may be NULL */

/* Attention of layer `layer`: q, k, v [1, rows, dim], which stand at position .. position + rows - 1. */
weir_tensor *kept_attention(kept_rows *k, int layer, weir_tensor *const qkv[3], weir_tensor *position);

#endif
