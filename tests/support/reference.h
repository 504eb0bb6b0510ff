/* tests/support/reference.h: the training run whose losses PyTorch computed in double precision, said in C.
 *
 * tests/reference/gpt_reference.py is the oracle: it draws the same initial values and batches, trains 20 steps and
 * wrote tests/reference/gpt_losses.csv. Here are the same model, text and optimizers, for any layout:
 *
 *     text corpus = reference_text();
 *     gpt_config config = reference_gpt(&corpus, REFERENCE_FULL);
 *     config.layout = (layout){.dp = 2, .pp = 2, .micro = 4};
 *     ... weir_compile(gpt_train_graph(&config), .micro_batches = 4, .seed = REFERENCE_SEED) ...
 *
 * A test that uses this links what the programs share, too (libsupport.a).
 */
#ifndef TESTS_SUPPORT_REFERENCE_H
#define TESTS_SUPPORT_REFERENCE_H

#include "apps/common/model/gpt.h"

#define REFERENCE_STEPS 20
#define REFERENCE_SEED 1

typedef enum reference_kind {
    REFERENCE_PLAIN, /* AdamW alone */
    REFERENCE_FULL   /* clipping, weight decay, warm-up and cosine too */
} reference_kind;

/* 4096 bytes of words drawn at random; text_free() it. */
text reference_text(void);

/* The model, trained as the oracle trained it, on one device. */
gpt_config reference_gpt(const text *corpus, reference_kind kind);

/* Reads the oracle's losses, one per step; false when the file is not there or is not whole. Tests run in the
 * project's root. */
bool reference_losses(reference_kind kind, double loss[REFERENCE_STEPS]);

#endif
