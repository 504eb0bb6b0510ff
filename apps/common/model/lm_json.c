/* apps/common/model/lm_json.c: members of a config.json. See lm_inside.h. */
#include "apps/common/json_file.h"
#include "apps/common/model/lm_inside.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { FILE_BYTES_MAX = 256 << 10, VALUE_BYTES = 60 };

bool lm_wrong(const struct lm_why *why, const char *format, ...)
{
    va_list args;
    const int begun = snprintf(why->text, why->bytes, "%s: ", why->path);
    va_start(args, format);
    if (begun >= 0 && (size_t)begun < why->bytes)
        vsnprintf(why->text + begun, why->bytes - (size_t)begun, format, args);
    va_end(args);
    return false;
}

json_t *lm_json_read(const struct lm_why *why)
{
    char text[JSON_FILE_WHY];
    json_t *json = json_file_object(why->path, FILE_BYTES_MAX, text);
    if (!json)
        lm_wrong(why, "%s", text);
    return json;
}

/* ---- members ---- */

/* The value as one line, cut. */
static const char *shown(const json_t *value, char text[VALUE_BYTES])
{
    char *all = json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT | JSON_ENSURE_ASCII | JSON_REAL_PRECISION(9));
    snprintf(text, VALUE_BYTES, "%s", all ? all : "?");
    if (all && strlen(all) >= VALUE_BYTES)
        memcpy(text + VALUE_BYTES - 4, "...", 4);
    free(all);
    return text;
}

void lm_refuse(struct lm_members *m, const char *key, const char *supported)
{
    char text[VALUE_BYTES];
    if (!m->wrong)
        lm_wrong(m->why, "\"%s\" is %s; supported is %s", key, shown(json_object_get(m->json, key), text), supported);
    m->wrong = true;
}

/* NULL: the default is to be taken. */
static const json_t *member(struct lm_members *m, const char *key, bool needed)
{
    const json_t *value = json_object_get(m->json, key);
    if (value && !json_is_null(value))
        return value;
    if (needed && !m->wrong) {
        lm_wrong(m->why, "has no \"%s\"", key);
        m->wrong = true;
    }
    return NULL;
}

int lm_int(struct lm_members *m, const char *key, int least, int otherwise)
{
    const json_t *value = member(m, key, otherwise == LM_NEEDED);
    const json_int_t number = json_is_integer(value) ? json_integer_value(value) : least - 1;
    char range[64];
    if (!value)
        return otherwise;
    if (number >= least && number <= LM_SIZE_MAX)
        return (int)number;
    snprintf(range, sizeof range, "a whole number from %d to %d", least, LM_SIZE_MAX);
    lm_refuse(m, key, range);
    return least;
}

double lm_real(struct lm_members *m, const char *key, double otherwise)
{
    const json_t *value = member(m, key, otherwise == 0);
    const double number = json_number_value(value);
    if (!value)
        return otherwise;
    if (!json_is_number(value) || !isfinite(number) || number <= 0)
        lm_refuse(m, key, "a number above 0");
    return number;
}

bool lm_flag(struct lm_members *m, const char *key, bool otherwise)
{
    const json_t *value = member(m, key, false);
    if (value && !json_is_boolean(value))
        lm_refuse(m, key, "true or false");
    return value ? json_is_true(value) : otherwise;
}

const char *lm_text(struct lm_members *m, const char *key, const char *otherwise)
{
    const json_t *value = member(m, key, !otherwise);
    if (value && !json_is_string(value))
        lm_refuse(m, key, "a text");
    return json_is_string(value) ? json_string_value(value) : otherwise ? otherwise : "";
}

const json_t *lm_object(struct lm_members *m, const char *key)
{
    const json_t *value = member(m, key, false);
    if (value && !json_is_object(value))
        lm_refuse(m, key, "an object");
    return json_is_object(value) ? value : NULL;
}

const json_t *lm_list(struct lm_members *m, const char *key)
{
    const json_t *value = member(m, key, false);
    if (value && !json_is_array(value))
        lm_refuse(m, key, "a list");
    return json_is_array(value) ? value : NULL;
}
