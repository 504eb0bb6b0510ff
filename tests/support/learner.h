/* tests/support/learner.h: a small model that learns, with everything that lives from step to step: parameters, a
 * frozen one, AdamW's state, clipping, a schedule with warm-up, dropout; in any layout. And all that it has learned, by
 * name.
 *
 *     weir_plan *plan = learner_plan(.dp = 2, .zero = true);
 *     weir_session *s = weir_session_open(plan);
 *     ... weir_session_run(s, 3) ...
 *     struct learned now = learned_read(s);
 *     learned_near(&now, &wanted, 0, "after three steps");
 *     learned_free(&now);
 *
 * Its inputs are drawn by sources of (step, micro-batch), its losses go nowhere: what is learned tells of every one.
 */
#ifndef TESTS_SUPPORT_LEARNER_H
#define TESTS_SUPPORT_LEARNER_H

#include <weir/weir.h>

struct learner_opts {
    int dp, tp, pp, micro; /* [1 each]; dp * tp * pp devices; pp at most 2 */
    bool zero;
    bool narrow;           /* another model: one layer has another width */
    bool plain;            /* another model: SGD without state */
    bool sure;             /* nothing is dropped; with dropout another number of micro-batches draws other numbers */
    bool fake;             /* on fakes (mesh_takes_fakes) rather than CPUs; */
    bool cuda;             /* on CUDA devices */
    int64_t fail_at;       /* the step in which the source of the labels fails [never] */
    weir_compile_opts compile;
};
#define learner_plan(...) learner_plan_at((struct learner_opts){__VA_ARGS__})
weir_plan *learner_plan_at(struct learner_opts opts);

/* Layouts that checkpoints are saved in and loaded into: of data, model and pipeline, with ZeRO and micro-batches. */
enum { LEARNER_LAYOUTS = 11 };
extern const struct learner_opts learner_layouts[LEARNER_LAYOUTS];

enum { LEARNED_MAX = 64 };

struct learned {
    int count;
    struct learned_value {
        char name[64];
        int64_t step;  /* that it belongs to, on this rank */
        int64_t count; /* elements */
        float *value;  /* owned */
    } of[LEARNED_MAX]; /* sorted by name */
};

/* All of it, read; every rank calls it. On failure .count is -1, and weir_error() says why. */
struct learned learned_read(weir_session *session);
void learned_free(struct learned *learned);
const struct learned_value *learned_find(const struct learned *learned, const char *name); /* NULL: not there */

/* The first difference in a sentence, or NULL: other names, or values not within tolerance * (1 + |value|); 0: the same
 * bits. Steps are not compared. */
const char *learned_differs(const struct learned *got, const struct learned *want, double tolerance);

#endif
