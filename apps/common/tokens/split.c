/* apps/common/tokens/split.c: cuts a text into the pieces that BPE sees, by PCRE2.
 *
 * The stages call each other: a piece of one stage is cut by the next before the stage goes on, so no list of pieces is kept.
 *
 * A pattern is a stranger's, and may backtrack for longer than anybody waits. PCRE2 counts the steps from each byte at which it
 * begins to match, and gives up; so no pattern takes exponential time, but one may take quadratic time. Its machine code has a
 * stack of a fixed size; a match that needs more is done again by the interpreter, whose memory is limited, too.
 */
#define _GNU_SOURCE
#define PCRE2_CODE_UNIT_WIDTH 8
#include "apps/common/tokens/normal.h"
#include "apps/common/tokens/split.h"
#include "apps/common/tokens/tokenizer.h"

#include <ctype.h>
#include <pcre2.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { MATCH_STEPS = 10000000, MATCH_STEPS_A_BYTE = 16, HEAP_KIB_MAX = 1 << 16, STACK_BYTES = 32 << 10, STACK_BYTES_MAX = 1 << 20 };

struct splitter {
    pcre2_match_data *found;   /* owned, as the next three */
    pcre2_match_context *limits;
    pcre2_jit_stack *stack;
    struct spaced {            /* by stage: a piece with a space before it */
        char *text;
        size_t room;
    } spaced[SPLIT_STAGES_MAX];
};

/* ---- patterns ---- */

/* Whether Oniguruma, with the rules of Ruby, and PCRE2 may read differently what stands here: sets within sets; anchors, which
 * Ruby takes for those of lines; {1,3}+, which is possessive in PCRE2 alone; verbs and options. */
static bool is_ambiguous(const char *at, bool in_set)
{
    static const char *const groups[] = {"(?:", "(?=", "(?!", "(?<=", "(?<!", "(?>", "(?i:"};
    if (in_set)
        return *at == '[' || (*at == '&' && at[1] == '&');
    if (*at == '^' || *at == '$' || (*at == '}' && at[1] == '+') || (*at == '(' && at[1] == '*'))
        return true;
    bool known = *at != '(' || at[1] != '?';
    for (size_t i = 0; i < sizeof groups / sizeof *groups && !known; i++)
        known = !strncmp(at, groups[i], strlen(groups[i]));
    return !known;
}

/* Writes the translation of the escape at `from` to *to; returns what follows it, or NULL. */
static const char *take_escape(const char *from, char **to)
{
    static const char properties[] = "pPx", same[] = "dDrntf";
    const char *const as = from[1] == 's' ? "\\p{wspace}" : from[1] == 'S' ? "\\P{wspace}" : NULL;
    if (as) {
        *to = stpcpy(*to, as);
        return from + 2;
    }
    if (from[1] == 'u' && strspn(from + 2, "0123456789abcdefABCDEF") >= 4) {
        *to = stpcpy(stpncpy(stpcpy(*to, "\\x{"), from + 2, 4), "}");
        return from + 6;
    }
    const char *end = from + 2;
    if (from[1] && strchr(properties, from[1]) && from[2] == '{')
        end = strchr(from, '}') ? strchr(from, '}') + 1 : NULL;
    else if (!from[1] || (!strchr(same, from[1]) && !ispunct((unsigned char)from[1])))
        end = NULL;
    if (end)
        *to = mempcpy(*to, from, (size_t)(end - from));
    return end;
}

/* The pattern as PCRE2 has to read it, in a buffer of 6 bytes for each of its own. False: the two read it differently. */
static bool translate(const char *pattern, char *to)
{
    bool in_set = false;
    for (const char *at = pattern; *at;) {
        if (*at == '\\') {
            const char *const after = take_escape(at, &to);
            if (!after)
                return tokens_failed("the pattern \"%.200s\" has \\%.1s, which is not read", pattern, at + 1);
            at = after;
            continue;
        }
        if (is_ambiguous(at, in_set))
            return tokens_failed("the pattern \"%.200s\" has \"%.3s\", which is not read", pattern, at);
        const bool opens = !in_set && *at == '[';
        in_set = in_set ? *at != ']' : opens;
        *to++ = *at++;
        if (opens && *at == '^')
            *to++ = *at++;
        if (opens && *at == ']')
            return tokens_failed("the pattern \"%.200s\" has an empty set, which is not read", pattern);
    }
    *to = '\0';
    return true;
}

static bool add_stage(struct split *s, struct split_stage stage)
{
    if (s->count == SPLIT_STAGES_MAX) {
        pcre2_code_free(stage.code);
        free(stage.pattern);
        return tokens_failed("the text is split in more than %d stages", SPLIT_STAGES_MAX);
    }
    s->stage[s->count++] = stage;
    return true;
}

bool split_add(struct split *s, const char *pattern, bool matches, bool gaps)
{
    enum { GROWTH = 6 }; /* \s is \p{wspace}, of 10 bytes */
    if (strlen(pattern) > SPLIT_PATTERN_MAX)
        return tokens_failed("has a pattern of %zu bytes; at most %d are read", strlen(pattern), SPLIT_PATTERN_MAX);
    char *translated = malloc(GROWTH * strlen(pattern) + 1);
    int number = 0;
    PCRE2_SIZE at = 0;
    if (!translated)
        return tokens_failed("no memory");
    pcre2_code *code = NULL;
    const bool ok = translate(pattern, translated);
    if (ok) {
        code = pcre2_compile((PCRE2_SPTR)translated, PCRE2_ZERO_TERMINATED, PCRE2_UTF | PCRE2_UCP | PCRE2_NEVER_BACKSLASH_C,
                             &number, &at, NULL);
        if (!code) {
            char why[128];
            pcre2_get_error_message(number, (PCRE2_UCHAR *)why, sizeof why);
            tokens_failed("the pattern \"%.200s\" is not valid: %s", pattern, why);
        }
    }
    free(translated);
    if (!code)
        return false;
    pcre2_jit_compile(code, PCRE2_JIT_COMPLETE); /* where it fails, the interpreter matches */
    char *kept = strdup(pattern);
    if (!kept) {
        pcre2_code_free(code);
        return tokens_failed("no memory");
    }
    return add_stage(s, (struct split_stage){.code = code, .pattern = kept, .matches = matches, .gaps = gaps});
}

bool split_add_space(struct split *s, enum split_space space, bool unmarks)
{
    return add_stage(s, (struct split_stage){.space = space, .unmarks = unmarks});
}

void split_free(struct split *s)
{
    for (int i = 0; i < s->count; i++) {
        pcre2_code_free(s->stage[i].code);
        free(s->stage[i].pattern);
    }
    s->count = 0;
}

/* ---- cutting ---- */

struct splitter *splitter_new(void)
{
    struct splitter *w = calloc(1, sizeof *w);
    if (!w)
        return NULL;
    w->found = pcre2_match_data_create(1, NULL);
    w->limits = pcre2_match_context_create(NULL);
    w->stack = pcre2_jit_stack_create(STACK_BYTES, STACK_BYTES_MAX, NULL);
    if (!w->found || !w->limits || !w->stack) {
        splitter_free(w);
        return NULL;
    }
    pcre2_set_heap_limit(w->limits, HEAP_KIB_MAX);
    pcre2_jit_stack_assign(w->limits, NULL, w->stack);
    return w;
}

void splitter_free(struct splitter *w)
{
    if (!w)
        return;
    pcre2_match_data_free(w->found);
    pcre2_match_context_free(w->limits);
    pcre2_jit_stack_free(w->stack);
    for (int i = 0; i < SPLIT_STAGES_MAX; i++)
        free(w->spaced[i].text);
    free(w);
}

/* One call of split_text(). */
struct cut {
    const struct split *split;
    struct splitter *scratch;
    const char *first; /* the piece that begins here is the text's first; NULL: there is none */
    bool (*piece)(void *ctx, const char *text, size_t bytes);
    void *ctx;
};

/* The next match at or after `from`. Its number, 0 for none, or -1 with a sentence. */
static int find(const struct cut *c, const pcre2_code *code, const char *text, size_t bytes, size_t from)
{
    struct splitter *w = c->scratch;
    int got = pcre2_jit_match(code, (PCRE2_SPTR)text, bytes, from, PCRE2_NO_UTF_CHECK, w->found, w->limits);
    if (got == PCRE2_ERROR_JIT_BADOPTION || got == PCRE2_ERROR_JIT_STACKLIMIT)
        got = pcre2_match(code, (PCRE2_SPTR)text, bytes, from, PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT, w->found, w->limits);
    if (got >= 0)
        return 1;
    if (got == PCRE2_ERROR_NOMATCH)
        return 0;
    tokens_failed("the pattern of the tokenizer takes too long on the text \"%.*s...\"", (int)(bytes - from < 40 ? bytes - from : 40),
                  text + from);
    return -1;
}

static bool cut(const struct cut *c, int stage, const char *text, size_t bytes);

static bool has_room(struct spaced *to, size_t bytes)
{
    if (to->room >= bytes)
        return true;
    char *text = realloc(to->text, 2 * bytes);
    if (!text)
        return tokens_failed("no memory for a piece of %zu bytes", bytes);
    to->text = text;
    to->room = 2 * bytes;
    return true;
}

static bool space(const struct cut *c, int stage, const char *text, size_t bytes)
{
    const struct split_stage *s = &c->split->stage[stage];
    struct spaced *to = &c->scratch->spaced[stage];
    if (!has_room(to, bytes + 1))
        return false;
    const size_t made = s->unmarks ? normal_unmark(text, bytes, to->text + 1) : bytes;
    if (!s->unmarks)
        memcpy(to->text + 1, text, bytes);
    const bool spaced = to->text[1] != ' ' && (s->space == SPLIT_SPACE || (s->space == SPLIT_FIRST_SPACE && text == c->first));
    to->text[0] = ' ';
    return cut(c, stage + 1, to->text + !spaced, made + spaced);
}

static size_t next_char(const char *text, size_t bytes, size_t at)
{
    for (at++; at < bytes && ((unsigned char)text[at] & 0xc0) == 0x80;)
        at++;
    return at;
}

/* As "\s*\n" does on spaces without an end of line, a match may step back over each byte of the text; but not much more often. */
static void limit_steps(struct splitter *w, size_t bytes)
{
    const uint64_t steps = MATCH_STEPS + (uint64_t)bytes * MATCH_STEPS_A_BYTE;
    pcre2_set_match_limit(w->limits, steps < UINT32_MAX ? (uint32_t)steps : UINT32_MAX);
}

/* Cuts by the pattern of a stage. A match of no bytes ends a gap; one right behind a match is none. */
static bool cut_by(const struct cut *c, int stage, const char *text, size_t bytes)
{
    const struct split_stage *s = &c->split->stage[stage];
    const size_t *const span = pcre2_get_ovector_pointer(c->scratch->found);
    size_t done = 0, from = 0;
    bool ok = true, matched = false;
    while (ok && from <= bytes) {
        limit_steps(c->scratch, bytes - from); /* the stages after this one have changed it */
        const int got = find(c, s->code, text, bytes, from);
        if (got < 0)
            return false;
        if (!got)
            break;
        const size_t begin = span[0], end = span[1];
        if (begin >= end) {
            from = next_char(text, bytes, begin);
            if (matched && begin == done)
                continue;
        } else {
            from = end;
        }
        if (begin > done && s->gaps)
            ok = cut(c, stage + 1, text + done, begin - done);
        if (ok && end > begin && s->matches)
            ok = cut(c, stage + 1, text + begin, end - begin);
        done = end;
        matched = true;
    }
    return ok && (done >= bytes || !s->gaps || cut(c, stage + 1, text + done, bytes - done));
}

static bool cut(const struct cut *c, int stage, const char *text, size_t bytes)
{
    if (stage == c->split->count)
        return c->piece(c->ctx, text, bytes);
    return c->split->stage[stage].code ? cut_by(c, stage, text, bytes) : space(c, stage, text, bytes);
}

bool split_text(const struct split *s, struct splitter *w, const char *text, size_t bytes, bool first,
                bool (*piece)(void *ctx, const char *text, size_t bytes), void *ctx)
{
    const struct cut c = {s, w, first ? text : NULL, piece, ctx};
    return bytes == 0 || cut(&c, 0, text, bytes);
}
