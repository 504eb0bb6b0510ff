/* graph/time/duration.c: see the header. */
#include "graph/time/duration.h"

#include "graph/base/error.h"
#include "graph/time/call.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define GUESSED_FLOTIME_PS_S 1e11
#define GUESSED_BYTES_S 1e10
/* ---- the time of a call ---- */

static bool same_op(const char *text, const char *op, size_t bytes)
{
    return !strncmp(text, op, bytes) && text[bytes] == ' ';
}

/* Larger of two parts: arithmetic and memory. It orders calls of an op by how long they take. */
static double effort(double flops, double bytes)
{
    return flops / GUESSED_FLOTIME_PS_S > bytes / GUESSED_BYTES_S ? flops / GUESSED_FLOTIME_PS_S : bytes / GUESSED_BYTES_S;
}

static double ratio(double a, double b)
{
    return a > b ? a / b : b / a;
}

/* The call of the same op whose effort is nearest, as a ratio. No logarithm: that is not the same on all machines. */
static const time_call *nearest(const weir_rates *rates, const char *op, double wanted)
{
    const time_call *best = NULL;
    double distance = INFINITY;
    for (uint32_t i = 0; i < rates->call_count; i++) {
        const time_call *call = &rates->calls[i];
        const double is = effort((double)call->flops, (double)call->bytes);
        if (!same_op(call->text, op, strlen(op)) || is <= 0 || ratio(is, wanted) >= distance)
            continue;
        distance = ratio(is, wanted);
        best = call;
    }
    return best;
}

static struct kernel_time time_otherwise(const weir_plan *plan, const weir_rates *rates, uint32_t kernel)
{
    const weir_cost cost = time_call_cost(plan, kernel);
    const double wanted = effort(cost.flops, cost.bytes);
    const time_call *like = wanted > 0 ? nearest(rates, plan_text(plan, plan->kernels[kernel].op), wanted) : NULL;
    struct kernel_time time = {.source = like ? TIME_SCALED : TIME_GUESSED};
    for (int p = 0; p < TIME_PLACES; p++)
        time.ps[p] = like ? (uint64_t)((double)like->ps[p] * wanted / effort((double)like->flops, (double)like->bytes))
                          : (uint64_t)(wanted * TIME_PS_S);
    return time;
}

static struct kernel_time kernel_time(const weir_plan *plan, const weir_rates *rates, uint32_t kernel, char *text)
{
    if (plan->kernels[kernel].host != PLAN_NONE)
        return (struct kernel_time){.source = TIME_NONE};
    const time_call *call = time_call_text(plan, kernel, text) ? rates_find(rates, text) : NULL;
    if (!call)
        return time_otherwise(plan, rates, kernel);
    return (struct kernel_time){{call->ps[TIME_WARM], call->ps[TIME_NEAR], call->ps[TIME_FAR]}, TIME_MEASURED};
}

static uint64_t near_bytes(const weir_rates *rates)
{
    return rates->l2 / 2;
}

static uint64_t far_bytes(const weir_rates *rates)
{
    return rates->l3 / (rates->cores ? rates->cores : 1);
}

double duration_of(const weir_rates *rates, const char *op, double flops, double bytes)
{
    const double wanted = effort(flops, bytes);
    const time_call *like = wanted > 0 ? nearest(rates, op, wanted) : NULL;
    const time_place place = bytes < (double)near_bytes(rates) ? TIME_WARM : bytes < (double)far_bytes(rates) ? TIME_NEAR : TIME_FAR;
    return like ? (double)like->ps[place] / TIME_PS_S * (wanted / effort((double)like->flops, (double)like->bytes)) : 0;
}

/* ---- what was touched when ---- */

static uint32_t slots_of(const durations *d, const plan_tensor *tensor)
{
    return tensor->home == PLAN_IN_REGST ? d->slots[tensor->owner] : 1;
}

static uint32_t slot_at(const durations *d, const plan_tensor *tensor, uint32_t port, uint32_t firing)
{
    if (tensor->home != PLAN_IN_REGST)
        return 0;
    const uint32_t rate = port != PLAN_NONE ? d->plan->ports[port].hold : d->plan->regsts[tensor->owner].fill;
    const uint32_t slots = d->slots[tensor->owner];
    return slots ? firing / (rate ? rate : 1) % slots : 0;
}

/* Touches an operand, and counts its bytes where they were. */
static void touch(durations *d, const plan_operand *operand, uint32_t worker, uint32_t firing, uint64_t at[TIME_PLACES])
{
    const plan_tensor *tensor = &d->plan->tensors[operand->tensor.i];
    struct touched *piece = &d->pieces[d->piece[operand->tensor.i] + slot_at(d, tensor, operand->port.i, firing)];
    const uint64_t bytes = plan_tensor_bytes(tensor);
    const uint64_t since = piece->worker == PLAN_NONE ? UINT64_MAX : d->counts[piece->worker] - piece->count;
    const bool own = piece->worker == worker;
    at[since < d->near_bytes && own ? TIME_WARM : since < d->far_bytes ? TIME_NEAR : TIME_FAR] += bytes;
    d->counts[worker] += bytes;
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

uint64_t durations_firing(durations *d, uint32_t actor, uint32_t firing)
{
    const weir_plan *plan = d->plan;
    const plan_actor *of = &plan->actors[actor];
    const uint32_t worker = d->worker[of->queue.i];
    uint64_t all = 0;
    for (uint32_t k = of->kernels.first; k < of->kernels.first + of->kernels.count; k++) {
        const plan_range *const lists[] = {&plan->kernels[k].in, &plan->kernels[k].out, &plan->kernels[k].state};
        uint64_t bytes[TIME_PLACES] = {0};
        for (int l = 0; l < 3; l++)
            for (uint32_t o = lists[l]->first; o < lists[l]->first + lists[l]->count; o++)
                touch(d, &plan->operands[o], worker, firing, bytes);
        const uint64_t ps = mixed(d->kernels[k].ps, bytes);
        d->by_source[d->kernels[k].source] += ps;
        all += ps;
    }
    return all;
}

/* ---- life ---- */

static bool number_pieces(durations *d)
{
    uint64_t count = 0;
    for (uint32_t t = 0; t < d->plan->tensors_count && count < UINT32_MAX / 2; t++) {
        d->piece[t] = (uint32_t)count;
        count += slots_of(d, &d->plan->tensors[t]);
    }
    d->pieces = count < UINT32_MAX / 2 ? malloc((count + 1) * sizeof *d->pieces) : NULL;
    for (uint64_t i = 0; d->pieces && i < count; i++)
        d->pieces[i] = (struct touched){0, PLAN_NONE};
    return d->pieces;
}

weir_status durations_open(durations *d, const weir_plan *plan, const weir_rates *rates, const uint32_t *worker, uint32_t workers)
{
    *d = (durations){.plan = plan, .worker = worker, .near_bytes = near_bytes(rates), .far_bytes = far_bytes(rates)};
    char *text = malloc(TIME_CALL_BYTES);
    d->kernels = calloc(plan->kernels_count + (size_t)1, sizeof *d->kernels);
    d->piece = calloc(plan->tensors_count + (size_t)1, sizeof *d->piece);
    d->counts = calloc(workers + (size_t)1, sizeof *d->counts);
    const bool ok = text && d->kernels && d->piece && d->counts;
    for (uint32_t k = 0; ok && k < plan->kernels_count; k++)
        d->kernels[k] = kernel_time(plan, rates, k, text);
    free(text);
    if (ok)
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
    free(d->piece);
    free(d->pieces);
    free(d->counts);
    *d = (durations){0};
}
