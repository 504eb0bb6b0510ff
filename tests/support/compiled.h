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

#include "graph/compile/ir/ir.h"

typedef bool compile_pass(compile *c);

/* Runs the passes in the compiler's order up to `last`. A mistake fails the test. */
compile *compiled_to(compile_pass *last, uint64_t seed);
void compiled_free(compile *c);

#endif
