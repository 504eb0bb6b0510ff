/* data.c: learns which token follows which, from files of token ids.
 *
 *     data VOCAB FILE...
 */
#include <stdio.h>
#include <stdlib.h>
#include <weir/weir.h>

enum { ROWS = 16, SEQ = 32, STEPS = 200 };

static weir_graph *build(weir_data *data, int64_t vocab)
{
    weir_graph *g = weir_graph_new("data");
    weir_mesh_new(g, "cpu:0-1");
    weir_tensor *tokens = weir_data_input(g, data, .rows = ROWS, .name = "tokens", .sbp = {WEIR_S(0)});
    weir_tensor *labels = weir_data_input(g, data, .rows = ROWS, .name = "labels", .sbp = {WEIR_S(0)}, .labels = true);
    weir_tensor *x = weir_embedding(tokens, vocab, 32, .name = "wte");
    weir_tensor *loss = weir_cross_entropy(weir_linear(x, vocab, .name = "head"), labels, .name = "loss");
    weir_train(loss, weir_adamw(.lr = 0.01));
    weir_fetch(loss, .name = "loss", .slots = STEPS);
    return g;
}

static weir_status train(weir_session *s)
{
    weir_status status = weir_session_run(s, STEPS);
    float loss = 0;
    for (int step = 0; !status && step < STEPS; step++) {
        status = weir_session_pull(s, "loss", WEIR_ARRAY(&loss, WEIR_F32), -1);
        if (step % 100 == 0 || step == STEPS - 1)
            printf("step %d: loss %.3f\n", step, (double)loss);
    }
    return status;
}

int main(int argc, char **argv)
{
    if (argc < 3)
        return fputs("usage: data VOCAB FILE...\n", stderr), 2;
    const int64_t vocab = atoi(argv[1]);
    weir_data *data = weir_data_tokens(NULL, .files = (const char *const *)argv + 2, .file_count = argc - 2, .seq = SEQ,
                                       .vocab = vocab, .seed = 1);
    if (!data)
        return fprintf(stderr, "data: %s\n", weir_error()), 1;
    const weir_data_info *info = weir_data_get_info(data);
    printf("%d tokens, %d windows; %d steps are %.1f epochs\n", (int)info->elements, (int)info->samples, STEPS,
           (double)STEPS * ROWS / (double)info->samples);
    weir_graph *g = build(data, vocab);
    weir_plan *plan = weir_compile(g);
    weir_session *s = plan ? weir_session_open(plan) : NULL;
    bool failed = !s || train(s);
    if (failed)
        fprintf(stderr, "data: %s\n", weir_error());
    weir_session_close(s);
    weir_plan_free(plan);
    weir_graph_free(g);
    weir_data_close(data); /* after the last session that reads it */
    return failed;
}
