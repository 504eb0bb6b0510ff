/* regst/device_mapped.c: files as a device, which only keeps. Nothing is allocated: where a tensor lies is looked up in the table
 * of places (regst/arena.h) that a session fills when it has mapped the files.
 */
#include <string.h>

#include "graph/base/error.h"
#include "regst/device.h"

static const char nowhere[64]; /* where a space without a place for anything begins */

static weir_status mapped_space_new(const char *path, uint32_t index, uint64_t bytes, void **space)
{
    (void)path;
    (void)index;
    (void)bytes;
    *space = (void *)nowhere;
    return WEIR_OK;
}

static void mapped_space_free(void *space, uint64_t bytes)
{
    (void)space;
    (void)bytes;
}

static weir_status mapped_copy_in(void *to, const void *from, uint64_t bytes)
{
    (void)to;
    (void)from;
    (void)bytes;
    return error_set(WEIR_E_ARGUMENT, "mapped: a file that is mapped can only be read");
}

static weir_status mapped_copy_out(void *to, const void *from, uint64_t bytes)
{
    memcpy(to, from, bytes);
    return WEIR_OK;
}

static weir_status mapped_queue_open(uint32_t index)
{
    (void)index;
    return WEIR_OK;
}

const struct device_ops device_mapped = {
    .name = "mapped",
    .mapped = true,
    .space_new = mapped_space_new,
    .space_free = mapped_space_free,
    .copy_in = mapped_copy_in,
    .copy_out = mapped_copy_out,
    .queue_open = mapped_queue_open,
};
