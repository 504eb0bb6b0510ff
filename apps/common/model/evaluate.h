/* apps/common/model/evaluate.h: the loss of a GPT on text that training never sees.
 *
 *     t.judge = (trainer_judge){.name = "validation_loss", .ask = evaluate, .ctx = &config};
 *
 * Keeps no state. One thread, that of the session at rest.
 */
#ifndef APPS_COMMON_MODEL_EVALUATE_H
#define APPS_COMMON_MODEL_EVALUATE_H

#include "apps/common/model/gpt.h"

/* The mean loss in nats per byte over the batches of held-out text (gpt.h), as the parameters of `session` are now.
 * `ctx` is its gpt_config. NAN when the run was stopped. In a cluster all ranks call this, and each gets the loss. */
weir_status evaluate(void *ctx, weir_session *session, double *loss);

#endif
