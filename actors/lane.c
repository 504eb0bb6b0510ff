/* actors/lane.c: see the header. Merging on the line itself, rather than looking for an equal message in a queue of
 * messages, makes it free: the line is at hand when the slot is published or freed. */
#include "actors/lane.h"

#include <stdlib.h>

#include "graph/base/error.h"

#define GATHERED_MAX 16 /* messages that are posted together: two cache lines */

weir_status lane_open(struct lane *lane, const struct lane_size *size, struct spin spin, void *ring)
{
    lane->outbox.room = size->lines;
    lane->outbox.lines = calloc(size->lines ? size->lines : 1, sizeof(*lane->outbox.lines));
    if (!lane->outbox.lines || !ready_open(&lane->ready, size->actors))
        return error_set(WEIR_E_MEMORY, "no memory for the ready set of %u actors", size->actors);
    if (!ring)
        return mailbox_open(&lane->mailbox, size->messages, spin);
    mailbox_share(&lane->mailbox, ring, size->messages, spin);
    return WEIR_OK;
}

void lane_close(struct lane *lane)
{
    mailbox_close(&lane->mailbox);
    ready_close(&lane->ready);
    free(lane->outbox.lines);
    lane->outbox = (struct outbox){0};
}

/* A message says at most MESSAGE_COUNT_MAX. */
static void line_flush_many(struct outgoing *line)
{
    for (; line->unsent > MESSAGE_COUNT_MAX; line->unsent -= MESSAGE_COUNT_MAX)
        line->end->post(line->end, message_counted(line->message, MESSAGE_COUNT_MAX));
}

static void post_together(struct bus_end *end, const struct message *messages, uint32_t count)
{
    if (end->post_many && count > 1)
        end->post_many(end, messages, count);
    else
        for (uint32_t i = 0; i < count; i++)
            end->post(end, messages[i]);
}

/* Lines for one end that stand next to each other are posted together; on two workers all are. */
void lane_flush(struct lane *lane, bool rests)
{
    struct bus_end *posted = NULL; /* that is to be flushed: there is one such end, the network's */
    struct outgoing *const *line = lane->outbox.lines, *const *last = line + lane->outbox.count;
    lane->outbox.count = 0;
    while (line < last) {
        struct message messages[GATHERED_MAX];
        struct bus_end *end = (*line)->end;
        uint32_t count = 0;
        for (; line < last && (*line)->end == end && count < GATHERED_MAX; line++) {
            struct outgoing *one = *line;
            if (one->unsent > MESSAGE_COUNT_MAX)
                line_flush_many(one);
            messages[count++] = message_counted(one->message, (uint16_t)one->unsent);
            one->unsent = 0;
        }
        post_together(end, messages, count);
        posted = end->flush ? end : posted;
    }
    if (posted && posted->flush)
        posted->flush(posted, rests);
}
