/* tests/graph/verify/test_verify_local.c: each kernel of a plan judged alone. test_verify.c and test_mutants.c do it for their plans,
 * too. */
#include "tests/graph/verify/models.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>
#include <weir/weir.h>

#include "apps/common/model/gpt.h"
#include "graph/model/build.h"
#include "graph/plan/form/plan.h"
#include "tests/support/effort.h"
#include "tests/support/fakes.h"
#include "tests/support/random_model.h"
#include "tests/support/sample_plan.h"

TestSuite(verify_local, .timeout = 600);

enum { MODELS = EFFORT(FULL(75, 11), 2, 1), LAYOUTS = 5, SEED = 4711 };

static const text corpus = {.bytes = (uint8_t *)"a text of which nobody reads a word", .count = 35};

static void expect_right(weir_graph *g, weir_plan *plan, const char *what)
{
    cr_assert(plan, "%s: %s", what, weir_error());
    weir_status status = weir_plan_verify(g, plan, .seed = SEED, .local = true);
    cr_expect_eq(status, WEIR_OK, "%s: %s", what, weir_error());
    weir_plan_free(plan);
}

Test(verify_local, random_models_on_accelerators_are_right)
{
    mesh_takes_fakes = true;
    for (uint64_t model = 0; model < MODELS; model++)
        for (uint64_t lies = 0; lies < LAYOUTS; lies++) {
            weir_graph *g = random_model(model, lies);
            fakes_put(g, fakes_all);
            expect_right(g, weir_compile(g, .micro_batches = random_model_micro(model)), "a model on accelerators");
            weir_graph_free(g);
        }
    mesh_takes_fakes = false;
}

Test(verify_local, a_gpt_within_the_smallest_limit_is_right_with_and_without_a_disk)
{
    const layout lies[] = {{0}, {.dp = 2, .zero = true}, {.tp = 2, .pp = 2, .micro = 2}};
    for (size_t i = 0; i < sizeof lies / sizeof *lies; i++) {
        weir_graph *g = gpt(lies[i]);
        const int micro = lies[i].micro ? lies[i].micro : 1;
        for (int disk = 0; disk < 2; disk++) {
            unsigned long long bytes = 0;
            char limit[32];
            cr_assert_null(weir_compile(g, .micro_batches = micro, .memory = "1KiB", .offload = disk ? "disk:/tmp" : NULL));
            const char *least = strstr(weir_error(), "The smallest limit that would do is ");
            cr_assert(least && sscanf(least, "The smallest limit that would do is %llu B", &bytes) == 1, "%s", weir_error());
            snprintf(limit, sizeof limit, "%lluB", bytes);
            expect_right(g, weir_compile(g, .micro_batches = micro, .memory = limit, .offload = disk ? "disk:/tmp" : NULL), limit);
        }
        weir_graph_free(g);
    }
}

/* The classes of calls do not become more with the devices. */
Test(verify_local, a_plan_for_many_devices_is_right)
{
    const gpt_config config = {.layers = 1, .dim = 8, .heads = 2, .seq = 4, .vocab = 16, .batch = EFFORT(97, 23, 23),
                               .layout = {.dp = EFFORT(97, 23, 23)}, .optimizer = weir_adamw(.lr = 0.01, .clip_norm = 1),
                               .corpus = &corpus};
    weir_graph *g = gpt_train_graph(&config);
    cr_assert(g && !weir_graph_mistake(g), "%s", g ? weir_graph_mistake(g) : "no memory");
    expect_right(g, weir_compile(g), "many devices");
    weir_graph_free(g);
}

/* ---- what is wrong is named ---- */

static plan_kernel *kernel_of(weir_plan *plan, const char *name)
{
    uint32_t k = 0;
    while (k < plan->kernels_count && strcmp(plan_text(plan, plan->kernels[k].name), name))
        k++;
    cr_assert_lt(k, plan->kernels_count, "the plan has no %s", name);
    return &plan->kernels[k];
}

static weir_plan *without_a_source(const weir_plan *plan, const char *name)
{
    weir_plan *wrong = plan_copy(plan);
    cr_assert_not_null(wrong);
    kernel_of(wrong, name)->in.count--;
    return wrong;
}

Test(verify_local, a_conversion_that_loses_a_term_is_named_with_its_reader)
{
    weir_graph *g = gpt((layout){.dp = 2});
    weir_plan *plan = weir_compile(g), *wrong = without_a_source(plan, "head/weight.grad>B,B");
    cr_expect_eq(weir_plan_verify(g, wrong, .local = true), WEIR_E_WRONG);
    cr_expect(strstr(weir_error(), "head/weight.grad>B,B (box) on cpu:") && strstr(weir_error(), "makes a part or a multiple of") &&
                  strstr(weir_error(), "gpt.c:"),
              "%s", weir_error());
    weir_plan_free(wrong);
    weir_plan_free(plan);
    weir_graph_free(g);
}

Test(verify_local, a_fetch_that_is_no_whole_value_is_wrong)
{
    weir_graph *g = gpt((layout){.dp = 2});
    weir_plan *plan = weir_compile(g), *wrong = without_a_source(plan, "loss>B");
    cr_expect_eq(weir_plan_verify(g, wrong, .local = true), WEIR_E_WRONG);
    cr_expect(strstr(weir_error(), "the fetch \"loss\" is not the whole value"), "%s", weir_error());
    weir_plan_free(wrong);
    weir_plan_free(plan);
    weir_graph_free(g);
}

static plan_operand *output_of(weir_plan *plan, const char *name)
{
    return &plan->operands[kernel_of(plan, name)->out.first];
}

Test(verify_local, a_kernel_that_writes_over_another_value_is_named)
{
    weir_graph *g = gpt((layout){0});
    weir_plan *plan = weir_compile(g, .no_fusion = true), *wrong = plan_copy(plan);
    *output_of(wrong, "h0/down") = *output_of(wrong, "h0/o");
    cr_expect_eq(weir_plan_verify(g, wrong, .local = true), WEIR_E_WRONG);
    cr_expect(strstr(weir_error(), "h0/down (linear) on cpu:0: ") && strstr(weir_error(), "over \"h0/o\""), "%s", weir_error());
    weir_plan_free(wrong);
    weir_plan_free(plan);
    weir_graph_free(g);
}

Test(verify_local, a_call_that_takes_more_memory_than_it_may_is_refused)
{
    weir_graph *g = gpt((layout){.dp = 2});
    weir_plan *plan = weir_compile(g);
    cr_expect_eq(weir_plan_verify(g, plan, .local = true, .memory = "1KiB"), WEIR_E_MEMORY);
    cr_expect(strstr(weir_error(), "take more memory than there is"), "%s", weir_error());
    weir_plan_free(plan);
    weir_graph_free(g);
}
