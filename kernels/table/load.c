/* kernels/table/load.c: ops that lie in a shared object.
 *
 * The object is opened with its names to itself, so that two of them may have functions of one name; what it asks of
 * weir it finds in the program. Where it was linked with a copy of the library of its own, that is the copy in which its
 * ops would be registered: what then is not here is told, rather than that a plan's op is unknown.
 *
 * Ops are for the life of the process, and so is the object: it is never closed, but where nothing of it was kept.
 */
#define _GNU_SOURCE
#include "graph/base/base.h"
#include "graph/base/error.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#define ENTRY "weir_register_ops"

enum { PATH_BYTES = 4096 };

typedef weir_status (*entry_fn)(void);

/* A path, where dlopen() would look for a library of that name. */
static const char *as_path(const char *path, char text[PATH_BYTES])
{
    if (strchr(path, '/'))
        return path;
    snprintf(text, PATH_BYTES, "./%s", path);
    return text;
}

/* The function of the object itself, not of what it needs. */
static entry_fn find_entry(void *object, const char *path)
{
    entry_fn entry = (entry_fn)dlsym(object, ENTRY);
    if (!entry)
        error_set(WEIR_E_ARGUMENT, "%s: defines no %s(), which registers its ops (weir/op.h)", path, ENTRY);
    return entry;
}

static weir_status call_entry(entry_fn entry, const char *path)
{
    uint64_t before = registry_accepted();
    weir_status status = entry();
    if (status) {
        char why[512];
        snprintf(why, sizeof why, "%s", weir_error());
        return error_set(status, "%s: %s() gave %s: %s", path, ENTRY, weir_status_name(status), why);
    }
    if (registry_accepted() == before)
        return error_set(WEIR_E_ARGUMENT, "%s: has registered no op here: is it linked with a libweir of its own?", path);
    return WEIR_OK;
}

weir_status weir_op_load(const char *path)
{
    char text[PATH_BYTES];
    if (!path || !*path)
        return error_set(WEIR_E_ARGUMENT, "weir_op_load: there is no path");
    void *object = dlopen(as_path(path, text), RTLD_NOW | RTLD_LOCAL);
    if (!object)
        return error_set(WEIR_E_IO, "%s cannot be loaded: %s", path, dlerror());
    entry_fn entry = find_entry(object, path);
    if (!entry)
        dlclose(object);
    return entry ? call_entry(entry, path) : WEIR_E_ARGUMENT;
}
