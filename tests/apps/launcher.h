/* tests/apps/launcher.h: weir launch, run as a user runs it, with shells as ranks. Other hosts are played by WEIR_RSH scripts that
 * run here what a remote shell would run there. */
#ifndef TESTS_APPS_LAUNCHER_H
#define TESTS_APPS_LAUNCHER_H

#include <criterion/criterion.h>

#include <errno.h>
#include <fcntl.h>
#include <pty.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define LAUNCH APPS_BIN "/weir launch "
#define OUTPUT_BYTES (1 << 20)

static char folder[] = "/tmp/weir-launch-XXXXXX";
static char output[OUTPUT_BYTES], errors[OUTPUT_BYTES]; /* what the last run() printed */

static inline void write_script(const char *name, const char *text)
{
    char path[64];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "w");
    cr_assert(file && fputs(text, file) >= 0 && !fclose(file) && !chmod(path, 0755));
}

/* `rsh HOST WORDS...` as ssh has it: one command for the login shell of a session of its own, behind a connection; what
 * becomes of that shell is no news. */
static inline void make_folder(void)
{
    cr_assert(mkdtemp(folder), "no folder for the test's files");
    setenv("T", folder, 1);
    setenv("WEIR", APPS_BIN "/weir", 1);
    write_script("rsh", "#!/bin/sh\nshift\nunset WEIR_FROM_HERE UCX_FROM_HERE\nexec 3>&2 2>/dev/null\ncat | setsid sh -c \"$*\" 2>&3 3>&-\n");
    write_script("lost", "#!/bin/sh\nread -r line\necho no route >&2\nexit 255\n");
    write_script("cut", "#!/bin/sh\nshift\nexec 3>&2 2>/dev/null\ntimeout 1 cat | setsid sh -c \"$*\" 2>&3 3>&-\n");
    unsetenv("WEIR_LIVENESS");
}

static inline void remove_folder(void)
{
    char command[64];
    snprintf(command, sizeof command, "rm -r %s", folder);
    cr_expect(system(command) == 0);
}

/* ---- running ---- */

static inline void sleep_ms(int ms)
{
    nanosleep(&(struct timespec){ms / 1000, ms % 1000 * 1000000L}, NULL);
}

/* Reads a file of the test's folder, as far as it is written; "" when there is none. */
static inline const char *read_file(const char *name, char text[OUTPUT_BYTES])
{
    char path[64];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "r");
    size_t count = file ? fread(text, 1, OUTPUT_BYTES - 1, file) : 0;
    text[count] = '\0';
    if (file)
        fclose(file);
    return text;
}

static inline int unlink_file(const char *name)
{
    char path[64];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return unlink(path);
}

/* Starts a shell command that is a launcher; what it prints goes to the files out and err. */
static inline pid_t start(const char *command)
{
    pid_t id = fork();
    cr_assert(id >= 0);
    if (id)
        return id;
    char text[4096];
    signal(SIGINT, SIG_DFL);
    snprintf(text, sizeof text, "exec >$T/out 2>$T/err </dev/null; %s", command);
    execl("/bin/sh", "sh", "-c", text, (char *)NULL);
    _exit(99);
}

/* Its exit status, or -1 when a signal ended it. */
static inline int finish(pid_t id)
{
    int status = 0;
    while (waitpid(id, &status, 0) < 0 && errno == EINTR)
        continue;
    read_file("out", output);
    read_file("err", errors);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static inline int run(const char *command)
{
    return finish(start(command));
}

static inline int count_text(const char *in, const char *text)
{
    int count = 0;
    for (const char *at = in; (at = strstr(at, text)); at += strlen(text))
        count++;
    return count;
}

/* Waits until what is printed so far has `text` so many times. */
static inline void wait_for(const char *text, int times)
{
    for (int i = 0; i < 2000; i++, sleep_ms(5))
        if (count_text(read_file("out", output), text) >= times)
            return;
    cr_assert_fail("\"%s\" was not printed %d times: %s%s", text, times, output, read_file("err", errors));
}

static inline void expect_status(const char *command, int status)
{
    int got = run(command);
    cr_expect(got == status, "%s: status %d, not %d: %s%s", command, got, status, output, errors);
}

static inline void expect_line(const char *in, const char *line)
{
    char text[4200];
    snprintf(text, sizeof text, "\n%s\n", line);
    cr_expect(strstr(in, text) || !strncmp(in, text + 1, strlen(text) - 1), "no line \"%s\" in: %s", line, in);
}

/* Whether a process runs; one that has ended and waits to be reaped does not. */
static inline bool is_alive(int id)
{
    char path[64], state = 'X';
    snprintf(path, sizeof path, "/proc/%d/stat", id);
    FILE *file = fopen(path, "r");
    if (file && fscanf(file, "%*d (%*[^)]) %c", &state) != 1)
        state = 'X';
    if (file)
        fclose(file);
    return state != 'X' && state != 'Z';
}

/* Every process whose number was written to the file `pids` ends within `ms`; there are at least `least`. */
static inline void expect_gone(int least, int ms)
{
    char *rest = NULL;
    int count = 0;
    read_file("pids", errors);
    for (char *word = strtok_r(errors, " \n", &rest); word; word = strtok_r(NULL, " \n", &rest), count++) {
        for (; is_alive(atoi(word)) && ms > 0; ms -= 5)
            sleep_ms(5);
        cr_expect(!is_alive(atoi(word)), "process %s is still there", word);
    }
    cr_expect(count >= least, "only %d processes have told their number", count);
}

#endif
