/* window.c: see the header. */
#include "kernels/conv/window.h"

#include "kernels/common/view.h"
#include "kernels/common/written.h"

#define WINDOW_FIELD(member) {#member, offsetof(window_attrs, member), WINDOW_DIMS, false}
#define WINDOW_MEMBERS \
    WINDOW_FIELD(kernel), WINDOW_FIELD(stride), WINDOW_FIELD(pad), WINDOW_FIELD(pad_end), WINDOW_FIELD(dilation)

const weir_field conv_fields[CONV_FIELDS] = {
    WINDOW_MEMBERS,
    WEIR_FIELD_INT(conv_attrs, output_pad),
    WEIR_FIELD_INT(conv_attrs, groups),
};

const weir_field pool_fields[POOL_FIELDS] = {
    WINDOW_MEMBERS,
    WEIR_FIELD_INT(pool_attrs, ceil),
    WEIR_FIELD_INT(pool_attrs, count_pad),
    WEIR_FIELD_INT(pool_attrs, size),
};

/* No sum or product of a few of them, and of a size, overflows. */
static const int64_t NUMBER_MAX = INT64_C(1) << 28;

static bool number_right(const char *name, int d, int64_t number, int64_t least, char *error, size_t error_bytes)
{
    if (number >= least && number <= NUMBER_MAX)
        return true;
    return REFUSE(".%s[%d] is %lld; it must be %lld to %lld", name, d, (long long)number, (long long)least,
                  (long long)NUMBER_MAX);
}

bool window_right(const window_attrs *attrs, int rank, char *error, size_t error_bytes)
{
    if (rank < 3 || rank > WINDOW_DIMS + 2)
        return REFUSE("x has %d dimensions; it needs a batch, channels and 1 to %d more", rank, WINDOW_DIMS);
    const struct {
        const char *name;
        const int64_t *of;
        int64_t least;
    } lists[] = {{"kernel", attrs->kernel, 1}, {"stride", attrs->stride, 1}, {"dilation", attrs->dilation, 1},
                 {"pad", attrs->pad, 0}, {"pad_end", attrs->pad_end, 0}};
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++)
        for (int d = 0; d < WINDOW_DIMS; d++) {
            if (d < rank - 2 && !number_right(lists[i].name, d, lists[i].of[d], lists[i].least, error, error_bytes))
                return false;
            if (d >= rank - 2 && lists[i].of[d])
                return REFUSE(".%s has %d numbers or more; x has %d spatial dimensions", lists[i].name, d + 1, rank - 2);
        }
    double taps = 1;
    for (int d = 0; d < rank - 2; d++)
        taps *= (double)attrs->kernel[d];
    return taps <= (double)NUMBER_MAX || REFUSE("the window has %.0f elements; at most %lld are possible", taps, (long long)NUMBER_MAX);
}

static int64_t window_span(const window_attrs *attrs, int d)
{
    return attrs->dilation[d] * (attrs->kernel[d] - 1) + 1;
}

bool window_shrinks(const window_attrs *attrs, bool ceil, const weir_shape *large, weir_shape *small, char *error,
                    size_t error_bytes)
{
    for (int d = 0; d < large->rank - 2; d++) {
        const int64_t size = large->dim[d + 2], stride = attrs->stride[d];
        const int64_t slides = size + attrs->pad[d] + attrs->pad_end[d] - window_span(attrs, d);
        if (slides < 0)
            return REFUSE("the window spans %lld elements of dimension %d, which has %lld with its pads",
                          (long long)window_span(attrs, d), d + 2, (long long)(slides + window_span(attrs, d)));
        small->dim[d + 2] = slides / stride + 1;
        const bool begins_inside = slides / stride * stride + stride < size + attrs->pad[d];
        if (ceil && slides % stride && begins_inside)
            small->dim[d + 2]++;
    }
    return true;
}

bool window_grows(const conv_attrs *attrs, const weir_shape *small, weir_shape *large, char *error, size_t error_bytes)
{
    const window_attrs *w = &attrs->window;
    for (int d = 0; d < WINDOW_DIMS; d++) {
        const int64_t more = attrs->output_pad[d];
        if (d >= small->rank - 2 && more)
            return REFUSE(".output_pad has %d numbers or more; x has %d spatial dimensions", d + 1, small->rank - 2);
        if (d >= small->rank - 2)
            continue;
        if (more < 0 || more >= w->stride[d])
            return REFUSE(".output_pad[%d] is %lld; it must be at least 0 and less than the stride, %lld", d, (long long)more,
                          (long long)w->stride[d]);
        const int64_t places = small->dim[d + 2];
        if (places > INT64_MAX / 4 / w->stride[d])
            return REFUSE("dimension %d becomes too large", d + 2);
        large->dim[d + 2] = (places - 1) * w->stride[d] + window_span(w, d) + more - w->pad[d] - w->pad_end[d];
        if (places < 1 || large->dim[d + 2] < 1)
            return REFUSE("dimension %d becomes %lld; it must be at least 1", d + 2, (long long)(places < 1 ? 0 : large->dim[d + 2]));
    }
    return true;
}

window_attrs window_options(int rank, const int64_t *kernel, const int64_t *stride, const int64_t *pad, const int64_t *pad_end,
                            const int64_t *dilation)
{
    window_attrs attrs = {0};
    for (int d = 0; d < WINDOW_DIMS; d++) {
        const bool spatial = d < rank - 2;
        attrs.kernel[d] = kernel[d];
        attrs.stride[d] = stride[d] ? stride[d] : spatial;
        attrs.pad[d] = pad[d];
        attrs.pad_end[d] = pad_end[d];
        attrs.dilation[d] = dilation[d] ? dilation[d] : spatial;
    }
    return attrs;
}

const int64_t *window_pads_end(const char *written, const int64_t *pad, const int64_t *pad_end)
{
    bool given = written_member(written, ".pad_end");
    for (int d = 0; d < WINDOW_DIMS; d++)
        given |= pad_end[d] != 0;
    return given ? pad_end : pad;
}
