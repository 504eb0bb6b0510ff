/* transport/mail/cores.c: reading the mask in time.
 *
 * Constructors run in the order of dependence: libgomp's before those of a program that needs it. Only the functions
 * in .preinit_array come earlier, and only a program may have these, not a shared library. So objects made for a
 * shared library (-fPIC without -fPIE) have a constructor instead, which may come too late; and both may be there, as
 * the first that runs decides. Nothing else is known of the time before: neither /proc nor the parent tells a mask of
 * the user's from one of libgomp's, and what libgomp tells are its places, which GOMP_CPU_AFFINITY may have cut down.
 *
 * Before the constructors a sanitizer is not there yet, so the system is asked without its wrapper.
 */
#define _GNU_SOURCE
#include "transport/mail/cores.h"

#include <sched.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "transport/mail/quota.h"

#define SETS 8 /* of CPU_SETSIZE cores: more than Linux can be built for */
#define EARLY __attribute__((no_sanitize("address", "thread", "undefined")))

static cpu_set_t mask[SETS]; /* written once, before there are threads */
static long mask_bytes;      /* 0: it has not been read; < 0: it cannot be */
static int quota;            /* written once */
static pthread_once_t quota_once = PTHREAD_ONCE_INIT;

EARLY static void mask_read(int argc, char **argv, char **environment)
{
    (void)argc, (void)argv, (void)environment;
    if (!mask_bytes)
        mask_bytes = syscall(SYS_sched_getaffinity, 0, sizeof(mask), mask);
}

#if !defined(__PIC__) || defined(__PIE__)
__attribute__((section(".preinit_array"), used)) static void (*const mask_first)(int, char **, char **) = mask_read;
#endif

__attribute__((constructor)) static void mask_last(void)
{
    mask_read(0, NULL, NULL);
}

int cores_online(void)
{
    long online = sysconf(_SC_NPROCESSORS_ONLN);
    return online > 0 ? (int)online : 1;
}

int cores_in_mask(void)
{
    int count = mask_bytes > 0 ? CPU_COUNT_S(sizeof(mask), mask) : cores_online();
    return count > 0 ? count : 1;
}

static void quota_read(void)
{
    quota = quota_cores("");
}

int cores_of_quota(void)
{
    pthread_once(&quota_once, quota_read);
    return quota;
}

int cores_count(void)
{
    int mask_has = cores_in_mask(), worth = cores_of_quota();
    return worth < mask_has ? worth : mask_has;
}

bool cores_use(void)
{
    return mask_bytes > 0 && sched_setaffinity(0, sizeof(mask), mask) == 0;
}

bool cores_use_but(int core)
{
    cpu_set_t rest[SETS];
    memcpy(rest, mask, sizeof(rest));
    if (core >= 0)
        CPU_CLR_S(core, sizeof(rest), rest);
    return mask_bytes > 0 && CPU_COUNT_S(sizeof(rest), rest) > 0 && sched_setaffinity(0, sizeof(rest), rest) == 0;
}

void cores_leave(int core)
{
    cpu_set_t own[SETS], rest[SETS];
    memset(own, 0, sizeof(own));
    if (core < 0 || sched_getaffinity(0, sizeof(own), own))
        return;
    memcpy(rest, own, sizeof(rest));
    CPU_CLR_S(core, sizeof(rest), rest);
    if (CPU_COUNT_S(sizeof(rest), rest) > 0 && !sched_setaffinity(0, sizeof(rest), rest))
        sched_setaffinity(0, sizeof(own), own);
}

int cores_at(uint32_t number)
{
    uint32_t left = number % (uint32_t)cores_in_mask();
    for (int core = 0; mask_bytes > 0 && core < SETS * CPU_SETSIZE; core++)
        if (CPU_ISSET_S(core, sizeof(mask), mask) && !left--)
            return core;
    return -1;
}

bool cores_pin(uint32_t number)
{
    cpu_set_t one[SETS];
    int core = cores_at(number);
    memset(one, 0, sizeof(one));
    if (core >= 0)
        CPU_SET_S(core, sizeof(one), one);
    return core >= 0 && sched_setaffinity(0, sizeof(one), one) == 0;
}

bool cores_attr(pthread_attr_t *attr)
{
    return mask_bytes > 0 && pthread_attr_setaffinity_np(attr, sizeof(mask), mask) == 0;
}
