/* tests/support/plain/criterion/criterion.h: stands in for Criterion in SAN=thread builds.
 *
 * Criterion runs each test in a process that shares an arena with the runner at an address that ThreadSanitizer keeps for
 * itself, so no suite starts. Here tests run one after the other in one process; a failing assertion ends it. Options other
 * than the timeout are taken and not looked at. What the suites do not use is not here.
 */
#ifndef TESTS_SUPPORT_PLAIN_CRITERION_H
#define TESTS_SUPPORT_PLAIN_CRITERION_H

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct plain_test {
    const char *suite, *name;
    void (*run)(void);
    struct plain_test *next;
    unsigned timeout; /* s */
    int disabled;
    void (*init)(void), (*fini)(void);
};

/* One list per program, whichever of its files has tests. */
__attribute__((weak)) struct plain_test *plain_tests;
__attribute__((weak)) int plain_skipped;

#define Test(suite_, name_, ...)                                                                     \
    static void suite_##_##name_##_run(void);                                                        \
    __attribute__((constructor)) static void suite_##_##name_##_add(void)                            \
    {                                                                                                \
        static struct plain_test test = {#suite_, #name_, suite_##_##name_##_run, NULL, __VA_ARGS__}; \
        test.next = plain_tests;                                                                     \
        plain_tests = &test;                                                                         \
    }                                                                                                \
    static void suite_##_##name_##_run(void)

static inline void plain_check(int holds, const char *what, const char *file, int line, const char *format, ...)
{
    if (holds)
        return;
    va_list list;
    fprintf(stderr, "%s:%d: not so: %s. ", file, line, what);
    va_start(list, format);
    vfprintf(stderr, format, list);
    va_end(list);
    fputc('\n', stderr);
    exit(1);
}

#define PLAIN(condition, what, ...) plain_check((condition) ? 1 : 0, what, __FILE__, __LINE__, "" __VA_ARGS__)
#define cr_assert(x, ...) PLAIN(x, #x, __VA_ARGS__)
#define cr_assert_not(x, ...) PLAIN(!(x), "not " #x, __VA_ARGS__)
#define cr_assert_null(x, ...) PLAIN((x) == NULL, #x " is NULL", __VA_ARGS__)
#define cr_assert_not_null(x, ...) PLAIN((x) != NULL, #x " is not NULL", __VA_ARGS__)
#define cr_assert_eq(a, b, ...) PLAIN((a) == (b), #a " == " #b, __VA_ARGS__)
#define cr_assert_neq(a, b, ...) PLAIN((a) != (b), #a " != " #b, __VA_ARGS__)
#define cr_assert_lt(a, b, ...) PLAIN((a) < (b), #a " < " #b, __VA_ARGS__)
#define cr_assert_leq(a, b, ...) PLAIN((a) <= (b), #a " <= " #b, __VA_ARGS__)
#define cr_assert_gt(a, b, ...) PLAIN((a) > (b), #a " > " #b, __VA_ARGS__)
#define cr_assert_geq(a, b, ...) PLAIN((a) >= (b), #a " >= " #b, __VA_ARGS__)
#define cr_assert_str_eq(a, b, ...) PLAIN(!strcmp(a, b), #a " == " #b, __VA_ARGS__)
#define cr_assert_arr_eq(a, b, bytes, ...) PLAIN(!memcmp(a, b, bytes), #a " == " #b, __VA_ARGS__)
#define cr_assert_float_eq(a, b, most, ...) \
    PLAIN((a) - (b) <= (most) && (b) - (a) <= (most), #a " == " #b, __VA_ARGS__)
#define cr_skip_test(...) \
    do {                  \
        plain_skipped++;  \
        return;           \
    } while (0)

__attribute__((weak)) int main(void)
{
    int count = 0;
    for (struct plain_test *test = plain_tests; test; test = test->next, count++) {
        if (test->disabled)
            continue;
        fprintf(stderr, "%s: %s\n", test->suite, test->name);
        alarm(test->timeout * 10); /* sanitizers are slow */
        if (test->init)
            test->init();
        test->run();
        if (test->fini)
            test->fini();
    }
    fprintf(stderr, "%d tests passed, %d skipped\n", count - plain_skipped, plain_skipped);
    return 0;
}

#endif
