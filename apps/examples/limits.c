/* limits.c: a deep network under a memory limit, in half precision, on disk.
 *
 *     limits [memory=SIZE] [offload=disk:DIR] [half=bf16|f16] [scale=X] [lr=X]
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <weir/weir.h>

enum { ROWS = 256, WIDTH = 64, LAYERS = 8, STEPS = 30 };

static weir_status draw(void *ctx, const weir_view *x, int64_t step, int micro)
{
    (void)ctx, (void)micro;
    for (int i = 0; i < ROWS * WIDTH; i++)
        ((float *)x->data)[i] = weir_random_normal((uint64_t)step, (uint64_t)i);
    return WEIR_OK;
}

static weir_status print_loss(void *ctx, const weir_view *loss, int64_t step, int micro)
{
    (void)ctx, (void)micro;
    if (step == STEPS - 1)
        printf("loss of step %d: %.2f\n", STEPS, (double)*(float *)loss->data);
    return WEIR_OK;
}

static weir_graph *build(double lr)
{
    weir_graph *g = weir_graph_new("limits");
    weir_tensor *x = weir_input(g, WEIR_F32, {ROWS, WIDTH}, .name = "x", .source = draw);
    weir_tensor *h = x;
    for (int i = 0; i < LAYERS; i++)
        WEIR_NAMED(g, "h%d", i)
            h = weir_add(h, weir_gelu(weir_linear(weir_layernorm(h, .name = "norm"), WIDTH, .name = "fc")));
    weir_tensor *error = weir_sub(weir_linear(h, WIDTH, .name = "out"), x);
    weir_tensor *loss = weir_mean(weir_mul(error, error));
    weir_fetch(loss, .name = "loss", .sink = print_loss);
    weir_train(loss, weir_adamw(.lr = lr, .clip_norm = 1));
    return g;
}

/* The value of an argument: of "memory=2MiB" it is what follows "memory=". NULL: there is no such argument. */
static const char *option(int argc, char **argv, const char *name)
{
    for (int i = 1; i < argc; i++)
        if (!strncmp(argv[i], name, strlen(name)))
            return argv[i] + strlen(name);
    return NULL;
}

int main(int argc, char **argv)
{
    const char *half = option(argc, argv, "half="), *scale = option(argc, argv, "scale="), *lr = option(argc, argv, "lr=");
    weir_graph *g = build(lr ? atof(lr) : 0.003);
    weir_plan *plan = weir_compile(g, .memory = option(argc, argv, "memory="), .offload = option(argc, argv, "offload="),
                                   .precision = !half ? WEIR_DTYPE_NONE : !strcmp(half, "f16") ? WEIR_F16 : WEIR_BF16,
                                   .loss_scale = scale ? atof(scale) : 0);
    char given_up[160];
    if (plan)
        printf("planned: %d KiB\n", (int)(weir_plan_bytes(plan, 0) / 1024));
    if (plan && weir_plan_limited(plan, given_up, sizeof given_up))
        puts(given_up);
    weir_session *s = plan ? weir_session_open(plan, .check_finite = true) : NULL;
    bool failed = !s || weir_session_run(s, STEPS);
    if (failed) {
        fprintf(stderr, "limits: %s\n", weir_error());
    } else {
        weir_session_stats stats;
        weir_session_get_stats(s, &stats);
        printf("allocated: %d KiB; %d of %d steps skipped\n", (int)(stats.arena_bytes / 1024), (int)stats.skipped, STEPS);
    }
    weir_session_close(s);
    weir_plan_free(plan);
    weir_graph_free(g);
    return failed;
}
