/* kernels/attention/cudnn.h: attention of halves by cuDNN's fused kernels, where that library is; see cudnn.cu.
 *
 * WEIR_CUDA_ATTENTION=own leaves it alone, =cudnn makes an error of every call that it cannot take; without it, what it
 * cannot take is silently made by weir's own kernels. It is read once in a process. Any thread.
 */
#ifndef KERNELS_ATTENTION_CUDNN_H
#define KERNELS_ATTENTION_CUDNN_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The maker of attention of halves here, as words: "attention by cuDNN 9.19.0", or by weir's own kernels and why. */
void cudnn_told(char *text, size_t bytes);

#ifdef __cplusplus
}

#include "kernels/attention/tiles.h"

/* The call, or its gradient. *taken: false where weir's own kernels are to make it, which is no error; it is the same for
 * each call of the kind. `once`, before the first of them: decides that, and enqueues only a plan that has never run. */
weir_status cudnn_attention(const weir_kernel_args *args, const attention_sizes &z, bool gradient, bool once, bool *taken);

#if __has_include(<cudnn_graph.h>)
#include <cudnn_graph.h>

/* The calls of the library that are used: its graph API, which came without deprecated parts in 9.0. */
#define CUDNN_CALLS(X)                                                                                         \
    X(GetVersion) X(GetErrorString) X(GetLastErrorString) X(Create) X(SetStream) X(BackendCreateDescriptor)    \
    X(BackendDestroyDescriptor) X(BackendSetAttribute) X(BackendGetAttribute) X(BackendFinalize) X(BackendExecute)

struct cudnn_calls {
#define X(name) decltype(&cudnn##name) name;
    CUDNN_CALLS(X)
#undef X
};

/* The names of the graphs' tensors: of the call's operands, and what else is in memory or a number. */
enum cudnn_id : int64_t {
    ID_NONE, ID_Q, ID_K, ID_V, ID_OUT, ID_LSE, ID_DOUT, ID_DQ, ID_DK, ID_DV, ID_DELTA, ID_SCALE, ID_UNSEEN, ID_ONE,
    ID_DQ_SUMS,
    ID_VIRTUAL /* and above: what is never in memory */
};
#endif
#endif
#endif
