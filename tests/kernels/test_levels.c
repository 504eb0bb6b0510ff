/* tests/kernels/test_levels.c: which copy of the kernels is used (kernels/table/levels.c). In a portable build each level that
 * this processor has is tried; in any other there is one. The environment is read once, so each test is a process. */
#include "graph/base/base.h"
#include "kernels/common/ops.h"
#include "kernels/stored/stored.h"
#include "tests/support/blocks.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <weir/weir.h>

TestSuite(levels, .timeout = 60);

static weir_graph *model(void)
{
    weir_graph *g = weir_graph_new("levels");
    weir_tensor *x = weir_input(g, WEIR_F32, {32, 40}, .name = "x");
    weir_tensor *h = weir_gelu(weir_layernorm(weir_linear(x, 72, .name = "a"), .name = "n"));
    weir_tensor *y = weir_softmax(weir_linear(h, 24, .name = "b"));
    weir_tensor *loss = weir_mean(weir_mul(y, y));
    weir_train(loss, weir_adamw(.lr = 0.01));
    weir_fetch(loss, .name = "loss");
    return g;
}

enum { STEPS = 4 };

static void train(weir_dtype precision, float loss[STEPS])
{
    weir_graph *g = model();
    weir_plan *plan = weir_compile(g, .precision = precision);
    weir_session *s = weir_session_open(plan, .cluster.alone = true);
    cr_assert(s, "%s", weir_error());
    float x[32 * 40];
    for (int i = 0; i < 32 * 40; i++)
        x[i] = weir_random_normal(1, (uint64_t)i);
    cr_assert_eq(weir_session_start(s, STEPS), WEIR_OK);
    for (int step = 0; step < STEPS; step++) {
        cr_assert_eq(weir_session_push(s, "x", &(weir_array){x, WEIR_F32, {2, {32, 40}}}, -1), WEIR_OK);
        cr_assert_eq(weir_session_pull(s, "loss", &(weir_array){&loss[step], WEIR_F32, {0, {0}}}, -1), WEIR_OK);
    }
    cr_assert_eq(weir_session_wait(s, -1), WEIR_OK);
    weir_session_close(s);
    weir_plan_free(plan);
    weir_graph_free(g);
}

static bool portable(void)
{
    const char *level;
    return !op_level(&level) && strncmp(level, "native", 6);
}

Test(levels, the_highest_is_chosen_and_can_be_asked_for)
{
    const char *level;
    unsetenv("WEIR_CPU_LEVEL");
    cr_assert_eq(op_level(&level), WEIR_OK, "%s", weir_error());
    cr_expect(portable() ? level[0] == 'v' : !strncmp(level, "native", 6), "%s", level);
    cr_expect_eq(op_kernel(&op_matmul, WEIR_CUDA), op_matmul.kernel[WEIR_CUDA]);
    cr_expect_eq(op_kernel(&op_matmul, WEIR_PINNED), op_kernel(&op_matmul, WEIR_CPU));
    if (!portable() || !strcmp(level, "v1"))
        cr_expect_eq(op_kernel(&op_matmul, WEIR_CPU), op_matmul.kernel[WEIR_CPU]);
    else
        cr_expect_neq(op_kernel(&op_matmul, WEIR_CPU), op_matmul.kernel[WEIR_CPU]);
}

/* Each that can be asked for once, the chosen one among them. */
Test(levels, are_listed_from_the_lowest_up)
{
    const char *chosen, *const *names = op_levels();
    int found = 0;
    cr_assert_eq(op_level(&chosen), WEIR_OK, "%s", weir_error());
    cr_expect(portable() ? !strcmp(names[0], "v1") : !strncmp(names[0], "native-", 7), "%s", names[0]);
    for (int i = 0; names[i]; i++) {
        found += !strcmp(names[i], chosen);
        for (int k = 0; k < i; k++)
            cr_expect(strcmp(names[i], names[k]) != 0);
    }
    cr_expect_eq(found, 1, "%s", chosen);
}

/* An op of the program's has no copies. */
Test(levels, an_op_of_the_programs_keeps_its_kernel)
{
    weir_op own = op_relu;
    cr_expect_eq(op_kernel(&own, WEIR_CPU), op_relu.kernel[WEIR_CPU]);
}

Test(levels, one_that_is_not_there_is_refused)
{
    setenv("WEIR_CPU_LEVEL", "v9", 1);
    weir_graph *g = model();
    weir_plan *plan = weir_compile(g);
    cr_assert(plan, "%s", weir_error());
    cr_expect_null(weir_session_open(plan, .cluster.alone = true));
    cr_expect_not_null(strstr(weir_error(), "WEIR_CPU_LEVEL is \"v9\"; this library on this processor has "), "%s",
                       weir_error());
    weir_plan_free(plan);
    weir_graph_free(g);
}

/* Products of weights as they are stored: the kernels of the level, against plain sums of what the blocks stand for. Adds the bits to
 * `hash`. */
static uint64_t expect_stored(weir_format format, int64_t rows, uint64_t hash)
{
    enum { OUT = 37, IN = 256, ROWS = 21 };
    const block_format *is = block_format_of(format);
    const struct stored_attrs attrs = {format, false};
    uint64_t random = 5;
    static float x[ROWS * IN], w[OUT][IN], y[ROWS * OUT];
    static unsigned char blocks[OUT * IN / 32 * BLOCK_BYTES_MAX];
    const weir_shape shape = {3, {OUT, IN / is->elements, is->bytes}}, x_shape = {2, {rows, IN}}, y_shape = {2, {rows, OUT}};
    blocks_fill(format, OUT * IN / is->elements, blocks, &random);
    for (int64_t i = 0; i < rows * IN; i++)
        x[i] = (float)(i * 7 % 255 - 127); /* bytes already: the largest of each 32 is 100 or more */
    const weir_type in[] = {{WEIR_F32, x_shape}, {WEIR_U8, shape}}, out = {WEIR_F32, y_shape};
    const weir_op_args rule = {&op_linear_stored, in, 2, (weir_type[]){out}, 1, &attrs};
    const size_t bytes = op_linear_stored.workspace(&rule, WEIR_CPU);
    void *workspace = aligned_alloc(64, (bytes + 63) / 64 * 64);
    const weir_view views[] = {{.data = x, .dtype = WEIR_F32, .shape = x_shape, .global = x_shape},
                               {.data = blocks, .dtype = WEIR_U8, .shape = shape, .global = shape}};
    const weir_view result = {.data = y, .dtype = WEIR_F32, .shape = y_shape, .global = y_shape};
    const weir_kernel_args args = {.in = views, .in_count = 2, .out = &result, .out_count = 1, .attrs = &attrs, .workspace = workspace,
                                   .workspace_bytes = bytes};
    cr_assert_eq(op_kernel(&op_linear_stored, WEIR_CPU)(&args), WEIR_OK);
    for (int64_t o = 0; o < OUT; o++)
        block_read_row(format, blocks + o * IN / is->elements * is->bytes, 0, IN, w[o]);
    for (int64_t n = 0; n < rows * OUT; n++) {
        double sum = 0, size = 0;
        for (int i = 0; i < IN; i++) {
            sum += (double)x[n / OUT * IN + i] * (double)w[n % OUT][i];
            size += fabs((double)x[n / OUT * IN + i] * (double)w[n % OUT][i]);
        }
        cr_expect_float_eq((double)y[n], sum, 0.005 * size, "%s: %g and not %g", is->name, (double)y[n], sum);
    }
    free(workspace);
    return hash_more(hash, y, (size_t)(rows * OUT) * sizeof *y);
}

/* From v3 on, where a product and a sum are one operation, all levels of a portable build have the same bits. */
static void expect_stored_alike(const char *level)
{
    uint64_t hash = HASH_START;
    for (int format = WEIR_Q4_0; format <= WEIR_Q6_K; format++)
        for (int64_t rows = 1; rows <= 21; rows += 4)
            hash = expect_stored((weir_format)format, rows, hash);
    cr_expect(hash == 0x77fc65f4bcb3f2ce || !strcmp(level, "v1") || !portable(), "%s: %llx", level, (unsigned long long)hash);
}

/* Same bits in every run of a level; and what the levels compute differs by rounding alone. */
static void trains_alike(const char *name)
{
    static const float wanted[STEPS] = {0.00261191F, 0.00214365F, 0.00199871F, 0.00192822F};
    float once[STEPS], again[STEPS], half[STEPS];
    const char *level;
    setenv("WEIR_CPU_LEVEL", name, 1);
    if (op_level(&level))
        cr_skip_test("%s", weir_error());
    cr_assert_str_eq(level, name);
    train(WEIR_F32, once);
    train(WEIR_F32, again);
    train(WEIR_BF16, half);
    expect_stored_alike(name);
    cr_expect_arr_eq(once, again, sizeof once);
    for (int step = 0; step < STEPS; step++) {
        cr_expect_float_eq(once[step], wanted[step], 2e-8, "%s: step %d: %.9g", name, step, (double)once[step]);
        cr_expect_float_eq(half[step], wanted[step], 2e-6, "%s: bf16, step %d: %.9g", name, step, (double)half[step]);
    }
}

Test(levels, v1_trains_as_others_do)
{
    trains_alike("v1");
}

Test(levels, v3_trains_as_others_do)
{
    trains_alike("v3");
}

Test(levels, v4_trains_as_others_do)
{
    trains_alike("v4");
}

Test(levels, v4_with_bf16_trains_as_others_do)
{
    trains_alike("v4-bf16");
}

Test(levels, v4_with_amx_trains_as_others_do)
{
    trains_alike("v4-amx");
}

Test(levels, the_only_one_of_other_builds_trains_as_they_do)
{
    const char *level;
    cr_assert_eq(op_level(&level), WEIR_OK);
    trains_alike(level);
}
