/* apps/weir-gpt/speaker.h: a language model of a file that reads tokens and writes more, for a text (continue.h) and for a chat (chat.h).
 *
 *     struct speaker s;
 *     int status = speaker_begin(&s, "weir-gpt", path, &opts);      // -1: go on
 *     status = speaker_open(&s, &opts, room, ids.count);
 *     speaker_become(&s, &ids);                                     // the text so far
 *     speaker_ending how = speaker_write(&s, 100, false, put, ctx);     // bytes that follow
 *     speaker_close(&s);
 *
 * ids     [ 0 ........ run - 1 | .... count - 1 ]
 *          kept by the session   not run yet
 *
 * Keys and values of tokens that have been run are kept. So a text that begins as the one before costs only what is new. Tokens are run
 * in chunks, and one by one where few are left.
 *
 * Every rank of a session runs the same tokens: each pulls the same logits, and draws by the same numbers. A chat has one process.
 *
 * An interrupt (interrupt.h) ends reading and writing after the chunk or token. One thread.
 */
#ifndef APPS_WEIR_GPT_SPEAKER_H
#define APPS_WEIR_GPT_SPEAKER_H

#include "apps/common/model/adapter_lm.h"
#include "apps/common/model/sampler.h"
#include "apps/common/model/stops.h"
#include "apps/common/tokens/tokenizer.h"
#include "apps/weir-gpt/sample_opts.h"

struct speaker {
    const char *program;
    lm_config config;
    adapter adapter;             /* rank 0: there is none */
    lm_adapter beside;
    struct tokenizer *tokenizer; /* owned, as what follows */
    struct encoder *encoder;     /* NULL: it encodes no more */
    struct decoder decoder;
    weir_plan *plan;
    weir_session *session;
    struct sampler *sampler;
    float *logits;               /* of the last token that was run */
    struct token_ids ids;
    size_t run;
    size_t room;                 /* of tokens */
    struct stops stops;
    size_t read, written;        /* tokens in all */
    size_t steps;                /* that ran one token each */
    double read_seconds, write_seconds; /* of all but these, and of these */
};

/* Why writing ended. */
typedef enum speaker_ending {
    SPEAKER_MOST,      /* as many tokens as were wanted */
    SPEAKER_ENDED,     /* the model's token of an end, or a stop text */
    SPEAKER_FULL,      /* no row is left for another token */
    SPEAKER_INTERRUPTED,
    SPEAKER_FAILED     /* after reporting */
} speaker_ending;

/* Reads the sizes of the model, and its tokenizer. -1, or an exit status after reporting. To be closed in any case. */
int speaker_begin(struct speaker *s, const char *program, const char *path, const sample_opts *opts);

/* Frees the encoder and its tables, when all texts have been encoded. */
void speaker_encodes_no_more(struct speaker *s);

/* Makes room for `room` tokens, no more than the model sees, and reads the parameters. Up to about `read` tokens will be read at once.
 * Likewise. */
int speaker_open(struct speaker *s, const sample_opts *opts, int64_t room, int64_t read);
void speaker_close(struct speaker *s);

/* The text is now that of `ids`, of which there are 1 to `room`. False: no memory. */
bool speaker_become(struct speaker *s, const struct token_ids *ids);

/* Runs what has not been run, then chooses and adds up to `most` tokens. Bytes of tokens are put, but for stop texts. `opens`: they begin a
 * text, rather than go on with one. */
speaker_ending speaker_write(struct speaker *s, int64_t most, bool opens, stops_put_fn put, void *ctx);

/* "90 tokens written behind 12 in 1 s; read at 300 tokens/s; written at 96.0 tokens/s" on stderr. */
void speaker_tell(const struct speaker *s);

#endif
