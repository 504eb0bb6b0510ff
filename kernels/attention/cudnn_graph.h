/* kernels/attention/cudnn_graph.h: descriptors of cuDNN's backend API, and graphs of attention made of them; for cudnn.cu.
 *
 * A builder owns what it makes, in order. After a call that failed, nothing is called any more: who makes a dozen
 * descriptors looks at builder.status once. One thread at a time.
 */
#ifndef KERNELS_ATTENTION_CUDNN_GRAPH_H
#define KERNELS_ATTENTION_CUDNN_GRAPH_H

#include "kernels/attention/cudnn.h"

#if __has_include(<cudnn_graph.h>)

typedef cudnnBackendDescriptor_t descriptor;

enum { CUDNN_MADE_MOST = 256 };

/* The key of a plan; compared as bytes, so it has no gaps. Sizes of a part (parts_of()), in elements. */
struct cudnn_problem {
    int64_t gradient, dtype, batch, heads, seq, keys, head_dim, dim, causal, room;
    int64_t fast; /* dQ is added up in any order, in f32 in the workspace */
};

struct cudnn_builder {
    const cudnn_calls *cudnn;
    cudnnStatus_t status;
    const char *what;                 /* it was that failed */
    descriptor made[CUDNN_MADE_MOST]; /* owned */
    int made_count;
};

/* Notes what a call said; whether all went well so far. */
bool cudnn_fine(cudnn_builder *b, cudnnStatus_t status, const char *what);

/* NULL where it cannot be. */
descriptor cudnn_make(cudnn_builder *b, cudnnBackendDescriptorType_t type);
void cudnn_set(cudnn_builder *b, descriptor to, cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
               const void *values, int64_t count = 1);
void cudnn_set(cudnn_builder *b, descriptor to, cudnnBackendAttributeName_t name, descriptor value);
/* How many there were. */
int64_t cudnn_get(cudnn_builder *b, descriptor from, cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
                  void *values, int64_t most);
descriptor cudnn_finalized(cudnn_builder *b, descriptor made, const char *what);
void cudnn_destroy(cudnn_builder *b);

/* The graph of a forward pass or a gradient. */
descriptor cudnn_graph_of(cudnn_builder *b, cudnnHandle_t handle, const cudnn_problem *is);

#endif
#endif
