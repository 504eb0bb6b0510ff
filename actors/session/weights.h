/* actors/session/weights.h: parameters whose values stay in files (weir_param(.mapped)).
 *
 *     plan: parameter "w", shards in mapped:0, mapped:1        file: "w" at byte 4096, F32 [128, 64]
 *     places[register of the shard] = base of the file + 4096 + first row of the shard
 *
 * Opened when arenas are, before anything looks at a view; what a rank does not own has no place. Part of a session, owned by its
 * thread; workers read the places through views.
 */
#ifndef ACTORS_SESSION_WEIGHTS_H
#define ACTORS_SESSION_WEIGHTS_H

#include <weir/session.h>

#include "graph/plan/form/plan.h"

struct keep_mapping;

struct session_weights {
    struct keep_mapping *mapping; /* owned; NULL: nothing is mapped */
    char **places;                /* owned; by register: where its tensor lies in a file; NULL: elsewhere */
};

/* Maps what the session's plan wants of `path` (NULL: no file is given), and tells its arenas. */
weir_status session_open_weights(weir_session *session, const weir_session_opts *opts);
void session_close_weights(struct session_weights *weights); /* behind the arenas */

#endif
