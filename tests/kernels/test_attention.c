/* test_attention.c: attention against plain loops in double, and its gradient against its formulas; test_gradients_b.c holds
 * that against finite differences. */
#include "kernels/common/ops.h"
#include "tests/kernels/by_name.h"
#include "tests/support/effort.h"

#include <math.h>
#include <stdlib.h>

#define SEED 20210 /* of all random inputs here */

typedef struct heads {
    int64_t batch, heads, group, seq, keys, dim, kv_dim, head_dim, window, position; /* position: of query 0 among the keys */
    bool causal;
    double scale;
    const weir_view *mask; /* NULL: none */
} heads;

static heads heads_of(const kernel_check *c)
{
    const weir_shape *q = &c->in[0].shape;
    const int64_t *k = c->in[1].shape.dim;
    heads h = {.batch = q->dim[0], .seq = q->dim[1], .dim = q->dim[2], .keys = k[1], .kv_dim = k[2], .group = q->dim[2] / k[2]};
    h.head_dim = (int64_t)attr_get(c, "head_dim");
    h.heads = h.dim / h.head_dim;
    h.causal = attr_get(c, "causal") != 0;
    h.scale = attr_get(c, "scale");
    h.window = c->op->field_count == 4 ? (int64_t)attr_get(c, "window") : 0;
    h.mask = c->in_count == 4 || c->in_count == 7 ? &c->in[c->in_count - 1] : NULL;
    return h;
}

/* The number that is added to the score of query i and key j of head g: -infinity hides it. */
static double bias_at(const heads *h, int64_t g, int64_t i, int64_t j)
{
    const int64_t position = h->position + i;
    if ((h->causal && j > position) || (h->window && j <= position - h->window))
        return -INFINITY;
    if (!h->mask)
        return 0;
    const int64_t *dim = h->mask->shape.dim, place[] = {g / h->heads, g % h->heads, i};
    int64_t at = 0;
    for (int d = 0; d < h->mask->shape.rank - 1; d++)
        at = at * dim[d] + (dim[d] == 1 ? 0 : place[d]);
    const double value = kernel_at(h->mask, at * h->keys + j);
    return h->mask->dtype != WEIR_U8 ? value : value != 0 ? 0 : -INFINITY;
}

/* Where column i of a row of keys or values is, of the head that head g shares. */
static int64_t key_place(const heads *h, int64_t g, int64_t row, int64_t i)
{
    return (g / h->heads * h->keys + row) * h->kv_dim + g % h->heads / h->group * h->head_dim + i;
}

static double key_at(const heads *h, const weir_view *x, int64_t g, int64_t row, int64_t i)
{
    return kernel_at(x, key_place(h, g, row, i));
}

static double head_at(const heads *h, const weir_view *x, int64_t rows_per_batch, int64_t g, int64_t row, int64_t i)
{
    return kernel_at(x, (g / h->heads * rows_per_batch + row) * h->dim + g % h->heads * h->head_dim + i);
}

/* Probabilities of query i of head g (batch and head in one), and their log-sum-exp. All are 0 if it sees no key. */
static double probabilities(const kernel_check *c, const heads *h, int64_t g, int64_t i, double *p)
{
    double most = -INFINITY, total = 0;
    for (int64_t j = 0; j < h->keys; j++) {
        p[j] = bias_at(h, g, i, j);
        for (int64_t l = 0; l < h->head_dim; l++)
            p[j] += h->scale * head_at(h, &c->in[0], h->seq, g, i, l) * key_at(h, &c->in[1], g, j, l);
        most = p[j] > most ? p[j] : most;
    }
    for (int64_t j = 0; j < h->keys; j++)
        total += p[j] = most > -INFINITY ? exp(p[j] - most) : 0;
    for (int64_t j = 0; j < h->keys && total > 0; j++)
        p[j] /= total;
    return total > 0 ? most + log(total) : 0;
}

static void reference_attention(const kernel_check *c, int out, double *want)
{
    const heads h = heads_of(c);
    double *p = calloc((size_t)h.keys, sizeof *p);
    for (int64_t g = 0; g < h.batch * h.heads; g++)
        for (int64_t i = 0; i < h.seq; i++) {
            double lse = probabilities(c, &h, g, i, p);
            if (out == 1)
                want[g * h.seq + i] = lse;
            for (int64_t l = 0; l < h.head_dim && out == 0; l++)
                for (int64_t j = 0; j < h.keys; j++)
                    want[(g / h.heads * h.seq + i) * h.dim + g % h.heads * h.head_dim + l] +=
                        p[j] * key_at(&h, &c->in[2], g, j, l);
        }
    free(p);
}

typedef struct attention_case {
    int64_t batch, seq, keys, heads, head_dim;
    bool causal;
    double sharpness; /* of the scores: large ones make the maximum move between blocks [1] */
    int64_t group, window;
    weir_dtype masked;
    weir_shape mask;
} attention_case;

/* Sizes, and what is not as usual. */
#define CASE(b, s, k, h, ...) (attention_case){.batch = (b), .seq = (s), .keys = (k), .heads = (h), .head_dim = __VA_ARGS__}

/* The op, and its attributes. */
static const weir_op *attention_attrs(attention_case *at, bool gradient, word *attrs)
{
    const bool masked = at->window || at->masked;
    const weir_op *op = gradient ? masked ? &op_attention_masked_grad : &op_attention_grad : masked ? &op_attention_masked : &op_attention;
    at->group = at->group ? at->group : 1;
    at->sharpness = at->sharpness != 0 ? at->sharpness : 1;
    attr_set(op, attrs, "head_dim", (double)at->head_dim);
    attr_set(op, attrs, "causal", at->causal);
    attr_set(op, attrs, "scale", at->sharpness / sqrt((double)at->head_dim));
    if (masked)
        attr_set(op, attrs, "window", (double)at->window);
    return op;
}

static weir_shape keys_shape(const attention_case *at)
{
    return SHAPE(at->batch, at->keys, at->heads / at->group * at->head_dim);
}

/* A mask of u8 hides half of the keys, and all from the last query of each sequence. One of f32 adds, and hides a few. */
static void add_mask(kernel_check *c, const attention_case *at)
{
    if (!at->masked)
        return;
    const weir_view *mask = kernel_check_in(c, at->masked, at->mask);
    const int64_t count = weir_shape_count(&at->mask), rows = at->mask.rank == 4 ? at->mask.dim[2] : 1;
    for (int64_t i = 0; i < count; i++)
        if ((rows > 1 && i / at->keys % rows == rows - 1) || (at->masked == WEIR_F32 && i % 5 == 3))
            kernel_set(mask, i, at->masked == WEIR_U8 ? 0 : -INFINITY);
        else if (at->masked == WEIR_U8)
            kernel_set(mask, i, i * 7 % 3 % 2 ? 255 : i % 2);
}

static void check_attention(attention_case at)
{
    word attrs[4] = {{0}};
    const weir_op *op = attention_attrs(&at, false, attrs);
    kernel_check c = kernel_check_new(op, attrs, SEED);
    kernel_check_in(&c, WEIR_F32, SHAPE(at.batch, at.seq, at.heads * at.head_dim));
    kernel_check_in(&c, WEIR_F32, keys_shape(&at));
    kernel_check_in(&c, WEIR_F32, keys_shape(&at));
    add_mask(&c, &at);
    run_all_ways(&c, 1e-4);
    kernel_check_near(&c, 0, reference_attention, 2e-5);
    kernel_check_near(&c, 1, reference_attention, 2e-5);
    kernel_check_free(&c);
}

Test(attention, is_softmax_of_scores_times_values, .timeout = 120)
{
    check_attention(CASE(2, 5, 7, 3, 4));
    check_attention(CASE(1, 1, 1, 1, 1));
    check_attention(CASE(1, 64, 64, 2, 16, .causal = true));
    check_attention(CASE(0, 4, 4, 1, 4));
    check_attention(CASE(2, 0, 4, 1, 4));
}

Test(attention, goes_on_over_several_blocks_of_queries_and_keys, .timeout = 60)
{
#if EFFORT(1, 1, 0)
    check_attention(CASE(1, 130, 600, 2, 8));
    check_attention(CASE(1, 130, 600, 2, 8, .sharpness = 8));
    check_attention(CASE(1, 330, 330, 1, 8, .causal = true, .sharpness = 8));
#endif
    check_attention(CASE(1, 300, 20, 1, 8, .causal = true));
    check_attention(CASE(1, 20, 300, 1, 8, .causal = true));
}

/* dq, dk, dv by the formulas at the head of attention.c, with out and lse of the reference. */
static void reference_attention_grad(const kernel_check *c, int out, double *want)
{
    const heads h = heads_of(c);
    const weir_view *dout = &c->in[5];
    double *p = calloc((size_t)h.keys, sizeof *p);
    for (int64_t g = 0; g < h.batch * h.heads; g++)
        for (int64_t i = 0; i < h.seq; i++) {
            probabilities(c, &h, g, i, p);
            double delta = 0;
            for (int64_t l = 0; l < h.head_dim; l++)
                for (int64_t j = 0; j < h.keys; j++)
                    delta += head_at(&h, dout, h.seq, g, i, l) * p[j] * key_at(&h, &c->in[2], g, j, l);
            for (int64_t j = 0; j < h.keys; j++) {
                double dp = 0;
                for (int64_t l = 0; l < h.head_dim; l++)
                    dp += head_at(&h, dout, h.seq, g, i, l) * key_at(&h, &c->in[2], g, j, l);
                const double ds = h.scale * p[j] * (dp - delta);
                const int64_t q_row = (g / h.heads * h.seq + i) * h.dim + g % h.heads * h.head_dim;
                const int64_t k_row = key_place(&h, g, j, 0);
                for (int64_t l = 0; l < h.head_dim; l++) {
                    if (out == 0)
                        want[q_row + l] += ds * key_at(&h, &c->in[1], g, j, l);
                    else if (out == 1)
                        want[k_row + l] += ds * head_at(&h, &c->in[0], h.seq, g, i, l);
                    else
                        want[k_row + l] += p[j] * head_at(&h, dout, h.seq, g, i, l);
                }
            }
        }
    free(p);
}

/* Puts the forward kernel's reference where the gradient expects it. */
static void fill_forward(kernel_check *c)
{
    for (int out = 0; out < 2; out++) {
        const weir_view *to = &c->in[3 + out];
        int64_t count = weir_shape_count(&to->shape);
        double *want = calloc((size_t)count + 1, sizeof *want);
        reference_attention(c, out, want);
        for (int64_t i = 0; i < count; i++)
            ((float *)to->data)[i] = (float)want[i];
        free(want);
    }
}

static void check_attention_grad(attention_case at)
{
    word attrs[4] = {{0}};
    const weir_op *op = attention_attrs(&at, true, attrs);
    const weir_shape q = SHAPE(at.batch, at.seq, at.heads * at.head_dim);
    const weir_shape k = keys_shape(&at);
    kernel_check c = kernel_check_new(op, attrs, SEED);
    kernel_check_in(&c, WEIR_F32, q);
    kernel_check_in(&c, WEIR_F32, k);
    kernel_check_in(&c, WEIR_F32, k);
    kernel_check_in(&c, WEIR_F32, q);
    kernel_check_in(&c, WEIR_F32, SHAPE(at.batch, at.heads, at.seq));
    kernel_check_in(&c, WEIR_F32, q);
    add_mask(&c, &at);
    fill_forward(&c);
    run_all_ways(&c, 1e-4);
    for (int out = 0; out < 3; out++)
        kernel_check_near(&c, out, reference_attention_grad, 5e-5);
    kernel_check_free(&c);
}

Test(attention, gradient_follows_its_formula, .timeout = 60)
{
    check_attention_grad(CASE(2, 5, 7, 3, 4));
    check_attention_grad(CASE(2, 70, 70, 2, 8, .causal = true));
#if EFFORT(1, 1, 0)
    check_attention_grad(CASE(1, 130, 300, 1, 8, .sharpness = 3));
    check_attention_grad(CASE(1, 270, 270, 1, 8, .causal = true, .sharpness = 3));
#endif
    check_attention_grad(CASE(1, 100, 20, 1, 8, .causal = true));
}

/* ---- groups of heads, windows, masks ---- */

#define BOTH(...)                                 \
    do {                                          \
        check_attention(CASE(__VA_ARGS__));       \
        check_attention_grad(CASE(__VA_ARGS__));  \
    } while (0)

Test(attention, heads_of_a_group_share_keys_and_values, .timeout = 120)
{
    BOTH(2, 5, 7, 6, 4, .group = 3);
    BOTH(2, 5, 7, 4, 4, .group = 4);
    BOTH(1, 70, 70, 6, 8, .group = 2, .causal = true);
    BOTH(1, 20, 300, 4, 8, .group = 2, .sharpness = 4);
}

Test(attention, a_window_hides_what_is_far_behind, .timeout = 120)
{
    BOTH(2, 7, 7, 2, 4, .causal = true, .window = 3);
    BOTH(1, 70, 70, 2, 8, .causal = true, .window = 1);
    BOTH(1, 9, 9, 4, 8, .causal = true, .window = 100, .group = 2);
    BOTH(1, 100, 20, 1, 8, .causal = true, .window = 11); /* the last rows see nothing */
#if EFFORT(1, 1, 0)
    BOTH(1, 600, 600, 1, 8, .causal = true, .window = 100, .sharpness = 8);
    BOTH(1, 330, 330, 2, 8, .causal = true, .window = 64, .group = 2);
#endif
}

Test(attention, a_mask_hides_keys, .timeout = 120)
{
    BOTH(3, 5, 7, 2, 4, .masked = WEIR_U8, .mask = SHAPE(3, 7));
    BOTH(3, 5, 7, 2, 4, .masked = WEIR_U8, .mask = SHAPE(1, 7));
    BOTH(2, 5, 7, 3, 4, .masked = WEIR_U8, .mask = SHAPE(2, 3, 5, 7));
    BOTH(2, 5, 5, 6, 4, .masked = WEIR_U8, .mask = SHAPE(1, 6, 5, 5), .causal = true, .window = 2, .group = 3);
    BOTH(1, 70, 300, 1, 8, .masked = WEIR_U8, .mask = SHAPE(1, 1, 70, 300));
}

Test(attention, a_mask_of_reals_adds_to_scores, .timeout = 120)
{
    BOTH(2, 5, 7, 3, 4, .masked = WEIR_F32, .mask = SHAPE(2, 1, 1, 7));
    BOTH(2, 5, 7, 3, 4, .masked = WEIR_F32, .mask = SHAPE(1, 3, 5, 7));
    BOTH(2, 70, 70, 2, 8, .masked = WEIR_F32, .mask = SHAPE(2, 2, 1, 70), .causal = true, .window = 30);
    BOTH(1, 70, 300, 2, 8, .masked = WEIR_F32, .mask = SHAPE(1, 1, 70, 300), .group = 2);
}

/* ---- behind kept rows ---- */

typedef struct kept_words { /* as kernels/attention/formula.h has them */
    int64_t head_dim;
    double scale;
    int64_t window;
} kept_words;

typedef struct kept_case {
    int64_t batch, rows, room, position, heads, head_dim, group, window;
    weir_dtype masked;
    weir_shape mask;
} kept_case;
#define KEPT(b, n, r, p, h, w, g, ...) (kept_case){.batch = (b), .rows = (n), .room = (r), .position = (p), .heads = (h), \
                                                   .head_dim = (w), .group = (g), __VA_ARGS__}

static heads kept_heads_of(const kernel_check *c)
{
    const kept_words *words = c->attrs;
    const int64_t *q = c->in[0].shape.dim, *keys = c->in[3].shape.dim;
    const bool masked = c->op == &op_attention_kept_masked;
    return (heads){.batch = q[0], .heads = q[2] / words->head_dim, .group = q[2] / keys[2], .seq = q[1], .keys = keys[1], .dim = q[2],
                   .kv_dim = keys[2], .head_dim = words->head_dim, .window = masked ? words->window : 0,
                   .position = (int64_t)kernel_at(&c->in[5], 0), .causal = true, .scale = words->scale,
                   .mask = c->in_count > 6 ? &c->in[6] : NULL};
}

/* Key (which = 1) or value (2) j of head g: kept, or new from the position on. */
static double seen_at(const kernel_check *c, const heads *h, int which, int64_t g, int64_t j, int64_t i)
{
    if (j < h->position)
        return key_at(h, &c->in[2 + which], g, j, i);
    const heads new = {.heads = h->heads, .keys = h->seq, .kv_dim = h->kv_dim, .group = h->group, .head_dim = h->head_dim};
    return key_at(&new, &c->in[which], g, j - h->position, i);
}

static void reference_kept(const kernel_check *c, int out, double *want)
{
    const heads h = kept_heads_of(c);
    double *p = calloc((size_t)h.keys, sizeof *p);
    (void)out;
    for (int64_t g = 0; g < h.batch * h.heads; g++)
        for (int64_t i = 0; i < h.seq; i++) {
            const int64_t seen = h.position + i + 1, at = (g / h.heads * h.seq + i) * h.dim + g % h.heads * h.head_dim;
            double total = 0;
            for (int64_t j = 0; j < seen; j++) {
                p[j] = bias_at(&h, g, i, j);
                for (int64_t l = 0; l < h.head_dim; l++)
                    p[j] += h.scale * head_at(&h, &c->in[0], h.seq, g, i, l) * seen_at(c, &h, 1, g, j, l);
                total += p[j] = exp(p[j]);
            }
            for (int64_t l = 0; l < h.head_dim; l++)
                for (int64_t j = 0; j < seen && total > 0; j++)
                    want[at + l] += p[j] / total * seen_at(c, &h, 2, g, j, l);
        }
    free(p);
}

static kernel_check kept_new(const kept_case *at, const kept_words *words)
{
    const int64_t dim = at->heads * at->head_dim;
    kernel_check c = kernel_check_new(at->window || at->masked ? &op_attention_kept_masked : &op_attention_kept, words, SEED);
    for (int i = 0; i < 5; i++)
        kernel_check_in(&c, WEIR_F32, SHAPE(at->batch, i < 3 ? at->rows : at->room, i ? dim / at->group : dim));
    kernel_set(kernel_check_in(&c, WEIR_I32, SHAPE()), 0, (double)at->position);
    if (at->masked) {
        const attention_case like = {.keys = at->room, .masked = at->masked, .mask = at->mask};
        add_mask(&c, &like);
    }
    return c;
}

static void check_kept(kept_case at)
{
    const kept_words words = {at.head_dim, 1 / sqrt((double)at.head_dim), at.window};
    kernel_check c = kept_new(&at, &words);
    run_all_ways(&c, 1e-4);
    kernel_check_near(&c, 0, reference_kept, 2e-5);
    kernel_check_free(&c);
}

Test(attention_kept, takes_groups_of_heads_windows_and_masks, .timeout = 60)
{
    check_kept(KEPT(2, 3, 9, 6, 6, 4, 3));
    check_kept(KEPT(2, 3, 9, 0, 4, 4, 4));
    check_kept(KEPT(1, 20, 300, 277, 4, 33, 2));
    check_kept(KEPT(2, 3, 9, 5, 2, 4, 1, .window = 2));
    check_kept(KEPT(2, 5, 90, 70, 4, 16, 2, .window = 40));
    check_kept(KEPT(2, 3, 9, 5, 2, 4, 1, .masked = WEIR_U8, .mask = SHAPE(2, 9)));
    check_kept(KEPT(2, 3, 9, 5, 4, 4, 2, .masked = WEIR_U8, .mask = SHAPE(2, 4, 3, 9), .window = 4));
    check_kept(KEPT(2, 3, 90, 80, 4, 4, 2, .masked = WEIR_F32, .mask = SHAPE(1, 4, 1, 90)));
}

/* One head after the other, with the heads of a group apart, is the same. */
Test(attention_kept, a_head_of_a_group_has_the_bits_that_it_has_by_itself, .timeout = 60)
{
    enum { ROWS = 3, ROOM = 150, WIDTH = 20, GROUP = 3 };
    const kept_words words = {WIDTH, 0.3, 0};
    const kept_case shared = KEPT(1, ROWS, ROOM, 140, GROUP, WIDTH, GROUP), lone = KEPT(1, ROWS, ROOM, 140, 1, WIDTH, 1);
    kernel_check all = kept_new(&shared, &words);
    kernel_check_run(&all);
    for (int64_t head = 0; head < GROUP; head++) {
        kernel_check one = kept_new(&lone, &words);
        for (int i = 1; i < 5; i++)
            memcpy(one.in[i].data, all.in[i].data, (size_t)weir_shape_count(&one.in[i].shape) * sizeof(float));
        for (int64_t i = 0; i < ROWS * WIDTH; i++)
            kernel_set(&one.in[0], i, kernel_at(&all.in[0], (i / WIDTH * GROUP + head) * WIDTH + i % WIDTH));
        kernel_check_run(&one);
        for (int64_t i = 0; i < ROWS * WIDTH; i++)
            cr_assert_eq(kernel_at(&one.out[0], i), kernel_at(&all.out[0], (i / WIDTH * GROUP + head) * WIDTH + i % WIDTH));
        kernel_check_free(&one);
    }
    kernel_check_free(&all);
}

Test(attention, refuses_shapes_that_do_not_fit, .timeout = 120)
{
    word attrs[3] = {{0}};
    attr_set(&op_attention, attrs, "head_dim", 3);
    weir_type in[3] = {{WEIR_F32, SHAPE(2, 5, 8)}, {WEIR_F32, SHAPE(2, 7, 8)}, {WEIR_F32, SHAPE(2, 7, 8)}};
    kernel_check_refuses(&op_attention, attrs, in, 3, "dim 8 does not consist of heads of 3");
    in[2].shape = SHAPE(2, 6, 8);
    kernel_check_refuses(&op_attention, attrs, in, 3, "the shapes of k and v differ");
    word masked[4] = {{0}};
    weir_type with[4] = {{WEIR_F32, SHAPE(2, 5, 12)}, {WEIR_F32, SHAPE(2, 7, 8)}, {WEIR_F32, SHAPE(2, 7, 8)}, {WEIR_U8, SHAPE(2, 6)}};
    attr_set(&op_attention_masked, masked, "head_dim", 4);
    kernel_check_refuses(&op_attention_masked, masked, with, 3, "q has 3 heads and k has 2, which do not divide those");
    with[0].shape.dim[2] = 16;
    kernel_check_refuses(&op_attention_masked, masked, with, 4,
                         "the mask has shape [2, 6]; it needs [2, 7], or [2, 4, 5, 7], in which all but the keys may be 1");
    with[3] = (weir_type){WEIR_F32, SHAPE(2, 3, 1, 7)};
    kernel_check_refuses(&op_attention_masked, masked, with, 4, "the mask has shape [2, 3, 1, 7]");
    with[3] = (weir_type){WEIR_I32, SHAPE(2, 7)};
    kernel_check_refuses(&op_attention_masked, masked, with, 4, "the mask is i32; it needs to be u8 or f32");
    attr_set(&op_attention_masked, masked, "window", 3);
    kernel_check_refuses(&op_attention_masked, masked, with, 3, "a window of 3; it needs to be above 0, of causal attention");
}
