/* tests/fuzz/fuzz_tokens.c: bytes that claim to be a tokenizer.json, a tekken.json, a GGUF file or a model of SentencePiece. A tokenizer
 * that is read encodes a text, and each id has to be a token's. If it keeps all of a text, the text has to come back. If it knows a chat
 * template, it encodes a conversation, with a mark for each id. */
#define _GNU_SOURCE
#include "apps/common/tokens/chat.h"
#include "apps/common/tokens/inside.h"
#include "apps/common/tokens/tokenizer.h"
#include "tests/fuzz/file.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

const char *const fuzz_corpus = "tests/fuzz/corpus/tokens";

static const char text[] = "It's 123 aaaa bb <|x|> n\xc3\xa9\xe4\xb8\xad\xf0\x9f\x99\x82  \r\n\t END";

static bool keeps_all(const struct tokenizer *t)
{
    bool keeps = !t->normal.form && (t->bpe.vocab.form != VOCAB_MARKS || t->bpe.falls_back);
    for (int byte = 0; byte < 256 && t->bpe.vocab.form != VOCAB_MARKS; byte++)
        keeps &= t->bpe.vocab.byte_id[byte] != VOCAB_NONE;
    for (int i = 0; i < t->split.count; i++)
        keeps &= t->split.stage[i].code && t->split.stage[i].matches && t->split.stage[i].gaps;
    keeps &= !t->normal.space || t->strips;
    for (int pass = 0; pass < 2; pass++)
        for (size_t i = 0; i < t->added[pass].count; i++)
            keeps &= !t->added[pass].token[i].takes_left && !t->added[pass].token[i].takes_right;
    return keeps;
}

static void check(const struct tokenizer *t, const struct token_ids *ids)
{
    const bool all = keeps_all(t);
    size_t at = 0, bytes;
    struct decoder d = {.tokenizer = t};
    for (size_t i = 0; i < ids->count; i++) {
        const char *token = decoder_next(&d, ids->id[i], &bytes);
        if (!token || (all && (bytes > sizeof text - 1 - at || memcmp(text + at, token, bytes) != 0)))
            __builtin_trap();
        at += bytes;
    }
    if (all && at != sizeof text - 1)
        __builtin_trap();
}

static void encode(const struct tokenizer *t, bool plain)
{
    struct encoder *e = encoder_new(t);
    struct token_ids ids = {.id = NULL};
    if (e && tokenizer_encode(e, text, sizeof text - 1, plain, &ids))
        check(t, &ids);
    free(ids.id);
    encoder_free(e);
}

static void talk(const struct tokenizer *t)
{
    static const struct chat_message message[] = {{"system", "Be <|x|>"}, {"user", " a\n"}, {"assistant", "<think>b</think> c"}, {"user", "d"}};
    struct encoder *e = encoder_new(t);
    struct token_ids ids = {.id = NULL}, reply = {.id = NULL};
    for (size_t from = 0; e && from < 2; from++) {
        ids.count = reply.count = 0;
        if (tokenizer_chat(e, message + from, 4 - from, from, &ids, &reply) && ids.count != reply.count)
            __builtin_trap();
    }
    free(ids.id);
    free(reply.id);
    encoder_free(e);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char path[FUZZ_PATH];
    int fd = fuzz_file(data, size, path);
    if (fd < 0)
        return 0;
    struct tokenizer *t = tokenizer_read(path);
    if (t) {
        encode(t, false);
        encode(t, true);
        talk(t);
    }
    tokenizer_free(t);
    close(fd);
    return 0;
}
