/* tests/graph/compile/test_ladder.c: what a limit gives up, and how near the smallest plan is to the least. */
#include "tests/graph/compile/limited_plans.h"
#include "tests/support/run.h"

#include <math.h>

/* graph/compile/memory/parts.h and limit.h, which know a type named as the functions here. */
extern int parts_max, parts_max_hasty, limit_grid;
extern void (*limit_heard)(double counted, uint64_t bytes);

/* ---- what is given up first ---- */

/* Blocks of linear layers around what is cheap to compute again; activations are much more than weights. */
static weir_graph *blocks(int count)
{
    weir_graph *g = weir_graph_new("blocks");
    weir_tensor *x = weir_input(g, WEIR_F32, {1024, 64}, .name = "x", .micro = true);
    for (int b = 0; b < count; b++) {
        weir_tensor *h = weir_linear(weir_layernorm(x), 256);
        x = weir_add(x, weir_linear(weir_dropout(weir_gelu(h), 0.1), 64));
    }
    weir_tensor *loss = weir_mean(weir_mul(x, x), .name = "loss");
    weir_train(loss, weir_sgd());
    weir_fetch(loss, .name = "loss");
    return g;
}

static weir_plan *compile_blocks(const void *model, const char *limit)
{
    weir_graph *g = blocks(*(const int *)model);
    weir_plan *plan = weir_compile(g, .memory = limit);
    weir_graph_free(g);
    return plan;
}

Test(ladder, what_is_cheap_is_computed_again_first, .timeout = 120)
{
    const int count = 6;
    weir_plan *loose = compile_blocks(&count, NULL);
    weir_plan *little = kept(compile_blocks, &count, largest(loose) - 1);
    weir_plan *least = kept(compile_blocks, &count, smallest(compile_blocks, &count));
    cr_expect_eq(repeated(loose, NULL), 0);
    cr_expect(little->limits_count && little->limits->again + little->limits->slots > 0);
    cr_expect_eq(repeated(little, "linear"), 0, "a product, for one byte");
    cr_expect_gt(repeated(least, "linear"), 0, "what is costly is given up at the end");
    cr_expect_gt(repeated(least, "dropout"), 0);
    run want = run_plan(loose, STEPS, 1), got = run_plan(least, STEPS, 1);
    run_near(&got, &want, 0, "the same elements are dropped again");
    run_free(&want);
    run_free(&got);
    weir_plan_free(loose);
    weir_plan_free(little);
    weir_plan_free(least);
}

/* About the square root of n of n blocks are alive at once; the others are recomputed from values kept between them. */
Test(ladder, activations_grow_slower_than_the_depth, .timeout = 120)
{
    uint64_t bytes[2];
    for (int i = 0; i < 2; i++) {
        const int count = i ? 32 : 8;
        weir_plan *plan = kept(compile_blocks, &count, smallest(compile_blocks, &count));
        bytes[i] = largest(plan);
        weir_plan_free(plan);
    }
    cr_expect_gt(bytes[1], bytes[0]);
    cr_expect_lt(bytes[1], 3 * bytes[0], "%lu and %lu bytes for 8 and 32 blocks", (long)bytes[0], (long)bytes[1]);
}

static weir_plan *compile_chain(const void *model, const char *limit)
{
    weir_graph *g = weir_graph_new("chain");
    weir_tensor *x = weir_input(g, WEIR_F32, {256, 64}, .name = "x"), *w = weir_param(g, WEIR_F32, {64, 64}, .name = "w");
    for (int i = 0; i < *(const int *)model; i++)
        x = weir_tanh(weir_matmul(x, w));
    weir_tensor *loss = weir_mean(weir_mul(x, x), .name = "loss");
    weir_train(loss, weir_sgd());
    weir_fetch(loss, .name = "loss");
    weir_plan *plan = weir_compile(g, .memory = limit);
    weir_graph_free(g);
    return plan;
}

/* All layers cost as much, so nothing but their places says which are to be kept. */
Test(ladder, of_equal_layers_some_are_kept_at_equal_distances, .timeout = 120)
{
    for (int count = 16; count <= EFFORT(FULL(256, 128), 64, 64); count *= 2) {
        weir_plan *loose = compile_chain(&count, NULL), *least = kept(compile_chain, &count, smallest(compile_chain, &count));
        double root = sqrt(count), each = 256 * 64 * 4;
        cr_expect_leq((double)largest(least), each * (2.25 * root + 6), "%ld bytes, %d layers", (long)largest(least), count);
        cr_expect(count < 128 || largest(least) <= largest(loose) / 4);
        cr_expect_leq(repeated(least, "tanh"), count, "more than one more forward pass");
        cr_expect_leq(repeated(least, "matmul"), count);
        weir_plan_free(loose);
        weir_plan_free(least);
    }
}

/* The smallest limit when every part is placed by itself, however many there are, and so many rungs are tried. */
static uint64_t smallest_exactly(compile_fn compile, const void *model, int rungs)
{
    int most = parts_max, hasty = parts_max_hasty, grid = limit_grid;
    parts_max = parts_max_hasty = INT32_MAX;
    limit_grid = rungs;
    uint64_t bytes = smallest(compile, model);
    parts_max = most;
    parts_max_hasty = hasty;
    limit_grid = grid;
    return bytes;
}

static void model_is_near(compile_fn compile, const void *model, int number, int rungs)
{
    uint64_t told = smallest(compile, model), exact = smallest_exactly(compile, model, rungs);
    cr_expect_leq(told, exact + exact / 20, "%d: %ld bytes, and %ld when parts are placed one by one, of %d rungs", number,
                  (long)told, (long)exact, rungs);
}

static void smallest_is_near(compile_fn compile, int layers, int rungs)
{
    model_is_near(compile, &layers, layers, rungs);
}

/* All rungs are tried of models that are small enough. */
Test(ladder, the_smallest_is_near_that_of_all_rungs, .timeout = 300)
{
    for (int count = 4; count <= EFFORT(FULL(16, 8), 8, 8); count *= 2)
        smallest_is_near(compile_blocks, count, INT32_MAX);
    for (int count = 10; count <= EFFORT(FULL(160, 40), 40, 40); count *= 4)
        smallest_is_near(compile_chain, count, INT32_MAX);
}

/* A layer has three products, one of which is made again. */
static void says_how_much_longer(const void *model, int products, uint64_t bytes)
{
    weir_plan *plan = kept(compile_blocks, model, bytes);
    double again = repeated(plan, "linear") / 3.0 / products, longer = plan->limits->longer;
    cr_expect(longer > 0.7 * again && longer < 1.4 * again + 0.1, "within %ld bytes: %.3f longer, of the products %.3f are made again",
              (long)bytes, longer, again);
    weir_plan_free(plan);
}

Test(ladder, a_plan_says_how_much_longer_a_step_takes, .timeout = 120)
{
    for (int count = 4; count <= EFFORT(16, 4, 4); count *= 4) {
        weir_plan *loose = compile_blocks(&count, NULL);
        uint64_t most = largest(loose), least = smallest(compile_blocks, &count);
        for (int at = 0; at < LADDER; at++)
            says_how_much_longer(&count, 2 * count, limit_at(least, most, at));
        weir_plan_free(loose);
    }
}

/* ---- the ladder's count and the layout ---- */

enum { HEARD_MAX = 4096 };
static struct heard {
    double counted, bytes;
} heard[HEARD_MAX];
static int heard_count;

static void hear(double counted, uint64_t bytes)
{
    if (counted > 0 && heard_count < HEARD_MAX)
        heard[heard_count++] = (struct heard){counted, (double)bytes};
}

/* `tensor`: bytes of the largest, of which one more may be there when parts are packed. */
static void ladder_is_near(compile_fn compile, int layers, double tensor)
{
    int grid = limit_grid;
    heard_count = 0;
    limit_grid = INT32_MAX;
    limit_heard = hear;
    smallest(compile, &layers);
    limit_heard = NULL;
    limit_grid = grid;
    cr_assert_gt(heard_count, 2, "of %d layers", layers);
    struct heard whole = {.counted = 0};
    for (int i = 0; i < heard_count; i++)
        whole = heard[i].counted > whole.counted ? heard[i] : whole;
    for (int i = 0; i < heard_count; i++) {
        double all = heard[i].counted + whole.bytes - whole.counted; /* with what the ladder does not count */
        cr_expect(heard[i].bytes < 1.05 * all + tensor && heard[i].bytes > 0.95 * all, "%d layers: %.0f bytes, counted were %.0f", layers,
                  heard[i].bytes, all);
    }
}

/* No rung changes what the ladder leaves out; and it knows nothing of how parts are packed. */
Test(ladder, the_layout_of_a_rung_takes_what_the_ladder_counts, .timeout = 300)
{
    for (int layers = 4; layers <= EFFORT(FULL(32, 16), 8, 8); layers *= 2)
        ladder_is_near(compile_blocks, layers, 4 * 1024 * 64 * sizeof(float));
    for (int layers = 16; layers <= EFFORT(FULL(256, 64), 32, 32); layers *= 2)
        ladder_is_near(compile_chain, layers, 256 * 64 * sizeof(float));
}

Test(ladder, the_smallest_of_layouts_is_near_that_of_all_rungs, .timeout = 300)
{
    static const layout layouts[] = {{1, 1, 1, 1, false}, {2, 1, 1, 2, false}, {1, 2, 1, 2, false}, {2, 1, 1, 2, true},
                                     {1, 1, 2, 4, false}, {2, 1, 2, 2, true},  {2, 2, 2, 2, false}};
    text corpus = reference_text();
    for (int i = 0; i < EFFORT(FULL(7, 5), 3, 3); i++) {
        gpt_model gpt = {reference_gpt(&corpus, REFERENCE_FULL), WEIR_F32};
        gpt.config.layout = layouts[i];
        model_is_near(compile_gpt, &gpt, i, INT32_MAX);
    }
    text_free(&corpus);
}

Test(ladder, the_smallest_is_near_that_of_parts_that_are_placed_one_by_one, .timeout = 300)
{
    for (int count = 4; count <= EFFORT(FULL(256, 64), 32, 32); count *= 4)
        smallest_is_near(compile_blocks, count, limit_grid);
    for (int count = 10; count <= EFFORT(FULL(640, 160), 40, 40); count *= 4)
        smallest_is_near(compile_chain, count, limit_grid);
}

Test(ladder, one_byte_less_than_the_smallest_is_refused, .timeout = 120)
{
    const int count = 4;
    uint64_t least = smallest(compile_blocks, &count);
    cr_expect_null(within(compile_blocks, &count, least - 1));
    cr_expect_not_null(strstr(weir_error(), ", 1 B more than the limit of "), "%s", weir_error());
    cr_expect_eq(smallest(compile_blocks, &count), least);
}
