/* actors/session/callbacks.h: the user's functions: sources, sinks, calls, and what their kernels keep open.
 */
#ifndef ACTORS_SESSION_CALLBACKS_H
#define ACTORS_SESSION_CALLBACKS_H

#include <weir/session.h>
#include "actors/actor.h"

struct session_callbacks {
    callback_binding *bindings; /* owned; parallel to the plan's hosts */
    bool keeps;             /* some kernel has an `open` */
    uint32_t opened;        /* kernels, the first, whose `open` was called where there is one */
};

/* Gives each source, sink and call a function; E_ARGUMENT names the one without. */
weir_status session_bind(struct weir_session *session, const weir_session_opts *opts);

/* By the owner of an outside actor's lane: takes what has come. Whether push or pull (`verb`) would not wait now, and
 * what it would return. */
bool session_turn_comes(struct weir_session *session, struct actor *actor, const char *verb, weir_status *status);

/* Opens what this process's kernels keep (weir/op.h), when all is built and other ranks can be told that it failed; and
 * closes it, when nothing is fired any more, before kernels go. Closing does nothing where nothing was opened. */
weir_status session_open_calls(struct weir_session *session);
void session_close_calls(struct weir_session *session);

/* With other ranks: takes what they have still to publish for this rank's pulls, and drops it, so that they can end
 * their run. At rest. */
void session_drop_pulls(struct weir_session *session);

#endif
