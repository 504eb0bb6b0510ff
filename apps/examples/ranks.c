/* ranks.c: two devices learn y = 3 x + 0.5, in as many processes as there are.
 *
 *     weir launch -n 2 -- ranks [DIE]     DIE: the last rank kills itself in this step
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <weir/weir.h>

enum { ROWS = 8, STEPS = 100 };

static weir_status draw(void *ctx, const weir_view *x, int64_t step, int micro)
{
    (void)ctx, (void)micro;
    for (int i = 0; i < ROWS; i++)
        ((float *)x->data)[i] = weir_random_normal((uint64_t)step, (uint64_t)i);
    return WEIR_OK;
}

/* Runs on cpu:1, so in the last rank. */
static weir_status watch(const weir_kernel_args *args)
{
    const int64_t *die = args->host;
    if (args->step == *die)
        raise(SIGKILL);
    return WEIR_OK;
}

static weir_graph *build(int64_t *die)
{
    weir_graph *g = weir_graph_new("ranks");
    weir_mesh_new(g, "cpu:0-1");
    weir_tensor *x = weir_input(g, WEIR_F32, {ROWS, 1}, .name = "x", .sbp = {WEIR_S(0)}, .source = draw);
    weir_tensor *error = weir_sub(weir_linear(x, 1, .name = "line"), weir_affine(x, 3, .shift = 0.5));
    weir_tensor *loss = weir_mean(weir_mul(error, error));
    weir_train(loss, weir_sgd(.lr = 0.1));
    WEIR_ON(weir_mesh_new(g, "cpu:1"))
        weir_call_many(NULL, watch, {loss}, .name = "watch", .ctx = die);
    return g;
}

int main(int argc, char **argv)
{
    int64_t die = argc > 1 ? atoi(argv[1]) : -1;
    weir_graph *g = build(&die);
    weir_plan *plan = weir_compile(g);
    weir_session *s = plan ? weir_session_open(plan) : NULL;
    float weight = 0, bias = 0;
    bool failed = !s || weir_session_run(s, STEPS) ||
                  weir_session_read(s, "line/weight", WEIR_ARRAY(&weight, WEIR_F32, 1, 1)) ||
                  weir_session_read(s, "line/bias", WEIR_ARRAY(&bias, WEIR_F32, 1));
    if (failed)
        fprintf(stderr, "ranks: %s\n", weir_error());
    else
        printf("rank %d of %d: y = %.3f x + %.3f\n", weir_rank(), weir_world_size(), (double)weight, (double)bias);
    weir_session_close(s);
    weir_plan_free(plan);
    weir_graph_free(g);
    return failed;
}
