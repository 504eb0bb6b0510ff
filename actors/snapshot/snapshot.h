/* actors/snapshot/snapshot.h: saving and loading, and all that they see of a session.
 *
 *     save.c      checkpoints of what this rank holds, by a thread of their own      load.c         a checkpoint is loaded
 *     folders.c   which snapshots there are in the memory of several hosts           load_memory.c  a snapshot is loaded
 *
 * A session makes the table and owns it. The session's thread calls, at rest or after a failure.
 */
#ifndef ACTORS_SNAPSHOT_SNAPSHOT_H
#define ACTORS_SNAPSHOT_SNAPSHOT_H

#include <weir/session.h>

#include "actors/built/built.h"
#include "actors/ending.h"
#include "transport/meet/report.h"

struct saver;

struct snapshots {
    struct built *built;           /* borrowed, like all but the saver */
    callback_binding *const *bindings; /* by host of the plan; the session finds them later */
    struct ending *ending;
    struct report *report;
    struct saver *saver;           /* owned; NULL: nothing has been saved yet */

    int64_t (*step)(const struct snapshots *);                /* of the main program */
    void (*set_step)(struct snapshots *, int64_t step);       /* it goes on from there */
    void (*lost)(struct snapshots *, const char *sentence);   /* this rank fails, and others would wait for it */
    void (*half_loaded)(struct snapshots *, weir_status status, const char *sentence); /* the session cannot go on */
};

/* As weir_session_save(), weir_session_save_wait() and weir_session_load(), by a caller that may. */
weir_status snapshot_save(struct snapshots *snapshots, const char *dir, const weir_save_opts *opts);
weir_status snapshot_save_wait(struct snapshots *snapshots, int timeout_ms);
weir_status snapshot_load(struct snapshots *snapshots, const char *dir, const weir_load_opts *opts);

/* Whether host `h` stands for its source in this process: a source that is split is there once for each device, and its position
 * is saved and restored once. */
bool snapshot_source_here(const struct snapshots *snapshots, uint32_t h);

/* Has the system give the pages of the snapshots now, rather than in the first save. */
void snapshot_touch(const struct built *built);

/* Waits for a save that is being written, if there is one. close: and ends saving. */
void snapshot_await(struct snapshots *snapshots);
void snapshot_close(struct snapshots *snapshots);

#endif
