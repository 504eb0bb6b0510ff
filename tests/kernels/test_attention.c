/* test_attention.c: attention against plain loops in double, and its gradient against its formulas; test_gradients_b.c holds
 * that against finite differences. */
#include "kernels/common/ops.h"
#include "tests/kernels/by_name.h"
#include "tests/support/effort.h"

#include <math.h>
#include <stdlib.h>

#define SEED 20210 /* of all random inputs here */

typedef struct heads {
    int64_t batch, heads, seq, keys, dim, head_dim;
    bool causal;
    double scale;
} heads;

static heads heads_of(const kernel_check *c)
{
    const weir_shape *q = &c->in[0].shape;
    heads h = {.batch = q->dim[0], .seq = q->dim[1], .dim = q->dim[2], .keys = c->in[1].shape.dim[1]};
    h.head_dim = (int64_t)attr_get(c, "head_dim");
    h.heads = h.dim / h.head_dim;
    h.causal = attr_get(c, "causal") != 0;
    h.scale = attr_get(c, "scale");
    return h;
}

static double head_at(const heads *h, const weir_view *x, int64_t rows_per_batch, int64_t g, int64_t row, int64_t i)
{
    return kernel_at(x, (g / h->heads * rows_per_batch + row) * h->dim + g % h->heads * h->head_dim + i);
}

/* Probabilities of query i of head g (batch and head in one), and their log-sum-exp. */
static double probabilities(const kernel_check *c, const heads *h, int64_t g, int64_t i, double *p)
{
    const int64_t seen = h->causal && i + 1 < h->keys ? i + 1 : h->keys;
    double most = -INFINITY, total = 0;
    for (int64_t j = 0; j < h->keys; j++) {
        p[j] = j < seen ? 0 : -INFINITY;
        for (int64_t l = 0; l < h->head_dim && j < seen; l++)
            p[j] += h->scale * head_at(h, &c->in[0], h->seq, g, i, l) * head_at(h, &c->in[1], h->keys, g, j, l);
        most = p[j] > most ? p[j] : most;
    }
    for (int64_t j = 0; j < h->keys; j++)
        total += p[j] = exp(p[j] - most);
    for (int64_t j = 0; j < h->keys; j++)
        p[j] /= total;
    return most + log(total);
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
                        p[j] * head_at(&h, &c->in[2], h.keys, g, j, l);
        }
    free(p);
}

typedef struct attention_case {
    int64_t batch, seq, keys, heads, head_dim;
    bool causal;
    double sharpness; /* of the scores: large ones make the maximum move between blocks */
} attention_case;

static void attention_attrs(const attention_case *at, word *attrs)
{
    attr_set(&op_attention, attrs, "head_dim", (double)at->head_dim);
    attr_set(&op_attention, attrs, "causal", at->causal);
    attr_set(&op_attention, attrs, "scale", at->sharpness / sqrt((double)at->head_dim));
}

static void check_attention(attention_case at)
{
    word attrs[3] = {{0}};
    attention_attrs(&at, attrs);
    kernel_check c = kernel_check_new(&op_attention, attrs, SEED);
    kernel_check_in(&c, WEIR_F32, SHAPE(at.batch, at.seq, at.heads * at.head_dim));
    kernel_check_in(&c, WEIR_F32, SHAPE(at.batch, at.keys, at.heads * at.head_dim));
    kernel_check_in(&c, WEIR_F32, SHAPE(at.batch, at.keys, at.heads * at.head_dim));
    run_all_ways(&c, 1e-4);
    kernel_check_near(&c, 0, reference_attention, 2e-5);
    kernel_check_near(&c, 1, reference_attention, 2e-5);
    kernel_check_free(&c);
}

Test(attention, is_softmax_of_scores_times_values, .timeout = 120)
{
    check_attention((attention_case){2, 5, 7, 3, 4, false, 1});
    check_attention((attention_case){1, 1, 1, 1, 1, false, 1});
    check_attention((attention_case){1, 64, 64, 2, 16, true, 1});
    check_attention((attention_case){0, 4, 4, 1, 4, false, 1});
    check_attention((attention_case){2, 0, 4, 1, 4, false, 1});
}

Test(attention, goes_on_over_several_blocks_of_queries_and_keys, .timeout = 60)
{
#if EFFORT(1, 1, 0)
    check_attention((attention_case){1, 130, 600, 2, 8, false, 1});
    check_attention((attention_case){1, 130, 600, 2, 8, false, 8});
    check_attention((attention_case){1, 330, 330, 1, 8, true, 8});
#endif
    check_attention((attention_case){1, 300, 20, 1, 8, true, 1});
    check_attention((attention_case){1, 20, 300, 1, 8, true, 1});
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
                    delta += head_at(&h, dout, h.seq, g, i, l) * p[j] * head_at(&h, &c->in[2], h.keys, g, j, l);
            for (int64_t j = 0; j < h.keys; j++) {
                double dp = 0;
                for (int64_t l = 0; l < h.head_dim; l++)
                    dp += head_at(&h, dout, h.seq, g, i, l) * head_at(&h, &c->in[2], h.keys, g, j, l);
                const double ds = h.scale * p[j] * (dp - delta);
                const int64_t q_row = (g / h.heads * h.seq + i) * h.dim + g % h.heads * h.head_dim;
                const int64_t k_row = (g / h.heads * h.keys + j) * h.dim + g % h.heads * h.head_dim;
                for (int64_t l = 0; l < h.head_dim; l++) {
                    if (out == 0)
                        want[q_row + l] += ds * head_at(&h, &c->in[1], h.keys, g, j, l);
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
    word attrs[3] = {{0}};
    attention_attrs(&at, attrs);
    const weir_shape q = SHAPE(at.batch, at.seq, at.heads * at.head_dim);
    const weir_shape k = SHAPE(at.batch, at.keys, at.heads * at.head_dim);
    kernel_check c = kernel_check_new(&op_attention_grad, attrs, SEED);
    kernel_check_in(&c, WEIR_F32, q);
    kernel_check_in(&c, WEIR_F32, k);
    kernel_check_in(&c, WEIR_F32, k);
    kernel_check_in(&c, WEIR_F32, q);
    kernel_check_in(&c, WEIR_F32, SHAPE(at.batch, at.heads, at.seq));
    kernel_check_in(&c, WEIR_F32, q);
    fill_forward(&c);
    run_all_ways(&c, 1e-4);
    for (int out = 0; out < 3; out++)
        kernel_check_near(&c, out, reference_attention_grad, 5e-5);
    kernel_check_free(&c);
}

Test(attention, gradient_follows_its_formula, .timeout = 60)
{
    check_attention_grad((attention_case){2, 5, 7, 3, 4, false, 1});
    check_attention_grad((attention_case){2, 70, 70, 2, 8, true, 1});
#if EFFORT(1, 1, 0)
    check_attention_grad((attention_case){1, 130, 300, 1, 8, false, 3});
    check_attention_grad((attention_case){1, 270, 270, 1, 8, true, 3});
#endif
    check_attention_grad((attention_case){1, 100, 20, 1, 8, true, 1});
}

Test(attention, refuses_shapes_that_do_not_fit, .timeout = 120)
{
    word attrs[3] = {{0}};
    attr_set(&op_attention, attrs, "head_dim", 3);
    weir_type in[3] = {{WEIR_F32, SHAPE(2, 5, 8)}, {WEIR_F32, SHAPE(2, 7, 8)}, {WEIR_F32, SHAPE(2, 7, 8)}};
    kernel_check_refuses(&op_attention, attrs, in, 3, "dim 8 does not consist of heads of 3");
    in[2].shape = SHAPE(2, 6, 8);
    kernel_check_refuses(&op_attention, attrs, in, 3, "the shapes of k and v differ");
}
