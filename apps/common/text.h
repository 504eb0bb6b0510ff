/* apps/common/text.h: text as bytes, and the windows of it that a language model is trained on.
 *
 * Row r of step s is a window that starts at a place drawn from (seed, s, r) alone: the batch of a step is the same
 * however it is cut into micro-batches, however many devices share it and whoever asks first.
 *
 * A text is read-only once loaded; any thread may read it.
 */
#ifndef APPS_COMMON_TEXT_H
#define APPS_COMMON_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct text {
    uint8_t *bytes; /* owned */
    size_t count;
    int files;
} text;

/* Adds the contents of a file; false, with errno set, when it cannot be read. */
bool text_add_file(text *corpus, const char *path);
void text_free(text *corpus);

/* Where the window of `length` bytes for row `row` of step `step` starts; corpus->count >= length. */
size_t text_window(const text *corpus, size_t length, uint64_t seed, int64_t step, int64_t row);

#endif
