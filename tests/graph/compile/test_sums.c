/* tests/graph/compile/test_sums.c: plans in which accelerators add by themselves (graph/compile/sbp/sums.h): which conversions
 * become such sums and which do not, how few they are, that their order is kept, what is said of them, and what of them a
 * plan may not have. Sessions run them in tests/actors/test_fast_reduce.c.
 */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "graph/model/build.h"
#include "graph/plan/form/text.h"
#include "tests/support/fake.h"
#include "tests/support/fakes.h"
#include "tests/support/proven.h"
#include "tests/support/run.h"
#include "tests/support/together.h"

enum { ORDERS = 20 };

static void with_fakes(void)
{
    mesh_takes_fakes = true;
}

TestSuite(sums, .init = with_fakes, .timeout = 120);

/* ---- one conversion ---- */

/* How many collectives there are of each kind. */
struct kinds {
    int of[PLAN_COLLECTIVE_KINDS];
};

static struct kinds kinds_of(const weir_plan *plan)
{
    struct kinds kinds = {{0}};
    for (uint32_t c = 0; c < plan->collectives_count; c++)
        kinds.of[plan->collectives[c].kind]++;
    return kinds;
}

static void expect_kinds(const weir_plan *plan, struct kinds want, const char *what)
{
    struct kinds got = kinds_of(plan);
    for (int k = 0; k < PLAN_COLLECTIVE_KINDS; k++)
        cr_expect_eq(got.of[k], want.of[k], "%s: %d of %s, and not %d", what, got.of[k], collective_text((uint32_t)k),
                     want.of[k]);
}

/* A product of matrices that are split over the first axis along what is summed, brought to another layout. */
struct conversion {
    const char *what, *devices;
    int shape[2];
    int64_t rows, columns;
    weir_sbp rest;  /* of the rows of the first matrix, on the second axis, */
    weir_sbp to[2]; /* and of the sum */
    const char *mesh; /* that it goes to; NULL: it stays */
    struct kinds kinds;
};

static weir_plan *convert(const struct conversion *x, bool fakes, weir_reduce reduce)
{
    weir_graph *g = weir_graph_new("sum");
    weir_mesh *first = weir_mesh_new(g, x->devices, .shape = {x->shape[0], x->shape[1]}), *other = first;
    if (x->mesh)
        other = weir_mesh_new(g, x->mesh);
    weir_sbp whole = x->shape[1] ? WEIR_B : WEIR_AUTO;
    weir_tensor *a = weir_input(g, WEIR_F32, {x->rows, 24}, .name = "a", .sbp = {WEIR_S(1), x->rest});
    weir_tensor *b = weir_param(g, WEIR_F32, {24, x->columns}, .name = "b", .sbp = {WEIR_S(0), whole}, .mesh = first,
                                .init = WEIR_NORMAL(1));
    weir_tensor *sum = NULL;
    WEIR_ON(first)
        sum = weir_matmul(a, b);
    WEIR_ON(other)
        sum = weir_gelu(weir_shard(sum, .sbp = {x->to[0], x->to[1]}, .mesh = other));
    weir_fetch(weir_shard(sum, .sbp = {x->to[0], x->to[1]}), .name = "sum");
    if (fakes)
        fakes_put(g, fakes_all);
    weir_plan *plan = weir_compile(g, .reduce = reduce, .seed = 1);
    cr_assert_not_null(plan, "%s: %s", x->what, weir_error());
    weir_graph_free(g);
    return plan;
}

static void converts(const struct conversion *x)
{
    weir_plan *plan = convert(x, true, WEIR_FAST), *cpu = convert(x, false, WEIR_SAME_BITS);
    expect_kinds(plan, x->kinds, x->what);
    run want = run_plan(cpu, 2, 1);
    fake_open(&(fake_options){.seed = 1});
    run got = run_plan(plan, 2, 2);
    run_near(&got, &want, 1e-5, x->what);
    fake_close_well();
    run_free(&got);
    run_free(&want);
    weir_plan_free(plan);
    weir_plan_free(cpu);
}

#define KINDS(...) {{__VA_ARGS__}}
#define S0 WEIR_S(0)
#define S1 WEIR_S(1)

Test(sums, conversions_along_one_axis_are_sums_where_parts_fit)
{
    static const struct conversion table[] = {
        {"P to B", "cpu:0-3", {4}, 64, 96, WEIR_AUTO, {WEIR_B}, NULL, KINDS([PLAN_ALL_REDUCE] = 1)},
        {"P to B, small", "cpu:0-2", {3}, 5, 3, WEIR_AUTO, {WEIR_B}, NULL, KINDS([PLAN_ALL_REDUCE] = 1)},
        {"P to S(0)", "cpu:0-3", {4}, 64, 96, WEIR_AUTO, {S0}, NULL, KINDS([PLAN_REDUCE_SCATTER] = 1)},
        {"P to S(0), small", "cpu:0-1", {2}, 2, 3, WEIR_AUTO, {S0}, NULL, KINDS([PLAN_REDUCE_SCATTER] = 1)},
        {"P to S(0), uneven", "cpu:0-3", {4}, 63, 4, WEIR_AUTO, {S0}, NULL, KINDS([PLAN_ALL_TO_ALL] = 1)},
        {"P to S(1) of one row", "cpu:0-3", {4}, 1, 96, WEIR_AUTO, {S1}, NULL, KINDS([PLAN_REDUCE_SCATTER] = 1)},
        {"P to S(1), large", "cpu:0-3", {4}, 64, 96, WEIR_AUTO, {S1}, NULL,
         KINDS([PLAN_REDUCE_SCATTER] = 1, [PLAN_ALL_TO_ALL] = 1)},
        {"P to S(1), small", "cpu:0-3", {4}, 8, 12, WEIR_AUTO, {S1}, NULL, KINDS([PLAN_ALL_TO_ALL] = 1)},
        {"devices that fall", "cpu:2,1,0", {3}, 6, 3, WEIR_AUTO, {WEIR_B}, NULL, KINDS([PLAN_ALL_TO_ALL] = 1)},
        {"one axis of two", "cpu:0-3", {2, 2}, 64, 96, S0, {WEIR_B, S0}, NULL, KINDS([PLAN_ALL_REDUCE] = 2)},
        {"one axis, then another", "cpu:0-3", {2, 2}, 64, 96, S0, {WEIR_B, WEIR_B}, NULL,
         KINDS([PLAN_ALL_REDUCE] = 2, [PLAN_SEND_RECV] = 1)}, /* what is fetched is there then */
        {"of two replicas one is read", "cpu:0-3", {2, 2}, 64, 96, WEIR_B, {S0, WEIR_B}, NULL,
         KINDS([PLAN_REDUCE_SCATTER] = 1)},
        {"one dimension on two axes", "cpu:0-3", {2, 2}, 16, 6, S0, {S0, S0}, NULL, KINDS([PLAN_ALL_TO_ALL] = 1)},
        {"to other devices", "cpu:0-1", {2}, 64, 96, WEIR_AUTO, {S0}, "cpu:2-3",
         KINDS([PLAN_REDUCE_SCATTER] = 1, [PLAN_SEND_RECV] = 2)},
    };
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        converts(&table[i]);
}

/* Where the order of a sum would go by tiers, there is one collective. */
Test(sums, many_devices_add_at_once)
{
    static const struct conversion many = {.what = "P to B", .devices = "cpu:0-23", .shape = {24}, .rows = 64, .columns = 96,
                                           .to = {WEIR_B}};
    weir_plan *plan = convert(&many, true, WEIR_FAST), *same = convert(&many, true, WEIR_SAME_BITS);
    cr_expect_eq(plan_fast_sums(plan), 1);
    cr_expect_eq(kinds_of(plan).of[PLAN_ALL_REDUCE], 1);
    cr_expect_eq(plan->collectives[plan->turns[0].i].members.count, 24, "all that come first");
    cr_expect_lt(plan->collectives_count, same->collectives_count);
    weir_plan_free(plan);
    weir_plan_free(same);
}

/* Only f32 is added: what is bf16 by hand is as it was. */
Test(sums, other_dtypes_are_added_as_without)
{
    weir_graph *g = weir_graph_new("half");
    weir_mesh_new(g, "fake:0-1");
    weir_tensor *x = weir_input(g, WEIR_F32, {8, 64}, .name = "x", .sbp = {S1});
    weir_tensor *w = weir_param(g, WEIR_F32, {64, 8}, .name = "w", .sbp = {S0});
    weir_tensor *y = weir_shard(weir_matmul(weir_cast(x, WEIR_BF16), weir_cast(w, WEIR_BF16)), .sbp = {WEIR_P});
    weir_fetch(weir_cast(weir_gelu(weir_shard(y, .sbp = {WEIR_B})), WEIR_F32), .name = "y");
    weir_plan *plan = weir_compile(g, .reduce = WEIR_FAST);
    cr_assert_not_null(plan, "%s", weir_error());
    cr_expect_eq(plan_fast_sums(plan), 0);
    cr_expect_gt(plan->collectives_count, 0);
    weir_plan_free(plan);
    weir_graph_free(g);
}

/* ---- a GPT ---- */

static weir_plan *gpt(layout l, fakes_choice on, weir_reduce reduce)
{
    weir_plan *plan = fakes_gpt(l, on, (weir_compile_opts){.reduce = reduce});
    cr_assert_not_null(plan, "%s", weir_error());
    return plan;
}

Test(sums, gradients_travel_in_few_of_them)
{
    static const struct {
        const char *what;
        layout l;
        struct kinds kinds;
    } table[] = {
        {"dp2", {2, 1, 1, 1, false}, KINDS([PLAN_ALL_REDUCE] = 2)},
        {"dp4", {4, 1, 1, 1, false}, KINDS([PLAN_ALL_REDUCE] = 2)},
        {"dp2, four micro-batches", {2, 1, 1, 4, false}, KINDS([PLAN_ALL_REDUCE] = 2)},
        {"ZeRO", {2, 1, 1, 1, true}, KINDS([PLAN_REDUCE_SCATTER] = 2, [PLAN_ALL_REDUCE] = 1, [PLAN_ALL_GATHER] = 1)},
        {"tp2", {1, 2, 1, 1, false}, KINDS([PLAN_REDUCE_SCATTER] = 18, [PLAN_ALL_REDUCE] = 18, [PLAN_ALL_GATHER] = 19)},
        {"dp2 pp2", {2, 1, 2, 1, false}, KINDS([PLAN_ALL_REDUCE] = 5, [PLAN_SEND_RECV] = 10, [PLAN_ALL_GATHER] = 1)},
    };
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        weir_plan *plan = gpt(table[i].l, fakes_all, WEIR_FAST);
        expect_kinds(plan, table[i].kinds, table[i].what);
        weir_plan_free(plan);
    }
}

Test(sums, a_plan_has_none_unless_told_and_on_cpus_is_the_same)
{
    static const layout layouts[] = {{2, 1, 1, 1, true}, {2, 2, 1, 2, false}};
    for (size_t i = 0; i < sizeof layouts / sizeof *layouts; i++) {
        weir_plan *same = gpt(layouts[i], fakes_all, WEIR_SAME_BITS);
        weir_plan *cpu = gpt(layouts[i], NULL, WEIR_SAME_BITS), *cpu_fast = gpt(layouts[i], NULL, WEIR_FAST);
        cr_expect_eq(plan_fast_sums(same), 0);
        cr_expect_eq(cpu->hash, cpu_fast->hash);
        weir_plan_free(same);
        weir_plan_free(cpu);
        weir_plan_free(cpu_fast);
    }
    weir_graph *g = weir_graph_new("none");
    weir_fetch(weir_param(g, WEIR_F32, {2}, .name = "w"));
    cr_expect_null(weir_compile(g, .reduce = (weir_reduce)2));
    cr_expect(strstr(weir_error(), "no way to reduce has the number 2"), "%s", weir_error());
    weir_graph_free(g);
}

/* NCCL's rule of order holds on them as on others (tests/graph/plan/test_together.c). */
Test(sums, none_stalls)
{
    static const layout layouts[] = {{2, 1, 1, 1, false}, {2, 2, 1, 2, true}, {2, 1, 2, 4, false}, {1, 2, 2, 2, true}};
    char why[TOGETHER_TEXT_BYTES];
    for (size_t i = 0; i < sizeof layouts / sizeof *layouts; i++) {
        weir_plan *plan = gpt(layouts[i], fakes_all, WEIR_FAST);
        struct together *t = together_new(plan);
        cr_expect_gt(plan_fast_sums(plan), 0);
        for (uint64_t seed = 0; seed < ORDERS; seed++)
            cr_expect(together_play(t, 2, seed, why), "layout %zu, seed %lu: %s", i, (unsigned long)seed, why);
        together_free(t);
        weir_plan_free(plan);
    }
}

/* ---- what is said, kept and refused ---- */

static const struct conversion four = {.what = "P to B", .devices = "cpu:0-3", .shape = {4}, .rows = 64, .columns = 96,
                                       .to = {WEIR_B}};

static char *seen(const weir_plan *plan, weir_status (*view)(const weir_plan *, FILE *))
{
    char *out = NULL;
    size_t bytes = 0;
    FILE *to = open_memstream(&out, &bytes);
    cr_assert_eq(view(plan, to), WEIR_OK, "%s", weir_error());
    fclose(to);
    return out;
}

Test(sums, it_is_said_that_bits_may_differ)
{
    for (int fast = 0; fast < 2; fast++) {
        weir_plan *plan = convert(&four, true, fast ? WEIR_FAST : WEIR_SAME_BITS);
        char *shown = seen(plan, weir_plan_show), *json = seen(plan, weir_plan_json);
        cr_expect_eq(!!strstr(shown, "1 of them adds (fast reduce): bits may differ with the communicator and the spread"),
                     fast, "%s", shown);
        cr_expect_eq(!!strstr(shown, "  144 KiB\n"), fast, "what a ring of four moves of 24 KiB: %s", shown);
        cr_expect(strstr(json, fast ? "\"fast_sums\":1" : "\"fast_sums\":0"));
        free(shown);
        free(json);
        weir_plan_free(plan);
    }
}

Test(sums, a_plan_is_the_same_from_a_file)
{
    char path[] = "/tmp/weir-test-sums-XXXXXX";
    weir_plan *plan = gpt((layout){2, 1, 1, 1, true}, fakes_all, WEIR_FAST);
    int file = mkstemp(path);
    cr_assert_geq(file, 0);
    cr_assert_eq(weir_plan_save(plan, path), WEIR_OK, "%s", weir_error());
    weir_plan *loaded = weir_plan_load(path);
    cr_assert_not_null(loaded, "%s", weir_error());
    cr_expect_eq(loaded->hash, plan->hash);
    expect_kinds(loaded, kinds_of(plan), "loaded");
    weir_plan_free(loaded);
    weir_plan_free(plan);
    remove(path);
}

static void expect_refused(const weir_plan *plan, const char *why)
{
    cr_expect_eq(plan_validate(plan), WEIR_E_PLAN, "lacks: %s", why);
    cr_expect(strstr(weir_error(), why), "'%s' lacks '%s'", weir_error(), why);
}

#define REFUSED(plan, field, value, why)     \
    do {                                     \
        uint32_t was_ = (uint32_t)(field);   \
        (field) = (value);                   \
        expect_refused((plan), (why));       \
        (field) = was_;                      \
    } while (0)

Test(sums, each_kind_of_fault_is_refused)
{
    weir_plan *plan = gpt((layout){2, 1, 1, 1, true}, fakes_all, WEIR_FAST);
    plan_collective *sum = plan->collectives;
    while (sum->kind != PLAN_REDUCE_SCATTER)
        sum++;
    plan_kernel *kernel = &plan->kernels[plan->actors[plan->members[sum->members.first + 1].i].kernels.first];
    cr_assert_gt(kernel->in.count, 1, "a sum of several");
    plan_operand *in = &plan->operands[kernel->in.first];
    REFUSED(plan, sum->kind, PLAN_ALL_REDUCE, "gives or takes cannot be added");
    REFUSED(plan, sum->kind, PLAN_ALL_GATHER, "its moves are not of that kind");
    REFUSED(plan, kernel->in.count, kernel->in.count - 1, "has not an output for each input, as many as others");
    REFUSED(plan, kernel->out.count, kernel->out.count - 1, "has not an output for each input, as many as others");
    REFUSED(plan, plan->tensors[plan->operands[kernel->out.first].tensor.i].start[0], 0, "gives or takes cannot be added");
    plan_operand first = in[0];
    in[0] = in[1];
    in[1] = first;
    expect_refused(plan, "gives or takes cannot be added");
    in[1] = in[0];
    in[0] = first;
    cr_expect_eq(plan_validate(plan), WEIR_OK, "%s", weir_error());
    weir_plan_free(plan);
}
