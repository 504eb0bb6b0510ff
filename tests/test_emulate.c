/* test_emulate.c: the emulator of CUDA's kernels finds the faults that it is there to find: kernels with one planted
 * each (tests/cuda/faults.h), and the same ones without it.
 *
 * A dependence on the order of threads shows in results, under some seed: so each kernel is run under many.
 * ThreadSanitizer sees it under each, as threads of a grid are threads to it; and it sees races that no result shows.
 * It prints a race, and makes the process end with a status of its own; so there, kernels that race run in a child.
 */
#include "tests/cuda/emulated.h"
#include "tests/cuda/faults.h"

#include <criterion/criterion.h>
#include <dlfcn.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#ifndef FAULTS_OBJECT
#define FAULTS_OBJECT ""
#endif

enum { SEEDS = 20 };

typedef struct outcome {
    weir_status status;
    char error[400];
    float y[FAULT_COUNT];
} outcome;

TestSuite(emulate, .timeout = 60);

static fault_run_fn *loaded(void)
{
    static fault_run_fn *run;
    if (run)
        return run;
    if (access(FAULTS_OBJECT, R_OK))
        cr_skip_test("there is no CUDA toolkit here, whose headers the emulator needs");
    void *object = dlopen(FAULTS_OBJECT, RTLD_NOW | RTLD_LOCAL);
    cr_assert_not_null(object, "%s", dlerror());
    *(void **)&run = dlsym(object, "fault_run");
    cr_assert_not_null(run, "%s", dlerror());
    return run;
}

static outcome ran(fault_name name, bool mended, uint64_t seed)
{
    outcome o = {.status = WEIR_OK};
    float x[FAULT_COUNT];
    for (int i = 0; i < FAULT_COUNT; i++) {
        x[i] = (float)(i + 1);
        o.y[i] = -1;
    }
    const weir_kernel_args args = {.error = o.error, .error_bytes = sizeof o.error};
    o.status = loaded()(name, mended, seed, &args, x, o.y);
    return o;
}

/* Without its fault the kernel ends well, with the same bits whatever the order. Returns them. */
static outcome mended(fault_name name)
{
    const outcome first = ran(name, true, 1);
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        const outcome o = ran(name, true, seed);
        cr_assert_eq(o.status, WEIR_OK, "seed %d: %s", (int)seed, o.error);
        cr_assert(!memcmp(o.y, first.y, sizeof o.y), "seed %d gives other bits", (int)seed);
    }
    return first;
}

/* The fault is one sentence with these two parts, whatever the order. */
static void expect_told(fault_name name, const char *kernel, const char *what)
{
    mended(name);
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        const outcome o = ran(name, false, seed);
        cr_assert_eq(o.status, WEIR_E_KERNEL, "seed %d: status %d", (int)seed, o.status);
        cr_assert(strstr(o.error, kernel) && strstr(o.error, what), "seed %d: %s", (int)seed, o.error);
    }
    cr_expect_eq(ran(name, true, 1).status, WEIR_OK, "a grid after one with a fault has none");
}
#define EXPECT_TOLD(name, what) expect_told(FAULT_##name, "kernel " #name "<", what)

#ifdef __SANITIZE_THREAD__
/* Whether ThreadSanitizer tells of a race in a process that runs the kernel with this seed. */
static bool raced(fault_name name, uint64_t seed)
{
    static char text[1 << 16];
    int status = 0;
    FILE *said = tmpfile();
    loaded();
    cr_assert_not_null(said);
    fflush(NULL);
    const pid_t child = fork();
    if (child == 0) {
        dup2(fileno(said), STDERR_FILENO);
        ran(name, false, seed);
        exit(0); /* with another status where something was told */
    }
    cr_assert(child > 0 && waitpid(child, &status, 0) == child);
    rewind(said);
    text[fread(text, 1, sizeof text - 1, said)] = 0;
    fclose(said);
    return WIFEXITED(status) && WEXITSTATUS(status) && strstr(text, "data race");
}

static void expect_seen(fault_name name)
{
    mended(name);
    for (uint64_t seed = 1; seed <= SEEDS; seed++)
        cr_expect(raced(name, seed), "seed %d: no race is told", (int)seed);
}
#else
static void expect_seen(fault_name name)
{
    const outcome right = mended(name), first = ran(name, false, 1);
    int wrong = 0, others = 0;
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        const outcome o = ran(name, false, seed), again = ran(name, false, seed);
        wrong += !!memcmp(o.y, right.y, sizeof o.y);
        others += !!memcmp(o.y, first.y, sizeof o.y);
        cr_expect(!memcmp(o.y, again.y, sizeof o.y), "seed %d: the order does not follow from it", (int)seed);
    }
    cr_expect_gt(wrong, SEEDS / 2, "%d of %d orders give other bits than the mended one", wrong, SEEDS);
    cr_expect_gt(others, SEEDS / 2, "%d of %d orders give other bits than the first one", others, SEEDS);
}
#endif

Test(emulate, a_missing_barrier_is_seen)
{
    expect_seen(FAULT_missing_barrier);
}

Test(emulate, a_missing_barrier_of_a_warp_is_seen)
{
    expect_seen(FAULT_missing_warp_barrier);
}

Test(emulate, shared_memory_reused_too_early_is_seen)
{
    expect_seen(FAULT_early_reuse);
}

Test(emulate, shared_memory_that_nobody_wrote_reads_as_nan)
{
    const outcome right = mended(FAULT_unwritten_read);
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        const outcome o = ran(FAULT_unwritten_read, false, seed);
        cr_expect(isnan(o.y[63]) && !memcmp(o.y, right.y, 63 * sizeof *o.y), "seed %d: %g", (int)seed, (double)o.y[63]);
    }
}

Test(emulate, an_index_outside_of_shared_memory_is_told)
{
    EXPECT_TOLD(outside_index, "thread 63 uses element 64 of the shared array tile, which has 64");
    EXPECT_TOLD(rest_index, "thread 63 uses element 64 of the shared array tile, which has 64");
}

Test(emulate, a_write_behind_shared_memory_is_told)
{
    EXPECT_TOLD(outside_write, "a write behind the shared array tile, which has 256 bytes");
}

Test(emulate, threads_at_different_barriers_are_told)
{
    EXPECT_TOLD(two_barriers, "thread 0 is at the barrier at tests/cuda/faults.cu:");
}

Test(emulate, a_barrier_for_threads_that_have_ended_is_told)
{
    EXPECT_TOLD(barrier_after_end, "thread 0 is at the barrier at tests/cuda/faults.cu:");
    EXPECT_TOLD(barrier_after_end, ", and thread 32 has ended");
}

Test(emulate, a_shuffle_of_a_part_of_a_warp_is_told)
{
    EXPECT_TOLD(partial_warp, "waits for its warp at tests/cuda/faults.cu:");
    EXPECT_TOLD(partial_warp, ", and thread 16 has ended");
    EXPECT_TOLD(short_warp, "with a whole warp, and its warp has 16 threads");
}

Test(emulate, lanes_at_different_shuffles_are_told)
{
    EXPECT_TOLD(two_shuffles, "and thread 16 waits for its warp at tests/cuda/faults.cu:");
}

Test(emulate, a_ballot_without_a_lane_is_told)
{
    EXPECT_TOLD(partial_ballot, "waits for its warp at tests/cuda/faults.cu:");
    EXPECT_TOLD(partial_ballot, ", and thread 3 has ended");
}

Test(emulate, a_trap_is_told)
{
    EXPECT_TOLD(trapped, "thread 5 traps at tests/cuda/faults.cu:");
}

#ifdef __SANITIZE_THREAD__
Test(emulate, a_race_of_threads_that_no_result_shows_is_seen)
{
    expect_seen(FAULT_race);
}

Test(emulate, a_race_of_blocks_that_no_result_shows_is_seen)
{
    expect_seen(FAULT_race_of_blocks);
}
#endif
