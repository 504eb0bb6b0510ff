/* graph/plan/lives/lives_inside.h: what lives.c, lives_pairs.c and lives_shelf.c share: what is kept of a plan and of its spaces.
 *
 * Pairs are asked about in great numbers, so what a walk (reach.h) has found out is kept in the form of the question: a
 * *shelf* for each space, with rows of bits for each register that lies there and each actor that runs there, a bit for
 * each actor that something in the space may begin with: a *column*. A register's row is what all its readers' rows
 * have in common, so a pair takes a few bits, however many readers there are. The effect of an actor's end on its own start
 * depends on the kernels that are asked about, so rows leave it out, and say only that the actor is one of the ends.
 */
#ifndef GRAPH_PLAN_LIVES_LIVES_INSIDE_H
#define GRAPH_PLAN_LIVES_LIVES_INSIDE_H

#include "graph/plan/lives/lives.h"
#include "graph/plan/lives/reach.h"
#include "graph/plan/lives/touch.h"

enum { FAR = 2 }; /* tokens: two or more, or no path */

/* The rows of a life's ends. */
enum { ROW_SELF, ROW_NOW, ROW_WITHIN, ROWS_OF_STEPS, ROWS_OF_BOTH = 5 };

typedef struct shelf {
    uint64_t *rows;         /* owned; NULL: the space has not been looked at */
    uint32_t words;         /* of a row */
    bool entered, unknown;  /* unknown: there was too little work left for it */
} shelf;

struct lives {
    const weir_plan *plan;
    uint64_t work;          /* that is left for spaces */
    uint32_t rows;          /* of an end: ROWS_OF_STEPS where no actor fires several times */
    uint64_t edges;         /* of both graphs */
    shelf *shelves;         /* owned: by space */
    const shelf *here;      /* of the space that was entered */
    uint64_t kept;          /* bytes on all shelves */
    uint32_t *columns;      /* owned: actors, those of a space beside each other */
    uint32_t *memory;       /* owned: all arrays below */
    uint32_t *column_first; /* by space, in columns; one more than there are spaces */
    uint32_t *regst_first;  /* by space, in regsts; one more */
    uint32_t *regsts;       /* those of a space beside each other */
    uint32_t *regst_end;    /* by register: its place on its space's shelf; an actor's is its column */
    uint32_t *actor_column, *regst_column; /* in their spaces: the actor's; that of the register's producer */
    uint32_t *reader_first; /* by register, in readers; one more than there are registers */
    uint32_t *readers;      /* ports */
    touch touch;            /* owned: its outside */
    uint8_t *by_firings;    /* by register: each firing that makes or reads it fills or reads one slot */
    uint32_t *first_node;   /* by actor: in steps */
    uint32_t *self;         /* by actor: its column in the space that is looked at, or PLAN_NONE */
    reach steps, firings;   /* a node for an actor's first and last firing of a step; for an actor */
};

static inline uint32_t first_firing(const lives *l, uint32_t actor)
{
    return l->first_node[actor];
}

static inline uint32_t last_firing(const lives *l, uint32_t actor)
{
    return l->first_node[actor] + (l->plan->actors[actor].fires > 1);
}

static inline uint32_t columns_of(const lives *l, uint32_t space)
{
    return l->column_first[space + 1] - l->column_first[space];
}

static inline bool has_bit(const uint64_t *row, uint32_t bit)
{
    return row[bit / 64] >> bit % 64 & 1;
}

/* lives.c: sets the error, and is false. */
bool lives_no_memory(void);

/* lives.c: whether paths of one of the graphs prove that two parts of one program are apart. Neither is always needed. */
bool lives_apart_in(const lives *l, const reach *r, const life_known *a, const life_known *b);

/* lives_shelf.c: forgets what walks have found out. */
void lives_clear_shelves(lives *l);

#endif
