/* tests/support/json.h: just enough to say whether a text is JSON (RFC 8259). */
#ifndef TESTS_SUPPORT_JSON_H
#define TESTS_SUPPORT_JSON_H

#include <stdbool.h>

/* The file's contents, owned by the caller; fails the test when it cannot be read. */
char *json_read(const char *path);

/* Whether the whole text is one JSON value. */
bool json_valid(const char *text);

/* How often `part` occurs in the text. */
int json_count(const char *text, const char *part);

/* The number behind the first `"name": `; fails the test when there is none. */
double json_member(const char *text, const char *name);

#endif
