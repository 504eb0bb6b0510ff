/* graph/verify/rules_core.c: what the compiler and the builder insert, shapes, and several ops in one pass. See rule.h. */
#include "graph/verify/rule.h"

#include <stdlib.h>
#include <string.h>

static bool sizes_differ(const rule_call *call)
{
    return rule_refuse(call, "the sizes of its operands do not fit each other");
}

/* copy, shard, cast, reshape: the elements in their order. */
static bool same(const rule_call *call)
{
    if (call->in[0].count != call->out[0].count)
        return sizes_differ(call);
    memcpy(call->out[0].at, call->in[0].at, (size_t)call->out[0].count * sizeof *call->out[0].at);
    return true;
}

static bool accumulate(const rule_call *call)
{
    if (!call->accumulate)
        return same(call);
    if (call->in[0].count != call->out[0].count)
        return sizes_differ(call);
    for (int64_t i = 0; i < call->out[0].count; i++)
        call->out[0].at[i] = field_add(call->out[0].at[i], call->in[0].at[i]);
    return true;
}

/* ---- box ---- */

/* The elements of a group of terms: the first that has one gives it, the others add. */
static void put_terms(const rule_call *call, int first, int terms)
{
    const rule_array *to = &call->out[0];
    for (int64_t n = 0; n < to->count; n++) {
        bool put = false;
        for (int i = first; i < first + terms; i++) {
            const int64_t place = rule_place(&call->in[i], to, n);
            if (place < 0)
                continue;
            to->at[n] = put ? field_add(to->at[n], call->in[i].at[place]) : call->in[i].at[place];
            put = true;
        }
    }
}

/* Elements that no input has are what was there: nobody may read them. */
static bool box(const rule_call *call)
{
    const rule_array *to = &call->out[0];
    const int64_t said = rule_int(call, "terms", 0);
    const int terms = said < call->in_count ? (int)said : call->in_count;
    if (said < 1)
        return rule_refuse(call, "it has %lld terms", (long long)said);
    for (int i = 0; i < call->in_count; i++)
        if (call->in[i].rank != to->rank)
            return sizes_differ(call);
    for (int64_t n = 0; rule_int(call, "zero", 0) && n < to->count; n++)
        to->at[n] = field_int(0);
    for (int i = 0; i < call->in_count; i += terms)
        put_terms(call, i, terms < call->in_count - i ? terms : call->in_count - i);
    return true;
}

/* ---- once a micro-batch, once a step ---- */

/* The micro-batch's row of `rows`; NULL: there is none. */
static field_value *row_of(const rule_call *call, const rule_array *rows, int64_t count)
{
    const bool fits = rows->rank > 0 && call->micro < rows->shape[0] && rows->count == rows->shape[0] * count;
    return fits ? rows->at + call->micro * count : NULL;
}

static bool batch(const rule_call *call)
{
    field_value *row = row_of(call, &call->out[0], call->in[0].count);
    if (!row)
        return sizes_differ(call);
    memcpy(row, call->in[0].at, (size_t)call->in[0].count * sizeof *row);
    return true;
}

static bool unbatch(const rule_call *call)
{
    const field_value *row = row_of(call, &call->in[0], call->out[0].count);
    if (!row)
        return sizes_differ(call);
    memcpy(call->out[0].at, row, (size_t)call->out[0].count * sizeof *row);
    return true;
}

static bool grad_seed(const rule_call *call)
{
    const field_value value = field_real(rule_real(call, "value", 0));
    if (call->out[0].count != 1 || (call->in_count > 1 && call->in[1].count != 1))
        return sizes_differ(call);
    call->out[0].at[0] = call->in_count > 1 ? field_mul(value, call->in[1].at[0]) : value;
    return true;
}

/* ---- shapes ---- */

/* Whether the attribute names each dimension once, and the output has their sizes. */
static bool permutes(const rule_call *call, const rule_array *from, const rule_array *to)
{
    unsigned seen = 0;
    bool fits = from->rank == to->rank;
    for (int d = 0; fits && d < to->rank; d++) {
        const int64_t of = rule_int(call, "perm", d);
        fits = of >= 0 && of < from->rank && from->shape[of] == to->shape[d] && !(seen >> of & 1);
        seen |= fits ? 1u << of : 0;
    }
    return fits;
}

static bool transpose(const rule_call *call)
{
    const rule_array *from = &call->in[0], *to = &call->out[0];
    int64_t stride[WEIR_DIMS_MAX], step = 1, index[WEIR_DIMS_MAX];
    if (!permutes(call, from, to))
        return sizes_differ(call);
    for (int d = from->rank; d-- > 0; step *= from->shape[d])
        stride[d] = step;
    for (int64_t n = 0; n < to->count; n++) {
        int64_t place = 0;
        rule_index(to, n, index);
        for (int d = 0; d < to->rank; d++)
            place += index[d] * stride[rule_int(call, "perm", d)];
        to->at[n] = from->at[place];
    }
    return true;
}

static bool broadcast_to(const rule_call *call)
{
    const rule_array *from = &call->in[0], *to = &call->out[0];
    const int more = to->rank - from->rank;
    if (more < 0)
        return sizes_differ(call);
    for (int d = 0; d < from->rank; d++)
        if (from->shape[d] != 1 && from->shape[d] != to->shape[d + more])
            return sizes_differ(call);
    for (int64_t n = 0; n < to->count; n++) {
        int64_t index[WEIR_DIMS_MAX] = {0}, place = 0;
        rule_index(to, n, index);
        for (int d = 0; d < from->rank; d++)
            place = place * from->shape[d] + (from->shape[d] == 1 ? 0 : index[d + more]);
        to->at[n] = from->at[place];
    }
    return true;
}

/* The axis of an op, counted from the end if negative; -1: there is none. */
static int axis_of(const rule_call *call, int rank)
{
    const int64_t axis = rule_int(call, "axis", 0), own = axis < 0 ? axis + rank : axis;
    return own >= 0 && own < rank ? (int)own : -1;
}

/* Whether the two differ in nothing but dimension `axis`. */
static bool alike_but(const rule_array *a, const rule_array *b, int axis)
{
    bool alike = a->rank == b->rank;
    for (int d = 0; alike && d < a->rank; d++)
        alike = d == axis || a->shape[d] == b->shape[d];
    return alike;
}

/* Copies `count` places along the axis, from place `first` of `from` to place `to_first` of `to`. */
static void move_along(const rule_array *from, int64_t first, const rule_array *to, int64_t to_first, int axis, int64_t count)
{
    const int64_t outer = rule_size(to, 0, axis), inner = rule_size(to, axis + 1, to->rank);
    for (int64_t o = 0; o < outer; o++)
        memcpy(to->at + (o * to->shape[axis] + to_first) * inner, from->at + (o * from->shape[axis] + first) * inner,
               (size_t)(count * inner) * sizeof *to->at);
}

static bool slice(const rule_call *call)
{
    const rule_array *from = &call->in[0], *to = &call->out[0];
    const int axis = axis_of(call, to->rank);
    const int64_t first = rule_int(call, "range", 0), count = rule_int(call, "range", 1);
    if (axis < 0 || !alike_but(from, to, axis) || first < 0 || count < 0 || first > from->shape[axis] - count ||
        to->shape[axis] != count)
        return sizes_differ(call);
    move_along(from, first, to, 0, axis, count);
    return true;
}

static bool pad(const rule_call *call)
{
    const rule_array *from = &call->in[0], *to = &call->out[0];
    const int axis = axis_of(call, to->rank);
    const int64_t before = rule_int(call, "range", 0);
    if (axis < 0 || !alike_but(from, to, axis) || before < 0 || before > to->shape[axis] - from->shape[axis])
        return sizes_differ(call);
    for (int64_t n = 0; n < to->count; n++)
        to->at[n] = field_int(0);
    move_along(from, 0, to, before, axis, from->shape[axis]);
    return true;
}

static bool concat(const rule_call *call)
{
    const rule_array *to = &call->out[0];
    const int axis = axis_of(call, to->rank);
    int64_t at = 0;
    for (int i = 0; i < call->in_count; i++) {
        if (axis < 0 || !alike_but(&call->in[i], to, axis) || at > to->shape[axis] - call->in[i].shape[axis])
            return sizes_differ(call);
        move_along(&call->in[i], 0, to, at, axis, call->in[i].shape[axis]);
        at += call->in[i].shape[axis];
    }
    return at == to->shape[axis] || sizes_differ(call);
}

static bool append(const rule_call *call)
{
    const rule_array *x = &call->in[0], *rows = &call->in[1], *to = &call->out[0];
    const int axis = to->rank - 2;
    int64_t position;
    if (axis < 0 || x->count != to->count || !alike_but(rows, to, axis) || call->in[2].count != 1)
        return sizes_differ(call);
    if (!field_is_int(call->in[2].at[0], &position) || position < 0 || position > to->shape[axis] - rows->shape[axis])
        return rule_refuse(call, "the position is not one at which the rows fit");
    memcpy(to->at, x->at, (size_t)to->count * sizeof *to->at);
    move_along(rows, 0, to, position, axis, rows->shape[axis]);
    return true;
}

/* ---- several ops in one pass ---- */

/* As kernels/fused/fused.h describes: words of a member are its name, its key, how many inputs and outputs it has, their codes,
 * how many attribute words, these. */
enum { NAME_WORDS = 3, CODE_OUT = 32, CODE_SCRATCH = 64, SCRATCH_MAX = 8, OPERANDS_MAX = 16 };
#define SCRATCH_ELEMENTS_MAX (INT64_C(1) << 31) /* sizes may come from a file, and their product could overflow */

struct fused_state {
    const rule_call *call;
    rule_array scratch[SCRATCH_MAX];
    const plan_word *word, *end; /* what has not been read */
};

static const rule_array *array_of(const struct fused_state *state, int64_t code)
{
    if (code >= 0 && code < state->call->in_count)
        return &state->call->in[code];
    if (code >= CODE_OUT && code - CODE_OUT < state->call->out_count)
        return &state->call->out[code - CODE_OUT];
    return code >= CODE_SCRATCH && code < CODE_SCRATCH + SCRATCH_MAX && state->scratch[code - CODE_SCRATCH].at
               ? &state->scratch[code - CODE_SCRATCH]
               : NULL;
}

/* A tensor that members alone use lies as `like` does, with other columns, or one value for each row. */
static bool scratch_open(struct fused_state *state, int s, const rule_array *like)
{
    const rule_call *call = state->call;
    rule_array *array = &state->scratch[s];
    const int64_t columns = rule_int(call, "type", 4 * s + 1);
    const int last = like->rank - 1;
    if (columns > 0 && rule_size(like, 0, last) > SCRATCH_ELEMENTS_MAX / columns)
        return false;
    *array = *like;
    array->dtype = (weir_dtype)rule_int(call, "type", 4 * s);
    if (columns < 0) {
        array->rank = last;
    } else {
        array->shape[last] = columns;
        array->start[last] = rule_int(call, "type", 4 * s + 2);
        array->global[last] = rule_int(call, "type", 4 * s + 3);
    }
    array->count = rule_size(array, 0, array->rank);
    array->at = array->count >= 0 ? calloc((size_t)array->count + 1, sizeof *array->at) : NULL;
    return array->at != NULL;
}

/* Reads `count` codes. */
static bool arrays_take(struct fused_state *state, int64_t count, rule_array *arrays)
{
    bool all = count >= 0 && count <= OPERANDS_MAX && count <= state->end - state->word;
    for (int64_t i = 0; all && i < count; i++) {
        const rule_array *array = array_of(state, state->word[i].i);
        all = array != NULL;
        arrays[i] = all ? *array : (rule_array){.at = NULL};
    }
    state->word += all ? count : 0;
    return all;
}

/* Rules count on as many operands as their ops have. */
static bool member_is(const weir_op *op, int64_t ins, int64_t outs)
{
    return op && ins >= op->in_min && ins <= op->in_max && outs == op->out_count;
}

static bool member_run(struct fused_state *state)
{
    rule_array in[OPERANDS_MAX], out[OPERANDS_MAX];
    rule_call call = *state->call;
    const plan_word *word = state->word;
    if (state->end - word < NAME_WORDS + 3 || !memchr(word, 0, NAME_WORDS * sizeof *word))
        return rule_refuse(&call, "its members cannot be read");
    call.op = weir_op_find((const char *)word);
    call.key = (uint64_t)word[NAME_WORDS].i;
    call.in = in;
    call.in_count = (int)word[NAME_WORDS + 1].i;
    call.out = out;
    call.out_count = (int)word[NAME_WORDS + 2].i;
    state->word += NAME_WORDS + 3;
    if (!member_is(call.op, word[NAME_WORDS + 1].i, word[NAME_WORDS + 2].i) ||
        !arrays_take(state, word[NAME_WORDS + 1].i, in) || !arrays_take(state, word[NAME_WORDS + 2].i, out) ||
        state->word == state->end)
        return rule_refuse(&call, "its members cannot be read");
    const int64_t words = state->word->i;
    call.words = ++state->word;
    if (words != (int64_t)(call.op->attrs_bytes / sizeof *word) || words > state->end - state->word)
        return rule_refuse(&call, "its members cannot be read");
    state->word += words;
    return rule_part(&call);
}

static bool fused(const rule_call *call)
{
    struct fused_state state = {.call = call};
    const int64_t members = rule_int(call, "members", 0), like = rule_int(call, "like", 0);
    const int64_t scratch = rule_int(call, "scratch", 0);
    const plan_word *all = call->words + call->op->attrs_bytes / sizeof *all;
    bool ok = like >= 0 && like < call->in_count && call->in[like].rank > 0 && scratch >= 0 && scratch <= SCRATCH_MAX;
    for (int f = 0; f < call->op->field_count; f++)
        if (!strcmp(call->op->fields[f].name, "word"))
            state.word = call->words + call->op->fields[f].offset / sizeof *all;
    state.end = all;
    ok = ok && state.word;
    for (int s = 0; ok && s < scratch; s++)
        ok = scratch_open(&state, s, &call->in[like]);
    if (!ok)
        rule_say(call, "its members cannot be read, or there is no memory");
    for (int64_t m = 0; ok && m < members; m++)
        ok = member_run(&state);
    for (int s = 0; s < SCRATCH_MAX; s++)
        free(state.scratch[s].at);
    return ok;
}

const rule_entry rules_core[] = {{"copy", same},
                                 {"shard", same},
                                 {"reshape", same},
                                 {"accumulate", accumulate},
                                 {"box", box},
                                 {"batch", batch},
                                 {"unbatch", unbatch},
                                 {"grad_seed", grad_seed},
                                 {"transpose", transpose},
                                 {"broadcast_to", broadcast_to},
                                 {"slice", slice},
                                 {"pad", pad},
                                 {"concat", concat},
                                 {"append", append},
                                 {"fused", fused},
                                 {"fused_over", fused},
                                 {"fused_launch", fused},
                                 {"fused_launch_over", fused},
                                 {NULL, NULL}};
