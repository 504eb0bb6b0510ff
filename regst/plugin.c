/* regst/plugin.c: see the header. One lock is held while a plugin is loaded: who needs it too waits for that. What failed
 * is tried again by the next, who may have set another path meanwhile. */
#define _GNU_SOURCE
#include "regst/plugin.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "graph/base/error.h"

#define PLUGIN "libweir-cuda.so"
#define OPEN "weir_plugin_cuda"

enum { PATH_BYTES = 4096 };

static pthread_mutex_t loading = PTHREAD_MUTEX_INITIALIZER;

static const struct plugin_host host_functions = {
    .version = PLUGIN_VERSION,
    .table_bytes = sizeof(struct device_ops),
    .error_set = (error_set),
    .error = weir_error,
    .pinned = &device_pinned,
};

/* The folder of the object that this function is a part of, with what follows; false: not known. */
static bool beside(const char *what, char path[PATH_BYTES])
{
    Dl_info info;
    if (!dladdr((const void *)&host_functions, &info) || !info.dli_fname)
        return false;
    const char *slash = strrchr(info.dli_fname, '/');
    int folder = slash ? (int)(slash - info.dli_fname) : 1;
    int length = snprintf(path, PATH_BYTES, "%.*s/%s", folder, slash ? info.dli_fname : ".", what);
    return length > 0 && length < PATH_BYTES;
}

static void *open_at(const char *path, char why[512])
{
    void *object = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    const char *said = object ? NULL : dlerror();
    if (said)
        snprintf(why, 512, "%s", said);
    return object;
}

/* The first that can be opened. When none can, the newest reason that is not "there is no such file" counts. */
static void *open_plugin(void)
{
    static const char *const places[] = {PLUGIN, "../lib/" PLUGIN};
    const char *told = getenv("WEIR_CUDA_PLUGIN");
    char path[PATH_BYTES], why[512] = "", kept[512] = "", folder[PATH_BYTES] = "the program";
    if (told && *told) {
        void *object = open_at(told, why);
        if (!object)
            error_set(WEIR_E_UNSUPPORTED, "there is no plugin for CUDA devices where WEIR_CUDA_PLUGIN says: %s", why);
        return object;
    }
    for (size_t i = 0; i <= sizeof places / sizeof *places; i++) {
        bool last = i == sizeof places / sizeof *places;
        if (!last && !beside(places[i], path))
            continue;
        void *object = open_at(last ? PLUGIN : path, why);
        if (object)
            return object;
        if (!strstr(why, "No such file"))
            memcpy(kept, why, sizeof kept);
    }
    if (beside("", folder))
        folder[strlen(folder) - 1] = 0;
    if (*kept)
        error_set(WEIR_E_UNSUPPORTED, "the plugin for CUDA devices cannot be loaded: %s", kept);
    else
        error_set(WEIR_E_UNSUPPORTED,
                  "there is no plugin for CUDA devices: %s is not in %s, in its ../lib, or where libraries are looked for; "
                  "WEIR_CUDA_PLUGIN may say where it is",
                  PLUGIN, folder);
    return NULL;
}

static weir_status load(void)
{
    void *object = open_plugin();
    if (!object)
        return WEIR_E_UNSUPPORTED;
    plugin_open_fn open = NULL;
    *(void **)&open = dlsym(object, OPEN);
    struct plugin_kinds kinds = {{0}};
    weir_status status = open ? open(&host_functions, &kinds)
                              : error_set(WEIR_E_UNSUPPORTED, "the plugin for CUDA devices has no function " OPEN "()");
    for (uint32_t k = 0; !status && k < WEIR_DEVICE_KINDS; k++)
        if (kinds.ops[k])
            device_register(k, kinds.ops[k]);
    if (status)
        dlclose(object);
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
