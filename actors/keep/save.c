/* actors/keep/save.c: writes one checkpoint, as one of the ranks that hold its shards.
 *
 * A rank's shards become one safetensors file: the header is known before any byte of data, so the file is written from
 * its beginning to its end, out of the caller's memory, in large writes. Checksums are made on the way: a block is
 * hashed and then written, so that the copy into the page cache finds it in the processor's. After every so many bytes
 * the system is asked to begin with bringing them to the disk, so that fsync does not find all of the work undone.
 *
 * Frozen shards are hashed first, because whether they are written depends on it.
 *
 * Ranks know of each other through the folder alone. It is told from another of the same name by its identity (device
 * and inode), which a rename leaves as it is: so a rank sees that the folder it wrote to has the final name.
 */
#define _GNU_SOURCE
#include "actors/keep/save.h"

#include "actors/keep/format/box.h"
#include "actors/keep/format/checksum.h"
#include "actors/keep/format/index.h"
#include "actors/keep/lock.h"
#include "actors/keep/own.h"
#include "actors/keep/root.h"
#include "actors/keep/format/safetensors.h"
#include "graph/base/base.h"
#include "graph/base/error.h"
#include "graph/base/text.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define BLOCK_BYTES ((size_t)1 << 20)    /* hashed and then written */
#define FLUSH_BYTES ((uint64_t)16 << 20) /* after so many the disk is to begin */
#define WAIT_MS_MAX 20                   /* between looks at what other ranks do */

/* A shard to be written: where its bytes are, and of which tensor of the index it is. */
struct shard {
    int tensor;
    const void *data;
    weir_checkpoint_shard is;
};

struct stream { /* one file */
    const char *name;
    POOL_LIST(struct shard) shards;
    const void *header;
    uint64_t header_bytes, bytes;
};

enum { CHANGING, FROZEN, STREAMS };

struct keep_save {
    struct pool pool; /* of all texts here */
    struct keep_save_opts opts;
    const char *temporary, *final;
    struct keep_identity folder;
    struct keep_index index;  /* this rank's part; on rank 0 at last the whole */
    struct stream stream[STREAMS];
    weir_checkpoint_lock *lock; /* on rank 0: of the root */
    bool begun;          /* no other save of this process is under way there */
    bool written;        /* all shards */
    bool mine_to_remove; /* the folder; no longer when it has its name, or the part is handed in */
    bool linked;
};

static weir_status io_error(const char *path, const char *what)
{
    return error_set(WEIR_E_IO, "%s: cannot be %s: %s", path, what, strerror(errno));
}

static weir_status no_memory(const struct keep_save *save)
{
    return error_set(WEIR_E_MEMORY, "%s: no memory to save it", save->opts.name);
}

/* Whether whoever saves wants it to end now. */
static bool stops(const struct keep_save *save, bool waits)
{
    return save->opts.stop && save->opts.stop(save->opts.stop_ctx, waits);
}

/* ---- beginning ---- */

static weir_status check_opts(const struct keep_save_opts *opts)
{
    if (!opts->root || !*opts->root || !opts->name || !keep_name_is_plain(opts->name) || opts->name[0] == '.')
        return error_set(WEIR_E_ARGUMENT, "\"%s\" in \"%s\" is no name for a checkpoint", opts->name ? opts->name : "",
                         opts->root ? opts->root : "");
    return WEIR_OK;
}

static bool copy_opts(struct keep_save *save, const struct keep_save_opts *opts)
{
    struct pool *p = &save->pool;
    save->opts = *opts;
    save->opts.ranks = opts->ranks > 0 ? opts->ranks : 1;
    save->opts.files = opts->files ? opts->files : &keep_files_system;
    save->opts.root = pool_text(p, "%s", opts->root);
    save->opts.name = pool_text(p, "%s", opts->name);
    save->temporary = pool_text(p, "%s/.%s.%016" PRIx64, opts->root, opts->name, opts->nonce);
    save->final = pool_text(p, "%s/%s", opts->root, opts->name);
    save->stream[CHANGING].name = pool_text(p, "rank-%04d.safetensors", opts->rank);
    save->stream[FROZEN].name = pool_text(p, "frozen-%04d.safetensors", opts->rank);
    save->index.nonce = opts->nonce;
    save->index.info = (weir_checkpoint_info){
        .path = save->final,
        .step = opts->facts.step,
        .seed = opts->facts.seed,
        .plan_hash = opts->facts.plan_hash,
        .graph_hash = opts->facts.graph_hash,
        .program = pool_text(p, "%s", opts->facts.program ? opts->facts.program : ""),
        .saved_s = (int64_t)time(NULL),
        .ranks = save->opts.ranks,
    };
    return !p->failed;
}

/* Whether the name is free, or a checkpoint has it that may be replaced. */
static weir_status check_place(const struct keep_save *save)
{
    char why[512];
    if (keep_owner_of(save->final, why, sizeof why) != KEEP_FOREIGN)
        return WEIR_OK;
    return error_set(WEIR_E_IO, "%s: is in the way, and a save replaces nothing but a checkpoint: %s; save under another "
                     "name, or move it away", save->final, why);
}

/* The lock of the root, and of the process's saves there. Then whatever crashed saves have left may go. */
static weir_status lock_root(struct keep_save *save)
{
    const struct keep_save_opts *o = &save->opts;
    weir_status status = keep_lock_take(o->root, o->wait_ns, &save->lock);
    if (status)
        return status;
    save->begun = keep_lock_begin(save->lock);
    if (!save->begun)
        return error_set(WEIR_E_IO, "%s: another save of this program is under way there; wait until it is done",
                         o->root);
    if (keep_lock_works(save->lock))
        keep_root_clean(o->files, o->root, o->name);
    return check_place(save);
}

/* An empty file says that the folder is a save's until there is an index. */
static weir_status mark_folder(struct keep_save *save)
{
    const char *path = pool_text(&save->pool, "%s/" KEEP_MARK_NAME, save->temporary);
    const struct keep_files *files = save->opts.files;
    int fd = path ? files->open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666) : -1;
    if (!path)
        return no_memory(save);
    return fd < 0 || files->close(fd) ? io_error(path, "made") : WEIR_OK;
}

static weir_status make_folder(struct keep_save *save)
{
    const struct keep_files *files = save->opts.files;
    if (!keep_make_folders(files, save->opts.root))
        return io_error(save->opts.root, "made a folder of checkpoints");
    weir_status status = lock_root(save);
    if (status)
        return status;
    if (files->mkdir(save->temporary, 0777))
        return io_error(save->temporary, "made");
    save->mine_to_remove = keep_identify(save->temporary, &save->folder);
    return save->mine_to_remove ? mark_folder(save) : io_error(save->temporary, "found");
}

/* On the other ranks: rank 0 has made it. */
static weir_status find_folder(struct keep_save *save)
{
    save->mine_to_remove = keep_identify(save->temporary, &save->folder);
    return save->mine_to_remove ? WEIR_OK
                                : error_set(WEIR_E_IO, "%s: is not there for rank %d: %s; a checkpoint of several ranks "
                                            "needs a folder that all of them see", save->temporary, save->opts.rank,
                                            strerror(errno));
}

struct keep_save *keep_save_begin(const struct keep_save_opts *opts)
{
    if (check_opts(opts))
        return NULL;
    struct keep_save *save = calloc(1, sizeof *save);
    if (!save) {
        error_set(WEIR_E_MEMORY, "no memory to save a checkpoint");
        return NULL;
    }
    weir_status status = !copy_opts(save, opts) ? no_memory(save)
                         : opts->rank == 0      ? make_folder(save)
                                                : find_folder(save);
    if (!status)
        return save;
    keep_save_free(save);
    return NULL;
}

/* Takes the folder away under a name that nobody looks for, and then from the disk. */
static void abandon(struct keep_save *save)
{
    struct keep_identity now;
    struct pool p = {0};
    const char *aside =
        pool_text(&p, "%s/.%s.%016" PRIx64, save->opts.root, save->opts.name, save->opts.nonce + 1);
    if (aside && keep_identify(save->temporary, &now) && keep_same(now, save->folder))
        keep_root_remove(save->opts.files, save->temporary, aside);
    pool_free(&p);
}

void keep_save_free(struct keep_save *save)
{
    if (!save)
        return;
    if (save->mine_to_remove)
        abandon(save);
    if (save->begun)
        keep_lock_end(save->lock);
    keep_lock_release(save->lock);
    keep_index_free(&save->index);
    pool_free(&save->pool);
    free(save);
}

/* ---- shards ---- */

/* "h0/q/weight", "h0/q/weight[0:16,32:64]", "cache{1}". */
static const char *key_of(struct pool *p, const struct keep_piece *piece)
{
    char place[WEIR_DIMS_MAX * 48] = "";
    struct text text = {place, sizeof place, 0, false};
    bool whole = weir_shape_equal(&piece->shape, &piece->tensor.shape);
    for (int d = 0; d < piece->shape.rank && !whole; d++)
        text_add(&text, "%s%" PRId64 ":%" PRId64, d ? "," : "[", piece->start[d],
                 piece->start[d] + piece->shape.dim[d]);
    if (!whole)
        text_add(&text, "]");
    if (piece->tensor.slots > 1)
        text_add(&text, "{%d}", piece->slot);
    return pool_text(p, "%s%s", piece->tensor.name, place);
}

static weir_status check_piece(const struct keep_piece *piece)
{
    const weir_checkpoint_tensor *t = &piece->tensor;
    struct keep_box box = keep_box_of(piece->start, &piece->shape);
    if (!weir_dtype_bytes(t->dtype) || !shape_countable(&t->shape) || t->slots > KEEP_SLOTS_MAX)
        return error_set(WEIR_E_ARGUMENT, "tensor %s: has no type or shape that can be saved", t->name);
    if (!keep_box_inside(&box, &t->shape) || piece->slot < 0 || piece->slot >= t->slots)
        return error_set(WEIR_E_ARGUMENT, "tensor %s: the shard is outside of it", t->name);
    return WEIR_OK;
}

weir_status keep_save_add(struct keep_save *save, const struct keep_piece *piece)
{
    struct keep_piece p = *piece;
    struct keep_tensor *tensor;
    p.tensor.slots = p.tensor.slots ? p.tensor.slots : 1;
    weir_status status = check_piece(&p);
    if (!status)
        status = keep_index_add_tensor(&save->index, &p.tensor, &tensor);
    if (status)
        return status;
    struct stream *stream = &save->stream[p.tensor.frozen ? FROZEN : CHANGING];
    struct shard *to = POOL_PUSH(&save->pool, &stream->shards);
    const char *key = key_of(&save->pool, &p);
    if (!to || !key)
        return no_memory(save);
    *to = (struct shard){.tensor = (int)(tensor - save->index.tensors.item), .data = p.data};
    to->is = (weir_checkpoint_shard){.key = key, .slot = p.slot, .shape = p.shape};
    memcpy(to->is.start, p.start, sizeof p.start);
    to->is.bytes = (uint64_t)weir_shape_count(&p.shape) * weir_dtype_bytes(p.tensor.dtype);
    stream->bytes += to->is.bytes;
    return WEIR_OK;
}

weir_status keep_save_add_source(struct keep_save *save, const char *name, const void *bytes, size_t count)
{
    return keep_save_copy_source(save, &(weir_checkpoint_source){name, save->opts.rank, bytes, count});
}

weir_status keep_save_copy_source(struct keep_save *save, const weir_checkpoint_source *source)
{
    return keep_index_add_source(&save->index, source);
}

uint64_t keep_save_bytes(const struct keep_save *save)
{
    return save->stream[CHANGING].bytes + save->stream[FROZEN].bytes;
}

/* ---- files ---- */

static const weir_checkpoint_tensor *tensor_of(const struct keep_save *save, const struct shard *shard)
{
    return &save->index.tensors.item[shard->tensor].is;
}

/* Wide elements first: then all of them are aligned, although the format has no holes. */
static bool order_shards(struct keep_save *save, struct stream *stream)
{
    struct shard *sorted = POOL_NEW(&save->pool, struct shard, stream->shards.count);
    int count = 0;
    for (size_t bytes = 8; bytes && sorted; bytes /= 2)
        for (int i = 0; i < stream->shards.count; i++)
            if (weir_dtype_bytes(tensor_of(save, &stream->shards.item[i])->dtype) == bytes)
                sorted[count++] = stream->shards.item[i];
    stream->shards.item = sorted;
    return sorted;
}

static weir_status make_header(struct keep_save *save, struct stream *stream)
{
    struct safetensors_header header = {.data_at = 0};
    if (!order_shards(save, stream))
        return no_memory(save);
    for (int i = 0; i < stream->shards.count; i++) {
        const struct shard *shard = &stream->shards.item[i];
        struct safetensors_tensor *to = POOL_PUSH(&save->pool, &header.tensors);
        if (!to)
            return no_memory(save);
        *to = (struct safetensors_tensor){.name = shard->is.key, .shape = shard->is.shape};
        to->dtype = safetensors_dtype_of(tensor_of(save, shard)->dtype);
    }
    if (!(stream->header = safetensors_encode(&save->pool, &header)))
        return WEIR_E_MEMORY;
    stream->header_bytes = header.data_at;
    for (int i = 0; i < stream->shards.count; i++)
        stream->shards.item[i].is.offset = header.data_at + header.tensors.item[i].begin;
    return WEIR_OK;
}

/* Asks the system to bring the file's last bytes to the disk, without waiting; a hint. */
static void flush(int fd, uint64_t *since, uint64_t at)
{
    if (at - *since < FLUSH_BYTES)
        return;
    sync_file_range(fd, (off_t)*since, (off_t)(at - *since), SYNC_FILE_RANGE_WRITE);
    *since = at;
}

static weir_status shard_error(const struct keep_save *save, const char *path, const struct shard *shard)
{
    return error_set(WEIR_E_IO, "%s: tensor %s cannot be written: %s", path, tensor_of(save, shard)->name,
                     strerror(errno));
}

/* Hashes and writes the shard's bytes. */
static weir_status write_shard(struct keep_save *save, const char *path, int fd, struct shard *shard,
                               uint64_t *flushed)
{
    struct keep_sum sum;
    keep_sum_begin(&sum);
    for (uint64_t at = 0; at < shard->is.bytes; at += BLOCK_BYTES) {
        size_t count = shard->is.bytes - at < BLOCK_BYTES ? (size_t)(shard->is.bytes - at) : BLOCK_BYTES;
        if (stops(save, false))
            return error_set(WEIR_E_CANCELLED, "%s: was given up while it was written", save->final);
        keep_sum_add(&sum, (const char *)shard->data + at, count);
        if (!keep_write_all(save->opts.files, fd, (const char *)shard->data + at, count))
            return shard_error(save, path, shard);
        flush(fd, flushed, shard->is.offset + at + count);
    }
    shard->is.checksum = keep_sum_end(&sum);
    return WEIR_OK;
}

static weir_status write_shards(struct keep_save *save, struct stream *stream, const char *path, int fd)
{
    uint64_t flushed = 0;
    if (!keep_write_all(save->opts.files, fd, stream->header, stream->header_bytes))
        return io_error(path, "written");
    weir_status status = WEIR_OK;
    for (int i = 0; i < stream->shards.count && !status; i++)
        status = write_shard(save, path, fd, &stream->shards.item[i], &flushed);
    if (!status && !keep_sync(save->opts.files, fd))
        status = io_error(path, "brought to the disk");
    return status;
}

static weir_status write_file(struct keep_save *save, struct stream *stream)
{
    const struct keep_files *files = save->opts.files;
    const char *path = pool_text(&save->pool, "%s/%s", save->temporary, stream->name);
    if (!path)
        return no_memory(save);
    int fd = files->open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (fd < 0)
        return io_error(path, "made");
    weir_status status = write_shards(save, stream, path, fd);
    if (files->close(fd) && !status)
        status = io_error(path, "written");
    return status;
}

/* ---- what is not written again ---- */

static bool same_shard(const struct keep_save *save, const struct keep_index *other, int file,
                       const struct shard *shard)
{
    const struct keep_tensor *tensor = keep_index_find(other, tensor_of(save, shard)->name);
    for (int i = 0; tensor && i < tensor->is.shard_count; i++) {
        const weir_checkpoint_shard *s = &tensor->is.shard[i];
        if (s->file == file && !strcmp(s->key, shard->is.key))
            return s->offset == shard->is.offset && s->checksum == shard->is.checksum;
    }
    return false;
}

/* Whether the file is, by the other's index, byte for byte what would be written. */
static bool same_file(const struct keep_save *save, const struct stream *stream, const struct keep_index *other)
{
    int file = 0;
    while (file < other->files.count && strcmp(other->files.item[file].name, stream->name) != 0)
        file++;
    if (file == other->files.count || other->files.item[file].bytes != stream->header_bytes + stream->bytes ||
        other->files.item[file].checksum != keep_sum_of(stream->header, stream->header_bytes))
        return false;
    for (int i = 0; i < stream->shards.count; i++)
        if (!same_shard(save, other, file, &stream->shards.item[i]))
            return false;
    return true;
}

static bool link_from(struct keep_save *save, const struct stream *stream, const char *folder)
{
    struct stat stat_of;
    const char *from = pool_text(&save->pool, "%s/%s", folder, stream->name);
    const char *to = pool_text(&save->pool, "%s/%s", save->temporary, stream->name);
    return from && to && lstat(from, &stat_of) == 0 && S_ISREG(stat_of.st_mode) &&
           (uint64_t)stat_of.st_size == stream->header_bytes + stream->bytes && save->opts.files->link(from, to) == 0;
}

/* Links the file from the newest checkpoint of the root, if it is the same there. */
static bool link_file(struct keep_save *save, struct stream *stream)
{
    char name[KEEP_STEP_NAME_BYTES];
    int64_t *steps = NULL;
    struct keep_index other;
    for (int i = 0; i < stream->shards.count; i++)
        stream->shards.item[i].is.checksum = keep_sum_of(stream->shards.item[i].data, stream->shards.item[i].is.bytes);
    int count = keep_root_steps(&save->pool, save->opts.root, &steps);
    if (count <= 0)
        return false;
    const char *folder = pool_text(&save->pool, "%s/%s", save->opts.root, keep_step_name(steps[count - 1], name));
    bool linked = folder && !keep_index_read_part(&other, folder) && same_file(save, stream, &other) &&
                  link_from(save, stream, folder);
    if (folder)
        keep_index_free(&other);
    return linked;
}

/* ---- the part ---- */

static weir_status note_file(struct keep_save *save, const struct stream *stream)
{
    int file = save->index.files.count;
    weir_status status = keep_index_add_file(&save->index, stream->name, stream->header_bytes + stream->bytes,
                                             keep_sum_of(stream->header, stream->header_bytes));
    for (int i = 0; i < stream->shards.count && !status; i++) {
        weir_checkpoint_shard shard = stream->shards.item[i].is;
        shard.file = file;
        status = keep_index_add_shard(&save->index, &save->index.tensors.item[stream->shards.item[i].tensor], &shard);
    }
    return status;
}

static weir_status write_stream(struct keep_save *save, struct stream *stream)
{
    if (!stream->shards.count)
        return WEIR_OK;
    weir_status status = make_header(save, stream);
    if (!status && stream == &save->stream[FROZEN])
        save->linked = link_file(save, stream);
    if (!status && !(save->linked && stream == &save->stream[FROZEN]))
        status = write_file(save, stream);
    return status ? status : note_file(save, stream);
}

static const char *part_path(struct keep_save *save, int rank, const char *ending)
{
    return pool_text(&save->pool, "%s/rank-%04d.%s", save->temporary, rank, ending);
}

/* The part has its name when it is whole, because rank 0 reads it as soon as it sees it. */
static weir_status hand_in(struct keep_save *save)
{
    const struct keep_files *files = save->opts.files;
    size_t count;
    const char *draft = part_path(save, save->opts.rank, "part"), *part = part_path(save, save->opts.rank, "json");
    char *text = draft && part ? keep_index_encode(&save->index, &count) : NULL;
    if (!text)
        return no_memory(save);
    bool ok = keep_write_file(files, draft, text, count) && files->rename(draft, part) == 0;
    free(text);
    if (ok)
        save->mine_to_remove = false;
    return ok ? WEIR_OK : io_error(draft, "written");
}

/* ---- waiting for each other ---- */

static void pause_ms(int ms)
{
    nanosleep(&(struct timespec){.tv_nsec = ms * 1000000L}, NULL);
}

static bool folder_is(const struct keep_save *save, const char *path)
{
    struct keep_identity now;
    return keep_identify(path, &now) && keep_same(now, save->folder);
}

static weir_status given_up(const struct keep_save *save)
{
    return error_set(WEIR_E_IO, "%s: is not written, because another rank could not write its part of it",
                     save->final);
}

/* Whether to `stop` is asked before a look at the folder, because what another rank did before it was lost counts.
 * WEIR_OK: go on waiting. */
static weir_status keep_waiting(const struct keep_save *save, bool stop, int *ms)
{
    if (stop)
        return error_set(WEIR_E_CANCELLED, "%s: was given up while it waited for other ranks", save->final);
    pause_ms(*ms);
    *ms = *ms < WAIT_MS_MAX ? *ms + 1 : WAIT_MS_MAX;
    return WEIR_OK;
}

/* Looks at the final name before the temporary one and after it: between the two the folder may have been renamed. */
static weir_status wait_for_name(const struct keep_save *save)
{
    weir_status status = WEIR_OK;
    for (int ms = 1; !status;) {
        bool stop = stops(save, true);
        if (folder_is(save, save->final))
            return WEIR_OK;
        if (!folder_is(save, save->temporary) && !folder_is(save, save->final))
            return given_up(save);
        status = keep_waiting(save, stop, &ms);
    }
    return status;
}

static weir_status wait_for_part(const struct keep_save *save, const char *path)
{
    weir_status status = WEIR_OK;
    for (int ms = 1; !status;) {
        bool stop = stops(save, true);
        if (access(path, F_OK) == 0)
            return WEIR_OK;
        if (!folder_is(save, save->temporary))
            return given_up(save);
        status = keep_waiting(save, stop, &ms);
    }
    return status;
}

static weir_status take_part(struct keep_save *save, int rank)
{
    struct keep_index part = {.nonce = 0};
    size_t count = 0;
    const char *why, *path = part_path(save, rank, "json");
    weir_status status = path ? wait_for_part(save, path) : no_memory(save);
    char *text = status ? NULL : keep_read_file(path, KEEP_INDEX_BYTES_MAX, &count, &why);
    if (!status && !text)
        status = error_set(WEIR_E_IO, "%s: cannot be read: %s", path, why);
    if (!status)
        status = keep_index_decode(&part, path, text, count);
    if (!status)
        status = keep_index_merge(&save->index, &part, path);
    if (!status && save->opts.files->unlinkat(AT_FDCWD, path, 0))
        status = io_error(path, "removed");
    keep_index_free(&part);
    free(text);
    return status;
}

/* ---- the whole ---- */

static weir_status write_index(struct keep_save *save)
{
    size_t count;
    const struct keep_files *files = save->opts.files;
    const char *path = pool_text(&save->pool, "%s/" KEEP_INDEX_NAME, save->temporary);
    const char *mark = pool_text(&save->pool, "%s/" KEEP_MARK_NAME, save->temporary);
    weir_status status = !path || !mark    ? no_memory(save)
                         : save->opts.part ? keep_index_settle_part(&save->index, save->final)
                                           : keep_index_settle(&save->index, save->final);
    char *text = status ? NULL : keep_index_encode(&save->index, &count);
    if (!text)
        return status ? status : WEIR_E_MEMORY;
    if (!keep_write_file(files, path, text, count))
        status = io_error(path, "written");
    else if (files->unlinkat(AT_FDCWD, mark, 0))
        status = io_error(mark, "removed");
    else if (!keep_sync_folder(files, save->temporary))
        status = io_error(save->temporary, "brought to the disk");
    free(text);
    return status;
}

static weir_status finish(struct keep_save *save)
{
    const struct keep_save_opts *o = &save->opts;
    weir_status status = WEIR_OK;
    for (int rank = 1; rank < o->ranks && !status; rank++)
        status = take_part(save, rank);
    if (!status)
        status = write_index(save);
    if (!status)
        status = check_place(save); /* again: this may be much later than the beginning */
    if (status)
        return status;
    if (!keep_root_publish(o->files, o->root, save->temporary, o->name, o->nonce))
        return io_error(save->final, "given its name");
    save->mine_to_remove = false;
    if (o->keep > 0 && keep_step_of(o->name) >= 0)
        keep_root_prune(o->files, o->root, &(struct keep_prune){keep_step_of(o->name), o->keep, o->nonce, o->tell,
                                                               o->tell_ctx});
    return WEIR_OK;
}

weir_status keep_save_write(struct keep_save *save)
{
    weir_status status = write_stream(save, &save->stream[FROZEN]);
    if (!status)
        status = write_stream(save, &save->stream[CHANGING]);
    save->written = !status;
    return status;
}

weir_status keep_save_run(struct keep_save *save)
{
    weir_status status = save->written ? WEIR_OK : keep_save_write(save);
    if (!status && save->opts.rank == 0)
        status = finish(save);
    else if (!status && !(status = hand_in(save)))
        status = wait_for_name(save);
    if (status && save->mine_to_remove) {
        abandon(save);
        save->mine_to_remove = false;
    }
    return status;
}

bool keep_save_linked(const struct keep_save *save)
{
    return save->linked;
}
