/* test_conv.c: convolutions and pools of 1 to 3 spatial dimensions against plain loops in double, and by each of their promises. */
#include "kernels/common/ops.h"
#include "kernels/conv/window.h"
#include "tests/kernels/by_name.h"

#include <criterion/criterion.h>
#include <math.h>
#include <string.h>
#include <weir/weir.h>

TestSuite(conv, .timeout = 120);

#define SEED 1989

/* ---- the references ---- */

typedef struct meeting {
    const kernel_check *c;
    const weir_shape *large, *small, *weight;
    int64_t b, o, i;                /* image, small channel, large channel of the group */
    int64_t at_large, at_small, at_weight;
} meeting;

/* Calls `each` for all elements of the three that meet, by loops over all dimensions. */
static void meet(const kernel_check *c, const weir_shape *large, const weir_shape *small, const weir_shape *weight,
                 void (*each)(const meeting *m, double *want), double *want)
{
    meeting m = {c, large, small, weight, 0, 0, 0, 0, 0, 0};
    const int dims = large->rank - 2;
    const window_attrs *w = c->attrs;
    int64_t smalls = 1, larges = 1, taps = 1;
    for (int d = 0; d < dims; d++) {
        smalls *= small->dim[d + 2];
        larges *= large->dim[d + 2];
        taps *= w->kernel[d];
    }
    const int64_t ins = weight->dim[1], groups = large->dim[1] / ins, outs = weight->dim[0] / groups;
    for (int64_t n = 0; n < large->dim[0] * groups * outs * ins * smalls * taps; n++) {
        const int64_t t = n % taps, p = n / taps % smalls;
        m.i = n / taps / smalls % ins;
        m.o = n / taps / smalls / ins % (groups * outs);
        m.b = n / taps / smalls / ins / (groups * outs);
        int64_t at = 0, in_p = p, in_t = t, step = 1;
        bool inside = true;
        for (int d = dims - 1; d >= 0; d--) {
            const int64_t x = in_p % small->dim[d + 2] * w->stride[d] + in_t % w->kernel[d] * w->dilation[d] - w->pad[d];
            inside &= x >= 0 && x < large->dim[d + 2];
            at += x * step;
            step *= large->dim[d + 2];
            in_p /= small->dim[d + 2];
            in_t /= w->kernel[d];
        }
        m.at_large = ((m.b * groups + m.o / outs) * ins + m.i) * larges + at;
        m.at_small = (m.b * groups * outs + m.o) * smalls + p;
        m.at_weight = (m.o * ins + m.i) * taps + t;
        if (inside)
            each(&m, want);
    }
}

static void to_small(const meeting *m, double *want)
{
    want[m->at_small] += kernel_at(&m->c->in[0], m->at_large) * kernel_at(&m->c->in[1], m->at_weight);
}

static void to_large(const meeting *m, double *want)
{
    want[m->at_large] += kernel_at(&m->c->in[0], m->at_small) * kernel_at(&m->c->in[1], m->at_weight);
}

static void to_weight(const meeting *m, double *want)
{
    want[m->at_weight] += kernel_at(&m->c->in[0], m->at_large) * kernel_at(&m->c->in[1], m->at_small);
}

static void reference(const kernel_check *c, int out, double *want)
{
    const weir_shape *x = &c->in[0].shape, *w = &c->in[1].shape, *y = &c->out[out].shape;
    int64_t each = 1;
    for (int d = 2; d < y->rank; d++)
        each *= y->dim[d];
    for (int64_t i = 0; i < weir_shape_count(y) && c->op != &op_conv_dw; i++)
        want[i] = c->in_count > 2 ? kernel_at(&c->in[2], i / each % y->dim[1]) : 0;
    if (c->op == &op_conv)
        meet(c, x, y, w, to_small, want);
    else if (c->op == &op_conv_transpose)
        meet(c, y, x, w, to_large, want);
    else
        meet(c, x, w, y, to_weight, want);
}

/* ---- the three ops ---- */

typedef struct conv_case {
    weir_shape x;
    int64_t out, groups;
    window_attrs w;
} conv_case;

#define ALL(n) {n, n, n}

static const conv_case cases[] = {
    {{4, {3, 2, 7, 6}}, 5, 1, {{3, 3}, {1, 1}, {1, 1}, {1, 1}, {1, 1}}},        /* a product */
    {{4, {2, 3, 9, 11}}, 4, 1, {{3, 2}, {2, 3}, {1, 0}, {0, 2}, {2, 1}}},       /* strides, pads that differ, dilation */
    {{4, {2, 4, 5, 4}}, 6, 2, {{2, 3}, {1, 1}, {0, 1}, {1, 1}, {1, 1}}},        /* groups */
    {{4, {2, 3, 7, 9}}, 3, 3, {{3, 3}, {1, 2}, {1, 1}, {1, 1}, {1, 1}}},        /* depthwise */
    {{4, {1, 3, 6, 5}}, 6, 3, {{5, 5}, {1, 1}, {2, 2}, {2, 2}, {1, 1}}},        /* two filters for each channel */
    {{4, {2, 5, 4, 5}}, 3, 1, {{1, 1}, {1, 1}, {0, 0}, {0, 0}, {1, 1}}},        /* one tap: x is a matrix as it lies */
    {{4, {2, 5, 7, 5}}, 3, 1, {{1, 1}, {2, 2}, {0, 0}, {0, 0}, {1, 1}}},
    {{4, {2, 3, 3, 3}}, 7, 1, {{3, 3}, {2, 2}, {1, 1}, {1, 1}, {1, 1}}},        /* four positions: dot products */
    {{3, {2, 3, 40}}, 5, 1, {{16}, {8}, {3}, {5}, {1}}},
    {{3, {2, 4, 20}}, 4, 4, {{3}, {1}, {2}, {0}, {2}}},
    {{5, {2, 2, 3, 4, 5}}, 3, 1, {{2, 3, 2}, {1, 2, 1}, {1, 1, 0}, {0, 1, 1}, {1, 1, 2}}},
    {{5, {1, 2, 4, 3, 3}}, 2, 2, {{2, 2, 2}, {2, 1, 1}, {0, 1, 0}, {1, 0, 0}, ALL(1)}},
};
/* More terms than a block of a product has, and more positions. */
static const conv_case large_case = {{4, {1, 50, 24, 25}}, 9, 1, {{3, 3}, {1, 1}, {1, 1}, {1, 1}, {1, 1}}};
/* Rows of whole vectors: the product reads patches. */
static const conv_case whole_rows = {{4, {2, 50, 9, 16}}, 10, 1, {{3, 3}, {1, 1}, {1, 1}, {1, 1}, {1, 1}}};
static const conv_case large_plane = {{4, {1, 2, 50, 50}}, 2, 2, {{3, 3}, {1, 1}, {1, 1}, {1, 1}, {1, 1}}};

static weir_shape weight_of(const conv_case *k)
{
    weir_shape w = {k->x.rank, {k->out, k->x.dim[1] / k->groups}};
    memcpy(w.dim + 2, k->w.kernel, (size_t)(k->x.rank - 2) * sizeof *w.dim);
    return w;
}

/* The type of y, and the elements at the end of x that no window reads. */
static weir_shape result_of(const conv_case *k, int64_t rest[WINDOW_DIMS])
{
    const conv_attrs attrs = {.window = k->w, .groups = 1};
    weir_type out, in[2] = {{WEIR_F32, k->x}, {WEIR_F32, weight_of(k)}};
    kernel_check_infers(&op_conv, &attrs, in, 2, &out);
    for (int d = 0; d + 2 < k->x.rank; d++)
        rest[d] = k->x.dim[d + 2] + k->w.pad[d] + k->w.pad_end[d] - k->w.dilation[d] * (k->w.kernel[d] - 1) - 1 -
                  (out.shape.dim[d + 2] - 1) * k->w.stride[d];
    return out.shape;
}

static void check_case(const weir_op *op, const conv_case *k, bool split)
{
    conv_attrs attrs = {.window = k->w, .groups = op == &op_conv ? 1 : k->groups};
    int64_t rest[WINDOW_DIMS] = {0};
    const weir_shape y = result_of(k, rest);
    const bool forward = op == &op_conv, back = op == &op_conv_transpose;
    memcpy(attrs.output_pad, rest, back ? sizeof rest : 0);
    kernel_check c = kernel_check_new(op, &attrs, SEED);
    kernel_check_in(&c, WEIR_F32, back ? y : k->x);
    kernel_check_in(&c, WEIR_F32, forward || back ? weight_of(k) : y);
    if (forward || back)
        kernel_check_in(&c, WEIR_F32, SHAPE(forward ? k->out : k->x.dim[1]));
    if (split)
        run_all_ways(&c, 1e-4);
    else
        kernel_check_run(&c);
    kernel_check_near(&c, 0, reference, 3e-5);
    kernel_check_free(&c);
}

Test(conv, each_op_is_the_sum_of_products_over_its_window)
{
    const weir_op *ops[] = {&op_conv, &op_conv_transpose, &op_conv_dw};
    const bool cpu = kernel_check_kind() == WEIR_CPU; /* others are emulated, and have one way for all cases */
    for (int o = 0; o < 3; o++) {
        for (size_t k = cpu ? 0 : 1; k < sizeof cases / sizeof *cases; k += cpu ? 1 : 3)
            check_case(ops[o], &cases[k], true);
        if (!cpu)
            continue;
        check_case(ops[o], &large_case, false);
        check_case(ops[o], &large_plane, false);
        check_case(ops[o], &whole_rows, false);
    }
}

Test(conv, of_nothing_is_the_bias)
{
    const conv_attrs attrs = {.window = {{3, 3}, {1, 1}, {1, 1}, {1, 1}, {1, 1}}, .groups = 1};
    const int64_t shapes[][3] = {{0, 2, 4}, {2, 0, 4}, {2, 2, 0}}; /* batch, inputs, outputs */
    for (int s = 0; s < 3; s++) {
        kernel_check c = kernel_check_new(&op_conv, &attrs, SEED);
        kernel_check_in(&c, WEIR_F32, SHAPE(shapes[s][0], shapes[s][1], 5, 4));
        kernel_check_in(&c, WEIR_F32, SHAPE(shapes[s][2], shapes[s][1], 3, 3));
        kernel_check_in(&c, WEIR_F32, SHAPE(shapes[s][2]));
        kernel_check_run(&c);
        for (int64_t i = 0; i < weir_shape_count(&c.out[0].shape); i++)
            cr_assert(shapes[s][1] || kernel_at(&c.out[0], i) == kernel_at(&c.in[2], i / 20 % shapes[s][2]));
        kernel_check_free(&c);
    }
}

/* ---- bits ---- */

/* `from` [rows, ...], of which `count` rows from `first` on. */
static weir_view rows_of(const weir_view *from, int64_t first, int64_t count)
{
    weir_type type = {WEIR_F32, from->shape};
    const int64_t each = weir_shape_count(&type.shape) / type.shape.dim[0];
    type.shape.dim[0] = count;
    weir_view view = kernel_view_new(type, 0);
    memcpy(view.data, (float *)from->data + first * each, (size_t)(count * each) * sizeof(float));
    return view;
}

/* The result for one image and two output channels, from `o` on. */
static weir_view part_of(const kernel_check *c, int64_t image, int64_t o)
{
    weir_view in[3] = {rows_of(&c->in[0], image, 1), rows_of(&c->in[1], o, 2), rows_of(&c->in[2], o, 2)};
    weir_shape shape = c->out[0].shape;
    shape.dim[0] = 1;
    shape.dim[1] = 2;
    weir_view out = kernel_view_new((weir_type){WEIR_F32, shape}, KERNEL_GARBAGE);
    kernel_check_call(c, in, &out, NULL, false);
    for (int i = 0; i < 3; i++)
        kernel_view_free(&in[i]);
    return out;
}

Test(conv, bits_do_not_depend_on_the_images_and_channels_beside_them)
{
    const conv_case *k[] = {&cases[0], &cases[7], &large_case, &whole_rows};
    for (int i = 0; i < (kernel_check_kind() == WEIR_CPU ? 4 : 2); i++) {
        const conv_attrs attrs = {.window = k[i]->w, .groups = 1};
        kernel_check c = kernel_check_new(&op_conv, &attrs, SEED);
        kernel_check_in(&c, WEIR_F32, k[i]->x);
        kernel_check_in(&c, WEIR_F32, weight_of(k[i]));
        kernel_check_in(&c, WEIR_F32, SHAPE(k[i]->out));
        kernel_check_run(&c);
        const weir_shape y = c.out[0].shape;
        const int64_t each = weir_shape_count(&y) / y.dim[0] / y.dim[1];
        for (int64_t b = 0; b < y.dim[0]; b++)
            for (int64_t o = 0; o + 2 <= y.dim[1]; o++) {
                weir_view part = part_of(&c, b, o);
                cr_assert_arr_eq(part.data, (float *)c.out[0].data + (b * y.dim[1] + o) * each, (size_t)(2 * each) * sizeof(float));
                kernel_view_free(&part);
            }
        kernel_check_free(&c);
    }
}

/* ---- all promises of the rules, and gradients ---- */

#define F32(...) WEIR_ARRAY(NULL, WEIR_F32, __VA_ARGS__)
#define PASSES(op, ...) cr_expect_eq(weir_op_check(op, __VA_ARGS__), WEIR_OK, "%s", weir_error())

Test(conv, keeps_the_promises_of_its_rules)
{
    const conv_attrs plain = {.window = {{3, 2}, {2, 1}, {1, 0}, {1, 1}, {1, 2}}, .groups = 1};
    PASSES(&op_conv, .attrs = &plain, .inputs = {F32(3, 3, 6, 5), F32(5, 3, 3, 2), F32(5)});
    PASSES(&op_conv, .attrs = &plain, .inputs = {F32(2, 6, 6, 5), F32(6, 2, 3, 2), F32(6)}); /* three groups */
    const conv_attrs line = {.window = {{4}, {3}, {1}, {0}, {1}}, .output_pad = {2}, .groups = 2};
    PASSES(&op_conv_transpose, .attrs = &line, .inputs = {F32(3, 4, 5), F32(4, 3, 4), F32(6)});
    PASSES(&op_conv_dw, .attrs = &line, .inputs = {F32(3, 4, 11), F32(3, 6, 3)});
}

/* ---- pools ---- */

/* The places of a window's elements in the plane; -1: outside. Returns how many there are. */
static int64_t window_places(const kernel_check *c, const weir_shape *x, const weir_shape *y, int64_t position, int64_t *place)
{
    const window_attrs *w = c->attrs;
    int64_t taps = 1;
    for (int d = 0; d + 2 < x->rank; d++)
        taps *= w->kernel[d];
    for (int64_t t = 0; t < taps; t++) {
        int64_t p = position, k = t, step = 1;
        place[t] = 0;
        for (int d = x->rank - 3; d >= 0; d--) {
            const int64_t at = p % y->dim[d + 2] * w->stride[d] + k % w->kernel[d] * w->dilation[d] - w->pad[d];
            if (at < 0 || at >= x->dim[d + 2])
                place[t] = INT32_MIN;
            place[t] += at * step;
            step *= x->dim[d + 2];
            p /= y->dim[d + 2];
            k /= w->kernel[d];
        }
        place[t] = place[t] < 0 ? -1 : place[t];
    }
    return taps;
}

static int64_t plane_size(const weir_shape *x)
{
    return weir_shape_count(x) / x->dim[0] / x->dim[1];
}

static void reference_max_pool(const kernel_check *c, int out, double *want)
{
    const weir_shape *x = &c->in[0].shape, *y = &c->out[out].shape;
    int64_t place[64];
    for (int64_t i = 0; i < weir_shape_count(y); i++) {
        want[i] = -INFINITY;
        const int64_t taps = window_places(c, x, y, i % plane_size(y), place);
        for (int64_t t = 0; t < taps; t++) {
            const double v = place[t] < 0 ? -INFINITY : kernel_at(&c->in[0], i / plane_size(y) * plane_size(x) + place[t]);
            want[i] = v > want[i] || isnan(v) ? v : want[i];
        }
    }
}

static void reference_max_pool_grad(const kernel_check *c, int out, double *want)
{
    const weir_shape *x = &c->in[0].shape, *y = &c->in[1].shape;
    int64_t place[64];
    (void)out;
    for (int64_t i = 0; i < weir_shape_count(y); i++) {
        const int64_t taps = window_places(c, x, y, i % plane_size(y), place), plane = i / plane_size(y) * plane_size(x);
        int64_t most = -1;
        for (int64_t t = 0; t < taps; t++)
            if (place[t] >= 0 && (most < 0 || kernel_at(&c->in[0], plane + place[t]) > kernel_at(&c->in[0], plane + most)))
                most = place[t];
        if (most >= 0)
            want[plane + most] += kernel_at(&c->in[1], i);
    }
}

/* Without pads, with .count_pad within the padded tensor. */
static int64_t terms_of(const kernel_check *c, const weir_shape *x, const weir_shape *y, int64_t position)
{
    const pool_attrs *attrs = c->attrs;
    int64_t terms = 1;
    for (int d = x->rank - 3; d >= 0; position /= y->dim[d + 2], d--) {
        int64_t inside = 0;
        for (int64_t k = 0; k < attrs->window.kernel[d]; k++) {
            const int64_t at = position % y->dim[d + 2] * attrs->window.stride[d] + k * attrs->window.dilation[d]; /* padded */
            inside += attrs->count_pad ? at < attrs->window.pad[d] + x->dim[d + 2] + attrs->window.pad_end[d]
                                       : at >= attrs->window.pad[d] && at < attrs->window.pad[d] + x->dim[d + 2];
        }
        terms *= inside;
    }
    return terms;
}

static void reference_average_pool(const kernel_check *c, int out, double *want)
{
    const bool back = c->op == &op_average_pool_grad;
    const weir_shape *x = back ? &c->out[out].shape : &c->in[0].shape, *y = back ? &c->in[0].shape : &c->out[out].shape;
    int64_t place[64];
    for (int64_t i = 0; i < weir_shape_count(y); i++) {
        const int64_t taps = window_places(c, x, y, i % plane_size(y), place), plane = i / plane_size(y) * plane_size(x);
        const double terms = (double)terms_of(c, x, y, i % plane_size(y));
        for (int64_t t = 0; t < taps; t++)
            if (place[t] >= 0)
                want[back ? plane + place[t] : i] += kernel_at(&c->in[0], back ? i : plane + place[t]) / terms;
    }
}

static const struct pool_case {
    weir_shape x;
    pool_attrs attrs;
} pools[] = {
    {{4, {2, 3, 6, 7}}, {.window = {{2, 2}, {2, 2}, {0}, {0}, {1, 1}}}},
    {{4, {3, 2, 7, 9}}, {.window = {{3, 3}, {2, 2}, {1, 1}, {1, 1}, {1, 1}}, .count_pad = 1}},
    {{4, {2, 2, 6, 5}}, {.window = {{3, 2}, {2, 3}, {1, 0}, {0, 1}, {1, 1}}, .ceil = 1}},
    {{4, {2, 2, 6, 8}}, {.window = {{3, 2}, {2, 3}, {1, 1}, {2, 0}, {1, 2}}, .ceil = 1, .count_pad = 1}},
    {{3, {2, 3, 11}}, {.window = {{3}, {1}, {1}, {1}, {2}}}},
    {{5, {2, 2, 4, 3, 5}}, {.window = {{2, 2, 3}, {2, 1, 2}, {0, 1, 1}, {1, 0, 1}, ALL(1)}}},
    {{4, {1, 2, 48, 50}}, {.window = {{3, 3}, {1, 1}, {1, 1}, {1, 1}, {1, 1}}}},
};

static void check_pool(const weir_op *op, const struct pool_case *k, kernel_reference want)
{
    pool_attrs attrs = k->attrs;
    weir_type x = {WEIR_F32, k->x}, y;
    kernel_check_infers(&op_max_pool, &attrs, &x, 1, &y);
    memcpy(attrs.size, k->x.dim + 2, sizeof attrs.size);
    const bool back = op == &op_average_pool_grad;
    kernel_check c = kernel_check_new(op, &attrs, SEED);
    kernel_check_in(&c, WEIR_F32, back ? y.shape : k->x);
    if (op == &op_max_pool_grad)
        kernel_check_in(&c, WEIR_F32, y.shape);
    for (int64_t i = 0; i < weir_shape_count(&k->x) && op == &op_max_pool_grad; i++)
        kernel_set(&c.in[0], i, rint(kernel_at(&c.in[0], i))); /* several are the largest */
    run_all_ways(&c, 1e-5);
    kernel_check_near(&c, 0, want, op == &op_max_pool ? 0 : 1e-6);
    kernel_check_free(&c);
}

Test(pool, each_window_has_its_largest_element_or_its_average, .timeout = 120)
{
    const bool cpu = kernel_check_kind() == WEIR_CPU;
    for (size_t k = cpu ? 0 : 1; k < sizeof pools / sizeof *pools; k += cpu ? 1 : 2) {
        check_pool(&op_max_pool, &pools[k], reference_max_pool);
        check_pool(&op_average_pool, &pools[k], reference_average_pool);
        check_pool(&op_max_pool_grad, &pools[k], reference_max_pool_grad);
        check_pool(&op_average_pool_grad, &pools[k], reference_average_pool);
    }
}

Test(pool, nan_is_the_largest_element, .timeout = 60)
{
    kernel_check c = kernel_check_new(&op_max_pool, &pools[1].attrs, SEED);
    kernel_check_in(&c, WEIR_F32, pools[1].x);
    for (int64_t i = 0; i < weir_shape_count(&pools[1].x); i += 5)
        kernel_set(&c.in[0], i, i % 2 ? NAN : -INFINITY);
    kernel_check_run(&c);
    kernel_check_near(&c, 0, reference_max_pool, 0);
    kernel_check_free(&c);
}

Test(pool, sizes_are_rounded_up_if_the_last_window_begins_inside, .timeout = 60)
{
    const struct {
        int64_t size, kernel, stride, pad, pad_end, ceil, want;
    } sizes[] = {{5, 2, 2, 0, 0, 0, 2}, {5, 2, 2, 0, 0, 1, 3}, {4, 2, 2, 0, 0, 1, 2}, {5, 3, 2, 1, 1, 1, 3},
                 {6, 3, 2, 1, 1, 1, 4}, {3, 2, 3, 1, 1, 1, 2}, {2, 2, 3, 1, 1, 1, 1}};
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
        const pool_attrs attrs = {.window = {{sizes[s].kernel}, {sizes[s].stride}, {sizes[s].pad}, {sizes[s].pad_end}, {1}},
                                  .ceil = sizes[s].ceil};
        weir_type x = {WEIR_F32, SHAPE(1, 1, sizes[s].size)}, y;
        kernel_check_infers(&op_max_pool, &attrs, &x, 1, &y);
        cr_expect_eq(y.shape.dim[2], sizes[s].want, "case %zu: %lld", s, (long long)y.shape.dim[2]);
    }
}

Test(pool, keeps_the_promises_of_its_rules, .timeout = 60)
{
    const pool_attrs attrs = {.window = {{3, 2}, {2, 1}, {1, 0}, {1, 1}, {1, 2}}, .ceil = 1};
    PASSES(&op_max_pool, .attrs = &attrs, .inputs = {F32(3, 5, 6, 5)});
    PASSES(&op_average_pool, .attrs = &attrs, .inputs = {F32(3, 5, 6, 5)});
}

/* ---- the functions ---- */

static float *run_once(weir_graph *g, weir_tensor *x, weir_tensor *y, const float *values, int64_t count)
{
    static float got[512];
    const weir_shape shape = weir_tensor_type(x).shape;
    weir_array array = {(void *)values, WEIR_F32, shape};
    weir_fetch(y, .name = "y");
    weir_plan *plan = weir_compile(g);
    weir_session *s = plan ? weir_session_open(plan) : NULL;
    cr_assert_not_null(s, "%s", weir_error());
    cr_assert_eq(weir_session_push(s, "x", &array, 10000), WEIR_OK, "%s", weir_error());
    cr_assert_eq(weir_session_run(s, 1), WEIR_OK, "%s", weir_error());
    weir_array out = {got, WEIR_F32, weir_tensor_type(y).shape};
    cr_assert_eq(weir_shape_count(&out.shape), count);
    cr_assert_eq(weir_session_pull(s, "y", &out, 10000), WEIR_OK, "%s", weir_error());
    weir_session_close(s);
    weir_plan_free(plan);
    return got;
}

Test(pool, local_response_normalisation_divides_by_a_power_of_neighbouring_channels, .timeout = 60)
{
    enum { CHANNELS = 6, EACH = 6 };
    float x[2 * CHANNELS * EACH];
    uint64_t random = SEED;
    for (size_t i = 0; i < sizeof x / sizeof *x; i++)
        x[i] = (float)(3 * kernel_random_normal(&random));
    for (int size = 1; size <= 5; size++) {
        weir_graph *g = weir_graph_new("lrn");
        weir_tensor *in = weir_input(g, WEIR_F32, {2, CHANNELS, 2, 3}, .name = "x");
        const float *got = run_once(g, in, weir_lrn(in, size, .alpha = 0.3, .beta = 0.6, .bias = 1.5), x, 2 * CHANNELS * EACH);
        for (int i = 0; i < 2 * CHANNELS * EACH; i++) {
            const int channel = i / EACH % CHANNELS;
            double sum = 0;
            for (int c = channel - (size - 1) / 2; c <= channel + size / 2; c++)
                sum += c < 0 || c >= CHANNELS ? 0 : pow(x[i + (c - channel) * EACH], 2);
            cr_expect(kernel_near(got[i], x[i] / pow(1.5 + 0.3 / size * sum, 0.6), 1e-5), "size %d, element %d", size, i);
        }
        weir_graph_free(g);
    }
}

static int64_t width_of(weir_tensor *x)
{
    return weir_tensor_type(x).shape.dim[2];
}

Test(conv, pads_at_the_end_are_those_of_the_beginning_unless_they_are_given)
{
    weir_graph *g = weir_graph_new("pads");
    weir_tensor *x = weir_input(g, WEIR_F32, {2, 4, 10}, .name = "x");
    cr_expect_eq(width_of(weir_conv(x, 3, {5}, .pad = {2})), 10);
    cr_expect_eq(width_of(weir_conv(x, 3, {5}, .pad = {2}, .pad_end = {0})), 8);
    cr_expect_eq(width_of(weir_conv(x, 3, {5}, .pad_end = {1})), 7);
    cr_expect_eq(width_of(weir_conv(x, 3, {5}, .pad = {2}, .stride = {2}, .dilation = {2})), 3);
    cr_expect_eq(width_of(weir_max_pool(x, {2})), 5, "a pool's stride is its kernel");
    cr_expect_eq(width_of(weir_average_pool(x, {3}, .stride = {1}, .pad = {1})), 10);
    weir_tensor *w = weir_param(g, WEIR_F32, {4, 2, 3}, .name = "w"), *b = weir_param(g, WEIR_F32, {4}, .name = "b");
    cr_expect_eq(width_of(weir_conv_transpose_with(x, w, b, .stride = {2}, .pad = {1}, .output_pad = {1}, .groups = 2)), 20);
    cr_expect_eq(width_of(weir_conv_with(x, w, b, .groups = 2)), 8);
    cr_expect_eq(width_of(weir_conv_with(x, w, NULL)), 8);
    cr_expect_null(weir_graph_mistake(g), "%s", weir_graph_mistake(g));
    weir_graph_free(g);
}

Test(conv, a_pool_over_all_is_a_mean_or_a_maximum_over_axes)
{
    float x[2 * 3 * 4 * 5];
    for (int i = 0; i < 120; i++)
        x[i] = (float)(i * 7 % 31);
    weir_graph *g = weir_graph_new("global");
    weir_tensor *in = weir_input(g, WEIR_F32, {2, 3, 4, 5}, .name = "x");
    weir_tensor *mean = weir_mean(in, .axes = {2, 3}, .axis_count = 2, .keep = true);
    weir_tensor *most = weir_max(in, .axes = {2, 3}, .axis_count = 2, .keep = true);
    const float *got = run_once(g, in, weir_concat(1, {mean, weir_average_pool(in, {4, 5}), most, weir_max_pool(in, {4, 5})}), x, 24);
    for (int b = 0; b < 2; b++)
        for (int c = 0; c < 3; c++) {
            double sum = 0, largest = 0;
            for (int i = 0; i < 20; i++) {
                sum += x[(b * 3 + c) * 20 + i];
                largest = fmax(largest, x[(b * 3 + c) * 20 + i]);
            }
            for (int k = 0; k < 4; k++)
                cr_expect(kernel_near(got[b * 12 + k * 3 + c], k < 2 ? sum / 20 : largest, 1e-6));
        }
    weir_graph_free(g);
}

/* ---- a plan ---- */

/* Trains on images over 2 x 2 devices: the batch over one axis; over the other the output channels, then the input channels, and
 * groups of both. */
static weir_graph *split_net(void)
{
    weir_graph *g = weir_graph_new("split");
    weir_mesh_new(g, "cpu:0-3", .shape = {2, 2});
    weir_tensor *x = weir_input(g, WEIR_F32, {4, 2, 5, 5}, .name = "x", .sbp = {WEIR_S(0), WEIR_B}, .micro = true);
    x = weir_relu(weir_conv(x, 4, {3, 3}, .pad = {1, 1}, .name = "outputs", .weight = {WEIR_B, WEIR_S(0)}));
    x = weir_conv(x, 6, {3, 3}, .name = "inputs", .weight = {WEIR_B, WEIR_S(1)});
    x = weir_conv(x, 4, {2, 2}, .groups = 2, .name = "groups", .weight = {WEIR_B, WEIR_S(0)});
    x = weir_average_pool(weir_max_pool(x, {2, 2}, .stride = {1, 1}, .pad = {1, 1}), {3, 2});
    weir_train(weir_mean(weir_mul(x, x)), weir_sgd(.lr = 0.1));
    return g;
}

Test(conv, a_plan_with_split_channels_and_groups_is_proven)
{
    weir_graph *g = split_net();
    cr_assert_null(weir_graph_mistake(g), "%s", weir_graph_mistake(g));
    weir_plan *plan = weir_compile(g, .micro_batches = 2);
    cr_assert_not_null(plan, "%s", weir_error());
    cr_expect_eq(weir_plan_verify(g, plan), WEIR_OK, "%s", weir_error());
    cr_expect_eq(weir_plan_verify(g, plan, .local = true), WEIR_OK, "%s", weir_error());
    cr_expect_eq(weir_gradients_verify(g), WEIR_OK, "%s", weir_error());
    weir_plan_free(plan);
    weir_graph_free(g);
}
