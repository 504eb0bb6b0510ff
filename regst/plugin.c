/* regst/plugin.c: see the header. One lock is held while a plugin is loaded: who needs it too waits for that. The next thread
 * tries again what failed; it may have set another path meanwhile. */
#include "regst/plugin.h"

#include <pthread.h>

#include "graph/base/error.h"
#include "graph/base/plugin.h"

static pthread_mutex_t loading = PTHREAD_MUTEX_INITIALIZER;

static const struct plugin_host host_functions = {
    .version = PLUGIN_VERSION,
    .table_bytes = sizeof(struct device_ops),
    .error_set = (error_set),
    .error = weir_error,
    .pinned = &device_pinned,
};

static weir_status load(void)
{
    static const struct plugin cuda = {"libweir-cuda.so", "WEIR_CUDA_PLUGIN", "CUDA devices", "weir_plugin_cuda", "nvcc"};
    void *object;
    plugin_open_fn open = (plugin_open_fn)plugin_load(&cuda, &object);
    if (!open)
        return WEIR_E_UNSUPPORTED;
    struct plugin_kinds kinds = {{0}};
    weir_status status = open(&host_functions, &kinds);
    for (uint32_t k = 0; !status && k < WEIR_DEVICE_KINDS; k++)
        if (kinds.ops[k])
            device_register(k, kinds.ops[k]);
    if (status)
        plugin_unload(object);
    return status;
}

weir_status plugin_need(uint32_t kind)
{
    if (kind != WEIR_CUDA || device_find(kind))
        return WEIR_OK;
    pthread_mutex_lock(&loading);
    weir_status status = device_find(kind) ? WEIR_OK : load();
    pthread_mutex_unlock(&loading);
    return status;
}
