/* apps/common/tokens/inside.h: the parts of a tokenizer, for the readers of the forms of files, and for chats. */
#ifndef APPS_COMMON_TOKENS_INSIDE_H
#define APPS_COMMON_TOKENS_INSIDE_H

#include "apps/common/tokens/added.h"
#include "apps/common/tokens/bpe.h"
#include "apps/common/tokens/chat.h"
#include "apps/common/tokens/normal.h"
#include "apps/common/tokens/split.h"

#include <stdio.h>

enum { ENDS_MAX = 8 };

/* Tokens around a text, or that end a reply. */
struct ends {
    uint32_t id[ENDS_MAX];
    int count;
};

struct tokenizer {
    struct bpe bpe;
    struct normal normal;
    struct split split;
    struct added added[2];     /* the second is looked for in what the first leaves, in its normal form */
    bool strips;               /* a space that was put before a text is not part of it */
    struct ends before, after; /* of a text, if they are wanted */
    bool ends_by_config;       /* tokenizer_config.json may say otherwise */
    uint32_t begin, end;       /* bos and eos; VOCAB_NONE: the file names none */
    struct ends stops;         /* end a reply */
    struct chat chat;
};

/* How many of the first bytes are whole characters of UTF-8. */
size_t tokens_utf8(const char *text, size_t bytes);

/* Adds an id, if it is none of them yet. False with tokens_error(): there are too many. */
bool ends_add(struct ends *e, uint32_t id);

/* Adds the tokens that end a reply: the end token, and that of the chat template. */
bool chat_add_stops(struct tokenizer *t);

/* The id of an added token by its text; VOCAB_NONE: there is none. */
uint32_t tokenizer_added(const struct tokenizer *t, const char *text, size_t length);

/* Fill an empty tokenizer from an open file, which stays the caller's. False with tokens_error(), which does not name the file;
 * tokenizer_free() frees what there is. */
bool tokenizer_from_json(struct tokenizer *t, FILE *file);
bool tokenizer_from_gguf(struct tokenizer *t, FILE *file);
bool tokenizer_from_sentencepiece(struct tokenizer *t, FILE *file);

/* The same from what tokenizer_from_json() finds to be a file of Mistral's. */
struct json_t;
bool tokenizer_from_tekken(struct tokenizer *t, struct json_t *json);

/* Reads what tokenizer_config.json, generation_config.json and chat_template.jinja of the folder say, as far as they are there. The
 * sentence names the file. */
bool tokenizer_configure(struct tokenizer *t, const char *folder);

/* Encodes a text that has no added tokens but those that are no special ones. `first`: no text is before it. */
bool tokenizer_encode_plain(struct encoder *e, const char *text, size_t bytes, bool first, struct token_ids *to);
const struct tokenizer *encoder_tokenizer(const struct encoder *e);
struct normalizer *encoder_normalizer(struct encoder *e);

#endif
