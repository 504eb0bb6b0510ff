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

enum split_space { SPLIT_NO_SPACE, SPLIT_FIRST_SPACE, SPLIT_SPACE };

struct split_stage {
    void *code;             /* owned: a pcre2_code. NULL: the piece stays one, and changes as the next two say */
    char *pattern;          /* owned: its text, as it was given */
    bool unmarks;           /* U+2581 becomes a space */
    enum split_space space; /* one comes before a piece that begins with none; or only before the first piece of a text */
    bool matches, gaps;     /* which of both become pieces */
};

struct split {
    struct split_stage stage[SPLIT_STAGES_MAX];
    int count;
};

/* Adds a stage. False with tokens_error(). */
bool split_add(struct split *s, const char *pattern, bool matches, bool gaps);
bool split_add_space(struct split *s, enum split_space space, bool unmarks);
void split_free(struct split *s);

/* Adds the stages that a name of GGUF's tokenizer.ggml.pre stands for, and tells the rest of what it stands for. False with
 * tokens_error(): the name is unknown. */
struct split_named {
    bool ignore_merges; /* a piece that is a token as a whole is not merged */
    bool begins;        /* a begin token comes before a text, if the file does not say otherwise */
    bool composes;      /* texts are in NFC */
};
bool split_add_named(struct split *s, const char *name, struct split_named *is);

/* The name of a split, with the rest that it stands for; split_named.begins does not count. NULL: there is none. */
const char *split_name(const struct split *s, const struct split_named *is);

/* The scratch memory of one thread. NULL: no memory. */
struct splitter;
struct splitter *splitter_new(void);
void splitter_free(struct splitter *w);

/* Calls piece() for each piece in order; it returns false to end. The text is valid UTF-8; `first`: nothing is before it. False:
 * piece() did, or tokens_error(). */
bool split_text(const struct split *s, struct splitter *w, const char *text, size_t bytes, bool first,
                bool (*piece)(void *ctx, const char *text, size_t bytes), void *ctx);

#endif
