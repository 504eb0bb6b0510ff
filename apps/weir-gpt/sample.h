/* apps/weir-gpt/sample.h: lets a trained GPT write. */
#ifndef APPS_WEIR_GPT_SAMPLE_H
#define APPS_WEIR_GPT_SAMPLE_H

#include "apps/common/gpt.h"

#include <stdio.h>

typedef struct sample_opts {
    int bytes;            /* how many to write */
    double temperature;   /* 0: always the likeliest byte */
    const char *prompt;   /* what it goes on from */
    uint64_t seed;
} sample_opts;

/* Copies the parameters of `trained` (at rest) into a graph that only looks ahead, on one device, and writes prompt and
 * continuation to `to`; bytes that are not printable become '?'. In a cluster all ranks call this, as reading
 * parameters takes all of them; `to` is NULL on those that are to write nothing. */
weir_status sample_write(const gpt_config *config, weir_session *trained, const sample_opts *opts, FILE *to);

#endif
