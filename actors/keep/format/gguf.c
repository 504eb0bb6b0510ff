/* actors/keep/format/gguf.c: the header of a GGUF file.
 *
 * The header has no length of its own, so it is read from front to back through a window, and each length in it is compared with the
 * bytes that are left. Offsets of tensors are claims of their own: sorted by their first byte, tensors must not overlap. Holes are
 * allowed, as each tensor is padded to the alignment.
 */
#define _GNU_SOURCE
#include "actors/keep/format/gguf.h"

#include "actors/keep/format/files.h"
#include "graph/base/base.h"
#include "graph/base/error.h"
#include "graph/base/reading.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- a header from front to back ---- */

#define WINDOW_BYTES ((size_t)1 << 16)

struct cursor {
    const char *file;
    int fd;
    uint64_t at, end, file_bytes; /* the next byte; the header ends before `end` */
    unsigned char *window;        /* of WINDOW_BYTES; owned by the pool */
    uint64_t window_at;
    size_t window_count;
    char part[160]; /* what is being read: "key 3 of 20" */
    weir_status status; /* of the first fault; nothing is read after it */
};

static bool cut_short(struct cursor *c)
{
    c->status = c->end < c->file_bytes
                    ? error_set(WEIR_E_IO, "%s: %s: its header would have more than %d bytes, at most so many are allowed",
                                c->file, c->part, GGUF_HEADER_MAX)
                    : error_set(WEIR_E_IO, "%s: is cut short, or damaged: %s would end behind the file's %" PRIu64 " bytes",
                                c->file, c->part, c->file_bytes);
    return false;
}

/* The next `count` bytes, at most a window's. False: there are none, and `to` is zero. */
static bool take(struct cursor *c, void *to, size_t count)
{
    memset(to, 0, count);
    if (c->status || count > c->end - c->at)
        return !c->status && cut_short(c);
    if (c->at < c->window_at || c->at - c->window_at + count > c->window_count) {
        const uint64_t left = c->file_bytes - c->at;
        c->window_at = c->at;
        c->window_count = left < WINDOW_BYTES ? (size_t)left : WINDOW_BYTES;
        if (!keep_read_all(c->fd, c->at, c->window, c->window_count)) {
            c->status = error_set(WEIR_E_IO, "%s: cannot be read: %s", c->file, keep_read_fault());
            return false;
        }
    }
    memcpy(to, c->window + (c->at - c->window_at), count);
    c->at += count;
    return true;
}

static void skip(struct cursor *c, uint64_t count, uint64_t each)
{
    if (!c->status && count > (c->end - c->at) / each)
        cut_short(c);
    else if (!c->status)
        c->at += count * each;
}

static uint32_t take_u32(struct cursor *c)
{
    uint32_t value;
    take(c, &value, sizeof value);
    return value;
}

static uint64_t take_u64(struct cursor *c)
{
    uint64_t value;
    take(c, &value, sizeof value);
    return value;
}

/* How many things of at least `least` bytes follow. */
static uint64_t take_count(struct cursor *c, const char *of, uint64_t least)
{
    const uint64_t count = take_u64(c);
    if (!c->status && count > (c->end - c->at) / least) {
        snprintf(c->part, sizeof c->part, "a list of %" PRIu64 " %s", count, of);
        cut_short(c);
    }
    return c->status ? 0 : count;
}

static bool is_utf8(const char *text, size_t length)
{
    json_t *json = json_stringn(text, length);
    json_decref(json);
    return json;
}

/* A text that is kept; "" after a fault. */
static const char *take_text(struct cursor *c, struct pool *p, const char *of)
{
    const uint64_t length = take_u64(c);
    if (!c->status && length > GGUF_NAME_MAX && length <= c->end - c->at)
        c->status = error_set(WEIR_E_IO, "%s: %s: %s has %" PRIu64 " bytes, at most %d are allowed", c->file, c->part, of,
                              length, GGUF_NAME_MAX);
    if (!c->status && length > c->end - c->at)
        cut_short(c);
    char *text = c->status ? NULL : pool_alloc(p, (size_t)length + 1);
    if (!text || !take(c, text, (size_t)length))
        return "";
    if (strlen(text) != length || !is_utf8(text, (size_t)length))
        c->status = error_set(WEIR_E_IO, "%s: %s: %s is not a text in UTF-8", c->file, c->part, of);
    return text;
}

/* ---- key/values ---- */

enum { VALUE_U32 = 4, VALUE_TEXT = 8, VALUE_ARRAY = 9, VALUES = 13 };
static const unsigned char value_bytes[VALUES] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8}; /* 0: not all alike */

static void wrong_type(struct cursor *c, uint32_t type)
{
    if (!c->status)
        c->status = error_set(WEIR_E_IO, "%s: %s: its value has type %" PRIu32 ", which is not allowed there", c->file,
                              c->part, type);
}

static void skip_text(struct cursor *c)
{
    skip(c, take_u64(c), 1);
}

static void skip_array(struct cursor *c)
{
    const uint32_t type = take_u32(c);
    const uint64_t count = take_u64(c);
    if (type < VALUES && value_bytes[type])
        skip(c, count, value_bytes[type]);
    else if (type != VALUE_TEXT)
        wrong_type(c, type);
    for (uint64_t i = 0; type == VALUE_TEXT && i < count && !c->status; i++)
        skip_text(c);
}

static void skip_value(struct cursor *c, uint32_t type)
{
    if (type == VALUE_TEXT)
        skip_text(c);
    else if (type == VALUE_ARRAY)
        skip_array(c);
    else if (type < VALUES)
        skip(c, 1, value_bytes[type]);
    else
        wrong_type(c, type);
}

/* A fact that other values depend on; a second one would give the file two meanings. */
static void twice(struct cursor *c)
{
    if (!c->status)
        c->status = error_set(WEIR_E_IO, "%s: %s: is there twice", c->file, c->part);
}

static void take_architecture(struct cursor *c, struct pool *p, uint32_t type, struct gguf_header *header)
{
    if (header->architecture)
        twice(c);
    if (type != VALUE_TEXT)
        wrong_type(c, type);
    header->architecture = take_text(c, p, "it");
}

static void take_alignment(struct cursor *c, uint32_t type, struct gguf_header *header)
{
    if (header->alignment)
        twice(c);
    if (type != VALUE_U32)
        wrong_type(c, type);
    header->alignment = take_u32(c);
    if (!c->status && (!header->alignment || (header->alignment & (header->alignment - 1))))
        c->status = error_set(WEIR_E_IO, "%s: general.alignment is %" PRIu32 "; only powers of two are allowed", c->file,
                              header->alignment);
}

enum { KEY_BYTES = 96 }; /* of a key that is looked at; no longer one is known */

static void take_key_value(struct cursor *c, struct pool *p, struct gguf_header *header)
{
    char key[KEY_BYTES] = "";
    const uint64_t length = take_u64(c);
    if (length < KEY_BYTES)
        take(c, key, (size_t)length);
    else
        skip(c, length, 1);
    if (strlen(key) != length) /* another key, though it may begin with one that is known and a zero */
        *key = '\0';
    if (*key)
        snprintf(c->part, sizeof c->part, "%s", key);
    const uint32_t type = take_u32(c);
    if (!strcmp(key, "general.architecture"))
        take_architecture(c, p, type, header);
    else if (!strcmp(key, "general.alignment"))
        take_alignment(c, type, header);
    else if (!c->status)
        skip_value(c, type);
}

/* ---- tensors ---- */

static void fault_of_tensor(struct cursor *c, const struct gguf_tensor *t, const char *why)
{
    if (!c->status)
        c->status = error_set(WEIR_E_IO, "%s: tensor %s: %s", c->file, t->name, why);
}

/* The file's dimensions begin with the one whose elements are neighbours. */
static void take_shape(struct cursor *c, struct gguf_tensor *t)
{
    const uint32_t dims = take_u32(c);
    if (!c->status && dims > GGUF_DIMS_MAX) {
        c->status = error_set(WEIR_E_IO, "%s: tensor %s: has %" PRIu32 " dimensions, at most %d are allowed", c->file, t->name,
                              dims, GGUF_DIMS_MAX);
        return;
    }
    t->shape.rank = (int)dims;
    for (int d = t->shape.rank - 1; d >= 0 && !c->status; d--)
        t->shape.dim[d] = (int64_t)take_u64(c);
    if (!c->status && !shape_countable(&t->shape))
        fault_of_tensor(c, t, "has more elements than can be counted");
}

static void take_place(struct cursor *c, const struct gguf_header *header, struct gguf_tensor *t)
{
    t->number = take_u32(c);
    t->begin = take_u64(c);
    t->end = t->begin;
    t->type = gguf_type_of(t->number);
    if (!c->status && t->begin % header->alignment)
        c->status = error_set(WEIR_E_IO, "%s: tensor %s: its data begins at byte %" PRIu64 ", which is no multiple of the "
                              "alignment, %" PRIu32, c->file, t->name, t->begin, header->alignment);
    if (c->status || !t->type)
        return;
    const int64_t row = t->shape.rank ? t->shape.dim[t->shape.rank - 1] : 1;
    if (row % t->type->elements)
        c->status = error_set(WEIR_E_IO, "%s: tensor %s: has rows of %" PRId64 " elements; those of %s are multiples of %d",
                              c->file, t->name, row, t->type->name, t->type->elements);
    else if (__builtin_add_overflow(t->begin, (uint64_t)(weir_shape_count(&t->shape) / t->type->elements) *
                                    (uint64_t)t->type->bytes, &t->end))
        fault_of_tensor(c, t, "its data is not in the file");
}

static void take_tensor(struct cursor *c, struct pool *p, struct gguf_header *header)
{
    struct gguf_tensor t = {.name = take_text(c, p, "its name")}, *to;
    snprintf(c->part, sizeof c->part, "tensor %s", t.name);
    take_shape(c, &t);
    take_place(c, header, &t);
    if (!c->status && (to = POOL_PUSH(p, &header->tensors)))
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

static void take_version(struct cursor *c)
{
    char magic[4];
    take(c, magic, sizeof magic);
    if (c->status || memcmp(magic, "GGUF", 4) != 0) {
        c->status = error_set(WEIR_E_IO, "%s: is not a GGUF file: it does not begin with GGUF", c->file);
        return;
    }
    const uint32_t version = take_u32(c);
    if (!c->status && version && !(version & 0xFFFF))
        c->status = error_set(WEIR_E_UNSUPPORTED, "%s: is a big-endian GGUF file; weir reads little-endian ones", c->file);
    else if (!c->status && version != 3)
        c->status = error_set(WEIR_E_UNSUPPORTED, "%s: is a GGUF file of version %" PRIu32 "; weir reads version 3", c->file,
                              version);
}

enum { ALIGNMENT = 32 }; /* where the file says nothing */

static weir_status take_header(struct cursor *c, struct pool *p, struct gguf_header *header)
{
    snprintf(c->part, sizeof c->part, "the header");
    take_version(c);
    const uint64_t tensors = take_count(c, "tensors", 24), keys = take_count(c, "key/values", 13);
    for (uint64_t i = 0; i < keys && !c->status; i++) {
        snprintf(c->part, sizeof c->part, "key %" PRIu64 " of %" PRIu64, i, keys);
        take_key_value(c, p, header);
    }
    header->alignment = header->alignment ? header->alignment : ALIGNMENT;
    for (uint64_t i = 0; i < tensors && !c->status && !p->failed; i++) {
        snprintf(c->part, sizeof c->part, "tensor %" PRIu64 " of %" PRIu64, i, tensors);
        take_tensor(c, p, header);
    }
    return c->status;
}

weir_status gguf_read(struct pool *p, const char *file, int fd, struct gguf_header *header)
{
    struct stat stat_of;
    *header = (struct gguf_header){.data_at = 0};
    if (fstat(fd, &stat_of))
        return error_set(WEIR_E_IO, "%s: cannot be read: %s", file, keep_read_fault());
    struct cursor c = {.file = file, .fd = fd, .file_bytes = (uint64_t)stat_of.st_size};
    header->file_bytes = c.file_bytes;
    c.end = c.file_bytes < GGUF_HEADER_MAX ? c.file_bytes : GGUF_HEADER_MAX;
    c.window = pool_alloc(p, WINDOW_BYTES);
    weir_status status = c.window ? take_header(&c, p, header) : WEIR_E_MEMORY;
    if (p->failed)
        return error_set(WEIR_E_MEMORY, "%s: no memory for its header", file);
    if (status)
        return status;
    header->data_at = (c.at + header->alignment - 1) / header->alignment * header->alignment;
    return check_data(header, file, c.file_bytes > header->data_at ? c.file_bytes - header->data_at : 0);
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
