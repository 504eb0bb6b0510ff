/* apps/weir-gpt/sample_opts.h: the options of all that writes text, by bytes (sample.h) or by tokens (continue.h, chat.h). */
#ifndef APPS_WEIR_GPT_SAMPLE_OPTS_H
#define APPS_WEIR_GPT_SAMPLE_OPTS_H

#include "apps/common/model/sampler.h"
#include "apps/common/options.h"
#include "apps/common/tokens/tokenizer.h"

typedef struct sample_opts {
    int bytes;            /* how many to write, or tokens; -1: not said */
    const char *prompt;   /* what it goes on from */
    sampler_opts sampler;
    const struct tokenizer *tokenizer; /* borrowed, of a model that was trained with it. NULL: tokens are bytes */
    /* with --model: */
    options_list stop;    /* texts at which writing ends */
    const char *adapter;  /* the folder of a LoRA adapter; NULL: none */
    bool chat;
    const char *system;   /* how the chat's model is to behave; NULL: not said */
    int room;             /* tokens of a chat; 0: not said */
    bool f32_activations; /* products do not round them; keys and values are kept in f32, rather than bf16 */
    int tp;               /* devices that share each matrix */
    int workers;          /* of the session; 0: one per device */
    bool pin;             /* each to a core */
    const char *trace;    /* file that gets a trace; NULL: none */
} sample_opts;

/* Their values before the command line is read. */
#define SAMPLE_DEFAULTS                                                                                                  \
    {                                                                                                                    \
        .bytes = -1, .prompt = "/* ", .sampler = {.temperature = 0.8, .top_k = 40, .top_p = 0.95, .min_p = 0.05, .repeat_penalty = 1} \
    }
enum { SAMPLE_BYTES = 300 }; /* if not said */

/* Entries of a table of options (apps/common/options.h). */
#define SAMPLE_OPTIONS(o)                                                                                                              \
    {"--prompt", OPTIONS_TEXT, &(o).prompt, .help = "text to go on from"},                                                             \
    {"--sample", OPTIONS_INT, &(o).bytes, .min = 0, .max = 1e6,                                                                        \
     .help = "bytes to write at the end, or tokens of --tokenizer or --model [300; in a chat as many as the model wants]"},                            \
    {"--temperature", OPTIONS_REAL, &(o).sampler.temperature, .min = 0, .max = 100, .help = "0: write the likeliest each time"},       \
    {"--top-k", OPTIONS_INT, &(o).sampler.top_k, .min = 0, .max = 1e9, .help = "draw from the k likeliest; 0: from all"},              \
    {"--top-p", OPTIONS_REAL, &(o).sampler.top_p, .min = 0, .max = 1,                                                                  \
     .help = "draw from the fewest that together are so likely; 1: from all"},                                                         \
    {"--min-p", OPTIONS_REAL, &(o).sampler.min_p, .min = 0, .max = 1,                                                                  \
     .help = "draw from those that are at least so likely, relative to the likeliest"},                                                \
    {"--repeat-penalty", OPTIONS_REAL, &(o).sampler.repeat_penalty, .min = 0.01, .max = 100,                                           \
     .help = "make the last 64 less likely: divide their logits by this, or multiply those below 0"},                                  \
    {"--stop", OPTIONS_LIST, &(o).stop, .help = "with --model: end at this text, which is not written; may be repeated"},              \
    {"--system", OPTIONS_TEXT, &(o).system, .help = "with --chat: how the model is to behave"},                                        \
    {"--room", OPTIONS_INT, &(o).room, .min = 1, .max = 1e7, .help = "with --chat: tokens of the conversation [4096]"}

#endif
