/* kernels/stored/panel.c: see the header. Where there are no vectors (vectors.h), rows are unpacked one by one. */
#include "kernels/stored/panel.h"

#include "kernels/common/lanes.h"
#include "kernels/stored/unpack.h"

_Static_assert((int)PANEL_ROWS == (int)LANES, "a row of a panel is a vector");

#ifdef VECTOR_ROWS

/* `blocks` blocks of each of 16 rows. elements, bytes, units, minimum: of a block. */
VECTOR void unpack(void (*block)(const place *p), int elements, int bytes, int units, bool minimum, const unsigned char *rows, int64_t step,
                   int64_t blocks, const unsigned char *ahead, panel *to)
{
    block_header headers[VECTORS][HEADERS];
    for (int64_t b = 0; b < blocks; b++, rows += bytes) {
        ask_for_blocks(ahead + b * PANEL_ROWS * bytes, bytes);
        UNROLL
        for (int v = 0; v < VECTORS; v++) {
            const int row = v * VECTOR_ROWS;
            const row_places at = row_places_of(rows + row * step, step);
            const block_header *header = units == 1 ? header_of(&at, b, blocks, bytes, minimum, headers[v]) : NULL;
            block(&(place){at, header, false, to->q + (b * elements * PANEL_ROWS + row * 4), to->scales[b * units] + row,
                           to->minima[b * units] + row});
        }
    }
}

#define X(name, block, elements, bytes, units, minimum, ...)                                                                   \
    static void unpack_##block(const unsigned char *rows, int64_t step, int64_t blocks, const unsigned char *ahead, panel *to) \
    {                                                                                                                          \
        unpack(block_##block, elements, bytes, units, minimum, rows, step, blocks, ahead, to);                                 \
    }
UNPACKED_FORMATS(X)
#undef X

static void unpack_rows(const stored_weight *w, const unsigned char *rows, int64_t step, int64_t blocks, const unsigned char *ahead, panel *to)
{
    static void (*const unpackers[])(const unsigned char *rows, int64_t step, int64_t blocks, const unsigned char *ahead, panel *to) = {
#define X(name, block, ...) [WEIR_##name] = unpack_##block,
        UNPACKED_FORMATS(X)
#undef X
    };
    unpackers[w->format](rows, step, blocks, ahead, to);
}

#else

/* Unit `inner` of a block of each row. */
static void unpack_unit(const stored_weight *w, const unsigned char *rows, int64_t step, int inner, int64_t unit, panel *to)
{
    const int words = w->is->unit / 4;
    for (int r = 0; r < PANEL_ROWS; r++) {
        block_unit read;
        block_unit_read(w->format, rows + r * step, inner, &read);
        for (int i = 0; i < words; i++)
            memcpy(to->q + ((unit * words + i) * PANEL_ROWS + r) * 4, read.q + 4 * i, 4);
        to->scales[unit][r] = read.scale;
        to->minima[unit][r] = read.minimum;
    }
}

static void unpack_rows(const stored_weight *w, const unsigned char *rows, int64_t step, int64_t blocks, const unsigned char *ahead, panel *to)
{
    const int units = w->is->elements / w->is->unit;
    (void)ahead;
    for (int64_t unit = 0; unit < blocks * units; unit++)
        unpack_unit(w, rows + unit / units * w->is->bytes, step, (int)(unit % units), unit, to);
}

#endif

enum { AHEAD = 4 * PANEL_ROWS }; /* rows, which are one behind the other */

void panel_unpack(const stored_weight *w, int64_t row, int64_t count, int64_t from, int64_t elements, panel *to)
{
    const int64_t blocks = elements / w->is->elements, bytes = blocks * w->is->bytes;
    const unsigned char *rows = w->at + row * w->row_bytes + from / w->is->elements * w->is->bytes;
    const unsigned char *ahead = w->at + (row + AHEAD) * w->row_bytes + from / w->is->elements * w->is->bytes * PANEL_ROWS;
    if (count == PANEL_ROWS) {
        unpack_rows(w, rows, w->row_bytes, blocks, ahead, to);
        return;
    }
    memset(to->few, 0, sizeof to->few);
    for (int64_t r = 0; r < count; r++)
        memcpy(to->few[r], rows + r * w->row_bytes, (size_t)bytes);
    unpack_rows(w, to->few[0], sizeof to->few[0], blocks, ahead, to);
}

typedef int32_t lane_ints __attribute__((vector_size(LANES * sizeof(int32_t))));

/* A word of each row: its four bytes as f32. minimum: NULL where there is none */
static inline __attribute__((always_inline)) void word_to_f32(const uint8_t *word, const lanes *scale, int zero, const lanes *minimum,
                                                              float *to, int64_t step)
{
    lane_ints four;
    memcpy(&four, word, sizeof four);
    for (int i = 0; i < 4; i++) {
        const lanes whole = __builtin_convertvector((four >> 8 * i & 255) - zero, lanes);
        const lanes value = minimum ? *scale * whole + *minimum : *scale * whole;
        lanes_store(to + i * step, &value);
    }
}

void panel_to_f32(const block_format *format, const panel *from, int64_t elements, float *to, int64_t step)
{
    for (int64_t i = 0; i < elements; i += 4) {
        const lanes scale = lanes_load(from->scales[i / format->unit]), minimum = lanes_load(from->minima[i / format->unit]);
        const uint8_t *word = from->q + i * PANEL_ROWS;
        if (format->minimum)
            word_to_f32(word, &scale, 0, &minimum, to + i * step, step);
        else
            word_to_f32(word, &scale, format->zero, NULL, to + i * step, step);
    }
}
