/* apps/common/train/trainer.c: what every training program does with its graph.
 *
 * The losses are pulled by the program's own thread while weir's workers go on: nothing here runs inside the plan, so
 * progress, logging and a slow disk cost the training nothing as long as they keep up. They need no lock either. Steps
 * between which nothing needs the session at rest are one run, so that the pipeline stays full from one to the next.
 */
#include "apps/common/train/trainer_log.h"
#include "apps/common/train/interrupt.h"
#include "apps/common/measure.h"
#include "apps/common/writable.h"

#include <errno.h>
#include <math.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

#define PULL_MS 200 /* after which a loss that does not come is asked after */

/* ---- before ---- */

/* Finds out before the work, not after it, that a file cannot be written. */
static int check_writable(const trainer *t, const char *option, const char *path, bool replaced)
{
    if (!path || writable(path, replaced))
        return -1;
    return options_wrong(t->program, "%s: cannot write %s: %s", option, path, strerror(errno));
}

static int open_files(trainer *t)
{
    if (t->opts.with_graph && !t->opts.plan)
        return options_wrong(t->program, "--with-graph needs --plan FILE");
    if (t->opts.gradients && !t->opts.log && !t->opts.log_dir)
        return options_wrong(t->program, "--log-gradients needs --log FILE or --log-dir DIR");
    int status = check_writable(t, "--trace", ranks_path(t->opts.trace, t->trace), false);
    if (status < 0 && ranks_first())
        status = check_writable(t, "--plan", t->opts.plan, true);
    if (status >= 0 || !ranks_first())
        return status;
    return trainer_log_open(t);
}

static weir_dtype precision(const trainer_opts *o)
{
    return o->bf16 ? WEIR_BF16 : o->f16 ? WEIR_F16 : WEIR_F32;
}

/* Tells what the plan gave up for --memory. */
static void tell_limit(const trainer *t)
{
    char text[200];
    if (ranks_first() && weir_plan_limited(t->plan, text, sizeof text))
        fprintf(stderr, "%s: %s\n", t->program, text);
}

static void show_verified(void *ctx, double part)
{
    const trainer *t = ctx;
    if (ranks_first() && isatty(STDERR_FILENO))
        fprintf(stderr, "\r%s: verifying the plan, %.0f %%\r", t->program, 100 * part);
}

static void tell_not_covered(void *ctx, const char *name, const char *op, weir_src src)
{
    const trainer *t = ctx;
    if (ranks_first())
        fprintf(stderr, "%s: %s:%d: the gradient of %s (%s) is not proven: the op, or one in its gradient, has no rule .exact\n", t->program,
                src.file ? src.file : "?", src.line, name, op);
}

/* Every rank does, as each has compiled for itself. */
static bool verify(trainer *t, const weir_graph *graph)
{
    const double start = measure_seconds();
    if (!t->plan || !t->opts.verify)
        return true;
    if (weir_plan_verify(graph, t->plan, .seed = t->opts.seed, .progress = show_verified, .ctx = t) ||
        weir_gradients_verify(graph, .seed = t->opts.seed, .not_covered = tell_not_covered, .ctx = t))
        return false;
    if (ranks_first())
        fprintf(stderr, "%s: the plan computes the model, and its gradients are those of the loss: verified in %.1f s\n", t->program,
                measure_seconds() - start);
    return true;
}

static int compile_graph(trainer *t, weir_graph *graph)
{
    bool right = true;
    if (graph)
        t->plan = weir_compile(graph, .micro_batches = t->micro, .memory = t->opts.memory,
                               .offload = t->opts.offload, .seed = t->opts.seed,
                               .snapshot = saver_saves(&t->saver), .precision = precision(&t->opts),
                               .no_fusion = t->opts.no_fusion, .per_host = t->opts.per_host,
                               .link = t->opts.link, .keep_graph = t->opts.with_graph,
                               .reduce = t->opts.fast_reduce ? WEIR_FAST : WEIR_SAME_BITS, .rates = t->rates);
    if (graph)
        right = verify(t, graph);
    weir_graph_free(graph);
    if (!graph)
        return options_wrong(t->program, "out of memory"), 1;
    if (!t->plan || !right || (t->opts.plan && ranks_first() && weir_plan_save(t->plan, t->opts.plan)))
        return options_failed(t->program);
    tell_limit(t);
    return -1;
}

/* --rates, else the file that weir_compile() would take by itself. */
static const char *rates_path(const trainer *t)
{
    const char *named = getenv("WEIR_RATES");
    return t->opts.rates ? t->opts.rates : named && *named ? named : NULL;
}

static int rates_failed(const trainer *t)
{
    options_wrong(t->program, "%s: %s%s", t->opts.rates ? "--rates" : "WEIR_RATES", options_error(t->program),
                  weir_world_size() > 1 ? "; weir launch --rates RATES gives its file to all ranks" : "");
    return 1;
}

static int compile(trainer *t, weir_graph *graph)
{
    const char *path = rates_path(t);
    t->rates = path ? weir_rates_load(path) : NULL;
    if (t->rates || !path)
        return compile_graph(t, graph);
    weir_graph_free(graph);
    return rates_failed(t);
}

/* ---- during ---- */

static void show(trainer *t)
{
    weir_session_stats now;
    if (!progress_is_due(&t->progress, t->done))
        return;
    weir_session_get_stats(t->session, &now);
    progress_show(&t->progress, t->done, t->loss, now.skipped < 0 ? t->skipped : now.skipped);
}

/* The next value of a fetch. WEIR_E_END: the run was stopped before there was one. */
static weir_status pull_value(trainer *t, const char *fetch, float *value)
{
    weir_array array = {value, WEIR_F32, {0}};
    for (bool over = false;;) {
        weir_status status = weir_session_pull(t->session, fetch, &array, over ? 0 : PULL_MS);
        bool none = status == WEIR_E_TIMEOUT || status == WEIR_E_STATE;
        if (!none || over)
            return none ? WEIR_E_END : status;
        over = weir_session_wait(t->session, 0) != WEIR_E_TIMEOUT;
        if (t->done > t->first)
            show(t);
        saver_watch(&t->saver, t->session);
    }
}

/* The next step's loss to t->loss. */
static weir_status pull_loss(trainer *t)
{
    double sum = 0, terms = 0;
    for (int m = 0; m < t->micro; m++) {
        float value = 0, count = 1;
        weir_status status = pull_value(t, "loss", &value);
        if (!status && t->counted)
            status = pull_value(t, "count", &count);
        if (status)
            return status;
        sum += value;
        terms += count;
    }
    t->loss = terms > 0 ? sum / terms : 0;
    return WEIR_OK;
}

/* The norms of the next step's gradients to t->norm. */
static weir_status pull_norms(trainer *t)
{
    weir_status status = WEIR_OK;
    for (int i = 0; i < t->norms.count && !status; i++) {
        float value = 0;
        status = pull_value(t, t->norms.name[i], &value);
        t->norm[i] = (double)value;
    }
    return status;
}

/* Losses after one that is no number are none either, so the run ends: on all ranks, which pull the same, after the same
 * step. */
static void watch_loss(trainer *t)
{
    if (isfinite(t->loss) || t->lost >= 0)
        return;
    t->lost = t->done - 1;
    t->lost_loss = t->loss;
    weir_session_stop(t->session);
}

/* Takes the losses of the steps up to `end` as they come. */
static weir_status follow_steps(trainer *t, int end)
{
    weir_status status = WEIR_OK;
    for (double last = measure_seconds(), now; t->done < end; last = now) {
        if ((status = pull_loss(t)) || (status = pull_norms(t)))
            return status == WEIR_E_END ? WEIR_OK : status;
        t->done++;
        now = measure_seconds();
        trainer_log_step(t, now - last);
        watch_loss(t);
        show(t);
        saver_watch(&t->saver, t->session);
    }
    return status;
}

/* Steps that changed nothing, as the plan counts them; of all ranks, which call this together. */
static int64_t read_skipped(const trainer *t)
{
    static const char *const counts[] = {"grad_norm/clip:clip_scale.skipped", "grad_seed:loss_scale:loss_scale.skipped"};
    weir_param_info info;
    for (int i = 0; i < weir_plan_param_count(t->plan); i++)
        for (int k = 0; k < 2 && !weir_plan_param(t->plan, i, &info); k++) {
            int32_t count = 0;
            if (!strcmp(info.name, counts[k]) && !weir_session_read(t->session, counts[k], WEIR_ARRAY(&count, WEIR_I32)))
                return count;
        }
    return 0;
}

/* Runs until `end` steps are done, or somebody, here or on another rank, stops it. */
static weir_status run_steps(trainer *t, int end)
{
    double start = measure_seconds();
    bool pulls = ranks_has_device(t->session);
    if (interrupt_caught()) /* again, as the first may have stopped another run, as a judge's */
        weir_session_stop(t->session);
    weir_status status = weir_session_start(t->session, end - t->done);
    if (!status && pulls)
        status = follow_steps(t, end);
    if (!status)
        status = weir_session_wait(t->session, -1);
    t->done = (int)weir_session_step(t->session);
    t->seconds += measure_seconds() - start;
    weir_session_get_stats(t->session, &t->stats); /* now, as the next run may be a judge's */
    if (!status)
        t->skipped = read_skipped(t);
    return !status && t->lost >= 0 ? WEIR_E_KERNEL : status;
}

/* The step after which the session has to rest next. */
static int next_rest(const trainer *t)
{
    int every = t->judge.name ? t->opts.eval_every : 0, steps = t->opts.steps;
    int64_t next = every ? ((int64_t)t->done / every + 1) * every : steps;
    return saver_next(&t->saver, t->done, next < steps ? (int)next : steps);
}

static weir_status judge(trainer *t)
{
    weir_status status = t->judge.ask(t->judge.ctx, t->session, &t->judged);
    t->judged_at = t->done;
    if (!status)
        trainer_log_judged(t);
    if (!status)
        saver_best(&t->saver, t->session, t->judge.name, t->judged);
    return status;
}

/* A rank was signalled where the others take the end of the run for a save that is due. That has been made by all, so
 * nothing is lost when the next run is ended at once. */
static weir_status tell_others(trainer *t)
{
    if (weir_world_size() == 1)
        return WEIR_OK;
    t->unsaved = weir_session_save_wait(t->session, -1) != WEIR_OK;
    weir_session_cancel(t->session);
    return WEIR_E_CANCELLED;
}

/* The work after a run that was to end after `end` steps. */
static weir_status rest(trainer *t, int end)
{
    int every = t->opts.eval_every;
    bool early = t->done < end, last = t->done == t->opts.steps, due = saver_is_due(&t->saver, t->done, early);
    weir_status status = WEIR_OK;
    t->ended = early && !due;
    if (!early && t->judge.name && (last || (every && t->done % every == 0)))
        status = judge(t);
    if (!status && due && !last)
        saver_save(&t->saver, t->session, early);
    if (!status && due && early && interrupt_caught())
        status = tell_others(t);
    return status;
}

/* Alone a signal that comes at rest is seen here; in a cluster the others have to hear of it, by a run that is stopped
 * at once. */
static bool goes_on(const trainer *t)
{
    return !t->ended && t->done < t->opts.steps && !(interrupt_caught() && weir_world_size() == 1);
}

static weir_status train(trainer *t)
{
    weir_status status = WEIR_OK;
    progress_begin(&t->progress, ranks_first() ? stderr : NULL, t->first, t->opts.steps, t->items_per_step, t->items);
    while (!status && goes_on(t)) {
        int end = next_rest(t);
        status = run_steps(t, end);
        if (!status)
            status = rest(t, end);
    }
    progress_pause(&t->progress);
    if (status == WEIR_E_CANCELLED) { /* by another rank, see tell_others() */
        t->ended = true;
        return WEIR_OK;
    }
    t->unsaved = !status && !saver_last(&t->saver, t->session);
    return status;
}

/* The link that takes the most to fill, of those over which this rank has sent registers. */
static bool longest_link(const trainer *t, weir_link *longest)
{
    *longest = (weir_link){.bytes_per_s = 0};
    for (int rank = 0; rank < weir_world_size(); rank++) {
        weir_link link;
        if (!weir_session_link(t->session, rank, &link) &&
            link.bytes_per_s * link.round_trip_s > longest->bytes_per_s * longest->round_trip_s)
            *longest = link;
    }
    return longest->bytes_per_s > 0;
}

static void print_link(const trainer *t)
{
    weir_link link;
    if (longest_link(t, &link))
        fprintf(stderr, "link: --link '%s' is what was measured%s\n", link.text,
                link.full ? "" : "; it may carry more, as there was never more to send");
}

/* As the session ran it, on all its ranks. A plan may run where no times are known, as over a link that nobody measured. */
static void print_predicted(const trainer *t)
{
    weir_prediction p;
    const int steps = t->done - t->first;
    if (!t->rates || steps <= 0)
        return;
    if (weir_session_predict(t->session, t->rates, &p))
        fprintf(stderr, "no time of a step was predicted: %s\n", options_error(t->program));
    else
        fprintf(stderr, "a step took %.2f ms, and %.2f ms was predicted\n", 1e3 * t->seconds / steps, 1e3 * p.step_s);
}

static void print_summary(const trainer *t)
{
    char time[32], planned[32], arenas[32], peak[32], base[32];
    int steps = t->done - t->first;
    if (trainer_interrupted(t))
        fprintf(stderr, "%s: ended by %s after %d of %d steps\n", t->program,
                trainer_interrupted(t) == SIGINT ? "SIGINT" : "SIGTERM", t->done, t->opts.steps);
    fprintf(stderr, "%d steps in %s, %.1f ms each; %d worker%s; busy", steps, measure_time_text(t->seconds, time),
            steps ? 1e3 * t->seconds / steps : 0, t->stats.workers, t->stats.workers == 1 ? "" : "s");
    for (int q = 0; q < t->stats.queue_count; q++)
        fprintf(stderr, "%s %s %.0f %%", q ? "," : "", t->stats.queue[q].name, 100 * t->stats.queue[q].busy);
    fprintf(stderr, "\nmemory%s: planned %s, allocated %s; peak of the process %s, of which %s before the session\n",
            weir_world_size() > 1 ? " of rank 0" : "", measure_bytes_text(t->stats.planned_bytes, planned),
            measure_bytes_text(t->stats.arena_bytes, arenas), measure_bytes_text(t->peak_rss, peak),
            measure_bytes_text(t->base_rss, base));
    print_predicted(t);
    if (t->skipped)
        fprintf(stderr, "%lld step%s skipped: the norm of the gradients was not finite, so nothing was updated\n",
                (long long)t->skipped, t->skipped == 1 ? " was" : "s were");
    print_link(t);
}

int trainer_begin(trainer *t)
{
    interrupt_catch(ranks_first() ? t->program : NULL);
    t->loss = t->judged = NAN;
    t->lost = -1;
    int status = saver_check(&t->saver, t->program, &t->opts.saver, t->judge.most_is_best);
    if (status < 0)
        status = open_files(t);
    if (status < 0 && t->saver.from && !t->opts.seed)
        t->opts.seed = t->saver.seed;
    return status;
}

/* Opens the session and loads what it goes on from; then a signal no longer ends the program at once. */
static int open_session(trainer *t)
{
    t->base_rss = measure_rss();
    t->session = weir_session_open(t->plan, .workers = t->opts.workers, .pin = t->opts.pin,
                                   .check_finite = t->opts.check_finite, .weights = t->start.weights,
                                   .trace = t->opts.trace ? t->trace : NULL);
    if (!t->session)
        return options_failed(t->program);
    if (!t->opts.workers)
        workers_tell(t->program, t->session);
    if (t->start.give && !t->start.give(t->start.ctx, t->session, t->plan))
        return 1;
    int status = saver_load(&t->saver, t->session, t->plan);
    t->first = t->done = (int)weir_session_step(t->session);
    if (saver_continues(&t->saver))
        events_begin_at(&t->events, t->first);
    if (status < 0)
        interrupt_stops(t->session);
    return status;
}

static int tell_lost(const trainer *t)
{
    if (ranks_first())
        options_wrong(t->program,
                      "the loss of step %d is %s; --check-finite names the op that first makes such a value", t->lost,
                      isnan(t->lost_loss) ? "NaN" : "infinite");
    return 1;
}

int trainer_train(trainer *t, weir_graph *graph, int micro)
{
    t->micro = micro;
    int status = compile(t, graph);
    if (status < 0)
        status = open_session(t);
    if (status >= 0)
        return status;
    weir_session_get_stats(t->session, &t->stats);
    if (train(t))
        return t->lost >= 0 ? tell_lost(t) : options_failed(t->program);
    t->peak_rss = measure_peak_rss();
    if (ranks_first())
        print_summary(t);
    return -1;
}

/* ---- after ---- */

int trainer_interrupted(const trainer *t)
{
    int caught = interrupt_caught();
    return caught || !t->ended ? caught : SIGTERM;
}

void trainer_tell_judged(const trainer *t)
{
    if (!trainer_interrupted(t) && t->judge.name && t->judged_at == t->done && ranks_first())
        fprintf(stderr, "validation loss %.4f\n", t->judged);
}

int trainer_end(trainer *t, int status)
{
    if (status < 0)
        trainer_log_summary(t);
    if (status < 0)
        status = t->unsaved ? 1 : trainer_interrupted(t) ? interrupt_status(trainer_interrupted(t)) : 0;
    interrupt_stops(NULL);
    if (weir_session_close(t->session)) {
        int failed = options_failed(t->program);
        status = status ? status : failed;
    }
    saver_end(&t->saver);
    if (trainer_log_close(t) && !status)
        status = OPTIONS_WRONG;
    weir_plan_free(t->plan);
    weir_rates_free(t->rates);
    t->rates = NULL;
    t->session = NULL;
    t->plan = NULL;
    return status;
}
