/* layouts.c: one model, laid out over DP times TP devices.
 *
 *     layouts DP TP [zero]     trains it, and saves the plan as layouts.plan
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <weir/weir.h>

enum { ROWS = 128, WIDTH = 16, HIDDEN = 64, STEPS = 100 };
enum { DP, TP }; /* the axes of the mesh */

static weir_status draw(void *ctx, const weir_view *x, int64_t step, int micro)
{
    (void)ctx, (void)micro;
    for (int i = 0; i < ROWS * WIDTH; i++)
        ((float *)x->data)[i] = weir_random_normal((uint64_t)step, (uint64_t)i);
    return WEIR_OK;
}

/* The model learns to give back its input. */
static weir_graph *build(int dp, int tp, bool zero)
{
    char devices[32];
    snprintf(devices, sizeof devices, "cpu:0-%d", dp * tp - 1);
    weir_graph *g = weir_graph_new("layouts");
    weir_mesh_new(g, devices, .shape = {dp, tp});
    weir_tensor *x = weir_input(g, WEIR_F32, {ROWS, WIDTH}, .name = "x", .sbp = {WEIR_S(0), WEIR_B}, .source = draw);
    weir_tensor *h = weir_relu(weir_linear(x, HIDDEN, .name = "up", .weight = {WEIR_B, WEIR_S(1)}));
    weir_tensor *y = weir_linear(h, WIDTH, .name = "down", .weight = {WEIR_B, WEIR_S(0)});
    weir_tensor *error = weir_sub(y, x);
    weir_tensor *loss = weir_mean(weir_mul(error, error), .name = "loss");
    weir_fetch(loss);
    weir_train(loss, weir_adamw(.lr = 0.01), .zero = {[DP] = zero});
    return g;
}

static weir_status train(weir_session *s)
{
    float loss = 0;
    weir_status status = weir_session_start(s, STEPS);
    for (int i = 0; i < STEPS && !status; i++)
        status = weir_session_pull(s, "loss", WEIR_ARRAY(&loss, WEIR_F32), -1);
    if (!status)
        status = weir_session_wait(s, -1);
    if (!status)
        printf("loss after %d steps: %.4f\n", STEPS, (double)loss);
    return status;
}

int main(int argc, char **argv)
{
    int dp = argc > 2 ? atoi(argv[1]) : 0, tp = argc > 2 ? atoi(argv[2]) : 0;
    if (dp < 1 || tp < 1 || dp > 16 || tp > 16)
        return fputs("usage: layouts DP TP [zero]\n", stderr), 2;
    weir_graph *g = build(dp, tp, argc > 3 && !strcmp(argv[3], "zero"));
    weir_plan *plan = weir_compile(g);
    weir_session *s = plan && !weir_plan_save(plan, "layouts.plan") ? weir_session_open(plan) : NULL;
    bool failed = !s || train(s);
    if (failed)
        fprintf(stderr, "layouts: %s\n", weir_error());
    else
        printf("%d bytes on cpu:0\n", (int)weir_plan_bytes(plan, 0));
    weir_session_close(s);
    weir_plan_free(plan);
    weir_graph_free(g);
    return failed;
}
