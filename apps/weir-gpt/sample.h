/* apps/weir-gpt/sample.h: lets a trained GPT write.
 *
 *     struct sample s;
 *     status = sample_open(&s, &config, &opts, stdout);
 *     ... parameters into s.writer->session, as by params_copy() ...
 *     status = sample_write(&s);
 *     sample_close(&s);
 */
#ifndef APPS_WEIR_GPT_SAMPLE_H
#define APPS_WEIR_GPT_SAMPLE_H

#include "apps/common/model/shown.h"
#include "apps/common/model/writer.h"
#include "apps/weir-gpt/sample_opts.h"

#include <stdio.h>

struct sample {
    const sample_opts *opts;  /* borrowed, as `to` */
    FILE *to;
    struct shown shown;       /* what is written to it */
    struct decoder decoder;
    writer *writer;           /* owned, as what follows */
    struct sampler *sampler;
    struct token_ids prompt;
    float *logits;            /* [vocab] */
};

/* To be closed, also after a failure. `to` is NULL where nothing is to be written: on all ranks but the first. */
weir_status sample_open(struct sample *s, const gpt_config *config, const sample_opts *opts, FILE *to);
void sample_close(struct sample *s);

/* Writes prompt and continuation as shown.h does: UTF-8 as it is, U+FFFD for what is none or would steer a terminal. */
weir_status sample_write(struct sample *s);

#endif
