/* tests/support/lm_case.h: small models of each family as files, and sessions that run them. In a test with a folder
 * (tests/support/folder.h). */
#ifndef TESTS_SUPPORT_LM_CASE_H
#define TESTS_SUPPORT_LM_CASE_H

#include "apps/common/model/lm.h"

struct lm_case {
    const char *name;
    const char *json;        /* config.json; NULL: a GGUF file */
    const char *architecture; /* of that */
    lm_config c;             /* what has to be read from it */
};
extern const struct lm_case lm_cases[];
extern const int lm_case_count;
const struct lm_case *lm_case_named(const char *name);

/* Makes the folder or the file; the path is the test's folder and the case's name. */
const char *lm_case_make(const struct lm_case *of);

/* A GGUF file with a tokenizer of bytes and chats in ChatML; `without` is a key that is left out [none]. */
const char *lm_case_gguf(const struct lm_case *of, const char *without);

/* A session of a model that was read, whose matrices stay in the file, and are exact. Steps fail the test when they do not succeed. */
struct lm_run {
    int tp;      /* devices that share each matrix [1] */
    bool loaded; /* all parameters are loaded as f32 */
    lm_config c;
    weir_plan *plan;
    weir_session *session;
};
void lm_run_open(struct lm_run *r, const char *path, int chunk);
void lm_run_close(struct lm_run *r);
void lm_run_token(struct lm_run *r, int32_t token, int32_t position, float *logits);
void lm_run_prompt(struct lm_run *r, const int32_t *tokens, int32_t position, int32_t last, float *logits); /* keeps nothing */

#endif
