/* tests/actors/session/test_calls_many.c: calls whose values vary in size, that get all micro-batches at once, or that lie
 * between devices. */
#define _GNU_SOURCE
#include "tests/actors/session/call_plans.h"

/* ---- values that vary in size ---- */

/* As many of the numbers as the step says, from 0 to ITEMS. */
static weir_status first_few(const weir_kernel_args *args)
{
    const weir_view *to = &args->out[0];
    if (!to->length || *to->length)
        return WEIR_E_ARGUMENT;
    *to->length = (int32_t)(args->step % (ITEMS + 1));
    memcpy(to->data, args->in[0].data, (size_t)*to->length * sizeof(float));
    return WEIR_OK;
}

/* Lets pass what is even. */
static weir_status even_ones(const weir_kernel_args *args)
{
    const weir_view *from = &args->in[0], *to = &args->out[0];
    (*(int *)args->host)++;
    for (int64_t i = 0; i < weir_view_rows(from); i++)
        if ((int)numbers(from)[i] % 2 == 0)
            numbers(to)[(*to->length)++] = numbers(from)[i];
    return weir_view_rows(from) ? WEIR_OK : WEIR_E_ARGUMENT;
}

static weir_status heap_up(void *ctx, const weir_view *value, int64_t step, int micro)
{
    heap *to = ctx;
    (void)step, (void)micro;
    to->values++;
    to->rows += weir_view_rows(value);
    for (int64_t i = 0; i < weir_view_rows(value); i++)
        to->sum += numbers(value)[i];
    return value->length && value->shape.dim[0] == ITEMS ? WEIR_OK : WEIR_E_ARGUMENT;
}

/* A filter: on one device, or each stage on another one. */
static weir_plan *filter(heap *to, int *calls, bool spread)
{
    weir_graph *g = weir_graph_new("filter");
    weir_mesh *m[3] = {weir_mesh_new(g, "cpu:0")};
    m[1] = spread ? weir_mesh_new(g, "cpu:1") : m[0];
    m[2] = spread ? weir_mesh_new(g, "cpu:2") : m[0];
    weir_tensor *x = weir_input(g, WEIR_F32, {ITEMS}, .name = "x", .source = count_up), *few = NULL, *even = NULL;
    WEIR_ON(m[1])
        few = weir_call(first_few, {x}, .name = "few", .dtype = WEIR_F32, .shape = {ITEMS}, .varies = true);
    WEIR_ON(m[2])
        even = weir_call(even_ones, {few}, .name = "even", .dtype = WEIR_F32, .shape = {ITEMS}, .varies = true,
                         .skips = true, .ctx = calls);
    weir_fetch(even, .name = "even", .sink = heap_up, .ctx = to);
    weir_fetch(weir_length(even), .name = "rows", .slots = STEPS + 1);
    return compiled(g, 1);
}

static void run_filter(bool spread)
{
    heap to = {0}, want = wanted();
    int calls = 0;
    int64_t rows = 0;
    weir_plan *plan = filter(&to, &calls, spread);
    weir_session *s = opened(plan);
    cr_assert_eq(weir_session_run(s, STEPS + 1), WEIR_OK, "%s", weir_error());
    for (int step = 0; step <= STEPS; step++) {
        int32_t length;
        cr_assert_eq(weir_session_pull(s, "rows", &(weir_array){&length, WEIR_I32, {0}}, -1), WEIR_OK, "%s",
                     weir_error());
        rows += length;
    }
    weir_session_close(s);
    cr_expect_eq(to.values, want.values);
    cr_expect_eq(to.rows, want.rows);
    cr_expect_eq(rows, want.rows);
    cr_expect_eq(to.sum, want.sum);
    cr_expect_eq(calls, STEPS - 1, "it is skipped when there is nothing: in steps 0 and ITEMS + 1");
    weir_plan_free(plan);
}

Test(calls_many, a_filter_lets_pass_what_it_likes)
{
    run_filter(false);
    run_filter(true);
}

static weir_status too_many(const weir_kernel_args *args)
{
    *args->out[0].length = ITEMS + 1;
    return WEIR_OK;
}

Test(calls_many, a_length_that_cannot_be_fails_the_session)
{
    weir_graph *g = weir_graph_new("too many");
    weir_tensor *x = weir_input(g, WEIR_F32, {ITEMS}, .name = "x", .source = count_up);
    weir_call(too_many, {x}, .name = "y", .dtype = WEIR_F32, .shape = {ITEMS}, .varies = true);
    weir_plan *plan = compiled(g, 1);
    weir_session *s = opened(plan);
    cr_expect_eq(weir_session_run(s, 1), WEIR_E_KERNEL);
    cr_expect(strstr(weir_error(), "output 0 has 7 rows, where there are 0 to 6"), "%s", weir_error());
    weir_session_close(s);
    weir_plan_free(plan);
}

/* ---- all micro-batches at once ---- */

enum { MICRO = 4 };

static atomic_int batch_calls;

static weir_status largest_first(const weir_kernel_args *args)
{
    const weir_view *x = &args->in[0], *y = &args->out[0];
    batch_calls++;
    for (int r = 0; r < MICRO; r++)
        for (int i = 0; i < ITEMS; i++)
            numbers(y)[r * ITEMS + i] = numbers(x)[(MICRO - 1 - r) * ITEMS + i];
    return args->micro == 0 && x->shape.dim[0] == MICRO ? WEIR_OK : WEIR_E_ARGUMENT;
}

/* One call for all micro-batches of a step, and each goes on with a row of what it made. */
static void run_batches(const char *devices, bool poison)
{
    weir_graph *g = weir_graph_new("batches");
    weir_mesh_new(g, devices);
    weir_tensor *x = weir_input(g, WEIR_F32, {ITEMS}, .name = "x", .source = count_up, .micro = true);
    weir_tensor *all = weir_batch(weir_affine(x, 2), MICRO);
    weir_tensor *turned = weir_call(largest_first, {all}, .dtype = WEIR_F32, .shape = {MICRO, ITEMS});
    weir_fetch(weir_add(weir_unbatch(weir_affine(turned, 1)), weir_affine(x, 1)), .name = "y", .slots = MICRO * STEPS);
    weir_plan *plan = compiled(g, MICRO);
    weir_session *s = weir_session_open(plan, .poison = poison);
    cr_assert_not_null(s, "%s", weir_error());
    batch_calls = 0;
    cr_assert_eq(weir_session_run(s, STEPS), WEIR_OK, "%s", weir_error());
    cr_expect_eq(batch_calls, STEPS);
    for (int v = 0; v < MICRO * STEPS; v++) {
        float y[ITEMS];
        cr_assert_eq(weir_session_pull(s, "y", &(weir_array){y, WEIR_F32, {1, {ITEMS}}}, -1), WEIR_OK, "%s", weir_error());
        int step = v / MICRO, micro = v % MICRO;
        for (int i = 0; i < ITEMS; i++)
            cr_expect_eq(y[i], 3 * (100 * step + i) + 10 * micro + 20 * (MICRO - 1 - micro));
    }
    weir_session_close(s);
    weir_plan_free(plan);
}

Test(calls_many, a_batch_is_read_once_for_all_micro_batches)
{
    run_batches("cpu:0", false);
    run_batches("cpu:0-1", false);
    run_batches("cpu:0-1", true);
}

Test(calls_many, a_batch_has_as_many_values_as_a_step)
{
    weir_graph *g = weir_graph_new("batches");
    weir_tensor *x = weir_input(g, WEIR_F32, {ITEMS}, .name = "x", .source = count_up, .micro = true);
    weir_fetch(weir_batch(x, MICRO), .name = "y");
    cr_expect_null(weir_compile(g, .micro_batches = 3));
    cr_expect(strstr(weir_error(), "test_calls_many.c:") && strstr(weir_error(), "batch: the tensor has 4 rows, but a step has 3"), "%s",
              weir_error());
    weir_graph_free(g);
}

/* ---- between devices ---- */

/* A call reads what another device made where it lies. */
Test(calls_many, what_only_calls_read_is_not_copied_between_cpus)
{
    heap to = {0};
    int calls = 0;
    weir_plan *plan = filter(&to, &calls, true);
    int boxes = 0, across = 0;
    for (uint32_t k = 0; k < plan->kernels_count; k++)
        boxes += !strcmp(plan_text(plan, plan->kernels[k].op), "box");
    for (uint32_t p = 0; p < plan->ports_count; p++) {
        uint32_t queue = plan->actors[plan->ports[p].actor.i].queue.i;
        const plan_regst *regst = &plan->regsts[plan->ports[p].regst.i];
        across += plan->queues[queue].space.i != regst->space.i;
        cr_expect_eq(regst->slots, regst->slots > 2 ? STEPS + 1 : 2);
    }
    cr_expect_eq(boxes, 0);
    cr_expect_eq(across, 2, "x on cpu:1, few on cpu:2");
    weir_plan_free(plan);
}

static void filter_on(struct rank *rank)
{
    heap to = {0}, want = wanted();
    int calls = 0;
    weir_plan *plan = filter(&to, &calls, true);
    weir_session *s = weir_session_open(plan, .cluster = ranks_cluster(rank));
    RANK_IS(rank, s, "%s", weir_error());
    RANK_OK(rank, weir_session_run(s, STEPS + 1));
    for (int step = 0; step <= STEPS; step++) {
        int32_t length;
        RANK_OK(rank, weir_session_pull(s, "rows", &(weir_array){&length, WEIR_I32, {0}}, -1));
    }
    RANK_OK(rank, weir_session_close(s));
    ((double *)rank->result)[0] = to.sum == want.sum && to.rows == want.rows;
    weir_plan_free(plan);
}

static void filter_over(enum ranks_link link)
{
    int right = 0;
    struct ranks *ranks = ranks_run(filter_on, NULL, .count = 3, .link = link, .result_bytes = sizeof(double));
    for (int r = 0; r < 3; r++)
        right += ((double *)ranks->rank[r].result)[0] == 1;
    cr_expect_eq(right, 1, "the rank of cpu:2, which has the sink");
    ranks_free(ranks);
}

Test(calls_many, a_filter_over_processes, .timeout = 120)
{
    filter_over(RANKS_SHM);
    filter_over(RANKS_TCP);
}
