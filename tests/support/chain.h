/* tests/support/chain.h: a plan by hand whose values are known by heart: a source or push, stages that add 1, device
 * after device, and a sink or pull; for sessions of several ranks, and for those of them that are to end badly.
 *
 *     x (cpu:0) -> stage (cpu:0) -> stage (cpu:1) -> ... -> y (cpu:3)        x is 10 step + i; y is that + STAGES
 */
#ifndef TESTS_SUPPORT_CHAIN_H
#define TESTS_SUPPORT_CHAIN_H

#include <weir/weir.h>

#include "tests/support/ranks.h"

enum { DEVICES = 4, ITEMS = 5, STAGES = 9 };

/* As actors of tests/support/sdf.h. */
#define SOURCE .kernel = "source", .host_kind = 1 + PLAN_SOURCE
#define SINK .kernel = "sink", .host_kind = 1 + PLAN_SINK
#define PUSH .host_kind = 1 + PLAN_PUSH
#define PULL .host_kind = 1 + PLAN_PULL

/* `middle`: the op of the stage on device 1. `hosts`: a source and a sink, not a push and a pull. */
weir_plan *chain_plan(const char *middle, bool hosts, int stages);

/* The same, and so many actors beside each stage that read what it reads. */
weir_plan *chain_plan_beside(const char *middle, bool hosts, int stages, int beside);

/* The work of one rank's source and sink, and how far it is. */
struct seen {
    struct rank *rank;
    int gives, values, wrong;
    int64_t stop_at, pause_from;  /* steps; 0: never */
    double kill_s, stop_s, start; /* after the start; 0: never */
    double *gone;                 /* when that was */
};

/* With a source and a sink that do that. Reports are dropped. */
weir_session *chain_open(struct rank *rank, const weir_plan *plan, struct seen *seen);

#define BOTH_LINKS(link) for (enum ranks_link link = RANKS_SHM; link <= RANKS_WIRE; link++)

#endif
