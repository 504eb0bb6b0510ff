/* Rates of a machine with a card, which is emulated where none is (tests/support/card.h). Figures mean nothing; each line is there. */
#include "graph/time/call.h"
#include "graph/time/rates.h"
#include "tests/support/card.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>
#include <weir/weir.h>

TestSuite(cuda_measure, .timeout = 300);

static weir_status drop(void *ctx, const weir_view *value, int64_t step, int micro)
{
    (void)ctx, (void)value, (void)step, (void)micro;
    return WEIR_OK;
}

static weir_plan *plan_of(void)
{
    weir_graph *g = weir_graph_new("stream");
    WEIR_ON(weir_mesh_new(g, "cuda:0"))
    {
        weir_tensor *x = weir_input(g, WEIR_F32, {64, 32}, .name = "x"), *w = weir_param(g, WEIR_F32, {32, 16}, .name = "w");
        weir_fetch(weir_sum(weir_tanh(weir_matmul(x, w))), .name = "y", .sink = drop);
    }
    weir_plan *plan = weir_compile(g);
    weir_graph_free(g);
    cr_assert_not_null(plan, "%s", weir_error());
    return plan;
}

static weir_rates *measured(const weir_plan *plan)
{
    weir_rates *rates = weir_measure((const weir_plan *const[]){plan}, 1, .noisy = true);
    cr_assert_not_null(rates, "%s", weir_error());
    return rates;
}

static void expect_curve(const time_curve *curve)
{
    cr_expect_eq(curve->count, 6);
    for (uint32_t i = 1; i < curve->count; i++)
        cr_expect_geq(curve->ps[i], curve->ps[i - 1]);
}

Test(cuda_measure, a_card_has_lines_of_its_calls_its_copies_and_its_launches)
{
    card_open(NULL);
    weir_plan *plan = plan_of();
    weir_rates *rates = measured(plan);
    const time_card *card = &rates->cards[WEIR_CUDA];
    weir_prediction p;
    char *text = malloc(TIME_CALL_BYTES);
    int calls = 0;
    for (uint32_t k = 0; k < plan->kernels_count; k++)
        if (time_call_text(plan, k, text) && !strncmp(text, "cuda:", 5) && strncmp(text, "cuda:copy ", 10)) {
            const time_call *call = rates_find(rates, text);
            cr_expect(call && call->samples && call->ps[TIME_WARM] <= call->ps[TIME_FAR], "%s", text);
            calls++;
        }
    free(text);
    cr_expect_geq(calls, 2);
    cr_expect(card->launch && card->mark && card->l2, "launch %d, mark %d, l2 %d", (int)card->launch, (int)card->mark, (int)card->l2);
    for (int way = 0; way < TIME_WAYS; way++) {
        expect_curve(&card->copy[way].once);
        expect_curve(&card->copy[way].stream);
    }
    cr_assert_eq(weir_predict(plan, rates, &p), WEIR_OK, "%s", weir_error());
    cr_expect(p.step_s > 0 && p.queues == 3 && p.guessed < 1e-9 && p.scaled < 1e-9, "%g s, %d queues", p.step_s, p.queues);
    weir_rates_free(rates);
    weir_plan_free(plan);
    card_close();
}

Test(cuda_measure, a_machine_without_a_card_measures_what_it_has)
{
    if (card_real())
        cr_skip_test("only a stand-in has no card");
    card_open(&(standin_options){.cards = -1});
    weir_plan *plan = plan_of();
    weir_rates *rates = measured(plan);
    weir_prediction p;
    cr_expect_eq(rates->cards[WEIR_CUDA].mark, 0);
    cr_expect_eq(weir_predict(plan, rates, &p), WEIR_E_ARGUMENT);
    cr_expect(strstr(weir_error(), "the rates have no card cuda"), "%s", weir_error());
    weir_rates_free(rates);
    weir_plan_free(plan);
    card_close();
}
