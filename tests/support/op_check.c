/* op_check.c: see the header. */
#include "tests/support/op_check.h"

#include "graph/compile/ir/ir.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>
#include <weir/weir.h>

enum { STEPS = 2 };

/* One graph: the op between inputs and fetches, laid out by one signature (NULL: as the compiler likes). */
typedef struct trial {
    const kernel_check *c;
    const weir_signature *signature;
    int devices;
    weir_graph *graph;
    weir_tensor *out[8];
    weir_plan *plan;
} trial;

static void name_of(char name[16], const char *what, int index)
{
    snprintf(name, 16, "%s%d", what, index);
}

/* ---- the graph ---- */

static weir_tensor *make_input(const trial *t, int index)
{
    const weir_view *view = &t->c->in[index];
    char name[16];
    name_of(name, "in", index);
    weir_input_opts opts = {.size = sizeof opts, .src = WEIR_HERE, .name = name};
    for (int d = 0; d < view->shape.rank; d++)
        opts.shape[d] = view->shape.dim[d];
    weir_tensor *in = weir_input_at(t->graph, view->dtype, &opts);
    return t->signature ? weir_shard(in, .sbp = {t->signature->in[index]}) : in;
}

static void build(trial *t)
{
    char devices[24];
    weir_tensor *in[KERNEL_CHECK_MAX];
    t->graph = weir_graph_new("op_check");
    cr_assert_not_null(t->graph);
    snprintf(devices, sizeof devices, "cpu:0-%d", t->devices - 1);
    weir_mesh_new(t->graph, devices);
    for (int i = 0; i < t->c->in_count; i++)
        in[i] = make_input(t, i);
    weir_op_apply(&(weir_apply){.src = WEIR_HERE, .name = "tested", .op = t->c->op, .graph = t->graph, .in = in,
                                .in_count = t->c->in_count, .attrs = t->c->attrs}, t->out);
    for (int o = 0; o < t->c->op->out_count; o++) {
        char name[16];
        name_of(name, "out", o);
        weir_tensor *out = t->out[o];
        weir_fetch(t->signature ? weir_shard(out, .sbp = {t->signature->out[o]}) : out, .name = name);
    }
    cr_assert_null(weir_graph_mistake(t->graph), "%s", weir_graph_mistake(t->graph));
}

/* ---- the plan ---- */

static const char *text_of(const trial *t, char text[256])
{
    char one[8];
    size_t at = (size_t)snprintf(text, 256, "%s on %d devices,", t->c->op->name, t->devices);
    for (int i = 0; i < t->c->in_count && t->signature; i++)
        at += (size_t)snprintf(text + at, 256 - at, " %s", weir_sbp_text(t->signature->in[i], one));
    at += (size_t)snprintf(text + at, 256 - at, " ->");
    for (int o = 0; o < t->c->op->out_count && t->signature; o++)
        at += (size_t)snprintf(text + at, 256 - at, " %s", weir_sbp_text(t->signature->out[o], one));
    return text;
}

/* The operand must be a slice, of the size that a device of this number gets, exactly where it is to be split. */
static void check_operand(const trial *t, const plan_operand *operand, weir_sbp sbp, uint32_t device)
{
    char text[256];
    const plan_tensor *tensor = &t->plan->tensors[operand->tensor.i];
    for (uint32_t d = 0; d < tensor->rank; d++) {
        int64_t want = tensor->global[d];
        if (WEIR_IS_S(sbp) && WEIR_S_DIM(sbp) == (int)d)
            want = want / t->devices + (device < want % t->devices);
        cr_assert_eq(tensor->shape[d], want, "%s: %s lies otherwise", text_of(t, text),
                     plan_text(t->plan, tensor->name));
    }
}

static bool smaller(const weir_shape *shape, weir_sbp sbp, int devices)
{
    return WEIR_IS_S(sbp) && shape->dim[WEIR_S_DIM(sbp)] < devices;
}

/* Whether a split dimension is smaller than the number of devices: those that get nothing need no kernel. */
static bool some_are_empty(const trial *t)
{
    bool empty = false;
    for (int i = 0; i < t->c->in_count; i++)
        empty |= smaller(&t->c->in[i].shape, t->signature->in[i], t->devices);
    for (int o = 0; o < t->c->op->out_count; o++) {
        weir_type type = weir_tensor_type(t->out[o]);
        empty |= smaller(&type.shape, t->signature->out[o], t->devices);
    }
    return empty;
}

static void check_layout(const trial *t)
{
    const weir_plan *plan = t->plan;
    int kernels = 0;
    for (uint32_t k = 0; k < plan->kernels_count; k++) {
        const plan_kernel *kernel = &plan->kernels[k];
        if (strcmp(plan_text(plan, kernel->name), "tested"))
            continue;
        uint32_t queue = plan->actors[kernel->actor.i].queue.i;
        uint32_t device = plan->spaces[plan->queues[queue].space.i].index;
        for (uint32_t i = 0; i < kernel->in.count; i++)
            check_operand(t, &plan->operands[kernel->in.first + i], t->signature->in[i], device);
        for (uint32_t o = 0; o < kernel->out.count; o++)
            check_operand(t, &plan->operands[kernel->out.first + o], t->signature->out[o], device);
        kernels++;
    }
    char text[256];
    cr_assert(kernels == t->devices || (kernels > 0 && some_are_empty(t)), "%s: %d kernels", text_of(t, text), kernels);
}

/* ---- the run ---- */

static void push_inputs(const trial *t, weir_session *session)
{
    for (int i = 0; i < t->c->in_count; i++) {
        char name[16];
        name_of(name, "in", i);
        weir_array value = {t->c->in[i].data, t->c->in[i].dtype, t->c->in[i].shape};
        cr_assert_eq(weir_session_push(session, name, &value, 5000), WEIR_OK, "%s", weir_error());
    }
}

static void pull_outputs(const trial *t, weir_session *session, weir_view *out)
{
    for (int o = 0; o < t->c->op->out_count; o++) {
        char name[16];
        name_of(name, "out", o);
        weir_array value = {out[o].data, out[o].dtype, out[o].shape};
        cr_assert_eq(weir_session_pull(session, name, &value, 5000), WEIR_OK, "%s", weir_error());
    }
}

static void run_plan(const trial *t, weir_view *out)
{
    weir_session *session = weir_session_open(t->plan, .workers = 2);
    cr_assert_not_null(session, "%s", weir_error());
    cr_assert_eq(weir_session_start(session, STEPS), WEIR_OK, "%s", weir_error());
    for (int step = 0; step < STEPS; step++) {
        push_inputs(t, session);
        pull_outputs(t, session, out);
    }
    cr_assert_eq(weir_session_wait(session, 5000), WEIR_OK, "%s", weir_error());
    weir_session_close(session);
}

/* Fills `out` (allocated here) with the outputs of the last step. */
static void run(trial *t, weir_view *out)
{
    char text[256];
    build(t);
    t->plan = weir_compile(t->graph, .seed = 1);
    cr_assert_not_null(t->plan, "%s: %s", text_of(t, text), weir_error());
    if (t->signature)
        check_layout(t);
    for (int o = 0; o < t->c->op->out_count; o++)
        out[o] = kernel_view_new(weir_tensor_type(t->out[o]), KERNEL_GARBAGE);
    run_plan(t, out);
    weir_plan_free(t->plan);
    weir_graph_free(t->graph);
}

static void run_and_compare(trial *t, const weir_view *want, double tolerance)
{
    weir_view out[8];
    char text[256];
    run(t, out);
    for (int o = 0; o < t->c->op->out_count; o++) {
        for (int64_t i = 0; i < weir_shape_count(&out[o].shape); i++)
            cr_assert(kernel_near(kernel_at(&out[o], i), kernel_at(&want[o], i), tolerance),
                      "%s: output %d is %.9g at %ld, not %.9g", text_of(t, text), o, kernel_at(&out[o], i), (long)i,
                      kernel_at(&want[o], i));
        kernel_view_free(&out[o]);
    }
}

int op_check(const kernel_check *c, int devices, double tolerance)
{
    weir_view want[8];
    run(&(trial){.c = c, .devices = 1}, want);
    trial rules = {.c = c, .devices = 1};
    build(&rules);
    compile ir = {.graph = rules.graph, .micro = 1};
    cr_assert(ir_new(&ir) && pass_rules(&ir), "%s", weir_error());
    const ir_node *node = &ir.ir.node[rules.out[0]->node->id];
    int played = 0;
    for (int n = 1; n < node->signature_count; n++) {
        const weir_signature *s = &node->signature[n];
        if (s->granules && s->granules % devices)
            continue;
        run_and_compare(&(trial){.c = c, .signature = s, .devices = devices}, want, tolerance);
        played++;
    }
    for (int o = 0; o < c->op->out_count; o++)
        kernel_view_free(&want[o]);
    pool_free(&ir.pool);
    weir_graph_free(rules.graph);
    return played;
}
