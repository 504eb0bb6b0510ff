/* apps/weir-digits/digits.h: the handwritten digits: 8 x 8 images of 0..1, row by row, and what they show.
 *
 * The last DIGITS_TEST images are for testing, those before for training. Read-only once loaded; any thread may read.
 */
#ifndef APPS_WEIR_DIGITS_DIGITS_H
#define APPS_WEIR_DIGITS_DIGITS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define DIGITS_SIDE 8
#define DIGITS_PIXELS (DIGITS_SIDE * DIGITS_SIDE)
#define DIGITS_CLASSES 10
#define DIGITS_TEST 360

typedef struct digits_image {
    float pixel[DIGITS_PIXELS];
    int32_t label;
} digits_image;

typedef struct digits {
    digits_image *image; /* owned */
    int count;
} digits;

/* Reads a CSV file of 64 pixels (0..16) and a label a line. False, with one sentence in `error`, when it cannot. */
bool digits_load(digits *data, const char *path, char *error, size_t error_bytes);
void digits_free(digits *data);

int digits_train_count(const digits *data);

/* Of all images: FNV-1a, 64 bits. */
uint64_t digits_hash(const digits *data);

/* Which training image row `row` of step `step` shows. */
int digits_draw(const digits *data, uint64_t seed, int64_t step, int64_t row);

/* The same image, turned, sheared, scaled and moved a little, as row `row` of step `step` does it, to `pixel`. */
void digits_bend(const digits_image *image, uint64_t seed, int64_t step, int64_t row, float pixel[DIGITS_PIXELS]);

#endif
