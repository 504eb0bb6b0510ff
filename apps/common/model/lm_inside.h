/* apps/common/model/lm_inside.h: what the files of lm.h share.
 *
 * A reader of one kind of file fills an lm_config in; lm_check() then holds it against the tensors. Each function that returns false
 * has left a sentence in `why`.
 */
#ifndef APPS_COMMON_MODEL_LM_INSIDE_H
#define APPS_COMMON_MODEL_LM_INSIDE_H

#include "apps/common/model/lm.h"

#include <jansson.h>

enum { LM_SIZE_MAX = 1 << 24 }; /* of every size and token */

/* Where sentences go. */
struct lm_why {
    const char *path; /* the file that is read */
    char *text;
    size_t bytes;
};
bool lm_wrong(const struct lm_why *why, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Rows of the table of names. */
enum { LM_NAMES_LLAMA, LM_NAMES_GPT2, LM_NAMES_GGUF };

bool lm_read_folder(const char *folder, lm_config *c, struct lm_why *why);
bool lm_read_config(lm_config *c, const struct lm_why *why); /* of why->path, a config.json */
bool lm_read_gguf(const char *path, lm_config *c, struct lm_why *why);

/* Compares c->weights with the config: every tensor is there in its shape, and none besides. Finds c->prefix. */
bool lm_check(lm_config *c, weir_checkpoint *file, const struct lm_why *why);

/* The divisor that Llama 3's scaling has for the frequency of pair i (Dubey et al. 2024). */
double lm_rope_divisor(const lm_config *c, const weir_rope_scaling *s, int i);

/* Whether a parameter may stay in the file: a matrix [out, in] of a type that products read. */
bool lm_stays(const lm_config *c, lm_part part, int block, bool bias);

/* Whether sizes fit each other. */
bool lm_sizes_fit(const lm_config *c, const struct lm_why *why);

bool lm_ends_with(const char *text, const char *end);

/* ---- members of a config.json ----
 *
 * A member that is missing or null has the default. One of another kind or range leaves a sentence, and `wrong` is true from then on:
 * a reader takes all members, and looks at `wrong` at the end. */
struct lm_members {
    const json_t *json; /* borrowed */
    const struct lm_why *why;
    bool wrong;
};
enum { LM_NEEDED = -2 }; /* a default: the member must be there */

/* The object of a file of at most 256 KiB. NULL and a sentence. Freed with json_decref(). */
json_t *lm_json_read(const struct lm_why *why);

int lm_int(struct lm_members *m, const char *key, int least, int otherwise);
double lm_real(struct lm_members *m, const char *key, double otherwise); /* above 0; `otherwise` 0: it must be there */
bool lm_flag(struct lm_members *m, const char *key, bool otherwise);
const char *lm_text(struct lm_members *m, const char *key, const char *otherwise);
const json_t *lm_object(struct lm_members *m, const char *key); /* NULL: there is none */
const json_t *lm_list(struct lm_members *m, const char *key);   /* NULL: there is none */
/* Leaves a sentence with the value of the member and what is supported. */
void lm_refuse(struct lm_members *m, const char *key, const char *supported);

#endif
