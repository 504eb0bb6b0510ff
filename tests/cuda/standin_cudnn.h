/* tests/cuda/standin_cudnn.h: a stand-in for the calls of cuDNN's graph API that kernels/attention/cudnn.h lists, for the
 * emulator.
 *
 * It checks everything. It knows the attributes of each kind of descriptor that are used, with their types, counts and
 * the kinds of descriptors in them. It refuses an attribute that is set on a finalized descriptor, left out, or a
 * descriptor that is not finalized, with CUDNN_STATUS_BAD_PARAM and a sentence. Operands of operations must fit; a
 * graph's ids are unique, each virtual tensor is made once and read; a variant pack has all that is in memory and
 * nothing else, aligned as was promised; and the handle has a stream.
 *
 * It computes the graph itself, operation by operation, by plain loops in double, rounded to each tensor's type. The
 * heuristic lists first an engine that is nondeterministic, one that wants too much workspace and one that it then does
 * not support. So a caller that tries them in turn comes to the last. Any thread. standin_options gives the version,
 * and the call that fails.
 */
#ifndef TESTS_CUDA_STANDIN_CUDNN_H
#define TESTS_CUDA_STANDIN_CUDNN_H

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
#include "kernels/attention/cudnn.h"

/* NULL: the library is not there. */
const cudnn_calls *standin_cudnn(void);

extern "C" {
#endif

enum { STANDIN_CUDNN_FAILED = 5000 }; /* CUDNN_STATUS_EXECUTION_FAILED */

/* Of the options: the version, 0 where it is not there; the generation of the card; bytes that engines want besides. */
int standin_cudnn_version(void);
int standin_cudnn_major(void);
int64_t standin_cudnn_more(void);
/* A call begins; with which status it fails, 0: it does not. So many descriptors were made; a plan was; by an engine a graph
 * is to be computed; it touches what is there. */
int standin_cudnn_enter(const char *name);
void standin_cudnn_count(int64_t more);
void standin_cudnn_planned(void);
void standin_cudnn_ran(int64_t engine);
void standin_cudnn_touches(const void *at, int64_t bytes);

#ifdef __cplusplus
}
#endif
#endif
