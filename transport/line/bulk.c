/* transport/line/bulk.c: lines come to be, take turns, and go. See bulk.h. */
#include "transport/line/bulk.h"

#include <stdlib.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "graph/base/error.h"
#include "transport/mail/park.h"

#define ASK_EACH 4 /* so few lines are asked one by one, without asking which of them can be read */
#define EVENTS 32

/* ---- life ---- */

weir_status bulk_open(struct bulk *bulk, struct bulk_owner *owner, uint32_t ranks,
                      weir_status (*streams)(struct streams **streams, int epoll_fd))
{
    bulk->owner = owner;
    bulk->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    bulk->lines = calloc(ranks, sizeof(*bulk->lines));
    bulk->waiting = calloc(ranks, sizeof(*bulk->waiting));
    bulk->held = calloc(ranks, sizeof(*bulk->held));
    if (bulk->epoll_fd < 0 || !bulk->lines || !bulk->waiting || !bulk->held)
        return error_set(WEIR_E_MEMORY, "no memory for connections to %u ranks", ranks);
    weir_status status = sealing_open(&bulk->sealing);
    return status || !streams ? status : streams(&bulk->streams, bulk->epoll_fd);
}

static void line_free(struct bulk_line *line)
{
    bulk_end(line);
    bulk_out_close(line);
    bulk_in_close(line);
    free(line);
}

void bulk_close(struct bulk *bulk)
{
    for (uint32_t i = 0; i < bulk->lines_count; i++)
        line_free(bulk->lines[i]);
    if (bulk->streams)
        bulk->streams->ops->close(bulk->streams, bulk->linger_ns);
    free(bulk->lines);
    free(bulk->waiting);
    free(bulk->held);
    sealing_close(bulk->sealing);
    if (bulk->epoll_fd >= 0)
        close(bulk->epoll_fd);
}

/* A peer that has left, or is lost, has ended already. */
void bulk_end(struct bulk_line *line)
{
    if (!line->stream)
        return;
    epoll_ctl(line->bulk->epoll_fd, EPOLL_CTL_DEL, line->stream->fd, NULL);
    measure_look(&line->measure, line->stream->fd);
    line->stream->ops->close(line->stream);
    line->stream = NULL;
    if (line->out.queue)
        bulk_queue_drop(line);
    line->bulk->owner->cut(line->bulk->owner, line->rank);
}

struct bulk_line *bulk_line_new(struct bulk *bulk, uint32_t rank)
{
    struct bulk_line *line = calloc(1, sizeof(*line));
    if (!line)
        return NULL;
    *line = (struct bulk_line){.bulk = bulk, .rank = rank, .connecting = -1};
    return bulk->lines[bulk->lines_count++] = line;
}

weir_status bulk_line_stands(struct bulk_line *line, int fd)
{
    struct bulk *bulk = line->bulk;
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = line};
    line->stream = bulk->streams ? bulk->streams->ops->make(bulk->streams, fd) : stream_socket(fd);
    if (!line->stream)
        return error_set(WEIR_E_MEMORY, "no memory for the connection to rank %u", line->rank);
    epoll_ctl(bulk->epoll_fd, EPOLL_CTL_DEL, fd, NULL); /* that it is being made */
    if (epoll_ctl(bulk->epoll_fd, EPOLL_CTL_ADD, fd, &event))
        return error_set(WEIR_E_MEMORY, "no memory to wait for rank %u", line->rank);
    line->taken_ns = park_now_ns();
    return WEIR_OK;
}

weir_status bulk_route(struct bulk *bulk, const weir_plan *plan, const struct links *links, const struct arena *arenas)
{
    bulk->plan = plan;
    bulk->links = links;
    bulk->arenas = arenas;
    weir_status status = WEIR_OK;
    for (uint32_t i = 0; !status && i < bulk->lines_count; i++) {
        status = bulk_out_open(bulk->lines[i]);
        if (!status)
            status = bulk_in_open(bulk->lines[i]);
    }
    return status;
}

/* ---- turns ---- */

/* Another carrier takes the rest when it moves. */
static void line_watch(struct bulk_line *line)
{
    if (line->bulk->streams || !line->stream || line->watches_writing == line->out.blocked)
        return;
    line->watches_writing = line->out.blocked;
    struct epoll_event event = {.events = EPOLLIN | (line->out.blocked ? EPOLLOUT : 0), .data.ptr = line};
    epoll_ctl(line->bulk->epoll_fd, EPOLL_CTL_MOD, line->stream->fd, &event);
}

bool bulk_flush(struct bulk *bulk, size_t most)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < bulk->waiting_count; i++) {
        struct bulk_line *line = bulk->waiting[i];
        bool done = bulk_write(line, most);
        line_watch(line);
        line->out.listed = !done;
        if (!done)
            bulk->waiting[kept++] = line;
    }
    bulk->waiting_count = kept;
    return kept == 0;
}

/* Reads the lines that can be read; few are simply tried, and all of them where no descriptor tells. */
static bool lines_read(struct bulk *bulk, bool *drained)
{
    struct epoll_event events[EVENTS];
    bool any = false;
    if (bulk->lines_count <= ASK_EACH || bulk->streams) {
        for (uint32_t i = 0; i < bulk->lines_count; i++)
            any |= bulk->lines[i]->stream && bulk_read(bulk->lines[i], drained);
        return any;
    }
    int count = epoll_wait(bulk->epoll_fd, events, EVENTS, 0);
    for (int i = 0; i < count; i++) {
        struct bulk_line *line = events[i].data.ptr;
        any |= (events[i].events & ~(uint32_t)EPOLLOUT) && line->stream && bulk_read(line, drained);
    }
    return any;
}

/* A line that was blocked may still be. */
bool bulk_may_write(const struct bulk *bulk)
{
    for (uint32_t i = 0; i < bulk->waiting_count; i++)
        if (!bulk->waiting[i]->out.blocked)
            return true;
    return false;
}

bool bulk_flows(const struct bulk *bulk)
{
    bool flows = bulk->waiting_count > 0;
    for (uint32_t i = 0; i < bulk->lines_count && !flows; i++) {
        const struct bulk_in *in = &bulk->lines[i]->in;
        flows = in->due == BULK_DUE_SLOT && in->transfer->bytes > BULK_READ_TURN;
    }
    return flows;
}

/* A line may be dead while other connections live: packets of one size or port are lost. Both ends of it have something
 * to send sooner or later, which is then never acknowledged. */
static void stuck_look(struct bulk_line *line, int64_t now)
{
    if (!line->stream->ops->under_way)
        return;
    uint64_t under_way = line->stream->ops->under_way(line->stream), taken = line->written - under_way;
    bool waits = under_way || line->out.blocked;
    if (!waits || taken != line->taken)
        line->taken_ns = now;
    line->taken = taken;
    line->bulk->owner->stuck(line->bulk->owner, line->rank, line->taken_ns, waits ? under_way + bulk_queued(line) : 0, now);
}

void bulk_look(struct bulk *bulk, int64_t now)
{
    for (uint32_t i = 0; i < bulk->lines_count; i++) {
        struct bulk_line *line = bulk->lines[i];
        if (!line->stream)
            continue;
        measure_look(&line->measure, line->stream->fd);
        stuck_look(line, now);
    }
}

bool bulk_turn(struct bulk *bulk, bool *drained)
{
    struct streams *streams = bulk->streams;
    bool any = streams && streams->ops->turn(streams);
    any |= lines_read(bulk, drained);
    if (bulk->waiting_count)
        bulk_flush(bulk, BULK_WRITE_TURN);
    return any || bulk_may_write(bulk);
}

/* Connections beside which another carrier's streams go say nothing any more but that they end: with that of a peer that
 * has gone. Its last bytes still come. */
static bool ends_look(struct bulk *bulk)
{
    struct epoll_event events[EVENTS];
    bool any = false;
    int count = epoll_wait(bulk->epoll_fd, events, EVENTS, 0);
    for (int i = 0; i < count; i++) {
        struct bulk_line *line = events[i].data.ptr;
        if (!line || !line->stands || !line->stream)
            continue;
        epoll_ctl(bulk->epoll_fd, EPOLL_CTL_DEL, line->stream->fd, NULL);
        line->bulk->owner->cut(line->bulk->owner, line->rank);
        any = true;
    }
    return any;
}

bool bulk_rest(struct bulk *bulk)
{
    return !bulk->streams || (!ends_look(bulk) && bulk->streams->ops->rest(bulk->streams));
}
