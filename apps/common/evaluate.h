/* apps/common/evaluate.h: the loss of a GPT on text that training never sees.
 *
 *     evaluation e = {.config = &config};               // whose held_out is set
 *     t.judge = (trainer_judge){.name = "validation_loss", .ask = evaluate, .ctx = &e};
 *     ... trainer_train(&t, ...) ...
 *     evaluation_end(&e);
 *
 * One thread, that of the session at rest whose parameters are evaluated.
 */
#ifndef APPS_COMMON_EVALUATE_H
#define APPS_COMMON_EVALUATE_H

#include "apps/common/gpt.h"

typedef struct evaluation {
    const gpt_config *config; /* borrowed */
    weir_plan *plan;          /* owned, as the session: made when the first loss is asked for */
    weir_session *session;
} evaluation;

/* The mean loss in nats per byte, with the parameters of `trained`, over the gpt_eval_steps() batches that are spread
 * over the held-out text: always the same ones, so losses can be compared. `ctx` is an evaluation. In a cluster all
 * ranks call this, as reading parameters takes all of them, and each gets the loss. */
weir_status evaluate(void *ctx, weir_session *trained, double *loss);

/* Frees what the evaluation owns. */
void evaluation_end(evaluation *e);

#endif
