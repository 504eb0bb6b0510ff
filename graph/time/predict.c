/* graph/time/predict.c: weir_predict(): the workers of sessions, rates as durations, and the clock. */
#include <weir/time.h>

#include "graph/base/error.h"
#include "graph/base/locale.h"
#include "graph/base/opts.h"
#include "graph/plan/spread/deal.h"
#include "graph/plan/spread/spread.h"
#include "graph/time/predict.h"

#include <stdlib.h>
#include <string.h>

/* Texts of the answer are those of the caller's plan; a spread one has more queues, outside of all workers. */
static const char *text_of(const prediction *p, plan_str text)
{
    return text.i < p->given->strings_count ? plan_text(p->given, text) : "";
}

static const char *queue_name(const prediction *p, uint32_t queue)
{
    const plan_queue *of = &p->plan->queues[queue];
    return text_of(p, of->name.i < p->given->strings_count ? of->name : p->plan->spaces[of->space.i].name);
}

/* ---- workers ---- */

/* With a bandwidth or a latency between them each rank has a host of its own, unless the caller says how many one has. Workers for files
 * wait for their disk, and take no core. */
static uint32_t host_of(const prediction *p, uint32_t rank)
{
    if (p->opts->per_host)
        return rank / (uint32_t)p->opts->per_host;
    return p->changes.bits_s || p->changes.has_latency ? rank : 0;
}

/* Workers of a rank are numbered behind those of the ranks before it. */
static weir_status deal_rank(prediction *p, uint32_t rank, uint32_t limit)
{
    const weir_plan *plan = p->plan;
    plan_workers workers;
    weir_status status = plan_deal(plan, rank, p->changes.workers[rank] ? p->changes.workers[rank] : limit, p->worker, &workers);
    for (uint32_t q = 0; !status && q < plan->queues_count; q++)
        if (plan->spaces[plan->queues[q].space.i].rank == rank)
            p->worker[q] += p->workers;
    for (uint32_t w = 0; !status && w < workers.all; w++) {
        p->host_of[p->workers] = w < workers.compute ? host_of(p, rank) : PLAN_NONE;
        p->rank_of[p->workers++] = rank;
    }
    p->computing[rank] = status ? 0 : workers.compute;
    return status;
}

/* Queues of accelerators are workers behind those of all ranks, on no host. Launches are the work of the thread that has the device. */
static void deal_queues(prediction *p)
{
    p->threads = p->workers;
    for (uint32_t q = 0; p->launches.plan && q < p->given->queues_count; q++) {
        const uint32_t from = p->launches.queue[q];
        if (from == PLAN_NONE)
            continue;
        p->worker[from] = p->worker[q];
        p->queue_of[p->workers] = q;
        p->rank_of[p->workers] = p->plan->spaces[p->plan->queues[q].space.i].rank;
        p->host_of[p->workers] = PLAN_NONE;
        p->worker[q] = p->workers++;
    }
}

static weir_status deal_workers(prediction *p)
{
    const weir_plan *plan = p->plan;
    const uint32_t cores = p->rates->cores < UINT32_MAX ? (p->rates->cores ? (uint32_t)p->rates->cores : 1) : UINT32_MAX;
    const uint32_t limit = p->opts->workers > 0 ? (uint32_t)p->opts->workers : cores;
    p->worker = calloc(plan->queues_count + (size_t)1, sizeof *p->worker);
    p->rank_of = calloc(plan->queues_count + (size_t)plan->ranks + 1, sizeof *p->rank_of);
    p->host_of = calloc(plan->queues_count + (size_t)plan->ranks + 1, sizeof *p->host_of);
    p->queue_of = calloc(plan->queues_count + (size_t)plan->ranks + 1, sizeof *p->queue_of);
    p->host = calloc(plan->ranks + (size_t)1, sizeof *p->host);
    p->computing = calloc(plan->ranks + (size_t)1, sizeof *p->computing);
    const bool ok = p->worker && p->queue_of && p->rank_of && p->host_of && p->host && p->computing;
    weir_status status = ok ? WEIR_OK : error_set(WEIR_E_MEMORY, "no memory for %u queues", plan->queues_count);
    p->hosts = plan->ranks ? host_of(p, plan->ranks - 1) + 1 : 1;
    for (uint32_t h = 0; !status && h < p->hosts; h++)
        p->host[h] = (share_host){.cores = cores, .bytes_s = rates_bytes_s(p->rates, cores > 1 ? cores - 1 : 1)};
    for (uint32_t rank = 0; !status && rank < plan->ranks; rank++)
        status = deal_rank(p, rank, limit);
    if (!status)
        deal_queues(p);
    return status;
}

/* ---- the clock's questions ---- */

/* The worker of an actor; PLAN_NONE: it is one of the program's own. */
static uint32_t worker_of(const prediction *p, uint32_t actor)
{
    const uint32_t queue = p->plan->actors[actor].queue.i;
    return p->plan->queues[queue].kind == PLAN_OUTSIDE ? PLAN_NONE : p->worker[queue];
}

/* Whether the actor runs on a queue of an accelerator. */
static bool runs_ahead(const prediction *p, uint32_t actor)
{
    const uint32_t worker = worker_of(p, actor);
    return worker != PLAN_NONE && worker >= p->threads;
}

static const time_card *card_of(const prediction *p, uint32_t actor)
{
    return &p->rates->cards[p->plan->spaces[plan_actor_space(p->plan, actor).i].kind];
}

/* The thread's time to launch a firing. */
static uint64_t launch_ps(const prediction *p, uint32_t launched)
{
    const time_card *card = card_of(p, launched);
    const uint64_t ps = card->mark + p->plan->actors[launched].kernels.count * card->launch;
    return ps < SHARE_MAX ? ps : SHARE_MAX;
}

static share_work duration(void *ctx, uint32_t actor, uint32_t firing)
{
    prediction *p = ctx;
    if (p->launches.plan && p->launches.launched[actor] != PLAN_NONE)
        return (share_work){.ps = launch_ps(p, p->launches.launched[actor])};
    share_work work = durations_firing(&p->durations, actor, firing);
    if (!runs_ahead(p, actor))
        work.ps += p->rates->same + lines_firing(&p->lines, actor, firing);
    return work;
}

/* From the time for which a copy keeps its queue to that of the copy itself. */
static uint64_t copy_rest(const prediction *p, uint32_t actor)
{
    const plan_actor *of = &p->plan->actors[actor];
    const uint32_t kind = p->plan->queues[of->queue.i].kind;
    uint64_t rest = 0;
    if (kind != PLAN_COPY_IN && kind != PLAN_COPY_OUT)
        return 0;
    const time_copy *copy = &card_of(p, actor)->copy[kind == PLAN_COPY_OUT ? TIME_OUT : TIME_IN];
    for (uint32_t k = of->kernels.first; k < of->kernels.first + of->kernels.count; k++) {
        const uint64_t bytes = time_copy_bytes(p->plan, k), once = curve_at(&copy->once, bytes), stream = curve_at(&copy->stream, bytes);
        rest = once > stream && once - stream > rest ? once - stream : rest;
    }
    return rest;
}

/* Whether an accelerator has to do with the message; then it takes so long beside that of threads. A queue waits for other queues by
 * itself; threads hear of it when it is done; and its launch has waited for the threads. */
static bool message_of_queue(const prediction *p, uint32_t port, bool freed, uint64_t *ps)
{
    const plan_port *of = &p->plan->ports[port];
    const uint32_t reader = of->actor.i, producer = p->plan->regsts[of->regst.i].producer.i;
    const uint32_t from = freed ? reader : producer, to = freed ? producer : reader;
    *ps = 0;
    if (!p->launches.plan || (!runs_ahead(p, from) && !runs_ahead(p, to)))
        return false;
    if (runs_ahead(p, from))
        *ps = copy_rest(p, from) + (runs_ahead(p, to) ? 0 : card_of(p, from)->done);
    return true;
}

/* A thread's message to another process goes on from there. */
static bool leaves_rank(const prediction *p, uint32_t port)
{
    const plan_port *of = &p->plan->ports[port];
    return plan_rank_of(p->plan, of->actor.i) != plan_rank_of(p->plan, p->plan->regsts[of->regst.i].producer.i);
}

static uint64_t message(void *ctx, uint32_t port, bool freed, uint64_t now)
{
    prediction *p = ctx;
    uint64_t ps;
    if (message_of_queue(p, port, freed, &ps) && !leaves_rank(p, port))
        return ps;
    return lines_message(&p->lines, port, freed, now, now + ps);
}

static uint64_t lines_next_of(void *ctx, uint64_t now)
{
    return lines_next(&((prediction *)ctx)->lines, now);
}

static bool lines_take_of(void *ctx, uint64_t now, uint32_t *port, bool *freed, uint64_t *takes)
{
    return lines_take(&((prediction *)ctx)->lines, now, port, freed, takes);
}

static void lines_count_of(void *ctx, uint64_t now, uint64_t *messages, uint64_t *rest)
{
    lines_count(&((prediction *)ctx)->lines, now, messages, rest);
}

static uint64_t message_alone(void *ctx, uint32_t port, bool freed)
{
    const prediction *p = ctx;
    uint64_t ps;
    return message_of_queue(p, port, freed, &ps) && !leaves_rank(p, port) ? ps : ps + lines_alone(&p->lines, port, freed);
}

static void record(prediction *p, period_firing firing)
{
    if (p->firing_count == p->firing_room) {
        const uint64_t room = p->firing_room ? 2 * p->firing_room : 4096;
        period_firing *firings = realloc(p->firings, room * sizeof *firings);
        p->failed |= !firings;
        if (!firings)
            return;
        p->firings = firings;
        p->firing_room = room;
    }
    p->firings[p->firing_count++] = firing;
}

static void fired(void *ctx, uint32_t actor, uint32_t firing, uint64_t begin, uint64_t end)
{
    prediction *p = ctx;
    const plan_actor *of = &p->plan->actors[actor];
    lines_ended(&p->lines, actor, end);
    record(p, (period_firing){actor, firing, worker_of(p, actor), begin, end});
    if (!p->opts->fired || actor >= p->given->actors_count)
        return;
    p->opts->fired(p->opts->ctx, &(weir_predicted_firing){text_of(p, of->name), queue_name(p, of->queue.i), (int)actor, (int)(firing % of->fires),
                                                          firing / of->fires, (double)begin / TIME_PS_S, (double)end / TIME_PS_S});
}

/* ---- the answer ---- */

static void conclude(const prediction *p, const clock_result *played, weir_prediction *to)
{
    const double *by = p->durations.by_source;
    const double all = by[TIME_MEASURED] + by[TIME_SCALED] + by[TIME_GUESSED];
    *to = (weir_prediction){
        .step_s = (double)played->period / TIME_PS_S,
        .first_s = (double)played->end[0] / TIME_PS_S,
        .steady = played->repeat > 0,
        .measured = all > 0 ? by[TIME_MEASURED] / all : 1,
        .scaled = all > 0 ? by[TIME_SCALED] / all : 0,
        .guessed = all > 0 ? by[TIME_GUESSED] / all : 0,
        .firings = (int64_t)played->firings,
        .workers = (int)p->threads,
        .queues = (int)(p->workers - p->threads),
    };
    uint32_t number = 0;
    for (uint32_t w = p->threads; w < p->workers && w - p->threads < WEIR_PREDICT_QUEUES; w++)
        to->queue[w - p->threads] = (struct weir_predicted_queue){queue_name(p, p->queue_of[w]), (int)p->rank_of[w],
                                                                  played->span ? (double)played->busy[w] / (double)played->span : 0};
    for (uint32_t w = 0; w < p->threads && w < WEIR_PREDICT_WORKERS; w++) {
        number = w && p->rank_of[w] == p->rank_of[w - 1] ? number + 1 : 0;
        to->worker[w] = (struct weir_predicted_worker){(int)p->rank_of[w], (int)number,
                                                       played->span ? (double)played->busy[w] / (double)played->span : 0};
    }
}

static int compare_busy(const void *a, const void *b)
{
    const line *x = a, *y = b;
    if (x->busy != y->busy)
        return x->busy > y->busy ? -1 : 1;
    return x->from != y->from ? (x->from < y->from ? -1 : 1) : x->to < y->to ? -1 : x->to > y->to;
}

/* The busiest first; one that only says that slots are free is left out. */
static void conclude_lines(prediction *p, const clock_result *played, weir_prediction *to)
{
    line *list = p->lines.lines;
    if (p->lines.count)
        qsort(list, p->lines.count, sizeof *list, compare_busy);
    for (uint32_t i = 0; i < p->lines.count; i++)
        if (list[i].bytes > 0 && to->lines++ < WEIR_PREDICT_LINES)
            to->line[to->lines - 1] = (struct weir_predicted_line){(int)list[i].from, (int)list[i].to, list[i].bytes,
                                                                   played->period ? list[i].busy / (double)played->period : 0};
}

static struct weir_predicted_bound bound_of(const prediction *p, const period_edge *e)
{
    const weir_plan *plan = p->plan;
    const plan_actor *actor = &plan->actors[e->from];
    const plan_range *tensors = e->port == PLAN_NONE ? NULL : &plan->regsts[plan->ports[e->port].regst.i].tensors;
    return (struct weir_predicted_bound){text_of(p, actor->name), queue_name(p, actor->queue.i),
                                         tensors && tensors->count ? text_of(p, plan->tensors[tensors->first].name) : NULL,
                                         (int)e->from_firing, e->kind, (double)e->ps / TIME_PS_S};
}

static void explain(const prediction *p, const period_result *period, weir_prediction *to)
{
    to->cycle_s = period->ps / TIME_PS_S;
    to->bounds = (int)period->count;
    for (uint32_t i = 0; i < period->count && i < WEIR_PREDICT_BOUNDS; i++)
        to->bound[i] = bound_of(p, &period->cycle[i]);
}

/* Why a step takes so long: of the steady state, which only a second step shows. */
static weir_status find_cycle(prediction *p, const uint32_t *slots, const clock_result *played, period_result *period)
{
    const period_spec spec = {.plan = p->plan, .program = p->program, .firings = p->firings, .count = p->firing_count,
                              .steps = played->steps, .unroll = played->repeat ? played->repeat : 1, .period = played->period,
                              .workers = p->workers, .ctx = p, .message = message_alone, .slots = slots};
    return played->steps < 2 * spec.unroll ? WEIR_OK : period_find(&spec, period);
}

/* Workers that have a core each, and calls that others do not slow, need no host: the clock is faster without. */
static void leave_hosts(prediction *p)
{
    uint32_t *count = calloc(p->hosts + (size_t)1, sizeof *count);
    for (uint32_t w = 0; count && w < p->workers; w++)
        if (p->host_of[w] != PLAN_NONE)
            count[p->host_of[w]]++;
    for (uint32_t w = 0; count && w < p->workers && !p->durations.beside; w++)
        if (p->host_of[w] != PLAN_NONE && count[p->host_of[w]] <= p->host[p->host_of[w]].cores)
            p->host_of[w] = PLAN_NONE;
    free(count);
}

weir_status prediction_play(prediction *p, const uint32_t *slots, clock_result *played, period_result *period)
{
    clock_spec spec = {.plan = p->plan, .program = p->program, .worker = p->worker, .workers = p->workers, .host = p->host, .hosts = p->hosts,
                       .host_of = p->host_of, .ctx = p, .duration = duration, .message = message, .fired = fired, .slots = slots,
                       .launches = p->launches.launched};
    *played = (clock_result){0};
    *period = (period_result){0};
    p->firing_count = 0;
    weir_status status = durations_begin(&p->durations, slots, p->workers);
    status = status ? status : lines_begin(&p->lines, slots);
    if (!status && p->lines.count)
        spec.next = lines_next_of, spec.take = lines_take_of, spec.count = lines_count_of;
    status = status ? status : clock_play(&spec, played);
    if (!status && (p->failed || p->lines.failed))
        status = error_set(WEIR_E_MEMORY, "no memory for %llu firings", (unsigned long long)played->firings);
    return status ? status : find_cycle(p, slots, played, period);
}

static weir_status find_program(prediction *p)
{
    const char *wanted = p->opts->program ? p->opts->program : "main";
    for (uint32_t i = 0; i < p->plan->programs_count; i++)
        if (!strcmp(plan_text(p->plan, p->plan->programs[i].name), wanted)) {
            p->program = i;
            return WEIR_OK;
        }
    return error_set(WEIR_E_ARGUMENT, "%s:%d: weir_predict: the plan has no program \"%s\"", p->opts->src.file, p->opts->src.line, wanted);
}

static weir_status check_ranks(const prediction *p)
{
    const weir_predict_opts *o = p->opts;
    if (o->ranks < 0 || o->per_host < 0)
        return error_set(WEIR_E_ARGUMENT, "%s: .%s is %d, and must be 1 or more", p->call, o->ranks < 0 ? "ranks" : "per_host",
                         o->ranks < 0 ? o->ranks : o->per_host);
    return WEIR_OK;
}

weir_status prediction_open(prediction *p, const weir_plan *plan, const weir_rates *rates, const weir_predict_opts *opts)
{
    *p = (prediction){.plan = plan, .given = plan, .rates = rates, .opts = opts};
    text_print(p->call, sizeof p->call, "%s:%d: weir_predict", opts->src.file, opts->src.line);
    weir_status status = check_ranks(p);
    if (!status && opts->ranks) {
        p->plan = p->spread = plan_spread(plan, (uint32_t)opts->ranks, 0);
        status = p->spread ? WEIR_OK : WEIR_E_ARGUMENT; /* the sentence is there */
    }
    status = status ? status : find_program(p);
    status = status ? status : time_cards_check(p->plan, p->program, rates, p->call);
    status = status ? status : launches_open(&p->launches, p->plan);
    p->plan = p->launches.plan ? p->launches.plan : p->plan;
    status = status ? status : changes_read(&p->changes, p->plan, opts->set, p->call);
    if (!status)
        launches_slots(&p->launches, p->changes.slots);
    status = status ? status : deal_workers(p);
    uint32_t *const worker = p->worker;
    status = status ? status : durations_open(&p->durations, p->plan, rates, p->changes.speed, worker, p->workers, p->threads);
    const lines_spec between = {.plan = p->plan, .program = p->program, .rates = rates, .changes = &p->changes, .regsts = p->launches.regsts,
                                .per_host = (uint32_t)opts->per_host, .carrier = opts->carrier, .no_key = opts->no_key,
                                .computing = p->computing, .worker = worker, .workers = p->workers, .call = p->call};
    status = status ? status : lines_open(&p->lines, &between);
    p->worker = worker; /* a static analyser loses sight of it behind a call that is given a part of p */
    if (!status)
        leave_hosts(p);
    return status;
}

void prediction_close(prediction *p)
{
    changes_free(&p->changes);
    durations_close(&p->durations);
    lines_close(&p->lines);
    free(p->worker);
    free(p->queue_of);
    free(p->rank_of);
    free(p->host);
    free(p->host_of);
    free(p->computing);
    free(p->firings);
    launches_close(&p->launches);
    weir_plan_free(p->spread);
    *p = (prediction){0};
}

weir_status weir_predict_at(const weir_plan *plan, const weir_rates *rates, weir_prediction *to, const weir_predict_opts *given)
{
    weir_predict_opts opts;
    if (error_null(plan, "weir_predict", "plan") || error_null(rates, "weir_predict", "rates") || error_null(to, "weir_predict", "prediction"))
        return WEIR_E_ARGUMENT;
    weir_status status = opts_read(&opts, sizeof opts, given, "weir_predict");
    if (status)
        return status;
    prediction p;
    clock_result played = {0};
    period_result period = {0};
    status = prediction_open(&p, plan, rates, &opts);
    status = status ? status : prediction_play(&p, p.changes.slots, &played, &period);
    if (!status) {
        conclude(&p, &played, to);
        explain(&p, &period, to);
        conclude_lines(&p, &played, to); /* sorts them, so nobody asks for messages any more */
    }
    free(played.busy);
    free(period.cycle);
    prediction_close(&p);
    return status;
}
