/* tests/actors/session/test_cores.c: which cores a session's threads may use, whatever libraries do.
 *
 * A mask is a matter of how a process is started, so the suite starts itself again: with CORES_CHILD set it opens a
 * session of two devices, whose kernels look at the masks of their threads, prints them and ends. That happens in a
 * constructor, which runs behind those of the libraries and before the runner's main(). */
#define _GNU_SOURCE
#include <criterion/criterion.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <weir/session.h>

#include "tests/support/ops.h"
#include "tests/support/ranks.h"
#include "tests/support/sdf.h"

#define DEVICES 2
#define TEXT_BYTES 4096

/* ---- the child ---- */

static weir_status look(void *ctx, const weir_view *value, int64_t step, int micro)
{
    (void)value, (void)step, (void)micro;
    sched_getaffinity(0, sizeof(cpu_set_t), ctx);
    return WEIR_OK;
}

/* Devices, on each a source that nobody reads. */
static weir_plan *sources_plan(int devices)
{
    static const char *const names[] = {"a", "b", "c", "d"};
    test_ops();
    sdf *s = sdf_new("sources", 1);
    for (int i = 0; i < devices; i++)
        sdf_regst(s, sdf_actor(s, sdf_device(s), names[i], .kernel = "source", .host_kind = 1 + PLAN_SOURCE),
                  .items = 1);
    return sdf_plan(s);
}

static void print_mask(const cpu_set_t *mask)
{
    for (int core = 0; core < CPU_SETSIZE; core++)
        if (CPU_ISSET(core, mask))
            printf(" %d", core);
}

/* "2 workers: 0 1; 0 1; opened by: 0" */
static int tell_masks(void)
{
    cpu_set_t seen[DEVICES], own;
    weir_session_stats stats;
    weir_plan *plan = sources_plan(DEVICES);
    weir_binding bindings[] = {{.name = "a", .source = look, .ctx = &seen[0]},
                               {.name = "b", .source = look, .ctx = &seen[1]}, {0}};
    weir_session *session = weir_session_open(plan, .bindings = bindings);
    if (!session || weir_session_run(session, 1))
        return printf("%s\n", weir_error());
    weir_session_get_stats(session, &stats);
    printf("%d of %d:", stats.workers, stats.cores);
    for (int i = 0; i < DEVICES; i++, putchar(';'))
        print_mask(&seen[i]);
    sched_getaffinity(0, sizeof(own), &own);
    printf(" opened by:");
    print_mask(&own);
    weir_session_close(session);
    weir_plan_free(plan);
    return 0;
}

__attribute__((constructor)) static void child(void)
{
    const char *core = getenv("CORES_CHILD");
    cpu_set_t one;
    if (!core)
        return;
    CPU_ZERO(&one);
    CPU_SET(atoi(core), &one);
    if (*core)
        sched_setaffinity(0, sizeof(one), &one);
    tell_masks();
    fflush(stdout);
    _exit(0);
}

/* ---- the parent ---- */

/* The cores that the suite itself may use. */
static int cores(int core[CPU_SETSIZE])
{
    cpu_set_t mask;
    int count = 0;
    cr_assert(!sched_getaffinity(0, sizeof(mask), &mask));
    for (int i = 0; i < CPU_SETSIZE; i++)
        if (CPU_ISSET(i, &mask))
            core[count++] = i;
    return count;
}

/* The line that the child prints when it is started by this. */
static void ask(const char *how, char text[TEXT_BYTES])
{
    char path[1024], command[2048];
    ssize_t length = readlink("/proc/self/exe", path, sizeof(path) - 1);
    cr_assert_gt(length, 0);
    snprintf(command, sizeof(command), "CORES_CHILD= %s %.*s 2>&1", how, (int)length, path);
    FILE *pipe = popen(command, "r");
    cr_assert(pipe);
    text[fread(text, 1, TEXT_BYTES - 1, pipe)] = '\0';
    cr_assert_eq(pclose(pipe), 0, "%s: %s", command, text);
}

/* "2 of 2: 0 1; 0 1;", or with `pinned` "2 of 2: 0; 1;" */
static void wanted(const int *core, int count, bool pinned, char text[TEXT_BYTES])
{
    int at = sprintf(text, "%d of %d:", count < DEVICES ? count : DEVICES, count);
    for (int device = 0; device < DEVICES; device++, at += sprintf(text + at, ";"))
        for (int i = 0; i < count; i++)
            if (!pinned || i == device % count)
                at += sprintf(text + at, " %d", core[i]);
}

static void expect(const char *how, const int *core, int count, bool pinned)
{
    char want[TEXT_BYTES], got[TEXT_BYTES];
    wanted(core, count, pinned, want);
    ask(how, got);
    cr_expect(!strncmp(got, want, strlen(want)), "%s: \"%s\", not \"%s\"", how, got, want);
}

static const char *const binders[] = {
    "", "OMP_PROC_BIND=true", "OMP_PROC_BIND=close OMP_NUM_THREADS=1", "OMP_PLACES=cores", "OMP_PLACES={%1$d}",
    "GOMP_CPU_AFFINITY=%1$d", "CORES_CHILD=%1$d"};
#define BINDERS (int)(sizeof(binders) / sizeof(*binders))

Test(cores, workers_have_those_of_the_process_whatever_libraries_bind, .timeout = 60)
{
    int core[CPU_SETSIZE], count = cores(core);
    for (int i = 0; i < BINDERS; i++) {
        char how[256];
        snprintf(how, sizeof(how), binders[i], core[0]);
        expect(how, core, count, false);
    }
}

Test(cores, a_mask_of_the_user_is_kept_whatever_libraries_bind, .timeout = 60)
{
    int core[CPU_SETSIZE], count = cores(core);
    for (int i = 0; i < BINDERS; i++) {
        char how[256], taskset[320];
        snprintf(how, sizeof(how), binders[i], core[count - 1]);
        snprintf(taskset, sizeof(taskset), "%s taskset -c %d", how, core[count - 1]);
        expect(taskset, &core[count - 1], 1, false);
    }
}

Test(cores, a_worker_is_bound_to_one_when_asked, .timeout = 60)
{
    int core[CPU_SETSIZE], count = cores(core);
    expect("WEIR_PIN=1", core, count, true);
    expect("WEIR_PIN=1 OMP_PROC_BIND=true", core, count, true);
    expect("WEIR_PIN=0", core, count, false);
}

/* The thread that opens a session is the program's: it stays as it is. */
Test(cores, the_thread_that_opens_a_session_is_left_alone, .timeout = 60)
{
    char got[TEXT_BYTES], want[64], how[64];
    int core[CPU_SETSIZE], count = cores(core);
    snprintf(how, sizeof(how), "CORES_CHILD=%d", core[count - 1]);
    snprintf(want, sizeof(want), "opened by: %d", core[count - 1]);
    ask(how, got);
    cr_expect(strstr(got, want) && !strchr(strstr(got, want), '\n'), "%s, not %s", got, want);
}

/* One device each. */
static void pinned_rank(struct rank *rank)
{
    cpu_set_t *seen = rank->result;
    weir_plan *plan = sources_plan(DEVICES);
    weir_binding bindings[] = {{.name = "a", .source = look, .ctx = seen},
                               {.name = "b", .source = look, .ctx = seen},
                               {0}};
    weir_session *session =
        weir_session_open(plan, .pin = true, .bindings = bindings, .cluster = ranks_cluster(rank));
    RANK_IS(rank, session, "%s", weir_error());
    RANK_OK(rank, weir_session_run(session, 1));
    RANK_OK(rank, weir_session_close(session));
    weir_plan_free(plan);
}

Test(cores, ranks_of_one_host_bind_to_different_ones, .timeout = 60)
{
    int core[CPU_SETSIZE], count = cores(core);
    struct ranks *ranks =
        ranks_run(pinned_rank, NULL, .count = 2, .link = RANKS_SHM, .result_bytes = sizeof(cpu_set_t));
    for (int r = 0; r < 2; r++) {
        const cpu_set_t *seen = ranks->rank[r].result;
        cr_expect_eq(CPU_COUNT(seen), 1);
        cr_expect(CPU_ISSET(core[r % count], seen), "rank %d is not on core %d", r, core[r % count]);
    }
    ranks_free(ranks);
}

/* Two devices each: of rank 0 one worker runs both, of rank 1 each has one. */
static void pinned_rank_of_four(struct rank *rank)
{
    cpu_set_t ignored, *seen = rank->result;
    weir_plan *plan = sources_plan(4);
    weir_binding bindings[] = {{.name = "a", .source = look, .ctx = &ignored},
                               {.name = "b", .source = look, .ctx = &ignored},
                               {.name = "c", .source = look, .ctx = &seen[0]},
                               {.name = "d", .source = look, .ctx = &seen[1]},
                               {0}};
    weir_session *session = weir_session_open(plan, .pin = true, .workers = 1 + rank->number, .bindings = bindings,
                                              .cluster = ranks_cluster(rank));
    RANK_IS(rank, session, "%s", weir_error());
    RANK_OK(rank, weir_session_run(session, 1));
    RANK_OK(rank, weir_session_close(session));
    weir_plan_free(plan);
}

/* Rank 1's first worker is the second of all. */
Test(cores, ranks_take_as_many_as_each_has_workers, .timeout = 60)
{
    int core[CPU_SETSIZE], count = cores(core);
    struct ranks *ranks =
        ranks_run(pinned_rank_of_four, NULL, .count = 2, .link = RANKS_SHM, .result_bytes = 2 * sizeof(cpu_set_t));
    const cpu_set_t *seen = ranks->rank[1].result;
    for (int worker = 0; worker < 2; worker++)
        cr_expect(CPU_ISSET(core[(1 + worker) % count], &seen[worker]) && CPU_COUNT(&seen[worker]) == 1,
                  "worker %d of rank 1 is not on core %d alone", worker, core[(1 + worker) % count]);
    ranks_free(ranks);
}
