/* actors/measure/hand.c: actors without kernels pass tokens: eight on one worker, and two on two. */
#include "actors/measure/measure.h"

#include <weir/session.h>

#include "graph/base/error.h"
#include "graph/plan/form/build.h"
#include "transport/mail/park.h"

#include <stdio.h>

enum { CHAIN = 8, SLOTS = 4, STEPS = 1000, ROUNDS = 15, PROBES = 5, NS_PS = 1000 };

static void add_device(plan_builder *builder, uint32_t index)
{
    const plan_str name = plan_add_text(builder, index ? "cpu:1" : "cpu:0");
    plan_add_spaces(builder, (plan_space){.kind = WEIR_CPU, .index = index, .name = name});
    plan_add_queues(builder, (plan_queue){.space = {index}, .kind = PLAN_COMPUTE, .name = name});
}

static void add_stage(plan_builder *builder, uint32_t i, uint32_t count, uint32_t devices, uint32_t slots)
{
    const bool last = i + 1 == count;
    const uint32_t queue = i % devices;
    plan_add_actors(builder, (plan_actor){.queue = {queue}, .name = plan_add_text(builder, "stage"), .fires = 1, .priority = count - i,
                                          .ports = {i ? i - 1 : 0, i > 0}, .regsts = {i, !last}});
    if (i > 0)
        plan_add_ports(builder, (plan_port){.actor = {i}, .regst = {i - 1}, .hold = 1});
    if (!last)
        plan_add_regsts(builder, (plan_regst){.producer = {i}, .space = {queue}, .slots = slots, .fill = 1});
}

static weir_plan *chain_plan(uint32_t actors, uint32_t devices, uint32_t slots)
{
    plan_builder *builder = plan_builder_new();
    if (!builder)
        return NULL;
    plan_builder_plan(builder)->micro_batches = 1;
    plan_add_programs(builder, (plan_program){plan_add_text(builder, "main")});
    for (uint32_t i = 0; i < devices; i++)
        add_device(builder, i);
    for (uint32_t i = 0; i < actors; i++)
        add_stage(builder, i, actors, devices, slots);
    return plan_builder_finish(builder, NULL);
}

/* Nanoseconds of a step, by the median of some runs. */
static weir_status step_ns(const weir_plan *plan, uint64_t *ps)
{
    uint64_t values[ROUNDS];
    weir_session *session = weir_session_open(plan, .cluster = {.alone = true});
    weir_status status = session ? weir_session_run(session, STEPS) : WEIR_E_MEMORY;
    for (int i = 0; i < ROUNDS && !status; i++) {
        const int64_t start = park_now_ns();
        status = weir_session_run(session, STEPS);
        values[i] = (uint64_t)(park_now_ns() - start) * NS_PS / STEPS;
    }
    weir_session_close(session);
    *ps = status ? 0 : sampler_median(values, ROUNDS);
    return status;
}

static weir_status measure_chain(uint32_t actors, uint32_t devices, uint32_t slots, uint64_t *ps)
{
    weir_plan *plan = chain_plan(actors, devices, slots);
    weir_status status = plan ? step_ns(plan, ps) : WEIR_E_MEMORY;
    weir_plan_free(plan);
    return status;
}

/* A step of two actors with one slot between them is a message each way. Cores are near to each other or far, and a machine with others
 * on it gives a session now these, now those: so some sessions are asked. Workers of two processes pass messages as those of one do, in
 * memory that they share. */
weir_status measure_hand(weir_rates *rates)
{
    uint64_t chain, rounds[PROBES];
    weir_status status = measure_chain(CHAIN, 1, SLOTS, &chain);
    for (int i = 0; i < PROBES && !status; i++)
        status = measure_chain(2, rates->cores > 1 ? 2 : 1, 1, &rounds[i]);
    if (status)
        return status;
    rates->same = chain / CHAIN;
    rates->worker = rates->process = sampler_median(rounds, PROBES) / 2;
    return WEIR_OK;
}
