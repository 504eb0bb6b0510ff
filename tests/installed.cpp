// tests/installed.cpp: the ten lines (apps/examples/ten_lines.c) in C++. Options are named in the order in which their
// structures declare them, and a structure that is passed by address has a name.
#include <cstdio>
#include <weir/weir.h>

static weir_status draw(void *, const weir_view *x, int64_t step, int)
{
    for (int i = 0; i < 8; i++)
        static_cast<float *>(x->data)[i] = weir_random_normal(static_cast<uint64_t>(step), static_cast<uint64_t>(i));
    return WEIR_OK;
}

int main()
{
    weir_graph *g = weir_graph_new("line");
    weir_mesh_new(g, "cpu:0-1");
    weir_tensor *x = weir_input(g, WEIR_F32, {8, 1}, .name = "x", .sbp = {WEIR_S(0)}, .source = draw);
    weir_tensor *error = weir_sub(weir_linear(x, 1, .name = "line"), weir_affine(x, 3, .shift = 0.5));
    weir_train(weir_mean(weir_mul(error, error)), weir_sgd(.lr = 0.1));
    weir_plan *plan = weir_compile(g, .memory = "1MiB");
    weir_session *s = plan ? weir_session_open(plan) : nullptr;
    float w = 0;
    weir_array weight = {&w, WEIR_F32, {2, {1, 1}}};
    bool failed = !s || weir_session_run(s, 100) || weir_session_read(s, "line/weight", &weight);
    if (failed)
        std::puts(weir_error());
    else
        std::printf("two devices learned that y = %.3f x + ...\n", static_cast<double>(w));
    weir_session_close(s);
    weir_plan_free(plan);
    weir_graph_free(g);
    return failed;
}
