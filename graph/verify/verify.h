/* graph/verify/verify.h: a plan against its graph, by values over a finite field (docs/design/proof.md). The call is public:
 * weir_plan_verify() in weir/plan.h.
 */
#ifndef GRAPH_VERIFY_VERIFY_H
#define GRAPH_VERIFY_VERIFY_H

#include <stdint.h>
#include <weir/plan.h>

/* Verifies the plan if WEIR_VERIFY asks for it: "1", or "local" for .local. E_ARGUMENT: it has another value. */
weir_status verify_if_wanted(const weir_graph *graph, const weir_plan *plan);

#endif
