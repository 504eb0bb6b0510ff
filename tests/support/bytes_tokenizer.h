/* tests/support/bytes_tokenizer.h: a tokenizer.json whose ids are bytes, with <|im_start|> as 256 and <|im_end|> as 257, and the
 * tokenizer_config.json of a ChatML template. Header-only. */
#ifndef TESTS_SUPPORT_BYTES_TOKENIZER_H
#define TESTS_SUPPORT_BYTES_TOKENIZER_H

#include <stdbool.h>
#include <stdio.h>

enum { BYTES_TOKENIZER_BEGIN = 256, BYTES_TOKENIZER_END, BYTES_TOKENIZER_SIZE };

/* Writes both to a folder that is there. */
static inline bool bytes_tokenizer_write(const char *folder)
{
    char path[4200];
    snprintf(path, sizeof path, "%s/tokenizer.json", folder);
    FILE *file = fopen(path, "w");
    if (!file)
        return false;
    fprintf(file, "{\"added_tokens\": [{\"id\": 256, \"content\": \"<|im_start|>\", \"special\": true}, {\"id\": 257, \"content\": \"<|im_end|>\", "
                  "\"special\": true}], \"pre_tokenizer\": {\"type\": \"ByteLevel\", \"add_prefix_space\": false, \"use_regex\": true}, "
                  "\"model\": {\"type\": \"BPE\", \"merges\": [], \"vocab\": {");
    for (int byte = 0, next = 0x100; byte < 256; byte++) { /* as GPT-2 writes bytes */
        const bool shown = (byte >= 33 && byte <= 126) || (byte >= 161 && byte != 173);
        fprintf(file, "%s\"\\u%04x\": %d", byte ? ", " : "", shown ? byte : next++, byte);
    }
    fprintf(file, "}}}\n");
    const bool ok = !fclose(file);
    snprintf(path, sizeof path, "%s/tokenizer_config.json", folder);
    file = fopen(path, "w");
    if (!file)
        return false;
    fprintf(file, "{\"model_max_length\": 1000000000000000019884624838656, \"eos_token\": \"<|im_end|>\", \"chat_template\": \"{%% for message in messages %%}"
                  "{{'<|im_start|>' + message['role'] + '\\\\n' + message['content'] + '<|im_end|>' + '\\\\n'}}{%% endfor %%}{%% if add_generation_prompt %%}"
                  "{{ '<|im_start|>assistant\\\\n' }}{%% endif %%}\"}\n");
    return !fclose(file) && ok;
}

#endif
