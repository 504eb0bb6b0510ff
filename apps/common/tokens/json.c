/* apps/common/tokens/json.c: see the header. */
#include "apps/common/tokens/json.h"

#include "apps/common/tokens/tokenizer.h"
#include "apps/common/tokens/vocab.h"

#include <stdlib.h>
#include <string.h>

enum { FILE_BYTES_MAX = 128 << 20, VALUES_MAX = 4 << 20 };

char *tokens_read_all(FILE *file, size_t *bytes)
{
    size_t room = 1 << 16, got = 0;
    char *text = malloc(room), *grown = text;
    while (grown && (got += fread(text + got, 1, room - got, file)) == room && room < FILE_BYTES_MAX) {
        grown = realloc(text, room *= 2);
        text = grown ? grown : text;
    }
    const bool ok = grown && got < room && !ferror(file);
    if (!ok) {
        tokens_failed(!grown           ? "no memory"
                      : ferror(file)   ? "cannot be read to its end"
                                       : "has more than 128 MiB, which is the most that is read");
        free(text);
        return NULL;
    }
    text[got] = '\0';
    *bytes = got;
    return text;
}

static bool has_few_values(const char *text, size_t bytes)
{
    size_t values = 1;
    for (size_t i = 0; i < bytes; i++)
        values += text[i] == ',' || text[i] == '[' || text[i] == '{';
    return values <= VALUES_MAX || tokens_failed("has some %zu values; at most %d are read", values, VALUES_MAX);
}

json_t *tokens_read_json(FILE *file, bool long_numbers)
{
    size_t bytes;
    json_error_t error;
    json_t *json = NULL;
    char *text = tokens_read_all(file, &bytes);
    if (text && has_few_values(text, bytes)) {
        json = json_loadb(text, bytes, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL | (long_numbers ? JSON_DECODE_INT_AS_REAL : 0), &error);
        if (!json)
            tokens_failed("line %d: is not JSON: %s", error.line, error.text);
    }
    free(text);
    return json;
}

const char *json_text(const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);
    const char *text = json_string_value(value);
    return text && strlen(text) == json_string_length(value) ? text : "";
}

bool json_is_type(const json_t *object, const char *type)
{
    return !strcmp(json_text(object, "type"), type);
}

bool json_is_on(const json_t *object, const char *key)
{
    return json_is_true(json_object_get(object, key));
}

bool json_is_absent(const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);
    return !value || json_is_null(value);
}

int64_t json_id(const json_t *value)
{
    const json_int_t id = json_is_integer(value) ? json_integer_value(value) : -1;
    return id >= 0 && id < VOCAB_IDS_MAX ? (int64_t)id : -1;
}

bool json_refuse(const char *what, const json_t *object, const char *instead)
{
    return tokens_failed("%s is of the type \"%.60s\", which is not supported; %s", what, json_text(object, "type"), instead);
}
