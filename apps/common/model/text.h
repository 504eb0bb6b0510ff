/* apps/common/model/text.h: text as bytes, and the windows of it that a language model is trained on.
 *
 * Row r of step s is a window that starts at a place drawn from (seed, s, r) alone: the batch of a step is the same
 * however it is cut into micro-batches, however many devices share it and whoever asks first.
 *
 * A text is read-only once loaded; any thread may read it.
 */
#ifndef APPS_COMMON_MODEL_TEXT_H
#define APPS_COMMON_MODEL_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct text {
    uint8_t *bytes; /* owned */
    size_t count;
    int files;
} text;

/* Adds the contents of a file, or all that a pipe brings; false, and *why, when it cannot be read. */
bool text_add_file(text *corpus, const char *path, const char **why);
void text_free(text *corpus);

/* Where the window of `length` bytes for row `row` of step `step` starts; corpus->count >= length. */
size_t text_window(const text *corpus, size_t length, uint64_t seed, int64_t step, int64_t row);

/* Moves the last tenth of the corpus, or `least` bytes if that is more, to `held_out` (empty before). False, and
 * nothing has moved, when fewer than `least` would be left, or there is no memory. */
bool text_hold_out(text *corpus, size_t least, text *held_out);

/* Where row `row` of `rows` windows of `length` bytes starts that are spread evenly over the text, from its first byte
 * to its last. */
size_t text_spread(const text *corpus, size_t length, int64_t row, int64_t rows);

#endif
