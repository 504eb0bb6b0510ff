/* tests/graph/compile/test_teams.c: conversions among many devices.
 *
 * The result of a conversion is held against the pushed values: sums of integers that f32 holds, so exact in any order,
 * and values that only move. Sums of fractions are held against the order that teams.h promises, to the bit.
 */
#include "graph/compile/sbp/teams.h"
#include "graph/plan/form/plan.h"
#include "graph/plan/spread/spread.h"
#include "tests/support/effort.h"
#include "tests/support/ranks.h"
#include "tests/support/reference.h"
#include "tests/support/run.h"

#include <criterion/criterion.h>
#include <math.h>
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

/* ---- tiers ---- */

static void expect_tiers(int n, const char *want)
{
    int size[MESH_AXES_MAX], count = teams_tiers(n, size);
    char got[64] = "";
    for (int l = 0; l < count; l++)
        snprintf(got + strlen(got), sizeof got - strlen(got), l ? " %d" : "%d", size[l]);
    cr_expect_str_eq(got, want, "%d devices", n);
}

Test(teams, tiers_are_few_and_small)
{
    expect_tiers(2, "2");
    expect_tiers(8, "8");
    expect_tiers(9, "3 3");
    expect_tiers(12, "4 3");
    expect_tiers(13, "13");
    expect_tiers(16, "4 4");
    expect_tiers(26, "13 2");
    expect_tiers(30, "6 5");
    expect_tiers(64, "8 8");
    expect_tiers(256, "8 8 4");
    expect_tiers(512, "8 8 8");
    expect_tiers(65536, "8 8 8 8 4 4");
    expect_tiers(65521, "65521");
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
SUMS(11)
SUMS(12)
SUMS(13)
SUMS(16)
SUMS(30)
SUMS(33)
SUMS(64)
SUMS(67)
#if EFFORT(1, 0, 0)
SUMS(512)
SUMS(521)
#endif

/* ---- the order of a sum ---- */

/* The sum of `count` terms that lie `stride` apart, from `first` on, by the tiers given, of which the last is the outermost. */
static float sum_by_tiers(const double *term, int first, int stride, const int *tier, int tiers)
{
    if (!tiers)
        return (float)term[first];
    int inner = 1;
    for (int l = 0; l < tiers - 1; l++)
        inner *= tier[l];
    float sum = sum_by_tiers(term, first, stride, tier, tiers - 1);
    for (int k = 1; k < tier[tiers - 1]; k++)
        sum += sum_by_tiers(term, first + k * inner * stride, stride, tier, tiers - 1);
    return sum;
}

/* A sum of fractions for every layout, and for one device. */
static weir_plan *fractions(int count, int64_t rows, int64_t columns, int per_host)
{
    weir_graph *g = weir_graph_new("fractions");
    weir_mesh *mesh = line_of(g, 0, count), *one = line_of(g, 1, 1);
    weir_tensor *sum = open_sum(g, mesh, WEIR_F32, rows, columns);
    weir_fetch(weir_shard(sum, .mesh = one, .sbp = {B}), .name = "one");
    weir_fetch(weir_shard(weir_shard(sum, .sbp = {B}), .mesh = one, .sbp = {B}), .name = "all");
    weir_fetch(weir_shard(weir_shard(sum, .sbp = {S(0)}), .mesh = one, .sbp = {B}), .name = "rows");
    weir_fetch(weir_shard(weir_shard(sum, .sbp = {S(1)}), .mesh = one, .sbp = {B}), .name = "columns");
    return compiled(g, per_host);
}

/* Folds the terms that a core leaves out: in each run of `each` terms, those behind the first `kept` are added to those
 * `each` - `kept` before. Returns how many terms are left. */
static int fold_terms(double *term, int count, int each, int kept)
{
    int left = 0, out = each - kept;
    for (int first = 0; first < count; first += each)
        for (int i = 0; i < kept; i++) {
            double own = term[first + i], more = i >= kept - out ? term[first + i + out] : 0;
            term[left++] = i >= kept - out ? (double)((float)own + (float)more) : own;
        }
    return left;
}

/* Some sum by tiers, of what a core has of the terms where `kept` is less than `each`. */
static void adds_with_core(int count, int64_t rows, int64_t columns, int per_host, int each, int kept, const int *tier,
                           int tiers)
{
    weir_plan *plan = fractions(count, rows, columns, per_host);
    run r = run_plan(plan, 1, 2);
    double *term = malloc(sizeof *term * (size_t)count);
    bool other = false; /* than one after the other */
    cr_assert_eq(r.count, 4);
    for (int64_t i = 0; i < rows * columns; i++) {
        float plain = 0;
        for (int t = 0; t < count; t++) {
            term[t] = run_input("x", WEIR_F32, 0, 0, t * rows * columns + i);
            plain = t ? plain + (float)term[t] : (float)term[t];
        }
        int left = fold_terms(term, count, each, kept), members = 1;
        for (int l = 0; l < tiers; l++)
            members *= tier[l];
        cr_assert_eq(left, members);
        float want = sum_by_tiers(term, 0, 1, tier, tiers);
        other |= want != plain;
        for (int e = 0; e < r.count; e++)
            cr_assert_eq((float)r.entry[e].value[i], want, "%d devices, %s: element %ld is %.9g, not %.9g", count,
                         r.entry[e].name, (long)i, r.entry[e].value[i], (double)want);
    }
    cr_expect_eq(other, tiers > 1);
    free(term);
    run_free(&r);
    weir_plan_free(plan);
}

static void adds_by_tiers(int count, int64_t rows, int64_t columns, int per_host, const int *tier, int tiers)
{
    adds_with_core(count, rows, columns, per_host, count, count, tier, tiers);
}

Test(teams, up_to_eight_devices_add_one_after_the_other, .timeout = 60)
{
    adds_by_tiers(8, 5, 7, 0, (int[]){8}, 1);
    adds_by_tiers(8, 70, 64, 0, (int[]){8}, 1);
    adds_by_tiers(7, 70, 64, 0, (int[]){7}, 1);
}

Test(teams, more_add_within_teams_and_then_among_them, .timeout = 60)
{
    for (int large = 0; large < 2; large++) {
        int64_t rows = large ? 70 : 5, columns = large ? 64 : 7;
        adds_by_tiers(12, rows, columns, 0, (int[]){4, 3}, 2);
        adds_by_tiers(16, rows, columns, 0, (int[]){4, 4}, 2);
        adds_by_tiers(30, rows, columns, 0, (int[]){6, 5}, 2);
        adds_by_tiers(128, rows, columns, 0, (int[]){8, 4, 4}, 3);
    }
}

Test(teams, a_core_adds_terms_that_it_lacks_first, .timeout = 60)
{
    for (int large = 0; large < 2; large++) {
        int64_t rows = large ? 70 : 5, columns = large ? 64 : 7;
        adds_with_core(11, rows, columns, 0, 11, 10, (int[]){5, 2}, 2);
        adds_with_core(13, rows, columns, 0, 13, 12, (int[]){4, 3}, 2);
        adds_with_core(34, rows, columns, 0, 34, 32, (int[]){8, 4}, 2);
        adds_with_core(67, rows, columns, 0, 67, 64, (int[]){8, 8}, 2);
        adds_with_core(22, rows, columns, 11, 11, 10, (int[]){5, 2, 2}, 3);  /* of each host the last */
        adds_with_core(33, rows, columns, 3, 33, 30, (int[]){3, 5, 2}, 3);   /* the last host */
        adds_with_core(11, rows, columns, 4, 11, 10, (int[]){2, 5}, 2);      /* whose hosts have no teams of one size */
    }
}

Test(teams, hosts_are_tiers_when_they_count, .timeout = 60)
{
    for (int large = 0; large < 2; large++) {
        int64_t rows = large ? 70 : 5, columns = large ? 64 : 7;
        adds_by_tiers(8, rows, columns, 4, (int[]){4, 2}, 2);
        adds_by_tiers(4, rows, columns, 2, (int[]){2, 2}, 2);
        adds_by_tiers(12, rows, columns, 8, (int[]){4, 3}, 2);
        adds_by_tiers(12, rows, columns, 6, (int[]){6, 2}, 2);
        adds_by_tiers(32, rows, columns, 16, (int[]){4, 4, 2}, 3);
        adds_by_tiers(8, rows, columns, 8, (int[]){8}, 1);
        adds_by_tiers(8, rows, columns, 1, (int[]){8}, 1);
        adds_by_tiers(7, rows, columns, 4, (int[]){7}, 1); /* there are no teams of equal size */
    }
}

Test(teams, there_are_no_hosts_of_less_than_nothing)
{
    weir_graph *g = weir_graph_new("hosts");
    weir_fetch(open_sum(g, line_of(g, 0, 2), WEIR_F32, 2, 2));
    cr_assert_null(weir_compile(g, .per_host = -1));
    cr_expect_not_null(strstr(weir_error(), "compile: -1 devices per host; 0 or more can be"), "%s", weir_error());
    weir_graph_free(g);
}

/* The same bits with one worker and several, and in one process and four. */
enum { SPREAD_ROWS = 70, SPREAD_COLUMNS = 64, SPREAD_BYTES = SPREAD_ROWS * SPREAD_COLUMNS * sizeof(float) };

static void pull_all(struct rank *rank)
{
    weir_session *s = weir_session_open(rank->ctx, .cluster = ranks_cluster(rank), .workers = 2);
    RANK_IS(rank, s, "%s", weir_error());
    int devices = (int)((const weir_plan *)rank->ctx)->spaces_count;
    float *x = calloc((size_t)devices, SPREAD_BYTES);
    for (int64_t i = 0; i < devices * SPREAD_ROWS * SPREAD_COLUMNS; i++)
        x[i] = (float)run_input("x", WEIR_F32, 0, 0, i);
    RANK_OK(rank, weir_session_start(s, 1));
    static const char *const names[] = {"one", "all", "rows", "columns"};
    if (rank->number == 0) { /* which has the first device, where the input is, and the second, where the fetches are */
        weir_array in = {x, WEIR_F32, {3, {devices, SPREAD_ROWS, SPREAD_COLUMNS}}};
        RANK_OK(rank, weir_session_push(s, "x", &in, 20000));
        for (int f = 0; f < 4; f++) {
            weir_array out = {(char *)rank->result + (size_t)f * SPREAD_BYTES, WEIR_F32,
                              {2, {SPREAD_ROWS, SPREAD_COLUMNS}}};
            RANK_OK(rank, weir_session_pull(s, names[f], &out, 20000));
        }
    }
    RANK_OK(rank, weir_session_wait(s, 20000));
    free(x);
    RANK_OK(rank, weir_session_close(s));
}

static void spreads_alike(int devices, int per_host)
{
    static const char *const names[] = {"one", "all", "rows", "columns"};
    weir_plan *plan = fractions(devices, SPREAD_ROWS, SPREAD_COLUMNS, per_host);
    run one = run_plan(plan, 1, 1), three = run_plan(plan, 1, 3);
    run_near(&three, &one, 0, "three workers");
    for (int count = 2; count <= 4; count += 2) {
        struct ranks *ranks = ranks_run(pull_all, plan, .count = count, .link = count == 2 ? RANKS_TCP : RANKS_SHM,
                                        .kind = EFFORT(RANKS_PROCESSES, RANKS_PROCESSES, RANKS_THREADS),
                                        .result_bytes = 4 * SPREAD_BYTES);
        for (int f = 0; f < 4; f++) {
            const float *got = (const float *)((const char *)ranks->rank[0].result + (size_t)f * SPREAD_BYTES);
            const run_entry *want = run_find(&one, names[f]);
            for (int i = 0; i < SPREAD_ROWS * SPREAD_COLUMNS; i++)
                cr_assert_eq(got[i], (float)want->value[i], "%d processes, %s: element %d", count, names[f], i);
        }
        ranks_free(ranks);
    }
    run_free(&one);
    run_free(&three);
    weir_plan_free(plan);
}

Test(teams, every_spread_of_a_plan_has_the_same_bits, .timeout = 120)
{
    spreads_alike(16, 0);
    spreads_alike(16, 4);
    spreads_alike(16, 8);
    spreads_alike(13, 0);
    spreads_alike(11, 4);
}

/* ---- every pair of layouts ---- */

static weir_tensor *laid_out(weir_tensor *x, weir_mesh *mesh, int a, int b)
{
    return weir_shard(x, .mesh = mesh, .sbp = {layouts[a], b < 0 ? WEIR_AUTO : layouts[b]});
}

/* x -> A on `from` -> B on `to` -> the first device of that, for all pairs or every so many; two steps. */
static void pairs_are_right(const char *from, const int *from_shape, const char *to, const int *to_shape, int64_t rows,
                            int64_t columns, int every, int per_host)
{
    weir_graph *g = weir_graph_new("pairs");
    weir_mesh *a = weir_mesh_new(g, from, .shape = {from_shape[0], from_shape[1]});
    weir_mesh *b = weir_mesh_new(g, to, .shape = {to_shape[0], to_shape[1]});
    int a_count = from_shape[1] ? LAYOUTS * LAYOUTS : LAYOUTS, b_count = to_shape[1] ? LAYOUTS * LAYOUTS : LAYOUTS;
    weir_tensor *x = weir_input(g, WEIR_F32, {rows, columns}, .name = "x");
    for (int i = 0; i < a_count; i++) {
        weir_tensor *xa = laid_out(x, a, i % LAYOUTS, from_shape[1] ? i / LAYOUTS : -1);
        for (int k = i % every; k < b_count; k += every) {
            char name[32];
            snprintf(name, sizeof name, "%d to %d", i, k);
            weir_fetch(laid_out(xa, b, k % LAYOUTS, to_shape[1] ? k / LAYOUTS : -1), .name = name);
        }
    }
    weir_plan *plan = compiled(g, per_host);
    run r = run_plan(plan, 2, 2);
    cr_assert_geq(r.count, a_count * b_count / every);
    for (int e = 0; e < r.count; e++)
        for (int64_t i = 0; i < 2 * rows * columns; i++) {
            double want = run_input("x", WEIR_F32, i / (rows * columns), 0, i % (rows * columns));
            cr_assert_eq(r.entry[e].value[i], want, "%s -> %s, %s: element %ld is %g, not %g", from, to,
                         r.entry[e].name, (long)i, r.entry[e].value[i], want);
        }
    run_free(&r);
    weir_plan_free(plan);
}

/* Even and uneven parts, some of them empty; small and large. */
static void pairs_of(const char *from, const int *from_shape, const char *to, const int *to_shape, int every, int per_host)
{
    every *= EFFORT(1, 1, 7);
    pairs_are_right(from, from_shape, to, to_shape, 64, 48, every, per_host);
    pairs_are_right(from, from_shape, to, to_shape, 7, 5, every, per_host);
    pairs_are_right(from, from_shape, to, to_shape, 67, 71, EFFORT(FULL(1, 2), 2, 4) * every, per_host);
}

Test(teams, every_pair_of_layouts_converts, .timeout = 200)
{
    pairs_of("cpu:0-11", (int[2]){12}, "cpu:0-11", (int[2]){12}, 1, 0);
    pairs_of("cpu:0-10", (int[2]){11}, "cpu:0-10", (int[2]){11}, 1, 0);
    pairs_of("cpu:0-22", (int[2]){23}, "cpu:0-22", (int[2]){23}, 1, 0);
    pairs_of("cpu:0-29", (int[2]){30}, "cpu:0-29", (int[2]){30}, 1, 0);
    pairs_of("cpu:0-63", (int[2]){64}, "cpu:0-63", (int[2]){64}, EFFORT(FULL(1, 3), 3, 3), 0);
    pairs_of("cpu:0-15", (int[2]){16}, "cpu:15,3,2,1,0,4-14", (int[2]){16}, 1, 0);
}

Test(teams, every_pair_of_layouts_converts_on_two_axes, .timeout = 200)
{
    pairs_of("cpu:0-23", (int[2]){12, 2}, "cpu:0-23", (int[2]){12, 2}, 3, 0);
    pairs_of("cpu:0-23", (int[2]){2, 12}, "cpu:0-23", (int[2]){2, 12}, 3, 0);
    pairs_of("cpu:0-15", (int[2]){4, 4}, "cpu:0-15", (int[2]){4, 4}, 3, 0);
    pairs_of("cpu:0-21", (int[2]){11, 2}, "cpu:0-21", (int[2]){11, 2}, 3, 0);
    pairs_of("cpu:0-21", (int[2]){2, 11}, "cpu:0-21", (int[2]){2, 11}, 3, 0);
    pairs_of("cpu:0-142", (int[2]){13, 11}, "cpu:0-142", (int[2]){13, 11}, EFFORT(FULL(9, 27), 27, 27), 0);
}

Test(teams, every_pair_of_layouts_converts_between_meshes, .timeout = 200)
{
    pairs_of("cpu:0-15", (int[2]){16}, "cpu:16-31", (int[2]){16}, 1, 0);
    pairs_of("cpu:0-29", (int[2]){30}, "cpu:20-31", (int[2]){12}, 1, 0);
    pairs_of("cpu:0-11", (int[2]){12}, "cpu:0-23", (int[2]){12, 2}, 3, 0);
    pairs_of("cpu:0-10", (int[2]){11}, "cpu:0-9", (int[2]){10}, 1, 0);
    pairs_of("cpu:0-9", (int[2]){10}, "cpu:0-10", (int[2]){11}, 1, 0);
    pairs_of("cpu:0-10", (int[2]){11}, "cpu:11-21", (int[2]){11}, 1, 0);
    pairs_of("cpu:0-23", (int[2]){12, 2}, "cpu:6", (int[2]){1}, 1, 0);
}

Test(teams, every_pair_of_layouts_converts_where_hosts_count, .timeout = 200)
{
    pairs_of("cpu:0-7", (int[2]){8}, "cpu:0-7", (int[2]){8}, 1, 4);
    pairs_of("cpu:0-7", (int[2]){4, 2}, "cpu:0-7", (int[2]){4, 2}, 3, 4);
    pairs_of("cpu:0-7", (int[2]){2, 4}, "cpu:0-7", (int[2]){2, 4}, 3, 4);
    pairs_of("cpu:0-11", (int[2]){12}, "cpu:4-11", (int[2]){8}, 1, 6);
    pairs_of("cpu:0-21", (int[2]){22}, "cpu:0-21", (int[2]){22}, 1, 11);
    pairs_of("cpu:0-32", (int[2]){33}, "cpu:0-32", (int[2]){33}, 1, 3);
}

/* ---- how much there is of it ---- */

/* A sum and a split tensor, each converted to every other layout of as many devices; all of them are read. */
static weir_plan *conversions_of(int count)
{
    weir_graph *g = weir_graph_new("size");
    weir_mesh *mesh = line_of(g, 0, count);
    weir_tensor *sum = open_sum(g, mesh, WEIR_F32, 1024, 1024);
    weir_tensor *split = weir_shard(sum, .sbp = {S(0)});
    weir_tensor *from[] = {sum, split, weir_relu(split, .name = "relu")};
    for (int i = 0; i < 3; i++)
        for (int to = 0; to < LAYOUTS; to++) {
            weir_tensor *x = weir_shard(from[i], .sbp = {layouts[to]});
            char name[32];
            snprintf(name, sizeof name, "%d to %d", i, to);
            weir_fetch(weir_max(weir_mul(x, x), .axes = {0, 1}, .axis_count = 2), .name = name);
        }
    return compiled(g, 0);
}

/* The most devices that one device reads from, over all its conversions of one name. */
static int neighbours_most(const weir_plan *plan)
{
    int most = 0;
    for (uint32_t k = 0; k < plan->kernels_count; k++) {
        const plan_kernel *kernel = &plan->kernels[k];
        uint32_t last = PLAN_NONE;
        int count = 0;
        for (uint32_t o = kernel->in.first; o < kernel->in.first + kernel->in.count; o++) {
            const plan_tensor *t = &plan->tensors[plan->operands[o].tensor.i];
            uint32_t space = t->home == PLAN_IN_REGST ? plan->regsts[t->owner].space.i : PLAN_NONE;
            count += space != last;
            last = space;
        }
        most = count > most ? count : most;
    }
    return most;
}

Test(teams, a_device_has_as_many_neighbours_as_a_team, .timeout = 200)
{
    for (int count = 8; count <= EFFORT(512, 64, 64); count *= 8) {
        weir_plan *plan = conversions_of(count);
        cr_expect_leq(neighbours_most(plan), TEAM_MAX, "of %d devices one has %d neighbours", count,
                      neighbours_most(plan));
        weir_plan_free(plan);
    }
}

/* Also of a number that has no tiers: its core has. Rows do not divide, so parts may lie on two. */
Test(teams, numbers_with_large_factors_have_as_few_neighbours, .timeout = 200)
{
    static const int counts[] = {11, 13, 22, 127, EFFORT(521, 131, 131), EFFORT(FULL(1021, 137), 137, 137)};
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        weir_plan *plan = conversions_of(counts[i]), *read;
        cr_expect_leq(neighbours_most(plan), 2 * TEAM_MAX, "of %d devices one has %d neighbours", counts[i],
                      neighbours_most(plan));
        void *bytes;
        size_t bytes_count;
        cr_assert_eq(plan_encode(plan, &bytes, &bytes_count), WEIR_OK);
        cr_expect_not_null(read = plan_decode(bytes, bytes_count), "%d devices: %s", counts[i], weir_error());
        weir_plan_free(read);
        free(bytes);
        weir_plan_free(plan);
    }
}

/* With eight times as many devices each has a tier more, three rather than two. */
Test(teams, plans_grow_with_devices_and_tiers, .timeout = 200)
{
    weir_plan *some = conversions_of(64), *many = conversions_of(512);
    void *bytes;
    size_t some_bytes, many_bytes;
    cr_assert_eq(plan_encode(some, &bytes, &some_bytes), WEIR_OK);
    free(bytes);
    cr_assert_eq(plan_encode(many, &bytes, &many_bytes), WEIR_OK);
    free(bytes);
    cr_expect_leq(many->ports_count, some->ports_count * 8 * 3 / 2 * 11 / 10, "%u ports, %u", some->ports_count,
                  many->ports_count);
    cr_expect_leq(many_bytes, some_bytes * 8 * 3 / 2 * 11 / 10, "%zu bytes, %zu", some_bytes, many_bytes);
    weir_plan_free(some);
    weir_plan_free(many);
}

/* ---- training ---- */

enum { STEPS = EFFORT(FULL(6, 3), 2, 2) };

typedef struct losses {
    float value[STEPS];
} losses;

static weir_plan *gpt_plan(const text *corpus, gpt_config *config, layout l, weir_compile_opts opts)
{
    *config = reference_gpt(corpus, REFERENCE_FULL);
    config->layout = l;
    weir_graph *g = gpt_train_graph(config);
    cr_assert_not_null(g);
    opts.micro_batches = l.micro;
    opts.seed = REFERENCE_SEED;
    opts.size = sizeof opts;
    weir_plan *plan = weir_compile_at(g, &opts);
    cr_assert_not_null(plan, "%s", weir_error());
    weir_graph_free(g);
    return plan;
}

static losses train(const weir_plan *plan, int workers)
{
    losses out;
    weir_session *s = weir_session_open(plan, .workers = workers);
    cr_assert_not_null(s, "%s", weir_error());
    cr_assert_eq(weir_session_start(s, STEPS), WEIR_OK, "%s", weir_error());
    for (int i = 0; i < STEPS; i++) {
        weir_array value = {.data = &out.value[i], .dtype = WEIR_F32};
        cr_assert_eq(weir_session_pull(s, "loss", &value, 60000), WEIR_OK, "%s", weir_error());
    }
    cr_assert_eq(weir_session_wait(s, 20000), WEIR_OK, "%s", weir_error());
    cr_assert_eq(weir_session_close(s), WEIR_OK);
    return out;
}

static uint64_t bytes_most(const weir_plan *plan)
{
    uint64_t most = 0;
    for (uint32_t s = 0; s < plan->spaces_count; s++)
        most = plan->spaces[s].bytes > most ? plan->spaces[s].bytes : most;
    return most;
}

/* Sixteen devices learn what one does, with the same bits however many workers there are, and within a limit. */
static void learns(layout l, int per_host, unsigned long long percent)
{
    text corpus = reference_text();
    gpt_config config, single;
    weir_plan *one = gpt_plan(&corpus, &single, (layout){1, 1, 1, 1, false}, (weir_compile_opts){.src = WEIR_HERE});
    losses want = train(one, 1);
    weir_plan *plan = gpt_plan(&corpus, &config, l, (weir_compile_opts){.src = WEIR_HERE, .per_host = per_host});
    losses first = train(plan, 1), again = train(plan, 3);
    for (int i = 0; i < STEPS; i++)
        cr_expect_lt(fabs((double)first.value[i] - want.value[i]), 1e-4 * fabs((double)want.value[i]),
                     "dp%d tp%d zero %d: step %d: %.7f, one device %.7f", l.dp, l.tp, l.zero, i, (double)first.value[i],
                     (double)want.value[i]);
    cr_expect_arr_eq(first.value, again.value, sizeof first.value, "dp%d tp%d zero %d: other bits", l.dp, l.tp, l.zero);
    char limit[32];
    snprintf(limit, sizeof limit, "%llu", bytes_most(plan) * percent / 100);
    weir_plan *less = gpt_plan(&corpus, &config, l,
                               (weir_compile_opts){.src = WEIR_HERE, .per_host = per_host, .memory = limit});
    losses limited = train(less, 2);
    cr_expect_lt(bytes_most(less), bytes_most(plan));
    cr_expect_arr_eq(first.value, limited.value, sizeof first.value, "dp%d tp%d zero %d: other bits within %s bytes",
                     l.dp, l.tp, l.zero, limit);
    weir_plan_free(one);
    weir_plan_free(plan);
    weir_plan_free(less);
    text_free(&corpus);
}

Test(teams, sixteen_devices_learn_what_one_does, .timeout = 200)
{
#if EFFORT(FULL(1, 0), 0, 0)
    learns((layout){16, 1, 1, 1, false}, 0, 99);
#endif
    learns((layout){16, 1, 1, 1, true}, 0, 90);
}

Test(teams, eleven_devices_learn_what_one_does, .timeout = 200)
{
    learns((layout){11, 1, 1, 1, false}, 0, 99);
    learns((layout){11, 1, 1, 1, true}, 0, 90);
}

Test(teams, sixteen_devices_on_hosts_learn_what_one_does, .timeout = 200)
{
    learns((layout){16, 1, 1, 1, true}, 8, 90);
#if EFFORT(1, 0, 0)
    learns((layout){8, 2, 1, 1, true}, 4, 90);
#endif
}
