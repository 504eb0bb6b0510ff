/* apps/common/tokens/chat_json.h: the messages of a conversation from JSON: [{"role": "user", "content": "Hello"}, ...]. */
#ifndef APPS_COMMON_TOKENS_CHAT_JSON_H
#define APPS_COMMON_TOKENS_CHAT_JSON_H

#include "apps/common/tokens/chat.h"

#include <jansson.h>

enum { CHAT_MESSAGES_MAX = 4096 }; /* that programs read */

/* As many messages as the list has elements; free() them. Their texts are the list's. NULL with tokens_error(). */
struct chat_message *chat_messages(const json_t *list);

#endif
