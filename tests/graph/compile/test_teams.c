/* tests/graph/compile/test_teams.c: conversions among many devices.
 *
 * What a conversion gives is held against what was pushed: sums of integers that f32 holds, so exact in any order, and
 * values that only move. Sums of fractions are held against the order that teams.h promises, to the bit.
 */
#include "graph/compile/teams.h"
#include "graph/plan/plan.h"
#include "graph/plan/spread.h"
#include "tests/support/effort.h"
#include "tests/support/run.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LAYOUTS = 4 };
static const weir_sbp layouts[LAYOUTS] = {WEIR_B, WEIR_P, WEIR_S(0), WEIR_S(1)};

static weir_mesh *line_of(weir_graph *g, int first, int count)
{
    char devices[32];
    snprintf(devices, sizeof devices, "cpu:%d-%d", first, first + count - 1);
    return weir_mesh_new(g, devices);
}

static weir_plan *compiled(weir_graph *g, int per_host)
{
    weir_plan *plan = weir_compile(g, .per_host = per_host);
    cr_assert_not_null(plan, "%s", weir_error());
    weir_graph_free(g);
    return plan;
}

/* ---- levels ---- */

static void expect_levels(int n, const char *want)
{
    int size[MESH_AXES_MAX], count = teams_levels(n, size);
    char text[64] = "";
    for (int l = 0; l < count; l++)
        snprintf(text + strlen(text), sizeof text - strlen(text), l ? " %d" : "%d", size[l]);
    cr_expect_str_eq(text, want, "%d devices", n);
}

Test(teams, levels_are_few_and_small)
{
    expect_levels(2, "2");
    expect_levels(8, "8");
    expect_levels(9, "3 3");
    expect_levels(12, "4 3");
    expect_levels(13, "13");
    expect_levels(16, "4 4");
    expect_levels(26, "13 2");
    expect_levels(30, "6 5");
    expect_levels(64, "8 8");
    expect_levels(256, "8 8 4");
    expect_levels(512, "8 8 8");
    expect_levels(65536, "8 8 8 8 4 4");
    expect_levels(65521, "65521");
}

/* ---- sums ---- */

/* x [count, rows, columns] is pushed; each device of the mesh has a term of the sum over its first dimension. */
static weir_tensor *open_sum(weir_graph *g, weir_mesh *mesh, weir_dtype dtype, int64_t rows, int64_t columns)
{
    weir_tensor *x = weir_input(g, dtype, {weir_mesh_size(mesh), rows, columns}, .name = "x");
    x = weir_shard(dtype == WEIR_F32 ? x : weir_cast(x, WEIR_F32), .mesh = mesh, .sbp = {S(0)});
    return weir_shard(weir_sum(x, .axes = {0}, .axis_count = 1), .name = "open", .sbp = {P});
}

/* The sum in every layout of the mesh, and on others, of integers. */
static void sums_are_right(int count, int64_t rows, int64_t columns)
{
    weir_graph *g = weir_graph_new("sums");
    weir_mesh *mesh = line_of(g, 0, count), *other = line_of(g, count, 3), *one = line_of(g, count - 1, 1);
    weir_tensor *sum = open_sum(g, mesh, WEIR_I32, rows, columns);
    for (int to = 0; to < LAYOUTS; to++) {
        char name[32];
        snprintf(name, sizeof name, "to %d", to);
        weir_fetch(weir_shard(weir_shard(sum, .sbp = {layouts[to]}), .mesh = one, .sbp = {B}), .name = name);
    }
    weir_fetch(weir_shard(sum, .mesh = other, .sbp = {S(0)}), .name = "elsewhere");
    weir_plan *plan = compiled(g, 0);
    run r = run_plan(plan, 2, 2);
    cr_assert_eq(r.count, LAYOUTS + 1);
    for (int e = 0; e < r.count; e++)
        for (int64_t i = 0; i < 2 * rows * columns; i++) {
            double want = 0;
            for (int t = 0; t < count; t++)
                want += run_input("x", WEIR_I32, i / (rows * columns), 0,
                                  t * rows * columns + i % (rows * columns));
            cr_assert_eq(r.entry[e].value[i], want, "%d devices, %s: element %ld is %g, not %g", count, r.entry[e].name,
                         (long)i, r.entry[e].value[i], want);
        }
    run_free(&r);
    weir_plan_free(plan);
}

#define SUMS(count)                                               \
    Test(teams, sums_over_##count##_devices_are_right, .timeout = 200) \
    {                                                             \
        sums_are_right(count, 5, 7);                              \
        sums_are_right(count, 66, 65);                            \
    }
SUMS(9)
SUMS(12)
SUMS(13)
SUMS(16)
SUMS(30)
SUMS(64)
#if EFFORT(1, 0, 0)
SUMS(512)
#endif
