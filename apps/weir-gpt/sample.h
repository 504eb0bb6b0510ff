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

#include "apps/common/model/sampler.h"
#include "apps/common/model/shown.h"
#include "apps/common/model/writer.h"
#include "apps/common/options.h"

#include <stdio.h>

/* Of all that writes, by bytes or by tokens. */
typedef struct sample_opts {
    int bytes;            /* how many to write, or tokens; -1: not said */
    const char *prompt;   /* what it goes on from */
    sampler_opts sampler;
    /* with --model: */
    options_list stop;    /* texts at which writing ends */
    bool chat;
    const char *system;   /* how the chat's model is to behave; NULL: not said */
    int room;             /* tokens of a chat; 0: not said */
    bool exact;           /* keys and values are kept in f32, rather than bf16 */
} sample_opts;

struct sample {
    const sample_opts *opts;  /* borrowed, as `to` */
    FILE *to;
    struct shown shown;       /* what is written to it */
    writer *writer;           /* owned, as the sampler */
    struct sampler *sampler;
};

enum { SAMPLE_BYTES = 300 }; /* if not said */

/* To be closed, also after a failure. `to` is NULL where nothing is to be written: on all ranks but the first. */
weir_status sample_open(struct sample *s, const gpt_config *config, const sample_opts *opts, FILE *to);
void sample_close(struct sample *s);

/* Writes prompt and continuation as shown.h does: UTF-8 as it is, U+FFFD for what is none or would steer a terminal. */
weir_status sample_write(struct sample *s);

#endif
