/* test_pool.c: memory of graphs and compilations, and what happens when there is none.
 *
 * The pool is compiled into this suite with small blocks and an allocator that fails when it is told to, so that memory
 * runs out at every point of building and compiling a model, one after the other.
 */
#include <stdlib.h>

static long allocations, fail_at = -1; /* the one that fails */
static long kept;                      /* blocks that were not given back */

static void *failing_calloc(size_t count, size_t bytes)
{
    void *block = allocations++ == fail_at ? NULL : calloc(count, bytes);
    kept += block != NULL;
    return block;
}

static void counted_free(void *block)
{
    kept -= block != NULL;
    free(block);
}

#define POOL_BLOCK_BYTES 256
#define calloc failing_calloc
#define free counted_free
#include "graph/base/pool.c"
#undef calloc
#undef free

#include "tests/support/reference.h"

#include <criterion/criterion.h>
#include <weir/weir.h>

TestSuite(pool, .timeout = 60);

Test(pool, what_it_gives_is_zero_and_aligned)
{
    pool p = {0};
    for (size_t bytes = 0; bytes < 600; bytes++) {
        unsigned char *at = pool_alloc(&p, bytes);
        cr_assert_not_null(at);
        cr_assert_eq((uintptr_t)at % 16, 0);
        for (size_t i = 0; i < bytes; i++)
            cr_assert_eq(at[i], 0);
        memset(at, 0xFF, bytes);
    }
    cr_expect(!p.failed);
    pool_free(&p);
    cr_expect_null(p.head);
}

Test(pool, copies_and_texts_last)
{
    pool p = {0};
    int numbers[] = {1, 2, 3};
    int *copy = pool_copy(&p, numbers, sizeof numbers);
    char *path = pool_text(&p, "%s/%d", "h", 12);
    for (int i = 0; i < 100; i++)
        memset(pool_alloc(&p, 100), 0xFF, 100);
    cr_expect_arr_eq(copy, numbers, sizeof numbers);
    cr_expect_str_eq(path, "h/12");
    pool_free(&p);
}

Test(pool, lists_keep_what_they_have_as_they_grow)
{
    pool p = {0};
    POOL_LIST(int) list = {0};
    for (int i = 0; i < 1000; i++)
        *POOL_PUSH(&p, &list) = i;
    cr_assert_eq(list.count, 1000);
    for (int i = 0; i < 1000; i++)
        cr_assert_eq(list.item[i], i);
    pool_free(&p);
}

Test(pool, there_is_room_for_what_was_announced)
{
    pool p = {0};
    POOL_LIST(int) list = {0};
    cr_assert(POOL_ROOM(&p, &list, 1000));
    const int *first = list.item;
    for (int i = 0; i < 1000; i++)
        *POOL_PUSH(&p, &list) = i;
    cr_expect_eq(list.item, first);
    cr_assert_not_null(POOL_PUSH(&p, &list));
    cr_expect_eq(list.item[999], 999);
    cr_expect_not(p.failed);
    cr_expect_not(POOL_ROOM(&p, &list, INT64_C(1) << 31), "more than a list can count");
    cr_expect(p.failed);
    pool_free(&p);
}

Test(pool, a_failure_sticks)
{
    pool p = {0};
    fail_at = 0;
    cr_expect_null(pool_alloc(&p, 8));
    cr_expect(p.failed);
    cr_expect_not_null(pool_alloc(&p, 8));
    cr_expect(p.failed);
    cr_expect_null(pool_alloc(&p, SIZE_MAX - 4), "a size that cannot be");
    pool_free(&p);
}

/* Builds and compiles a model; the allocation `which` fails. Returns how many were asked for. */
static long compile_failing(const gpt_config *config, long which)
{
    allocations = 0;
    fail_at = which;
    weir_graph *g = gpt_train_graph(config);
    weir_plan *plan = g ? weir_compile(g, .micro_batches = config->layout.micro) : NULL;
    bool failed = which >= 0 && allocations > which;
    cr_assert(failed ? !plan : plan != NULL, "allocation %ld: %s", which, plan ? "a plan all the same" : weir_error());
    cr_assert(!failed || strstr(weir_error(), "no memory"), "allocation %ld: %s", which, weir_error());
    weir_plan_free(plan);
    weir_graph_free(g);
    cr_assert_eq(kept, 0, "allocation %ld: %ld blocks are not given back", which, kept);
    return allocations;
}

static void runs_out_anywhere(layout l)
{
    text corpus = reference_text();
    gpt_config config = reference_gpt(&corpus, REFERENCE_FULL);
    config.layers = 2;
    config.layout = l;
    config.recompute = true;
    long total = compile_failing(&config, -1);
    cr_expect_gt(total, 1000, "%ld are too few to mean anything", total);
    for (long which = 0; which < total; which += 1 + which % 13)
        compile_failing(&config, which);
    fail_at = -1;
    text_free(&corpus);
}

Test(pool, memory_may_run_out_anywhere_in_a_compilation)
{
    runs_out_anywhere((layout){.dp = 2, .tp = 2, .pp = 2, .micro = 2, .zero = true});
}

Test(pool, memory_may_run_out_anywhere_where_conversions_go_by_a_core)
{
    runs_out_anywhere((layout){.dp = 11, .tp = 1, .pp = 1, .micro = 1});
}

Test(pool, memory_may_run_out_anywhere_in_a_mesh)
{
    const weir_mesh *mesh = NULL;
    long which = 0;
    for (; !mesh; which++) {
        weir_graph *g = weir_graph_new("mesh");
        cr_assert_not_null(g);
        allocations = 0;
        fail_at = which;
        mesh = weir_mesh_new(g, "cpu:0-5", .shape = {3, 2});
        cr_assert_eq(!mesh, allocations > which, "allocation %ld", which);
        fail_at = -1;
        weir_graph_free(g);
        cr_assert_eq(kept, 0, "allocation %ld: %ld blocks are not given back", which, kept);
    }
    cr_expect_gt(which, 3, "%ld allocations are too few to mean anything", which - 1);
}
