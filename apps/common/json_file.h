/* apps/common/json_file.h: files of JSON from strangers.
 *
 * jansson takes up to some hundred bytes of memory for each value. So the caller bounds the file's size, and the file's commas and
 * brackets are counted before jansson begins.
 *
 * A function that fails leaves a sentence without the file's name: "line 3: is not JSON: duplicate object key". Any thread.
 */
#ifndef APPS_COMMON_JSON_FILE_H
#define APPS_COMMON_JSON_FILE_H

#include <jansson.h>
#include <stddef.h>
#include <stdio.h>

enum { JSON_FILE_WHY = 256 };

/* The whole file, and a zero byte; free() it. NULL and `why`: it cannot be read, or has more bytes than `most`. */
char *json_file_text(FILE *file, size_t most, size_t *bytes, char why[JSON_FILE_WHY]);

/* The value; json_decref() it. `flags` are more of those of json_loadb(); two members of one name are refused. NULL and `why`. */
json_t *json_file_read(FILE *file, size_t most, size_t flags, char why[JSON_FILE_WHY]);

/* The object of the file at `path`. NULL and `why`: as above, or the value is another one. */
json_t *json_file_object(const char *path, size_t most, char why[JSON_FILE_WHY]);

#endif
