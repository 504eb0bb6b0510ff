/* apps/weir-gpt/continue.h: goes on with a text by a language model of a GGUF file or a folder, token by token. */
#ifndef APPS_WEIR_GPT_CONTINUE_H
#define APPS_WEIR_GPT_CONTINUE_H

#include "apps/weir-gpt/sample.h"

/* Writes the prompt and `opts->bytes` tokens, the likeliest each time, to standard output; ends with the model's last token, or where its
 * context is full. `adapter` is the folder of a LoRA adapter (apps/common/model/adapter.h), or NULL. Returns an exit status, after reporting. */
int continue_text(const char *program, const char *path, const char *adapter, const sample_opts *opts);

#endif
