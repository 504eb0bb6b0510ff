/* tests/support/json.c: a recursive descent over the grammar; each function takes the text from the start of its
 * construct and returns the place behind it, or NULL. */
#include "tests/support/json.h"

#include "graph/base/locale.h"

#include <criterion/criterion.h>
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *value(const char *at);

static const char *space(const char *at)
{
    while (*at && strchr(" \t\r\n", *at))
        at++;
    return at;
}

static const char *escape(const char *at)
{
    if (*at != 'u')
        return *at && strchr("\"\\/bfnrt", *at) ? at + 1 : NULL;
    for (int i = 1; i <= 4; i++)
        if (!isxdigit((unsigned char)at[i]))
            return NULL;
    return at + 5;
}

static const char *string(const char *at)
{
    if (*at++ != '"')
        return NULL;
    while (at && *at != '"') {
        if ((unsigned char)*at < ' ')
            return NULL;
        at = *at == '\\' ? escape(at + 1) : at + 1;
    }
    return at ? at + 1 : NULL;
}

static const char *number(const char *at)
{
    char *end;
    if (*at != '-' && !is_digit(*at))
        return NULL;
    number_read(at, &end);
    return end > at ? end : NULL;
}

/* Reads the members of an object or array. */
static const char *members(const char *at, char close, bool named)
{
    at = space(at);
    if (*at == close)
        return at + 1;
    for (;;) {
        if (named) {
            at = string(space(at));
            at = at ? space(at) : NULL;
            if (!at || *at++ != ':')
                return NULL;
        }
        at = value(at);
        if (!at || (*at != close && *at != ','))
            return NULL;
        if (*at++ == close)
            return at;
    }
}

static const char *word(const char *at)
{
    static const char *const words[] = {"true", "false", "null"};
    for (int i = 0; i < 3; i++)
        if (!strncmp(at, words[i], strlen(words[i])))
            return at + strlen(words[i]);
    return NULL;
}

static const char *value(const char *at)
{
    at = space(at);
    const char *end = *at == '{'   ? members(at + 1, '}', true)
                      : *at == '[' ? members(at + 1, ']', false)
                      : *at == '"' ? string(at)
                      : isalpha((unsigned char)*at) ? word(at)
                                                    : number(at);
    return end ? space(end) : NULL;
}

bool json_valid(const char *text)
{
    const char *end = value(text);
    return end && !*end;
}

int json_count(const char *text, const char *part)
{
    int count = 0;
    for (; (text = strstr(text, part)); text += strlen(part))
        count++;
    return count;
}

char *json_read(const char *path)
{
    FILE *file = fopen(path, "r");
    if (!file)
        abort();
    char *text = NULL;
    size_t bytes = 0;
    if (getdelim(&text, &bytes, '\0', file) < 0)
        abort();
    fclose(file);
    return text;
}

double json_member(const char *text, const char *name)
{
    char key[64];
    snprintf(key, sizeof key, "\"%s\": ", name);
    const char *at = strstr(text, key);
    cr_assert(at, "no %s in %s", name, text);
    return strtod(at + strlen(key), NULL);
}
