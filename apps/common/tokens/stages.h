/* apps/common/tokens/stages.h: the stages of a tokenizer.json around its model: normalizer, pre_tokenizer, decoder, post_processor.
 *
 * Each setting that changes ids and is not supported is refused by its name. One of two chains is supported:
 *
 *     bytes    [NFC ...]  added tokens  Split, Digits, ByteLevel          BPE of GPT-2's byte table
 *     marks    [NFC ...] [Prepend] Replace " " by U+2581                  BPE of characters, with byte_fallback or not
 *              or Metaspace as the pre_tokenizer
 */
#ifndef APPS_COMMON_TOKENS_STAGES_H
#define APPS_COMMON_TOKENS_STAGES_H

#include "apps/common/tokens/inside.h"

#include <jansson.h>

/* Set t->normal, t->split and t->strips; *form is that of the vocabulary. False with tokens_error(). */
bool stages_read(struct tokenizer *t, const json_t *json, enum vocab_form *form);

/* The tokens that post_processor puts before and after a text; call it when the vocabulary is there. */
bool stages_read_ends(struct tokenizer *t, const json_t *json);

#endif
