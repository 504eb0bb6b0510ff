/* actors/keep/format/single.c: a checkpoint as one safetensors file.
 *
 * Texts in the header that begin with "weir." are looked at after the tensors are known; one that names no tensor, or
 * makes no sense, is an error as in an index. Others are left alone.
 */
#define _GNU_SOURCE
#include "actors/keep/format/single.h"

#include "actors/keep/format/files.h"
#include "actors/keep/format/safetensors.h"
#include "graph/base/error.h"
#include "graph/base/replaced.h"
#include "graph/base/reading.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <libgen.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static weir_status no_memory(const char *path)
{
    return error_set(WEIR_E_MEMORY, "%s: no memory for its header", path);
}

/* ---- reading ---- */

weir_status keep_single_add(struct keep_index *index, const struct safetensors_tensor *t, int file, uint64_t data_at)
{
    weir_checkpoint_shard shard = {.key = t->name, .file = file, .shape = t->shape, .bytes = t->end - t->begin};
    struct keep_tensor *to = POOL_PUSH(&index->pool, &index->tensors);
    if (!to)
        return no_memory(t->name);
    to->is = (weir_checkpoint_tensor){.name = t->name, .slots = 1, .shape = t->shape};
    to->is.dtype = safetensors_dtype_read_as(t->dtype);
    to->is.stored = t->type;
    if (!to->is.dtype)
        to->is.unread = pool_text(&index->pool, "its type, %s, is not read", t->type);
    if (t->dims > WEIR_DIMS_MAX) {
        to->is.dtype = WEIR_DTYPE_NONE;
        to->is.unread = pool_text(&index->pool, "it has %d dimensions; weir reads at most %d", t->dims, WEIR_DIMS_MAX);
        to->is.stored_dims = t->dims;
        to->is.stored_dim = t->dim;
    }
    if (!to->is.dtype && !to->is.unread)
        return no_memory(t->name);
    shard.offset = data_at + t->begin;
    if (!POOL_ROOM(&index->pool, &to->shards, 1))
        return no_memory(t->name);
    return keep_index_add_shard(index, to, &shard);
}

static weir_status wrong_text(const char *path, const struct safetensors_text *text)
{
    return error_set(WEIR_E_IO, "%s: __metadata__: \"%s\" is \"%.100s\", which makes no sense", path, text->key,
                     text->value);
}

/* The whole first dimension becomes slots. */
static bool split_slots(struct keep_index *index, struct keep_tensor *tensor, const char *value)
{
    weir_shape *shape = &tensor->is.shape;
    weir_checkpoint_shard whole = tensor->shards.item[0];
    int64_t slots = strtoll(value, NULL, 10);
    if (slots < 1 || slots > KEEP_SLOTS_MAX || shape->rank < 1 || shape->dim[0] != slots || tensor->is.slots != 1 ||
        tensor->is.stored_dim)
        return false;
    shape->rank--;
    memmove(shape->dim, shape->dim + 1, (size_t)shape->rank * sizeof *shape->dim);
    tensor->is.slots = (int)slots;
    tensor->shards.count = 0;
    whole.shape = *shape;
    whole.bytes /= (uint64_t)slots;
    for (; whole.slot < slots; whole.slot++, whole.offset += whole.bytes)
        if (keep_index_add_shard(index, tensor, &whole))
            return false;
    return true;
}

static bool take_tensor_text(struct keep_index *index, struct keep_tensor *tensor, const char *key, const char *value)
{
    if (!strncmp(key, "weir.slots:", 11))
        return split_slots(index, tensor, value);
    if (!strncmp(key, "weir.frozen:", 12))
        return tensor->is.frozen = !strcmp(value, "true");
    return keep_kind_of(value, &tensor->is.kind);
}

static bool take_source(struct keep_index *index, const char *key, const char *value)
{
    char *name;
    long rank = strtol(key + strlen("weir.source:"), &name, 10);
    unsigned char *bytes = pool_alloc(&index->pool, strlen(value) / 2 + 1);
    if (*name != ':' || rank < 0 || rank > INT32_MAX || !bytes || !keep_unhex(value, bytes))
        return false;
    return !keep_index_add_source(index, &(weir_checkpoint_source){name + 1, (int)rank, bytes, strlen(value) / 2});
}

static bool take_hex(const char *value, uint64_t *to)
{
    return strlen(value) == 16 && strspn(value, "0123456789abcdef") == 16 && sscanf(value, "%" SCNx64, to) == 1;
}

static bool take_fact(struct keep_index *index, const char *key, const char *value)
{
    weir_checkpoint_info *info = &index->info;
    char *end;
    if (!strcmp(key, "weir.step")) {
        info->step = strtoll(value, &end, 10);
        return *value && !*end && info->step >= -1;
    }
    if (!strcmp(key, "weir.program"))
        return (info->program = pool_text(&index->pool, "%s", value));
    return !strcmp(key, "weir.seed")    ? take_hex(value, &info->seed)
           : !strcmp(key, "weir.plan")  ? take_hex(value, &info->plan_hash)
           : !strcmp(key, "weir.graph") ? take_hex(value, &info->graph_hash)
                                        : false;
}

static bool take_text(struct keep_index *index, const struct safetensors_text *text)
{
    const char *key = text->key, *name = strchr(key, ':');
    if (strncmp(key, "weir.", 5) != 0)
        return true;
    if (!strncmp(key, "weir.source:", 12))
        return take_source(index, key, text->value);
    if (!name)
        return take_fact(index, key, text->value);
    struct keep_tensor *tensor = keep_index_look_up(index, name + 1);
    return tensor && take_tensor_text(index, tensor, key, text->value);
}

weir_status keep_single_header(struct keep_index *index, const char *path, const char *name,
                               struct safetensors_header *header)
{
    struct stat stat_of;
    const char *why;
    int fd = reading_open(path, &why);
    if (fd < 0)
        return error_set(WEIR_E_IO, "%s: cannot be read: %s", path, why);
    weir_status status = fstat(fd, &stat_of) ? error_set(WEIR_E_IO, "%s: cannot be read: %s", path, strerror(errno))
                                             : safetensors_read(&index->pool, path, fd, header, NULL);
    close(fd);
    return status ? status : keep_index_add_file(index, name, (uint64_t)stat_of.st_size, 0);
}

weir_status keep_single_read(struct keep_index *index, const char *path)
{
    struct safetensors_header header = {.data_at = 0};
    index->info = (weir_checkpoint_info){.step = -1, .program = "", .ranks = 1};
    index->info.path = pool_text(&index->pool, "%s", path);
    index->unsummed = true;
    weir_status status = keep_single_header(index, path, path, &header);
    for (int i = 0; i < header.tensors.count && !status; i++)
        status = keep_single_add(index, &header.tensors.item[i], 0, header.data_at);
    for (int i = 0; i < header.metadata.count && !status; i++)
        if (!take_text(index, &header.metadata.item[i]))
            status = wrong_text(path, &header.metadata.item[i]);
    return status ? status : keep_index_settle(index, path);
}

bool keep_single_is_ours(const char *path)
{
    struct keep_index index = {.nonce = 0};
    struct safetensors_header header = {.data_at = 0};
    char error[1024];
    snprintf(error, sizeof error, "%s", weir_error());
    bool ours = false, read = keep_single_header(&index, path, path, &header) == WEIR_OK;
    for (int i = 0; read && i < header.metadata.count; i++)
        ours |= !strcmp(header.metadata.item[i].key, "weir.plan");
    if (!read)
        error_set(WEIR_OK, "%s", error);
    keep_index_free(&index);
    return ours;
}

/* ---- writing ---- */

static void add_text(struct keep_index *index, struct safetensors_header *header, const char *key, const char *value)
{
    struct safetensors_text *to = POOL_PUSH(&index->pool, &header->metadata);
    if (to)
        *to = (struct safetensors_text){key, value};
}

static void add_facts(struct keep_index *index, struct safetensors_header *header)
{
    struct pool *p = &index->pool;
    const weir_checkpoint_info *info = &index->info;
    add_text(index, header, "format", "pt");
    add_text(index, header, "weir.step", pool_text(p, "%" PRId64, info->step));
    add_text(index, header, "weir.seed", pool_text(p, "%016" PRIx64, info->seed));
    add_text(index, header, "weir.plan", pool_text(p, "%016" PRIx64, info->plan_hash));
    add_text(index, header, "weir.graph", pool_text(p, "%016" PRIx64, info->graph_hash));
    add_text(index, header, "weir.program", info->program);
}

static void add_source(struct keep_index *index, struct safetensors_header *header, const weir_checkpoint_source *s)
{
    char *hex = pool_alloc(&index->pool, 2 * s->count + 1);
    for (size_t i = 0; hex && i < s->count; i++)
        snprintf(hex + 2 * i, 3, "%02x", ((const unsigned char *)s->bytes)[i]);
    add_text(index, header, pool_text(&index->pool, "weir.source:%d:%s", s->rank, s->name), hex);
}

static weir_status add_stored(struct keep_index *index, struct safetensors_header *header,
                              const weir_checkpoint_tensor *t)
{
    struct pool *p = &index->pool;
    struct safetensors_tensor *to = POOL_PUSH(p, &header->tensors);
    if (!to)
        return no_memory(t->name);
    *to = (struct safetensors_tensor){.name = t->name, .dtype = safetensors_dtype_of(t->dtype), .shape = t->shape};
    if (t->kind != WEIR_PARAMETER)
        add_text(index, header, pool_text(p, "weir.kind:%s", t->name), keep_kind_name(t->kind));
    if (t->frozen)
        add_text(index, header, pool_text(p, "weir.frozen:%s", t->name), "true");
    if (t->slots == 1)
        return WEIR_OK;
    if (t->shape.rank == WEIR_DIMS_MAX)
        return error_set(WEIR_E_UNSUPPORTED, "tensor %s: has no dimension left that could count its %d values", t->name,
                         t->slots);
    memmove(to->shape.dim + 1, to->shape.dim, (size_t)to->shape.rank++ * sizeof *to->shape.dim);
    to->shape.dim[0] = t->slots;
    add_text(index, header, pool_text(p, "weir.slots:%s", t->name), pool_text(p, "%d", t->slots));
    return WEIR_OK;
}

/* Wide elements first, so that all are aligned; *order gets which data goes where. */
static weir_status make_header(struct keep_index *index, struct safetensors_header *header, int *order)
{
    weir_status status = WEIR_OK;
    int count = 0;
    add_facts(index, header);
    for (int i = 0; i < index->sources.count; i++)
        add_source(index, header, &index->sources.item[i]);
    for (size_t bytes = 8; bytes; bytes /= 2)
        for (int i = 0; i < index->tensors.count && !status; i++)
            if (weir_dtype_bytes(index->tensors.item[i].is.dtype) == bytes) {
                order[count++] = i;
                status = add_stored(index, header, &index->tensors.item[i].is);
            }
    return !status && index->pool.failed ? no_memory(index->info.path) : status;
}

static bool write_file(const struct safetensors_header *header, const void *bytes, const void *const *data,
                       const int *order, const char *path)
{
    const struct keep_files *files = &keep_files_system;
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    bool ok = fd >= 0 && keep_write_all(files, fd, bytes, header->data_at);
    for (int i = 0; i < header->tensors.count && ok; i++)
        ok = keep_write_all(files, fd, data[order[i]], header->tensors.item[i].end - header->tensors.item[i].begin);
    ok = ok && keep_sync(files, fd);
    int why = errno;
    if (fd >= 0)
        ok = close(fd) == 0 && ok;
    errno = ok ? errno : why;
    return ok;
}

weir_status keep_single_write(struct keep_index *index, const void *const *data, const char *path, uint64_t nonce)
{
    struct safetensors_header header = {.data_at = 0};
    struct pool *p = &index->pool;
    char *target = replaced_target(path); /* a link stays, and the file that it leads to is replaced */
    if (!target)
        return error_set(WEIR_E_IO, "%s: cannot be written: %s", path,
                         errno == EINVAL ? "it is neither a file nor a link to one" : strerror(errno));
    const char *file = pool_text(p, "%s", target);
    free(target);
    const char *temporary = pool_text(p, "%s.%016" PRIx64 ".tmp", file ? file : "", nonce);
    char *folder = pool_text(p, "%s", file ? file : "");
    int *order = POOL_NEW(p, int, index->tensors.count);
    if (!file || !temporary || !folder || !order)
        return no_memory(path);
    weir_status status = make_header(index, &header, order);
    const void *bytes = status ? NULL : safetensors_encode(p, &header);
    if (!bytes)
        return status ? status : WEIR_E_MEMORY;
    folder = dirname(folder);
    bool ok = keep_make_folders(&keep_files_system, folder) && write_file(&header, bytes, data, order, temporary) &&
              rename(temporary, file) == 0 && keep_sync_folder(&keep_files_system, folder);
    if (!ok)
        status = error_set(WEIR_E_IO, "%s: cannot be written: %s", path, strerror(errno));
    if (!ok)
        unlink(temporary);
    return status;
}
