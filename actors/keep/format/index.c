/* actors/keep/format/index.c: what a checkpoint has: how an index grows, parts are merged, and what a complete one is.
 *
 * Completeness is proved by counting: shards within the tensor's bounds, no two of which overlap, hold every element
 * when they hold as many as there are. They are looked at in the order of the dimension that they are cut most in, and
 * each is compared with those before it that reach as far: with few where they make a grid, with all in the worst case.
 * So their number is bounded; a tensor has one for every device at most.
 *
 * Names are found in balanced trees, because names that a stranger chose may all have one hash.
 */
#define _GNU_SOURCE
#include "actors/keep/format/index.h"

#include "actors/keep/format/box.h"
#include "graph/base/base.h"
#include "graph/base/error.h"

#include <inttypes.h>
#include <search.h>
#include <stdlib.h>
#include <string.h>

/* The pool owns the entries of the tree. */
static void no_free(void *entry)
{
    (void)entry;
}

void keep_index_free(struct keep_index *index)
{
    tdestroy(index->named, no_free);
    pool_free(&index->pool);
    *index = (struct keep_index){.nonce = 0};
}

static weir_status no_memory(void)
{
    return error_set(WEIR_E_MEMORY, "no memory for a checkpoint's index");
}

bool keep_name_is_plain(const char *name)
{
    return *name && strcmp(name, ".") && strcmp(name, "..") && !strchr(name, '/') && strlen(name) < 250;
}

/* ---- growing ---- */

weir_status keep_index_add_file(struct keep_index *index, const char *name, uint64_t bytes, uint64_t checksum)
{
    weir_checkpoint_file *to = POOL_PUSH(&index->pool, &index->files);
    if (!to || !(to->name = pool_text(&index->pool, "%s", name)))
        return no_memory();
    to->bytes = bytes;
    to->checksum = checksum;
    return WEIR_OK;
}

struct name_entry {
    const char *name;
    int tensor; /* tensors move when their list grows */
};

static int by_entry(const void *a, const void *b)
{
    return strcmp(((const struct name_entry *)a)->name, ((const struct name_entry *)b)->name);
}

/* Takes those into the tree that came since the last time. */
static bool name_new_tensors(struct keep_index *index)
{
    for (; index->named_count < index->tensors.count; index->named_count++) {
        struct name_entry *entry = POOL_NEW(&index->pool, struct name_entry, 1);
        if (!entry)
            return false;
        *entry = (struct name_entry){index->tensors.item[index->named_count].is.name, index->named_count};
        if (!tsearch(entry, &index->named, by_entry)) {
            index->pool.failed = true;
            return false;
        }
    }
    return true;
}

struct keep_tensor *keep_index_look_up(struct keep_index *index, const char *name)
{
    const struct name_entry wanted = {.name = name};
    if (!name_new_tensors(index))
        return NULL;
    struct name_entry *const *found = tfind(&wanted, &index->named, by_entry);
    return found ? &index->tensors.item[(*found)->tensor] : NULL;
}

static bool same_tensor(const weir_checkpoint_tensor *a, const weir_checkpoint_tensor *b)
{
    return a->kind == b->kind && a->dtype == b->dtype && a->frozen == b->frozen && a->slots == b->slots &&
           weir_shape_equal(&a->shape, &b->shape);
}

weir_status keep_index_add_tensor(struct keep_index *index, const weir_checkpoint_tensor *tensor,
                                  struct keep_tensor **to)
{
    *to = keep_index_look_up(index, tensor->name);
    if (index->pool.failed)
        return no_memory();
    if (*to)
        return same_tensor(&(*to)->is, tensor) ? WEIR_OK
                                               : error_set(WEIR_E_ARGUMENT, "tensor %s: shards of it differ in shape, "
                                                           "type or kind of the whole", tensor->name);
    *to = POOL_PUSH(&index->pool, &index->tensors);
    if (!*to)
        return no_memory();
    (*to)->is = *tensor;
    (*to)->is.name = pool_text(&index->pool, "%s", tensor->name);
    (*to)->is.shard = NULL;
    (*to)->is.shard_count = 0;
    return (*to)->is.name ? WEIR_OK : no_memory();
}

weir_status keep_index_add_shard(struct keep_index *index, struct keep_tensor *to, const weir_checkpoint_shard *shard)
{
    weir_checkpoint_shard *made = POOL_PUSH(&index->pool, &to->shards);
    if (!made)
        return no_memory();
    *made = *shard;
    made->key = pool_text(&index->pool, "%s", shard->key);
    return made->key ? WEIR_OK : no_memory();
}

weir_status keep_index_add_source(struct keep_index *index, const weir_checkpoint_source *source)
{
    weir_checkpoint_source *to = POOL_PUSH(&index->pool, &index->sources);
    if (!to)
        return no_memory();
    *to = *source;
    to->name = pool_text(&index->pool, "%s", source->name);
    to->bytes = pool_copy(&index->pool, source->bytes, source->count);
    return to->name && to->bytes ? WEIR_OK : no_memory();
}

/* ---- merging ---- */

static weir_status merge_tensor(struct keep_index *index, const struct keep_tensor *from, int first_file)
{
    struct keep_tensor *to;
    weir_status status = keep_index_add_tensor(index, &from->is, &to);
    for (int i = 0; i < from->shards.count && !status; i++) {
        weir_checkpoint_shard shard = from->shards.item[i];
        shard.file += first_file;
        status = keep_index_add_shard(index, to, &shard);
    }
    return status;
}

weir_status keep_index_merge(struct keep_index *index, const struct keep_index *part, const char *where)
{
    int first_file = index->files.count;
    weir_status status = WEIR_OK;
    if (part->nonce != index->nonce || part->info.step != index->info.step ||
        part->info.graph_hash != index->info.graph_hash)
        return error_set(WEIR_E_IO, "%s: belongs to another checkpoint", where);
    for (int i = 0; i < part->files.count && !status; i++)
        status = keep_index_add_file(index, part->files.item[i].name, part->files.item[i].bytes,
                                     part->files.item[i].checksum);
    for (int i = 0; i < part->tensors.count && !status; i++)
        status = merge_tensor(index, &part->tensors.item[i], first_file);
    for (int i = 0; i < part->sources.count && !status; i++)
        status = keep_index_add_source(index, &part->sources.item[i]);
    return status;
}

/* ---- settling ---- */

static int by_place(const void *a, const void *b)
{
    const weir_checkpoint_shard *x = a, *y = b;
    if (x->slot != y->slot)
        return x->slot < y->slot ? -1 : 1;
    for (int d = 0; d < x->shape.rank; d++)
        if (x->start[d] != y->start[d])
            return x->start[d] < y->start[d] ? -1 : 1;
    return x->file != y->file ? (x->file < y->file ? -1 : 1) : 0;
}

static struct keep_box box_of(const weir_checkpoint_shard *shard)
{
    return keep_box_of(shard->start, &shard->shape);
}

static bool replicas(const weir_checkpoint_shard *a, const weir_checkpoint_shard *b)
{
    struct keep_box x = box_of(a), y = box_of(b);
    return a->slot == b->slot && a->checksum == b->checksum && keep_box_equal(&x, &y);
}

static void drop_replicas(struct keep_tensor *tensor)
{
    int kept = 0;
    weir_checkpoint_shard *shard = tensor->shards.item;
    if (tensor->shards.count)
        qsort(shard, (size_t)tensor->shards.count, sizeof *shard, by_place);
    for (int i = 0; i < tensor->shards.count; i++)
        if (!kept || !replicas(&shard[kept - 1], &shard[i]))
            shard[kept++] = shard[i];
    tensor->shards.count = kept;
}

#define SHARDS_MAX 16384 /* of one tensor */

/* A shard on its way along one dimension. */
struct span {
    int64_t start, reach; /* where it begins; where the last of it and of all before it ends */
    const weir_checkpoint_shard *shard;
};

static int by_start(const void *a, const void *b)
{
    const struct span *x = a, *y = b;
    if (x->start != y->start)
        return x->start < y->start ? -1 : 1;
    return (x->shard > y->shard) - (x->shard < y->shard);
}

/* Sorts the shards along a dimension; returns at how many places they begin there. */
static int lay_out(struct span *span, const weir_checkpoint_shard *shard, int count, int d)
{
    int starts = count > 0;
    for (int i = 0; i < count; i++)
        span[i] = (struct span){shard[i].start[d], 0, &shard[i]};
    qsort(span, (size_t)count, sizeof *span, by_start);
    for (int i = 0; i < count; i++) {
        int64_t end = span[i].start + span[i].shard->shape.dim[d];
        span[i].reach = i && span[i - 1].reach > end ? span[i - 1].reach : end;
        starts += i && span[i].start != span[i - 1].start;
    }
    return starts;
}

/* The first shard in the order that overlaps one before it, or NULL. */
static const weir_checkpoint_shard *overlapping(const struct span *span, int count)
{
    struct keep_box common;
    for (int b = 1; b < count; b++) {
        struct keep_box box = box_of(span[b].shard);
        for (int a = b - 1; a >= 0 && span[a].reach > span[b].start; a--) {
            struct keep_box other = box_of(span[a].shard);
            if (keep_box_common(&other, &box, &common) && keep_box_count(&common))
                return span[b].shard;
        }
    }
    return NULL;
}

/* *found: a shard of these that overlaps another, or NULL. */
static weir_status find_overlap(const weir_checkpoint_shard *shard, int count, const weir_checkpoint_shard **found)
{
    int best = 0, most = 0;
    *found = NULL;
    if (count < 2)
        return WEIR_OK;
    struct span *span = malloc((size_t)count * sizeof *span);
    if (!span)
        return no_memory();
    for (int d = 0; d < shard->shape.rank; d++) {
        int starts = lay_out(span, shard, count, d);
        best = starts > most ? d : best;
        most = starts > most ? starts : most;
    }
    if (shard->shape.rank)
        lay_out(span, shard, count, best);
    *found = shard->shape.rank ? overlapping(span, count) : &shard[1];
    free(span);
    return WEIR_OK;
}

static weir_status shard_error(const struct keep_index *index, const char *where, const struct keep_tensor *tensor,
                               const weir_checkpoint_shard *shard, const char *what)
{
    return error_set(WEIR_E_IO, "%s: tensor %s: its shard %s in %s %s", where, tensor->is.name, shard->key,
                     index->files.item[shard->file].name, what);
}

static weir_status check_shard(const struct keep_index *index, const char *where, const struct keep_tensor *tensor,
                               const weir_checkpoint_shard *shard)
{
    struct keep_box box = box_of(shard);
    uint64_t file_bytes = index->files.item[shard->file].bytes;
    if (!keep_box_inside(&box, &tensor->is.shape) || shard->slot >= tensor->is.slots)
        return shard_error(index, where, tensor, shard, "is outside of the tensor");
    if (shard->offset > file_bytes || shard->bytes > file_bytes - shard->offset)
        return shard_error(index, where, tensor, shard, "is outside of the file");
    return WEIR_OK;
}

/* Every element of the slots counted from `shard` on is there once, in a part at most once; *at moves on to the next
 * slot's shards. */
static weir_status check_slot(const struct keep_index *index, const char *where, const struct keep_tensor *tensor,
                              int slot, bool part, int *at)
{
    int first = *at;
    const weir_checkpoint_shard *overlap;
    int64_t count = 0, want = weir_shape_count(&tensor->is.shape);
    for (; *at < tensor->shards.count && tensor->shards.item[*at].slot == slot; ++*at)
        count += weir_shape_count(&tensor->shards.item[*at].shape);
    weir_status status = find_overlap(tensor->shards.item + first, *at - first, &overlap);
    if (status)
        return status;
    if (overlap)
        return shard_error(index, where, tensor, overlap,
                           "overlaps another, and they differ or have not the same bounds");
    if (count != want && !part)
        return error_set(WEIR_E_IO, "%s: tensor %s: %" PRId64 " of its %" PRId64 " elements are in no shard", where,
                         tensor->is.name, want - count, want);
    return WEIR_OK;
}

static weir_status settle_tensor(struct keep_index *index, const char *where, struct keep_tensor *tensor, bool part)
{
    weir_status status = WEIR_OK;
    int at = 0;
    if (tensor->shards.count > SHARDS_MAX)
        return error_set(WEIR_E_IO, "%s: tensor %s: has %d shards; weir reads at most %d", where, tensor->is.name,
                         tensor->shards.count, SHARDS_MAX);
    for (int i = 0; i < tensor->shards.count && !status; i++)
        status = check_shard(index, where, tensor, &tensor->shards.item[i]);
    if (!status)
        drop_replicas(tensor);
    for (int slot = 0; slot < tensor->is.slots && !status; slot++)
        status = check_slot(index, where, tensor, slot, part, &at);
    tensor->is.shard = tensor->shards.item;
    tensor->is.shard_count = tensor->shards.count;
    return status;
}

static int by_name(const void *a, const void *b)
{
    const struct keep_tensor *x = *(struct keep_tensor *const *)a, *y = *(struct keep_tensor *const *)b;
    return strcmp(x->is.name, y->is.name);
}

static weir_status sort_names(struct keep_index *index, const char *where)
{
    index->sorted = POOL_NEW(&index->pool, struct keep_tensor *, index->tensors.count);
    if (!index->sorted)
        return no_memory();
    for (int i = 0; i < index->tensors.count; i++)
        index->sorted[i] = &index->tensors.item[i];
    if (index->tensors.count)
        qsort(index->sorted, (size_t)index->tensors.count, sizeof *index->sorted, by_name);
    for (int i = 1; i < index->tensors.count; i++)
        if (!strcmp(index->sorted[i - 1]->is.name, index->sorted[i]->is.name))
            return error_set(WEIR_E_IO, "%s: tensor %s: is there twice", where, index->sorted[i]->is.name);
    return WEIR_OK;
}

static weir_status settle(struct keep_index *index, const char *where, bool part)
{
    weir_status status = sort_names(index, where);
    for (int i = 0; i < index->tensors.count && !status; i++)
        status = settle_tensor(index, where, &index->tensors.item[i], part);
    index->info.files = index->files.count;
    index->info.tensors = index->tensors.count;
    index->info.sources = index->sources.count;
    index->info.bytes = 0;
    for (int i = 0; i < index->files.count; i++)
        index->info.bytes += index->files.item[i].bytes;
    return status;
}

weir_status keep_index_settle(struct keep_index *index, const char *where)
{
    return settle(index, where, false);
}

weir_status keep_index_settle_part(struct keep_index *index, const char *where)
{
    return settle(index, where, true);
}

const struct keep_tensor *keep_index_find(const struct keep_index *index, const char *name)
{
    const struct keep_tensor wanted = {.is.name = name}, *key = &wanted;
    if (!index->tensors.count)
        return NULL;
    struct keep_tensor **found =
        bsearch(&key, index->sorted, (size_t)index->tensors.count, sizeof *index->sorted, by_name);
    return found ? *found : NULL;
}
