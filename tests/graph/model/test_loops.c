/* test_loops.c: values that later steps read (weir_state): what they are set to, when it is read, in which layouts, and
 * what is refused.
 *
 * The expected content of a state is computed here, by a loop over steps in plain C. A recurrent cell over steps is
 * held against the same cell unrolled in one step, bit for bit; states over meshes against one device.
 */
#include "graph/model/build.h"
#include "graph/plan/prove/check.h"
#include "tests/support/run.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>
#include <weir/weir.h>

static weir_graph *g;

static void open_graph(void)
{
    g = weir_graph_new("loops");
    cr_assert_not_null(g);
}

static void close_graph(void)
{
    weir_graph_free(g);
}

TestSuite(loops, .init = open_graph, .fini = close_graph, .timeout = 120);

#define OK(call) cr_assert_eq((call), WEIR_OK, "%s", weir_error())

static weir_status give_step(void *ctx, const weir_view *dst, int64_t step, int micro)
{
    (void)ctx, (void)micro;
    for (int64_t i = 0; i < weir_shape_count(&dst->shape); i++)
        ((float *)dst->data)[i] = (float)(step + 1) + (float)i / 16;
    return WEIR_OK;
}

static weir_status give_place(void *ctx, const weir_view *dst, int64_t step, int micro)
{
    (void)ctx, (void)micro;
    *(int32_t *)dst->data = (int32_t)step;
    return WEIR_OK;
}

static void say_nothing(void *ctx, const char *text)
{
    (void)ctx, (void)text;
}

static weir_plan *plan;

static weir_session *open_plan(int micro, int workers)
{
    plan = weir_compile(g, .micro_batches = micro);
    cr_assert_not_null(plan, "%s", weir_error());
    weir_session *s = weir_session_open(plan, .workers = workers, .report = say_nothing);
    cr_assert_not_null(s, "%s", weir_error());
    return s;
}

static void close_plan(weir_session *s)
{
    weir_session_stats stats;
    weir_session_get_stats(s, &stats);
    cr_expect_eq(stats.arena_bytes, stats.planned_bytes);
    OK(weir_session_close(s));
    weir_plan_free(plan);
}

static float read_one(weir_session *s, const char *name)
{
    float value = 0;
    OK(weir_session_read(s, name, &(weir_array){&value, WEIR_F32, {0}}));
    return value;
}

static float pull_one(weir_session *s, const char *name)
{
    float value = 0;
    OK(weir_session_pull(s, name, &(weir_array){&value, WEIR_F32, {0}}, 10000));
    return value;
}

/* ---- one value ---- */

Test(loops, a_step_reads_what_the_one_before_has_set)
{
    weir_tensor *x = weir_input(g, WEIR_F32, {0}, .name = "x", .source = give_step);
    weir_tensor *total = weir_state(g, WEIR_F32, {0}, .name = "total", .init = WEIR_VALUE(0.5));
    weir_tensor *next = weir_add(total, x);
    weir_state_set(total, next);
    weir_fetch(total, .name = "before", .slots = 8);
    weir_session *s = open_plan(1, 1);
    OK(weir_session_run(s, 2));
    cr_expect_eq(read_one(s, "total"), 3.5f);
    OK(weir_session_run(s, 3));
    cr_expect_eq(read_one(s, "total"), 15.5f);
    const float before[] = {0.5f, 1.5f, 3.5f, 6.5f, 10.5f};
    for (int i = 0; i < 5; i++)
        cr_expect_eq(pull_one(s, "before"), before[i], "step %d", i);
    close_plan(s);
}

Test(loops, what_was_written_between_runs_is_read_next)
{
    weir_tensor *x = weir_input(g, WEIR_F32, {0}, .name = "x", .source = give_step);
    weir_tensor *total = weir_state(g, WEIR_F32, {0}, .name = "total");
    weir_state_set(total, weir_add(total, x));
    weir_session *s = open_plan(1, 1);
    OK(weir_session_run(s, 1));
    float value = 100;
    OK(weir_session_write(s, "total", &(weir_array){&value, WEIR_F32, {0}}));
    OK(weir_session_run(s, 2));
    cr_expect_eq(read_one(s, "total"), 105);
    close_plan(s);
}

Test(loops, a_delay_is_so_many_steps)
{
    for (int delay = 1; delay <= 4; delay++) {
        weir_graph_free(g);
        open_graph();
        weir_tensor *x = weir_input(g, WEIR_F32, {0}, .name = "x", .source = give_step);
        weir_tensor *late = weir_state(g, WEIR_F32, {0}, .name = "late", .delay = delay, .init = WEIR_VALUE(-1));
        weir_state_set(late, x);
        weir_fetch(weir_affine(late, 1), .name = "late", .slots = 12);
        weir_session *s = open_plan(1, 0);
        OK(weir_session_run(s, 5));
        OK(weir_session_run(s, 6));
        for (int step = 0; step < 11; step++)
            cr_expect_eq(pull_one(s, "late"), step < delay ? -1 : (float)(step - delay + 1), "delay %d, step %d", delay,
                         step);
        cr_expect_eq(read_one(s, "late"), 11, "the newest");
        close_plan(s);
    }
}

Test(loops, two_states_change_places)
{
    weir_tensor *a = weir_state(g, WEIR_F32, {3}, .name = "a", .init = WEIR_VALUE(1));
    weir_tensor *b = weir_state(g, WEIR_F32, {3}, .name = "b", .init = WEIR_VALUE(2));
    weir_tensor *c = weir_state(g, WEIR_F32, {3}, .name = "c", .init = WEIR_VALUE(3));
    weir_state_set(a, b);
    weir_state_set(b, weir_shard(c, .name = "laid"));
    weir_state_set(c, a);
    weir_session *s = open_plan(1, 1);
    const float want[][3] = {{2, 3, 1}, {3, 1, 2}, {1, 2, 3}, {2, 3, 1}};
    for (int step = 0; step < 4; step++) {
        float have[3][3];
        OK(weir_session_run(s, 1));
        for (int i = 0; i < 3; i++)
            OK(weir_session_read(s, (const char *[]){"a", "b", "c"}[i], &(weir_array){have[i], WEIR_F32, {1, {3}}}));
        for (int i = 0; i < 3; i++)
            cr_expect(have[i][0] == want[step][i] && have[i][2] == want[step][i], "step %d: %g", step,
                      (double)have[i][0]);
    }
    close_plan(s);
}

Test(loops, one_that_is_never_set_is_a_constant)
{
    weir_tensor *x = weir_input(g, WEIR_F32, {0}, .name = "x", .source = give_step);
    weir_tensor *still = weir_state(g, WEIR_F32, {0}, .name = "still", .delay = 3, .init = WEIR_VALUE(7));
    weir_fetch(weir_add(x, still), .name = "y", .slots = 5);
    weir_session *s = open_plan(1, 1);
    OK(weir_session_run(s, 5));
    for (int i = 0; i < 5; i++)
        cr_expect_eq(pull_one(s, "y"), (float)(8 + i));
    weir_param_info info;
    OK(weir_plan_param(plan, 0, &info));
    cr_expect(info.frozen && info.kind == WEIR_STATE);
    close_plan(s);
}

Test(loops, states_are_listed_and_counted_by_kind)
{
    weir_tensor *x = weir_input(g, WEIR_F32, {64}, .name = "x", .source = give_step);
    weir_tensor *h = weir_state(g, WEIR_F32, {64}, .name = "h", .delay = 2);
    weir_state_set(h, weir_add(h, x));
    weir_session *s = open_plan(1, 1);
    weir_param_info info;
    uint64_t bytes[PLAN_MEMS];
    cr_assert_eq(weir_plan_param_count(plan), 1);
    OK(weir_plan_param(plan, 0, &info));
    cr_expect_str_eq(info.name, "h");
    cr_expect(!info.frozen && info.kind == WEIR_STATE);
    plan_bytes_by_kind(plan, (plan_space_id){0}, bytes);
    cr_expect_eq(bytes[PLAN_KEPT], 2 * 64 * sizeof(float));
    cr_expect_eq(bytes[PLAN_PARAMETER], 0);
    close_plan(s);
}

/* All micro-batches of a step read the same value. */
Test(loops, micro_batches_share_a_state)
{
    weir_tensor *x = weir_input(g, WEIR_F32, {0}, .name = "x", .source = give_step);
    weir_tensor *m = weir_input(g, WEIR_F32, {0}, .name = "m", .source = give_step, .micro = true);
    weir_tensor *total = weir_state(g, WEIR_F32, {0}, .name = "total");
    weir_state_set(total, weir_add(total, x));
    weir_fetch(weir_add(m, total), .name = "y", .slots = 12);
    weir_session *s = open_plan(3, 1);
    OK(weir_session_run(s, 4));
    for (int i = 0; i < 12; i++)
        cr_expect_eq(pull_one(s, "y"), (float)(i / 3 + 1 + i / 3 * (i / 3 + 1) / 2), "%d", i);
    close_plan(s);
}

/* ---- rows behind rows ---- */

static weir_tensor *append_rows(weir_sbp sbp)
{
    weir_tensor *rows = weir_input(g, WEIR_F32, {2, 1, 4}, .name = "rows", .source = give_step);
    weir_tensor *place = weir_input(g, WEIR_I32, {0}, .name = "place", .source = give_place);
    weir_tensor *kept = weir_state(g, WEIR_F32, {2, 6, 4}, .name = "kept", .sbp = {sbp});
    weir_state_append(kept, rows, place);
    return kept;
}

static void expect_rows(weir_session *s, int rows)
{
    float kept[2][6][4];
    OK(weir_session_read(s, "kept", &(weir_array){kept, WEIR_F32, {3, {2, 6, 4}}}));
    for (int i = 0; i < 48; i++) {
        int batch = i / 24, row = i / 4 % 6, column = i % 4;
        float want = row < rows ? (float)(row + 1) + (float)(batch * 4 + column) / 16 : 0;
        cr_expect_eq(kept[batch][row][column], want, "%d %d %d", batch, row, column);
    }
}

Test(loops, rows_are_appended_in_place)
{
    const weir_sbp layouts[] = {WEIR_AUTO, WEIR_B, WEIR_S(0), WEIR_S(2)};
    for (int l = 0; l < 4; l++) {
        weir_graph_free(g);
        open_graph();
        weir_mesh_new(g, "cpu:0-1");
        weir_fetch(weir_sum(append_rows(layouts[l])), .name = "sum", .slots = 6);
        weir_session *s = open_plan(1, 0);
        uint64_t bytes[PLAN_MEMS];
        plan_bytes_by_kind(plan, (plan_space_id){0}, bytes);
        cr_expect_lt(bytes[PLAN_WORKSPACE], 192, "a copy of what is kept would be %d bytes", 192);
        OK(weir_session_run(s, 3));
        expect_rows(s, 3);
        OK(weir_session_run(s, 3));
        expect_rows(s, 6);
        cr_expect_eq(pull_one(s, "sum"), 0);
        cr_expect_eq(weir_session_run(s, 1), WEIR_E_KERNEL, "there is no seventh row");
        close_plan(s);
    }
}

/* The place is a state of its own: read before it is set. */
Test(loops, a_place_may_be_a_state)
{
    weir_tensor *rows = weir_input(g, WEIR_F32, {2, 1, 4}, .name = "rows", .source = give_step);
    weir_tensor *next = weir_input(g, WEIR_I32, {0}, .name = "next", .source = give_place);
    weir_tensor *place = weir_state(g, WEIR_I32, {0}, .name = "place");
    weir_tensor *kept = weir_state(g, WEIR_F32, {2, 6, 4}, .name = "kept");
    weir_state_set(place, next);
    weir_state_append(kept, rows, place);
    weir_session *s = open_plan(1, 1);
    OK(weir_session_run(s, 4)); /* at 0, 0, 1, 2 */
    float have[2][6][4];
    OK(weir_session_read(s, "kept", &(weir_array){have, WEIR_F32, {3, {2, 6, 4}}}));
    for (int row = 0; row < 6; row++)
        cr_expect_eq(have[0][row][0], row < 3 ? (float)(row + 2) : 0, "row %d", row);
    close_plan(s);
}

/* ---- a recurrent cell ---- */

enum { TIME = 5, BATCH = 3, DIM = 4 };

static weir_tensor *cell(weir_tensor *x, weir_tensor *h, weir_tensor *w, weir_tensor *u)
{
    return weir_tanh(weir_add(weir_matmul(x, w), weir_matmul(h, u)));
}

static weir_status give_time(void *ctx, const weir_view *dst, int64_t step, int micro)
{
    (void)micro;
    int64_t count = weir_shape_count(&dst->shape), first = ctx ? 0 : step * count;
    for (int64_t i = 0; i < count; i++)
        ((float *)dst->data)[i] = weir_random_normal(17, (uint64_t)(first + i));
    return WEIR_OK;
}

static weir_tensor *weight(const char *name)
{
    return weir_param(g, WEIR_F32, {DIM, DIM}, .name = name, .init = WEIR_NORMAL(0.5));
}

static void unrolled(float *h_end)
{
    int whole;
    weir_tensor *x = weir_input(g, WEIR_F32, {TIME, BATCH, DIM}, .name = "x", .source = give_time, .ctx = &whole);
    weir_tensor *w = weight("w"), *u = weight("u");
    weir_tensor *h = weir_param(g, WEIR_F32, {BATCH, DIM}, .name = "h", .frozen = true, .init = WEIR_VALUE(0.25));
    for (int t = 0; t < TIME; t++)
        h = cell(weir_reshape(weir_slice(x, 0, t, 1), {BATCH, DIM}), h, w, u);
    weir_fetch(h, .name = "h");
    weir_session *s = open_plan(1, 1);
    OK(weir_session_run(s, 1));
    OK(weir_session_pull(s, "h", &(weir_array){h_end, WEIR_F32, {2, {BATCH, DIM}}}, 10000));
    close_plan(s);
}

Test(loops, a_cell_over_steps_is_the_cell_unrolled)
{
    float want[BATCH * DIM], have[BATCH * DIM];
    unrolled(want);
    weir_graph_free(g);
    open_graph();
    weir_tensor *x = weir_input(g, WEIR_F32, {BATCH, DIM}, .name = "x", .source = give_time);
    weir_tensor *w = weight("w"), *u = weight("u");
    weir_tensor *h = weir_state(g, WEIR_F32, {BATCH, DIM}, .name = "h", .init = WEIR_VALUE(0.25));
    weir_state_set(h, cell(x, h, w, u));
    weir_session *s = open_plan(1, 1);
    OK(weir_session_run(s, TIME));
    OK(weir_session_read(s, "h", &(weir_array){have, WEIR_F32, {2, {BATCH, DIM}}}));
    cr_expect_arr_eq(have, want, sizeof have);
    close_plan(s);
}

/* ---- beside training ---- */

/* A running mean of activations, of a model that is trained; or the same model without one. */
static weir_plan *trained(bool kept, const char *devices, weir_sbp data, weir_sbp state, bool zero)
{
    weir_graph_free(g);
    open_graph();
    weir_mesh_new(g, devices);
    weir_tensor *x = weir_input(g, WEIR_F32, {8, DIM}, .name = "x", .sbp = {data});
    weir_tensor *h = weir_tanh(weir_linear(x, 6, .name = "up"));
    weir_tensor *y = weir_linear(h, 2, .name = "down");
    if (kept) {
        weir_tensor *mean = weir_state(g, WEIR_F32, {8, 6}, .name = "mean", .sbp = {state}, .delay = 2);
        weir_state_set(mean, weir_add(weir_affine(mean, 0.5), h));
        weir_fetch(weir_sum(mean), .name = "size");
    }
    weir_tensor *loss = weir_mean(weir_mul(y, y));
    weir_fetch(loss, .name = "loss");
    weir_train(loss, weir_adamw(.lr = 0.1), .zero = {zero});
    weir_plan *made = weir_compile(g, .seed = 3);
    cr_assert_not_null(made, "%s", weir_error());
    return made;
}

Test(loops, states_in_every_layout_hold_the_same)
{
    const weir_sbp layouts[] = {WEIR_AUTO, WEIR_B, WEIR_S(0), WEIR_S(1)};
    const char *const devices[] = {"cpu:0-1", "cpu:0-2", "cpu:0-3"};
    weir_plan *one = trained(true, "cpu:0", WEIR_AUTO, WEIR_AUTO, false);
    run want = run_plan(one, 5, 1);
    cr_assert_not_null(run_find(&want, "mean"));
    for (int i = 0; i < 48; i++) {
        char what[64];
        snprintf(what, sizeof what, "%s, data %d, state %d", devices[i % 3], i / 3 % 4, i / 12);
        weir_plan *many = trained(true, devices[i % 3], layouts[i / 3 % 4] == WEIR_B ? WEIR_S(0) : layouts[i / 3 % 4],
                                  layouts[i / 12], i % 2);
        run have = run_plan(many, 5, 1 + i % 3);
        run_near(&have, &want, 1e-5, what);
        run_free(&have);
        weir_plan_free(many);
    }
    run_free(&want);
    weir_plan_free(one);
}

Test(loops, a_state_beside_training_changes_no_bit_of_it)
{
    weir_plan *with = trained(true, "cpu:0-1", WEIR_S(0), WEIR_AUTO, true);
    weir_plan *without = trained(false, "cpu:0-1", WEIR_S(0), WEIR_AUTO, true);
    run a = run_plan(with, 6, 2), b = run_plan(without, 6, 2);
    for (int i = 0; i < b.count; i++) {
        const run_entry *same = run_find(&a, b.entry[i].name);
        cr_assert_not_null(same, "%s", b.entry[i].name);
        cr_expect_arr_eq(same->value, b.entry[i].value, sizeof(double) * (size_t)b.entry[i].count, "%s",
                         b.entry[i].name);
    }
    run_free(&a), run_free(&b);
    weir_plan_free(with), weir_plan_free(without);
}

Test(loops, the_gradient_does_not_flow_through_a_state)
{
    weir_tensor *x = weir_input(g, WEIR_F32, {4, DIM}, .name = "x", .source = give_step);
    weir_tensor *h = weir_state(g, WEIR_F32, {4, DIM}, .name = "h");
    weir_tensor *next = weir_linear(weir_add(x, h), DIM, .name = "l");
    weir_state_set(h, next);
    weir_tensor *loss = weir_mean(weir_mul(h, h));
    weir_train(loss, weir_sgd());
    cr_assert_not_null(weir_graph_mistake(g));
    cr_expect_not_null(strstr(weir_graph_mistake(g), "depends on no parameter that trains"));
}

/* ---- mistakes ---- */

static void expect_mistake_at(int line, const char *text)
{
    const char *mistake = weir_graph_mistake(g);
    char place[64];
    cr_assert_not_null(mistake, "line %d: no mistake", line);
    snprintf(place, sizeof place, "tests/graph/model/test_loops.c:%d: ", line);
    cr_expect(!strncmp(mistake, place, strlen(place)), "not at line %d: %s", line, mistake);
    cr_expect_not_null(strstr(mistake, text), "\"%s\" does not say \"%s\"", mistake, text);
    weir_graph_free(g);
    open_graph();
}
#define expect_mistake(text) expect_mistake_at(__LINE__ - 1, text)

static weir_tensor *vector(const char *name)
{
    return weir_input(g, WEIR_F32, {4}, .name = name);
}

Test(loops, what_cannot_be_set_is_told)
{
    weir_tensor *h = weir_state(g, WEIR_F32, {4}, .name = "h"), *x = vector("x");
    weir_state_set(h, x);
    weir_state_set(h, weir_neg(x));
    expect_mistake("\"h\" is set already, at tests/graph/model/test_loops.c:");
    h = weir_state(g, WEIR_F32, {5}, .name = "h"), x = vector("x");
    weir_state_set(h, x);
    expect_mistake("\"h\" is f32 [5], the value \"x.shard\" is f32 [4]");
    h = weir_state(g, WEIR_I32, {4}, .name = "h"), x = vector("x");
    weir_state_set(h, x);
    expect_mistake("\"h\" is i32 [4], the value \"x.shard\" is f32 [4]");
    h = weir_param(g, WEIR_F32, {4}, .name = "h"), x = vector("x");
    weir_state_set(h, x);
    expect_mistake("\"h\" is no state");
    h = weir_state(g, WEIR_F32, {4}, .name = "h"), x = weir_input(g, WEIR_F32, {4}, .name = "x", .micro = true);
    weir_state_set(h, weir_neg(x));
    expect_mistake("exists once for every micro-batch");
    h = weir_state(g, WEIR_F32, {4}, .name = "h", .delay = -1);
    expect_mistake("a delay of -1 steps");
    h = weir_state(g, WEIR_F32, {4});
    expect_mistake("state: needs a .name");
    h = weir_state(g, WEIR_F32, {4}, .name = "h", .sbp = {P});
    expect_mistake("a state cannot be P");
}

Test(loops, what_cannot_be_appended_is_told)
{
    weir_tensor *place = weir_input(g, WEIR_I32, {0}, .name = "place"), *x = weir_input(g, WEIR_F32, {2, 4}, .name = "x");
    weir_tensor *kept = weir_state(g, WEIR_F32, {6, 4}, .name = "kept", .delay = 2);
    weir_state_append(kept, x, place);
    expect_mistake("\"kept\" has .delay = 2; weir_state_append() needs a state with .delay = 1");
    place = weir_input(g, WEIR_I32, {0}, .name = "place"), x = weir_input(g, WEIR_F32, {2, 5}, .name = "x");
    kept = weir_state(g, WEIR_F32, {6, 4}, .name = "kept");
    weir_state_append(kept, x, place);
    expect_mistake("append: ");
    place = weir_input(g, WEIR_I32, {0}, .name = "place", .micro = true), x = weir_input(g, WEIR_F32, {2, 4}, .name = "x");
    kept = weir_state(g, WEIR_F32, {6, 4}, .name = "kept");
    weir_state_append(kept, x, place);
    expect_mistake("exists once for every micro-batch");
}
