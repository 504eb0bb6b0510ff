/* apps/common/tokens/chat.h: conversations as ids of tokens, in ChatML:
 *
 *     <|im_start|>user\nHello<|im_end|>\n<|im_start|>assistant\nHi<|im_end|>\n
 */
#ifndef APPS_COMMON_TOKENS_CHAT_H
#define APPS_COMMON_TOKENS_CHAT_H

#include "apps/common/tokens/tokenizer.h"

struct chat_message {
    const char *role, *content; /* UTF-8 */
};

/* Adds the ids of a conversation. `opens`: the opening of the next reply follows. `reply` is NULL, or gets a number for each id: 1 for
 * those that the model has to write, which are a reply and the token that ends it, and 0 for the others. False with tokens_error(): as
 * tokenizer_encode(). */
bool tokenizer_chat(struct encoder *e, const struct chat_message *message, size_t count, bool opens, struct token_ids *to, struct token_ids *reply);

#endif
