/* actors/session/caller.c: see the header. */
#define _GNU_SOURCE
#include "actors/session/caller.h"

#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "actors/session/session.h"
#include "graph/base/error.h"

static _Thread_local const void *worker_of; /* a crew or a session */

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

#define ENTRIES 64

/* Pieces are never freed: who looks holds no lock. */
struct piece {
    struct caller_entry entry[ENTRIES];
    _Atomic(struct piece *) next; /* owned */
};
static struct piece pieces;
static char closing; /* what an entry has instead of a session that is being closed */

/* The entry that has this. All of this is seq_cst: see enter(). */
static struct caller_entry *find(const void *session)
{
    for (struct piece *p = &pieces; p; p = atomic_load(&p->next))
        for (int i = 0; i < ENTRIES; i++)
            if (atomic_load(&p->entry[i].session) == session)
                return &p->entry[i];
    return NULL;
}

static bool list_grow(void)
{
    struct piece *piece = calloc(1, sizeof(*piece)), *none = NULL;
    _Atomic(struct piece *) *end = &pieces.next;
    if (!piece)
        return false;
    while (!atomic_compare_exchange_strong(end, &none, piece)) {
        end = &none->next;
        none = NULL;
    }
    return true;
}

weir_status caller_opens(struct weir_session *s)
{
    for (;;) {
        struct weir_session *none = NULL;
        s->callers.entry = find(NULL);
        if (s->callers.entry && atomic_compare_exchange_strong(&s->callers.entry->session, &none, s))
            return WEIR_OK;
        if (!s->callers.entry && !list_grow())
            return error_set(WEIR_E_MEMORY, "no memory for a session");
    }
}

static weir_status is_not_open(const char *function)
{
    return error_set(WEIR_E_STATE, "weir_session_%s: this session has been closed, or is being closed", function);
}

weir_status caller_closes(struct weir_session *s)
{
    struct weir_session *open = s;
    return atomic_compare_exchange_strong(&s->callers.entry->session, &open, (struct weir_session *)&closing)
               ? WEIR_OK
               : is_not_open("close");
}

void caller_closed(struct caller_entry *entry)
{
    if (entry)
        atomic_store(&entry->session, NULL);
}

weir_status caller_check_open(const struct weir_session *s, const char *function)
{
    if (UNLIKELY(!s))
        return error_set(WEIR_E_ARGUMENT, "weir_session_%s: there is no session", function);
    return LIKELY(find(s) != NULL) ? WEIR_OK : is_not_open(function);
}

/* ---- who calls ---- */

bool caller_is_here(const struct weir_session *s)
{
    return s && find(s) && home_is_here(&s->callers.home);
}

void caller_is_worker(const void *crew_or_session)
{
    worker_of = crew_or_session;
}

weir_status caller_check_report(const char *function)
{
    return LIKELY(!report_is_running())
               ? WEIR_OK
               : error_set(WEIR_E_STATE, "weir_session_%s: called by a function that gets a report", function);
}

/* Whether the session is open. */
static weir_status check_process(const struct weir_session *s, const char *function)
{
    if (LIKELY(home_is_here(&s->callers.home)))
        return caller_check_report(function);
    return error_set(WEIR_E_STATE,
                     "weir_session_%s: the session is process %d's; this is a child of it, and has none of its "
                     "threads: open another one here", function, (int)s->callers.home.pid);
}

static weir_status check_outside(const struct weir_session *s, const char *function)
{
    weir_status status = check_process(s, function);
    if (!status && worker_of && (worker_of == s || worker_of == s->workers.crew))
        return error_set(WEIR_E_STATE,
                         "weir_session_%s: called by a source, a sink or a call of this session, or by an op of one that "
                         "it shares workers with: a worker would wait for itself", function);
    return status;
}

weir_status caller_check(const struct weir_session *s, const char *function)
{
    weir_status status = caller_check_open(s, function);
    return UNLIKELY(status) ? status : check_process(s, function);
}

weir_status caller_check_outside(const struct weir_session *s, const char *function)
{
    weir_status status = caller_check_open(s, function);
    return UNLIKELY(status) ? status : check_outside(s, function);
}

/* ---- who comes in ---- */

/* Either a thread that closes sees this thread inside, or this thread sees that it closes: each writes first, then looks. */
static weir_status enter(struct weir_session *s, const char *function, bool outside)
{
    struct caller_entry *entry = s ? find(s) : NULL;
    weir_status status;
    if (UNLIKELY(!entry))
        return caller_check_open(s, function);
    atomic_fetch_add(&entry->inside, 1);
    if (UNLIKELY(atomic_load(&entry->session) != s))
        status = is_not_open(function);
    else
        status = outside ? check_outside(s, function) : check_process(s, function);
    if (UNLIKELY(status))
        atomic_fetch_sub(&entry->inside, 1);
    return status;
}

weir_status session_enter(struct weir_session *s, const char *function)
{
    return enter(s, function, false);
}

weir_status session_enter_outside(struct weir_session *s, const char *function)
{
    return enter(s, function, true);
}

void session_exit(struct weir_session *s)
{
    atomic_fetch_sub(&s->callers.entry->inside, 1); /* after which the session may be gone */
}
