/* chatml.c: see the header. */
#include "apps/weir-gpt/chatml.h"

#include <string.h>

static bool add(struct encoder *e, const char *text, bool plain, struct token_ids *to)
{
    return tokenizer_encode(e, text, strlen(text), plain, to);
}

bool chatml(struct encoder *e, const struct chat_message *message, size_t count, struct token_ids *to)
{
    bool ok = true;
    for (size_t i = 0; ok && i < count; i++)
        ok = add(e, "<|im_start|>", false, to) && add(e, message[i].role, true, to) && add(e, "\n", true, to) &&
             add(e, message[i].content, true, to) && add(e, "<|im_end|>", false, to) && add(e, "\n", true, to);
    return ok && add(e, "<|im_start|>", false, to) && add(e, "assistant\n", true, to);
}
