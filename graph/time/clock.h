/* graph/time/clock.h: some steps of a plan's program, played against a clock.
 *
 * Each worker fires one actor at a time: of those that may, the one of the lowest priority, as a lane does. A firing takes as
 * long as `duration` says. At its end its credits are settled; what it tells an actor of another worker counts `message` later.
 * Actors outside of all workers (the program's own) take no time. All is in whole picoseconds, so every machine gets the same.
 *
 * Firings of workers of one host share its cores and its memory (graph/time/share.h): they take longer than `duration` while others
 * are under way there. A worker that is on no host has a core of its own.
 *
 * Queues of accelerators are workers, too, that fire in an order of their own (graph/time/order.h). Members of a collective begin
 * together, when the workers of all of them are idle and have come to it.
 *
 *     worker 0   [ embed ][ h0 ]            [ h0.grad ]
 *     worker 1            ..[ h1 ][ h1.grad ]..            ..: a message
 */
#ifndef GRAPH_TIME_CLOCK_H
#define GRAPH_TIME_CLOCK_H

#include "graph/plan/form/plan.h"
#include "graph/time/share.h"

enum { CLOCK_STEPS = 96, CLOCK_REPEAT = 12 }; /* the most that are played, and that a pattern has */
#define CLOCK_LATER UINT64_MAX
#define CLOCK_MAX (UINT64_C(1) << 62) /* ps: 53 days; a play ends there */

typedef struct clock_spec {
    const weir_plan *plan;
    uint32_t program;
    const uint32_t *worker;  /* by queue; of those outside it means nothing */
    uint32_t workers;
    const share_host *host;  /* hosts; NULL: none */
    uint32_t hosts;
    const uint32_t *host_of; /* by worker; PLAN_NONE: on none. NULL with no hosts */
    void *ctx;
    share_work (*duration)(void *ctx, uint32_t actor, uint32_t firing); /* asked when a firing begins */
    uint64_t (*message)(void *ctx, uint32_t port, bool freed, uint64_t now); /* between two workers, sent now; or CLOCK_LATER */
    /* Messages whose time depends on later ones; NULL: none do. When some of them end, if none is sent before (UINT64_MAX: never); which, and
     * how much later they are there; and how many there are, with the time that they still take. */
    uint64_t (*next)(void *ctx, uint64_t now);
    bool (*take)(void *ctx, uint64_t now, uint32_t *port, bool *freed, uint64_t *takes);
    void (*count)(void *ctx, uint64_t now, uint64_t *messages, uint64_t *rest);
    const uint32_t *slots;   /* by register; NULL: the plan's */
    const uint32_t *launches; /* by actor: one that it launches, whose worker fires in the order of launches; PLAN_NONE. NULL: none does */
    void (*fired)(void *ctx, uint32_t actor, uint32_t firing, uint64_t begin, uint64_t end); /* NULL: nobody listens */
} clock_spec;

typedef struct clock_result {
    uint32_t steps;                 /* played to their end */
    uint64_t end[CLOCK_STEPS];      /* of each step */
    uint64_t period;                /* from the end of a step to that of the next: a mean of those that repeat, or of the last half */
    uint32_t repeat;                /* so many steps repeat, mostly 1; 0: none do */
    uint64_t firings;
    uint64_t *busy;                 /* by worker, over all that was played; owned by the caller: workers of them */
    uint64_t span;                  /* how long that was */
} clock_result;

/* Plays until steps repeat, at most CLOCK_STEPS. E_MEMORY; E_LIVE: a step cannot end; E_ARGUMENT: one takes more than CLOCK_MAX. */
weir_status clock_play(const clock_spec *spec, clock_result *result);

#endif
