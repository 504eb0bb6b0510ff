/* graph/verify/verify.h: a plan against its graph, by values over a finite field (docs/design/proof.md). The call is public:
 * weir_plan_verify() in weir/plan.h.
 */
#ifndef GRAPH_VERIFY_VERIFY_H
#define GRAPH_VERIFY_VERIFY_H

#include <stdint.h>
#include <weir/plan.h>

/* Whether the environment asks that every plan that is compiled be proven: WEIR_VERIFY is 1. E_ARGUMENT: it is neither 1 nor 0. */
weir_status verify_wanted(bool *wanted);

/* The memory that a proof takes is known before it begins. `given`: the most that it may take; NULL: half of this machine's.
 * `call` and `name`, for errors: of the proof, and of what is proven. E_ARGUMENT: `given` is no amount. E_MEMORY: it takes more. */
weir_status verify_memory(uint64_t need, const char *given, weir_src src, const char *call, const char *name);

#endif
