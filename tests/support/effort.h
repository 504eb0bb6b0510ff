/* tests/support/effort.h: how much of the same a test does.
 *
 * A sanitizer makes a step, or a case of a random test, several times as long, and what it looks for it finds in the
 * first of them: how memory and threads are used differs less from case to case than what is computed. So there is less
 * of what is many of a kind:
 *
 *     enum { MODELS = EFFORT(12, 6, 3) };    12 without a sanitizer, 6 under AddressSanitizer, 3 under ThreadSanitizer
 *     #if EFFORT(1, 1, 0)                    not under ThreadSanitizer: only one thread runs in these
 *
 * Without a sanitizer, `make test` has to be done in minutes, and `make test FULL=1` runs all that there is:
 *
 *     enum { MODELS = EFFORT(FULL(120, 12), 6, 3) };    120 with FULL=1, and 12 without
 *
 * Every kind of thing stays in each of them, and more than two steps are compared without a sanitizer. A suite that
 * starts no thread is not run under ThreadSanitizer at all (tests/run).
 */
#ifndef TESTS_SUPPORT_EFFORT_H
#define TESTS_SUPPORT_EFFORT_H

#if defined(__SANITIZE_THREAD__)
#define EFFORT(plain, address, thread) (thread)
#elif defined(__SANITIZE_ADDRESS__)
#define EFFORT(plain, address, thread) (address)
#else
#define EFFORT(plain, address, thread) (plain)
#endif

#ifdef WEIR_TEST_FULL
#define FULL(all, usual) (all)
#else
#define FULL(all, usual) (usual)
#endif

#endif
