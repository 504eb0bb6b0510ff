/* graph/time/predict.c: weir_predict(): the workers of sessions, rates as durations, and the clock. */
#include <weir/time.h>

#include "graph/base/error.h"
#include "graph/base/locale.h"
#include "graph/base/opts.h"
#include "graph/plan/spread/deal.h"
#include "graph/time/predict.h"

#include <stdlib.h>
#include <string.h>

/* ---- workers ---- */

/* Workers of a rank are numbered behind those of the ranks before it. */
static weir_status deal_rank(prediction *p, uint32_t rank, uint32_t limit)
{
    const weir_plan *plan = p->plan;
    plan_workers workers;
    weir_status status = plan_deal(plan, rank, p->changes.workers[rank] ? p->changes.workers[rank] : limit, p->worker, &workers);
    for (uint32_t q = 0; !status && q < plan->queues_count; q++)
        if (plan->spaces[plan->queues[q].space.i].rank == rank)
            p->worker[q] += p->workers;
    for (uint32_t w = 0; !status && w < workers.all; w++)
        p->rank_of[p->workers++] = rank;
    return status;
}

static weir_status deal_workers(prediction *p)
{
    const weir_plan *plan = p->plan;
    const uint32_t cores = p->rates->cores ? (uint32_t)p->rates->cores : 1;
    const uint32_t limit = p->opts->workers > 0 ? (uint32_t)p->opts->workers : cores;
    p->worker = calloc(plan->queues_count + (size_t)1, sizeof *p->worker);
    p->rank_of = calloc(plan->queues_count + (size_t)plan->ranks + 1, sizeof *p->rank_of);
    weir_status status = p->worker && p->rank_of ? WEIR_OK : error_set(WEIR_E_MEMORY, "no memory for %u queues", plan->queues_count);
    for (uint32_t rank = 0; !status && rank < plan->ranks; rank++)
        status = deal_rank(p, rank, limit);
    return status;
}

/* ---- the clock's questions ---- */

static uint64_t duration(void *ctx, uint32_t actor, uint32_t firing)
{
    prediction *p = ctx;
    return p->rates->same + durations_firing(&p->durations, actor, firing) * CHANGE_SPEED / p->changes.speed[plan_actor_space(p->plan, actor).i];
}

static uint64_t message(void *ctx, uint32_t port, bool freed, uint64_t now)
{
    prediction *p = ctx;
    return lines_message(&p->lines, port, freed, now);
}

static uint64_t message_alone(void *ctx, uint32_t port, bool freed)
{
    const prediction *p = ctx;
    return lines_alone(&p->lines, port, freed);
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
    const plan_queue *queue = &p->plan->queues[of->queue.i];
    record(p, (period_firing){actor, firing, queue->kind == PLAN_OUTSIDE ? PLAN_NONE : p->worker[of->queue.i], begin, end});
    const weir_predicted_firing one = {plan_text(p->plan, of->name), plan_text(p->plan, queue->name), (int)actor, (int)(firing % of->fires),
                                       firing / of->fires, (double)begin / TIME_PS_S, (double)end / TIME_PS_S};
    if (p->opts->fired)
        p->opts->fired(p->opts->ctx, &one);
}

/* ---- the answer ---- */

static void conclude(const prediction *p, const clock_result *played, weir_prediction *to)
{
    const uint64_t *by = p->durations.by_source;
    const double all = (double)(by[TIME_MEASURED] + by[TIME_SCALED] + by[TIME_GUESSED]);
    *to = (weir_prediction){
        .step_s = (double)played->period / TIME_PS_S,
        .first_s = (double)played->end[0] / TIME_PS_S,
        .steady = played->repeat > 0,
        .measured = all > 0 ? (double)by[TIME_MEASURED] / all : 1,
        .scaled = all > 0 ? (double)by[TIME_SCALED] / all : 0,
        .guessed = all > 0 ? (double)by[TIME_GUESSED] / all : 0,
        .firings = (int64_t)played->firings,
        .workers = (int)p->workers,
    };
    uint32_t number = 0;
    for (uint32_t w = 0; w < p->workers && w < WEIR_PREDICT_WORKERS; w++) {
        number = w && p->rank_of[w] == p->rank_of[w - 1] ? number + 1 : 0;
        to->worker[w] = (struct weir_predicted_worker){(int)p->rank_of[w], (int)number,
                                                       played->span ? (double)played->busy[w] / (double)played->span : 0};
    }
}

static struct weir_predicted_bound bound_of(const weir_plan *plan, const period_edge *e)
{
    const plan_actor *actor = &plan->actors[e->from];
    const plan_range *tensors = e->port == PLAN_NONE ? NULL : &plan->regsts[plan->ports[e->port].regst.i].tensors;
    return (struct weir_predicted_bound){plan_text(plan, actor->name), plan_text(plan, plan->queues[actor->queue.i].name),
                                         tensors && tensors->count ? plan_text(plan, plan->tensors[tensors->first].name) : NULL,
                                         (int)e->from_firing, e->kind, (double)e->ps / TIME_PS_S};
}

static void explain(const weir_plan *plan, const period_result *period, weir_prediction *to)
{
    to->cycle_s = period->ps / TIME_PS_S;
    to->bounds = (int)period->count;
    for (uint32_t i = 0; i < period->count && i < WEIR_PREDICT_BOUNDS; i++)
        to->bound[i] = bound_of(plan, &period->cycle[i]);
}

/* Why a step takes so long: of the steady state, which only a second step shows. */
static weir_status find_cycle(prediction *p, const uint32_t *slots, const clock_result *played, period_result *period)
{
    const period_spec spec = {.plan = p->plan, .program = p->program, .firings = p->firings, .count = p->firing_count, .steps = played->steps, .unroll = played->repeat ? played->repeat : 1,
                              .workers = p->workers, .ctx = p, .message = message_alone, .slots = slots};
    return played->steps < 2 * spec.unroll ? WEIR_OK : period_find(&spec, period);
}

weir_status prediction_play(prediction *p, const uint32_t *slots, clock_result *played, period_result *period)
{
    const clock_spec spec = {.plan = p->plan, .program = p->program, .worker = p->worker, .workers = p->workers, .ctx = p, .duration = duration,
                             .message = message, .fired = fired, .slots = slots};
    *played = (clock_result){0};
    *period = (period_result){0};
    p->firing_count = 0;
    weir_status status = durations_begin(&p->durations, slots, p->workers);
    status = status ? status : lines_open(&p->lines, p->plan, p->rates, &p->changes);
    status = status ? status : clock_play(&spec, played);
    if (!status && p->failed)
        status = error_set(WEIR_E_MEMORY, "no memory for %llu firings", (unsigned long long)played->firings);
    status = status ? status : find_cycle(p, slots, played, period);
    lines_close(&p->lines);
    return status;
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

static weir_status check_devices(const prediction *p)
{
    for (uint32_t s = 0; s < p->plan->spaces_count; s++)
        if (p->plan->spaces[s].kind != WEIR_CPU && p->plan->spaces[s].kind != WEIR_DISK && p->plan->spaces[s].kind != WEIR_MAPPED)
            return error_set(WEIR_E_UNSUPPORTED, "%s:%d: weir_predict: %s is no CPU, and times of other devices are not known",
                             p->opts->src.file, p->opts->src.line, plan_text(p->plan, p->plan->spaces[s].name));
    return WEIR_OK;
}

weir_status prediction_open(prediction *p, const weir_plan *plan, const weir_rates *rates, const weir_predict_opts *opts)
{
    char call[256];
    *p = (prediction){.plan = plan, .rates = rates, .opts = opts};
    text_print(call, sizeof call, "%s:%d: weir_predict", opts->src.file, opts->src.line);
    weir_status status = find_program(p);
    status = status ? status : check_devices(p);
    status = status ? status : changes_read(&p->changes, plan, opts->set, call);
    status = status ? status : deal_workers(p);
    uint32_t *const worker = p->worker;
    status = status ? status : durations_open(&p->durations, plan, rates, worker, p->workers);
    p->worker = worker; /* a static analyser loses sight of it behind a call that is given a part of p */
    return status;
}

void prediction_close(prediction *p)
{
    changes_free(&p->changes);
    durations_close(&p->durations);
    free(p->worker);
    free(p->rank_of);
    free(p->firings);
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
        explain(plan, &period, to);
    }
    free(played.busy);
    free(period.cycle);
    prediction_close(&p);
    return status;
}
