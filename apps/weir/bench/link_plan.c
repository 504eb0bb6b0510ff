/* apps/weir/bench/link_plan.c: see the header. */
#include "apps/weir/bench/link_plan.h"

#include "apps/weir/bench/timed.h"
#include "graph/plan/form/build.h"

/* ---- ops ---- */

typedef struct spin_attrs {
    int64_t us;
} spin_attrs;

static weir_status spin(const weir_kernel_args *args)
{
    const int64_t us = ((const spin_attrs *)args->attrs)->us;
    if (us)
        bench_spin(us);
    return WEIR_OK;
}

bool bench_link_infer(weir_op_args *args, char *error, size_t error_bytes)
{
    (void)args, (void)error, (void)error_bytes;
    return true;
}

bool bench_link_fits(const weir_op_args *args, char *error, size_t error_bytes)
{
    (void)args, (void)error, (void)error_bytes;
    return true;
}

#define SPIN_OP(text, ins, outs)                                                                                                               \
    {                                                                                                                                          \
        .name = text, .fields = spin_fields, .field_count = 1, .attrs_bytes = sizeof(spin_attrs), .in_min = ins, .in_max = ins,                \
        .out_count = outs, .infer = bench_link_infer, .fits = bench_link_fits, .kernel = {[WEIR_CPU] = spin}                                   \
    }

static const weir_field spin_fields[] = {WEIR_FIELD_INT(spin_attrs, us)};
const weir_op bench_link_give = SPIN_OP("bench_link_give", 0, 1), bench_link_pass = SPIN_OP("bench_link_pass", 1, 1),
              bench_link_take = SPIN_OP("bench_link_take", 1, 0);

static weir_status ops_register(void)
{
    if (weir_op_find(bench_link_give.name))
        return WEIR_OK;
    weir_status status = weir_op_register(&bench_link_give);
    status = status ? status : weir_op_register(&bench_link_pass);
    return status ? status : weir_op_register(&bench_link_take);
}

/* ---- plans ---- */

/* A device, its queue and its actor have the same number, the rank's; registers that of who makes them. */
static void add_device(plan_builder *builder, uint32_t rank)
{
    plan_str name = plan_add_text(builder, rank ? "cpu:1" : "cpu:0");
    plan_add_spaces(builder, (plan_space){.kind = WEIR_CPU, .index = rank, .name = name});
    plan_add_queues(builder, (plan_queue){.space = {rank}, .kind = PLAN_COMPUTE, .name = name});
}

/* A register of `bytes` with one tensor, at the start of the device's arena. */
static void add_regst(plan_builder *builder, uint32_t rank, size_t bytes, uint32_t slots, uint32_t initial)
{
    weir_plan *plan = plan_builder_plan(builder);
    uint32_t tensor = plan->tensors_count, regst = plan->regsts_count;
    plan->spaces[rank].bytes = slots * bytes;
    plan->actors[rank].regsts.count = 1;
    plan_add_regsts(builder, (plan_regst){.producer = {rank}, .space = {rank}, .slots = slots, .fill = 1,
                                          .initial = initial, .slot_bytes = bytes, .tensors = {tensor, 1}});
    plan_add_tensors(builder, (plan_tensor){.name = plan_add_text(builder, "bytes"), .home = PLAN_IN_REGST,
                                            .owner = regst, .dtype = WEIR_U8, .rank = 1,
                                            .shape = {(int64_t)bytes}, .global = {(int64_t)bytes}});
}

static plan_range add_attrs(plan_builder *builder, const weir_op *op, int64_t us)
{
    const plan_range words = {plan_builder_plan(builder)->words_count, op->attrs_bytes > 0};
    if (words.count)
        plan_add_words(builder, (plan_word)us);
    return words;
}

/* The actor of a rank: reads register `in`, makes register `out`; PLAN_NONE: it has none. Tensors have the numbers of
 * their registers. */
static void add_actor(plan_builder *builder, uint32_t rank, const weir_op *op, int64_t us, uint32_t in, uint32_t out)
{
    weir_plan *plan = plan_builder_plan(builder);
    uint32_t port = plan->ports_count, operand = plan->operands_count;
    uint32_t ins = in != PLAN_NONE, outs = out != PLAN_NONE;
    plan_str name = plan_add_text(builder, op->name);
    plan_add_actors(builder, (plan_actor){.queue = {rank}, .name = name, .fires = 1, .ports = {port, ins},
                                          .regsts = {plan->regsts_count, 0}, .kernels = {plan->kernels_count, 1},
                                          .states = {plan->tensors_count, 0}, .temps = {plan->tensors_count, 0}});
    if (ins) {
        plan_add_ports(builder, (plan_port){.actor = {rank}, .regst = {in}, .hold = 1});
        plan_add_operands(builder, (plan_operand){.tensor = {in}, .port = {port}});
    }
    if (outs)
        plan_add_operands(builder, (plan_operand){.tensor = {out}, .port = {PLAN_NONE}});
    plan_add_kernels(builder, (plan_kernel){.actor = {rank}, .op = name, .name = name, .host = PLAN_NONE,
                                            .attrs = add_attrs(builder, op, us),
                                            .in = {operand, ins}, .out = {operand + ins, outs}});
}

static plan_builder *builder_new(void)
{
    plan_builder *builder = plan_builder_new();
    if (!builder)
        return NULL;
    plan_builder_plan(builder)->micro_batches = 1;
    plan_add_programs(builder, (plan_program){plan_add_text(builder, "main")});
    add_device(builder, 0);
    add_device(builder, 1);
    return builder;
}

static weir_plan *builder_plan(plan_builder *builder)
{
    weir_plan *plan = plan_builder_finish(builder, NULL);
    if (plan && plan_validate(plan)) {
        weir_plan_free(plan);
        plan = NULL;
    }
    return plan;
}

weir_plan *bench_link_plan(const bench_link_shape *shape)
{
    plan_builder *builder = ops_register() ? NULL : builder_new();
    if (!builder)
        return NULL;
    if (shape->reversed) {
        add_actor(builder, 0, shape->second, shape->second_us, 0, PLAN_NONE);
        add_actor(builder, 1, shape->first, shape->first_us, PLAN_NONE, 0);
        add_regst(builder, 1, shape->bytes, shape->slots, 0);
        return builder_plan(builder);
    }
    add_actor(builder, 0, shape->first, shape->first_us, shape->back ? 1 : PLAN_NONE, 0);
    add_regst(builder, 0, shape->bytes, shape->slots, 0);
    add_actor(builder, 1, shape->second, shape->second_us, 0, shape->back ? 1 : PLAN_NONE);
    if (shape->back)
        add_regst(builder, 1, shape->bytes, 1, 1);
    return builder_plan(builder);
}
