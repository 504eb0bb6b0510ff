/* graph/plan/show/layouts.c: see layouts.h. Tensors are sorted by name, device and place: so what is one logical tensor lies
 * together, and what a device has of it several times stands side by side and counts once. Then groups are put into the
 * order of their first tensor. */
#define _GNU_SOURCE
#include "graph/plan/show/layouts.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static bool same_box(const plan_tensor *a, const plan_tensor *b)
{
    size_t bytes = a->rank * sizeof *a->start;
    return a->rank == b->rank && !memcmp(a->start, b->start, bytes) && !memcmp(a->shape, b->shape, bytes);
}

/* By where they begin, in dimensions `from` to `to`. */
static int compare_start(const plan_tensor *x, const plan_tensor *y, int from, int to)
{
    for (int d = from; d <= to; d++)
        if (x->start[d] != y->start[d])
            return x->start[d] < y->start[d] ? -1 : 1;
    return 0;
}

static int compare_tensors(const void *a, const void *b, void *of)
{
    const weir_plan *plan = of;
    const plan_tensor *x = &plan->tensors[*(const uint32_t *)a], *y = &plan->tensors[*(const uint32_t *)b];
    int order = strcmp(plan_text(plan, x->name), plan_text(plan, y->name));
    if (order)
        return order;
    uint32_t xs = plan_tensor_space(plan, x).i, ys = plan_tensor_space(plan, y).i;
    if (xs != ys)
        return xs < ys ? -1 : 1;
    int start = compare_start(x, y, 0, WEIR_DIMS_MAX - 1);
    if (start)
        return start;
    return (*(const uint32_t *)a > *(const uint32_t *)b) - (*(const uint32_t *)a < *(const uint32_t *)b);
}

static int compare_first(const void *a, const void *b, void *of)
{
    const layouts *l = of;
    uint32_t x = l->shard[((const logical *)a)->first], y = l->shard[((const logical *)b)->first];
    return (x > y) - (x < y);
}

static bool same_name(const weir_plan *plan, const plan_tensor *a, const plan_tensor *b)
{
    return a->name.i == b->name.i || !strcmp(plan_text(plan, a->name), plan_text(plan, b->name));
}

/* Also says in `of`, for each tensor of the plan, which logical one it belongs to. */
static void group(layouts *l, uint32_t *of)
{
    const weir_plan *plan = l->plan;
    uint32_t kept = 0;
    for (uint32_t t = 0; t < plan->tensors_count; t++) {
        const plan_tensor *tensor = &plan->tensors[l->shard[t]];
        const plan_tensor *last = kept ? &plan->tensors[l->shard[kept - 1]] : NULL;
        bool same = last && same_name(plan, last, tensor);
        if (!same)
            l->tensor[l->tensor_count++] = (logical){.first = kept, .terms = 1, .file = ""};
        of[l->shard[t]] = l->tensor_count - 1;
        if (same && plan_tensor_space(plan, last).i == plan_tensor_space(plan, tensor).i && same_box(last, tensor))
            continue;
        l->tensor[l->tensor_count - 1].count++;
        l->shard[kept++] = l->shard[t];
    }
}

/* How shards are compared: by where they begin, in dimension d, or (d < 0) in all. */
struct by {
    const weir_plan *plan;
    int d;
};

static int compare_starts(const void *a, const void *b, void *of)
{
    const struct by *by = of;
    const plan_tensor *x = &by->plan->tensors[*(const uint32_t *)a], *y = &by->plan->tensors[*(const uint32_t *)b];
    return by->d < 0 ? compare_start(x, y, 0, WEIR_DIMS_MAX - 1) : compare_start(x, y, by->d, by->d);
}

/* How many differ. `shard` is left in their order. */
static uint32_t count_different(const weir_plan *plan, uint32_t *shard, uint32_t count, int d)
{
    struct by by = {plan, d};
    uint32_t different = 1;
    qsort_r(shard, count, sizeof *shard, compare_starts, &by);
    for (uint32_t k = 1; k < count; k++)
        different += compare_starts(&shard[k - 1], &shard[k], &by) != 0;
    return different;
}

static void measure(const layouts *l, logical *of, uint32_t *room)
{
    memcpy(room, l->shard + of->first, of->count * sizeof *room);
    for (int d = 0; d < WEIR_DIMS_MAX; d++)
        of->parts[d] = count_different(l->plan, room, of->count, d);
    uint32_t each = of->count / count_different(l->plan, room, of->count, -1);
    of->terms = of->terms < each ? of->terms : each;
    of->alike = each / of->terms;
}

/* ---- what kernels tell ---- */

/* How many of the kernel's inputs are shards of the same elements as input i. */
static uint32_t count_terms(const weir_plan *plan, const plan_kernel *kernel, uint32_t i)
{
    const plan_operand *in = plan->operands + kernel->in.first;
    const plan_tensor *one = &plan->tensors[in[i].tensor.i];
    uint32_t count = 1;
    for (uint32_t k = 0; k < kernel->in.count; k++) {
        const plan_tensor *other = &plan->tensors[in[k].tensor.i];
        count += in[k].tensor.i != in[i].tensor.i && same_box(one, other) && same_name(plan, one, other);
    }
    return count;
}

/* Where the logical tensor is made, unless that is known. */
static void note_place(layouts *l, uint32_t of, plan_str file, uint32_t line)
{
    logical *made = &l->tensor[of];
    if (made->line)
        return;
    made->file = plan_text(l->plan, file);
    made->line = line;
}

/* `of` is each tensor's logical one. */
static void note_kernel(layouts *l, const plan_kernel *kernel, const uint32_t *of)
{
    const weir_plan *plan = l->plan;
    for (uint32_t i = 0; i < kernel->in.count; i++) {
        logical *read = &l->tensor[of[plan->operands[kernel->in.first + i].tensor.i]];
        uint32_t terms = count_terms(plan, kernel, i);
        read->terms = terms > read->terms ? terms : read->terms;
    }
    for (uint32_t i = 0; i < kernel->out.count; i++) {
        uint32_t made = of[plan->operands[kernel->out.first + i].tensor.i];
        note_place(l, made, kernel->file, kernel->line);
    }
}

/* Devices that add together have a term each. */
static void note_collective(layouts *l, const plan_collective *add, const uint32_t *of)
{
    const weir_plan *plan = l->plan;
    for (uint32_t m = 0; plan_adds(add) && m < add->members.count; m++) {
        const plan_actor *member = plan_member(plan, add, m);
        if (!member->kernels.count)
            continue; /* another rank's */
        plan_range in = plan->kernels[member->kernels.first].in;
        for (uint32_t i = in.first; i < in.first + in.count; i++)
            l->tensor[of[plan->operands[i].tensor.i]].terms = add->members.count;
    }
}

static void note_host(layouts *l, const plan_host *host, const uint32_t *of)
{
    const plan_actor *actor = &l->plan->actors[host->actor.i];
    if (host->kind != PLAN_PUSH || !actor->regsts.count)
        return;
    plan_range tensors = l->plan->regsts[actor->regsts.first].tensors;
    for (uint32_t t = tensors.first; t < tensors.first + tensors.count; t++) {
        logical *made = &l->tensor[of[t]];
        made->file = plan_text(l->plan, host->file);
        made->line = host->line;
    }
}

static void note_all(layouts *l, const uint32_t *of)
{
    const weir_plan *plan = l->plan;
    for (uint32_t t = 0; t < plan->tensors_count; t++)
        note_place(l, of[t], plan->tensors[t].file, plan->tensors[t].line);
    for (uint32_t k = 0; k < plan->kernels_count; k++)
        note_kernel(l, &plan->kernels[k], of);
    for (uint32_t c = 0; c < plan->collectives_count; c++)
        note_collective(l, &plan->collectives[c], of);
    for (uint32_t h = 0; h < plan->hosts_count; h++)
        note_host(l, &plan->hosts[h], of);
}

/* ---- stages ---- */

/* All that have the stage `from` get `to`. */
static void join(layouts *l, uint32_t from, uint32_t to)
{
    for (uint32_t s = 0; from != to && s < l->plan->spaces_count; s++)
        if (l->stage[s] == from)
            l->stage[s] = to;
}

/* Whether `s` is the disk of a CPU, the files that it reads, or the host's memory beside an accelerator. */
static bool belongs_to(const plan_space *s, const plan_space *device)
{
    return s->index == device->index &&
           (s->kind == WEIR_DISK || s->kind == WEIR_MAPPED ? device->kind == WEIR_CPU : s->kind == WEIR_PINNED && device->kind != WEIR_CPU);
}

static void find_stages(layouts *l)
{
    const weir_plan *plan = l->plan;
    for (uint32_t s = 0; s < plan->spaces_count; s++)
        l->stage[s] = plan->spaces_count + 1 + s;
    for (uint32_t s = 0; s < plan->spaces_count; s++)
        for (uint32_t other = 0; other < plan->spaces_count && plan->spaces[s].kind != WEIR_CPU; other++)
            if (belongs_to(&plan->spaces[s], &plan->spaces[other]))
                join(l, l->stage[s], l->stage[other]);
    for (uint32_t p = 0; p < plan->params_count; p++) {
        const plan_tensor_id *shard = plan->shards + plan->params[p].shards.first;
        for (uint32_t i = 1; i < plan->params[p].shards.count; i++)
            join(l, l->stage[plan_tensor_space(plan, &plan->tensors[shard[i].i]).i],
                 l->stage[plan_tensor_space(plan, &plan->tensors[shard[0].i]).i]);
    }
    for (uint32_t s = 0; s < plan->spaces_count; s++)
        if (l->stage[s] > plan->spaces_count)
            join(l, l->stage[s], ++l->stage_count);
}

bool layouts_make(layouts *l, const weir_plan *plan)
{
    size_t count = plan->tensors_count;
    *l = (layouts){.plan = plan};
    l->shard = malloc((count + 1) * sizeof *l->shard);
    l->tensor = calloc(count + 1, sizeof *l->tensor);
    l->stage = calloc(plan->spaces_count + (size_t)1, sizeof *l->stage);
    uint32_t *of = calloc(count + 1, sizeof *of); /* each tensor's logical one, then room for shards */
    bool ok = l->shard && l->tensor && l->stage && of;
    if (ok) {
        for (uint32_t t = 0; t < plan->tensors_count; t++)
            l->shard[t] = t;
        qsort_r(l->shard, count, sizeof *l->shard, compare_tensors, (void *)plan);
        group(l, of);
        note_all(l, of);
        for (uint32_t t = 0; t < l->tensor_count; t++)
            measure(l, &l->tensor[t], of);
        qsort_r(l->tensor, l->tensor_count, sizeof *l->tensor, compare_first, l);
        find_stages(l);
    }
    free(of);
    return ok;
}

void layouts_free(layouts *l)
{
    free(l->tensor);
    free(l->shard);
    free(l->stage);
}

/* ---- as text ---- */

const char *layouts_text(const logical *of, char *text, size_t bytes)
{
    size_t at = 0;
    text[0] = '\0';
    for (int d = 0; d < WEIR_DIMS_MAX && at < bytes; d++)
        if (of->parts[d] > 1)
            at += (size_t)snprintf(text + at, bytes - at, "%sS(%d)/%" PRIu32, at ? " " : "", d, of->parts[d]);
    if (of->terms > 1 && at < bytes)
        at += (size_t)snprintf(text + at, bytes - at, "%sP/%" PRIu32, at ? " " : "", of->terms);
    if (of->alike > 1 && at < bytes)
        snprintf(text + at, bytes - at, "%sB/%" PRIu32, at ? " " : "", of->alike);
    return text;
}

static const plan_space *space_of(const layouts *l, const logical *of, uint32_t k)
{
    return &l->plan->spaces[plan_tensor_space(l->plan, &l->plan->tensors[l->shard[of->first + k]]).i];
}

/* Shards are sorted by device. */
const char *layouts_devices(const layouts *l, const logical *of, char *text, size_t bytes)
{
    size_t at = 0;
    text[0] = '\0';
    for (uint32_t k = 0, end; k < of->count && at < bytes; k = end) {
        const plan_space *from = space_of(l, of, k), *last = from;
        for (end = k + 1; end < of->count; end++) {
            const plan_space *next = space_of(l, of, end);
            if (next->kind != from->kind || next->index > last->index + 1)
                break;
            last = next;
        }
        if (k && from->kind == space_of(l, of, k - 1)->kind)
            at += (size_t)snprintf(text + at, bytes - at, ",%" PRIu32, from->index);
        else
            at += (size_t)snprintf(text + at, bytes - at, "%s%s", k ? "," : "", plan_text(l->plan, from->name));
        if (last != from && at < bytes)
            at += (size_t)snprintf(text + at, bytes - at, "-%" PRIu32, last->index);
    }
    return text;
}

bool layouts_there(const layouts *l, const logical *of, const bool *there)
{
    for (uint32_t k = 0; k < of->count; k++)
        if (there[space_of(l, of, k) - l->plan->spaces])
            return true;
    return false;
}
