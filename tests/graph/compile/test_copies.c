/* tests/graph/compile/test_copies.c: what accelerators and the host hand to each other goes through copies, in plans for
 * devices that nobody has.
 *
 * Graphs are laid out over fakes, or over fakes and CPUs, and compiled. Each rule of graph/compile/devices/copies.h is read off
 * the plan, which must be valid and live, alone and spread over ranks. Its results are found by running the same plan
 * with CPUs in the fakes' place: they must be bit for bit those of the graph on CPUs.
 */
#include "graph/compile/ir/ir.h"
#include "graph/plan/spread/spread.h"
#include "graph/plan/form/text.h"
#include "tests/support/byte_game.h"
#include "tests/support/compiled.h"
#include "tests/support/effort.h"
#include "tests/support/fake.h"
#include "tests/support/fakes.h"
#include "tests/support/folder.h"
#include "tests/support/proven.h"
#include "tests/support/run.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { STEPS = 2, MODELS = EFFORT(FULL(30, 10), 3, 2) };

static void with_fakes(void)
{
    mesh_takes_fakes = true;
}

TestSuite(copies, .init = with_fakes);

/* ---- what is read off a plan ---- */

static const plan_space *space_of_actor(const weir_plan *plan, uint32_t actor)
{
    return &plan->spaces[plan->queues[plan->actors[actor].queue.i].space.i];
}

static uint32_t queue_kind_of(const weir_plan *plan, uint32_t actor)
{
    return plan->queues[plan->actors[actor].queue.i].kind;
}

static const plan_space *space_of_operand(const weir_plan *plan, uint32_t o)
{
    const plan_tensor *tensor = &plan->tensors[plan->operands[o].tensor.i];
    return tensor->home == PLAN_IN_REGST ? &plan->spaces[plan->regsts[tensor->owner].space.i]
                                         : space_of_actor(plan, tensor->owner);
}

static bool is_op(const weir_plan *plan, const plan_kernel *k, const char *op)
{
    return !strcmp(plan_text(plan, k->op), op);
}

static uint32_t count_kernels(const weir_plan *plan, const char *op, uint32_t device, uint32_t queue)
{
    uint32_t count = 0;
    for (uint32_t k = 0; k < plan->kernels_count; k++)
        count += is_op(plan, &plan->kernels[k], op) && space_of_actor(plan, plan->kernels[k].actor.i)->kind == device &&
                 queue_kind_of(plan, plan->kernels[k].actor.i) == queue;
    return count;
}

static const plan_kernel *kernel_named(const weir_plan *plan, const char *name)
{
    for (uint32_t k = 0; k < plan->kernels_count; k++)
        if (!strcmp(plan_text(plan, plan->kernels[k].name), name))
            return &plan->kernels[k];
    cr_assert_fail("no kernel %s", name);
    return NULL;
}

/* A kernel of a compute queue of an accelerator has all its operands there. */
static void expect_apart(const weir_plan *plan, const plan_kernel *k)
{
    const plan_space *here = space_of_actor(plan, k->actor.i);
    uint32_t queue = queue_kind_of(plan, k->actor.i);
    const plan_range *range[2] = {&k->in, &k->out};
    for (int r = 0; r < 2; r++)
        for (uint32_t o = range[r]->first; o < range[r]->first + range[r]->count; o++) {
            const plan_space *lies = space_of_operand(plan, o);
            bool own = lies == here;
            bool host = lies->kind == WEIR_CPU || lies->kind == WEIR_PINNED || (own && lies->kind == WEIR_DISK);
            bool beside = lies->kind == WEIR_PINNED && lies->index == here->index;
            if (here->kind != WEIR_FAKE)
                cr_expect(host, "%s on %s reads or writes %s", plan_text(plan, k->name), plan_text(plan, here->name),
                          plan_text(plan, lies->name));
            else if (queue == PLAN_COMPUTE || queue == PLAN_COLLECTIVE)
                cr_expect(own, "%s on %s reads or writes %s", plan_text(plan, k->name), plan_text(plan, here->name),
                          plan_text(plan, lies->name));
            else
                cr_expect((r == 0) == (queue == PLAN_COPY_IN) ? beside : own, "%s copies %s", plan_text(plan, k->name),
                          plan_text(plan, lies->name));
        }
}

/* Everything but what a run of it shows. */
static void expect_sound(const weir_plan *plan, uint64_t seed)
{
    char why[256];
    uint64_t *kept = calloc(plan->spaces_count, sizeof *kept), *found = calloc(plan->spaces_count, sizeof *found);
    for (uint32_t k = 0; k < plan->kernels_count; k++)
        expect_apart(plan, &plan->kernels[k]);
    for (uint32_t h = 0; h < plan->hosts_count; h++)
        cr_expect_neq(space_of_actor(plan, plan->hosts[h].actor.i)->kind, WEIR_FAKE, "%s",
                      plan_text(plan, plan->hosts[h].name));
    for (uint32_t s = 0; s < plan->spaces_count; s++)
        cr_expect(plan->spaces[s].kind != WEIR_FAKE || plan_pinned_beside(plan, (plan_space_id){s}).i != PLAN_NONE);
    for (uint32_t p = 0; p < plan->params_count; p++)
        for (uint32_t i = 0; i < plan->params[p].shards.count; i++) {
            const plan_tensor *shard = &plan->tensors[plan->shards[plan->params[p].shards.first + i].i];
            uint32_t space = shard->home == PLAN_IN_REGST ? plan->regsts[shard->owner].space.i
                                                          : plan->queues[plan->actors[shard->owner].queue.i].space.i;
            cr_expect_neq(plan->spaces[space].kind, WEIR_PINNED, "%s", plan_text(plan, plan->params[p].name));
            kept[plan_snapshot_space(plan, (plan_space_id){space}).i] += plan_snapshot_of(plan, &plan->params[p], i);
        }
    cr_assert_eq(plan_snapshot_bytes(plan, found), WEIR_OK, "%s", weir_error());
    cr_expect_arr_eq(found, kept, plan->spaces_count * sizeof *kept, "bytes of snapshots");
    free(kept);
    free(found);
    cr_expect_eq(weir_plan_check(plan), WEIR_OK, "%s", weir_error());
    cr_expect(byte_game_all(plan, seed, 2, why), "%s", why);
    for (uint32_t ranks = 2; ranks < 4; ranks++) {
        weir_plan *spread = plan_spread(plan, ranks, 0);
        cr_assert_not_null(spread, "%s", weir_error());
        cr_expect_eq(weir_plan_check(spread), WEIR_OK, "%s", weir_error());
        for (uint32_t r = 0; r < ranks; r++) {
            weir_plan *part = plan_part(spread, r);
            cr_assert_not_null(part, "%s", weir_error());
            cr_expect_eq(plan_validate(part), WEIR_OK, "%s", weir_error());
            weir_plan_free(part);
        }
        weir_plan_free(spread);
    }
}

static void same_run(const weir_plan *plan, const weir_plan *cpu, double tolerance, const char *what)
{
    run want = run_plan(cpu, STEPS, 1);
    fake_open(NULL);
    run got = run_plan(plan, STEPS, 2);
    run_near(&got, &want, tolerance, what);
    run_free(&got);
    run_free(&want);
    fake_close_well();
}

/* ---- a GPT in every layout ---- */

static void is_the_same(struct fakes_pair pair, uint64_t seed, double tolerance)
{
    expect_sound(pair.plan, seed);
    same_run(pair.plan, pair.cpu, tolerance, pair.what);
    fakes_pair_free(&pair);
}

static void gpt_is_the_same(layout l, fakes_choice on)
{
    is_the_same(fakes_gpt_pair(l, on), 1, 0);
}

/* Whether it is left out: without FULL=1 each layout has two of four ways, and under a sanitizer one. */
static bool left_out(int which, int zero, int micro)
{
    const int kept = EFFORT(FULL(4, 2), 1, 1), way = 2 * zero + (micro > 1);
    return kept == 1 ? which % 4 != way : kept == 2 ? way % 2 != (which + zero) % 2 : false;
}

#define GPT(d, t, p)                                                            \
    Test(copies, gpt_dp##d##_tp##t##_pp##p, .timeout = 300)                     \
    {                                                                           \
        for (int zero = 0; zero < 2; zero++)                                    \
            for (int micro = 1; micro <= 4; micro *= 4)                         \
                if (!left_out(d + 2 * t + 3 * p, zero, micro))                  \
                    gpt_is_the_same((layout){d, t, p, micro, zero}, fakes_all); \
    }
GPT(1, 1, 1)
GPT(2, 1, 1)
GPT(1, 2, 1)
GPT(1, 1, 2)
#if EFFORT(1, 0, 0)
GPT(2, 2, 1)
GPT(2, 1, 2)
#endif
#if EFFORT(FULL(1, 0), 0, 0)
GPT(4, 1, 1)
GPT(1, 2, 2)
GPT(2, 2, 2)
#endif

#if EFFORT(1, 0, 0)
/* Half of the ways: so many devices' games take long. */
Test(copies, gpt_dp11_tp1_pp1, .timeout = 300)
{
    gpt_is_the_same((layout){11, 1, 1, 1, true}, fakes_all);
    if (FULL(true, false))
        gpt_is_the_same((layout){11, 1, 1, 4, false}, fakes_all);
}
#endif

/* The stages lie on different devices, so which kind one is changes no layout. */
Test(copies, gpt_starts_on_cpus_and_goes_on_on_accelerators, .timeout = 300)
{
    gpt_is_the_same((layout){1, 1, 2, 4, false}, fakes_second_half);
    gpt_is_the_same((layout){1, 1, 2, 1, true}, fakes_second_half);
}

/* ---- random graphs ---- */

static void model_is_the_same(uint64_t seed, fakes_choice on, double tolerance)
{
    is_the_same(fakes_model_pair(seed, on), seed, tolerance);
}

Test(copies, random_models_compute_the_same_bits, .timeout = 300)
{
    for (uint64_t seed = 0; seed < MODELS; seed++)
        model_is_the_same(seed, fakes_all, 0);
}

/* Meshes of different kinds share no device, so layouts may be chosen that add up in another order. */
Test(copies, random_models_compute_the_same_on_cpus_and_accelerators, .timeout = 300)
{
    for (uint64_t seed = 1000; seed < 1000 + MODELS; seed++)
        model_is_the_same(seed, fakes_odd, 1e-3);
}

/* ---- each rule ---- */

static weir_plan *compiled(weir_graph *g)
{
    weir_plan *plan = weir_compile(g, .seed = 3);
    cr_assert_not_null(plan, "%s", weir_error());
    weir_graph_free(g);
    expect_sound(plan, 3);
    return plan;
}

/* Copies in, copies out, conversions on accelerators, and beside them. */
static void expect_counts(const weir_plan *plan, uint32_t in, uint32_t out, uint32_t boxes, uint32_t beside)
{
    cr_expect_eq(count_kernels(plan, "copy", WEIR_FAKE, PLAN_COPY_IN), in, "%u copies in",
                 count_kernels(plan, "copy", WEIR_FAKE, PLAN_COPY_IN));
    cr_expect_eq(count_kernels(plan, "copy", WEIR_FAKE, PLAN_COPY_OUT), out, "%u copies out",
                 count_kernels(plan, "copy", WEIR_FAKE, PLAN_COPY_OUT));
    cr_expect_eq(count_kernels(plan, "box", WEIR_FAKE, PLAN_COMPUTE), boxes, "%u conversions there",
                 count_kernels(plan, "box", WEIR_FAKE, PLAN_COMPUTE));
    cr_expect_eq(count_kernels(plan, "box", WEIR_PINNED, PLAN_COMPUTE), beside, "%u conversions beside",
                 count_kernels(plan, "box", WEIR_PINNED, PLAN_COMPUTE));
}

Test(copies, what_is_pushed_and_pulled_passes_by, .timeout = 60)
{
    weir_graph *g = weir_graph_new("passes");
    weir_mesh_new(g, "fake:1");
    weir_tensor *x = weir_input(g, WEIR_F32, {64, 8}, .name = "x");
    weir_fetch(weir_gelu(x), .name = "y");
    weir_plan *plan = compiled(g);
    expect_counts(plan, 1, 1, 0, 0);
    cr_expect_eq(plan->spaces_count, 2);
    cr_expect_eq(plan->queues_count, 4, "to push and pull, to compute, to copy in, to copy out");
    for (uint32_t h = 0; h < plan->hosts_count; h++)
        cr_expect_str_eq(plan_text(plan, space_of_actor(plan, plan->hosts[h].actor.i)->name), "pinned:1");
    for (uint32_t r = 0; r < plan->regsts_count; r++)
        cr_expect_eq(plan->regsts[r].slots, 2, "the next is on its way while one is used");
    weir_plan_free(plan);
}

Test(copies, what_nobody_there_reads_stays_beside, .timeout = 60)
{
    weir_graph *g = weir_graph_new("beside");
    weir_mesh_new(g, "fake:0-1");
    weir_tensor *x = weir_input(g, WEIR_F32, {64, 8}, .name = "x", .sbp = {WEIR_S(0)});
    weir_fetch(x, .name = "y");
    weir_plan *plan = compiled(g);
    expect_counts(plan, 0, 0, 0, count_kernels(plan, "box", WEIR_PINNED, PLAN_COMPUTE));
    weir_plan_free(plan);
}

/* From the whole to a part of it on the same devices. */
Test(copies, a_conversion_of_what_is_there_stays_there, .timeout = 60)
{
    weir_graph *g = weir_graph_new("stays");
    weir_mesh_new(g, "fake:0-1");
    weir_tensor *x = weir_input(g, WEIR_F32, {64, 8}, .name = "x", .sbp = {WEIR_B});
    weir_tensor *y = weir_shard(weir_gelu(x), .sbp = {WEIR_B});
    weir_tensor *z = weir_gelu(weir_shard(y, .sbp = {WEIR_S(0)}));
    weir_fetch(weir_shard(z, .sbp = {WEIR_S(0)}), .name = "z");
    weir_plan *plan = compiled(g);
    expect_counts(plan, 2, 2, 2, count_kernels(plan, "box", WEIR_PINNED, PLAN_COMPUTE));
    weir_plan_free(plan);
}

static uint32_t count_collectives(const weir_plan *plan, uint32_t kind)
{
    uint32_t count = 0;
    for (uint32_t c = 0; c < plan->collectives_count; c++)
        count += plan->collectives[c].kind == kind;
    return count;
}

/* Scattered sums go from conversion to conversion on the accelerators: each device gives its terms, adds, and gives the
 * sum, which is taken to its place. */
Test(copies, a_sum_is_added_up_there, .timeout = 60)
{
    weir_graph *g = weir_graph_new("sum");
    weir_mesh_new(g, "fake:0-3");
    weir_tensor *x = weir_input(g, WEIR_F32, {64, 128}, .name = "x", .sbp = {WEIR_S(1)});
    weir_tensor *w = weir_param(g, WEIR_F32, {128, 96}, .name = "w", .sbp = {WEIR_S(0)}, .init = WEIR_NORMAL(1));
    weir_tensor *y = weir_shard(weir_matmul(x, w), .sbp = {WEIR_B});
    weir_tensor *z = weir_shard(weir_gelu(y), .sbp = {WEIR_B});
    weir_fetch(weir_shard(z, .sbp = {WEIR_S(0)}), .name = "z");
    weir_plan *plan = compiled(g);
    expect_counts(plan, 4, 4, 4 + 4, count_kernels(plan, "box", WEIR_PINNED, PLAN_COMPUTE));
    cr_expect_eq(plan->collectives_count, 2);
    cr_expect_eq(count_collectives(plan, PLAN_ALL_TO_ALL), 1);
    cr_expect_eq(count_collectives(plan, PLAN_ALL_GATHER), 1);
    weir_plan_free(plan);
}

/* From stage to stage each device gives to the one in its place, and what one device has goes to all. */
Test(copies, stages_send_and_broadcast, .timeout = 60)
{
    weir_graph *g = weir_graph_new("stages");
    weir_mesh *one = weir_mesh_new(g, "fake:0-1"), *two = weir_mesh_new(g, "fake:2-3"), *last = weir_mesh_new(g, "fake:4");
    weir_tensor *x = weir_input(g, WEIR_F32, {64, 8}, .name = "x", .sbp = {WEIR_S(0)}), *y = NULL, *z = NULL;
    WEIR_ON(one)
        y = weir_shard(weir_gelu(x), .sbp = {WEIR_S(0)});
    WEIR_ON(two)
        y = weir_shard(weir_gelu(weir_shard(y, .sbp = {WEIR_S(0)})), .sbp = {WEIR_S(0)});
    WEIR_ON(last)
        z = weir_gelu(y);
    WEIR_ON(two)
        z = weir_shard(weir_gelu(weir_shard(z, .sbp = {WEIR_B})), .sbp = {WEIR_B});
    WEIR_ON(two)
        weir_fetch(weir_shard(z, .sbp = {WEIR_S(0)}), .name = "z");
    weir_plan *plan = compiled(g);
    cr_expect_eq(count_collectives(plan, PLAN_SEND_RECV), 2, "to those in the same place");
    cr_expect_eq(count_collectives(plan, PLAN_ALL_TO_ALL), 1, "two give to one");
    cr_expect_eq(count_collectives(plan, PLAN_BROADCAST), 1, "one gives to two");
    weir_plan_free(plan);
}

static weir_status halve(const weir_kernel_args *args)
{
    const float *from = args->in[0].data;
    float *to = args->out[0].data;
    for (int i = 0; i < 64; i++)
        to[i] = from[i] / 2;
    return WEIR_OK;
}

/* Two readers of one value in the host's memory, and a function that reads and makes such. */
Test(copies, a_value_is_copied_once, .timeout = 60)
{
    weir_graph *g = weir_graph_new("once");
    weir_mesh_new(g, "fake:2");
    weir_tensor *y = weir_gelu(weir_input(g, WEIR_F32, {8, 8}, .name = "x"));
    weir_tensor *half = weir_call(halve, {y}, .name = "half", .dtype = WEIR_F32, .shape = {8, 8});
    weir_fetch(y, .name = "y");
    weir_fetch(half, .name = "half");
    weir_fetch(weir_gelu(half), .name = "z");
    weir_plan *plan = compiled(g);
    expect_counts(plan, 2, 2, 0, 0);
    const plan_kernel *call = kernel_named(plan, "half");
    cr_expect_eq(space_of_actor(plan, call->actor.i)->kind, WEIR_PINNED);
    cr_expect_eq(queue_kind_of(plan, call->actor.i), PLAN_IO_QUEUE);
    weir_plan_free(plan);
}

/* The node that is built last reads in an earlier phase than the one before. */
Test(copies, a_copy_belongs_to_the_phase_of_its_first_reader, .timeout = 60)
{
    weir_graph *g = weir_graph_new("phase");
    weir_mesh_new(g, "fake:0");
    weir_tensor *y = weir_gelu(weir_input(g, WEIR_F32, {8, 8}, .name = "x"));
    g->phase = PLAN_BACKWARD;
    weir_fetch(weir_call(halve, {y}, .name = "half", .dtype = WEIR_F32, .shape = {8, 8}), .name = "half");
    g->phase = PLAN_FORWARD;
    weir_fetch(y, .name = "y");
    weir_plan *plan = compiled(g);
    expect_counts(plan, 1, 1, 0, 0);
    cr_expect_eq(plan->actors[kernel_named(plan, "gelu.out")->actor.i].phase, PLAN_FORWARD);
    cr_expect_eq(plan->actors[kernel_named(plan, "half")->actor.i].phase, PLAN_BACKWARD);
    weir_plan_free(plan);
}

Test(copies, from_accelerators_to_cpus_and_back, .timeout = 60)
{
    weir_graph *g = weir_graph_new("back");
    weir_mesh *cpu = weir_mesh_new(g, "cpu:0-1"), *fake = weir_mesh_new(g, "fake:0-1");
    weir_tensor *x = weir_input(g, WEIR_F32, {64, 8}, .name = "x", .sbp = {WEIR_S(0)}), *y = NULL;
    WEIR_ON(fake)
        y = weir_gelu(x);
    WEIR_ON(cpu)
        y = weir_gelu(y);
    weir_fetch(y, .name = "y");
    weir_plan *plan = compiled(g);
    expect_counts(plan, 2, 2, 0, 2);
    for (uint32_t k = 0; k < plan->kernels_count; k++)
        cr_expect(space_of_actor(plan, plan->kernels[k].actor.i)->kind != WEIR_CPU ||
                  strcmp(plan_text(plan, plan->kernels[k].op), "copy"));
    weir_plan_free(plan);
}

static uint32_t count_actors(const weir_plan *plan, uint32_t queue)
{
    uint32_t count = 0;
    for (uint32_t a = 0; a < plan->actors_count; a++)
        count += queue_kind_of(plan, a) == queue;
    return count;
}

static char *shown(const weir_plan *plan, weir_status (*view)(const weir_plan *, FILE *))
{
    char *out = NULL;
    size_t bytes = 0;
    FILE *to = open_memstream(&out, &bytes);
    cr_assert_eq(view(plan, to), WEIR_OK, "%s", weir_error());
    fclose(to);
    return out;
}

/* Parameters that are split between steps are gathered in a step: by a few actors, rather than one for each weight and
 * bias. And the updates are no more actors than they need be. */
Test(copies, those_of_parameters_come_together, .timeout = 60)
{
    layout l = (layout){4, 1, 1, 1, true};
    weir_plan *plan = fakes_gpt(l, fakes_all, (weir_compile_opts){.seed = 0});
    cr_assert_not_null(plan, "%s", weir_error());
    uint32_t taken = 0;
    for (uint32_t m = 0; m < plan->moves_count; m++)
        taken += plan->moves[m].to == 0;
    cr_expect_gt(taken, 3 * 2 * 60, "gradients and parameters of three other devices");
    cr_expect_lt(10 * plan->collectives_count, taken, "%u", plan->collectives_count);
    uint32_t most = 0;
    for (uint32_t k = 0; k < plan->kernels_count; k++)
        most = plan->kernels[k].out.count > most ? plan->kernels[k].out.count : most;
    cr_expect_gt(most, 8, "as many outputs as any other kernel may have");
    free(shown(plan, weir_plan_show));
    cr_expect_eq(count_actors(plan, PLAN_COLLECTIVE), 4 * plan->collectives_count);
    cr_expect_lt(count_actors(plan, PLAN_COMPUTE), 4 * 30);
    weir_plan_free(plan);
}

/* Collectives of a step that trains twelve products of 4 MiB of weights on two devices. */
static uint32_t collectives_of_training(const char *devices)
{
    weir_graph *g = weir_graph_new("deep");
    weir_mesh_new(g, devices);
    weir_tensor *x = weir_input(g, WEIR_F32, {1 << 16, 1024}, .name = "x", .sbp = {S(0)});
    weir_tensor *labels = weir_input(g, WEIR_I32, {1 << 16}, .name = "labels", .sbp = {S(0)});
    for (int i = 0; i < 12; i++)
        x = weir_relu(weir_linear(x, 1024));
    weir_train(weir_cross_entropy(x, labels), weir_sgd(.lr = 0.1));
    weir_plan *plan = weir_compile(g, .seed = 0);
    cr_assert_not_null(plan, "%s", weir_error());
    weir_graph_free(g);
    uint32_t count = plan->collectives_count;
    weir_plan_free(plan);
    return count;
}

Test(copies, among_cards_gradients_travel_in_larger_buckets, .timeout = 60)
{
    unproven();
    uint32_t fakes = collectives_of_training("fake:0-1"), cards = collectives_of_training("cuda:0-1");
    cr_expect_gt(fakes, 20, "%u: one for each 4 MiB, there and back", fakes);
    cr_expect_leq(cards, fakes / 4, "%u, and %u on fakes", cards, fakes);
}

Test(copies, a_graph_without_accelerators_is_left_as_it_is, .timeout = 60)
{
    for (uint64_t seed = 0; seed < 5; seed++) {
        compile *c = compiled_to(pass_box, seed);
        const ir_graph before = c->ir;
        cr_assert(pass_copies(c));
        cr_expect(!memcmp(&before, &c->ir, sizeof before));
        compiled_free(c);
    }
}

/* ---- what is shown ---- */

static void expect_shown(const char *view, const char *part)
{
    cr_expect(strstr(view, part), "\"%s\" is not in\n%s", part, view);
}

/* Four micro-batches of 64 x 8 values come and go. */
Test(copies, are_shown_with_their_bytes, .timeout = 60)
{
    weir_graph *g = weir_graph_new("shown");
    weir_mesh_new(g, "fake:0");
    weir_fetch(weir_gelu(weir_input(g, WEIR_F32, {64, 8}, .name = "x", .micro = true)), .name = "y");
    weir_plan *plan = weir_compile(g, .micro_batches = 4);
    cr_assert_not_null(plan, "%s", weir_error());
    char *show = shown(plan, weir_plan_show), *json = shown(plan, weir_plan_json), *dot = shown(plan, weir_plan_dot);
    expect_shown(show, "accelerators, a step: 4 copies in, 8.0 KiB; 4 copies out, 8.0 KiB\n");
    expect_shown(show, "copy in fake:0    fake:0    copy in        1        1               4      8.0 KiB  8.0 KiB");
    expect_shown(show, "copy out fake:0   fake:0    copy out       1        1               4      8.0 KiB  8.0 KiB");
    expect_shown(show, "x.in ");
    expect_shown(show, "gelu.out ");
    expect_shown(json, "\"copy in fake:0\"");
    expect_shown(json, "\"pinned:0\"");
    expect_shown(dot, "gelu.out");
    free(show);
    free(json);
    free(dot);
    weir_plan_free(plan);
    weir_graph_free(g);
}

/* ---- memory ---- */

static uint64_t bytes_of_kind(const weir_plan *plan, uint32_t kind, uint32_t mem)
{
    uint64_t sum = 0, bytes[PLAN_MEMS];
    for (uint32_t s = 0; s < plan->spaces_count; s++)
        if (plan->spaces[s].kind == kind) {
            plan_bytes_by_kind(plan, (plan_space_id){s}, bytes);
            sum += bytes[mem];
        }
    return sum;
}

Test(copies, memory_is_counted_where_it_is, .timeout = 120)
{
    layout l = (layout){2, 1, 1, 2, false};
    weir_plan *cpu = fakes_gpt(l, NULL, (weir_compile_opts){.snapshot = true});
    weir_plan *plan = fakes_gpt(l, fakes_all, (weir_compile_opts){.snapshot = true});
    cr_assert_not_null(plan, "%s", weir_error());
    const uint32_t same[] = {PLAN_PARAMETER, PLAN_STATE, PLAN_KEPT, PLAN_COPY};
    for (size_t i = 0; i < sizeof same / sizeof *same; i++) {
        cr_expect_eq(bytes_of_kind(plan, WEIR_FAKE, same[i]), bytes_of_kind(cpu, WEIR_CPU, same[i]), "%s",
                     mem_text(same[i]));
        cr_expect_eq(bytes_of_kind(plan, WEIR_PINNED, same[i]), 0, "%s", mem_text(same[i]));
    }
    cr_expect_gt(bytes_of_kind(plan, WEIR_PINNED, PLAN_TRANSFER), 0);
    cr_expect_eq(bytes_of_kind(plan, WEIR_FAKE, PLAN_IO), 0);
    cr_expect_eq(bytes_of_kind(plan, WEIR_PINNED, PLAN_IO), bytes_of_kind(cpu, WEIR_CPU, PLAN_IO));
    cr_expect_eq(bytes_of_kind(plan, WEIR_FAKE, PLAN_SNAPSHOT), 0, "it is to be written by the host");
    cr_expect_eq(bytes_of_kind(plan, WEIR_PINNED, PLAN_SNAPSHOT), bytes_of_kind(cpu, WEIR_CPU, PLAN_SNAPSHOT));
    cr_expect_gt(bytes_of_kind(plan, WEIR_PINNED, PLAN_SNAPSHOT), 0);
    weir_plan_free(cpu);
    weir_plan_free(plan);
}

static uint64_t largest(const weir_plan *plan, uint32_t kind)
{
    uint64_t most = 0;
    for (uint32_t s = 0; s < plan->spaces_count; s++)
        if (plan->spaces[s].kind == kind && plan->spaces[s].bytes > most)
            most = plan->spaces[s].bytes;
    return most;
}

/* Tensors that forward made wait on the disk, and pass through the memory beside on their way. */
static void limited_is_the_same(layout l)
{
    char limit[32], disk[300];
    snprintf(disk, sizeof disk, "disk:%s", folder_path("."));
    weir_plan *cpu = fakes_gpt(l, NULL, (weir_compile_opts){.seed = 0});
    cr_assert_null(fakes_gpt(l, fakes_all, (weir_compile_opts){.memory = "1", .offload = disk}));
    const char *said = strstr(weir_error(), "would do is ");
    cr_assert_not_null(said, "%s", weir_error());
    snprintf(limit, sizeof limit, "%llu", strtoull(said + 12, NULL, 10));
    weir_plan *plan = fakes_gpt(l, fakes_all, (weir_compile_opts){.memory = limit, .offload = disk});
    cr_assert_not_null(plan, "%s", weir_error());
    cr_expect_leq(largest(plan, WEIR_FAKE), strtoull(limit, NULL, 10));
    cr_expect_lt(largest(plan, WEIR_FAKE), largest(cpu, WEIR_CPU));
    cr_expect_gt(largest(plan, WEIR_DISK), 0, "nothing waits on the disk");
    expect_sound(plan, 5);
    same_run(plan, cpu, 0, "with a limit");
    weir_plan_free(plan);
    weir_plan_free(cpu);
}

Test(copies, a_limit_is_one_of_the_accelerator, .timeout = 300, .fini = folder_remove)
{
    folder_make();
    group_own_bytes = 4096;
    limited_is_the_same((layout){1, 1, 1, 1, false});
#if EFFORT(1, 0, 0)
    limited_is_the_same((layout){1, 1, 2, 4, false});
#endif
}

/* ---- what is refused ---- */

static void expect_refused(weir_plan *plan, uint32_t *field, uint32_t value, const char *why)
{
    uint32_t was = *field;
    *field = value;
    cr_expect_eq(plan_validate(plan), WEIR_E_PLAN, "lacks: %s", why);
    cr_expect(strstr(weir_error(), why), "'%s' lacks '%s'", weir_error(), why);
    *field = was;
    cr_assert_eq(plan_validate(plan), WEIR_OK, "%s", weir_error());
}

static uint32_t queue_of_kind(const weir_plan *plan, uint32_t kind, uint32_t device, uint32_t index)
{
    for (uint32_t q = 0; q < plan->queues_count; q++) {
        const plan_space *space = &plan->spaces[plan->queues[q].space.i];
        if (plan->queues[q].kind == kind && space->kind == device && space->index == index)
            return q;
    }
    cr_assert_fail("no such queue");
    return 0;
}

Test(copies, nothing_else_crosses, .timeout = 60)
{
    weir_graph *g = weir_graph_new("crosses");
    weir_mesh_new(g, "fake:0-1");
    weir_tensor *x = weir_input(g, WEIR_F32, {64, 8}, .name = "x", .sbp = {WEIR_S(0)});
    weir_fetch(weir_gelu(x), .name = "y");
    weir_plan *plan = compiled(g);
    uint32_t compute = queue_of_kind(plan, PLAN_COMPUTE, WEIR_FAKE, 1);
    uint32_t in = queue_of_kind(plan, PLAN_COPY_IN, WEIR_FAKE, 1), out = queue_of_kind(plan, PLAN_COPY_OUT, WEIR_FAKE, 1);
    uint32_t beside = queue_of_kind(plan, PLAN_COMPUTE, WEIR_PINNED, 0);
    uint32_t other = queue_of_kind(plan, PLAN_COPY_IN, WEIR_FAKE, 0);
    uint32_t outside = queue_of_kind(plan, PLAN_OUTSIDE, WEIR_PINNED, 0);
    for (uint32_t k = 0; k < plan->kernels_count; k++) {
        plan_actor *actor = &plan->actors[plan->kernels[k].actor.i];
        uint32_t queue = actor->queue.i;
        actor->priority += 100; /* none like it on any queue */
        if (queue == in) {
            expect_refused(plan, &actor->queue.i, compute, "which a queue of fake:1 does not reach");
            expect_refused(plan, &actor->queue.i, out, "it copies the other way than its queue is for");
            expect_refused(plan, &actor->queue.i, other, "lies in pinned:1, which a queue of fake:0 does not reach");
            expect_refused(plan, &actor->queue.i, beside, "lies in fake:1, which a queue of pinned:0 does not reach");
        } else if (queue == out) {
            expect_refused(plan, &actor->queue.i, compute, "lies in pinned:1, which a queue of fake:1 does not reach");
            expect_refused(plan, &actor->queue.i, in, "it copies the other way than its queue is for");
        } else if (queue == compute) {
            expect_refused(plan, &actor->queue.i, in, "only copies run on a queue for them");
            expect_refused(plan, &actor->queue.i, beside, "does not reach");
        } else if (queue == beside) {
            expect_refused(plan, &actor->queue.i, compute, "which a queue of fake:1 does not reach");
        }
    }
    expect_refused(plan, &plan->queues[compute].kind, PLAN_IO_QUEUE, "the host's functions cannot run on fake:1");
    expect_refused(plan, &plan->queues[outside].kind, PLAN_COPY_IN, "only accelerators have such queues, pinned:0");
    weir_plan_free(plan);
}

Test(copies, the_host_pulls_nothing_from_an_accelerator, .timeout = 60)
{
    weir_graph *g = weir_graph_new("pulls");
    weir_mesh_new(g, "fake:0");
    weir_fetch(weir_gelu(weir_input(g, WEIR_F32, {64, 8}, .name = "x")), .name = "y");
    weir_plan *plan = compiled(g);
    const plan_kernel *gelu = kernel_named(plan, "gelu");
    uint32_t made = plan->tensors[plan->operands[gelu->out.first].tensor.i].owner;
    for (uint32_t h = 0; h < plan->hosts_count; h++)
        if (plan->hosts[h].kind == PLAN_PULL)
            expect_refused(plan, &plan->ports[plan->actors[plan->hosts[h].actor.i].ports.first].regst.i, made,
                           "lies in fake:0, which the host does not reach");
    weir_plan_free(plan);
}

Test(copies, fakes_are_for_tests, .timeout = 60)
{
    weir_graph *g = weir_graph_new("named");
    cr_expect_eq(weir_mesh_size(weir_mesh_new(g, "fake:0-3")), 4);
    cr_expect_null(weir_graph_mistake(g));
    weir_mesh_new(g, "pinned:0");
    cr_expect_not_null(strstr(weir_graph_mistake(g), "\"pinned:0\" is not a list of devices"));
    weir_graph_free(g);
    mesh_takes_fakes = false;
    g = weir_graph_new("not named");
    weir_mesh_new(g, "fake:0-3");
    cr_expect_not_null(strstr(weir_graph_mistake(g), "\"fake:0-3\" is not a list of devices"));
    weir_graph_free(g);
}
