/* graph/base/gguf.h: reads the header of a GGUF file, and the values of its keys
 * (https://github.com/ggml-org/ggml/blob/master/docs/gguf.md).
 *
 *     "GGUF", u32 3, u64 tensors, u64 pairs      little-endian, as all numbers
 *     pairs      a text, which is the key; u32 type; the value. Then come the tensors.
 *     a text     u64 bytes, and these bytes
 *     an array   u32 type, u64 count, and its elements
 *
 *     struct gguf g;
 *     struct gguf_value wanted[] = {{.key = "general.architecture"}, {.key = "llama.block_count"}};
 *     if (gguf_open(&g, fd) && gguf_find(&g, wanted, 2) && wanted[0].present && gguf_begin(&g, &wanted[0]) && gguf_next_text(&g, &bytes))
 *         ... g.text ...
 *     else if (g.fault)
 *         ... "%s: %s", path, g.why ...
 *     gguf_close(&g);
 *
 * The bytes are a stranger's. The header is read from front to back through a window, each length in it is compared with the bytes that
 * are left, and nothing but one text is kept. After the first fault each read fails and gives zeros, so a caller may look once, at the
 * end. gguf_find() goes once over all pairs and notes where the wanted values are; then each can be read in any order. Header-only,
 * because programs use it too; one thread.
 */
#ifndef GRAPH_BASE_GGUF_H
#define GRAPH_BASE_GGUF_H

#include <errno.h>
#include <inttypes.h>
#include <stddef.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { GGUF_U8, GGUF_I8, GGUF_U16, GGUF_I16, GGUF_U32, GGUF_I32, GGUF_F32, GGUF_BOOL, GGUF_TEXT, GGUF_ARRAY, GGUF_U64, GGUF_I64, GGUF_F64, GGUF_TYPES };
enum { GGUF_HEADER_MAX = 100000000, GGUF_TEXT_MAX = 1 << 20, GGUF_KEY_BYTES = 96, GGUF_WINDOW_BYTES = 1 << 13 };
enum { GGUF_ALIGNMENT = 32 }; /* of the data of tensors, where the file says nothing */
enum gguf_fault { GGUF_FINE, GGUF_DAMAGED, GGUF_UNSUPPORTED, GGUF_NO_MEMORY };

struct gguf {
    int fd;                       /* borrowed */
    uint64_t at, end, file_bytes; /* the next byte; the header ends before `end` */
    char *text;                   /* owned: the last text, and a zero byte */
    size_t room;
    enum gguf_fault fault;        /* the first */
    char part[160];               /* that is being read: "key 3 of 20" */
    char why[1400];               /* the end of a sentence that begins with the file's name */
    uint64_t window_at;
    size_t window_count;
    unsigned char window[GGUF_WINDOW_BYTES];
};

struct gguf_value {
    const char *key; /* set by the caller */
    bool present;
    uint32_t type;   /* of the value, or of the elements of an array */
    bool array;
    uint64_t count;  /* of elements; 1 if it is no array */
    uint64_t at;     /* in the file */
};

/* Whether the fault is the first, which it is from now on. */
static inline bool gguf_is_first(struct gguf *g, enum gguf_fault fault)
{
    const bool first = !g->fault;
    g->fault = first ? fault : g->fault;
    return first;
}

static inline bool gguf_is_over(bool noted)
{
    (void)noted;
    return false;
}

/* Notes a fault with its sentence, if it is the first. False. */
#define gguf_failed(g, fault, ...) gguf_is_over(gguf_is_first(g, fault) && snprintf((g)->why, sizeof(g)->why, __VA_ARGS__) > 0)

/* Begins to read an open file. */
static inline bool gguf_open(struct gguf *g, int fd)
{
    struct stat stat_of;
    memset(g, 0, offsetof(struct gguf, window));
    g->fd = fd;
    if (fstat(fd, &stat_of))
        return gguf_failed(g, GGUF_DAMAGED, "cannot be read: %s", strerror(errno));
    g->file_bytes = (uint64_t)stat_of.st_size;
    g->end = g->file_bytes < GGUF_HEADER_MAX ? g->file_bytes : GGUF_HEADER_MAX;
    snprintf(g->part, sizeof g->part, "the header");
    return true;
}

static inline void gguf_close(struct gguf *g)
{
    free(g->text);
    g->text = NULL;
}

static inline bool gguf_cut(struct gguf *g)
{
    return g->end < g->file_bytes
               ? gguf_failed(g, GGUF_DAMAGED, "%s: its header would have more than %d bytes, at most so many are allowed", g->part, GGUF_HEADER_MAX)
               : gguf_failed(g, GGUF_DAMAGED, "is cut short, or damaged: %s would end behind the file's %" PRIu64 " bytes", g->part, g->file_bytes);
}

/* Reads the window from g->at on. */
static inline bool gguf_move_window(struct gguf *g)
{
    ssize_t got;
    do
        got = pread(g->fd, g->window, sizeof g->window, (off_t)g->at);
    while (got < 0 && errno == EINTR);
    g->window_at = g->at;
    g->window_count = got > 0 ? (size_t)got : 0;
    return got > 0 || gguf_failed(g, GGUF_DAMAGED, "cannot be read: %s", got ? strerror(errno) : "it has become shorter");
}

/* The next `count` bytes. */
static inline bool gguf_take(struct gguf *g, void *to, size_t count)
{
    unsigned char *out = to;
    if (count)
        memset(to, 0, count);
    if (g->fault || count > g->end - g->at)
        return !g->fault && gguf_cut(g);
    while (count) {
        if ((g->at < g->window_at || g->at >= g->window_at + g->window_count) && !gguf_move_window(g))
            return false;
        const size_t from = (size_t)(g->at - g->window_at), left = g->window_count - from, some = count < left ? count : left;
        memcpy(out, g->window + from, some);
        out += some;
        count -= some;
        g->at += some;
    }
    return true;
}

static inline bool gguf_skip(struct gguf *g, uint64_t count, uint64_t each)
{
    if (g->fault || count > (g->end - g->at) / each)
        return !g->fault && gguf_cut(g);
    g->at += count * each;
    return true;
}

static inline uint32_t gguf_take_u32(struct gguf *g)
{
    uint32_t value;
    gguf_take(g, &value, sizeof value);
    return value;
}

static inline uint64_t gguf_take_u64(struct gguf *g)
{
    uint64_t value;
    gguf_take(g, &value, sizeof value);
    return value;
}

/* How many things of at least `least` bytes follow. */
static inline uint64_t gguf_take_count(struct gguf *g, const char *of, uint64_t least)
{
    const uint64_t count = gguf_take_u64(g);
    if (!g->fault && count > (g->end - g->at) / least) {
        snprintf(g->part, sizeof g->part, "a list of %" PRIu64 " %s", count, of);
        gguf_cut(g);
    }
    return g->fault ? 0 : count;
}

/* The first bytes: how many tensors and pairs there are. */
static inline bool gguf_take_counts(struct gguf *g, uint64_t *tensors, uint64_t *pairs)
{
    char magic[4] = "";
    if (g->end >= sizeof magic)
        gguf_take(g, magic, sizeof magic);
    if (memcmp(magic, "GGUF", sizeof magic) != 0)
        gguf_failed(g, GGUF_DAMAGED, "is not a GGUF file: it does not begin with GGUF");
    const uint32_t version = gguf_take_u32(g);
    if (version && !(version & 0xFFFF))
        gguf_failed(g, GGUF_UNSUPPORTED, "is a big-endian GGUF file; weir reads little-endian ones");
    else if (version != 3)
        gguf_failed(g, GGUF_UNSUPPORTED, "is a GGUF file of version %" PRIu32 "; weir reads version 3", version);
    *tensors = gguf_take_count(g, "tensors", 24);
    *pairs = gguf_take_count(g, "key/values", 13);
    return !g->fault;
}

static inline bool gguf_wrong_type(struct gguf *g, uint32_t type)
{
    return gguf_failed(g, GGUF_DAMAGED, "%s: its value has type %" PRIu32 ", which is not allowed there", g->part, type);
}

/* Bytes of each value of the type; 0: a text, an array, or no type. */
static inline uint64_t gguf_bytes_of(uint32_t type)
{
    static const unsigned char bytes[GGUF_TYPES] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};
    return type < GGUF_TYPES ? bytes[type] : 0;
}

/* The next pair, number `pair` of `pairs`: its key goes to `key`, which is "" if it is longer than all that anybody looks for. */
static inline bool gguf_next_pair(struct gguf *g, uint64_t pair, uint64_t pairs, char key[GGUF_KEY_BYTES], struct gguf_value *v)
{
    snprintf(g->part, sizeof g->part, "key %" PRIu64 " of %" PRIu64, pair, pairs);
    const uint64_t length = gguf_take_u64(g);
    memset(key, 0, GGUF_KEY_BYTES);
    if (length < GGUF_KEY_BYTES)
        gguf_take(g, key, (size_t)length);
    else
        gguf_skip(g, length, 1);
    if (strlen(key) != length) /* another key, though it may begin with one that is known and a zero */
        *key = '\0';
    if (*key)
        snprintf(g->part, sizeof g->part, "%s", key);
    *v = (struct gguf_value){.key = v->key, .present = true, .type = gguf_take_u32(g), .count = 1};
    v->array = v->type == GGUF_ARRAY;
    if (v->array) {
        v->type = gguf_take_u32(g);
        v->count = gguf_take_u64(g);
    }
    v->at = g->at;
    if (!g->fault && v->type != GGUF_TEXT && !gguf_bytes_of(v->type))
        gguf_wrong_type(g, v->type);
    return !g->fault;
}

/* Goes behind a value, whose first element is next. */
static inline bool gguf_skip_value(struct gguf *g, const struct gguf_value *v)
{
    if (v->type != GGUF_TEXT)
        return gguf_skip(g, v->count, gguf_bytes_of(v->type));
    for (uint64_t i = 0; i < v->count && !g->fault; i++)
        gguf_skip(g, gguf_take_u64(g), 1);
    return !g->fault;
}

/* A value that others depend on; a second one would give the file two meanings. */
static inline bool gguf_once(struct gguf *g, bool present)
{
    return !present || gguf_failed(g, GGUF_DAMAGED, "%s: is there twice", g->part);
}

/* Finds `count` values. May be called again for others. */
static inline bool gguf_find(struct gguf *g, struct gguf_value *wanted, int count)
{
    uint64_t tensors, pairs;
    char key[GGUF_KEY_BYTES];
    g->at = 0; /* it may have been called before */
    bool ok = gguf_take_counts(g, &tensors, &pairs);
    for (uint64_t i = 0; i < pairs && ok; i++) {
        struct gguf_value v = {.key = NULL};
        ok = gguf_next_pair(g, i, pairs, key, &v);
        for (int w = 0; w < count && ok; w++)
            if (!strcmp(wanted[w].key, key)) {
                ok = gguf_once(g, wanted[w].present);
                v.key = wanted[w].key;
                wanted[w] = v;
            }
        ok = ok && gguf_skip_value(g, &v);
    }
    return ok;
}

/* Goes to the first element. Then each call reads one. */
static inline bool gguf_begin(struct gguf *g, const struct gguf_value *v)
{
    snprintf(g->part, sizeof g->part, "%s", v->key);
    g->at = v->at;
    return !g->fault;
}

static inline bool gguf_has_room(struct gguf *g, uint64_t bytes)
{
    if (g->text && bytes < g->room)
        return true;
    free(g->text);
    g->room = (size_t)bytes + 256;
    g->text = malloc(g->room);
    return g->text || gguf_failed(g, GGUF_NO_MEMORY, "no memory for a text of %" PRIu64 " bytes", bytes);
}

/* The text is g->text. */
static inline bool gguf_next_text(struct gguf *g, uint64_t *bytes)
{
    *bytes = gguf_take_u64(g);
    if (!g->fault && *bytes > g->end - g->at)
        return gguf_cut(g);
    if (!g->fault && *bytes > GGUF_TEXT_MAX)
        return gguf_failed(g, GGUF_DAMAGED, "%s: has a text of %" PRIu64 " bytes; at most %d are read", g->part, *bytes, GGUF_TEXT_MAX);
    if (g->fault || !gguf_has_room(g, *bytes) || !gguf_take(g, g->text, (size_t)*bytes))
        return false;
    g->text[*bytes] = '\0';
    return true;
}

/* These read u32 or i32, f32, and bool. */
static inline bool gguf_next_u32(struct gguf *g, uint32_t *number)
{
    return gguf_take(g, number, sizeof *number);
}

static inline bool gguf_next_f32(struct gguf *g, float *number)
{
    return gguf_take(g, number, sizeof *number);
}

static inline bool gguf_next_bool(struct gguf *g, bool *is)
{
    unsigned char byte;
    const bool ok = gguf_take(g, &byte, 1);
    *is = byte != 0;
    return ok;
}

#endif
