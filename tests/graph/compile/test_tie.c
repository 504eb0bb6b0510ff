/* tests/graph/compile/test_tie.c: ordering edges carry no bytes, lead from who reads late to who is waited for, close
 * no circle, and cost no time: the plan with them, played with a duration for every firing, is as fast as the one
 * without, but for a few per cent where stages are uneven. On random models in random layouts.
 */
#include "graph/compile/backend/backend.h"
#include "tests/support/compiled.h"
#include "tests/support/pace.h"

#include <criterion/criterion.h>
#include <string.h>

TestSuite(tie, .timeout = 120);

enum { SEEDS = 40, STEPS = 8 };

/* The models are small: what is done with large tensors is to be done with theirs. */
static compile *tied(uint64_t seed)
{
    group_own_bytes = 64;
    compile *c = compiled_to(pass_fuse, seed);
    cr_assert(pass_tie(c));
    return c;
}

static bool is_tie(const reg *r)
{
    return r->group >= 0 && !r->tensors.count;
}

Test(tie, an_edge_has_no_bytes_and_leads_from_an_update_to_the_last_update_of_another_device)
{
    int ties = 0;
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        compile *c = tied(seed);
        for (int i = 0; i < c->phys.reg.count; i++) {
            const reg *r = &c->phys.reg.item[i];
            if (!is_tie(r))
                continue;
            const group *from = &c->phys.group.item[r->group];
            cr_assert(!r->slot_bytes && r->slots == 1 && r->fill == 1 && !r->initial, "seed %lu", seed);
            cr_assert_eq(from->phase, PLAN_UPDATE, "seed %lu", seed);
            cr_assert_gt(r->readers.count, 0, "seed %lu", seed);
            for (int k = 0; k < r->readers.count; k++, ties++) {
                const group *to = &c->phys.group.item[r->readers.item[k]];
                cr_assert(to->phase == PLAN_UPDATE && to->device != from->device && to->micro == from->micro,
                          "seed %lu", seed);
            }
        }
        compiled_free(c);
    }
    cr_expect_gt(ties, SEEDS);
}

/* Whether the group waits, in the same step, for nothing that is not done. */
static bool may_go(const compile *c, int g, const bool *done)
{
    const group *from = &c->phys.group.item[g];
    for (int i = 0; i < from->reads.count; i++) {
        const reg *r = &c->phys.reg.item[from->reads.item[i]];
        if (r->group >= 0 && r->group != g && !r->initial && !done[r->group])
            return false;
    }
    return true;
}

Test(tie, no_circle_comes_of_it)
{
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        compile *c = tied(seed);
        int count = c->phys.group.count, finished = 0;
        bool *done = POOL_NEW(&c->pool, bool, count), moved = true;
        while (moved) {
            moved = false;
            for (int g = 0; g < count; g++)
                if (!done[g] && may_go(c, g, done)) {
                    done[g] = moved = true;
                    finished++;
                }
        }
        cr_assert_eq(finished, count, "seed %lu: %d groups wait for each other", seed, count - finished);
        compiled_free(c);
    }
}

static weir_plan *plan_of(uint64_t seed, bool ties)
{
    group_own_bytes = 64;
    tie_orders = ties;
    compile *c = compiled_to(pass_box, seed);
    backend_outcome o;
    weir_plan *plan = backend_plan(c, &o);
    tie_orders = true;
    cr_assert_not_null(plan, "%s", weir_error());
    compiled_free(c);
    return plan;
}

Test(tie, no_step_becomes_longer_by_it)
{
    double sum = 0, sum_tied = 0;
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        weir_plan *without = plan_of(seed, false), *with = plan_of(seed, true);
        double before = pace_play(without, STEPS), now = pace_play(with, STEPS);
        cr_expect_leq(now, 1.04 * before, "seed %lu: %.0f, without %.0f", seed, now, before);
        sum += before;
        sum_tied += now;
        weir_plan_free(without);
        weir_plan_free(with);
    }
    cr_expect_leq(sum_tied, 1.002 * sum, "%.0f, without %.0f", sum_tied, sum);
}
