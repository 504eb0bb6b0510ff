/* regst/device_disk.c: a file as a device. Its memory space is a file without a name (graph/base/filed.h), its queue is
 * the calling thread, and its only kernel is the copy.
 */
#include <string.h>

#include "graph/base/filed.h"
#include "regst/device.h"

static weir_status disk_space_new(const char *path, uint32_t index, uint64_t bytes, void **space)
{
    (void)index;
    return filed_new(path, bytes, space);
}

static void disk_space_free(void *space, uint64_t bytes)
{
    (void)bytes;
    filed_free(space);
}

static weir_status disk_copy(void *to, const void *from, uint64_t bytes)
{
    memcpy(to, from, bytes);
    return WEIR_OK;
}

static weir_status disk_queue_open(uint32_t index)
{
    (void)index;
    return WEIR_OK;
}

const struct device_ops device_disk = {
    .name = "disk",
    .mapped = true,
    .space_new = disk_space_new,
    .space_free = disk_space_free,
    .copy_in = disk_copy,
    .copy_out = disk_copy,
    .queue_open = disk_queue_open,
};
