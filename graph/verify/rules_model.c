/* graph/verify/rules_model.c: the rules of embeddings: rows of a table, or of a part of it. */
#include "graph/verify/rules_model.h"

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
    {"embedding", embedding},
    {"embedding_grad", embedding_grad},
    {NULL, NULL},
};
