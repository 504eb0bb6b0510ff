/* actors/session/caller.c: see the header. */
#define _GNU_SOURCE
#include "actors/session/caller.h"

#include <sys/mman.h>
#include <unistd.h>

#include "actors/session/session.h"
#include "graph/base/error.h"

static _Thread_local const struct weir_session *worker_of;

weir_status home_open(struct home *home)
{
    size_t bytes = (size_t)sysconf(_SC_PAGESIZE);
    char *page = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    home->pid = getpid();
    if (page == MAP_FAILED)
        return error_set(WEIR_E_MEMORY, "no memory for a session");
    page[0] = 1;
    home->page = page;
    if (madvise(page, bytes, MADV_WIPEONFORK))
        home_close(home);
    return WEIR_OK;
}

void home_close(struct home *home)
{
    if (home->page)
        munmap((void *)home->page, (size_t)sysconf(_SC_PAGESIZE));
    home->page = NULL;
}

static bool home_is_here(const struct home *home)
{
    return home->page ? *home->page : home->pid == getpid();
}

bool caller_is_here(const struct weir_session *s)
{
    return home_is_here(&s->home);
}

void caller_is_worker(const struct weir_session *s)
{
    worker_of = s;
}

weir_status caller_check_report(const char *function)
{
    return LIKELY(!report_is_running())
               ? WEIR_OK
               : error_set(WEIR_E_STATE, "weir_session_%s: called by a function that gets a report", function);
}

weir_status caller_check(const struct weir_session *s, const char *function)
{
    if (UNLIKELY(!s))
        return error_set(WEIR_E_ARGUMENT, "weir_session_%s: there is no session", function);
    if (UNLIKELY(!home_is_here(&s->home)))
        return error_set(WEIR_E_STATE,
                         "weir_session_%s: the session is process %d's; this is a child of it, and has none of its "
                         "threads: open another one here", function, (int)s->home.pid);
    return caller_check_report(function);
}

weir_status caller_check_outside(const struct weir_session *s, const char *function)
{
    weir_status status = caller_check(s, function);
    if (!status && worker_of == s)
        return error_set(WEIR_E_STATE,
                         "weir_session_%s: called by a source, a sink or a call of this session, whose worker would "
                         "wait for itself", function);
    return status;
}
