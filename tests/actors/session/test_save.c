/* test_save.c: a session's state on disk and back, in one process: training that was cut in two is training that was
 * not, bit for bit in the same layout and within rounding in every other; what cannot be loaded changes nothing. */
#include "graph/base/base.h"
#include "tests/support/folder.h"
#include "tests/support/learner.h"
#include "tests/support/ranks.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>
#include <weir/checkpoint.h>

enum { FIRST = 5, SECOND = 4, SEED = 20260102, PAIRS = 16, HALVES = 5 };

TestSuite(save, .init = folder_make, .fini = folder_remove, .timeout = 120);

#define assert_ok(call) cr_assert_eq(call, WEIR_OK, "%s: %s", #call, weir_error())
#define expect_error(call, wanted, ...)                                                          \
    do {                                                                                         \
        const char *parts[] = {__VA_ARGS__};                                                     \
        cr_expect_eq(call, wanted, "%s: %s", #call, weir_error());                               \
        for (size_t i_ = 0; i_ < sizeof parts / sizeof *parts; i_++)                             \
            cr_expect(strstr(weir_error(), parts[i_]), "'%s' lacks '%s'", weir_error(), parts[i_]); \
    } while (0)

static weir_session *opened(weir_plan *plan, int workers)
{
    cr_assert_not_null(plan, "%s", weir_error());
    weir_session *s = weir_session_open(plan, .workers = workers);
    cr_assert_not_null(s, "%s", weir_error());
    return s;
}

static void expect_learned(weir_session *s, const struct learned *want, double tolerance, const char *what)
{
    struct learned got = learned_read(s);
    const char *differs = learned_differs(&got, want, tolerance);
    cr_expect_null(differs, "%s: %s", what, differs);
    learned_free(&got);
}

/* The values that a run of so many steps learns that is not cut. */
static struct learned undisturbed(weir_plan *plan, int steps)
{
    weir_session *s = opened(plan, 2);
    assert_ok(weir_session_run(s, steps));
    struct learned learned = learned_read(s);
    cr_assert_gt(learned.count, 20, "%s", weir_error());
    weir_session_close(s);
    return learned;
}

/* ---- going on ---- */

static void expect_same_bits(struct learner_opts layout, int workers, const char *dir)
{
    weir_plan *plan = learner_plan_at(layout);
    struct learned want = undisturbed(plan, FIRST + SECOND);
    weir_session *s = opened(plan, workers);
    assert_ok(weir_session_run(s, FIRST));
    assert_ok(weir_session_save(s, dir));
    assert_ok(weir_session_run(s, SECOND)); /* the save leaves no trace in it */
    expect_learned(s, &want, 0, "who saved");
    weir_session_close(s);
    s = opened(plan, 3 - workers);
    assert_ok(weir_session_run(s, 2)); /* of which nothing is to be left */
    assert_ok(weir_session_load(s, dir));
    cr_expect_eq(weir_session_step(s), FIRST);
    assert_ok(weir_session_run(s, SECOND));
    cr_expect_eq(weir_session_step(s), FIRST + SECOND);
    expect_learned(s, &want, 0, "who loaded");
    weir_session_close(s);
    learned_free(&want);
    weir_plan_free(plan);
}

Test(save, training_goes_on_with_the_same_bits_as_if_it_had_not_been_cut)
{
    for (int l = 0; l < LEARNER_LAYOUTS; l++)
        expect_same_bits(learner_layouts[l], 1 + l % 2, folder_path("run-%d", l));
}

/* x bf16 is pushed, x w comes out; w bf16 is a parameter, h f16 a state that doubles. */
static weir_plan *halves_plan(void)
{
    weir_graph *g = weir_graph_new("halves");
    weir_tensor *x = weir_input(g, WEIR_BF16, {HALVES}, .name = "x");
    weir_tensor *w = weir_param(g, WEIR_BF16, {HALVES}, .name = "w", .init = WEIR_NORMAL(2));
    weir_tensor *h = weir_state(g, WEIR_F16, {HALVES}, .name = "h", .init = WEIR_VALUE(0.75));
    weir_state_set(h, weir_add(h, h));
    weir_fetch(weir_mul(x, w), .name = "y");
    weir_plan *plan = weir_compile(g);
    cr_assert_not_null(plan, "%s", weir_error());
    weir_graph_free(g);
    return plan;
}

/* Reads `name` as it is, and holds each element against `want`. */
static void expect_halves(weir_session *s, const char *name, weir_dtype dtype, const uint16_t *want)
{
    uint16_t got[HALVES];
    assert_ok(weir_session_read(s, name, &(weir_array){got, dtype, {1, {HALVES}}}));
    cr_expect(!memcmp(got, want, sizeof got), "%s: %04x %04x", name, got[0], want[0]);
}

Test(save, halves_are_pushed_pulled_kept_and_loaded_as_they_are)
{
    weir_plan *plan = halves_plan();
    weir_session *s = opened(plan, 1);
    uint16_t w[HALVES], x[HALVES], y[HALVES], h[HALVES];
    float product[HALVES];
    for (int i = 0; i < HALVES; i++) {
        const float start = 2 * weir_random_normal(name_key(0, "w"), (uint64_t)i), next = 0.5f + (float)i, state = 1.5f;
        weir_from_f32(&start, 1, WEIR_BF16, &w[i]);
        weir_from_f32(&next, 1, WEIR_BF16, &x[i]);
        weir_from_f32(&state, 1, WEIR_F16, &h[i]);
        weir_to_f32(WEIR_BF16, &w[i], 1, &product[i]);
        product[i] *= next;
    }
    expect_halves(s, "w", WEIR_BF16, w);
    assert_ok(weir_session_push(s, "x", &(weir_array){x, WEIR_BF16, {1, {HALVES}}}, -1));
    assert_ok(weir_session_run(s, 1));
    assert_ok(weir_session_pull(s, "y", &(weir_array){y, WEIR_BF16, {1, {HALVES}}}, -1));
    weir_from_f32(product, HALVES, WEIR_BF16, w);
    cr_expect(!memcmp(y, w, sizeof y));
    assert_ok(weir_session_write(s, "w", &(weir_array){x, WEIR_BF16, {1, {HALVES}}}));
    assert_ok(weir_session_save(s, folder_path("halves")));
    weir_session_close(s);
    s = opened(plan, 1);
    assert_ok(weir_session_load(s, folder_path("halves")));
    expect_halves(s, "w", WEIR_BF16, x);
    expect_halves(s, "h", WEIR_F16, h);
    weir_session_close(s);
    weir_plan_free(plan);
}

/* A checkpoint loads into the other layout with the same bits, and goes on within rounding. */
static void expect_reshard(struct learner_opts from, struct learner_opts to, const char *dir)
{
    from.sure = to.sure = from.micro != to.micro;
    weir_plan *one = learner_plan_at(from), *other = learner_plan_at(to);
    struct learned want = undisturbed(one, FIRST + SECOND);
    weir_session *s = opened(one, 2);
    assert_ok(weir_session_run(s, FIRST));
    assert_ok(weir_session_save(s, dir));
    struct learned saved = learned_read(s);
    weir_session_close(s);
    s = opened(other, 2);
    assert_ok(weir_session_load(s, dir));
    expect_learned(s, &saved, 0, "loaded in another layout");
    assert_ok(weir_session_run(s, SECOND));
    expect_learned(s, &want, 1e-4, "trained on in another layout");
    weir_session_close(s);
    learned_free(&saved);
    learned_free(&want);
    weir_plan_free(one);
    weir_plan_free(other);
}

Test(save, any_layout_loads_into_any_other)
{
    for (uint64_t i = 0; i < PAIRS; i++) {
        int from = (int)(weir_random_uniform(SEED, 2 * i) * LEARNER_LAYOUTS);
        int to = (int)(weir_random_uniform(SEED, 2 * i + 1) * LEARNER_LAYOUTS);
        to = to == from ? (to + 1) % LEARNER_LAYOUTS : to;
        expect_reshard(learner_layouts[from], learner_layouts[to], folder_path("run-%d", (int)i));
    }
}

Test(save, the_newest_is_loaded_and_older_ones_go)
{
    weir_plan *plan = learner_plan(.dp = 2);
    weir_session *s = opened(plan, 2);
    for (int i = 0; i < 4; i++) {
        assert_ok(weir_session_run(s, 1));
        assert_ok(weir_session_save(s, folder_path("run"), .keep = 2));
    }
    assert_ok(weir_session_save(s, folder_path("run"), .name = "best", .keep = 2));
    cr_expect_eq(folder_entries(folder_path("run")), 3);
    assert_ok(weir_session_load(s, folder_path("run/step-00000003")));
    cr_expect_eq(weir_session_step(s), 3);
    assert_ok(weir_session_load(s, folder_path("run")));
    cr_expect_eq(weir_session_step(s), 4);
    assert_ok(weir_session_load(s, folder_path("run/step-00000003")));
    assert_ok(weir_session_load(s, folder_path("run/best")));
    cr_expect_eq(weir_session_step(s), 4);
    weir_session_close(s);
    weir_plan_free(plan);
}

/* ---- what does not fit ---- */

Test(save, another_model_is_named_and_nothing_changes)
{
    weir_plan *plan = learner_plan(.dp = 2), *narrow = learner_plan(.narrow = true);
    weir_plan *plain = learner_plan(.plain = true);
    weir_session *s = opened(plan, 2), *other = opened(narrow, 1), *simple = opened(plain, 1);
    assert_ok(weir_session_run(s, 2));
    assert_ok(weir_session_save(s, folder_path("run")));
    struct learned before = learned_read(other);
    expect_error(weir_session_load(other, folder_path("run")), WEIR_E_ARGUMENT, "'h0/up/weight' is f32 [8, 12] here",
                 "[8, 16] in", "step-00000002");
    expect_learned(other, &before, 0, "what was not loaded");
    expect_error(weir_session_load(simple, folder_path("run")), WEIR_E_ARGUMENT, "the session has no '", ":adamw.",
                 "which is in");
    assert_ok(weir_session_load(simple, folder_path("run"), .partial = true));
    cr_expect_eq(weir_session_step(simple), 2);
    assert_ok(weir_session_load(simple, folder_path("run"), .parameters = true));
    assert_ok(weir_session_save(simple, folder_path("plain")));
    expect_error(weir_session_load(s, folder_path("plain")), WEIR_E_ARGUMENT, "has no '", ":adamw.");
    expect_error(weir_session_load(s, folder_path("nowhere")), WEIR_E_IO, "nowhere");
    learned_free(&before);
    weir_session_close(s);
    weir_session_close(other);
    weir_session_close(simple);
    weir_plan_free(plan);
    weir_plan_free(narrow);
    weir_plan_free(plain);
}

Test(save, a_damaged_checkpoint_is_named_and_nothing_changes)
{
    weir_plan *plan = learner_plan(.dp = 2, .zero = true);
    weir_session *s = opened(plan, 2);
    assert_ok(weir_session_run(s, 2));
    assert_ok(weir_session_save(s, folder_path("run")));
    assert_ok(weir_session_run(s, 1));
    struct learned before = learned_read(s);
    const char *file = folder_path("run/step-00000002/rank-0000.safetensors");
    long bytes = folder_size(file);
    folder_flip(file, bytes - 5);
    expect_error(weir_session_load(s, folder_path("run")), WEIR_E_IO, "rank-0000.safetensors: tensor ", "checksum");
    folder_flip(file, bytes - 5);
    assert_ok(weir_session_load(s, folder_path("run")));
    assert_ok(weir_session_run(s, 1));
    expect_learned(s, &before, 0, "loaded when it was whole again");
    folder_cut(file, bytes / 2);
    expect_error(weir_session_load(s, folder_path("run")), WEIR_E_IO, "rank-0000.safetensors");
    expect_learned(s, &before, 0, "what was not loaded");
    cr_expect_eq(weir_session_step(s), 3);
    learned_free(&before);
    weir_session_close(s);
    weir_plan_free(plan);
}

Test(save, wrong_calls_are_refused)
{
    weir_plan *plan = learner_plan(.dp = 2);
    weir_session *s = opened(plan, 2);
    expect_error(weir_session_save(s, ""), WEIR_E_ARGUMENT, "test_save.c", "there is no folder");
    expect_error(weir_session_save(s, folder_path("run"), .name = "a/b"), WEIR_E_ARGUMENT, "test_save.c", "'a/b'");
    expect_error(weir_session_save(s, folder_path("run"), .keep = -1), WEIR_E_ARGUMENT, "keep");
    expect_error(weir_session_load(s, NULL), WEIR_E_ARGUMENT, "test_save.c");
    expect_error(weir_session_save(s, "/proc/nowhere"), WEIR_E_IO, "/proc/nowhere");
    assert_ok(weir_session_start(s, 2000));
    expect_error(weir_session_save(s, folder_path("run")), WEIR_E_STATE, "a run is under way");
    expect_error(weir_session_load(s, folder_path("run")), WEIR_E_STATE, "a run is under way");
    weir_session_stop(s);
    assert_ok(weir_session_wait(s, -1));
    assert_ok(weir_session_save_wait(s, 0));
    weir_session_close(s);
    weir_plan_free(plan);
}

/* ---- frozen parameters ---- */

Test(save, what_is_frozen_is_written_once)
{
    weir_plan *plan = learner_plan(.dp = 2);
    weir_session *s = opened(plan, 2);
    assert_ok(weir_session_save(s, folder_path("run")));
    assert_ok(weir_session_run(s, 3));
    assert_ok(weir_session_save(s, folder_path("run")));
    cr_expect(folder_has(folder_path("run/step-00000003/frozen-0000.safetensors")));
    cr_expect_eq(folder_links(folder_path("run/step-00000003/frozen-0000.safetensors")), 2);
    float other[8] = {1, 2, 3, 4, 5, 6, 7, 8};
    assert_ok(weir_session_write(s, "h0/frozen", &(weir_array){other, WEIR_F32, {1, {8}}}));
    assert_ok(weir_session_run(s, 1));
    assert_ok(weir_session_save(s, folder_path("run")));
    cr_expect_eq(folder_links(folder_path("run/step-00000004/frozen-0000.safetensors")), 1);
    weir_session_close(s);
    weir_plan_free(plan);
}

/* ---- while training goes on ---- */

static void expect_async(struct learner_opts layout, const char *dir)
{
    layout.compile.snapshot = true;
    weir_plan *plan = learner_plan_at(layout);
    struct learned want = undisturbed(plan, FIRST + SECOND);
    weir_session *s = opened(plan, 2);
    for (int i = 0; i < FIRST + SECOND; i++) { /* each save waits for the one before it */
        assert_ok(weir_session_save(s, dir, .async = true));
        assert_ok(weir_session_run(s, 1));
    }
    expect_learned(s, &want, 0, "who saved");
    assert_ok(weir_session_save_wait(s, -1));
    cr_expect_eq(folder_entries(dir), FIRST + SECOND);
    char path[4200];
    snprintf(path, sizeof path, "%s/step-%08d", dir, FIRST);
    assert_ok(weir_session_load(s, path));
    assert_ok(weir_session_run(s, SECOND));
    expect_learned(s, &want, 0, "who loaded what was written while the next step ran");
    weir_session_close(s);
    learned_free(&want);
    weir_plan_free(plan);
}

Test(save, what_is_written_while_training_goes_on_is_of_the_step_at_which_it_was_asked_for)
{
    for (int l = 0; l < LEARNER_LAYOUTS; l++)
        expect_async(learner_layouts[l], folder_path("run-%d", l));
}

Test(save, room_for_the_copy_is_planned_and_exact)
{
    weir_plan *with = learner_plan(.dp = 2, .zero = true, .compile.snapshot = true);
    weir_plan *without = learner_plan(.dp = 2, .zero = true);
    uint64_t kept = 0;
    for (int i = 0; i < weir_plan_param_count(with); i++) {
        weir_param_info info;
        assert_ok(weir_plan_param(with, i, &info));
        kept += info.frozen ? 0 : (uint64_t)weir_shape_count(&info.type.shape) * 4;
    }
    uint64_t more = weir_plan_bytes(with, -1) - weir_plan_bytes(without, -1);
    cr_expect(more >= kept && more < kept + 64 * 2 * (uint64_t)weir_plan_param_count(with), "%llu bytes for %llu",
              (unsigned long long)more, (unsigned long long)kept);
    weir_session *s = opened(with, 2), *small = opened(without, 2);
    weir_session_stats stats;
    weir_session_get_stats(s, &stats);
    cr_expect_eq(stats.arena_bytes, stats.planned_bytes);
    expect_error(weir_session_save(small, folder_path("run"), .async = true), WEIR_E_ARGUMENT, "test_save.c",
                 "weir_compile(.snapshot = true)");
    assert_ok(weir_session_save(s, folder_path("run"), .async = true));
    weir_session_close(s); /* finishes what is under way */
    cr_expect(folder_has(folder_path("run/step-00000000/index.json")));
    weir_session_close(small);
    weir_plan_free(with);
    weir_plan_free(without);
}

Test(save, a_save_that_fails_later_is_told)
{
    weir_plan *plan = learner_plan(.compile.snapshot = true);
    weir_session *s = opened(plan, 1);
    folder_write(folder_path("file"), "", 0);
    expect_error(weir_session_save(s, folder_path("file"), .async = true), WEIR_E_IO, "file");
    assert_ok(weir_session_run(s, 1));
    assert_ok(weir_session_save(s, folder_path("run"), .async = true));
    assert_ok(weir_session_save_wait(s, -1));
    weir_session_close(s);
    weir_plan_free(plan);
}

/* Large enough that it is not on the disk at once. */
Test(save, what_a_cancelled_session_was_saving_is_given_up)
{
    weir_graph *g = weir_graph_new("large");
    weir_tensor *w = weir_param(g, WEIR_F32, {64, 1 << 18}, .name = "w", .init = WEIR_VALUE(1));
    weir_tensor *loss = weir_mean(w);
    weir_fetch(loss, .name = "loss");
    weir_train(loss, weir_sgd(.lr = 0.1));
    weir_plan *plan = weir_compile(g, .snapshot = true);
    weir_graph_free(g);
    weir_session *s = opened(plan, 1);
    assert_ok(weir_session_save(s, folder_path("run"), .async = true));
    assert_ok(weir_session_cancel(s));
    expect_error(weir_session_save_wait(s, -1), WEIR_E_CANCELLED, "step-00000000", "given up");
    cr_expect_eq(folder_entries(folder_path("run")), 0, "nothing of it is left");
    cr_expect_eq(weir_session_close(s), WEIR_OK);
    weir_plan_free(plan);
}
