/* apps/common/model/gpt_checkpoint.h: the model that a checkpoint is of.
 *
 *     weir_checkpoint *c = weir_checkpoint_open(path);
 *     if (!gpt_sizes(c, &config, why, sizeof why)) ...          // a sentence
 *     writer *w = writer_new(&config, ...);
 *     if (!gpt_load(c, w->session, w->plan, why, sizeof why)) ...
 *
 * Layers, width and window follow from the shapes of the parameters (apps/common/model/gpt.h has their names). The number of
 * heads does not: weir-gpt notes it with the position of its source "tokens". A file that does not say has heads of 64,
 * as all of GPT-2's sizes do (Radford et al. 2019), if the width allows.
 */
#ifndef APPS_COMMON_MODEL_GPT_CHECKPOINT_H
#define APPS_COMMON_MODEL_GPT_CHECKPOINT_H

#include "apps/common/model/gpt.h"

#include <weir/checkpoint.h>

/* Sets layers, dim, seq, heads and vocab; config->heads may be set already, for a checkpoint that does not say, and config->vocab, to
 * the tokens that there are: a model may have more. False, with a
 * sentence in `why` that names the checkpoint, when it is of no model that gpt.h has. */
bool gpt_sizes(const weir_checkpoint *from, gpt_config *config, char *why, size_t why_bytes);

/* Writes every parameter of a session at rest with what the checkpoint has under its name. False, with a sentence in
 * `why`, when it is not there in its shape or cannot be read. */
bool gpt_load(weir_checkpoint *from, weir_session *to, const weir_plan *to_plan, char *why, size_t why_bytes);

#endif
