/* tests/support/lm_reference.h: language models of apps/common/model/lm.h in double precision, position by position, and files of small
 * ones with weights from sines. It takes names and shapes from lm.h and nothing else: what a model computes is written here again, in
 * loops.
 */
#ifndef TESTS_SUPPORT_LM_REFERENCE_H
#define TESTS_SUPPORT_LM_REFERENCE_H

#include "apps/common/model/lm.h"

/* Writes a safetensors file with every parameter of the model. */
void lm_write_weights(const lm_config *c, const char *path);

/* The same as the tensors of a GGUF file: their number, their heads, and their values. */
struct gguf_file;
int lm_count_weights(const lm_config *c);
void lm_put_weights(const lm_config *c, struct gguf_file *f);

/* Logits [count, vocab] of all positions of a text, by these weights. */
void lm_reference(const lm_config *c, const int32_t *tokens, int count, double *logits);

#endif
