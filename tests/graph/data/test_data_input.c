/* tests/graph/data/test_data_input.c: samples of files as inputs of graphs: layouts, mistakes, checkpoints, ranks. */
#include <criterion/criterion.h>

#include "tests/graph/data/files.h"
#include "tests/support/ranks.h"

#define DATA(name) Test(data_input, name, .init = folder_make, .fini = folder_remove, .timeout = 60)

enum { ROWS = 6, MICRO = 2, STEPS = 5, VOCAB = 97 };

static weir_graph *model(weir_data *data, int devices, weir_sbp row, weir_sbp column)
{
    char names[32];
    snprintf(names, sizeof names, "cpu:0-%d", devices - 1);
    weir_graph *g = weir_graph_new("data");
    weir_mesh_new(g, names);
    weir_sbp sbp = row == WEIR_AUTO ? column : row;
    weir_tensor *tokens = weir_data_input(g, data, .rows = ROWS, .name = "tokens", .sbp = {sbp}, .micro_batches = MICRO);
    weir_tensor *labels = weir_data_input(g, data, .rows = ROWS, .name = "labels", .sbp = {sbp}, .micro_batches = MICRO, .labels = true);
    weir_tensor *x = weir_linear(weir_embedding(tokens, VOCAB, 8, .name = "wte"), VOCAB, .name = "head");
    weir_tensor *loss = weir_cross_entropy(x, labels, .name = "loss");
    weir_train(loss, weir_sgd(.lr = 0.5));
    weir_fetch(loss, .name = "loss", .slots = MICRO * STEPS);
    weir_fetch(tokens, .name = "tokens_out", .slots = MICRO * STEPS);
    return g;
}

static weir_plan *planned(weir_data *data, int devices, weir_sbp row, weir_sbp column)
{
    weir_graph *g = model(data, devices, row, column);
    weir_plan *plan = weir_compile(g, .micro_batches = MICRO);
    weir_graph_free(g);
    cr_assert(plan, "%s", weir_error());
    return plan;
}

static void write_text(void)
{
    uint16_t token[500];
    for (int i = 0; i < 500; i++)
        token[i] = (uint16_t)(i * i % VOCAB);
    write_file("t.bin", "", 0, token, sizeof token);
}

static void run(weir_plan *plan, float loss[MICRO * STEPS], int32_t tokens[MICRO * STEPS][ROWS * SEQ])
{
    weir_session *s = weir_session_open(plan);
    cr_assert(s, "%s", weir_error());
    cr_assert_eq(weir_session_run(s, STEPS), WEIR_OK, "%s", weir_error());
    for (int i = 0; i < MICRO * STEPS; i++)
        cr_assert(!weir_session_pull(s, "loss", WEIR_ARRAY(&loss[i], WEIR_F32), -1) &&
                  !weir_session_pull(s, "tokens_out", WEIR_ARRAY(tokens[i], WEIR_I32, ROWS, SEQ), -1), "%s", weir_error());
    weir_session_close(s);
    weir_plan_free(plan);
}

DATA(a_step_has_the_next_rows_in_each_layout)
{
    static float loss[4][MICRO * STEPS];
    static int32_t tokens[4][MICRO * STEPS][ROWS * SEQ], wanted[MICRO * STEPS * ROWS][SEQ];
    write_text();
    weir_data *data = opened(TOKENS("t.bin", .vocab = VOCAB, .seed = 9));
    run(planned(data, 1, WEIR_AUTO, WEIR_AUTO), loss[0], tokens[0]);
    run(planned(data, 1, WEIR_S(0), WEIR_AUTO), loss[1], tokens[1]);
    run(planned(data, 4, WEIR_S(0), WEIR_AUTO), loss[2], tokens[2]);
    run(planned(data, 2, WEIR_AUTO, WEIR_S(1)), loss[3], tokens[3]);
    weir_view to = whole(wanted, WEIR_I32, (weir_shape){2, {MICRO * STEPS * ROWS, SEQ}});
    cr_assert_eq(weir_data_read(data, 0, false, &to), WEIR_OK, "%s", weir_error());
    for (int l = 0; l < 4; l++)
        cr_expect_arr_eq(tokens[l], wanted, sizeof wanted, "layout %d", l);
    cr_expect_arr_eq(loss[0], loss[1], sizeof loss[0]);
    for (int i = 0; i < MICRO * STEPS; i++)
        cr_expect_float_eq(loss[2][i], loss[0][i], 1e-5);
    weir_data_close(data);
}

DATA(mistakes_of_inputs)
{
    write_raw("a.bin", 0, 100);
    float rows[4] = {0};
    write_npy("r.npy", "<f4", "4,", rows, sizeof rows);
    weir_data *data = opened(TOKENS("a.bin")), *array = opened(weir_data_npy(folder_path("r.npy")));
#define MISTAKE(wanted, ...)                                                                                            \
    {                                                                                                                   \
        weir_graph *g = weir_graph_new("m");                                                                            \
        weir_tensor *x = weir_data_input(g, __VA_ARGS__);                                                               \
        const char *said = weir_graph_mistake(g);                                                                       \
        cr_expect(weir_tensor_poisoned(x) && said && strstr(said, wanted) && strstr(said, "test_data_input.c:"), "%s", said); \
        weir_graph_free(g);                                                                                             \
    }
    MISTAKE("tokens: .rows = 0: the value of an input has at least 1 sample", data, .name = "tokens")
    MISTAKE(".micro_batches = -1", data, .rows = 2, .micro_batches = -1)
    MISTAKE(".labels is for weir_data_tokens()", array, .rows = 2, .labels = true)
    MISTAKE("S(2) on axis 0", data, .rows = 2, .sbp = {WEIR_S(2)})
    cr_expect_null(TOKENS("none.bin"));
    MISTAKE("the data is NULL; the last failing call said: ", NULL, .rows = 2)
    weir_graph *g = model(data, 1, WEIR_AUTO, WEIR_AUTO);
    cr_expect_null(weir_compile(g, .micro_batches = 3));
    cr_expect(strstr(weir_error(), "\"tokens\" has .micro_batches = 2, but a step has 3 micro-batches"), "%s", weir_error());
    cr_expect_null(weir_data_input(NULL, data, .rows = 2));
    cr_expect(strstr(weir_error(), "data_input: the graph is NULL"), "%s", weir_error());
    weir_graph_free(g);
    weir_data_close(data);
    weir_data_close(array);
}

/* ---- checkpoints ---- */

static float lose(weir_session *s)
{
    float loss = 0;
    for (int i = 0; i < MICRO; i++)
        cr_assert_eq(weir_session_pull(s, "loss", WEIR_ARRAY(&loss, WEIR_F32), -1), WEIR_OK, "%s", weir_error());
    return loss;
}

DATA(a_session_goes_on_where_another_saved)
{
    float wanted[STEPS], got;
    char path[256];
    snprintf(path, sizeof path, "%s", folder_path("kept"));
    write_text();
    weir_data *data = opened(TOKENS("t.bin", .vocab = VOCAB, .seed = 9)), *again = opened(TOKENS("t.bin", .vocab = VOCAB, .seed = 9));
    weir_plan *plan = planned(data, 2, WEIR_S(0), WEIR_AUTO);
    weir_session *s = weir_session_open(plan);
    for (int step = 0; step < STEPS; step++) {
        cr_assert(s && !weir_session_run(s, 1), "%s", weir_error());
        wanted[step] = lose(s);
        if (step == 2)
            cr_assert_eq(weir_session_save(s, path), WEIR_OK, "%s", weir_error());
    }
    weir_session_close(s);
    weir_plan_free(plan);
    plan = planned(again, 2, WEIR_S(0), WEIR_AUTO);
    s = weir_session_open(plan);
    cr_assert(s && !weir_session_load(s, path), "%s", weir_error());
    for (int step = 3; step < STEPS; step++) {
        cr_assert_eq(weir_session_run(s, 1), WEIR_OK, "%s", weir_error());
        got = lose(s);
        cr_expect_eq(got, wanted[step]);
    }
    weir_session_close(s);
    weir_plan_free(plan);
    weir_data_close(data);
    weir_data_close(again);
}

static void remember(void *ctx, const char *text)
{
    snprintf(ctx, 500, "%s", text);
}

/* Loads into a session that reads `data`; returns the remark. */
static const char *remark(weir_data *data, const char *path)
{
    static char said[500];
    said[0] = 0;
    weir_plan *plan = planned(data, 1, WEIR_AUTO, WEIR_AUTO);
    weir_session *s = weir_session_open(plan, .report = remember, .report_ctx = said);
    cr_assert(s && !weir_session_load(s, path), "%s", weir_error());
    weir_session_close(s);
    weir_plan_free(plan);
    weir_data_close(data);
    return said;
}

DATA(other_data_than_a_checkpoint_knows_is_remarked)
{
    char path[256];
    snprintf(path, sizeof path, "%s", folder_path("kept"));
    write_text();
    weir_data *data = opened(TOKENS("t.bin", .seed = 9));
    weir_plan *plan = planned(data, 1, WEIR_AUTO, WEIR_AUTO);
    weir_session *s = weir_session_open(plan);
    cr_assert(s && !weir_session_run(s, 1) && !weir_session_save(s, path), "%s", weir_error());
    weir_session_close(s);
    weir_plan_free(plan);
    cr_expect_str_eq(remark(data, path), "");
    cr_expect(strstr(remark(opened(TOKENS("t.bin", .seed = 8)), path), "the order follows from seed 8, and followed from 9"));
    cr_expect(strstr(remark(opened(TOKENS("t.bin", .sequential = true)), path), "in the order of the files, and came in a random one"));
    cr_expect(strstr(remark(opened(TOKENS("t.bin", .to = 0.5, .seed = 9)), path), "an epoch has 62 samples, and had 124"));
    write_raw("t.bin", 1, 90);
    cr_expect(strstr(remark(opened(TOKENS("t.bin", .seed = 9)), path), "the files are not those that it was saved with"));
}

/* ---- ranks ---- */

static void train_part(struct rank *rank)
{
    weir_data *data = weir_data_tokens(rank->ctx, .seq = SEQ, .vocab = VOCAB, .seed = 9);
    RANK_IS(rank, data, "%s", weir_error());
    weir_graph *g = model(data, 4, WEIR_S(0), WEIR_AUTO);
    weir_plan *plan = weir_compile(g, .micro_batches = MICRO);
    RANK_IS(rank, plan, "%s", weir_error());
    weir_session *s = weir_session_open(plan, .cluster = ranks_cluster(rank));
    RANK_IS(rank, s, "%s", weir_error());
    RANK_OK(rank, weir_session_run(s, STEPS));
    for (int i = 0; i < MICRO * STEPS; i++)
        RANK_OK(rank, weir_session_pull(s, "loss", WEIR_ARRAY((float *)rank->result + i, WEIR_F32), -1));
    weir_session_close(s);
    weir_plan_free(plan);
    weir_graph_free(g);
    weir_data_close(data);
}

DATA(ranks_read_what_one_process_reads)
{
    static float loss[MICRO * STEPS];
    static int32_t tokens[MICRO * STEPS][ROWS * SEQ];
    char path[256];
    write_text();
    snprintf(path, sizeof path, "%s", folder_path("t.bin"));
    weir_data *data = opened(TOKENS("t.bin", .vocab = VOCAB, .seed = 9));
    run(planned(data, 4, WEIR_S(0), WEIR_AUTO), loss, tokens);
    weir_data_close(data);
    struct ranks *ranks = ranks_run(train_part, path, .count = 2, .link = RANKS_SHM, .result_bytes = sizeof loss);
    for (int r = 0; r < 2; r++)
        cr_expect_arr_eq((float *)ranks->rank[r].result, loss, sizeof loss);
    ranks_free(ranks);
}
