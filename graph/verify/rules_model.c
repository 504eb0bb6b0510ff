/* graph/verify/rules_model.c: the rules of attention and embeddings.
 *
 * Sequences, heads and rows do not depend on each other, so a split of them changes no value.
 */
#include "graph/verify/rules_model.h"

/* ---- attention ---- */

static field_value dot(const field_value *a, const field_value *b, int64_t count)
{
    return field_dot(field_int(0), a, 1, b, 1, count);
}

/* q is [batch, queries, dim], k and v are [batch, keys, dim]. A head is a slice of `width` columns. */
typedef struct attention_sizes {
    const rule_call *call;
    int64_t batch, heads, queries, keys, dim, width;
    field_value scale;
    bool causal;
} attention_sizes;

static bool attention_sizes_of(const rule_call *call, const rule_array *q, const rule_array *k, const rule_array *v,
                               attention_sizes *a)
{
    const int64_t width = rule_int(call, "head_dim", 0);
    if (q->rank != 3 || k->rank != 3 || !rule_same_shape(k, v) || q->shape[0] != k->shape[0] || q->shape[2] != k->shape[2])
        return rule_refuse(call, "the shapes of queries, keys and values do not fit each other");
    if (width < 1 || q->shape[2] % width)
        return rule_refuse(call, "rows of %lld columns: must consist of heads of %lld", (long long)q->shape[2], (long long)width);
    *a = (attention_sizes){
        .call = call,
        .batch = q->shape[0],
        .heads = q->shape[2] / width,
        .queries = q->shape[1],
        .keys = k->shape[1],
        .dim = q->shape[2],
        .width = width,
        .scale = field_real(rule_real(call, "scale", 0)),
        .causal = rule_int(call, "causal", 0) != 0,
    };
    return true;
}

/* The first element of a head, in an array of `rows` rows for each sequence; heads are counted through all sequences. */
static int64_t head_first(const attention_sizes *a, int64_t head, int64_t rows)
{
    return head / a->heads * rows * a->dim + head % a->heads * a->width;
}

/* The number of keys that a query sees. */
static int64_t keys_seen(const attention_sizes *a, int64_t query)
{
    return a->causal && query + 1 < a->keys ? query + 1 : a->keys;
}

static field_value exp_score(const attention_sizes *a, const field_value *q, const field_value *k)
{
    return exp_of(a->call, field_mul(a->scale, dot(q, k, a->width)));
}

/* Adds exp(score) v for the first `count` keys of a head to `out`. Returns the sum of exp(score). */
static field_value add_keys(const attention_sizes *a, const field_value *q, const field_value *k, const field_value *v,
                            int64_t count, field_value *out)
{
    field_value sum = field_int(0);
    for (int64_t j = 0; j < count; j++) {
        const field_value e = exp_score(a, q, k + j * a->dim);
        add_scaled(out, v + j * a->dim, e, a->width);
        sum = field_add(sum, e);
    }
    return sum;
}

/* q, k, v -> out, lse [batch, heads, queries] */
static bool attention(const rule_call *call)
{
    attention_sizes a;
    if (!rule_has_operands(call, 3, 2) || !attention_sizes_of(call, &call->in[0], &call->in[1], &call->in[2], &a))
        return false;
    if (!rule_same_shape(&call->out[0], &call->in[0]) || call->out[1].count != a.batch * a.heads * a.queries)
        return rule_refuse(call, "the shapes of the outputs do not fit the queries");
    for (int64_t head = 0; head < a.batch * a.heads; head++)
        for (int64_t row = 0; row < a.queries; row++) {
            const int64_t q = head_first(&a, head, a.queries) + row * a.dim, k = head_first(&a, head, a.keys);
            field_value *out = call->out[0].at + q;
            clear(out, a.width);
            const field_value sum =
                add_keys(&a, call->in[0].at + q, call->in[1].at + k, call->in[2].at + k, keys_seen(&a, row), out);
            scale_row(out, field_inverse(sum), a.width);
            call->out[1].at[head * a.queries + row] = log_of(call, sum);
        }
    return true;
}

/* The matrices of one head. */
typedef struct attention_head {
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
        const int64_t key = j * a->dim;
        const field_value p = field_mul(exp_score(a, q, head->k + key), share);
        const field_value dp = dot(dout, head->v + key, a->width);
        const field_value ds = field_mul(a->scale, field_mul(p, field_sub(dp, delta)));
        add_scaled(head->dv + key, dout, p, a->width);
        add_scaled(head->dk + key, q, ds, a->width);
        add_scaled(head->dq + at, head->k + key, ds, a->width);
    }
}

static bool attention_grad_fits(const rule_call *call, attention_sizes *a)
{
    if (!rule_has_operands(call, 6, 3) || !attention_sizes_of(call, &call->in[0], &call->in[1], &call->in[2], a))
        return false;
    for (int i = 0; i < 3; i++)
        if (!rule_same_shape(&call->out[i], &call->in[i]))
            return rule_refuse(call, "output %d does not have the shape of input %d", i, i);
    if (!rule_same_shape(&call->in[3], &call->in[0]) || !rule_same_shape(&call->in[5], &call->in[0]) ||
        call->in[4].count != a->batch * a->heads * a->queries)
        return rule_refuse(call, "the kept output, the log-sum-exp or the gradient does not fit the queries");
    return true;
}

/* q, k, v, out, lse, dout -> dq, dk, dv */
static bool attention_grad(const rule_call *call)
{
    attention_sizes a;
    if (!attention_grad_fits(call, &a))
        return false;
    for (int i = 0; i < 3; i++)
        clear(call->out[i].at, call->out[i].count);
    for (int64_t i = 0; i < a.batch * a.heads; i++) {
        const int64_t q = head_first(&a, i, a.queries), k = head_first(&a, i, a.keys);
        const attention_head head = {
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
    if (!rule_has_operands(call, 6, 1) || !attention_sizes_of(call, &in[0], &in[3], &in[4], a))
        return false;
    if (!rule_same_shape(&in[1], &in[0]) || !rule_same_shape(&in[2], &in[0]) || !rule_same_shape(&call->out[0], &in[0]))
        return rule_refuse(call, "the shapes of q, k, v and the output differ");
    if (in[5].count != 1 || !field_is_int(in[5].at[0], position))
        return rule_refuse(call, "the position is not one integer");
    if (*position < 0 || *position > a->keys - a->queries)
        return rule_refuse(call, "%lld rows from position %lld on do not fit into %lld", (long long)a->queries,
                           (long long)*position, (long long)a->keys);
    return true;
}

/* q, k, v [batch, rows, dim], kept keys and values [batch, room, dim], position -> out. A query sees the kept rows before the
 * position, and the new rows up to its own. */
static bool attention_kept(const rule_call *call)
{
    attention_sizes a;
    int64_t position = 0;
    const rule_array *in = call->in;
    if (!attention_kept_fits(call, &a, &position))
        return false;
    for (int64_t head = 0; head < a.batch * a.heads; head++)
        for (int64_t row = 0; row < a.queries; row++) {
            const int64_t new = head_first(&a, head, a.queries), kept = head_first(&a, head, a.keys);
            const field_value *q = in[0].at + new + row * a.dim;
            field_value *out = call->out[0].at + new + row * a.dim;
            clear(out, a.width);
            const field_value before = add_keys(&a, q, in[3].at + kept, in[4].at + kept, position, out);
            const field_value sum = field_add(before, add_keys(&a, q, in[1].at + new, in[2].at + new, row + 1, out));
            scale_row(out, field_inverse(sum), a.width);
        }
    return true;
}

/* ---- embedding ---- */

static bool id_of(const rule_call *call, int64_t i, int64_t vocab, int64_t *id)
{
    if (!field_is_int(call->in[0].at[i], id))
        return rule_refuse(call, "the id in element %lld is no integer", (long long)i);
    return (*id >= 0 && *id < vocab) ||
           rule_refuse(call, "id %lld in element %lld: must be in 0..%lld", (long long)*id, (long long)i, (long long)vocab - 1);
}

/* The row of a shard of a table that an id has; -1: another shard has it. */
static int64_t row_here(const rule_array *table, int64_t id)
{
    const int64_t row = id - table->start[0];
    return row >= 0 && row < table->shape[0] ? row : -1;
}

/* ids [...], table [vocab, dim] -> [..., dim] */
static bool embedding(const rule_call *call)
{
    if (!rule_has_operands(call, 2, 1))
        return false;
    const rule_array *ids = &call->in[0], *table = &call->in[1], *out = &call->out[0];
    if (table->rank != 2 || !has_row_for_each(out, ids) || rule_columns(out) != table->shape[1])
        return rule_refuse(call, "the output does not have a row of the table for each id");
    const int64_t dim = table->shape[1];
    for (int64_t i = 0; i < ids->count; i++) {
        int64_t id;
        if (!id_of(call, i, table->global[0], &id))
            return false;
        const int64_t row = row_here(table, id);
        clear(out->at + i * dim, dim);
        if (row >= 0)
            add_scaled(out->at + i * dim, table->at + row * dim, field_int(1), dim);
    }
    return true;
}

/* ids [...], dy [..., dim] -> the gradient of the table, or of some of its rows */
static bool embedding_grad(const rule_call *call)
{
    if (!rule_has_operands(call, 2, 1))
        return false;
    const rule_array *ids = &call->in[0], *dy = &call->in[1], *out = &call->out[0];
    if (out->rank != 2 || !has_row_for_each(dy, ids) || rule_columns(dy) != out->shape[1])
        return rule_refuse(call, "the gradient does not have a row of the table for each id");
    const int64_t dim = out->shape[1], vocab = rule_int(call, "vocab", 0);
    if (vocab < 1)
        return rule_refuse(call, "a table of %lld rows: must have at least 1", (long long)vocab);
    if (!call->accumulate)
        clear(out->at, out->count);
    for (int64_t i = 0; i < ids->count; i++) {
        int64_t id;
        if (!id_of(call, i, vocab, &id))
            return false;
        const int64_t row = row_here(out, id);
        if (row >= 0)
            add_scaled(out->at + row * dim, dy->at + i * dim, field_int(1), dim);
    }
    return true;
}

const rule_entry rules_model[] = {
    {"attention", attention},
    {"attention_grad", attention_grad},
    {"attention_kept", attention_kept},
    {"embedding", embedding},
    {"embedding_grad", embedding_grad},
    {NULL, NULL},
};
