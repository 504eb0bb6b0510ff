/* tests/graph/model/test_input.c: sources that are split: each device calls for its own part. */
#include <criterion/criterion.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include <weir/weir.h>

#include "tests/support/fake.h"
#include "tests/support/fakes.h"
#include "tests/support/folder.h"
#include "tests/support/ranks.h"

enum { ROWS = 7, WIDE = 6, STEPS = 5, MICRO = 2, ELEMENTS = ROWS * WIDE };

/* ---- a source that knows which part is asked for ---- */

typedef struct given {
    atomic_int calls, elements, saves, restores;
    bool end;
} given;

static int64_t value_at(int64_t step, int micro, int64_t row, int64_t column)
{
    return (step * MICRO + micro) * ELEMENTS + row * WIDE + column;
}

static weir_status give(void *ctx, const weir_view *dst, int64_t step, int micro)
{
    given *g = ctx;
    float *to = dst->data;
    if (g->end && step == 3)
        return WEIR_END;
    cr_expect(dst->global.rank == 2 && dst->global.dim[0] == ROWS && dst->global.dim[1] == WIDE);
    for (int64_t row = 0; row < dst->shape.dim[0]; row++)
        for (int64_t column = 0; column < dst->shape.dim[1]; column++)
            *to++ = (float)value_at(step, micro, dst->offset[0] + row, dst->offset[1] + column);
    g->calls++;
    g->elements += (int)weir_shape_count(&dst->shape);
    return WEIR_OK;
}

static weir_status save(void *ctx, int64_t step, void *bytes, size_t *count)
{
    ((given *)ctx)->saves++;
    *count = sizeof step;
    memcpy(bytes, &step, sizeof step);
    return WEIR_OK;
}

static weir_status restore(void *ctx, int64_t step, const void *bytes, size_t count, char *why, size_t why_bytes)
{
    (void)why, (void)why_bytes;
    ((given *)ctx)->restores++;
    return count == sizeof step && !memcmp(bytes, &step, sizeof step) ? WEIR_OK : WEIR_E_ARGUMENT;
}

/* x and what a parameter learns from it: whole or split, in the layout `row`, `column` over 2 * columns devices. */
static weir_graph *model(given *g, bool split, int rows, int columns, weir_sbp row, weir_sbp column)
{
    char devices[32];
    snprintf(devices, sizeof devices, "cpu:0-%d", rows * columns - 1);
    weir_graph *graph = weir_graph_new("input");
    weir_mesh_new(graph, devices, .shape = {rows, columns});
    weir_tensor *x = weir_input(graph, WEIR_F32, {ROWS, WIDE}, .name = "x", .sbp = {row, column}, .micro = true, .source = give,
                                .ctx = g, .save = save, .restore = restore, .split = split);
    weir_tensor *w = weir_param(graph, WEIR_F32, {WIDE}, .name = "w", .init = WEIR_VALUE(0.5));
    weir_train(weir_mean(weir_tanh(weir_mul(x, w))), weir_sgd(.lr = 0.1));
    weir_fetch(x, .name = "x_out", .slots = MICRO * STEPS);
    return graph;
}

static weir_plan *planned(given *g, bool split, int rows, int columns, weir_sbp row, weir_sbp column)
{
    weir_graph *graph = model(g, split, rows, columns, row, column);
    weir_plan *plan = weir_compile(graph, .micro_batches = MICRO, .keep_graph = true);
    cr_assert(plan, "%s", weir_error());
    cr_expect_eq(weir_plan_verify(graph, plan), WEIR_OK, "%s", weir_error());
    cr_expect_eq(weir_plan_verify(graph, plan, .local = true), WEIR_OK, "%s", weir_error());
    weir_graph_free(graph);
    return plan;
}

static void run(weir_plan *plan, float x[MICRO * STEPS][ELEMENTS], float w[WIDE])
{
    weir_session *s = weir_session_open(plan);
    cr_assert(s, "%s", weir_error());
    cr_assert_eq(weir_session_run(s, STEPS), WEIR_OK, "%s", weir_error());
    for (int i = 0; i < MICRO * STEPS; i++)
        cr_assert_eq(weir_session_pull(s, "x_out", WEIR_ARRAY(x[i], WEIR_F32, ROWS, WIDE), -1), WEIR_OK, "%s", weir_error());
    cr_assert_eq(weir_session_read(s, "w", WEIR_ARRAY(w, WEIR_F32, WIDE)), WEIR_OK, "%s", weir_error());
    weir_session_close(s);
    weir_plan_free(plan);
}

Test(input, a_split_source_gives_the_bits_of_a_whole_one_and_each_part_once, .timeout = 120)
{
    static const struct layout {
        int rows, columns;
        weir_sbp row, column;
        int parts; /* that are not empty */
        int times; /* that each element is asked for, at most: a part that no kernel reads is not */
    } layouts[] = {{4, 1, WEIR_S(0), WEIR_B, 4, 1}, {2, 2, WEIR_S(0), WEIR_S(1), 4, 1}, {2, 2, WEIR_S(0), WEIR_B, 4, 2},
                   {2, 2, WEIR_B, WEIR_S(-1), 4, 2}, {2, 2, WEIR_S(0), WEIR_S(0), 4, 1}, {1, 1, WEIR_S(0), WEIR_B, 1, 1},
                   {1, 3, WEIR_AUTO, WEIR_S(1), 3, 1}, {8, 1, WEIR_S(0), WEIR_B, 7, 1}};
    for (size_t l = 0; l < sizeof layouts / sizeof *layouts; l++) {
        const struct layout *is = &layouts[l];
        static float x[2][MICRO * STEPS][ELEMENTS], w[2][WIDE];
        given whole = {0}, parts = {0};
        run(planned(&whole, false, is->rows, is->columns, is->row, is->column), x[0], w[0]);
        run(planned(&parts, true, is->rows, is->columns, is->row, is->column), x[1], w[1]);
        cr_expect_arr_eq(x[0], x[1], sizeof x[0], "layout %zu", l);
        cr_expect_arr_eq(w[0], w[1], sizeof w[0], "layout %zu", l);
        cr_expect_eq(x[1][3][9], (float)value_at(1, 1, 1, 3));
        cr_expect_eq(whole.calls, MICRO * STEPS);
        cr_expect(parts.calls <= MICRO * STEPS * is->parts, "layout %zu: %d calls", l, parts.calls);
        cr_expect(parts.elements >= MICRO * STEPS * ELEMENTS, "layout %zu: %d elements", l, parts.elements);
        cr_expect(parts.elements <= MICRO * STEPS * ELEMENTS * is->times, "layout %zu: %d elements", l, parts.elements);
    }
}

Test(input, mistakes_of_split)
{
    static const struct mistake {
        const char *wanted;
        weir_sbp row;
        bool push;
    } mistakes[] = {{"x: .split needs a .source; a value that weir_session_push() gives is whole", WEIR_S(0), true},
                    {"x: .split with P on axis 0 of the mesh", WEIR_P, false},
                    {"x: .split needs an .sbp that splits a dimension over an axis of the mesh", WEIR_B, false},
                    {"x: .split needs an .sbp that splits a dimension over an axis of the mesh", WEIR_AUTO, false},
                    {"x: S(2) on axis 0 of the mesh", WEIR_S(2), false}};
    for (size_t m = 0; m < sizeof mistakes / sizeof *mistakes; m++) {
        weir_graph *graph = weir_graph_new("mistakes");
        weir_mesh_new(graph, "cpu:0-1");
        weir_tensor *x = weir_input(graph, WEIR_F32, {ROWS, WIDE}, .name = "x", .sbp = {mistakes[m].row},
                                    .source = mistakes[m].push ? NULL : give, .split = true);
        const char *said = weir_graph_mistake(graph);
        cr_expect(weir_tensor_poisoned(x) && said && strstr(said, mistakes[m].wanted) && strstr(said, "test_input.c:"), "%s", said);
        weir_graph_free(graph);
    }
}

Test(input, a_plan_that_was_saved_calls_the_functions_that_it_is_given, .init = folder_make, .fini = folder_remove, .timeout = 60)
{
    const char *path = folder_path("split.plan");
    given parts = {0}, bound = {0};
    weir_plan *plan = planned(&parts, true, 2, 2, WEIR_S(0), WEIR_S(1));
    cr_assert_eq(weir_plan_save(plan, path), WEIR_OK, "%s", weir_error());
    weir_plan_free(plan);
    plan = weir_plan_load(path);
    cr_assert(plan, "%s", weir_error());
    int listed = 0;
    for (int h = 0; h < weir_plan_host_count(plan); h++) {
        weir_host_info info;
        cr_assert_eq(weir_plan_host(plan, h, &info), WEIR_OK);
        listed += info.kind == WEIR_HOST_SOURCE && !strcmp(info.name, "x") && info.type.shape.dim[0] == ROWS;
    }
    cr_expect_eq(listed, 4);
    weir_session *s = weir_session_open(plan, .bindings = (const weir_binding[]){{.name = "x", .source = give, .ctx = &bound}, {0}});
    cr_assert(s, "%s", weir_error());
    cr_expect_eq(weir_session_run(s, STEPS), WEIR_OK, "%s", weir_error());
    weir_session_close(s);
    weir_plan_free(plan);
    cr_expect_eq(bound.elements, MICRO * STEPS * ELEMENTS);
    cr_expect_eq(parts.calls, 0);
}

Test(input, the_end_of_one_part_ends_the_run, .timeout = 60)
{
    given parts = {.end = true};
    weir_plan *plan = planned(&parts, true, 4, 1, WEIR_S(0), WEIR_B);
    weir_session *s = weir_session_open(plan);
    cr_assert(s, "%s", weir_error());
    cr_expect_eq(weir_session_run(s, STEPS), WEIR_E_END, "%s", weir_error());
    cr_expect_eq(weir_session_step(s), 3);
    weir_session_close(s);
    weir_plan_free(plan);
}

/* A weir function that fails in a source says why. */
static weir_status give_none(void *ctx, const weir_view *dst, int64_t step, int micro)
{
    (void)dst, (void)step, (void)micro;
    return weir_plan_load(ctx) ? WEIR_OK : WEIR_E_IO;
}

Test(input, the_sentence_of_a_source_that_fails_is_reported, .timeout = 60)
{
    weir_graph *graph = weir_graph_new("fails");
    weir_fetch(weir_input(graph, WEIR_F32, {2}, .name = "x", .source = give_none, .ctx = "/no/such.plan"), .name = "y");
    weir_plan *plan = weir_compile(graph);
    weir_session *s = weir_session_open(plan);
    cr_assert(s, "%s", weir_error());
    cr_expect_eq(weir_session_run(s, 1), WEIR_E_IO);
    cr_expect(strstr(weir_error(), "test_input.c:") && strstr(weir_error(), "/no/such.plan"), "%s", weir_error());
    weir_session_close(s);
    weir_plan_free(plan);
    weir_graph_free(graph);
}

/* On accelerators a source writes to memory of the host, and its part is copied. */
Test(input, parts_for_accelerators_have_the_same_bits, .timeout = 60)
{
    static float x[2][MICRO * STEPS][ELEMENTS], w[2][WIDE];
    given whole = {0}, parts = {0};
    mesh_takes_fakes = true;
    run(planned(&whole, false, 4, 1, WEIR_S(0), WEIR_B), x[0], w[0]);
    weir_graph *graph = model(&parts, true, 4, 1, WEIR_S(0), WEIR_B);
    fakes_put(graph, fakes_all);
    weir_plan *plan = weir_compile(graph, .micro_batches = MICRO);
    cr_assert(plan, "%s", weir_error());
    weir_graph_free(graph);
    fake_open(&(fake_options){.seed = 1});
    run(plan, x[1], w[1]);
    fake_close_well();
    cr_expect_arr_eq(x[0], x[1], sizeof x[0]);
    cr_expect_arr_eq(w[0], w[1], sizeof w[0]);
    cr_expect_eq(parts.elements, MICRO * STEPS * ELEMENTS);
}

/* ---- ranks ---- */

typedef struct seen {
    int calls, elements, saves, restores;
    float w[WIDE];
} seen;

static void train_part(struct rank *rank)
{
    given parts = {0};
    seen *to = rank->result;
    weir_graph *graph = model(&parts, true, 4, 1, WEIR_S(0), WEIR_B);
    weir_plan *plan = weir_compile(graph, .micro_batches = MICRO);
    RANK_IS(rank, plan, "%s", weir_error());
    weir_session *s = weir_session_open(plan, .cluster = ranks_cluster(rank));
    RANK_IS(rank, s, "%s", weir_error());
    RANK_OK(rank, weir_session_run(s, 2));
    RANK_OK(rank, weir_session_save(s, rank->ctx));
    RANK_OK(rank, weir_session_run(s, STEPS - 2));
    *to = (seen){.calls = parts.calls, .elements = parts.elements};
    RANK_OK(rank, weir_session_read(s, "w", WEIR_ARRAY(to->w, WEIR_F32, WIDE)));
    RANK_OK(rank, weir_session_load(s, rank->ctx));
    to->saves = parts.saves;
    to->restores = parts.restores;
    weir_session_close(s);
    weir_plan_free(plan);
    weir_graph_free(graph);
}

Test(input, each_rank_reads_its_own_rows_and_saves_its_position_once, .init = folder_make, .fini = folder_remove, .timeout = 90)
{
    char path[256];
    static float x[MICRO * STEPS][ELEMENTS], w[WIDE];
    given whole = {0};
    run(planned(&whole, false, 4, 1, WEIR_S(0), WEIR_B), x, w);
    snprintf(path, sizeof path, "%s", folder_path("kept"));
    struct ranks *ranks = ranks_run(train_part, path, .count = 2, .link = RANKS_SHM, .result_bytes = sizeof(seen));
    for (int r = 0; r < 2; r++) {
        const seen *is = ranks->rank[r].result;
        cr_expect_eq(is->calls, 2 * MICRO * STEPS, "%d calls", is->calls);
        cr_expect_eq(is->elements, (r ? 3 : 4) * WIDE * MICRO * STEPS, "rank %d: %d elements", r, is->elements);
        cr_expect_eq(is->saves, 1);
        cr_expect_eq(is->restores, 1);
        cr_expect_arr_eq(is->w, w, sizeof w);
    }
    ranks_free(ranks);
}
