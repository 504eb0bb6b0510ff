/* actors/keep/create.c: makes checkpoints and safetensors files from whole tensors: the second half of
 * <weir/checkpoint.h>.
 *
 * A folder is what keep_save writes as the only rank. A single file has no index, so nothing but names, shapes and
 * values is kept; it is written beside its name and renamed, as everything here is.
 */
#define _GNU_SOURCE
#include "actors/keep/safetensors.h"
#include "actors/keep/save.h"
#include "graph/base/error.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <libgen.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

struct weir_checkpoint_writer {
    struct pool pool;
    struct keep_save *save;           /* a folder; NULL: a file */
    const char *path, *temporary;     /* of a file */
    struct safetensors_header header;
    POOL_LIST(const void *) data;
};

static weir_status no_memory(const char *path)
{
    return error_set(WEIR_E_MEMORY, "%s: no memory to write it", path);
}

static bool is_single(const char *path)
{
    static const char ending[] = ".safetensors";
    size_t length = strlen(path);
    return length >= sizeof ending && !strcmp(path + length - (sizeof ending - 1), ending);
}

/* Another one each time, as far as processes of one machine go. */
static uint64_t new_nonce(void)
{
    static _Atomic uint64_t count;
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return ((uint64_t)now.tv_sec << 34) ^ ((uint64_t)now.tv_nsec << 16) ^ ((uint64_t)getpid() << 4) ^ ++count;
}

static weir_status begin_single(weir_checkpoint_writer *w, const char *path, uint64_t nonce)
{
    char *copy = pool_text(&w->pool, "%s", path);
    w->path = pool_text(&w->pool, "%s", path);
    w->temporary = pool_text(&w->pool, "%s.%016" PRIx64 ".tmp", path, nonce);
    if (w->pool.failed)
        return no_memory(path);
    char *folder = dirname(copy);
    if (!keep_make_folders(&keep_files_system, folder))
        return error_set(WEIR_E_IO, "%s: cannot be made a folder: %s", folder, strerror(errno));
    return WEIR_OK;
}

static weir_status begin_folder(weir_checkpoint_writer *w, const char *path, weir_checkpoint_create_opts opts,
                                uint64_t nonce)
{
    char *above = pool_text(&w->pool, "%s", path), *last = pool_text(&w->pool, "%s", path);
    if (!above || !last)
        return no_memory(path);
    w->save = keep_save_begin(&(struct keep_save_opts){.root = dirname(above), .name = basename(last), .nonce = nonce,
                                                       .facts = opts});
    return w->save ? WEIR_OK : WEIR_E_IO;
}

weir_checkpoint_writer *weir_checkpoint_create_at(const char *path, weir_checkpoint_create_opts opts)
{
    weir_checkpoint_writer *w = calloc(1, sizeof *w);
    weir_status status = !w                ? no_memory(path)
                         : is_single(path) ? begin_single(w, path, new_nonce())
                                           : begin_folder(w, path, opts, new_nonce());
    if (!status)
        return w;
    weir_checkpoint_abandon(w);
    return NULL;
}

/* ---- adding ---- */

static weir_status add_to_single(weir_checkpoint_writer *w, const weir_checkpoint_value *v)
{
    struct safetensors_tensor *to = POOL_PUSH(&w->pool, &w->header.tensors);
    const void **data = (const void **)POOL_PUSH(&w->pool, &w->data);
    if (!to || !data || !(to->name = pool_text(&w->pool, "%s", v->name)))
        return no_memory(w->path);
    to->dtype = safetensors_dtype_of(v->value.dtype);
    to->shape = v->value.shape;
    *data = v->value.data;
    return WEIR_OK;
}

static weir_status add_slots(weir_checkpoint_writer *w, const weir_checkpoint_value *v, int slots)
{
    struct keep_piece piece = {.shape = v->value.shape, .data = v->value.data};
    size_t bytes = (size_t)weir_shape_count(&v->value.shape) * weir_dtype_bytes(v->value.dtype);
    weir_status status = WEIR_OK;
    piece.tensor = (weir_checkpoint_tensor){.name = v->name, .kind = v->kind, .dtype = v->value.dtype,
                                            .shape = v->value.shape, .frozen = v->frozen, .slots = slots};
    for (; piece.slot < slots && !status; piece.slot++) {
        status = keep_save_add(w->save, &piece);
        piece.data = (const char *)piece.data + bytes;
    }
    return status;
}

weir_status weir_checkpoint_add(weir_checkpoint_writer *w, const weir_checkpoint_value *v)
{
    int slots = v->slots > 0 ? v->slots : 1;
    if (!weir_dtype_bytes(v->value.dtype))
        return error_set(WEIR_E_ARGUMENT, "tensor %s: has no type that can be saved", v->name);
    if (w->save)
        return add_slots(w, v, slots);
    if (slots > 1)
        return error_set(WEIR_E_UNSUPPORTED, "%s: tensor %s: keeps %d values, a single file has room for one", w->path,
                         v->name, slots);
    return add_to_single(w, v);
}

weir_status weir_checkpoint_add_source(weir_checkpoint_writer *w, const weir_checkpoint_source *source)
{
    return w->save ? keep_save_add_source(w->save, source->name, source->bytes, source->count) : WEIR_OK;
}

/* ---- the end ---- */

static bool write_tensors(weir_checkpoint_writer *w, int fd, const void *header)
{
    const struct keep_files *files = &keep_files_system;
    bool ok = keep_write_all(files, fd, header, w->header.data_at);
    for (int i = 0; i < w->header.tensors.count && ok; i++) {
        const struct safetensors_tensor *t = &w->header.tensors.item[i];
        ok = keep_write_all(files, fd, w->data.item[i], t->end - t->begin);
    }
    return ok && keep_sync(files, fd);
}

static weir_status write_single(weir_checkpoint_writer *w)
{
    struct safetensors_text *format = POOL_PUSH(&w->pool, &w->header.metadata);
    if (!format)
        return no_memory(w->path);
    *format = (struct safetensors_text){"format", "pt"}; /* row-major: what readers of such files ask for */
    const void *header = safetensors_encode(&w->pool, &w->header);
    if (!header)
        return WEIR_E_MEMORY;
    int fd = open(w->temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    bool ok = fd >= 0 && write_tensors(w, fd, header);
    if (fd >= 0)
        ok = close(fd) == 0 && ok;
    ok = ok && rename(w->temporary, w->path) == 0;
    if (ok && keep_sync_folder(&keep_files_system, dirname(pool_text(&w->pool, "%s", w->path))))
        return WEIR_OK;
    return error_set(WEIR_E_IO, "%s: cannot be written: %s", w->path, strerror(errno));
}

weir_status weir_checkpoint_finish(weir_checkpoint_writer *w)
{
    weir_status status = w->save ? keep_save_run(w->save) : write_single(w);
    weir_checkpoint_abandon(w);
    return status;
}

void weir_checkpoint_abandon(weir_checkpoint_writer *w)
{
    if (!w)
        return;
    if (w->temporary)
        unlink(w->temporary);
    keep_save_free(w->save);
    pool_free(&w->pool);
    free(w);
}
