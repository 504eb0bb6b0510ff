/* actors/session/workers.h: the workers of a session, and their lanes: workers.c, in the order of a session's life.
 */
#ifndef ACTORS_SESSION_WORKERS_H
#define ACTORS_SESSION_WORKERS_H

#include <weir/session.h>
#include "actors/crew.h"
#include "actors/worker.h"

struct weir_session;

struct session_workers {
    struct crew *crew;         /* held: threads of those that compute, maybe of other sessions too */
    struct crew *beside;       /* owned: those of the others */
    bool guest;                /* the crew was another session's first */
    bool pin;                  /* they are bound to cores */
    int64_t spin_ns;           /* they spin so long before they sleep; -1: as wake-ups ask for */
    struct worker_owner owner; /* this session, as they see it */
    struct worker *list;       /* owned */
    struct mailbox_team team;  /* those that compute, where each may have a core of its own; its list is owned */
    uint32_t count;
    uint32_t compute_count;    /* of them: the first, which share the compute queues; the others have io queues */
    uint32_t *of_queue;        /* owned; by queue; of outside queues it means nothing */
};

/* The threads that compute: other sessions' too, or up to so many of its own. */
weir_status session_open_crew(struct weir_session *session, const weir_session_opts *opts);

/* WEIR_E_UNSUPPORTED, with the place of weir_session_open(). */
weir_status session_unsupported(const weir_session_opts *opts, const char *why);

/* Gives each queue of this process a worker, and then each actor a lane, which is not open yet. */
weir_status session_assign_queues(struct weir_session *session);
weir_status session_alloc_lanes(struct weir_session *session);

/* `sizes`: of the workers' lanes, then of the outside ones. */
weir_status session_open_lanes(struct weir_session *session, const struct lane_size *sizes);
void session_close_lanes(struct weir_session *session);

/* When all is built. A worker that never started has nothing to stop. */
weir_status session_start_workers(struct weir_session *session);
void session_stop_workers(struct weir_session *session);

#endif
