/* graph/verify/proof.h: what every proof by values has: options, an amount of memory that is known before it begins, rounds, and
 * somebody who is told how much is done.
 *
 * A proof belongs to one thread.
 */
#ifndef GRAPH_VERIFY_PROOF_H
#define GRAPH_VERIFY_PROOF_H

#include "graph/plan/form/plan.h"

#include <string.h>

enum { PROOF_STEPS = 2 }; /* steps of a program, beside those that the longest delay of a state takes */

typedef struct proof {
    const char *call;      /* the function that the program called, for errors */
    weir_verify_opts opts; /* .rounds is at least 1 */
    uint64_t fired;        /* firings of all rounds so far */
    uint64_t firings;      /* in all rounds; proof_expect() adds to it */
    int64_t told_ns;       /* when progress was told last */
} proof;

/* E_ARGUMENT: the options are those of no version. */
weir_status proof_open(proof *p, const weir_verify_opts *given, const char *call);

/* Sets the error "model.c:12: weir_plan_verify: ..." and returns `status`. */
weir_status proof_refuse(const proof *p, weir_status status, const char *format, ...) __attribute__((format(printf, 3, 4)));

/* The most memory that a proof may take: `given`, or, if that is NULL, half of this machine's. E_ARGUMENT: it is no amount. */
weir_status proof_memory(const char *call, weir_src src, const char *given, uint64_t *most);

/* E_MEMORY: a proof of this name takes more bytes than it may. `remedy`: what to do, with a comma behind it, or "". E_ARGUMENT: `given`
 * is no amount. */
weir_status proof_fits(const char *call, weir_src src, const char *name, const char *given, uint64_t bytes, const char *remedy);

/* The same with the options of a proof of plans. */
weir_status proof_may_take(const proof *p, const char *name, uint64_t bytes);

/* Whether a program of the plan is run: .program names it, or nothing. */
bool proof_runs(const proof *p, const weir_plan *plan, uint32_t program);

/* E_ARGUMENT: the plan has no program that .program names. */
weir_status proof_check_program(const proof *p, const weir_plan *plan);

/* Each round will fire the plan's actors in so many steps of main, and in PROOF_STEPS of each other program. */
void proof_expect(proof *p, const weir_plan *plan, int64_t steps);

/* An actor has fired. Progress is told once a second. */
void proof_fired(proof *p);

/* The seed of all values of a round. */
uint64_t proof_seed(const proof *p, int round);

/* With .precision f16 the compiler keeps the scale of the loss, of which neither the graph nor a plan in f32 knows. */
static inline bool proof_is_compilers_own(const char *kept)
{
    return strstr(kept, PLAN_LOSS_SCALE) != NULL;
}

#endif
