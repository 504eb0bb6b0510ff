/* tests/graph/compile/test_runs_on.c: which ops a kind of device has, where none of its devices and no plugin is; plans for
 * CUDA devices that are made, checked and kept there.
 */
#include <criterion/criterion.h>
#include <string.h>

#include "graph/base/base.h"
#include "graph/plan/form/plan.h"
#include "kernels/cuda/list.h"
#include "kernels/common/ops.h"
#include "tests/support/folder.h"

#include <weir/weir.h>

TestSuite(runs_on, .init = folder_make, .fini = folder_remove, .timeout = 60);

static weir_status own_kernel(const weir_kernel_args *args)
{
    (void)args;
    return WEIR_OK;
}

Test(runs_on, an_op_runs_where_it_has_a_kernel)
{
    cr_expect(op_runs_on(&op_add, WEIR_CPU) && op_runs_on(&op_add, WEIR_PINNED) && op_runs_on(&op_add, WEIR_FAKE));
    cr_expect(op_runs_on(&op_copy, WEIR_DISK) && !op_runs_on(&op_add, WEIR_DISK));
}

Test(runs_on, what_is_listed_runs_on_cuda_and_what_lives_at_the_host_does_not)
{
#define X(op) cr_expect(op_runs_on(&op_##op, WEIR_CUDA), "%s", op_##op.name);
    CUDA_OPS(X)
#undef X
    const weir_op *const hosts[] = {&op_source, &op_sink, &op_call};
    for (int i = 0; i < 3; i++)
        cr_expect(!op_runs_on(hosts[i], WEIR_CUDA), "%s", hosts[i]->name);
}

Test(runs_on, a_program_s_op_runs_on_cuda_with_a_kernel_of_its_own)
{
    weir_op other = op_copy; /* a listed op's name helps nobody else */
    other.kernel[WEIR_CUDA] = NULL;
    cr_expect(!op_runs_on(&other, WEIR_CUDA));
    other.kernel[WEIR_CUDA] = own_kernel;
    cr_expect(op_runs_on(&other, WEIR_CUDA));
}

/* A program's op on these devices, and what brings its input there. */
static weir_op own;

static weir_plan *plan_on(const char *devices)
{
    own = op_relu;
    own.name = "own";
    own.kernel[WEIR_CUDA] = own_kernel;
    cr_assert_eq(weir_op_register(&own), WEIR_OK, "%s", weir_error());
    weir_graph *g = weir_graph_new("own");
    WEIR_ON(weir_mesh_new(g, devices)) {
        weir_tensor *x = weir_input(g, WEIR_F32, {8, 4}, .name = "x", .sbp = {WEIR_S(0)});
        weir_fetch(weir_op_apply(&(weir_apply){.src = WEIR_HERE, .op = &own, .in = &x, .in_count = 1}, NULL), .name = "y");
    }
    weir_plan *plan = weir_compile(g);
    weir_graph_free(g);
    return plan;
}

Test(runs_on, plans_for_cuda_are_made_checked_and_kept_without_a_device)
{
    const char *const devices[] = {"cuda:0", "cuda:0-3"};
    for (int d = 0; d < 2; d++) {
        weir_plan *plan = plan_on(devices[d]);
        cr_assert_not_null(plan, "%s: %s", devices[d], weir_error());
        uint32_t spaces = 0;
        for (uint32_t s = 0; s < plan->spaces_count; s++)
            spaces += plan->spaces[s].kind == WEIR_CUDA;
        cr_expect_eq(spaces, d ? 4 : 1);
        cr_expect_eq(plan_validate(plan), WEIR_OK, "%s", weir_error());
        const char *path = folder_path("plan");
        cr_assert_eq(weir_plan_save(plan, path), WEIR_OK, "%s", weir_error());
        weir_plan *loaded = weir_plan_load(path);
        cr_assert_not_null(loaded, "%s", weir_error());
        cr_expect_eq(loaded->hash, plan->hash);
        weir_plan_free(loaded);
        weir_plan_free(plan);
    }
}

Test(runs_on, a_plan_that_calls_on_cuda_what_has_no_kernel_there_is_refused)
{
    weir_plan *plan = plan_on("cuda:0");
    cr_assert_not_null(plan, "%s", weir_error());
    own.kernel[WEIR_CUDA] = NULL;
    cr_expect_eq(plan_validate(plan), WEIR_E_PLAN);
    cr_expect_not_null(strstr(weir_error(), "has no kernel for cuda"), "%s", weir_error());
    weir_plan_free(plan);
}
