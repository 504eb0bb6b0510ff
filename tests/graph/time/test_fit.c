/* Times of calls that were not measured, from made-up times of others. */
#include "graph/time/fit.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A product of [m, k] and [k, n] that takes 1 us, 0.02 ns for each operation and 0.1 ns for each byte, times `scale`. */
static time_call product(char text[96], int m, int k, int n, uint64_t scale)
{
    const double flops = 2.0 * m * k * n, bytes = 4.0 * (m * k + k * n + m * n), ps = 1e6 + 20 * flops + 100 * bytes;
    snprintf(text, 96, "matmul a=1 f32:%dx%d,f32:%dx%d>f32:%dx%d", m, k, k, n, m, n);
    time_call call = {.text = text, .flops = (uint64_t)flops, .bytes = (uint64_t)bytes, .samples = 9};
    for (int p = 0; p < TIME_PLACES; p++)
        call.ps[p] = scale * (uint64_t)(ps * (1 + p));
    call.band = 2 * call.ps[TIME_FAR];
    call.core = call.ps[TIME_WARM];
    return call;
}

static weir_rates *products(uint64_t scale)
{
    static const int sizes[] = {16, 64, 256};
    weir_rates *r = rates_new();
    char text[96];
    cr_assert_not_null(r);
    for (int i = 0; i < 27; i++) {
        const time_call call = product(text, sizes[i / 9], sizes[i / 3 % 3], sizes[i % 3], scale);
        cr_assert(rates_add(r, &call));
    }
    return r;
}

static bool find(const weir_rates *r, const char *text, uint64_t flops, uint64_t bytes, time_call *call)
{
    fits *f = fits_new(r);
    cr_assert_not_null(f);
    *call = (time_call){.flops = flops, .bytes = bytes};
    const bool found = fits_time(f, text, call);
    fits_free(f);
    return found;
}

Test(fit, a_call_between_others_takes_as_long_as_their_rule_says, .timeout = 30)
{
    static const int sizes[][3] = {{32, 32, 32}, {16, 48, 240}, {128, 64, 16}, {192, 192, 192}, {256, 20, 90}, {400, 400, 400}, {3, 64, 64}};
    weir_rates *r = products(1);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        char text[96];
        time_call found;
        const time_call wanted = product(text, sizes[i][0], sizes[i][1], sizes[i][2], 1);
        cr_assert(find(r, text, wanted.flops, wanted.bytes, &found));
        for (int p = 0; p < TIME_PLACES; p++)
            cr_expect(fabs((double)found.ps[p] / (double)wanted.ps[p] - 1) < 0.05, "%s: %.0f, not %.0f", text, (double)found.ps[p],
                      (double)wanted.ps[p]);
        cr_expect(fabs((double)found.band / (double)found.ps[TIME_FAR] - 2) < 0.01, "%s", text);
        cr_expect_eq(found.core, found.ps[TIME_WARM]);
    }
    weir_rates_free(r);
}

Test(fit, a_measured_call_that_is_off_the_rule_draws_those_beside_it, .timeout = 30)
{
    weir_rates *r = products(1);
    char text[96];
    time_call found, slow = product(text, 64, 64, 64, 3);
    cr_assert(rates_add(r, &slow));
    cr_assert(find(r, text, slow.flops, slow.bytes, &found));
    cr_expect(found.ps[TIME_WARM] > slow.ps[TIME_WARM] * 9 / 10, "the call itself");
    const time_call beside = product(text, 66, 64, 62, 1);
    cr_assert(find(r, text, beside.flops, beside.bytes, &found));
    cr_expect(found.ps[TIME_WARM] > 2 * beside.ps[TIME_WARM], "a call beside it");
    const time_call away = product(text, 256, 256, 200, 1);
    cr_assert(find(r, text, away.flops, away.bytes, &found));
    cr_expect(found.ps[TIME_WARM] < away.ps[TIME_WARM] * 5 / 4, "a call far from it");
    weir_rates_free(r);
}

Test(fit, rates_that_are_three_times_as_long_make_calls_three_times_as_long, .timeout = 30)
{
    weir_rates *once = products(1), *thrice = products(3);
    char text[96];
    time_call a, b;
    const time_call wanted = product(text, 100, 50, 70, 1);
    cr_assert(find(once, text, wanted.flops, wanted.bytes, &a) && find(thrice, text, wanted.flops, wanted.bytes, &b));
    for (int p = 0; p < TIME_PLACES; p++)
        cr_expect(fabs((double)b.ps[p] / (3 * (double)a.ps[p]) - 1) < 1e-3, "%.0f %.0f", (double)a.ps[p], (double)b.ps[p]);
    weir_rates_free(once), weir_rates_free(thrice);
}

Test(fit, calls_of_other_operands_count_if_there_are_no_better_ones_and_those_of_other_ops_never, .timeout = 30)
{
    weir_rates *r = rates_new();
    time_call found;
    const time_call one = {.text = "box a=1 f32:100>f32:100", .ps = {1000, 2000, 4000}, .bytes = 800, .samples = 9};
    cr_assert(rates_add(r, &one));
    cr_assert(find(r, "box a=2 f32:100,f32:100>f32:200", 0, 1600, &found));
    cr_expect_eq(found.ps[TIME_FAR], 8000, "%.0f", (double)found.ps[TIME_FAR]);
    cr_assert(find(r, "box a=2 f32:50>f32:50", 0, 400, &found));
    cr_expect_eq(found.ps[TIME_WARM], 500, "%.0f", (double)found.ps[TIME_WARM]);
    cr_expect_not(find(r, "boxes a=2 f32:50>f32:50", 0, 400, &found));
    weir_rates_free(r);
}

Test(fit, any_text_and_any_numbers_have_an_answer, .timeout = 30)
{
    static const char *const texts[] = {"", "x", "x ", "x a=1", "x a=1 ", "x a=1 :", "x a=1 f32:", "x a=1 f32:x", "x a=1 f32:0x0>f32:0",
                                        "x a=1 >>>;;;+++",
                                        "x a=1 f32:99999999999999999999999999x99999999999999999999999999x99999999999x9999999999>f32:7"};
    enum { TEXTS = sizeof texts / sizeof *texts };
    weir_rates *r = rates_new();
    for (int i = 0; i < TEXTS; i++) {
        const uint64_t huge = i % 2 ? UINT64_MAX >> 8 : 0;
        cr_assert(rates_add(r, &(time_call){.text = (char *)texts[i], .ps = {huge, huge, huge}, .flops = huge, .bytes = huge}));
    }
    for (int i = 0; i < TEXTS; i++) {
        time_call found;
        if (!find(r, texts[i], UINT64_MAX, 0, &found))
            continue;
        cr_expect(found.ps[TIME_WARM] <= found.ps[TIME_NEAR] && found.ps[TIME_NEAR] <= found.ps[TIME_FAR], "%s", texts[i]);
        cr_expect(found.ps[TIME_FAR] <= UINT64_C(1000000000000000000), "%s", texts[i]);
    }
    weir_rates_free(r);
}
