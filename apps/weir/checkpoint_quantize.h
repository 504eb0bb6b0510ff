/* apps/weir/checkpoint_quantize.h: `weir checkpoint convert --quantize`: a model, perhaps with an adapter merged into it, as a GGUF file with
 * quantised weights. The functions leave tensors_error() and return false. One thread. */
#ifndef APPS_WEIR_CHECKPOINT_QUANTIZE_H
#define APPS_WEIR_CHECKPOINT_QUANTIZE_H

#include "apps/common/tensors.h"

#include <weir/weir.h>

typedef struct checkpoint_quantize_opts {
    const char *from, *to;
    const char *format;  /* "q8_0" or "q4_0" */
    const char *adapter; /* a LoRA adapter's folder; NULL: none is merged */
} checkpoint_quantize_opts;

/* Whether it can begin: the format, the end of TO's name, and the kind of FROM. */
bool checkpoint_quantize_may(const checkpoint_quantize_opts *c);

/* `way`, with its context, is called when everything was read but the weights, before anything is written. Tells on stdout what is
 * written. */
bool checkpoint_quantize(const checkpoint_quantize_opts *c, bool (*way)(void *ctx), void *ctx);

#endif
