/* graph/time/duration.c: see the header. */
#include "graph/time/duration.h"

#include "graph/base/error.h"
#include "graph/time/call.h"
#include "graph/time/change.h"
#include "graph/time/fit.h"
#include "graph/time/launch.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- the time of a call ---- */

static uint64_t more(uint64_t beside, uint64_t alone)
{
    return beside > alone ? beside - alone : 0;
}

static struct kernel_time time_of(const time_call *call, time_source source)
{
    return (struct kernel_time){{call->ps[TIME_WARM], call->ps[TIME_NEAR], call->ps[TIME_FAR]},
                                more(call->band, call->ps[TIME_FAR]), more(call->core, call->ps[TIME_WARM]), .source = source};
}

static uint64_t slower(uint64_t ps, uint64_t speed)
{
    const unsigned __int128 all = (unsigned __int128)ps * CHANGE_SPEED / speed;
    return all < SHARE_MAX ? (uint64_t)all : SHARE_MAX;
}

static void change_speed(struct kernel_time *time, uint64_t speed)
{
    for (int p = 0; p < TIME_PLACES && speed != CHANGE_SPEED; p++)
        time->ps[p] = slower(time->ps[p], speed);
    time->stream_ps = slower(time->stream_ps, speed);
    time->busy_ps = slower(time->busy_ps, speed);
}

/* The larger of two parts: arithmetic and memory. */
static uint64_t guess(const weir_cost *cost)
{
    const double s = fmax(cost->flops / TIME_GUESSED_FLOPS_S, cost->bytes / TIME_GUESSED_BYTES_S);
    return s * TIME_PS_S < (double)SHARE_MAX ? (uint64_t)(s * TIME_PS_S) : SHARE_MAX;
}

static uint64_t whole(double count)
{
    return count < 1e18 ? (uint64_t)count : UINT64_C(1000000000000000000);
}

/* How times of calls are found: by text, each once. */
typedef struct finding {
    const weir_plan *plan;
    const weir_rates *rates;
    fits *fits;            /* owned, as what follows */
    weir_rates *found;     /* calls that were not measured; those that are guessed have no samples */
    char *text;
    uint32_t *collective;  /* by actor: that it is a member of, or PLAN_NONE */
} finding;

static void find_members(finding *f)
{
    const weir_plan *plan = f->plan;
    memset(f->collective, 0xff, (plan->actors_count + (size_t)1) * sizeof *f->collective);
    for (uint32_t c = 0; c < plan->collectives_count; c++)
        for (uint32_t m = plan->collectives[c].members.first; m < plan->collectives[c].members.first + plan->collectives[c].members.count; m++)
            f->collective[plan->members[m].i] = c;
}

/* NULL: no memory. */
static const time_call *find_otherwise(finding *f, uint32_t kernel, const char *text)
{
    const time_call *known = rates_find(f->found, text);
    if (known)
        return known;
    const weir_cost cost = time_call_cost(f->plan, kernel);
    time_call call = {.text = (char *)text, .flops = whole(cost.flops), .bytes = whole(cost.bytes), .samples = 1};
    if (!fits_time(f->fits, text, &call)) {
        call.samples = 0;
        call.ps[TIME_WARM] = call.ps[TIME_NEAR] = call.ps[TIME_FAR] = guess(&cost);
    }
    return rates_add(f->found, &call) ? rates_find(f->found, text) : NULL;
}

/* A copy between the host and an accelerator, or a member's part in a collective. False: it is neither. */
static bool find_on_curve(const finding *f, uint32_t kernel, struct kernel_time *time)
{
    const plan_queue *queue = &f->plan->queues[f->plan->actors[f->plan->kernels[kernel].actor.i].queue.i];
    const time_card *card = &f->rates->cards[f->plan->spaces[queue->space.i].kind];
    const uint32_t c = f->collective[f->plan->kernels[kernel].actor.i];
    const bool copies = queue->kind == PLAN_COPY_IN || queue->kind == PLAN_COPY_OUT;
    uint64_t ps = 0;
    if (copies)
        ps = curve_at(&card->copy[queue->kind == PLAN_COPY_OUT ? TIME_OUT : TIME_IN].stream, time_copy_bytes(f->plan, kernel));
    else if (c != PLAN_NONE) {
        const time_curve *curve = time_card_collective(card, (plan_collective_kind)f->plan->collectives[c].kind, f->plan->collectives[c].members.count);
        ps = curve ? curve_at(curve, time_collective_bytes(f->plan, c)) : 0;
    }
    *time = (struct kernel_time){{ps, ps, ps}, .source = TIME_MEASURED};
    return copies || c != PLAN_NONE;
}

/* False: no memory. */
static bool find_time(finding *f, uint32_t kernel, struct kernel_time *time)
{
    if (find_on_curve(f, kernel, time))
        return true;
    *time = (struct kernel_time){.source = TIME_NONE};
    if (f->plan->kernels[kernel].host != PLAN_NONE)
        return true;
    if (!time_call_text(f->plan, kernel, f->text)) {
        const weir_cost cost = time_call_cost(f->plan, kernel);
        *time = time_of(&(time_call){.ps = {guess(&cost), guess(&cost), guess(&cost)}}, TIME_GUESSED);
        return true;
    }
    const time_call *call = rates_find(f->rates, f->text);
    const time_call *other = call ? NULL : find_otherwise(f, kernel, f->text);
    if (call || other)
        *time = call ? time_of(call, TIME_MEASURED) : time_of(other, other->samples ? TIME_SCALED : TIME_GUESSED);
    return call || other;
}

static bool find_times(durations *d, const weir_plan *plan, const weir_rates *rates, const uint64_t *speed)
{
    finding f = {plan, rates, fits_new(rates), rates_new(), malloc(TIME_CALL_BYTES), malloc((plan->actors_count + (size_t)1) * sizeof *f.collective)};
    bool ok = f.fits && f.found && f.text && f.collective;
    if (ok)
        find_members(&f);
    for (uint32_t k = 0; ok && k < plan->kernels_count; k++) {
        ok = find_time(&f, k, &d->kernels[k]);
        change_speed(&d->kernels[k], speed[k]);
        d->beside |= d->kernels[k].stream_ps || d->kernels[k].busy_ps;
    }
    fits_free(f.fits);
    weir_rates_free(f.found);
    free(f.text);
    free(f.collective);
    return ok;
}

/* ---- what was touched when ---- */

/* Touches an operand, and counts its bytes where they were. */
static void touch(durations *d, const struct touchable *operand, uint32_t worker, uint32_t firing, uint64_t at[TIME_PLACES])
{
    struct touched *piece = &d->pieces[operand->first + (operand->slots == 1 ? 0 : firing / operand->hold % operand->slots)];
    const uint64_t since = piece->worker == PLAN_NONE ? UINT64_MAX : d->counts[piece->worker] - piece->count;
    const bool own = piece->worker == worker;
    at[since < d->caches[worker].near && own ? TIME_WARM : since < d->caches[worker].far ? TIME_NEAR : TIME_FAR] += operand->bytes;
    d->counts[worker] += operand->bytes;
    *piece = (struct touched){d->counts[worker], worker};
}

static uint64_t mixed(const uint64_t ps[TIME_PLACES], const uint64_t bytes[TIME_PLACES])
{
    double sum = 0, weighted = 0;
    for (int p = 0; p < TIME_PLACES; p++) {
        sum += (double)bytes[p];
        weighted += (double)bytes[p] * (double)ps[p];
    }
    return sum > 0 ? (uint64_t)(weighted / sum) : ps[TIME_WARM];
}

static uint64_t sum_of(uint64_t a, uint64_t b)
{
    return a + b < SHARE_MAX ? a + b : SHARE_MAX;
}

/* The firing takes a kernel more, whose operands were in these places. */
static void add_kernel(durations *d, const struct kernel_time *time, const uint64_t bytes[TIME_PLACES], share_work *work)
{
    const uint64_t ps = mixed(time->ps, bytes);
    const double sum = (double)(bytes[TIME_WARM] + bytes[TIME_NEAR] + bytes[TIME_FAR]), far = sum > 0 ? (double)bytes[TIME_FAR] / sum : 0;
    d->by_source[time->source] += (double)ps;
    work->ps = sum_of(work->ps, ps);
    work->stream_ps = sum_of(work->stream_ps, (uint64_t)(far * (double)time->stream_ps));
    work->busy_ps = sum_of(work->busy_ps, (uint64_t)((1 - far) * (double)time->busy_ps));
    work->bytes += bytes[TIME_FAR];
}

share_work durations_firing(durations *d, uint32_t actor, uint32_t firing)
{
    const plan_actor *of = &d->plan->actors[actor];
    const uint32_t worker = d->worker[of->queue.i];
    share_work work = {0};
    for (uint32_t k = of->kernels.first; k < of->kernels.first + of->kernels.count; k++) {
        uint64_t bytes[TIME_PLACES] = {0};
        for (uint32_t o = d->kernels[k].first; o < d->kernels[k + 1].first; o++)
            touch(d, &d->operands[o], worker, firing, bytes);
        add_kernel(d, &d->kernels[k], bytes, &work);
    }
    return work;
}

/* ---- life ---- */

static struct touchable touchable_of(const weir_plan *plan, const plan_operand *operand)
{
    const plan_tensor *tensor = &plan->tensors[operand->tensor.i];
    const uint32_t fill = tensor->home == PLAN_IN_REGST ? plan->regsts[tensor->owner].fill : 1;
    const uint32_t hold = operand->port.i != PLAN_NONE ? plan->ports[operand->port.i].hold : fill;
    return (struct touchable){.bytes = plan_tensor_bytes(tensor), .tensor = operand->tensor.i, .hold = hold ? hold : 1};
}

static bool set_operands(durations *d)
{
    const weir_plan *plan = d->plan;
    uint32_t count = 0;
    uint64_t room = 0;
    for (uint32_t k = 0; k < plan->kernels_count; k++)
        room += (uint64_t)plan->kernels[k].in.count + plan->kernels[k].out.count + plan->kernels[k].state.count;
    d->operands = room < UINT32_MAX ? calloc(room + 1, sizeof *d->operands) : NULL;
    if (!d->operands)
        return false;
    for (uint32_t k = 0; k < plan->kernels_count; k++) {
        const plan_range *const lists[] = {&plan->kernels[k].in, &plan->kernels[k].out, &plan->kernels[k].state};
        d->kernels[k].first = count;
        for (int l = 0; l < 3; l++)
            for (uint32_t o = lists[l]->first; o < lists[l]->first + lists[l]->count; o++)
                d->operands[count++] = touchable_of(plan, &plan->operands[o]);
    }
    d->kernels[plan->kernels_count].first = count;
    return true;
}

static uint32_t slots_of(const durations *d, uint32_t tensor)
{
    const plan_tensor *of = &d->plan->tensors[tensor];
    const uint32_t slots = of->home == PLAN_IN_REGST ? d->slots[of->owner] : 1;
    return slots ? slots : 1;
}

static bool number_pieces(durations *d)
{
    uint32_t *first = malloc((d->plan->tensors_count + (size_t)1) * sizeof *first);
    uint64_t count = 0;
    for (uint32_t t = 0; first && t < d->plan->tensors_count && count < UINT32_MAX / 2; t++) {
        first[t] = (uint32_t)count;
        count += slots_of(d, t);
    }
    d->pieces = first && count < UINT32_MAX / 2 ? malloc((count + 1) * sizeof *d->pieces) : NULL;
    for (uint64_t i = 0; d->pieces && i < count; i++)
        d->pieces[i] = (struct touched){0, PLAN_NONE};
    for (uint32_t o = 0; d->pieces && o < d->kernels[d->plan->kernels_count].first; o++) {
        d->operands[o].first = first[d->operands[o].tensor];
        d->operands[o].slots = slots_of(d, d->operands[o].tensor);
    }
    free(first);
    return d->pieces;
}

static void set_caches(durations *d, const weir_rates *rates, uint32_t workers, uint32_t threads)
{
    for (uint32_t w = 0; w < workers; w++)
        d->caches[w] = (struct cached){rates_near_bytes(rates), rates_far_bytes(rates)};
    for (uint32_t q = 0; q < d->plan->queues_count; q++)
        if (d->worker[q] >= threads && launches_device_queue(d->plan, q)) {
            const uint64_t l2 = rates->cards[d->plan->spaces[d->plan->queues[q].space.i].kind].l2;
            d->caches[d->worker[q]] = (struct cached){l2, l2};
        }
}

weir_status durations_open(durations *d, const weir_plan *plan, const weir_rates *rates, const uint64_t *speed, const uint32_t *worker,
                           uint32_t workers, uint32_t threads)
{
    *d = (durations){.plan = plan, .worker = worker};
    d->kernels = calloc(plan->kernels_count + (size_t)1, sizeof *d->kernels);
    d->counts = calloc(workers + (size_t)1, sizeof *d->counts);
    d->caches = calloc(workers + (size_t)1, sizeof *d->caches);
    if (d->caches)
        set_caches(d, rates, workers, threads);
    if (d->kernels && d->counts && d->caches && find_times(d, plan, rates, speed) && set_operands(d))
        return WEIR_OK;
    durations_close(d);
    return error_set(WEIR_E_MEMORY, "no memory to find the times of %u kernels", plan->kernels_count);
}

weir_status durations_begin(durations *d, const uint32_t *slots, uint32_t workers)
{
    free(d->pieces);
    d->slots = slots;
    memset(d->counts, 0, workers * sizeof *d->counts);
    memset(d->by_source, 0, sizeof d->by_source);
    return number_pieces(d) ? WEIR_OK : error_set(WEIR_E_MEMORY, "no memory to find where %u tensors are", d->plan->tensors_count);
}

void durations_close(durations *d)
{
    free(d->kernels);
    free(d->operands);
    free(d->pieces);
    free(d->counts);
    free(d->caches);
    *d = (durations){0};
}
