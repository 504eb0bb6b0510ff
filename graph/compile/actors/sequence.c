/* graph/compile/actors/sequence.c: in which order a group calls its kernels, as far as memory goes.
 *
 * Pops come in the order of the graph, in which a layer's input gradient is made before its weight's: others wait for
 * it. Inside of a group nobody waits, and then what ends a life should come before what begins one: in
 *
 *     up' = gelu'(up), dx = matmul(dy, w), dw = matmul(up', dy)
 *
 * up' is needed while dx is made, for nothing. So a pop is moved forward, to where its inputs are there, when more bytes
 * die with it than it makes: between its new place and its old one that many fewer are needed. While it runs both its
 * inputs and its outputs are, so it goes nowhere where that would be more than was needed at the worst place between.
 *
 * The first pop of a group stays (order.c ranks groups by it), as do updates, which work on what others read. Groups do
 * not change, so nothing that crosses devices is made later than before.
 */
#include "graph/compile/actors/passes.h"

#include <string.h>

typedef struct sequence {
    compile *c;
    int *position;                 /* by pop: in its group */
    int64_t *need;                 /* by position: bytes of the tensors that are there */
    int *seen;                     /* by tensor: 1 + the group that has counted it */
    int *summed, sums;             /* by tensor: the last sum of bytes that it was looked at for; how many there were */
    int group;
} sequence;

static const ptensor *tensor_of(const sequence *s, int id)
{
    return &s->c->phys.tensor.item[id];
}

static bool here(const sequence *s, int op)
{
    return s->c->phys.op.item[op].group == s->group && !s->c->phys.op.item[op].dead;
}

/* The first place at which all that the pop reads has been made. */
static int earliest(const sequence *s, const pop *op)
{
    int first = 1;
    for (int i = 0; i < op->in_count; i++) {
        const ptensor *t = tensor_of(s, op->in[i]);
        if (!t->parameter && t->producer >= 0 && here(s, t->producer) && s->position[t->producer] >= first)
            first = s->position[t->producer] + 1;
    }
    return first;
}

/* Whether the tensor, which pop `id` reads, would not be needed behind it if that stood at `at`: what starts full always
 * is, and what a third group reads may be. */
static bool dies_at(const sequence *s, const ptensor *t, int id, int at)
{
    if (t->parameter || t->producer < 0)
        return false;
    int maker = s->c->phys.op.item[t->producer].group;
    for (int r = 0; r < t->readers.count; r++) {
        int reader = t->readers.item[r];
        if (!here(s, reader) && s->c->phys.op.item[reader].group == maker)
            continue;
        if (!here(s, reader) || (reader != id && s->position[reader] >= at))
            return false;
    }
    return true;
}

static int64_t out_bytes(const sequence *s, int id)
{
    const pop *op = &s->c->phys.op.item[id];
    int64_t bytes = 0;
    for (int o = 0; o < op->out_count; o++)
        bytes += (int64_t)tensor_of(s, op->out[o])->bytes;
    return bytes;
}

/* Bytes that die with pop `id` at this place, less those that it makes. */
static int64_t gain(sequence *s, int id, int at)
{
    const pop *op = &s->c->phys.op.item[id];
    int64_t bytes = -out_bytes(s, id);
    s->sums++;
    for (int i = 0; i < op->in_count; i++) {
        bool again = s->summed[op->in[i]] == s->sums;
        s->summed[op->in[i]] = s->sums;
        if (!again && dies_at(s, tensor_of(s, op->in[i]), id, at))
            bytes += (int64_t)tensor_of(s, op->in[i])->bytes;
    }
    return bytes;
}

/* The first place in [first, end) where the pop gains something, or `end`. A tensor that dies at a place dies at any later
 * one, so what is gained only grows. */
static int first_gain(sequence *s, int id, int first, int end)
{
    if (first >= end || gain(s, id, end - 1) <= 0)
        return end;
    int last = end - 1; /* there it does */
    while (first < last) {
        int middle = first + (last - first) / 2;
        if (gain(s, id, middle) > 0)
            last = middle;
        else
            first = middle + 1;
    }
    return last;
}

/* The first place from `at` on where the pop, while it runs, needs no more than is needed between there and its own. */
static int first_low(const sequence *s, const group *g, int at, int own)
{
    int64_t out = out_bytes(s, g->pops.item[own]), most = s->need[own];
    int found = own;
    for (int k = own - 1; k >= at; k--) {
        most = s->need[k] > most ? s->need[k] : most;
        if (s->need[k] - out_bytes(s, g->pops.item[k]) + out <= most)
            found = k;
    }
    return found;
}

static void move_forward(sequence *s, group *g, int from, int to)
{
    int id = g->pops.item[from];
    int64_t fewer = gain(s, id, to), there = s->need[to] - out_bytes(s, g->pops.item[to]) + out_bytes(s, id);
    for (int i = from; i > to; i--)
        s->need[i] = s->need[i - 1] - fewer;
    s->need[to] = there;
    memmove(&g->pops.item[to + 1], &g->pops.item[to], sizeof id * (size_t)(from - to));
    g->pops.item[to] = id;
    for (int i = to; i <= from; i++)
        s->position[g->pops.item[i]] = i;
}

/* Counts the tensor from where it is made to where it is read last; what others make is there from the start, what
 * others read up to the end. Behind that nothing is looked for: a tensor that many devices read is counted on each. */
static void count_tensor(sequence *s, const group *g, int id)
{
    const ptensor *t = tensor_of(s, id);
    if (s->seen[id] == s->group + 1 || t->parameter || t->producer < 0)
        return;
    s->seen[id] = s->group + 1;
    int maker = s->c->phys.op.item[t->producer].group;
    int from = maker == s->group ? s->position[t->producer] : 0, to = from, end = g->pops.count - 1;
    for (int r = 0; r < t->readers.count && to < end; r++) {
        int reader = t->readers.item[r], its = s->c->phys.op.item[reader].group;
        int at = here(s, reader) ? s->position[reader] : its == maker && maker != s->group ? 0 : end;
        to = at > to ? at : to;
    }
    s->need[from] += (int64_t)t->bytes;
    s->need[to + 1] -= (int64_t)t->bytes;
}

static void count_needs(sequence *s, const group *g)
{
    memset(s->need, 0, (size_t)(g->pops.count + 1) * sizeof *s->need);
    for (int i = 0; i < g->pops.count; i++) {
        const pop *op = &s->c->phys.op.item[g->pops.item[i]];
        for (int k = 0; k < op->in_count; k++)
            count_tensor(s, g, op->in[k]);
        for (int o = 0; o < op->out_count; o++)
            count_tensor(s, g, op->out[o]);
    }
    for (int i = 1; i < g->pops.count; i++)
        s->need[i] += s->need[i - 1];
}

static void sequence_group(sequence *s, group *g)
{
    for (int i = 0; i < g->pops.count; i++)
        s->position[g->pops.item[i]] = i;
    count_needs(s, g);
    for (int i = 1; i < g->pops.count; i++) {
        int id = g->pops.item[i];
        const pop *op = &s->c->phys.op.item[id];
        int at = s->c->ir.node[op->node].updates >= 0 ? i : first_gain(s, id, earliest(s, op), i);
        at = first_low(s, g, at, i);
        if (at < i)
            move_forward(s, g, i, at);
    }
}

bool pass_sequence(compile *c)
{
    sequence s = {.c = c,
                  .position = POOL_NEW(&c->pool, int, c->phys.op.count + 1),
                  .need = POOL_NEW(&c->pool, int64_t, c->phys.op.count + 2),
                  .seen = POOL_NEW(&c->pool, int, c->phys.tensor.count + 1),
                  .summed = POOL_NEW(&c->pool, int, c->phys.tensor.count + 1)};
    for (; !c->pool.failed && s.group < c->phys.group.count; s.group++)
        sequence_group(&s, &c->phys.group.item[s.group]);
    return !c->pool.failed;
}
