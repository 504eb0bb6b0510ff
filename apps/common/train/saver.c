/* apps/common/train/saver.c: how a training program keeps what it learns.
 *
 * The best so far is a checkpoint too, and says how good it is in the note that a checkpoint has of who saved it: a file
 * beside it could be of another save than the one that it tells of.
 *
 * Beginning anew in a folder that has checkpoints, or going on from an older one there, is refused: the newest would
 * then be another run's, and a restart would go on with that.
 */
#include "apps/common/train/saver.h"
#include "apps/common/measure.h"
#include "apps/common/ranks.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>

#define SECONDS_MIN 0.01

/* ---- before ---- */

static int read_every(saver *s)
{
    char *end = NULL;
    double value = s->opts.every ? strtod(s->opts.every, &end) : 0;
    if (!s->opts.every)
        return -1;
    bool minutes = end != s->opts.every && !strcmp(end, "min");
    if (!s->opts.save)
        return options_wrong(s->program, "--save-every needs --save DIR");
    if (minutes && value * 60 >= SECONDS_MIN && value < 1e6)
        s->every_seconds = value * 60;
    else if (end != s->opts.every && !*end && value >= 1 && value <= 1e9 && value == floor(value))
        s->every_steps = (int)value;
    else
        return options_wrong(s->program, "--save-every takes a number of steps, or minutes as 5min, not \"%s\"",
                             s->opts.every);
    return -1;
}

/* The first rank keeps the folder for its run, so that no other run saves there meanwhile. */
static int take_folder(saver *s)
{
    if (!s->opts.save || !ranks_first())
        return -1;
    s->lock = weir_checkpoint_lock_take(s->opts.save);
    return s->lock ? -1 : options_wrong(s->program, "--save: %s", weir_error());
}

/* Where snapshots go. Only a launcher that starts ranks again has a use for them. */
static int check_memory(saver *s)
{
    const char *memory = getenv("WEIR_SNAPSHOTS");
    if (!s->opts.snapshot_every)
        return -1;
    if (!memory || !*memory)
        return options_wrong(s->program, "--snapshot-every needs `weir launch --restarts N`");
    s->memory = memory;
    return -1;
}

/* The step of the newest checkpoint in the folder; -1 when there is none, or no folder. */
static int64_t newest_step(const char *folder)
{
    weir_checkpoint *c = folder ? weir_checkpoint_open(folder) : NULL;
    int64_t step = c ? weir_checkpoint_get_info(c)->step : -1;
    weir_checkpoint_close(c);
    return step;
}

/* The checkpoint to go on from, unless there is a later snapshot; its step goes to *step, 0 when there is nothing. */
static int find_start(saver *s, int64_t *step)
{
    *step = 0;
    bool kept = weir_generation() > 0 && s->opts.save && weir_checkpoint_exists(s->opts.save);
    s->from = kept ? s->opts.save : s->opts.resume;
    weir_checkpoint *c = s->from ? weir_checkpoint_open(s->from) : NULL;
    if (!s->from || (!c && kept && s->memory)) /* a snapshot may be whole; if not, loading fails */
        return -1;
    if (!c)
        return options_wrong(s->program, "%s: %s", kept ? "--save" : "--resume", options_error(s->program));
    const weir_checkpoint_info *info = weir_checkpoint_get_info(c);
    *step = info->step;
    s->seed = info->seed;
    weir_checkpoint_close(c);
    if (*step >= 0)
        return -1;
    return options_wrong(s->program, "--resume: %s does not say of which step it is", s->from);
}

int saver_check(saver *s, const char *program, const saver_opts *opts, bool most_is_best)
{
    int64_t start = 0;
    *s = (saver){.program = program, .opts = *opts, .most_is_best = most_is_best, .saved = -1, .best = NAN};
    int status = read_every(s);
    if (status < 0)
        status = take_folder(s);
    if (status < 0)
        status = check_memory(s);
    if (status < 0)
        status = find_start(s, &start);
    s->start = start;
    if (status >= 0 || !opts->save || !ranks_first() || !weir_checkpoint_exists(opts->save))
        return status;
    int64_t newest = newest_step(opts->save);
    if (newest < 0 && s->from != opts->save)
        return options_wrong(program, "--save: %s", options_error(program));
    if (newest > start || !s->from)
        return options_wrong(program,
                             "--save: %s has a checkpoint of step %lld already; --resume %s goes on from there",
                             opts->save, (long long)newest, opts->save);
    return status;
}

bool saver_continues(const saver *s)
{
    return s->from || weir_generation() > 0;
}

/* ---- going on ---- */

/* How good `best` in the folder of --save is; a run that begins anew has none. */
static double read_best(const saver *s)
{
    char path[PATHS_BYTES];
    double best = NAN;
    if (!s->opts.save || !s->from || snprintf(path, sizeof path, "%s/best", s->opts.save) >= (int)sizeof path)
        return NAN;
    weir_checkpoint *c = weir_checkpoint_open(path);
    const char *note = c ? weir_checkpoint_get_info(c)->program : "", *number = strrchr(note, ' ');
    if (number)
        best = strtod(number, NULL);
    weir_checkpoint_close(c);
    return best;
}

static double checkpoint_bytes(const weir_plan *plan)
{
    double bytes = 0;
    for (int i = 0; i < weir_plan_param_count(plan); i++) {
        weir_param_info info;
        if (!weir_plan_param(plan, i, &info))
            bytes += (double)weir_shape_count(&info.type.shape) * (double)weir_dtype_bytes(info.type.dtype);
    }
    return bytes;
}

static int check_room(const saver *s, const weir_plan *plan)
{
    struct statvfs disk;
    char room[32], wanted[32];
    if (!s->opts.save || !ranks_first() || statvfs(s->opts.save, &disk))
        return -1;
    double bytes = checkpoint_bytes(plan), rest = (double)disk.f_bavail * (double)disk.f_frsize;
    if (bytes <= rest)
        return -1;
    options_wrong(s->program, "--save: a checkpoint takes %s, and there is room for %s in %s",
                  measure_bytes_text((uint64_t)bytes, wanted), measure_bytes_text((uint64_t)rest, room), s->opts.save);
    return 1;
}

int saver_load(saver *s, weir_session *session, const weir_plan *plan)
{
    const char *snapshots = weir_generation() > 0 ? s->memory : NULL;
    int status = check_room(s, plan);
    if (status >= 0)
        return status;
    if ((s->from || snapshots) && weir_session_load(session, s->from, .memory = snapshots))
        return options_failed(s->program);
    if (snapshots && weir_session_step(session) > s->start)
        s->from = snapshots;
    if (s->from && ranks_first())
        options_wrong(s->program, "goes on at step %lld of %s", (long long)weir_session_step(session), s->from);
    s->best = read_best(s);
    s->due = measure_seconds() + s->every_seconds;
    if (s->from == s->opts.save)
        s->saved = weir_session_step(session);
    return -1;
}

/* ---- when ---- */

/* The next multiple of `every`, if that comes before `steps`. */
static int next_of(int every, int done, int steps)
{
    int64_t next = every ? ((int64_t)done / every + 1) * every : steps;
    return next < steps ? (int)next : steps;
}

int saver_next(const saver *s, int done, int steps)
{
    return next_of(s->every_steps, done, next_of(s->opts.snapshot_every, done, steps));
}

void saver_watch(saver *s, weir_session *session)
{
    if (!s->every_seconds || s->asked || !ranks_first() || measure_seconds() < s->due)
        return;
    s->asked = true;
    weir_session_stop(session);
}

static bool save_is_due(const saver *s, int done, bool early)
{
    if (!s->opts.save)
        return false;
    if (s->every_seconds && early)
        return s->asked || weir_world_size() > 1;
    return s->every_steps && done % s->every_steps == 0;
}

static bool snapshot_is_due(const saver *s, int done)
{
    return s->memory && done % s->opts.snapshot_every == 0;
}

bool saver_is_due(const saver *s, int done, bool early)
{
    return save_is_due(s, done, early) || (!early && snapshot_is_due(s, done));
}

bool saver_saves(const saver *s)
{
    return s->opts.save;
}

/* ---- saving ---- */

static void tell_failed(const saver *s, int64_t step)
{
    if (ranks_first())
        options_wrong(s->program, "step %lld was not saved: %s", (long long)step, options_error(s->program));
}

/* A save is safer than a snapshot of the same step, so one of the two is enough. */
void saver_save(saver *s, weir_session *session, bool early)
{
    int64_t step = weir_session_step(session);
    bool save = save_is_due(s, (int)step, early);
    if (step == s->saved)
        return;
    if (weir_session_save(session, save ? s->opts.save : s->memory, .async = true, .memory = !save,
                          .keep = save ? s->opts.keep : 0, .program = s->program))
        tell_failed(s, step);
    else if (save)
        s->saved = step;
    if (save)
        s->due = measure_seconds() + s->every_seconds;
    s->asked = false;
}

void saver_best(saver *s, weir_session *session, const char *name, double value)
{
    char note[128];
    bool better = isnan(s->best) || (s->most_is_best ? value > s->best : value < s->best);
    if (!s->opts.save || !isfinite(value) || !better)
        return;
    snprintf(note, sizeof note, "%s: %s %.17g", s->program, name, value);
    if (weir_session_save(session, s->opts.save, .name = "best", .async = true, .program = note))
        tell_failed(s, weir_session_step(session));
    else
        s->best = value;
}

bool saver_last(saver *s, weir_session *session)
{
    if (!s->opts.save)
        return true;
    int64_t step = weir_session_step(session);
    weir_status status = weir_session_save_wait(session, -1);
    if (status || step != s->saved)
        status = weir_session_save(session, s->opts.save, .keep = s->opts.keep, .program = s->program);
    if (status)
        tell_failed(s, step);
    else if (ranks_first())
        options_wrong(s->program, "step %lld is saved in %s", (long long)step, s->opts.save);
    return !status;
}

void saver_end(saver *s)
{
    weir_checkpoint_lock_release(s->lock);
    s->lock = NULL;
}
