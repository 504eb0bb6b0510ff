/* apps/common/model/writer.h: goes on with a text, a byte or another token at a time.
 *
 *     writer *w = writer_new(&config, choose, put, &mine);
 *     params_copy(trained, w->session, w->plan);
 *     writer_write(w, "Once", 100);
 *     writer_free(w);
 *
 * A byte costs one row of the model: keys and values of the bytes before it are kept. A model sees at most seq bytes
 * and knows each by its position; so when the window is full its last half is taken for a new beginning, and those
 * seq/2 bytes are run again from position 0 on. The logits are, bit for bit, what the same window gives in one go
 * (gpt_generate_graph).
 *
 * All bytes are one run of the session, in which the functions that choose and put them are called: nothing goes back
 * and forth between threads.
 *
 * One thread. In a cluster each process has its own.
 */
#ifndef APPS_COMMON_MODEL_WRITER_H
#define APPS_COMMON_MODEL_WRITER_H

#include "apps/common/model/gpt.h"

/* Says which byte comes next, by what the model says of each: logits [vocab]. Runs on a worker's thread. */
typedef int32_t (*writer_choose_fn)(void *ctx, const float *logits);
/* Is given each byte that follows the prompt. Likewise. */
typedef void (*writer_put_fn)(void *ctx, int32_t byte);

typedef struct writer {
    const gpt_config *config; /* borrowed; layers, dim, heads and seq count */
    writer_choose_fn choose;
    writer_put_fn put;
    void *ctx;                /* of both */
    weir_plan *plan;          /* owned, as what follows */
    weir_session *session;    /* at rest; its parameters are what the plan starts them with */
    int32_t *window;          /* the bytes that there are for the model to see: `seen` of seq */
    int seen;
    int done;                 /* of those, the ones whose rows have been run */
    const uint32_t *prompt;   /* what of it is still to come: borrowed */
    size_t left;
} writer;

/* NULL and weir_error() on failure. */
writer *writer_new(const gpt_config *config, writer_choose_fn choose, writer_put_fn put, void *ctx);
void writer_free(writer *w); /* may be NULL */

/* Chooses and puts `bytes` that follow `prompt`, which is not empty. Each call begins anew. */
weir_status writer_write(writer *w, const char *prompt, int bytes);

/* The same with tokens of the model's vocabulary. */
weir_status writer_write_tokens(writer *w, const uint32_t *prompt, size_t prompt_count, int tokens);

#endif
