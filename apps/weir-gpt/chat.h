/* apps/weir-gpt/chat.h: a conversation with a language model of a file, at the terminal or over a pipe. */
#ifndef APPS_WEIR_GPT_CHAT_H
#define APPS_WEIR_GPT_CHAT_H

#include "apps/weir-gpt/sample_opts.h"

/* Reads messages from standard input, a line each (one that ends with a backslash goes on in the next), and writes replies to standard
 * output as they come. A reply ends where the model ends it, at a text of `opts->stop`, after `opts->bytes` tokens (-1: no limit), or at
 * SIGINT, which at the prompt, or a second time, ends the program. The conversation ends with the input, or where its room is full.
 * Returns an exit status, after reporting. */
int chat(const char *program, const char *path, const sample_opts *opts);

#endif
