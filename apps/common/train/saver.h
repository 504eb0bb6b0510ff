/* apps/common/train/saver.h: how a training program keeps what it learns: --save, --save-every, --keep, --resume.
 *
 *     saver_check()   before anything else: whether the folders are what they should be, where to go on from
 *     saver_load()    the session has been opened
 *     saver_next()    the next step at which the session has to rest; saver_watch() while it runs, for minutes
 *     saver_save()    it rests there; saver_best() when it was never so good
 *     saver_last()    after the last step
 *     saver_end()     the session is closed
 *
 * A save while training goes on costs it the copy; one that fails is told on stderr, and training goes on. Only the
 * last one decides. A save is a checkpoint of <weir/session.h>: the folder of --save gets step-00000100, of which the newest
 * --keep stay, and `best`.
 *
 * A program that `weir launch` has started again (weir_generation()) goes on from the newest checkpoint in its --save
 * folder by itself, and begins at step 0 if there is none. A damaged one is an error.
 *
 * Snapshots (--snapshot-every) go to the folders in memory that `weir launch` keeps for its ranks, one on each host
 * (WEIR_SNAPSHOTS). They may be made much more often, as no disk has part in it. A program that is started again goes on
 * from the newest of both: from a snapshot if every part of it is still on some host.
 *
 * Minutes: all ranks have to rest at one step, but clocks differ. So only the first rank looks at one, and stops the
 * run of all (weir_session_stop()) when it is time. As the others cannot know why a run ended before its time, each
 * such end is a save that is due, on all ranks.
 *
 * One thread, the one that runs the session; in a cluster every rank makes the same calls.
 */
#ifndef APPS_COMMON_TRAIN_SAVER_H
#define APPS_COMMON_TRAIN_SAVER_H

#include "apps/common/options.h"
#include "apps/common/paths.h"

#include <stdbool.h>
#include <stdint.h>
#include <weir/weir.h>

typedef struct saver_opts {
    const char *save, *every, *resume;
    int keep, snapshot_every;
} saver_opts;

/* Their entries for a program's table; `o` is a saver_opts variable. */
#define SAVER_OPTIONS(o)                                                                                              \
    {"--save", OPTIONS_TEXT, &(o).save, .value = "DIR", .help = "save checkpoints in DIR, also after the last step"}, \
    {"--save-every", OPTIONS_TEXT, &(o).every, .value = "N|Nmin",                                                     \
     .help = "steps, or minutes as 5min, between checkpoints; default: only at the end"},                             \
    {"--keep", OPTIONS_INT, &(o).keep, .min = 1, .max = 1e9, .help = "newest checkpoints to keep"},                   \
    {"--resume", OPTIONS_TEXT, &(o).resume, .value = "DIR", .file = OPTIONS_READS,                                    \
     .help = "continue from a checkpoint, or from the newest in DIR, in any layout"},                                 \
    {"--snapshot-every", OPTIONS_INT, &(o).snapshot_every, .min = 1, .max = 1e9,                                      \
     .help = "steps between snapshots in memory, for `weir launch --restarts`"}

#define SAVER_KEEP_DEFAULT 3

typedef struct saver {
    const char *program;     /* borrowed, as all texts of opts */
    saver_opts opts;
    const char *memory;      /* this host's folder for snapshots; NULL: none are made */
    const char *from;        /* what saver_load() loads, or has loaded; NULL: nothing but a snapshot */
    int64_t start;           /* its step, before saver_load() */
    uint64_t seed;           /* of what it loads */
    bool most_is_best;
    int every_steps;         /* 0: none are saved on the way, or by time */
    double every_seconds;    /* 0: not by time */
    double due;              /* when the next one is */
    bool asked;              /* the run was asked to stop, as one is due */
    int64_t saved;           /* steps done at the last save that did not fail at once; -1: none */
    double best;             /* NAN: none */
    weir_checkpoint_lock *lock; /* owned; of the folder of --save, on the first rank */
} saver;

/* -1, or the exit status of what was reported: a folder that cannot be written, one in which another program saves, one
 * that has a later checkpoint than the one to go on from, nothing to go on from. On the first rank it makes the folder
 * of --save and keeps it for this program until saver_end(), which is to be called in any case. */
int saver_check(saver *s, const char *program, const saver_opts *opts, bool most_is_best);

/* Whether the program goes on with what was begun before: with a checkpoint, or as a later generation. */
bool saver_continues(const saver *s);

/* Loads what there is to go on from. -1, or the exit status of what was reported: the checkpoint is of another model,
 * there is no room for one on the disk. */
int saver_load(saver *s, weir_session *session, const weir_plan *plan);

/* The step after which the session has to rest for a save, when `done` are: at most `steps`. */
int saver_next(const saver *s, int done, int steps);

/* While a run is under way, now and then: stops it when a save is due by the clock. */
void saver_watch(saver *s, weir_session *session);

/* The session rests after `done` steps, earlier than it was asked to when `early`. Whether a save or a snapshot is due,
 * on all ranks alike. */
bool saver_is_due(const saver *s, int done, bool early);

/* Whether anything is to be saved on disk while training goes on: the plan then needs room for a copy. */
bool saver_saves(const saver *s);

/* Begins what is due, at rest; goes on without it when that fails, and says so. */
void saver_save(saver *s, weir_session *session, bool early);

/* The same as `best`, when `value` is better than all before. `name` says what it is: "validation_loss". */
void saver_best(saver *s, weir_session *session, const char *name, double value);

/* Saves what is there now if that is not saved yet, and waits until it is on the disk. False when that failed, which
 * has been reported. */
bool saver_last(saver *s, weir_session *session);

/* Gives the folder up. Once saver_check() was called, whatever it returned. */
void saver_end(saver *s);

#endif
