/* test_precision.c: what .precision changes of a plan, and what it leaves alone: masters, sums and what goes outside
 * stay f32; a weight is cast once a step, and gathered in half; what the user casts himself stays as he said; a
 * checkpoint loads in any precision; and a step of f16 that overflows changes nothing.
 */
#include "graph/plan/form/plan.h"
#include "tests/support/folder.h"
#include "tests/support/learner.h"
#include "tests/support/proven.h"
#include "tests/support/reference.h"
#include "tests/support/run.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- looking at plans ---- */

static weir_plan *gpt_plan(const text *corpus, gpt_config *config, layout l, weir_dtype precision)
{
    *config = reference_gpt(corpus, REFERENCE_FULL);
    config->layout = l;
    weir_graph *g = gpt_train_graph(config);
    weir_plan *plan = weir_compile(g, .micro_batches = l.micro, .seed = REFERENCE_SEED, .precision = precision);
    cr_assert_not_null(plan, "%s", weir_error());
    weir_graph_free(g);
    return plan;
}

static weir_dtype operand_dtype(const weir_plan *plan, plan_range operands, uint32_t i)
{
    return (weir_dtype)plan->tensors[plan->operands[operands.first + i].tensor.i].dtype;
}

static bool is_op(const weir_plan *plan, const plan_kernel *k, const char *op)
{
    return !strcmp(plan_text(plan, k->op), op);
}

/* Kernels of the op; `halves`: those whose first input is half. */
static int count_ops(const weir_plan *plan, const char *op, int *halves)
{
    int count = 0;
    *halves = 0;
    for (uint32_t k = 0; k < plan->kernels_count; k++)
        if (is_op(plan, &plan->kernels[k], op)) {
            count++;
            *halves += weir_dtype_bytes(operand_dtype(plan, plan->kernels[k].in, 0)) == 2;
        }
    return count;
}

static void expect_all_half(const weir_plan *plan, const char *op)
{
    int halves, count = count_ops(plan, op, &halves);
    cr_expect_gt(count, 0, "%s", op);
    cr_expect_eq(halves, count, "%s: %d of %d are half", op, halves, count);
}

static void expect_none_half(const weir_plan *plan, const char *op)
{
    int halves;
    cr_expect_gt(count_ops(plan, op, &halves), 0, "%s", op);
    cr_expect_eq(halves, 0, "%s: %d are half", op, halves);
}

/* Tensors with this name, of this dtype. */
static int count_tensors(const weir_plan *plan, const char *name, weir_dtype dtype)
{
    int count = 0;
    for (uint32_t t = 0; t < plan->tensors_count; t++)
        count += plan->tensors[t].dtype == (uint32_t)dtype && !strcmp(plan_text(plan, plan->tensors[t].name), name);
    return count;
}

Test(precision, products_are_half_and_updates_and_statistics_are_not, .timeout = 120)
{
    text corpus = reference_text();
    gpt_config config;
    weir_plan *plan = gpt_plan(&corpus, &config, (layout){1, 1, 1, 4, false}, WEIR_BF16);
    static const char *const half[] = {"linear", "linear_dw", "linear_db", "gelu", "layernorm", "attention"};
    static const char *const full[] = {"square_sum", "adamw"};
    for (size_t i = 0; i < sizeof half / sizeof *half; i++)
        expect_all_half(plan, half[i]);
    for (size_t i = 0; i < sizeof full / sizeof *full; i++)
        expect_none_half(plan, full[i]);
    for (uint32_t p = 0; p < plan->params_count; p++)
        cr_expect_eq(weir_dtype_bytes((weir_dtype)plan->tensors[plan->shards[plan->params[p].shards.first].i].dtype), 4, "%s",
                     plan_text(plan, plan->params[p].name));
    weir_plan_free(plan);
    text_free(&corpus);
}

Test(precision, show_tells_how_many_kernels_are_half, .timeout = 120)
{
    text corpus = reference_text();
    static const weir_dtype precisions[] = {WEIR_F32, WEIR_BF16, WEIR_F16};
    for (size_t i = 0; i < sizeof precisions / sizeof *precisions; i++) {
        gpt_config config;
        weir_plan *plan = gpt_plan(&corpus, &config, (layout){1, 1, 1, 1, false}, precisions[i]);
        char *shown = NULL;
        size_t bytes;
        FILE *to = open_memstream(&shown, &bytes);
        cr_assert_eq(weir_plan_show(plan, to), WEIR_OK);
        fclose(to);
        cr_expect_eq(strstr(shown, " of them in bf16") != NULL, precisions[i] == WEIR_BF16, "%s", shown);
        cr_expect_eq(strstr(shown, " of them in f16") != NULL, precisions[i] == WEIR_F16, "%s", shown);
        free(shown);
        weir_plan_free(plan);
    }
    text_free(&corpus);
}

/* The actor that makes the copy fires once, however many micro-batches there are. */
Test(precision, a_weight_is_cast_once_a_step, .timeout = 120)
{
    text corpus = reference_text();
    gpt_config config;
    weir_plan *plan = gpt_plan(&corpus, &config, (layout){1, 1, 1, 4, false}, WEIR_BF16);
    int casts = 0;
    for (uint32_t k = 0; k < plan->kernels_count; k++) {
        const plan_kernel *kernel = &plan->kernels[k];
        if (!is_op(plan, kernel, "cast") || !strstr(plan_text(plan, kernel->name), "weight"))
            continue;
        cr_expect_eq(plan->actors[kernel->actor.i].fires, 1);
        cr_expect_eq(operand_dtype(plan, kernel->in, 0), WEIR_F32);
        cr_expect_eq(operand_dtype(plan, kernel->out, 0), WEIR_BF16);
        casts++;
    }
    cr_expect_eq(casts, 6 * config.layers + 1);
    weir_plan_free(plan);
    text_free(&corpus);
}

Test(precision, copies_of_parameters_are_told_from_activations, .timeout = 120)
{
    text corpus = reference_text();
    for (int half = 0; half < 2; half++) {
        gpt_config config;
        weir_plan *plan = gpt_plan(&corpus, &config, (layout){1, 1, 1, 4, false}, half ? WEIR_BF16 : WEIR_F32);
        uint64_t bytes[PLAN_MEMS], want = 0;
        for (uint32_t t = 0; t < plan->tensors_count; t++)
            if (strstr(plan_text(plan, plan->tensors[t].name), "weight>bf16") ||
                !strcmp(plan_text(plan, plan->tensors[t].name), "wpe>bf16"))
                want += plan_tensor_bytes(&plan->tensors[t]);
        plan_bytes_by_kind(plan, (plan_space_id){0}, bytes);
        cr_expect_eq(bytes[PLAN_COPY], want, "%lu bytes, not %lu", bytes[PLAN_COPY], want);
        cr_expect_eq(want > 0, half);
        weir_plan_free(plan);
    }
    text_free(&corpus);
}

Test(precision, under_zero_half_the_bytes_are_gathered, .timeout = 120)
{
    text corpus = reference_text();
    gpt_config config;
    weir_plan *plan = gpt_plan(&corpus, &config, (layout){2, 1, 1, 1, true}, WEIR_BF16);
    cr_expect_eq(count_tensors(plan, "h0/q/weight>bf16>B,B", WEIR_BF16), 2);
    cr_expect_eq(count_tensors(plan, "h0/q/weight>B,B", WEIR_F32), 0);
    cr_expect_eq(count_tensors(plan, "wte/weight>bf16>B,B", WEIR_BF16), 2);
    weir_plan_free(plan);
    text_free(&corpus);
}

/* In every layout the terms that a conversion adds are f32. */
Test(precision, terms_are_f32, .timeout = 60)
{
    static const layout layouts[] = {{2, 1, 1, 2, false}, {1, 4, 1, 1, false}, {2, 2, 2, 2, true}};
    text corpus = reference_text();
    for (size_t l = 0; l < sizeof layouts / sizeof *layouts; l++) {
        gpt_config config;
        weir_plan *plan = gpt_plan(&corpus, &config, layouts[l], WEIR_BF16);
        int sums = 0;
        for (uint32_t k = 0; k < plan->kernels_count; k++) {
            const plan_kernel *kernel = &plan->kernels[k];
            if (!is_op(plan, kernel, "box") || plan->words[kernel->attrs.first].i < 2)
                continue;
            sums++;
            cr_expect_eq(operand_dtype(plan, kernel->in, 0), WEIR_F32, "%s", plan_text(plan, kernel->name));
        }
        cr_expect_gt(sums, 0);
        weir_plan_free(plan);
    }
    text_free(&corpus);
}

/* ---- what the user says ---- */

static weir_tensor *weight(weir_graph *g, const char *name, int64_t in, int64_t out)
{
    return weir_param(g, WEIR_F32, {in, out}, .name = name, .init = WEIR_NORMAL(0.5));
}

Test(precision, a_product_of_what_is_cast_to_f32_is_f32_and_so_is_its_gradient, .timeout = 120)
{
    weir_graph *g = weir_graph_new("kept");
    weir_tensor *x = weir_input(g, WEIR_F32, {4, 8}, .name = "x");
    weir_tensor *h = weir_linear(x, 8, .name = "half");
    weir_tensor *y = weir_linear(weir_cast(h, WEIR_F32), 8, .name = "full", .no_bias = true);
    weir_train(weir_mean(weir_mul(y, y)), weir_sgd());
    weir_plan *plan = weir_compile(g, .precision = WEIR_BF16);
    cr_assert_not_null(plan, "%s", weir_error());
    for (uint32_t k = 0; k < plan->kernels_count; k++) {
        const char *name = plan_text(plan, plan->kernels[k].name);
        if (!strcmp(name, "half") || !strcmp(name, "half.grad/linear_dw"))
            cr_expect_eq(operand_dtype(plan, plan->kernels[k].in, 0), WEIR_BF16, "%s", name);
        if (!strcmp(name, "full") || !strncmp(name, "full.grad/", 10))
            cr_expect_eq(operand_dtype(plan, plan->kernels[k].in, 0), WEIR_F32, "%s", name);
    }
    weir_plan_free(plan);
    weir_graph_free(g);
}

/* Attention that is written out: its weights are factors of a product. */
static weir_tensor *written_out(weir_graph *g)
{
    weir_tensor *x = weir_input(g, WEIR_F32, {4, 8}, .name = "x");
    weir_tensor *q = weir_linear(x, 8, .name = "q"), *k = weir_linear(x, 8, .name = "k");
    weir_tensor *p = weir_softmax(weir_affine(weir_matmul(q, k, .trans_b = true), 0.5), .name = "p");
    return weir_matmul(weir_affine(p, 2), weir_linear(x, 8, .name = "v"));
}

Test(precision, weights_of_attention_are_half_and_chances_are_not, .timeout = 120)
{
    for (int chances = 0; chances < 2; chances++) {
        weir_graph *g = weir_graph_new("softmax");
        weir_tensor *y = written_out(g);
        y = chances ? weir_neg(weir_log(weir_softmax(y, .name = "chances"))) : weir_mul(y, y);
        weir_train(weir_mean(y), weir_sgd());
        weir_plan *plan = weir_compile(g, .precision = WEIR_BF16);
        cr_assert_not_null(plan, "%s", weir_error());
        int halves, grads, all = count_ops(plan, "softmax", &halves);
        cr_expect_eq(all, 1 + chances);
        cr_expect_eq(halves, 1);
        cr_expect_eq(count_ops(plan, "softmax_grad", &grads), all);
        cr_expect_eq(grads, 1);
        weir_plan_free(plan);
        weir_graph_free(g);
    }
}

/* Where nothing wants half, a look-up makes none, and rows by themselves do not. */
Test(precision, a_table_is_read_in_f32_for_what_is_computed_in_f32, .timeout = 120)
{
    for (int by_row = 0; by_row < 2; by_row++) {
        weir_graph *g = weir_graph_new("table");
        weir_tensor *x = weir_embedding(weir_input(g, WEIR_I32, {1, 4}, .name = "ids"), 10, 8, .name = "table");
        weir_fetch(weir_linear(weir_layernorm(x), 8, .name = "y", .by_row = by_row), .name = "y");
        weir_plan *plan = weir_compile(g, .precision = WEIR_BF16);
        cr_assert_not_null(plan, "%s", weir_error());
        if (by_row)
            expect_none_half(plan, "layernorm");
        else
            expect_all_half(plan, "layernorm");
        cr_expect_eq(count_tensors(plan, "table", by_row ? WEIR_F32 : WEIR_BF16), 1);
        int halves;
        cr_expect_eq(count_ops(plan, "cast", &halves), !by_row, "of the weight of a product alone");
        weir_plan_free(plan);
        weir_graph_free(g);
    }
}

/* A layer that is computed in half by casts in the graph, and its weights after a step. */
static weir_graph *by_hand(bool half)
{
    weir_graph *g = weir_graph_new("by_hand");
    weir_tensor *x = weir_input(g, WEIR_F32, {16, 8}, .name = "x");
    weir_tensor *w = weight(g, "w", 8, 8), *v = weight(g, "v", 8, 4);
    x = half ? weir_cast(x, WEIR_BF16) : x;
    weir_tensor *h = weir_gelu(weir_matmul(x, half ? weir_cast(w, WEIR_BF16) : w));
    weir_tensor *y = weir_matmul(h, half ? weir_cast(v, WEIR_BF16) : v);
    weir_tensor *back = half ? weir_cast(y, WEIR_F32) : y;
    weir_train(weir_mean(weir_mul(back, back)), weir_sgd(.lr = 0.5));
    return g;
}

static void read_weights(weir_graph *g, float w[64])
{
    weir_plan *plan = weir_compile(g);
    cr_assert_not_null(plan, "%s", weir_error());
    weir_session *s = weir_session_open(plan);
    float x[16 * 8];
    for (int i = 0; i < 16 * 8; i++)
        x[i] = (float)sin(i);
    cr_assert_eq(weir_session_start(s, 1), WEIR_OK);
    cr_assert_eq(weir_session_push(s, "x", &(weir_array){x, WEIR_F32, {2, {16, 8}}}, 5000), WEIR_OK);
    cr_assert_eq(weir_session_wait(s, 5000), WEIR_OK, "%s", weir_error());
    cr_assert_eq(weir_session_read(s, "w", &(weir_array){w, WEIR_F32, {2, {8, 8}}}), WEIR_OK, "%s", weir_error());
    weir_session_close(s);
    weir_plan_free(plan);
    weir_graph_free(g);
}

Test(precision, gradients_flow_through_casts_by_hand, .timeout = 120)
{
    float full[64], half[64], none[64];
    read_weights(by_hand(false), full);
    read_weights(by_hand(true), half);
    weir_graph *g = by_hand(false);
    weir_plan *plan = weir_compile(g);
    weir_session *s = weir_session_open(plan);
    cr_assert_eq(weir_session_read(s, "w", &(weir_array){none, WEIR_F32, {2, {8, 8}}}), WEIR_OK);
    weir_session_close(s);
    weir_plan_free(plan);
    weir_graph_free(g);
    double moved = 0, differs = 0;
    for (int i = 0; i < 64; i++) {
        moved += pow((double)full[i] - (double)none[i], 2);
        differs += pow((double)full[i] - (double)half[i], 2);
    }
    cr_expect_gt(moved, 0);
    cr_expect_lt(sqrt(differs), 0.03 * sqrt(moved));
    cr_expect_gt(differs, 0);
}

Test(precision, what_is_fetched_is_of_the_dtype_of_the_graph, .timeout = 120)
{
    weir_graph *g = weir_graph_new("fetched");
    weir_tensor *x = weir_input(g, WEIR_F32, {4, 8}, .name = "x");
    weir_tensor *y = weir_linear(x, 8, .name = "y", .init = WEIR_NORMAL(1));
    weir_fetch(y, .name = "y");
    weir_state_set(weir_state(g, WEIR_F32, {4, 8}, .name = "last"), y);
    weir_plan *plan = weir_compile(g, .precision = WEIR_BF16);
    cr_assert_not_null(plan, "%s", weir_error());
    expect_all_half(plan, "linear");
    run r = run_plan(plan, 2, 1);
    const run_entry *e = run_find(&r, "y");
    cr_assert_not_null(e);
    cr_expect_neq(e->value[0], 0);
    run_free(&r);
    weir_plan_free(plan);
    weir_graph_free(g);
}

Test(precision, of_integers_is_refused, .timeout = 120)
{
    weir_graph *g = weir_graph_new("integers");
    weir_fetch(weir_neg(weir_input(g, WEIR_F32, {4}, .name = "x")), .name = "y");
    cr_expect_null(weir_compile(g, .precision = WEIR_I32));
    cr_expect(strstr(weir_error(), "test_precision.c:"), "%s", weir_error());
    cr_expect(strstr(weir_error(), "a precision of i32; f32, bf16 and f16 can be"), "%s", weir_error());
    weir_graph_free(g);
}

/* ---- checkpoints ---- */

static struct learned learned_after(weir_dtype precision, const char *load, int steps, const char *save)
{
    weir_plan *plan = learner_plan(.dp = 2, .zero = true, .compile = {.precision = precision});
    cr_assert_not_null(plan, "%s", weir_error());
    weir_session *s = weir_session_open(plan);
    cr_assert_not_null(s, "%s", weir_error());
    if (load)
        cr_assert_eq(weir_session_load(s, load), WEIR_OK, "%s", weir_error());
    if (steps)
        cr_assert_eq(weir_session_run(s, steps), WEIR_OK, "%s", weir_error());
    if (save)
        cr_assert_eq(weir_session_save(s, save), WEIR_OK, "%s", weir_error());
    struct learned learned = learned_read(s);
    cr_assert_gt(learned.count, 20, "%s", weir_error());
    weir_session_close(s);
    weir_plan_free(plan);
    return learned;
}

/* Whether everything that `one` has is in the other with the same bits. */
static void expect_has(const struct learned *other, const struct learned *one)
{
    for (int i = 0; i < one->count; i++) {
        const struct learned_value *a = &one->of[i], *b = learned_find(other, a->name);
        if (strstr(a->name, "loss_scale") || strstr(a->name, PLAN_SKIPPED))
            continue;
        cr_assert_not_null(b, "%s", a->name);
        cr_expect_arr_eq(a->value, b->value, (size_t)a->count * sizeof *a->value, "%s", a->name);
    }
}

static void there_and_back(weir_dtype precision)
{
    struct learned first = learned_after(WEIR_F32, NULL, 2, folder_path("full"));
    struct learned loaded = learned_after(precision, folder_path("full"), 0, NULL);
    struct learned second = learned_after(precision, folder_path("full"), 2, folder_path("half"));
    struct learned back = learned_after(WEIR_F32, folder_path("half"), 0, NULL);
    expect_has(&loaded, &first);
    expect_has(&back, &second);
    learned_free(&first);
    learned_free(&loaded);
    learned_free(&second);
    learned_free(&back);
}

Test(precision, a_checkpoint_of_f32_loads_in_bf16_and_back, .timeout = 120, .init = folder_make, .fini = folder_remove)
{
    there_and_back(WEIR_BF16);
}

Test(precision, a_checkpoint_of_f32_loads_in_f16_and_back, .timeout = 120, .init = folder_make, .fini = folder_remove)
{
    there_and_back(WEIR_F16);
}

/* ---- the scale of the loss ---- */

static float scale_of(const struct learned *learned)
{
    const struct learned_value *scale = learned_find(learned, "grad_seed:loss_scale");
    cr_assert_not_null(scale);
    return scale->value[0];
}

static struct learned scaled(struct learner_opts o, double scale, int good_steps, int steps)
{
    o.compile = (weir_compile_opts){.precision = WEIR_F16, .loss_scale = scale, .loss_scale_steps = good_steps};
    weir_plan *plan = learner_plan_at(o);
    cr_assert_not_null(plan, "%s", weir_error());
    weir_session *s = weir_session_open(plan);
    if (steps)
        cr_assert_eq(weir_session_run(s, steps), WEIR_OK, "%s", weir_error());
    struct learned learned = learned_read(s);
    weir_session_close(s);
    weir_plan_free(plan);
    return learned;
}

/* With so large a scale the gradient of the logits is infinite. */
static void expect_skipped(struct learner_opts o)
{
    struct learned before = scaled(o, 0x1p24, 10, 0), after = scaled(o, 0x1p24, 10, 1);
    struct learned later = scaled(o, 0x1p24, 10, 9);
    expect_has(&after, &before);
    cr_expect_eq(scale_of(&after), 0x1p23f, "%g", (double)scale_of(&after));
    cr_expect_lt(scale_of(&later), 0x1p23f);
    const struct learned_value *was = learned_find(&before, "h1/head/weight");
    const struct learned_value *is = learned_find(&later, "h1/head/weight");
    cr_expect(memcmp(was->value, is->value, (size_t)was->count * sizeof *was->value) != 0);
    for (int i = 0; i < later.count; i++)
        for (int64_t k = 0; k < later.of[i].count; k++)
            cr_assert(isfinite(later.of[i].value[k]), "%s", later.of[i].name);
    learned_free(&before);
    learned_free(&after);
    learned_free(&later);
}

Test(precision, a_step_that_overflows_changes_nothing_and_halves_the_scale, .timeout = 60)
{
    expect_skipped((struct learner_opts){.dp = 1});
    expect_skipped((struct learner_opts){.dp = 1, .plain = true}); /* no clipping: the sum is the pass's own */
    expect_skipped((struct learner_opts){.dp = 2, .tp = 2, .pp = 2, .micro = 2, .zero = true});
    expect_skipped((struct learner_opts){.dp = 2, .pp = 2, .plain = true});
}

/* ---- AdamW behind steps that were left out ---- */

enum { WIDTH = 8 };

/* A parameter whose gradient is 1, but in step 0: there it is infinite. */
static weir_status draw_gradient(void *ctx, const weir_view *dst, int64_t step, int micro)
{
    float *to = dst->data;
    (void)ctx, (void)micro;
    for (int64_t i = 0; i < weir_shape_count(&dst->shape); i++)
        to[i] = step ? 1 : INFINITY;
    return WEIR_OK;
}

/* m / c1 over sqrt(v / c2) is 1 in the first step that is not left out, and in those after it, if gradients are 1. */
static void expect_first_step(double clip_norm)
{
    weir_graph *g = weir_graph_new("left_out");
    weir_tensor *x = weir_input(g, WEIR_F32, {WIDTH}, .name = "x", .source = draw_gradient);
    weir_tensor *w = weir_param(g, WEIR_F32, {WIDTH}, .name = "w");
    const double rate = 0.125;
    weir_train(weir_sum(weir_mul(x, w)), weir_adamw(.lr = rate, .clip_norm = clip_norm));
    weir_plan *plan = weir_compile(g, .precision = WEIR_F16);
    cr_assert_not_null(plan, "%s", weir_error());
    weir_session *s = weir_session_open(plan);
    for (int step = 0; step < 4; step++) {
        float value[WIDTH];
        cr_assert_eq(weir_session_run(s, 1), WEIR_OK, "%s", weir_error());
        cr_assert_eq(weir_session_read(s, "w", &(weir_array){value, WEIR_F32, {1, {WIDTH}}}), WEIR_OK);
        for (int i = 0; i < WIDTH; i++)
            cr_expect_float_eq((double)value[i], -rate * step, 1e-5, "%g after %d steps", (double)value[i], step + 1);
    }
    weir_session_close(s);
    weir_plan_free(plan);
    weir_graph_free(g);
}

Test(precision, a_step_left_out_is_none_of_adamw_s, .timeout = 120)
{
    expect_first_step(0);
    expect_first_step(10);
}

Test(precision, the_scale_doubles_after_good_steps, .timeout = 120)
{
    static const float want[] = {8, 8, 8, 16, 16, 16, 32};
    for (int steps = 0; steps < 7; steps++) {
        struct learned learned = scaled((struct learner_opts){.dp = 2}, 8, 3, steps);
        cr_expect_eq(scale_of(&learned), want[steps], "after %d steps: %g", steps, (double)scale_of(&learned));
        learned_free(&learned);
    }
}

/* Scales are powers of two, and nothing is too small for f16 here: what is learned does not depend on them. */
Test(precision, the_scale_changes_no_bit, .timeout = 120)
{
    struct learned one = scaled((struct learner_opts){.dp = 2, .sure = true}, 1024, 100, 4);
    struct learned other = scaled((struct learner_opts){.dp = 2, .sure = true}, 4096, 100, 4);
    expect_has(&other, &one);
    learned_free(&one);
    learned_free(&other);
}
