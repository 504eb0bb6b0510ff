/* apps/weir/bench/spin_plan.c: see the header. */
#include "apps/weir/bench/spin_plan.h"

#include "apps/weir/bench/timed.h"

#include <stdio.h>
#include <string.h>

enum { ELEMENTS = 16, INPUT_SLOTS = 4 /* the source need not wake up in time */ };

/* ---- the op ---- */

typedef struct spin_attrs {
    int64_t us;
} spin_attrs;

static weir_status spin(const weir_kernel_args *args)
{
    bench_spin(((const spin_attrs *)args->attrs)->us);
    memcpy(args->out[0].data, args->in[0].data, (size_t)weir_shape_count(&args->in[0].shape) * sizeof(float));
    return WEIR_OK;
}

static bool spin_infer(weir_op_args *args, char *error, size_t error_bytes)
{
    (void)error, (void)error_bytes;
    args->out[0] = args->in[0];
    return true;
}

static void spin_signatures(const weir_op_args *args, weir_signature_list *list)
{
    for (int d = 0; d < args->in[0].shape.rank; d++) {
        weir_signature *s = weir_signature_new(list);
        s->in[0] = s->out[0] = WEIR_S(d);
    }
}

static const weir_field spin_fields[] = {WEIR_FIELD_INT(spin_attrs, us)};
static const weir_op spin_op = {.name = SPIN_OP, .fields = spin_fields, .field_count = 1, .attrs_bytes = sizeof(spin_attrs), .in_min = 1,
                                .in_max = 1, .out_count = 1, .infer = spin_infer, .signatures = spin_signatures, .kernel = {[WEIR_CPU] = spin}};

static weir_tensor *add_spin(weir_tensor *x, const char *name, int64_t us)
{
    return weir_op_apply(&(weir_apply){WEIR_HERE, name, &spin_op, weir_tensor_graph(x), &x, 1, &(spin_attrs){us}}, NULL);
}

/* ---- the plan ---- */

static weir_tensor *add_stage(weir_graph *g, const spin_shape *s, weir_tensor *x, int i)
{
    char device[32], name[32];
    snprintf(name, sizeof name, "spin%d", i);
    snprintf(device, sizeof device, s->parts ? "cpu:0-%d" : "cpu:%d", s->parts ? s->devices - 1 : i % s->devices);
    WEIR_ON(weir_mesh_new(g, device))
    {
        x = add_spin(x, name, s->us[i]);
        if (s->slots)
            weir_slots(x, s->slots);
        if (s->parts == SPIN_GATHERED)
            x = weir_shard(x, .sbp = {WEIR_B});
    }
    return x;
}

static weir_status give_zeros(void *ctx, const weir_view *value, int64_t step, int micro)
{
    (void)ctx, (void)step, (void)micro;
    memset(value->data, 0, (size_t)weir_shape_count(&value->shape) * sizeof(float));
    return WEIR_OK;
}

static weir_status drop(void *ctx, const weir_view *value, int64_t step, int micro)
{
    (void)ctx, (void)value, (void)step, (void)micro;
    return WEIR_OK;
}

weir_plan *spin_plan(const spin_shape *s, const char *name)
{
    if (!weir_op_find(spin_op.name) && weir_op_register(&spin_op))
        return NULL;
    weir_graph *g = weir_graph_new(name);
    weir_tensor *x = NULL;
    char device[32];
    snprintf(device, sizeof device, s->parts ? "cpu:0-%d" : "cpu:0", s->devices - 1);
    WEIR_ON(weir_mesh_new(g, device))
        x = weir_input(g, WEIR_F32, {ELEMENTS}, .name = "x", .source = give_zeros, .micro = s->micro > 1, .sbp = {s->parts ? WEIR_S(0) : WEIR_B});
    weir_slots(x, INPUT_SLOTS);
    for (int i = 0; i < s->stages; i++)
        x = add_stage(g, s, x, i);
    weir_fetch(x, .name = "y", .sink = drop);
    weir_plan *plan = weir_compile(g, .micro_batches = s->micro);
    weir_graph_free(g);
    return plan;
}
