/* tests/support/proven.h: a suite whose plans may all be proven, which `make prove` does.
 *
 * Under WEIR_VERIFY=1 weir_compile() proves that each plan computes its graph. That takes a thousand times as long as a step of it, so
 * the tests of a suite that includes this have PROVEN_SLOWER times as long. Sanitizers' variants prove nothing.
 */
#ifndef TESTS_SUPPORT_PROVEN_H
#define TESTS_SUPPORT_PROVEN_H

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/effort.h"

#if EFFORT(1, 0, 0)
#include <criterion/hooks.h>

enum { PROVEN_SLOWER = 40 };

ReportHook(PRE_ALL)(struct criterion_test_set *all)
{
    const char *wanted = getenv("WEIR_VERIFY");
    if (!wanted || strcmp(wanted, "1"))
        return;
    FOREACH_SET(struct criterion_suite_set *suite, all->suites) {
        if (suite->suite.data)
            suite->suite.data->timeout *= PROVEN_SLOWER;
        FOREACH_SET(struct criterion_test *test, suite->tests)
            test->data->timeout *= PROVEN_SLOWER;
    }
}
#endif

/* The plans of this test are not proven, because they are too large. */
static inline void unproven(void)
{
    unsetenv("WEIR_VERIFY");
}

#endif
