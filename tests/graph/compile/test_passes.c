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

/* ---- shard ---- */

Test(passes, shard_gives_every_node_one_of_its_signatures_and_every_tensor_what_its_maker_makes)
{
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        compile *c = compiled_to(pass_shard, seed);
        for (int n = 0; n < c->ir.node_count; n++) {
            const ir_node *node = &c->ir.node[n];
            for (int axis = 0; axis < node->mesh->axes; axis++) {
                cr_assert(node->choice[axis] >= 0 && node->choice[axis] < node->signature_count, "seed %lu: %s", seed,
                          node->name);
                for (int o = 0; o < node->out_count; o++)
                    cr_assert_eq(c->ir.tensors.item[node->out[o]].sbp[axis], node_out_sbp(node, o, axis),
                                 "seed %lu: output %d of %s", seed, o, node->name);
            }
        }
        for (int t = 0; t < c->ir.tensors.count; t++)
            for (int axis = 0; axis < c->ir.tensors.item[t].mesh->axes; axis++)
                cr_assert_neq(c->ir.tensors.item[t].sbp[axis], WEIR_AUTO, "seed %lu: tensor %d", seed, t);
        compiled_free(c);
    }
}

Test(passes, shard_keeps_what_the_user_fixed)
{
    int kept = 0;
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        compile *c = compiled_to(pass_shard, seed);
        for (int t = 0; t < c->ir.tensors.count; t++) {
            const ir_tensor *tensor = &c->ir.tensors.item[t];
            for (int axis = 0; tensor->fixed && axis < tensor->mesh->axes; axis++) {
                if (tensor->fixed[axis] == WEIR_AUTO || tensor->mesh->shape[axis] == 1)
                    continue;
                cr_assert_eq(tensor->sbp[axis], tensor->fixed[axis], "seed %lu: %s, axis %d", seed, tensor->name, axis);
                kept++;
            }
        }
        compiled_free(c);
    }
    cr_expect_gt(kept, SEEDS, "the models fix some");
}

/* ---- box ---- */

Test(passes, box_leaves_no_input_that_lies_otherwise_than_it_is_read)
{
    int conversions = 0;
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        compile *c = compiled_to(pass_box, seed);
        for (int n = 0; n < c->ir.node_count; n++) {
            const ir_node *node = &c->ir.node[n];
            conversions += !node->origin;
            for (int i = 0; i < node->in_count && node->origin; i++) {
                const ir_tensor *from = &c->ir.tensors.item[node->in[i]];
                weir_sbp read[WEIR_AXES_MAX] = {0};
                for (int axis = 0; axis < node->mesh->axes; axis++)
                    read[axis] = node_in_sbp(node, i, axis);
                cr_assert_eq(from->mesh, node->mesh, "seed %lu: input %d of %s", seed, i, node->name);
                cr_assert(sbp_equal(node->mesh, from->sbp, read), "seed %lu: input %d of %s", seed, i, node->name);
            }
        }
        compiled_free(c);
    }
    cr_expect_gt(conversions, SEEDS);
}

Test(passes, box_puts_every_node_behind_those_it_reads_from)
{
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        compile *c = compiled_to(pass_box, seed);
        for (int n = 0; n < c->ir.node_count; n++)
            for (int i = 0; i < c->ir.node[n].in_count; i++) {
                const ir_tensor *from = &c->ir.tensors.item[c->ir.node[n].in[i]];
                cr_assert(from->node < n || from->update >= 0, "seed %lu: node %d reads from %d", seed, n, from->node);
            }
        compiled_free(c);
    }
}

/* ---- group ---- */

Test(passes, group_puts_every_kernel_call_into_one_group_of_its_device_phase_program_rate_and_level)
{
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        compile *c = compiled_to(pass_group, seed);
        int found = 0, living = 0;
        for (int g = 0; g < c->phys.group.count; g++) {
            const group *group_ = &c->phys.group.item[g];
            for (int i = 0; i < group_->pops.count; i++, found++) {
                const pop *op = &c->phys.op.item[group_->pops.item[i]];
                cr_assert(!op->dead && op->group == g && op->device == group_->device && op->phase == group_->phase &&
                              op->micro == group_->micro && op->level == group_->level &&
                              c->ir.node[op->node].program == group_->program,
                          "seed %lu: group %d", seed, g);
                cr_assert(i == 0 || group_->pops.item[i - 1] < group_->pops.item[i], "seed %lu: order", seed);
            }
        }
        for (int i = 0; i < c->phys.op.count; i++)
            living += !c->phys.op.item[i].dead;
        cr_assert_eq(found, living, "seed %lu", seed);
        compiled_free(c);
    }
}

static const ptensor *real_tensor(const compile *c, int id)
{
    const ptensor *t = &c->phys.tensor.item[id];
    while (t->alias >= 0)
        t = &c->phys.tensor.item[t->alias];
    return t;
}

static bool list_has(const int *item, int count, int value)
{
    for (int i = 0; i < count; i++)
        if (item[i] == value)
            return true;
    return false;
}

Test(passes, group_gives_a_register_to_what_leaves_its_group_and_to_nothing_else_that_is_made)
{
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        compile *c = compiled_to(pass_group, seed);
        for (int i = 0; i < c->phys.op.count; i++) {
            const pop *op = &c->phys.op.item[i];
            for (int k = 0; k < op->in_count && !op->dead; k++) {
                const ptensor *t = real_tensor(c, op->in[k]);
                if (t->reg < 0) {
                    cr_assert(t->producer >= 0 && c->phys.op.item[t->producer].group == op->group, "seed %lu", seed);
                    continue;
                }
                const reg *r = &c->phys.reg.item[t->reg];
                const group *reader = &c->phys.group.item[op->group];
                cr_assert(r->group == op->group || list_has(r->readers.item, r->readers.count, op->group),
                          "seed %lu: register %d does not know its reader", seed, t->reg);
                cr_assert(r->group == op->group || list_has(reader->reads.item, reader->reads.count, t->reg),
                          "seed %lu: a reader does not know its register %d", seed, t->reg);
            }
        }
        compiled_free(c);
    }
}

Test(passes, group_lays_the_tensors_of_a_register_one_behind_the_other)
{
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        compile *c = compiled_to(pass_group, seed);
        for (int r = 0; r < c->phys.reg.count; r++) {
            const reg *reg_ = &c->phys.reg.item[r];
            uint64_t end = 0;
            for (int i = 0; i < reg_->tensors.count; i++) {
                const ptensor *t = &c->phys.tensor.item[reg_->tensors.item[i]];
                cr_assert(t->reg == r && t->device == reg_->device && t->offset == end, "seed %lu: register %d", seed, r);
                cr_assert(t->producer < 0 || c->phys.op.item[t->producer].group == reg_->group, "seed %lu", seed);
                end += t->bytes;
            }
            cr_assert_eq(reg_->slot_bytes, end, "seed %lu: register %d", seed, r);
            cr_assert(!reg_->alone || reg_->tensors.count == 1, "seed %lu: register %d", seed, r);
        }
        compiled_free(c);
    }
}

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
