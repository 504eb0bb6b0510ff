/* tests/support/sample_plan.c: see sample_plan.h. Everything is laid out one after the other, in the order of the
 * plan's rules: what an actor owns is added between two actors. */
#include "tests/support/sample_plan.h"

#include "graph/plan/form/build.h"

#include <stdlib.h>
#include <string.h>
#include <weir/op.h>

#define ROWS 8
#define COLS 32
#define TENSOR_BYTES (ROWS * COLS * 4)

typedef struct mix_attrs {
    int64_t axis;
    int64_t dims[2];
    double scale;
} mix_attrs;

static bool mix_infer(weir_op_args *args, char *error, size_t error_bytes)
{
    (void)error;
    (void)error_bytes;
    args->out[0] = args->in[0];
    return true;
}

static weir_status mix_kernel(const weir_kernel_args *args)
{
    (void)args;
    return WEIR_OK;
}

static int update_states(const weir_op_args *args, weir_type *states)
{
    states[0] = args->out[0];
    return 1;
}

static const weir_field mix_fields[] = {WEIR_FIELD_INT(mix_attrs, axis), WEIR_FIELD_INT(mix_attrs, dims),
                                        WEIR_FIELD_REAL(mix_attrs, scale)};

static const weir_op op_sample_mix = {.name = "sample_mix",
                                      .fields = mix_fields,
                                      .field_count = 3,
                                      .attrs_bytes = sizeof(mix_attrs),
                                      .in_min = 1,
                                      .in_max = 4,
                                      .out_count = 1,
                                      .infer = mix_infer,
                                      .kernel = {[WEIR_CPU] = mix_kernel},
                                      .accumulates = true};

static const weir_op op_sample_update = {.name = "sample_update",
                                         .in_min = 2,
                                         .in_max = 2,
                                         .out_count = 1,
                                         .infer = mix_infer,
                                         .states = update_states,
                                         .kernel = {[WEIR_CPU] = mix_kernel},
                                         .inplace = 1};

void sample_ops_register(void)
{
    weir_op_register(&op_sample_mix);
    weir_op_register(&op_sample_update);
}

/* ---- making one ---- */

typedef struct maker {
    plan_builder *builder;
    weir_plan *plan;     /* of the builder */
    uint32_t actor;      /* the one being made */
    uint32_t priority;
} maker;

static plan_str text(maker *m, const char *name)
{
    return plan_add_text(m->builder, name);
}

static void actor(maker *m, uint32_t queue, const char *name, uint32_t phase, uint32_t fires)
{
    m->actor = plan_add_actors(m->builder, (plan_actor){.queue = {queue},
                                                        .name = text(m, name),
                                                        .phase = phase,
                                                        .fires = fires,
                                                        .priority = m->priority++,
                                                        .ports = {m->plan->ports_count, 0},
                                                        .regsts = {m->plan->regsts_count, 0},
                                                        .kernels = {m->plan->kernels_count, 0},
                                                        .states = {m->plan->tensors_count, 0},
                                                        .temps = {m->plan->tensors_count, 0}});
}

static uint32_t tensor(maker *m, const char *name, uint32_t home, uint32_t owner, uint64_t offset)
{
    plan_tensor made = {.name = text(m, name),
                        .home = home,
                        .owner = owner,
                        .dtype = WEIR_F32,
                        .rank = 2,
                        .offset = offset,
                        .shape = {ROWS, COLS},
                        .global = {ROWS, COLS}};
    return plan_add_tensors(m->builder, made);
}

/* A register with one tensor, at the end of the space's arena. Returns the tensor. */
static uint32_t regst(maker *m, uint32_t producer, uint32_t space, const char *name, plan_regst made)
{
    made.producer.i = producer;
    made.space.i = space;
    made.fill = made.fill ? made.fill : 1;
    made.offset = m->plan->spaces[space].bytes;
    made.slot_bytes = TENSOR_BYTES;
    made.tensors = (plan_range){m->plan->tensors_count, 1};
    m->plan->spaces[space].bytes += made.slots * made.slot_bytes;
    uint32_t id = plan_add_regsts(m->builder, made);
    if (producer != PLAN_NONE)
        m->plan->actors[producer].regsts.count++;
    return tensor(m, name, PLAN_IN_REGST, id, 0);
}

/* A port to the register that `of` lies in. */
static plan_operand port(maker *m, uint32_t of, uint32_t hold)
{
    plan_port made = {.actor = {m->actor}, .regst = {m->plan->tensors[of].owner}, .hold = hold};
    m->plan->actors[m->actor].ports.count++;
    return (plan_operand){{of}, {plan_add_ports(m->builder, made)}};
}

static plan_operand own(uint32_t of)
{
    return (plan_operand){{of}, {PLAN_NONE}};
}

static plan_range operands(maker *m, const plan_operand *list, uint32_t count)
{
    plan_range range = {m->plan->operands_count, count};
    for (uint32_t i = 0; i < count; i++)
        plan_add_operands(m->builder, list[i]);
    return range;
}

static plan_range mix_words(maker *m)
{
    plan_range range = {m->plan->words_count, 4};
    plan_add_words(m->builder, (plan_word){.i = -1});
    plan_add_words(m->builder, (plan_word){.i = 3});
    plan_add_words(m->builder, (plan_word){.i = 1 << 20});
    plan_add_words(m->builder, (plan_word){.r = 0.125});
    return range;
}

static void kernel(maker *m, const char *op, const char *name, const plan_operand *in, uint32_t in_count,
                   const plan_operand *out, uint32_t out_count, plan_kernel made)
{
    made.actor.i = m->actor;
    made.op = text(m, op);
    made.name = text(m, name);
    made.file = text(m, "model.c");
    made.line = 40 + m->plan->kernels_count;
    made.in = operands(m, in, in_count);
    made.out = operands(m, out, out_count);
    if (!made.state.count)
        made.state = (plan_range){m->plan->operands_count, 0};
    if (!made.attrs.count)
        made.attrs = (plan_range){m->plan->words_count, 0};
    m->plan->actors[m->actor].kernels.count++;
    plan_add_kernels(m->builder, made);
}

#define KERNEL(m, op, name, in, out, ...)                                                                        \
    kernel(m, op, name, in, sizeof(in) / sizeof *(in), out, sizeof(out) / sizeof *(out),                         \
           (plan_kernel){.host = PLAN_NONE, __VA_ARGS__})

static void queues(maker *m)
{
    for (uint32_t d = 0; d < 2; d++) {
        plan_str name = text(m, d ? "cpu:1" : "cpu:0");
        plan_add_spaces(m->builder, (plan_space){.kind = WEIR_CPU, .index = d, .name = name, .bytes = 0});
        plan_add_queues(m->builder, (plan_queue){.space = {d}, .kind = PLAN_COMPUTE, .name = name});
    }
    plan_add_queues(m->builder, (plan_queue){.space = {0}, .kind = PLAN_OUTSIDE, .name = text(m, "outside")});
    m->plan->queues[0].workspace_bytes = m->plan->spaces[0].bytes = 2 * TENSOR_BYTES;
}

static uint32_t host(maker *m, const char *name, uint32_t kind)
{
    return plan_add_hosts(m->builder, (plan_host){.name = text(m, name), .kind = kind, .actor = {m->actor},
                                                  .file = text(m, "model.c"), .line = 7});
}

static void make_forward(maker *m, uint32_t micro, uint32_t h_slots, uint32_t *h, uint32_t *w)
{
    uint32_t constant = regst(m, PLAN_NONE, 0, "seed", (plan_regst){.kind = PLAN_ACTIVATION, .slots = 1, .initial = 1});
    plan_add_inits(m->builder, (plan_init){.tensor = {constant}, .kind = WEIR_INIT_VALUE, .a = 0.25});
    actor(m, 2, "x", PLAN_FORWARD, micro);
    uint32_t x = regst(m, m->actor, 0, "x", (plan_regst){.kind = PLAN_IO, .slots = 2});
    host(m, "x", PLAN_PUSH);

    /* The update's register comes first, because the forward pass reads it; its actor is patched in later. */
    *w = regst(m, PLAN_NONE, 0, "w", (plan_regst){.kind = PLAN_PARAMETER, .slots = 1, .initial = 1});
    actor(m, 0, "forward", PLAN_FORWARD, micro);
    *h = regst(m, m->actor, 0, "h", (plan_regst){.kind = PLAN_ACTIVATION, .slots = h_slots});
    uint32_t temp = tensor(m, "forward/product", PLAN_IN_TEMP, m->actor, TENSOR_BYTES);
    m->plan->actors[m->actor].temps = (plan_range){temp, 1};
    plan_operand in[] = {port(m, x, 1), port(m, *w, micro), port(m, constant, 1)};
    plan_operand middle[] = {own(temp)}, out[] = {own(*h)};
    KERNEL(m, "sample_mix", "forward/product", in, middle, .attrs = mix_words(m), .workspace_bytes = TENSOR_BYTES);
    KERNEL(m, "sample_mix", "forward/h", middle, out, .attrs = mix_words(m), .key = 0x123456789abcdef0);
}

static void make_loss(maker *m, uint32_t micro, uint32_t h, uint32_t *loss, uint32_t *dh)
{
    actor(m, 1, "labels", PLAN_FORWARD, micro);
    uint32_t labels = regst(m, m->actor, 1, "labels", (plan_regst){.kind = PLAN_IO, .slots = 2});
    plan_operand made[] = {own(labels)};
    plan_range words = {m->plan->words_count, 2 + WEIR_DIMS_MAX};
    int64_t typed[2 + WEIR_DIMS_MAX] = {WEIR_F32, 2, ROWS, COLS};
    for (uint32_t i = 0; i < words.count; i++)
        plan_add_words(m->builder, (plan_word){.i = typed[i]});
    uint32_t source = host(m, "labels", PLAN_SOURCE);
    kernel(m, "source", "labels", NULL, 0, made, 1, (plan_kernel){.host = source, .attrs = words});

    actor(m, 1, "loss", PLAN_FORWARD, micro);
    *loss = regst(m, m->actor, 1, "loss", (plan_regst){.kind = PLAN_IO, .slots = 2});
    *dh = regst(m, m->actor, 1, "dh", (plan_regst){.kind = PLAN_GRADIENT, .slots = 1});
    plan_operand in[] = {port(m, h, 1), port(m, labels, 1)}, out[] = {own(*loss)}, grad[] = {own(*dh)};
    KERNEL(m, "sample_mix", "loss", in, out, .attrs = mix_words(m));
    KERNEL(m, "sample_mix", "loss'", out, grad, .attrs = mix_words(m));
}

static void make_backward(maker *m, uint32_t micro, uint32_t h, uint32_t dh, uint32_t w)
{
    actor(m, 0, "backward", PLAN_BACKWARD, micro);
    uint32_t dw = regst(m, m->actor, 0, "dw", (plan_regst){.kind = PLAN_GRADIENT, .slots = 1, .fill = micro});
    plan_operand in[] = {port(m, h, 1), port(m, dh, 1)}, out[] = {own(dw)};
    KERNEL(m, "sample_mix", "backward", in, out, .attrs = mix_words(m), .accumulate = 1);

    actor(m, 0, "update", PLAN_UPDATE, 1);
    uint32_t moment = tensor(m, "w/m", PLAN_IN_STATE, m->actor, m->plan->spaces[0].bytes);
    m->plan->spaces[0].bytes += TENSOR_BYTES;
    m->plan->actors[m->actor].states = (plan_range){moment, 1};
    plan_add_inits(m->builder, (plan_init){.tensor = {moment}, .kind = WEIR_INIT_ZERO});
    m->plan->actors[m->actor].regsts = (plan_range){m->plan->tensors[w].owner, 1};
    m->plan->regsts[m->plan->tensors[w].owner].producer.i = m->actor;
    plan_operand from[] = {own(w), port(m, dw, 1)}, to[] = {own(w)}, state[] = {own(moment)};
    KERNEL(m, "sample_update", "w", from, to, .state = operands(m, state, 1));
}

weir_plan *sample_plan(uint32_t micro_batches, uint32_t h_slots)
{
    plan_builder *builder = plan_builder_new();
    maker m = {.builder = builder, .plan = plan_builder_plan(builder)};
    uint32_t h, w, loss, dh;
    sample_ops_register();
    m.plan->micro_batches = micro_batches;
    plan_add_limits(builder, (plan_limit){.bytes = 1 << 20, .whole = 1 << 21, .again = 2, .slots = 1, .longer = 0.25});
    m.plan->seed = 42;
    m.plan->name = text(&m, "sample \"plan\"");
    plan_add_programs(builder, (plan_program){text(&m, "main")});
    queues(&m);
    make_forward(&m, micro_batches, h_slots, &h, &w);
    make_loss(&m, micro_batches, h, &loss, &dh);
    make_backward(&m, micro_batches, h, dh, w);
    actor(&m, 2, "loss", PLAN_FORWARD, micro_batches);
    port(&m, loss, 1);
    host(&m, "loss", PLAN_PULL);
    plan_add_inits(builder, (plan_init){.tensor = {w}, .kind = WEIR_INIT_NORMAL, .a = 0.02, .key = UINT64_MAX});
    plan_add_shards(builder, (plan_tensor_id){w});
    plan_add_params(builder, (plan_param){.name = text(&m, "w"), .shards = {0, 1}});
    return plan_builder_finish(builder, NULL);
}

static void *array_copy(const void *from, size_t bytes)
{
    void *to = malloc(bytes + 1);
    if (to && bytes)
        memcpy(to, from, bytes);
    return to;
}

weir_plan *plan_copy(const weir_plan *plan)
{
    weir_plan *copy = array_copy(plan, sizeof *plan);
#define X(type, member) copy->member = array_copy(plan->member, plan->member##_count * sizeof(type));
    PLAN_ARRAY_LIST(X)
#undef X
    copy->bindings = NULL;
    return copy;
}
