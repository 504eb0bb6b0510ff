/* actors/keep/format/checksum.h: XXH3, 64 bits, of the bytes of a shard (Collet, https://xxhash.com): it finds what disks and
 * copies do to a file; it is no proof against somebody who changes one on purpose.
 *
 *     struct keep_sum sum;
 *     keep_sum_begin(&sum), keep_sum_add(&sum, bytes, count), ..., keep_sum_end(&sum)
 */
#ifndef ACTORS_KEEP_FORMAT_CHECKSUM_H
#define ACTORS_KEEP_FORMAT_CHECKSUM_H

#include <stddef.h>
#include <stdint.h>

struct keep_sum {
    _Alignas(64) unsigned char state[640];
};

void keep_sum_begin(struct keep_sum *sum);
void keep_sum_add(struct keep_sum *sum, const void *bytes, size_t count);
uint64_t keep_sum_end(const struct keep_sum *sum);

uint64_t keep_sum_of(const void *bytes, size_t count);

#endif
