/* graph/verify/verify.h: a plan against its graph, by values over a finite field (docs/design/proof.md). The call is public:
 * weir_plan_verify() in weir/plan.h.
 */
#ifndef GRAPH_VERIFY_VERIFY_H
#define GRAPH_VERIFY_VERIFY_H

#include <stdint.h>
#include <weir/plan.h>

/* Verifies the plan if WEIR_VERIFY asks for it: "1", or "local" for .local. E_ARGUMENT: it has another value. */
weir_status verify_if_wanted(const weir_graph *graph, const weir_plan *plan);

/* The memory that a proof takes is known before it begins. `given`: the most that it may take; NULL: half of this machine's.
 * `call` and `name`, for errors: of the proof, and of what is proven. E_ARGUMENT: `given` is no amount. E_MEMORY: it takes more. */
weir_status verify_memory(uint64_t need, const char *given, weir_src src, const char *call, const char *name);

#endif
