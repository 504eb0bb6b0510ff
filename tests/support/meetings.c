/* tests/support/meetings.c: see the header. Actors are named by what they are, lane and device: "work 2.0 of 1". */
#include "tests/support/meetings.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <weir/plan.h>

enum { NAME_BYTES = 32, INPUTS = MEETINGS_MOVES, WHOLE = MEETINGS_MOVES };

meetings_lane meetings_of(plan_collective_kind kind, uint32_t devices)
{
    meetings_lane lane = {.kind = kind, .devices = devices};
    for (uint32_t from = 0; from < devices; from++)
        for (uint32_t to = 0; to < devices; to++) {
            bool one_way = kind == PLAN_SEND_RECV || kind == PLAN_BROADCAST;
            if (from == to || (one_way && from))
                continue;
            uint32_t give = kind == PLAN_ALL_TO_ALL ? to - (to > from) : 0, take = one_way ? 0 : from - (from > to);
            lane.moves[lane.move_count++] = (sdf_move){from, to, give, take};
        }
    return lane;
}

/* ---- values ---- */

static float value_of(uint32_t lane, uint32_t device, int64_t firing)
{
    return (float)(100 * lane + 10 * device) + (float)(firing % 8);
}

static float made_of(float x, uint32_t work)
{
    float made = 1 + x;
    for (uint32_t k = 0; k < work; k++)
        made += 1 + x;
    return made;
}

static int64_t firing_of(const meetings *m, uint32_t lane, int64_t step, int micro)
{
    return m->lane[lane].once ? step : step * m->micro + micro;
}

static float wanted(const meetings *m, uint32_t l, uint32_t device, int64_t firing)
{
    const meetings_lane *lane = &m->lane[l];
    float sum = 1;
    bool gives = false, takes = false;
    for (uint32_t i = 0; i < lane->move_count; i++) {
        gives |= lane->moves[i].from == device;
        takes |= lane->moves[i].to == device;
        if (lane->moves[i].to == device)
            sum += made_of(value_of(l, lane->moves[i].from, firing), lane->moves[i].give);
    }
    return gives && takes ? sum : sum + value_of(l, device, firing);
}

static weir_status give(void *ctx, const weir_view *to, int64_t step, int micro)
{
    const struct meetings_end *end = ctx;
    meetings *m = end->of;
    if (m->gives)
        m->gives(m, end->lane, end->device, step, micro);
    for (int i = 0; i < MEETINGS_ITEMS; i++)
        ((float *)to->data)[i] = value_of(end->lane, end->device, firing_of(m, end->lane, step, micro));
    return WEIR_OK;
}

static weir_status take(void *ctx, const weir_view *value, int64_t step, int micro)
{
    const struct meetings_end *end = ctx;
    meetings *m = end->of;
    float want = wanted(m, end->lane, end->device, firing_of(m, end->lane, step, micro));
    if (m->takes)
        m->takes(m, end->lane, end->device, step, micro);
    for (int i = 0; i < MEETINGS_ITEMS; i++)
        m->wrong += ((const float *)value->data)[i] != want;
    m->taken[end->lane]++;
    return WEIR_OK;
}

/* ---- the plan ---- */

struct making {
    meetings *m;
    sdf *s;
    callback_binding *bindings;
    uint32_t bound, ends;
    uint32_t host[MEETINGS_DEVICES], compute[MEETINGS_DEVICES], in[MEETINGS_DEVICES], out[MEETINGS_DEVICES],
        together[MEETINGS_DEVICES];
};

static void make_devices(struct making *x)
{
    for (uint32_t d = 0; d < MEETINGS_DEVICES; d++) {
        x->host[d] = sdf_device_of(x->s, WEIR_PINNED, d, PLAN_COMPUTE);
        x->compute[d] = sdf_device_of(x->s, WEIR_FAKE, d, PLAN_COMPUTE);
        x->in[d] = sdf_queue(x->s, x->compute[d], PLAN_COPY_IN);
        x->out[d] = sdf_queue(x->s, x->compute[d], PLAN_COPY_OUT);
        x->together[d] = sdf_queue(x->s, x->compute[d], PLAN_COLLECTIVE);
    }
}

/* The part of a lane that is being made on one of its devices. */
struct part {
    struct making *x;
    const meetings_lane *lane;
    uint32_t number, place, device, fires;
    struct meetings_end *end;
};

static uint32_t add_actor(const struct part *p, uint32_t queue, const char *what, const char *kernel, uint32_t host_kind)
{
    char name[NAME_BYTES];
    snprintf(name, sizeof(name), "%s %u of %u", what, p->number, p->device);
    return sdf_actor(p->x->s, queue, name, .kernel = kernel, .fires = p->fires, .host_kind = host_kind,
                     .program = p->lane->program);
}

/* `shard` of a tensor, or a WHOLE one. */
static uint32_t add_regst(const struct part *p, uint32_t actor, uint32_t shard, uint32_t lies)
{
    bool whole = shard == WHOLE;
    return sdf_regst(p->x->s, actor, .items = MEETINGS_ITEMS, .slots = p->lane->slots,
                     .start = whole ? 0 : shard * MEETINGS_ITEMS, .global = whole ? 0 : MEETINGS_MOVES * MEETINGS_ITEMS,
                     .lies = lies);
}

/* A part of a tensor of its own for each that is given. */
static uint32_t shard_of(uint32_t place, uint32_t give)
{
    return place * MEETINGS_DEVICES + give;
}

static uint32_t inputs_of(const struct part *p)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < p->lane->move_count; i++)
        if (p->lane->moves[i].from == p->place && p->lane->moves[i].give >= count)
            count = p->lane->moves[i].give + 1;
    return count;
}

static uint32_t make_source(const struct part *p)
{
    struct making *x = p->x;
    uint32_t source = add_actor(p, x->host[p->device], "source", "source", 1 + PLAN_SOURCE);
    x->bindings[x->bound].fn.source = give;
    x->bindings[x->bound++].ctx = p->end;
    uint32_t copy = add_actor(p, x->in[p->device], "in", "copy", 0);
    sdf_port(x->s, copy, add_regst(p, source, WHOLE, 0));
    return add_regst(p, copy, WHOLE, 0);
}

static void make_sink(const struct part *p, uint32_t used)
{
    struct making *x = p->x;
    uint32_t copy = add_actor(p, x->out[p->device], "out", "copy", 0);
    sdf_port(x->s, copy, used);
    uint32_t sink = add_actor(p, x->host[p->device], "sink", "sink", 1 + PLAN_SINK);
    sdf_port(x->s, sink, add_regst(p, copy, WHOLE, 1 + x->host[p->device]));
    x->bindings[x->bound].fn.sink = take;
    x->bindings[x->bound++].ctx = p->end;
}

/* The actors before the member, which is made here, and behind it. */
static uint32_t make_part(const struct part *p)
{
    struct making *x = p->x;
    uint32_t source = make_source(p), before = UINT32_MAX, inputs = inputs_of(p), takes = 0;
    uint32_t made[INPUTS];
    for (uint32_t k = 0; k < inputs; k++) {
        uint32_t work = add_actor(p, x->compute[p->device], "work", "test_sum", 0);
        sdf_port(x->s, work, source);
        if (k)
            sdf_port(x->s, work, before);
        made[k] = before = add_regst(p, work, shard_of(p->place, k), 0);
    }
    uint32_t member = add_actor(p, x->together[p->device], "member", "collective", 0);
    for (uint32_t k = 0; k < inputs; k++)
        sdf_port(x->s, member, made[k]);
    uint32_t use = add_actor(p, x->compute[p->device], "use", "test_sum", 0);
    for (uint32_t t = 0; t < p->lane->move_count; t++)
        for (uint32_t i = 0; i < p->lane->move_count; i++) {
            const sdf_move *move = &p->lane->moves[i];
            if (move->to != p->place || move->take != t)
                continue;
            sdf_port(x->s, use, add_regst(p, member, shard_of(move->from, move->give), 0));
            takes++;
        }
    if (!takes || !inputs) /* the source has a reader */
        sdf_port(x->s, use, source);
    make_sink(p, add_regst(p, use, WHOLE, 0));
    return member;
}

static uint32_t make_lane(struct making *x, uint32_t number)
{
    const meetings_lane *lane = &x->m->lane[number];
    uint32_t members[MEETINGS_DEVICES];
    for (uint32_t place = 0; place < lane->devices; place++) {
        struct meetings_end *end = &x->m->end[x->ends++];
        *end = (struct meetings_end){x->m, number, place};
        members[place] = make_part(&(struct part){x, lane, number, place, lane->from + place,
                                                  lane->once ? 1 : x->m->micro, end});
    }
    return sdf_collective(x->s, lane->kind, members, lane->devices, lane->moves, lane->move_count);
}

weir_plan *meetings_plan(meetings *m, const uint32_t *turns, uint32_t turn_count)
{
    struct making x = {.m = m, .s = sdf_new("meetings", m->micro),
                       .bindings = calloc(2 * MEETINGS_LANES * MEETINGS_DEVICES, sizeof(callback_binding))};
    make_devices(&x);
    for (uint32_t l = 0, other = 0; l < m->lane_count; l++) {
        if (m->lane[l].program && !other++)
            sdf_program(x.s, "other");
        make_lane(&x, l);
    }
    for (uint32_t t = 0; t < turn_count; t++)
        sdf_turn(x.s, turns[t]);
    weir_plan *plan = sdf_plan_bound(x.s, x.bindings);
    cr_assert_eq(plan_validate(plan), WEIR_OK, "%s", weir_error());
    cr_assert_eq(weir_plan_check(plan), WEIR_OK, "%s", weir_error());
    return plan;
}
