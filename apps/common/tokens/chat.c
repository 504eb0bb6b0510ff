/* apps/common/tokens/chat.c: see the header. */
#include "apps/common/tokens/chat.h"

#include <string.h>

/* Adds a text, and as many times `said`. */
static bool put(struct encoder *e, const char *text, bool plain, uint32_t said, struct token_ids *to, struct token_ids *reply)
{
    const size_t before = to->count;
    bool ok = tokenizer_encode(e, text, strlen(text), plain, to);
    for (size_t i = before; ok && reply && i < to->count; i++)
        ok = token_ids_add(reply, &said, 1);
    return ok;
}

bool tokenizer_chat(struct encoder *e, const struct chat_message *message, size_t count, bool opens, struct token_ids *to, struct token_ids *reply)
{
    bool ok = true;
    for (size_t i = 0; i < count && ok; i++) {
        const uint32_t said = !strcmp(message[i].role, "assistant");
        ok = put(e, "<|im_start|>", false, 0, to, reply) && put(e, message[i].role, true, 0, to, reply) && put(e, "\n", true, 0, to, reply) &&
             put(e, message[i].content, true, said, to, reply) && put(e, "<|im_end|>", false, said, to, reply) && put(e, "\n", true, 0, to, reply);
    }
    return ok && (!opens || (put(e, "<|im_start|>", false, 0, to, reply) && put(e, "assistant\n", true, 0, to, reply)));
}
