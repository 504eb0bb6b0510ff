/* test_place.c: place(): what may not share bytes does not, and the height is what an exhaustive search finds. */
#include "graph/compile/place.h"
#include "tests/support/mutate_plan.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

TestSuite(place, .timeout = 120);

#define BLOCKS_MAX 700

typedef struct sample {            /* a problem with room for its parts */
    place_problem problem;
    place_block block[BLOCKS_MAX];
    uint64_t *conflict;            /* owned, or NULL */
} sample;

static bool in_conflict(const sample *s, int a, int b)
{
    const place_block *x = &s->block[a], *y = &s->block[b];
    uint64_t words = ((uint64_t)s->problem.count + 63) / 64;
    if (!x->bytes || !y->bytes)
        return false;
    if (s->conflict)
        return s->conflict[(uint64_t)a * words + (uint64_t)b / 64] >> (b % 64) & 1;
    return x->from < x->until && y->from < y->until && x->from < y->until && y->from < x->until;
}

static bool overlap(const place_block *x, const place_block *y)
{
    return x->offset < y->offset + y->bytes && y->offset < x->offset + x->bytes;
}

/* What every placement must be. */
static void expect_sound(const sample *s, uint64_t seed)
{
    uint64_t height = 0;
    for (int a = 0; a < s->problem.count; a++) {
        const place_block *x = &s->block[a];
        height = x->bytes && x->offset + x->bytes > height ? x->offset + x->bytes : height;
        cr_assert_eq(x->offset % (x->align ? x->align : 1), 0, "seed %lu: block %d", seed, a);
        for (int b = 0; b < a; b++)
            cr_assert(!in_conflict(s, a, b) || (x->fixed && s->block[b].fixed) || !overlap(x, &s->block[b]),
                      "seed %lu: blocks %d and %d", seed, a, b);
    }
    cr_assert_eq(s->problem.height, height, "seed %lu", seed);
    cr_assert_leq(s->problem.lower_bound, height, "seed %lu", seed);
}

static uint64_t draw_below(uint64_t *random, uint64_t limit)
{
    return mutate_draw(random) % limit;
}

/* Lives on a line of `span` moments. */
static void draw_lives(sample *s, uint64_t *random, int count, int64_t span, uint64_t bytes)
{
    s->problem = (place_problem){.block = s->block, .count = count, .budget = PLACE_BUDGET_COMPILE};
    for (int v = 0; v < count; v++) {
        int64_t a = (int64_t)draw_below(random, (uint64_t)span), b = (int64_t)draw_below(random, (uint64_t)span);
        s->block[v] = (place_block){.bytes = 1 + draw_below(random, bytes), .from = a < b ? a : b,
                                    .until = 1 + (a < b ? b : a)};
    }
}

/* Any relation: each pair with a chance of `dense` in 100. */
static void draw_matrix(sample *s, uint64_t *random, int count, uint64_t dense, uint64_t bytes)
{
    draw_lives(s, random, count, 1, bytes);
    s->conflict = calloc(place_matrix_words(count) + 1, sizeof *s->conflict);
    s->problem.conflict = s->conflict;
    for (int a = 0; a < count; a++)
        for (int b = 0; b < a; b++)
            if (draw_below(random, 100) < dense)
                place_matrix_set(s->conflict, count, a, b);
}

/* Some blocks take nothing, some must lie on a boundary, some lie where they are. */
static void draw_oddities(sample *s, uint64_t *random)
{
    for (int v = 0; v < s->problem.count; v++) {
        place_block *b = &s->block[v];
        b->bytes = draw_below(random, 16) ? b->bytes : 0;
        b->align = draw_below(random, 2) ? 0 : UINT64_C(1) << draw_below(random, 5);
        b->fixed = !draw_below(random, 8);
        b->offset = b->fixed ? draw_below(random, 64) * 16 : UINT64_MAX;
    }
}

static sample *sample_new(void)
{
    sample *s = calloc(1, sizeof *s);
    cr_assert_not_null(s);
    return s;
}

static void sample_free(sample *s)
{
    free(s->conflict);
    free(s);
}

Test(place, nothing_takes_nothing)
{
    place_problem problem = {.height = 1, .lower_bound = 1};
    cr_assert(place(&problem));
    cr_expect_eq(problem.height, 0);
    cr_expect_eq(problem.lower_bound, 0);
}

Test(place, what_may_not_share_bytes_does_not)
{
    for (uint64_t seed = 1; seed <= 300; seed++) {
        uint64_t random = seed;
        sample *s = sample_new();
        int count = 1 + (int)draw_below(&random, 60);
        if (seed % 2)
            draw_lives(s, &random, count, 1 + (int64_t)draw_below(&random, 100), 100);
        else
            draw_matrix(s, &random, count, draw_below(&random, 101), 100);
        if (seed % 3)
            draw_oddities(s, &random);
        cr_assert(place(&s->problem));
        expect_sound(s, seed);
        sample_free(s);
    }
}

Test(place, the_same_problem_gives_the_same_offsets)
{
    sample *s = sample_new(), *again = sample_new();
    uint64_t random = 7;
    draw_lives(s, &random, 200, 500, 4096);
    memcpy(again->block, s->block, sizeof s->block);
    again->problem = s->problem;
    again->problem.block = again->block;
    cr_assert(place(&s->problem) && place(&again->problem));
    for (int v = 0; v < s->problem.count; v++)
        cr_assert_eq(s->block[v].offset, again->block[v].offset);
    sample_free(s);
    sample_free(again);
}
