/* tests/graph/data/test_order.c: each sample of an epoch comes once, in an order that looks random. */
#include "graph/data/order.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

Test(order, an_epoch_has_each_sample_once, .timeout = 60)
{
    static bool seen[5000];
    for (uint64_t count = 1; count < 5000; count += count < 70 ? 1 : count / 3)
        for (uint64_t epoch = 0; epoch < 3; epoch++) {
            memset(seen, 0, sizeof seen);
            for (uint64_t i = 0; i < count; i++) {
                const uint64_t at = order_at(count, 7, epoch, i);
                cr_assert(at < count && !seen[at], "%lu of %lu in epoch %lu", at, count, epoch);
                seen[at] = true;
            }
        }
}

Test(order, it_follows_from_the_seed_and_the_epoch)
{
    int as_seed = 0, as_epoch = 0, in_place = 0;
    for (uint64_t i = 0; i < 1000; i++) {
        cr_expect_eq(order_at(1000, 1, 0, i), order_at(1000, 1, 0, i));
        as_seed += order_at(1000, 1, 0, i) == order_at(1000, 2, 0, i);
        as_epoch += order_at(1000, 1, 0, i) == order_at(1000, 1, 1, i);
        in_place += order_at(1000, 1, 0, i) == i;
    }
    cr_expect(as_seed < 10 && as_epoch < 10 && in_place < 10, "%d, %d, %d of 1000", as_seed, as_epoch, in_place);
}

/* Chi squared of one place over many epochs: each sample should come there equally often. 99.9 % of random orders are below. */
static void expect_even(uint64_t count, uint64_t place, double below)
{
    enum { EPOCHS = 20000 };
    double hits[64] = {0}, sum = 0;
    for (uint64_t epoch = 0; epoch < EPOCHS; epoch++)
        hits[order_at(count, 3, epoch, place)]++;
    for (uint64_t i = 0; i < count; i++)
        sum += (hits[i] - (double)EPOCHS / (double)count) * (hits[i] - (double)EPOCHS / (double)count) * (double)count / EPOCHS;
    cr_expect(sum < below, "%lu samples, place %lu: %g", count, place, sum);
}

Test(order, each_sample_comes_at_each_place_equally_often)
{
    for (uint64_t place = 0; place < 5; place++)
        expect_even(5, place, 18.5);
    expect_even(10, 3, 27.9);
    expect_even(64, 63, 103.4);
}

/* Neighbours in the order are not neighbours in the files. */
Test(order, large_epochs_are_mixed)
{
    const uint64_t count = UINT64_C(3) << 40;
    double near = 0;
    for (uint64_t i = 0; i < 10000; i++) {
        const uint64_t a = order_at(count, 5, 0, i), b = order_at(count, 5, 0, i + 1);
        cr_assert(a < count && b < count);
        near += (a > b ? a - b : b - a) < count / 100;
    }
    cr_expect(near > 120 && near < 280, "%g of 10000 are within 1 %% of each other, about 199 should be", near);
    cr_expect(order_at(UINT64_C(1) << 62, 1, UINT64_MAX, (UINT64_C(1) << 62) - 1) < UINT64_C(1) << 62);
}
