/* pipeline.c: two stages on two devices; a step is cut into micro-batches.
 *
 *     pipeline MICRO [SLOTS]     SLOTS: of the register between the stages
 */
#include <stdio.h>
#include <stdlib.h>
#include <weir/weir.h>

enum { ROWS = 64, WIDTH = 16, STEPS = 100 }; /* ROWS: of a whole step */

static int micro_count;

static weir_status draw(void *ctx, const weir_view *x, int64_t step, int micro)
{
    (void)ctx;
    int count = ROWS / micro_count * WIDTH;
    for (int i = 0; i < count; i++)
        ((float *)x->data)[i] = weir_random_normal((uint64_t)step, (uint64_t)(micro * count + i));
    return WEIR_OK;
}

/* Adds up the losses of a step's micro-batches, and prints the mean of the last step. */
static weir_status add_loss(void *ctx, const weir_view *loss, int64_t step, int micro)
{
    double *sum = ctx;
    *sum = (micro ? *sum : 0) + (double)*(float *)loss->data;
    if (step == STEPS - 1 && micro == micro_count - 1)
        printf("loss of step %d: %.4f\n", STEPS, *sum / micro_count);
    return WEIR_OK;
}

static weir_graph *build(int slots, double *sum)
{
    weir_graph *g = weir_graph_new("pipeline");
    weir_mesh *stage[2] = {weir_mesh_new(g, "cpu:0"), weir_mesh_new(g, "cpu:1")};
    weir_tensor *x = weir_input(g, WEIR_F32, {ROWS / micro_count, WIDTH}, .name = "x", .micro = true, .source = draw);
    weir_tensor *h[3] = {x}; /* what goes into each stage, and out of the last */
    for (int i = 0; i < 2; i++)
        WEIR_ON(stage[i], .name = "stage%d", .index = i)
            h[i + 1] = weir_linear(weir_gelu(weir_linear(h[i], 4 * WIDTH, .name = "up")), WIDTH, .name = "down");
    if (slots)
        weir_slots(h[1], slots);
    WEIR_ON(stage[1]) {
        weir_tensor *error = weir_sub(h[2], x);
        weir_tensor *loss = weir_mean(weir_mul(error, error), .name = "loss");
        weir_fetch(loss, .sink = add_loss, .ctx = sum);
        weir_train(loss, weir_sgd(.lr = 0.2));
    }
    return g;
}

int main(int argc, char **argv)
{
    double sum = 0;
    micro_count = argc > 1 ? atoi(argv[1]) : 0;
    if (micro_count < 1 || ROWS % micro_count)
        return fprintf(stderr, "usage: pipeline MICRO [SLOTS], where MICRO divides %d\n", ROWS), 2;
    weir_graph *g = build(argc > 2 ? atoi(argv[2]) : 0, &sum);
    weir_plan *plan = weir_compile(g, .micro_batches = micro_count);
    weir_session *s = plan && !weir_plan_save(plan, "pipeline.plan") ? weir_session_open(plan, .trace = "pipeline.json") : NULL;
    bool failed = !s || weir_session_run(s, STEPS);
    if (failed)
        fprintf(stderr, "pipeline: %s\n", weir_error());
    weir_session_close(s);
    weir_plan_free(plan);
    weir_graph_free(g);
    return failed;
}
