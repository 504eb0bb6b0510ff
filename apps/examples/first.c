/* first.c: a network with one hidden layer learns the square of a number. */
#include <stdio.h>
#include <weir/weir.h>

enum { POINTS = 64, HIDDEN = 32, STEPS = 2000 };

/* Point i of a step, between -1 and 1: the same in each run. */
static float point(int64_t step, int i)
{
    return 2 * weir_random_uniform((uint64_t)step, (uint64_t)i) - 1;
}

static weir_status draw_x(void *ctx, const weir_view *x, int64_t step, int micro)
{
    (void)ctx, (void)micro;
    for (int i = 0; i < POINTS; i++)
        ((float *)x->data)[i] = point(step, i);
    return WEIR_OK;
}

static weir_status draw_target(void *ctx, const weir_view *target, int64_t step, int micro)
{
    (void)ctx, (void)micro;
    for (int i = 0; i < POINTS; i++)
        ((float *)target->data)[i] = point(step, i) * point(step, i);
    return WEIR_OK;
}

static weir_status print_loss(void *ctx, const weir_view *loss, int64_t step, int micro)
{
    (void)ctx, (void)micro;
    if (step % 500 == 0)
        printf("step %4d: loss %.4f\n", (int)step, (double)*(float *)loss->data);
    return WEIR_OK;
}

static weir_graph *build(void)
{
    weir_graph *g = weir_graph_new("first");
    weir_tensor *x = weir_input(g, WEIR_F32, {POINTS, 1}, .name = "x", .source = draw_x);
    weir_tensor *target = weir_input(g, WEIR_F32, {POINTS, 1}, .name = "target", .source = draw_target);
    weir_tensor *hidden = weir_tanh(weir_linear(x, HIDDEN, .name = "hidden"));
    weir_tensor *y = weir_linear(hidden, 1, .name = "out");
    weir_tensor *error = weir_sub(y, target);
    weir_tensor *loss = weir_mean(weir_mul(error, error));
    weir_fetch(loss, .name = "loss", .sink = print_loss);
    weir_train(loss, weir_sgd(.lr = 0.2));
    return g;
}

int main(void)
{
    weir_graph *g = build();
    weir_plan *plan = weir_compile(g);
    weir_session *s = plan ? weir_session_open(plan) : NULL;
    float bias = 0;
    bool failed = !s || weir_session_run(s, STEPS) ||
                  weir_session_read(s, "out/bias", WEIR_ARRAY(&bias, WEIR_F32, 1));
    if (failed)
        fprintf(stderr, "first: %s\n", weir_error());
    else
        printf("after %d steps the bias of the output is %.2f\n", (int)weir_session_step(s), (double)bias);
    weir_session_close(s);
    weir_plan_free(plan);
    weir_graph_free(g);
    return failed;
}
