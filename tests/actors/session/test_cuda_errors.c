/* tests/actors/session/test_cuda_errors.c: what CUDA may refuse. Each call that a session makes fails once: that is one clear
 * error, or does not matter; the session closes, and nothing is left on the device or pinned on the host. So are errors that
 * a device has at any time later.
 */
#include <criterion/criterion.h>
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

static weir_plan *plan_on(const char *devices)
{
    weir_graph *g = weir_graph_new("errors");
    WEIR_ON(weir_mesh_new(g, devices)) {
        weir_tensor *x = weir_input(g, WEIR_F32, {4, 8}, .name = "x", .sbp = {WEIR_S(0)});
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

Test(cuda_errors, each_call_may_fail)
{
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

Test(cuda_errors, a_device_may_fail_at_any_time)
{
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
        cr_assert(!status || strstr(error, "an illegal memory access was encountered"), "%s", error);
        if (status)
            card_set(NULL); /* what is sticky ends with the process; here a new one begins */
    }
    weir_plan_free(plan);
}

/* What is asked when the plugin is loaded: in a process of its own. */
Test(cuda_errors, each_call_of_the_search_for_devices_may_fail)
{
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
