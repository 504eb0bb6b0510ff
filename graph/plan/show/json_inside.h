/* graph/plan/show/json_inside.h: writing JSON, for the files that do. Between open and shut stand values, with a key in objects
 * and without (NULL) in arrays; commas come by themselves. */
#ifndef GRAPH_PLAN_SHOW_JSON_INSIDE_H
#define GRAPH_PLAN_SHOW_JSON_INSIDE_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

typedef struct json {
    FILE *to;
    bool more; /* something stands before, so a comma is needed */
} json;

void plan_json_open(json *j, const char *key, char bracket);
void plan_json_shut(json *j, char bracket);
void plan_json_number(json *j, const char *key, uint64_t value);
void plan_json_string(json *j, const char *key, const char *text); /* made valid UTF-8 */

#endif
