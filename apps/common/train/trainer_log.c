/* apps/common/train/trainer_log.c: what a training program writes down.
 *
 * Events have the numbers of the lines. An evaluation belongs to the last step that was done before it, so a run that goes on from
 * there, and tells TensorBoard where it begins, does not drop it.
 */
#include "apps/common/train/trainer_log.h"
#include "graph/base/foreign.h"
#include "kernels/optim/formula.h"

#include <errno.h>
#include <math.h>
#include <string.h>

int trainer_log_open(trainer *t)
{
    if (t->opts.log && !log_open(&t->log, t->opts.log, saver_continues(&t->saver)))
        return options_wrong(t->program, "--log: cannot write %s: %s", t->opts.log, strerror(errno));
    if (t->opts.log_dir && !events_open(&t->events, t->opts.log_dir))
        return options_wrong(t->program, "--log-dir: cannot write in %s: %s", t->opts.log_dir, strerror(errno));
    return -1;
}

static void log_number(FILE *to, const char *name, double value)
{
    fprintf(to, isfinite(value) ? "\"%s\": %.9g" : "\"%s\": null", name, value);
}

/* Ends a line of the log. The first that cannot be written is reported when that happens. */
static void end_line(trainer *t)
{
    log_end(&t->log);
    if (!t->log.error || t->log.told)
        return;
    t->log.told = true;
    progress_pause(&t->progress);
    options_wrong(t->program, "--log: cannot write %s: %s; the log ends here, training goes on", t->opts.log,
                  strerror(t->log.error));
}

/* The same for an event of --log-dir. */
static void end_event(trainer *t, int64_t step)
{
    events_end(&t->events, step);
    if (!t->events.error || t->events.told)
        return;
    t->events.told = true;
    progress_pause(&t->progress);
    options_wrong(t->program, "--log-dir: cannot write in %s: %s; the event file ends here, training goes on", t->opts.log_dir,
                  strerror(t->events.error));
}

/* The rate by which the step's gradients were multiplied. */
static double learning_rate(const trainer *t)
{
    const weir_optimizer *o = &t->optimizer;
    return optim_rate(&(struct optim_attrs){.lr = o->lr, .lr_min = o->lr_min, .warmup = o->warmup, .total = o->total}, t->done - 1);
}

static void add_step_line(trainer *t, double seconds)
{
    FILE *to = log_begin(&t->log);
    if (!to)
        return;
    fprintf(to, "{\"step\": %d, ", t->done - 1);
    log_number(to, "loss", t->loss);
    fprintf(to, ", \"seconds\": %.6f, \"%s_per_s\": %.1f, ", seconds, t->items, t->items_per_step / seconds);
    log_number(to, "learning_rate", learning_rate(t));
    for (int i = 0; i < t->norms.count; i++) {
        fputs(", ", to);
        log_number(to, t->norms.name[i], t->norm[i]);
    }
    fputc('}', to);
    end_line(t);
}

/* The same for TensorBoard. */
static void add_step_event(trainer *t, double seconds)
{
    char rate[64];
    snprintf(rate, sizeof rate, "%s_per_s", t->items);
    events_add(&t->events, "loss", t->loss);
    events_add(&t->events, "seconds", seconds);
    events_add(&t->events, rate, t->items_per_step / seconds);
    events_add(&t->events, "learning_rate", learning_rate(t));
    for (int i = 0; i < t->norms.count; i++)
        events_add(&t->events, t->norms.name[i], t->norm[i]);
    end_event(t, t->done - 1);
}

void trainer_log_step(trainer *t, double seconds)
{
    add_step_line(t, seconds);
    add_step_event(t, seconds);
}

void trainer_log_judged(trainer *t)
{
    FILE *to = log_begin(&t->log);
    if (to) {
        fprintf(to, "{\"steps\": %d, ", t->done);
        log_number(to, t->judge.name, t->judged);
        fputc('}', to);
        end_line(t);
    }
    events_add(&t->events, t->judge.name, t->judged);
    end_event(t, t->done ? t->done - 1 : 0);
}

void trainer_log_summary(trainer *t)
{
    FILE *to = log_begin(&t->log);
    int steps = t->done - t->first;
    if (!to)
        return;
    fprintf(to, "{\"summary\": true, \"steps\": %d, ", t->done);
    log_number(to, "loss", t->loss);
    fprintf(to, ", \"planned_bytes\": %llu, \"arena_bytes\": %llu, \"peak_rss_bytes\": %llu, ",
            (unsigned long long)t->stats.planned_bytes, (unsigned long long)t->stats.arena_bytes,
            (unsigned long long)t->peak_rss);
    log_number(to, "seconds_per_step", steps ? t->seconds / steps : NAN);
    fprintf(to, ", \"workers\": %d, \"utilisation\": {", t->stats.workers);
    for (int q = 0; q < t->stats.queue_count; q++) {
        fputs(q ? ", " : "", to);
        foreign_put_json(to, t->stats.queue[q].name);
        fprintf(to, ": %.4f", t->stats.queue[q].busy);
    }
    fputc('}', to);
    if (t->judge.name) {
        fputs(", ", to);
        log_number(to, t->judge.name, t->judged);
    }
    if (trainer_interrupted(t))
        fprintf(to, ", \"signal\": %d", trainer_interrupted(t));
    fputc('}', to);
    end_line(t);
}

bool trainer_log_close(trainer *t)
{
    const bool log_told = t->log.told, events_told = t->events.told;
    const int error = log_close(&t->log), events_error = events_close(&t->events);
    if (error && !log_told)
        options_wrong(t->program, "--log: cannot write %s: %s", t->opts.log, strerror(error));
    if (events_error && !events_told)
        options_wrong(t->program, "--log-dir: cannot write in %s: %s", t->opts.log_dir, strerror(events_error));
    return error || events_error;
}
