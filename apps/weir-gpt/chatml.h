/* apps/weir-gpt/chatml.h: a conversation in the form of ChatML, with the opening of the next reply. */
#ifndef APPS_WEIR_GPT_CHATML_H
#define APPS_WEIR_GPT_CHATML_H

#include "apps/common/tokens/tokenizer.h"

struct chat_message {
    const char *role, *content; /* UTF-8 */
};

/* Adds the ids. Special tokens in a message are text. False with tokens_error(). */
bool chatml(struct encoder *e, const struct chat_message *message, size_t count, struct token_ids *to);

#endif
