/* patch.c: see the header. */
#include "kernels/conv/patch.h"

#include "graph/base/half.h"
#include "kernels/common/lanes.h"
#include "kernels/common/real.h"
#include "kernels/conv/room.h"

#include <string.h>

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static int64_t most_of(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

/* Positions of a block per dimension: all of the inner dimensions, unless the outer ones have size 1. */
static void block_extent(const window *w, int64_t count, int64_t extent[WINDOW_DIMS])
{
    const int64_t *small = w->small;
    const int64_t row = most_of(small[2], 1), plane = row * most_of(small[1], 1);
    for (int d = 0; d < WINDOW_DIMS; d++)
        extent[d] = small[d];
    if (small[0] > 1)
        extent[0] = least(small[0], (count - 1) / plane + 2);
    else if (small[1] > 1)
        extent[1] = least(small[1], (count - 1) / row + 2);
    else
        extent[2] = least(small[2], count);
}



static int64_t extent_large(const window *w, int d, int64_t positions)
{
    return (positions - 1) * w->stride[d] + (w->kernel[d] - 1) * w->dilation[d] + 1;
}

int64_t patch_floats(const window *w, int64_t count)
{
    int64_t extent[WINDOW_DIMS], floats = 1;
    block_extent(w, count, extent);
    for (int d = 0; d < WINDOW_DIMS; d++)
        if (!extent[d])
            return 0;
    for (int d = 0; d < WINDOW_DIMS; d++)
        floats = room_times(floats, extent_large(w, d, extent[d]) + (d == 2 ? w->stride[d] - 1 : 0));
    return floats + PATCH_SLACK;
}

patch patch_of(const window *w, int64_t first, int64_t count, weir_dtype dtype, float outside)
{
    patch p = {.w = *w, .dtype = dtype, .outside = outside};
    int64_t begin[WINDOW_DIMS], last[WINDOW_DIMS];
    window_index(w->small, first, begin);
    window_index(w->small, first + count - 1, last);
    for (int d = 0; d < WINDOW_DIMS; d++) {
        p.from[d] = begin[d] * w->stride[d];
        p.size[d] = extent_large(w, d, last[d] - begin[d] + 1);
        if (begin[d] == last[d])
            continue;
        for (int inner = d + 1; inner < WINDOW_DIMS; inner++) {
            begin[inner] = 0;
            last[inner] = w->small[inner] - 1;
        }
    }
    p.pitch = (p.size[2] + w->stride[2] - 1) / w->stride[2];
    p.row = p.pitch * w->stride[2];
    p.plane = p.row * p.size[1];
    return p;
}

int64_t patch_size(const patch *p)
{
    return p->plane * p->size[0];
}

/* ---- copies ---- */

/* Rows are short, often shorter than it takes to call memcpy(). */
static inline __attribute__((always_inline)) void copy(const float *restrict from, int64_t count, float *restrict to)
{
    enum { WIDE = 8 };
    if (count < WIDE) {
        for (int64_t i = 0; i < count; i++)
            to[i] = from[i];
        return;
    }
    for (int64_t i = 0; i + WIDE <= count; i += WIDE)
        memcpy(to + i, from + i, WIDE * sizeof *to);
    memcpy(to + count - WIDE, from + count - WIDE, WIDE * sizeof *to);
}

/* x[0], x[2], ... and x[1], x[3], ... The last vector covers what the one before it has already. */
static void spread_pairs(const float *x, int64_t count, float *even, float *odd)
{
    const lane_numbers from = {0, 2, 4, 6, 8, 10, 12, 14, 1, 3, 5, 7, 9, 11, 13, 15};
    const int64_t last = count < LANES ? 0 : (count - LANES) / 2 * 2;
    for (int64_t i = 0; count >= LANES && i < last + LANES; i += LANES) {
        const int64_t at = least(i, last);
        const lanes v = lanes_load(x + at), sorted = lanes_pick(v, v, from);
        memcpy(even + at / 2, &sorted, sizeof sorted / 2);
        memcpy(odd + at / 2, (const float *)&sorted + LANES / 2, sizeof sorted / 2);
    }
    for (int64_t i = count < LANES ? 0 : last + LANES; i < count; i++)
        (i % 2 ? odd : even)[i / 2] = x[i];
}

/* Elements that lie at `at` and behind it in a row of the patch before it is sorted, to their phases. */
static void spread(const patch *p, const float *x, int64_t count, int64_t at, float *row)
{
    const int64_t stride = p->w.stride[2];
    if (stride == 2) {
        spread_pairs(x, count, row + at % 2 * p->pitch + at / 2, row + (at + 1) % 2 * p->pitch + (at + 1) / 2);
        return;
    }
    for (int64_t phase = 0; phase < stride; phase++) {
        const int64_t first = (phase - at % stride + stride) % stride;
        float *to = row + phase * p->pitch + (at + first) / stride;
        for (int64_t i = first; i < count; i += stride)
            *to++ = x[i];
    }
}

/* `count` elements from `at` on of a row of halves, or of f32. */
static void copy_elements(const patch *p, const void *data, int64_t at, int64_t count, int64_t to, float *row)
{
    float block[REAL_BLOCK];
    if (dtype_half(p->dtype))
        for (int64_t i = 0, part; i < count; i += part) {
            part = least(count - i, REAL_BLOCK);
            weir_to_f32(p->dtype, (const uint16_t *)data + at + i, part, block);
            spread(p, block, part, to + i, row);
        }
    else
        spread(p, (const float *)data + at, count, to, row);
}

/* Whether a tap reads the rows that lie `offset` from the first in this dimension: a stride may leave out some, if windows leave gaps
 * between them or in them. */
static inline bool row_is_read(const window *w, int d, int64_t offset)
{
    if (w->stride[d] == 1 || (w->dilation[d] == 1 && w->kernel[d] >= w->stride[d]))
        return true;
    for (int64_t tap = 0; tap < w->kernel[d]; tap++) {
        const int64_t first = offset - tap * w->dilation[d];
        if (first >= 0 && first % w->stride[d] == 0)
            return true;
    }
    return false;
}

/* The indexes of a patch in dimension d that are not in a pad. */
static void inside_of(const patch *p, int d, int64_t *begin, int64_t *end)
{
    const int64_t before = p->w.pad[d] - p->from[d]; /* elements in front of the tensor; less than 0: the patch begins in it */
    *begin = most_of(before, 0);
    *end = least(p->size[d], before + p->w.large[d]);
}

void patch_fill(const patch *p, const void *data, int64_t at, float *to)
{
    const int64_t *large = p->w.large, *from = p->from, *pad = p->w.pad;
    const bool plain = p->dtype == WEIR_F32 && p->w.stride[2] == 1;
    int64_t begin[WINDOW_DIMS], end[WINDOW_DIMS];
    for (int d = 0; d < WINDOW_DIMS; d++)
        inside_of(p, d, &begin[d], &end[d]);
    const int64_t count = end[2] - begin[2];
    for (int64_t i = begin[0]; i < end[0] && count > 0; i++)
        for (int64_t j = begin[1]; j < end[1]; j++) {
            const int64_t row = (from[0] + i - pad[0]) * large[1] + from[1] + j - pad[1];
            const int64_t first = at + row * large[2] + from[2] + begin[2] - pad[2];
            float *row_to = to + i * p->plane + j * p->row;
            if (!row_is_read(&p->w, 0, i) || !row_is_read(&p->w, 1, j))
                continue;
            if (plain)
                copy((const float *)data + first, count, row_to + begin[2]);
            else
                copy_elements(p, data, first, count, begin[2], row_to);
        }
}

void patch_clear(const patch *p, float *to)
{
    const int64_t size = patch_size(p);
    for (int64_t i = 0; i < size; i++)
        to[i] = p->outside;
}

/* ---- where things are ---- */

void patch_taps(const patch *p, int64_t *tap)
{
    const window *w = &p->w;
    for (int64_t i = 0; i < w->kernel[0]; i++)
        for (int64_t j = 0; j < w->kernel[1]; j++)
            for (int64_t k = 0; k < w->kernel[2]; k++) {
                const int64_t x = k * w->dilation[2];
                *tap++ = i * w->dilation[0] * p->plane + j * w->dilation[1] * p->row + x % w->stride[2] * p->pitch +
                         x / w->stride[2];
            }
}

int64_t patch_runs_max(const window *w, int64_t count, int64_t most)
{
    return count / most + count / most_of(w->small[2], 1) + 4;
}

int64_t patch_runs(const patch *p, int64_t first, int64_t count, int64_t most, patch_run *runs)
{
    const window *w = &p->w;
    int64_t made = 0, index[WINDOW_DIMS];
    for (int64_t done = 0, part; done < count; done += part) {
        window_index(w->small, first + done, index);
        part = least(least(most, count - done), w->small[2] - index[2]);
        runs[made++] = (patch_run){
            .at = (index[0] * w->stride[0] - p->from[0]) * p->plane + (index[1] * w->stride[1] - p->from[1]) * p->row +
                  index[2] - p->from[2] / w->stride[2],
            .to = done,
            .count = part,
        };
    }
    return made;
}
