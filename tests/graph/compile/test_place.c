/* test_place.c: place(): what may not share bytes does not, and the height is what an exhaustive search finds. */
#include "graph/compile/memory/place_same.h"
#include "tests/support/mutate_plan.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

TestSuite(place, .timeout = 120);

#define BLOCKS_MAX 4000

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
        s->problem.budget = seed % 5 ? 1000000 : 0;
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

/* ---- against what is best ---- */

typedef struct exhaustive {        /* all orders, each block at the lowest place that it finds: the best is among them */
    const sample *s;
    uint64_t offset[BLOCKS_MAX];
    bool placed[BLOCKS_MAX];
    uint64_t best;
} exhaustive;

static uint64_t lowest_place(const exhaustive *e, int v)
{
    const place_block *b = &e->s->block[v];
    uint64_t align = b->align ? b->align : 1, at = 0;
    for (int u = 0; u < e->s->problem.count; u++) {
        uint64_t from = e->offset[u], to = from + e->s->block[u].bytes;
        if (e->placed[u] && in_conflict(e->s, u, v) && from < at + b->bytes && at < to) {
            at = (to + align - 1) / align * align;
            u = -1;
        }
    }
    return at;
}

static void try_orders(exhaustive *e, uint64_t height)
{
    bool all = true;
    for (int v = 0; v < e->s->problem.count; v++) {
        if (e->placed[v])
            continue;
        all = false;
        e->offset[v] = lowest_place(e, v);
        uint64_t top = e->offset[v] + e->s->block[v].bytes;
        e->placed[v] = true;
        if (top < e->best)
            try_orders(e, top > height ? top : height);
        e->placed[v] = false;
    }
    if (all && height < e->best)
        e->best = height;
}

/* Small problems with much conflict, few sizes and short times: those where orders alone are often wrong. */
static void draw_small(sample *s, uint64_t seed)
{
    uint64_t random = seed;
    int count = 1 + (int)draw_below(&random, 7);
    uint64_t align = UINT64_C(1) << draw_below(&random, 3);
    if (seed % 2)
        draw_lives(s, &random, count, 1 + (int64_t)draw_below(&random, 12), 1 + draw_below(&random, 20));
    else
        draw_matrix(s, &random, count, 30 + draw_below(&random, 60), 1 + draw_below(&random, 20));
    for (int v = 0; v < count && seed % 3 == 0; v++)
        s->block[v].align = seed % 9 ? align : UINT64_C(1) << draw_below(&random, 3);
}

Test(place, small_problems_get_the_least_height_that_exists)
{
    for (uint64_t seed = 1; seed <= 2000; seed++) {
        sample *s = sample_new();
        draw_small(s, seed);
        exhaustive e = {.s = s, .best = UINT64_MAX};
        try_orders(&e, 0);
        cr_assert(place(&s->problem));
        expect_sound(s, seed);
        cr_assert_eq(s->problem.height, e.best, "seed %lu: %lu rather than %lu", seed, s->problem.height, e.best);
        cr_assert_eq(s->problem.lower_bound, e.best, "seed %lu: the bound is %lu", seed, s->problem.lower_bound);
        sample_free(s);
    }
}

static uint64_t alive_most(const sample *s)
{
    uint64_t most = 0;
    for (int a = 0; a < s->problem.count; a++) {
        uint64_t bytes = 0;
        for (int b = 0; b < s->problem.count; b++)
            if (s->block[b].from <= s->block[a].from && s->block[a].from < s->block[b].until)
                bytes += s->block[b].bytes;
        most = bytes > most ? bytes : most;
    }
    return most;
}

Test(place, five_hundred_blocks_end_within_three_per_cent_of_the_bound)
{
    for (uint64_t seed = 1; seed <= 12; seed++) {
        sample *s = sample_new();
        uint64_t random = seed;
        draw_lives(s, &random, 500, 2000, 100000);
        for (int v = 0; v < 500 && seed % 3; v++) {
            place_block *b = &s->block[v];
            b->until = seed % 3 == 1 ? b->from + 1 + (b->until - b->from) / 16 : b->until;
            b->bytes = seed % 2 ? UINT64_C(1) << draw_below(&random, 20) : b->bytes;
        }
        s->problem.budget = 200000000;
        cr_assert(place(&s->problem));
        expect_sound(s, seed);
        uint64_t most = alive_most(s);
        cr_assert_geq(s->problem.lower_bound, most, "seed %lu", seed);
        cr_assert_leq(s->problem.height, most + most * 3 / 100, "seed %lu: %lu over %lu", seed, s->problem.height, most);
        sample_free(s);
    }
}

/* What a compilation may spend is a part of a second, however many blocks there are. */
Test(place, thousands_of_blocks_are_placed_with_the_budget_of_a_compilation)
{
    for (int matrix = 0; matrix < 2; matrix++) {
        sample *s = sample_new();
        uint64_t random = 3;
        if (matrix)
            draw_matrix(s, &random, 3000, 40, 1 << 20);
        else
            draw_lives(s, &random, 4000, 10000, 1 << 20);
        cr_assert(place(&s->problem));
        expect_sound(s, 3);
        sample_free(s);
    }
}

Test(place, blocks_that_are_in_conflict_with_all_lie_at_the_bottom)
{
    place_block block[4] = {{.bytes = 5, .from = 0, .until = 2}, {.bytes = 7, .from = 0, .until = 4},
                            {.bytes = 6, .from = 2, .until = 4}, {.bytes = 9, .from = 9, .until = 9}};
    place_problem problem = {.block = block, .count = 4};
    cr_assert(place(&problem));
    cr_expect_eq(block[1].offset, 0);
    cr_expect_eq(block[0].offset, 7);
    cr_expect_eq(block[2].offset, 7);
    cr_expect_eq(problem.height, 13);
    cr_expect_eq(problem.lower_bound, 13);
}

Test(place, a_bound_that_is_known_ends_the_search)
{
    place_block block[2] = {{.bytes = 5, .from = 0, .until = 2}, {.bytes = 7, .from = 1, .until = 4}};
    place_problem problem = {.block = block, .count = 2, .bound = 20, .budget = 1000};
    cr_assert(place(&problem));
    cr_expect_eq(problem.height, 12);
    cr_expect_eq(problem.lower_bound, 12, "no bound is above what has been reached");
}

static void draw_matrix_of(sample *s, uint64_t seed, int count)
{
    uint64_t random = seed;
    s->problem = (place_problem){.block = s->block, .count = count, .budget = 10000};
    s->conflict = calloc(place_matrix_words(count) + 1, sizeof *s->conflict);
    s->problem.conflict = s->conflict;
    for (int v = 0; v < count; v++)
        s->block[v] = (place_block){.bytes = 64 * (1 + draw_below(&random, 9)), .align = 64};
    for (int i = 0; i < 3 * count; i++) {
        int a = (int)draw_below(&random, (uint64_t)count), b = (int)draw_below(&random, (uint64_t)count);
        if (a != b)
            place_matrix_set(s->conflict, count, a, b);
    }
}

Test(place, an_equal_problem_takes_the_solution_over_and_any_other_does_not)
{
    static sample one, same, other;
    place_same known = {.bytes = 0};
    for (uint64_t seed = 1; seed <= 20; seed++) {
        int count = 5 + (int)seed * 3;
        draw_matrix_of(&one, seed, count);
        draw_matrix_of(&same, seed, count);
        cr_assert(place_same_as(&known, &one.problem));
        expect_sound(&one, seed);
        int solved = known.solved.count;
        cr_assert(place_same_as(&known, &same.problem));
        cr_expect_eq(known.solved.count, solved, "seed %lu: it was placed anew", seed);
        cr_expect_eq(same.problem.height, one.problem.height);
        for (int v = 0; v < count; v++)
            cr_assert_eq(same.block[v].offset, one.block[v].offset, "seed %lu: block %d", seed, v);
        draw_matrix_of(&other, seed, count);
        other.block[count - 1].bytes += 64;
        cr_assert(place_same_as(&known, &other.problem));
        expect_sound(&other, seed);
        free(other.conflict);
        draw_matrix_of(&other, seed, count);
        other.conflict[0] ^= 2; /* of blocks 0 and 1 */
        other.conflict[((size_t)count + 63) / 64] ^= 1;
        cr_assert(place_same_as(&known, &other.problem));
        expect_sound(&other, seed);
        cr_expect_eq(known.solved.count, solved + 2, "seed %lu", seed);
        free(one.conflict);
        free(same.conflict);
        free(other.conflict);
    }
    place_same_free(&known);
}
