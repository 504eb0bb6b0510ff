/* apps/common/tokens/tokenizer.h: texts as ids of tokens, and back: byte-level BPE, as GPT-2, Llama 3, Qwen and many others have
 * it, and the BPE models of SentencePiece, as Llama 2, Mistral and Gemma have them.
 *
 *     text --- special and added tokens are found first ---> the text between them
 *          --- a normal form (normal.h) -------------------> the same text, or another
 *          --- a pattern splits it (split.h) --------------> pieces, such as " house"
 *          --- pairs merge, lowest rank first (bpe.h) -----> ids
 *
 *     file                        what it is
 *     tokenizer.json              Hugging Face's
 *     tekken.json                 Mistral's
 *     tokenizer.model             SentencePiece's; BPE
 *     *.gguf                      llama.cpp's: the metadata
 *     a folder                    the first of the first three that is there
 *
 * The ids are those of the reference for the same file: PyPI's `tokenizers`, `mistral-common` and `sentencepiece`. Where a file lies
 * in a folder with tokenizer_config.json and chat_template.jinja, these say how chats look (chat.h). Files are not trusted: with any
 * content, reading one gives a tokenizer or one sentence, in memory that is bounded by the file's size.
 *
 * A tokenizer does not change after it is read, but for tokenizer_only_decodes(), so any thread may use it. An encoder has the scratch
 * memory of one thread.
 */
#ifndef APPS_COMMON_TOKENS_TOKENIZER_H
#define APPS_COMMON_TOKENS_TOKENIZER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct tokenizer;
struct encoder;

/* A growing list of ids, owned by the caller; free(ids.id) at the end. */
struct token_ids {
    uint32_t *id;
    size_t count, room;
};

/* Adds ids. False with tokens_error(): no memory. */
bool token_ids_add(struct token_ids *to, const uint32_t *id, size_t count);

/* NULL: tokens_error() names the file. */
struct tokenizer *tokenizer_read(const char *path);
void tokenizer_free(struct tokenizer *t);

/* Frees the tables that texts are encoded by, which are most of its memory. The tokenizer has the bytes of its tokens from here on, and no
 * encoder: free them before. */
void tokenizer_only_decodes(struct tokenizer *t);

/* Ids are below this. */
uint32_t tokenizer_size(const struct tokenizer *t);

/* The token that ends a text. False: the files name none. */
bool tokenizer_end(const struct tokenizer *t, uint32_t *id);

/* NULL with tokens_error(): no memory. Borrows the tokenizer. One thread at a time. */
struct encoder *encoder_new(const struct tokenizer *t);
void encoder_free(struct encoder *e);

/* Adds the ids of a text of UTF-8. `plain`: special tokens in the text are text as any other, as a stranger's text should be
 * read. Takes O(n log n) time, and up to 40 bytes of memory for each byte of the longest piece. False with tokens_error(): a
 * byte is not UTF-8, the file's pattern takes too long, or no memory. */
bool tokenizer_encode(struct encoder *e, const char *text, size_t bytes, bool plain, struct token_ids *to);

/* The same, with the tokens that the file puts before and after a text. */
bool tokenizer_encode_with_ends(struct encoder *e, const char *text, size_t bytes, bool plain, struct token_ids *to);

/* Adds the tokens that the file puts before a text. False with tokens_error(): no memory. */
bool tokenizer_begin(const struct tokenizer *t, struct token_ids *to);

/* The bytes of a token, which need not be whole characters. NULL: there is no token of this id. Owned by the tokenizer. */
const char *tokenizer_bytes(const struct tokenizer *t, uint32_t id, size_t *bytes);

/* Text that comes token by token:
 *
 *     struct decoder d = {.tokenizer = t};
 *     text = decoder_next(&d, id, &bytes);
 *
 * Gives the bytes that the token adds, without the space that SentencePiece's models put before a text. A character may begin in one
 * token and end in the next. NULL: there is no token of this id. Borrows the tokenizer. One thread. */
struct decoder {
    const struct tokenizer *tokenizer;
    bool inside; /* a text has begun */
};
const char *decoder_next(struct decoder *d, uint32_t id, size_t *bytes);

/* Leaves the calling thread's sentence and returns false. */
bool tokens_failed(const char *format, ...) __attribute__((format(printf, 1, 2)));
const char *tokens_error(void);

#endif
