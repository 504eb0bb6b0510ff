/* regst/segment.h: memory that several processes of a host see: made by one, mapped by others.
 *
 * A segment is a memfd: it has no name, neither in /dev/shm nor anywhere, and is gone with the last process that has it
 * mapped, however that one ends. A peer opens it through /proc/PID/fd/FD, which the kernel allows to processes of the
 * same user that see each other. Its size is sealed, so that nobody can pull it from under those who read it. The first
 * bytes hold a random cookie; whoever maps it holds the number that it was told against it, so a wrong process or
 * descriptor is noticed.
 *
 * Owner: who created or mapped it; the bytes in it belong to whom the segment's user says. No call waits.
 */
#ifndef REGST_SEGMENT_H
#define REGST_SEGMENT_H

#include <stdint.h>
#include <weir/base.h>

#define SEGMENT_HEAD_BYTES 64 /* of the segment's own, at its start */

struct segment {
    char *base;
    uint64_t bytes;
    uint64_t cookie; /* never 0 */
    int fd;          /* of one that was created; -1 */
};

/* Zeroed pages, all of them real. E_MEMORY; E_UNSUPPORTED where the system has or allows no memfd. */
weir_status segment_create(struct segment *segment, uint64_t bytes);

/* Maps what process `pid` created. E_UNSUPPORTED when it cannot be reached or is not what was said. */
weir_status segment_map(struct segment *segment, uint32_t pid, int fd, uint64_t bytes, uint64_t cookie);

void segment_close(struct segment *segment); /* also a zeroed one */

#endif
