/* actors/keep/checkpoint.c: reads checkpoints: <weir/checkpoint.h>, but for the making of them.
 *
 * Files are opened when they are first used, and a shard's checksum is compared before a part of it is used. A box that
 * is all of a shard is read to where it is wanted and hashed there; otherwise the shard is read through once for its
 * checksum, and what is wanted of it then comes, mostly, from the page cache.
 *
 * Small runs (columns of a matrix that was saved by rows) are read through a window, because a call for each would cost
 * more than reading what lies between. Files are read and not mapped: a file that becomes shorter, or a disk that
 * fails, is an error of this call and no signal.
 */
#define _GNU_SOURCE
#include "actors/keep/format/box.h"
#include "actors/keep/format/checksum.h"
#include "actors/keep/format/convert.h"
#include "actors/keep/format/files.h"
#include "actors/keep/format/gguf.h"
#include "actors/keep/format/index.h"
#include "actors/keep/near.h"
#include "actors/keep/part.h"
#include "actors/keep/prove.h"
#include "actors/keep/root.h"
#include "actors/keep/format/safetensors.h"
#include "actors/keep/save.h"
#include "actors/keep/stored.h"
#include "actors/keep/format/sharded.h"
#include "actors/keep/format/single.h"
#include "graph/base/base.h"
#include "graph/base/error.h"
#include "graph/base/opts.h"
#include "graph/base/reading.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define WINDOW_BYTES ((size_t)1 << 20)
#define DIRECT_BYTES ((size_t)1 << 17) /* runs of so many are read without the window */

struct open_file {
    int fd;           /* -1: not open yet */
    const char *path; /* in the index's pool */
};

struct weir_checkpoint {
    struct keep_index index;
    weir_checkpoint_opts opts;
    struct open_file *file; /* owned */
    bool **verified;        /* owned; of every tensor's shards; NULL until the first */
    char *window;           /* owned */
    uint64_t window_at;
    size_t window_count;
    int window_file;
};

/* ---- opening ---- */

static weir_status no_memory(const char *path)
{
    return error_set(WEIR_E_MEMORY, "%s: no memory to open it", path);
}

/* The newest checkpoint of a root that can be opened. None: the newest one's error. */
static weir_status open_newest(struct keep_index *index, const char *root)
{
    struct pool p = {0};
    char name[KEEP_STEP_NAME_BYTES];
    const char *error = NULL;
    int64_t *steps = NULL;
    int count = keep_root_steps(&p, root, &steps);
    char near[KEEP_NEAR_BYTES];
    weir_status status = error_set(WEIR_E_IO, "%s: is no checkpoint, and has none (step-...) in it%s", root,
                                   keep_near_in(root, near, sizeof near));
    for (int i = count - 1; i >= 0 && status; i--) {
        const char *folder = pool_text(&p, "%s/%s", root, keep_step_name(steps[i], name));
        keep_index_free(index);
        status = folder ? keep_index_read(index, folder) : no_memory(root);
        error = status && !error ? pool_text(&p, "%s", weir_error()) : error;
    }
    if (status && error)
        error_set(status, "%s", error);
    pool_free(&p);
    return status;
}

static bool is_there(const char *path)
{
    struct stat stat_of;
    return path && stat(path, &stat_of) == 0;
}

static weir_status open_folder(struct keep_index *index, const char *path)
{
    struct pool p = {0};
    const char *sharded = pool_text(&p, "%s/" KEEP_SHARDED_NAME, path);
    weir_status status = is_there(pool_text(&p, "%s/" KEEP_INDEX_NAME, path)) ? keep_index_read(index, path)
                         : is_there(sharded)                                  ? keep_sharded_read(index, sharded)
                                                                              : open_newest(index, path);
    pool_free(&p);
    return status;
}

bool weir_checkpoint_exists(const char *path)
{
    struct stat stat_of;
    if (!path || stat(path, &stat_of))
        return path && errno != ENOENT && errno != ENOTDIR;
    struct pool p = {0};
    int64_t *steps = NULL;
    bool exists = !S_ISDIR(stat_of.st_mode) || is_there(pool_text(&p, "%s/" KEEP_INDEX_NAME, path)) ||
                  is_there(pool_text(&p, "%s/" KEEP_SHARDED_NAME, path)) || keep_root_steps(&p, path, &steps);
    pool_free(&p);
    return exists;
}

static weir_status prepare(weir_checkpoint *c)
{
    struct keep_index *index = &c->index;
    c->file = calloc((size_t)index->files.count + 1, sizeof *c->file);
    c->verified = calloc((size_t)index->tensors.count + 1, sizeof *c->verified);
    if (!c->file || !c->verified)
        return no_memory(index->info.path);
    for (int i = 0; i < index->files.count; i++) {
        const char *name = index->files.item[i].name;
        c->file[i].fd = -1;
        c->file[i].path = index->folder ? pool_text(&index->pool, "%s/%s", index->folder, name) : name;
    }
    return index->pool.failed ? no_memory(index->info.path) : WEIR_OK;
}

weir_checkpoint *weir_checkpoint_open_at(const char *path, const weir_checkpoint_opts *given)
{
    weir_checkpoint_opts opts;
    if (opts_read(&opts, sizeof opts, given, "weir_checkpoint_open"))
        return NULL;
    struct stat stat_of;
    char near[KEEP_NEAR_BYTES];
    if (error_null(path, "weir_checkpoint_open", "path"))
        return NULL;
    weir_checkpoint *c = calloc(1, sizeof *c);
    if (!c || stat(path, &stat_of)) {
        const int why = errno;
        error_set(c ? WEIR_E_IO : WEIR_E_MEMORY, "%s: cannot be opened: %s%s", path, strerror(why),
                  why == ENOENT ? keep_near(path, near, sizeof near) : "");
        free(c);
        return NULL;
    }
    c->opts = opts;
    weir_status status = S_ISDIR(stat_of.st_mode)    ? open_folder(&c->index, path)
                         : keep_sharded_is(path)     ? keep_sharded_read(&c->index, path)
                         : keep_gguf_is(path)        ? keep_gguf_read(&c->index, path)
                                                     : keep_single_read(&c->index, path);
    if (!status)
        status = prepare(c);
    if (!status)
        return c;
    weir_checkpoint_close(c);
    return NULL;
}

weir_checkpoint *keep_part_open(const char *folder)
{
    weir_checkpoint *c = calloc(1, sizeof *c);
    weir_status status = c ? keep_index_read_part(&c->index, folder) : no_memory(folder);
    if (!status)
        status = prepare(c);
    if (!status)
        return c;
    weir_checkpoint_close(c);
    return NULL;
}

void weir_checkpoint_close(weir_checkpoint *c)
{
    if (!c)
        return;
    for (int i = 0; c->file && i < c->index.files.count; i++)
        if (c->file[i].fd >= 0)
            close(c->file[i].fd);
    for (int i = 0; c->verified && i < c->index.tensors.count; i++)
        free(c->verified[i]);
    free(c->file);
    free(c->verified);
    free(c->window);
    keep_index_free(&c->index);
    free(c);
}

/* ---- looking ---- */

const weir_checkpoint_info *weir_checkpoint_get_info(const weir_checkpoint *c)
{
    return c ? &c->index.info : NULL;
}

const weir_checkpoint_tensor *weir_checkpoint_get_tensor(const weir_checkpoint *c, int index)
{
    return c && index >= 0 && index < c->index.tensors.count ? &c->index.tensors.item[index].is : NULL;
}

const weir_checkpoint_tensor *weir_checkpoint_find(const weir_checkpoint *c, const char *name)
{
    const struct keep_tensor *tensor = c && name ? keep_index_find(&c->index, name) : NULL;
    return tensor ? &tensor->is : NULL;
}

const weir_checkpoint_file *weir_checkpoint_get_file(const weir_checkpoint *c, int index)
{
    return c && index >= 0 && index < c->index.files.count ? &c->index.files.item[index] : NULL;
}

const weir_checkpoint_source *weir_checkpoint_get_source(const weir_checkpoint *c, int index)
{
    return c && index >= 0 && index < c->index.sources.count ? &c->index.sources.item[index] : NULL;
}

const char *keep_stored_path(const weir_checkpoint *c, int file)
{
    return c->file[file].path;
}

const struct gguf_type *keep_stored_blocks(const weir_checkpoint *c, const weir_checkpoint_tensor *t)
{
    const struct gguf_type *type = c->index.gguf ? gguf_type_named(t->stored) : NULL;
    return type && type->elements > 1 ? type : NULL;
}

uint64_t keep_part_nonce(const weir_checkpoint *c)
{
    return c->index.nonce;
}

/* Shards do not overlap, so counting tells. */
bool keep_part_has(const weir_checkpoint_tensor *tensor, const int64_t *start, const weir_shape *shape)
{
    struct keep_box want = keep_box_of(start, shape), common;
    int64_t count = 0;
    for (int i = 0; i < tensor->shard_count; i++) {
        struct keep_box box = keep_box_of(tensor->shard[i].start, &tensor->shard[i].shape);
        count += keep_box_common(&box, &want, &common) ? keep_box_count(&common) : 0;
    }
    return count == keep_box_count(&want) * tensor->slots;
}

/* ---- files ---- */

static weir_status read_error(const char *path, const char *tensor)
{
    return error_set(WEIR_E_IO, "%s: tensor %s: cannot be read: %s", path, tensor, keep_read_fault());
}

static weir_status use_file(weir_checkpoint *c, int index, const char *tensor)
{
    struct open_file *file = &c->file[index];
    struct stat stat_of;
    uint64_t want = c->index.files.item[index].bytes;
    if (file->fd >= 0)
        return WEIR_OK;
    const char *why;
    int fd = reading_open(file->path, &why);
    if (fd < 0)
        return error_set(WEIR_E_IO, "%s: tensor %s: cannot be read: %s", file->path, tensor, why);
    if (fstat(fd, &stat_of)) {
        weir_status status = read_error(file->path, tensor);
        close(fd);
        return status;
    }
    if ((uint64_t)stat_of.st_size != want) {
        close(fd);
        return error_set(WEIR_E_IO, "%s: tensor %s: the file has %" PRIu64 " bytes, the index says %" PRIu64,
                         file->path, tensor, (uint64_t)stat_of.st_size, want);
    }
    file->fd = fd;
    return WEIR_OK;
}

/* Copies from the window, which moves so that it begins at `offset` when it does not hold all of it. */
static bool read_windowed(weir_checkpoint *c, int file, uint64_t offset, uint64_t end, void *to, size_t count)
{
    if (!c->window && !(c->window = malloc(WINDOW_BYTES)))
        return false;
    bool inside = c->window_count && c->window_file == file && offset >= c->window_at &&
                  offset + count <= c->window_at + c->window_count;
    if (!inside) {
        size_t wanted = end - offset < WINDOW_BYTES ? (size_t)(end - offset) : WINDOW_BYTES;
        c->window_count = 0;
        if (!keep_read_all(c->file[file].fd, offset, c->window, wanted))
            return false;
        c->window_file = file;
        c->window_at = offset;
        c->window_count = wanted;
    }
    memcpy(to, c->window + (offset - c->window_at), count);
    return true;
}

/* ---- checksums ---- */

static weir_status checksum_error(const weir_checkpoint *c, const struct keep_tensor *tensor,
                                  const weir_checkpoint_shard *shard)
{
    return error_set(WEIR_E_IO, "%s: tensor %s: the bytes of %s are not those that were saved: their checksum differs",
                     c->file[shard->file].path, tensor->is.name, shard->key);
}

static bool *verified_of(weir_checkpoint *c, const struct keep_tensor *tensor, const weir_checkpoint_shard *shard)
{
    bool **flags = &c->verified[tensor - c->index.tensors.item];
    if (!*flags)
        *flags = calloc((size_t)tensor->is.shard_count, sizeof **flags);
    return *flags ? &(*flags)[shard - tensor->is.shard] : NULL;
}

static weir_status sum_file(weir_checkpoint *c, const struct keep_tensor *tensor, const weir_checkpoint_shard *shard,
                            uint64_t *result)
{
    struct keep_sum sum;
    char *block = malloc(WINDOW_BYTES);
    bool ok = block;
    keep_sum_begin(&sum);
    for (uint64_t at = 0; ok && at < shard->bytes; at += WINDOW_BYTES) {
        size_t count = shard->bytes - at < WINDOW_BYTES ? (size_t)(shard->bytes - at) : WINDOW_BYTES;
        ok = keep_read_all(c->file[shard->file].fd, shard->offset + at, block, count);
        keep_sum_add(&sum, block, ok ? count : 0);
    }
    *result = keep_sum_end(&sum);
    weir_status status = ok ? WEIR_OK : read_error(c->file[shard->file].path, tensor->is.name);
    free(block);
    return status;
}

/* Reads the shard and compares, unless that was done before. */
static weir_status verify_shard(weir_checkpoint *c, const struct keep_tensor *tensor,
                                const weir_checkpoint_shard *shard)
{
    uint64_t sum;
    bool *verified = verified_of(c, tensor, shard);
    if (c->index.unsummed || (verified && *verified))
        return WEIR_OK;
    weir_status status = sum_file(c, tensor, shard, &sum);
    if (!status && sum != shard->checksum)
        status = checksum_error(c, tensor, shard);
    if (!status && verified)
        *verified = true;
    return status;
}

/* ---- reading ---- */

/* All of the shard goes to `to`, where it is hashed. */
static weir_status read_whole(weir_checkpoint *c, const struct keep_tensor *tensor, const weir_checkpoint_shard *shard,
                              char *to)
{
    bool *verified = verified_of(c, tensor, shard);
    if (!keep_read_all(c->file[shard->file].fd, shard->offset, to, shard->bytes))
        return read_error(c->file[shard->file].path, tensor->is.name);
    if (c->opts.unverified || c->index.unsummed || (verified && *verified))
        return WEIR_OK;
    if (keep_sum_of(to, shard->bytes) != shard->checksum)
        return checksum_error(c, tensor, shard);
    if (verified)
        *verified = true;
    return WEIR_OK;
}

static weir_status read_runs(weir_checkpoint *c, const struct keep_tensor *tensor, const weir_checkpoint_shard *shard,
                             struct keep_runs runs, size_t element, char *to)
{
    weir_status status = c->opts.unverified ? WEIR_OK : verify_shard(c, tensor, shard);
    if (status)
        return status;
    do {
        uint64_t offset = shard->offset + (uint64_t)runs.from * element;
        size_t count = (size_t)runs.count * element;
        char *at = to + (size_t)runs.to * element;
        bool ok = count >= DIRECT_BYTES
                      ? keep_read_all(c->file[shard->file].fd, offset, at, count)
                      : read_windowed(c, shard->file, offset, shard->offset + shard->bytes, at, count);
        if (!ok)
            return read_error(c->file[shard->file].path, tensor->is.name);
    } while (keep_runs_next(&runs));
    return WEIR_OK;
}

/* Reads the part of the box `want`, whose elements go to `to`, that lies in this shard. */
static weir_status read_from(weir_checkpoint *c, const struct keep_tensor *tensor, const weir_checkpoint_shard *shard,
                             const struct keep_box *want, size_t element, char *to)
{
    struct keep_box box = keep_box_of(shard->start, &shard->shape), common;
    if (!keep_box_common(&box, want, &common))
        return WEIR_OK;
    weir_status status = use_file(c, shard->file, tensor->is.name);
    if (status)
        return status;
    struct keep_runs runs = keep_runs_of(&common, &box, want);
    if (runs.count == keep_box_count(&box))
        return read_whole(c, tensor, shard, to + (size_t)runs.to * element);
    return read_runs(c, tensor, shard, runs, element, to);
}

/* The box as the file has it. */
static weir_status read_stored(weir_checkpoint *c, const struct keep_tensor *tensor, int slot,
                               const struct keep_box *box, size_t element, void *to)
{
    weir_status status = WEIR_OK;
    for (int i = 0; i < tensor->is.shard_count && !status; i++)
        if (tensor->is.shard[i].slot == slot)
            status = read_from(c, tensor, &tensor->is.shard[i], box, element, to);
    return status;
}

static weir_status read_converted(weir_checkpoint *c, const struct keep_tensor *tensor, int slot,
                                  const struct keep_box *box, const weir_array *value)
{
    const char *stored = tensor->is.stored;
    size_t element = keep_stored_bytes(stored), count = (size_t)keep_box_count(box);
    void *raw = malloc(count * element + 1);
    if (!raw)
        return no_memory(tensor->is.name);
    weir_status status = read_stored(c, tensor, slot, box, element, raw);
    if (!status && !keep_convert(stored, raw, count, value->data))
        status = error_set(WEIR_E_IO, "%s: tensor %s: has a value of %s that %s cannot hold", c->index.info.path,
                           tensor->is.name, stored, weir_dtype_name(value->dtype));
    free(raw);
    return status;
}

/* Where the blocks of a tensor lie. */
struct blocks {
    weir_checkpoint *checkpoint;
    const weir_checkpoint_shard *shard;
};

static bool read_bytes(void *ctx, uint64_t offset, void *to, size_t count)
{
    const struct blocks *blocks = ctx;
    const weir_checkpoint_shard *shard = blocks->shard;
    return read_windowed(blocks->checkpoint, shard->file, shard->offset + offset, shard->offset + shard->bytes, to, count);
}

/* Such a tensor is whole: its file is a GGUF file. */
static weir_status read_quantised(weir_checkpoint *c, const struct keep_tensor *tensor, const struct gguf_type *type,
                                  const struct keep_box *box, float *to)
{
    const weir_checkpoint_shard *shard = &tensor->is.shard[0];
    struct keep_box whole = keep_box_of(shard->start, &shard->shape), common;
    if (!keep_box_common(&whole, box, &common))
        return WEIR_OK;
    weir_status status = use_file(c, shard->file, tensor->is.name);
    if (status)
        return status;
    struct blocks blocks = {c, shard};
    return gguf_type_read(type, read_bytes, &blocks, keep_runs_of(&common, &whole, box), to)
               ? WEIR_OK
               : read_error(c->file[shard->file].path, tensor->is.name);
}

/* The blocks as they are: bytes `start` and so on of the tensor of bytes. */
static weir_status read_blocks(weir_checkpoint *c, const struct keep_tensor *tensor, const struct gguf_type *type,
                               const int64_t *start, weir_array *value)
{
    const weir_checkpoint_shard *shard = &tensor->is.shard[0];
    const struct keep_box box = keep_box_of(start, &value->shape);
    weir_shape bytes = {.rank = tensor->is.shape.rank + 1};
    memcpy(bytes.dim, tensor->is.shape.dim, sizeof *bytes.dim * (size_t)tensor->is.shape.rank);
    bytes.dim[bytes.rank - 2] /= type->elements;
    bytes.dim[bytes.rank - 1] = type->bytes;
    if (!keep_box_inside(&box, &bytes) || (!value->data && weir_shape_count(&value->shape)))
        return error_set(WEIR_E_ARGUMENT, "%s: tensor %s: the bytes to be read are not all in its blocks, or there is nowhere to "
                         "read them to", c->index.info.path, tensor->is.name);
    if (!weir_shape_count(&value->shape))
        return WEIR_OK;
    weir_status status = use_file(c, shard->file, tensor->is.name);
    const struct keep_box whole = keep_box_of(NULL, &bytes);
    return status ? status : read_runs(c, tensor, shard, keep_runs_of(&box, &whole, &box), 1, value->data);
}

bool weir_checkpoint_reads_as(const weir_checkpoint_tensor *t, weir_dtype dtype)
{
    return t && t->dtype && (dtype == t->dtype || (dtype == WEIR_F32 && weir_dtype_real(t->dtype)) ||
                             (dtype == WEIR_I32 && t->dtype == WEIR_I64));
}

weir_status weir_checkpoint_read(weir_checkpoint *c, const weir_checkpoint_tensor *t, int slot, const int64_t *start,
                                 weir_array *value)
{
    const struct keep_tensor *tensor = (const struct keep_tensor *)(const void *)t; /* `is` is its first member */
    if (error_null(c, "weir_checkpoint_read", "checkpoint") || error_null(t, "weir_checkpoint_read", "tensor") ||
        error_null(value, "weir_checkpoint_read", "value"))
        return WEIR_E_ARGUMENT;
    const struct gguf_type *blocks = keep_stored_blocks(c, t);
    if (blocks && value->dtype == WEIR_U8 && value->shape.rank == t->shape.rank + 1 && slot == 0)
        return read_blocks(c, tensor, blocks, start, value);
    if (value->shape.rank != t->shape.rank)
        return error_set(WEIR_E_ARGUMENT, "%s: tensor %s has %d dimensions, not %d", c->index.info.path, t->name,
                         t->shape.rank, value->shape.rank);
    struct keep_box box = keep_box_of(start, &value->shape);
    if (!t->dtype)
        return error_set(WEIR_E_UNSUPPORTED, "%s: tensor %s: %s", c->index.info.path, t->name, t->unread);
    if (!weir_checkpoint_reads_as(t, value->dtype) || slot < 0 || slot >= t->slots || !keep_box_inside(&box, &t->shape))
        return error_set(WEIR_E_ARGUMENT, "%s: tensor %s: the elements to be read are not all in it, or are not to be read as %s",
                         c->index.info.path, t->name, weir_dtype_name(t->dtype));
    if (!value->data && weir_shape_count(&value->shape))
        return error_set(WEIR_E_ARGUMENT, "%s: tensor %s: there is nowhere to read it to: .data is NULL",
                         c->index.info.path, t->name);
    const struct gguf_type *type = c->index.gguf ? gguf_type_named(t->stored) : NULL;
    if (type && type->blocks)
        return read_quantised(c, tensor, type, &box, value->data);
    if (keep_stored_may_not_fit(t->stored, value->dtype) || value->dtype != t->dtype)
        return read_converted(c, tensor, slot, &box, value);
    return read_stored(c, tensor, slot, &box, weir_dtype_bytes(t->dtype), value->data);
}

/* ---- proving ---- */

static weir_status prove_shard(weir_checkpoint *c, const struct keep_tensor *tensor, const weir_checkpoint_shard *shard,
                               const struct keep_box *want)
{
    struct keep_box box = keep_box_of(shard->start, &shard->shape), common;
    if (!keep_box_common(&box, want, &common))
        return WEIR_OK;
    weir_status status = use_file(c, shard->file, tensor->is.name);
    return status ? status : verify_shard(c, tensor, shard);
}

/* Nothing but reading tells whether each value of another type can be had. */
static weir_status prove_converted(weir_checkpoint *c, const weir_checkpoint_tensor *t, int slot, const int64_t *start,
                                   const weir_shape *shape, weir_dtype dtype)
{
    void *values = malloc((size_t)weir_shape_count(shape) * weir_dtype_bytes(dtype) + 1);
    weir_status status = values ? WEIR_OK : no_memory(t->name);
    if (!status)
        status = weir_checkpoint_read(c, t, slot, start, &(weir_array){values, dtype, *shape});
    free(values);
    return status;
}

weir_status keep_checkpoint_prove(weir_checkpoint *c, const weir_checkpoint_tensor *t, int slot, const int64_t *start,
                                  const weir_shape *shape, weir_dtype dtype)
{
    const struct keep_tensor *tensor = (const struct keep_tensor *)(const void *)t; /* `is` is its first member */
    struct keep_box box = keep_box_of(start, shape);
    weir_status status = WEIR_OK;
    if (keep_stored_blocks(c, t) && shape->rank == t->shape.rank + 1)
        return use_file(c, t->shard[0].file, t->name);
    if (!t->dtype || keep_stored_may_not_fit(t->stored, dtype))
        return prove_converted(c, t, slot, start, shape, dtype);
    for (int i = 0; !status && i < t->shard_count; i++)
        if (t->shard[i].slot == slot)
            status = prove_shard(c, tensor, &t->shard[i], &box);
    return status;
}

/* ---- verifying ---- */

struct verdict {
    weir_checkpoint_fault_fn fault;
    void *ctx;
    char first[1024];
    weir_status status;
};

static void note(struct verdict *verdict, weir_status status)
{
    if (!status)
        return;
    if (!verdict->status)
        snprintf(verdict->first, sizeof verdict->first, "%s", weir_error());
    verdict->status = WEIR_E_IO;
    if (verdict->fault)
        verdict->fault(verdict->ctx, weir_error());
}

static int by_key(const void *a, const void *b)
{
    return strcmp(((const struct safetensors_tensor *)a)->name, ((const struct safetensors_tensor *)b)->name);
}

/* Sorts what the header lists by name, so that a key is found at once. */
static void sort_keys(struct safetensors_header *header)
{
    if (header->tensors.count)
        qsort(header->tensors.item, (size_t)header->tensors.count, sizeof *header->tensors.item, by_key);
}

static const struct safetensors_tensor *find_key(const struct safetensors_header *header, const char *key)
{
    const struct safetensors_tensor wanted = {.name = key};
    return header->tensors.count ? bsearch(&wanted, header->tensors.item, (size_t)header->tensors.count, sizeof wanted, by_key)
                                 : NULL;
}

/* Whether the file's own header says of the shard what the index does. */
static weir_status compare_shard(const weir_checkpoint *c, const struct keep_tensor *tensor,
                                 const weir_checkpoint_shard *shard, const struct safetensors_header *header)
{
    const char *path = c->file[shard->file].path;
    const struct safetensors_tensor *t = find_key(header, shard->key);
    if (!t)
        return error_set(WEIR_E_IO, "%s: tensor %s: the file has no %s", path, tensor->is.name, shard->key);
    if (t->begin + header->data_at != shard->offset || !weir_shape_equal(&t->shape, &shard->shape) ||
        strcmp(t->type, tensor->is.stored) != 0)
        return error_set(WEIR_E_IO, "%s: tensor %s: %s has another place, shape or type there than the index says",
                         path, tensor->is.name, shard->key);
    return WEIR_OK;
}

/* A shard, and whose it is. */
struct place {
    const struct keep_tensor *tensor;
    const weir_checkpoint_shard *shard;
};

/* All shards, file by file, those of each in the order of the index. */
struct by_file {
    struct place *place; /* owned */
    size_t *first;       /* owned; of each file, and behind the last */
};

static void by_file_free(struct by_file *by)
{
    free(by->place);
    free(by->first);
}

/* Counts, then sets each in its place. */
static bool by_file_make(const weir_checkpoint *c, struct by_file *by)
{
    size_t count = 0, files = (size_t)c->index.files.count;
    for (int t = 0; t < c->index.tensors.count; t++)
        count += (size_t)c->index.tensors.item[t].is.shard_count;
    *by = (struct by_file){calloc(count + 1, sizeof *by->place), calloc(files + 2, sizeof *by->first)};
    if (!by->place || !by->first)
        return false;
    for (int t = 0; t < c->index.tensors.count; t++)
        for (int s = 0; s < c->index.tensors.item[t].is.shard_count; s++)
            by->first[c->index.tensors.item[t].is.shard[s].file + 2]++;
    for (size_t f = 2; f < files + 2; f++)
        by->first[f] += by->first[f - 1];
    for (int t = 0; t < c->index.tensors.count; t++)
        for (int s = 0; s < c->index.tensors.item[t].is.shard_count; s++) {
            const struct keep_tensor *tensor = &c->index.tensors.item[t];
            by->place[by->first[tensor->is.shard[s].file + 1]++] = (struct place){tensor, &tensor->is.shard[s]};
        }
    return true;
}

static void verify_shards(weir_checkpoint *c, int file, const struct by_file *by, const struct safetensors_header *header,
                          struct verdict *verdict)
{
    for (size_t i = by->first[file]; i < by->first[file + 1]; i++) {
        const struct place *at = &by->place[i];
        if (header)
            note(verdict, compare_shard(c, at->tensor, at->shard, header));
        note(verdict, verify_shard(c, at->tensor, at->shard));
    }
}

static weir_status verify_header(weir_checkpoint *c, struct pool *p, int file, struct safetensors_header *header)
{
    const void *raw = NULL;
    struct gguf_header gguf;
    if (c->index.gguf)
        return gguf_read(p, c->file[file].path, c->file[file].fd, &gguf);
    weir_status status = safetensors_read(p, c->file[file].path, c->file[file].fd, header, &raw);
    if (!status && !c->index.unsummed && keep_sum_of(raw, header->data_at) != c->index.files.item[file].checksum)
        status = error_set(WEIR_E_IO, "%s: its header is not the one that was saved: its checksum differs",
                           c->file[file].path);
    return status;
}

static void verify_file(weir_checkpoint *c, int file, const struct by_file *by, struct verdict *verdict)
{
    struct pool p = {0};
    struct safetensors_header header = {.data_at = 0};
    bool used = by->first[file] < by->first[file + 1];
    weir_status status = use_file(c, file, used ? by->place[by->first[file]].tensor->is.name : "(none)");
    note(verdict, status);
    if (!status) {
        weir_status whole = verify_header(c, &p, file, &header);
        note(verdict, whole);
        if (!whole)
            sort_keys(&header);
        verify_shards(c, file, by, whole || c->index.unsummed ? NULL : &header, verdict);
    }
    pool_free(&p);
}

weir_status weir_checkpoint_verify(weir_checkpoint *c, weir_checkpoint_fault_fn fault, void *ctx)
{
    if (error_null(c, "weir_checkpoint_verify", "checkpoint"))
        return WEIR_E_ARGUMENT;
    struct verdict verdict = {.fault = fault, .ctx = ctx};
    struct by_file by;
    if (!by_file_make(c, &by)) {
        by_file_free(&by);
        return no_memory(c->index.info.path);
    }
    for (int i = 0; i < c->index.tensors.count; i++) {
        free(c->verified[i]);
        c->verified[i] = NULL;
    }
    for (int i = 0; i < c->index.files.count; i++)
        verify_file(c, i, &by, &verdict);
    by_file_free(&by);
    return verdict.status ? error_set(verdict.status, "%s", verdict.first) : WEIR_OK;
}
