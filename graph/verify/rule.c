/* graph/verify/rule.c: see the header. */
#include "graph/verify/rule.h"

#include <stdarg.h>
#include <string.h>

#include "graph/base/base.h"
#include "graph/base/locale.h"

static const rule_entry *const tables[] = {rules_core, rules_product, rules_conv, rules_element, rules_reduce, rules_model, rules_loss,
                                           rules_update, rules_index, rules_attention};

/* ---- an op without a rule ---- */

/* Everything that the op is told beside its inputs. */
static field_value seed_of(const rule_call *call)
{
    field_value h = field_oracle(call->seed, call->op->name, NULL, 0);
    for (size_t w = 0; w < call->op->attrs_bytes / sizeof(plan_word); w++)
        h = field_oracle_of(call->seed ^ (uint64_t)call->words[w].i, "attribute", h);
    if (call->op->effect) { /* each of its calls does something of its own */
        const field_value count = field_int(call->step * call->micros + call->micro);
        h = field_oracle(call->seed, call->name, (const field_value[]){h, count}, 2);
    }
    return h;
}

static field_value absorb(const rule_call *call, field_value h, const field_value *at, int64_t count)
{
    for (int64_t n = 0; n < count; n++)
        h = field_oracle(call->seed, "argument", (const field_value[]){h, at[n]}, 2);
    return h;
}

static field_value answer(const rule_call *call, field_value h, int output, int64_t place)
{
    return field_oracle(call->seed, "result", (const field_value[]){h, field_int(output), field_int(place)}, 3);
}

static bool bit(uint32_t bits, int i)
{
    return bits >> (i < 31 ? i : 31) & 1;
}

/* An op that promises to be one of rows: each row is a random function of the row, and of what all rows have in common; an
 * output without rows is the sum of such. */
static bool oracle_of_rows(const rule_call *call, field_value common)
{
    int64_t rows = 0;
    for (int i = 0; i < call->in_count; i++)
        rows = bit(call->op->rows_in, i) && rule_rows(&call->in[i]) > rows ? rule_rows(&call->in[i]) : rows;
    for (int o = 0; o < call->out_count; o++)
        for (int64_t n = 0; n < call->out[o].count && !bit(call->op->rows_out | call->op->per_row_out, o); n++)
            call->out[o].at[n] = field_int(0);
    for (int64_t row = 0; row < rows; row++) {
        field_value h = common;
        for (int i = 0; i < call->in_count; i++) {
            const int64_t columns = bit(call->op->per_row_in, i) ? 1 : rule_columns(&call->in[i]);
            if ((bit(call->op->rows_in, i) || bit(call->op->per_row_in, i)) && call->in[i].count >= (row + 1) * columns)
                h = absorb(call, h, call->in[i].at + row * columns, columns);
        }
        for (int o = 0; o < call->out_count; o++) {
            const rule_array *out = &call->out[o];
            const bool has_rows = bit(call->op->rows_out, o), per_row = bit(call->op->per_row_out, o);
            const int64_t columns = per_row ? 1 : has_rows ? rule_columns(out) : out->count, first = row * columns;
            const int64_t start = has_rows && out->rank ? out->start[out->rank - 1] : 0;
            for (int64_t n = 0; n < columns && (has_rows || per_row) && first + n < out->count; n++)
                out->at[first + n] = answer(call, h, o, start + n);
            for (int64_t n = 0; n < columns && !has_rows && !per_row; n++)
                out->at[n] = field_add(out->at[n], answer(call, h, o, rule_logical(out, n)));
        }
    }
    return true;
}

/* A random function of all that it reads. */
static bool oracle(const rule_call *call)
{
    field_value h = seed_of(call);
    for (int i = 0; i < call->in_count; i++)
        if (!bit(call->op->rows_in | call->op->per_row_in, i) || !call->op->rows_in)
            h = absorb(call, h, call->in[i].at, call->in[i].count);
    for (int s = 0; s < call->state_count; s++)
        h = absorb(call, h, call->state[s].at, call->state[s].count);
    if (call->op->rows_in)
        return oracle_of_rows(call, h);
    for (int o = 0; o < call->out_count; o++)
        for (int64_t n = 0; n < call->out[o].count; n++)
            call->out[o].at[n] = answer(call, h, o, rule_logical(&call->out[o], n));
    for (int s = 0; s < call->state_count; s++)
        for (int64_t n = 0; n < call->state[s].count; n++)
            call->state[s].at[n] = answer(call, h, call->out_count + s, n);
    return true;
}

/* ---- an op of the program's own that says what it is ---- */

/* Makes views of arrays, with their elements in `values`. Returns how many these are. */
static int64_t exact_views(const rule_array *arrays, int count, weir_view *views, weir_exact *values)
{
    int64_t used = 0;
    for (int i = 0; i < count; i++) {
        const rule_array *from = &arrays[i];
        views[i] = (weir_view){.data = values + used, .dtype = from->dtype, .shape.rank = from->rank, .global.rank = from->rank};
        memcpy(views[i].shape.dim, from->shape, sizeof from->shape);
        memcpy(views[i].offset, from->start, sizeof from->start);
        memcpy(views[i].global.dim, from->global, sizeof from->global);
        for (int64_t n = 0; n < from->count; n++)
            values[used + n] = field_to_exact(from->at[n]);
        used += from->count;
    }
    return used;
}

static int64_t exact_count(const rule_array *arrays, int count)
{
    int64_t sum = 0;
    for (int i = 0; i < count; i++)
        sum += arrays[i].count;
    return sum;
}

static void exact_take(const rule_array *arrays, int count, const weir_view *views)
{
    for (int i = 0; i < count; i++)
        for (int64_t n = 0; n < arrays[i].count; n++)
            arrays[i].at[n] = field_from_exact(((const weir_exact *)views[i].data)[n]);
}

static bool exact_run(const rule_call *call, weir_view *views, weir_exact *values)
{
    weir_view *out = views + call->in_count, *state = out + call->out_count;
    values += exact_views(call->in, call->in_count, views, values);
    values += exact_views(call->out, call->out_count, out, values);
    exact_views(call->state, call->state_count, state, values);
    const weir_kernel_args args = {.in = views, .in_count = call->in_count, .out = out, .out_count = call->out_count,
                                   .state = state, .state_count = call->state_count, .attrs = call->words, .key = call->key,
                                   .firing = call->step * call->micros + call->micro, .step = call->step, .micro = call->micro,
                                   .accumulate = call->accumulate, .host = call->op->ctx, .error = call->error,
                                   .error_bytes = call->error_bytes, .seed = call->seed};
    const weir_status status = op_exact(call->op->name)(&args);
    if (status)
        return false;
    exact_take(call->out, call->out_count, out);
    exact_take(call->state, call->state_count, state);
    return true;
}

static bool exact(const rule_call *call)
{
    const int operands = call->in_count + call->out_count + call->state_count;
    const int64_t count = exact_count(call->in, call->in_count) + exact_count(call->out, call->out_count) +
                          exact_count(call->state, call->state_count);
    weir_view *views = calloc((size_t)operands + 1, sizeof *views);
    weir_exact *values = calloc((size_t)count + 1, sizeof *values);
    rule_say(call, "its rule .exact refuses the values, and does not say why");
    const bool ok = views && values ? exact_run(call, views, values) : rule_refuse(call, "there is no memory for its operands");
    free(views);
    free(values);
    return ok;
}

static rule_fn find(const char *op)
{
    for (size_t t = 0; t < sizeof tables / sizeof *tables; t++)
        for (const rule_entry *entry = tables[t]; entry->op; entry++)
            if (!strcmp(entry->op, op))
                return entry->rule;
    return op_exact(op) ? exact : NULL;
}

rule_fn rule_find(const char *op)
{
    const rule_fn rule = find(op);
    return rule ? rule : oracle;
}

bool rule_exists(const char *op)
{
    return find(op) != NULL;
}

bool rule_draws(const char *op)
{
    return !strcmp(op, "dropout") || rule_find(op) == oracle;
}

bool rule_has_parts(const char *op)
{
    static const char *const several[] = {"fused",       "fused_over",     "fused_launch", "fused_launch_over", "linear_gelu",
                                          "linear_many", "linear_dw_many", "linear_dw_db", "matmul_gelu_grad"};
    bool found = false;
    for (size_t i = 0; !found && i < sizeof several / sizeof *several; i++)
        found = !strcmp(several[i], op);
    return found;
}

bool rule_part(const rule_call *part)
{
    return part->part ? part->part(part->ctx, part) : rule_find(part->op->name)(part);
}

void rule_say(const rule_call *call, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    text_vprint(call->error, call->error_bytes, format, args);
    va_end(args);
}

/* The word; NULL: the op has no such attribute. */
static const plan_word *word_of(const rule_call *call, const char *name, int k)
{
    for (int f = 0; f < call->op->field_count; f++) {
        const weir_field *field = &call->op->fields[f];
        if (!strcmp(field->name, name) && k < field->count)
            return &call->words[field->offset / sizeof(plan_word) + (size_t)k];
    }
    return NULL;
}

int64_t rule_int(const rule_call *call, const char *name, int k)
{
    const plan_word *word = word_of(call, name, k);
    return word ? word->i : 0;
}

double rule_real(const rule_call *call, const char *name, int k)
{
    const plan_word *word = word_of(call, name, k);
    return word ? word->r : 0;
}
