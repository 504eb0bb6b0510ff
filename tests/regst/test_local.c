/* tests/regst/test_local.c: which of a machine's devices a plan's device is. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>

#include "regst/local.h"

#include <weir/weir.h>

/* A plan for so many CUDA devices, cuda:first and on. */
static weir_plan *plan_of(int first, int devices)
{
    char names[32];
    snprintf(names, sizeof names, "cuda:%d-%d", first, first + devices - 1);
    weir_graph *g = weir_graph_new("local");
    WEIR_ON(weir_mesh_new(g, names)) {
        weir_tensor *x = weir_input(g, WEIR_F32, {16, 4}, .name = "x", .sbp = {WEIR_S(0)});
        weir_fetch(weir_softmax(x), .name = "y");
    }
    weir_plan *plan = weir_compile(g);
    cr_assert_not_null(plan, "%s", weir_error());
    weir_graph_free(g);
    return plan;
}

/* The local number of cuda:index, where the rank has cuda:first ... cuda:last. */
static uint32_t found(const weir_plan *plan, uint32_t index, uint32_t first, uint32_t last, uint32_t count, int rank)
{
    bool elsewhere[256] = {false};
    uint32_t at = plan->spaces_count;
    cr_assert_leq(plan->spaces_count, 256);
    for (uint32_t s = 0; s < plan->spaces_count; s++) {
        elsewhere[s] = plan->spaces[s].kind == WEIR_CUDA && (plan->spaces[s].index < first || plan->spaces[s].index > last);
        if (plan->spaces[s].kind == WEIR_CUDA && plan->spaces[s].index == index)
            at = s;
    }
    cr_assert_lt(at, plan->spaces_count);
    return local_index(plan, elsewhere, at, count, rank);
}

Test(local, one_process_has_the_devices_that_the_plan_names)
{
    weir_plan *plan = plan_of(2, 2);
    cr_expect_eq(found(plan, 2, 0, 9, 4, -1), 2);
    cr_expect_eq(found(plan, 3, 0, 9, 2, 0), 3, "which is not there, and told so");
    weir_plan_free(plan);
}

Test(local, ranks_of_a_machine_that_has_all_share_it)
{
    weir_plan *plan = plan_of(0, 4);
    for (uint32_t i = 0; i < 4; i++)
        cr_expect_eq(found(plan, i, i, i, 4, (int)i), i);
    cr_expect_eq(found(plan, 3, 2, 3, 4, 1), 3);
    weir_plan_free(plan);
}

Test(local, a_rank_that_is_shown_its_own_alone_takes_them_in_order)
{
    weir_plan *plan = plan_of(0, 4);
    for (uint32_t i = 0; i < 4; i++)
        cr_expect_eq(found(plan, i, i, i, 1, (int)i), 0);
    cr_expect_eq(found(plan, 2, 2, 3, 2, -1), 0);
    cr_expect_eq(found(plan, 3, 2, 3, 2, -1), 1);
    weir_plan_free(plan);
}

/* Two machines of four cards each, with a rank for each card, and with one for two. */
Test(local, the_second_machine_counts_from_zero)
{
    weir_plan *plan = plan_of(0, 8);
    for (uint32_t i = 0; i < 8; i++)
        cr_expect_eq(found(plan, i, i, i, 4, (int)i % 4), i % 4);
    cr_expect_eq(found(plan, 7, 6, 7, 4, 1), 3);
    cr_expect_eq(found(plan, 4, 4, 5, 4, 0), 0);
    cr_expect_eq(found(plan, 5, 5, 5, 4, -1), 5, "nobody says which rank it is");
    weir_plan_free(plan);
}

Test(local, rank_is_what_launchers_say)
{
    static const char *const names[] = {"LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "SLURM_LOCALID"};
    for (int i = 0; i < 4; i++)
        unsetenv(names[i]);
    cr_expect_eq(local_rank(), -1);
    for (int i = 3; i >= 0; i--) {
        setenv(names[i], (char[]){(char)('1' + i), 0}, 1);
        cr_expect_eq(local_rank(), 1 + i, "%s", names[i]);
    }
    setenv("LOCAL_RANK", "two", 1);
    cr_expect_eq(local_rank(), 2, "what is no number says nothing");
}
