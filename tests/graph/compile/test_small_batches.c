/* test_small_batches.c: work is shared by all devices of a mesh also where the batch has fewer rows than it has
 * devices.
 *
 * A split over one axis leaves less for the next: with as many rows as the data axis has devices, rows are no way to
 * share anything over the others. Two layers split by hand (as in a Megatron block), whose sums and gradients close
 * over the tensor axes, are trained on meshes of two and three axes with as many rows as the first has devices. No
 * device may be left without elements of a tensor that has enough of them, what is added up must be shared evenly, and
 * results must be those of one device.
 */
#include "graph/plan/form/plan.h"
#include "kernels/core/core.h"
#include "tests/support/run.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

enum { SEQ = 64, DIM = 64, STEPS = 2, DEVICES_MAX = 32 };

typedef struct small {
    int shape[WEIR_AXES_MAX];
    int rows;
} small;

static int devices_of(const small *c)
{
    return c->shape[0] * (c->shape[1] ? c->shape[1] : 1) * (c->shape[2] ? c->shape[2] : 1);
}

/* x + down(gelu(up(x))) twice; weights are split over every axis but the first, one after the other. */
static weir_graph *block(const small *c, bool alone)
{
    weir_graph *g = weir_graph_new("small");
    char devices[32];
    snprintf(devices, sizeof devices, "cpu:0-%d", alone ? 0 : devices_of(c) - 1);
    if (alone)
        weir_mesh_new(g, devices);
    else
        weir_mesh_new(g, devices, .shape = {c->shape[0], c->shape[1], c->shape[2]});
    weir_sbp axis2 = !alone && c->shape[2] ? S(1) : WEIR_AUTO, down2 = !alone && c->shape[2] ? S(0) : WEIR_AUTO;
    weir_sbp rows = alone ? WEIR_AUTO : S(0), up = alone ? WEIR_AUTO : S(1), down = alone ? WEIR_AUTO : S(0);
    weir_tensor *x = weir_input(g, WEIR_F32, {c->rows, SEQ, DIM}, .name = "x", .sbp = {rows});
    for (int i = 0; i < 2; i++)
        WEIR_ON(weir_tensor_mesh(x), .name = "h%d", i) {
            weir_tensor *h = weir_layernorm(x, .name = "ln");
            h = weir_gelu(weir_linear(h, 4 * DIM, .name = "up", .weight = {WEIR_AUTO, up, axis2}));
            x = weir_add(x, weir_linear(h, DIM, .name = "down", .weight = {WEIR_AUTO, down, down2}), .name = "add");
        }
    weir_tensor *loss = weir_mean(weir_mul(x, x), .name = "loss");
    weir_train(loss, weir_sgd(.lr = 0.1));
    weir_fetch(loss, .name = "loss");
    return g;
}

static weir_plan *plan_for(const small *c, bool alone)
{
    weir_graph *g = block(c, alone);
    weir_plan *plan = weir_compile(g, .seed = 3);
    cr_assert_not_null(plan, "%s", weir_error());
    weir_graph_free(g);
    return plan;
}

static int64_t elements(const plan_tensor *t, const int64_t dim[])
{
    int64_t count = 1;
    for (uint32_t d = 0; d < t->rank; d++)
        count *= dim[d];
    return count;
}

static const char *name_of(const small *c, char text[64])
{
    snprintf(text, 64, "%dx%dx%d, %d rows", c->shape[0], c->shape[1], c->shape[2], c->rows);
    return text;
}

static void expect_no_empty_shards(const weir_plan *plan, const small *c)
{
    char text[64];
    for (uint32_t t = 0; t < plan->tensors_count; t++) {
        const plan_tensor *tensor = &plan->tensors[t];
        cr_expect(elements(tensor, tensor->shape) > 0 || elements(tensor, tensor->global) < 4096,
                  "%s: %s has a shard of no elements", name_of(c, text), plan_text(plan, tensor->name));
    }
}

/* Additions that conversions make on each device. */
static void expect_even_sums(const weir_plan *plan, const small *c)
{
    int64_t sum[DEVICES_MAX] = {0}, most = 0, all = 0;
    char text[64];
    for (uint32_t k = 0; k < plan->kernels_count; k++) {
        const plan_kernel *kernel = &plan->kernels[k];
        if (strcmp(plan_text(plan, kernel->op), "box"))
            continue;
        const box_attrs *attrs = (const void *)(plan->words + kernel->attrs.first);
        const plan_tensor *out = &plan->tensors[plan->operands[kernel->out.first].tensor.i];
        if (elements(out, out->global) >= 4096)
            sum[plan->queues[plan->actors[kernel->actor.i].queue.i].space.i] +=
                (attrs->terms - 1) * elements(out, out->shape);
    }
    for (int d = 0; d < devices_of(c); d++) {
        most = sum[d] > most ? sum[d] : most;
        all += sum[d];
    }
    cr_expect(all > 0, "%s: nothing is added up", name_of(c, text));
    cr_expect(most * devices_of(c) <= all + all / 4, "%s: one device adds %ld of %ld elements", name_of(c, text),
              (long)most, (long)all);
}

static void expect_same_results(const weir_plan *plan, const small *c)
{
    char text[64];
    weir_plan *alone = plan_for(c, true);
    run one = run_plan(alone, STEPS, 1), many = run_plan(plan, STEPS, 2), again = run_plan(plan, STEPS, 1);
    run_near(&many, &one, 1e-4, name_of(c, text));
    run_near(&again, &many, 0, name_of(c, text));
    run_free(&one);
    run_free(&many);
    run_free(&again);
    weir_plan_free(alone);
}

static void works_evenly(small c)
{
    weir_plan *plan = plan_for(&c, false);
    expect_no_empty_shards(plan, &c);
    expect_even_sums(plan, &c);
    expect_same_results(plan, &c);
    weir_plan_free(plan);
}

/* A sum that is open on the axes behind the first, and closed for everybody there. */
static void closes_evenly(small c)
{
    char devices[32];
    weir_graph *g = weir_graph_new("closed");
    snprintf(devices, sizeof devices, "cpu:0-%d", devices_of(&c) - 1);
    weir_mesh_new(g, devices, .shape = {c.shape[0], c.shape[1], c.shape[2]});
    weir_tensor *x = weir_input(g, WEIR_F32, {c.rows, SEQ, DIM}, .name = "x");
    bool third = c.shape[2] > 0;
    weir_tensor *open = weir_shard(x, .sbp = {S(0), P, third ? P : WEIR_AUTO});
    weir_fetch(weir_relu(weir_shard(open, .sbp = {S(0), B, third ? B : WEIR_AUTO})), .name = "y");
    weir_plan *plan = weir_compile(g);
    cr_assert_not_null(plan, "%s", weir_error());
    expect_no_empty_shards(plan, &c);
    expect_even_sums(plan, &c);
    weir_plan_free(plan);
    weir_graph_free(g);
}

Test(small_batches, close_evenly, .timeout = 120)
{
    closes_evenly((small){{4, 4}, 4});
    closes_evenly((small){{2, 2, 2}, 2});
    closes_evenly((small){{4, 2, 2}, 4});
    closes_evenly((small){{2, 2, 2}, 4});
}

Test(small_batches, are_shared_evenly_over_two_axes, .timeout = 60)
{
    works_evenly((small){{4, 4}, 4});
    works_evenly((small){{2, 4}, 2});
    works_evenly((small){{4, 2}, 4});
    works_evenly((small){{2, 4}, 4});
    works_evenly((small){{4, 4}, 16});
    works_evenly((small){{4, 2}, 5});
}

Test(small_batches, are_shared_evenly_over_three_axes, .timeout = 60)
{
    works_evenly((small){{2, 2, 2}, 2});
    works_evenly((small){{4, 2, 2}, 4});
    works_evenly((small){{2, 2, 4}, 4});
}
