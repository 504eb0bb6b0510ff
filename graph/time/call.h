/* graph/time/call.h: calls of kernels as a measuring sees them: two calls with the same text take the same time.
 *
 *     matmul a=9f1c0d2b7e3a4455 f32:512x192,f32:192x768>f32:512x768
 *
 * The op, a hash of its attributes, and the dtypes and local shapes of inputs and outputs; behind a semicolon those of its
 * states; "+" where it adds to its output. If the op reads parts of its inputs (weir_op.reads), the hash includes where its
 * shards lie. Names, keys and devices are no part of it, so layers that are alike are measured once.
 */
#ifndef GRAPH_TIME_CALL_H
#define GRAPH_TIME_CALL_H

#include "graph/plan/form/plan.h"

enum { TIME_CALL_BYTES = 16384 };

/* The text of a kernel's call. False: it is a function of the program, or its op is not registered, so nobody can measure it,
 * or the text is longer than TIME_CALL_BYTES. */
bool time_call_text(const weir_plan *plan, uint32_t kernel, char *text);

/* Its floating-point operations, by the op's own rule, and the bytes that it moves. */
weir_cost time_call_cost(const weir_plan *plan, uint32_t kernel);

#endif
