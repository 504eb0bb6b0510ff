/* graph/verify/sample.c: see the header. */
#include "graph/verify/sample.h"

#include <stdlib.h>
#include <string.h>

enum {
    MERGED = -1,
    INSIDE = 1,
    BLOCKS_MAX = 4,    /* of a key's atoms */
    ATTEMPTS_MAX = 500 /* partitions */
};

const judge_operand *sample_operand(const judge_call *call, int o)
{
    if (o < call->in_count)
        return &call->in[o];
    o -= call->in_count;
    return o < call->out_count ? &call->out[o] : &call->state[o - call->out_count];
}

static int key_of(sample *s, int64_t first, int64_t end, int64_t all)
{
    for (int k = 0; k < s->key_count; k++)
        if (s->keys[k].first == first && s->keys[k].end == end && s->keys[k].all == all)
            return k;
    if (s->key_count == GROUPS_MAX)
        return -1;
    const int64_t before = first > 0, inside = end - first > 1 ? 2 : end - first, behind = !before && end < all;
    s->keys[s->key_count] = (struct fractions){first, end, all, {0, before, before + inside, before + inside + behind}};
    return s->key_count++;
}

/* False: more than there is room for. */
static bool find_atoms(sample *s)
{
    for (int o = 0; o < s->operands; o++) {
        const rule_array *array = &sample_operand(s->call, o)->array;
        for (int d = 0; d < array->rank; d++) {
            const int64_t first = array->start[d], size = array->shape[d], all = array->global[d];
            if (size == all)
                continue;
            const int64_t unit = common_divisor(common_divisor(first, size), all);
            const int key = key_of(s, first / unit, (first + size) / unit, all / unit);
            if (key < 0 || s->atom_count == ATOMS_MAX)
                return false;
            s->atoms[s->atom_count++] = (struct atom){o, d, key, unit};
            s->atom_at[o][d] = s->atom_count;
        }
    }
    return true;
}

const struct atom *sample_atom(const sample *s, int operand, int dim)
{
    const int atom = s->atom_at[operand][dim];
    return atom ? &s->atoms[atom - 1] : NULL;
}

/* The dimension of the output that the ids of a gradient tell rows of; -1: the op has none that is cut. */
static int rows_of_gradient(const sample *s)
{
    const rule_call call = {.op = s->call->op, .words = s->call->words};
    const char *op = s->call->op->name;
    const int rank = s->whole[s->ins].rank;
    const int64_t axis = rule_int(&call, "axis", 0), own = axis < 0 ? axis + rank : axis;
    if (!strcmp(op, "embedding_grad"))
        return 0;
    return (!strcmp(op, "gather_grad") || !strcmp(op, "gather_elements_grad")) && own >= 0 && own < rank ? (int)own : -1;
}

/* The integers that the op takes in an input. Ids of a gradient are below the rows of its output. */
static bound bound_of(const sample *s, int input)
{
    weir_type in[WEIR_ARGS_MAX];
    for (int i = 0; i < s->ins; i++) {
        in[i] = (weir_type){.dtype = s->whole[i].dtype, .shape = {.rank = s->whole[i].rank}};
        memcpy(in[i].shape.dim, s->whole[i].shape, sizeof in[i].shape.dim);
    }
    const bound own = bound_of_input(s->call->op, s->call->words, in, s->ins, input);
    const int rows = s->operands > s->ins && !input ? rows_of_gradient(s) : -1;
    return rows < 0 ? own : bound_of_both(own, (bound){.below = s->whole[s->ins].shape[rows]});
}

/* Of inputs; what was in outputs and states before counts little. */
static field_value drawn(const sample *s, int operand, int64_t part, int64_t n)
{
    const rule_array *array = &s->whole[operand];
    const int64_t numbers[] = {operand, part, n};
    if (weir_dtype_real(array->dtype))
        return field_draw(s->seed, "judged", numbers, 3);
    return draw_int(field_bits(s->seed, "judged", numbers, 3), operand < s->ins ? s->bounds[operand] : bound_none());
}

/* E_MEMORY: none, or more than the call may have. */
static weir_status draw_wholes(sample *s)
{
    uint64_t sum = 0;
    for (int o = 0; o < s->operands; o++) {
        rule_array *whole = &s->whole[o];
        *whole = sample_operand(s->call, o)->array;
        whole->count = 1;
        for (int d = 0; d < whole->rank; d++) {
            const struct atom *atom = sample_atom(s, o, d);
            whole->start[d] = 0;
            whole->global[d] = whole->shape[d] = atom ? s->keys[atom->key].cut[PARTS] * atom->unit : whole->global[d];
            if (whole->shape[d] && whole->count > INT64_MAX / 64 / whole->shape[d])
                return WEIR_E_MEMORY;
            whole->count *= whole->shape[d];
        }
        whole->at = NULL;
        sum += (uint64_t)whole->count;
    }
    if (sum > s->elements_max)
        return WEIR_E_MEMORY;
    for (int o = 0; o < s->operands; o++) {
        s->whole[o].at = malloc((size_t)s->whole[o].count * sizeof(field_value) + 1);
        if (!s->whole[o].at)
            return WEIR_E_MEMORY;
    }
    for (int i = 0; i < s->ins; i++)
        s->bounds[i] = weir_dtype_real(s->whole[i].dtype) ? bound_none() : bound_of(s, i);
    for (int o = 0; o < s->operands; o++)
        for (int64_t n = 0; n < s->whole[o].count; n++)
            s->whole[o].at[n] = drawn(s, o, 0, n);
    return WEIR_OK;
}

/* ---- the call for some parts ---- */

/* By group: a part, or MERGED; `term`: the part of the terms, or MERGED. */
struct choice {
    int part[GROUPS_MAX];
    int term;
    bool scaled;
};

/* The results: outputs, then states. */
struct result {
    rule_array array[OUTS_MAX]; /* elements are owned */
    int count;
};

static void result_free(struct result *r)
{
    for (int o = 0; o < r->count; o++)
        free(r->array[o].at);
    *r = (struct result){.count = 0};
}

static void place_box(const sample *s, const struct choice *choice, int o, rule_array *array)
{
    *array = s->whole[o];
    array->count = 1;
    for (int d = 0; d < array->rank; d++) {
        const struct atom *atom = sample_atom(s, o, d);
        const int part = atom ? choice->part[s->group[atom - s->atoms]] : MERGED;
        if (part != MERGED) {
            const int64_t *cut = s->keys[atom->key].cut;
            array->start[d] = cut[part] * atom->unit;
            array->shape[d] = (cut[part + 1] - cut[part]) * atom->unit;
        }
        array->count *= array->shape[d];
    }
}

/* The value of a term's part: those of all parts add up to the whole. */
static field_value term_value(const sample *s, int o, int part, int64_t place)
{
    field_value last = s->whole[o].at[place];
    if (part < PARTS - 1)
        return drawn(s, o, 1 + part, place);
    for (int p = 0; p < PARTS - 1; p++)
        last = field_sub(last, drawn(s, o, 1 + p, place));
    return last;
}

static bool fill(const sample *s, const struct choice *choice, int o, rule_array *array)
{
    place_box(s, choice, o, array);
    array->at = malloc((size_t)array->count * sizeof(field_value) + 1);
    if (!array->at)
        return false;
    const bool term = o < s->ins && s->term[o] && choice->term != MERGED;
    const field_value scale = sample_operand(s->call, o)->scale;
    for (int64_t n = 0; n < array->count; n++) {
        const int64_t place = rule_logical(array, n);
        array->at[n] = term ? term_value(s, o, choice->term, place) : s->whole[o].at[place];
        if (choice->scaled && o < s->ins)
            array->at[n] = field_mul(scale, array->at[n]);
    }
    return true;
}

/* Computes the call for a choice of parts. */
static bool run(const sample *s, const struct choice *choice, struct result *result)
{
    const judge_call *of = s->call;
    rule_array *in = malloc((size_t)s->ins * sizeof *in + 1);
    bool ok = in != NULL;
    int filled = 0;
    *result = (struct result){.count = 0};
    for (; ok && filled < s->ins; filled++) /* what could not be filled is NULL */
        ok = fill(s, choice, filled, &in[filled]);
    for (int o = s->ins; ok && o < s->operands; o++)
        ok = fill(s, choice, o, &result->array[result->count++]);
    const rule_call call = {.op = of->op, .name = of->name, .words = of->words, .in = in, .in_count = s->ins,
                            .out = result->array, .out_count = of->out_count, .state = result->array + of->out_count,
                            .state_count = of->state_count, .key = of->key, .micros = of->micros, .seed = s->seed,
                            .error = s->error, .error_bytes = s->error_bytes};
    ok = ok && rule_find(of->op->name)(&call);
    for (int i = 0; i < filled; i++)
        free(in[i].at);
    free(in);
    if (!ok)
        result_free(result);
    return ok;
}

/* ---- a group is merged ---- */

/* Whether the output has a dimension in the group. */
static bool has_group(const sample *s, int output, int group)
{
    for (int a = 0; a < s->atom_count; a++)
        if (s->atoms[a].operand == s->ins + output && s->group[a] == group)
            return true;
    return false;
}

/* The first cut dimension of an input in the group, or, where none is, of an output. */
static int first_atom(const sample *s, int group)
{
    for (int a = 0; a < s->atom_count; a++)
        if (s->group[a] == group)
            return a;
    return -1;
}

static bool is_part_of(const rule_array *part, const rule_array *merged)
{
    bool same = true;
    for (int64_t n = 0; same && n < part->count; n++) {
        const int64_t place = rule_place(merged, part, n);
        same = place >= 0 && field_equal(part->at[n], merged->at[place]);
    }
    return same;
}

static bool is_sum(const struct result *parts, int count, int output, const rule_array *merged)
{
    bool same = weir_dtype_real(merged->dtype);
    for (int64_t n = 0; same && n < merged->count; n++) {
        field_value sum = field_int(0);
        for (int p = 0; p < count; p++)
            sum = field_add(sum, parts[p].array[output].at[n]);
        same = field_equal(sum, merged->at[n]);
    }
    return same;
}

/* Whether all parts have the merged result, and if not, whether they add up to it; `sums` is set then. */
static bool joins(const sample *s, const struct result *parts, int count, const struct result *merged, int group, int output,
                  bool *sums)
{
    const rule_array *whole = &merged->array[output];
    bool same = true;
    *sums = false;
    for (int p = 0; same && p < count; p++)
        same = is_part_of(&parts[p].array[output], whole);
    if (same || (group >= 0 && has_group(s, output, group)))
        return same;
    for (int p = 0; p < count; p++)
        if (parts[p].array[output].count != whole->count)
            return false;
    return *sums = is_sum(parts, count, output, whole);
}

/* Parts of a group that there are: the box, and what is before and behind it. */
static bool has_part(const sample *s, int group, int part)
{
    const int64_t *cut = group < 0 ? NULL : s->keys[s->key_of_group[group]].cut;
    return !cut || part == INSIDE || cut[part + 1] > cut[part];
}

/* The group (-1: that of terms alone) becomes one. `choice` is the state before and after. */
static bool merge(const sample *s, int group, bool with_terms, struct choice *choice, bool sums[OUTS_MAX])
{
    struct result parts[PARTS], merged = {.count = 0};
    int count = 0, outputs = s->operands - s->ins;
    bool ok = true;
    struct choice of = *choice;
    for (int p = 0; ok && p < PARTS; p++) {
        if (!has_part(s, group, p) && !with_terms)
            continue;
        if (group >= 0)
            of.part[group] = p;
        if (with_terms)
            of.term = p;
        ok = run(s, &of, &parts[count]);
        count += ok;
    }
    if (group >= 0)
        choice->part[group] = MERGED;
    if (with_terms)
        choice->term = MERGED;
    ok = ok && run(s, choice, &merged);
    for (int o = 0; ok && o < outputs; o++)
        ok = joins(s, parts, count, &merged, group, o, &sums[o]);
    for (int p = 0; p < count; p++)
        result_free(&parts[p]);
    result_free(&merged);
    return ok;
}

/* A step of merge_all(); notes which outputs are terms of it. */
static bool merge_next(const sample *s, int group, struct choice *choice, struct outcome *outs)
{
    const bool with_terms = s->has_terms && group == s->joint;
    bool sums[OUTS_MAX];
    if (!merge(s, group, with_terms, choice, sums))
        return false;
    for (int o = 0; o < s->operands - s->ins; o++) {
        if (!sums[o])
            continue;
        if (group >= 0)
            outs[o].contracted[outs[o].count++] = first_atom(s, group);
        outs[o].terms |= with_terms;
        outs[o].joint |= with_terms && group >= 0;
    }
    return true;
}

/* With these groups and terms: whether the call is a part of its op. Terms come first. */
static bool merge_all(const sample *s, struct outcome *outs)
{
    struct choice choice = {.term = s->has_terms ? INSIDE : MERGED};
    for (int o = 0; o < s->operands - s->ins; o++)
        outs[o] = (struct outcome){.scale = field_int(1)};
    for (int g = 0; g < GROUPS_MAX; g++)
        choice.part[g] = g < s->group_count ? INSIDE : MERGED;
    bool ok = !s->has_terms || merge_next(s, s->joint, &choice, outs);
    for (int g = 0; ok && g < s->group_count; g++)
        ok = (s->has_terms && g == s->joint) || merge_next(s, g, &choice, outs);
    return ok;
}

/* ---- which groups ---- */

/* Groups for the blocks of each key's atoms; block[a] is that of atom a within its key. False: too many. */
static bool set_groups(sample *s, const int *block)
{
    s->group_count = 0;
    for (int k = 0; k < s->key_count; k++) {
        int most = -1;
        for (int a = 0; a < s->atom_count; a++)
            if (s->atoms[a].key == k && block[a] > most)
                most = block[a];
        if (s->group_count + most >= GROUPS_MAX)
            return false;
        for (int a = 0; a < s->atom_count; a++)
            if (s->atoms[a].key == k)
                s->group[a] = s->group_count + block[a];
        for (int b = 0; b <= most; b++)
            s->key_of_group[s->group_count++] = k;
    }
    return true;
}

/* The least block from `least` on that the atom may be in: at most one more than those of the key's atoms before it, below `most`,
 * and none in which another dimension of its operand is. -1: none. */
static int block_from(const sample *s, const int *block, int a, int least, int most)
{
    uint64_t taken = 0;
    int before = -1;
    for (int b = 0; b < a; b++) {
        if (s->atoms[b].key != s->atoms[a].key)
            continue;
        before = block[b] > before ? block[b] : before;
        if (s->atoms[b].operand == s->atoms[a].operand)
            taken |= UINT64_C(1) << block[b];
    }
    while (taken >> least & 1)
        least++;
    return least <= before + 1 && least < most ? least : -1;
}

/* The least blocks for the atoms from `first` on. False: they do not fit into so few. */
static bool least_blocks(const sample *s, int first, int most, int *block)
{
    for (int a = first; a < s->atom_count; a++) {
        block[a] = block_from(s, block, a, 0, most);
        if (block[a] < 0)
            return false;
    }
    return true;
}

/* The next partition of the atoms of each key into up to `most` blocks. False: that was the last. */
static bool next_partition(const sample *s, int most, int *block)
{
    for (int a = s->atom_count; a-- > 0;) {
        const int next = block_from(s, block, a, block[a] + 1, most);
        if (next < 0)
            continue;
        block[a] = next;
        if (least_blocks(s, a + 1, most, block))
            return true;
    }
    return false;
}

/* Terms are tried alone, and together with each group. */
static bool merge_terms(sample *s, struct outcome *outs)
{
    for (s->joint = -1; s->joint < (s->has_terms ? s->group_count : 0); s->joint++)
        if (merge_all(s, outs))
            return true;
    return false;
}

/* Partitions into few blocks come first; of these the one in which the first cut dimensions of all operands are together, then
 * the second ones. */
static bool find_groups(sample *s, struct outcome *outs)
{
    int attempts = 0, block[ATOMS_MAX] = {0};
    for (int most = 1; most <= BLOCKS_MAX; most++) {
        bool more = least_blocks(s, 0, most, block);
        for (; more && attempts < ATTEMPTS_MAX; attempts++) {
            if (set_groups(s, block) && merge_terms(s, outs))
                return true;
            more = next_partition(s, most, block);
        }
    }
    return false;
}

/* Inputs that are whole may be terms, too: those that are not 0 on this one of several devices, as a bias is that one of them
 * adds. All are tried as terms, then each beside those that are. */
static bool find_terms(sample *s, struct outcome *outs)
{
    bool given[INS_MAX], had = s->has_terms;
    memcpy(given, s->term, sizeof given); /* all of them: a call with fewer inputs does not look at the rest */
    bool found = find_groups(s, outs);
    for (int turn = -1; !found && turn < s->ins; turn++) {
        s->has_terms = had;
        for (int i = 0; i < s->ins; i++) {
            s->term[i] = given[i] || ((turn < 0 || turn == i) && weir_dtype_real(s->whole[i].dtype));
            s->has_terms |= s->term[i];
        }
        found = memcmp(given, s->term, (size_t)s->ins) && find_groups(s, outs);
    }
    return found;
}

/* ---- scales ---- */

static bool find_ratio(const rule_array *plain, const rule_array *scaled, field_value *ratio)
{
    bool found = false, same = true;
    *ratio = field_int(1);
    for (int64_t n = 0; same && n < plain->count; n++) {
        if (!found && plain->at[n].of[0] && plain->at[n].of[1]) {
            *ratio = field_div(scaled->at[n], plain->at[n]);
            found = true;
        }
        same = field_equal(field_mul(*ratio, plain->at[n]), scaled->at[n]);
    }
    return same;
}

static bool find_scales(const sample *s, struct outcome *outs)
{
    struct choice choice = {.term = MERGED};
    struct result plain, scaled;
    for (int g = 0; g < GROUPS_MAX; g++)
        choice.part[g] = g < s->group_count ? INSIDE : MERGED;
    if (!run(s, &choice, &plain))
        return false;
    choice.scaled = true;
    bool ok = run(s, &choice, &scaled);
    for (int o = 0; ok && o < plain.count; o++)
        ok = find_ratio(&plain.array[o], &scaled.array[o], &outs[o].scale);
    result_free(&plain);
    result_free(&scaled);
    return ok;
}

/* ---- judge ---- */

/* Members that are as large as the largest call are set as far as this one goes. */
bool sample_open(sample *s, const judge_call *call, char *error, size_t error_bytes)
{
    s->call = call;
    s->ins = call->in_count;
    s->operands = call->in_count + call->out_count + call->state_count;
    s->atom_count = s->key_count = s->group_count = 0;
    s->has_terms = false;
    s->error = error;
    s->error_bytes = error_bytes;
    if (call->in_count > INS_MAX || call->out_count + call->state_count > OUTS_MAX)
        return false;
    memset(s->atom_at, 0, (size_t)s->operands * sizeof *s->atom_at);
    for (int i = 0; i < s->ins; i++) {
        s->term[i] = !field_equal(call->in[i].share, field_int(1));
        s->has_terms |= s->term[i];
    }
    return find_atoms(s);
}

weir_status sample_judge(sample *s, bool scaled, struct outcome *outs, bool *right)
{
    weir_status status = draw_wholes(s);
    if (!status)
        *right = find_terms(s, outs) && (!scaled || find_scales(s, outs));
    for (int o = 0; o < s->operands; o++)
        free(s->whole[o].at);
    return status;
}
