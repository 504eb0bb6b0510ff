/* scatter.c: see the header. */
#include "kernels/conv/scatter.h"

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* The places [*begin, *end) of a row on the small side whose tap `tap` is inside of the row on the large side. */
static void row_inside(const window *w, int64_t tap, int64_t *begin, int64_t *end)
{
    const int64_t stride = w->stride[2], shift = w->pad[2] - tap * w->dilation[2];
    const int64_t first = shift > 0 ? (shift + stride - 1) / stride : 0;
    const int64_t behind = w->large[2] + shift > 0 ? (w->large[2] + shift + stride - 1) / stride : 0;
    *begin = *begin > first ? *begin : first;
    *end = *end < behind ? *end : behind;
}

/* to[i stride] += by from[i] */
static void add_row(float *restrict to, int64_t stride, const float *restrict from, float by, int64_t count)
{
    if (stride == 1)
        for (int64_t i = 0; i < count; i++)
            to[i] += by * from[i];
    else
        for (int64_t i = 0; i < count; i++)
            to[i * stride] += by * from[i];
}

void scatter_tap(const window *w, const int64_t tap[WINDOW_DIMS], int64_t first, int64_t count, const float *from, float by,
                 float *large)
{
    int64_t index[WINDOW_DIMS];
    for (int64_t done = 0, part; done < count; done += part) {
        window_index(w->small, first + done, index);
        part = least(count - done, w->small[2] - index[2]);
        const int64_t plane = index[0] * w->stride[0] - w->pad[0] + tap[0] * w->dilation[0];
        const int64_t row = index[1] * w->stride[1] - w->pad[1] + tap[1] * w->dilation[1];
        int64_t begin = index[2], end = index[2] + part;
        row_inside(w, tap[2], &begin, &end);
        if (plane < 0 || plane >= w->large[0] || row < 0 || row >= w->large[1] || begin >= end)
            continue;
        const int64_t at = begin * w->stride[2] - w->pad[2] + tap[2] * w->dilation[2];
        add_row(large + (plane * w->large[1] + row) * w->large[2] + at, w->stride[2], from + done + begin - index[2], by,
                end - begin);
    }
}
