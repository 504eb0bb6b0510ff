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
    struct message message = line->message;
    message.count = MESSAGE_COUNT_MAX;
    for (; line->unsent > MESSAGE_COUNT_MAX; line->unsent -= MESSAGE_COUNT_MAX)
        line->end->post(line->end, message);
}

/* Messages for one end, that go there together. */
struct gathered {
    struct bus_end *end;
    uint32_t count;
    struct message messages[GATHERED_MAX];
};

static void gathered_post(struct gathered *g)
{
    if (g->end->post_many && g->count > 1)
        g->end->post_many(g->end, g->messages, g->count);
    else
        for (uint32_t i = 0; i < g->count; i++)
            g->end->post(g->end, g->messages[i]);
    g->count = 0;
}

/* Lines for one end that stand next to each other are gathered; on two workers all are. */
void lane_flush(struct lane *lane)
{
    struct bus_end *posted = NULL; /* that is to be flushed: there is one such end, the network's */
    struct gathered gathered;
    gathered.count = 0;
    for (uint32_t i = 0; i < lane->outbox.count; i++) {
        struct outgoing *line = lane->outbox.lines[i];
        if (gathered.count && (gathered.end != line->end || gathered.count == GATHERED_MAX))
            gathered_post(&gathered);
        if (line->unsent > MESSAGE_COUNT_MAX)
            line_flush_many(line);
        gathered.end = line->end;
        gathered.messages[gathered.count] = line->message;
        gathered.messages[gathered.count++].count = (uint16_t)line->unsent;
        line->unsent = 0;
        if (line->end->flush)
            posted = line->end;
    }
    if (gathered.count)
        gathered_post(&gathered);
    lane->outbox.count = 0;
    if (posted)
        posted->flush(posted);
}
