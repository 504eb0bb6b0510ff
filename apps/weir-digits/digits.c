/* apps/weir-digits/digits.c: reading the handwritten digits, and bending them.
 *
 * Without bending, a perceptron knows the 1437 training images by heart and reads nine of ten digits of other
 * people's: the test images are of other writers. Small random affine maps (Simard et al. 2003) are what makes it read
 * them. Width, depth and dropout were chosen with the last 360 training images held back, not by the test images:
 *
 *     head -1437 apps/data/digits.csv >held.csv; build/bin/weir-digits --data held.csv --layers 1
 */
#include "apps/weir-digits/digits.h"

#include "apps/common/paths.h"
#include "graph/base/base.h"
#include "graph/base/reading.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <weir/weir.h>

/* ---- reading ---- */

static bool parse_line(const char *line, digits_image *image)
{
    for (int i = 0; i <= DIGITS_PIXELS; i++) {
        char *end;
        long value = strtol(line, &end, 10);
        if (end == line || value < 0 || value > (i < DIGITS_PIXELS ? 16 : DIGITS_CLASSES - 1))
            return false;
        if (i < DIGITS_PIXELS)
            image->pixel[i] = (float)value / 16;
        else
            image->label = (int32_t)value;
        line = end + (*end == ',');
    }
    return line[strspn(line, " \r\n")] == '\0';
}

static bool add_image(digits *data, const digits_image *image)
{
    if ((data->count & (data->count - 1)) == 0) { /* a power of two: full */
        size_t room = data->count ? 2 * (size_t)data->count : 1;
        digits_image *grown = realloc(data->image, room * sizeof *grown);
        if (!grown)
            return false;
        data->image = grown;
    }
    data->image[data->count++] = *image;
    return true;
}

static bool read_lines(digits *data, FILE *file, const char *path, char *error, size_t error_bytes)
{
    char line[1024];
    for (int number = 1; fgets(line, sizeof line, file); number++) {
        digits_image image;
        if (!parse_line(line, &image) || !add_image(data, &image)) {
            snprintf(error, error_bytes, "%s:%d: not 64 pixels (0..16) and a digit", path, number);
            return false;
        }
    }
    if (data->count > DIGITS_TEST)
        return true;
    snprintf(error, error_bytes, "%s: %d images, but %d are for testing alone", path, data->count, DIGITS_TEST);
    return false;
}

bool digits_load(digits *data, const char *path, char *error, size_t error_bytes)
{
    const char *why;
    FILE *file = reading_stream(path, &why);
    if (!file) {
        char meant[PATHS_BYTES];
        snprintf(error, error_bytes, "cannot read %s: %s%s", path, why, paths_meant(path, meant));
        return false;
    }
    bool ok = read_lines(data, file, path, error, error_bytes);
    fclose(file);
    return ok;
}

uint64_t digits_hash(const digits *data)
{
    return hash_more(HASH_START, data->image, (size_t)data->count * sizeof *data->image);
}

void digits_free(digits *data)
{
    free(data->image);
    *data = (digits){0};
}

int digits_train_count(const digits *data)
{
    return data->count - DIGITS_TEST;
}

/* ---- drawing and bending ---- */

int digits_draw(const digits *data, uint64_t seed, int64_t step, int64_t row)
{
    uint32_t word[4];
    weir_philox(seed, (uint64_t)step, (uint64_t)row, word);
    return (int)(word[0] % (uint32_t)digits_train_count(data));
}

/* Where the image is looked up for the place (x, y), both from the middle: u = xx x + xy y + x0, v alike. */
typedef struct affine {
    double xx, xy, x0, yx, yy, y0;
} affine;

/* -1..1 */
static double spread(uint32_t word)
{
    return word * 0x1p-31 - 1;
}

static affine draw_affine(uint64_t seed, int64_t step, int64_t row)
{
    uint32_t a[4], b[4];
    weir_philox(seed ^ 0x62656E64, (uint64_t)step, (uint64_t)row, a);
    weir_philox(seed ^ 0x6D6F7665, (uint64_t)step, (uint64_t)row, b);
    double turn = 0.2 * spread(a[0]), shear = 0.2 * spread(a[1]);
    double wide = exp(0.1 * spread(a[2])), high = exp(0.1 * spread(a[3]));
    double c = cos(turn), s = sin(turn);
    return (affine){
        .xx = c * wide, .xy = c * shear - s * high, .x0 = 0.7 * spread(b[0]),
        .yx = s * wide, .yy = s * shear + c * high, .y0 = 0.7 * spread(b[1]),
    };
}

static double pixel_at(const digits_image *image, int x, int y)
{
    return x < 0 || x >= DIGITS_SIDE || y < 0 || y >= DIGITS_SIDE ? 0 : image->pixel[y * DIGITS_SIDE + x];
}

/* Bilinear; outside the image there is nothing. */
static double look_up(const digits_image *image, double x, double y)
{
    double left = floor(x), top = floor(y), fx = x - left, fy = y - top;
    int i = (int)left, j = (int)top;
    return (1 - fy) * ((1 - fx) * pixel_at(image, i, j) + fx * pixel_at(image, i + 1, j)) +
           fy * ((1 - fx) * pixel_at(image, i, j + 1) + fx * pixel_at(image, i + 1, j + 1));
}

void digits_bend(const digits_image *image, uint64_t seed, int64_t step, int64_t row, float pixel[DIGITS_PIXELS])
{
    affine m = draw_affine(seed, step, row);
    double middle = (DIGITS_SIDE - 1) / 2.0;
    for (int i = 0; i < DIGITS_PIXELS; i++) {
        double x = i % DIGITS_SIDE - middle, y = i / DIGITS_SIDE - middle;
        pixel[i] = (float)look_up(image, m.xx * x + m.xy * y + m.x0 + middle, m.yx * x + m.yy * y + m.y0 + middle);
    }
}
