/* graph/plan/file.c: plans in files. What is in them is pack.c's business.
 *
 * Saving writes a new file beside the old one and renames it, so whoever opens the path sees the old plan or the new
 * one, whole. Every error names the file.
 */
#define _GNU_SOURCE
#include "graph/plan/file.h"

#include "graph/base/error.h"
#include "graph/base/reading.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SAVE_TRIES 100 /* names of temporary files */

static weir_status io_error(const char *path, const char *what)
{
    return error_set(WEIR_E_IO, "%s: cannot be %s: %s", path, what, strerror(errno));
}

/* ---- saving ---- */

/* A new file beside `path`; its name goes to `temporary`. -1: errno says why. */
static int create_beside(const char *path, char *temporary, size_t bytes)
{
    int fd = -1;
    for (int i = 0; fd < 0 && i < SAVE_TRIES; i++) {
        snprintf(temporary, bytes, "%s.%ld-%d.tmp", path, (long)getpid(), i);
        fd = open(temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
        if (fd < 0 && errno != EEXIST)
            break;
    }
    return fd;
}

static bool write_all(int fd, const char *bytes, size_t left)
{
    while (left) {
        ssize_t written = write(fd, bytes, left);
        if (written < 0 && errno == EINTR)
            continue;
        if (written < 0)
            return false;
        bytes += written;
        left -= (size_t)written;
    }
    return true;
}

static bool replace_file(const char *path, char *temporary, size_t temporary_bytes, const void *bytes, size_t count)
{
    int fd = create_beside(path, temporary, temporary_bytes);
    if (fd < 0)
        return false;
    bool ok = write_all(fd, bytes, count) && fsync(fd) == 0;
    ok = close(fd) == 0 && ok;
    ok = ok && rename(temporary, path) == 0;
    if (ok)
        return true;
    int why = errno;
    unlink(temporary);
    errno = why;
    return false;
}

weir_status weir_plan_save(const weir_plan *plan, const char *path)
{
    void *bytes = NULL;
    size_t count = 0;
    if (error_null(plan, "weir_plan_save", "plan") || error_null(path, "weir_plan_save", "path"))
        return WEIR_E_ARGUMENT;
    size_t temporary_bytes = strlen(path) + 64;
    char *temporary = malloc(temporary_bytes);
    weir_status status = temporary ? plan_encode(plan, &bytes, &count)
                                   : error_set(WEIR_E_MEMORY, "no memory to save the plan");
    if (!status && !replace_file(path, temporary, temporary_bytes, bytes, count))
        status = io_error(path, "written");
    free(temporary);
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
