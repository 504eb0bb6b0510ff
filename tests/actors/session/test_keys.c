/* tests/actors/session/test_keys.c: a session's key is nowhere in a rank's memory when the session is closed, or was not
 * opened.
 *
 * The key is in a file that another process wrote. The 32 bytes that its letters stand for are ZeroMQ's too, which does not
 * wipe them. */
#define _GNU_SOURCE
#include <criterion/criterion.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <weir/weir.h>

#include "tests/support/folder.h"
#include "tests/support/ranks.h"
#include "tests/support/secret.h"

TestSuite(keys, .init = folder_make, .fini = folder_remove, .timeout = 120);

/* ---- ranks ---- */

/* Another process writes the file, so this one's memory never had the key. */
static const char *key_file(void)
{
    const char *path = folder_path("key");
    pid_t writer = fork();
    if (!writer) {
        char secret[WEIR_KEY_BYTES];
        int fd = open(path, O_WRONLY | O_CREAT | O_EXCL, 0600);
        _exit(weir_key_new(secret) || dprintf(fd, "%s\n", secret) != WEIR_KEY_BYTES);
    }
    int status = -1;
    cr_assert(writer > 0 && waitpid(writer, &status, 0) == writer && !status);
    return path;
}

static weir_plan *plan_of_two(void)
{
    weir_graph *g = weir_graph_new("two");
    weir_mesh_new(g, "cpu:0-1");
    weir_tensor *x = weir_input(g, WEIR_F32, {8, 4}, .name = "x", .sbp = {WEIR_S(0)});
    weir_fetch(weir_sum(weir_mul(x, x)), .name = "y");
    weir_plan *plan = weir_compile(g);
    cr_assert_not_null(plan, "%s", weir_error());
    weir_graph_free(g);
    return plan;
}

static void expect_none(struct rank *rank)
{
    const struct secret secret = secret_read(getenv("WEIR_KEY_FILE"));
    int found = secret_count(&secret, getpid());
    RANK_IS(rank, !found, "the key is left %d times", found);
}

static void run_two(struct rank *rank)
{
    weir_session *s = weir_session_open(rank->ctx, .cluster = ranks_cluster(rank));
    RANK_IS(rank, s, "%s", weir_error());
    float x[8 * 4] = {1}, y = 0;
    RANK_OK(rank, weir_session_start(s, 1));
    if (!rank->number) {
        RANK_OK(rank, weir_session_push(s, "x", &(weir_array){x, WEIR_F32, {2, {8, 4}}}, -1));
        RANK_OK(rank, weir_session_pull(s, "y", &(weir_array){&y, WEIR_F32, {0}}, -1));
    }
    RANK_OK(rank, weir_session_wait(s, -1));
    RANK_OK(rank, weir_session_close(s));
    expect_none(rank);
}

static void run(rank_fn fn, enum ranks_link link)
{
    weir_plan *plan = plan_of_two();
    setenv("WEIR_KEY_FILE", key_file(), 1);
    ranks_free(ranks_run(fn, plan, .count = 2, .link = link));
    weir_plan_free(plan);
}

Test(keys, are_wiped_when_a_session_in_shared_memory_is_closed)
{
    run(run_two, RANKS_SHM);
}

Test(keys, are_wiped_when_a_session_over_tcp_is_closed)
{
    run(run_two, RANKS_TCP);
}

/* The look finds what is there. */
static void hold_a_copy(struct rank *rank)
{
    static char letters[SECRET_LETTERS];
    int fd = open(getenv("WEIR_KEY_FILE"), O_RDONLY | O_CLOEXEC);
    RANK_IS(rank, read(fd, letters, sizeof letters) == SECRET_LETTERS, "no key");
    close(fd);
    const struct secret secret = secret_read(getenv("WEIR_KEY_FILE"));
    RANK_IS(rank, secret_count(&secret, getpid()) == 1, "%d", secret_count(&secret, getpid()));
}

Test(keys, are_found_where_they_are_left)
{
    run(hold_a_copy, RANKS_SHM);
}

/* ---- sessions that are not opened ---- */

static void nobody_comes(struct rank *rank)
{
    setenv("WEIR_JOIN", "0.3", 1);
    if (rank->number == 0)
        return;
    RANK_IS(rank, !weir_session_open(rank->ctx, .cluster = ranks_cluster(rank)), "it is opened");
    expect_none(rank);
}

Test(keys, are_wiped_when_ranks_do_not_come)
{
    run(nobody_comes, RANKS_SHM);
}

static void a_setting_is_wrong(struct rank *rank)
{
    weir_cluster_opts opts = ranks_cluster(rank);
    setenv("WEIR_CARRIER", "perhaps", 1); /* is read after the key */
    RANK_IS(rank, !weir_session_open(rank->ctx, .cluster = opts) && strstr(weir_error(), "WEIR_CARRIER"), "%s",
            weir_error());
    expect_none(rank);
    setenv("WEIR_CARRIER", "", 1);
    setenv("WEIR_DEVICES", "1", 1);
    opts.world_size = 1 + rank->count, opts.rank = 0, setenv("WEIR_JOIN", "0.3", 1);
    RANK_IS(rank, !weir_session_open(rank->ctx, .cluster = opts), "it is opened");
    expect_none(rank);
}

Test(keys, are_wiped_when_the_environment_is_wrong)
{
    run(a_setting_is_wrong, RANKS_SHM);
}

/* ---- parts of plans ---- */

static void load_part(struct rank *rank)
{
    char text[16];
    snprintf(text, sizeof text, "%d", rank->number);
    setenv("RANK", text, 1);
    setenv("WORLD_SIZE", "2", 1);
    setenv("MASTER_ADDR", "127.0.0.1", 1);
    setenv("MASTER_PORT", strrchr(rank->address, ':') + 1, 1);
    weir_plan *part = weir_plan_load_part(rank->number ? "/nowhere" : getenv("PLAN"));
    RANK_IS(rank, part, "%s", weir_error());
    weir_plan_free(part);
    expect_none(rank);
}

Test(keys, are_wiped_when_a_part_of_a_plan_has_come)
{
    weir_plan *plan = plan_of_two();
    setenv("PLAN", folder_path("plan"), 1);
    cr_assert_eq(weir_plan_save(plan, getenv("PLAN")), WEIR_OK, "%s", weir_error());
    weir_plan_free(plan);
    run(load_part, RANKS_SHM);
}

/* ---- the key that a host's ranks share ---- */

static void open_with_local_key(struct rank *rank)
{
    unsetenv("WEIR_KEY_FILE");
    weir_session *s = weir_session_open(rank->ctx, .cluster = ranks_cluster(rank));
    RANK_IS(rank, s, "%s", weir_error());
    RANK_OK(rank, weir_session_close(s));
    setenv("WEIR_KEY_FILE", getenv("LOCAL_KEY"), 1);
    expect_none(rank);
}

Test(keys, of_this_host_are_wiped_too)
{
    setenv("XDG_RUNTIME_DIR", folder_path("."), 1);
    setenv("LOCAL_KEY", folder_path("weir.key"), 1);
    run(open_with_local_key, RANKS_SHM);
}
