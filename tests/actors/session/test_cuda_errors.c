/* tests/actors/session/test_cuda_errors.c: what CUDA may refuse. Each call that a session makes fails once: that is one clear
 * error, or does not matter; the session closes, and nothing is left on the device or pinned on the host. The same
 * holds for errors that a device has at any time later, and for values out of range, which are reported as on a CPU.
 * Tests that need no stand-in run on a card, too.
 */
#include <criterion/criterion.h>
#include <fnmatch.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/support/card.h"
#include "tests/support/effort.h"
#include "tests/support/fakes.h"

enum { STRIDE = EFFORT(3, 11, 11) };

static void with_cards(void)
{
    setenv("WEIR_CUDA_LOGICAL", "2", 1);
}

TestSuite(cuda_errors, .init = with_cards, .timeout = 300);

static int up_line; /* where the product of a plan is made */

static weir_plan *plan_on(const char *devices)
{
    weir_graph *g = weir_graph_new("errors");
    WEIR_ON(weir_mesh_new(g, devices)) {
        weir_tensor *x = weir_input(g, WEIR_F32, {4, 8}, .name = "x", .sbp = {WEIR_S(0)});
        up_line = __LINE__ + 1;
        weir_fetch(weir_layernorm(weir_linear(x, 8, .name = "up"), .name = "norm"), .name = "y");
    }
    weir_plan *plan = weir_compile(g, .seed = 3);
    cr_assert_not_null(plan, "%s", weir_error());
    weir_graph_free(g);
    return plan;
}

/* A session's life. */
static weir_status live(const weir_plan *plan, char *error)
{
    float x[4 * 8] = {1}, y[4 * 8], weight[8 * 8];
    weir_array in = {x, WEIR_F32, {.rank = 2, .dim = {4, 8}}}, out = {y, WEIR_F32, {.rank = 2, .dim = {4, 8}}};
    weir_session *s = weir_session_open(plan, .workers = 2);
    weir_status status = s ? weir_session_start(s, 2) : WEIR_E_STATE;
    for (int i = 0; !status && i < 2; i++) {
        status = weir_session_push(s, "x", &in, 20000);
        if (!status)
            status = weir_session_pull(s, "y", &out, 20000);
    }
    if (s && !status)
        status = weir_session_wait(s, 20000);
    if (s && !status)
        status = weir_session_read(s, "up/weight", &(weir_array){weight, WEIR_F32, {.rank = 2, .dim = {8, 8}}});
    snprintf(error, 1024, "%s", status ? weir_error() : "");
    weir_session_close(s);
    return status;
}

static void expect_well(weir_status status, const char *error, const char *what, uint64_t number)
{
    const char *left = card_left();
    cr_assert_null(left, "%s %lu: %s", what, (unsigned long)number, left);
    cr_assert(!status || *error, "%s %lu: an error without a sentence", what, (unsigned long)number);
    cr_assert_null(strchr(error, '\n'), "one line");
}

static void skip_on_a_card(void)
{
    if (card_real())
        cr_skip_test("only a stand-in fails when it is told to");
}

Test(cuda_errors, each_call_may_fail)
{
    skip_on_a_card();
    weir_plan *plan = plan_on("cuda:0-1");
    char error[1024];
    uint64_t failures = 0, number = 1;
    card_open(NULL);
    cr_assert_eq(live(plan, error), WEIR_OK, "%s", error);
    for (bool reached = true; reached; number += STRIDE) {
        card_set(&(standin_options){.seed = number, .fail_call = number});
        weir_status status = live(plan, error);
        reached = *card_look().failed;
        failures += status != WEIR_OK;
        expect_well(status, error, card_look().failed, number);
        cr_assert(!status || strstr(error, "cuda:") || strstr(error, "CUDA"), "%s: \"%s\" names no device", card_look().failed,
                  error);
    }
    cr_expect_gt(number, 100);
    cr_expect_gt(failures, number / STRIDE / 2, "most calls matter");
    card_set(NULL);
    cr_assert_eq(live(plan, error), WEIR_OK, "and without a failure it works again: %s", error);
    weir_plan_free(plan);
}

Test(cuda_errors, memory_may_run_out_at_each_allocation)
{
    skip_on_a_card();
    weir_plan *plan = plan_on("cuda:0");
    char error[1024];
    card_open(NULL);
    for (uint64_t number = 1, reached = 1; reached; number += STRIDE) {
        card_set(&(standin_options){.fail_call = number, .fail_with = 2}); /* cudaErrorMemoryAllocation */
        weir_status status = live(plan, error);
        reached = *card_look().failed;
        expect_well(status, error, card_look().failed, number);
    }
    weir_plan_free(plan);
}

/* Whose it is, and what was under way; or, of another device's queue, the launch that it refused; or what was copied or
 * made when nothing ran. */
#define ILLEGAL "an illegal memory access was encountered"
#define USER "tests/actors/session/test_cuda_errors.c:[0-9][0-9]: * (*)"
#define FAILED_IN_CALL "cuda:[01]: cu[dS][at]*: " ILLEGAL
#define FAILED_AT_REST "a copy [tf]*o* a CUDA device: " ILLEGAL
#define FAILED_LATER                                                                                                  \
    USER " in step [01] on *cuda:[01]: the device failed: cuda:[01]: " ILLEGAL " (cudaErrorIllegalAddress); under way were " \
         "* in step [01]*"
#define FAILED_IN_CALL_OF USER " in step [01] on *cuda:[01]: the device failed: " FAILED_IN_CALL "*"
#define FAILED_AT_OPEN USER " on cuda:[01]: cuda:[01]: " "cu[dS][at]*: " ILLEGAL
#define FAILED_LAUNCH USER " failed on cuda:[01] in step [01]: *: " ILLEGAL

Test(cuda_errors, a_device_may_fail_at_any_time)
{
    skip_on_a_card();
    weir_plan *plan = plan_on("cuda:0-1");
    char error[1024];
    card_open(NULL);
    cr_assert_eq(live(plan, error), WEIR_OK, "%s", error);
    uint64_t runs = card_look().runs;
    cr_assert_gt(runs, 10);
    for (uint64_t number = 1; number <= runs; number += STRIDE) {
        card_set(&(standin_options){.seed = number, .fail_run = number});
        weir_status status = live(plan, error);
        expect_well(status, error, "run", number);
        bool told = !fnmatch(FAILED_LATER, error, 0) || !fnmatch(FAILED_LAUNCH, error, 0) ||
                    !fnmatch(FAILED_AT_REST, error, 0) || !fnmatch(FAILED_IN_CALL, error, 0) ||
                    !fnmatch(FAILED_IN_CALL_OF, error, 0) || !fnmatch(FAILED_AT_OPEN, error, 0);
        cr_assert(!status || told, "%s", error);
        if (status)
            card_set(NULL); /* what is sticky ends with the process; here a new one begins */
    }
    weir_plan_free(plan);
}

/* ---- without cuBLASLt ---- */

static void expect_no_products(const char *lacks, const char *sentence)
{
    weir_plan *plan = plan_on("cuda:0");
    char error[1024], want[1024];
    card_open(&(standin_options){.no_blas = lacks});
    cr_expect_null(weir_session_open(plan), "before a step needs it");
    snprintf(error, sizeof error, "%s", weir_error());
    snprintf(want, sizeof want, "tests/actors/session/test_cuda_errors.c:%d: up (linear) on cuda:0: %s", up_line, sentence);
    cr_expect_str_eq(error, want);
    card_close();
    weir_plan_free(plan);
}

Test(cuda_errors, a_product_without_its_library_is_told)
{
    expect_no_products("", "cuBLASLt, which products need, cannot be loaded: libcublasLt.so.13: cannot open shared object "
                           "file: No such file or directory");
}

Test(cuda_errors, a_library_of_products_that_lacks_a_call_is_told)
{
    expect_no_products("cublasLtMatmul", "libcublasLt.so.13 has no cublasLtMatmul");
}

/* ---- values out of range ---- */

enum { RUN_STEPS = 12, BAD_STEP = 3, ROWS = 8, ROOM = 6, REPORT_BYTES = 8192, SEEDS = EFFORT(4, 1, 1) };

/* A source gives values in range, but for one element of one step; of which input, `what` says. */
struct wrong {
    const char *what;
    int32_t value;
    int64_t at, step;
};

static weir_status give(void *ctx, const weir_view *view, int64_t step, int micro)
{
    const struct wrong *wrong = ctx;
    int64_t count = weir_shape_count(&view->shape), first = view->offset[0];
    (void)micro;
    for (int64_t i = 0; i < count; i++)
        ((int32_t *)view->data)[i] = (int32_t)((first + i + step) % 3);
    if (step == wrong->step && wrong->at >= first && wrong->at < first + count)
        ((int32_t *)view->data)[wrong->at - first] = wrong->value;
    return WEIR_OK;
}

/* Ids go to logits by way of a table, labels to a loss; `split`: over the classes of a head. */
static void learner(weir_graph *g, struct wrong *ids_are, struct wrong *labels_are, bool split)
{
    const weir_sbp rows = split ? WEIR_B : WEIR_S(0), columns = split ? WEIR_S(1) : WEIR_B;
    weir_tensor *ids = weir_input(g, WEIR_I32, {ROWS}, .name = "ids", .source = give, .ctx = ids_are, .sbp = {rows});
    weir_tensor *labels = weir_input(g, WEIR_I32, {ROWS}, .name = "labels", .source = give, .ctx = labels_are,
                                     .sbp = {rows});
    weir_tensor *x = weir_embedding(ids, 16, 8, .name = "table");
    weir_tensor *logits = weir_linear(x, 10, .name = "head", .weight = {columns});
    weir_tensor *loss = weir_cross_entropy(logits, labels, .name = "loss");
    weir_fetch(loss, .name = "y");
    weir_train(loss, weir_sgd(.lr = 0.1));
}

static void keeper(weir_graph *g, struct wrong *position_is, bool append)
{
    weir_tensor *at = weir_input(g, WEIR_I32, {1}, .name = "at", .source = give, .ctx = position_is);
    weir_tensor *kept = weir_param(g, WEIR_F32, {1, ROOM, 8}, .name = "kept");
    weir_tensor *x = weir_param(g, WEIR_F32, {1, 2, 8}, .name = "x");
    weir_fetch(append ? weir_append(kept, x, at, .name = "longer")
                      : weir_attention_kept(x, x, x, kept, kept, at, .name = "seen"), .name = "y");
}

static weir_plan *wrong_plan(const char *devices, struct wrong *wrong, struct wrong *right)
{
    weir_graph *g = weir_graph_new("wrong");
    WEIR_ON(weir_mesh_new(g, devices)) {
        if (!strcmp(wrong->what, "append") || !strcmp(wrong->what, "attention_kept"))
            keeper(g, wrong, !strcmp(wrong->what, "append"));
        else if (!strcmp(wrong->what, "ids"))
            learner(g, wrong, right, false);
        else
            learner(g, right, wrong, !strcmp(wrong->what, "class"));
    }
    weir_plan *plan = weir_compile(g, .seed = 3);
    cr_assert_not_null(plan, "%s", weir_error());
    weir_graph_free(g);
    return plan;
}

static void keep_report(void *ctx, const char *said)
{
    snprintf(ctx, REPORT_BYTES, "%s", said);
}

/* Takes "y" until it is told no more: how many there were, all of them numbers. */
static int pulled(weir_session *s, const weir_plan *plan)
{
    float y[ROOM * 8];
    weir_host_info info;
    int count = 0;
    for (int h = 0; h < weir_plan_host_count(plan); h++) {
        cr_assert_eq(weir_plan_host(plan, h, &info), WEIR_OK);
        if (info.kind == WEIR_HOST_PULL)
            break;
    }
    while (count < RUN_STEPS && !weir_session_pull(s, "y", &(weir_array){y, WEIR_F32, info.type.shape}, 20000)) {
        for (int64_t i = 0; i < weir_shape_count(&info.type.shape); i++)
            cr_expect(y[i] - y[i] == 0, "step %d: y[%d] is %f", count, (int)i, (double)y[i]);
        count++;
    }
    return count;
}

/* How the run ends. */
static weir_status run_wrong(const weir_plan *plan, int workers, const char *table, char *error)
{
    char report[REPORT_BYTES] = "";
    weir_session *s = weir_session_open(plan, .workers = workers, .report = keep_report, .report_ctx = report);
    cr_assert_not_null(s, "%s", weir_error());
    cr_assert_eq(weir_session_start(s, RUN_STEPS), WEIR_OK, "%s", weir_error());
    int count = pulled(s, plan);
    weir_status status = weir_session_wait(s, 20000);
    snprintf(error, 1024, "%s", status ? weir_error() : "");
    cr_expect(status ? count <= BAD_STEP : count == RUN_STEPS, "%d values; %s", count, error);
    if (status && table) {
        float weight[16 * 8];
        weir_array to = {weight, WEIR_F32, {.rank = 2, .dim = {16, 8}}};
        cr_expect_eq(weir_session_run(s, 1), WEIR_E_KERNEL, "it has failed for ever");
        if (!weir_session_read(s, table, &to))
            for (int i = 0; i < 16 * 8; i++)
                cr_expect(weight[i] - weight[i] == 0, "what may be read is as some step left it");
    }
    cr_expect(!status || !strncmp(report, error, strlen(error)), "the report begins with it: %s", report);
    cr_expect_eq(weir_session_close(s), WEIR_OK);
    return status;
}

/* "failed on cuda:1 in" becomes "failed on in": which of the devices says it first may differ. */
static void take_device_out(char *error, const char *kind)
{
    char on[24];
    int length = snprintf(on, sizeof on, "failed on %s:", kind);
    char *from = strstr(error, on);
    cr_assert(from, "\"%s\" is not said in: %s", on, error);
    memmove(from + 10, from + length + 2, strlen(from + length + 2) + 1);
}

/* The sentence of the CPU's, on a device, which is left as it was: good values go through in the next session. */
static void expect_refused(const char *what, int32_t value, int64_t at, int workers)
{
    struct wrong wrong = {what, value, at, BAD_STEP}, right = {what, 0, 0, -1};
    weir_plan *cpu = wrong_plan("cpu:0-1", &wrong, &right), *cuda = wrong_plan("cuda:0-1", &wrong, &right);
    const char *table = strcmp(what, "ids") ? NULL : "table/weight";
    char want[1024], got[1024];
    cr_assert_eq(run_wrong(cpu, workers, table, want), WEIR_E_KERNEL);
    take_device_out(want, "cpu");
    card_open(NULL);
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        card_set(&(standin_options){.seed = seed});
        wrong.step = BAD_STEP;
        cr_expect_eq(run_wrong(cuda, workers, table, got), WEIR_E_KERNEL);
        take_device_out(got, "cuda");
        cr_expect_str_eq(got, want);
        cr_expect_null(card_left());
        wrong.step = -1;
        cr_expect_eq(run_wrong(cuda, workers, table, got), WEIR_OK, "the next session: %s", got);
        cr_expect_null(card_left());
    }
    card_close();
    weir_plan_free(cpu);
    weir_plan_free(cuda);
}

Test(cuda_errors, an_id_that_is_not_in_the_table_is_told_as_on_a_cpu)
{
    expect_refused("ids", 99, 6, 1);
    expect_refused("ids", -1, 2, 2);
}

Test(cuda_errors, a_label_that_is_no_class_is_told_as_on_a_cpu)
{
    expect_refused("labels", 10, 5, 2);
    expect_refused("class", -7, 5, 2);
}

Test(cuda_errors, a_position_behind_what_there_is_room_for_is_told_as_on_a_cpu)
{
    expect_refused("append", 5, 0, 2);
    expect_refused("attention_kept", -2, 0, 1);
}

/* These calls are made when the plugin is loaded: in a process of its own. */
Test(cuda_errors, each_call_of_the_search_for_devices_may_fail)
{
    skip_on_a_card();
    card_open(NULL); /* or it is skipped */
    weir_plan *plan = plan_on("cuda:0");
    for (uint64_t number = 1; number <= 8; number++) {
        fflush(NULL);
        pid_t child = fork();
        if (!child) {
            char error[1024];
            card_open(&(standin_options){.fail_call = number});
            weir_status status = live(plan, error);
            _exit(card_left() ? 1 : status && !strstr(error, "cuda:") && !strstr(error, "CUDA") ? 2 : 0);
        }
        int ended;
        cr_assert_eq(waitpid(child, &ended, 0), child);
        cr_expect(WIFEXITED(ended) && WEXITSTATUS(ended) == 0, "call %lu: %x", (unsigned long)number, ended);
    }
    weir_plan_free(plan);
}
