/* transport/line/wire.c: header frames, both ways by one table.
 *
 * The table says which fields a kind has, of which type and where in struct wire_frame; writing and reading walk it, so
 * they cannot come to differ, and a new kind is one more line in it. MessagePack-C writes. It does not read: its
 * unpacker builds a tree of objects in memory that it allocates, while all there is to read here are numbers, booleans
 * and one text in one flat array. Every form that MessagePack permits for these is accepted (a 7 may come in any of nine
 * forms); writing takes the shortest.
 */
#include "transport/line/wire.h"

#include <assert.h>
#include <inttypes.h>
#include <msgpack.h>
#include <string.h>

#include "graph/base/error.h"

enum field_type { FIELD_U32, FIELD_U64, FIELD_I64, FIELD_BOOL, FIELD_TEXT };

enum { FIELDS_MAX = 7 }; /* of one kind, beside the five that all have */

struct field {
    const char *name;
    enum field_type type;
    uint64_t most; /* of U32 and U64 */
    size_t offset; /* in struct wire_frame */
};

struct kind {
    const char *name;
    uint32_t field_count;
    struct field fields[FIELDS_MAX];
};

#define U32_UP_TO(name, member, most) {name, FIELD_U32, most, offsetof(struct wire_frame, member)}
#define U32(name, member) U32_UP_TO(name, member, UINT32_MAX)
#define U64(name, member) {name, FIELD_U64, UINT64_MAX, offsetof(struct wire_frame, member)}
#define I64(name, member) {name, FIELD_I64, 0, offsetof(struct wire_frame, member)}
#define BOOL(name, member) {name, FIELD_BOOL, 0, offsetof(struct wire_frame, member)}
#define TEXT(name, member) {name, FIELD_TEXT, 0, offsetof(struct wire_frame, member)}

/* After version and kind, of every kind. */
static const struct field sender[] = {U64("session", session), U32("rank", rank), U64("number", number)};

enum { SENDER_FIELDS = sizeof(sender) / sizeof(sender[0]), COMMON_FIELDS = 2 + SENDER_FIELDS };

static const struct kind kinds[WIRE_KIND_END] = {
    [WIRE_HELLO] = {"HELLO", 7, {BOOL("shm", hello.shm), U32_UP_TO("port", hello.port, UINT16_MAX),
                                 U64("name", hello.name), U64("secret", hello.secret[0]),
                                 U64("secret", hello.secret[1]), U64("secret", hello.secret[2]),
                                 U64("secret", hello.secret[3])}},
    [WIRE_BEAT] = {"BEAT", 4, {U32("state", beat.state), U64("fired", beat.fired), I64("step", beat.step),
                               U32("actor", beat.actor)}},
    [WIRE_FAIL] = {"FAIL", 3, {U32("culprit", fail.culprit), U32("from", fail.from), TEXT("text", fail.text)}},
    [WIRE_BYE] = {"BYE", 2, {I64("steps", bye.steps), BOOL("answer", bye.answer)}},
    [WIRE_VALUE] = {"VALUE", 2, {U32("shard", value.shard), U64("round", value.round)}},
    [WIRE_HOLD] = {"HOLD", 3, {U32_UP_TO("what", hold.what, WIRE_HOLD_WHATS - 1), U64("run", hold.run),
                               I64("step", hold.step)}},
    [WIRE_END] = {"END", 5, {U32("culprit", end.culprit), U32("from", end.from),
                             U32_UP_TO("what", end.what, WIRE_END_WHATS - 1), I64("step", end.step),
                             TEXT("text", end.text)}},
    [WIRE_WAITS] = {"WAITS", 2, {U32("count", waits.count), U32("rank", waits.rank)}},
};

static bool is_kind(uint64_t kind)
{
    return kind < WIRE_KIND_END && kinds[kind].name;
}

const char *wire_kind_name(uint32_t kind)
{
    return is_kind(kind) ? kinds[kind].name : "?";
}

/* ---- writing ---- */

struct output {
    unsigned char *bytes; /* WIRE_HEADER_MAX of them */
    size_t count;
};

/* A header has room for the longest form of all that a kind can have, so this never fails. */
static int output_write(void *data, const char *bytes, size_t count)
{
    struct output *output = data;
    if (count > WIRE_HEADER_MAX - output->count)
        return -1;
    memcpy(output->bytes + output->count, bytes, count);
    output->count += count;
    return 0;
}

static int pack_text(msgpack_packer *packer, const char *text)
{
    return msgpack_pack_str_with_body(packer, text, strnlen(text, WIRE_TEXT_MAX));
}

static int pack_field(msgpack_packer *packer, const struct wire_frame *frame, const struct field *field)
{
    const void *member = (const char *)frame + field->offset;
    switch (field->type) {
    case FIELD_U32: return msgpack_pack_uint32(packer, *(const uint32_t *)member);
    case FIELD_U64: return msgpack_pack_uint64(packer, *(const uint64_t *)member);
    case FIELD_I64: return msgpack_pack_int64(packer, *(const int64_t *)member);
    case FIELD_BOOL: return *(const bool *)member ? msgpack_pack_true(packer) : msgpack_pack_false(packer);
    case FIELD_TEXT: return pack_text(packer, member);
    }
    return -1;
}

size_t wire_encode(const struct wire_frame *frame, unsigned char bytes[WIRE_HEADER_MAX])
{
    struct output output = {bytes, 0};
    msgpack_packer packer;
    assert(is_kind(frame->kind));
    const struct kind *kind = &kinds[frame->kind];
    msgpack_packer_init(&packer, &output, output_write);
    int failed = msgpack_pack_array(&packer, COMMON_FIELDS + kind->field_count);
    failed |= msgpack_pack_uint32(&packer, WIRE_VERSION);
    failed |= msgpack_pack_uint32(&packer, frame->kind);
    for (uint32_t i = 0; i < SENDER_FIELDS; i++)
        failed |= pack_field(&packer, frame, &sender[i]);
    for (uint32_t i = 0; i < kind->field_count; i++)
        failed |= pack_field(&packer, frame, &kind->fields[i]);
    assert(!failed);
    return failed ? 0 : output.count;
}

/* ---- reading: the forms of MessagePack ---- */

struct reader {
    const unsigned char *at;
    size_t left;
    bool ended; /* something wanted more bytes than were left */
};

static const unsigned char *read_bytes(struct reader *reader, size_t count)
{
    const unsigned char *at = reader->at;
    if (count > reader->left) {
        reader->ended = true;
        return NULL;
    }
    reader->at += count;
    reader->left -= count;
    return at;
}

/* 0 when there are fewer bytes; reader->ended tells. */
static uint64_t read_big_endian(struct reader *reader, size_t count)
{
    const unsigned char *bytes = read_bytes(reader, count);
    uint64_t value = 0;
    for (size_t i = 0; bytes && i < count; i++)
        value = value << 8 | bytes[i];
    return value;
}

static bool read_array(struct reader *reader, uint32_t *count)
{
    unsigned head = (unsigned)read_big_endian(reader, 1);
    if (head >> 4 == 0x9)
        *count = head & 0xf;
    else if (head == 0xdc || head == 0xdd)
        *count = (uint32_t)read_big_endian(reader, head == 0xdc ? 2 : 4);
    else
        return false;
    return !reader->ended;
}

/* A number of any form. `negative` when it is; then `bits` are those of an int64_t. */
static bool read_number(struct reader *reader, uint64_t *bits, bool *negative)
{
    unsigned head = (unsigned)read_big_endian(reader, 1);
    int64_t value;
    switch (head) {
    case 0xcc: value = (uint8_t)read_big_endian(reader, 1); break;
    case 0xcd: value = (uint16_t)read_big_endian(reader, 2); break;
    case 0xce: value = (uint32_t)read_big_endian(reader, 4); break;
    case 0xcf: value = (int64_t)read_big_endian(reader, 8); break;
    case 0xd0: value = (int64_t)(int8_t)read_big_endian(reader, 1); break;
    case 0xd1: value = (int16_t)read_big_endian(reader, 2); break;
    case 0xd2: value = (int32_t)read_big_endian(reader, 4); break;
    case 0xd3: value = (int64_t)read_big_endian(reader, 8); break;
    default:
        if (head > 0x7f && head < 0xe0)
            return false;
        value = (int64_t)(int8_t)head;
    }
    *bits = (uint64_t)value;
    *negative = value < 0 && head != 0xcf;
    return !reader->ended;
}

static bool read_unsigned(struct reader *reader, uint64_t *value, uint64_t most)
{
    bool negative;
    return read_number(reader, value, &negative) && !negative && *value <= most;
}

static bool read_signed(struct reader *reader, int64_t *value)
{
    uint64_t bits;
    bool negative;
    if (!read_number(reader, &bits, &negative) || (!negative && bits > INT64_MAX))
        return false;
    *value = (int64_t)bits;
    return true;
}

static bool read_bool(struct reader *reader, bool *value)
{
    unsigned head = (unsigned)read_big_endian(reader, 1);
    *value = head == 0xc3;
    return head == 0xc2 || head == 0xc3;
}

static bool read_text_length(struct reader *reader, size_t *length)
{
    unsigned head = (unsigned)read_big_endian(reader, 1);
    if (head >> 5 == 0xa0 >> 5)
        *length = head & 0x1f;
    else if (head >= 0xd9 && head <= 0xdb)
        *length = read_big_endian(reader, (size_t)1 << (head - 0xd9));
    else
        return false;
    return !reader->ended && *length <= WIRE_TEXT_MAX;
}

/* ---- reading: text, which a terminal will show ---- */

/* Bytes of the UTF-8 sequence at `text`, which ends with a 0; 0: none begins here. The surrogates and the overlong
 * forms of three and four bytes count as sequences: no terminal takes them for controls. */
static size_t utf8_length(const unsigned char *text)
{
    size_t length = text[0] < 0x80 ? 1 : text[0] < 0xc2 ? 0 : text[0] < 0xe0 ? 2 : text[0] < 0xf0 ? 3
                  : text[0] < 0xf5 ? 4 : 0;
    for (size_t i = 1; i < length; i++)
        if ((text[i] & 0xc0) != 0x80)
            return 0;
    return length;
}

/* Unicode's Cc: below 32, 127, and 128 to 159, which are a 0xc2 and a byte below 0xa0. */
static bool is_control(const unsigned char *text)
{
    return text[0] < 0x20 || text[0] == 0x7f || (text[0] == 0xc2 && text[1] < 0xa0);
}

/* Controls become spaces, and what is no UTF-8 question marks; the length stays. */
static void clean_text(unsigned char *text)
{
    while (*text) {
        size_t length = utf8_length(text);
        if (!length)
            *text = '?';
        else if (is_control(text))
            memset(text, ' ', length);
        text += length ? length : 1;
    }
}

static bool read_text(struct reader *reader, char text[WIRE_TEXT_MAX + 1])
{
    size_t length;
    const unsigned char *bytes = read_text_length(reader, &length) ? read_bytes(reader, length) : NULL;
    if (!bytes)
        return false;
    length = strnlen((const char *)bytes, length);
    memcpy(text, bytes, length);
    text[length] = 0;
    clean_text((unsigned char *)text);
    return true;
}

/* ---- reading: the header ---- */

static bool read_u32(struct reader *reader, uint32_t *value, uint64_t most)
{
    uint64_t wide;
    bool ok = read_unsigned(reader, &wide, most);
    *value = ok ? (uint32_t)wide : 0;
    return ok;
}

static bool read_field(struct reader *reader, struct wire_frame *frame, const struct field *field)
{
    void *member = (char *)frame + field->offset;
    switch (field->type) {
    case FIELD_U32: return read_u32(reader, member, field->most);
    case FIELD_U64: return read_unsigned(reader, member, field->most);
    case FIELD_I64: return read_signed(reader, member);
    case FIELD_BOOL: return read_bool(reader, member);
    case FIELD_TEXT: return read_text(reader, member);
    }
    return false;
}

static weir_status field_error(const struct reader *reader, const char *kind, const struct field *field)
{
    if (reader->ended)
        return error_set(WEIR_E_PEER, "%s: ends within %s", kind, field->name);
    switch (field->type) {
    case FIELD_I64: return error_set(WEIR_E_PEER, "%s: %s is not a number of 64 bits", kind, field->name);
    case FIELD_BOOL: return error_set(WEIR_E_PEER, "%s: %s is neither true nor false", kind, field->name);
    case FIELD_TEXT:
        return error_set(WEIR_E_PEER, "%s: %s is not a text of at most %d bytes", kind, field->name, WIRE_TEXT_MAX);
    default:
        return error_set(WEIR_E_PEER, "%s: %s is not a number from 0 to %" PRIu64, kind, field->name, field->most);
    }
}

static weir_status read_fields(struct reader *reader, struct wire_frame *frame, const struct field *fields,
                               uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        if (!read_field(reader, frame, &fields[i]))
            return field_error(reader, kinds[frame->kind].name, &fields[i]);
    return WEIR_OK;
}

/* The version before all else, even the number of fields: another version may have other fields. */
static weir_status read_version(struct reader *reader, uint32_t *fields, uint32_t *version)
{
    uint64_t theirs;
    if (!read_array(reader, fields))
        return error_set(WEIR_E_PEER, "a header that does not begin as a MessagePack array");
    if (*fields < 1 || !read_unsigned(reader, &theirs, UINT64_MAX))
        return error_set(WEIR_E_PEER, "a header without a version");
    if (theirs != WIRE_VERSION)
        return error_set(WEIR_E_PEER, "version %" PRIu64 " of the protocol, this is version %d", theirs, WIRE_VERSION);
    *version = WIRE_VERSION;
    return WEIR_OK;
}

static weir_status read_kind(struct reader *reader, uint32_t fields, uint32_t *kind)
{
    uint64_t theirs;
    if (fields < 2 || !read_unsigned(reader, &theirs, UINT64_MAX))
        return error_set(WEIR_E_PEER, "a header without a kind");
    if (!is_kind(theirs))
        return error_set(WEIR_E_PEER, "kind %" PRIu64 ", which is none", theirs);
    uint32_t expected = COMMON_FIELDS + kinds[theirs].field_count;
    if (fields != expected)
        return error_set(WEIR_E_PEER, "%s: %u fields of %u", kinds[theirs].name, fields, expected);
    *kind = (uint32_t)theirs;
    return WEIR_OK;
}

weir_status wire_decode(const void *bytes, size_t bytes_count, struct wire_frame *frame)
{
    struct reader reader = {bytes, bytes_count, false};
    uint32_t fields = 0;
    memset(frame, 0, sizeof(*frame));
    weir_status status = read_version(&reader, &fields, &frame->version);
    if (!status)
        status = read_kind(&reader, fields, &frame->kind);
    if (!status)
        status = read_fields(&reader, frame, sender, SENDER_FIELDS);
    if (!status)
        status = read_fields(&reader, frame, kinds[frame->kind].fields, kinds[frame->kind].field_count);
    if (!status && reader.left)
        status = error_set(WEIR_E_PEER, "%s: %zu bytes after its end", kinds[frame->kind].name, reader.left);
    return status;
}
