/* test_gpt.c: the GPT that evaluates and writes, with what it learned or what a checkpoint has. Its text, written a row
 * a step, is bit for bit that of the whole window; its loss on held-out text is that of the logits, taken by
 * themselves. */
#include "apps/common/model/evaluate.h"
#include "apps/common/model/gpt_checkpoint.h"
#include "apps/common/train/params.h"
#include "apps/common/model/shown.h"
#include "apps/common/model/writer.h"
#include "tests/support/reference.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { SEED = 1848, BYTES_MAX = 200 };

/* ---- the whole window ---- */

/* A session that runs whole windows, in one step each. */
typedef struct window {
    gpt_config config;
    weir_plan *plan;
    weir_session *session;
    const int32_t *bytes; /* what is run next: the first `seen` of seq, zeros behind them */
    int seen;
    float *logits;        /* [seq, GPT_VOCAB] */
} window;

static weir_status give_window(void *ctx, const weir_view *dst, int64_t step, int micro)
{
    const window *w = ctx;
    int32_t *to = dst->data;
    (void)step, (void)micro;
    for (int i = 0; i < w->config.seq; i++) {
        to[i] = i < w->seen ? w->bytes[i] : 0;
        to[w->config.seq + i] = i;
    }
    return WEIR_OK;
}

static weir_status take_logits(const weir_kernel_args *args)
{
    window *w = args->host;
    memcpy(w->logits, args->in[0].data, (size_t)w->config.seq * GPT_VOCAB * sizeof *w->logits);
    *(int32_t *)args->out[0].data = 0;
    return WEIR_OK;
}

static weir_status put_nothing(void *ctx, const weir_view *value, int64_t step, int micro)
{
    (void)ctx, (void)value, (void)step, (void)micro;
    return WEIR_OK;
}

static window *window_new(const gpt_config *c)
{
    window *w = calloc(1, sizeof *w);
    cr_assert(w);
    w->config = *c;
    w->logits = calloc((size_t)c->seq * GPT_VOCAB, sizeof *w->logits);
    cr_assert(w->logits);
    const gpt_feed feed = {give_window, take_logits, put_nothing, w};
    weir_graph *g = gpt_generate_graph(&w->config, c->seq, &feed);
    w->plan = weir_compile(g, .seed = SEED);
    cr_assert(w->plan, "%s", weir_error());
    w->session = weir_session_open(w->plan, .cluster = {.alone = true});
    cr_assert(w->session, "%s", weir_error());
    weir_graph_free(g);
    return w;
}

static void window_free(window *w)
{
    weir_session_close(w->session);
    weir_plan_free(w->plan);
    free(w->logits);
    free(w);
}

/* The logits of what follows each of the first `seen` bytes. */
static const float *window_run(window *w, const int32_t *bytes, int seen)
{
    w->bytes = bytes;
    w->seen = seen;
    cr_assert_eq(weir_session_run(w->session, 1), WEIR_OK, "%s", weir_error());
    return w->logits;
}

/* Weights that make a difference: as they begin, all logits are nearly alike. */
static void enlarge(weir_session *s, const weir_plan *plan)
{
    for (int i = 0; i < weir_plan_param_count(plan); i++) {
        weir_param_info info;
        cr_assert_eq(weir_plan_param(plan, i, &info), WEIR_OK);
        if (info.kind != WEIR_PARAMETER)
            continue;
        const int64_t count = weir_shape_count(&info.type.shape);
        float *x = malloc((size_t)count * sizeof *x);
        weir_array value = {x, WEIR_F32, info.type.shape};
        cr_assert_eq(weir_session_read(s, info.name, &value), WEIR_OK, "%s", weir_error());
        for (int64_t j = 0; j < count; j++)
            x[j] = info.type.shape.rank > 1 ? 10 * x[j] : x[j] + 0.1f * weir_random_normal(SEED, (uint64_t)j);
        cr_assert_eq(weir_session_write(s, info.name, &value), WEIR_OK, "%s", weir_error());
        free(x);
    }
}

/* ---- writing ---- */

/* A writer's bytes and logits, as they came. */
typedef struct written {
    int32_t byte[BYTES_MAX];
    float logits[BYTES_MAX][GPT_VOCAB];
    int chosen, put;
} written;

static int32_t choose_byte(void *ctx, const float *logits)
{
    written *to = ctx;
    double sum = 0;
    cr_assert(to->chosen < BYTES_MAX);
    memcpy(to->logits[to->chosen++], logits, sizeof to->logits[0]);
    for (int i = 0; i < GPT_VOCAB; i++)
        sum += fabs((double)logits[i]);
    return (int32_t)(sum * 1e4) & 255;
}

static void put_byte(void *ctx, int32_t byte)
{
    written *to = ctx;
    to->byte[to->put++] = byte;
}

/* Goes over what was written with whole windows, by the rule of apps/common/model/writer.h. */
static void expect_windows(window *w, const char *prompt, const written *got, int bytes)
{
    const int seq = w->config.seq, half = seq / 2, before = (int)strlen(prompt);
    int32_t *seen = calloc((size_t)seq, sizeof *seen);
    int count = 0;
    for (int i = 0; i < before + bytes - 1; i++) {
        if (count == seq) {
            memmove(seen, seen + seq - half, (size_t)half * sizeof *seen);
            count = half;
        }
        seen[count++] = i < before ? (unsigned char)prompt[i] : got->byte[i - before];
        if (i + 1 < before)
            continue;
        const float *want = window_run(w, seen, count) + (size_t)(count - 1) * GPT_VOCAB;
        cr_assert_eq(memcmp(want, got->logits[i + 1 - before], GPT_VOCAB * sizeof *want), 0,
                     "seq %d, dim %d: the logits of byte %d differ", seq, w->config.dim, i + 1 - before);
    }
    free(seen);
}

static void check_writer(const gpt_config *c, const char *prompt, int bytes)
{
    written *got = calloc(1, sizeof *got);
    writer *writes = writer_new(c, choose_byte, put_byte, got);
    cr_assert(writes, "%s", weir_error());
    window *whole = window_new(c);
    enlarge(whole->session, whole->plan);
    cr_assert_eq(params_copy(whole->session, writes->session, writes->plan), WEIR_OK, "%s", weir_error());
    for (int again = 0; again < 2; again++) {
        got->chosen = got->put = 0;
        cr_assert_eq(writer_write(writes, prompt, bytes), WEIR_OK, "%s", weir_error());
        cr_assert_eq(got->chosen, bytes);
        cr_assert_eq(got->put, bytes);
        expect_windows(whole, prompt, got, bytes);
    }
    writer_free(writes);
    window_free(whole);
    free(got);
}

Test(writer, gives_the_bits_of_the_whole_window, .timeout = 120)
{
    check_writer(&(gpt_config){.layers = 2, .dim = 24, .heads = 3, .seq = 16}, "a weir", 60);
    check_writer(&(gpt_config){.layers = 1, .dim = 7, .heads = 1, .seq = 9}, "longer than a window is", 40);
    check_writer(&(gpt_config){.layers = 2, .dim = 64, .heads = 4, .seq = 100}, "w", 150);
    check_writer(&(gpt_config){.layers = 1, .dim = 320, .heads = 5, .seq = 24}, "w", 40);
    check_writer(&(gpt_config){.layers = 1, .dim = 8, .heads = 2, .seq = 1}, "ab", 5);
}

static int below(int limit, uint64_t draw)
{
    uint32_t word[4];
    weir_philox(SEED, draw, 0, word);
    return (int)(word[0] % (uint32_t)limit);
}

Test(writer, gives_the_bits_of_the_whole_window_for_any_sizes, .timeout = 120)
{
    for (uint64_t draw = 0; draw < 120; draw += 6) {
        char prompt[40] = "x";
        gpt_config c = {.heads = 1 + below(4, draw), .layers = 1 + below(3, draw + 1), .seq = 1 + below(30, draw + 3)};
        c.dim = c.heads * (1 + below(20, draw + 2));
        memset(prompt, 'x', (size_t)below(39, draw + 4));
        cr_log_info("layers %d, heads %d, dim %d, seq %d", c.layers, c.heads, c.dim, c.seq);
        check_writer(&c, prompt, 1 + below(60, draw + 5));
    }
}

Test(writer, writes_nothing_when_nothing_is_asked_for, .timeout = 120)
{
    written *got = calloc(1, sizeof *got);
    writer *writes = writer_new(&(gpt_config){.layers = 1, .dim = 8, .heads = 2, .seq = 4}, choose_byte, put_byte, got);
    cr_assert(writes, "%s", weir_error());
    cr_assert_eq(writer_write(writes, "abc", 0), WEIR_OK);
    cr_assert_eq(got->chosen + got->put, 0);
    writer_free(writes);
    free(got);
}

/* ---- held-out text ---- */

Test(text, holds_out_its_end, .timeout = 120)
{
    text corpus = reference_text(), held_out = {0}, none = {0}, whole = reference_text();
    cr_assert(!text_hold_out(&corpus, 2049, &none) && !none.bytes && corpus.count == 4096);
    cr_assert(text_hold_out(&corpus, 33, &held_out));
    cr_expect_eq(held_out.count, 409);
    cr_expect_eq(corpus.count, 4096 - 409);
    cr_expect_eq(memcmp(held_out.bytes, whole.bytes + 4096 - 409, 409), 0);
    for (int64_t step = 0; step < 2000; step++)
        cr_assert_leq(text_window(&corpus, 33, SEED, step, step % 7) + 33, corpus.count);
    text_free(&corpus), text_free(&held_out), text_free(&whole);
    corpus = reference_text();
    cr_assert(text_hold_out(&corpus, 2048, &held_out));
    cr_expect_eq(held_out.count, 2048);
    text_free(&corpus), text_free(&held_out);
}

Test(text, windows_are_spread_from_its_first_byte_to_its_last, .timeout = 120)
{
    const text corpus = {.count = 1000};
    cr_expect_eq(text_spread(&corpus, 100, 0, 1), 0);
    cr_expect_eq(text_spread(&corpus, 100, 0, 7), 0);
    cr_expect_eq(text_spread(&corpus, 100, 6, 7), 900);
    cr_expect_eq(text_spread(&corpus, 100, 2, 7), 300);
    cr_expect_eq(text_spread(&corpus, 1000, 3, 7), 0);
}

/* -log softmax(logits)[label] */
static double loss_of(const float *logits, int label)
{
    double most = -INFINITY, sum = 0;
    for (int i = 0; i < GPT_VOCAB; i++)
        most = fmax(most, (double)logits[i]);
    for (int i = 0; i < GPT_VOCAB; i++)
        sum += exp((double)logits[i] - most);
    return most + log(sum) - (double)logits[label];
}

/* The mean loss over the rows of an evaluation, by the logits of whole windows. */
static double loss_of_windows(window *w)
{
    const gpt_config *c = &w->config;
    const int64_t rows = (int64_t)gpt_eval_steps(c) * (c->batch / c->layout.micro);
    int32_t *bytes = calloc((size_t)c->seq + 1, sizeof *bytes);
    double sum = 0;
    for (int64_t row = 0; row < rows; row++) {
        const size_t at = text_spread(c->held_out, (size_t)c->seq + 1, row, rows);
        for (int i = 0; i <= c->seq; i++)
            bytes[i] = c->held_out->bytes[at + (size_t)i];
        const float *logits = window_run(w, bytes, c->seq);
        for (int i = 0; i < c->seq; i++)
            sum += loss_of(logits + (size_t)i * GPT_VOCAB, bytes[i + 1]) / c->seq;
    }
    free(bytes);
    return sum / (double)rows;
}

static void check_evaluation(layout l, size_t held_out_bytes)
{
    text corpus = reference_text(), held_out = reference_text();
    held_out.count = held_out_bytes;
    gpt_config c = reference_gpt(&corpus, REFERENCE_PLAIN);
    c.layers = 2;
    c.layout = l;
    c.held_out = &held_out;
    weir_graph *g = gpt_train_graph(&c);
    weir_plan *plan = weir_compile(g, .micro_batches = l.micro, .seed = SEED);
    weir_session *trained = plan ? weir_session_open(plan) : NULL;
    cr_assert(trained, "%s", weir_error());
    window *whole = window_new(&c);
    double loss[2];
    for (int i = 0; i < 2; i++) {
        cr_assert_eq(evaluate(&c, trained, &loss[i]), WEIR_OK, "%s", weir_error());
        if (i == 0)
            enlarge(trained, plan);
    }
    cr_expect(fabs(loss[0] - log(GPT_VOCAB)) < 0.1, "before training: %g", loss[0]);
    cr_assert_eq(params_copy(trained, whole->session, whole->plan), WEIR_OK, "%s", weir_error());
    const double want = loss_of_windows(whole);
    cr_expect(want > loss[0] + 0.3 && fabs(loss[1] - want) < 1e-5 * want, "%.9g, not %.9g", loss[1], want);
    window_free(whole);
    weir_session_close(trained);
    weir_plan_free(plan);
    weir_graph_free(g);
    text_free(&corpus), text_free(&held_out);
}

Test(evaluation, is_the_mean_loss_over_held_out_text, .timeout = 120)
{
    check_evaluation((layout){1, 1, 1, 1, false}, 2000);
    check_evaluation((layout){2, 2, 2, 4, true}, 2000);
    check_evaluation((layout){2, 1, 1, 2, false}, 33);
}

/* ---- checkpoints ---- */

static char folder[] = "/tmp/weir-test-gpt-XXXXXX";

static const char *in_folder(const char *name)
{
    static char path[128];
    if (strstr(folder, "XXXXXX"))
        cr_assert(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return path;
}

static void remove_folder(void)
{
    char command[128];
    snprintf(command, sizeof command, "rm -rf %s", folder);
    if (!strstr(folder, "XXXXXX"))
        cr_expect_eq(system(command), 0);
}

/* Reads a file of the folder whole; its bytes are counted. */
static void *read_file(const char *name, size_t *count)
{
    FILE *file = fopen(in_folder(name), "rb");
    char *bytes = malloc(1 << 20);
    cr_assert(file && bytes, "%s", name);
    *count = fread(bytes, 1, 1 << 20, file);
    fclose(file);
    return bytes;
}

static int run(const char *format, const char *first, const char *second)
{
    char command[512];
    snprintf(command, sizeof command, format, first, second);
    return system(command);
}

/* Writes the session's state as a checkpoint at `path`, without the parameter `without`; with the note `note`, or
 * none. */
static void save_as(const char *path, weir_session *s, const weir_plan *plan, const char *without,
                    const gpt_config *note)
{
    weir_checkpoint_writer *w = weir_checkpoint_create(path, .step = 3, .program = "test");
    float *value[100] = {0};
    char line[GPT_NOTE_BYTES];
    cr_assert(w, "%s", weir_error());
    for (int i = 0; i < weir_plan_param_count(plan); i++) {
        weir_param_info info;
        cr_assert_eq(weir_plan_param(plan, i, &info), WEIR_OK);
        if (info.kind != WEIR_PARAMETER || !strcmp(info.name, without))
            continue;
        value[i] = malloc((size_t)weir_shape_count(&info.type.shape) * sizeof(float));
        weir_checkpoint_value add = {.name = info.name, .kind = info.kind, .slots = 1,
                                     .value = {value[i], WEIR_F32, info.type.shape}};
        cr_assert_eq(weir_session_read(s, info.name, &add.value), WEIR_OK, "%s", weir_error());
        cr_assert_eq(weir_checkpoint_add(w, &add), WEIR_OK, "%s", weir_error());
    }
    if (note) {
        size_t count = (size_t)gpt_note_write(note, line);
        weir_checkpoint_source tokens = {.name = "tokens", .bytes = line, .count = count};
        cr_assert_eq(weir_checkpoint_add_source(w, &tokens), WEIR_OK, "%s", weir_error());
    }
    cr_assert_eq(weir_checkpoint_finish(w), WEIR_OK, "%s", weir_error());
    for (int i = 0; i < 100; i++)
        free(value[i]);
}

static const gpt_config small = {.layers = 3, .dim = 24, .heads = 2, .seq = 10};

/* The error of gpt_sizes(); "" when there is none. */
static const char *sizes(const char *path, gpt_config *config)
{
    static char why[512];
    weir_checkpoint *from = weir_checkpoint_open(path);
    cr_assert(from, "%s", weir_error());
    bool ok = gpt_sizes(from, config, why, sizeof why);
    weir_checkpoint_close(from);
    return ok ? "" : why;
}

Test(checkpoint, has_the_model_s_sizes_and_what_it_learned, .timeout = 60, .fini = remove_folder)
{
    text corpus = reference_text();
    gpt_config note = small, config = {0};
    note.corpus = &corpus;
    window *whole = window_new(&small);
    written *got = calloc(1, sizeof *got);
    char why[512] = "";
    enlarge(whole->session, whole->plan);
    save_as(in_folder("model"), whole->session, whole->plan, "", &note);
    cr_assert_str_eq(sizes(in_folder("model"), &config), "");
    cr_expect(config.layers == 3 && config.dim == 24 && config.heads == 2 && config.seq == 10, "%d %d %d %d",
              config.layers, config.dim, config.heads, config.seq);
    writer *writes = writer_new(&config, choose_byte, put_byte, got);
    weir_checkpoint *from = weir_checkpoint_open(in_folder("model"));
    cr_assert(writes && from, "%s", weir_error());
    cr_assert(gpt_load(from, writes->session, writes->plan, why, sizeof why), "%s", why);
    cr_assert_eq(writer_write(writes, "one", 20), WEIR_OK, "%s", weir_error());
    expect_windows(whole, "one", got, 20);
    weir_checkpoint_close(from);
    writer_free(writes);
    window_free(whole);
    free(got);
    text_free(&corpus);
}

static int32_t likeliest(void *ctx, const float *logits)
{
    int best = 0;
    (void)ctx;
    for (int i = 1; i < GPT_VOCAB; i++)
        if (logits[i] > logits[best])
            best = i;
    return best;
}

static void print_byte(void *ctx, int32_t byte)
{
    shown_byte(ctx, (unsigned char)byte);
}

Test(checkpoint, is_what_weir_gpt_writes_with_when_it_is_loaded, .timeout = 60, .fini = remove_folder)
{
    text corpus = reference_text();
    gpt_config note = small;
    note.corpus = &corpus;
    window *whole = window_new(&small);
    char want[200] = "one";
    struct shown shown = {.to = fmemopen(want + 3, sizeof want - 3, "w")};
    size_t count;
    enlarge(whole->session, whole->plan);
    save_as(in_folder("model"), whole->session, whole->plan, "", &note);
    writer *writes = writer_new(&small, likeliest, print_byte, &shown);
    cr_assert_eq(params_copy(whole->session, writes->session, writes->plan), WEIR_OK, "%s", weir_error());
    cr_assert_eq(writer_write(writes, "one", 30), WEIR_OK, "%s", weir_error());
    shown_end(&shown);
    fputc('\n', shown.to);
    fclose(shown.to);
    cr_assert_eq(run(APPS_BIN "/weir-gpt --load %s/model --prompt one --temperature 0 --sample 30 --validate LICENSE "
                     ">%s/out 2>&1", folder, folder), 0);
    char *out = read_file("out", &count);
    out[count] = 0;
    cr_expect(!strncmp(out, "validation loss ", 16) && strstr(out, want), "%s is not in %s", want, out);
    cr_expect_eq(run(APPS_BIN "/weir-gpt --load %s%s --heads 3 2>/dev/null", in_folder("model"), "") >> 8, 2);
    free(out);
    writer_free(writes);
    window_free(whole);
    text_free(&corpus);
}

/* ---- a training session's ---- */

/* Opens a session that trains. */
static weir_session *train_with(const gpt_config *c, weir_plan **plan, weir_report_fn report, void *ctx)
{
    weir_graph *g = gpt_train_graph(c);
    *plan = weir_compile(g, .seed = SEED);
    weir_graph_free(g);
    weir_session *s = *plan ? weir_session_open(*plan, .report = report, .report_ctx = ctx) : NULL;
    cr_assert(s, "%s", weir_error());
    return s;
}

static void keep_report(void *ctx, const char *report)
{
    snprintf(ctx, 512, "%s", report);
}

/* Loads what `saved` saved into a session of `c`; weir_session_load()'s status. Remarks go to `report`. */
static weir_status load_again(const gpt_config *c, char report[512])
{
    weir_plan *plan;
    weir_session *s = train_with(c, &plan, keep_report, report);
    weir_status status = weir_session_load(s, in_folder("run"));
    weir_session_close(s);
    weir_plan_free(plan);
    return status;
}

Test(checkpoint, of_a_training_session_has_its_heads_and_tells_of_another_text, .timeout = 60, .fini = remove_folder)
{
    text corpus = reference_text(), other = reference_text();
    gpt_config c = reference_gpt(&corpus, REFERENCE_PLAIN), config = {0};
    char report[512] = "";
    weir_plan *plan;
    weir_session *s = train_with(&c, &plan, keep_report, report);
    cr_assert_eq(weir_session_run(s, 2), WEIR_OK, "%s", weir_error());
    cr_assert_eq(weir_session_save(s, in_folder("run")), WEIR_OK, "%s", weir_error());
    weir_session_close(s);
    weir_plan_free(plan);
    cr_assert_str_eq(sizes(in_folder("run"), &config), "");
    cr_expect(config.layers == c.layers && config.dim == c.dim && config.heads == c.heads && config.seq == c.seq);
    cr_expect_eq(load_again(&c, report), WEIR_OK, "%s", weir_error());
    cr_expect_str_eq(report, "");
    c.data_seed++;
    cr_expect_eq(load_again(&c, report), WEIR_OK, "%s", weir_error());
    cr_expect(strstr(report, "the text's windows are drawn with seed 2, and were with 1"), "%s", report);
    other.bytes[0]++;
    c.corpus = &other;
    cr_expect_eq(load_again(&c, report), WEIR_OK, "%s", weir_error());
    cr_expect(strstr(report, "the text is not the one that it was saved with"), "%s", report);
    c.heads *= 2;
    cr_expect_neq(load_again(&c, report), WEIR_OK);
    cr_expect(strstr(weir_error(), "the model that was saved has 4 heads, not 8"), "%s", weir_error());
    text_free(&corpus), text_free(&other);
}

static void expect_sizes(const char *path, int heads, const char *sentence)
{
    gpt_config config = {.heads = heads};
    const char *why = sizes(path, &config);
    cr_expect(*sentence ? strstr(why, sentence) != NULL : !*why, "\"%s\", not \"%s\"", why, sentence);
}

Test(checkpoint, that_is_of_no_model_or_lacks_something_is_told_in_a_sentence, .timeout = 60, .fini = remove_folder)
{
    text corpus = reference_text();
    gpt_config note = small;
    note.corpus = &corpus;
    char why[512] = "";
    window *whole = window_new(&small);
    save_as(in_folder("silent.safetensors"), whole->session, whole->plan, "", NULL);
    expect_sizes(in_folder("silent.safetensors"), 0, "does not say how many heads the model has: give --heads");
    expect_sizes(in_folder("silent.safetensors"), 5, "width 24 cannot be cut into 5 heads");
    expect_sizes(in_folder("silent.safetensors"), 2, "");
    save_as(in_folder("noted"), whole->session, whole->plan, "", &note);
    expect_sizes(in_folder("noted"), 4, "has 2 heads, not 4");
    save_as(in_folder("less"), whole->session, whole->plan, "wpe", &note);
    expect_sizes(in_folder("less"), 0, "has no wte/weight [256, dim] and wpe [seq, dim]: it is not of weir-gpt");
    save_as(in_folder("other"), whole->session, whole->plan, "h1/up/bias", &note);
    expect_sizes(in_folder("other"), 0, "");
    weir_checkpoint *from = weir_checkpoint_open(in_folder("other"));
    cr_assert(from && !gpt_load(from, whole->session, whole->plan, why, sizeof why));
    cr_expect(strstr(why, "other has no h1/up/bias of the shape that the model has"), "%s", why);
    weir_checkpoint_close(from);
    window_free(whole);
    text_free(&corpus);
}

static void add_zeros(weir_checkpoint_writer *w, const char *name, int64_t rows)
{
    static float zeros[300 * 64];
    weir_checkpoint_value value = {.name = name, .slots = 1, .value = {zeros, WEIR_F32, {2, {rows, 64}}}};
    cr_assert_eq(weir_checkpoint_add(w, &value), WEIR_OK, "%s", weir_error());
}

static void save_matrices(const char *path, const char *first, int64_t rows, const char *second)
{
    weir_checkpoint_writer *w = weir_checkpoint_create(path);
    cr_assert(w, "%s", weir_error());
    add_zeros(w, first, rows);
    add_zeros(w, second, 8);
    cr_assert_eq(weir_checkpoint_finish(w), WEIR_OK, "%s", weir_error());
}

Test(checkpoint, of_another_vocabulary_or_with_other_names_is_told, .timeout = 120, .fini = remove_folder)
{
    save_matrices(in_folder("words.safetensors"), "wte/weight", 300, "wpe");
    expect_sizes(in_folder("words.safetensors"), 0, "has a vocabulary of 300; without --tokenizer that of weir-gpt is bytes, 256");
    save_matrices(in_folder("flat.safetensors"), "wte/weight", 256, "wpe");
    expect_sizes(in_folder("flat.safetensors"), 0, "has no layer h0");
    save_matrices(in_folder("hf.safetensors"), "transformer.wte.weight", 256, "transformer.wpe.weight");
    expect_sizes(in_folder("hf.safetensors"), 0, "has Hugging Face's names; weir checkpoint convert --map");
}

/* ---- GPT-2's weights ---- */

/* Chooses the bytes of a text that is there already. */
typedef struct following {
    const unsigned char *text;
    float (*logits)[GPT_VOCAB];
    int chosen;
} following;

static int32_t follow_text(void *ctx, const float *logits)
{
    following *f = ctx;
    memcpy(f->logits[f->chosen], logits, sizeof f->logits[0]);
    return f->text[++f->chosen];
}

static void ignore_byte(void *ctx, int32_t byte)
{
    (void)ctx, (void)byte;
}

static void expect_near(const float *got, const float *want, size_t count)
{
    double most = 0, largest = 0;
    for (size_t i = 0; i < count; i++) {
        most = fmax(most, fabs((double)got[i] - (double)want[i]));
        largest = fmax(largest, fabs((double)want[i]));
    }
    cr_expect(largest > 5 && most < 1e-5 * largest, "logits up to %g differ by up to %g", largest, most);
}

/* Runs the folder's text through the model of a checkpoint in it, and compares logits. */
static void check_logits(const char *name)
{
    size_t bytes, count;
    char why[512] = "", first[2] = "";
    following f = {.text = read_file("text", &bytes)};
    float *want = read_file("logits", &count);
    gpt_config config = {.heads = 3};
    weir_checkpoint *from = weir_checkpoint_open(in_folder(name));
    cr_assert(from, "%s", weir_error());
    cr_assert(gpt_sizes(from, &config, why, sizeof why), "%s", why);
    cr_assert_eq(count, bytes * sizeof f.logits[0]);
    cr_assert_eq((int)bytes, config.seq);
    f.logits = calloc(bytes + 1, sizeof f.logits[0]);
    writer *w = writer_new(&config, follow_text, ignore_byte, &f);
    cr_assert(w && gpt_load(from, w->session, w->plan, why, sizeof why), "%s%s", weir_error(), why);
    first[0] = (char)f.text[0];
    cr_assert_eq(writer_write(w, first, (int)bytes), WEIR_OK, "%s", weir_error());
    expect_near(f.logits[0], want, bytes * GPT_VOCAB);
    writer_free(w);
    weir_checkpoint_close(from);
    free((void *)f.text), free(want), free(f.logits);
}

Test(gpt2, weights_of_hugging_face_give_its_logits, .timeout = 120, .fini = remove_folder)
{
    if (run("python3 -c 'import torch, transformers, safetensors%s%s' 2>/dev/null", "", ""))
        cr_skip_test("python3 has no torch and transformers here");
    cr_assert_eq(run("python3 tests/reference/gpt2_hugging_face.py %s%s 2>/dev/null", in_folder(""), ""), 0);
    cr_assert_eq(run(APPS_BIN "/weir checkpoint convert --map apps/weir-gpt/gpt2.map %s/model.safetensors %s/gpt2",
                     folder, folder), 0);
    check_logits("gpt2");
}
