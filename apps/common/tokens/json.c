/* apps/common/tokens/json.c: see the header. */
#include "apps/common/tokens/json.h"

#include "apps/common/json_file.h"
#include "apps/common/tokens/tokenizer.h"
#include "apps/common/tokens/vocab.h"

#include <string.h>

enum { FILE_BYTES_MAX = 128 << 20 };

char *tokens_read_all(FILE *file, size_t *bytes)
{
    char why[JSON_FILE_WHY], *text = json_file_text(file, FILE_BYTES_MAX, bytes, why);
    if (!text)
        tokens_failed("%s", why);
    return text;
}

json_t *tokens_read_json(FILE *file, bool long_numbers)
{
    char why[JSON_FILE_WHY];
    json_t *json = json_file_read(file, FILE_BYTES_MAX, JSON_ALLOW_NUL | (long_numbers ? JSON_DECODE_INT_AS_REAL : 0), why);
    if (!json)
        tokens_failed("%s", why);
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
