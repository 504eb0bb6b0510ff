/* tests/apps/shell.h: the command `weir` as a user's shell calls it. In a test with a folder (tests/support/folder.h). */
#ifndef TESTS_APPS_SHELL_H
#define TESTS_APPS_SHELL_H

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>

#include "tests/support/folder.h"

/* The output of the last command. */
static char output[1 << 16];

/* A test's .init where programs train or measure: makes the folder, and names ThreadSanitizer's suppressions so that they are
 * found from any folder. */
static inline void shell_begin(void)
{
    char options[4200], *suppressions = realpath("tests/support/tsan.supp", NULL);
    cr_assert_not_null(suppressions);
    snprintf(options, sizeof options, "suppressions=%s", suppressions);
    setenv("TSAN_OPTIONS", options, 0);
    free(suppressions);
    folder_make();
}

/* Runs a shell command; "weir" is the program, $T the test's folder. Its exit status. */
static inline int run(const char *command)
{
    char all[4096];
    setenv("T", folder_path("."), 1);
    snprintf(all, sizeof all, "weir() { %s/weir \"$@\"; }; { %s; } 2>&1", APPS_BIN, command);
    FILE *pipe = popen(all, "r");
    cr_assert(pipe);
    output[fread(output, 1, sizeof output - 1, pipe)] = '\0';
    int status = pclose(pipe);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static inline void must_run(const char *command)
{
    cr_assert_eq(run(command), 0, "%s: %s", command, output);
}

#endif
