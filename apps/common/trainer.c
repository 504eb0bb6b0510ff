/* apps/common/trainer.c: what every training program does with its graph.
 *
 * The losses are pulled by the program's own thread while weir's workers go on: nothing here runs inside the plan, so
 * progress, logging and a slow disk cost the training nothing as long as they keep up. They need no lock either. Steps
 * between which nothing needs the session at rest are one run, so that the pipeline stays full from one to the next.
 */
#include "apps/common/trainer.h"
#include "apps/common/measure.h"

#include <errno.h>
#include <math.h>
#include <string.h>
#include <unistd.h>

/* ---- before ---- */

/* Finds out before the work, not after it, that a file cannot be written. One that was not there is not left empty. */
static int check_writable(const trainer *t, const char *option, const char *path)
{
    bool was = path && access(path, F_OK) == 0;
    FILE *file = path ? fopen(path, "ab") : NULL;
    if (path && !file)
        return options_wrong(t->program, "%s: cannot write %s: %s", option, path, strerror(errno));
    if (file)
        fclose(file);
    if (file && !was)
        remove(path);
    return -1;
}

static int open_files(trainer *t)
{
    int status = check_writable(t, "--trace", ranks_path(t->opts.trace, t->trace));
    if (status < 0 && ranks_first())
        status = check_writable(t, "--plan", t->opts.plan);
    if (status >= 0 || !t->opts.log || !ranks_first())
        return status;
    if (log_open(&t->log, t->opts.log, false))
        return -1;
    return options_wrong(t->program, "--log: cannot write %s: %s", t->opts.log, strerror(errno));
}

static int compile(trainer *t, weir_graph *graph)
{
    if (graph)
        t->plan = weir_compile(graph, .micro_batches = t->micro, .memory = t->opts.memory, .seed = t->opts.seed);
    weir_graph_free(graph);
    if (!graph)
        return options_wrong(t->program, "out of memory"), 1;
    if (!t->plan || (t->opts.plan && ranks_first() && weir_plan_save(t->plan, t->opts.plan)))
        return options_failed(t->program);
    return -1;
}

/* ---- during ---- */

static void log_number(FILE *to, const char *name, double value)
{
    fprintf(to, isfinite(value) ? "\"%s\": %.9g" : "\"%s\": null", name, value);
}

static void log_step(trainer *t, double seconds)
{
    FILE *to = log_begin(&t->log);
    if (!to)
        return;
    fprintf(to, "{\"step\": %d, ", t->done - 1);
    log_number(to, "loss", t->loss);
    fprintf(to, ", \"seconds\": %.6f, \"%s_per_s\": %.1f}", seconds, t->items, t->items_per_step / seconds);
    log_end(&t->log);
}

/* The mean of the next step's losses to t->loss. */
static weir_status pull_loss(trainer *t)
{
    double sum = 0;
    for (int m = 0; m < t->micro;) {
        float value = 0;
        weir_status status = weir_session_pull(t->session, "loss", &(weir_array){&value, WEIR_F32, {0}}, 200);
        if (status == WEIR_E_TIMEOUT) {
            if (t->done > t->first)
                progress_show(&t->progress, t->done, t->loss);
            continue;
        }
        if (status)
            return status;
        sum += value;
        m++;
    }
    t->loss = sum / t->micro;
    return WEIR_OK;
}

/* Takes the losses of the steps up to `end` as they come. */
static weir_status follow_steps(trainer *t, int end)
{
    weir_status status = WEIR_OK;
    for (double last = measure_seconds(), now; t->done < end; last = now) {
        if ((status = pull_loss(t)))
            return status;
        t->done++;
        now = measure_seconds();
        log_step(t, now - last);
        progress_show(&t->progress, t->done, t->loss);
    }
    return status;
}

/* Runs up to `end` steps. */
static weir_status run_steps(trainer *t, int end)
{
    double start = measure_seconds();
    bool pulls = ranks_has_device(t->session);
    weir_status status = weir_session_start(t->session, end - t->done);
    if (!status && pulls)
        status = follow_steps(t, end);
    if (!status)
        status = weir_session_wait(t->session, -1);
    t->done = end;
    t->seconds += measure_seconds() - start;
    return status;
}

/* The next multiple of `every` after `done`, at most `steps`. */
static int next_multiple(int done, int every, int steps)
{
    int64_t next = every ? ((int64_t)done / every + 1) * every : steps;
    return next < steps ? (int)next : steps;
}

static weir_status judge(trainer *t)
{
    weir_status status = t->judge.ask(t->judge.ctx, t->session, &t->judged);
    FILE *to = status ? NULL : log_begin(&t->log);
    t->judged_at = t->done;
    if (to) {
        fprintf(to, "{\"steps\": %d, ", t->done);
        log_number(to, t->judge.name, t->judged);
        fputc('}', to);
        log_end(&t->log);
    }
    return status;
}

static weir_status train(trainer *t)
{
    int steps = t->opts.steps, every = t->judge.name ? t->opts.eval_every : 0;
    weir_status status = WEIR_OK;
    progress_begin(&t->progress, ranks_first() ? stderr : NULL, t->first, steps, t->items_per_step, t->items);
    while (!status && t->done < steps) {
        status = run_steps(t, next_multiple(t->done, every, steps));
        if (!status && t->judge.name && (t->done == steps || (every && t->done % every == 0)))
            status = judge(t);
    }
    return status;
}

static void print_summary(const trainer *t)
{
    char time[32], planned[32], arenas[32], peak[32], base[32];
    int steps = t->done - t->first;
    fprintf(stderr, "%d steps in %s, %.1f ms each; %d worker%s; busy", steps, measure_time_text(t->seconds, time),
            steps ? 1e3 * t->seconds / steps : 0, t->stats.workers, t->stats.workers == 1 ? "" : "s");
    for (int q = 0; q < t->stats.queue_count; q++)
        fprintf(stderr, "%s %s %.0f %%", q ? "," : "", t->stats.queue[q].name, 100 * t->stats.queue[q].busy);
    fprintf(stderr, "\nmemory%s: planned %s, allocated %s; peak of the process %s, of which %s before the session\n",
            weir_world_size() > 1 ? " of rank 0" : "", measure_bytes_text(t->stats.planned_bytes, planned),
            measure_bytes_text(t->stats.arena_bytes, arenas), measure_bytes_text(t->peak_rss, peak),
            measure_bytes_text(t->base_rss, base));
}

int trainer_train(trainer *t, weir_graph *graph, int micro)
{
    t->micro = micro;
    t->loss = t->judged = NAN;
    int status = open_files(t);
    if (status >= 0) {
        weir_graph_free(graph);
        return status;
    }
    if ((status = compile(t, graph)) >= 0)
        return status;
    t->base_rss = measure_rss();
    t->session = weir_session_open(t->plan, .workers = t->opts.workers, .pin = t->opts.pin,
                                   .trace = t->opts.trace ? t->trace : NULL);
    if (t->session && !t->opts.workers)
        workers_tell(t->program, t->session);
    if (!t->session || train(t))
        return options_failed(t->program);
    t->peak_rss = measure_peak_rss();
    weir_session_get_stats(t->session, &t->stats);
    if (ranks_first())
        print_summary(t);
    return -1;
}

/* ---- after ---- */

static void log_summary(trainer *t)
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
    for (int q = 0; q < t->stats.queue_count; q++)
        fprintf(to, "%s\"%s\": %.4f", q ? ", " : "", t->stats.queue[q].name, t->stats.queue[q].busy);
    fputc('}', to);
    if (t->judge.name) {
        fputs(", ", to);
        log_number(to, t->judge.name, t->judged);
    }
    fputs("}", to);
    log_end(&t->log);
}

int trainer_end(trainer *t, int status)
{
    if (status < 0)
        log_summary(t);
    if (status < 0)
        status = 0;
    if (t->session && weir_session_close(t->session) && !status)
        status = options_failed(t->program);
    int error = log_close(&t->log);
    if (error && !status)
        status = options_wrong(t->program, "--log: cannot write %s: %s", t->opts.log, strerror(error));
    weir_plan_free(t->plan);
    t->session = NULL;
    t->plan = NULL;
    return status;
}
