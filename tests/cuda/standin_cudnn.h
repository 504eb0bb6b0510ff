/* tests/cuda/standin_cudnn.h: a stand-in for the calls of cuDNN's graph API that kernels/attention/cudnn.h lists, for the
 * emulator.
 *
 * It takes nothing for granted. Of each kind of descriptor it knows the attributes that are used, with their types, counts
 * and the kinds of descriptors in them; what is set on a finalized one, left out, or not finalized itself is refused with
 * CUDNN_STATUS_BAD_PARAM and a sentence. Operands of operations must fit; a graph's ids are unique, each virtual tensor is
 * made once and read; a variant pack has all that is in memory and nothing else, aligned as was promised; and the handle
 * has a stream.
 *
 * What it computes is the graph itself, operation by operation, by plain loops in double, rounded where a tensor's type
 * is. Of its engines the heuristic lists first one that is nondeterministic, one that wants too much workspace and one that
 * it then does not support. So whoever takes them in turn comes to the last. Any thread. Which version it is, and which
 * call fails, is said in standin_options.
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
