/* apps/weir/bench/cards/gpt_device.h: `weir bench gpt --device cuda`: a training step of a GPT on one accelerator.
 *
 * 12 layers, dim 768, 12 heads, seq 1024, a vocabulary of 50,304, AdamW, in bf16: GPT-2's smallest, but with a matrix of its own
 * for the logits. Counted are rounds of several steps each, after two that are not; figures are medians of rounds.
 *
 *     tokens_per_s       of the whole step
 *     gemm_share         the model's floating-point operations per second (gpt_step_flops()) over those of products of large
 *                        matrices in bf16 that weir runs on the same device, in the same run: gemm_tflops
 *     host_us_per_step   processor time of this process, all threads: what the host gives to a step
 *     planned_bytes      what the plan says of the device; used_bytes: what the device has less since before the session
 */
#ifndef APPS_WEIR_BENCH_GPT_DEVICE_H
#define APPS_WEIR_BENCH_GPT_DEVICE_H

#include <stdbool.h>
#include <stdio.h>
#include <weir/weir.h>

typedef struct bench_gpt_device_opts {
    const char *device; /* kind: "cuda" */
    int batch, steps;   /* rows of a step [64], steps of a round [10]; 0: as said */
    bool no_fusion;     /* each op a kernel of its own */
} bench_gpt_device_opts;

/* `quick`: a very small model, to try it out. Writes a JSON object or text to `to`. */
weir_status bench_gpt_device(const bench_gpt_device_opts *opts, bool json, bool quick, FILE *to);

#endif
