/* actors/keep/format/json.c: members of JSON objects that come from outside. */
#include "actors/keep/format/json.h"

#include "graph/base/error.h"
#include "graph/base/locale.h"

#include <assert.h>
#include <inttypes.h>
#include <string.h>

json_t *keep_json_parse(const char *where, const char *text, size_t count)
{
    json_error_t error;
    struct c_locale locale = c_locale_begin();
    json_t *json = json_loadb(text, count, JSON_REJECT_DUPLICATES, &error);
    c_locale_end(locale);
    if (!json) {
        error_set(WEIR_E_IO, "%s: is not JSON: %s (line %d, column %d)", where, error.text, error.line, error.column);
    } else if (!json_is_object(json)) {
        json_decref(json);
        json = NULL;
        error_set(WEIR_E_IO, "%s: is not a JSON object", where);
    }
    return json;
}

static void wrong(struct keep_object *o, const char *key, const char *what)
{
    if (!o->status)
        o->status = error_set(WEIR_E_IO, "%s: \"%s\" %s", o->where, key, what);
}

/* NULL: not there, or something went wrong before. */
static const json_t *member(struct keep_object *o, const char *key)
{
    const json_t *json = o->status ? NULL : json_object_get(o->json, key);
    assert(o->taken_count < KEEP_MEMBERS_MAX);
    if (json)
        o->taken[o->taken_count++] = key;
    else
        wrong(o, key, "is missing");
    return json;
}

const char *keep_json_text(struct keep_object *o, const char *key)
{
    const json_t *json = member(o, key);
    if (json && !json_is_string(json))
        wrong(o, key, "is not a text");
    return !o->status ? json_string_value(json) : "";
}

/* Whether a number is whole and in the range; says so when not. */
static bool in_range(struct keep_object *o, const char *key, const json_t *json, int64_t least, int64_t most)
{
    char text[96];
    if (json_is_integer(json) && json_integer_value(json) >= least && json_integer_value(json) <= most)
        return true;
    snprintf(text, sizeof text, "is not a whole number from %" PRId64 " to %" PRId64, least, most);
    wrong(o, key, text);
    return false;
}

int64_t keep_json_int(struct keep_object *o, const char *key, int64_t least, int64_t most)
{
    const json_t *json = member(o, key);
    return json && in_range(o, key, json, least, most) ? json_integer_value(json) : 0;
}

bool keep_json_bool(struct keep_object *o, const char *key)
{
    const json_t *json = member(o, key);
    if (json && !json_is_boolean(json))
        wrong(o, key, "is not true or false");
    return !o->status && json_is_true(json);
}

uint64_t keep_json_hex(struct keep_object *o, const char *key)
{
    const char *text = keep_json_text(o, key);
    uint64_t value = 0;
    if (!o->status && (strlen(text) != 16 || strspn(text, "0123456789abcdef") != 16))
        wrong(o, key, "is not 16 hexadecimal digits");
    else if (!o->status)
        sscanf(text, "%" SCNx64, &value);
    return value;
}

const json_t *keep_json_array(struct keep_object *o, const char *key)
{
    const json_t *json = member(o, key);
    if (json && !json_is_array(json))
        wrong(o, key, "is not an array");
    return o->status ? NULL : json;
}

void keep_json_numbers(struct keep_object *o, const char *key, int rank, int64_t *number)
{
    const json_t *json = keep_json_array(o, key);
    if (json && json_array_size(json) != (size_t)rank)
        wrong(o, key, "has not as many numbers as the tensor has dimensions");
    for (int d = 0; d < rank && !o->status; d++)
        number[d] = in_range(o, key, json_array_get(json, (size_t)d), 0, INT64_MAX)
                        ? json_integer_value(json_array_get(json, (size_t)d))
                        : 0;
}

void keep_json_shape(struct keep_object *o, const char *key, weir_shape *shape)
{
    const json_t *json = o->status ? NULL : json_object_get(o->json, key);
    char text[64];
    *shape = (weir_shape){.rank = json_is_array(json) ? (int)json_array_size(json) : 0};
    if (shape->rank > WEIR_DIMS_MAX || shape->rank < 0) {
        snprintf(text, sizeof text, "has %zu dimensions; weir reads at most %d", json_array_size(json), WEIR_DIMS_MAX);
        wrong(o, key, text);
        shape->rank = 0;
    }
    keep_json_numbers(o, key, shape->rank, shape->dim);
}

static bool asked_for(const struct keep_object *o, const char *key)
{
    for (int i = 0; i < o->taken_count; i++)
        if (!strcmp(o->taken[i], key))
            return true;
    return false;
}

weir_status keep_json_end(struct keep_object *o)
{
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)o->json, key, value)
    {
        if (!o->status && !asked_for(o, key))
            wrong(o, key, "is not a member that is known here");
    }
    return o->status;
}
