/* tests/graph/compile/test_sequence.c: groups call the same kernels as before, in an order that is as legal, and at no
 * kernel is more memory needed than was at the worst one before. On random models in random layouts.
 */
#include "tests/support/compiled.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

TestSuite(sequence, .timeout = 120);

enum { SEEDS = 60 };

/* The groups before the pass. */
typedef struct orders {
    int **pops; /* owned; by group */
    int groups;
} orders;

static orders orders_of(const compile *c)
{
    orders o = {calloc((size_t)c->phys.group.count + 1, sizeof *o.pops), c->phys.group.count};
    for (int g = 0; g < o.groups; g++) {
        const group *from = &c->phys.group.item[g];
        o.pops[g] = calloc((size_t)from->pops.count + 1, sizeof(int));
        memcpy(o.pops[g], from->pops.item, (size_t)from->pops.count * sizeof(int));
    }
    return o;
}

static void orders_free(orders *o)
{
    for (int g = 0; g < o->groups; g++)
        free(o->pops[g]);
    free(o->pops);
}

static int place_of(const int *pops, int count, int op)
{
    for (int i = 0; i < count; i++)
        if (pops[i] == op)
            return i;
    return -1;
}

static bool updates(const compile *c, int op)
{
    return c->ir.node[c->phys.op.item[op].node].updates >= 0;
}

Test(sequence, calls_the_same_kernels_and_each_behind_those_that_it_reads_from)
{
    int moved = 0;
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        compile *c = compiled_to(pass_group, seed);
        orders before = orders_of(c);
        cr_assert(pass_sequence(c));
        for (int g = 0; g < before.groups; g++) {
            const group *now = &c->phys.group.item[g];
            cr_assert_eq(now->pops.item[0], before.pops[g][0], "seed %lu: the first of group %d", seed, g);
            for (int i = 0; i < now->pops.count; i++) {
                const pop *op = &c->phys.op.item[now->pops.item[i]];
                int was = place_of(before.pops[g], now->pops.count, now->pops.item[i]);
                cr_assert_geq(was, 0, "seed %lu: group %d", seed, g);
                moved += was != i;
                for (int k = 0; k < op->in_count; k++) {
                    const ptensor *in = &c->phys.tensor.item[ptensor_real(&c->phys, op->in[k])];
                    int maker = in->parameter ? -1 : in->producer;
                    cr_assert_lt(place_of(now->pops.item, now->pops.count, maker), i, "seed %lu: group %d", seed, g);
                }
            }
        }
        orders_free(&before);
        compiled_free(c);
    }
    cr_expect_gt(moved, SEEDS, "some are moved");
}

/* An update works on what others read: who stood before it still does, and who stood behind it too. */
Test(sequence, nothing_that_reads_a_parameter_passes_its_update)
{
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        compile *c = compiled_to(pass_group, seed);
        orders before = orders_of(c);
        cr_assert(pass_sequence(c));
        for (int g = 0; g < before.groups; g++) {
            const group *now = &c->phys.group.item[g];
            for (int u = 0; u < now->pops.count; u++) {
                const pop *update = &c->phys.op.item[now->pops.item[u]];
                int was = place_of(before.pops[g], now->pops.count, now->pops.item[u]);
                const ptensor *to = &c->phys.tensor.item[ptensor_real(&c->phys, update->out[0])];
                for (int r = 0; r < to->readers.count && updates(c, now->pops.item[u]); r++) {
                    int reader = place_of(now->pops.item, now->pops.count, to->readers.item[r]);
                    int stood = place_of(before.pops[g], now->pops.count, to->readers.item[r]);
                    cr_assert(reader < 0 || (reader < u) == (stood < was), "seed %lu: group %d", seed, g);
                }
            }
        }
        orders_free(&before);
        compiled_free(c);
    }
}

/* ---- bytes ---- */

/* From where to where in the group's order a tensor is needed, as far as the group has to do with it: what is made for
 * others stays, what others have made is there from the start; false: it is always there. */
static bool life_of(const compile *c, int g, const int *pops, int count, const ptensor *t, int *from, int *to)
{
    if (t->parameter || t->producer < 0)
        return false;
    int maker = c->phys.op.item[t->producer].group;
    *from = maker == g ? place_of(pops, count, t->producer) : 0;
    *to = *from;
    for (int r = 0; r < t->readers.count; r++) {
        int reader = c->phys.op.item[t->readers.item[r]].group;
        int at = reader == g ? place_of(pops, count, t->readers.item[r]) : reader == maker ? 0 : count - 1;
        *to = at > *to ? at : *to;
    }
    return true;
}

static bool among(const int *item, int count, int value)
{
    return place_of(item, count, value) >= 0;
}

/* The tensors that the group's kernels read or make, each once. */
static int tensors_of(const compile *c, const int *pops, int count, int *list)
{
    int found = 0;
    for (int i = 0; i < count; i++) {
        const pop *op = &c->phys.op.item[pops[i]];
        for (int k = 0; k < op->in_count + op->out_count; k++) {
            int t = ptensor_real(&c->phys, k < op->in_count ? op->in[k] : op->out[k - op->in_count]);
            if (!among(list, found, t))
                list[found++] = t;
        }
    }
    return found;
}

static int64_t peak_of(const compile *c, int g, const int *pops, int count)
{
    int64_t *change = calloc((size_t)count + 2, sizeof *change), now = 0, peak = 0;
    int *list = calloc((size_t)c->phys.tensor.count + 1, sizeof *list);
    int tensors = tensors_of(c, pops, count, list);
    for (int i = 0; i < tensors; i++) {
        const ptensor *t = &c->phys.tensor.item[list[i]];
        int from, to;
        if (!life_of(c, g, pops, count, t, &from, &to))
            continue;
        change[from] += (int64_t)t->bytes;
        change[to + 1] -= (int64_t)t->bytes;
    }
    for (int i = 0; i < count; i++) {
        now += change[i];
        peak = now > peak ? now : peak;
    }
    free(change);
    free(list);
    return peak;
}

Test(sequence, at_its_worst_no_group_needs_more_bytes_than_before)
{
    int fewer = 0;
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        compile *c = compiled_to(pass_group, seed);
        orders before = orders_of(c);
        cr_assert(pass_sequence(c));
        for (int g = 0; g < before.groups; g++) {
            const group *now = &c->phys.group.item[g];
            int64_t old = peak_of(c, g, before.pops[g], now->pops.count);
            int64_t new = peak_of(c, g, now->pops.item, now->pops.count);
            cr_expect_leq(new, old, "seed %lu, group %d: %ld bytes, before %ld", seed, g, (long)new, (long)old);
            fewer += new < old;
        }
        orders_free(&before);
        compiled_free(c);
    }
    cr_expect_gt(fewer, 0);
}
