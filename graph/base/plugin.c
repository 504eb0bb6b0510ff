/* graph/base/plugin.c: see the header. */
#define _GNU_SOURCE
#include "graph/base/plugin.h"

#include <dlfcn.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "graph/base/error.h"
#include "graph/base/library.h"

/* Debian's folder for the libraries of one kind of processor. */
#if defined(__x86_64__)
#define MULTIARCH "x86_64-linux-gnu"
#elif defined(__aarch64__)
#define MULTIARCH "aarch64-linux-gnu"
#else
#define MULTIARCH ""
#endif

enum { PATH_BYTES = 4096, WHY_BYTES = 512 };

/* ---- where it is looked for ---- */

/* The file that this library is a part of, the program or libweir.so, by the name that the kernel has for it: what the
 * loader remembers is argv[0] of a program, which was found through PATH, and may be relative of a library. */
static bool own_file(char path[PATH_BYTES])
{
    const uintptr_t own = (uintptr_t)own_file;
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

/* Whether it is in `folder`, below `below`. */
static bool is_there(const char *folder, const char *below, const char *file, char path[PATH_BYTES])
{
    int length = snprintf(path, PATH_BYTES, "%s%s/%s", folder, below, file);
    return length > 0 && length < PATH_BYTES && !access(path, F_OK);
}

static void *open_given(const struct plugin *plugin, const char *path)
{
    char why[WHY_BYTES];
    if (*path != '/') {
        error_set(WEIR_E_UNSUPPORTED, "%s is '%.256s', which is no absolute path: weir loads no plugin from "
                  "the current directory", plugin->variable, path);
        return NULL;
    }
    void *object = library_open(path, why, sizeof why);
    if (!object)
        error_set(WEIR_E_UNSUPPORTED, "there is no plugin for %s where %s says: %s", plugin->brings, plugin->variable, why);
    return object;
}

/* The first that is there counts, even if it cannot be loaded: another would be one of another build. */
static void *open_found(const struct plugin *plugin)
{
    static const char *const places[] = {"", "/../lib", "/../lib/" MULTIARCH};
    char folder[PATH_BYTES], path[PATH_BYTES], why[WHY_BYTES];
    bool known = own_folder(folder), there = false;
    for (size_t i = 0; known && !there && i < sizeof places / sizeof *places; i++)
        there = is_there(folder, places[i], plugin->file, path);
    void *object = library_open(there ? path : plugin->file, why, sizeof why);
    if (object)
        return object;
    size_t length = strlen(plugin->file);
    if (there || strncmp(why, plugin->file, length) != 0 || why[length] != ':')
        error_set(WEIR_E_UNSUPPORTED, "the plugin for %s cannot be loaded: %s", plugin->brings, why);
    else
        error_set(WEIR_E_UNSUPPORTED,
                  "there is no plugin for %s: %s is not in %s, its ../lib or ../lib/" MULTIARCH
                  ", or where the system looks for libraries (%s); it is built where %s is, and %s may give its absolute path",
                  plugin->brings, plugin->file, known ? folder : "the program's folder", why, plugin->needs, plugin->variable);
    return NULL;
}

/* ---- the call ---- */

void *plugin_load(const struct plugin *plugin, void **object)
{
    const char *given = getenv(plugin->variable);
    *object = given && *given ? open_given(plugin, given) : open_found(plugin);
    void *open = *object ? dlsym(*object, plugin->open) : NULL;
    if (*object && !open) {
        error_set(WEIR_E_UNSUPPORTED, "the plugin for %s has no function %s()", plugin->brings, plugin->open);
        plugin_unload(*object);
    }
    return open;
}

void plugin_unload(void *object)
{
    dlclose(object);
}
