/* apps/weir/launch/ending.c: how a rank ended, and what follows from it. */
#include "apps/weir/launch/ending.h"
#include "apps/common/options.h"

#include <signal.h>
#include <stddef.h>
#include <sys/wait.h>

launch_ending launch_ending_of(int status)
{
    bool by_signal = WIFSIGNALED(status);
    return (launch_ending){.known = true, .by_signal = by_signal,
                           .number = by_signal ? WTERMSIG(status) : WEXITSTATUS(status)};
}

launch_ending launch_ending_of_shell(int status)
{
    bool by_signal = status > 128 && status < 128 + SIGRTMIN;
    return (launch_ending){.known = true, .by_signal = by_signal, .number = by_signal ? status - 128 : status};
}

int launch_ending_status(const launch_ending *e)
{
    return e->by_signal ? 128 + e->number : e->number;
}

static bool is_among(int value, const int *list, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (list[i] == value)
            return true;
    return false;
}

#define IS_AMONG(value, list) is_among(value, list, sizeof(list) / sizeof *(list))

/* A shell on another host says 143 of both: what SIGTERM ended, and what was asked by SIGTERM and ended by itself. */
bool launch_ending_is_stop(const launch_ending *e)
{
    static const int statuses[] = {128 + SIGINT, 128 + SIGTERM};
    static const int signals[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGPIPE};
    return e->known && (e->by_signal ? IS_AMONG(e->number, signals) : IS_AMONG(e->number, statuses));
}

bool launch_ending_is_loss(const launch_ending *e)
{
    static const int hopeless[] = {0, OPTIONS_WRONG, 126, 127};
    return e->known && !launch_ending_is_stop(e) && (e->by_signal || !IS_AMONG(e->number, hopeless));
}
