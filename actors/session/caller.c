/* actors/session/caller.c: see the header. */
#define _GNU_SOURCE
#include "actors/session/caller.h"

#include <stdlib.h>
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

/* ---- which sessions are open ---- */

#define PLACES 64

/* Pieces are never freed: who looks holds no lock. */
struct piece {
    _Atomic(struct weir_session *) place[PLACES];
    _Atomic(struct piece *) next; /* owned */
};
static struct piece pieces;

/* The place that has this in it, NULL for a free one; puts `to` there if it does. */
static bool replace_in_list(struct weir_session *from, struct weir_session *to)
{
    /* acq_rel: who finds a session sees it whole */
    for (struct piece *p = &pieces; p; p = atomic_load_explicit(&p->next, memory_order_acquire))
        for (int i = 0; i < PLACES; i++) {
            struct weir_session *there = from;
            if (atomic_load_explicit(&p->place[i], memory_order_relaxed) == from &&
                atomic_compare_exchange_strong_explicit(&p->place[i], &there, to, memory_order_acq_rel,
                                                        memory_order_relaxed))
                return true;
        }
    return false;
}

static bool list_grow(struct weir_session *first)
{
    struct piece *piece = calloc(1, sizeof(*piece));
    if (!piece)
        return false;
    atomic_init(&piece->place[0], first);
    _Atomic(struct piece *) *end = &pieces.next;
    struct piece *none = NULL;
    while (!atomic_compare_exchange_strong_explicit(end, &none, piece, memory_order_acq_rel, memory_order_acquire)) {
        end = &none->next;
        none = NULL;
    }
    return true;
}

weir_status caller_opens(struct weir_session *s)
{
    bool listed = replace_in_list(NULL, s) || list_grow(s);
    return listed ? WEIR_OK : error_set(WEIR_E_MEMORY, "no memory for a session");
}

static weir_status is_not_open(const char *function)
{
    return error_set(WEIR_E_STATE, "weir_session_%s: this session has been closed, or is being closed", function);
}

weir_status caller_closes(struct weir_session *s)
{
    return replace_in_list(s, NULL) ? WEIR_OK : is_not_open("close");
}

static bool is_open(const struct weir_session *s)
{
    for (const struct piece *p = &pieces; p; p = atomic_load_explicit(&p->next, memory_order_acquire))
        for (int i = 0; i < PLACES; i++)
            if (atomic_load_explicit(&p->place[i], memory_order_acquire) == s)
                return true;
    return false;
}

weir_status caller_check_open(const struct weir_session *s, const char *function)
{
    if (UNLIKELY(!s))
        return error_set(WEIR_E_ARGUMENT, "weir_session_%s: there is no session", function);
    return LIKELY(is_open(s)) ? WEIR_OK : is_not_open(function);
}

/* ---- who calls ---- */

bool caller_is_here(const struct weir_session *s)
{
    return s && is_open(s) && home_is_here(&s->home);
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
    weir_status status = caller_check_open(s, function);
    if (UNLIKELY(status))
        return status;
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
