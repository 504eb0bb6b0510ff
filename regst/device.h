/* regst/device.h: what the runtime needs from a kind of device, as one table of functions per kind.
 *
 *     memory space   an arena of planned bytes; the host reaches it only through copies
 *     queue          executes kernels in order; opened by the thread that will call them
 *     fence          the kernels called so far have finished
 *
 * Nothing above this header asks which kind it is. Adding a kind is one file with its table and one line in
 * device_find().
 *
 * A kernel function (weir_op.kernel[kind]) is called on the thread that opened the queue. On a device whose kernels are
 * done when they return, `fence` is NULL and costs nothing.
 */
#ifndef REGST_DEVICE_H
#define REGST_DEVICE_H

#include <weir/op.h>

struct device_ops {
    const char *name;

    /* Zeroed memory of `bytes` > 0 on device `index`, aligned to 64 bytes or more and backed by real pages, or a real
     * file; E_MEMORY or E_IO when there is none. `path`: the directory of a disk; of no meaning elsewhere. */
    weir_status (*space_new)(const char *path, uint32_t index, uint64_t bytes, void **space);
    void (*space_free)(void *space, uint64_t bytes);

    /* Between the host and a space; return when it is done. */
    void (*copy_in)(void *to, const void *host, uint64_t bytes);
    void (*copy_out)(void *host, const void *from, uint64_t bytes);

    /* Prepares the calling thread for the kernels of a queue on device `index`. */
    weir_status (*queue_open)(uint32_t index);

    /* Returns when everything called on this thread's queues has finished. NULL: it has when the kernel returns. */
    weir_status (*fence)(uint32_t index);
};

/* The table of a kind; NULL when this build has none. */
const struct device_ops *device_find(uint32_t kind);

extern const struct device_ops device_cpu, device_disk;

#endif
