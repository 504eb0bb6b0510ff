/* learn.c: learns the slopes of a function, and keeps what it takes to apply it elsewhere.
 *
 *     learn check                 whether the op keeps its promises
 *     learn PLAN CHECKPOINTS
 *
 * The plan has two programs over the same slopes: main, which learns on two devices, and "apply", which is given x and
 * gives y:
 *
 *     weir run --load ./prelu.so PLAN --program apply --load-params CHECKPOINTS --feed apply/x=x.npy --fetch apply/y=y.npy
 */
#include "prelu.h"

#include <stdio.h>
#include <string.h>

enum { ROWS = 8, COLUMNS = 4 };

static float random_x(int64_t step, int i)
{
    return weir_random_normal((uint64_t)step, (uint64_t)i);
}

static weir_status draw_x(void *ctx, const weir_view *x, int64_t step, int micro)
{
    (void)ctx, (void)micro;
    for (int i = 0; i < ROWS * COLUMNS; i++)
        ((float *)x->data)[i] = random_x(step, i);
    return WEIR_OK;
}

/* The slopes to be learned: 0.1, 0.2, 0.3 and 0.4. */
static weir_status draw_y(void *ctx, const weir_view *y, int64_t step, int micro)
{
    (void)ctx, (void)micro;
    for (int i = 0; i < ROWS * COLUMNS; i++) {
        float x = random_x(step, i);
        ((float *)y->data)[i] = x > 0 ? x : 0.1f * (float)(1 + i % COLUMNS) * x;
    }
    return WEIR_OK;
}

static weir_graph *build(void)
{
    weir_graph *g = weir_graph_new("learn");
    weir_mesh_new(g, "cpu:0-1");
    weir_tensor *x = weir_input(g, WEIR_F32, {ROWS, COLUMNS}, .name = "x", .sbp = {WEIR_S(0)}, .source = draw_x);
    weir_tensor *y = weir_input(g, WEIR_F32, {ROWS, COLUMNS}, .name = "y", .sbp = {WEIR_S(0)}, .source = draw_y);
    weir_tensor *error = weir_sub(prelu(x, .name = "act"), y);
    weir_train(weir_mean(weir_mul(error, error)), weir_sgd(.lr = 4));
    WEIR_PROGRAM(g, "apply") {
        weir_tensor *in = weir_input(g, WEIR_F32, {ROWS, COLUMNS}, .name = "x", .sbp = {WEIR_S(0)});
        weir_fetch(prelu(in, .name = "act"), .name = "y");
    }
    return g;
}

static weir_status learn(const weir_plan *plan, const char *checkpoints)
{
    float slope[COLUMNS] = {0};
    weir_session *s = weir_session_open(plan);
    weir_status status = s ? weir_session_run(s, 100) : WEIR_E_STATE;
    if (!status)
        status = weir_session_read(s, "act/slope", WEIR_ARRAY(slope, WEIR_F32, COLUMNS));
    if (!status)
        status = weir_session_save(s, checkpoints);
    if (!status)
        printf("slopes: %.3f %.3f %.3f %.3f\n", (double)slope[0], (double)slope[1], (double)slope[2], (double)slope[3]);
    weir_session_close(s);
    return status;
}

static int check(void)
{
    weir_status status = prelu_check();
    if (status)
        fprintf(stderr, "learn: %s\n", weir_error());
    else
        puts("prelu and its gradient keep their promises");
    return status != WEIR_OK;
}

int main(int argc, char **argv)
{
    if (argc == 2 && !strcmp(argv[1], "check"))
        return check();
    if (argc != 3)
        return fprintf(stderr, "usage: learn check\n       learn PLAN CHECKPOINTS\n"), 2;
    weir_graph *g = build();
    weir_plan *plan = weir_register_ops() ? NULL : weir_compile(g, .keep_graph = true);
    weir_status status = plan ? weir_plan_save(plan, argv[1]) : WEIR_E_GRAPH;
    if (!status)
        status = learn(plan, argv[2]);
    if (status)
        fprintf(stderr, "learn: %s\n", weir_error());
    weir_plan_free(plan);
    weir_graph_free(g);
    return status || fflush(stdout) || ferror(stdout);
}
