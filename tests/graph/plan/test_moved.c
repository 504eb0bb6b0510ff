/* test_moved.c: what a step moves, counted by hand. */
#include "graph/plan/show/moved.h"

#include <criterion/criterion.h>
#include <string.h>
#include <weir/weir.h>

enum { ROWS = 8, COLUMNS = 4, BYTES = ROWS * COLUMNS * 4 };

static weir_plan *compiled(weir_graph *g, int micro)
{
    weir_plan *plan = weir_compile(g, .micro_batches = micro);
    cr_assert_not_null(plan, "%s", weir_error());
    weir_graph_free(g);
    return plan;
}

/* The first kernel of this name on the device. */
static uint32_t kernel_of(const weir_plan *plan, const char *name, uint32_t device)
{
    for (uint32_t k = 0; k < plan->kernels_count; k++) {
        const plan_actor *actor = &plan->actors[plan->kernels[k].actor.i];
        if (!strcmp(plan_text(plan, plan->kernels[k].name), name) && plan->queues[actor->queue.i].space.i == device)
            return k;
    }
    cr_assert_fail("no kernel is called %s", name);
    return 0;
}

static void expect_moved(plan_moved got, uint64_t read, uint64_t written, uint64_t transferred)
{
    cr_expect_eq(got.read, read, "%lu read", (unsigned long)got.read);
    cr_expect_eq(got.written, written, "%lu written", (unsigned long)got.written);
    cr_expect_eq(got.transferred, transferred, "%lu transferred", (unsigned long)got.transferred);
}

/* Each device has half of the rows, and is to have half of the columns: it takes half of what it reads from the other. */
Test(moved, a_conversion_reads_what_it_needs, .timeout = 120)
{
    weir_graph *g = weir_graph_new("moved");
    weir_mesh_new(g, "cpu:0-1");
    weir_tensor *x = weir_relu(weir_input(g, WEIR_F32, {ROWS, COLUMNS}, .name = "x", .sbp = {S(0)}), .name = "relu");
    weir_fetch(weir_neg(weir_shard(x, .sbp = {S(1)}), .name = "neg"), .name = "y");
    weir_plan *plan = compiled(g, 1);
    expect_moved(plan_kernel_moved(plan, kernel_of(plan, "relu", 0)), BYTES / 2, BYTES / 2, 0);
    expect_moved(plan_kernel_moved(plan, kernel_of(plan, "relu>S(1)", 1)), BYTES / 2, BYTES / 2, BYTES / 4);
    weir_plan_free(plan);
}

/* A weight, its gradient and momentum; the kernel of the gradient adds to it from the second micro-batch on. */
Test(moved, states_and_sums_are_read_and_written, .timeout = 120)
{
    weir_graph *g = weir_graph_new("moved");
    weir_tensor *x = weir_input(g, WEIR_F32, {ROWS, COLUMNS}, .name = "x", .micro = true);
    weir_tensor *y = weir_linear(x, COLUMNS, .name = "line", .no_bias = true);
    weir_train(weir_mean(weir_mul(y, y)), weir_sgd(.lr = 0.1, .momentum = 0.9));
    weir_plan *plan = compiled(g, 3);
    const uint64_t weight = COLUMNS * COLUMNS * 4;
    uint32_t update = kernel_of(plan, "line/weight.update", 0);
    const plan_actor *actor = &plan->actors[plan->kernels[update].actor.i];
    expect_moved(plan_kernel_moved(plan, update), 3 * weight, 2 * weight, 0);
    expect_moved(plan_actor_moved(plan, plan->kernels[update].actor.i), 3 * weight, 2 * weight, 0);
    cr_expect_eq(actor->fires, 1);
    for (uint32_t k = 0; k < plan->kernels_count; k++) {
        plan_moved one = plan_kernel_moved(plan, k), all = plan_actor_moved(plan, plan->kernels[k].actor.i);
        if (!plan->kernels[k].accumulate)
            continue;
        expect_moved(one, 2 * BYTES + weight, weight, 0);
        cr_expect_geq(all.read, 3 * one.read);
    }
    weir_plan_free(plan);
}
