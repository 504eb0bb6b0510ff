/* apps/common/gpt.h: a byte-level GPT (Radford et al. 2019) as a weir graph, for the program, the benchmark and the
 * tests.
 *
 *     tokens -> wte -+                                                            labels -+
 *                    add -> block h0 -> ... -> block h(n-1) -> ln -> head -> logits -> loss
 *               wpe -+
 *     block: x + o(attention(q, k, v of ln1(x))), then x + down(gelu(up(ln2(x))))
 *
 * Placement is that of apps/common/layout.h. Written by hand is only what a Megatron layer needs (Shoeybi et al.
 * 2019): over TP the weights q, k, v and up are split by columns, o and down by rows. The inputs are split by rows
 * over DP. Everything else is deduced.
 *
 * Parameters are named wte/weight, wpe, h0/ln1/gain, h0/q/weight, ..., ln/gain, head/weight; the training graph and the
 * forward-only graph use the same names and shapes.
 */
#ifndef APPS_COMMON_GPT_H
#define APPS_COMMON_GPT_H

#include "apps/common/layout.h"
#include "apps/common/text.h"

#include <weir/weir.h>

#define GPT_VOCAB 256 /* bytes */

typedef struct gpt_config {
    int layers, dim, heads, seq;
    int batch;                 /* rows per step, over all micro-batches and devices */
    layout layout;
    weir_optimizer optimizer;
    bool recompute;            /* less memory for activations, as weir_train_opts has it */
    const text *corpus;        /* borrowed; at least seq + 1 bytes; must outlive every session of the plan */
    uint64_t data_seed;        /* of the windows drawn from the corpus */
} gpt_config;

/* A new graph that trains: inputs "tokens" and "labels" drawn from the corpus by sources, the fetch "loss" (to be
 * pulled, once per micro-batch). `config` is borrowed for as long as sessions of the plan run: it is the sources'
 * context. NULL when there is no memory; mistakes stick to the graph as usual. To be compiled with .micro_batches =
 * config->layout.micro. */
weir_graph *gpt_train_graph(const gpt_config *config);

/* A new graph that only looks ahead, on cpu:0: the input "tokens" [1, seq] is to be pushed, the fetch "logits"
 * [1, seq, GPT_VOCAB] to be pulled. */
weir_graph *gpt_forward_graph(const gpt_config *config);

/* Floating-point operations of the model for one training step, forward and backward: 6 per token and matrix element,
 * and for attention 12 layers seq dim per token, halved because it is causal. Recomputation counts nothing. */
double gpt_step_flops(const gpt_config *config);

#endif
