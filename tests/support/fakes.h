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
#include "graph/plan/form/plan.h"
#include "tests/support/reference.h"

/* Whether a mesh is to be one of fakes. */
typedef bool (*fakes_choice)(const weir_mesh *mesh);
bool fakes_all(const weir_mesh *mesh);
bool fakes_second_half(const weir_mesh *mesh); /* but for those with device 0 */
bool fakes_odd(const weir_mesh *mesh);         /* of an odd number of devices */

/* The kind of the fakes [WEIR_FAKE]; WEIR_CUDA in suites whose cards are emulated (tests/support/card.h). */
extern weir_device_kind fakes_kind;

/* Every mesh of the graph for which `on` says so, before it is compiled. */
void fakes_put(weir_graph *graph, fakes_choice on);

/* The GPT of tests/support/reference.h in that layout, where `on` (NULL: nowhere) says so on fakes. Seed and micro-batches
 * are not to be given. NULL when it is refused. Sources read the text as the newest plan's says. */
weir_plan *fakes_gpt(layout l, fakes_choice on, weir_compile_opts opts);

/* The same for the random model of a seed. */
weir_plan *fakes_model(uint64_t seed, fakes_choice on, weir_compile_opts opts);

/* The same with fakes and on CPUs alone: a GPT, or the random model of a seed. Fails the test when it is refused. */
struct fakes_pair {
    weir_plan *plan, *cpu;
    char what[80];
};
struct fakes_pair fakes_gpt_pair(layout l, fakes_choice on);
struct fakes_pair fakes_model_pair(uint64_t seed, fakes_choice on);
void fakes_pair_free(struct fakes_pair *pair);

/* Owned by the caller; validated. Plans that keep snapshots are for the others. */
weir_plan *fakes_as_cpu(const weir_plan *plan);

#endif
