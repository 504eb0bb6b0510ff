/* tests/graph/compile/test_limit.c: a limit is kept, costs time and no bit, and where it cannot be kept the smallest
 * that can is told.
 *
 * Every model is compiled on a ladder of limits, from the smallest, which is taken out of the sentence that refuses 1
 * byte, to what it needs without one; each plan must keep within its limit on every device and compute the bits of the
 * unlimited plan.
 */
#include "graph/plan/form/plan.h"
#include "tests/support/effort.h"
#include "tests/support/learner.h"
#include "tests/support/random_model.h"
#include "tests/support/reference.h"
#include "tests/support/run.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LADDER = EFFORT(FULL(3, 2), 1, 1), MODELS = EFFORT(FULL(8, 6), 3, 3), STEPS = 3 };

/* graph/compile/memory/parts.h and limit.h, which know a type named as the functions here. */
extern int parts_max, parts_max_hasty, limit_grid;
extern void (*limit_heard)(double counted, uint64_t bytes);

typedef weir_plan *(*compile_fn)(const void *model, const char *limit);

static uint64_t largest(const weir_plan *plan)
{
    uint64_t most = 0;
    for (uint32_t s = 0; s < plan->spaces_count; s++)
        most = plan->spaces[s].bytes > most ? plan->spaces[s].bytes : most;
    return most;
}

static weir_plan *within(compile_fn compile, const void *model, uint64_t bytes)
{
    char limit[32];
    snprintf(limit, sizeof limit, "%llu", (unsigned long long)bytes);
    return compile(model, limit);
}

/* The smallest limit, as the refusal of 1 byte tells it. */
static uint64_t smallest(compile_fn compile, const void *model)
{
    static const char words[] = "The smallest limit that would do is ";
    weir_plan *plan = within(compile, model, 1);
    cr_assert_null(plan, "a plan in one byte");
    const char *said = strstr(weir_error(), words);
    cr_assert_not_null(said, "%s", weir_error());
    cr_expect_not_null(strstr(weir_error(), "parameters "), "%s", weir_error());
    char *end;
    uint64_t bytes = strtoull(said + strlen(words), &end, 10);
    cr_assert_eq(strncmp(end, " B.", 3), 0, "%s", said);
    return bytes;
}

/* Repetitions in the plan, of the op, or (NULL) of any. */
static int repeated(const weir_plan *plan, const char *op)
{
    int count = 0;
    for (uint32_t k = 0; k < plan->kernels_count; k++) {
        const char *name = plan_text(plan, plan->kernels[k].name);
        size_t length = strlen(name);
        count += length > 6 && !strcmp(name + length - 6, ".again") &&
                 (!op || !strcmp(op, plan_text(plan, plan->kernels[k].op)));
    }
    return count;
}

/* Limit `at` of LADDER, from the smallest up. */
static uint64_t limit_at(uint64_t least, uint64_t most, int at)
{
    return least + (most - least) * (uint64_t)at / LADDER;
}

/* What was given up is told when something was, and of what was not, nothing. */
static void tells(const weir_plan *plan, uint64_t bytes, bool whole)
{
    char said[160], again[32];
    cr_expect_eq(weir_plan_limited(plan, said, sizeof said), !whole);
    cr_expect_eq(plan->limits_count, !whole);
    if (whole)
        return;
    snprintf(again, sizeof again, ": %d kernel", (int)plan->limits->again);
    cr_expect_leq((int)plan->limits->again, repeated(plan, NULL), "an author may repeat, too");
    cr_expect_not_null(strstr(said, again), "%s, not %s", said, again);
    cr_expect_eq(plan->limits->bytes, bytes);
    cr_expect_gt(plan->limits->whole, bytes);
    cr_expect_geq(plan->limits->longer, 0);
}

/* A plan within the limit, which is kept. */
static weir_plan *kept(compile_fn compile, const void *model, uint64_t bytes)
{
    weir_plan *plan = within(compile, model, bytes);
    cr_assert_not_null(plan, "%s", weir_error());
    cr_expect_leq(largest(plan), bytes);
    cr_expect_eq(plan_validate(plan), WEIR_OK, "%s", weir_error());
    tells(plan, bytes, !plan->limits_count || bytes >= plan->limits->whole);
    return plan;
}

/* ---- a model with everything that lives from step to step, in every layout ---- */

static weir_plan *compile_learner(const void *model, const char *limit)
{
    struct learner_opts opts = *(const struct learner_opts *)model;
    opts.compile.memory = limit;
    return learner_plan_at(opts);
}

static struct learned learn(const weir_plan *plan)
{
    weir_session *s = weir_session_open(plan);
    cr_assert_not_null(s, "%s", weir_error());
    cr_assert_eq(weir_session_run(s, STEPS), WEIR_OK, "%s", weir_error());
    weir_session_stats stats;
    weir_session_get_stats(s, &stats);
    cr_expect_eq(stats.arena_bytes, stats.planned_bytes);
    struct learned now = learned_read(s);
    cr_assert_geq(now.count, 0, "%s", weir_error());
    weir_session_close(s);
    return now;
}

static void learns_the_same(const struct learner_opts *opts, int *repetitions)
{
    weir_plan *loose = compile_learner(opts, NULL);
    cr_assert_not_null(loose, "%s", weir_error());
    struct learned want = learn(loose);
    uint64_t most = largest(loose), least = smallest(compile_learner, opts);
    cr_expect_leq(least, most);
    for (int at = 0; at <= LADDER; at++) {
        weir_plan *plan = kept(compile_learner, opts, limit_at(least, most, at));
        struct learned got = learn(plan);
        const char *differs = learned_differs(&got, &want, 0);
        cr_expect_null(differs, "dp%d tp%d pp%d zero %d micro %d at %d: %s", opts->dp, opts->tp, opts->pp, opts->zero,
                       opts->micro, at, differs);
        *repetitions += repeated(plan, NULL);
        learned_free(&got);
        weir_plan_free(plan);
    }
    learned_free(&want);
    weir_plan_free(loose);
}

Test(limit, what_is_learned_is_the_same_in_every_layout, .timeout = 120)
{
    int repetitions = 0;
    for (int l = 0; l < LEARNER_LAYOUTS; l++)
        learns_the_same(&learner_layouts[l], &repetitions);
    cr_expect_gt(repetitions, 0, "nothing was computed again");
}

/* With masters in f32 and the copies of them that are read, and in f16 the scale of the loss. */
Test(limit, what_is_learned_in_half_is_the_same, .timeout = 120)
{
    static const struct learner_opts layouts[] = {{.dp = 1}, {.dp = 2, .zero = true, .micro = 3},
                                                  {.pp = 2, .dp = 2, .zero = true, .micro = 2}};
    int repetitions = 0;
    for (int precision = WEIR_F16; precision <= WEIR_BF16; precision++)
        for (size_t l = 0; l < sizeof layouts / sizeof *layouts; l++) {
            struct learner_opts opts = layouts[l];
            opts.compile.precision = (weir_dtype)precision;
            learns_the_same(&opts, &repetitions);
        }
    cr_expect_gt(repetitions, 0, "nothing was computed again");
}

/* ---- random models, with meshes that overlap, inputs that are pushed and values that are pulled ---- */

typedef struct drawn {
    uint64_t model, layout;
} drawn;

static weir_plan *compile_random(const void *model, const char *limit)
{
    const drawn *d = model;
    weir_graph *g = random_model(d->model, d->layout);
    weir_plan *plan = weir_compile(g, .micro_batches = random_model_micro(d->model), .seed = d->model, .memory = limit);
    weir_graph_free(g);
    return plan;
}

Test(limit, random_models_compute_the_same, .timeout = 120)
{
    int repetitions = 0;
    for (uint64_t seed = 1; seed <= MODELS; seed++) {
        drawn d = {seed, seed % 5};
        weir_plan *loose = compile_random(&d, NULL);
        run want = run_plan(loose, STEPS, 2);
        uint64_t least = smallest(compile_random, &d);
        for (int at = 0; at < LADDER; at++) {
            weir_plan *plan = kept(compile_random, &d, limit_at(least, largest(loose), at));
            run got = run_plan(plan, STEPS, 2);
            char what[64];
            snprintf(what, sizeof what, "model %d, limit %d", (int)seed, at);
            run_near(&got, &want, 0, what);
            repetitions += (int)plan->limits->again;
            run_free(&got);
            weir_plan_free(plan);
        }
        run_free(&want);
        weir_plan_free(loose);
    }
    cr_expect_gt(repetitions, 0, "nothing was computed again");
}

/* ---- GPT ---- */

typedef struct gpt_model {
    gpt_config config;
    weir_dtype precision;
} gpt_model;

static weir_plan *compile_gpt(const void *model, const char *limit)
{
    const gpt_model *gpt = model;
    weir_graph *g = gpt_train_graph(&gpt->config);
    weir_plan *plan = weir_compile(g, .micro_batches = gpt->config.layout.micro, .seed = REFERENCE_SEED,
                                   .precision = gpt->precision, .memory = limit);
    weir_graph_free(g);
    return plan;
}

typedef struct losses {
    float value[STEPS * 4];
} losses;

static losses train(const weir_plan *plan, int micro)
{
    losses out = {{0}};
    weir_session *s = weir_session_open(plan);
    cr_assert_not_null(s, "%s", weir_error());
    cr_assert_eq(weir_session_start(s, STEPS), WEIR_OK, "%s", weir_error());
    for (int i = 0; i < STEPS * micro; i++) {
        weir_array one = {.data = &out.value[i], .dtype = WEIR_F32};
        cr_assert_eq(weir_session_pull(s, "loss", &one, 20000), WEIR_OK, "%s", weir_error());
    }
    cr_assert_eq(weir_session_wait(s, 20000), WEIR_OK, "%s", weir_error());
    weir_session_close(s);
    return out;
}

static void gpt_loses_the_same(layout l, weir_dtype precision)
{
    text corpus = reference_text();
    gpt_model gpt = {reference_gpt(&corpus, REFERENCE_FULL), precision};
    gpt.config.layout = l;
    weir_plan *loose = compile_gpt(&gpt, NULL);
    cr_assert_not_null(loose, "%s", weir_error());
    losses want = train(loose, l.micro);
    uint64_t least = smallest(compile_gpt, &gpt);
    cr_expect_lt(least, largest(loose));
    for (int at = 0; at <= LADDER; at++) {
        weir_plan *plan = kept(compile_gpt, &gpt, limit_at(least, largest(loose), at));
        losses got = train(plan, l.micro);
        cr_expect_arr_eq(got.value, want.value, sizeof want.value);
        cr_expect(at == LADDER ? plan->hash == loose->hash : plan->hash != loose->hash);
        cr_expect_eq(plan->limits_count, at < LADDER);
        weir_plan_free(plan);
    }
    weir_plan_free(loose);
    text_free(&corpus);
}

#define GPT_IN(precision, d, t, p, m, z)                                                      \
    Test(limit, gpt_##precision##_dp##d##_tp##t##_pp##p##_micro##m##_zero_##z, .timeout = 120) \
    {                                                                                         \
        gpt_loses_the_same((layout){d, t, p, m, z}, WEIR_##precision);                        \
    }
GPT_IN(F32, 1, 1, 1, 1, false)
GPT_IN(F32, 2, 1, 1, 2, false)
GPT_IN(F32, 4, 1, 1, 1, true)
GPT_IN(F32, 1, 2, 1, 1, false)
GPT_IN(F32, 1, 1, 2, 4, false)
GPT_IN(F32, 2, 1, 2, 4, true)
GPT_IN(BF16, 2, 1, 2, 4, true)
#if EFFORT(1, 1, 0) /* in half the same actors run as in f32 */
GPT_IN(BF16, 1, 1, 1, 1, false)
GPT_IN(F16, 2, 1, 1, 2, false)
GPT_IN(F16, 1, 2, 1, 1, false)
#endif
#if EFFORT(FULL(1, 0), 1, 0)
GPT_IN(BF16, 2, 1, 1, 2, false)
GPT_IN(BF16, 4, 1, 1, 1, true)
GPT_IN(F16, 1, 1, 1, 1, false)
GPT_IN(F16, 4, 1, 1, 1, true)
#endif

/* Bytes of registers that gathered weights lie in. */
static uint64_t gathered_bytes(const weir_plan *plan)
{
    uint64_t bytes = 0;
    for (uint32_t r = 0; r < plan->regsts_count; r++) {
        const plan_regst *regst = &plan->regsts[r];
        const char *name = regst->tensors.count ? plan_text(plan, plan->tensors[regst->tensors.first].name) : "";
        if (strstr(name, "weight>") && strstr(name, ">B,B"))
            bytes += regst->slots * regst->slot_bytes;
    }
    return bytes;
}

/* A weight that is split is gathered for forward and kept for the backward phase; where memory is short it is gathered
 * by each actor that reads it, for as long as that does. */
static void gathers_again(weir_dtype precision)
{
    text corpus = reference_text();
    gpt_model gpt = {reference_gpt(&corpus, REFERENCE_FULL), precision};
    gpt.config.layout = (layout){2, 1, 1, 1, true};
    weir_plan *loose = compile_gpt(&gpt, NULL), *plan = kept(compile_gpt, &gpt, largest(loose) * 3 / 4);
    cr_expect_eq(repeated(loose, "box"), 0);
    cr_expect_gt(repeated(plan, "box"), 0);
    cr_expect_lt(gathered_bytes(plan), gathered_bytes(loose) / 2);
    losses want = train(loose, 1), got = train(plan, 1);
    cr_expect_arr_eq(got.value, want.value, sizeof want.value);
    weir_plan_free(plan);
    weir_plan_free(loose);
    text_free(&corpus);
}

Test(limit, what_zero_has_split_is_gathered_again_rather_than_kept, .timeout = 60)
{
    gathers_again(WEIR_F32);
    gathers_again(WEIR_BF16);
}

/* Weights are much more than activations; with all gradients at once no plan would be as small. */
Test(limit, gradients_are_given_back_before_the_backward_phase_is_over, .timeout = 60)
{
    text corpus = reference_text();
    gpt_model gpt = {{.layers = 6, .dim = 512, .heads = 8, .seq = 16, .batch = 4, .corpus = &corpus,
                      .layout = {2, 1, 1, 1, true}, .optimizer = weir_sgd()}, WEIR_F32};
    weir_plan *plan = within(compile_gpt, &gpt, smallest(compile_gpt, &gpt));
    cr_assert_not_null(plan, "%s", weir_error());
    uint64_t bytes[PLAN_MEMS];
    plan_bytes_by_kind(plan, (plan_space_id){0}, bytes);
    cr_expect_lt(largest(plan), bytes[PLAN_PARAMETER] + bytes[PLAN_TRANSFER] + bytes[PLAN_GRADIENT] / 2);
    weir_plan_free(plan);
    text_free(&corpus);
}

/* ---- what is given up first ---- */

/* Blocks of linear layers around what is cheap to compute again; activations are much more than weights. */
static weir_graph *blocks(int count)
{
    weir_graph *g = weir_graph_new("blocks");
    weir_tensor *x = weir_input(g, WEIR_F32, {1024, 64}, .name = "x", .micro = true);
    for (int b = 0; b < count; b++) {
        weir_tensor *h = weir_linear(weir_layernorm(x), 256);
        x = weir_add(x, weir_linear(weir_dropout(weir_gelu(h), 0.1), 64));
    }
    weir_tensor *loss = weir_mean(weir_mul(x, x), .name = "loss");
    weir_train(loss, weir_sgd());
    weir_fetch(loss, .name = "loss");
    return g;
}

static weir_plan *compile_blocks(const void *model, const char *limit)
{
    weir_graph *g = blocks(*(const int *)model);
    weir_plan *plan = weir_compile(g, .memory = limit);
    weir_graph_free(g);
    return plan;
}

Test(limit, what_is_cheap_is_computed_again_first, .timeout = 120)
{
    const int count = 6;
    weir_plan *loose = compile_blocks(&count, NULL);
    weir_plan *little = kept(compile_blocks, &count, largest(loose) - 1);
    weir_plan *least = kept(compile_blocks, &count, smallest(compile_blocks, &count));
    cr_expect_eq(repeated(loose, NULL), 0);
    cr_expect(little->limits_count && little->limits->again + little->limits->slots > 0);
    cr_expect_eq(repeated(little, "linear"), 0, "a product, for one byte");
    cr_expect_gt(repeated(least, "linear"), 0, "what is costly is given up at the end");
    cr_expect_gt(repeated(least, "dropout"), 0);
    run want = run_plan(loose, STEPS, 1), got = run_plan(least, STEPS, 1);
    run_near(&got, &want, 0, "the same elements are dropped again");
    run_free(&want);
    run_free(&got);
    weir_plan_free(loose);
    weir_plan_free(little);
    weir_plan_free(least);
}

/* Of n blocks about the square root of n are alive at once: the rest begins at what was kept between them. */
Test(limit, activations_grow_slower_than_the_depth, .timeout = 120)
{
    uint64_t bytes[2];
    for (int i = 0; i < 2; i++) {
        const int count = i ? 32 : 8;
        weir_plan *plan = kept(compile_blocks, &count, smallest(compile_blocks, &count));
        bytes[i] = largest(plan);
        weir_plan_free(plan);
    }
    cr_expect_gt(bytes[1], bytes[0]);
    cr_expect_lt(bytes[1], 3 * bytes[0], "%lu and %lu bytes for 8 and 32 blocks", (long)bytes[0], (long)bytes[1]);
}

static weir_plan *compile_chain(const void *model, const char *limit)
{
    weir_graph *g = weir_graph_new("chain");
    weir_tensor *x = weir_input(g, WEIR_F32, {256, 64}, .name = "x"), *w = weir_param(g, WEIR_F32, {64, 64}, .name = "w");
    for (int i = 0; i < *(const int *)model; i++)
        x = weir_tanh(weir_matmul(x, w));
    weir_tensor *loss = weir_mean(weir_mul(x, x), .name = "loss");
    weir_train(loss, weir_sgd());
    weir_fetch(loss, .name = "loss");
    weir_plan *plan = weir_compile(g, .memory = limit);
    weir_graph_free(g);
    return plan;
}

/* All layers cost as much, so nothing but their places says which are to be kept. */
Test(limit, of_equal_layers_some_are_kept_at_equal_distances, .timeout = 120)
{
    for (int count = 16; count <= EFFORT(FULL(256, 128), 64, 64); count *= 2) {
        weir_plan *loose = compile_chain(&count, NULL), *least = kept(compile_chain, &count, smallest(compile_chain, &count));
        double root = sqrt(count), each = 256 * 64 * 4;
        cr_expect_leq((double)largest(least), each * (2.25 * root + 6), "%ld bytes, %d layers", (long)largest(least), count);
        cr_expect(count < 128 || largest(least) <= largest(loose) / 4);
        cr_expect_leq(repeated(least, "tanh"), count, "more than one more forward pass");
        cr_expect_leq(repeated(least, "matmul"), count);
        weir_plan_free(loose);
        weir_plan_free(least);
    }
}

/* The smallest limit when every part is placed by itself, however many there are, and so many rungs are tried. */
static uint64_t smallest_exactly(compile_fn compile, const void *model, int rungs)
{
    int most = parts_max, hasty = parts_max_hasty, grid = limit_grid;
    parts_max = parts_max_hasty = INT32_MAX;
    limit_grid = rungs;
    uint64_t bytes = smallest(compile, model);
    parts_max = most;
    parts_max_hasty = hasty;
    limit_grid = grid;
    return bytes;
}

static void model_is_near(compile_fn compile, const void *model, int number, int rungs)
{
    uint64_t told = smallest(compile, model), exact = smallest_exactly(compile, model, rungs);
    cr_expect_leq(told, exact + exact / 20, "%d: %ld bytes, and %ld when parts are placed one by one, of %d rungs", number,
                  (long)told, (long)exact, rungs);
}

static void smallest_is_near(compile_fn compile, int layers, int rungs)
{
    model_is_near(compile, &layers, layers, rungs);
}

/* All rungs are tried of models that are small enough. */
Test(limit, the_smallest_is_near_that_of_all_rungs, .timeout = 300)
{
    for (int count = 4; count <= EFFORT(FULL(16, 8), 8, 8); count *= 2)
        smallest_is_near(compile_blocks, count, INT32_MAX);
    for (int count = 10; count <= EFFORT(FULL(160, 40), 40, 40); count *= 4)
        smallest_is_near(compile_chain, count, INT32_MAX);
}

/* A layer has three products, one of which is made again. */
static void says_how_much_longer(const void *model, int products, uint64_t bytes)
{
    weir_plan *plan = kept(compile_blocks, model, bytes);
    double again = repeated(plan, "linear") / 3.0 / products, longer = plan->limits->longer;
    cr_expect(longer > 0.7 * again && longer < 1.4 * again + 0.1, "within %ld bytes: %.3f longer, of the products %.3f are made again",
              (long)bytes, longer, again);
    weir_plan_free(plan);
}

Test(limit, a_plan_says_how_much_longer_a_step_takes, .timeout = 120)
{
    for (int count = 4; count <= EFFORT(16, 4, 4); count *= 4) {
        weir_plan *loose = compile_blocks(&count, NULL);
        uint64_t most = largest(loose), least = smallest(compile_blocks, &count);
        for (int at = 0; at < LADDER; at++)
            says_how_much_longer(&count, 2 * count, limit_at(least, most, at));
        weir_plan_free(loose);
    }
}

/* ---- the ladder's count and the layout ---- */

enum { HEARD_MAX = 4096 };
static struct heard {
    double counted, bytes;
} heard[HEARD_MAX];
static int heard_count;

static void hear(double counted, uint64_t bytes)
{
    if (counted > 0 && heard_count < HEARD_MAX)
        heard[heard_count++] = (struct heard){counted, (double)bytes};
}

/* `tensor`: bytes of the largest, of which one more may be there when parts are packed. */
static void ladder_is_near(compile_fn compile, int layers, double tensor)
{
    int grid = limit_grid;
    heard_count = 0;
    limit_grid = INT32_MAX;
    limit_heard = hear;
    smallest(compile, &layers);
    limit_heard = NULL;
    limit_grid = grid;
    cr_assert_gt(heard_count, 2, "of %d layers", layers);
    struct heard whole = {.counted = 0};
    for (int i = 0; i < heard_count; i++)
        whole = heard[i].counted > whole.counted ? heard[i] : whole;
    for (int i = 0; i < heard_count; i++) {
        double all = heard[i].counted + whole.bytes - whole.counted; /* with what the ladder does not count */
        cr_expect(heard[i].bytes < 1.05 * all + tensor && heard[i].bytes > 0.95 * all, "%d layers: %.0f bytes, counted were %.0f", layers,
                  heard[i].bytes, all);
    }
}

/* No rung changes what the ladder leaves out; and it knows nothing of how parts are packed. */
Test(limit, the_layout_of_a_rung_takes_what_the_ladder_counts, .timeout = 300)
{
    for (int layers = 4; layers <= EFFORT(FULL(32, 16), 8, 8); layers *= 2)
        ladder_is_near(compile_blocks, layers, 4 * 1024 * 64 * sizeof(float));
    for (int layers = 16; layers <= EFFORT(FULL(256, 64), 32, 32); layers *= 2)
        ladder_is_near(compile_chain, layers, 256 * 64 * sizeof(float));
}

Test(limit, the_smallest_of_layouts_is_near_that_of_all_rungs, .timeout = 300)
{
    static const layout layouts[] = {{1, 1, 1, 1, false}, {2, 1, 1, 2, false}, {1, 2, 1, 2, false}, {2, 1, 1, 2, true},
                                     {1, 1, 2, 4, false}, {2, 1, 2, 2, true},  {2, 2, 2, 2, false}};
    text corpus = reference_text();
    for (int i = 0; i < EFFORT(FULL(7, 5), 3, 3); i++) {
        gpt_model gpt = {reference_gpt(&corpus, REFERENCE_FULL), WEIR_F32};
        gpt.config.layout = layouts[i];
        model_is_near(compile_gpt, &gpt, i, INT32_MAX);
    }
    text_free(&corpus);
}

Test(limit, the_smallest_is_near_that_of_parts_that_are_placed_one_by_one, .timeout = 300)
{
    for (int count = 4; count <= EFFORT(FULL(256, 64), 32, 32); count *= 4)
        smallest_is_near(compile_blocks, count, limit_grid);
    for (int count = 10; count <= EFFORT(FULL(640, 160), 40, 40); count *= 4)
        smallest_is_near(compile_chain, count, limit_grid);
}

Test(limit, one_byte_less_than_the_smallest_is_refused, .timeout = 120)
{
    const int count = 4;
    uint64_t least = smallest(compile_blocks, &count);
    cr_expect_null(within(compile_blocks, &count, least - 1));
    cr_expect_not_null(strstr(weir_error(), ", 1 B more than the limit of "), "%s", weir_error());
    cr_expect_eq(smallest(compile_blocks, &count), least);
}
