/* graph/plan/lives/lives_shelf.c: what is known of a space, from walks.
 *
 * A walk is for the spaces that follow, too, as far as there are columns for them: they are asked about next, and most
 * have few. The facts found stay, so that who asks again, of the same plan, finds them.
 */
#include "graph/plan/lives/lives_inside.h"

#include <stdlib.h>
#include <string.h>

#define REACH_BYTES_MAX (UINT64_C(1) << 29)
#define SHELF_BYTES_MAX (UINT64_C(1) << 31)

enum { WALK_COLUMNS = 4 * REACH_COLUMNS }; /* spaces that follow are looked at for so many columns together */

void lives_clear_shelves(lives *l)
{
    for (uint32_t s = 0; l->shelves && s < l->plan->spaces_count; s++) {
        free(l->shelves[s].rows);
        l->shelves[s].rows = NULL;
    }
    l->kept = 0;
}

/* Some of the columns that a walk was made for, which are a space's. */
typedef struct section {
    uint32_t in_walk, in_space, count;
} section;

static void set_bit(uint64_t *row, uint32_t bit)
{
    row[bit / 64] |= UINT64_C(1) << bit % 64;
}

/* Adds a section's bits of what a walk has found to a row of the space. */
static void put_bits(const section *s, const uint64_t *found, uint64_t *row)
{
    for (uint32_t i = 0; i < s->count;) {
        uint32_t from = s->in_walk + i, to = s->in_space + i, left = s->count - i;
        uint32_t bits = 64 - (from % 64 > to % 64 ? from % 64 : to % 64);
        bits = bits < left ? bits : left;
        uint64_t mask = bits < 64 ? (UINT64_C(1) << bits) - 1 : UINT64_MAX;
        row[to / 64] |= (found[from / 64] >> from % 64 & mask) << to % 64;
        i += bits;
    }
}

/* `both` becomes what it has in common with `row`, but for one bit, if it is of the section, which stays. */
static void meet(const section *s, uint64_t both[REACH_WORDS], const uint64_t *row, uint32_t column)
{
    bool own = column != PLAN_NONE && column >= s->in_space && column - s->in_space < s->count;
    uint32_t bit = own ? s->in_walk + column - s->in_space : 0;
    uint64_t stays = own ? both[bit / 64] & UINT64_C(1) << bit % 64 : 0;
    for (int w = 0; w < REACH_WORDS; w++)
        both[w] &= row[w];
    both[bit / 64] |= stays;
}

/* The actors that end a life: the readers of a register, or an actor. */
typedef struct ends {
    const uint32_t *ports; /* NULL: the actor */
    uint32_t count, actor;
} ends;

static ends ends_of_regst(const lives *l, uint32_t r)
{
    uint32_t first = l->reader_first[r], count = l->reader_first[r + 1] - first;
    return count ? (ends){.ports = l->readers + first, .count = count}
                 : (ends){.count = 1, .actor = l->plan->regsts[r].producer.i};
}

/* The columns that all of them reach. If one of them begins something in the space, too, the row of selves says so, and the
 * others leave it to the question. */
static void shelve(lives *l, const section *s, const ends *e, uint64_t *rows, uint32_t words)
{
    for (uint32_t row = ROW_NOW; row < l->rows; row += 2) {
        const reach *r = row == ROW_NOW ? &l->steps : &l->firings;
        uint64_t now[REACH_WORDS], within[REACH_WORDS];
        memset(now, 0xff, sizeof now);
        memset(within, 0xff, sizeof within);
        for (uint32_t i = 0; i < e->count; i++) {
            uint32_t actor = e->ports ? l->plan->ports[e->ports[i]].actor.i : e->actor, column = l->self[actor];
            uint32_t node = row == ROW_NOW ? last_firing(l, actor) : actor;
            meet(s, now, reach_now(r, node), column);
            meet(s, within, reach_within(r, node), column);
            if (column != PLAN_NONE)
                set_bit(rows + (size_t)ROW_SELF * words, column);
        }
        put_bits(s, now, rows + (size_t)row * words);
        put_bits(s, within, rows + ((size_t)row + 1) * words);
    }
}

/* Puts what a walk has found about some columns of a space on its shelf. */
static void fill_shelf(lives *l, uint32_t space, const section *s)
{
    const shelf *to = &l->shelves[space];
    const uint32_t *actors = l->columns + l->column_first[space];
    size_t end_words = (size_t)l->rows * to->words;
    uint32_t columns = columns_of(l, space);
    for (uint32_t c = 0; c < columns; c++)
        l->self[actors[c]] = c;
    for (uint32_t c = 0; c < columns; c++)
        shelve(l, s, &(ends){.count = 1, .actor = actors[c]}, to->rows + c * end_words, to->words);
    for (uint32_t i = l->regst_first[space]; i < l->regst_first[space + 1]; i++) {
        uint32_t r = l->regsts[i];
        ends e = ends_of_regst(l, r);
        if (l->plan->regsts[r].producer.i != PLAN_NONE)
            shelve(l, s, &e, to->rows + l->regst_end[r] * end_words, to->words);
    }
    for (uint32_t c = 0; c < columns; c++)
        l->self[actors[c]] = PLAN_NONE;
}

/* Walks for columns [first, end), which are those of some spaces from `space` on. */
static bool walk(lives *l, uint32_t space, uint32_t first, uint32_t end)
{
    uint32_t nodes[REACH_COLUMNS];
    for (uint32_t c = first; c < end; c++)
        nodes[c - first] = first_firing(l, l->columns[c]);
    if (!reach_walk(&l->steps, nodes, end - first))
        return false;
    if (l->rows == ROWS_OF_BOTH && !reach_walk(&l->firings, l->columns + first, end - first))
        return false;
    for (; space < l->plan->spaces_count && l->column_first[space] < end; space++) {
        uint32_t from = l->column_first[space], to = l->column_first[space + 1];
        uint32_t low = from > first ? from : first, high = to < end ? to : end;
        if (low < high)
            fill_shelf(l, space, &(section){.in_walk = low - first, .in_space = low - from, .count = high - low});
    }
    return true;
}

static uint64_t work_for(const lives *l, uint32_t space)
{
    uint64_t words = (columns_of(l, space) + 63) / 64;
    return (3 * (uint64_t)l->plan->actors_count + l->edges) * words;
}

static uint64_t shelf_bytes(const lives *l, uint32_t space)
{
    uint64_t words = (columns_of(l, space) + 63) / 64, regsts = l->regst_first[space + 1] - l->regst_first[space];
    return (regsts + columns_of(l, space)) * l->rows * words * sizeof(uint64_t);
}

/* Whether a walk for the spaces before is for this one, too: somebody will ask, and there is room. */
static bool comes_along(const lives *l, uint32_t space, uint32_t columns, uint64_t work)
{
    const weir_plan *plan = l->plan;
    return space < plan->spaces_count && !l->shelves[space].rows && !l->shelves[space].entered &&
           (!plan->part || plan->spaces[space].rank == plan->part - 1) &&
           columns + columns_of(l, space) <= WALK_COLUMNS && work + work_for(l, space) <= l->work &&
           l->kept + shelf_bytes(l, space) <= SHELF_BYTES_MAX;
}

static bool open_shelf(lives *l, uint32_t space)
{
    shelf *s = &l->shelves[space];
    s->words = (columns_of(l, space) + 63) / 64;
    s->rows = calloc(shelf_bytes(l, space) + 1, 1);
    l->kept += shelf_bytes(l, space);
    return s->rows;
}

/* Finds out about the space, and about those behind it that come along. */
static bool look_at(lives *l, uint32_t space)
{
    if (l->kept + shelf_bytes(l, space) > SHELF_BYTES_MAX)
        lives_clear_shelves(l);
    uint32_t end = space, columns = 0;
    uint64_t work = 0;
    bool ok = true;
    do {
        ok = open_shelf(l, end);
        columns += columns_of(l, end);
        work += end > space ? work_for(l, end) : 0;
    } while (ok && comes_along(l, ++end, columns, work));
    uint32_t last = l->column_first[space] + columns;
    for (uint32_t c = l->column_first[space]; ok && c < last; c += REACH_COLUMNS)
        ok = walk(l, space, c, c + REACH_COLUMNS < last ? c + REACH_COLUMNS : last);
    if (!ok)
        lives_clear_shelves(l);
    return ok;
}

bool lives_enter(lives *l, plan_space_id space)
{
    shelf *s = &l->shelves[space.i];
    uint64_t words = (columns_of(l, space.i) + 63) / 64, rows = 2 * (uint64_t)l->plan->actors_count * words;
    l->here = s;
    if (!s->entered) {
        uint64_t work = work_for(l, space.i);
        s->unknown = work > l->work || rows * 2 * sizeof(uint64_t) > REACH_BYTES_MAX ||
                     shelf_bytes(l, space.i) > SHELF_BYTES_MAX;
        l->work -= s->unknown ? 0 : work;
        s->entered = true;
    }
    return s->unknown || s->rows || look_at(l, space.i) || lives_no_memory();
}
