/* tests/support/fakes.h: graphs and plans for accelerators, of the kind FAKE, where there are none.
 *
 *     weir_graph *g = random_model(1, 2);
 *     fakes_put(g, fakes_all);                    // its meshes of CPUs become meshes of fakes
 *     weir_plan *plan = weir_compile(g);
 *     weir_plan *same = fakes_as_cpu(plan);       // with a CPU for each fake, and one for the memory beside it
 *
 * The second plan has the same actors, registers and offsets; what was a queue for copies is one for io. So it runs
 * anywhere, and what it computes is what the first would.
 */
#ifndef TESTS_SUPPORT_FAKES_H
#define TESTS_SUPPORT_FAKES_H

#include "graph/model/build.h"
#include "graph/plan/plan.h"

/* Whether a mesh is to be one of fakes. */
typedef bool (*fakes_choice)(const weir_mesh *mesh);
bool fakes_all(const weir_mesh *mesh);

/* Every mesh of the graph for which `on` says so, before it is compiled. */
void fakes_put(weir_graph *graph, fakes_choice on);

/* Owned by the caller; validated. Plans that keep snapshots are for the others. */
weir_plan *fakes_as_cpu(const weir_plan *plan);

#endif
