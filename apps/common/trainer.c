/* apps/common/trainer.c: what every training program does with its graph.
 *
 * The losses are pulled by the program's own thread while weir's workers go on: nothing here runs inside the plan, so
 * progress, logging and a slow disk cost the training nothing as long as they keep up. They need no lock either. All
 * steps are one run, so that the pipeline stays full from one step to the next.
 */
#include "apps/common/trainer.h"
#include "apps/common/measure.h"
#include "apps/common/progress.h"

#include <errno.h>
#include <math.h>
#include <string.h>

/* ---- before ---- */

/* Finds out before the work, not after it, that a file cannot be written. */
static int check_writable(const trainer *t, const char *option, const char *path)
{
    FILE *file = path ? fopen(path, "ab") : NULL;
    if (path && !file)
        return options_wrong(t->program, "%s: cannot write %s: %s", option, path, strerror(errno));
    if (file)
        fclose(file);
    return -1;
}

static int open_files(trainer *t)
{
    int status = check_writable(t, "--trace", ranks_path(t->opts.trace, t->trace));
    if (status < 0 && ranks_first())
        status = check_writable(t, "--plan", t->opts.plan);
    if (status >= 0 || !t->opts.log || !ranks_first())
        return status;
    t->log = fopen(t->opts.log, "w");
    return t->log ? -1 : options_wrong(t->program, "--log: cannot write %s: %s", t->opts.log, strerror(errno));
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

static void log_step(trainer *t, int step, double seconds)
{
    if (!t->log)
        return;
    fprintf(t->log, "{\"step\": %d, \"loss\": ", step);
    fprintf(t->log, isfinite(t->loss) ? "%.9g" : "null", t->loss);
    fprintf(t->log, ", \"seconds\": %.6f, \"%s_per_s\": %.1f}\n", seconds, t->items, t->items_per_step / seconds);
}

/* The mean of the next step's losses to t->loss. */
static weir_status pull_loss(trainer *t, progress *p, int done)
{
    double sum = 0;
    for (int m = 0; m < t->micro;) {
        float value = 0;
        weir_status status = weir_session_pull(t->session, "loss", &(weir_array){&value, WEIR_F32, {0}}, 200);
        if (status == WEIR_E_TIMEOUT) {
            if (done)
                progress_show(p, done, t->loss);
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

static weir_status run_steps(trainer *t)
{
    progress p;
    int pulled = ranks_has_device(t->session) ? t->opts.steps : 0;
    weir_status status = weir_session_start(t->session, t->opts.steps);
    double start = measure_seconds(), last = start;
    progress_begin(&p, ranks_first() ? stderr : NULL, t->opts.steps, t->items_per_step, t->items);
    for (int step = 0; !status && step < pulled; step++) {
        if ((status = pull_loss(t, &p, step)))
            break;
        double now = measure_seconds();
        log_step(t, step, now - last);
        last = now;
        progress_show(&p, step + 1, t->loss);
    }
    if (!status)
        status = weir_session_wait(t->session, -1);
    t->seconds = measure_seconds() - start;
    return status;
}

static void print_summary(const trainer *t)
{
    char time[32], planned[32], arenas[32], peak[32], base[32];
    fprintf(stderr, "%d steps in %s, %.1f ms each; %d worker%s; busy", t->opts.steps,
            measure_time_text(t->seconds, time), 1e3 * t->seconds / t->opts.steps, t->stats.workers,
            t->stats.workers == 1 ? "" : "s");
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
    if (!t->session || run_steps(t))
        return options_failed(t->program);
    t->peak_rss = measure_peak_rss();
    weir_session_get_stats(t->session, &t->stats);
    if (ranks_first())
        print_summary(t);
    return -1;
}

/* ---- after ---- */

static void log_summary(trainer *t, const char *more)
{
    fprintf(t->log, "{\"summary\": true, \"steps\": %d, \"loss\": ", t->opts.steps);
    fprintf(t->log, isfinite(t->loss) ? "%.9g" : "null", t->loss);
    fprintf(t->log, ", \"planned_bytes\": %llu, \"arena_bytes\": %llu, \"peak_rss_bytes\": %llu",
            (unsigned long long)t->stats.planned_bytes, (unsigned long long)t->stats.arena_bytes,
            (unsigned long long)t->peak_rss);
    fprintf(t->log, ", \"seconds_per_step\": %.6f, \"workers\": %d, \"utilisation\": {", t->seconds / t->opts.steps,
            t->stats.workers);
    for (int q = 0; q < t->stats.queue_count; q++)
        fprintf(t->log, "%s\"%s\": %.4f", q ? ", " : "", t->stats.queue[q].name, t->stats.queue[q].busy);
    fprintf(t->log, "}%s}\n", more);
}

int trainer_end(trainer *t, int status, const char *more)
{
    if (status < 0 && t->log)
        log_summary(t, more);
    if (status < 0)
        status = 0;
    if (t->session && weir_session_close(t->session) && !status)
        status = options_failed(t->program);
    if (t->log && fclose(t->log) && !status)
        status = options_wrong(t->program, "--log: cannot write %s: %s", t->opts.log, strerror(errno));
    weir_plan_free(t->plan);
    t->session = NULL;
    t->log = NULL;
    t->plan = NULL;
    return status;
}
