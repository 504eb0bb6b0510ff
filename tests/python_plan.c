/* tests/python_plan.c: writes the plans that tests/python_test.py runs, into the folder that it is given: one whose
 * values are pushed and pulled, in bf16 too, one of integers, one with a split source, a sink and a parameter that is trained. */
#include <stdio.h>
#include <weir/weir.h>

static weir_status nothing(void *ctx, const weir_view *x, int64_t step, int micro)
{
    (void)ctx, (void)x, (void)step, (void)micro;
    return WEIR_OK;
}

static int keep(weir_graph *g, const char *folder, const char *name)
{
    char path[512];
    snprintf(path, sizeof path, "%s/%s.plan", folder, name);
    weir_plan *plan = weir_compile(g);
    int failed = !plan || weir_plan_save(plan, path);
    if (failed)
        puts(weir_error());
    weir_plan_free(plan);
    weir_graph_free(g);
    return failed;
}

static int stream(const char *folder)
{
    weir_graph *g = weir_graph_new("stream");
    weir_tensor *x = weir_input(g, WEIR_F32, {2, 3}, .name = "x");
    weir_tensor *i = weir_input(g, WEIR_I32, {4}, .name = "i");
    weir_fetch(weir_affine(x, 2, .shift = 1), .name = "y");
    weir_fetch(weir_cast(x, WEIR_BF16), .name = "half");
    weir_fetch(weir_embedding(i, 8, 2, .name = "table"), .name = "rows");
    return keep(g, folder, "stream");
}

static int integers(const char *folder)
{
    weir_graph *g = weir_graph_new("integers");
    weir_mesh_new(g, "cpu:0-1");
    weir_tensor *wide = weir_input(g, WEIR_I64, {4}, .name = "wide", .sbp = {WEIR_S(0)});
    weir_fetch(weir_reshape(wide, {4, 1}), .name = "wide again");
    weir_fetch(weir_cast(wide, WEIR_I8), .name = "narrow");
    return keep(g, folder, "integers");
}

static int train(const char *folder)
{
    weir_graph *g = weir_graph_new("train");
    weir_mesh_new(g, "cpu:0-1");
    weir_tensor *x = weir_input(g, WEIR_F32, {8, 1}, .name = "x", .sbp = {WEIR_S(0)}, .source = nothing,
                                .split = true);
    weir_tensor *error = weir_sub(weir_linear(x, 1, .name = "line"), weir_affine(x, 3, .shift = 0.5));
    weir_tensor *loss = weir_mean(weir_mul(error, error));
    weir_fetch(loss, .name = "loss", .sink = nothing);
    weir_train(loss, weir_sgd(.lr = 0.1));
    return keep(g, folder, "train");
}

int main(int argc, char **argv)
{
    return argc != 2 || stream(argv[1]) || integers(argv[1]) || train(argv[1]);
}
