/* apps/common/model/shown.h: text that comes byte by byte, as from a model, is written for people.
 *
 *     struct shown s = {.to = stdout};
 *     shown_byte(&s, 0xC3), shown_byte(&s, 0xA9);      // writes "é", when its last byte has come
 *     shown_end(&s);
 *
 * UTF-8 is written as it is. Bytes that are none, and characters that would steer a terminal (graph/base/foreign.h), become
 * U+FFFD, the replacement character; newlines and tabs stay. Each character is flushed. One thread at a time. */
#ifndef APPS_COMMON_MODEL_SHOWN_H
#define APPS_COMMON_MODEL_SHOWN_H

#include <stdio.h>

struct shown {
    FILE *to;     /* borrowed */
    char held[5]; /* the beginning of a character, and a 0 */
    int count;    /* of held bytes */
};

void shown_byte(struct shown *s, unsigned char byte);

/* Bytes that are held and are no whole character become U+FFFD. */
void shown_end(struct shown *s);

#endif
