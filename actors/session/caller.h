/* actors/session/caller.h: who calls a function of a session, and whether it may.
 *
 * Three callers would crash, wait for ever or destroy what is not theirs, and get E_STATE instead:
 *
 *     one that comes late    has a session that was closed, or is being closed by another thread. The process has a list
 *                            of entries for those that are open, which is looked at without a lock: a few loads. (A
 *                            pointer that malloc() has given to a later session is that session). A thread that may wait
 *                            counts itself in the entry first (session_enter()), and close waits for those; so of several
 *                            threads that close at the same time one does, and the others are told
 *     a child of fork()      has a copy of the session's memory, but none of its threads. Each session has a page that
 *                            the kernel gives to a child as zeros (MADV_WIPEONFORK), so asking costs one load
 *     a worker, from inside  would wait for itself, or for what its thread is to do. Threads that compute know their crew,
 *     a callback             others their session; those of another one are callers like any other
 *
 * A function that gets reports may not call at all (<weir/cluster.h>).
 */
#ifndef ACTORS_SESSION_CALLER_H
#define ACTORS_SESSION_CALLER_H

#include <stdatomic.h>
#include <stdbool.h>
#include <sys/types.h>
#include <weir/base.h>

struct weir_session;

/* Where an open session is listed; entries are never freed. */
struct caller_entry {
    _Atomic(struct weir_session *) session; /* NULL: free */
    _Atomic uint32_t inside; /* threads in push, pull, wait, ... (a futex word) */
};

/* In which process a session was opened. */
struct home {
    const char *page; /* owned; its first byte is 0 in a child; NULL: the kernel cannot do that */
    pid_t pid;
};

enum session_closing { CLOSING_NOT, CLOSING_WAKES, CLOSING_ALONE }; /* who waits inside is to go; nobody does */

struct session_callers {
    struct home home;
    struct caller_entry *entry;      /* in the list of those that are open; NULL: it is not, yet */
    _Atomic uint32_t closing; /* enum session_closing */
};

weir_status home_open(struct home *home);
void home_close(struct home *home);

/* The session is in the list from now on, and gets its entry. */
weir_status caller_opens(struct weir_session *session);

/* Nobody comes in any more; by a thread that is inside. E_STATE: another was first. And the entry is free. */
weir_status caller_closes(struct weir_session *session);
void caller_closed(struct caller_entry *entry); /* NULL: it never opened */

/* A thread that may call (caller_check(), caller_check_outside()) comes into what may wait, or what ends the session, and
 * goes. After an error it has not come. */
weir_status session_enter(struct weir_session *session, const char *function);
weir_status session_enter_outside(struct weir_session *session, const char *function);
void session_exit(struct weir_session *session);

/* E_ARGUMENT or E_STATE, in words that begin with "weir_session_" and `function`, when there is no such session. All that
 * follow look for that, too. */
weir_status caller_check_open(const struct weir_session *session, const char *function);

/* Whether there is such a session, and the caller is in its process. Also in a signal handler. */
bool caller_is_here(const struct weir_session *session);

/* The calling thread is one of this crew's that compute, or runs an io worker of this session, from now on. */
void caller_is_worker(const void *crew_or_session);

/* E_STATE, in words that begin with "weir_session_" and `function`, when the caller is in a report. */
weir_status caller_check_report(const char *function);

/* The same, and when it is in a child. */
weir_status caller_check(const struct weir_session *session, const char *function);

/* The same, and when it is a worker of the session. */
weir_status caller_check_outside(const struct weir_session *session, const char *function);

#endif
