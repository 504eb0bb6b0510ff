/* apps/weir-gpt/sample.h: lets a trained GPT write.
 *
 *     sampler s;
 *     status = sample_open(&s, &config, &opts, stdout);
 *     ... parameters into s.writer->session, as by params_copy() ...
 *     status = sample_write(&s);
 *     sample_close(&s);
 */
#ifndef APPS_WEIR_GPT_SAMPLE_H
#define APPS_WEIR_GPT_SAMPLE_H

#include "apps/common/model/shown.h"
#include "apps/common/model/writer.h"
#include "apps/common/tokens/tokenizer.h"

#include <stdio.h>

typedef struct sample_opts {
    int bytes;            /* how many bytes to write, or tokens of the tokenizer */
    double temperature;   /* 0: always the likeliest byte */
    const char *prompt;   /* what it goes on from */
    uint64_t seed;
    const struct tokenizer *tokenizer; /* borrowed. NULL: tokens are bytes */
} sample_opts;

typedef struct sampler {
    const sample_opts *opts; /* borrowed, as `to` */
    FILE *to;
    struct shown shown;            /* what is written to it */
    writer *writer;          /* owned */
    uint64_t drawn;          /* tokens so far */
    struct decoder decoder;
    struct token_ids prompt; /* owned, as the weights */
    double *weight;          /* [vocab] */
} sampler;

/* To be closed, also after a failure. `to` is NULL where nothing is to be written: on all ranks but the first. */
weir_status sample_open(sampler *s, const gpt_config *config, const sample_opts *opts, FILE *to);
void sample_close(sampler *s);

/* Writes prompt and continuation as shown.h does: UTF-8 as it is, U+FFFD for what is none or would steer a terminal. */
weir_status sample_write(sampler *s);

#endif
