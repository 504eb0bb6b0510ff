/* graph/time/card.c: see the header. */
#include "graph/time/card.h"

#include "graph/base/base.h"
#include "graph/base/error.h"
#include "graph/time/launch.h"
#include "graph/time/rates.h"

#include <inttypes.h>

const char *const time_way_names[TIME_WAYS] = {"in", "out"};

const char *time_collective_name(plan_collective_kind kind)
{
    static const char *const names[PLAN_COLLECTIVE_KINDS] = {
#define X(name, text) text,
        PLAN_COLLECTIVE_LIST(X)
#undef X
    };
    return names[kind];
}

/* ---- curves of collectives ---- */

const time_curve *time_card_collective(const time_card *card, plan_collective_kind kind, uint64_t members)
{
    const time_collective *above = NULL, *below = NULL;
    for (uint32_t i = 0; i < card->collectives_count; i++) {
        const time_collective *c = &card->collectives[i];
        if (c->kind == kind && c->members >= members && (!above || c->members < above->members))
            above = c;
        if (c->kind == kind && c->members < members && (!below || c->members > below->members))
            below = c;
    }
    return above ? &above->time : below ? &below->time : NULL;
}

static bool is_before(const time_collective *a, const time_collective *b)
{
    return a->kind != b->kind ? a->kind < b->kind : a->members < b->members;
}

bool time_card_add(time_card *card, const time_collective *collective)
{
    uint32_t at = 0;
    while (at < card->collectives_count && is_before(&card->collectives[at], collective))
        at++;
    if (at < card->collectives_count && !is_before(collective, &card->collectives[at])) {
        card->collectives[at] = *collective;
        return true;
    }
    if (card->collectives_count == TIME_COLLECTIVES)
        return false;
    for (uint32_t i = card->collectives_count++; i > at; i--)
        card->collectives[i] = card->collectives[i - 1];
    card->collectives[at] = *collective;
    return true;
}

/* ---- bytes ---- */

static uint64_t operands_bytes(const weir_plan *plan, const plan_range *operands)
{
    uint64_t bytes = 0;
    for (uint32_t o = operands->first; o < operands->first + operands->count; o++)
        bytes += plan_tensor_bytes(&plan->tensors[plan->operands[o].tensor.i]);
    return bytes;
}

uint64_t time_copy_bytes(const weir_plan *plan, uint32_t kernel)
{
    return operands_bytes(plan, &plan->kernels[kernel].out);
}

static uint64_t member_bytes(const weir_plan *plan, const plan_actor *member)
{
    uint64_t gives = 0, takes = 0;
    for (uint32_t k = member->kernels.first; k < member->kernels.first + member->kernels.count; k++) {
        gives += operands_bytes(plan, &plan->kernels[k].in);
        takes += operands_bytes(plan, &plan->kernels[k].out);
    }
    return gives > takes ? gives : takes;
}

uint64_t time_collective_bytes(const weir_plan *plan, uint32_t collective)
{
    const plan_collective *of = &plan->collectives[collective];
    uint64_t most = 0;
    for (uint32_t m = 0; m < of->members.count; m++) {
        const uint64_t bytes = member_bytes(plan, plan_member(plan, of, m));
        most = bytes > most ? bytes : most;
    }
    return most;
}

/* ---- what a prediction needs ---- */

static weir_status check_queue(const weir_plan *plan, uint32_t queue, const weir_rates *rates, const char *call)
{
    const plan_queue *of = &plan->queues[queue];
    const weir_device_kind kind = (weir_device_kind)plan->spaces[of->space.i].kind;
    const time_card *card = &rates->cards[kind];
    const time_way way = of->kind == PLAN_COPY_OUT ? TIME_OUT : TIME_IN;
    if (!card->mark)
        return error_set(WEIR_E_ARGUMENT, "%s: the rates have no card %s: weir measure PLAN measures it on a machine that has one", call,
                         device_kind_name(kind));
    if ((of->kind == PLAN_COPY_IN || of->kind == PLAN_COPY_OUT) && !card->copy[way].once.count)
        return error_set(WEIR_E_ARGUMENT, "%s: the rates have no copy %s %s: weir measure PLAN measures it on a machine that has one", call,
                         device_kind_name(kind), time_way_names[way]);
    return WEIR_OK;
}

static weir_status check_collective(const weir_plan *plan, const plan_collective *of, const weir_rates *rates, const char *call)
{
    const weir_device_kind kind = (weir_device_kind)plan->spaces[plan->queues[plan_member(plan, of, 0)->queue.i].space.i].kind;
    if (time_card_collective(&rates->cards[kind], (plan_collective_kind)of->kind, of->members.count))
        return WEIR_OK;
    return error_set(WEIR_E_ARGUMENT, "%s: the rates have no collective %s %s of %" PRIu32 " or any other number of members; weir measure does not measure it",
                     call, device_kind_name(kind), time_collective_name((plan_collective_kind)of->kind), of->members.count);
}

weir_status time_cards_check(const weir_plan *plan, uint32_t program, const weir_rates *rates, const char *call)
{
    weir_status status = WEIR_OK;
    for (uint32_t a = 0; !status && a < plan->actors_count; a++)
        if (plan->actors[a].program.i == program && launches_device_queue(plan, plan->actors[a].queue.i))
            status = check_queue(plan, plan->actors[a].queue.i, rates, call);
    for (uint32_t c = 0; !status && c < plan->collectives_count; c++)
        if (plan_program_of(plan, &plan->collectives[c]) == program)
            status = check_collective(plan, &plan->collectives[c], rates, call);
    return status;
}
