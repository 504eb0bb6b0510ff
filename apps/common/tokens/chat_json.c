/* apps/common/tokens/chat_json.c: see the header. */
#include "apps/common/tokens/chat_json.h"

#include <stdlib.h>
#include <string.h>

/* A text without a zero byte. */
static bool take_text(const json_t *one, const char *key, size_t number, const char **text)
{
    const json_t *value = json_object_get(one, key);
    *text = json_string_value(value);
    if (!*text)
        return tokens_failed("message %zu: \"%s\" must be a text", number, key);
    return strlen(*text) == json_string_length(value) || tokens_failed("message %zu: \"%s\" has a zero byte", number, key);
}

struct chat_message *chat_messages(const json_t *list)
{
    const size_t count = json_array_size(list);
    struct chat_message *message = calloc(count + 1, sizeof *message);
    bool ok = true;
    if (!message) {
        tokens_failed("no memory for %zu messages", count);
        return NULL;
    }
    for (size_t i = 0; i < count && ok; i++) {
        const json_t *one = json_array_get(list, i);
        ok = take_text(one, "role", i + 1, &message[i].role) && take_text(one, "content", i + 1, &message[i].content);
    }
    if (!ok)
        free(message);
    return ok ? message : NULL;
}
