/* apps/common/tokens/chat_table.c: the families of chat templates. The first row whose parts are all in a template, and none of the
 * others, is its family. */
#include "apps/common/tokens/chat_table.h"

#include <stddef.h>

#define HEADER(role) "<|start_header_id|>" role "<|end_header_id|>\n\n"
#define LLAMA3 \
    .begin = "\1", .user_before = HEADER("user"), .user_after = "<|eot_id|>", .opening = HEADER("assistant"), .reply_end = "<|eot_id|>", .trim = CHAT_TRIM
#define CHATML \
    .system_before = "<|im_start|>system\n", .system_after = "<|im_end|>\n", .user_before = "<|im_start|>user\n", .user_after = "<|im_end|>\n", \
    .opening = "<|im_start|>assistant\n", .reply_end = "<|im_end|>", .reply_after = "\n"
#define GEMMA \
    .begin = "\1", .user_before = "<start_of_turn>user\n", .user_after = "<end_of_turn>\n", .opening = "<start_of_turn>model\n", \
    .reply_end = "<end_of_turn>", .reply_after = "\n", .trim = CHAT_TRIM, .alternates = true
#define MISTRAL .begin = "\1", .system_after = "\n\n", .reply_end = "\2", .alternates = true

const struct chat_family chat_families[] = {
    {.name = "Qwen3", .has = {"<|im_start|>", "'</think>' in content", "reasoning_content"}, .system = CHAT_SYSTEM_TURN, CHATML, .thinks = true},
    {.name = "Phi-4", .has = {"<|im_start|>user<|im_sep|>"}, .system = CHAT_SYSTEM_TURN, .system_before = "<|im_start|>system<|im_sep|>",
     .system_after = "<|im_end|>", .user_before = "<|im_start|>user<|im_sep|>", .user_after = "<|im_end|>",
     .opening = "<|im_start|>assistant<|im_sep|>", .reply_end = "<|im_end|>"},
    {.name = "ChatML", .has = {"<|im_start|>", "<|im_end|>"}, .lacks = {"<|im_sep|>", "<think>", "bos_token", "trim"}, .system = CHAT_SYSTEM_TURN, CHATML,
     .has_default = true},
    {.name = "Llama 3.1", .has = {"<|start_header_id|>", "Cutting Knowledge Date: December 2023"}, .system = CHAT_SYSTEM_ALWAYS,
     .system_before = HEADER("system") "Cutting Knowledge Date: December 2023\nToday Date: 26 Jul 2024\n\n", .system_after = "<|eot_id|>", LLAMA3},
    {.name = "Llama 3", .has = {"<|start_header_id|>", "<|eot_id|>", "trim"}, .lacks = {"Today Date"}, .system = CHAT_SYSTEM_TURN,
     .system_before = HEADER("system"), .system_after = "<|eot_id|>", LLAMA3},
    {.name = "Llama 2", .has = {"<<SYS>>\n", "bos_token + '[INST] ' + content.strip() + ' [/INST]'", "' '  + content.strip() + ' ' + eos_token"},
     .system = CHAT_SYSTEM_FIRST_USER, .system_before = "<<SYS>>\n", .system_after = "\n<</SYS>>\n\n", .user_before = "\1[INST] ",
     .user_after = " [/INST]", .opening = "", .reply_before = " ", .reply_end = " \2", .trim = CHAT_TRIM, .alternates = true},
    {.name = "Mistral v3", .has = {"\"[INST] \" + message[\"content\"] + \"[/INST]\"", "\" \" + message[\"content\"]|trim + eos_token"}, MISTRAL,
     .system = CHAT_SYSTEM_LAST, .user_before = "[INST] ", .user_after = "[/INST]", .reply_before = " ", .trim = CHAT_TRIM_REPLY},
    {.name = "Mistral Nemo", .has = {"\"[INST]\" + message[\"content\"] + \"[/INST]\"", "message[\"content\"] + eos_token"}, MISTRAL,
     .system = CHAT_SYSTEM_LAST, .user_before = "[INST]", .user_after = "[/INST]"},
    {.name = "Mistral v1", .has = {"'[INST] ' + message['content'] + ' [/INST]'", "message['content'] + eos_token + ' '"}, MISTRAL,
     .system = CHAT_SYSTEM_NONE, .user_before = "[INST] ", .user_after = " [/INST]", .reply_after = " "},
    {.name = "Mistral v1", .has = {"'[INST] ' + message['content'] + ' [/INST]'", "' ' + message['content'] + eos_token"}, MISTRAL,
     .system = CHAT_SYSTEM_NONE, .user_before = "[INST] ", .user_after = " [/INST]", .reply_before = " "},
    {.name = "Mistral v1", .has = {"'[INST] ' + message['content'] + ' [/INST]'", "message['content'] + eos_token"}, MISTRAL,
     .system = CHAT_SYSTEM_NONE, .user_before = "[INST] ", .user_after = " [/INST]"},
    {.name = "Gemma 3", .has = {"<start_of_turn>", "first_user_prefix"}, GEMMA, .system = CHAT_SYSTEM_FIRST_USER, .system_after = "\n\n"},
    {.name = "Gemma", .has = {"<start_of_turn>", "<end_of_turn>"}, GEMMA, .system = CHAT_SYSTEM_NONE},
    {.name = "Phi-3", .has = {"<|user|>", "<|assistant|>", "<|end|>"}, .lacks = {"bos_token", "<|im_start|>"}, .system = CHAT_SYSTEM_TURN,
     .system_before = "<|system|>\n", .system_after = "<|end|>\n", .user_before = "<|user|>\n", .user_after = "<|end|>\n",
     .opening = "<|assistant|>\n", .reply_end = "<|end|>", .reply_after = "\n", .end = "\2"},
    /* those of mistral-common, by the version of tekken.json */
    {.name = "Mistral v3", .tekken = " v3 ", MISTRAL, .system = CHAT_SYSTEM_LAST_USER, .user_before = "[INST]", .user_after = "[/INST]",
     .trim = CHAT_TRIM_REPLY_SPACES},
    {.name = "Mistral v7", .tekken = " v7 v11 v13 ", .begin = "\1", .system = CHAT_SYSTEM_TURN, .system_before = "[SYSTEM_PROMPT]",
     .system_after = "[/SYSTEM_PROMPT]", .user_before = "[INST]", .user_after = "[/INST]", .reply_end = "\2", .trim = CHAT_TRIM_REPLY_SPACES},
};
const int chat_family_count = sizeof chat_families / sizeof *chat_families;
