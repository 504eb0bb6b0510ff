/* transport/line/bulk_out.c: what goes over a line. See bulk.h. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "graph/base/error.h"
#include "transport/line/bulk.h"

/* ---- the queue ---- */

static void wait_to_write(struct bulk_line *line)
{
    struct bulk *bulk = line->bulk;
    if (line->out.listed)
        return;
    line->out.listed = true;
    bulk->waiting[bulk->waiting_count++] = line;
}

/* Everything that credit bounds has room from the start; only what the session says itself can ask for more. */
static struct bulk_entry *entry_add(struct bulk_line *line)
{
    struct bulk_out *out = &line->out;
    if (out->queue_count == out->queue_room) {
        struct bulk_entry *grown = calloc(2 * (size_t)out->queue_room, sizeof(*grown));
        if (!grown) {
            line->bulk->owner->broken(line->bulk->owner, "no memory for what is to be sent");
            return NULL;
        }
        for (uint32_t i = 0; i < out->queue_count; i++)
            grown[i] = out->queue[(out->queue_first + i) % out->queue_room];
        free(out->queue);
        out->queue = grown;
        out->queue_first = 0;
        out->queue_room *= 2;
    }
    struct bulk_entry *entry = &out->queue[(out->queue_first + out->queue_count++) % out->queue_room];
    *entry = (struct bulk_entry){.transfer = NULL};
    return entry;
}

static struct bulk_entry *entry_last(struct bulk_out *out)
{
    return out->queue_count ? &out->queue[(out->queue_first + out->queue_count - 1) % out->queue_room] : NULL;
}

static void entry_done(struct bulk_out *out)
{
    out->queue_first = (out->queue_first + 1) % out->queue_room;
    out->queue_count--;
    out->span = 0;
    out->begun = false;
}

/* Nothing follows the last word. */
static bool may_post(const struct bulk_line *line)
{
    return line->stream && !line->writes_over && !line->parted;
}

void bulk_post_slot(struct bulk_line *line, const struct transfer *transfer, uint32_t slot, bool initial)
{
    struct bulk_entry *entry = may_post(line) ? entry_add(line) : NULL;
    if (!entry)
        return;
    *entry = (struct bulk_entry){.transfer = transfer, .slot = slot, .initial = initial};
    wait_to_write(line);
}

/* Whether the message before says the same of the same edge: then it says it of more slots. */
static bool word_joins(struct bulk_out *out, struct message message)
{
    uint32_t last = (out->words_first + out->words_count + out->words_room - 1) % out->words_room;
    struct message before = message_unpack(out->words[last]);
    if (before.edge != message.edge || before.kind != message.kind || before.count + message.count > UINT16_MAX)
        return false;
    before.count = (uint16_t)(before.count + message.count);
    out->words[last] = message_pack(before);
    return true;
}

static void hold_or_write(struct bulk_line *line, uint32_t hold)
{
    struct bulk *bulk = line->bulk;
    struct bulk_out *out = &line->out;
    uint32_t last = (out->words_first + out->words_count + out->words_room - 1) % out->words_room;
    if (message_unpack(out->words[last]).count > hold) {
        wait_to_write(line);
    } else if (!out->held) {
        out->held = true;
        bulk->held[bulk->held_count++] = line;
    }
}

void bulk_release(struct bulk *bulk)
{
    for (uint32_t i = 0; i < bulk->held_count; i++) {
        bulk->held[i]->out.held = false;
        if (bulk->held[i]->out.queue_count)
            wait_to_write(bulk->held[i]);
    }
    bulk->held_count = 0;
}

void bulk_post_word(struct bulk_line *line, struct message message, uint32_t hold)
{
    struct bulk_out *out = &line->out;
    struct bulk_entry *entry = entry_last(out);
    if (!may_post(line))
        return;
    bool goes_on = entry && entry->words;
    if (!goes_on || !word_joins(out, message)) {
        if (!goes_on && !(entry = entry_add(line)))
            return;
        assert(out->words_count < out->words_room);
        out->words[(out->words_first + out->words_count++) % out->words_room] = message_pack(message);
        entry->words++;
    }
    hold_or_write(line, hold);
}

void bulk_post_frame(struct bulk_line *line, const struct wire_frame *frame, zmq_msg_t *payload)
{
    struct bulk_control *control = may_post(line) ? calloc(1, sizeof(*control)) : NULL;
    struct bulk_entry *entry = control ? entry_add(line) : NULL;
    if (!entry) {
        free(control);
        return;
    }
    control->header_bytes = (uint32_t)wire_encode(frame, control->header);
    control->bye = line->parted = frame->kind == WIRE_BYE;
    control->has_payload = payload != NULL;
    if (payload) {
        zmq_msg_init(&control->payload);
        zmq_msg_copy(&control->payload, payload);
    }
    entry->control = control;
    wait_to_write(line);
}

static void control_free(struct bulk_line *line, struct bulk_control *control)
{
    if (control->bye)
        line->bulk->owner->word_gone(line->bulk->owner, line->rank);
    if (control->has_payload)
        zmq_msg_close(&control->payload);
    free(control);
}

/* ---- staging ---- */

static size_t small_left(const struct bulk_out *out)
{
    return BULK_SMALL_BYTES - out->small_used;
}

static bool parts_full(const struct bulk_out *out)
{
    return out->parts_first + out->parts_count == BULK_PARTS;
}

/* A part that lies behind the part before becomes one with it. */
static void part_add(struct bulk_out *out, const void *at, size_t bytes)
{
    struct iovec *last = out->parts_count ? &out->parts[out->parts_first + out->parts_count - 1] : NULL;
    if (last && (const char *)last->iov_base + last->iov_len == at) {
        last->iov_len += bytes;
        return;
    }
    assert(!parts_full(out));
    out->parts[out->parts_first + out->parts_count++] = (struct iovec){(void *)at, bytes};
}

/* Room for bytes that the caller writes; there is some. */
static unsigned char *small_add(struct bulk_out *out, size_t bytes)
{
    unsigned char *at = out->small + out->small_used;
    assert(bytes <= small_left(out));
    out->small_used += bytes;
    part_add(out, at, bytes);
    return at;
}

static void head_add(struct bulk_out *out, const struct bulk_head *head)
{
    bulk_head_encode(head, small_add(out, BULK_HEAD_BYTES));
}

static const char *slot_address(const struct bulk *bulk, const struct transfer *transfer, uint32_t slot)
{
    const plan_regst *regst = &bulk->plan->regsts[transfer->regst];
    return bulk->arenas[regst->space.i].base + regst->offset + slot * regst->slot_bytes;
}

/* A slot is not written again before its readers have freed it, so it may lie there until it is written. False: there
 * is no room now. */
static bool span_stage(struct bulk_line *line, const struct span *span, const char *slot)
{
    struct bulk_out *out = &line->out;
    const struct links *links = line->bulk->links;
    if (parts_full(out))
        return false;
    if (span->direct && span->bytes > BULK_COPY_BYTES) {
        part_add(out, slot + span->slot_offset, span->bytes);
        return true;
    }
    if (span->bytes <= small_left(out)) {
        unsigned char *to = small_add(out, span->bytes);
        if (span->direct)
            memcpy(to, slot + span->slot_offset, span->bytes);
        else
            links_pack(links, line->bulk->plan, span, slot, (char *)to);
        return true;
    }
    if (span->direct || span->bytes <= BULK_SMALL_BYTES || out->packed_used)
        return false;
    out->packed_used = true;
    links_pack(links, line->bulk->plan, span, slot, out->packed);
    part_add(out, out->packed, span->bytes);
    return true;
}

static bool slot_stage(struct bulk_line *line, const struct bulk_entry *entry)
{
    struct bulk_out *out = &line->out;
    const struct transfer *transfer = entry->transfer;
    const struct span *spans = line->bulk->links->spans + transfer->spans.first;
    const char *slot = slot_address(line->bulk, transfer, entry->slot);
    if (!out->begun) {
        if (small_left(out) < BULK_HEAD_BYTES || parts_full(out))
            return false;
        head_add(out, &(struct bulk_head){.kind = BULK_SLOT,
                                          .initial = entry->initial,
                                          .edge = transfer->leader,
                                          .slot = entry->slot,
                                          .shape = transfer->shape,
                                          .bytes = transfer->bytes});
        out->begun = true;
    }
    while (out->span < transfer->spans.count && span_stage(line, &spans[out->span], slot))
        out->span++;
    return out->span == transfer->spans.count;
}

static bool words_stage(struct bulk_out *out, struct bulk_entry *entry)
{
    size_t left = small_left(out);
    if (left < BULK_HEAD_BYTES + sizeof(uint64_t) || parts_full(out))
        return false;
    size_t room = (left - BULK_HEAD_BYTES) / sizeof(uint64_t);
    uint32_t count = entry->words < room ? entry->words : (uint32_t)room;
    head_add(out, &(struct bulk_head){.kind = BULK_WORDS, .bytes = count * sizeof(uint64_t)});
    unsigned char *to = small_add(out, count * sizeof(uint64_t));
    for (uint32_t i = 0; i < count; i++) {
        memcpy(to + i * sizeof(uint64_t), &out->words[out->words_first], sizeof(uint64_t));
        out->words_first = out->words_first + 1 == out->words_room ? 0 : out->words_first + 1;
    }
    out->words_count -= count;
    entry->words -= count;
    return !entry->words;
}

static bool control_stage(struct bulk_out *out, struct bulk_control *control)
{
    size_t bytes = control->has_payload ? zmq_msg_size(&control->payload) : 0;
    if (small_left(out) < BULK_HEAD_BYTES + control->header_bytes || out->parts_first + out->parts_count > BULK_PARTS - 2)
        return false;
    head_add(out, &(struct bulk_head){.kind = BULK_FRAME,
                                      .count = (uint16_t)control->header_bytes,
                                      .bytes = control->header_bytes + bytes});
    memcpy(small_add(out, control->header_bytes), control->header, control->header_bytes);
    if (bytes)
        part_add(out, zmq_msg_data(&control->payload), bytes);
    control->next = out->control;
    out->control = control;
    return true;
}

static void said_release(struct bulk_line *line)
{
    struct bulk_out *out = &line->out;
    for (struct bulk_control *next; out->control; out->control = next) {
        next = out->control->next;
        control_free(line, out->control);
    }
}

/* Bytes that parts referred to have been written, or are in records: which may still have to be, and a BYE has not gone
 * before. */
static void parts_release(struct bulk_line *line)
{
    struct bulk_out *out = &line->out;
    out->parts_first = 0;
    out->small_used = 0;
    out->packed_used = false;
    if (out->records_first == out->records_end)
        said_release(line);
}

/* Whether there is a part to be written. */
static bool stage(struct bulk_line *line)
{
    struct bulk_out *out = &line->out;
    bool staged = true;
    if (!out->parts_count)
        parts_release(line);
    while (out->queue_count && staged) {
        struct bulk_entry *entry = &out->queue[out->queue_first];
        staged = entry->transfer ? slot_stage(line, entry)
               : entry->control     ? control_stage(out, entry->control)
                                 : words_stage(out, entry);
        if (staged)
            entry_done(out);
    }
    return out->parts_count > 0;
}

static void parts_drop(struct bulk_out *out, size_t bytes)
{
    while (bytes) {
        struct iovec *part = &out->parts[out->parts_first];
        size_t count = bytes < part->iov_len ? bytes : part->iov_len;
        part->iov_base = (char *)part->iov_base + count;
        part->iov_len -= count;
        bytes -= count;
        if (part->iov_len)
            continue;
        out->parts_first++;
        out->parts_count--;
    }
}

/* ---- records ---- */

/* The parts of the next record. One that has something in it ends where a part begins that fills a record by itself: then
 * large slots are opened straight to where they belong. */
static size_t record_parts(const struct bulk_out *out, struct iovec *parts, int *count)
{
    size_t bytes = 0;
    *count = 0;
    for (int i = 0; i < out->parts_count && bytes < BULK_RECORD_BYTES; i++) {
        struct iovec part = out->parts[out->parts_first + i];
        if (bytes && part.iov_len >= BULK_RECORD_BYTES)
            break;
        part.iov_len = part.iov_len < BULK_RECORD_BYTES - bytes ? part.iov_len : BULK_RECORD_BYTES - bytes;
        parts[(*count)++] = part;
        bytes += part.iov_len;
    }
    return bytes;
}

/* False: it cannot be encrypted. */
static bool records_make(struct bulk_line *line)
{
    struct bulk_out *out = &line->out;
    struct iovec parts[BULK_PARTS];
    int count;
    out->records_first = out->records_end = 0;
    for (int i = 0; i < BULK_RECORDS && (out->parts_count || stage(line)); i++) {
        size_t bytes = record_parts(out, parts, &count);
        if (!seal_write(out->box, parts, count, bytes, out->records + out->records_end))
            return false;
        out->records_end += bytes + SEAL_OVER_BYTES;
        parts_drop(out, bytes);
    }
    return true;
}

/* ---- writing ---- */

static void write_ended(struct bulk_line *line)
{
    line->writes_over = true;
    bulk_queue_drop(line);
    line->bulk->owner->cut(line->bulk->owner, line->rank);
}

/* As many of the parts as have so many bytes, the last one cut, but not to leave a little; returns how many. */
static int parts_cut(const struct iovec *parts, int count, size_t most, struct iovec *cut)
{
    int used = 0;
    for (size_t left = most; used < count && left; used++) {
        bool whole = parts[used].iov_len <= left + BULK_SMALL_BYTES;
        cut[used] = (struct iovec){parts[used].iov_base, whole ? parts[used].iov_len : left};
        left -= cut[used].iov_len < left ? cut[used].iov_len : left;
    }
    return used;
}

/* The parts that come next, as they go over the stream; 0 parts: nothing. */
static int next_parts(struct bulk_line *line, struct iovec *record, const struct iovec **parts)
{
    struct bulk_out *out = &line->out;
    if (!out->box) {
        bool any = out->parts_count || stage(line);
        *parts = out->parts + out->parts_first;
        return any ? out->parts_count : 0;
    }
    if (out->records_first == out->records_end && !records_make(line)) {
        line->bulk->owner->broken(line->bulk->owner, "what is to be sent cannot be encrypted");
        return 0;
    }
    *record = (struct iovec){out->records + out->records_first, out->records_end - out->records_first};
    *parts = record;
    return record->iov_len ? 1 : 0;
}

bool bulk_write(struct bulk_line *line, size_t most)
{
    struct bulk_out *out = &line->out;
    struct iovec record, cut[BULK_PARTS];
    const struct iovec *parts;
    size_t done = 0;
    if (out->box && most > BULK_RECORDS * BULK_RECORD_BYTES)
        most = BULK_RECORDS * BULK_RECORD_BYTES;
    out->blocked = false;
    for (int count; line->stream && !line->writes_over && (count = next_parts(line, &record, &parts)) > 0;) {
        ssize_t written = line->stream->ops->write(line->stream, cut, parts_cut(parts, count, most - done, cut));
        if (written < 0)
            write_ended(line);
        out->blocked = written == 0;
        if (written <= 0)
            return written < 0;
        if (out->box)
            out->records_first += (size_t)written;
        else
            parts_drop(out, (size_t)written);
        done += (size_t)written;
        line->written += (uint64_t)written;
        if (done >= most)
            return false;
    }
    if (!out->parts_count)
        parts_release(line);
    return true;
}

static uint64_t entry_bytes(const struct bulk_line *line, const struct bulk_entry *entry, uint32_t first_span)
{
    const struct transfer *transfer = entry->transfer;
    uint64_t bytes = entry->words * sizeof(uint64_t);
    if (entry->control && entry->control->has_payload)
        bytes += zmq_msg_size(&entry->control->payload);
    for (uint32_t i = first_span; transfer && i < transfer->spans.count; i++)
        bytes += line->bulk->links->spans[transfer->spans.first + i].bytes;
    return bytes;
}

uint64_t bulk_queued(const struct bulk_line *line)
{
    const struct bulk_out *out = &line->out;
    uint64_t bytes = out->records_end - out->records_first;
    for (int i = 0; i < out->parts_count; i++)
        bytes += out->parts[out->parts_first + i].iov_len;
    for (uint32_t i = 0; i < out->queue_count; i++)
        bytes += entry_bytes(line, &out->queue[(out->queue_first + i) % out->queue_room], i ? 0 : out->span);
    return bytes;
}

void bulk_queue_drop(struct bulk_line *line)
{
    struct bulk_out *out = &line->out;
    for (; out->queue_count; entry_done(out))
        if (out->queue[out->queue_first].control)
            control_free(line, out->queue[out->queue_first].control);
    out->words_count = 0;
    out->parts_count = 0;
    out->records_first = out->records_end = 0;
    parts_release(line);
}

/* ---- life ---- */

weir_status bulk_out_open(struct bulk_line *line)
{
    const struct links *links = line->bulk->links;
    const weir_plan *plan = line->bulk->plan;
    struct bulk_out *out = &line->out;
    uint64_t packed = 0;
    uint32_t slots = 0;
    for (uint32_t i = 0; i < links->transfers_count; i++) {
        const struct transfer *transfer = &links->transfers[i];
        if (transfer->to != line->rank)
            continue;
        slots += plan->regsts[transfer->regst].slots;
        for (uint32_t k = transfer->spans.first; k < transfer->spans.first + transfer->spans.count; k++)
            if (!links->spans[k].direct && links->spans[k].bytes > packed)
                packed = links->spans[k].bytes;
    }
    out->queue_room = 2 * (2 * slots + 64);
    out->words_room = 16 + line->bulk->owner->words_most(line->bulk->owner, line->rank);
    out->queue = calloc(out->queue_room, sizeof(*out->queue));
    out->words = calloc(out->words_room, sizeof(*out->words));
    out->small = calloc(1, BULK_SMALL_BYTES); /* what lies between packed pieces is sent, too */
    out->packed = calloc(1, packed > BULK_SMALL_BYTES ? packed : 1);
    out->records = malloc(out->box ? BULK_RECORDS * (BULK_RECORD_BYTES + SEAL_OVER_BYTES) : 1);
    return out->queue && out->words && out->small && out->packed && out->records
               ? WEIR_OK
               : error_set(WEIR_E_MEMORY, "no memory for what goes to rank %u", line->rank);
}

void bulk_out_close(struct bulk_line *line)
{
    struct bulk_out *out = &line->out;
    if (out->queue)
        bulk_queue_drop(line);
    free(out->queue);
    free(out->words);
    free(out->small);
    free(out->packed);
    free(out->records);
    seal_box_free(out->box);
}
