/* actors/session/devices.h: the queues of this process's devices that run ahead, and what devices do together. queues.c
 * opens the queues, groups.c the groups.
 */
#ifndef ACTORS_SESSION_DEVICES_H
#define ACTORS_SESSION_DEVICES_H

#include <weir/session.h>
#include "actors/worker.h"

struct session_devices {
    struct session_queues *queues; /* owned: those that run ahead of their devices; NULL: there is none */
    struct session_groups *groups; /* owned: what they do together; NULL: nothing */
    const char *directory;         /* borrowed while it is opened: where disks' files are made; NULL: where the plan says */
};

/* ---- queues.c ---- */

/* Opens the queues of this process's devices that run ahead: when arenas are open. */
weir_status session_open_queues(struct weir_session *session);

/* Prepares their kernels (device_ops.prepare): while arenas are zeros. */
weir_status session_prepare_kernels(const struct weir_session *session);

/* Ties them to actors, edges and workers: when all is built, before an actor is settled. */
weir_status session_tie_queues(struct weir_session *session);

/* Which kernels on them one launch may make (queues.c). */
void session_join_kernels(struct weir_session *session);

/* After the workers. */
void session_close_queues(struct weir_session *session);

/* The queue by its number in the plan; NULL: it does not run ahead, or not here. */
struct ahead_queue *session_queue(const struct weir_session *session, uint32_t queue);

/* By the worker's thread: adds the oldest firing under way on each of its queues to its look, and what it awaits. */
void session_look_at_queues(const struct weir_session *session, struct worker *worker);

/* The firings under way, oldest first, as many as fit. By the thread that launches them. */
void session_under_way(const struct weir_session *session, const struct ahead_queue *queue, char *text, size_t bytes);

/* ---- groups.c ---- */

/* This process's members of collectives join their groups, and get their turns and meetings: when queues are tied,
 * before an actor is settled. E_UNSUPPORTED when a kind of device does nothing together. */
weir_status session_open_groups(struct weir_session *session);
weir_status session_join_groups(struct weir_session *session); /* with those of other ranks; when they are heard */

/* After the workers, before the queues. */
void session_close_groups(struct weir_session *session);

/* The devices that the actor does its part with, "fake:1, fake:3"; "" when it is a member of no collective. */
void session_companions(const struct weir_session *session, uint32_t actor, char *text, size_t bytes);

#endif
