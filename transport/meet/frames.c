/* transport/meet/frames.c: one walk over a frame's fields for both directions, so that writing and reading cannot come
 * to differ.
 *
 * MessagePack-C writes. It does not read: its unpacker allocates as many objects as an array's head claims, and what is
 * read here comes from whoever can reach the port. The reader takes the forms that a field can have and no others, and
 * after the first fault does nothing more; the walk goes on to its end, over a frame that was zeroed before.
 */
#include "transport/meet/frames.h"

#include <assert.h>
#include <inttypes.h>
#include <msgpack.h>
#include <string.h>

#include "graph/base/error.h"
#include "transport/mail/version.h"

#define MAGIC "weir"

struct walk {
    bool reads;
    const char *fault; /* what is wrong, and with which field */
    const char *field;
    const unsigned char *at; /* reading: what is left */
    size_t left;
    msgpack_packer packer; /* writing */
    unsigned char *bytes;
    size_t count;
};

/* ---- writing ---- */

static int walk_write(void *data, const char *bytes, size_t count)
{
    struct walk *walk = data;
    if (count > MEET_FRAME_MAX - walk->count)
        return -1;
    memcpy(walk->bytes + walk->count, bytes, count);
    walk->count += count;
    return 0;
}

static void written(struct walk *walk, const char *field, int failed)
{
    if (failed && !walk->fault) {
        walk->fault = "does not fit";
        walk->field = field;
    }
}

/* ---- reading ---- */

/* Reads nothing any more. */
static void faulty(struct walk *walk, const char *field, const char *fault)
{
    if (!walk->fault) {
        walk->fault = fault;
        walk->field = field;
    }
    walk->left = 0;
}

static const unsigned char *take(struct walk *walk, size_t count)
{
    const unsigned char *at = walk->at;
    if (count > walk->left)
        return NULL;
    walk->at += count;
    walk->left -= count;
    return at;
}

static bool take_number(struct walk *walk, size_t bytes, uint64_t *value)
{
    const unsigned char *at = take(walk, bytes);
    *value = 0;
    for (size_t i = 0; at && i < bytes; i++)
        *value = *value << 8 | at[i];
    return at != NULL;
}

/* The length behind one of three heads that follow each other (8, 16, 32 bits), or of two (16, 32). */
static bool take_length(struct walk *walk, uint64_t head, unsigned first, size_t first_bytes, uint64_t *length)
{
    if (head < first || first_bytes << (head - first) > 4)
        return false;
    return take_number(walk, first_bytes << (head - first), length);
}

/* ---- fields, both ways ---- */

static void walk_u64(struct walk *walk, const char *field, uint64_t *value, uint64_t most)
{
    uint64_t head;
    if (!walk->reads) {
        written(walk, field, msgpack_pack_uint64(&walk->packer, *value));
        return;
    }
    bool read = take_number(walk, 1, &head);
    if (read && head >= 0xcc && head <= 0xcf)
        read = take_number(walk, (size_t)1 << (head - 0xcc), value);
    else if (read && head <= 0x7f)
        *value = head;
    else
        read = false;
    if (!read || *value > most) {
        *value = 0;
        faulty(walk, field, read ? "is too large" : "is no whole number");
    }
}

static void walk_u32(struct walk *walk, const char *field, uint32_t *value, uint32_t most)
{
    uint64_t wide = *value;
    walk_u64(walk, field, &wide, most);
    *value = (uint32_t)wide;
}

/* A descriptor, or -1: shifted by one, so that one kind of number does for all. */
static void walk_descriptor(struct walk *walk, const char *field, int32_t *value)
{
    uint64_t shifted = (uint64_t)((int64_t)*value + 1);
    walk_u64(walk, field, &shifted, INT32_MAX);
    *value = (int32_t)((int64_t)shifted - 1);
}

static void text_clean(char *text)
{
    for (; *text; text++)
        if ((unsigned char)*text < ' ' || *text == 0x7f)
            *text = '?';
}

void meet_name(char name[CLUSTER_NAME_BYTES], const char *text)
{
    memset(name, 0, CLUSTER_NAME_BYTES);
    memcpy(name, text, strnlen(text, CLUSTER_NAME_BYTES - 1));
    text_clean(name);
}

static void walk_text(struct walk *walk, const char *field, char *text, size_t bytes)
{
    uint64_t head, length = 0;
    if (!walk->reads) {
        written(walk, field, msgpack_pack_str_with_body(&walk->packer, text, strnlen(text, bytes - 1)));
        return;
    }
    bool read = take_number(walk, 1, &head);
    if (read && head >> 5 == 5)
        length = head & 0x1f;
    else
        read = read && take_length(walk, head, 0xd9, 1, &length);
    const unsigned char *at = read && length < bytes ? take(walk, length) : NULL;
    if (!at) {
        faulty(walk, field, read ? "is too long" : "is no text");
        return;
    }
    memcpy(text, at, strnlen((const char *)at, length)); /* and zeros behind: frames are compared as bytes */
    text_clean(text);
}

static void walk_array(struct walk *walk, const char *field, uint32_t *count, uint32_t least, uint32_t most)
{
    uint64_t head, length = 0;
    if (!walk->reads) {
        written(walk, field, msgpack_pack_array(&walk->packer, *count));
        return;
    }
    bool read = take_number(walk, 1, &head);
    if (read && head >> 4 == 9)
        length = head & 0xf;
    else
        read = read && take_length(walk, head, 0xdc, 2, &length);
    if (!read || length < least || length > most) {
        length = 0;
        faulty(walk, field, read ? "has another number of entries" : "is no array");
    }
    *count = (uint32_t)length;
}

static void walk_fields(struct walk *walk, const char *field, uint32_t fields)
{
    walk_array(walk, field, &fields, fields, fields);
}

/* ---- structures ---- */

static void walk_card(struct walk *walk, struct member *card)
{
    walk_fields(walk, "card", 11);
    walk_text(walk, "host", card->host, sizeof card->host);
    walk_text(walk, "name", card->name, sizeof card->name);
    walk_text(walk, "tcp", card->tcp, sizeof card->tcp);
    walk_text(walk, "ipc", card->ipc, sizeof card->ipc);
    walk_text(walk, "key", card->key, WEIR_KEY_BYTES);
    walk_u32(walk, "pid", &card->pid, UINT32_MAX);
    walk_u32(walk, "devices", &card->devices, UINT32_MAX);
    walk_u32(walk, "workers", &card->workers, UINT32_MAX);
    walk_descriptor(walk, "segment_fd", &card->segment_fd);
    walk_u64(walk, "segment_bytes", &card->segment_bytes, UINT64_MAX);
    walk_u64(walk, "segment_cookie", &card->segment_cookie, UINT64_MAX);
}

static void walk_plan(struct walk *walk, struct meet_plan *plan)
{
    walk_fields(walk, "plan", 6);
    walk_u64(walk, "hash", &plan->hash, UINT64_MAX);
    walk_u64(walk, "seed", &plan->seed, UINT64_MAX);
    walk_u64(walk, "bytes", &plan->bytes, UINT64_MAX);
    walk_u64(walk, "rates", &plan->rates, UINT64_MAX);
    walk_u32(walk, "micro_batches", &plan->micro_batches, UINT32_MAX);
    walk_u32(walk, "devices", &plan->devices, UINT32_MAX);
}

static void walk_op(struct walk *walk, struct meet_op *op)
{
    walk_fields(walk, "op", 7);
    walk_text(walk, "name", op->name, sizeof op->name);
    walk_text(walk, "op", op->op, sizeof op->op);
    walk_text(walk, "file", op->file, sizeof op->file);
    walk_text(walk, "types", op->types, sizeof op->types);
    walk_u32(walk, "line", &op->line, INT32_MAX);
    walk_u64(walk, "types_hash", &op->types_hash, UINT64_MAX);
    walk_u64(walk, "attrs_hash", &op->attrs_hash, UINT64_MAX);
}

static void walk_join(struct walk *walk, struct meet_frame *frame)
{
    walk_u32(walk, "plan_version", &frame->join.plan_version, UINT32_MAX);
    walk_u32(walk, "purpose", &frame->join.purpose, MEET_PURPOSES - 1);
    walk_text(walk, "name", frame->join.name, sizeof frame->join.name);
    walk_u32(walk, "rank", &frame->join.rank, UINT32_MAX);
    walk_u32(walk, "size", &frame->join.size, UINT32_MAX);
    walk_u32(walk, "generation", &frame->join.generation, UINT32_MAX);
    walk_text(walk, "level", frame->join.level, sizeof frame->join.level);
    walk_text(walk, "carriers", frame->join.carriers, sizeof frame->join.carriers);
    walk_plan(walk, &frame->join.plan);
    walk_card(walk, &frame->join.card);
}

static void walk_wait(struct walk *walk, struct meet_frame *frame)
{
    walk_text(walk, "text", frame->wait.text, sizeof frame->wait.text);
}

static void walk_ask(struct walk *walk, struct meet_frame *frame)
{
    walk_u32(walk, "first", &frame->ask.first, MEET_OPS_MAX);
}

static void walk_ops(struct walk *walk, struct meet_frame *frame)
{
    walk_u32(walk, "first", &frame->ops.first, MEET_OPS_MAX);
    walk_u32(walk, "total", &frame->ops.total, MEET_OPS_MAX);
    walk_array(walk, "ops", &frame->ops.count, 0, MEET_ITEMS_MAX);
    for (uint32_t i = 0; i < frame->ops.count; i++)
        walk_op(walk, &frame->ops.op[i]);
    if (frame->ops.first > frame->ops.total || frame->ops.count > frame->ops.total - frame->ops.first)
        faulty(walk, "ops", "go beyond their number");
}

static void walk_welcome(struct walk *walk, struct meet_frame *frame)
{
    walk_u64(walk, "session", &frame->welcome.session, UINT64_MAX);
    walk_u32(walk, "first", &frame->welcome.first, CLUSTER_RANKS_MAX);
    walk_u32(walk, "total", &frame->welcome.total, CLUSTER_RANKS_MAX);
    walk_array(walk, "cards", &frame->welcome.count, 1, MEET_ITEMS_MAX);
    for (uint32_t i = 0; i < frame->welcome.count; i++)
        walk_card(walk, &frame->welcome.card[i]);
    if (frame->welcome.first > frame->welcome.total ||
        frame->welcome.count > frame->welcome.total - frame->welcome.first)
        faulty(walk, "cards", "go beyond their number");
    if (!frame->welcome.session)
        faulty(walk, "session", "is 0");
}

static void walk_thanks(struct walk *walk, struct meet_frame *frame)
{
    (void)walk, (void)frame;
}

static void walk_refuse(struct walk *walk, struct meet_frame *frame)
{
    walk_u32(walk, "status", &frame->refuse.status, WEIR_E_PEER);
    walk_text(walk, "text", frame->refuse.text, sizeof frame->refuse.text);
    if (frame->refuse.status == WEIR_OK)
        faulty(walk, "status", "is none of a refusal");
}

static void walk_want(struct walk *walk, struct meet_frame *frame)
{
    walk_u64(walk, "offset", &frame->want.offset, UINT64_MAX);
}

static void walk_part(struct walk *walk, struct meet_frame *frame)
{
    walk_u64(walk, "offset", &frame->part.offset, UINT64_MAX);
    walk_u64(walk, "total", &frame->part.total, UINT64_MAX);
    if (frame->part.offset >= frame->part.total)
        faulty(walk, "offset", "is beyond the end");
}

struct kind {
    const char *name;
    uint32_t fields;
    void (*walk)(struct walk *walk, struct meet_frame *frame);
};

enum { COMMON_FIELDS = 3, FIELDS_MAX = 15 };

static const struct kind kinds[MEET_KIND_END] = {
    [MEET_JOIN] = {"JOIN", 9, walk_join},       [MEET_WAIT] = {"WAIT", 1, walk_wait},
    [MEET_ASK] = {"ASK", 1, walk_ask},          [MEET_OPS] = {"OPS", 3, walk_ops},
    [MEET_WELCOME] = {"WELCOME", 4, walk_welcome}, [MEET_THANKS] = {"THANKS", 0, walk_thanks},
    [MEET_REFUSE] = {"REFUSE", 2, walk_refuse}, [MEET_WANT] = {"WANT", 1, walk_want},
    [MEET_PART] = {"PART", 2, walk_part},
};

size_t meet_encode(const struct meet_frame *frame, unsigned char bytes[MEET_FRAME_MAX])
{
    char magic[] = MAGIC;
    struct walk walk = {.bytes = bytes};
    struct meet_frame *fields = (struct meet_frame *)frame; /* a walk that writes changes nothing */
    assert(frame->kind >= MEET_JOIN && frame->kind < MEET_KIND_END);
    uint32_t version = frame->version ? frame->version : WIRE_VERSION, kind = frame->kind;
    msgpack_packer_init(&walk.packer, &walk, walk_write);
    walk_fields(&walk, "frame", COMMON_FIELDS + kinds[kind].fields);
    walk_text(&walk, "magic", magic, sizeof magic);
    walk_u32(&walk, "version", &version, UINT32_MAX);
    walk_u32(&walk, "kind", &kind, UINT32_MAX);
    kinds[kind].walk(&walk, fields);
    assert(!walk.fault);
    return walk.fault ? 0 : walk.count;
}

static weir_status kind_decode(struct walk *walk, struct meet_frame *frame, uint32_t fields)
{
    const struct kind *kind = &kinds[frame->kind];
    if (fields != COMMON_FIELDS + kind->fields)
        return error_set(WEIR_E_PEER, "%s: %u fields of %u", kind->name, fields, COMMON_FIELDS + kind->fields);
    kind->walk(walk, frame);
    if (!walk->fault && walk->left)
        faulty(walk, "frame", "goes on behind its end");
    return walk->fault ? error_set(WEIR_E_PEER, "%s: %s %s", kind->name, walk->field, walk->fault) : WEIR_OK;
}

weir_status meet_decode(const void *bytes, size_t bytes_count, struct meet_frame *frame)
{
    char magic[sizeof MAGIC] = "";
    uint32_t fields = 0;
    struct walk walk = {.reads = true, .at = bytes, .left = bytes_count};
    memset(frame, 0, sizeof *frame);
    walk_array(&walk, "frame", &fields, COMMON_FIELDS, FIELDS_MAX);
    walk_text(&walk, "magic", magic, sizeof magic);
    walk_u32(&walk, "version", &frame->version, UINT32_MAX);
    walk_u32(&walk, "kind", &frame->kind, UINT32_MAX);
    if (walk.fault || strcmp(magic, MAGIC) != 0)
        return error_set(WEIR_E_PEER, "it is no frame of weir's");
    if (frame->version != WIRE_VERSION && frame->kind != MEET_REFUSE)
        return WEIR_OK;
    if (frame->kind < MEET_JOIN || frame->kind >= MEET_KIND_END)
        return error_set(WEIR_E_PEER, "there is no kind %u", frame->kind);
    return kind_decode(&walk, frame, fields);
}
