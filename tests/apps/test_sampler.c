/* tests/apps/test_sampler.c: the sampler beside a plain one that sorts all and sums in double. */
#include "apps/common/model/sampler.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <weir/weir.h>

TestSuite(sampler, .timeout = 60);

enum { VOCAB = 50, DRAWS = 20000, MANY = 150000 };

static const float *sorted_by; /* logits */

static int compare(const void *a, const void *b)
{
    const int x = *(const int *)a, y = *(const int *)b;
    return sorted_by[x] > sorted_by[y] ? -1 : sorted_by[x] < sorted_by[y] ? 1 : x - y;
}

/* The probability of each id. */
static void reference(const sampler_opts *o, const float *logits, int vocab, double *p)
{
    int *id = malloc((size_t)vocab * sizeof *id), count = o->top_k && o->top_k < vocab ? o->top_k : vocab;
    double total = 0, sum = 0;
    for (int i = 0; i < vocab; i++)
        id[i] = i, p[i] = 0;
    sorted_by = logits;
    qsort(id, (size_t)vocab, sizeof *id, compare);
    const double most = (double)logits[id[0]];
    for (int i = 0; i < count; i++)
        total += exp((double)logits[id[i]] - most);
    for (int i = 0; i < count && o->top_p > 0; i++)
        if ((sum += exp((double)logits[id[i]] - most)) >= o->top_p * total)
            count = i + 1;
    while (count > 1 && exp((double)logits[id[count - 1]] - most) < o->min_p)
        count--;
    total = 0;
    for (int i = 0; i < count; i++)
        total += p[id[i]] = exp(((double)logits[id[i]] - most) / o->temperature);
    for (int i = 0; i < vocab; i++)
        p[i] /= total;
    free(id);
}

static void random_logits(float *logits, int vocab, uint64_t seed)
{
    for (int i = 0; i < vocab; i++)
        logits[i] = 2 * weir_random_normal(seed, (uint64_t)i);
}

/* How often each id is drawn of DRAWS times. */
static void draw_often(const sampler_opts *o, const float *logits, int vocab, int *drawn)
{
    struct sampler *s = sampler_new(o, vocab);
    float *own = malloc((size_t)vocab * sizeof *own);
    memset(drawn, 0, (size_t)vocab * sizeof *drawn);
    for (int i = 0; i < DRAWS; i++) {
        memcpy(own, logits, (size_t)vocab * sizeof *own);
        const int32_t id = sampler_choose(s, own);
        cr_assert(id >= 0 && id < vocab);
        drawn[id]++;
        sampler_saw(s, 0);
    }
    free(own);
    sampler_free(s);
}

static void check_draws(sampler_opts o, const float *logits)
{
    int drawn[VOCAB];
    double p[VOCAB];
    o.seed = 7;
    reference(&o, logits, VOCAB, p);
    draw_often(&o, logits, VOCAB, drawn);
    for (int i = 0; i < VOCAB; i++) {
        const double spread = sqrt(p[i] * (1 - p[i]) * DRAWS);
        cr_expect(fabs(drawn[i] - p[i] * DRAWS) <= 5 * spread + (p[i] > 0), "id %d: %d times, probability %g (top_k %d, top_p %g, min_p %g)", i,
                  drawn[i], p[i], o.top_k, o.top_p, o.min_p);
    }
}

Test(sampler, draws_as_a_plain_one_does)
{
    float logits[VOCAB];
    random_logits(logits, VOCAB, 3);
    check_draws((sampler_opts){.temperature = 1}, logits);
    check_draws((sampler_opts){.temperature = 0.5}, logits);
    check_draws((sampler_opts){.temperature = 3}, logits);
    check_draws((sampler_opts){.temperature = 1, .top_k = 5}, logits);
    check_draws((sampler_opts){.temperature = 1, .top_k = 2 * VOCAB}, logits);
    check_draws((sampler_opts){.temperature = 1, .top_p = 0.6}, logits);
    check_draws((sampler_opts){.temperature = 1, .top_p = 1}, logits);
    check_draws((sampler_opts){.temperature = 1, .min_p = 0.1}, logits);
    check_draws((sampler_opts){.temperature = 2, .top_k = 12, .top_p = 0.8, .min_p = 0.05}, logits);
    check_draws((sampler_opts){.temperature = 2, .top_p = 0.9, .min_p = 0.2}, logits);
}

Test(sampler, equal_logits_stay_by_their_ids)
{
    float logits[VOCAB] = {0};
    logits[9] = logits[30] = logits[40] = 1;
    check_draws((sampler_opts){.temperature = 1, .top_k = 2}, logits);
    check_draws((sampler_opts){.temperature = 1, .top_k = 6}, logits);
    check_draws((sampler_opts){.temperature = 1, .top_p = 0.11}, logits);
    struct sampler *s = sampler_new(&(sampler_opts){.temperature = 0}, VOCAB);
    cr_expect_eq(sampler_choose(s, logits), 9);
    sampler_free(s);
}

Test(sampler, of_nearly_equal_logits_the_fewest_stay)
{
    float logits[VOCAB];
    for (uint64_t seed = 1; seed <= 5; seed++) {
        random_logits(logits, VOCAB, seed);
        for (int i = 0; i < VOCAB; i++)
            logits[i] = roundf(8 * logits[i]) / 256;
        check_draws((sampler_opts){.temperature = 1, .top_p = 0.2 * (double)seed - 0.1}, logits);
        check_draws((sampler_opts){.temperature = 1, .top_p = 0.95, .min_p = 0.9}, logits);
    }
}

Test(sampler, of_a_large_vocabulary_the_same_candidates_stay)
{
    static float logits[MANY];
    static int drawn[MANY];
    static double p[MANY];
    random_logits(logits, MANY, 5);
    for (int i = 0; i < 20; i++)
        logits[i * 7001] += 9;
    const sampler_opts all[] = {{.temperature = 1, .top_k = 40}, {.temperature = 1, .top_p = 0.5}, {.temperature = 1, .min_p = 0.3}};
    for (int i = 0; i < 3; i++) {
        sampler_opts o = all[i];
        struct sampler *s = sampler_new(&o, MANY);
        reference(&o, logits, MANY, p);
        for (int n = 0; n < 300; n++) {
            const int32_t id = sampler_choose(s, logits);
            cr_assert(id >= 0 && p[id] > 0, "options %d: id %d", i, id);
            drawn[id]++;
            sampler_saw(s, id);
        }
        sampler_free(s);
    }
    int several = 0;
    for (int i = 0; i < MANY; i++)
        several += drawn[i] > 0;
    cr_expect_gt(several, 10);
}

Test(sampler, what_was_seen_is_penalised_once)
{
    enum { THREE = 3 };
    struct sampler *s = sampler_new(&(sampler_opts){.temperature = 0, .repeat_penalty = 2}, THREE);
    float logits[THREE] = {4, 3, -1};
    sampler_saw(s, 0), sampler_saw(s, 0), sampler_saw(s, 2);
    cr_expect_eq(sampler_choose(s, logits), 1);
    cr_expect(logits[0] == 2 && logits[1] == 3 && logits[2] == -2);
    for (int i = 0; i < SAMPLER_SEEN; i++) /* 0 and 2 are long ago */
        sampler_saw(s, 1);
    memcpy(logits, (float[THREE]){4, 7, -1}, sizeof logits);
    cr_expect_eq(sampler_choose(s, logits), 0);
    cr_expect(logits[0] == 4 && logits[1] == 3.5f && logits[2] == -1);
    sampler_free(s);
}

Test(sampler, a_draw_depends_on_the_seed_and_the_position_alone)
{
    float logits[VOCAB];
    int32_t first[40];
    random_logits(logits, VOCAB, 3);
    for (int seed = 0, same = 0; seed < 3; seed++) {
        struct sampler *s = sampler_new(&(sampler_opts){.temperature = 1, .seed = (uint64_t)(seed % 2)}, VOCAB);
        for (int i = 0; i < 40; i++) {
            const int32_t id = sampler_choose(s, logits);
            cr_assert_eq(id, sampler_choose(s, logits), "the position is the same");
            same += seed && id == first[i];
            if (!seed)
                first[i] = id;
            sampler_saw(s, id);
        }
        if (seed == 1)
            cr_expect_lt(same, 20, "another seed");
        if (seed == 2)
            cr_expect_geq(same, 40, "the same seed again");
        sampler_free(s);
    }
}

Test(sampler, logits_that_say_nothing_are_refused)
{
    struct sampler *s = sampler_new(&(sampler_opts){.temperature = 1}, VOCAB), *one = sampler_new(&(sampler_opts){.temperature = 1}, 1);
    for (int at = 0; at < VOCAB; at++) {
        float logits[VOCAB] = {0};
        logits[at] = NAN;
        cr_expect_eq(sampler_choose(s, logits), -1);
        logits[at] = INFINITY;
        cr_expect_eq(sampler_choose(s, logits), -1);
        for (int i = 0; i < VOCAB; i++)
            logits[i] = -INFINITY;
        cr_expect_eq(sampler_choose(s, logits), -1);
        logits[at] = -3; /* it alone may come */
        cr_expect_eq(sampler_choose(s, logits), at);
    }
    float lone = -1;
    cr_expect_eq(sampler_choose(one, &lone), 0);
    sampler_free(s), sampler_free(one);
}
