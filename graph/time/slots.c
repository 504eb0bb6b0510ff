/* graph/time/slots.c: weir_predict_slots(): the way from the fewest slots to the best, as walk.h finds it. */
#include <weir/time.h>

#include "graph/base/error.h"
#include "graph/base/opts.h"
#include "graph/time/walk.h"

#include <stdlib.h>

/* Bytes of a space with these slots. */
static uint64_t space_bytes(const weir_plan *plan, const uint32_t *slots, uint32_t space)
{
    uint64_t more = 0, less = 0;
    for (uint32_t r = 0; r < plan->regsts_count; r++) {
        const plan_regst *of = &plan->regsts[r];
        if (of->space.i != space)
            continue;
        more += slots[r] > of->slots ? (slots[r] - of->slots) * of->slot_bytes : 0;
        less += slots[r] < of->slots ? (of->slots - slots[r]) * of->slot_bytes : 0;
    }
    const uint64_t all = plan->spaces[space].bytes + more;
    return all > less ? all - less : 0;
}

/* Lists the registers that have other slots now than before. */
static void tell_changes(weir_slots_point *to, const weir_plan *plan, const uint32_t *before, const uint32_t *now)
{
    for (uint32_t r = 0; r < plan->regsts_count; r++) {
        if (before[r] == now[r])
            continue;
        if (to->changes < WEIR_SLOTS_CHANGES)
            to->change[to->changes] = (struct weir_slots_change){plan_text(plan, plan->tensors[plan->regsts[r].tensors.first].name), (int)now[r]};
        to->changes++;
    }
}

static weir_slots_point point_of(const walk *w, uint32_t k, const uint32_t *before)
{
    const weir_plan *plan = w->prediction->plan;
    weir_slots_point to = {.step_s = (double)w->points[k].ps / TIME_PS_S, .slot_bytes = w->points[k].bytes, .planned = k == 0};
    for (uint32_t s = 0; s < plan->spaces_count; s++) {
        const uint64_t bytes = plan->spaces[s].kind == WEIR_CPU ? space_bytes(plan, w->points[k].slots, s) : 0;
        to.bytes = bytes > to.bytes ? bytes : to.bytes;
    }
    tell_changes(&to, plan, before, w->points[k].slots);
    return to;
}

/* The plan's own point, and those from the first to the best. */
static weir_status tell_way(const walk *w, void (*point)(void *ctx, const weir_slots_point *point), void *ctx)
{
    uint32_t *way = malloc((w->count + (size_t)1) * sizeof *way), count = 0;
    if (!way)
        return error_set(WEIR_E_MEMORY, "no memory for a way of %u points", w->count);
    for (uint32_t k = w->best; k != PLAN_NONE; k = w->points[k].from)
        way[count++] = k;
    const uint32_t *before = w->prediction->changes.slots;
    weir_slots_point own = point_of(w, 0, before);
    point(ctx, &own);
    while (count-- > 0) {
        const weir_slots_point to = point_of(w, way[count], before);
        if (way[count] != 0 && w->points[way[count]].ps < WALK_NOT_PLAYED - 1)
            point(ctx, &to);
        before = w->points[way[count]].slots;
    }
    free(way);
    return WEIR_OK;
}

weir_status weir_predict_slots_at(const weir_plan *plan, const weir_rates *rates, void (*point)(void *ctx, const weir_slots_point *point),
                                  void *ctx, const weir_predict_opts *given)
{
    weir_predict_opts opts;
    prediction p;
    walk w = {.points = NULL};
    if (error_null(plan, "weir_predict_slots", "plan") || error_null(rates, "weir_predict_slots", "rates"))
        return WEIR_E_ARGUMENT;
    if (!point)
        return error_set(WEIR_E_ARGUMENT, "weir_predict_slots: the function that is told of points is NULL");
    weir_status status = opts_read(&opts, sizeof opts, given, "weir_predict_slots");
    if (status)
        return status;
    opts.fired = NULL;
    status = prediction_open(&p, plan, rates, &opts);
    status = status ? status : walk_open(&w, &p);
    status = status ? status : walk_find(&w);
    status = status ? status : tell_way(&w, point, ctx);
    walk_close(&w);
    prediction_close(&p);
    return status;
}
