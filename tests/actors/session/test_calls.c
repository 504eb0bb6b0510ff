/* test_calls.c: functions of the program's as stages of a graph: several outputs, state of a session's own, queues of
 * their own, parts of a mesh, values that vary in size. And ops of the program's that are there for what they do.
 */
#define _GNU_SOURCE
#include "tests/actors/session/call_plans.h"

/* ---- none to many inputs, none to many outputs ---- */

/* Two values, until there are no more. */
static weir_status two_values(const weir_kernel_args *args)
{
    if (args->step == STEPS)
        return WEIR_END;
    for (int i = 0; i < ITEMS; i++)
        numbers(&args->out[0])[i] = (float)(args->step + i);
    ((int32_t *)args->out[1].data)[0] = (int32_t)args->step;
    return args->in_count == 0 && args->out_count == 2 ? WEIR_OK : WEIR_E_ARGUMENT;
}

static weir_status sum_and_largest(const weir_kernel_args *args)
{
    const float *x = numbers(&args->in[0]), *y = numbers(&args->in[1]);
    float sum = 0, largest = x[0];
    for (int i = 0; i < ITEMS; i++) {
        sum += x[i] + y[i];
        largest = x[i] > largest ? x[i] : largest;
    }
    numbers(&args->out[0])[0] = sum;
    numbers(&args->out[1])[0] = largest;
    return WEIR_OK;
}

typedef struct seen {
    int calls;
    double sum, largest, given;
} seen;

static weir_status take_three(const weir_kernel_args *args)
{
    seen *to = args->host;
    to->calls++;
    to->sum += numbers(&args->in[0])[0];
    to->largest += numbers(&args->in[1])[0];
    to->given += ((const int32_t *)args->in[2].data)[0];
    return args->out_count == 0 ? WEIR_OK : WEIR_E_ARGUMENT;
}

/* The outputs of a call can be read on the other devices, too. */
Test(calls, several_outputs_and_none)
{
    seen to = {0};
    weir_graph *g = weir_graph_new("many");
    weir_mesh_new(g, "cpu:0-1");
    weir_tensor *x[2], *y[2];
    weir_call_many(x, two_values, {NULL}, .graph = g, .name = "x", .out = {{WEIR_F32, {ITEMS}}, {WEIR_I32, {0}}});
    weir_call_many(y, sum_and_largest, {x[0], weir_neg(x[0])}, .name = "y", .out = {{WEIR_F32, {1}}, {WEIR_F32, {1}}});
    weir_call_many(NULL, take_three, {weir_affine(y[0], 1), weir_affine(y[1], 2), x[1]}, .ctx = &to);
    weir_plan *plan = compiled(g, 1);
    weir_session *s = opened(plan);
    cr_expect_eq(weir_session_run(s, 2 * STEPS), WEIR_E_END, "%s", weir_error());
    cr_expect_eq(weir_session_step(s), STEPS);
    weir_session_close(s);
    cr_expect_eq(to.calls, STEPS);
    cr_expect_eq(to.sum, 0);
    cr_expect_eq(to.largest, 2 * (STEPS * (STEPS - 1) / 2 + STEPS * (ITEMS - 1)));
    cr_expect_eq(to.given, STEPS * (STEPS - 1) / 2);
    weir_plan_free(plan);
}

static void expect_mistake(weir_graph *g, const char *wanted)
{
    const char *mistake = weir_graph_mistake(g);
    cr_expect(mistake && strstr(mistake, "test_calls.c:") && strstr(mistake, wanted), "\"%s\" is not in %s", wanted,
              mistake ? mistake : "nothing");
    weir_graph_free(g);
}

static weir_status open_nothing(const weir_kernel_args *args, void **state)
{
    (void)args, (void)state;
    return WEIR_OK;
}

static void close_nothing(void *host, void *state)
{
    (void)host, (void)state;
}

#define MISTAKE(wanted, ...)                                                             \
    do {                                                                                 \
        weir_graph *g = weir_graph_new("wrong");                                         \
        weir_mesh_new(g, "cpu:0-1");                                                     \
        weir_tensor *x = weir_input(g, WEIR_F32, {4}, .name = "x"), *y[8];               \
        weir_tensor *v = weir_call(nothing, {x}, .dtype = WEIR_F32, .shape = {4}, .varies = true); \
        (void)y, (void)v;                                                                \
        __VA_ARGS__;                                                                     \
        expect_mistake(g, wanted);                                                       \
    } while (0)

Test(calls, mistakes)
{
    MISTAKE(".out is for", weir_call(nothing, {x}, .dtype = WEIR_F32, .shape = {2}, .out = {{WEIR_F32, {2}}}));
    MISTAKE("are for weir_call()", weir_call_many(y, nothing, {x}, .dtype = WEIR_F32));
    MISTAKE("is NULL", weir_call_many(y, NULL, {x}, .out = {{WEIR_F32, {2}}}));
    MISTAKE(".micro is for", weir_call_many(NULL, nothing, {x}, .micro = true));
    MISTAKE("without .open", weir_call_many(NULL, nothing, {x}, .close = close_nothing));
    MISTAKE("is not a valid shape", weir_call_many(y, nothing, {x}, .out = {{WEIR_F32, {2}}, {WEIR_F32, {-1}}}));
    MISTAKE("needs a .shape", weir_call(nothing, {x}, .dtype = WEIR_F32, .varies = true));
    MISTAKE("there can be 8", weir_call_many(y, nothing, {x}, .out = {{WEIR_F32, {2}, true}, {WEIR_F32, {2}, true},
                              {WEIR_F32, {2}, true}, {WEIR_F32, {2}, true}, {WEIR_F32, {2}}}));
    MISTAKE("only weir_call(), weir_shard() and a weir_fetch() with a .sink", weir_neg(v));
    MISTAKE("needs a sink", weir_fetch(v, .name = "v"));
    MISTAKE("must be WEIR_B", weir_shard(v, .sbp = {WEIR_S(0)}));
    MISTAKE("varies in size must be WEIR_B", weir_call(nothing, {v}, .dtype = WEIR_F32, .shape = {4}, .in_sbp = {{WEIR_S(0)}}));
    MISTAKE("does not fit", weir_call(nothing, {x}, .dtype = WEIR_F32, .shape = {4}, .sbp = {WEIR_S(1)}));
    MISTAKE("exists once a step", weir_batch(x, 2));
    MISTAKE("a scalar has no rows", weir_unbatch(weir_sum(x)));
    MISTAKE("every output must have .varies", weir_call(nothing, {v}, .dtype = WEIR_F32, .shape = {4}, .skips = true));
    cr_expect_null(weir_call(nothing, {NULL}, .dtype = WEIR_F32));
    cr_expect(strstr(weir_error(), "test_calls.c:") && strstr(weir_error(), ".graph"), "%s", weir_error());
}

/* ---- what a call keeps ---- */

typedef struct book {
    int open, opened, closed, refuse_from;
    int64_t sum;
} book;

typedef struct page {
    book *of;
    int64_t calls;
} page;

static page pages[16];

static weir_status open_page(const weir_kernel_args *args, void **state)
{
    book *b = args->host;
    if (b->refuse_from && b->opened == b->refuse_from) {
        snprintf(args->error, args->error_bytes, "the book has %d pages", b->opened);
        return WEIR_E_IO;
    }
    cr_expect_eq(args->in_count, 1);
    cr_expect_eq(args->in[0].shape.dim[0], ITEMS);
    cr_expect_null(args->in[0].data);
    pages[b->opened] = (page){.of = b};
    *state = &pages[b->opened++];
    b->open++;
    return WEIR_OK;
}

static void close_page(void *host, void *state)
{
    book *b = host;
    page *p = state;
    cr_expect_eq(p->of, b);
    cr_expect_eq(p, &pages[--b->open], "not in the reverse order");
    b->closed++;
    b->sum += p->calls;
}

static weir_status write_page(const weir_kernel_args *args)
{
    page *p = args->host_state;
    p->calls++;
    return p->of == args->host ? WEIR_OK : WEIR_E_ARGUMENT;
}

static weir_plan *two_pages(book *b)
{
    weir_graph *g = weir_graph_new("book");
    weir_tensor *x = weir_input(g, WEIR_F32, {ITEMS}, .name = "x", .source = count_up);
    weir_call_many(NULL, write_page, {x}, .name = "one", .ctx = b, .open = open_page, .close = close_page);
    weir_call_many(NULL, write_page, {x}, .name = "two", .ctx = b, .open = open_page, .close = close_page);
    return compiled(g, 1);
}

Test(calls, each_session_opens_its_own)
{
    book b = {0};
    weir_plan *plan = two_pages(&b);
    weir_session *first = opened(plan), *second = opened(plan);
    cr_expect_eq(b.opened, 4);
    cr_expect_eq(weir_session_run(second, 3), WEIR_OK, "%s", weir_error());
    cr_expect_eq(weir_session_run(second, 2), WEIR_OK, "%s", weir_error());
    cr_expect_eq(weir_session_run(first, 1), WEIR_OK, "%s", weir_error());
    cr_expect_eq(pages[0].calls + pages[1].calls, 2);
    weir_session_close(second);
    cr_expect_eq(b.sum, 10);
    weir_session_close(first);
    cr_expect_eq(b.closed, 4);
    weir_plan_free(plan);
}

Test(calls, what_cannot_be_opened_fails_the_session)
{
    book b = {.refuse_from = 1};
    weir_plan *plan = two_pages(&b);
    cr_expect_null(weir_session_open(plan));
    cr_expect(strstr(weir_error(), "test_calls.c:") && strstr(weir_error(), "two: cannot be opened: the book has 1 pages"),
              "%s", weir_error());
    cr_expect_eq(b.opened, 1);
    cr_expect_eq(b.closed, 1, "what was opened is closed");
    weir_plan_free(plan);
}

/* A plan from a file has what the session binds. */
Test(calls, bindings_open_and_close)
{
    book b = {0};
    char path[] = "/tmp/weir_calls_XXXXXX";
    int fd = mkstemp(path);
    weir_plan *made = two_pages(&b);
    cr_assert(fd >= 0);
    cr_assert_eq(weir_plan_save(made, path), WEIR_OK, "%s", weir_error());
    weir_plan *plan = weir_plan_load(path);
    cr_assert_not_null(plan, "%s", weir_error());
    const weir_binding bound[] = {{.name = "x", .source = count_up},
                                  {.name = "one", .call = nothing},
                                  {.name = "two", .call = write_page, .ctx = &b, .open = open_page, .close = close_page},
                                  {0}};
    weir_session *s = weir_session_open(plan, .bindings = bound);
    cr_assert_not_null(s, "%s", weir_error());
    cr_expect_eq(weir_session_run(s, STEPS), WEIR_OK, "%s", weir_error());
    weir_session_close(s);
    cr_expect_eq(b.closed, 1);
    cr_expect_eq(b.sum, STEPS);
    const weir_binding wrong[] = {{.name = "one", .call = nothing, .close = close_page}, {0}};
    cr_expect_null(weir_session_open(plan, .bindings = wrong));
    const weir_binding source[] = {{.name = "x", .source = count_up, .open = open_nothing}, {0}};
    cr_expect_null(weir_session_open(plan, .bindings = source));
    weir_plan_free(plan);
    weir_plan_free(made);
    remove(path);
}

static weir_status fail_late(const weir_kernel_args *args)
{
    snprintf(args->error, args->error_bytes, "enough");
    return args->step == 2 ? WEIR_E_IO : WEIR_OK;
}

Test(calls, a_session_that_fails_closes_what_it_opened)
{
    book b = {0};
    weir_graph *g = weir_graph_new("fails");
    weir_tensor *x = weir_input(g, WEIR_F32, {ITEMS}, .name = "x", .source = count_up);
    weir_call_many(NULL, write_page, {x}, .ctx = &b, .open = open_page, .close = close_page);
    weir_call_many(NULL, fail_late, {x}, .name = "fails");
    weir_plan *plan = compiled(g, 1);
    weir_session *s = opened(plan);
    cr_expect_eq(weir_session_run(s, STEPS), WEIR_E_IO);
    cr_expect(strstr(weir_error(), "enough"), "%s", weir_error());
    cr_expect_eq(b.closed, 0);
    weir_session_close(s);
    cr_expect_eq(b.closed, 1);
    weir_plan_free(plan);
}

/* ---- queues ---- */

static struct {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    int64_t begun[2];
    int missed;
} met = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

/* Waits until the other has begun its part of the step: so one thread for both would never get on. */
static weir_status meet(const weir_kernel_args *args)
{
    int self = *(const int *)args->host;
    struct timespec deadline;
    clock_gettime(CLOCK_REALTIME, &deadline);
    deadline.tv_sec += PATIENCE_S;
    pthread_mutex_lock(&met.lock);
    met.begun[self] = args->step + 1;
    pthread_cond_broadcast(&met.changed);
    while (met.begun[!self] <= args->step && !met.missed)
        met.missed += pthread_cond_timedwait(&met.changed, &met.lock, &deadline) == ETIMEDOUT;
    pthread_mutex_unlock(&met.lock);
    return WEIR_OK;
}

static weir_status drop(void *ctx, const weir_view *value, int64_t step, int micro)
{
    (void)ctx, (void)value, (void)step, (void)micro;
    return WEIR_OK;
}

Test(calls, those_of_another_queue_hold_up_nobody)
{
    int left = 0, right = 1;
    weir_graph *g = weir_graph_new("queues");
    weir_tensor *x = weir_input(g, WEIR_F32, {ITEMS}, .name = "x", .source = count_up, .queue = "read");
    weir_call_many(NULL, meet, {x}, .ctx = &left, .queue = "left");
    weir_call_many(NULL, meet, {x}, .ctx = &right);
    weir_fetch(x, .name = "y", .sink = drop, .queue = "left");
    weir_plan *plan = compiled(g, 1);
    weir_session *s = opened(plan);
    cr_expect_eq(weir_session_run(s, STEPS), WEIR_OK, "%s", weir_error());
    cr_expect_eq(met.missed, 0, "they did not meet");
    weir_session_stats stats;
    weir_session_get_stats(s, &stats);
    cr_assert_eq(stats.queue_count, 4);
    const char *const names[] = {"cpu:0", "io cpu:0", "io cpu:0 read", "io cpu:0 left"};
    const int64_t firings[] = {0, STEPS, STEPS, 2 * STEPS};
    for (int q = 0; q < 4; q++) {
        cr_expect_str_eq(stats.queue[q].name, names[q]);
        cr_expect_eq(stats.queue[q].firings, firings[q], "%s", names[q]);
    }
    weir_session_close(s);
    weir_plan_free(plan);
}

/* ---- ops of the program's ---- */

static bool note_infer(weir_op_args *args, char *error, size_t error_bytes)
{
    (void)error, (void)error_bytes;
    args->out[0] = args->in[0];
    return true;
}

static book noted;

static weir_status note_kernel(const weir_kernel_args *args)
{
    memcpy(args->out[0].data, args->in[0].data, ITEMS * sizeof(float));
    return write_page(args);
}

static const weir_op op_note = {.name = "test_note",
                                .in_min = 1,
                                .in_max = 1,
                                .out_count = 1,
                                .infer = note_infer,
                                .effect = true,
                                .actor = true,
                                .ctx = &noted,
                                .open = open_page,
                                .close = close_page,
                                .kernel = {[WEIR_CPU] = note_kernel}};

static weir_tensor *note(weir_tensor *x)
{
    return weir_op_apply(&(weir_apply){.src = WEIR_HERE, .op = &op_note, .in = &x, .in_count = 1}, NULL);
}

Test(calls, ops_with_an_effect_are_kept_and_may_be_actors)
{
    cr_assert_eq(weir_op_register(&op_note), WEIR_OK, "%s", weir_error());
    weir_graph *g = weir_graph_new("notes");
    weir_tensor *x = weir_neg(weir_input(g, WEIR_F32, {ITEMS}, .name = "x", .source = count_up, .micro = true));
    note(weir_neg(note(x))); /* nobody reads what the second makes, and nothing is fetched */
    weir_plan *plan = compiled(g, 3);
    for (uint32_t k = 0; k < plan->kernels_count; k++)
        if (!strcmp(plan_text(plan, plan->kernels[k].op), "test_note"))
            cr_expect_eq(plan->actors[plan->kernels[k].actor.i].kernels.count, 1);
    weir_session *s = opened(plan);
    cr_expect_eq(noted.opened, 2);
    cr_expect_eq(weir_session_run(s, STEPS), WEIR_OK, "%s", weir_error());
    weir_session_close(s);
    cr_expect_eq(noted.closed, 2);
    cr_expect_eq(noted.sum, 2 * 3 * STEPS);
    weir_plan_free(plan);
}

/* ---- parts of a mesh ---- */

enum { ROWS = 5, PARTS = 4, WIDE = 4 };

static atomic_int part_calls;

/* Doubles the rows; and the sum of all of its elements, a term of that of all. */
static weir_status double_part(const weir_kernel_args *args)
{
    const weir_view *x = &args->in[0], *y = &args->out[0];
    int64_t rows = x->shape.dim[0], wide = x->shape.dim[1];
    float sum = 0;
    part_calls++;
    if (y->shape.dim[0] != rows || y->shape.dim[1] != wide || y->offset[0] != x->offset[0] || x->global.dim[0] != ROWS ||
        args->in[1].shape.dim[0] != 1)
        return WEIR_E_ARGUMENT;
    for (int64_t i = 0; i < rows * wide; i++) {
        numbers(y)[i] = numbers(&args->in[1])[0] * numbers(x)[i];
        sum += numbers(x)[i];
    }
    numbers(&args->out[1])[0] = sum;
    return WEIR_OK;
}

static weir_status count_cells(void *ctx, const weir_view *dst, int64_t step, int micro)
{
    (void)ctx, (void)micro;
    for (int i = 0; i < ROWS * WIDE; i++)
        numbers(dst)[i] = (float)(step + i);
    return WEIR_OK;
}

static weir_status give_two(void *ctx, const weir_view *dst, int64_t step, int micro)
{
    (void)ctx, (void)step, (void)micro;
    for (int64_t i = 0; i < dst->shape.dim[0]; i++)
        numbers(dst)[i] = 2;
    return WEIR_OK;
}

static weir_plan *split(int rows, int columns)
{
    weir_graph *g = weir_graph_new("split");
    weir_mesh *m = weir_mesh_new(g, "cpu:0-3", .shape = {rows, columns});
    weir_tensor *y[2];
    WEIR_ON(m) {
        weir_tensor *x = weir_input(g, WEIR_F32, {ROWS, WIDE}, .name = "x", .source = count_cells);
        weir_tensor *two = weir_input(g, WEIR_F32, {1}, .name = "two", .source = give_two);
        weir_call_many(y, double_part, {x, two}, .name = "double",
                       .in_sbp = {{WEIR_S(0), WEIR_S(-1)}},
                       .out = {{WEIR_F32, {ROWS, WIDE}, .sbp = {WEIR_S(0), WEIR_S(1)}},
                               {WEIR_F32, {1}, .sbp = {WEIR_P, WEIR_P}}});
    }
    weir_fetch(y[0], .name = "y", .slots = STEPS);
    weir_fetch(y[1], .name = "sum", .slots = STEPS);
    return compiled(g, 1);
}

Test(calls, split_over_a_mesh_each_device_has_its_part)
{
    weir_plan *plan = split(2, 2);
    weir_session *s = opened(plan);
    part_calls = 0;
    cr_assert_eq(weir_session_run(s, STEPS), WEIR_OK, "%s", weir_error());
    cr_expect_eq(part_calls, PARTS * STEPS);
    for (int step = 0; step < STEPS; step++) {
        float y[ROWS * WIDE], sum, wanted = 0;
        cr_assert_eq(weir_session_pull(s, "y", &(weir_array){y, WEIR_F32, {2, {ROWS, WIDE}}}, -1), WEIR_OK, "%s",
                     weir_error());
        cr_assert_eq(weir_session_pull(s, "sum", &(weir_array){&sum, WEIR_F32, {1, {1}}}, -1), WEIR_OK, "%s",
                     weir_error());
        for (int i = 0; i < ROWS * WIDE; i++) {
            cr_expect_eq(y[i], 2 * (step + i));
            wanted += (float)(step + i);
        }
        cr_expect_eq(sum, wanted);
    }
    weir_session_close(s);
    weir_plan_free(plan);
}

/* ---- ranks, and what they open ---- */

static weir_status open_on_one(const weir_kernel_args *args, void **state)
{
    (void)state;
    if (*(const int *)args->host != 1)
        return WEIR_OK;
    snprintf(args->error, args->error_bytes, "the key is lost");
    return WEIR_E_IO;
}

static void count_close(void *host, void *state)
{
    (void)state;
    *(int *)host += 100;
}

/* Rank 1 cannot open its part; the other hears of it, then or in its first run. */
static void open_part(struct rank *rank)
{
    int number = rank->number;
    weir_graph *g = weir_graph_new("keys");
    weir_mesh_new(g, "cpu:0-1");
    weir_tensor *x = weir_input(g, WEIR_F32, {2}, .name = "x", .source = give_two);
    weir_call(nothing, {x}, .name = "key", .dtype = WEIR_F32, .shape = {2}, .in_sbp = {{WEIR_S(0)}}, .sbp = {WEIR_S(0)},
              .ctx = &number, .open = open_on_one, .close = count_close);
    weir_plan *plan = weir_compile(g);
    RANK_IS(rank, plan, "%s", weir_error());
    weir_session *s = weir_session_open(plan, .cluster = ranks_cluster(rank));
    weir_status status = s ? weir_session_run(s, 1000000) : WEIR_E_IO;
    bool told = status && strstr(weir_error(), "test_calls.c:") && strstr(weir_error(), "the key is lost");
    if (!told)
        printf("rank %d: %s\n", rank->number, weir_error());
    weir_session_close(s);
    ((int *)rank->result)[0] = told && number == (rank->number ? 1 : 100);
    weir_plan_free(plan);
    weir_graph_free(g);
}

Test(calls, a_rank_that_cannot_open_fails_all, .timeout = 60)
{
    struct ranks *ranks = ranks_run(open_part, NULL, .count = 2, .link = RANKS_SHM, .result_bytes = sizeof(int));
    cr_expect_eq(((int *)ranks->rank[0].result)[0], 1);
    cr_expect_eq(((int *)ranks->rank[1].result)[0], 1);
    ranks_free(ranks);
}
