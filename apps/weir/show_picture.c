/* apps/weir/show_picture.c: see the header.
 *
 * The drawing is made in a temporary file without a name, so nothing is left of it whatever happens, and is copied to its
 * own when it is whole. dot may take minutes for a plan of many actors: it is a child that is waited for a second at a
 * time, so that a line can say what goes on, and a signal that ends this process ends dot, too.
 */
#define _GNU_SOURCE
#include "apps/weir/show_picture.h"

#include "apps/common/measure.h"
#include "apps/common/options.h"
#include "graph/base/replaced.h"

#include <errno.h>
#include <libgen.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define SAY_AFTER_S 2 /* that dot takes time */

static const char program[] = "weir show";

/* ---- signals ---- */

/* The signals that end a process, without those that are ignored. */
static sigset_t ending_signals(void)
{
    static const int ends[] = {SIGINT, SIGTERM, SIGHUP};
    sigset_t set;
    sigemptyset(&set);
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
        struct sigaction action;
        if (!sigaction(ends[i], NULL, &action) && action.sa_handler != SIG_IGN)
            sigaddset(&set, ends[i]);
    }
    return set;
}

/* ---- dot ---- */

/* On a terminal a line that is written again each second; elsewhere one line. */
static void say_time(double seconds, bool *shown)
{
    char time[32];
    bool terminal = isatty(STDERR_FILENO);
    if (seconds < SAY_AFTER_S || (*shown && !terminal))
        return;
    *shown = true;
    if (terminal)
        fprintf(stderr, "\r\033[K%s: dot draws, since %s", program, measure_time_text(seconds, time));
    else
        fprintf(stderr, "%s: dot draws; plans of many actors take minutes\n", program);
}

static void end_line(bool shown)
{
    if (shown && isatty(STDERR_FILENO))
        fputs("\r\033[K", stderr);
}

/* Waits for dot, with `watched` blocked. Its status; the number of a signal goes to *caught, and dot has ended then. */
static int wait_for(pid_t id, const sigset_t *watched, int *caught)
{
    const double start = measure_seconds();
    const struct timespec second = {.tv_sec = 1};
    bool shown = false;
    int status = 0;
    while (waitpid(id, &status, WNOHANG) == 0) {
        int got = sigtimedwait(watched, NULL, &second);
        if (got > 0 && got != SIGCHLD) {
            *caught = got;
            kill(id, SIGTERM);
            while (waitpid(id, &status, 0) < 0 && errno == EINTR)
                continue;
            break;
        }
        say_time(measure_seconds() - start, &shown);
    }
    end_line(shown);
    return status;
}

/* Starts graphviz's dot, which reads `from` and writes `to`. Its own messages go to stderr. */
static int start_dot(FILE *from, FILE *to, const sigset_t *mask, pid_t *id)
{
    extern char **environ;
    char *argv[] = {"dot", "-Tsvg", NULL};
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attributes;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, fileno(from), STDIN_FILENO);
    posix_spawn_file_actions_adddup2(&actions, fileno(to), STDOUT_FILENO);
    posix_spawnattr_init(&attributes);
    posix_spawnattr_setsigmask(&attributes, mask);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK);
    int failed = posix_spawnp(id, "dot", &actions, &attributes, argv, environ);
    posix_spawnattr_destroy(&attributes);
    posix_spawn_file_actions_destroy(&actions);
    return failed;
}

/* Draws the graph in `from` as a picture in `to`: -1, or the exit status after reporting. */
static int run_dot(FILE *from, FILE *to)
{
    sigset_t ending = ending_signals(), watched = ending, mask;
    pid_t id = 0;
    int caught = 0, status = 0;
    sigaddset(&watched, SIGCHLD);
    sigprocmask(SIG_BLOCK, &watched, &mask);
    int failed = start_dot(from, to, &mask, &id);
    if (!failed)
        status = wait_for(id, &watched, &caught);
    if (caught)
        raise(caught); /* ends this process when it is let through */
    sigprocmask(SIG_SETMASK, &mask, NULL);
    if (failed)
        options_wrong(program, "--svg: cannot run dot, which is of the Debian package graphviz: %s", strerror(failed));
    else if (status)
        options_wrong(program, "--svg: dot could not draw the plan");
    return failed || status ? 1 : -1;
}

/* ---- files ---- */

/* Finds out before the work that a file cannot be written. */
static bool can_write(const char *path)
{
    struct stat info;
    char folder[4096];
    if (!stat(path, &info))
        return S_ISDIR(info.st_mode) ? errno = EISDIR, false : !access(path, W_OK);
    if (errno != ENOENT || snprintf(folder, sizeof folder, "%s", path) >= (int)sizeof folder)
        return false;
    return !access(dirname(folder), W_OK | X_OK);
}

static bool copy_all(FILE *from, struct replaced *to)
{
    char part[1 << 16];
    rewind(from);
    for (size_t count; (count = fread(part, 1, sizeof part, from)) > 0;)
        if (!replaced_write(to, part, count))
            return false;
    return !ferror(from);
}

/* No signal comes between the file that is written beside the old one and its renaming. */
static int put_file(FILE *from, const char *option, const char *path)
{
    struct replaced file;
    sigset_t ending = ending_signals(), mask;
    sigprocmask(SIG_BLOCK, &ending, &mask);
    bool ok = replaced_open(&file, path);
    if (ok) {
        ok = copy_all(from, &file);
        ok = replaced_close(&file, ok) && ok;
    }
    int error = errno;
    sigprocmask(SIG_SETMASK, &mask, NULL);
    return ok ? 0 : options_wrong(program, "%s: cannot write %s: %s", option, path, strerror(error));
}

int show_picture(const weir_plan *plan, const struct picture *picture)
{
    const char *option = picture->svg ? "--svg" : "--dot", *path = picture->svg ? picture->svg : picture->dot;
    if (!can_write(path))
        return options_wrong(program, "%s: cannot write %s: %s", option, path, strerror(errno));
    FILE *text = tmpfile(), *drawn = tmpfile();
    int status = -1;
    if (!text || !drawn)
        status = options_wrong(program, "%s: cannot write a temporary file: %s", option, strerror(errno));
    else if ((picture->every ? weir_plan_dot : weir_plan_picture)(plan, text) || fflush(text))
        status = options_failed(program);
    else if (picture->svg && !fseek(text, 0, SEEK_SET))
        status = run_dot(text, drawn);
    if (status < 0)
        status = put_file(picture->svg ? drawn : text, option, path);
    if (text)
        fclose(text);
    if (drawn)
        fclose(drawn);
    return status;
}
