/* graph/base/proto_write.h: writes protobuf's wire format, which proto.h reads.
 *
 *     struct proto_out inner = {0}, message = {0};
 *     proto_put_number(&inner, 1, 7);                  field 1 of the inner message
 *     proto_put_message(&message, 11, &inner);         which is field 11 of this one; frees the inner one
 *
 * The bytes grow on the heap and are freed with proto_free(). An allocation that fails sets `failed`, which sticks, and goes from an
 * inner message to the outer one. Header-only; any thread.
 */
#ifndef GRAPH_BASE_PROTO_WRITE_H
#define GRAPH_BASE_PROTO_WRITE_H

#include "graph/base/proto.h"

#include <stdlib.h>

struct proto_out {
    unsigned char *bytes; /* owned */
    size_t count, room;
    bool failed;
};

static inline void proto_free(struct proto_out *o)
{
    free(o->bytes);
    *o = (struct proto_out){.failed = o->failed};
}

static inline bool proto_room(struct proto_out *o, size_t count)
{
    if (o->failed || count <= o->room - o->count)
        return !o->failed;
    const size_t room = 2 * (o->count + count) + 64;
    unsigned char *bytes = realloc(o->bytes, room);
    o->failed = !bytes;
    if (bytes) {
        o->bytes = bytes;
        o->room = room;
    }
    return bytes;
}

static inline void proto_put(struct proto_out *o, const void *bytes, size_t count)
{
    if (!count || !proto_room(o, count))
        return;
    memcpy(o->bytes + o->count, bytes, count);
    o->count += count;
}

static inline void proto_put_varint(struct proto_out *o, uint64_t value)
{
    unsigned char bytes[10];
    size_t count = 0;
    do
        bytes[count++] = (unsigned char)((value & 127) | (value > 127 ? 128 : 0));
    while (value >>= 7);
    proto_put(o, bytes, count);
}

static inline void proto_put_tag(struct proto_out *o, int field, int wire)
{
    proto_put_varint(o, (uint64_t)field << 3 | (uint64_t)wire);
}

static inline void proto_put_number(struct proto_out *o, int field, int64_t value)
{
    proto_put_tag(o, field, PROTO_VARINT);
    proto_put_varint(o, (uint64_t)value);
}

static inline void proto_put_float(struct proto_out *o, int field, float value)
{
    proto_put_tag(o, field, PROTO_4_BYTES);
    proto_put(o, &value, sizeof value);
}

static inline void proto_put_double(struct proto_out *o, int field, double value)
{
    proto_put_tag(o, field, PROTO_8_BYTES);
    proto_put(o, &value, sizeof value);
}

/* The head of a field of `count` bytes, which come behind it. */
static inline void proto_put_length(struct proto_out *o, int field, uint64_t count)
{
    proto_put_tag(o, field, PROTO_BYTES);
    proto_put_varint(o, count);
}

static inline void proto_put_bytes(struct proto_out *o, int field, const void *bytes, size_t count)
{
    proto_put_length(o, field, count);
    proto_put(o, bytes, count);
}

static inline void proto_put_text(struct proto_out *o, int field, const char *string)
{
    proto_put_bytes(o, field, string, strlen(string));
}

static inline void proto_put_message(struct proto_out *o, int field, struct proto_out *inner)
{
    o->failed |= inner->failed;
    proto_put_bytes(o, field, inner->bytes, inner->count);
    proto_free(inner);
}

#endif
