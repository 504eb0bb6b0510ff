/* apps/common/tokens/gguf.c: reads some values of a GGUF file's metadata. A count in the file is never trusted: what is skipped is
 * read or jumped over, and a text is at most TEXT_BYTES_MAX long. */
#include "apps/common/tokens/gguf.h"
#include "apps/common/tokens/tokenizer.h"

#include <stdlib.h>
#include <string.h>

enum { TEXT_BYTES_MAX = 1 << 20, PAIRS_MAX = 1 << 16 };

static bool take(struct gguf *g, void *to, size_t bytes)
{
    return fread(to, 1, bytes, g->file) == bytes || tokens_failed("ends within its metadata");
}

bool gguf_next_u32(struct gguf *g, uint32_t *number)
{
    return take(g, number, sizeof *number);
}

static bool has_room(struct gguf *g, uint64_t bytes)
{
    if (bytes > TEXT_BYTES_MAX)
        return tokens_failed("has a text of %llu bytes in its metadata; at most %d are read", (unsigned long long)bytes, TEXT_BYTES_MAX);
    if (bytes < g->room)
        return true;
    free(g->text);
    g->room = bytes + 256;
    g->text = malloc(g->room);
    return g->text || (g->room = 0, tokens_failed("no memory"));
}

bool gguf_next_text(struct gguf *g, uint64_t *bytes)
{
    if (!take(g, bytes, sizeof *bytes) || !has_room(g, *bytes) || !take(g, g->text, *bytes))
        return false;
    g->text[*bytes] = '\0';
    return true;
}

/* Bytes of a value of the type; 0: a text, an array, or no type. */
static uint64_t bytes_of(uint32_t type)
{
    static const uint8_t bytes[] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};
    return type < sizeof bytes ? bytes[type] : 0;
}

static bool skip_bytes(struct gguf *g, uint64_t count, uint64_t each)
{
    const bool ok = count <= (uint64_t)1 << 40 && !fseek(g->file, (long)(count * each), SEEK_CUR);
    return ok || tokens_failed("has an array of %llu elements in its metadata", (unsigned long long)count);
}

static bool skip(struct gguf *g, const struct gguf_value *v)
{
    uint64_t bytes;
    if (v->type != GGUF_TEXT)
        return bytes_of(v->type) ? skip_bytes(g, v->count, bytes_of(v->type))
                                 : tokens_failed("has a value of type %u in its metadata, which is not known", v->type);
    for (uint64_t i = 0; i < v->count; i++)
        if (!gguf_next_text(g, &bytes))
            return false;
    return true;
}

/* The next pair, whose key is then g->text. */
static bool take_head(struct gguf *g, struct gguf_value *v)
{
    uint64_t bytes;
    *v = (struct gguf_value){.present = true, .count = 1};
    if (!gguf_next_text(g, &bytes) || !take(g, &v->type, sizeof v->type))
        return false;
    v->array = v->type == GGUF_ARRAY;
    if (v->array && (!take(g, &v->type, sizeof v->type) || !take(g, &v->count, sizeof v->count)))
        return false;
    v->at = ftell(g->file);
    return true;
}

bool gguf_find(struct gguf *g, struct gguf_value *wanted, int count)
{
    uint32_t version;
    uint64_t tensors, pairs;
    if (fseek(g->file, 4, SEEK_SET) || !take(g, &version, 4) || !take(g, &tensors, 8) || !take(g, &pairs, 8))
        return tokens_failed("ends within its header");
    if (version != 2 && version != 3)
        return tokens_failed("is GGUF of version %u; 2 and 3 are read, little-endian", version);
    if (pairs > PAIRS_MAX)
        return tokens_failed("has %llu values in its metadata; at most %d are read", (unsigned long long)pairs, PAIRS_MAX);
    for (uint64_t i = 0; i < pairs; i++) {
        struct gguf_value v;
        if (!take_head(g, &v))
            return false;
        for (int w = 0; w < count; w++)
            if (!strcmp(wanted[w].key, g->text)) {
                v.key = wanted[w].key;
                wanted[w] = v;
            }
        if (!skip(g, &v))
            return false;
    }
    return true;
}

bool gguf_begin(struct gguf *g, const struct gguf_value *value)
{
    return !fseek(g->file, value->at, SEEK_SET) || tokens_failed("cannot be read");
}
