/* tests/support/ahead_plans.c: see the header. First the shape is drawn, in full; then it is built on queues. */
#include "tests/support/ahead_plans.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/sdf.h"

enum { ACTORS_MAX = 8, DEVICES = 2 };

enum place { HOST, COMPUTE_0, COMPUTE_1, PLACES };

struct shape {
    uint32_t micro, actors;
    enum place place[ACTORS_MAX];
    uint32_t fires[ACTORS_MAX], slots[ACTORS_MAX], initial[ACTORS_MAX];
    bool reads[ACTORS_MAX][ACTORS_MAX]; /* [reader][producer] */
    bool per_micro[ACTORS_MAX];         /* what it makes is read once a micro-batch, rather than once a step */
};

static uint32_t draw(unsigned *seed, uint32_t limit)
{
    return (uint32_t)rand_r(seed) % limit;
}

/* ---- shapes ---- */

static bool all_per_micro(const struct shape *shape, uint32_t a)
{
    bool all = shape->fires[a] == shape->micro;
    for (uint32_t b = 0; b < shape->actors; b++)
        all &= !shape->reads[b][a] || shape->fires[b] == shape->micro;
    return all;
}

/* Actor 0 is the source, the last one reads all that nobody else does. */
static struct shape draw_shape(unsigned *seed)
{
    struct shape shape = {.micro = 1 + draw(seed, AHEAD_MICRO_MAX), .actors = 4 + draw(seed, ACTORS_MAX - 3)};
    uint32_t last = shape.actors - 1;
    for (uint32_t a = 0; a < shape.actors; a++) {
        shape.place[a] = a && a < last ? (enum place)draw(seed, PLACES) : HOST;
        shape.fires[a] = draw(seed, 3) ? shape.micro : 1;
        shape.slots[a] = 1 + draw(seed, 3);
        if (a)
            shape.reads[a][draw(seed, a)] = true;
        for (uint32_t b = 0; b < a; b++)
            shape.reads[a][b] |= draw(seed, 4) == 0;
    }
    uint32_t from = 1 + draw(seed, last), to = 1 + draw(seed, from);
    if (draw(seed, 2)) {
        shape.reads[to][from] = true;
        shape.initial[from] = 1;
        shape.slots[from] = 2 + draw(seed, 2);
    }
    for (uint32_t a = 0; a < last; a++) {
        bool read = false;
        for (uint32_t b = a + 1; b < shape.actors; b++)
            read |= shape.reads[b][a];
        shape.reads[last][a] |= !read;
    }
    for (uint32_t a = 0; a < shape.actors; a++)
        shape.per_micro[a] = all_per_micro(&shape, a) && draw(seed, 3);
    return shape;
}

/* ---- on queues ---- */

struct making {
    sdf *s;
    const struct shape *shape;
    uint32_t queue[PLACES], in[DEVICES], out[DEVICES], together[DEVICES];
    uint32_t beside[DEVICES]; /* the host's, and its memory */
    uint32_t regst[ACTORS_MAX];
    unsigned seed;
    bool accelerators;
};

static void make_queues(struct making *m)
{
    if (!m->accelerators) {
        uint32_t *const all[] = {&m->queue[COMPUTE_0], &m->queue[COMPUTE_1], &m->in[0],       &m->in[1],
                                 &m->out[0],           &m->out[1],           &m->together[0], &m->together[1],
                                 &m->beside[0],        &m->beside[1]};
        for (size_t i = 0; i < sizeof(all) / sizeof(*all); i++)
            *all[i] = sdf_device(m->s);
    } else {
        for (uint32_t d = 0; d < DEVICES; d++) {
            m->beside[d] = sdf_device_of(m->s, WEIR_PINNED, d, PLAN_COMPUTE);
            m->queue[d ? COMPUTE_1 : COMPUTE_0] = sdf_device_of(m->s, WEIR_FAKE, d, PLAN_COMPUTE);
            m->in[d] = sdf_queue(m->s, m->queue[d ? COMPUTE_1 : COMPUTE_0], PLAN_COPY_IN);
            m->out[d] = sdf_queue(m->s, m->queue[d ? COMPUTE_1 : COMPUTE_0], PLAN_COPY_OUT);
            m->together[d] = sdf_queue(m->s, m->queue[d ? COMPUTE_1 : COMPUTE_0], PLAN_COLLECTIVE);
        }
    }
    m->queue[HOST] = m->beside[0];
}

static int device_of(enum place place)
{
    return place == HOST ? -1 : place == COMPUTE_1;
}

/* A copy of the register that lies on the queue's device, or where it says. */
static uint32_t copy(struct making *m, uint32_t queue, uint32_t lies, uint32_t regst, uint32_t fires)
{
    uint32_t actor = sdf_actor(m->s, queue, "copy", .kernel = "copy", .fires = fires);
    sdf_port(m->s, actor, regst);
    return sdf_regst(m->s, actor, .items = AHEAD_ITEMS, .slots = 1 + draw(&m->seed, 3),
                     .lies = m->accelerators ? 1 + lies : 0);
}

/* From one device to the other, which do it together. */
static uint32_t send(struct making *m, int from, uint32_t regst, uint32_t fires)
{
    uint32_t member[DEVICES];
    if (!m->accelerators)
        return copy(m, m->together[from], 0, regst, fires);
    for (uint32_t d = 0; d < DEVICES; d++)
        member[d] = sdf_actor(m->s, m->together[d], "member", .kernel = "collective", .fires = fires);
    sdf_port(m->s, member[from], regst);
    sdf_collective(m->s, PLAN_SEND_RECV, member, DEVICES, &(sdf_move){.from = (uint32_t)from, .to = !from}, 1);
    return sdf_regst(m->s, member[!from], .items = AHEAD_ITEMS, .slots = 1 + draw(&m->seed, 3));
}

/* The same by collectives: what one of them took the next one may give; and what was copied in, or is copied out. */
static uint32_t carry_together(struct making *m, int here, int there, uint32_t regst, uint32_t fires)
{
    if (here < 0)
        regst = copy(m, m->in[0], m->in[0], regst, fires);
    here = here < 0 ? 0 : here;
    for (uint32_t hops = 1 + draw(&m->seed, 3); hops > 0; hops--, here = !here)
        regst = send(m, here, regst, fires);
    if (there >= 0 && here != there)
        return send(m, here, regst, fires);
    return there >= 0 ? regst : copy(m, m->out[here], m->beside[here], regst, fires);
}

/* Copies the result of actor `from`, if need be, to where `to` can read it. */
static uint32_t carry(struct making *m, uint32_t from, enum place to)
{
    int here = device_of(m->shape->place[from]), there = device_of(to), beside = here < 0 ? 0 : here;
    uint32_t regst = m->regst[from], fires = m->shape->per_micro[from] ? m->shape->micro : 1;
    if ((here >= 0 || there >= 0) && draw(&m->seed, 2))
        return carry_together(m, here, there, regst, fires);
    if (here == there)
        return regst;
    if (here >= 0)
        regst = copy(m, m->out[here], m->beside[here], regst, fires);
    if (there >= 0 && there != beside)
        regst = copy(m, m->queue[HOST], m->beside[there], regst, fires);
    if (there >= 0)
        regst = copy(m, m->in[there], m->in[there], regst, fires);
    return regst;
}

static void make_actor(struct making *m, uint32_t a)
{
    const struct shape *shape = m->shape;
    char name[16];
    snprintf(name, sizeof(name), "a%u", a);
    uint32_t fill = shape->per_micro[a] || shape->fires[a] == 1 ? 1 : shape->micro;
    uint32_t actor = a ? sdf_actor(m->s, m->queue[shape->place[a]], name, .kernel = "test_sum", .fires = shape->fires[a],
                                   .accumulate = fill > 1)
                       : sdf_actor(m->s, m->queue[HOST], "source", .kernel = "source", .fires = shape->fires[a],
                                   .host_kind = 1 + PLAN_SOURCE);
    cr_assert_eq(actor, a);
    m->regst[a] = sdf_regst(m->s, actor, .items = AHEAD_ITEMS, .slots = shape->slots[a], .fill = fill,
                            .initial = shape->initial[a], .init = shape->initial[a] ? WEIR_INIT_VALUE : WEIR_INIT_DEFAULT,
                            .a = 0.25, .param = shape->initial[a] ? "loop" : NULL);
}

static void make_reads(struct making *m, uint32_t reader)
{
    const struct shape *shape = m->shape;
    for (uint32_t a = 0; a < shape->actors; a++)
        if (shape->reads[reader][a])
            sdf_port(m->s, reader, carry(m, a, shape->place[reader]),
                     .hold = shape->per_micro[a] || shape->fires[reader] == 1 ? 1 : shape->micro);
}

static weir_status give(void *ctx, const weir_view *to, int64_t step, int micro)
{
    (void)ctx;
    for (int i = 0; i < AHEAD_ITEMS; i++)
        ((float *)to->data)[i] = (float)step + (float)micro / 4 + (float)i / 16;
    return WEIR_OK;
}

static weir_status take(void *ctx, const weir_view *value, int64_t step, int micro)
{
    struct ahead_result *result = ctx;
    (void)step, (void)micro;
    if (result->count < AHEAD_VALUES)
        memcpy(result->value[result->count++], value->data, sizeof(*result->value));
    return WEIR_OK;
}

weir_plan *ahead_plan(unsigned seed, bool accelerators, struct ahead_result *result)
{
    struct shape shape = draw_shape(&seed);
    struct making m = {.s = sdf_new("ahead", shape.micro), .shape = &shape, .seed = seed, .accelerators = accelerators};
    callback_binding *bindings = calloc(2, sizeof(*bindings));
    uint32_t last = shape.actors - 1;
    bindings[0].fn.source = give;
    bindings[1] = (callback_binding){.fn.sink = take, .ctx = result};
    make_queues(&m);
    for (uint32_t a = 0; a < shape.actors; a++)
        make_actor(&m, a);
    for (uint32_t a = 1; a < shape.actors; a++)
        make_reads(&m, a);
    uint32_t fires = shape.per_micro[last] ? shape.micro : 1;
    uint32_t sink = sdf_actor(m.s, m.queue[HOST], "sink", .kernel = "sink", .fires = fires, .host_kind = 1 + PLAN_SINK);
    sdf_port(m.s, sink, m.regst[last]);
    weir_plan *plan = sdf_plan_bound(m.s, bindings);
    cr_assert_eq(plan_validate(plan), WEIR_OK, "%s", weir_error());
    if (weir_plan_check(plan) == WEIR_OK)
        return plan;
    weir_plan_free(plan);
    return NULL;
}
