/* test_place.c: blocks in conflict share no byte, and heights are close to the least that an exhaustive search finds. */
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
    int64_t from[BLOCKS_MAX], until[BLOCKS_MAX]; /* of lives */
    uint64_t *conflict;            /* owned */
} sample;

static bool in_conflict(const sample *s, int a, int b)
{
    uint64_t words = ((uint64_t)s->problem.count + 63) / 64;
    return s->block[a].bytes && s->block[b].bytes && s->conflict[(uint64_t)a * words + (uint64_t)b / 64] >> (b % 64) & 1;
}

static bool overlap(const place_block *x, const place_block *y)
{
    return x->offset < y->offset + y->bytes && y->offset < x->offset + x->bytes;
}

/* The rules of every placement. */
static void expect_sound(const sample *s, uint64_t seed)
{
    uint64_t height = 0;
    for (int a = 0; a < s->problem.count; a++) {
        const place_block *x = &s->block[a];
        height = x->bytes && x->offset + x->bytes > height ? x->offset + x->bytes : height;
        cr_assert_eq(x->offset % (x->align ? x->align : 1), 0, "seed %lu: block %d", seed, a);
        for (int b = 0; b < a; b++)
            cr_assert(!in_conflict(s, a, b) || !overlap(x, &s->block[b]), "seed %lu: blocks %d and %d", seed, a, b);
    }
    cr_assert_eq(s->problem.height, height, "seed %lu", seed);
}

static uint64_t draw_below(uint64_t *random, uint64_t limit)
{
    return mutate_draw(random) % limit;
}

static void matrix_new(sample *s, int count)
{
    s->conflict = calloc(place_matrix_words(count) + 1, sizeof *s->conflict);
    cr_assert_not_null(s->conflict);
    s->problem = (place_problem){.block = s->block, .count = count, .conflict = s->conflict};
}

/* The bits of blocks whose lives meet. */
static void matrix_of_lives(sample *s, int count)
{
    matrix_new(s, count);
    for (int a = 0; a < count; a++)
        for (int b = 0; b < a; b++)
            if (s->from[a] < s->until[b] && s->from[b] < s->until[a])
                place_matrix_set(s->conflict, count, a, b);
}

/* Lives on a line of `span` moments, without their matrix. */
static void draw_lives(sample *s, uint64_t *random, int count, int64_t span, uint64_t bytes)
{
    for (int v = 0; v < count; v++) {
        int64_t a = (int64_t)draw_below(random, (uint64_t)span), b = (int64_t)draw_below(random, (uint64_t)span);
        s->block[v] = (place_block){.bytes = 1 + draw_below(random, bytes)};
        s->from[v] = a < b ? a : b;
        s->until[v] = 1 + (a < b ? b : a);
    }
}

/* Any relation: each pair with a chance of `dense` in 100. */
static void draw_matrix(sample *s, uint64_t *random, int count, uint64_t dense, uint64_t bytes)
{
    draw_lives(s, random, count, 1, bytes);
    matrix_new(s, count);
    for (int a = 0; a < count; a++)
        for (int b = 0; b < a; b++)
            if (draw_below(random, 100) < dense)
                place_matrix_set(s->conflict, count, a, b);
}

/* Some blocks take nothing, some must lie on a boundary. */
static void draw_oddities(sample *s, uint64_t *random)
{
    for (int v = 0; v < s->problem.count; v++) {
        place_block *b = &s->block[v];
        b->bytes = draw_below(random, 16) ? b->bytes : 0;
        b->align = draw_below(random, 2) ? 0 : UINT64_C(1) << draw_below(random, 5);
        b->offset = UINT64_MAX;
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
    place_problem problem = {.height = 1};
    cr_assert(place(&problem));
    cr_expect_eq(problem.height, 0);
}

Test(place, blocks_of_no_bytes_lie_at_0)
{
    place_block block[2] = {{.bytes = 0, .offset = 5}, {.bytes = 7, .offset = 5}};
    uint64_t conflict[2] = {2, 1};
    place_problem problem = {.block = block, .count = 2, .conflict = conflict};
    cr_assert(place(&problem));
    cr_expect_eq(block[0].offset, 0);
    cr_expect_eq(block[1].offset, 0);
    cr_expect_eq(problem.height, 7);
}

Test(place, blocks_in_conflict_share_no_byte)
{
    for (uint64_t seed = 1; seed <= 300; seed++) {
        uint64_t random = seed;
        sample *s = sample_new();
        int count = 1 + (int)draw_below(&random, 200);
        if (seed % 2) {
            draw_lives(s, &random, count, 1 + (int64_t)draw_below(&random, 100), 100);
            matrix_of_lives(s, count);
        } else {
            draw_matrix(s, &random, count, draw_below(&random, 101), 100);
        }
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
    memcpy(again, s, sizeof *s);
    matrix_of_lives(s, 200);
    matrix_of_lives(again, 200);
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

/* Small problems with much conflict, few sizes and short times: those where orders are often wrong. Sizes are padded to
 * the alignment, as the compiler's are. */
static void draw_small(sample *s, uint64_t seed)
{
    uint64_t random = seed;
    int count = 1 + (int)draw_below(&random, 7);
    uint64_t align = seed % 3 ? 1 : UINT64_C(1) << draw_below(&random, 3);
    if (seed % 2) {
        draw_lives(s, &random, count, 1 + (int64_t)draw_below(&random, 12), 1 + draw_below(&random, 20));
        matrix_of_lives(s, count);
    } else {
        draw_matrix(s, &random, count, 30 + draw_below(&random, 60), 1 + draw_below(&random, 20));
    }
    for (int v = 0; v < count; v++) {
        s->block[v].align = align;
        s->block[v].bytes *= align;
    }
}

/* 1,999 of 2,000 do. */
Test(place, most_small_problems_get_the_least_height_that_exists)
{
    int least = 0;
    for (uint64_t seed = 1; seed <= 2000; seed++) {
        sample *s = sample_new();
        draw_small(s, seed);
        exhaustive e = {.s = s, .best = UINT64_MAX};
        try_orders(&e, 0);
        cr_assert(place(&s->problem));
        expect_sound(s, seed);
        cr_assert_leq(s->problem.height, e.best + e.best / 4, "seed %lu: %lu, and %lu exists", seed, s->problem.height, e.best);
        least += s->problem.height == e.best;
        sample_free(s);
    }
    cr_expect_geq(least, 1995, "%d problems", least);
}

static uint64_t alive_most(const sample *s)
{
    uint64_t most = 0;
    for (int a = 0; a < s->problem.count; a++) {
        uint64_t bytes = 0;
        for (int b = 0; b < s->problem.count; b++)
            if (s->from[b] <= s->from[a] && s->from[a] < s->until[b])
                bytes += s->block[b].bytes;
        most = bytes > most ? bytes : most;
    }
    return most;
}

Test(place, five_hundred_blocks_end_within_three_per_cent_of_the_most_that_is_alive)
{
    for (uint64_t seed = 1; seed <= 12; seed++) {
        sample *s = sample_new();
        uint64_t random = seed;
        draw_lives(s, &random, 500, 2000, 100000);
        for (int v = 0; v < 500 && seed % 3; v++) {
            s->until[v] = seed % 3 == 1 ? s->from[v] + 1 + (s->until[v] - s->from[v]) / 16 : s->until[v];
            s->block[v].bytes = seed % 2 ? UINT64_C(1) << draw_below(&random, 20) : s->block[v].bytes;
        }
        matrix_of_lives(s, 500);
        cr_assert(place(&s->problem));
        expect_sound(s, seed);
        uint64_t most = alive_most(s);
        cr_assert_geq(s->problem.height, most, "seed %lu: blocks overlap", seed);
        cr_assert_leq(s->problem.height, most + most * 3 / 100, "seed %lu: %lu over %lu", seed, s->problem.height, most);
        sample_free(s);
    }
}

Test(place, thousands_of_blocks_are_placed)
{
    for (int matrix = 0; matrix < 2; matrix++) {
        sample *s = sample_new();
        uint64_t random = 3;
        if (matrix) {
            draw_matrix(s, &random, 3000, 40, 1 << 20);
        } else {
            draw_lives(s, &random, 4000, 10000, 1 << 20);
            matrix_of_lives(s, 4000);
        }
        cr_assert(place(&s->problem));
        expect_sound(s, 3);
        sample_free(s);
    }
}

static void draw_matrix_of(sample *s, uint64_t seed, int count)
{
    uint64_t random = seed;
    matrix_new(s, count);
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
