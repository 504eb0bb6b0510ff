/* actors/keep/format/gguf_write.c: see the header. */
#include "actors/keep/format/gguf_write.h"

/* ---- the header ---- */

static void put(struct gguf_bytes *b, const void *bytes, size_t count)
{
    if (!b->failed && count > b->room - b->count) {
        const size_t room = 2 * b->room + count + 4096;
        unsigned char *more = realloc(b->bytes, room);
        b->failed = !more;
        b->bytes = more ? more : b->bytes;
        b->room = more ? room : b->room;
    }
    if (b->failed || !count)
        return;
    memcpy(b->bytes + b->count, bytes, count);
    b->count += count;
}

static void put_u32(struct gguf_bytes *b, uint32_t value)
{
    put(b, &value, sizeof value);
}

static void put_u64(struct gguf_bytes *b, uint64_t value)
{
    put(b, &value, sizeof value);
}

static void put_text(struct gguf_bytes *b, const char *text, size_t count)
{
    put_u64(b, count);
    put(b, text, count);
}

static void begin_pair(struct gguf_write *w, const char *key, uint32_t type)
{
    put_text(&w->pairs, key, strlen(key));
    put_u32(&w->pairs, type);
    w->pair_count++;
}

void gguf_write_text(struct gguf_write *w, const char *key, const char *text)
{
    begin_pair(w, key, GGUF_TEXT);
    put_text(&w->pairs, text, strlen(text));
}

void gguf_write_u32(struct gguf_write *w, const char *key, uint32_t value)
{
    begin_pair(w, key, GGUF_U32);
    put_u32(&w->pairs, value);
}

void gguf_write_f32(struct gguf_write *w, const char *key, float value)
{
    begin_pair(w, key, GGUF_F32);
    put(&w->pairs, &value, sizeof value);
}

void gguf_write_bool(struct gguf_write *w, const char *key, bool value)
{
    begin_pair(w, key, GGUF_BOOL);
    put(&w->pairs, &(unsigned char){value}, 1);
}

void gguf_write_array(struct gguf_write *w, const char *key, uint32_t type, uint64_t count)
{
    begin_pair(w, key, GGUF_ARRAY);
    put_u32(&w->pairs, type);
    put_u64(&w->pairs, count);
}

void gguf_write_element(struct gguf_write *w, const void *bytes, size_t count)
{
    put(&w->pairs, bytes, count);
}

void gguf_write_element_text(struct gguf_write *w, const char *text, size_t count)
{
    put_text(&w->pairs, text, count);
}

void gguf_write_pair(struct gguf_write *w, const void *bytes, size_t count)
{
    put(&w->pairs, bytes, count);
    w->pair_count++;
}

/* ---- tensors ---- */

static uint64_t aligned(uint64_t at)
{
    return (at + GGUF_ALIGNMENT - 1) / GGUF_ALIGNMENT * GGUF_ALIGNMENT;
}

uint64_t gguf_write_bytes(const struct gguf_type *type, const weir_shape *shape)
{
    return (uint64_t)(weir_shape_count(shape) / type->elements) * (uint64_t)type->bytes;
}

void gguf_write_tensor(struct gguf_write *w, const char *name, const struct gguf_type *type, const weir_shape *shape)
{
    struct gguf_bytes *b = &w->tensors;
    put_text(b, name, strlen(name));
    put_u32(b, (uint32_t)shape->rank);
    for (int d = shape->rank - 1; d >= 0; d--)
        put_u64(b, (uint64_t)shape->dim[d]);
    put_u32(b, type->number);
    put_u64(b, w->named);
    w->named = aligned(w->named + gguf_write_bytes(type, shape));
    w->tensor_count++;
}

/* ---- the file ---- */

static bool pad(struct gguf_write *w, uint64_t written)
{
    static const unsigned char zeros[GGUF_ALIGNMENT];
    return replaced_write(&w->file, zeros, (size_t)(aligned(written) - written));
}

bool gguf_write_open(struct gguf_write *w, const char *path)
{
    struct gguf_bytes begin = {.count = 0};
    put(&begin, "GGUF", 4);
    put_u32(&begin, 3);
    put_u64(&begin, w->tensor_count);
    put_u64(&begin, w->pair_count);
    if (begin.failed || w->pairs.failed || w->tensors.failed)
        errno = ENOMEM;
    else if (begin.count + w->pairs.count + w->tensors.count > GGUF_HEADER_MAX)
        errno = EFBIG;
    else if (replaced_open(&w->file, path)) {
        const bool ok = replaced_write(&w->file, begin.bytes, begin.count) && replaced_write(&w->file, w->pairs.bytes, w->pairs.count) &&
                        replaced_write(&w->file, w->tensors.bytes, w->tensors.count) &&
                        pad(w, begin.count + w->pairs.count + w->tensors.count);
        free(begin.bytes);
        return ok;
    }
    free(begin.bytes);
    return false;
}

bool gguf_write_data(struct gguf_write *w, const void *bytes, size_t count)
{
    w->written += count;
    return replaced_write(&w->file, bytes, count);
}

bool gguf_write_end(struct gguf_write *w)
{
    const uint64_t written = w->written;
    w->written = aligned(written);
    return pad(w, written);
}

bool gguf_write_close(struct gguf_write *w, bool whole)
{
    const bool ok = !w->file.path || replaced_close(&w->file, whole);
    free(w->pairs.bytes);
    free(w->tensors.bytes);
    *w = (struct gguf_write){.named = 0};
    return ok;
}
