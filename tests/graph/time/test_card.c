/* Plans with accelerators, predicted with made-up rates: no card is needed. */
#include "graph/time/call.h"
#include "graph/time/rates.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <weir/weir.h>

#define US UINT64_C(1000000) /* picoseconds */
enum { ELEMENTS = 1 << 18, BYTES = 4 * ELEMENTS };
enum { LAUNCH_US = 4, MARK_US = 3, DONE_US = 20, IN_US = 500, IN_ONCE_US = 540, OUT_US = 100 };

static weir_status drop(void *ctx, const weir_view *value, int64_t step, int micro)
{
    (void)ctx, (void)value, (void)step, (void)micro;
    return WEIR_OK;
}

/* ---- plans ---- */

/* cuda:0 gets values of 1 MiB, works on each, and gives back a number. */
static weir_plan *stream_plan(const char *devices, int slots)
{
    weir_graph *g = weir_graph_new("stream");
    WEIR_ON(weir_mesh_new(g, devices))
    {
        weir_tensor *x = weir_input(g, WEIR_F32, {ELEMENTS}, .name = "x", .sbp = {WEIR_B});
        weir_slots(x, slots);
        weir_fetch(weir_sum(weir_tanh(x, .name = "made")), .name = "y", .sink = drop);
    }
    weir_plan *plan = weir_compile(g);
    weir_graph_free(g);
    cr_assert_not_null(plan, "%s", weir_error());
    return plan;
}

/* Two cards have half of the columns each, and add what they make. */
static weir_plan *reduce_plan(void)
{
    weir_graph *g = weir_graph_new("reduce");
    WEIR_ON(weir_mesh_new(g, "cuda:0-1"))
    {
        weir_tensor *x = weir_input(g, WEIR_F32, {512, 512}, .name = "x", .sbp = {WEIR_S(1)});
        weir_tensor *w = weir_param(g, WEIR_F32, {512, 512}, .name = "w", .sbp = {WEIR_S(0)});
        weir_tensor *y = weir_shard(weir_matmul(x, w, .name = "part"), .sbp = {WEIR_B});
        weir_fetch(weir_sum(weir_tanh(y, .name = "made")), .name = "y", .sink = drop);
    }
    weir_plan *plan = weir_compile(g, .reduce = WEIR_FAST);
    weir_graph_free(g);
    cr_assert_not_null(plan, "%s", weir_error());
    return plan;
}

/* ---- rates ---- */

/* Calls of that op take so long on a card, and those of others nothing, as all of the host. */
static void add_calls(weir_rates *rates, const weir_plan *plan, const char *op, uint64_t us)
{
    char *text = malloc(TIME_CALL_BYTES);
    for (uint32_t k = 0; k < plan->kernels_count; k++) {
        if (!time_call_text(plan, k, text))
            continue;
        const uint64_t ps = strncmp(text, op, strlen(op)) ? 0 : us * US;
        cr_assert(rates_add(rates, &(time_call){.text = text, .ps = {ps, ps, ps}, .samples = 9}));
    }
    free(text);
}

static void add_copy(time_card *card, time_way way, uint64_t once_us, uint64_t stream_us)
{
    cr_assert(curve_add(&card->copy[way].once, BYTES, once_us * US) && curve_add(&card->copy[way].stream, BYTES, stream_us * US));
}

static weir_rates *rates_of(const weir_plan *plan, const char *op, uint64_t us)
{
    weir_rates *r = rates_new();
    cr_assert_not_null(r);
    add_calls(r, plan, op, us);
    r->l2 = 1 << 20, r->l3 = 1 << 25, r->cores = 64;
    time_card *card = &r->cards[WEIR_CUDA];
    card->launch = LAUNCH_US * US, card->mark = MARK_US * US, card->done = DONE_US * US, card->l2 = 1 << 25;
    add_copy(card, TIME_IN, IN_ONCE_US, IN_US);
    add_copy(card, TIME_OUT, OUT_US, OUT_US);
    return r;
}

static weir_prediction predicted(const weir_plan *plan, const weir_rates *rates)
{
    weir_prediction p;
    cr_assert_eq(weir_predict(plan, rates, &p), WEIR_OK, "%s", weir_error());
    return p;
}

static double busy(const weir_prediction *p, const char *queue)
{
    for (int q = 0; q < p->queues; q++)
        if (!strcmp(p->queue[q].name, queue))
            return p->queue[q].busy;
    return NAN;
}

static uint32_t kernels_on(const weir_plan *plan, uint32_t space)
{
    uint32_t count = 0;
    for (uint32_t k = 0; k < plan->kernels_count; k++)
        count += plan_actor_space(plan, plan->kernels[k].actor.i).i == space;
    return count;
}

/* ---- one card ---- */

/* The host launches ahead, so a step takes as long as the kernel, and the rest is hidden behind it. */
Test(card, a_step_takes_as_long_as_the_queue_that_is_always_busy, .timeout = 60)
{
    weir_plan *plan = stream_plan("cuda:0", 4);
    weir_rates *slow = rates_of(plan, "cuda:tanh ", 2000), *fast = rates_of(plan, "cuda:tanh ", 100);
    const weir_prediction k = predicted(plan, slow), c = predicted(plan, fast);
    cr_expect_float_eq(k.step_s, 2000e-6, 1e-9, "%g: the kernel", k.step_s);
    cr_expect_float_eq(c.step_s, IN_US * 1e-6, 1e-9, "%g: the copy", c.step_s);
    cr_expect(k.steady && c.steady && k.queues == 3 && busy(&k, "cuda:0") > 0.9 && busy(&c, "copy in cuda:0") > 0.9);
    cr_expect_float_eq(k.cycle_s, k.step_s, 1e-9, "%g: the cycle", k.cycle_s);
    cr_expect(k.bounds == 1 && !strcmp(k.bound[0].queue, "cuda:0"), "%d firings, the first on %s", k.bounds, k.bound[0].queue);
    weir_rates_free(slow);
    weir_rates_free(fast);
    weir_plan_free(plan);
}

/* The first step is all of it, one after the other: the launch of the copy, behind which other launches are hidden; the copy, which takes longer
 * alone than among many; the kernel; the copy back; and the host hears of it. */
Test(card, the_first_step_is_the_sum_of_its_parts, .timeout = 60)
{
    weir_plan *plan = stream_plan("cuda:0", 4);
    weir_rates *rates = rates_of(plan, "cuda:tanh ", 2000);
    const weir_prediction p = predicted(plan, rates);
    const double us = LAUNCH_US + MARK_US + IN_ONCE_US + 2000 + OUT_US + DONE_US;
    cr_expect_float_eq(p.first_s, us * 1e-6, 1e-9, "%g us, not %g", 1e6 * p.first_s, us);
    weir_rates_free(rates);
    weir_plan_free(plan);
}

/* Kernels that take no time: a step takes the thread's time to launch all of them. */
Test(card, launches_bound_a_step_of_small_kernels, .timeout = 60)
{
    weir_plan *plan = stream_plan("cuda:0", 16);
    weir_rates *rates = rates_of(plan, "none ", 0);
    time_card *card = &rates->cards[WEIR_CUDA];
    card->launch = 1000 * US, card->mark = 300 * US;
    rates->cores = 1; /* one thread for the card and the memory beside it */
    const weir_prediction p = predicted(plan, rates);
    const double us = 1000.0 * kernels_on(plan, 0) + 3 * 300;
    cr_expect_float_eq(p.step_s, us * 1e-6, 1e-9, "%g us, not %g", 1e6 * p.step_s, us);
    cr_expect_gt(p.worker[0].busy, 0.9);
    weir_rates_free(rates);
    weir_plan_free(plan);
}

Test(card, a_card_of_half_the_speed_takes_twice_as_long, .timeout = 60)
{
    weir_plan *plan = stream_plan("cuda:0", 4);
    weir_rates *rates = rates_of(plan, "cuda:tanh ", 2000);
    weir_prediction p;
    cr_assert_eq(weir_predict(plan, rates, &p, .set = (const char *const[]){"speed(cuda:0)=0.5", NULL}), WEIR_OK, "%s", weir_error());
    cr_expect_float_eq(p.step_s, 4000e-6, 1e-9, "%g", p.step_s);
    weir_rates_free(rates);
    weir_plan_free(plan);
}

/* ---- collectives ---- */

/* One card takes twice as long as the other, which waits for it before they add. Registers of the cards have
 * one slot, so each product waits until the one before it is added. */
Test(card, members_begin_together_and_end_as_their_curve_says, .timeout = 60)
{
    weir_plan *plan = reduce_plan();
    weir_rates *rates = rates_of(plan, "cuda:matmul ", 1000);
    weir_prediction p;
    time_collective sum = {.kind = PLAN_ALL_REDUCE, .members = 2};
    cr_assert(curve_add(&sum.time, BYTES / 2, 100 * US) && curve_add(&sum.time, 3 * BYTES / 2, 1500 * US));
    cr_assert(time_card_add(&rates->cards[WEIR_CUDA], &sum));
    cr_assert_eq(plan->collectives_count, 1);
    cr_assert_eq(time_collective_bytes(plan, 0), BYTES);
    cr_assert_eq(weir_predict(plan, rates, &p, .set = (const char *const[]){"speed(cuda:1)=0.5", NULL}), WEIR_OK, "%s", weir_error());
    const double collective = 800, slower = 2000;
    cr_expect_float_eq(p.step_s, (slower + collective) * 1e-6, 1e-9, "%g: the slower card's products", p.step_s);
    const double first = LAUNCH_US + MARK_US + IN_ONCE_US + slower + collective + OUT_US + DONE_US;
    cr_expect_float_eq(p.first_s, first * 1e-6, 1e-9, "%g us, not %g", 1e6 * p.first_s, first);
    cr_expect_float_eq(p.cycle_s, p.step_s, 1e-9, "%g: the cycle", p.cycle_s);
    for (uint32_t i = 0; i < sum.time.count; i++)
        rates->cards[WEIR_CUDA].collectives[0].time.ps[i] *= 10;
    p = predicted(plan, rates);
    cr_expect_float_eq(p.step_s, (1000 + 10 * collective) * 1e-6, 1e-9, "%g: the collective", p.step_s);
    cr_expect_float_eq(p.cycle_s, p.step_s, 1e-9, "%g: the cycle", p.cycle_s);
    weir_rates_free(rates);
    weir_plan_free(plan);
}

Test(card, a_number_of_members_without_a_curve_has_that_of_the_next, .timeout = 60)
{
    time_card card = {.launch = 0};
    static const uint64_t members[] = {4, 2, 16, 4};
    for (int i = 0; i < 4; i++) {
        time_collective c = {.kind = PLAN_ALL_GATHER, .members = members[i]};
        cr_assert(curve_add(&c.time, 1, 10 * members[i] + (uint64_t)i) && time_card_add(&card, &c));
    }
    cr_expect_eq(card.collectives_count, 3, "the second of 4 takes the place of the first");
    cr_expect_eq(time_card_collective(&card, PLAN_ALL_GATHER, 3)->ps[0], 43);
    cr_expect_eq(time_card_collective(&card, PLAN_ALL_GATHER, 5)->ps[0], 162);
    cr_expect_eq(time_card_collective(&card, PLAN_ALL_GATHER, 99)->ps[0], 162);
    cr_expect_null(time_card_collective(&card, PLAN_ALL_REDUCE, 4));
}

/* ---- what is not known ---- */

static void refused(const weir_plan *plan, const weir_rates *rates, const char *says)
{
    weir_prediction p;
    cr_expect_eq(weir_predict(plan, rates, &p), WEIR_E_ARGUMENT);
    cr_expect(strstr(weir_error(), says), "%s", weir_error());
}

Test(card, rates_that_lack_something_are_one_sentence, .timeout = 60)
{
    weir_plan *plan = reduce_plan();
    weir_rates *rates = rates_of(plan, "cuda:matmul ", 1000);
    refused(plan, rates, "the rates have no collective cuda all_reduce of 2 or any other number of members; weir measure does not measure it");
    rates->cards[WEIR_CUDA].copy[TIME_OUT] = (time_copy){.once.count = 0};
    refused(plan, rates, "the rates have no copy cuda out");
    rates->cards[WEIR_CUDA] = (time_card){.mark = 0};
    refused(plan, rates, "the rates have no card cuda: weir measure PLAN measures it on a machine that has one");
    weir_rates_free(rates);
    weir_plan_free(plan);
}

/* ---- their lines ---- */

static weir_rates *reread(const weir_rates *rates)
{
    size_t bytes;
    char *text = rates_text(rates, &bytes);
    cr_assert_not_null(text);
    weir_rates *read = rates_parse("file", text, bytes);
    cr_assert_not_null(read, "%s\n%s", weir_error(), text);
    free(text);
    return read;
}

Test(card, lines_of_cards_are_read_as_they_were_written, .timeout = 60)
{
    weir_plan *plan = reduce_plan();
    weir_rates *rates = rates_of(plan, "cuda:matmul ", 1000);
    time_collective sum = {.kind = PLAN_ALL_REDUCE, .members = 2}, gather = {.kind = PLAN_ALL_GATHER, .members = 4};
    cr_assert(curve_add(&sum.time, 64, 5) && curve_add(&gather.time, 64, 7));
    cr_assert(time_card_add(&rates->cards[WEIR_CUDA], &sum) && time_card_add(&rates->cards[WEIR_CUDA], &gather));
    weir_rates *read = reread(rates);
    cr_expect_eq(memcmp(read->cards, rates->cards, sizeof rates->cards), 0);
    cr_expect_eq(read->call_count, rates->call_count);
    weir_rates *other = rates_new();
    cr_assert_eq(weir_rates_merge(other, read), WEIR_OK);
    cr_expect_eq(memcmp(other->cards, rates->cards, sizeof rates->cards), 0, "a host without cards takes all of the other");
    read->cards[WEIR_CUDA].launch = 1, read->cards[WEIR_CUDA].collectives[1].time.ps[0] = 99;
    cr_assert_eq(weir_rates_merge(other, read), WEIR_OK);
    cr_expect_eq(other->cards[WEIR_CUDA].launch, LAUNCH_US * US);
    cr_expect_eq(other->cards[WEIR_CUDA].collectives[1].time.ps[0], 99);
    weir_rates_free(other);
    weir_rates_free(read);
    weir_rates_free(rates);
    weir_plan_free(plan);
}
