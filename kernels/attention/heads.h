/* kernels/attention/heads.h: rules that all ops of attention share: groups of heads, masks, and the options of the DSL. Pure
 * functions, but for attention_asked(), which is of the graph's thread; any thread.
 */
#ifndef KERNELS_ATTENTION_HEADS_H
#define KERNELS_ATTENTION_HEADS_H

#include <weir/graph.h>
#include <weir/op.h>

/* infer: refuses numbers of heads of which those of k and v do not divide those of q. */
bool heads_share(int64_t heads, int64_t kv_heads, char *error, size_t error_bytes);

/* infer: refuses a mask that is not u8 or f32 [batch or 1, keys] or [batch or 1, heads or 1, rows or 1, keys]. q is [batch, rows,
 * dim]. NULL: there is none. */
bool mask_fits(const weir_type *mask, const weir_shape *q, int64_t head_dim, int64_t keys, char *error, size_t error_bytes);

/* signatures: how the mask is split if the batch (dimension 0) or the heads (1) are. B: it has one for all. */
weir_sbp mask_split(const weir_type *mask, int dimension);

/* The options of a call in the DSL. */
typedef struct attention_asked {
    const char *op;
    weir_src src;
    int heads, kv_heads, window;
    double scale;
} attention_asked;

/* Writes *head_dim and *scale. NULL: the options are right, or q is poisoned; else the poisoned tensor of a mistake. `k` holds the
 * keys, new or kept. */
weir_tensor *attention_heads(const attention_asked *asked, weir_tensor *q, weir_tensor *k, int64_t *head_dim, double *scale);

#endif
