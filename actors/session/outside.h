/* actors/session/outside.h: lanes of actors that the program drives by push and pull, and the descriptor that tells when one of
 * them would not wait. outside.c has the descriptor, and threads that hear what other processes post.
 */
#ifndef ACTORS_SESSION_OUTSIDE_H
#define ACTORS_SESSION_OUTSIDE_H

#include "actors/lane.h"

struct weir_session;
struct ringer;

struct session_outside {
    struct lane *lanes;       /* owned: one per outside actor */
    uint32_t count;
    struct lane_guard guard;  /* of the lanes, when other processes post to them */
    struct ringer *ringers;   /* owned; by lanes to which other processes post, with the descriptor */
    uint32_t ringer_count;
    _Atomic int ready_fd;     /* owned; -1: nobody has asked for one */
    _Atomic bool rung;        /* it is readable, or is about to be */
};

/* ---- the descriptor ---- */

/* Something that weir_session_ready() lists may have changed. Any thread. */
void session_announce(struct weir_session *session);

/* The thread owns the outside lane, for a push or pull; false: another thread is in it. And is done. */
bool session_take_lane(struct lane *lane);
void session_let_go(struct weir_session *session, struct actor *actor);

void session_close_fd(struct weir_session *session);

/* ---- ringers ---- */

/* For the descriptor, with the lock of `ending`: threads that hear what other processes post to pushes and pulls. */
weir_status session_open_ringers(struct weir_session *session);
void session_close_ringers(struct weir_session *session); /* when nobody is inside any more */

void ringer_watch(struct ringer *ringer); /* by the lane's owner, which sleeps elsewhere now */

#endif
