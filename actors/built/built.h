/* actors/built/built.h: a plan made ready to run in this process: memory, actors, ports, registers, edges and kernels.
 *
 * A session makes all of it when it opens (actors/session/build.c), and only workers change it while a run goes on. At
 * rest, what saves, loads, looks at values or spoils bytes reads and writes it here, without knowing the session.
 */
#ifndef ACTORS_BUILT_BUILT_H
#define ACTORS_BUILT_BUILT_H

#include "actors/actor.h"
#include "actors/lane.h"
#include "graph/plan/form/plan.h"
#include "regst/arena.h"

struct cluster;
struct transfer;

/* All arrays are owned; ids are the plan's unless said otherwise. */
struct built {
    const weir_plan *plan;       /* borrowed */
    struct cluster *cluster;     /* owned; NULL: this process runs the whole plan */
    struct arena *arenas;        /* by space */
    struct actor *actors;
    struct actor_port *ports;    /* without those that read constants */
    struct edge_ends *ends;      /* by plan port */
    struct actor_out *outs;
    struct actor_edge *edges;    /* by register, and in it by port; then those of the relays */
    struct actor_out *relays;
    struct actor_kernel *kernels;
    uint32_t *pending;
    weir_view *views;            /* by operand */
    struct slot_patch *patches;
    struct lane **lane_of;       /* by actor; NULL: another rank runs it */
};

/* Whether this process runs the actor, owns the space, owns the space that the tensor is in. */
bool built_runs(const struct built *built, uint32_t actor);
bool built_owns(const struct built *built, uint32_t space);
bool built_owns_tensor(const struct built *built, const plan_tensor *tensor);
uint32_t built_rank(const struct built *built); /* this process's; alone: 0 */

/* Shard `i` of a parameter; whether an earlier one has the same elements. */
const plan_tensor *built_shard(const struct built *built, const plan_param *param, uint32_t i);
bool built_shard_again(const struct built *built, const plan_param *param, uint32_t i);

/* The slot in which the k-th oldest is now of the values of a shard that are kept from step to step. */
uint32_t built_kept_slot(const struct built *built, const plan_tensor *tensor, uint32_t k);

/* The transfer through which the reader at a plan port gets its register; NULL: it reads it where it lies. */
const struct transfer *built_transfer(const struct built *built, uint32_t port);

/* Whether that comes to where the reader's kernel would put it. */
bool built_comes_in_place(const struct built *built, uint32_t port);

/* Where the reader at a plan port finds the tensor now, in a slot of its register. */
const char *built_port_data(const struct built *built, uint32_t port, const plan_tensor *tensor, uint32_t slot);

/* A view of the whole tensor without data; and as it lies in a slot. */
weir_view built_type_view(const plan_tensor *tensor);
weir_view built_view(const struct built *built, const plan_tensor *tensor, uint32_t slot);

#endif
