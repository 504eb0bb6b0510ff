/* tests/support/plain/criterion/criterion.h: stands in for Criterion where a sanitizer watches (SAN=...).
 *
 * Criterion shares memory between its processes at an address that ThreadSanitizer keeps for itself, so no suite starts
 * under it; and it takes no notice when AddressSanitizer finds a leak as a test's process ends. This runner does
 * little, and that: each test in a process of its own, whose exit status decides. See plain.c. The parts of Criterion that
 * the suites do not use are not here.
 */
#ifndef TESTS_SUPPORT_PLAIN_CRITERION_H
#define TESTS_SUPPORT_PLAIN_CRITERION_H

/* Criterion's own header brings these, too. */
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

/* The options of Test() and TestSuite() that the suites use; a test's own come first. */
typedef struct plain_options {
    void (*init)(void), (*fini)(void);
    double timeout; /* s */
} plain_options;

typedef struct plain_test {
    const char *suite, *name;
    void (*run)(void);
    plain_options options;
    struct plain_test *next;
} plain_test;

typedef struct plain_suite {
    const char *name;
    plain_options options;
    struct plain_suite *next;
} plain_suite;

/* Both keep what they are given, which must live as long as the program. */
void plain_add_test(plain_test *test);
void plain_add_suite(plain_suite *suite);

#define Test(suite_, name_, ...)                                                                 \
    static void suite_##_##name_##_run(void);                                                    \
    __attribute__((constructor)) static void suite_##_##name_##_add(void)                        \
    {                                                                                            \
        static plain_test test = {#suite_, #name_, suite_##_##name_##_run, {__VA_ARGS__}, NULL}; \
        plain_add_test(&test);                                                                   \
    }                                                                                            \
    static void suite_##_##name_##_run(void)

#define TestSuite(name_, ...)                                        \
    __attribute__((constructor)) static void name_##_suite_add(void) \
    {                                                                \
        static plain_suite suite = {#name_, {__VA_ARGS__}, NULL};    \
        plain_add_suite(&suite);                                     \
    }                                                                \
    struct plain_suite

/* Says where and what, if it does not hold; then ends the test when `fatal`, else lets it fail at its end. The sentence
 * may be empty. */
void plain_check(bool holds, bool fatal, const char *file, int line, const char *what, const char *format, ...)
    __attribute__((format(printf, 6, 7)));
/* Shows what `is` is, too. */
void plain_check_text(const char *is, const char *wanted, bool fatal, const char *file, int line, const char *what,
                      const char *format, ...) __attribute__((format(printf, 7, 8)));
_Noreturn void plain_skip(const char *format, ...) __attribute__((format(printf, 1, 2)));

#define PLAIN_CHECK(fatal, x, what, ...) \
    plain_check((x) ? true : false, fatal, __FILE__, __LINE__, what, " " __VA_ARGS__)
#define PLAIN_IS(fatal, x, ...) PLAIN_CHECK(fatal, x, #x, __VA_ARGS__)
#define PLAIN_NOT(fatal, x, ...) PLAIN_CHECK(fatal, !(x), "not " #x, __VA_ARGS__)
#define PLAIN_OP(fatal, a, op, b, ...) PLAIN_CHECK(fatal, (a)op(b), #a " " #op " " #b, __VA_ARGS__)

#define cr_assert(x, ...) PLAIN_IS(true, x, __VA_ARGS__)
#define cr_expect(x, ...) PLAIN_IS(false, x, __VA_ARGS__)
#define cr_assert_not(x, ...) PLAIN_NOT(true, x, __VA_ARGS__)
#define cr_expect_not(x, ...) PLAIN_NOT(false, x, __VA_ARGS__)
#define cr_assert_null(x, ...) PLAIN_OP(true, x, ==, NULL, __VA_ARGS__)
#define cr_expect_null(x, ...) PLAIN_OP(false, x, ==, NULL, __VA_ARGS__)
#define cr_assert_not_null(x, ...) PLAIN_OP(true, x, !=, NULL, __VA_ARGS__)
#define cr_expect_not_null(x, ...) PLAIN_OP(false, x, !=, NULL, __VA_ARGS__)
#define cr_assert_eq(a, b, ...) PLAIN_OP(true, a, ==, b, __VA_ARGS__)
#define cr_expect_eq(a, b, ...) PLAIN_OP(false, a, ==, b, __VA_ARGS__)
#define cr_assert_neq(a, b, ...) PLAIN_OP(true, a, !=, b, __VA_ARGS__)
#define cr_expect_neq(a, b, ...) PLAIN_OP(false, a, !=, b, __VA_ARGS__)
#define cr_assert_lt(a, b, ...) PLAIN_OP(true, a, <, b, __VA_ARGS__)
#define cr_expect_lt(a, b, ...) PLAIN_OP(false, a, <, b, __VA_ARGS__)
#define cr_assert_leq(a, b, ...) PLAIN_OP(true, a, <=, b, __VA_ARGS__)
#define cr_expect_leq(a, b, ...) PLAIN_OP(false, a, <=, b, __VA_ARGS__)
#define cr_assert_gt(a, b, ...) PLAIN_OP(true, a, >, b, __VA_ARGS__)
#define cr_expect_gt(a, b, ...) PLAIN_OP(false, a, >, b, __VA_ARGS__)
#define cr_assert_geq(a, b, ...) PLAIN_OP(true, a, >=, b, __VA_ARGS__)
#define cr_expect_geq(a, b, ...) PLAIN_OP(false, a, >=, b, __VA_ARGS__)
#define cr_assert_str_eq(a, b, ...) \
    plain_check_text(a, b, true, __FILE__, __LINE__, #a " is " #b, " " __VA_ARGS__)
#define cr_expect_str_eq(a, b, ...) \
    plain_check_text(a, b, false, __FILE__, __LINE__, #a " is " #b, " " __VA_ARGS__)
#define cr_assert_arr_eq(a, b, bytes, ...) PLAIN_IS(true, !memcmp(a, b, bytes), __VA_ARGS__)
#define cr_expect_arr_eq(a, b, bytes, ...) PLAIN_IS(false, !memcmp(a, b, bytes), __VA_ARGS__)
#define PLAIN_NEAR(fatal, a, b, most, ...) PLAIN_IS(fatal, (a) - (b) <= (most) && (b) - (a) <= (most), __VA_ARGS__)
#define cr_assert_float_eq(a, b, most, ...) PLAIN_NEAR(true, a, b, most, __VA_ARGS__)
#define cr_expect_float_eq(a, b, most, ...) PLAIN_NEAR(false, a, b, most, __VA_ARGS__)
#define cr_assert_fail(...) PLAIN_CHECK(true, false, "reached", __VA_ARGS__)
#define cr_expect_fail(...) PLAIN_CHECK(false, false, "reached", __VA_ARGS__)
#define cr_skip_test(...) plain_skip(" " __VA_ARGS__)
#define cr_log_info(...) (fprintf(stderr, __VA_ARGS__), fputc('\n', stderr))

#endif
