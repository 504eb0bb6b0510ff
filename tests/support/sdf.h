/* tests/support/sdf.h: plans made by hand. Things are added in any order; sdf_plan() sorts them into the ranges that
 * graph/plan/form/plan.h asks for, lays out the arenas and returns the plan.
 *
 *     sdf *s = sdf_new("pair", 1);
 *     uint32_t q = sdf_device(s);
 *     uint32_t a = sdf_actor(s, q, "a", .kernel = "test_count"), b = sdf_actor(s, q, "b");
 *     sdf_port(s, b, sdf_regst(s, a, .slots = 2));
 *     weir_plan *plan = sdf_plan(s);      // frees s; weir_plan_free(plan) is the caller's
 *
 * sdf_device(), sdf_actor() and sdf_regst() return handles; devices and actors have the same number in the plan,
 * registers do not. Actors are added with falling priority: the first one fires first. Options that are 0 mean 1 where
 * 0 makes no sense (slots, fill, hold, fires).
 */
#ifndef TESTS_SUPPORT_SDF_H
#define TESTS_SUPPORT_SDF_H

#include "graph/plan/form/plan.h"

#define SDF_NOBODY UINT32_MAX /* producer of a constant */

typedef struct sdf sdf;

sdf *sdf_new(const char *name, uint32_t micro_batches);
void sdf_free(sdf *s);

/* A CPU device with a compute queue; returns the queue. */
uint32_t sdf_device(sdf *s);
/* A queue on the device of `queue` for pushes and pulls. */
uint32_t sdf_outside(sdf *s, uint32_t queue);
/* A device of any kind, by its number among those of the kind, with a queue that it returns; and another queue of the
 * device of `queue`. A register that a copy writes on the other side has .lies:
 *
 *     uint32_t host = sdf_device_of(s, WEIR_PINNED, 0, PLAN_COMPUTE);
 *     uint32_t compute = sdf_device_of(s, WEIR_FAKE, 0, PLAN_COMPUTE), out = sdf_queue(s, compute, PLAN_COPY_OUT);
 *     uint32_t save = sdf_actor(s, out, "save", .kernel = "copy");
 *     sdf_regst(s, save, .items = 4, .lies = 1 + host);
 */
uint32_t sdf_device_of(sdf *s, weir_device_kind kind, uint32_t index, plan_queue_kind queue);
uint32_t sdf_queue(sdf *s, uint32_t queue, plan_queue_kind kind);

/* Another program than main, for .program of its actors. */
uint32_t sdf_program(sdf *s, const char *name);

typedef struct sdf_actor_opts {
    uint32_t fires;
    uint32_t program;     /* [main] */
    const char *kernel;   /* op; reads the tensors of all ports, writes those of all registers, in the order added */
    bool accumulate;
    uint32_t host_kind;   /* 1 + plan_host_kind: the kernel calls it, or it is a push or pull. Named as the actor */
    uint32_t states;      /* f32 scalars that the kernel is given */
    uint32_t workspace;   /* bytes */
    uint32_t priority;    /* [the order of sdf_actor() calls] */
} sdf_actor_opts;
#define sdf_actor(s, queue, name, ...) sdf_actor_at(s, queue, name, (sdf_actor_opts){__VA_ARGS__})
uint32_t sdf_actor_at(sdf *s, uint32_t queue, const char *name, sdf_actor_opts opts);

typedef struct sdf_regst_opts {
    uint32_t slots, fill, initial;
    uint32_t items;        /* of its one f32 tensor; 0: it has no tensor */
    uint32_t queue;        /* of a constant: where it lies */
    uint32_t lies;         /* 1 + a queue on whose device it lies [its producer's] */
    weir_init_kind init;   /* of `initial` slots; DEFAULT: none */
    double a, b;
    const char *param;     /* also a parameter of this name, whole unless .start and .global say otherwise */
    uint32_t start, global;
} sdf_regst_opts;
#define sdf_regst(s, producer, ...) sdf_regst_at(s, producer, (sdf_regst_opts){__VA_ARGS__})
uint32_t sdf_regst_at(sdf *s, uint32_t producer, sdf_regst_opts opts);

typedef struct sdf_port_opts {
    uint32_t hold;
} sdf_port_opts;
#define sdf_port(s, reader, regst, ...) sdf_port_at(s, reader, regst, (sdf_port_opts){__VA_ARGS__})
void sdf_port_at(sdf *s, uint32_t reader, uint32_t regst, sdf_port_opts opts);

/* A collective of several devices. Its members are actors with the kernel "collective", one on a queue for collectives of
 * each device, by rising device; the moves say who gives which of its ports' tensors to whose which register. None where it
 * adds. Returns its number.
 *
 *     uint32_t pair[] = {sdf_actor(s, one, "give", .kernel = "collective"), sdf_actor(s, two, "take", .kernel = "collective")};
 *     sdf_port(s, pair[0], x);
 *     uint32_t y = sdf_regst(s, pair[1], .items = 4);
 *     sdf_collective(s, PLAN_SEND_RECV, pair, 2, (sdf_move[]){{.from = 0, .to = 1}}, 1);
 */
typedef struct sdf_move {
    uint32_t from, to, give, take;
} sdf_move;
uint32_t sdf_collective(sdf *s, plan_collective_kind kind, const uint32_t *members, uint32_t members_count,
                        const sdf_move *moves, uint32_t moves_count);

/* The next in the list of turns. Without any they are worked out (graph/plan/prove/turns.h). */
void sdf_turn(sdf *s, uint32_t collective);

/* Frees the builder. Fails the test when there is no memory. `bindings` (malloc'ed, by the order in which actors with
 * a host were added) goes to the plan; may be NULL. */
weir_plan *sdf_plan_bound(sdf *s, callback_binding *bindings);
weir_plan *sdf_plan(sdf *s);

/* Slots of a register before the plan is made. */
uint32_t *sdf_slots(sdf *s, uint32_t regst);

#endif
