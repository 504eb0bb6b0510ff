/* apps/common/tokens/chat_table.h: the families of chat templates, for chat.c. */
#ifndef APPS_COMMON_TOKENS_CHAT_TABLE_H
#define APPS_COMMON_TOKENS_CHAT_TABLE_H

#include <stdbool.h>

enum { CHAT_NEEDLES = 4 };

enum chat_system {
    CHAT_SYSTEM_TURN,       /* a turn of its own, wherever it stands */
    CHAT_SYSTEM_ALWAYS,     /* the first turn, which is there without a message, too */
    CHAT_SYSTEM_FIRST_USER, /* a part of the first message of the user */
    CHAT_SYSTEM_LAST_USER,  /* of the user's last message */
    CHAT_SYSTEM_LAST,       /* of the last message, if it is the user's; else it is left out */
    CHAT_SYSTEM_NONE,
};

enum chat_trim { CHAT_AS_IS, CHAT_TRIM, CHAT_TRIM_REPLY, CHAT_TRIM_REPLY_SPACES };

/* Texts of a template. Special tokens in them are recognised; \1 is the begin token and \2 the end token. */
struct chat_family {
    const char *name;
    const char *has[CHAT_NEEDLES], *lacks[CHAT_NEEDLES]; /* parts of the template's text */
    const char *tekken;                                  /* " v3 ": versions of tekken.json; NULL: none */
    const char *begin;                                   /* before all */
    enum chat_system system;
    const char *system_before, *system_after;
    const char *user_before, *user_after;
    const char *opening;                                 /* of a reply */
    const char *reply_before, *reply_end;                /* the reply's own text, around the message */
    const char *reply_after;
    const char *end;                                     /* after all, if no reply is opened */
    enum chat_trim trim;
    bool alternates;                                     /* user and assistant take turns */
    bool thinks;                                         /* Qwen3's: the last reply has its thoughts, the others have none */
    bool has_default;                                    /* the template may have a system message of its own */
};

extern const struct chat_family chat_families[];
extern const int chat_family_count;

#endif
