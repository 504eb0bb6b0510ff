/* apps/common/model/sampler.h: which token comes next, by what a model says of each.
 *
 *     logits -- repetition penalty -- top-k -- top-p -- min-p -- temperature --> one is drawn
 *
 *     struct sampler *s = sampler_new(&(sampler_opts){.temperature = 0.8, .top_k = 40, .seed = 1}, vocab);
 *     sampler_saw(s, id);                        // of the prompt, one after the other
 *     int32_t next = sampler_choose(s, logits);  // then sampler_saw(s, next)
 *
 * The steps and their order are llama.cpp's, and so the cuts look at the model's own probabilities, before the temperature:
 *
 *     repeat_penalty   the logits of the last SAMPLER_SEEN ids, the prompt's too, are divided by it if they are positive, and multiplied by
 *                      it if not; once each (Keskar et al. 2019)
 *     top_k            the k likeliest stay; of equal ones those with the lower id
 *     top_p            of these the fewest that together have at least p of their probability (Holtzman et al. 2020)
 *     min_p            those stay that are at least min_p times as likely as the likeliest
 *     temperature      logits are divided by it; 0: the likeliest, of equal ones that with the lowest id
 *
 * The random number of a draw is Philox's for the seed and the count of ids seen (weir_random_uniform), so neither other texts nor the
 * order in which they are written change what is drawn.
 *
 * No step sorts the vocabulary: top_k keeps a heap of k, and sorts that. top_p without it selects from the candidates that a histogram of
 * the probability finds.
 *
 * One thread at a time.
 */
#ifndef APPS_COMMON_MODEL_SAMPLER_H
#define APPS_COMMON_MODEL_SAMPLER_H

#include <stdint.h>

enum { SAMPLER_SEEN = 64 };

typedef struct sampler_opts {
    double temperature;    /* 0: always the likeliest */
    int top_k;             /* 0: all */
    double top_p;          /* (0, 1]; 0 is 1, for all */
    double min_p;          /* [0, 1]; 0: all */
    double repeat_penalty; /* above 0; 0 is 1, for none */
    uint64_t seed;
} sampler_opts;

struct sampler;

/* `vocab` ids, 1 or more. Copies the options. NULL: no memory. */
struct sampler *sampler_new(const sampler_opts *opts, int vocab);
void sampler_free(struct sampler *s); /* may be NULL */

/* A new text begins. */
void sampler_begin(struct sampler *s);
/* The id is the next one of the text. */
void sampler_saw(struct sampler *s, int32_t id);

/* logits [vocab], which the repetition penalty changes. -1: one of them is NaN or +infinity, or all are -infinity. */
int32_t sampler_choose(struct sampler *s, float *logits);

#endif
