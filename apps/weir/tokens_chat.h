/* apps/weir/tokens_chat.h: `weir tokens chat`, and what it shares with the other verbs of `weir tokens`. */
#ifndef APPS_WEIR_TOKENS_CHAT_H
#define APPS_WEIR_TOKENS_CHAT_H

#define TOKENS_FILES "a tokenizer.json, tekken.json, tokenizer.model or GGUF file, or the folder of a model"
#define TOKENS_TOKENIZER_OPTION(to) \
    {"--tokenizer", OPTIONS_TEXT, &(to), .value = "FILE", .file = OPTIONS_READS, .help = TOKENS_FILES}

/* An exit status. */
int tokens_chat(int argc, char **argv);

#endif
