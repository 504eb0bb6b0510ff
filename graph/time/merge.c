/* graph/time/merge.c: weir_rates_merge(): a step of several hosts waits for the slowest, so of two times the longer one counts. */
#include "graph/time/rates.h"

#include "graph/base/error.h"

#include <string.h>

static void keep_more(uint64_t *to, uint64_t from)
{
    *to = from > *to ? from : *to;
}

/* 0: not known. */
static void keep_less(uint64_t *to, uint64_t from)
{
    *to = !*to || (from && from < *to) ? from : *to;
}

static weir_status merge_calls(weir_rates *rates, const weir_rates *other)
{
    for (uint32_t i = 0; i < other->call_count; i++) {
        const time_call *has = rates_find(rates, other->calls[i].text);
        time_call call = other->calls[i];
        for (int p = 0; has && p < TIME_PLACES; p++)
            keep_more(&call.ps[p], has->ps[p]);
        if (has) {
            keep_more(&call.band, has->band);
            keep_more(&call.core, has->core);
            keep_less(&call.samples, has->samples);
        }
        if (!rates_add(rates, &call))
            return error_set(WEIR_E_MEMORY, "no memory for the rates of %u calls", other->call_count);
    }
    return WEIR_OK;
}

/* The link that takes longer for 1 MiB, with its whole curves: points of two links make none. */
static void merge_link(time_link *link, const time_link *other)
{
    enum { MIB = 1 << 20 };
    if (other->once.count && (!link->once.count || curve_at(&other->once, MIB) > curve_at(&link->once, MIB)))
        *link = *other;
}

/* As links. */
static void merge_copy(time_copy *copy, const time_copy *other)
{
    enum { MIB = 1 << 20 };
    if (other->once.count && (!copy->once.count || curve_at(&other->once, MIB) > curve_at(&copy->once, MIB)))
        *copy = *other;
}

static void merge_collective(time_card *card, const time_collective *other)
{
    enum { MIB = 1 << 20 };
    for (uint32_t i = 0; i < card->collectives_count; i++)
        if (card->collectives[i].kind == other->kind && card->collectives[i].members == other->members &&
            curve_at(&card->collectives[i].time, MIB) >= curve_at(&other->time, MIB))
            return;
    time_card_add(card, other); /* where there is no room, one of the nearest number stands for it */
}

static void merge_card(time_card *card, const time_card *other)
{
    keep_more(&card->launch, other->launch);
    keep_more(&card->mark, other->mark);
    keep_more(&card->done, other->done);
    keep_less(&card->l2, other->l2);
    for (int way = 0; way < TIME_WAYS; way++)
        merge_copy(&card->copy[way], &other->copy[way]);
    for (uint32_t i = 0; i < other->collectives_count; i++)
        merge_collective(card, &other->collectives[i]);
}

/* Takes the slower figures of each number of threads that both hosts know; if only one host knows any, its own. */
static void merge_threads(weir_rates *rates, const weir_rates *other)
{
    if (!rates->threads_count) {
        memcpy(rates->threads, other->threads, sizeof rates->threads);
        rates->threads_count = other->threads_count;
    }
    for (uint32_t i = 0; i < rates->threads_count; i++)
        for (uint32_t k = 0; k < other->threads_count; k++)
            if (rates->threads[i].count == other->threads[k].count) {
                keep_less(&rates->threads[i].bytes_s, other->threads[k].bytes_s);
                keep_less(&rates->threads[i].flops_s, other->threads[k].flops_s);
            }
}

weir_status weir_rates_merge(weir_rates *rates, const weir_rates *other)
{
    if (error_null(rates, "weir_rates_merge", "rates") || error_null(other, "weir_rates_merge", "other"))
        return WEIR_E_ARGUMENT;
    if (rates->level[0] && other->level[0] && strcmp(rates->level, other->level) != 0)
        return error_set(WEIR_E_ARGUMENT, "weir_rates_merge: kernels of level %s and of level %s: ranks of both run together only with one level, which "
                         "WEIR_CPU_LEVEL chooses; measure both hosts with it", rates->level, other->level);
    weir_status status = merge_calls(rates, other);
    for (int a = 0; a < TIME_APARTS && !status; a++)
        for (int c = 0; c < TIME_CARRIERS; c++)
            merge_link(&rates->links[a][c], &other->links[a][c]);
    if (status)
        return status;
    if (!rates->level[0])
        memcpy(rates->level, other->level, sizeof rates->level);
    merge_threads(rates, other);
    for (int k = 0; k < WEIR_DEVICE_KINDS; k++)
        merge_card(&rates->cards[k], &other->cards[k]);
    keep_less(&rates->l2, other->l2);
    keep_less(&rates->l3, other->l3);
    keep_less(&rates->cores, other->cores);
    keep_more(&rates->same, other->same);
    keep_more(&rates->worker, other->worker);
    keep_more(&rates->process, other->process);
    keep_more(&rates->noise_p50, other->noise_p50);
    keep_more(&rates->noise_p90, other->noise_p90);
    keep_more(&rates->noisy, other->noisy);
    return WEIR_OK;
}
