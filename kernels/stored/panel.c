/* kernels/stored/panel.c: see the header. All formats are unpacked in the same way: words of the rows are laid side by side first, and
 * then taken apart, so that no step is by single elements. Where there are no such vectors (vectors.h), rows are unpacked one by one. */
#include "kernels/stored/panel.h"

#include "kernels/common/lanes.h"
#include "kernels/common/unroll.h"
#include "kernels/stored/vectors.h"

_Static_assert((int)PANEL_ROWS == (int)LANES, "a row of a panel is a vector");

#ifdef VECTOR_ROWS

/* Where VECTOR_ROWS rows of a block go: rows of the weight, and the first row of the panel. */
typedef struct place {
    const unsigned char *const *rows;
    panel *to;
    int64_t unit; /* of the panel, the first of the block */
    int first;
} place;

VECTOR void put_words(const place *p, int64_t word, words q)
{
    memcpy(p->to->q + (word * PANEL_ROWS + p->first) * 4, &q, sizeof q);
}

VECTOR void put_scales(const place *p, int64_t unit, reals scale)
{
    memcpy(&p->to->scales[unit][p->first], &scale, sizeof scale);
}

VECTOR void put_minima(const place *p, int64_t unit, reals minimum)
{
    memcpy(&p->to->minima[unit][p->first], &minimum, sizeof minimum);
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
    const words high = five ? words_of(p->rows, header - 4) : (words){};
    words_load(p->rows, header, q);
    UNROLL
    for (int g = 0; g < 8; g++) {
        const words low = bits_of(q[g % 4], g / 4 * 4);
        put_words(p, p->unit * 8 + g, five ? add_fifth_bits(low, high, g) : low);
    }
}

VECTOR void put_header(const place *p, bool minimum)
{
    const words header = words_of(p->rows, 0);
    put_scales(p, p->unit, reals_of_f16(header));
    if (minimum)
        put_minima(p, p->unit, reals_of_f16(header >> 16));
}

static void unpack_q4_0(const place *p)
{
    put_header(p, false);
    put_four_bits(p, 2, false);
}

static void unpack_q4_1(const place *p)
{
    put_header(p, true);
    put_four_bits(p, 4, false);
}

static void unpack_q5_0(const place *p)
{
    put_header(p, false);
    put_four_bits(p, 6, true);
}

static void unpack_q5_1(const place *p)
{
    put_header(p, true);
    put_four_bits(p, 8, true);
}

static void unpack_q8_0(const place *p)
{
    words q[4];
    put_header(p, false);
    UNROLL
    for (int g = 0; g < 8; g++) {
        if (g % 4 == 0)
            words_load(p->rows, 2 + 4 * g, q);
        put_words(p, p->unit * 8 + g, q[g % 4] ^ 0x80808080);
    }
}

/* ---- blocks of 256 ---- */

/* Scales and minima of eight units: bytes of two words each, see graph/base/blocks.c. */
VECTOR void put_scales_of_six_bits(const place *p)
{
    words h[4];
    words_load(p->rows, 0, h);
    const reals d = reals_of_f16(h[0]), least = -reals_of_f16(h[0] >> 16);
    const words scale[2] = {h[1] & 0x3F3F3F3F, (h[3] & 0x0F0F0F0F) | (h[1] >> 6 & 0x03030303) << 4};
    const words minimum[2] = {h[2] & 0x3F3F3F3F, (h[3] >> 4 & 0x0F0F0F0F) | (h[2] >> 6 & 0x03030303) << 4};
    UNROLL
    for (int j = 0; j < 8; j++) {
        put_scales(p, p->unit + j, d * reals_of(scale[j / 4] >> j % 4 * 8 & 255));
        put_minima(p, p->unit + j, least * reals_of(minimum[j / 4] >> j % 4 * 8 & 255));
    }
}

static void unpack_q4_k(const place *p)
{
    words q[4];
    put_scales_of_six_bits(p);
    for (int part = 0; part < 8; part++) { /* of 16 bytes: the first or second half of two units */
        words_load(p->rows, 16 + 16 * part, q);
        UNROLL
        for (int g = 0; g < 8; g++)
            put_words(p, (p->unit + part / 2 * 2 + g / 4) * 8 + part % 2 * 4 + g % 4, bits_of(q[g % 4], g / 4 * 4));
    }
}

/* Half of a block, eight units of 16: four times 16 bytes of low bits, twice 16 of high ones. */
VECTOR void put_six_bits(const place *p, int half)
{
    words high[2][4];
    words_load(p->rows, 128 + 32 * half, high[0]);
    words_load(p->rows, 144 + 32 * half, high[1]);
    UNROLL
    for (int part = 0; part < 4; part++) {
        words low[4];
        words_load(p->rows, 64 * half + 16 * part, low);
        UNROLL
        for (int g = 0; g < 8; g++) {
            const int unit = part + g / 4 * 4;
            const words upper = (high[part % 2][g % 4] >> unit / 2 * 2 & 0x03030303) << 4;
            put_words(p, (p->unit + 8 * half + unit) * 4 + g % 4, bits_of(low[g % 4], g / 4 * 4) | upper);
        }
    }
}

static void unpack_q6_k(const place *p)
{
    words scale[4];
    words_load(p->rows, 192, scale);
    const reals d = reals_of_f16(words_of(p->rows, 206) >> 16);
    UNROLL
    for (int unit = 0; unit < 16; unit++)
        put_scales(p, p->unit + unit, d * __builtin_convertvector((whole_words)(scale[unit / 4] << (24 - unit % 4 * 8)) >> 24, reals));
    put_six_bits(p, 0);
    put_six_bits(p, 1);
}

static void (*const unpackers[])(const place *p) = {
    [WEIR_Q4_0] = unpack_q4_0, [WEIR_Q4_1] = unpack_q4_1, [WEIR_Q5_0] = unpack_q5_0, [WEIR_Q5_1] = unpack_q5_1,
    [WEIR_Q8_0] = unpack_q8_0, [WEIR_Q4_K] = unpack_q4_k, [WEIR_Q6_K] = unpack_q6_k,
};

static void unpack_block(const stored_weight *w, const unsigned char *const rows[PANEL_ROWS], int64_t unit, panel *to)
{
    for (int first = 0; first < PANEL_ROWS; first += VECTOR_ROWS)
        unpackers[w->format](&(place){rows + first, to, unit, first});
}

#else

static void unpack_block(const stored_weight *w, const unsigned char *const rows[PANEL_ROWS], int64_t unit, panel *to)
{
    const int words = w->is->unit / 4;
    for (int inner = 0; inner < w->is->elements / w->is->unit; inner++, unit++)
        for (int r = 0; r < PANEL_ROWS; r++) {
            block_unit read;
            block_unit_read(w->format, rows[r], inner, &read);
            for (int i = 0; i < words; i++)
                memcpy(to->q + ((unit * words + i) * PANEL_ROWS + r) * 4, read.q + 4 * i, 4);
            to->scales[unit][r] = read.scale;
            to->minima[unit][r] = read.minimum;
        }
}

#endif

void panel_unpack(const stored_weight *w, int64_t row, int64_t count, int64_t from, int64_t elements, panel *to)
{
    const block_format *is = w->is;
    const unsigned char *rows[PANEL_ROWS];
    for (int r = 0; r < PANEL_ROWS; r++)
        rows[r] = w->at + (row + (r < count ? r : count - 1)) * w->row_bytes + from / is->elements * is->bytes;
    for (int64_t i = 0; i < elements; i += is->elements) {
        unpack_block(w, rows, i / is->unit, to);
        for (int r = 0; r < PANEL_ROWS; r++)
            rows[r] += is->bytes;
    }
}

typedef int32_t lane_ints __attribute__((vector_size(LANES * sizeof(int32_t))));

/* A word of each row: its four bytes as f32. */
static inline __attribute__((always_inline)) void word_to_f32(const uint8_t *word, lanes scale, int zero, lanes minimum, bool has_minimum,
                                                              float *to, int64_t step)
{
    lane_ints four;
    memcpy(&four, word, sizeof four);
    for (int i = 0; i < 4; i++) {
        const lanes whole = __builtin_convertvector((four >> 8 * i & 255) - zero, lanes);
        const lanes value = has_minimum ? scale * whole + minimum : scale * whole;
        lanes_store(to + i * step, &value);
    }
}

void panel_to_f32(const block_format *format, const panel *from, int64_t elements, float *to, int64_t step)
{
    for (int64_t i = 0; i < elements; i += 4) {
        const lanes scale = lanes_load(from->scales[i / format->unit]), minimum = lanes_load(from->minima[i / format->unit]);
        const uint8_t *word = from->q + i * PANEL_ROWS;
        if (format->minimum)
            word_to_f32(word, scale, 0, minimum, true, to + i * step, step);
        else
            word_to_f32(word, scale, format->zero, minimum, false, to + i * step, step);
    }
}
