/* actors/measure/measure.c: weir_measure(). */
#include "actors/measure/measure.h"

#include "graph/base/base.h"
#include "graph/base/error.h"
#include "graph/base/opts.h"
#include "graph/time/call.h"
#include "transport/mail/cores.h"

#include <stdlib.h>
#include <string.h>

#define QUIET_P50 1050 /* thousandths: beyond it medians are not of this program alone */

/* A call that is to be measured. */
typedef struct wanted {
    const weir_plan *plan;
    uint32_t kernel;
    char *text;            /* owned */
} wanted;

typedef struct measuring {
    weir_measure_opts opts;
    weir_rates *rates;     /* borrowed, or owned until it is returned */
    wanted *list;          /* owned */
    uint32_t count, room;
    sampler sampler;
    measure_beside by;     /* its threads are owned */
    card *cards[WEIR_DEVICE_KINDS]; /* owned; of kinds that calls are for, where this machine has them */
} measuring;

/* ---- which calls ---- */

static int compare_texts(const void *a, const void *b)
{
    return strcmp(((const wanted *)a)->text, ((const wanted *)b)->text);
}

static bool want(measuring *m, const weir_plan *plan, uint32_t kernel, const char *text)
{
    if (m->count == m->room) {
        const uint32_t room = m->room ? 2 * m->room : 256;
        wanted *list = realloc(m->list, room * sizeof *list);
        if (!list)
            return false;
        m->list = list;
        m->room = room;
    }
    char *copy = strdup(text);
    if (copy)
        m->list[m->count++] = (wanted){plan, kernel, copy};
    return copy;
}

static weir_device_kind kind_of(const weir_plan *plan, uint32_t kernel)
{
    return (weir_device_kind)plan->spaces[plan_actor_space(plan, plan->kernels[kernel].actor.i).i].kind;
}

/* On a CPU, beside an accelerator, or on one; there copies and collectives are no calls. */
static bool is_call(const weir_plan *plan, uint32_t kernel)
{
    const weir_device_kind kind = kind_of(plan, kernel);
    return kind == WEIR_CPU || kind == WEIR_PINNED ||
           (device_is_accelerator(kind) && plan->queues[plan->actors[plan->kernels[kernel].actor.i].queue.i].kind == PLAN_COMPUTE);
}

static weir_status want_calls(measuring *m, const weir_plan *plan)
{
    char *text = malloc(TIME_CALL_BYTES);
    bool ok = text;
    for (uint32_t k = 0; ok && k < plan->kernels_count; k++)
        if (is_call(plan, k) && time_call_text(plan, k, text) && !rates_find(m->rates, text))
            ok = want(m, plan, k, text);
    free(text);
    return ok ? WEIR_OK : error_set(WEIR_E_MEMORY, "no memory for the calls of the plan \"%s\"", plan_text(plan, plan->name));
}

/* Each text once. */
static void unite_calls(measuring *m)
{
    uint32_t kept = 0;
    if (m->count)
        qsort(m->list, m->count, sizeof *m->list, compare_texts);
    for (uint32_t i = 0; i < m->count; i++)
        if (kept && !strcmp(m->list[kept - 1].text, m->list[i].text))
            free(m->list[i].text);
        else
            m->list[kept++] = m->list[i];
    m->count = kept;
}

/* ---- the machine ---- */

static void measure_threads(measuring *m, uint32_t threads)
{
    rates_threads *to = &m->rates->threads[m->rates->threads_count++];
    *to = (rates_threads){threads, beside_rate(m->by.beside, &m->sampler, BESIDE_STREAM, threads),
                          beside_rate(m->by.beside, &m->sampler, BESIDE_ARITHMETIC, threads)};
}

/* Whether a core does less of something while all others do it, too, and by more than noise. */
static bool slows(uint64_t one, uint64_t all, uint64_t cores)
{
    return all && all / cores < one - one / 25;
}

/* Memory and arithmetic of one thread, of all cores but one, and of all. Where all get as much as one, calls are not measured beside
 * others. */
static weir_status measure_neighbours(measuring *m)
{
    const uint32_t cores = (uint32_t)m->rates->cores;
    m->by.beside = beside_new(&m->sampler);
    if (!m->by.beside)
        return error_set(WEIR_E_MEMORY, "no memory for %u threads", cores);
    m->rates->threads_count = 0;
    measure_threads(m, 1);
    if (cores > 2)
        measure_threads(m, cores - 1);
    if (cores > 1)
        measure_threads(m, cores);
    const rates_threads *one = &m->rates->threads[0], *all = &m->rates->threads[m->rates->threads_count - 1];
    m->by.stream = slows(one->bytes_s, all->bytes_s, cores);
    m->by.arithmetic = slows(one->flops_s, all->flops_s, cores);
    return WEIR_OK;
}

static weir_status measure_machine(measuring *m)
{
    const char *level;
    weir_rates *r = m->rates;
    weir_status status = op_level(&level);
    if (status)
        return status;
    r->l2 = m->sampler.l2;
    r->l3 = sampler_shared_cache(&m->sampler);
    r->cores = (uint64_t)cores_count();
    strncpy(r->level, level, sizeof r->level - 1);
    status = measure_neighbours(m);
    return status ? status : measure_hand(r);
}

static weir_status check_noise(measuring *m)
{
    uint64_t p50, p90;
    sampler_noise(&p50, &p90);
    m->rates->noise_p50 = p50 > m->rates->noise_p50 ? p50 : m->rates->noise_p50;
    m->rates->noise_p90 = p90 > m->rates->noise_p90 ? p90 : m->rates->noise_p90;
    m->rates->noisy |= p50 > QUIET_P50;
    if (p50 <= QUIET_P50 || m->opts.noisy)
        return WEIR_OK;
    return error_set(WEIR_E_STATE, "%s:%d: weir_measure: the machine is busy with other things: the same work took %d %% longer than when it was "
                     "undisturbed; stop other programs, give this one real-time priority (chrt -f 50), or set .noisy",
                     m->opts.src.file, m->opts.src.line, (int)(p50 - 1000) / 10);
}

/* Where there is no such card, rates have nothing of it. */
static void open_card(measuring *m, const wanted *call)
{
    const weir_device_kind kind = kind_of(call->plan, call->kernel);
    if (!device_is_accelerator(kind) || m->cards[kind])
        return;
    m->cards[kind] = card_new(kind);
    if (m->cards[kind] && !card_measure(m->cards[kind], call->plan, call->kernel, &m->rates->cards[kind])) {
        card_free(m->cards[kind]);
        m->cards[kind] = NULL;
    }
}

static bool measure_one(measuring *m, const wanted *call, time_call *to)
{
    const weir_device_kind kind = kind_of(call->plan, call->kernel);
    open_card(m, call);
    if (!device_is_accelerator(kind))
        return measure_call(&m->sampler, &m->by, call->plan, call->kernel, to);
    return m->cards[kind] && card_measure_call(m->cards[kind], call->plan, call->kernel, to);
}

static weir_status measure_calls(measuring *m)
{
    for (uint32_t i = 0; i < m->count; i++) {
        const weir_cost cost = time_call_cost(m->list[i].plan, m->list[i].kernel);
        time_call call = {.text = m->list[i].text, .flops = (uint64_t)cost.flops, .bytes = (uint64_t)cost.bytes};
        if (measure_one(m, &m->list[i], &call) && !rates_add(m->rates, &call))
            return error_set(WEIR_E_MEMORY, "no memory for the rates of %u calls", m->count);
        if (m->opts.progress)
            m->opts.progress(m->opts.ctx, (int)i + 1, (int)m->count);
    }
    return WEIR_OK;
}

static weir_status measure_all(measuring *m, const weir_plan *const *plans, int count)
{
    weir_status status = check_noise(m);
    for (int i = 0; i < count && !status; i++)
        status = want_calls(m, plans[i]);
    unite_calls(m);
    status = status ? status : measure_machine(m);
    status = status ? status : measure_calls(m);
    return status ? status : check_noise(m);
}

weir_rates *weir_measure_at(const weir_plan *const *plans, int count, const weir_measure_opts *given)
{
    measuring m = {.sampler.schedstat = -1};
    if (error_null(plans, "weir_measure", "plans"))
        return NULL;
    for (int i = 0; i < count; i++)
        if (error_null(plans[i], "weir_measure", "a plan"))
            return NULL;
    if (opts_read(&m.opts, sizeof m.opts, given, "weir_measure"))
        return NULL;
    m.rates = m.opts.add_to ? m.opts.add_to : rates_new();
    weir_status status = m.rates ? sampler_open(&m.sampler) : error_set(WEIR_E_MEMORY, "no memory for rates");
    status = status ? status : measure_all(&m, plans, count);
    for (uint32_t i = 0; i < m.count; i++)
        free(m.list[i].text);
    free(m.list);
    for (int k = 0; k < WEIR_DEVICE_KINDS; k++)
        card_free(m.cards[k]);
    beside_free(m.by.beside);
    sampler_close(&m.sampler);
    if (status && m.rates != m.opts.add_to)
        weir_rates_free(m.rates);
    return status ? NULL : m.rates;
}
