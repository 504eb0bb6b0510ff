/* actors/keep/format/json.h: members of JSON objects (jansson) that come from outside.
 *
 * A reader walks through one object. Each call takes a member out by its name; what is missing, or of the wrong kind or
 * range, leaves one sentence, and the calls after it do nothing. At the end there must be no member that nobody asked
 * for: a key that is not known is an error rather than something to pass over, because it may change what the rest
 * means.
 *
 *     struct keep_object o = {object, .where = "runs/a/index.json: file 0"};
 *     const char *name = keep_json_text(&o, "name");
 *     uint64_t bytes = (uint64_t)keep_json_int(&o, "bytes", 0, INT64_MAX);
 *     if (keep_json_end(&o)) ...
 */
#ifndef ACTORS_KEEP_FORMAT_JSON_H
#define ACTORS_KEEP_FORMAT_JSON_H

#include <jansson.h>
#include <weir/base.h>

enum { KEEP_MEMBERS_MAX = 16 }; /* that one object may have */

struct keep_object {
    const json_t *json;  /* borrowed */
    const char *where;   /* begins the sentence */
    const char *taken[KEEP_MEMBERS_MAX]; /* names that were asked for */
    int taken_count;
    weir_status status;
};

/* Texts are owned by the JSON. Failed: "" or 0, never NULL. */
const char *keep_json_text(struct keep_object *o, const char *key);
int64_t keep_json_int(struct keep_object *o, const char *key, int64_t least, int64_t most);
bool keep_json_bool(struct keep_object *o, const char *key);
uint64_t keep_json_hex(struct keep_object *o, const char *key); /* 16 hexadecimal digits as text */
const json_t *keep_json_array(struct keep_object *o, const char *key);
void keep_json_shape(struct keep_object *o, const char *key, weir_shape *shape);
/* Whole numbers from 0, as many as `rank`. */
void keep_json_numbers(struct keep_object *o, const char *key, int rank, int64_t *number);

weir_status keep_json_end(struct keep_object *o);

/* The JSON of a text, an object without members of the same name. NULL and weir_error(). Freed with json_decref(). */
json_t *keep_json_parse(const char *where, const char *text, size_t count);

#endif
