/* kernels/stored/panel.c: see the header. All formats are unpacked in the same way: words of the rows are laid side by side first, and
 * then taken apart, so that no step is by single elements. Where there are no such vectors (vectors.h), rows are unpacked one by one. */
#include "kernels/stored/panel.h"

#include "kernels/common/lanes.h"
#include "kernels/common/unroll.h"
#include "kernels/stored/vectors.h"

_Static_assert((int)PANEL_ROWS == (int)LANES, "a row of a panel is a vector");

#ifdef VECTOR_ROWS

/* Where VECTOR_ROWS rows of a block go: into these columns of a panel. */
typedef struct place {
    const unsigned char *rows; /* their blocks, `step` bytes apart */
    int64_t step;
    uint8_t *q;
    float *scales, *minima;
} place;

VECTOR void put_words(const place *p, int64_t word, words q)
{
    memcpy(p->q + word * PANEL_ROWS * 4, &q, sizeof q);
}

VECTOR void put_scales(const place *p, int64_t unit, reals scale)
{
    memcpy(p->scales + unit * PANEL_ROWS, &scale, sizeof scale);
}

VECTOR void put_minima(const place *p, int64_t unit, reals minimum)
{
    memcpy(p->minima + unit * PANEL_ROWS, &minimum, sizeof minimum);
}

/* Four bits of each byte. */
VECTOR words bits_of(words x, int shift)
{
    return x >> shift & 0x0F0F0F0F;
}

/* ---- blocks of 32; `header`: bytes in front of the 16 or 32 bytes of elements ---- */

VECTOR void put_four_bits(const place *p, int header, bool five)
{
    words q[4];
    const words high = five ? words_of(p->rows + header - 4, p->step) : (words){};
    words_load(p->rows + header, p->step, q);
    UNROLL
    for (int g = 0; g < 8; g++) {
        const words low = bits_of(q[g % 4], g / 4 * 4);
        put_words(p, g, five ? add_fifth_bits(low, high, g) : low);
    }
}

VECTOR void put_header(const place *p, bool minimum)
{
    const words header = words_of(p->rows, p->step);
    put_scales(p, 0, reals_of_f16(header));
    if (minimum)
        put_minima(p, 0, reals_of_f16(header >> 16));
}

VECTOR void block_q4_0(const place *p)
{
    put_header(p, false);
    put_four_bits(p, 2, false);
}

VECTOR void block_q4_1(const place *p)
{
    put_header(p, true);
    put_four_bits(p, 4, false);
}

VECTOR void block_q5_0(const place *p)
{
    put_header(p, false);
    put_four_bits(p, 6, true);
}

VECTOR void block_q5_1(const place *p)
{
    put_header(p, true);
    put_four_bits(p, 8, true);
}

VECTOR void block_q8_0(const place *p)
{
    words q[4];
    put_header(p, false);
    UNROLL
    for (int g = 0; g < 8; g++) {
        if (g % 4 == 0)
            words_load(p->rows + 2 + 4 * g, p->step, q);
        put_words(p, g, q[g % 4] ^ 0x80808080);
    }
}

/* ---- blocks of 256 ---- */

/* Scales and minima of eight units: bytes of two words each, see block_scale_and_minimum(). */
VECTOR void put_scales_of_six_bits(const place *p)
{
    words h[4];
    words_load(p->rows, p->step, h);
    const reals d = reals_of_f16(h[0]), least = -reals_of_f16(h[0] >> 16);
    const words scale[2] = {h[1] & 0x3F3F3F3F, (h[3] & 0x0F0F0F0F) | (h[1] >> 6 & 0x03030303) << 4};
    const words minimum[2] = {h[2] & 0x3F3F3F3F, (h[3] >> 4 & 0x0F0F0F0F) | (h[2] >> 6 & 0x03030303) << 4};
    UNROLL
    for (int j = 0; j < 8; j++) {
        put_scales(p, j, d * reals_of(scale[j / 4] >> j % 4 * 8 & 255));
        put_minima(p, j, least * reals_of(minimum[j / 4] >> j % 4 * 8 & 255));
    }
}

VECTOR void block_q4_k(const place *p)
{
    words q[4];
    put_scales_of_six_bits(p);
    for (int part = 0; part < 8; part++) { /* of 16 bytes: the first or second half of two units */
        words_load(p->rows + 16 + 16 * part, p->step, q);
        UNROLL
        for (int g = 0; g < 8; g++)
            put_words(p, (part / 2 * 2 + g / 4) * 8 + part % 2 * 4 + g % 4, bits_of(q[g % 4], g / 4 * 4));
    }
}

/* Half of a block, eight units of 16: four times 16 bytes of low bits, twice 16 of high ones. */
VECTOR void put_six_bits(const place *p, int half)
{
    words high[2][4];
    words_load(p->rows + 128 + 32 * half, p->step, high[0]);
    words_load(p->rows + 144 + 32 * half, p->step, high[1]);
    UNROLL
    for (int part = 0; part < 4; part++) {
        words low[4];
        words_load(p->rows + 64 * half + 16 * part, p->step, low);
        UNROLL
        for (int g = 0; g < 8; g++) {
            const int unit = part + g / 4 * 4;
            const words upper = (high[part % 2][g % 4] >> unit / 2 * 2 & 0x03030303) << 4;
            put_words(p, (8 * half + unit) * 4 + g % 4, bits_of(low[g % 4], g / 4 * 4) | upper);
        }
    }
}

VECTOR void block_q6_k(const place *p)
{
    words scale[4];
    words_load(p->rows + 192, p->step, scale);
    const reals d = reals_of_f16(words_of(p->rows + 206, p->step) >> 16);
    UNROLL
    for (int unit = 0; unit < 16; unit++)
        put_scales(p, unit, d * __builtin_convertvector((whole_words)(scale[unit / 4] << (24 - unit % 4 * 8)) >> 24, reals));
    put_six_bits(p, 0);
    put_six_bits(p, 1);
}

/* ---- all ---- */

/* `blocks` blocks of each of 16 rows. elements, bytes: of a block. As many bytes as are unpacked are asked for from `ahead` on: the
 * processor by itself foresees no reads that go on in 16 rows at once, and took three times as long. */
VECTOR void unpack(void (*block)(const place *p), int elements, int bytes, int units, const unsigned char *rows, int64_t step, int64_t blocks,
                   const unsigned char *ahead, panel *to)
{
    for (int64_t b = 0; b < blocks; b++, ahead += PANEL_ROWS * bytes) {
        for (int line = 0; line < PANEL_ROWS * bytes; line += 64)
            __builtin_prefetch(ahead + line, 0, 2);
        for (int r = 0; r < PANEL_ROWS; r += VECTOR_ROWS)
            block(&(place){rows + r * step + b * bytes, step, to->q + (b * elements * PANEL_ROWS + r * 4), to->scales[b * units] + r,
                           to->minima[b * units] + r});
    }
}

/* name, elements, bytes and units of a block */
#define FORMATS(X)                                                                                           \
    X(Q4_0, q4_0, 32, 18, 1) X(Q4_1, q4_1, 32, 20, 1) X(Q5_0, q5_0, 32, 22, 1) X(Q5_1, q5_1, 32, 24, 1)       \
    X(Q8_0, q8_0, 32, 34, 1) X(Q4_K, q4_k, 256, 144, 8) X(Q6_K, q6_k, 256, 210, 16)

#define X(name, block, elements, bytes, units)                                                                     \
    static void unpack_##block(const unsigned char *rows, int64_t step, int64_t blocks, const unsigned char *ahead, panel *to)                 \
    {                                                                                                              \
        unpack(block_##block, elements, bytes, units, rows, step, blocks, ahead, to);                                     \
    }
FORMATS(X)
#undef X

static void unpack_rows(const stored_weight *w, const unsigned char *rows, int64_t step, int64_t blocks, const unsigned char *ahead, panel *to)
{
    static void (*const unpackers[])(const unsigned char *rows, int64_t step, int64_t blocks, const unsigned char *ahead, panel *to) = {
#define X(name, block, elements, bytes, units) [WEIR_##name] = unpack_##block,
        FORMATS(X)
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
