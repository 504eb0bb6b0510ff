/* apps/weir-gpt/continue.h: goes on with a text by a language model of a file, token by token. */
#ifndef APPS_WEIR_GPT_CONTINUE_H
#define APPS_WEIR_GPT_CONTINUE_H

#include "apps/weir-gpt/sample_opts.h"

/* Writes the prompt and up to `opts->bytes` tokens to standard output; ends at a token that ends a text, at a text of `opts->stop`, or
 * where the model's context is full. Returns an exit status, after reporting. */
int continue_text(const char *program, const char *path, const sample_opts *opts);

#endif
