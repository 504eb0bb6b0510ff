/* tests/support/effort.h: how much of the same a test does where a sanitizer makes it slow.
 *
 * A step, or a case of a random test, takes several times as long under AddressSanitizer, and longer under
 * ThreadSanitizer, and what these look for they find in the first of them: how memory and threads are used differs less
 * from case to case than what is computed. So what is many of a kind is fewer there:
 *
 *     enum { MODELS = EFFORT(12, 6, 3) };    12 without a sanitizer, 6 under AddressSanitizer, 3 under ThreadSanitizer
 *     #if EFFORT(1, 1, 0)                    not under ThreadSanitizer: only one thread runs in these
 *
 * Every kind of thing stays. A suite that starts no thread is not run under ThreadSanitizer at all (tests/run).
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

#endif
