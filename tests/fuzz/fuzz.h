/* tests/fuzz/fuzz.h: what a fuzz target gives. Linked with libFuzzer (`make fuzz`) it is searched for inputs that
 * break it; linked with replay.c it is run on the inputs of its corpus, as a part of `make test`.
 */
#ifndef TESTS_FUZZ_FUZZ_H
#define TESTS_FUZZ_FUZZ_H

#include <stddef.h>
#include <stdint.h>

/* The folder of the target's inputs, from the root of the tree. */
extern const char *const fuzz_corpus;

/* Must return 0 for any bytes, and not crash. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#endif
