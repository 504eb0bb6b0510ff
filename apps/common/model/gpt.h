/* apps/common/model/gpt.h: a byte-level GPT (Radford et al. 2019) as a weir graph, for the program, the benchmark and the
 * tests.
 *
 *     tokens -> wte -+                                                            labels -+
 *                    add -> block h0 -> ... -> block h(n-1) -> ln -> head -> logits -> loss
 *               wpe -+
 *     block: x + o(attention(q, k, v of ln1(x))), then x + down(gelu(up(ln2(x))))
 *
 * Placement is that of apps/common/train/layout.h. Written by hand is only what a Megatron layer needs (Shoeybi et al.
 * 2019): over TP the weights q, k, v, up and head are split by columns, o and down by rows. The inputs are split by
 * rows over DP. Everything else is deduced: the loss, too, is split over the classes then, and no logits are gathered.
 *
 * Parameters are named wte/weight, wpe, h0/ln1/gain, h0/q/weight, ..., ln/gain, head/weight; the training graph and the
 * others use the same names and shapes.
 */
#ifndef APPS_COMMON_MODEL_GPT_H
#define APPS_COMMON_MODEL_GPT_H

#include "apps/common/train/layout.h"
#include "apps/common/model/text.h"

#include <weir/weir.h>

#define GPT_VOCAB 256                   /* bytes */
#define GPT_EVAL "eval"                 /* the program that evaluates */
#define GPT_EVAL_LOSS "validation_loss" /* the state that it adds losses to */
#define GPT_EVAL_ROWS_MAX 256           /* windows of held-out text that it looks at, at most, but for whole batches */

typedef struct gpt_config {
    int layers, dim, heads, seq;
    int vocab;                 /* classes of a token; 0: GPT_VOCAB. A corpus of text is of bytes, whatever it is */
    int batch;                 /* rows per step, over all micro-batches and devices */
    layout layout;
    const char *device;        /* kind of device that it trains on; NULL: "cpu" */
    weir_optimizer optimizer;
    const char *norm;         /* the norm of all gradients is fetched under this name; NULL: it is not */
    bool recompute;            /* less memory for activations, as weir_train_opts has it */
    const text *corpus;        /* borrowed; at least seq + 1 bytes; must outlive every session of the plan */
    uint64_t data_seed;        /* of the windows drawn from the corpus */
    const text *held_out;      /* borrowed, alike: what evaluation looks at, and training never sees; may be empty, then
                                  there must be no evaluation. NULL: graphs have no program for it */
    const weir_data *tokens;   /* borrowed, alike: windows of seq token ids below `vocab`, in place of the corpus; each rank reads
                                  its own rows. NULL: the corpus */
    const weir_data *tokens_held_out; /* and in place of the held-out text, at most gpt_eval_rows_max() windows; may be NULL */
} gpt_config;

/* The note of the source "tokens" in a checkpoint beside the step, from which alone its rows follow: the text, so that one
 * which goes on with another is told so, and the model's heads, which no parameter's shape shows. */
typedef struct gpt_note {
    int heads;
    uint64_t data_seed;
    uint64_t bytes, hash; /* of the text; of token files: tokens */
} gpt_note;

/* The note as a line of text, at most GPT_NOTE_BYTES; and back: false when it is none. */
#define GPT_NOTE_BYTES 160
int gpt_note_write(const gpt_config *config, char line[GPT_NOTE_BYTES]);
bool gpt_note_read(gpt_note *note, const void *bytes, size_t count);

/* Classes of a token: .vocab, or its default. */
int gpt_vocab(const gpt_config *config);

/* Both graphs below have a second program, GPT_EVAL, if there is held-out text: gpt_eval_steps() steps of it look at
 * batches that are spread evenly over that, always at the same ones, and each adds {its mean loss, 1} to the state
 * GPT_EVAL_LOSS [2]. */
int gpt_eval_steps(const gpt_config *config);
int64_t gpt_eval_rows_max(const gpt_config *config); /* windows that they look at, at most */

/* A new graph that trains: inputs "tokens" and "labels" drawn from the corpus by sources, the fetch "loss" (to be
 * pulled, once per micro-batch). `config` is borrowed for as long as sessions of the plan run: it is the sources'
 * context. NULL when there is no memory; mistakes stick to the graph as usual. To be compiled with .micro_batches =
 * config->layout.micro. */
weir_graph *gpt_train_graph(const gpt_config *config);

/* A graph that generates asks this of the program around it, on a worker's thread, in turns: give, take, give, take. */
typedef struct gpt_feed {
    weir_source_fn give; /* i32 [2, rows]: the bytes of the next step, and their positions, one after the other */
    weir_kernel_fn take; /* in[0]: logits [1, rows, GPT_VOCAB] of the bytes after those; out[0]: i32 [1], for put */
    weir_sink_fn put;    /* what take has made of each step */
    void *ctx;           /* of all three; borrowed as long as sessions of the plan run */
} gpt_feed;

/* A new graph that goes on with a text, on cpu:0, `rows` bytes a step, between positions 0 and seq - 1. Keys and values
 * of the positions before are those that the states h0/keys, h0/values, ... have of earlier steps. The bits of a byte's
 * logits depend on the bytes at positions up to it alone: not on `rows`, nor on what came in which step. */
weir_graph *gpt_generate_graph(const gpt_config *config, int rows, const gpt_feed *feed);

/* Floating-point operations of the model for one training step, forward and backward: 6 per token and matrix element,
 * and for attention 12 layers seq dim per token, halved because it is causal. Recomputation counts nothing. */
double gpt_step_flops(const gpt_config *config);

#endif
