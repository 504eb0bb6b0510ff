/* graph/base/proto.h: reads protobuf's wire format (https://protobuf.dev/programming-guides/encoding).
 *
 *     message   fields, one after the other, in any order
 *     field     a varint (number << 3 | wire type), then its value: a varint, 4 or 8 bytes, or a length and so many bytes
 *
 *     struct proto_field f;
 *     for (struct proto message = {bytes, count}; proto_next(&message, &f);)
 *         if (f.number == 7)
 *             ... f.bytes is a message inside of this one, f.integer a number ...
 *     if (message.bad) ...
 *
 * The bytes are a stranger's. Nothing is read behind their end, and a message that does not end with a field ends the loop with
 * `bad`. Numbers of a repeated field may stand alone or packed: proto_numbers() takes both. Borrows the bytes; allocates
 * nothing. Header-only; any thread.
 */
#ifndef GRAPH_BASE_PROTO_H
#define GRAPH_BASE_PROTO_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

struct proto {
    const unsigned char *at;
    size_t left;
    bool bad; /* the message is cut, or has a field of no known wire type */
};

enum { PROTO_VARINT = 0, PROTO_8_BYTES = 1, PROTO_BYTES = 2, PROTO_4_BYTES = 5 };

struct proto_field {
    uint32_t number;
    int wire;           /* one of the four above */
    uint64_t integer;   /* of a varint; of 4 and 8 bytes, as they are */
    struct proto bytes; /* of PROTO_BYTES */
};

static inline bool proto_fault(struct proto *p)
{
    p->bad = true;
    p->left = 0;
    return false;
}

static inline bool proto_varint(struct proto *p, uint64_t *value)
{
    *value = 0;
    for (int shift = 0; shift < 64 && p->left; shift += 7) {
        const unsigned char byte = *p->at++;
        p->left--;
        *value |= (uint64_t)(byte & 127) << shift;
        if (!(byte & 128))
            return true;
    }
    return proto_fault(p);
}

/* `bytes` (4 or 8) as a little-endian number. */
static inline bool proto_fixed(struct proto *p, size_t bytes, uint64_t *value)
{
    *value = 0;
    if (p->left < bytes)
        return proto_fault(p);
    for (size_t i = 0; i < bytes; i++)
        *value |= (uint64_t)p->at[i] << 8 * i;
    p->at += bytes;
    p->left -= bytes;
    return true;
}

static inline bool proto_inside(struct proto *p, struct proto *inside)
{
    uint64_t count;
    if (!proto_varint(p, &count))
        return false;
    if (count > p->left)
        return proto_fault(p);
    *inside = (struct proto){p->at, (size_t)count, false};
    p->at += count;
    p->left -= (size_t)count;
    return true;
}

/* The next field; false at the end, and after a fault. */
static inline bool proto_next(struct proto *p, struct proto_field *field)
{
    uint64_t tag;
    *field = (struct proto_field){0};
    if (!p->left || !proto_varint(p, &tag))
        return false;
    field->number = (uint32_t)(tag >> 3 & 0x1fffffff);
    field->wire = (int)(tag & 7);
    switch (field->wire) {
    case PROTO_VARINT: return proto_varint(p, &field->integer);
    case PROTO_4_BYTES: return proto_fixed(p, 4, &field->integer);
    case PROTO_8_BYTES: return proto_fixed(p, 8, &field->integer);
    case PROTO_BYTES: return proto_inside(p, &field->bytes);
    default: return proto_fault(p);
    }
}

/* The next number of a repeated field of numbers, which are varints or have 4 or 8 bytes, as `wire` says: of one field, which
 * holds one number or is packed. *field is used up. */
static inline bool proto_number(struct proto_field *field, int wire, uint64_t *value)
{
    if (field->wire == PROTO_BYTES)
        return field->bytes.left && (wire == PROTO_VARINT ? proto_varint(&field->bytes, value)
                                                          : proto_fixed(&field->bytes, wire == PROTO_4_BYTES ? 4 : 8, value));
    const bool there = field->wire == wire;
    *value = field->integer;
    field->wire = -1;
    return there;
}

static inline float proto_float(uint64_t integer)
{
    const uint32_t bits = (uint32_t)integer;
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static inline double proto_double(uint64_t integer)
{
    double value;
    memcpy(&value, &integer, sizeof value);
    return value;
}

#endif
