/* transport/mail/park.h: how a thread waits: it spins for a while, then sleeps on a futex. Also the clock that all is
 * measured with.
 *
 * A thread that spins takes a hand-off in a fraction of a microsecond; waking one that sleeps can cost tens, and on a
 * virtual machine more. transport/mail/spin.h says how long a waiter spins.
 */
#ifndef TRANSPORT_MAIL_PARK_H
#define TRANSPORT_MAIL_PARK_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#define PARK_FOREVER INT64_MAX

/* CLOCK_MONOTONIC. */
int64_t park_now_ns(void);

/* The moment `timeout_ms` from now; PARK_FOREVER when it is negative. */
int64_t park_deadline(int timeout_ms);

/* Sleeps while *word == value, at most until `deadline`. May return early. False: the deadline is over. */
bool park_wait(_Atomic uint32_t *word, uint32_t value, int64_t deadline);

/* Wakes all that sleep on `word`. */
void park_wake(_Atomic uint32_t *word);

/* The same two for a word in memory that other processes see. */
bool park_wait_shared(_Atomic uint32_t *word, uint32_t value, int64_t deadline);
void park_wake_shared(_Atomic uint32_t *word);

/* The cost of waking a thread that sleeps on another core of this machine, from the call to the thread running, at this
 * moment. Takes about two milliseconds. */
int64_t park_wake_cost_ns(void);

/* Starts a thread in which signals to the program are blocked: they belong to the program's threads. Signals that a thread
 * brings about itself (SIGSEGV, SIGABRT, ...) and SIGPROF are as in the calling thread, so a crash handler and a profiler of
 * the program's see weir's threads too; system calls in them may end with EINTR. It may use all cores that the process may
 * (transport/mail/cores.h). At most 15 letters of `name` are seen. False: there is none to be had. */
bool park_thread(pthread_t *thread, const char *name, void *(*run)(void *), void *argument);

/* Tells the core that this is a spin loop. */
static inline void park_pause(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("isb" ::: "memory");
#endif
}

#endif
