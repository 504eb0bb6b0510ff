/* graph/verify/verify.h: a plan against its graph, by values over a finite field (docs/design/proof.md). The call is public:
 * weir_plan_verify() in weir/plan.h.
 */
#ifndef GRAPH_VERIFY_VERIFY_H
#define GRAPH_VERIFY_VERIFY_H

#include <weir/plan.h>

/* Whether the environment asks that every plan that is compiled be proven: WEIR_VERIFY is 1. E_ARGUMENT: it is neither 1 nor 0. */
weir_status verify_wanted(bool *wanted);

#endif
