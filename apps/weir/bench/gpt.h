/* apps/weir/bench/gpt.h: `weir bench gpt`: how long a training step of a GPT takes, on one device and on two.
 *
 * 6 layers, dim 384, 6 heads, seq 256, batch 8 in micro-batches of four rows a device, a vocabulary of 256, AdamW,
 * f32. The step is held against what this machine's BLAS does in the same run (apps/weir/bench/peers/sgemm.h): `sgemm_share` is the model's
 * floating-point operations per second of the whole step (gpt_step_flops(): attention counted at half, as it is
 * causal) over those of sgemm alone. In bf16 `gemm_share` holds it against products in bf16 as well
 * (apps/weir/bench/peers/half.h).
 */
#ifndef APPS_WEIR_BENCH_GPT_H
#define APPS_WEIR_BENCH_GPT_H

#include "apps/common/model/gpt.h"

#include <stdbool.h>
#include <stdio.h>
#include <weir/weir.h>

/* Micro-batches of a step on one device that nobody asks for otherwise; with two, half as many, as rows are then. */
enum { BENCH_GPT_MICRO = 2 };

typedef struct bench_gpt_opts {
    weir_dtype precision; /* 0: f32 */
    int micro;            /* micro-batches a step, 1, 2 or 4; 0: of four rows a device */
} bench_gpt_opts;

/* The model on `devices` devices, data parallel, its step in `micro` micro-batches. `corpus` is borrowed. */
gpt_config bench_gpt_config(const text *corpus, int devices, int micro);

/* Random bytes, as the time of a step does not depend on what they say. Owned by the caller; no bytes when there is no
 * memory. */
text bench_gpt_corpus(void);

/* Runs for about half a minute; writes a JSON object or a table to `to`. */
weir_status bench_gpt(bool json, bool quick, FILE *to);

/* The same in another precision, or in another number of micro-batches. */
weir_status bench_gpt_with(const bench_gpt_opts *opts, bool json, bool quick, FILE *to);

#endif
