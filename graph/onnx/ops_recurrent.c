/* graph/onnx/ops_recurrent.c: RNN, GRU and LSTM, unrolled over the steps of the sequence, whose number is known.
 *
 *     x [steps, batch, in]  --one product for all steps-->  [steps * batch, gates * hidden]
 *     for each step: its rows + h R^T, the gates, the new h (and c)
 *
 * The gates of LSTM are in the order i, o, f, c, those of GRU z, r, h. Source of the formulas: ONNX's operators, version 14.
 */
#include "graph/onnx/ops.h"

#include <string.h>

#define STEPS_MAX 4096 /* of a sequence */

typedef struct recurrent {
    onnx_importer *im;
    int gates;                   /* 1: RNN, 3: GRU, 4: LSTM */
    int64_t steps, batch, inputs, hidden, directions;
    bool by_batch;               /* layout 1: the batch is the first dimension */
    /* of the direction that is being built */
    int direction;
    weir_tensor *r;              /* [gates * hidden, hidden] */
    weir_tensor *r_bias;         /* GRU with linear_before_reset: that of the last gate, else NULL */
    weir_tensor *peephole[3];    /* LSTM: i, o, f; or NULL */
    weir_tensor *h, *c;          /* NULL: zeros, before the first step */
} recurrent;

static weir_tensor *rows(recurrent *m, weir_tensor *x, int axis, int64_t first, int64_t count)
{
    return weir_tensor_type(x).shape.dim[axis] == count ? x : weir_slice_at(x, axis, first, count, ONNX_PART(m->im, weir_slice_opts));
}

/* Direction d of input i, whose first dimension counts directions, with `rank` sizes. A known one becomes a parameter of its own, with
 * the value's name if there is one direction; it trains if nothing else reads the value. */
static weir_tensor *of_direction(recurrent *m, int i, int axis, int rank, const int64_t *dim)
{
    const onnx_value *value = onnx_in(m->im, i);
    if (value && value->known && !axis) {
        int64_t count = m->directions;
        bool fits = true;
        onnx_array *own = POOL_NEW(m->im->pool, onnx_array, 1);
        for (int d = 0; d < rank; d++)
            fits = fits && !__builtin_mul_overflow(count, dim[d], &count);
        if (!own || !fits || array_count(value->known) != count)
            return own ? ONNX_WRONG(m->im, "input %d has %lld elements, and not %lld", i, (long long)array_count(value->known),
                                    (long long)count), NULL : (onnx_no_memory(m->im), NULL);
        *own = (onnx_array){.type = value->known->type, .rank = rank,
                            .data = (char *)value->known->data + (size_t)(m->direction * (count / m->directions)) * onnx_type_bytes(value->known->type)};
        memcpy(own->dim, dim, sizeof *dim * (size_t)rank);
        const bool trains = value->weight && onnx_readers(m->im, value->name) == 1;
        return onnx_parameter(m->im, m->directions == 1 ? onnx_fresh_name(m->im, value->name) : onnx_name(m->im), own, trains);
    }
    weir_tensor *x = onnx_tensor_in(m->im, i);
    if (!x)
        return NULL;
    const weir_shape shape = weir_tensor_type(x).shape;
    if (axis >= shape.rank || shape.dim[axis] != m->directions)
        return ONNX_WRONG(m->im, "input %d does not have %lld directions", i, (long long)m->directions), NULL;
    return onnx_reshape(m->im, rows(m, x, axis, m->direction, 1), rank, dim, onnx_name(m->im));
}

static weir_tensor *gate(recurrent *m, weir_tensor *all, int g)
{
    return rows(m, all, 1, g * m->hidden, m->hidden);
}

static weir_tensor *sum(recurrent *m, weir_tensor *a, weir_tensor *b)
{
    return !a ? b : !b ? a : weir_add_at(a, b, PART(m->im));
}

static weir_tensor *times(recurrent *m, weir_tensor *a, weir_tensor *b)
{
    return !a || !b ? NULL : weir_mul_at(a, b, PART(m->im));
}

/* x w^T; NULL for zeros. */
static weir_tensor *product(recurrent *m, weir_tensor *x, weir_tensor *w)
{
    return x ? weir_matmul_at(x, w, ONNX_PART(m->im, weir_matmul_opts, .trans_b = true)) : NULL;
}

/* The k-th activation of the direction. */
static weir_tensor *activated(recurrent *m, weir_tensor *x, int k)
{
    const onnx_attribute *a = onnx_attribute_find(m->im->node, "activations");
    const int each = m->gates == 1 ? 1 : m->gates == 3 ? 2 : 3, at = m->direction * each + k;
    const char *name = a && at < a->strings.count ? a->strings.item[at] : m->gates > 1 && !k ? "Sigmoid" : "Tanh";
    if (!strcmp(name, "Sigmoid"))
        return weir_sigmoid_at(x, PART(m->im));
    if (!strcmp(name, "Tanh"))
        return weir_tanh_at(x, PART(m->im));
    if (!strcmp(name, "Relu"))
        return weir_relu_at(x, PART(m->im));
    ONNX_UNSUPPORTED(m->im, "the activation %s; Sigmoid, Tanh and Relu can be", name);
    return x;
}

static void step_rnn(recurrent *m, weir_tensor *x)
{
    m->h = activated(m, sum(m, x, product(m, m->h, m->r)), 0);
}

static void step_gru(recurrent *m, weir_tensor *x)
{
    const int64_t two = 2 * m->hidden;
    weir_tensor *zr = activated(m, sum(m, rows(m, x, 1, 0, two), product(m, m->h, rows(m, m->r, 0, 0, two))), 0);
    weir_tensor *z = gate(m, zr, 0), *r = gate(m, zr, 1), *last = rows(m, m->r, 0, two, m->hidden);
    weir_tensor *from = m->r_bias ? times(m, r, sum(m, product(m, m->h, last), m->r_bias)) : product(m, times(m, r, m->h), last);
    weir_tensor *next = activated(m, sum(m, gate(m, x, 2), from), 1);
    weir_tensor *back = m->h ? weir_sub_at(m->h, next, PART(m->im)) : weir_neg_at(next, PART(m->im)); /* h' = next + z (h - next) */
    m->h = sum(m, next, times(m, z, back));
}

static void step_lstm(recurrent *m, weir_tensor *x)
{
    weir_tensor *all = sum(m, x, product(m, m->h, m->r));
    weir_tensor *i = activated(m, sum(m, gate(m, all, 0), times(m, m->peephole[0], m->c)), 0);
    weir_tensor *f = activated(m, sum(m, gate(m, all, 2), times(m, m->peephole[2], m->c)), 0);
    m->c = sum(m, times(m, f, m->c), times(m, i, activated(m, gate(m, all, 3), 1)));
    weir_tensor *o = activated(m, sum(m, gate(m, all, 1), times(m, m->peephole[1], m->c)), 0);
    m->h = times(m, o, activated(m, m->c, 2));
}

static void (*step_of(const recurrent *m))(recurrent *, weir_tensor *)
{
    return m->gates == 1 ? step_rnn : m->gates == 3 ? step_gru : step_lstm;
}

/* The bias [2 * gates * hidden] has one part for W and one for R. They are added, but for the last gate of a GRU that resets behind
 * the product. Returns what is added to all steps. */
static weir_tensor *take_bias(recurrent *m)
{
    const int64_t all = m->gates * m->hidden;
    if (!onnx_has_in(m->im->node, 3))
        return NULL;
    weir_tensor *both = of_direction(m, 3, 0, 2, (int64_t[]){1, 2 * all});
    if (!both)
        return NULL;
    weir_tensor *w = rows(m, both, 1, 0, all), *r = rows(m, both, 1, all, all);
    if (m->gates != 3 || !onnx_int(m->im, "linear_before_reset", 0))
        return sum(m, w, r);
    m->r_bias = rows(m, r, 1, 2 * m->hidden, m->hidden);
    weir_concat_opts opts = {.size = sizeof opts, .src = m->im->src, .name = onnx_name(m->im),
                             .x = {sum(m, rows(m, w, 1, 0, 2 * m->hidden), rows(m, r, 1, 0, 2 * m->hidden)), rows(m, w, 1, 2 * m->hidden, m->hidden)}};
    return weir_concat_at(1, &opts);
}

static bool take_weights(recurrent *m, weir_tensor *x, weir_tensor **gates)
{
    const int64_t all = m->gates * m->hidden, state[] = {m->batch, m->hidden};
    weir_tensor *w = of_direction(m, 1, 0, 2, (int64_t[]){all, m->inputs});
    m->r = w ? of_direction(m, 2, 0, 2, (int64_t[]){all, m->hidden}) : NULL;
    m->r_bias = m->h = m->c = NULL;
    if (!m->r)
        return false;
    *gates = sum(m, product(m, x, w), take_bias(m));
    const int axis = m->by_batch;
    if (onnx_has_in(m->im->node, 5))
        m->h = of_direction(m, 5, axis, 2, state);
    if (m->gates == 4 && onnx_has_in(m->im->node, 6))
        m->c = of_direction(m, 6, axis, 2, state);
    weir_tensor *peephole = m->gates == 4 && onnx_has_in(m->im->node, 7) ? of_direction(m, 7, 0, 2, (int64_t[]){1, 3 * m->hidden}) : NULL;
    for (int g = 0; g < 3; g++)
        m->peephole[g] = peephole ? gate(m, peephole, g) : NULL;
    return !m->im->status;
}

static weir_tensor *concat(recurrent *m, int axis, weir_tensor **x, int64_t count)
{
    return onnx_concat(m->im, axis, x, (int)count, onnx_name(m->im));
}

/* One direction: h of each step to all[step], [1, 1, batch, hidden]. */
static bool run_direction(recurrent *m, weir_tensor *x, weir_tensor **all)
{
    const onnx_attribute *a = onnx_attribute_find(m->im->node, "direction");
    const bool back = m->direction == 1 || (a && a->s && !strcmp(a->s, "reverse"));
    weir_tensor *gates;
    if (!take_weights(m, x, &gates))
        return false;
    for (int64_t k = 0; k < m->steps && !m->im->status; k++) {
        const int64_t at = back ? m->steps - 1 - k : k;
        step_of(m)(m, rows(m, gates, 0, at * m->batch, m->batch));
        all[at] = weir_tensor_poisoned(m->h) ? m->h : onnx_reshape(m->im, m->h, 4, (int64_t[]){1, 1, m->batch, m->hidden}, onnx_name(m->im));
    }
    return !m->im->status && !weir_graph_mistake(m->im->graph);
}

static bool take_sizes(recurrent *m, weir_tensor *x)
{
    const weir_shape shape = weir_tensor_type(x).shape;
    const char *direction = onnx_text(m->im, "direction", "forward");
    const onnx_value *lengths = onnx_has_in(m->im->node, 4) ? onnx_in(m->im, 4) : NULL;
    if (shape.rank != 3)
        return ONNX_WRONG(m->im, "its input has %d dimensions, and not 3", shape.rank);
    m->by_batch = onnx_int(m->im, "layout", 0);
    m->steps = shape.dim[m->by_batch];
    m->batch = shape.dim[!m->by_batch];
    m->inputs = shape.dim[2];
    m->hidden = onnx_int(m->im, "hidden_size", 0);
    m->directions = strcmp(direction, "bidirectional") ? 1 : 2;
    if (m->hidden < 1 || m->hidden > INT32_MAX)
        return ONNX_WRONG(m->im, "its hidden_size is %lld", (long long)m->hidden);
    if (m->steps > STEPS_MAX)
        return ONNX_UNSUPPORTED(m->im, "its sequence has %lld steps; at most %d can be", (long long)m->steps, STEPS_MAX);
    if (onnx_attribute_find(m->im->node, "clip") || onnx_int(m->im, "input_forget", 0))
        return ONNX_UNSUPPORTED(m->im, "its attribute clip or input_forget");
    if (lengths && !onnx_known_in(m->im, 4))
        return false;
    for (int64_t i = 0; lengths && i < m->batch; i++)
        if (array_count(lengths->known) != m->batch || array_integer(lengths->known, i) != m->steps)
            return ONNX_UNSUPPORTED(m->im, "sequences of several lengths");
    return true;
}

/* The last h or c of all directions, as output k. */
static bool set_last(recurrent *m, int k, weir_tensor **last, int type)
{
    if (m->im->node->out.count <= k || !*m->im->node->out.item[k])
        return true;
    const int64_t dim[] = {m->by_batch ? m->batch : 1, m->by_batch ? 1 : m->batch, m->hidden};
    for (int d = 0; d < m->directions; d++)
        last[d] = onnx_reshape(m->im, last[d], 3, dim, onnx_name(m->im));
    return onnx_set_tensor(m->im, k, concat(m, m->by_batch, last, m->directions), type);
}

bool onnx_op_recurrent(onnx_importer *im)
{
    recurrent model = {.im = im, .gates = *im->node->op == 'R' ? 1 : *im->node->op == 'G' ? 3 : 4}, *m = &model;
    weir_tensor *x = onnx_tensor_in(im, 0), *last_h[2] = {NULL}, *last_c[2] = {NULL}, *both[2] = {NULL};
    if (!x || !take_sizes(m, x))
        return false;
    const int type = onnx_in(im, 0)->type;
    weir_tensor **all = POOL_NEW(im->pool, weir_tensor *, m->steps);
    if (!all)
        return onnx_no_memory(im);
    if (m->by_batch)
        x = onnx_transpose(im, x, (int[]){1, 0, 2}, onnx_name(im));
    x = onnx_reshape(im, x, 2, (int64_t[]){m->steps * m->batch, m->inputs}, onnx_name(im));
    for (m->direction = 0; m->direction < m->directions; m->direction++) {
        if (!x || !run_direction(m, x, all))
            return onnx_set_tensor(im, 0, x, type) && false;
        last_h[m->direction] = m->h;
        last_c[m->direction] = m->c;
        both[m->direction] = concat(m, 0, all, m->steps);
    }
    weir_tensor *y = concat(m, 1, both, m->directions);
    if (m->by_batch)
        y = onnx_transpose(im, y, (int[]){2, 0, 1, 3}, onnx_name(im));
    return onnx_set_tensor(im, 0, y, type) && set_last(m, 1, last_h, type) && (m->gates < 4 || set_last(m, 2, last_c, type));
}
