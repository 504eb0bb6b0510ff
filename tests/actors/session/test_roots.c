/* tests/actors/session/test_roots.c: a session keeps the root that it saves in for its process, from its first save until
 * it is closed, and replaces nothing there that is the user's. */
#define _GNU_SOURCE
#include "tests/support/folder.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
#include <weir/weir.h>

/* A file system without locks, while it is set. The definition takes the place of the system's in this program. */
static bool no_locks;

int fcntl(int fd, int command, ...)
{
    va_list list;
    va_start(list, command);
    void *argument = va_arg(list, void *);
    va_end(list);
    if (no_locks && command == F_OFD_SETLK) {
        errno = ENOLCK;
        return -1;
    }
    return (int)syscall(SYS_fcntl, fd, command, argument);
}

TestSuite(roots, .init = folder_make, .fini = folder_remove, .timeout = 60);

static weir_plan *small_plan(void)
{
    weir_graph *g = weir_graph_new("small");
    weir_tensor *h = weir_state(g, WEIR_F32, {4}, .name = "h", .init = WEIR_VALUE(1));
    weir_state_set(h, weir_add(h, h));
    weir_plan *plan = weir_compile(g);
    cr_assert(plan, "%s", weir_error());
    weir_graph_free(g);
    return plan;
}

static weir_session *opened(weir_plan *plan)
{
    weir_session *s = weir_session_open(plan, .workers = 1, .cluster = {.alone = true});
    cr_assert(s, "%s", weir_error());
    return s;
}

/* Whether another process may save there: a child that runs the program anew. */
static bool another_may_save(const char *dir)
{
    int status = 0;
    pid_t child = fork();
    if (!child)
        _exit(weir_checkpoint_lock_take(dir) ? 0 : 1);
    cr_assert_eq(waitpid(child, &status, 0), child);
    return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

Test(roots, session_keeps_a_root_from_its_first_save_until_it_is_closed)
{
    weir_plan *plan = small_plan();
    weir_session *a = opened(plan), *b = opened(plan);
    cr_expect(another_may_save(folder_path("run")));
    for (int i = 0; i < 2; i++) { /* sessions of one process save in turn */
        cr_assert_eq(weir_session_save(a, folder_path("run"), .name = "a"), WEIR_OK, "%s", weir_error());
        cr_assert_eq(weir_session_save(b, folder_path("run"), .name = "b"), WEIR_OK, "%s", weir_error());
        cr_expect_not(another_may_save(folder_path("run")));
    }
    cr_expect(another_may_save(folder_path("other")));
    weir_session_close(a);
    cr_expect_not(another_may_save(folder_path("run")));
    weir_session_close(b);
    cr_expect(another_may_save(folder_path("run")));
    weir_plan_free(plan);
}

Test(roots, root_that_was_removed_and_made_again_is_locked_again)
{
    weir_plan *plan = small_plan();
    weir_session *s = opened(plan);
    cr_assert_eq(weir_session_save(s, folder_path("run")), WEIR_OK);
    cr_assert(!rename(folder_path("run"), folder_path("moved")));
    cr_assert_eq(weir_session_save(s, folder_path("run")), WEIR_OK, "%s", weir_error());
    cr_expect_not(another_may_save(folder_path("run")));
    cr_expect_not(another_may_save(folder_path("moved")));
    weir_session_close(s);
    cr_expect(another_may_save(folder_path("run")));
    weir_plan_free(plan);
}

Test(roots, save_under_the_name_of_a_folder_of_the_user_changes_nothing_and_the_session_goes_on)
{
    weir_plan *plan = small_plan();
    weir_session *s = opened(plan);
    cr_assert(!mkdir(folder_path("ws"), 0777) && !mkdir(folder_path("ws/mine"), 0777));
    folder_write(folder_path("ws/mine/notes.txt"), "mine", 4);
    cr_expect_eq(weir_session_save(s, folder_path("ws"), .name = "mine"), WEIR_E_IO);
    cr_expect(strstr(weir_error(), "ws/mine: is in the way") && strstr(weir_error(), "notes.txt"), "%s", weir_error());
    cr_expect_eq(folder_size(folder_path("ws/mine/notes.txt")), 4);
    cr_assert_eq(weir_session_run(s, 1), WEIR_OK, "%s", weir_error());
    cr_assert_eq(weir_session_save(s, folder_path("ws"), .name = "other"), WEIR_OK, "%s", weir_error());
    cr_expect_eq(folder_entries(folder_path("ws")), 2);
    weir_session_close(s);
    weir_plan_free(plan);
}

static char reports[4096];

static void hear(void *ctx, const char *text)
{
    (void)ctx;
    strncat(reports, text, sizeof reports - strlen(reports) - 1);
}

Test(roots, file_system_without_locks_is_reported_once_and_leftovers_stay)
{
    weir_plan *plan = small_plan();
    weir_session *s = weir_session_open(plan, .workers = 1, .cluster = {.alone = true}, .report = hear);
    cr_assert(s, "%s", weir_error());
    cr_assert(!mkdir(folder_path("run"), 0777) && !mkdir(folder_path("run/.step-00000007.0123456789abcdef"), 0777));
    folder_write(folder_path("run/.step-00000007.0123456789abcdef/.weir-save"), "", 0);
    no_locks = true;
    for (int i = 0; i < 2; i++)
        cr_assert_eq(weir_session_save(s, folder_path("run")), WEIR_OK, "%s", weir_error());
    cr_expect(folder_has(folder_path("run/.step-00000007.0123456789abcdef")), "it may be another program's");
    no_locks = false;
    weir_session_close(s);
    const char *first = strstr(reports, "run: the file system has no locks");
    cr_expect(first && !strstr(first + 20 + strlen("has no locks"), "has no locks"), "reports: %s", reports);
    s = opened(plan);
    cr_assert_eq(weir_session_save(s, folder_path("run")), WEIR_OK, "%s", weir_error());
    cr_expect_not(folder_has(folder_path("run/.step-00000007.0123456789abcdef")));
    weir_session_close(s);
    weir_plan_free(plan);
}

Test(roots, lock_is_refused_where_nothing_can_be_written)
{
    cr_expect_null(weir_checkpoint_lock_take(NULL));
    folder_write(folder_path("file"), "x", 1);
    cr_expect_null(weir_checkpoint_lock_take(folder_path("file")));
    cr_expect(strstr(weir_error(), "file: cannot be made a folder of checkpoints"), "%s", weir_error());
    cr_expect_null(weir_checkpoint_lock_take(folder_path("file/below")));
    weir_checkpoint_lock_release(NULL);
}
