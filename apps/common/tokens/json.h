/* apps/common/tokens/json.h: files of JSON (apps/common/json_file.h) of at most 128 MiB, and their members, for the readers of tokenizers. */
#ifndef APPS_COMMON_TOKENS_JSON_H
#define APPS_COMMON_TOKENS_JSON_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

/* The whole file, and a zero byte; free() it. NULL with tokens_error(): it cannot be read, or is too large. */
char *tokens_read_all(FILE *file, size_t *bytes);

/* The value; json_decref() it. `long_numbers`: all numbers are read as reals, so a whole one may have any length, such as the
 * model_max_length that transformers writes. NULL with tokens_error(). */
json_t *tokens_read_json(FILE *file, bool long_numbers);

/* The text of a member; "": it is not there, no text, or has a zero byte. */
const char *json_text(const json_t *object, const char *key);
bool json_is_type(const json_t *object, const char *type); /* "type": "..." */
bool json_is_on(const json_t *object, const char *key);    /* true */
bool json_is_absent(const json_t *object, const char *key); /* or null */

/* An id, or -1 if the value is none. */
int64_t json_id(const json_t *value);

/* "WHAT is of the type "...", which is not supported; INSTEAD". */
bool json_refuse(const char *what, const json_t *object, const char *instead);

#endif
