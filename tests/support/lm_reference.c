/* tests/support/lm_reference.c: see the header. */
#include "tests/support/lm_reference.h"

#include "tests/support/gguf_file.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- weights ---- */

/* Element i of a parameter. */
static float element(lm_part part, int block, bool bias, bool vector, int64_t i)
{
    const double value = 2 * weir_random_uniform((uint64_t)(2 * (part + LM_PARTS * (block + 1)) + bias), (uint64_t)i) - 1;
    return (float)(bias ? 0.3 * value : vector ? 1 + 0.3 * value : 0.5 * value);
}

/* NULL: the model has no such parameter. Owned by the caller. */
static float *values_of(const lm_config *c, lm_part part, int block, bool bias, weir_shape *shape)
{
    if (!lm_shape(c, part, bias, shape))
        return NULL;
    const int64_t count = weir_shape_count(shape);
    float *value = malloc((size_t)count * sizeof *value);
    cr_assert(value);
    for (int64_t i = 0; i < count; i++)
        value[i] = element(part, block, bias, shape->rank == 1, i);
    return value;
}

typedef void (*visit_fn)(void *ctx, const char *name, const weir_shape *shape, float *value);

static void each(const lm_config *c, visit_fn visit, void *ctx)
{
    char name[LM_NAME_BYTES];
    weir_shape shape;
    for (int part = 0; part < LM_PARTS; part++)
        for (int block = part < LM_BLOCK_PARTS ? -1 : 0; block < (part < LM_BLOCK_PARTS ? 0 : c->layers); block++)
            for (int bias = 0; bias < 2; bias++) {
                float *value = values_of(c, (lm_part)part, block, bias, &shape);
                if (value)
                    visit(ctx, lm_name(c, (lm_part)part, block, bias, name), &shape, value);
            }
}

enum { VALUES_MAX = 64 };

/* The writer borrows values until it has finished. */
struct writing {
    weir_checkpoint_writer *writer;
    float *value[VALUES_MAX];
    int count;
};

static void write_value(void *ctx, const char *name, const weir_shape *shape, float *value)
{
    struct writing *w = ctx;
    const weir_checkpoint_value of = {.name = name, .kind = WEIR_PARAMETER, .slots = 1, .value = {value, WEIR_F32, *shape}};
    cr_assert_lt(w->count, VALUES_MAX);
    w->value[w->count++] = value;
    cr_assert_eq(weir_checkpoint_add(w->writer, &of), WEIR_OK, "%s", weir_error());
}

void lm_write_weights(const lm_config *c, const char *path)
{
    struct writing w = {.writer = weir_checkpoint_create(path)};
    cr_assert(w.writer, "%s", weir_error());
    each(c, write_value, &w);
    cr_assert_eq(weir_checkpoint_finish(w.writer), WEIR_OK, "%s", weir_error());
    for (int i = 0; i < w.count; i++)
        free(w.value[i]);
}

static void count_one(void *ctx, const char *name, const weir_shape *shape, float *value)
{
    (void)name, (void)shape;
    ++*(int *)ctx;
    free(value);
}

int lm_count_weights(const lm_config *c)
{
    int count = 0;
    each(c, count_one, &count);
    return count;
}

struct putting {
    struct gguf_file *file;
    uint64_t offset;
};

static void put_head(void *ctx, const char *name, const weir_shape *shape, float *value)
{
    struct putting *p = ctx;
    gguf_file_tensor(p->file, name, shape, GGUF_F32, p->offset);
    p->offset += ((uint64_t)weir_shape_count(shape) * sizeof *value + 31) / 32 * 32;
    free(value);
}

static void put_values(void *ctx, const char *name, const weir_shape *shape, float *value)
{
    struct putting *p = ctx;
    (void)name;
    gguf_file_align(p->file, 32);
    gguf_file_bytes(p->file, value, (size_t)weir_shape_count(shape) * sizeof *value);
    free(value);
}

void lm_put_weights(const lm_config *c, struct gguf_file *f)
{
    struct putting p = {.file = f};
    each(c, put_head, &p);
    each(c, put_values, &p);
    gguf_file_align(f, 32);
}

/* ---- in double ---- */

enum { WIDTH_MAX = 256, ROWS_MAX = 64 };

/* y = W x + bias, where W is [out, in], or [in, out]. Returns how many y has. */
static int product(const lm_config *c, lm_part part, int block, const double *x, double *y)
{
    weir_shape shape, of_bias;
    float *w = values_of(c, part, block, false, &shape), *bias = values_of(c, part, block, true, &of_bias);
    const bool turned = lm_in_first(c, part);
    const int out = (int)shape.dim[turned], in = (int)shape.dim[!turned];
    for (int o = 0; o < out; o++) {
        y[o] = bias ? (double)bias[o] : 0;
        for (int i = 0; i < in; i++)
            y[o] += (double)w[turned ? i * out + o : o * in + i] * x[i];
    }
    free(w), free(bias);
    return out;
}

static void norm(const lm_config *c, lm_part part, int block, const double *x, double *y)
{
    weir_shape shape, of_bias;
    float *gain = values_of(c, part, block, false, &shape), *bias = values_of(c, part, block, true, &of_bias);
    const int count = (int)shape.dim[0];
    double mean = 0, square = 0;
    for (int i = 0; i < count && c->centred; i++)
        mean += x[i] / count;
    for (int i = 0; i < count; i++)
        square += (x[i] - mean) * (x[i] - mean) / count;
    for (int i = 0; i < count; i++)
        y[i] = (x[i] - mean) / sqrt(square + c->eps) * (double)gain[i] + (bias ? (double)bias[i] : 0);
    free(gain), free(bias);
}

static double frequency(const lm_config *c, int pair)
{
    const weir_rope_scaling *s = &c->rope_scaling;
    const double own = pow(c->rope_base, -2.0 * pair / c->rotary_dim), turns = (double)s->original_max_position * own / (2 * M_PI);
    if (s->factor == 0)
        return own;
    if (s->high_freq_factor == 0 || turns < s->low_freq_factor)
        return own / s->factor;
    if (turns > s->high_freq_factor)
        return own;
    const double part = (turns - s->low_freq_factor) / (s->high_freq_factor - s->low_freq_factor);
    return (1 - part) * own / s->factor + part * own;
}

static void turn(const lm_config *c, double *x, int heads, int position)
{
    const int half = c->rotary_dim / 2;
    for (int h = 0; h < heads; h++)
        for (int p = 0; p < half; p++) {
            double *a = x + h * c->head_dim + (c->interleaved ? 2 * p : p), *b = a + (c->interleaved ? 1 : half);
            const double angle = position * frequency(c, p), before = *a;
            *a = before * cos(angle) - *b * sin(angle);
            *b = *b * cos(angle) + before * sin(angle);
        }
}

static void make_ready(const lm_config *c, double *x, int heads, lm_part normed_by, int block, int position)
{
    for (int h = 0; h < heads && c->qk_norm; h++)
        norm(c, normed_by, block, x + h * c->head_dim, x + h * c->head_dim);
    if (c->layer[block].turns)
        turn(c, x, heads, position);
}

struct kept {
    double keys[ROWS_MAX][WIDTH_MAX], values[ROWS_MAX][WIDTH_MAX];
};

static void attend(const lm_config *c, const struct kept *kept, const double *q, int block, int position, double *to)
{
    const int first = c->layer[block].windowed && position >= c->window ? position - c->window + 1 : 0;
    for (int h = 0; h < c->heads; h++) {
        const int own = h / (c->heads / c->kv_heads) * c->head_dim;
        double weight[ROWS_MAX], sum = 0;
        for (int t = first; t <= position; t++) {
            double score = 0;
            for (int i = 0; i < c->head_dim; i++)
                score += q[h * c->head_dim + i] * kept->keys[t][own + i];
            sum += weight[t] = exp(score / sqrt(c->head_dim));
        }
        for (int i = 0; i < c->head_dim; i++) {
            to[h * c->head_dim + i] = 0;
            for (int t = first; t <= position; t++)
                to[h * c->head_dim + i] += weight[t] / sum * kept->values[t][own + i];
        }
    }
}

static void attention(const lm_config *c, struct kept *kept, const double *h, int block, int position, double *y)
{
    double all[3 * WIDTH_MAX], a[WIDTH_MAX], *q = all;
    const int wide = c->heads * c->head_dim, narrow = c->kv_heads * c->head_dim;
    if (c->joined) {
        product(c, LM_QKV, block, h, all);
    } else {
        product(c, LM_Q, block, h, q);
        product(c, LM_K, block, h, q + wide);
        product(c, LM_V, block, h, q + wide + narrow);
    }
    make_ready(c, q, c->heads, LM_Q_NORM, block, position);
    make_ready(c, q + wide, c->kv_heads, LM_K_NORM, block, position);
    memcpy(kept->keys[position], q + wide, (size_t)narrow * sizeof *q);
    memcpy(kept->values[position], q + wide + narrow, (size_t)narrow * sizeof *q);
    attend(c, kept, q, block, position, a);
    product(c, LM_O, block, a, y);
}

static double activated(const lm_config *c, double x)
{
    switch (c->activation) {
    case LM_GELU_TANH: return 0.5 * x * (1 + tanh(sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
    case LM_GELU_ERF: return 0.5 * x * (1 + erf(x / sqrt(2)));
    case LM_RELU: return x > 0 ? x : 0;
    default: return x / (1 + exp(-x));
    }
}

static void feed_forward(const lm_config *c, const double *h, int block, double *y)
{
    double gate[WIDTH_MAX], up[WIDTH_MAX];
    const int count = product(c, LM_UP, block, h, up);
    if (c->gated)
        product(c, LM_GATE, block, h, gate);
    for (int i = 0; i < count; i++)
        up[i] = c->gated ? activated(c, gate[i]) * up[i] : activated(c, up[i]);
    product(c, LM_DOWN, block, up, y);
}

static void add_row(const lm_config *c, lm_part part, int row, double *x)
{
    weir_shape shape;
    float *table = values_of(c, part, -1, false, &shape);
    for (int i = 0; i < c->dim && table; i++)
        x[i] += (double)table[(int64_t)row * c->dim + i];
    free(table);
}

void lm_reference(const lm_config *c, const int32_t *tokens, int count, double *logits)
{
    struct kept *rows = calloc((size_t)c->layers, sizeof *rows);
    cr_assert(rows && count <= ROWS_MAX && c->heads * c->head_dim <= WIDTH_MAX && c->ffn <= WIDTH_MAX);
    for (int at = 0; at < count; at++) {
        double x[WIDTH_MAX] = {0}, h[WIDTH_MAX], y[WIDTH_MAX];
        add_row(c, LM_TOKENS, tokens[at], x);
        add_row(c, LM_POSITIONS, at, x);
        for (int block = 0; block < c->layers; block++) {
            norm(c, LM_ATTENTION_NORM, block, x, h);
            attention(c, &rows[block], h, block, at, y);
            for (int i = 0; i < c->dim; i++)
                x[i] += y[i];
            norm(c, LM_FFN_NORM, block, x, h);
            feed_forward(c, h, block, y);
            for (int i = 0; i < c->dim; i++)
                x[i] += y[i];
        }
        norm(c, LM_OUT_NORM, -1, x, h);
        product(c, c->tied ? LM_TOKENS : LM_HEAD, -1, h, logits + (int64_t)at * c->vocab);
    }
    free(rows);
}
