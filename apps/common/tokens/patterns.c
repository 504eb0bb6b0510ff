/* apps/common/tokens/patterns.c: the patterns behind the names that GGUF files have in tokenizer.ggml.pre. Each is the one of the
 * tokenizer.json of the models that llama.cpp's converter gives the name. */
#include "apps/common/tokens/split.h"
#include "apps/common/tokens/tokenizer.h"

#include <string.h>

#define WORD "[^\\r\\n\\p{L}\\p{N}]?\\p{L}+"
#define ENDINGS "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
#define REST "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
#define UPPER "[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]"
#define LOWER "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]"
#define FIRST "[^\\r\\n\\p{L}\\p{N}]?"
#define SLASH_REST "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"

#define LLAMA3 ENDINGS "|" WORD "|\\p{N}{1,3}" REST
#define QWEN2 ENDINGS "|" WORD "|\\p{N}" REST
#define GPT4O FIRST UPPER "*" LOWER "+" ENDINGS "?|" FIRST UPPER "+" LOWER "*" ENDINGS "?|\\p{N}{1,3}" SLASH_REST
#define TEKKEN FIRST UPPER "*" LOWER "+|" FIRST UPPER "+" LOWER "*|\\p{N}" SLASH_REST

static const struct named {
    const char *name;        /* that is written */
    const char *names;       /* that are read, with a space around each */
    const char *digits;      /* a stage before the pattern; NULL: none */
    const char *pattern;
    struct split_named is;
} table[] = {
    {"gpt-2", " gpt-2 gpt2 phi-2 olmo ", NULL, SPLIT_GPT2, {0}},
    {"smollm", " smollm starcoder refact command-r ", "\\p{N}", SPLIT_GPT2, {0}},
    {"llama-bpe", " llama-bpe llama3 llama-v3 ", NULL, LLAMA3, {.ignore_merges = true, .begins = true}},
    {"dbrx", " dbrx smaug-bpe ", NULL, LLAMA3, {0}},
    {"qwen2", " qwen2 ", NULL, QWEN2, {.composes = true}},
    {"stablelm2", " stablelm2 deepseek-r1-qwen ", NULL, QWEN2, {0}},
    {"gpt-4o", " gpt-4o ", NULL, GPT4O, {0}},
    {"tekken", " tekken ", NULL, TEKKEN, {.ignore_merges = true, .begins = true}},
};

bool split_add_named(struct split *s, const char *name, struct split_named *is)
{
    char wanted[64] = " ";
    const struct named *found = NULL;
    if (strlen(name) < sizeof wanted - 2)
        strcat(strcat(wanted, name), " ");
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        found = wanted[1] && strstr(table[i].names, wanted) ? &table[i] : found;
    if (!found)
        return tokens_failed("tokenizer.ggml.pre is \"%.60s\", a way to split texts that is not known here; gpt-2, smollm, "
                             "llama-bpe, qwen2, gpt-4o, tekken and others are; use the model's tokenizer.json", name);
    *is = found->is;
    return (!found->digits || split_add(s, found->digits, true, true)) && split_add(s, found->pattern, true, true);
}

/* Whether the split has these patterns. The second one matches all of a text, so that there are no gaps. */
static bool is_of(const struct split *s, const char *digits, const char *pattern)
{
    const char *const patterns[] = {digits ? digits : pattern, pattern};
    bool is = s->count == 1 + (digits != NULL);
    for (int i = 0; i < s->count && is; i++)
        is = s->stage[i].pattern && s->stage[i].matches && (s->stage[i].gaps || i + 1 == s->count) && !strcmp(s->stage[i].pattern, patterns[i]);
    return is;
}

const char *split_name(const struct split *s, const struct split_named *is)
{
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        if (is_of(s, table[i].digits, table[i].pattern) && table[i].is.ignore_merges == is->ignore_merges && table[i].is.composes == is->composes)
            return table[i].name;
    return NULL;
}
