/* tests/actors/test_cuda_layouts.c: training on CUDA devices, emulated (tests/support/card.h): a GPT in every layout of up to
 * four devices, models drawn at random, and plans of which a part is on CPUs. The driver, the kernels and the plans are those of
 * cards. Results are those of CPUs, within rounding; and the same bits whatever order streams are taken in.
 */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>

#include "tests/support/card.h"
#include "tests/support/effort.h"
#include "tests/support/fakes.h"
#include "tests/support/run.h"

enum { STEPS = EFFORT(2, 2, 1), SEEDS = EFFORT(2, 1, 1), MODELS = EFFORT(FULL(24, 6), 2, 2) };

static void with_cards(void)
{
    fakes_kind = WEIR_CUDA;
    setenv("WEIR_CUDA_LOGICAL", "16", 1);
}

TestSuite(cuda_layouts, .init = with_cards, .timeout = 300);

/* Near what it is on CPUs; and with other orders the same bits. */
static void same_run(const struct fakes_pair *pair, double tolerance, int seeds)
{
    run want = run_plan(pair->cpu, STEPS, 1), first = {.count = 0};
    for (int seed = 0; seed < seeds; seed++) {
        card_open(&(standin_options){.seed = 1 + (uint64_t)seed});
        run got = run_plan(pair->plan, STEPS, 1 + seed % 3);
        run_near(&got, seed ? &first : &want, seed ? 0 : tolerance, pair->what);
        card_close();
        if (seed)
            run_free(&got);
        else
            first = got;
    }
    run_free(&first);
    run_free(&want);
}

/* ---- a GPT ---- */

#if EFFORT(1, 1, 0)
static void gpt_is_the_same(layout l, fakes_choice on, int seeds)
{
    struct fakes_pair pair = fakes_gpt_pair(l, on);
    same_run(&pair, 1e-4, seeds);
    fakes_pair_free(&pair);
}

/* With FULL=1 up to two devices go in both ways; four, and all without it, in one. */
enum { ONE_WAY = EFFORT(FULL(0, 1), 1, 1) };

#define GPT(d, t, p)                                                                  \
    Test(cuda_layouts, gpt_dp##d##_tp##t##_pp##p)                                     \
    {                                                                                 \
        const bool both = !ONE_WAY && d * t * p < 4, first = (d + t + p) % 2;         \
        if (both || first)                                                            \
            gpt_is_the_same((layout){d, t, p, 1, false}, fakes_all, both ? 1 : SEEDS);\
        if (both || !first)                                                           \
            gpt_is_the_same((layout){d, t, p, 4, true}, fakes_all, both ? SEEDS : 1); \
    }
GPT(2, 1, 1)
#endif
#if EFFORT(1, 0, 0)
GPT(1, 1, 1)
GPT(1, 2, 1)
GPT(1, 1, 2)
GPT(2, 2, 1)
GPT(2, 1, 2)
#if FULL(1, 0)
GPT(1, 2, 2)
GPT(4, 1, 1)
GPT(1, 4, 1)
GPT(1, 1, 4)
#endif

Test(cuda_layouts, gpt_begins_on_a_cpu_and_goes_on_on_a_card)
{
    gpt_is_the_same((layout){1, 1, 2, 4, false}, fakes_second_half, SEEDS);
}

#endif

/* ---- half precision, and sums by the devices ---- */

static void gpt_with(layout l, weir_compile_opts opts, double tolerance, int seeds, const char *what)
{
    struct fakes_pair pair = {.plan = fakes_gpt(l, fakes_all, opts)};
    opts.reduce = 0;
    pair.cpu = fakes_gpt(l, NULL, opts);
    cr_assert(pair.plan && pair.cpu, "%s: %s", what, weir_error());
    snprintf(pair.what, sizeof pair.what, "%s", what);
    same_run(&pair, tolerance, seeds);
    fakes_pair_free(&pair);
}

#if EFFORT(1, 1, 0)
Test(cuda_layouts, gpt_in_bf16)
{
    gpt_with((layout){1, 1, 1, 1, false}, (weir_compile_opts){.precision = WEIR_BF16}, 2e-2, SEEDS, "bf16");
}
#endif

#if EFFORT(1, 0, 0)
Test(cuda_layouts, gpt_in_f16)
{
    const int seeds = FULL(SEEDS, 1); /* the order is as in bf16 */
    gpt_with((layout){2, 1, 1, 2, false}, (weir_compile_opts){.precision = WEIR_F16}, 2e-2, seeds, "f16, dp2");
}
#endif

Test(cuda_layouts, sums_by_the_devices)
{
    gpt_with((layout){2, 1, 1, 1, true}, (weir_compile_opts){.reduce = WEIR_FAST}, 1e-4, SEEDS, "fast sums, dp2 ZeRO");
}

/* ---- models drawn at random ---- */

static void model_is_the_same(uint64_t seed, fakes_choice on, double tolerance)
{
    struct fakes_pair pair = fakes_model_pair(seed, on);
    same_run(&pair, tolerance, 1);
    fakes_pair_free(&pair);
}

Test(cuda_layouts, random_models)
{
    for (uint64_t seed = 0; seed < MODELS; seed++)
        model_is_the_same(seed, fakes_all, 1e-3);
}

Test(cuda_layouts, random_models_on_cpus_and_cards)
{
    for (uint64_t seed = 1000; seed < 1000 + MODELS; seed++)
        model_is_the_same(seed, fakes_odd, 1e-3);
}
