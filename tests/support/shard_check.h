/* tests/support/shard_check.h: an op's signatures are promises; this holds the op to them.
 *
 * After kernel_check_run(&c), shard_check(&c, 3, 1e-5) takes every signature that the op lists for these shapes and
 * plays 3 devices: inputs are cut (S), given whole (B) or split into random terms (P), the kernel runs on each device's
 * shards, and what comes out, put together as the signature says, must be the output of the whole run. Dimensions that
 * do not divide give uneven shards, and those smaller than the number of devices give empty ones.
 */
#ifndef TESTS_SUPPORT_SHARD_CHECK_H
#define TESTS_SUPPORT_SHARD_CHECK_H

#include "tests/support/kernel_check.h"

/* Returns how many signatures were played (not counting the one that is all B). */
int shard_check(const kernel_check *c, int devices, double tolerance);

#endif
