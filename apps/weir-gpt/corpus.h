/* apps/weir-gpt/corpus.h: what a model is trained and evaluated on: text as bytes or as tokens of a tokenizer, or files of token ids.
 *
 *     int status = corpus_open(&corpus, &opts, &config, &spec);      // -1, or an exit status that has been reported
 *     ... a seed is known ...
 *     status = corpus_seed(&corpus, &opts, &config, seed);
 *     ... train ...
 *     corpus_close(&corpus);
 *
 * Without a file to evaluate on, the last tenth is held out, which training then does not see. A text that is too short for
 * both is only trained on. One thread.
 */
#ifndef APPS_WEIR_GPT_CORPUS_H
#define APPS_WEIR_GPT_CORPUS_H

#include "apps/common/model/gpt.h"
#include "apps/common/options.h"
#include "apps/common/tokens/tokenizer.h"

#define CORPUS_VOCAB 50257 /* of GPT-2, whose ids token files have unless --vocab says another number */

typedef struct corpus_opts {
    options_list files;   /* of text; none: the project's own sources, if there are no tokens either */
    options_list tokens;  /* files of token ids, or patterns */
    const char *validate; /* NULL: the last tenth is held out */
    int eval_every;
    int vocab;            /* 0: CORPUS_VOCAB */
    const struct tokenizer *tokenizer; /* borrowed; texts become its tokens. NULL: bytes */
} corpus_opts;

typedef struct corpus {
    text train, held_out;               /* owned, as what follows */
    weir_data *tokens, *tokens_held_out;
    struct encoded {                    /* the tokens of texts, as files in memory */
        int fd;
        char path[32];                  /* "": there is none */
        int files;
        uint64_t bytes;                 /* of text */
    } encoded, encoded_held_out;
} corpus;

/* Opens the files, and sets what `config` has of them; `corpus` is to be closed also after a failure. Returns -1, or the exit
 * status of what was reported. */
int corpus_open(corpus *to, const corpus_opts *opts, gpt_config *config, const options_spec *spec);

/* The order of what is trained on follows from the seed, which a checkpoint may give after the files were opened. */
int corpus_seed(corpus *corpus, const corpus_opts *opts, gpt_config *config, uint64_t seed);

/* For evaluation alone: what opts->validate names, as text. */
int corpus_open_text(corpus *to, const corpus_opts *opts, gpt_config *config);
void corpus_close(corpus *corpus);

/* Whether there is something to evaluate on. */
bool corpus_judges(const corpus *corpus);

/* "3 files, 6.2 MiB of text, 709.1 KiB held out", to stderr. */
void corpus_tell(const corpus *corpus);

#endif
