/* look.c: a model with four faults that you can ask for.
 *
 *     look             trains; saves look.plan, and a trace in look.json
 *     look nan         an op makes a value that is not finite
 *     look stall       a source waits for something that does not come
 *     look deadlock    a register has fewer slots than the plan needs
 *     look mistake     shapes that do not fit
 */
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include <weir/weir.h>

enum { ROWS = 64, WIDTH = 16, STEPS = 20 };

static const char *fault = "";

static bool has(const char *name)
{
    return !strcmp(fault, name);
}

static weir_status draw(void *ctx, const weir_view *x, int64_t step, int micro)
{
    (void)ctx;
    if (has("stall") && step == 7 && micro == 1)
        sleep(2);
    for (int i = 0; i < ROWS * WIDTH; i++)
        ((float *)x->data)[i] = weir_random_normal((uint64_t)step, (uint64_t)(micro * ROWS * WIDTH + i));
    if (has("nan") && step == 7 && micro == 1)
        ((float *)x->data)[100] = 0;
    return WEIR_OK;
}

static weir_graph *build(void)
{
    weir_graph *g = weir_graph_new("look");
    weir_mesh *stage[2] = {weir_mesh_new(g, "cpu:0"), weir_mesh_new(g, "cpu:1")};
    weir_tensor *x = weir_input(g, WEIR_F32, {ROWS, WIDTH}, .name = "x", .micro = true, .source = draw), *h = x;
    WEIR_ON(stage[0])
        h = weir_gelu(weir_linear(x, 2 * WIDTH, .name = "first/up"));
    WEIR_ON(stage[1]) {
        weir_tensor *y = weir_linear(h, has("mistake") ? WIDTH + 1 : WIDTH, .name = "second/down");
        weir_tensor *error = weir_sub(y, weir_log(weir_mul(x, x)));
        weir_tensor *loss = weir_mean(weir_mul(error, error), .name = "loss");
        weir_train(loss, weir_adamw());
        weir_fetch(loss);
        if (has("deadlock")) { /* the difference needs each loss, and all four, but there is a slot for one */
            weir_tensor *all = weir_unbatch(weir_batch(loss, 4));
            weir_fetch(weir_sub(loss, all), .name = "difference");
            weir_slots(loss, 1);
        }
    }
    return g;
}

/* Reports come from a thread of the library; without this function they go to standard error. */
static void report(void *ctx, const char *text)
{
    (void)ctx;
    printf("---- report\n%s----\n", text);
}

static weir_status train(weir_session *s)
{
    float loss;
    weir_status status = weir_session_start(s, STEPS);
    for (int i = 0; i < 4 * STEPS && !status; i++)
        status = weir_session_pull(s, "loss", WEIR_ARRAY(&loss, WEIR_F32), -1);
    return status ? status : weir_session_wait(s, -1);
}

int main(int argc, char **argv)
{
    fault = argc > 1 ? argv[1] : "";
    weir_graph *g = build();
    weir_plan *plan = weir_compile(g, .micro_batches = 4);
    weir_session *s = NULL;
    if (plan && !weir_plan_save(plan, "look.plan"))
        s = weir_session_open(plan, .trace = "look.json", .check_finite = true, .stall_s = 0.5, .report = report);
    bool failed = !s || train(s);
    if (failed)
        fprintf(stderr, "look: %s\n", weir_error());
    weir_session_close(s);
    weir_plan_free(plan);
    weir_graph_free(g);
    return failed;
}
