/* tests/support/compiled.h: a compilation of a random model in a random layout, stopped behind a pass.
 *
 *     compile *c = compiled_to(pass_group, seed);
 *     ... look at c->phys ...
 *     compiled_free(c);
 *
 * One at a time: the next is made in the same place.
 */
#ifndef TESTS_SUPPORT_COMPILED_H
#define TESTS_SUPPORT_COMPILED_H

#include "graph/compile/actors/passes.h"
#include "graph/compile/devices/passes.h"
#include "graph/compile/logical/passes.h"
#include "graph/compile/sbp/passes.h"

/* Runs the passes in the compiler's order up to `last`, each of which is verified. A mistake fails the test. */
compile *compiled_to(bool (*last)(compile *c), uint64_t seed);
void compiled_free(compile *c);

#endif
