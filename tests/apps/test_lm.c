/* tests/apps/test_lm.c: graphs of language models of each family, beside the same in double. */
#include "apps/common/model/lm.h"
#include "tests/apps/shell.h"
#include "tests/support/lm_case.h"
#include "tests/support/lm_reference.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

TestSuite(lm, .init = shell_begin, .fini = folder_remove, .timeout = 300);

enum { STEPS = 14, CHUNK = 5, VOCAB_MAX = 256 };

static const int32_t text[STEPS + CHUNK] = {3, 17, 5, 5, 30, 1, 22, 9, 28, 14, 2, 31, 11, 6, 29, 29, 29, 29, 29};
static float got[VOCAB_MAX];
static double wanted[STEPS * VOCAB_MAX];

static void expect_row(const char *name, const char *program, int position, int vocab)
{
    for (int i = 0; i < vocab; i++)
        cr_assert_float_eq(got[i], wanted[position * vocab + i], 1e-5, "%s: %s at %d, token %d: %g, not %g", name, program, position, i,
                           (double)got[i], wanted[position * vocab + i]);
}

/* Rows `from` on of the text in chunks, each with all of its rows once. */
static int run_chunks(struct lm_run *r, const char *name, int from)
{
    for (; from + CHUNK <= STEPS; from += CHUNK - 1) {
        for (int last = 0; last < CHUNK; last++) {
            lm_run_prompt(r, text + from, from, last, got);
            expect_row(name, "prompt", from + last, r->c.vocab);
        }
        cr_assert_eq(lm_keep(r->session, &r->c, from, CHUNK - 1), WEIR_OK, "%s", weir_error());
    }
    return from;
}

static void expect_families(int tp, bool loaded)
{
    for (int i = 0; i < lm_case_count; i++) {
        const struct lm_case *of = &lm_cases[i];
        struct lm_run r = {.tp = tp, .loaded = loaded};
        lm_run_open(&r, lm_case_make(of), CHUNK);
        lm_reference(&of->c, text, STEPS, wanted);
        for (int at = 0; at < STEPS; at++) {
            lm_run_token(&r, text[at], at, got);
            expect_row(of->name, "main", at, r.c.vocab);
        }
        for (int first = 0; first < 3; first++) { /* tokens by main, chunks, and tokens by main again */
            for (int at = 0; at < first; at++)
                lm_run_token(&r, text[at], at, got);
            for (int at = run_chunks(&r, of->name, first); at < STEPS; at++) {
                lm_run_token(&r, text[at], at, got);
                expect_row(of->name, "main after prompt", at, r.c.vocab);
            }
        }
        lm_run_close(&r);
    }
}

Test(lm, each_family_gives_the_logits_of_the_model_in_double)
{
    expect_families(1, false);
}

Test(lm, devices_that_share_a_model_give_its_logits)
{
    expect_families(2, false);
    expect_families(3, false);
}

Test(lm, a_model_that_is_loaded_gives_its_logits)
{
    expect_families(1, true);
}

/* Writes a safetensors file of F32 anew, with data that begins at an odd byte; `wide`: as F64. */
static void rewrite(const char *path, bool wide)
{
    static char from[1 << 16], to[1 << 17];
    FILE *file = fopen(path, "r+b");
    cr_assert(file);
    const size_t bytes = fread(from, 1, sizeof from - 1, file);
    uint64_t head;
    memcpy(&head, from, sizeof head);
    size_t at = sizeof head;
    for (size_t i = sizeof head; i < sizeof head + head;) {
        unsigned long begin, end;
        int used = 0;
        if (wide && sscanf(from + i, "\"data_offsets\":[%lu,%lu]%n", &begin, &end, &used) == 2 && used) {
            at += (size_t)sprintf(to + at, "\"data_offsets\":[%lu,%lu]", 2 * begin, 2 * end);
            i += (size_t)used;
        } else {
            to[at++] = from[i++];
            if (wide && !strncmp(to + at - 4, "\"F32", 4))
                memcpy(to + at - 2, "64", 2);
        }
    }
    if (at % 2 == 0)
        to[at++] = ' ';
    const uint64_t longer = at - sizeof longer;
    memcpy(to, &longer, sizeof longer);
    for (size_t i = sizeof head + head; i < bytes; i += sizeof(float)) {
        float value;
        memcpy(&value, from + i, sizeof value);
        const double widened = (double)value;
        memcpy(to + at, wide ? (void *)&widened : (void *)&value, wide ? sizeof widened : sizeof value);
        at += wide ? sizeof widened : sizeof value;
    }
    rewind(file);
    cr_assert(fwrite(to, 1, at, file) == at && !fclose(file));
}

Test(lm, matrices_that_cannot_be_mapped_are_loaded)
{
    for (int wide = 0; wide < 2; wide++) {
        const struct lm_case *of = lm_case_named("llama");
        struct lm_run r = {0};
        const char *path = lm_case_make(of);
        rewrite(folder_path("%s/model.safetensors", of->name), wide);
        lm_run_open(&r, path, 0);
        cr_expect_null(lm_mapped(&r.c));
        lm_reference(&of->c, text, STEPS, wanted);
        for (int at = 0; at < STEPS; at++) {
            lm_run_token(&r, text[at], at, got);
            expect_row(of->name, wide ? "F64" : "odd", at, r.c.vocab);
        }
        lm_run_close(&r);
    }
}

Test(lm, what_was_read_is_what_the_file_says)
{
    for (int i = 0; i < lm_case_count; i++) {
        lm_config c;
        char why[1024] = "";
        cr_assert(lm_read(lm_case_make(&lm_cases[i]), &c, why, sizeof why), "%s", why);
        cr_expect_eq(c.room, 16);
        cr_expect_str_eq(c.prefix, lm_cases[i].c.prefix);
        cr_expect_eq(lm_is_end(&c, 2), !strcmp(lm_cases[i].name, "llama") || !strcmp(lm_cases[i].name, "qwen3"));
        cr_expect_eq(lm_is_end(&c, 7), !strcmp(lm_cases[i].name, "qwen3"));
        cr_expect_eq(c.begin, strcmp(lm_cases[i].name, "llama") ? -1 : 1);
    }
}

Test(lm, only_rows_that_are_there_are_kept)
{
    struct lm_run r = {0};
    lm_run_open(&r, lm_case_make(lm_case_named("qwen2")), CHUNK);
    cr_expect_eq(lm_keep(r.session, &r.c, 0, CHUNK + 1), WEIR_E_ARGUMENT);
    cr_expect_eq(lm_keep(r.session, &r.c, 14, 3), WEIR_E_ARGUMENT);
    cr_expect_eq(lm_keep(r.session, &r.c, -1, 1), WEIR_E_ARGUMENT);
    lm_run_close(&r);
}

/* ---- training ---- */

enum { ROWS = 2, COLUMNS = 6 };

static double reference_loss(const lm_config *c, const int32_t *tokens, const int32_t *labels, double *count)
{
    double sum = 0;
    *count = 0;
    for (int row = 0; row < ROWS; row++) {
        lm_reference(c, tokens + row * COLUMNS, COLUMNS, wanted);
        for (int i = 0; i < COLUMNS; i++) {
            const double *logits = wanted + i * c->vocab;
            double all = 0;
            for (int t = 0; t < c->vocab; t++)
                all += exp(logits[t]);
            if (labels[row * COLUMNS + i] != LM_IGNORED)
                ++*count, sum += log(all) - logits[labels[row * COLUMNS + i]];
        }
    }
    return sum;
}

static double train_step(weir_session *s, const int32_t *tokens, const int32_t *labels, int rows, int columns, double *count)
{
    const weir_array in = {(void *)tokens, WEIR_I32, {2, {rows, columns}}}, want = {(void *)labels, WEIR_I32, {2, {rows, columns}}};
    float loss = 0, counted = 0;
    weir_array sum = {&loss, WEIR_F32, {.rank = 0}}, number = {&counted, WEIR_F32, {.rank = 0}};
    cr_assert_eq(weir_session_start(s, 1), WEIR_OK, "%s", weir_error());
    cr_assert_eq(weir_session_push(s, "tokens", &in, 60000), WEIR_OK, "%s", weir_error());
    cr_assert_eq(weir_session_push(s, "labels", &want, 60000), WEIR_OK, "%s", weir_error());
    cr_assert_eq(weir_session_pull(s, "loss", &sum, 60000), WEIR_OK, "%s", weir_error());
    cr_assert_eq(weir_session_pull(s, "count", &number, 60000), WEIR_OK, "%s", weir_error());
    cr_assert_eq(weir_session_wait(s, 60000), WEIR_OK, "%s", weir_error());
    *count = (double)counted;
    return (double)loss;
}

static weir_session *open_training(const lm_config *c, const lm_training *t, weir_dtype precision, weir_plan **plan)
{
    weir_graph *g = lm_train_graph(c, t);
    *plan = weir_compile(g, .micro_batches = layout_full(t->layout).micro, .precision = precision);
    cr_assert(*plan, "%s", weir_error());
    weir_graph_free(g);
    weir_session *s = weir_session_open(*plan, .workers = 1, .cluster = {.alone = true});
    cr_assert(s, "%s", weir_error());
    cr_assert_eq(lm_load(s, c), WEIR_OK, "%s", weir_error());
    return s;
}

Test(lm, training_starts_at_the_loss_of_the_model_in_double)
{
    int32_t labels[ROWS * COLUMNS];
    for (int i = 0; i < ROWS * COLUMNS; i++)
        labels[i] = i < 2 || i == 7 ? LM_IGNORED : text[(i + 5) % STEPS];
    for (int i = 0; i < lm_case_count; i++) {
        const struct lm_case *of = &lm_cases[i];
        const lm_training t = {.batch = ROWS, .seq = COLUMNS, .optimizer = weir_sgd(.lr = 0.01)};
        char why[1024] = "";
        lm_config c;
        weir_plan *plan;
        double count, first_count;
        cr_assert(lm_read(lm_case_make(of), &c, why, sizeof why), "%s", why);
        weir_session *s = open_training(&c, &t, WEIR_F32, &plan);
        const double sum = reference_loss(&of->c, text, labels, &count), first = train_step(s, text, labels, ROWS, COLUMNS, &first_count);
        cr_expect_eq(first_count, count);
        cr_expect_float_eq(first / count, sum / count, 1e-4, "%s: %g, not %g", of->name, first / count, sum / count);
        double second = train_step(s, text, labels, ROWS, COLUMNS, &first_count);
        cr_expect_lt(second, first, "%s", of->name);
        weir_session_close(s);
        weir_plan_free(plan);
    }
}

/* Losses of some steps in a layout; rows of all micro-batches are pushed one after the other. */
static void losses_of(const lm_config *c, layout l, weir_dtype precision, const int32_t *labels, double loss[3])
{
    const lm_training t = {.batch = ROWS, .seq = COLUMNS, .layout = l, .optimizer = weir_sgd(.lr = 0.05)};
    weir_plan *plan;
    weir_session *s = open_training(c, &t, precision, &plan);
    for (int step = 0; step < 3; step++) {
        double count;
        loss[step] = train_step(s, text, labels, ROWS, COLUMNS, &count) / count;
    }
    weir_session_close(s);
    weir_plan_free(plan);
}

Test(lm, every_layout_trains_alike)
{
    static const char *const names[] = {"llama", "qwen3", "gpt2", "qwen2.gguf"};
    static const layout layouts[] = {{.dp = 2}, {.tp = 2}, {.pp = 2}, {.dp = 2, .pp = 2, .zero = true}};
    int32_t labels[ROWS * COLUMNS];
    for (int i = 0; i < ROWS * COLUMNS; i++)
        labels[i] = i == 3 ? LM_IGNORED : text[(i + 1) % STEPS];
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        double alone[3], apart[3];
        char why[1024] = "";
        lm_config c;
        cr_assert(lm_read(lm_case_make(lm_case_named(names[i])), &c, why, sizeof why), "%s", why);
        losses_of(&c, (layout){0}, WEIR_F32, labels, alone);
        for (size_t l = 0; l < sizeof layouts / sizeof *layouts; l++) {
            losses_of(&c, layouts[l], WEIR_F32, labels, apart);
            for (int step = 0; step < 3; step++)
                cr_expect_float_eq(apart[step], alone[step], 1e-5, "%s, layout %zu, step %d: %g, not %g", names[i], l, step,
                                   apart[step], alone[step]);
        }
    }
}

Test(lm, half_precision_trains_nearly_alike)
{
    int32_t labels[ROWS * COLUMNS];
    for (int i = 0; i < ROWS * COLUMNS; i++)
        labels[i] = text[(i + 1) % STEPS];
    for (int i = 0; i < lm_case_count; i++) {
        double whole[3], half[3];
        char why[1024] = "";
        lm_config c;
        cr_assert(lm_read(lm_case_make(&lm_cases[i]), &c, why, sizeof why), "%s", why);
        losses_of(&c, (layout){0}, WEIR_F32, labels, whole);
        losses_of(&c, (layout){0}, WEIR_BF16, labels, half);
        for (int step = 0; step < 3; step++)
            cr_expect_float_eq(half[step], whole[step], 0.05, "%s, step %d: %g, not %g", lm_cases[i].name, step, half[step], whole[step]);
    }
}

/* Adds a trained bias of zeros to each product that it is asked for, and counts these. */
static weir_tensor *add_bias(void *ctx, weir_tensor *x, weir_tensor *base, const lm_product *of)
{
    char name[LM_NAME_BYTES];
    ++*(int *)ctx;
    cr_assert(of->block < 2 && (of->block >= 0) == (of->part >= LM_BLOCK_PARTS) && weir_tensor_graph(x) == weir_tensor_graph(base));
    snprintf(name, sizeof name, "%s.added", of->name);
    const weir_type type = weir_tensor_type(base);
    return weir_add(base, weir_param(weir_tensor_graph(x), WEIR_F32, {type.shape.dim[type.shape.rank - 1]}, .name = name));
}

Test(lm, an_adapter_trains_beside_frozen_parameters)
{
    const struct lm_case *of = lm_case_named("llama");
    int32_t labels[ROWS * COLUMNS];
    int asked = 0;
    float before[8 * 8], after[8 * 8], added[8];
    char why[1024] = "";
    double count, first;
    lm_config c;
    weir_plan *plan;
    for (int i = 0; i < ROWS * COLUMNS; i++)
        labels[i] = text[(i + 1) % STEPS];
    cr_assert(lm_read(lm_case_make(of), &c, why, sizeof why), "%s", why);
    c.adapt = add_bias, c.adapt_ctx = &asked;
    const lm_training t = {.batch = ROWS, .seq = COLUMNS, .frozen = true, .optimizer = weir_sgd(.lr = 0.05)};
    weir_session *s = open_training(&c, &t, WEIR_F32, &plan);
    weir_array value = {before, WEIR_F32, {2, {8, 8}}}, later = {after, WEIR_F32, {2, {8, 8}}}, bias = {added, WEIR_F32, {1, {8}}};
    cr_expect_eq(asked, 2 * 7 + 1);
    cr_assert_eq(weir_session_read(s, "model.layers.1.self_attn.q_proj.weight", &value), WEIR_OK, "%s", weir_error());
    first = train_step(s, text, labels, ROWS, COLUMNS, &count);
    cr_expect_float_eq(first, reference_loss(&of->c, text, labels, &count), 1e-4);
    cr_expect_lt(train_step(s, text, labels, ROWS, COLUMNS, &count), first);
    cr_assert_eq(weir_session_read(s, "model.layers.1.self_attn.q_proj.weight", &later), WEIR_OK, "%s", weir_error());
    cr_assert_eq(weir_session_read(s, "model.layers.1.self_attn.q_proj.added", &bias), WEIR_OK, "%s", weir_error());
    cr_expect(!memcmp(before, after, sizeof before));
    cr_expect_neq(added[0], 0);
    weir_session_close(s);
    weir_plan_free(plan);
}
