/* actors/keep/format/gguf.c: the tensors of a GGUF file. graph/base/gguf.h reads the header's parts.
 *
 * Offsets of tensors are claims of their own: sorted by their first byte, tensors must not overlap. Holes are allowed, as each tensor
 * is padded to the alignment.
 */
#define _GNU_SOURCE
#include "actors/keep/format/gguf.h"

#include "actors/keep/format/files.h"
#include "graph/base/base.h"
#include "graph/base/error.h"
#include "graph/base/gguf.h"
#include "graph/base/reading.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- texts that are kept ---- */

static bool is_utf8(const char *text, size_t length)
{
    json_t *json = json_stringn(text, length);
    json_decref(json);
    return json;
}

/* "" after a fault. */
static const char *take_text(struct gguf *g, struct pool *p, const char *of)
{
    const uint64_t length = gguf_take_u64(g);
    if (!g->fault && length > GGUF_NAME_MAX && length <= g->end - g->at)
        gguf_failed(g, GGUF_DAMAGED, "%s: %s has %" PRIu64 " bytes, at most %d are allowed", g->part, of, length, GGUF_NAME_MAX);
    if (!g->fault && length > g->end - g->at)
        gguf_cut(g);
    char *text = g->fault ? NULL : pool_alloc(p, (size_t)length + 1);
    if (!text || !gguf_take(g, text, (size_t)length))
        return "";
    if (strlen(text) != length || !is_utf8(text, (size_t)length))
        gguf_failed(g, GGUF_DAMAGED, "%s: %s is not a text in UTF-8", g->part, of);
    return text;
}

/* ---- key/values ---- */

static void take_architecture(struct gguf *g, struct pool *p, const struct gguf_value *v, struct gguf_header *header)
{
    gguf_once(g, header->architecture);
    if (v->array || v->type != GGUF_TEXT)
        gguf_wrong_type(g, v->array ? GGUF_ARRAY : v->type);
    header->architecture = take_text(g, p, "it");
}

static void take_alignment(struct gguf *g, const struct gguf_value *v, struct gguf_header *header)
{
    gguf_once(g, header->alignment);
    if (v->array || v->type != GGUF_U32)
        gguf_wrong_type(g, v->array ? GGUF_ARRAY : v->type);
    const uint32_t alignment = gguf_take_u32(g);
    if (!alignment || (alignment & (alignment - 1)))
        gguf_failed(g, GGUF_DAMAGED, "general.alignment is %" PRIu32 "; only powers of two are allowed", alignment);
    else
        header->alignment = alignment;
}

static void take_pair(struct gguf *g, struct pool *p, uint64_t pair, uint64_t pairs, struct gguf_header *header)
{
    char key[GGUF_KEY_BYTES];
    struct gguf_value v = {.key = NULL};
    if (!gguf_next_pair(g, pair, pairs, key, &v))
        return;
    if (!strcmp(key, "general.architecture"))
        take_architecture(g, p, &v, header);
    else if (!strcmp(key, "general.alignment"))
        take_alignment(g, &v, header);
    else
        gguf_skip_value(g, &v);
}

/* ---- tensors ---- */

static void fault_of_tensor(struct gguf *g, const struct gguf_tensor *t, const char *why)
{
    gguf_failed(g, GGUF_DAMAGED, "tensor %s: %s", t->name, why);
}

/* The file's dimensions begin with the one whose elements are neighbours. */
static void take_shape(struct gguf *g, struct gguf_tensor *t)
{
    const uint32_t dims = gguf_take_u32(g);
    if (dims > GGUF_DIMS_MAX) {
        gguf_failed(g, GGUF_DAMAGED, "tensor %s: has %" PRIu32 " dimensions, at most %d are allowed", t->name, dims, GGUF_DIMS_MAX);
        return;
    }
    t->shape.rank = (int)dims;
    for (int d = t->shape.rank - 1; d >= 0 && !g->fault; d--)
        t->shape.dim[d] = (int64_t)gguf_take_u64(g);
    if (!g->fault && !shape_countable(&t->shape))
        fault_of_tensor(g, t, "has more elements than can be counted");
}

static void take_place(struct gguf *g, const struct gguf_header *header, struct gguf_tensor *t)
{
    t->number = gguf_take_u32(g);
    t->begin = gguf_take_u64(g);
    t->end = t->begin;
    t->type = gguf_type_of(t->number);
    if (t->begin % header->alignment)
        gguf_failed(g, GGUF_DAMAGED, "tensor %s: its data begins at byte %" PRIu64 ", which is no multiple of the alignment, %" PRIu32,
                    t->name, t->begin, header->alignment);
    if (g->fault || !t->type)
        return;
    const int64_t row = t->shape.rank ? t->shape.dim[t->shape.rank - 1] : 1;
    if (row % t->type->elements)
        gguf_failed(g, GGUF_DAMAGED, "tensor %s: has rows of %" PRId64 " elements; those of %s are multiples of %d", t->name, row,
                    t->type->name, t->type->elements);
    else if (__builtin_add_overflow(t->begin, (uint64_t)(weir_shape_count(&t->shape) / t->type->elements) *
                                    (uint64_t)t->type->bytes, &t->end))
        fault_of_tensor(g, t, "its data is not in the file");
}

static void take_tensor(struct gguf *g, struct pool *p, struct gguf_header *header)
{
    struct gguf_tensor t = {.name = take_text(g, p, "its name")}, *to;
    snprintf(g->part, sizeof g->part, "tensor %s", t.name);
    take_shape(g, &t);
    take_place(g, header, &t);
    if (!g->fault && (to = POOL_PUSH(p, &header->tensors)))
        *to = t;
}

/* ---- the data ---- */

static int by_data(const void *a, const void *b)
{
    const struct gguf_tensor *x = a, *y = b;
    if (x->begin != y->begin)
        return x->begin < y->begin ? -1 : 1;
    return x->end != y->end ? (x->end < y->end ? -1 : 1) : strcmp(x->name, y->name);
}

/* Everything lies in the file, and nothing overlaps. */
static weir_status check_data(struct gguf_header *header, const char *file, uint64_t data_bytes)
{
    struct gguf_tensor *t = header->tensors.item;
    uint64_t at = 0;
    if (header->tensors.count)
        qsort(t, (size_t)header->tensors.count, sizeof *t, by_data);
    for (int i = 0; i < header->tensors.count; i++) {
        if (!t[i].type) /* of a size that nobody knows */
            t[i].end = i + 1 < header->tensors.count ? t[i + 1].begin : data_bytes;
        if (t[i].begin > t[i].end || t[i].end > data_bytes)
            return error_set(WEIR_E_IO, "%s: tensor %s: its data, bytes %" PRIu64 " to %" PRIu64
                             ", is not in the file, which has %" PRIu64 " bytes of data",
                             file, t[i].name, t[i].begin, t[i].end, data_bytes);
        if (t[i].begin < at)
            return error_set(WEIR_E_IO, "%s: tensor %s: its data overlaps that of %s", file, t[i].name, t[i - 1].name);
        at = t[i].end;
    }
    return WEIR_OK;
}

/* ---- the header ---- */

static void take_header(struct gguf *g, struct pool *p, struct gguf_header *header)
{
    uint64_t tensors, pairs;
    gguf_take_counts(g, &tensors, &pairs);
    for (uint64_t i = 0; i < pairs && !g->fault; i++)
        take_pair(g, p, i, pairs, header);
    header->alignment = header->alignment ? header->alignment : GGUF_ALIGNMENT;
    for (uint64_t i = 0; i < tensors && !g->fault && !p->failed; i++) {
        snprintf(g->part, sizeof g->part, "tensor %" PRIu64 " of %" PRIu64, i, tensors);
        take_tensor(g, p, header);
    }
}

weir_status gguf_read(struct pool *p, const char *file, int fd, struct gguf_header *header)
{
    struct gguf g;
    *header = (struct gguf_header){.data_at = 0};
    const bool opened = gguf_open(&g, fd);
    if (opened)
        take_header(&g, p, header);
    if (p->failed)
        return error_set(WEIR_E_MEMORY, "%s: no memory for its header", file);
    if (!opened || g.fault)
        return error_set(g.fault == GGUF_UNSUPPORTED ? WEIR_E_UNSUPPORTED : WEIR_E_IO, "%s: %s", file, g.why);
    header->file_bytes = g.file_bytes;
    header->data_at = (g.at + header->alignment - 1) / header->alignment * header->alignment;
    return check_data(header, file, g.file_bytes > header->data_at ? g.file_bytes - header->data_at : 0);
}

/* ---- as a checkpoint ---- */

bool keep_gguf_is(const char *path)
{
    static const char ending[] = ".gguf";
    char magic[4] = "";
    const char *why;
    const size_t length = strlen(path);
    if (length >= sizeof ending && !strcmp(path + length - (sizeof ending - 1), ending))
        return true;
    int fd = reading_open(path, &why);
    bool is = fd >= 0 && keep_read_all(fd, 0, magic, sizeof magic) && !memcmp(magic, "GGUF", 4);
    if (fd >= 0)
        close(fd);
    return is;
}

static weir_status add_tensor(struct keep_index *index, const struct gguf_tensor *t, uint64_t data_at)
{
    struct keep_tensor *to = POOL_PUSH(&index->pool, &index->tensors);
    weir_checkpoint_shard shard = {.key = t->name, .shape = t->shape, .offset = data_at + t->begin, .bytes = t->end - t->begin};
    if (!to || !POOL_ROOM(&index->pool, &to->shards, 1))
        return error_set(WEIR_E_MEMORY, "%s: no memory for its header", t->name);
    to->is = (weir_checkpoint_tensor){.name = t->name, .slots = 1, .shape = t->shape};
    to->is.dtype = t->type ? t->type->read_as : WEIR_DTYPE_NONE;
    to->is.stored = t->type ? t->type->name : pool_text(&index->pool, "type %" PRIu32, t->number);
    if (!to->is.dtype)
        to->is.unread = pool_text(&index->pool, "its type, %s, is not read", to->is.stored ? to->is.stored : "");
    if (!to->is.stored || (!to->is.dtype && !to->is.unread))
        return error_set(WEIR_E_MEMORY, "%s: no memory for its header", t->name);
    return keep_index_add_shard(index, to, &shard);
}

weir_status keep_gguf_read(struct keep_index *index, const char *path)
{
    struct gguf_header header = {.data_at = 0};
    const char *why;
    int fd = reading_open(path, &why);
    if (fd < 0)
        return error_set(WEIR_E_IO, "%s: cannot be read: %s", path, why);
    weir_status status = gguf_read(&index->pool, path, fd, &header);
    close(fd);
    index->info = (weir_checkpoint_info){.step = -1, .program = "", .ranks = 1, .architecture = header.architecture};
    index->info.path = pool_text(&index->pool, "%s", path);
    index->unsummed = true;
    index->gguf = true;
    if (!status)
        status = keep_index_add_file(index, path, header.file_bytes, 0);
    for (int i = 0; i < header.tensors.count && !status; i++)
        status = add_tensor(index, &header.tensors.item[i], header.data_at);
    return status ? status : keep_index_settle(index, path);
}
