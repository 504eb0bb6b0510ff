/* apps/weir-gpt/finetune_data.h: what a language model is trained further on, and what it is judged by, as the sources of lm_train_graph().
 *
 * The last tenth is held out, unless --validate names a file of the same kind, or there are fewer than ten samples. A checkpoint notes the
 * seed of the order and a hash of the samples, and a run that goes on with others is told so. One thread reads; then any may.
 */
#ifndef APPS_WEIR_GPT_FINETUNE_DATA_H
#define APPS_WEIR_GPT_FINETUNE_DATA_H

#include "apps/common/model/lm.h"
#include "apps/common/model/samples.h"
#include "apps/weir-gpt/finetune.h"

typedef struct finetune_data {
    const lm_training *training; /* borrowed: the sizes of a step */
    samples all, validate;       /* owned, as what follows */
    samples_range train, held_out;
    corpus tokens;               /* in place of the samples, with --tokens */
    gpt_config sizes;            /* of these */
    uint64_t seed, hash;
} finetune_data;

/* Reads the files; `data` is to be closed also after a failure. Returns -1, or the exit status of what was reported. */
int finetune_data_open(finetune_data *data, const finetune_opts *o, const corpus_opts *files, const samples_reader *reader, const lm_config *model,
                       const lm_training *training, const options_spec *spec);
int finetune_data_seed(finetune_data *data, const corpus_opts *files, uint64_t seed);
void finetune_data_close(finetune_data *data);

/* Sets the sources of a training. */
void finetune_data_sources(finetune_data *data, lm_training *training);

/* For trainer_judge; `ctx` is the finetune_data. The mean loss in nats per label that counts. */
weir_status finetune_data_judge(void *ctx, weir_session *session, double *loss);
bool finetune_data_judges(const finetune_data *data);

/* "1200 conversations, 120 held out", to stderr. */
void finetune_data_tell(const finetune_data *data, bool chat);

#endif
