/* apps/common/tokens/chat.h: conversations as ids of tokens, in the form that a model was trained with.
 *
 *     struct chat_message talk[] = {{"system", "Be brief."}, {"user", "Hello"}};
 *     tokenizer_chat(encoder, talk, 2, true, &ids, NULL);     // <|im_start|>system\nBe brief.<|im_end|>\n ... <|im_start|>assistant\n
 *
 * Models come with a template, a text in the language of Jinja: in tokenizer_config.json, in chat_template.jinja, or in a GGUF file.
 * Templates are not run. weir recognises the usual families by parts of their text; the table in chat_table.c has them.
 * Mistral's tekken.json has no template but a version, which names the form. A template of no known family gets a sentence.
 *
 * Ids are those of transformers' apply_chat_template() for texts, and those of mistral-common for tekken.json, with these limits:
 *
 *     roles     system, user and assistant; no tools, no images
 *     contents  special tokens in a message are text as any other: a stranger's message cannot end its turn
 *     dates     Llama 3.1 and later say "Today Date: 26 Jul 2024", the date that the template itself has where nobody gives one
 */
#ifndef APPS_COMMON_TOKENS_CHAT_H
#define APPS_COMMON_TOKENS_CHAT_H

#include "apps/common/tokens/tokenizer.h"

struct chat_message {
    const char *role, *content; /* UTF-8 */
};

/* A tokenizer knows this of its chats. */
struct chat_family;
struct chat {
    const struct chat_family *family; /* NULL: none is known */
    char *text;                       /* owned: the template; NULL: there is none */
    char *system;                     /* owned: the system message where a conversation has none; NULL: there is none */
};

/* Takes the family from a template. False with tokens_error(): no memory. An unknown template is no failure before somebody chats. */
bool chat_set_template(struct chat *c, const char *text);
void chat_set_tekken(struct chat *c, const char *version);
void chat_free(struct chat *c);

/* The family's name, "ChatML". NULL: no template is known. */
const char *tokenizer_chat_name(const struct tokenizer *t);

/* Adds the ids of a conversation. `opens`: the opening of the next reply follows. `reply` is NULL, or gets a number for each id: 1 for
 * those that the model has to write, which are a reply and the token that ends it, and 0 for the others. False with tokens_error(): the
 * template is unknown, the family has no such conversation, or as tokenizer_encode(). */
bool tokenizer_chat(struct encoder *e, const struct chat_message *message, size_t count, bool opens, struct token_ids *to, struct token_ids *reply);

/* Whether the token ends a reply. */
bool tokenizer_stops(const struct tokenizer *t, uint32_t id);

#endif
