/* tests/graph/verify/test_verify_local.c: each kernel of a plan judged alone. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>
#include <weir/weir.h>

#include "apps/common/model/gpt.h"
#include "graph/plan/form/plan.h"
#include "tests/support/effort.h"
#include "tests/support/random_model.h"

TestSuite(verify_local, .timeout = 600);

enum { MODELS = EFFORT(FULL(300, 40), 4, 1), LAYOUTS = 5, SEED = 4711 };

static text corpus = {.bytes = (uint8_t *)"a text of which nobody reads a word", .count = 35};

static weir_graph *gpt(layout lies, int layers)
{
    const gpt_config config = {.layers = layers, .dim = 8, .heads = 2, .seq = 4, .vocab = 16, .batch = 8, .layout = lies,
                               .optimizer = weir_adamw(.lr = 0.01, .clip_norm = 1), .corpus = &corpus};
    weir_graph *g = gpt_train_graph(&config);
    cr_assert(g && !weir_graph_mistake(g), "%s", g ? weir_graph_mistake(g) : "no memory");
    return g;
}

static void expect_right(weir_graph *g, weir_plan *plan, const char *what)
{
    cr_assert(plan, "%s: %s", what, weir_error());
    weir_status status = weir_plan_verify(g, plan, .seed = SEED, .local = true);
    cr_expect_eq(status, WEIR_OK, "%s: %s", what, weir_error());
    weir_plan_free(plan);
}

Test(verify_local, a_gpt_is_right_in_every_layout_and_precision)
{
    const layout lies[] = {{0}, {.dp = 2, .zero = true}, {.dp = 3}, {.tp = 2}, {.dp = 2, .tp = 2, .micro = 2}, {.pp = 2, .micro = 2},
                           {.tp = 4, .pp = 2, .micro = 4}, {.dp = 2, .tp = 2, .pp = 2, .micro = 4, .zero = true}};
    const weir_dtype precisions[] = {WEIR_F32, WEIR_BF16, WEIR_F16};
    for (size_t i = 0; i < sizeof lies / sizeof *lies; i++) {
        weir_graph *g = gpt(lies[i], 2);
        const int micro = lies[i].micro ? lies[i].micro : 1;
        for (int p = 0; p < 3; p++)
            expect_right(g, weir_compile(g, .micro_batches = micro, .precision = precisions[p]), "gpt");
        expect_right(g, weir_compile(g, .micro_batches = micro, .no_fusion = true), "gpt without fusion");
        expect_right(g, weir_compile(g, .micro_batches = micro, .per_host = 2), "gpt on hosts of two devices");
        weir_graph_free(g);
    }
}

Test(verify_local, random_models_are_right_in_random_layouts)
{
    for (uint64_t model = 0; model < MODELS; model++)
        for (uint64_t lies = 0; lies < LAYOUTS; lies++) {
            char what[64];
            weir_graph *g = random_model(SEED + model, lies);
            snprintf(what, sizeof what, "model %llu, layout %llu", (unsigned long long)model, (unsigned long long)lies);
            expect_right(g, weir_compile(g, .micro_batches = random_model_micro(SEED + model), .seed = model), what);
            weir_graph_free(g);
        }
}
