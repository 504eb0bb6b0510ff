/* kernels/stored/panel.c: see the header. */
#include "kernels/stored/panel.h"

#include "kernels/common/lanes.h"

_Static_assert((int)PANEL_ROWS == (int)LANES, "a row of a panel is a vector");

/* Unit `unit` of a panel, of which row r is that of blocks[r], the unit `inner` of the block. */
static void unpack_unit(const stored_weight *w, const unsigned char *const blocks[PANEL_ROWS], int inner, int64_t unit, panel *to)
{
    const int words = w->is->unit / 4;
    uint8_t *q = to->q + unit * w->is->unit * PANEL_ROWS;
    for (int r = 0; r < PANEL_ROWS; r++) {
        block_unit read;
        block_unit_read(w->format, blocks[r], inner, &read);
        for (int i = 0; i < words; i++)
            memcpy(q + (i * PANEL_ROWS + r) * 4, read.q + 4 * i, 4);
        to->scales[unit][r] = read.scale;
        to->minima[unit][r] = read.minimum;
    }
}

void panel_unpack(const stored_weight *w, int64_t row, int64_t count, int64_t from, int64_t elements, panel *to)
{
    const block_format *is = w->is;
    const int units = is->elements / is->unit;
    const unsigned char *blocks[PANEL_ROWS];
    for (int r = 0; r < PANEL_ROWS; r++)
        blocks[r] = w->at + (row + (r < count ? r : count - 1)) * w->row_bytes + from / is->elements * is->bytes;
    for (int64_t unit = 0; unit < elements / is->unit; unit++) {
        unpack_unit(w, blocks, (int)(unit % units), unit, to);
        for (int r = 0; r < PANEL_ROWS && unit % units == units - 1; r++)
            blocks[r] += is->bytes;
    }
}

typedef int32_t lane_ints __attribute__((vector_size(LANES * sizeof(int32_t))));

/* A word of each row: its four bytes as f32. */
static inline __attribute__((always_inline)) void word_to_f32(const uint8_t *word, lanes scale, int zero, lanes minimum, bool has_minimum,
                                                              float *to, int64_t step)
{
    lane_ints words;
    memcpy(&words, word, sizeof words);
    for (int i = 0; i < 4; i++) {
        const lanes whole = __builtin_convertvector((words >> 8 * i & 255) - zero, lanes);
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
