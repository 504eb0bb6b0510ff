/* graph/plan/form/file.c: plans in files. pack.c knows their contents.
 *
 * A reader that opens the path while a plan is saved sees the old plan or the new one, whole (graph/base/replaced.h).
 * Every error names the file.
 */
#define _GNU_SOURCE
#include "graph/plan/form/file.h"

#include "graph/base/error.h"
#include "graph/base/replaced.h"
#include "graph/base/reading.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static weir_status io_error(const char *path, const char *what)
{
    return error_set(WEIR_E_IO, "%s: cannot be %s: %s", path, what, strerror(errno));
}

/* ---- saving ---- */

weir_status weir_plan_save(const weir_plan *plan, const char *path)
{
    void *bytes = NULL;
    size_t count = 0;
    struct replaced file;
    if (error_null(plan, "weir_plan_save", "plan") || error_null(path, "weir_plan_save", "path"))
        return WEIR_E_ARGUMENT;
    weir_status status = plan_encode(plan, &bytes, &count);
    if (status)
        return status;
    bool ok = replaced_open(&file, path);
    ok = ok && replaced_write(&file, bytes, count);
    if (!replaced_close(&file, ok))
        status = io_error(path, "written");
    free(bytes);
    return status;
}

/* ---- loading ---- */

/* Reads on until the end of the file or PLAN_FILE_BYTES_MAX; the buffer is at most twice what was read. */
static weir_status read_all(FILE *file, const char *path, char **bytes, size_t *count)
{
    size_t capacity = 0;
    do {
        if (capacity > PLAN_FILE_BYTES_MAX)
            return error_set(WEIR_E_PLAN, "%s: more than %u bytes, too large for a plan", path, PLAN_FILE_BYTES_MAX);
        capacity = capacity ? capacity * 2 : 64 * 1024;
        char *moved = realloc(*bytes, capacity);
        if (!moved)
            return error_set(WEIR_E_MEMORY, "%s: no memory to read it", path);
        *bytes = moved;
        *count += fread(*bytes + *count, 1, capacity - *count, file);
    } while (*count == capacity);
    return ferror(file) ? io_error(path, "read") : WEIR_OK;
}

static weir_plan *decode_live(const char *path, const char *bytes, size_t count)
{
    weir_plan *plan = plan_decode(bytes, count);
    if (plan && weir_plan_check(plan) == WEIR_OK)
        return plan;
    error_set(plan ? WEIR_E_LIVE : WEIR_E_PLAN, "%s: %s", path, weir_error());
    weir_plan_free(plan);
    return NULL;
}

weir_plan *weir_plan_load(const char *path)
{
    char *bytes = NULL;
    size_t count = 0;
    weir_plan *plan = NULL;
    if (error_null(path, "weir_plan_load", "path"))
        return NULL;
    const char *why;
    FILE *file = reading_file(path, &why);
    if (!file) {
        error_set(WEIR_E_IO, "%s: cannot be opened: %s", path, why);
        return NULL;
    }
    if (read_all(file, path, &bytes, &count) == WEIR_OK)
        plan = decode_live(path, bytes, count);
    fclose(file);
    free(bytes);
    return plan;
}
