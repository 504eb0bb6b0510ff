/* regst/plugin.h: kinds of devices that come in shared objects of their own, found when they are needed.
 *
 *     libweir or a program                    libweir-cuda.so
 *     plugin_need(WEIR_CUDA) --dlopen-->      weir_plugin_cuda(host, &kinds)
 *     device_find(WEIR_CUDA)  <-----------    kinds.ops[WEIR_CUDA], kinds.ops[WEIR_PINNED]
 *
 * How it is found, and WEIR_CUDA_PLUGIN, which may say where: graph/base/plugin.h.
 */
#ifndef REGST_PLUGIN_H
#define REGST_PLUGIN_H

#include "regst/device.h"

enum { PLUGIN_VERSION = 5 };

/* The functions that a plugin may call. */
struct plugin_host {
    uint32_t version, table_bytes; /* PLUGIN_VERSION, sizeof(struct device_ops) */
    weir_status (*error_set)(weir_status status, const char *format, ...) __attribute__((format(printf, 2, 3)));
    const char *(*error)(void); /* the calling thread's */
    const struct device_ops *pinned; /* the table of the host's memory beside an accelerator without a driver */
};

/* What it brings. NULL: nothing for that kind. */
struct plugin_kinds {
    const struct device_ops *ops[WEIR_DEVICE_KINDS];
};

/* The plugin's one function. Fails for another version of this header. Once. */
typedef weir_status (*plugin_open_fn)(const struct plugin_host *host, struct plugin_kinds *kinds);

/* Sees to it that the kind is known (device_find), if a plugin brings it: it is loaded by the first who needs it. An
 * error says where it was looked for. Other kinds are left as they are. Any thread. */
weir_status plugin_need(uint32_t kind);

#endif
