/* graph/plan/lives/reach.c: see the header. Nodes are numbered anew by their places, so that rows lie in the order in which
 * they are computed, and most edges lead to what has just been. */
#include "graph/plan/lives/reach.h"

#include <stdlib.h>
#include <string.h>

bool reach_open(reach *r, uint32_t nodes, size_t edges)
{
    *r = (reach){.nodes = nodes};
    r->edges = malloc((edges + 1) * sizeof *r->edges);
    r->place = malloc(((size_t)nodes + 1) * sizeof *r->place);
    r->first = calloc((size_t)nodes + 1, sizeof *r->first);
    r->first_with = calloc((size_t)nodes + 1, sizeof *r->first_with);
    return r->edges && r->place && r->first && r->first_with;
}

void reach_free(reach *r)
{
    free(r->edges);
    free(r->place);
    free(r->first);
    free(r->first_with);
    free(r->to);
    free(r->to_with);
    free(r->now);
    free(r->within);
    *r = (reach){.nodes = 0};
}

void reach_add(reach *r, uint32_t from, uint32_t to, uint32_t tokens)
{
    if (tokens <= 1) /* with more it proves nothing */
        r->edges[r->edge_count++] = (reach_edge){from, to, tokens};
}

/* Lists the ends of edges of one kind, those of a node beside each other. `first` is zeroed. */
static uint32_t *list_ends(const reach *r, uint32_t tokens, uint32_t *first)
{
    uint32_t *to = malloc(((size_t)r->edge_count + 1) * sizeof *to);
    if (!to)
        return NULL;
    for (uint32_t e = 0; e < r->edge_count; e++)
        first[r->edges[e].from] += r->edges[e].tokens == tokens;
    for (uint32_t n = 0, sum = 0; n <= r->nodes; n++)
        first[n] = sum += n < r->nodes ? first[n] : 0; /* where the node's end: each goes in front of those there are */
    for (uint32_t e = r->edge_count; e-- > 0;)
        if (r->edges[e].tokens == tokens)
            to[--first[r->edges[e].from]] = r->edges[e].to;
    return to;
}

/* Kahn's algorithm. Nodes on or behind a circle come last, in any order. */
static bool find_places(reach *r, uint32_t *sequence)
{
    uint32_t *waits = calloc((size_t)r->nodes + 1, sizeof *waits), count = 0;
    if (!waits)
        return false;
    for (uint32_t e = 0; e < r->first[r->nodes]; e++)
        waits[r->to[e]]++;
    for (uint32_t n = 0; n < r->nodes; n++)
        if (!waits[n])
            sequence[count++] = n;
    for (uint32_t at = 0; at < count; at++)
        for (uint32_t e = r->first[sequence[at]]; e < r->first[sequence[at] + 1]; e++)
            if (!--waits[r->to[e]])
                sequence[count++] = r->to[e];
    r->sequenced = count;
    for (uint32_t n = 0; n < r->nodes; n++)
        if (waits[n])
            sequence[count++] = n;
    for (uint32_t at = 0; at < count; at++)
        r->place[sequence[at]] = at;
    free(waits);
    return true;
}

/* The edges by places; of those to one end that a node has the first alone, and none with a token where there is one
 * without. `seen` is by place: 1 + the last place that has an edge to it. */
static uint32_t copy_edges(const reach *r, uint32_t at, const uint32_t *first, uint32_t n, const uint32_t *from,
                           uint32_t *seen, uint32_t *to, uint32_t count)
{
    for (uint32_t e = first[n]; e < first[n + 1]; e++) {
        uint32_t end = r->place[from[e]];
        if (seen[end] == at + 1)
            continue;
        seen[end] = at + 1;
        to[count++] = end;
    }
    return count;
}

/* Lists of edges by node become lists by place. */
static bool sort_edges(reach *r, const uint32_t *sequence)
{
    size_t nodes = (size_t)r->nodes + 1;
    uint32_t *to = malloc(((size_t)r->first[r->nodes] + 1) * sizeof *to);
    uint32_t *to_with = malloc(((size_t)r->first_with[r->nodes] + 1) * sizeof *to_with);
    uint32_t *first = calloc(nodes, sizeof *first), *first_with = calloc(nodes, sizeof *first_with);
    uint32_t *seen = calloc(nodes, sizeof *seen);
    bool ok = to && to_with && first && first_with && seen;
    for (uint32_t at = 0; ok && at < r->nodes; at++) {
        first[at + 1] = copy_edges(r, at, r->first, sequence[at], r->to, seen, to, first[at]);
        first_with[at + 1] = copy_edges(r, at, r->first_with, sequence[at], r->to_with, seen, to_with, first_with[at]);
    }
    uint32_t *old[] = {r->first, r->first_with, r->to, r->to_with, seen};
    for (size_t i = 0; i < sizeof old / sizeof *old; i++)
        free(old[i]);
    r->first = first;
    r->first_with = first_with;
    r->to = to;
    r->to_with = to_with;
    return ok;
}

bool reach_close(reach *r)
{
    uint32_t *sequence = malloc(((size_t)r->nodes + 1) * sizeof *sequence);
    r->to = list_ends(r, 0, r->first);
    r->to_with = list_ends(r, 1, r->first_with);
    bool ok = sequence && r->to && r->to_with && find_places(r, sequence) && sort_edges(r, sequence);
    free(r->edges);
    r->edges = NULL;
    free(sequence);
    return ok;
}

/* A row is computed aside, in registers, and written once: walks wait for memory. */
typedef uint64_t row_words __attribute__((vector_size(REACH_WORDS * sizeof(uint64_t))));
typedef union reach_row {
    row_words all;
    uint64_t word[REACH_WORDS];
} reach_row;

static inline void add_row(reach_row *row, const uint64_t *more)
{
    row_words all;
    memcpy(&all, more, sizeof all);
    row->all |= all;
}

static inline uint64_t *row_of(uint64_t *rows, uint32_t place)
{
    return rows + (size_t)place * REACH_WORDS;
}

static inline void add_rows(reach_row *row, uint64_t *rows, const uint32_t *to, uint32_t count)
{
    for (uint32_t e = 0; e < count; e++)
        add_row(row, row_of(rows, to[e]));
}

/* The columns by place: those of one place are a list. */
typedef struct reach_columns {
    uint32_t place, column;
} reach_columns;

static int column_order(const void *a, const void *b)
{
    const reach_columns *x = a, *y = b;
    return (x->place > y->place) - (x->place < y->place);
}

/* Enters the last of `count` columns that are of this place, and returns how many are left. */
static inline uint32_t enter_own(reach_row *row, uint32_t at, const reach_columns *own, uint32_t count)
{
    for (; count && own[count - 1].place == at; count--)
        row->word[own[count - 1].column / 64] |= UINT64_C(1) << own[count - 1].column % 64;
    return count;
}

/* Rows of places behind the order stay as they are: their own columns, for whoever leads there. */
bool reach_walk_now(reach *r, const uint32_t *of, uint32_t count)
{
    reach_columns own[REACH_COLUMNS];
    if (!r->now)
        r->now = malloc(((size_t)r->nodes + 1) * REACH_WORDS * sizeof *r->now);
    if (!r->now)
        return false;
    for (uint32_t c = 0; c < count; c++)
        own[c] = (reach_columns){r->place[of[c]], c};
    qsort(own, count, sizeof *own, column_order);
    for (uint32_t at = r->nodes; at-- > 0;) {
        reach_row row = {.word = {0}};
        count = enter_own(&row, at, own, count);
        if (at < r->sequenced)
            add_rows(&row, r->now, r->to + r->first[at], r->first[at + 1] - r->first[at]);
        memcpy(row_of(r->now, at), &row, sizeof row);
    }
    return true;
}

/* With a token edges lead anywhere, so all rows of `now` come first. */
bool reach_walk(reach *r, const uint32_t *of, uint32_t count)
{
    if (!r->within)
        r->within = calloc((size_t)r->nodes + 1, REACH_WORDS * sizeof *r->within);
    if (!r->within || !reach_walk_now(r, of, count))
        return false;
    for (uint32_t at = r->sequenced; at-- > 0;) {
        reach_row row;
        memcpy(&row, row_of(r->now, at), sizeof row);
        add_rows(&row, r->within, r->to + r->first[at], r->first[at + 1] - r->first[at]);
        add_rows(&row, r->now, r->to_with + r->first_with[at], r->first_with[at + 1] - r->first_with[at]);
        memcpy(row_of(r->within, at), &row, sizeof row);
    }
    return true;
}
