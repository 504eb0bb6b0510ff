/* apps/weir-gpt/finetune.h: trains a language model of a file further: all of it, or a LoRA adapter beside it.
 *
 *     weir-gpt --model smollm2.gguf --lora 8 --chat talks.jsonl --save runs/a
 *
 * It trains on conversations (apps/common/model/samples.h), on texts by the model's tokenizer, or on files of token ids. An adapter is
 * written to the folder of --save at the end, as the Python package peft keeps it, beside the checkpoints. One thread.
 */
#ifndef APPS_WEIR_GPT_FINETUNE_H
#define APPS_WEIR_GPT_FINETUNE_H

#include "apps/common/model/adapter.h"
#include "apps/common/train/trainer.h"
#include "apps/weir-gpt/corpus.h"

typedef struct finetune_opts {
    const char *model;
    options_list chat;
    int rank;            /* 0: there is no new adapter */
    double alpha;        /* 0: twice the rank */
    double dropout;
    const char *targets; /* NULL: all products of the blocks */
    const char *adapter; /* the folder of one to go on with; NULL: none */
    bool f32_activations; /* products with weights that are not trained do not round the other factor */
} finetune_opts;

/* Their entries for a program's table; `o` is a finetune_opts variable. */
#define FINETUNE_OPTIONS(o)                                                                                           \
    {"--model", OPTIONS_TEXT, &(o).model, .value = "PATH", .file = OPTIONS_READS,                                     \
     .help = "a language model: a GGUF file or a folder of Hugging Face. With --text, --tokens or --chat FILE: train it further. Else: "    \
             "go on with --prompt, or --chat"},                                                                                  \
    {"--chat", OPTIONS_LIST, &(o).chat, .several = true, .optional = true, .value = "[FILE...]", .file = OPTIONS_READS,               \
     .help = "with --model: read messages, a line each, and write replies. FILE: train on conversations, a line of JSON each: "        \
             "{\"messages\": [{\"role\", \"content\"}, ...]}"},                                                                       \
    {"--lora", OPTIONS_INT, &(o).rank, .min = 1, .max = ADAPTER_RANK_MAX, .value = "RANK",                            \
     .help = "with --model: train a LoRA adapter of this rank, and leave the model as it is"},                        \
    {"--lora-alpha", OPTIONS_REAL, &(o).alpha, .min = 1e-6, .max = 1e6, .help = "the adapter is multiplied by X / RANK [2 RANK]"},     \
    {"--lora-dropout", OPTIONS_REAL, &(o).dropout, .min = 0, .max = 0.99, .help = "drop the adapter's inputs with this probability"},  \
    {"--lora-targets", OPTIONS_TEXT, &(o).targets, .value = "NAMES",                                                  \
     .help = "layers that the adapter stands beside, as q_proj,v_proj; default: all of the blocks"},                  \
    {"--adapter", OPTIONS_TEXT, &(o).adapter, .value = "DIR", .file = OPTIONS_READS,                                  \
     .help = "with --model: use a LoRA adapter, of weir or of peft; or train it further"},                            \
    {"--f32-activations", OPTIONS_FLAG, &(o).f32_activations,                                                         \
     .help = "with --model: do not round activations, and keep keys and values in f32, not bf16"}

/* Whether the options ask for training; else the model goes on with a text. */
bool finetune_trains(const finetune_opts *o, const corpus_opts *data);

/* Sizes of a step, layout and device are those of `c`, where a batch, seq or lr of 0 is the default. Returns an exit status, after
 * reporting. */
int finetune(trainer *t, const finetune_opts *o, const corpus_opts *data, const gpt_config *c, double lr, const options_spec *spec);

#endif
