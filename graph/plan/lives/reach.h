/* graph/plan/lives/reach.h: who is reached from where in a graph whose edges have no token or one.
 *
 * From node to node, two questions: is there a path without a token, is there one with one token at most? Answers for
 * all nodes and so many columns, each of which is a node that is asked about, take one walk over the graph: a node has
 * a row of bits, a bit for each column, and what it reaches is what those behind its edges reach. A row is as wide as a
 * line of the cache, so that a walk which waits for memory finds out about 512 columns rather than 64.
 *
 *     nodes, in an order in which edges without tokens lead on:   rows are computed from the last to the first
 *     edges of a node beside each other, each node once:          several ports of two actors are one edge
 *
 * Actors on or behind a cycle without tokens have no place in that order, and reach nothing.
 * One owner thread; keeps the rows of the last walk.
 */
#ifndef GRAPH_PLAN_LIVES_REACH_H
#define GRAPH_PLAN_LIVES_REACH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { REACH_WORDS = 8, REACH_COLUMNS = 64 * REACH_WORDS }; /* of a row */

typedef struct reach_edge {
    uint32_t from, to, tokens;
} reach_edge;

typedef struct reach {
    uint32_t nodes, edge_count; /* edges as they were given, none left out */
    reach_edge *edges;          /* owned; until reach_close() */
    uint32_t sequenced;         /* nodes that have a place in the order, which is less than this */
    uint32_t *place;            /* owned: by node: its row */
    uint32_t *first, *first_with; /* owned: by place: its first edge without a token, in to, and with one, in to_with */
    uint32_t *to, *to_with;     /* owned: places */
    uint64_t *now, *within;     /* owned: rows: reached without a token, and the place itself; with one at most */
} reach;

/* Room for so many nodes and edges. All of these are false where there is no memory; then, too, it is to be freed. */
bool reach_open(reach *r, uint32_t nodes, size_t edges);
void reach_add(reach *r, uint32_t from, uint32_t to, uint32_t tokens);
bool reach_close(reach *r);
void reach_free(reach *r);

/* Computes the rows for columns [0, count): column c is node of[c]; a node may have several. */
bool reach_walk(reach *r, const uint32_t *of, uint32_t count);
/* The same of paths without a token alone. */
bool reach_walk_now(reach *r, const uint32_t *of, uint32_t count);

/* Whether paths from the node are known. */
static inline bool reach_knows(const reach *r, uint32_t node)
{
    return r->place[node] < r->sequenced;
}

/* The node's rows. They say nothing of its own columns: there is no path without a token from a node to itself. */
static inline const uint64_t *reach_now(const reach *r, uint32_t node)
{
    return r->now + (size_t)r->place[node] * REACH_WORDS;
}

static inline const uint64_t *reach_within(const reach *r, uint32_t node)
{
    return r->within + (size_t)r->place[node] * REACH_WORDS;
}

#endif
