/* graph/plan/lives/lives.h: which parts of an arena are never needed at the same time.
 *
 * A *life* is a stay of a value in memory. In a slot it begins with the kernel of the producer that first writes there,
 * and ends with the last kernel of each reader; of a temporary, or of scratch memory, it is a run of kernels within
 * one firing. Two parts may have the same bytes when, in every order of firings that the credits allow, no life of one
 * meets a life of the other. Credits decide that alone, so it can be read off the plan:
 *
 *     READY  producer -> reader   `initial` tokens            firing i of one is over before firing i + tokens of
 *     FREE   reader -> producer   `slots - initial` tokens    the other begins
 *            actor -> itself      1 token
 *
 * Let D(x, y) be the fewest tokens on a path from x to y: firing i of x is over before firing i + D of y begins.
 * Within one firing kernels follow each other, which is a path without a token. Number the lives of A, and those of B, from 0.
 * Life i of A ends before life j of B begins if j - i >= D(A's end, B's start): the largest D(a, b) over A's readers a, where b
 * starts B's life. So no two of them meet if, for every j - i, one comes first:
 *
 *     D(A's end, B's start) + D(B's end, A's start) <= 1
 *
 * Such parts take turns on circuits that have one token. So only D = 0, D = 1 and D > 1 differ. One walk over the graph finds
 * this for 512 columns of bits: one column for each actor that can begin a life in a space. Spaces are entered one after the
 * other, and small ones share a walk.
 *
 * Rates are 1 or M. Rather than unroll micro-batches there are two graphs. Each leaves out relations that it cannot express, so
 * it misses proofs but never gives a wrong one: *steps* has for each actor its first and its last firing of a step, *firings*
 * has the actors that fire M times, and the registers of which each firing fills or reads one slot. Either proof will do.
 *
 * A register that starts full is always needed. Actors of different programs never run at the same time, and between steps of
 * a program nothing is left in its registers but what starts full; so those of different programs are apart, if no actor on
 * an outside queue, which may fire at any time, has to do with them.
 *
 * The plan must have passed the rules of validate.c up to the kernels' operands. A graph with a circle without tokens
 * (not live) proves nothing about what is behind the circle. One owner thread; what was found is kept.
 */
#ifndef GRAPH_PLAN_LIVES_LIVES_H
#define GRAPH_PLAN_LIVES_LIVES_H

#include "graph/base/pool.h"
#include "graph/plan/form/plan.h"

/* The contents of a part of an arena: all slots of a register, or what kernels `from` to `to` of an actor (counted from its
 * first) have in the workspace. */
typedef struct life {
    plan_regst_id regst; /* PLAN_NONE: in the workspace */
    plan_actor_id actor; /* then: whose */
    uint32_t from, to;
} life;

typedef struct lives lives;

/* The graphs of a plan. NULL and weir_error(): no memory (E_MEMORY). Owned by the caller; borrows the plan, of which
 * offsets may change meanwhile. */
lives *lives_new(const weir_plan *plan);
void lives_free(lives *l);

/* Whether `l` also holds for this plan: it may differ from the plan of `l` in offsets, sizes and names only. */
bool lives_are_of(const lives *l, const weir_plan *plan);

/* From here on lives_apart() is asked about parts of this space; false: no memory. The memory for all spaces together is
 * bounded, in proportion to the edges of the plan: of a space for which too little is left nothing is known, and no two parts
 * of it are said to be apart. */
bool lives_enter(lives *l, plan_space_id space);

/* Whether two parts of the space may have the same bytes. Not asked about two parts of one queue's workspace. */
bool lives_apart(const lives *l, const life *a, const life *b);

/* The facts about a part that answer that, for who asks about all pairs: looked up once a part, until the next space is
 * entered. */
typedef struct life_known {
    life life;
    const uint64_t *rows; /* borrowed: of what ends it */
    uint32_t column;      /* of what begins it */
    uint32_t program;
    bool always;          /* it is always needed */
    bool outside;         /* an actor on an outside queue has to do with it */
    bool by_firings;      /* each firing fills or reads one slot */
} life_known;

life_known lives_look(const lives *l, life of);
bool lives_apart_known(const lives *l, const life_known *a, const life_known *b);

/* Asks about all pairs of so many parts at once, which is much cheaper. `meet` is a matrix of bits, with (count + 63) / 64 words for
 * each part: bit j of row i says that part i is not apart from part j. No part meets itself. */
void lives_pairs(const lives *l, const life_known *part, int count, uint64_t *meet);

/* Kernels, as the plan numbers them: the one that first writes what is in the part, and one that reads it after the others
 * if actors fire in their order. That is a guess: only lives_apart() knows. */
void lives_kernels(const lives *l, const life *of, uint32_t *first, uint32_t *last);

typedef struct lives_bound {
    uint32_t actor, column;
    uint32_t position;    /* of the first kernel that begins one, or the last that ends one */
    bool once[2];         /* each belongs to one firing: in steps, in firings */
} lives_bound;

/* Several parts that lie together, as one: its lives are all of theirs. Two unions are called apart only if every part of one
 * is apart from every part of the other, and one proof, by steps or by firings, covers all these pairs. */
typedef struct lives_union {
    const uint64_t *rows; /* borrowed, from the part or the pool: columns that the ends of all of them reach */
    lives_bound *start;   /* the pool's: one an actor that begins a life, in their order */
    lives_bound *end;     /* the pool's: one an actor that ends a life, in their order */
    int starts, ends;     /* none: there are no parts, and these are apart from everything */
    uint32_t program;
    bool always, outside, by_firings;
} lives_union;

/* Makes the union of what was looked up in the space that is entered. False: no memory, and the pool knows. */
bool lives_unite(const lives *l, const life_known *part, int count, pool *memory, lives_union *all);
bool lives_unions_apart(const lives *l, const lives_union *a, const lives_union *b);

/* The ports that count slots of a register; they belong to the lives. */
const uint32_t *lives_readers(const lives *l, plan_regst_id regst, uint32_t *count);

/* Whether life j of `part` begins only after the last life of `whole` that was made of life j - 1 of `part` is over. Each value
 * of `whole` is made by one firing, which reads one value of `part` (graph/plan/lives/window.h). */
bool lives_in_turn(const lives *l, const life *whole, const life *part);

#endif
