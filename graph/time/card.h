/* graph/time/card.h: how long accelerators of a kind take for what is no kernel, as it was measured.
 *
 *     host     [ launch ][ launch ][ mark ]                     [ goes on ]
 *     queue              [ kernel ][ kernel ]...................            `done` after the last kernel
 *
 *     launch      the host's time to enqueue a kernel
 *     mark        and a mark, behind the kernels of a firing
 *     done        from the end of the last kernel before a mark to the host, which looks for it
 *     l2          bytes of the accelerator's cache; calls of its kernels were measured in it (warm, near) and outside (far)
 *     copy        to the accelerator (in) and back (out): of one alone (once), and of each of many in a row (stream)
 *     collective  by kind and number of members: from their beginning, which is the same for all, to their end, by the bytes that a
 *                 member gives or takes, whichever is more, and of that member which has most
 */
#ifndef GRAPH_TIME_CARD_H
#define GRAPH_TIME_CARD_H

#include "graph/plan/form/plan.h"
#include "graph/time/link.h"

enum { TIME_COLLECTIVES = 32 };
typedef enum time_way { TIME_IN, TIME_OUT, TIME_WAYS } time_way;

typedef struct time_copy {
    time_curve once, stream;
} time_copy;

typedef struct time_collective {
    plan_collective_kind kind;
    uint64_t members;
    time_curve time;
} time_collective;

typedef struct time_card {
    uint64_t launch, mark, done, l2; /* ps, and bytes; a mark of 0: the kind was not measured */
    time_copy copy[TIME_WAYS];
    time_collective collectives[TIME_COLLECTIVES];
    uint32_t collectives_count;
} time_card;

extern const char *const time_way_names[TIME_WAYS];
const char *time_collective_name(plan_collective_kind kind);

/* The curve of the kind and so many members; without one, of the next larger number, else of the largest. NULL: there is none of
 * the kind. */
const time_curve *time_card_collective(const time_card *card, plan_collective_kind kind, uint64_t members);

/* Adds a curve, or puts it in the place of the one that is there. False: there is no room. */
bool time_card_add(time_card *card, const time_collective *collective);

/* Bytes by which a collective of a plan is found on its curve; and those that a copy's kernel moves. */
uint64_t time_collective_bytes(const weir_plan *plan, uint32_t collective);
uint64_t time_copy_bytes(const weir_plan *plan, uint32_t kernel);

/* Whether the rates have all that the accelerators of a program do; `call` begins the sentence. E_ARGUMENT: they lack a card, a copy or
 * a collective. */
weir_status time_cards_check(const weir_plan *plan, uint32_t program, const struct weir_rates *rates, const char *call);

#endif
