/* regst/plugin.c: see the header. One lock is held while a plugin is loaded: who needs it too waits for that. What failed
 * is tried again by the next, who may have set another path meanwhile. */
#define _GNU_SOURCE
#include "regst/plugin.h"

#include <dlfcn.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "graph/base/error.h"
#include "graph/base/library.h"

#define PLUGIN "libweir-cuda.so"
#define OPEN "weir_plugin_cuda"

/* Debian's folder for the libraries of one kind of processor. */
#if defined(__x86_64__)
#define MULTIARCH "x86_64-linux-gnu"
#elif defined(__aarch64__)
#define MULTIARCH "aarch64-linux-gnu"
#else
#define MULTIARCH ""
#endif

enum { PATH_BYTES = 4096, WHY_BYTES = 512 };

static pthread_mutex_t loading = PTHREAD_MUTEX_INITIALIZER;

static const struct plugin_host host_functions = {
    .version = PLUGIN_VERSION,
    .table_bytes = sizeof(struct device_ops),
    .error_set = (error_set),
    .error = weir_error,
    .pinned = &device_pinned,
};

/* ---- where it is looked for ---- */

/* The file that this library is a part of, the program or libweir.so, by the name that the kernel has for it: what the
 * loader remembers is argv[0] of a program, which was found through PATH, and may be relative of a library. */
static bool own_file(char path[PATH_BYTES])
{
    const uintptr_t own = (uintptr_t)&host_functions;
    FILE *maps = fopen("/proc/self/maps", "re");
    char *line = NULL;
    size_t room = 0;
    bool found = false;
    while (maps && !found && getline(&line, &room, maps) > 0) {
        uintptr_t begin = 0, end = 0;
        int at = 0;
        if (sscanf(line, "%" SCNxPTR "-%" SCNxPTR " %*s %*s %*s %*s %n", &begin, &end, &at) < 2 || own < begin || own >= end)
            continue;
        line[strcspn(line, "\n")] = '\0';
        found = line[at] == '/' && strlen(line + at) < PATH_BYTES;
        if (found)
            strcpy(path, line + at);
    }
    free(line);
    if (maps)
        fclose(maps);
    return found;
}

/* Its folder, without the slash. */
static bool own_folder(char path[PATH_BYTES])
{
    if (!own_file(path))
        return false;
    *strrchr(path, '/') = '\0';
    return true;
}

/* Whether there is one in `folder`, below `below`. */
static bool is_there(const char *folder, const char *below, char path[PATH_BYTES])
{
    int length = snprintf(path, PATH_BYTES, "%s%s/%s", folder, below, PLUGIN);
    return length > 0 && length < PATH_BYTES && !access(path, F_OK);
}

static void *open_told(const char *path)
{
    char why[WHY_BYTES];
    if (*path != '/') {
        error_set(WEIR_E_UNSUPPORTED, "WEIR_CUDA_PLUGIN is '%.256s', which is no absolute path: weir loads no plugin from "
                  "the current directory", path);
        return NULL;
    }
    void *object = library_open(path, why, sizeof why);
    if (!object)
        error_set(WEIR_E_UNSUPPORTED, "there is no plugin for CUDA devices where WEIR_CUDA_PLUGIN says: %s", why);
    return object;
}

/* The first that is there counts, even if it cannot be loaded: another would be one of another build. */
static void *open_found(void)
{
    static const char *const places[] = {"", "/../lib", "/../lib/" MULTIARCH};
    char folder[PATH_BYTES], path[PATH_BYTES], why[WHY_BYTES];
    bool known = own_folder(folder), there = false;
    for (size_t i = 0; known && !there && i < sizeof places / sizeof *places; i++)
        there = is_there(folder, places[i], path);
    void *object = library_open(there ? path : PLUGIN, why, sizeof why);
    if (object)
        return object;
    if (there || strncmp(why, PLUGIN ":", sizeof PLUGIN) != 0)
        error_set(WEIR_E_UNSUPPORTED, "the plugin for CUDA devices cannot be loaded: %s", why);
    else
        error_set(WEIR_E_UNSUPPORTED,
                  "there is no plugin for CUDA devices: " PLUGIN " is not in %s, its ../lib or ../lib/" MULTIARCH
                  ", or where the system looks for libraries (%s); WEIR_CUDA_PLUGIN may give its absolute path",
                  known ? folder : "the program's folder", why);
    return NULL;
}

/* ---- the call ---- */

static weir_status load(void)
{
    const char *told = getenv("WEIR_CUDA_PLUGIN");
    void *object = told && *told ? open_told(told) : open_found();
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
