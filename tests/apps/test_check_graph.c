/* tests/apps/test_check_graph.c: weir check --graph proves plans that programs save with their graph, and says so of those that are
 * saved without it.
 */
#include <string.h>

#include "graph/plan/form/file.h"
#include "graph/plan/form/plan.h"
#include "tests/apps/shell.h"

TestSuite(check_graph, .init = shell_begin, .fini = folder_remove, .timeout = 300);

#define TINY_GPT APPS_BIN "/weir-gpt --layers 1 --dim 8 --heads 2 --seq 4 --batch 4 --text README.md --sample 0 --steps 1 --plan $T/plan "
#define COMPUTES "/plan: computes the graph that it keeps, whatever order its actors fire in; proven in "

#define HAS(part) cr_expect(strstr(output, part), "lacks \"%s\":\n%s", part, output)

static void refuses(const char *command, const char *sentence)
{
    cr_expect_eq(run(command), 1, "%s: %s", command, output);
    HAS(sentence);
}

/* Changes the saved plan by hand; it stays a valid plan. */
static void change_plan(void (*change)(weir_plan *plan))
{
    char path[256];
    snprintf(path, sizeof path, "%s", folder_path("plan"));
    weir_plan *plan = weir_plan_load(path);
    cr_assert(plan, "%s", weir_error());
    change(plan);
    plan->hash = plan_hash(plan);
    cr_assert_eq(weir_plan_save(plan, path), WEIR_OK, "%s", weir_error());
    weir_plan_free(plan);
}

static void learn_faster(weir_plan *plan)
{
    for (uint32_t k = 0; k < plan->kernels_count; k++)
        if (!strcmp(plan_text(plan, plan->kernels[k].op), "adamw"))
            plan->words[plan->kernels[k].attrs.first].r *= 2;
}

static void be_another_model(weir_plan *plan)
{
    plan->graph ^= 1;
}

Test(check_graph, a_plan_that_keeps_its_graph_is_proven_without_the_program)
{
    must_run(TINY_GPT "--dp 2 --micro 2 --with-graph");
    must_run("weir check $T/plan");
    HAS("/plan: live and bounded under every order of firings; ");
    cr_expect_null(strstr(output, "computes"));
    must_run("weir check --graph $T/plan");
    HAS("/plan: live and bounded under every order of firings; ");
    HAS(COMPUTES);
    must_run("weir check --graph --local $T/plan");
    HAS("/plan: computes the graph that it keeps, each kernel judged alone; proven in ");
    must_run("weir show $T/plan | head -1");
    HAS(", with its graph of ");
    must_run("weir run $T/plan --made-up --steps 2 && weir launch -n 2 -- " APPS_BIN "/weir run $T/plan --made-up --steps 2");
}

Test(check_graph, a_plan_without_its_graph_says_how_to_keep_it)
{
    must_run(TINY_GPT);
    refuses("weir check --graph $T/plan", "does not keep its graph: compile it with weir_compile(.keep_graph = true), or give "
                                          "--with-graph to the program that saves it");
    cr_expect_eq(run(APPS_BIN "/weir-gpt --with-graph --steps 1"), 2);
    HAS("--with-graph needs --plan FILE");
    cr_expect_eq(run(APPS_BIN "/weir-words --with-graph README.md"), 2);
    HAS("--with-graph needs --plan FILE");
}

Test(check_graph, a_plan_that_computes_something_else_fails_with_the_kernel)
{
    must_run(TINY_GPT "--with-graph");
    change_plan(learn_faster);
    must_run("weir check $T/plan");
    refuses("weir check --graph $T/plan", "weir check: apps/common/model/gpt.c:");
    HAS(" (adamw) on cpu:0 makes \"");
    HAS("is not what the graph says");
    change_plan(be_another_model);
    refuses("weir check --graph $T/plan", "is another model's: its hash is ");
}

Test(check_graph, other_programs_keep_graphs)
{
    must_run(APPS_BIN "/weir-digits --layers 1 --dim 4 --batch 8 --steps 1 --plan $T/plan --with-graph && weir check --graph $T/plan");
    HAS(COMPUTES);
    must_run(APPS_BIN "/weir-words --lanes 1 --block 4096 --words 1 --plan $T/plan --with-graph README.md && weir check --graph $T/plan");
    HAS(COMPUTES);
}

Test(check_graph, ops_of_a_program_s_own_come_from_an_object)
{
    must_run(APPS_BIN "/prelu $T/plan $T/kept");
    refuses("weir check --graph $T/plan", "ops.prelu: there is no such op in this program; weir_op_load(), or --load, takes it");
    must_run("weir check --graph --load " APPS_BIN "/prelu.so $T/plan");
    HAS(COMPUTES);
}
