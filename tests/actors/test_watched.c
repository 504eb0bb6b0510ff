/* tests/actors/test_watched.c: ThreadSanitizer sees races between kernels that it does not watch itself (actors/watched.h).
 *
 * Two threads, which nothing orders, fire an actor each. Its kernel touches nothing, so all that can be reported is declared.
 */
#include <criterion/criterion.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <weir/weir.h>

#include "actors/actor.h"
#include "actors/session/session.h"
#include "graph/plan/form/plan.h"

enum { COUNT = 24, HALF = COUNT / 2 };

static float memory[COUNT];
static bool whole = true; /* the kernels may touch all of their operands */

static weir_status no_kernel(const weir_kernel_args *args)
{
    (void)args;
    return WEIR_E_KERNEL; /* the firing ends here, and needs no lane */
}

static void *fire(void *argument)
{
    struct actor_kernel kernel = {.call = no_kernel, .whole = whole, .args = *(const weir_kernel_args *)argument}, *failed = NULL;
    struct lane lane = {0};
    struct actor actor = {.lane = &lane, .kernels = &kernel, .kernel_count = 1, .left = 1};
    weir_status status = WEIR_OK;
    actor_fire(&actor, 1, &status, &failed);
    return failed == &kernel ? NULL : argument;
}

static void fire_both(weir_kernel_args *a, weir_kernel_args *b)
{
    pthread_t one, other;
    void *wrong[2] = {a, b};
    if (pthread_create(&one, NULL, fire, a) || pthread_create(&other, NULL, fire, b))
        abort();
    pthread_join(one, &wrong[0]);
    pthread_join(other, &wrong[1]);
    if (wrong[0] || wrong[1])
        abort();
}

/* Whether ThreadSanitizer reports a race when the two run at once. */
static bool raced(weir_kernel_args a, weir_kernel_args b)
{
#ifndef __SANITIZE_THREAD__
    cr_skip_test("kernels are declared to ThreadSanitizer alone");
#endif
    static char text[1 << 16];
    int status = 0;
    FILE *said = tmpfile();
    cr_assert_not_null(said);
    fflush(NULL);
    const pid_t child = fork();
    if (child == 0) {
        dup2(fileno(said), STDERR_FILENO);
        fire_both(&a, &b);
        exit(0); /* with another status where something was reported */
    }
    cr_assert(child > 0 && waitpid(child, &status, 0) == child);
    rewind(said);
    text[fread(text, 1, sizeof text - 1, said)] = 0;
    fclose(said);
    cr_assert(WIFEXITED(status) && (WEXITSTATUS(status) != 0) == (strstr(text, "data race") != NULL), "%s", text);
    return WEXITSTATUS(status) != 0;
}

static weir_view floats(int first, int count)
{
    return (weir_view){.data = memory + first, .dtype = WEIR_F32, .shape = {.rank = 1, .dim = {count}}};
}

static weir_kernel_args call_of(const weir_view *in, const weir_view *out, const weir_view *state)
{
    return (weir_kernel_args){.in = in, .in_count = in != NULL, .out = out, .out_count = out != NULL,
                              .state = state, .state_count = state != NULL};
}

Test(watched, kernels_that_write_the_same_bytes_race)
{
    const weir_view all = floats(0, COUNT), last = floats(COUNT - 1, 1);
    cr_expect(raced(call_of(NULL, &all, NULL), call_of(NULL, &last, NULL)), "two outputs");
    cr_expect(raced(call_of(NULL, NULL, &all), call_of(NULL, NULL, &last)), "two states");
    weir_kernel_args works = {.workspace = memory, .workspace_bytes = sizeof memory};
    cr_expect(raced(works, works), "a workspace");
}

Test(watched, a_kernel_that_reads_races_with_one_that_writes)
{
    const weir_view all = floats(0, COUNT), last = floats(COUNT - 1, 1);
    cr_expect(raced(call_of(&all, NULL, NULL), call_of(NULL, &last, NULL)), "an output");
    cr_expect(raced(call_of(&last, NULL, NULL), call_of(NULL, NULL, &all)), "a state");
    cr_expect(raced(call_of(&all, &all, NULL), call_of(&last, NULL, NULL)), "an output over its input");
}

Test(watched, kernels_that_read_the_same_bytes_or_write_others_do_not_race)
{
    const weir_view all = floats(0, COUNT), first = floats(0, HALF), second = floats(HALF, HALF);
    cr_expect_not(raced(call_of(&all, NULL, NULL), call_of(&first, NULL, NULL)), "two inputs");
    cr_expect_not(raced(call_of(NULL, &first, NULL), call_of(NULL, &second, NULL)), "two outputs");
    cr_expect_not(raced(call_of(&second, &first, NULL), call_of(&second, NULL, NULL)), "an input beside an output");
}

Test(watched, nothing_is_declared_of_a_kernel_that_touches_parts_of_its_operands)
{
    const weir_view all = floats(0, COUNT);
    whole = false;
    cr_expect_not(raced(call_of(NULL, &all, NULL), call_of(NULL, &all, NULL)), "two outputs");
}

Test(watched, a_session_knows_which_kernels_touch_parts)
{
    int parts = 0;
    weir_graph *g = weir_graph_new("parts");
    weir_mesh_new(g, "cpu:0-1");
    weir_tensor *x = weir_input(g, WEIR_F32, {2, COUNT}, .name = "x", .sbp = {WEIR_S(0)});
    weir_fetch(weir_shard(weir_mean(weir_mul(x, x)), .sbp = {WEIR_B}), .name = "mean");
    weir_plan *plan = weir_compile(g);
    weir_session *s = weir_session_open(plan);
    cr_assert_not_null(s, "%s", weir_error());
    for (uint32_t k = 0; k < plan->kernels_count; k++) {
        const bool box = !strcmp(plan_text(plan, plan->kernels[k].op), "box");
        cr_expect(s->built.kernels[k].whole == !box, "%s", plan_text(plan, plan->kernels[k].op));
        parts += box;
    }
    cr_expect(parts > 0 && parts < (int)plan->kernels_count, "%d of %u", parts, plan->kernels_count);
    weir_session_close(s);
    weir_plan_free(plan);
    weir_graph_free(g);
}

Test(watched, a_launch_touches_nothing)
{
    const weir_view all = floats(0, COUNT);
    weir_kernel_args launch = call_of(NULL, &all, NULL);
    launch.queue = memory;
    cr_expect_not(raced(launch, launch), "a launch");
}
