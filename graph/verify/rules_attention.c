/* graph/verify/rules_attention.c: the rules of attention and of rotary positions.
 *
 * Sequences, heads and rows do not depend on each other, so a split of them changes no value. cos and sin are oracles of the
 * angle, which is a row's position times a frequency that the attributes give.
 */
#include "graph/verify/rules_model.h"

#include <math.h>

/* ---- attention ---- */

static field_value dot(const field_value *a, const field_value *b, int64_t count)
{
    return field_dot(field_int(0), a, 1, b, 1, count);
}

/* q is [batch, queries, dim], k and v are [batch, keys, kv_dim]. A head is a slice of `width` columns; a head of k and v is that of
 * `group` heads of q. */
typedef struct attention_sizes {
    const rule_call *call;
    int64_t batch, heads, group, queries, keys, dim, kv_dim, width, window;
    field_value scale;
    bool causal;
    const rule_array *mask; /* NULL: none */
} attention_sizes;

static bool mask_fits(const rule_call *call, const attention_sizes *a)
{
    const rule_array *mask = a->mask;
    const int64_t sizes[4] = {a->batch, a->heads, a->queries, a->keys};
    bool fits = mask->rank == 2 || mask->rank == 4;
    for (int d = 0; fits && d < mask->rank; d++) {
        const int64_t all = sizes[mask->rank == 2 && d == 1 ? 3 : d];
        fits = mask->shape[d] == all || (mask->shape[d] == 1 && d < mask->rank - 1);
    }
    return fits || rule_refuse(call, "the mask does not fit the queries and keys");
}

/* `masks`: the input that is the mask, if the call has so many. */
static bool attention_sizes_of(const rule_call *call, const rule_array *q, const rule_array *k, const rule_array *v, int masks,
                               attention_sizes *a)
{
    const int64_t width = rule_int(call, "head_dim", 0);
    if (q->rank != 3 || k->rank != 3 || !rule_same_shape(k, v) || q->shape[0] != k->shape[0])
        return rule_refuse(call, "the shapes of queries, keys and values do not fit each other");
    if (width < 1 || q->shape[2] % width || k->shape[2] % width)
        return rule_refuse(call, "rows of %lld columns: must consist of heads of %lld", (long long)q->shape[2], (long long)width);
    if (rule_int(call, "window", 0) < 0)
        return rule_refuse(call, "a window of %lld", (long long)rule_int(call, "window", 0));
    if (k->shape[2] ? q->shape[2] % k->shape[2] != 0 : q->shape[2] != 0)
        return rule_refuse(call, "the heads of keys do not divide those of queries");
    *a = (attention_sizes){
        .call = call,
        .batch = q->shape[0],
        .heads = q->shape[2] / width,
        .group = k->shape[2] ? q->shape[2] / k->shape[2] : 1,
        .queries = q->shape[1],
        .keys = k->shape[1],
        .dim = q->shape[2],
        .kv_dim = k->shape[2],
        .width = width,
        .window = rule_int(call, "window", 0),
        .scale = field_real(rule_real(call, "scale", 0)),
        .causal = rule_int(call, "causal", 0) != 0,
        .mask = call->in_count > masks ? &call->in[masks] : NULL,
    };
    return !a->mask || mask_fits(call, a);
}

/* The first element of a head, in an array of `rows` rows for each sequence; heads are counted through all sequences. */
static int64_t head_first(const attention_sizes *a, int64_t head, int64_t rows)
{
    return head / a->heads * rows * a->dim + head % a->heads * a->width;
}

/* The same of the head of keys that it shares. */
static int64_t shared_first(const attention_sizes *a, int64_t head, int64_t rows)
{
    return head / a->heads * rows * a->kv_dim + head % a->heads / a->group * a->width;
}

/* The mask of a key for a row of a head. */
static field_value mask_at(const attention_sizes *a, int64_t head, int64_t row, int64_t key)
{
    const int64_t *size = a->mask->shape, batch = size[0] == 1 ? 0 : head / a->heads;
    if (a->mask->rank == 2)
        return field_still(a->mask->at[batch * a->keys + key]);
    const int64_t own = size[1] == 1 ? 0 : head % a->heads, line = size[2] == 1 ? 0 : row;
    return field_still(a->mask->at[((batch * size[1] + own) * size[2] + line) * a->keys + key]);
}

/* Whether a row, which is at a position, sees a key. */
static bool sees(const attention_sizes *a, int64_t head, int64_t row, int64_t position, int64_t key)
{
    if (a->window && key <= position - a->window)
        return false;
    return !a->mask || a->mask->dtype != WEIR_U8 || !field_equal(mask_at(a, head, row, key), field_int(0));
}

/* exp(score) of a key that the row sees. */
static field_value exp_score(const attention_sizes *a, const field_value *q, const field_value *k, int64_t head, int64_t row,
                             int64_t key)
{
    field_value score = field_mul(a->scale, dot(q, k, a->width));
    if (a->mask && a->mask->dtype != WEIR_U8)
        score = field_add(score, mask_at(a, head, row, key));
    return exp_of(a->call, score);
}

/* Rows of keys and values of one head: `count` of them, the first of which has the number `first`. */
typedef struct attention_keys {
    const field_value *k, *v;
    int64_t first, count;
} attention_keys;

/* A row of queries of a head, and its position among the keys. */
typedef struct attention_row {
    const field_value *q;
    int64_t head, row, position;
} attention_row;

/* Adds exp(score) v for the keys that the row sees to `out`. Adds exp(score) to *sum; whether there was any. */
static bool add_keys(const attention_sizes *a, const attention_row *row, attention_keys keys, field_value *out, field_value *sum)
{
    bool any = false;
    for (int64_t j = 0; j < keys.count; j++) {
        const int64_t key = keys.first + j;
        if (!sees(a, row->head, row->row, row->position, key))
            continue;
        const field_value e = exp_score(a, row->q, keys.k + j * a->kv_dim, row->head, row->row, key);
        add_scaled(out, keys.v + j * a->kv_dim, e, a->width);
        *sum = field_add(*sum, e);
        any = true;
    }
    return any;
}

/* The number of keys up to the last that a query may see. */
static int64_t keys_seen(const attention_sizes *a, int64_t query)
{
    return a->causal && query + 1 < a->keys ? query + 1 : a->keys;
}

/* q, k, v (, mask) -> out, lse [batch, heads, queries]. A row that sees no key is 0, and so is its lse. */
static bool attention(const rule_call *call)
{
    attention_sizes a;
    if (!rule_has_operands(call, 3, 2) || !attention_sizes_of(call, &call->in[0], &call->in[1], &call->in[2], 3, &a))
        return false;
    if (!rule_same_shape(&call->out[0], &call->in[0]) || call->out[1].count != a.batch * a.heads * a.queries)
        return rule_refuse(call, "the shapes of the outputs do not fit the queries");
    for (int64_t head = 0; head < a.batch * a.heads; head++)
        for (int64_t i = 0; i < a.queries; i++) {
            const int64_t q = head_first(&a, head, a.queries) + i * a.dim, k = shared_first(&a, head, a.keys);
            const attention_row row = {call->in[0].at + q, head, i, i};
            field_value *out = call->out[0].at + q, sum = field_int(0);
            clear(out, a.width);
            const bool any = add_keys(&a, &row, (attention_keys){call->in[1].at + k, call->in[2].at + k, 0, keys_seen(&a, i)}, out, &sum);
            if (any)
                scale_row(out, field_inverse(sum), a.width);
            call->out[1].at[head * a.queries + i] = any ? log_of(call, sum) : field_int(0);
        }
    return true;
}

/* The matrices of one head. */
typedef struct attention_head {
    int64_t head;
    const field_value *q, *k, *v, *out, *lse, *dout;
    field_value *dq, *dk, *dv;
} attention_head;

/* Adds the gradient that comes through one query. */
static void query_grad(const attention_sizes *a, const attention_head *head, int64_t row)
{
    const int64_t at = row * a->dim, seen = keys_seen(a, row);
    const field_value *q = head->q + at, *dout = head->dout + at;
    const field_value delta = dot(dout, head->out + at, a->width);
    const field_value share = field_inverse(kept_sum(a->call, head->lse[row]));
    for (int64_t j = 0; j < seen; j++) {
        const int64_t key = j * a->kv_dim;
        if (!sees(a, head->head, row, row, j))
            continue;
        const field_value p = field_mul(exp_score(a, q, head->k + key, head->head, row, j), share);
        const field_value dp = dot(dout, head->v + key, a->width);
        const field_value ds = field_mul(a->scale, field_mul(p, field_sub(dp, delta)));
        add_scaled(head->dv + key, dout, p, a->width);
        add_scaled(head->dk + key, q, ds, a->width);
        add_scaled(head->dq + at, head->k + key, ds, a->width);
    }
}

static bool attention_grad_fits(const rule_call *call, attention_sizes *a)
{
    if (!rule_has_operands(call, 6, 3) || !attention_sizes_of(call, &call->in[0], &call->in[1], &call->in[2], 6, a))
        return false;
    for (int i = 0; i < 3; i++)
        if (!rule_same_shape(&call->out[i], &call->in[i]))
            return rule_refuse(call, "output %d does not have the shape of input %d", i, i);
    if (!rule_same_shape(&call->in[3], &call->in[0]) || !rule_same_shape(&call->in[5], &call->in[0]) ||
        call->in[4].count != a->batch * a->heads * a->queries)
        return rule_refuse(call, "the kept output, the log-sum-exp or the gradient does not fit the queries");
    return true;
}

/* q, k, v, out, lse, dout (, mask) -> dq, dk, dv */
static bool attention_grad(const rule_call *call)
{
    attention_sizes a;
    if (!attention_grad_fits(call, &a))
        return false;
    for (int i = 0; i < 3; i++)
        clear(call->out[i].at, call->out[i].count);
    for (int64_t i = 0; i < a.batch * a.heads; i++) {
        const int64_t q = head_first(&a, i, a.queries), k = shared_first(&a, i, a.keys);
        const attention_head head = {
            .head = i,
            .q = call->in[0].at + q,
            .k = call->in[1].at + k,
            .v = call->in[2].at + k,
            .out = call->in[3].at + q,
            .lse = call->in[4].at + i * a.queries,
            .dout = call->in[5].at + q,
            .dq = call->out[0].at + q,
            .dk = call->out[1].at + k,
            .dv = call->out[2].at + k,
        };
        for (int64_t row = 0; row < a.queries; row++)
            query_grad(&a, &head, row);
    }
    return true;
}

static bool attention_kept_fits(const rule_call *call, attention_sizes *a, int64_t *position)
{
    const rule_array *in = call->in;
    if (!rule_has_operands(call, 6, 1) || !attention_sizes_of(call, &in[0], &in[3], &in[4], 6, a))
        return false;
    if (in[1].rank != 3 || !rule_same_leading(&in[1], &in[0], 2) || in[1].shape[2] != a->kv_dim || !rule_same_shape(&in[2], &in[1]) ||
        !rule_same_shape(&call->out[0], &in[0]))
        return rule_refuse(call, "the shapes of q, k, v and the output do not fit each other");
    if (in[5].count != 1 || !field_is_int(in[5].at[0], position))
        return rule_refuse(call, "the position is not one integer");
    if (*position < 0 || *position > a->keys - a->queries)
        return rule_refuse(call, "%lld rows from position %lld on do not fit into %lld", (long long)a->queries,
                           (long long)*position, (long long)a->keys);
    return true;
}

/* q, k, v [batch, rows, dim], kept keys and values [batch, room, dim], position (, mask) -> out. A query sees the kept rows before
 * the position, and the new rows up to its own. */
static bool attention_kept(const rule_call *call)
{
    attention_sizes a;
    int64_t position = 0;
    const rule_array *in = call->in;
    if (!attention_kept_fits(call, &a, &position))
        return false;
    for (int64_t head = 0; head < a.batch * a.heads; head++)
        for (int64_t i = 0; i < a.queries; i++) {
            const int64_t q = head_first(&a, head, a.queries) + i * a.dim;
            const int64_t new = shared_first(&a, head, a.queries), kept = shared_first(&a, head, a.keys);
            const attention_row row = {in[0].at + q, head, i, position + i};
            field_value *out = call->out[0].at + q, sum = field_int(0);
            clear(out, a.width);
            add_keys(&a, &row, (attention_keys){in[3].at + kept, in[4].at + kept, 0, position}, out, &sum);
            add_keys(&a, &row, (attention_keys){in[1].at + new, in[2].at + new, position, i + 1}, out, &sum);
            if (!field_equal(sum, field_int(0)))
                scale_row(out, field_inverse(sum), a.width);
        }
    return true;
}

/* ---- rotary positions ---- */

/* The frequency of pair i (include/weir/ops.h). */
static double frequency_of(const rule_call *call, int64_t pair, int64_t columns)
{
    const double base = rule_real(call, "base", 0), low = rule_real(call, "low_freq_factor", 0);
    const double whole = pow(base, -2 * (double)pair / (double)columns), part = whole / rule_real(call, "factor", 0);
    const double trained = (double)rule_int(call, "original_max_position", 0), turns = whole * trained / (2 * acos(-1));
    const double high = (turns - low) / (rule_real(call, "high_freq_factor", 0) - low);
    if (trained == 0 || high <= 0)
        return part;
    return high >= 1 ? whole : (1 - high) * part + high * whole;
}

/* The position of a row of a sequence. */
static field_value row_position(const rule_call *call, int64_t batch, int64_t row)
{
    const rule_array *x = call->in;
    if (call->in_count > 1 && x[1].rank == 2)
        return field_still(x[1].at[batch * x->shape[1] + row]);
    const field_value own = field_int(x->start[1] + row);
    return call->in_count > 1 ? field_add(field_still(x[1].at[0]), own) : own;
}

/* Turns the pairs of columns of all heads of a row by their angles. */
static void turn_row(const rule_call *call, const field_value *x, field_value *y, field_value position)
{
    const int64_t width = rule_int(call, "head_dim", 0), columns = rule_int(call, "rotary_dim", 0), dim = call->in[0].shape[2];
    const bool between = rule_int(call, "interleaved", 0) != 0, inverse = rule_int(call, "inverse", 0) != 0;
    memcpy(y, x, (size_t)dim * sizeof *y);
    for (int64_t pair = 0; pair < columns / 2; pair++) {
        const field_value angle = field_mul(position, field_real(frequency_of(call, pair, columns)));
        const field_value c = field_oracle_of(call->seed, "cos", angle), s = field_oracle_of(call->seed, "sin", angle);
        const field_value sine = inverse ? field_neg(s) : s;
        for (int64_t head = 0; head < dim; head += width) {
            const int64_t a = head + (between ? 2 * pair : pair), b = a + (between ? 1 : columns / 2);
            y[a] = field_sub(field_mul(x[a], c), field_mul(x[b], sine));
            y[b] = field_add(field_mul(x[b], c), field_mul(x[a], sine));
        }
    }
}

/* x [batch, rows, dim] (, position: one, or one of each row) -> like x */
static bool rope(const rule_call *call)
{
    const rule_array *x = &call->in[0];
    const int64_t width = rule_int(call, "head_dim", 0), columns = rule_int(call, "rotary_dim", 0);
    if (!rule_has_operands(call, 1, 1))
        return false;
    if (x->rank != 3 || !rule_same_shape(x, &call->out[0]))
        return rule_refuse(call, "the shapes of x and the output differ, or do not have three dimensions");
    if (width < 1 || x->shape[2] % width || columns < 2 || columns > width || columns % 2)
        return rule_refuse(call, "rows of %lld columns: must consist of heads of %lld, of which %lld columns turn",
                           (long long)x->shape[2], (long long)width, (long long)columns);
    if (call->in_count > 1 && call->in[1].count != 1 && (call->in[1].rank != 2 || !rule_same_leading(&call->in[1], x, 2)))
        return rule_refuse(call, "there is neither one position nor one of each row");
    for (int64_t i = 0; i < x->shape[0] * x->shape[1] && x->shape[2]; i++)
        turn_row(call, x->at + i * x->shape[2], call->out[0].at + i * x->shape[2],
                 row_position(call, i / x->shape[1], i % x->shape[1]));
    return true;
}

const rule_entry rules_attention[] = {
    {"attention", attention},
    {"attention_grad", attention_grad},
    {"attention_kept", attention_kept},
    {"attention_masked", attention},
    {"attention_masked_grad", attention_grad},
    {"attention_kept_masked", attention_kept},
    {"rope", rope},
    {NULL, NULL},
};
