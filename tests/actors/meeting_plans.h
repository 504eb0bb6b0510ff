/* tests/actors/meeting_plans.h: plans whose actors meet, for the suites of meetings. */
#ifndef TESTS_ACTORS_MEETING_PLANS_H
#define TESTS_ACTORS_MEETING_PLANS_H

#include "graph/base/error.h"
#include "tests/support/effort.h"
#include "tests/support/fake.h"
#include "tests/support/json.h"
#include "tests/support/meetings.h"
#include "tests/support/ops.h"
#include "tests/support/ranks.h"

#include <criterion/criterion.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include <weir/session.h>

enum { STEPS = EFFORT(30, 12, 6), SEEDS = EFFORT(12, 4, 2), REPORTED = 32768 };

static inline void sleep_us(int64_t us)
{
    nanosleep(&(struct timespec){.tv_sec = us / 1000000, .tv_nsec = us % 1000000 * 1000}, NULL);
}

static inline weir_session *opened(const weir_plan *plan, int workers)
{
    weir_session *s = weir_session_open(plan, .workers = workers, .stall_s = -1);
    cr_assert_not_null(s, "%s", weir_error());
    return s;
}

static inline void tell(void *ctx, const char *text)
{
    char *told = ctx;
    snprintf(told + strlen(told), REPORTED - strlen(told), "%s\n", text);
}

static inline weir_plan *pair_plan(meetings *m)
{
    static meetings_lane lane;
    lane = meetings_of(PLAN_ALL_GATHER, 2);
    *m = (meetings){.lane = &lane, .lane_count = 1, .micro = 1};
    return meetings_plan(m, NULL, 0);
}

#endif
