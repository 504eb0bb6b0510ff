/* actors/keep/mapping.c: see the header. */
#define _GNU_SOURCE
#include "actors/keep/mapping.h"

#include "actors/keep/format/files.h"
#include "actors/keep/stored.h"
#include "graph/base/base.h"
#include "graph/base/error.h"
#include "graph/base/names.h"
#include "graph/base/reading.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

struct mapped_file {
    char *base;     /* NULL: not mapped yet */
    uint64_t bytes;
};

struct keep_mapping {
    weir_checkpoint *from;    /* owned */
    struct mapped_file *file; /* owned; by the checkpoint's number of it */
};

struct keep_mapping *keep_mapping_open(const char *path)
{
    struct keep_mapping *m = calloc(1, sizeof *m);
    if (m)
        m->from = weir_checkpoint_open(path);
    if (m && m->from)
        m->file = calloc((size_t)weir_checkpoint_get_info(m->from)->files + 1, sizeof *m->file);
    if (m && m->file)
        return m;
    if (!m || m->from)
        error_set(WEIR_E_MEMORY, "%s: no memory to map it", path);
    keep_mapping_close(m);
    return NULL;
}

void keep_mapping_close(struct keep_mapping *m)
{
    if (!m)
        return;
    for (int i = 0; m->file && i < weir_checkpoint_get_info(m->from)->files; i++)
        if (m->file[i].base)
            munmap(m->file[i].base, m->file[i].bytes);
    free(m->file);
    weir_checkpoint_close(m->from);
    free(m);
}

/* ---- files ---- */

static weir_status map_open(struct mapped_file *file, const char *path, uint64_t want, int fd)
{
    struct stat stat_of;
    if (fstat(fd, &stat_of))
        return error_set(WEIR_E_IO, "%s: cannot be mapped: %s", path, keep_read_fault());
    if ((uint64_t)stat_of.st_size != want)
        return error_set(WEIR_E_IO, "%s: has %" PRIu64 " bytes, but by its header or index %" PRIu64, path,
                         (uint64_t)stat_of.st_size, want);
    void *base = mmap(NULL, want, PROT_READ, MAP_SHARED, fd, 0);
    if (base == MAP_FAILED)
        return error_set(WEIR_E_IO, "%s: cannot be mapped: %s", path, keep_read_fault());
    *file = (struct mapped_file){base, want};
    return WEIR_OK;
}

static weir_status map_file(struct keep_mapping *m, int number)
{
    const char *path = keep_stored_path(m->from, number), *why;
    if (m->file[number].base)
        return WEIR_OK;
    int fd = reading_open(path, &why);
    if (fd < 0)
        return error_set(WEIR_E_IO, "%s: cannot be mapped: %s", path, why);
    weir_status status = map_open(&m->file[number], path, weir_checkpoint_get_file(m->from, number)->bytes, fd);
    close(fd);
    return status;
}

/* ---- tensors ---- */

static const char *wanted_text(const struct keep_mapped *w, char *text, size_t bytes)
{
    char shape[128];
    snprintf(text, bytes, "%s %s", weir_dtype_name(w->dtype), shape_text(&w->whole, shape, sizeof shape));
    return text;
}

static weir_status is_absent(const struct keep_mapping *m, const struct keep_mapped *w)
{
    struct names names = {.wanted = w->name};
    char text[NAMES_TEXT_BYTES], wanted[192];
    for (int t = 0; t < weir_checkpoint_get_info(m->from)->tensors; t++)
        names_add(&names, weir_checkpoint_get_tensor(m->from, t)->name);
    return error_set(WEIR_E_ARGUMENT, "%s: has no tensor '%s', which is %s in the plan%s", weir_checkpoint_get_info(m->from)->path,
                     w->name, wanted_text(w, wanted, sizeof wanted), names_text(&names, text, sizeof text));
}

/* Whether the shard has all of the wanted rows, each in one piece. */
static bool has_rows(const weir_checkpoint_tensor *t, const weir_checkpoint_shard *shard, const struct keep_mapped *w)
{
    for (int d = 1; d < t->shape.rank; d++)
        if (shard->shape.dim[d] != t->shape.dim[d])
            return false;
    return !t->shape.rank || (w->start[0] >= shard->start[0] && w->start[0] + w->part.dim[0] <= shard->start[0] + shard->shape.dim[0]);
}

static uint64_t row_bytes(const struct keep_mapped *w)
{
    uint64_t bytes = weir_dtype_bytes(w->dtype);
    for (int d = 1; d < w->whole.rank; d++)
        bytes *= (uint64_t)w->whole.dim[d];
    return bytes;
}

static weir_status find_in(struct keep_mapping *m, const weir_checkpoint_shard *shard, const struct keep_mapped *w,
                           const void **data)
{
    const uint64_t offset = shard->offset + (w->whole.rank ? (uint64_t)(w->start[0] - shard->start[0]) * row_bytes(w) : 0);
    const size_t item = weir_dtype_bytes(w->dtype);
    weir_status status = map_file(m, shard->file);
    if (status)
        return status;
    const char *path = keep_stored_path(m->from, shard->file);
    if (offset % item)
        return error_set(WEIR_E_ARGUMENT, "%s: tensor %s begins at byte %" PRIu64 ", which is no multiple of %s's %zu bytes, so it "
                         "cannot be mapped; `weir checkpoint convert` writes an aligned copy", path, w->name, offset,
                         weir_dtype_name(w->dtype), item);
    if (shard->offset > m->file[shard->file].bytes || shard->bytes > m->file[shard->file].bytes - shard->offset)
        return error_set(WEIR_E_IO, "%s: tensor %s ends behind the file's %" PRIu64 " bytes", path, w->name,
                         m->file[shard->file].bytes);
    *data = m->file[shard->file].base + offset;
    return WEIR_OK;
}

weir_status keep_mapping_find(struct keep_mapping *m, const struct keep_mapped *w, const void **data)
{
    const weir_checkpoint_tensor *t = weir_checkpoint_find(m->from, w->name);
    const char *path = weir_checkpoint_get_info(m->from)->path;
    char stored[192], wanted[192];
    if (!t)
        return is_absent(m, w);
    if (!keep_stored_is(m->from, t, w->dtype, &w->whole))
        return error_set(WEIR_E_ARGUMENT, "%s: tensor %s is %s, and %s in the plan", path, w->name,
                         keep_stored_text(t, stored, sizeof stored), wanted_text(w, wanted, sizeof wanted));
    if (!weir_shape_count(&w->part)) {
        *data = m;
        return WEIR_OK;
    }
    for (int i = 0; i < t->shard_count; i++)
        if (t->shard[i].slot == 0 && has_rows(t, &t->shard[i], w))
            return find_in(m, &t->shard[i], w, data);
    return error_set(WEIR_E_ARGUMENT, "%s: tensor %s is stored in parts, so it cannot be mapped; `weir checkpoint convert` writes a "
                     "copy in one file", path, w->name);
}
