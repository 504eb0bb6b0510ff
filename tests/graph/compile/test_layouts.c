/* tests/graph/compile/test_layouts.c: the same GPT, trained in every layout, learns the same.
 *
 * One device is the reference, itself held against PyTorch in double precision over 20 steps. Every layout, with and
 * without .zero, with 1, 2 and 4 micro-batches, must give each of its losses within 1e-4 relative, and the same bits
 * when its first steps are run again, also with another number of workers. In bf16 and f16 each is within 1 % of one
 * device's in f32, and of the same bits with any number of workers. FULL=1 compares 20 losses, in every pair of .zero
 * and micro-batches; without it, 6 losses in two pairs of each layout, so that each pair has some layouts.
 */
#include "graph/plan/form/plan.h"
#include "tests/support/effort.h"
#include "tests/support/proven.h"
#include "tests/support/reference.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

/* Under a sanitizer it is the first steps of the same run. The rate warms up for 5 steps, and falls after those. */
enum { STEPS = EFFORT(FULL(REFERENCE_STEPS, 6), 2, 2) };
/* A second run is the first steps again: they use all that is kept from step to step. */
enum { STEPS_AGAIN = EFFORT(FULL(6, 3), 2, 2) };

typedef struct losses {
    float value[REFERENCE_STEPS];
} losses;

static weir_status run_steps(weir_session *s, int micro, int steps, losses *out)
{
    weir_status status = weir_session_start(s, steps);
    for (int step = 0; step < steps && !status; step++) {
        double sum = 0;
        for (int m = 0; m < micro && !status; m++) {
            float loss = 0;
            status = weir_session_pull(s, "loss", &(weir_array){.data = &loss, .dtype = WEIR_F32}, 20000);
            sum += loss;
        }
        out->value[step] = (float)(sum / micro);
    }
    return status ? status : weir_session_wait(s, 20000);
}

static losses train(const weir_plan *plan, int micro, int steps, int workers, bool poison)
{
    losses out = {{0}};
    weir_session *s = weir_session_open(plan, .workers = workers, .poison = poison);
    cr_assert_not_null(s, "%s", weir_error());
    cr_assert_eq(run_steps(s, micro, steps, &out), WEIR_OK, "%s", weir_error());
    weir_session_stats stats;
    weir_session_get_stats(s, &stats);
    cr_expect_eq(stats.arena_bytes, stats.planned_bytes);
    cr_assert_eq(weir_session_close(s), WEIR_OK);
    return out;
}

static weir_plan *plan_in(weir_dtype precision, const text *corpus, gpt_config *config, reference_kind kind, layout l)
{
    *config = reference_gpt(corpus, kind);
    config->layout = l;
    weir_graph *g = gpt_train_graph(config);
    cr_assert_not_null(g);
    weir_plan *plan = weir_compile(g, .micro_batches = l.micro, .seed = REFERENCE_SEED, .precision = precision);
    cr_assert_not_null(plan, "%s", weir_error());
    weir_graph_free(g);
    return plan;
}

static weir_plan *plan_for(const text *corpus, gpt_config *config, reference_kind kind, layout l)
{
    return plan_in(WEIR_F32, corpus, config, kind, l);
}

static losses single(const text *corpus, reference_kind kind, int steps)
{
    gpt_config config;
    weir_plan *plan = plan_for(corpus, &config, kind, (layout){1, 1, 1, 1, false});
    losses out = train(plan, 1, steps, 1, false);
    weir_plan_free(plan);
    return out;
}

static void expect_close(const losses *got, const losses *want, const layout *l, double tolerance)
{
    for (int i = 0; i < STEPS; i++)
        cr_expect_lt(fabs((double)got->value[i] - want->value[i]), tolerance * fabs((double)want->value[i]),
                     "dp%d tp%d pp%d micro %d zero %d: step %d: %.7f, one device %.7f", l->dp, l->tp, l->pp, l->micro,
                     l->zero, i, (double)got->value[i], (double)want->value[i]);
}

static void layout_agrees(weir_dtype precision, const text *corpus, const losses *one, layout l)
{
    gpt_config config;
    weir_plan *plan = plan_in(precision, corpus, &config, REFERENCE_FULL, l);
    losses first = train(plan, l.micro, STEPS, 0, false), again = train(plan, l.micro, STEPS_AGAIN, 1, true);
    expect_close(&first, one, &l, precision == WEIR_F32 ? 1e-4 : 1e-2);
    cr_expect_arr_eq(first.value, again.value, STEPS_AGAIN * sizeof *first.value,
                     "dp%d tp%d pp%d micro %d zero %d: other bits on one worker, poisoned", l.dp, l.tp, l.pp,
                     l.micro, l.zero);
    weir_plan_free(plan);
}

/* Whether a pair of .zero and micro-batches is left out of a layout: without FULL=1 each layout has two of the six. */
static bool left_out(const layout *l)
{
    const int which = EFFORT(l->dp + 2 * l->tp + 3 * l->pp, 0, 0);
    const int some = which / 2 % 2 ? 2 : 4; /* micro-batches, where there are several */
    return (l->micro > 1 && l->micro != some) || (l->zero == (l->micro > 1)) != which % 2;
}

static void all_agree(int dp, int tp, int pp)
{
    text corpus = reference_text();
    losses one = single(&corpus, REFERENCE_FULL, STEPS);
    for (int zero = 0; zero < 2; zero++)
        for (int micro = 1; micro <= 4; micro *= 2) {
            const layout l = {dp, tp, pp, micro, zero};
            if (EFFORT(FULL(true, false), false, false) || !left_out(&l))
                layout_agrees(WEIR_F32, &corpus, &one, l);
        }
    text_free(&corpus);
}

static void all_agree_in_half(int dp, int tp, int pp)
{
    text corpus = reference_text();
    losses one = single(&corpus, REFERENCE_FULL, STEPS);
    for (int zero = 0; zero < 2; zero++)
        layout_agrees(WEIR_BF16, &corpus, &one, (layout){dp, tp, pp, zero ? 1 : 4, zero});
    layout_agrees(WEIR_BF16, &corpus, &one, (layout){dp, tp, pp, 2, true});
    layout_agrees(WEIR_F16, &corpus, &one, (layout){dp, tp, pp, 2, true});
    text_free(&corpus);
}

#define LAYOUT(d, t, p)                                                           \
    Test(layouts, dp##d##_tp##t##_pp##p##_agrees_with_one_device, .timeout = 300) \
    {                                                                             \
        all_agree(d, t, p);                                                       \
    }
#define HALF(d, t, p)                                                     \
    Test(layouts, dp##d##_tp##t##_pp##p##_agrees_in_half, .timeout = 300) \
    {                                                                     \
        all_agree_in_half(d, t, p);                                       \
    }
LAYOUT(1, 1, 1)
LAYOUT(2, 1, 1)
LAYOUT(1, 2, 1)
LAYOUT(1, 1, 2)
LAYOUT(2, 2, 1)
LAYOUT(2, 1, 2)
LAYOUT(1, 2, 2)
LAYOUT(2, 2, 2)
HALF(2, 2, 2)
#if EFFORT(1, 1, 0) /* four of a kind meet as two do; in half the same actors run */
LAYOUT(4, 1, 1)
LAYOUT(1, 4, 1)
LAYOUT(1, 1, 4)
HALF(1, 1, 1)
HALF(2, 1, 1)
HALF(1, 2, 1)
HALF(1, 1, 2)
#endif
#if EFFORT(FULL(1, 0), 0, 0)
HALF(4, 1, 1)
HALF(1, 4, 1)
HALF(1, 1, 4)
HALF(2, 2, 1)
HALF(2, 1, 2)
HALF(1, 2, 2)
#endif

#if EFFORT(1, 0, 0)
/* Mean losses of `steps` steps, with a schedule of that length. */
static void long_run(weir_dtype precision, layout l, const text *corpus, int steps, float *loss)
{
    gpt_config config = reference_gpt(corpus, REFERENCE_FULL);
    config.layout = l;
    config.optimizer.warmup = steps / 10;
    config.optimizer.total = steps;
    weir_graph *g = gpt_train_graph(&config);
    weir_plan *plan = weir_compile(g, .micro_batches = l.micro, .seed = REFERENCE_SEED, .precision = precision);
    cr_assert_not_null(plan, "%s", weir_error());
    weir_graph_free(g);
    weir_session *s = weir_session_open(plan);
    cr_assert_not_null(s, "%s", weir_error());
    cr_assert_eq(weir_session_start(s, steps), WEIR_OK, "%s", weir_error());
    for (int i = 0; i < steps * l.micro; i++) {
        float value = 0;
        cr_assert_eq(weir_session_pull(s, "loss", &(weir_array){.data = &value, .dtype = WEIR_F32}, 20000), WEIR_OK);
        loss[i / l.micro] += value / (float)l.micro;
    }
    cr_assert_eq(weir_session_close(s), WEIR_OK);
    weir_plan_free(plan);
}

/* 200 steps, over which the loss falls to a fraction. */
Test(layouts, in_half_two_hundred_steps_are_those_of_f32, .timeout = 300)
{
    enum { LONG = 200 };
    static const struct {
        weir_dtype precision;
        layout l;
    } half[] = {{WEIR_BF16, {2, 2, 2, 2, true}}, {WEIR_F16, {2, 1, 1, 2, true}}, {WEIR_BF16, {1, 1, 1, 1, false}}};
    float want[LONG] = {0};
    text corpus = reference_text();
    long_run(WEIR_F32, (layout){1, 1, 1, 1, false}, &corpus, LONG, want);
    cr_expect_lt(want[LONG - 1], 0.25f * want[0]);
    for (int h = 0; h < FULL(3, 2); h++) {
        float got[LONG] = {0};
        long_run(half[h].precision, half[h].l, &corpus, LONG, got);
        for (int i = 0; i < LONG; i++)
            cr_expect_lt(fabs((double)got[i] - (double)want[i]), 1e-2 * fabs((double)want[i]),
                         "%s, dp%d: step %d: %.5f, in f32 %.5f", half[h].precision == WEIR_F16 ? "f16" : "bf16",
                         half[h].l.dp, i, (double)got[i], (double)want[i]);
    }
    text_free(&corpus);
}
#endif

/* The same kernels on the same values, only later. */
Test(layouts, recomputing_saves_memory_and_changes_no_bit, .timeout = 60)
{
    text corpus = reference_text();
    losses kept = single(&corpus, REFERENCE_FULL, STEPS);
    gpt_config config;
    weir_plan *keeps = plan_for(&corpus, &config, REFERENCE_FULL, (layout){1, 1, 1, 1, false});
    config.recompute = true;
    weir_graph *g = gpt_train_graph(&config);
    weir_plan *plan = weir_compile(g, .seed = REFERENCE_SEED);
    cr_assert_not_null(plan, "%s", weir_error());
    losses again = train(plan, 1, STEPS, 1, false);
    cr_expect_arr_eq(kept.value, again.value, sizeof kept.value);
    cr_expect_lt(weir_plan_bytes(plan, -1), weir_plan_bytes(keeps, -1));
    weir_plan_free(plan);
    weir_plan_free(keeps);
    weir_graph_free(g);
    text_free(&corpus);
}

/* Weights that were split by hand are worked with where they lie: their readers' layouts follow, not the other way. */
Test(layouts, weights_split_by_hand_are_not_gathered, .timeout = 60)
{
    text corpus = reference_text();
    gpt_config config;
    weir_plan *plan = plan_for(&corpus, &config, REFERENCE_FULL, (layout){1, 2, 1, 1, false});
    bool found = false;
    for (uint32_t t = 0; t < plan->tensors_count; t++) {
        const char *name = plan_text(plan, plan->tensors[t].name);
        found |= !strcmp(name, "h0/up/weight");
        cr_expect_null(strstr(name, "/up/weight>"), "%s", name);
        cr_expect_null(strstr(name, "/o/weight>"), "%s", name);
    }
    cr_expect(found);
    weir_plan_free(plan);
    text_free(&corpus);
}

/* Nor are logits: each device has those of its classes, and the loss is made of sums over them. */
Test(layouts, no_logits_are_gathered, .timeout = 60)
{
    text corpus = reference_text();
    gpt_config config;
    weir_plan *plan = plan_for(&corpus, &config, REFERENCE_FULL, (layout){2, 2, 1, 1, false});
    int found = 0;
    for (uint32_t t = 0; t < plan->tensors_count; t++) {
        const plan_tensor *tensor = &plan->tensors[t];
        const char *name = plan_text(plan, tensor->name);
        cr_expect(strncmp(name, "head>", 5), "%s", name);
        if (strcmp(name, "head") && strcmp(name, "class_lse.grad/class_lse_grad"))
            continue;
        cr_expect_eq(tensor->shape[2], GPT_VOCAB / 2, "%s has %ld classes", name, (long)tensor->shape[2]);
        found++;
    }
    cr_expect_eq(found, 2 * 4);
    weir_plan_free(plan);
    text_free(&corpus);
}

static void agrees_with_pytorch(reference_kind kind)
{
    double want[REFERENCE_STEPS];
    cr_assert(reference_losses(kind, want));
    text corpus = reference_text();
    const int steps = EFFORT(REFERENCE_STEPS, 2, 2);
    losses got = single(&corpus, kind, steps);
    for (int i = 0; i < steps; i++)
        cr_expect_lt(fabs(got.value[i] - want[i]), 1e-4 * want[i], "step %d: %.7f, PyTorch %.7f", i, (double)got.value[i],
                     want[i]);
    text_free(&corpus);
}

Test(layouts, one_device_agrees_with_pytorch, .timeout = 60)
{
    agrees_with_pytorch(REFERENCE_PLAIN);
}

Test(layouts, one_device_agrees_with_pytorch_on_clipping_decay_and_schedule, .timeout = 60)
{
    agrees_with_pytorch(REFERENCE_FULL);
}
