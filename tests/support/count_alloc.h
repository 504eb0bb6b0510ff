/* tests/support/count_alloc.h: malloc and its kin, counted: for a suite that must not call them. It defines them, so only
 * one file of a program may have it. Where a sanitizer owns them COUNTS_ALLOCATIONS is not defined.
 */
#ifndef TESTS_SUPPORT_COUNT_ALLOC_H
#define TESTS_SUPPORT_COUNT_ALLOC_H

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__) && defined(__GLIBC__)
#define COUNTS_ALLOCATIONS 1

#include <errno.h>
#include <stdatomic.h>
#include <stddef.h>

extern void *__libc_malloc(size_t bytes);
extern void *__libc_calloc(size_t count, size_t bytes);
extern void *__libc_realloc(void *old, size_t bytes);
extern void *__libc_memalign(size_t align, size_t bytes);

static atomic_long allocations;

int posix_memalign(void **result, size_t align, size_t bytes)
{
    atomic_fetch_add(&allocations, 1);
    *result = __libc_memalign(align, bytes);
    return *result ? 0 : ENOMEM;
}

void *malloc(size_t bytes)
{
    atomic_fetch_add(&allocations, 1);
    return __libc_malloc(bytes);
}

void *calloc(size_t count, size_t bytes)
{
    atomic_fetch_add(&allocations, 1);
    return __libc_calloc(count, bytes);
}

void *realloc(void *old, size_t bytes)
{
    atomic_fetch_add(&allocations, 1);
    return __libc_realloc(old, bytes);
}

void *aligned_alloc(size_t align, size_t bytes)
{
    atomic_fetch_add(&allocations, 1);
    return __libc_memalign(align, bytes);
}

#endif
#endif
