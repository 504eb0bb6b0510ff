/* tests/graph/plan/test_reach.c: walks of many columns find the paths that a search from each node finds. */
#include "graph/plan/lives/reach.h"
#include "tests/support/mutate_plan.h"

#include <criterion/criterion.h>
#include <string.h>

TestSuite(reach, .timeout = 60);

enum { SEED = 20261123, NODES_MAX = 40, ROUNDS = 300, FAR = 2 };

typedef struct sample {
    uint32_t nodes, edges;
    reach_edge edge[4 * NODES_MAX];
    uint32_t tokens[NODES_MAX][NODES_MAX]; /* of the path with fewest; FAR: two or more, or no path */
} sample;

static uint32_t below(uint64_t *random, uint32_t limit)
{
    return (uint32_t)(mutate_draw(random) % limit);
}

/* Edges without a token go forward, but for a few in some samples, which make circles; several have the same ends. */
static void draw(sample *s, uint64_t *random)
{
    bool circles = below(random, 5) == 1;
    *s = (sample){.nodes = 1 + below(random, NODES_MAX)};
    s->edges = below(random, 3 * s->nodes);
    for (uint32_t e = 0; e < s->edges; e++) {
        uint32_t a = below(random, s->nodes), b = below(random, s->nodes), tokens = below(random, 3);
        bool turn = a > b && !tokens && !(circles && below(random, 3) == 1);
        if (a == b && !tokens)
            tokens = 1;
        s->edge[e] = (reach_edge){turn ? b : a, turn ? a : b, tokens};
    }
}

/* Edges again and again, until no path becomes better. */
static void search(sample *s)
{
    for (uint32_t a = 0; a < s->nodes; a++)
        for (uint32_t b = 0; b < s->nodes; b++)
            s->tokens[a][b] = FAR;
    for (bool better = true; better;) {
        better = false;
        for (uint32_t e = 0; e < s->edges; e++)
            for (uint32_t b = 0; b < s->nodes; b++) {
                const reach_edge *x = &s->edge[e];
                uint32_t on = b == x->to ? 0 : s->tokens[x->to][b], most = x->tokens + on;
                if (most >= s->tokens[x->from][b])
                    continue;
                s->tokens[x->from][b] = most;
                better = true;
            }
    }
}

static bool bit(const uint64_t *row, uint32_t column)
{
    return row[column / 64] >> column % 64 & 1;
}

/* From a node that has a place, without a circle somewhere, everything is found; never more than there is. */
static void expect_paths(const sample *s, const reach *r, const uint32_t *of, uint32_t count, int round)
{
    for (uint32_t n = 0; n < s->nodes; n++)
        for (uint32_t c = 0; c < count; c++) {
            bool now = bit(reach_now(r, n), c), within = bit(reach_within(r, n), c);
            if (of[c] == n)
                continue;
            cr_assert(!now || s->tokens[n][of[c]] == 0, "round %d: %u to %u", round, n, of[c]);
            cr_assert(!within || s->tokens[n][of[c]] <= 1, "round %d: %u to %u", round, n, of[c]);
            if (r->sequenced < r->nodes)
                continue;
            cr_assert_eq(now, s->tokens[n][of[c]] == 0, "round %d: %u to %u", round, n, of[c]);
            cr_assert_eq(within, s->tokens[n][of[c]] <= 1, "round %d: %u to %u", round, n, of[c]);
        }
}

static void open_sample(reach *r, const sample *s)
{
    cr_assert(reach_open(r, s->nodes, s->edges));
    for (uint32_t e = 0; e < s->edges; e++)
        reach_add(r, s->edge[e].from, s->edge[e].to, s->edge[e].tokens);
    cr_assert(reach_close(r));
}

Test(reach, a_walk_finds_the_paths_that_a_search_finds)
{
    static sample s;
    uint64_t random = SEED;
    int whole = 0, circles = 0;
    for (int round = 0; round < ROUNDS; round++) {
        reach r;
        uint32_t of[REACH_COLUMNS], count = 1 + below(&random, REACH_COLUMNS);
        draw(&s, &random);
        search(&s);
        open_sample(&r, &s);
        *(r.sequenced < r.nodes ? &circles : &whole) += 1;
        for (int again = 0; again < 2; again++) { /* nothing is left of the walk before */
            for (uint32_t c = 0; c < count; c++)
                of[c] = below(&random, s.nodes);
            cr_assert(reach_walk(&r, of, count));
            expect_paths(&s, &r, of, count, round);
        }
        reach_free(&r);
    }
    cr_expect(whole > ROUNDS / 2 && circles > 5, "%d samples without circles, %d with", whole, circles);
}

Test(reach, nothing_is_reached_from_a_circle_without_tokens)
{
    static const reach_edge edges[] = {{0, 1, 0}, {1, 2, 0}, {2, 1, 0}, {2, 3, 0}, {3, 0, 1}};
    const uint32_t of[] = {0, 1, 3};
    sample s = {.nodes = 4, .edges = sizeof edges / sizeof *edges};
    memcpy(s.edge, edges, sizeof edges);
    reach r;
    open_sample(&r, &s);
    cr_assert(reach_walk(&r, of, 3));
    cr_expect(reach_knows(&r, 0) && !reach_knows(&r, 1) && !reach_knows(&r, 2) && !reach_knows(&r, 3));
    cr_expect(bit(reach_now(&r, 0), 1), "the circle itself is reached");
    cr_expect_not(bit(reach_now(&r, 0), 2), "but nothing behind it");
    cr_expect_not(bit(reach_within(&r, 3), 0));
    reach_free(&r);
}
