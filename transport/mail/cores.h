/* transport/mail/cores.h: the cores that this process may use, and binding threads to them.
 *
 * The mask that counts is the one that the process was started with: what taskset, srun, a container or `weir launch`
 * gave it. A later answer of sched_getaffinity() is not that: with OMP_PROC_BIND, OMP_PLACES or GOMP_CPU_AFFINITY set,
 * libgomp, which a program may bring, binds the first thread to a single core before main() begins, and all threads that it
 * starts inherit that. So the mask is read before the constructors of any library run, and the threads of weir get all of it,
 * whichever thread starts them. A core that a program takes from itself later, by sched_setaffinity(), does not count either:
 * it says how many workers it wants. A quota of time (transport/mail/quota.h) is the process's like its mask, and is read
 * once.
 *
 * Any thread may call these.
 */
#ifndef TRANSPORT_MAIL_CORES_H
#define TRANSPORT_MAIL_CORES_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

/* How many it may keep busy: those of its mask, or as many as its quota is worth, rounded up, if these are fewer; at
 * least 1. */
int cores_count(void);

/* How many there are in the process's mask; at least 1. */
int cores_in_mask(void);

/* How many the quota is worth; INT_MAX: there is none. Ranks in one control group share it. */
int cores_of_quota(void);

/* How many the machine has, whoever may use them. */
int cores_online(void);

/* Gives the calling thread all cores of the mask; or all but `core`, if others are left. Where the system refuses,
 * the thread stays as it is: false. */
bool cores_use(void);
bool cores_use_but(int core);

/* Moves the calling thread off `core`, if it may run on others. It may run on the same cores afterwards as before. */
void cores_leave(int core);

/* The number-th core of the mask, counted round and round; -1: nothing is known. And binds the calling thread to it. */
int cores_at(uint32_t number);
bool cores_pin(uint32_t number);

/* Has threads that are started with these attributes use all cores of the mask. */
bool cores_attr(pthread_attr_t *attr);

#endif
