/* transport/line/bulk_in.c: what comes over a line. Nothing in it is believed: each head is held against what the peer may
 * send now before a byte of its payload is put anywhere. See bulk.h. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "graph/base/error.h"
#include "transport/line/bulk.h"

#define RAW_SEALED_BYTES (BULK_RECORDS * (BULK_RECORD_BYTES + SEAL_OVER_BYTES))
#define PLAIN_BYTES (2 * BULK_RECORD_BYTES)

/* ---- what is due ---- */

static const struct span *span_due(const struct bulk_line *line)
{
    const struct bulk_in *in = &line->in;
    return &line->bulk->links->spans[in->transfer->spans.first + in->span];
}

/* The bytes of the slot that come next go there; *bytes: so many in a run. */
static char *slot_due(const struct bulk_line *line, uint64_t *bytes)
{
    const struct bulk_in *in = &line->in;
    const struct span *span = span_due(line);
    *bytes = span->bytes - in->done;
    return links_receive(in->transfer, span, in->head.slot) + in->done;
}

/* So many bytes of the slot have come, no more than are due in a run. */
static void slot_came(struct bulk_line *line, uint64_t bytes)
{
    struct bulk_in *in = &line->in;
    in->done += bytes;
    if (in->done == span_due(line)->bytes) {
        in->done = 0;
        in->span++;
    }
    if (in->span < in->transfer->spans.count)
        return;
    in->due = BULK_DUE_HEAD;
    line->bulk->owner->slot_came(line->bulk->owner, in->transfer, in->head.initial);
}

static void lose(struct bulk_line *line, const char *wrong)
{
    char how[200];
    snprintf(how, sizeof(how), "it broke the protocol: %s", wrong);
    line->bulk->owner->lose(line->bulk->owner, line->rank, how);
}

static void head_take(struct bulk_line *line, const unsigned char *bytes)
{
    struct bulk_in *in = &line->in;
    const char *wrong = bulk_head_decode(bytes, &in->head);
    in->done = 0;
    in->span = 0;
    if (wrong) {
        lose(line, wrong);
    } else if (in->head.kind == BULK_SLOT) {
        in->transfer = line->bulk->owner->slot_due(line->bulk->owner, line->rank, &in->head);
        in->due = in->transfer && in->transfer->spans.count ? BULK_DUE_SLOT : BULK_DUE_HEAD;
        if (in->transfer && !in->transfer->spans.count)
            line->bulk->owner->slot_came(line->bulk->owner, in->transfer, in->head.initial);
    } else if (in->head.bytes > (in->head.kind == BULK_WORDS ? UINT32_MAX : line->bulk->frame_most)) {
        char payload[60];
        snprintf(payload, sizeof(payload), "a payload of %llu bytes", (unsigned long long)in->head.bytes);
        lose(line, payload);
    } else {
        in->due = in->head.kind == BULK_WORDS ? BULK_DUE_WORDS : BULK_DUE_FRAME;
    }
}

/* ---- payloads ---- */

static size_t take_slot(struct bulk_line *line, const unsigned char *bytes, size_t count)
{
    uint64_t due;
    char *to = slot_due(line, &due);
    size_t taken = count < due ? count : due;
    memcpy(to, bytes, taken);
    slot_came(line, taken);
    return taken;
}

static size_t take_words(struct bulk_line *line, const unsigned char *bytes, size_t count)
{
    struct bulk_in *in = &line->in;
    size_t left = in->head.bytes - in->done;
    size_t words = (count < left ? count : left) / sizeof(uint64_t);
    line->bulk->owner->words(line->bulk->owner, line->rank, bytes, (uint32_t)words);
    in->done += words * sizeof(uint64_t);
    if (in->done == in->head.bytes)
        in->due = BULK_DUE_HEAD;
    return words * sizeof(uint64_t);
}

static void frame_take(struct bulk_line *line, const unsigned char *bytes)
{
    const struct bulk_head *head = &line->in.head;
    size_t left = head->bytes - head->count;
    line->in.due = BULK_DUE_HEAD;
    line->bulk->owner->frame(line->bulk->owner, line->rank, bytes, head->count, left ? bytes + head->count : NULL, left);
}

/* One that has come whole is looked at where it lies. */
static size_t take_frame(struct bulk_line *line, const unsigned char *bytes, size_t count)
{
    struct bulk_in *in = &line->in;
    if (!in->body && count >= in->head.bytes) {
        size_t taken = in->head.bytes;
        frame_take(line, bytes);
        return taken;
    }
    if (!in->body && !(in->body = malloc(in->head.bytes))) {
        line->bulk->owner->broken(line->bulk->owner, "no memory for what another rank says");
        bulk_end(line);
        return 0;
    }
    size_t left = in->head.bytes - in->done, taken = count < left ? count : left;
    memcpy(in->body + in->done, bytes, taken);
    in->done += taken;
    if (in->done == in->head.bytes) {
        unsigned char *body = in->body;
        in->body = NULL;
        frame_take(line, body);
        free(body);
    }
    return taken;
}

/* Whether the line is still read: until both last words have passed. */
static bool listens(const struct bulk_line *line)
{
    return line->stream && !line->bulk->owner->over(line->bulk->owner, line->rank);
}

size_t bulk_take(struct bulk_line *line, const unsigned char *bytes, size_t count)
{
    struct bulk_in *in = &line->in;
    size_t done = 0;
    while (done < count && listens(line)) {
        size_t left = count - done, taken = 0;
        if (in->due == BULK_DUE_SLOT) {
            taken = take_slot(line, bytes + done, left);
        } else if (in->due == BULK_DUE_WORDS) {
            taken = take_words(line, bytes + done, left);
        } else if (in->due == BULK_DUE_FRAME) {
            taken = take_frame(line, bytes + done, left);
        } else if (left >= BULK_HEAD_BYTES) {
            head_take(line, bytes + done);
            taken = BULK_HEAD_BYTES;
        }
        if (!taken)
            break;
        done += taken;
    }
    return listens(line) ? done : count;
}

/* ---- records ---- */

/* A record whose bytes all belong to the slot that is coming is opened there; others pass through a buffer. */
static void record_open(struct bulk_line *line, const unsigned char *record, size_t bytes)
{
    static const char *const wrong = "a record that is not the next of its connection: changed, repeated or made up";
    struct bulk_in *in = &line->in;
    uint64_t due = 0;
    char *slot = in->due == BULK_DUE_SLOT && in->plain_first == in->plain_end ? slot_due(line, &due) : NULL;
    if (slot && due >= bytes) {
        if (seal_read(in->box, record, bytes, (unsigned char *)slot))
            slot_came(line, bytes);
        else
            lose(line, wrong);
        return;
    }
    memmove(in->plain, in->plain + in->plain_first, in->plain_end - in->plain_first);
    in->plain_end -= in->plain_first;
    in->plain_first = 0;
    if (!seal_read(in->box, record, bytes, in->plain + in->plain_end)) {
        lose(line, wrong);
        return;
    }
    in->plain_end += bytes;
    in->plain_first += bulk_take(line, in->plain, in->plain_end);
}

static void records_take(struct bulk_line *line)
{
    struct bulk_in *in = &line->in;
    while (listens(line) && in->raw_end - in->raw_first >= SEAL_HEAD_BYTES) {
        const unsigned char *record = in->raw + in->raw_first;
        size_t bytes = seal_record_bytes(record);
        if (!bytes || bytes > BULK_RECORD_BYTES) {
            lose(line, "a record of a size that there is none of");
            return;
        }
        if (in->raw_end - in->raw_first < bytes + SEAL_OVER_BYTES)
            return;
        in->raw_first += bytes + SEAL_OVER_BYTES;
        record_open(line, record, bytes);
    }
}

/* ---- reading ---- */

static void raw_take(struct bulk_line *line)
{
    struct bulk_in *in = &line->in;
    if (in->box)
        records_take(line);
    else
        in->raw_first += bulk_take(line, in->raw + in->raw_first, in->raw_end - in->raw_first);
    if (in->raw_first == in->raw_end)
        in->raw_first = in->raw_end = 0;
}

/* The rest of a record, or of a head, goes to the front when there is little room behind it. */
static void raw_room(struct bulk_in *in)
{
    if (!in->raw_first || in->raw_room - in->raw_end >= in->raw_room / 2)
        return;
    memmove(in->raw, in->raw + in->raw_first, in->raw_end - in->raw_first);
    in->raw_end -= in->raw_first;
    in->raw_first = 0;
}

/* One call of the stream: what is due for a slot goes there at once. False: there was nothing. */
static bool read_once(struct bulk_line *line, size_t *count, bool *full)
{
    struct bulk_in *in = &line->in;
    struct iovec parts[2];
    uint64_t direct = 0;
    int used = 0;
    raw_room(in);
    if (!in->box && in->due == BULK_DUE_SLOT && in->raw_first == in->raw_end) {
        char *slot = slot_due(line, &direct);
        parts[used++] = (struct iovec){slot, direct};
    }
    size_t room = in->raw_room - in->raw_end;
    parts[used++] = (struct iovec){in->raw + in->raw_end, room};
    ssize_t came = line->stream->ops->read(line->stream, parts, used);
    if (came < 0)
        bulk_end(line);
    if (came <= 0)
        return false;
    *count = (size_t)came;
    *full = *count == direct + room || (direct && *count == direct);
    size_t to_slot = *count < direct ? *count : direct;
    in->raw_end += *count - to_slot;
    if (to_slot)
        slot_came(line, to_slot);
    raw_take(line);
    return true;
}

bool bulk_read(struct bulk_line *line, bool *drained)
{
    size_t done = 0, count;
    bool full = true, any = false;
    while (full && listens(line) && read_once(line, &count, &full)) {
        any = true;
        done += count;
        if (done < BULK_READ_TURN)
            continue;
        *drained = false;
        break;
    }
    if (any)
        line->bulk->owner->heard(line->bulk->owner, line->rank);
    if (!listens(line))
        bulk_end(line);
    return any;
}

/* ---- life ---- */

weir_status bulk_in_open(struct bulk_line *line)
{
    struct bulk_in *in = &line->in;
    in->raw_room = in->box ? RAW_SEALED_BYTES : BULK_READ_BYTES;
    in->raw = malloc(in->raw_room);
    in->plain = malloc(in->box ? PLAIN_BYTES : 1);
    return in->raw && in->plain ? WEIR_OK : error_set(WEIR_E_MEMORY, "no memory for what comes from rank %u", line->rank);
}

void bulk_in_close(struct bulk_line *line)
{
    free(line->in.raw);
    free(line->in.plain);
    free(line->in.body);
    seal_box_free(line->in.box);
}
