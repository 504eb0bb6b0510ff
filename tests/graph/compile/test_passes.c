/* test_passes.c: what passes hand to each other. Each is held to what its essay promises, over random models in random
 * layouts, where a plan alone would show a mistake as slowness, or as bytes, or not at all.
 *
 * place(), sequence, tie and fuse have suites of their own.
 */
#include "tests/support/compiled.h"

#include <criterion/criterion.h>
#include <string.h>

TestSuite(passes, .timeout = 120);

enum { SEEDS = 40 };

/* ---- promises ---- */

Test(passes, keep_their_promises_on_random_models)
{
    int fixed = 0, conversions = 0;
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        compile *c = compiled_to(pass_order, seed); /* each pass is verified */
        for (int t = 0; t < c->ir.tensors.count; t++)
            for (int a = 0; c->ir.tensors.item[t].fixed && a < c->ir.tensors.item[t].mesh->axes; a++)
                fixed += c->ir.tensors.item[t].fixed[a] != WEIR_AUTO;
        for (int n = 0; n < c->ir.node_count; n++)
            conversions += !c->ir.node[n].origin;
        compiled_free(c);
    }
    cr_expect_gt(fixed, SEEDS, "the models fix some layouts");
    cr_expect_gt(conversions, SEEDS, "and have conversions");
}

static ir_node *reader_of(compile *c)
{
    for (int n = 0; n < c->ir.node_count; n++)
        if (c->ir.node[n].origin && c->ir.node[n].in_count)
            return &c->ir.node[n];
    cr_assert_fail("no node reads");
    return NULL;
}

static pop *caller_of(compile *c)
{
    for (int i = 0; i < c->phys.op.count; i++)
        if (!c->phys.op.item[i].dead && c->phys.op.item[i].in_count)
            return &c->phys.op.item[i];
    cr_assert_fail("no call reads");
    return NULL;
}

static reg *read_register(compile *c)
{
    for (int r = 0; r < c->phys.reg.count; r++)
        if (c->phys.reg.item[r].readers.count)
            return &c->phys.reg.item[r];
    cr_assert_fail("no register is read");
    return NULL;
}

static void loses_an_input(compile *c)
{
    reader_of(c)->in[0] = c->ir.tensors.count;
}

static void has_an_output_of_another(compile *c)
{
    c->ir.tensors.item[reader_of(c)->out[0]].node++;
}

static void is_read_before_it_is_made(compile *c)
{
    ir_tensor *t = &c->ir.tensors.item[reader_of(c)->in[0]];
    t->node = c->ir.node_count - 1;
    t->update = -1;
}

static void has_no_signature(compile *c)
{
    reader_of(c)->signature_count = 0;
}

static void has_none_of_its_signatures(compile *c)
{
    reader_of(c)->choice[0] = reader_of(c)->signature_count;
}

static void has_no_layout(compile *c)
{
    c->ir.tensors.item[0].sbp[0] = WEIR_AUTO;
}

static void forgets_a_shards_reader(compile *c)
{
    const int of = ptensor_whole(&c->phys, ptensor_real(&c->phys, caller_of(c)->in[0]));
    c->phys.tensor.item[of].readers.count = 0;
}

static void makes_a_shard_elsewhere(compile *c)
{
    c->phys.tensor.item[caller_of(c)->out[0]].device++;
}

static void is_in_two_groups(compile *c)
{
    caller_of(c)->group++;
}

static void is_in_no_group(compile *c)
{
    c->phys.group.item[caller_of(c)->group].pops.count--;
}

static void has_another_phase(compile *c)
{
    c->phys.group.item[0].phase++;
}

static void forgets_a_registers_reader(compile *c)
{
    read_register(c)->readers.count--;
}

static void has_other_bytes(compile *c)
{
    c->phys.reg.item[0].slot_bytes++;
}

static void has_no_slot(compile *c)
{
    c->phys.reg.item[0].slots = 0;
}

static void has_the_same_priority(compile *c)
{
    c->phys.group.item[0].priority = c->phys.group.item[1].priority;
}

Test(passes, a_broken_promise_is_found)
{
    static const struct {
        const char *text;
        void (*breaks)(compile *c);
        bool (*last)(compile *c);
        verifier *verifies;
    } mutants[] = {
        {"loses_an_input", loses_an_input, pass_fold, verify_dtypes},
        {"has_an_output_of_another", has_an_output_of_another, pass_scale, verify_nodes},
        {"is_read_before_it_is_made", is_read_before_it_is_made, pass_box, verify_conversions},
        {"has_no_signature", has_no_signature, pass_rules, verify_rules},
        {"has_none_of_its_signatures", has_none_of_its_signatures, pass_shard, verify_layouts},
        {"has_no_layout", has_no_layout, pass_shard, verify_layouts},
        {"forgets_a_shards_reader", forgets_a_shards_reader, pass_lower, verify_calls},
        {"makes_a_shard_elsewhere", makes_a_shard_elsewhere, pass_lower, verify_calls},
        {"is_in_two_groups", is_in_two_groups, pass_group, verify_groups},
        {"is_in_no_group", is_in_no_group, pass_sequence, verify_groups},
        {"has_another_phase", has_another_phase, pass_fuse, verify_groups},
        {"forgets_a_registers_reader", forgets_a_registers_reader, pass_tie, verify_groups},
        {"has_other_bytes", has_other_bytes, pass_group, verify_groups},
        {"has_no_slot", has_no_slot, pass_slots, verify_slots},
        {"has_the_same_priority", has_the_same_priority, pass_order, verify_order},
    };
    for (size_t m = 0; m < sizeof mutants / sizeof *mutants; m++)
        for (uint64_t seed = 1; seed < SEEDS; seed += 2) {
            compile *c = compiled_to(mutants[m].last, seed);
            int at;
            mutants[m].breaks(c);
            cr_expect_not_null(mutants[m].verifies(c, &at), "%s, seed %lu", mutants[m].text, seed);
            compiled_free(c);
        }
}

static bool breaks_a_promise(compile *c)
{
    has_no_slot(c);
    return true;
}

Test(passes, a_broken_promise_is_an_error_that_names_the_pass)
{
    const compile_pass breaks[] = {{"breaks", breaks_a_promise, verify_slots}, {NULL}};
    compile *c = compiled_to(pass_slots, 1);
    c->opts.src = (weir_src){"model.c", 7};
    cr_expect(!passes_run(c, breaks));
    cr_expect_not_null(strstr(weir_error(), "model.c:7"), "%s", weir_error());
    cr_expect_not_null(strstr(weir_error(), "the pass breaks"), "%s", weir_error());
    compiled_free(c);
}

/* ---- group ---- */

/* Whether the group waits, in the same step, for nothing that is not done. */
static bool may_go(const compile *c, int g, const bool *done)
{
    const group *group_ = &c->phys.group.item[g];
    for (int i = 0; i < group_->reads.count; i++) {
        const reg *r = &c->phys.reg.item[group_->reads.item[i]];
        if (r->group >= 0 && r->group != g && !r->initial && !done[r->group])
            return false;
    }
    return true;
}

Test(passes, group_makes_no_circle)
{
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        compile *c = compiled_to(pass_group, seed);
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

/* ---- slots ---- */

static bool leaves_device(const compile *c, const reg *r)
{
    for (int i = 0; i < r->readers.count; i++)
        if (c->phys.group.item[r->readers.item[i]].device != r->device)
            return true;
    return false;
}

static bool is_fetched(const compile *c, const reg *r)
{
    for (int i = 0; i < r->readers.count; i++)
        if (c->phys.group.item[r->readers.item[i]].queue == PLAN_OUTSIDE)
            return true;
    return false;
}

static int written(const compile *c, const reg *r)
{
    return c->phys.group.item[r->group].micro ? c->micro / r->fill : 1;
}

Test(passes, slots_gives_two_to_what_moves_and_never_more_than_are_written_but_where_it_says_so)
{
    enum { SMALL_BYTES = 1 << 16 }; /* as the pass has it */
    int two = 0;
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        compile *c = compiled_to(pass_slots, seed);
        for (int i = 0; i < c->phys.reg.count; i++) {
            const reg *r = &c->phys.reg.item[i];
            cr_assert_geq(r->slots, 1, "seed %lu: register %d", seed, i);
            if (r->fixed || r->initial || r->group < 0)
                continue;
            const bool small = r->slot_bytes <= SMALL_BYTES && leaves_device(c, r);
            if (r->kind == PLAN_IO || small || (leaves_device(c, r) && written(c, r) > 1))
                cr_assert_geq(r->slots, 2, "seed %lu: register %d", seed, i);
            else if (!leaves_device(c, r) && r->kind != PLAN_TRANSFER && !is_fetched(c, r))
                cr_assert(r->slots <= written(c, r), "seed %lu: register %d has %d slots", seed, i, r->slots);
            two += r->slots > 1;
        }
        compiled_free(c);
    }
    cr_expect_gt(two, 0);
}

Test(passes, slots_leaves_alone_what_is_full_at_the_start)
{
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        compile *c = compiled_to(pass_group, seed);
        int *before = POOL_NEW(&c->pool, int, c->phys.reg.count + 1);
        for (int i = 0; i < c->phys.reg.count; i++)
            before[i] = c->phys.reg.item[i].slots;
        cr_assert(pass_slots(c));
        for (int i = 0; i < c->phys.reg.count; i++) {
            const reg *r = &c->phys.reg.item[i];
            if (r->fixed || r->initial || r->group < 0)
                cr_assert_eq(r->slots, before[i], "seed %lu: register %d", seed, i);
        }
        compiled_free(c);
    }
}
