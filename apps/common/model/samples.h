/* apps/common/model/samples.h: what a language model is trained on, as ids of tokens in memory.
 *
 *     text                     windows of seq + 1 tokens, each from the last token of the one before; a rest that fills none is left out
 *     {"messages": [...]}      a line of JSON: a conversation by the model's template; the replies count, what others say does not
 *     {"prompt", "completion"} a line of JSON: two texts, of which the second counts, with the token that ends a text behind it
 *
 * A sample is a row of tokens and a row of labels, the tokens that come next. A label that does not count is LM_IGNORED. A shorter sample
 * is filled up behind its end: with causal attention nothing in front sees that, so it needs no mask. A longer one is cut. A
 * conversation of which nothing counts then is left out.
 *
 * Lines are a stranger's. Each that cannot be used is one sentence with its file and number.
 *
 * A list does not change once it is read, so any thread may read it. The order of an epoch is that of weir_data_tokens()
 * (<weir/data.h>): a function of seed, epoch and place.
 */
#ifndef APPS_COMMON_MODEL_SAMPLES_H
#define APPS_COMMON_MODEL_SAMPLES_H

#include "apps/common/tokens/tokenizer.h"

#include <weir/weir.h>

struct sample {
    size_t first; /* its first token in the list */
    int32_t count;
};

typedef struct samples {
    int32_t *id;           /* owned, as what follows */
    unsigned char *counts; /* of each id: whether it counts as a label */
    size_t ids, ids_room;
    struct sample *sample;
    size_t count, room;
    size_t cut, left_out;  /* conversations */
} samples;

/* How texts become ids. */
typedef struct samples_reader {
    struct encoder *encoder; /* borrowed */
    int seq;
    int64_t end;             /* the token that ends a text; -1: none */
} samples_reader;

/* Adds the samples of a file. False: `why` is a sentence that names it. */
bool samples_add_text(samples *to, const samples_reader *r, const char *path, char *why, size_t why_bytes);
bool samples_add_chat(samples *to, const samples_reader *r, const char *path, char *why, size_t why_bytes);
void samples_free(samples *s);

/* Which of them: the range is whole if `count` is all. */
typedef struct samples_range {
    const samples *of; /* borrowed */
    size_t first, count;
    uint64_t seed;
} samples_range;

/* Fills rows [rows, seq] with the tokens, or the labels, of the samples first, first + 1, ...: sample i is number i modulo the range's count
 * of epoch i / count. */
void samples_fill(const samples_range *r, int64_t first, bool labels, const weir_view *dst);

/* The same in the order of the files, and once: rows beyond the last sample have no label that counts. */
void samples_fill_once(const samples_range *r, int64_t first, bool labels, const weir_view *dst);

/* A hash of the ids, and of which of them count. */
uint64_t samples_hash(const samples *s);

#endif
