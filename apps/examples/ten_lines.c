#include <stdio.h>
#include <weir/weir.h>

static weir_status draw(void *ctx, const weir_view *x, int64_t step, int micro)
{
    (void)ctx, (void)micro;
    for (int i = 0; i < 8; i++)
        ((float *)x->data)[i] = weir_random_normal((uint64_t)step, (uint64_t)i);
    return WEIR_OK;
}

int main(void)
{
    weir_graph *g = weir_graph_new("line");
    weir_mesh_new(g, "cpu:0-1"); /* two devices; the first mesh is the default place of everything */
    weir_tensor *x = weir_input(g, WEIR_F32, {8, 1}, .name = "x", .sbp = {WEIR_S(0)}, .source = draw);
    weir_tensor *error = weir_sub(weir_linear(x, 1, .name = "line"), weir_affine(x, 3, .shift = 0.5));
    weir_train(weir_mean(weir_mul(error, error)), weir_sgd(.lr = 0.1));
    weir_plan *plan = weir_compile(g, .memory = "1MiB");
    weir_session *s = plan ? weir_session_open(plan) : NULL;
    float w = 0;
    bool failed = !s || weir_session_run(s, 100) ||
                  weir_session_read(s, "line/weight", WEIR_ARRAY(&w, WEIR_F32, 1, 1));
    if (failed)
        puts(weir_error()); /* "line.c:17: linear: ..." */
    else
        printf("two devices learned that y = %.3f x + ...\n", (double)w);
    weir_session_close(s);
    weir_plan_free(plan);
    weir_graph_free(g);
    return failed || fflush(stdout);
}
