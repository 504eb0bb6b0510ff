/* graph/base/library.c: see the header. */
#define _GNU_SOURCE
#include "graph/base/library.h"

#include <dlfcn.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MODE (RTLD_NOW | RTLD_LOCAL)

/* dlerror() forgets what it said, so the program's next call does not get an error of ours. */
static void *open_as(const char *name, int mode, char *why, size_t why_bytes)
{
    void *object = dlopen(name, mode);
    const char *message = object ? "" : dlerror();
    snprintf(why, why_bytes, "%s", message ? message : "");
    return object;
}

/* ---- where the loader looks ---- */

/* The folders of the loader's search but those of ld.so.cache; owned by the caller. NULL: not known. */
static Dl_serinfo *loader_folders(void)
{
    Dl_serinfo head, *all = NULL;
    void *program = dlopen(NULL, RTLD_LAZY);
    if (program && !dlinfo(program, RTLD_DI_SERINFOSIZE, &head) && (all = malloc(head.dls_size)) != NULL) {
        memcpy(all, &head, offsetof(Dl_serinfo, dls_serpath));
        if (dlinfo(program, RTLD_DI_SERINFO, all)) {
            free(all);
            all = NULL;
        }
    }
    if (program)
        dlclose(program);
    dlerror();
    return all;
}

static bool all_absolute(const Dl_serinfo *folders)
{
    for (unsigned i = 0; i < folders->dls_cnt; i++)
        if (*folders->dls_serpath[i].dls_name != '/')
            return false;
    return true;
}

/* The first that is there and can be opened; what is wrong with the last that is there stays in `why`. */
static void *open_in_absolute(const Dl_serinfo *folders, const char *name, char *why, size_t why_bytes)
{
    void *object = NULL;
    char path[PATH_MAX];
    snprintf(why, why_bytes, "%s: not found; LD_LIBRARY_PATH has an empty or relative entry, which weir skips, and with it "
             "ld.so.cache: remove that entry", name);
    for (unsigned i = 0; i < folders->dls_cnt && !object; i++) {
        const char *folder = folders->dls_serpath[i].dls_name;
        int length = snprintf(path, sizeof path, "%s/%s", folder, name);
        if (*folder == '/' && length < (int)sizeof path && !access(path, F_OK))
            object = open_as(path, MODE, why, why_bytes);
    }
    return object;
}

/* ---- the call ---- */

void *library_open(const char *name, char *why, size_t why_bytes)
{
    if (strchr(name, '/')) {
        if (*name == '/')
            return open_as(name, MODE, why, why_bytes);
        snprintf(why, why_bytes, "%s: is no absolute path", name);
        return NULL;
    }
    void *object = open_as(name, MODE | RTLD_NOLOAD, why, why_bytes);
    Dl_serinfo *folders = object ? NULL : loader_folders();
    if (folders)
        object = all_absolute(folders) ? open_as(name, MODE, why, why_bytes)
                                       : open_in_absolute(folders, name, why, why_bytes);
    free(folders);
    return object;
}
