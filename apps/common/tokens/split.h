/* apps/common/tokens/split.h: cuts a text into the pieces that BPE sees, as Hugging Face's pre-tokenizers do.
 *
 * A split is a list of stages. Each stage cuts every piece of the stage before it by a pattern: matches and the gaps between
 * them become pieces, or only one of both. A piece is a text of its own: patterns do not see what is beside it.
 *
 * Patterns are written for Oniguruma, with Unicode. split_add() translates them for PCRE2, and refuses what the two read
 * differently. Both know other versions of Unicode, so characters that are newer than Unicode 14 may be split otherwise.
 */
#ifndef APPS_COMMON_TOKENS_SPLIT_H
#define APPS_COMMON_TOKENS_SPLIT_H

#include <stdbool.h>
#include <stddef.h>

enum { SPLIT_STAGES_MAX = 8, SPLIT_PATTERN_MAX = 8192 };

#define SPLIT_GPT2 "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+"

struct split_stage {
    void *code;            /* owned: a pcre2_code. NULL: puts a space before a piece that begins with none */
    bool matches, gaps;    /* which of both become pieces */
};

struct split {
    struct split_stage stage[SPLIT_STAGES_MAX];
    int count;
};

/* Adds a stage. False with tokens_error(). */
bool split_add(struct split *s, const char *pattern, bool matches, bool gaps);
bool split_add_space(struct split *s);
void split_free(struct split *s);

/* Adds the stages that a name of GGUF's tokenizer.ggml.pre stands for; *ignore_merges is true if a piece that is a token as a
 * whole is not merged. False with tokens_error(): the name is unknown. */
bool split_add_named(struct split *s, const char *name, bool *ignore_merges);

/* The scratch memory of one thread. NULL: no memory. */
struct splitter;
struct splitter *splitter_new(void);
void splitter_free(struct splitter *w);

/* Calls piece() for each piece in order; it returns false to end. The text is valid UTF-8. False: piece() did, or
 * tokens_error(). */
bool split_text(const struct split *s, struct splitter *w, const char *text, size_t bytes,
                bool (*piece)(void *ctx, const char *text, size_t bytes), void *ctx);

#endif
