/* graph/verify/blame.c: see the header. */
#include "graph/verify/blame.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "graph/base/base.h"

struct record {
    uint32_t kernel;
    const plan_tensor *tensor;
    int64_t step;
    int micro;
    rule_array array; /* `at` is owned */
};

struct blame {
    const weir_plan *plan;
    const weir_graph *graph;
    struct record *records; /* owned */
    size_t count, room;
    field_value scale;      /* of the loss, and so of gradients, in plans with f16; else 1 */
};

int64_t blame_first(const rule_array *shard, const rule_array *whole)
{
    for (int64_t n = 0; n < shard->count; n++)
        if (!field_equal(shard->at[n], whole->at[rule_logical(shard, n)]))
            return n;
    return -1;
}

void blame_element(const rule_array *whole, int64_t place, char *text, size_t bytes)
{
    int64_t index[WEIR_DIMS_MAX] = {0};
    size_t used = (size_t)snprintf(text, bytes, ", element [");
    rule_index(whole, place, index);
    for (int d = 0; d < whole->rank; d++)
        used += (size_t)snprintf(text + used, bytes - used, d ? ", %lld" : "%lld", (long long)index[d]);
    snprintf(text + used, bytes - used, "]");
}

blame *blame_new(const weir_plan *plan, const weir_graph *graph)
{
    blame *b = calloc(1, sizeof *b);
    if (b)
        *b = (blame){.plan = plan, .graph = graph, .scale = field_int(1)};
    return b;
}

/* The scale of the loss is as it began: it doubles after more steps than a proof has. */
void blame_find_scale(blame *b, const author *a)
{
    const rule_array scale = {.dtype = WEIR_F32, .count = 1, .at = &b->scale};
    for (uint32_t p = 0; p < b->plan->params_count; p++) {
        const char *name = plan_text(b->plan, b->plan->params[p].name), *end = strstr(name, PLAN_LOSS_SCALE);
        if (end && !end[strlen(PLAN_LOSS_SCALE)])
            author_begin(a, name, &scale);
    }
}

void blame_free(blame *b)
{
    for (size_t i = 0; b && i < b->count; i++)
        free(b->records[i].array.at);
    if (b)
        free(b->records);
    free(b);
}

/* Without memory for it a record is left out: then the sentence may name a later kernel. */
void blame_add(blame *b, uint32_t kernel, const plan_tensor *tensor, int64_t step, int micro, const rule_array *array)
{
    if (b->count == b->room) {
        const size_t room = 2 * b->room + 64;
        struct record *more = realloc(b->records, room * sizeof *more);
        if (!more)
            return;
        b->records = more;
        b->room = room;
    }
    struct record *record = &b->records[b->count];
    *record = (struct record){kernel, tensor, step, micro, *array};
    b->count += rule_copy(&record->array);
}

/* ---- a tensor ---- */

/* Elements of the author's tensor as the plan's shards have them. */
struct held {
    field_value sum;
    uint32_t shards, wrong; /* how many have it; how many have another value */
    size_t last;            /* 1 + a record that is wrong */
};

/* Whether the plan has the value for this one of the graph: where the loss is scaled, gradients are, and their squares. */
static bool is_right(const struct blame *b, field_value is, field_value right)
{
    const field_value scaled = field_mul(right, b->scale);
    return field_equal(is, right) || field_equal(is, scaled) || field_equal(is, field_mul(scaled, b->scale));
}

/* Whether the record is one of the tensor of this name: "h0/q", or as a conversion of it is called, "h0/q>B". */
static bool is_of(const struct blame *b, const struct record *record, const weir_tensor *tensor, bool converted)
{
    const char *name = plan_text(b->plan, record->tensor->name);
    const size_t length = strlen(tensor->name);
    if (strncmp(name, tensor->name, length) || name[length] != (converted ? '>' : 0) ||
        record->array.rank != tensor->type.shape.rank)
        return false;
    for (int d = 0; d < record->array.rank; d++)
        if (record->array.global[d] != tensor->type.shape.dim[d])
            return false;
    return true;
}

/* The last of what is made anew in each firing of a step counts. */
static bool is_newest(const struct blame *b, size_t i)
{
    for (size_t k = i + 1; k < b->count; k++)
        if (b->records[k].tensor == b->records[i].tensor && b->records[k].step == b->records[i].step)
            return false;
    return true;
}

static void say(const struct blame *b, const struct record *record, const weir_tensor *tensor, const rule_array *right,
                int64_t place, char *text, size_t bytes)
{
    const plan_kernel *kernel = &b->plan->kernels[record->kernel];
    const plan_space *space = &b->plan->spaces[plan_actor_space(b->plan, kernel->actor.i).i];
    char element[128], made[128] = "";
    blame_element(right, place, element, sizeof element);
    if (tensor->src.file)
        snprintf(made, sizeof made, ", which the graph makes at %s:%d", tensor->src.file, tensor->src.line);
    snprintf(text, bytes, "%s:%u: %s (%s) on %s makes \"%s\" wrong in step %lld%s%s", plan_text(b->plan, kernel->file),
             kernel->line, plan_text(b->plan, kernel->name), plan_text(b->plan, kernel->op), plan_text(b->plan, space->name),
             plan_text(b->plan, record->tensor->name), (long long)record->step, element, made);
}

/* Counts what the records of the tensor have of each element. */
static void gather(const struct blame *b, const weir_tensor *tensor, bool converted, int64_t step, int micro,
                   const rule_array *right, struct held *held)
{
    for (size_t i = 0; i < b->count; i++) {
        const struct record *record = &b->records[i];
        if (record->step != step || (tensor->micro && record->micro != micro) || !is_of(b, record, tensor, converted) ||
            (!tensor->micro && !is_newest(b, i)))
            continue;
        for (int64_t n = 0; n < record->array.count; n++) {
            const int64_t place = rule_logical(&record->array, n);
            struct held *at = &held[place];
            const bool none = converted && field_equal(record->array.at[n], field_int(0)); /* of terms one may have all */
            const bool wrong = !none && !is_right(b, record->array.at[n], right->at[place]);
            at->sum = field_add(at->sum, record->array.at[n]);
            at->shards++;
            at->wrong += wrong;
            at->last = wrong ? i + 1 : at->last;
        }
    }
}

/* Whether the shards have terms of the value, each of them equally often: over one axis of a mesh they may be terms, and over
 * another replicas. */
static bool adds_up(const struct blame *b, const struct held *held, field_value right)
{
    bool is = false;
    for (uint32_t each = 1; !is && each <= held->shards; each++)
        is = held->shards % each == 0 && is_right(b, held->sum, field_mul(right, field_int(each)));
    return is;
}

static bool find_wrong(const struct blame *b, const weir_tensor *tensor, bool converted, int64_t step, int micro,
                       const rule_array *right, char *text, size_t bytes)
{
    struct held *held = calloc((size_t)right->count + 1, sizeof *held);
    bool found = false;
    if (!held)
        return false;
    gather(b, tensor, converted, step, micro, right, held);
    for (int64_t n = 0; !found && n < right->count; n++) {
        found = held[n].wrong && !adds_up(b, &held[n], right->at[n]);
        if (found)
            say(b, &b->records[held[n].last - 1], tensor, right, n, text, bytes);
    }
    free(held);
    return found;
}

/* A parameter or state that an update of the step left wrong. */
static bool find_wrong_update(const struct blame *b, const author *a, int64_t step, char *text, size_t bytes)
{
    for (size_t i = 0; i < b->count; i++) {
        const struct record *record = &b->records[i];
        weir_tensor made = {.src = {NULL, 0}};
        if (record->step != step)
            continue;
        const rule_array right = author_kept(a, plan_text(b->plan, record->tensor->name), &made.src);
        const int64_t wrong = right.at && rule_same_whole(&record->array, &right) ? blame_first(&record->array, &right) : -1;
        if (wrong < 0)
            continue;
        say(b, record, &made, &right, rule_logical(&record->array, wrong), text, bytes);
        return true;
    }
    return false;
}

bool blame_find_read(blame *b, const author *a, int64_t step, char *text, size_t bytes)
{
    for (int t = 0; t < b->graph->tensors.count; t++) {
        const weir_tensor *tensor = b->graph->tensors.item[t];
        weir_src src;
        if (tensor->node || tensor->delay > 1)
            continue;
        const rule_array right = author_kept(a, tensor->name, &src);
        if (find_wrong(b, tensor, true, step, 0, &right, text, bytes))
            return true;
    }
    return false;
}

bool blame_find(blame *b, const author *a, int64_t step, char *text, size_t bytes)
{
    for (int n = 0; n < b->graph->nodes.count; n++) {
        const graph_node *node = b->graph->nodes.item[n];
        for (int o = 0; o < node->out_count && !node->updates; o++) {
            const weir_tensor *tensor = node->out[o];
            for (int micro = 0; micro < (tensor->micro ? (int)b->plan->micro_batches : 1); micro++) {
                const rule_array right = author_tensor(a, tensor, micro);
                if (find_wrong(b, tensor, false, step, micro, &right, text, bytes) ||
                    find_wrong(b, tensor, true, step, micro, &right, text, bytes))
                    return true;
            }
        }
    }
    return find_wrong_update(b, a, step, text, bytes);
}
