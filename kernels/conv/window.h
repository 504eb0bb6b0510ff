/* kernels/conv/window.h: the geometry that convolutions and pools share.
 *
 *     large  [batch, channels, d...]   the side that a window slides over: x of a convolution or of a pool
 *     small  [batch, channels, d...]   one position per place of the window: y of a convolution or of a pool
 *
 *     large index = small index * stride - pad + tap * dilation            in each of 1 to 3 spatial dimensions
 *
 * A transposed convolution goes from the small side to the large one. A window structure always has three dimensions: those
 * that a tensor lacks come first and have size 1. So all kernels are written once, for three.
 *
 * Attributes have as many numbers as there are spatial dimensions; the others are 0. They may come from a file that nobody has
 * checked, so window_right() must accept them before anything else is computed. Pure functions; also for CUDA.
 */
#ifndef KERNELS_CONV_WINDOW_H
#define KERNELS_CONV_WINDOW_H

#include <weir/op.h>

#include "graph/base/formula.h"

enum { WINDOW_DIMS = 3 };

typedef struct window_attrs {
    int64_t kernel[WINDOW_DIMS], stride[WINDOW_DIMS], pad[WINDOW_DIMS], pad_end[WINDOW_DIMS], dilation[WINDOW_DIMS];
} window_attrs;

/* conv_dx, conv_dw: output_pad positions more at the end of the large side, as many channels per group as the attributes of
 * the whole op say. */
typedef struct conv_attrs {
    window_attrs window;
    int64_t output_pad[WINDOW_DIMS];
    int64_t groups;
} conv_attrs;

typedef struct pool_attrs {
    window_attrs window;
    int64_t ceil;               /* a last window that begins within the tensor counts, if it ends outside, too */
    int64_t count_pad;          /* average: pads count as elements */
    int64_t size[WINDOW_DIMS];  /* average_pool_grad: the spatial sizes of x */
} pool_attrs;

typedef struct window {
    int64_t large[WINDOW_DIMS], small[WINDOW_DIMS];
    int64_t kernel[WINDOW_DIMS], stride[WINDOW_DIMS], pad[WINDOW_DIMS], dilation[WINDOW_DIMS];
} window;

/* The window of tensors of these shapes. */
FORMULA window window_of(const window_attrs *attrs, const weir_shape *large, const weir_shape *small)
{
    window w;
    const int spatial = large->rank - 2 < WINDOW_DIMS ? large->rank - 2 : WINDOW_DIMS, lacks = WINDOW_DIMS - spatial; /* any rank */
    for (int d = 0; d < WINDOW_DIMS; d++) {
        const int own = d - lacks;
        w.large[d] = own < 0 ? 1 : large->dim[own + 2];
        w.small[d] = own < 0 ? 1 : small->dim[own + 2];
        w.kernel[d] = own < 0 ? 1 : attrs->kernel[own];
        w.stride[d] = own < 0 ? 1 : attrs->stride[own];
        w.pad[d] = own < 0 ? 0 : attrs->pad[own];
        w.dilation[d] = own < 0 ? 1 : attrs->dilation[own];
    }
    return w;
}

FORMULA int64_t window_taps(const window *w)
{
    return w->kernel[0] * w->kernel[1] * w->kernel[2];
}

FORMULA int64_t window_small(const window *w)
{
    return w->small[0] * w->small[1] * w->small[2];
}

FORMULA int64_t window_large(const window *w)
{
    return w->large[0] * w->large[1] * w->large[2];
}

/* The number in row-major order of index (i, j, k) as three indexes. */
FORMULA void window_index(const int64_t size[WINDOW_DIMS], int64_t number, int64_t index[WINDOW_DIMS])
{
    index[2] = number % size[2];
    index[1] = number / size[2] % size[1];
    index[0] = number / size[2] / size[1];
}

/* The spatial number on the large side that tap `tap` of small position `position` reads; -1: it lies in a pad. */
FORMULA int64_t window_at(const window *w, const int64_t position[WINDOW_DIMS], const int64_t tap[WINDOW_DIMS])
{
    int64_t at = 0;
    for (int d = 0; d < WINDOW_DIMS; d++) {
        const int64_t index = position[d] * w->stride[d] - w->pad[d] + tap[d] * w->dilation[d];
        if (index < 0 || index >= w->large[d])
            return -1;
        at = at * w->large[d] + index;
    }
    return at;
}

/* The spatial number on the small side whose tap `tap` reads large position `position`; -1: there is none. */
FORMULA int64_t window_reader(const window *w, const int64_t position[WINDOW_DIMS], const int64_t tap[WINDOW_DIMS])
{
    int64_t at = 0;
    for (int d = 0; d < WINDOW_DIMS; d++) {
        const int64_t first = position[d] + w->pad[d] - tap[d] * w->dilation[d];
        if (first < 0 || first % w->stride[d] || first / w->stride[d] >= w->small[d])
            return -1;
        at = at * w->small[d] + first / w->stride[d];
    }
    return at;
}

/* Whether x comes before the largest so far; NaN is larger than everything. */
FORMULA bool pool_larger(float x, float largest)
{
    return x > largest || (x != x && largest == largest);
}

/* How many elements of a pool's window at `position` an average divides by: those of the tensor, with `count_pad` of its pads,
 * too. */
FORMULA int64_t pool_terms(const pool_attrs *attrs, const window *w, int rank, const int64_t position[WINDOW_DIMS])
{
    int64_t terms = 1;
    for (int d = 0; d < WINDOW_DIMS; d++) {
        const int own = d - (WINDOW_DIMS + 2 - rank);
        const int64_t before = attrs->count_pad && own >= 0 ? w->pad[d] : 0;
        const int64_t end = w->large[d] + (attrs->count_pad && own >= 0 ? attrs->window.pad_end[own] : 0);
        int64_t inside = 0;
        for (int64_t tap = 0; tap < w->kernel[d]; tap++) {
            const int64_t index = position[d] * w->stride[d] - w->pad[d] + tap * w->dilation[d];
            inside += index >= -before && index < end;
        }
        terms *= inside;
    }
    return terms ? terms : 1;
}

#ifndef __cplusplus

/* The members of window_attrs, of a structure that begins with it; and of the other two. */
enum { WINDOW_FIELDS = 5, CONV_FIELDS = 7, POOL_FIELDS = 8 };
extern const weir_field conv_fields[CONV_FIELDS], pool_fields[POOL_FIELDS];

/* The attributes are those of a window over a tensor of this rank; refuses if not. */
bool window_right(const window_attrs *attrs, int rank, char *error, size_t error_bytes);

/* The spatial sizes of the small side, into small->dim[2 ...]. Refuses a window that is larger than the padded tensor. */
bool window_shrinks(const window_attrs *attrs, bool ceil, const weir_shape *large, weir_shape *small, char *error,
                    size_t error_bytes);

/* The spatial sizes of the large side of which `output_pad` more are at the end, into large->dim[2 ...]. */
bool window_grows(const conv_attrs *attrs, const weir_shape *small, weir_shape *large, char *error, size_t error_bytes);

/* pad_end, or pad if the text of the options (kernels/common/written.h) has no .pad_end and all of its numbers are 0. */
const int64_t *window_pads_end(const char *written, const int64_t *pad, const int64_t *pad_end);

/* A stride or a dilation that is left out is 1. */
window_attrs window_options(int rank, const int64_t *kernel, const int64_t *stride, const int64_t *pad, const int64_t *pad_end,
                            const int64_t *dilation);

#endif
#endif
