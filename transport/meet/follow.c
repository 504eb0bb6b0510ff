/* transport/meet/follow.c: the side of every rank but 0. It says JOIN until somebody answers, answers what it is asked,
 * and keeps what it is given in order; a frame that is missing shows, and the next JOIN brings all of it again.
 *
 * JOIN is said once there is a connection, as the socket's events tell. Said before, it would wait in ZeroMQ's queue and
 * arrive as often as it was said; and ZMQ_IMMEDIATE, which is there to prevent that, throws away what came in on a
 * connection that was closed since: the last word of a rank 0 that refuses.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "graph/base/error.h"
#include "graph/plan/form/file.h"
#include "transport/meet/inside.h"
#include "transport/meet/ops.h"
#include "transport/mail/version.h"

enum { AGAIN_MS = 500 }; /* of silence, after which JOIN is said again */

struct follower {
    struct meeting *meeting;
    struct op_list ops;   /* our own, once rank 0 has asked */
    uint32_t cards;       /* that have come */
    bool reached;         /* somebody accepted a connection */
    bool connected;       /* and speaks ZeroMQ, with our key */
    bool done;
    int64_t join_at_ns;
    char wait[MEET_TEXT_MAX + 1]; /* rank 0's last WAIT */
};

static void send_join(struct follower *f)
{
    struct meeting *meeting = f->meeting;
    const struct cluster_env *env = meeting->meet->env;
    meeting->out = (struct meet_frame){.kind = MEET_JOIN};
    meeting->out.join.plan_version = PLAN_VERSION;
    meeting->out.join.purpose = meeting->purpose;
    memcpy(meeting->out.join.name, meeting->name, sizeof meeting->name);
    meeting->out.join.rank = env->rank;
    meeting->out.join.size = env->size;
    meeting->out.join.generation = env->generation;
    snprintf(meeting->out.join.level, sizeof meeting->out.join.level, "%s", env->level ? env->level : "");
    cluster_carriers_text(env->carriers, meeting->out.join.carriers);
    meeting->out.join.plan = meeting->plan;
    meeting->out.join.card = meeting->meet->members[env->rank];
    meet_send(meeting, NULL, 0, NULL, 0);
    f->join_at_ns = meet_now_ns() + AGAIN_MS * INT64_C(1000000);
}

static weir_status take_ask(struct follower *f)
{
    struct meeting *meeting = f->meeting;
    uint32_t first = meeting->in.ask.first;
    weir_status status = WEIR_OK;
    if (!meeting->meet->plan)
        return error_set(WEIR_E_PEER, "rank 0 asks for the ops of a plan that rank %u does not have",
                         meeting->meet->env->rank);
    if (!f->ops.ops)
        status = op_list_of(meeting->meet->plan, &f->ops);
    if (status != WEIR_OK || first > f->ops.count)
        return status;
    uint32_t left = f->ops.count - first;
    meeting->out = (struct meet_frame){.kind = MEET_OPS};
    meeting->out.ops.first = first;
    meeting->out.ops.total = f->ops.count;
    meeting->out.ops.count = left < MEET_ITEMS_MAX ? left : MEET_ITEMS_MAX;
    if (left)
        memcpy(meeting->out.ops.op, f->ops.ops + first, meeting->out.ops.count * sizeof(struct meet_op));
    meet_send(meeting, NULL, 0, NULL, 0);
    return WEIR_OK;
}

static void send_thanks(struct follower *f)
{
    f->meeting->out = (struct meet_frame){.kind = MEET_THANKS};
    meet_send(f->meeting, NULL, 0, NULL, 0);
    f->done = true;
}

/* Rank 0 knows then that it need not say it again. */
static weir_status take_refuse(struct follower *f)
{
    const struct meet_frame *in = &f->meeting->in;
    send_thanks(f);
    return error_set((weir_status)in->refuse.status, "%s", in->refuse.text);
}

static weir_status take_welcome(struct follower *f)
{
    const struct meet_frame *in = &f->meeting->in;
    struct meet *meet = f->meeting->meet;
    if (in->welcome.total != meet->env->size)
        return error_set(WEIR_E_PEER, "rank 0's WELCOME is one of %u ranks, not of %u", in->welcome.total,
                         meet->env->size);
    if (in->welcome.first == 0)
        f->cards = 0;
    if (in->welcome.first != f->cards)
        return WEIR_OK;
    memcpy(meet->members + f->cards, in->welcome.card, in->welcome.count * sizeof(struct member));
    f->cards += in->welcome.count;
    meet->session = in->welcome.session;
    if (f->cards == meet->env->size)
        send_thanks(f);
    return WEIR_OK;
}

static weir_status take_part(struct follower *f)
{
    struct meeting *meeting = f->meeting;
    size_t count = zmq_msg_size(&meeting->payload);
    uint64_t offset = meeting->in.part.offset, total = meeting->in.part.total;
    if (meeting->purpose != MEET_FOR_PART || total > PLAN_FILE_BYTES_MAX || !count || count > total - offset)
        return error_set(WEIR_E_PEER, "rank 0 sends %zu bytes of a plan of %llu bytes, which were not asked for", count,
                         (unsigned long long)total);
    if (!meeting->part_bytes) {
        meeting->part_bytes = malloc(total);
        meeting->part_total = total;
    }
    if (!meeting->part_bytes)
        return error_set(WEIR_E_MEMORY, "no memory for a plan of %llu bytes", (unsigned long long)total);
    if (offset == meeting->part_count && total == meeting->part_total) {
        memcpy(meeting->part_bytes + offset, zmq_msg_data(&meeting->payload), count);
        meeting->part_count += count;
        meeting->deadline_ns = meet_now_ns() + meeting->meet->env->join_ns;
    }
    if (meeting->part_count == meeting->part_total) {
        send_thanks(f);
        return WEIR_OK;
    }
    meeting->out = (struct meet_frame){.kind = MEET_WANT};
    meeting->out.want.offset = meeting->part_count;
    meet_send(meeting, NULL, 0, NULL, 0);
    return WEIR_OK;
}

static weir_status take_frame(struct follower *f)
{
    const struct meet_frame *in = &f->meeting->in;
    f->join_at_ns = meet_now_ns() + AGAIN_MS * INT64_C(1000000);
    if (in->version != WIRE_VERSION && in->kind != MEET_REFUSE)
        return error_set(WEIR_E_PEER, "rank 0 speaks version %u, rank %u %d", in->version,
                         f->meeting->meet->env->rank, WIRE_VERSION);
    switch (in->kind) {
    case MEET_ASK: return take_ask(f);
    case MEET_WELCOME: return take_welcome(f);
    case MEET_PART: return take_part(f);
    case MEET_REFUSE: return take_refuse(f);
    case MEET_WAIT: memcpy(f->wait, in->wait.text, sizeof f->wait); return WEIR_OK;
    default: return error_set(WEIR_E_PEER, "rank 0 sends what only others send it (kind %u)", in->kind);
    }
}

static weir_status take_all(struct follower *f)
{
    weir_status status = WEIR_OK;
    while (status == WEIR_OK && !f->done) {
        enum meet_got got = meet_receive(f->meeting);
        if (got == MEET_NOTHING)
            break;
        status = got == MEET_FRAME ? take_frame(f)
                                   : error_set(WEIR_E_PEER, "rank 0 at %s, port %u, sends what is no frame: %s",
                                               f->meeting->meet->env->address,
                                               f->meeting->meet->env->port, weir_error());
    }
    return status;
}

/* A connection that is made again and again means a listener that does not let us in. */
static void take_events(struct follower *f)
{
    char bytes[128]; /* the event, then its endpoint */
    uint16_t event;
    void *events = f->meeting->events; /* a signal may end any of these calls: see meet.c */
    while (TEMP_FAILURE_RETRY(zmq_recv(events, bytes, sizeof bytes, ZMQ_DONTWAIT)) >= (int)sizeof event) {
        memcpy(&event, bytes, sizeof event);
        f->reached |= event == ZMQ_EVENT_CONNECTED;
        f->connected = event == ZMQ_EVENT_HANDSHAKE_SUCCEEDED;
        f->join_at_ns = 0;
        (void)TEMP_FAILURE_RETRY(zmq_recv(events, bytes, sizeof bytes, ZMQ_DONTWAIT));
    }
}

static weir_status too_late(const struct follower *f)
{
    const struct cluster_env *env = f->meeting->meet->env;
    double waited = (double)env->join_ns / 1e9;
    struct addrinfo *found = NULL;
    if (f->wait[0])
        return error_set(WEIR_E_TIMEOUT, "rank %u has waited %g s: %s", env->rank, waited, f->wait);
    if (f->reached)
        return error_set(WEIR_E_TIMEOUT,
                         "rank %u has waited %g s: the program at %s, port %u, does not answer as rank 0 would: it has "
                         "another key (from WEIR_KEY_FILE, else its user's) or is another program",
                         env->rank, waited, env->address, env->port);
    int failed = getaddrinfo(env->address, NULL, NULL, &found);
    if (found)
        freeaddrinfo(found);
    return error_set(WEIR_E_TIMEOUT, "rank %u has waited %g s: nobody answers at %s, port %u, where rank 0 should be%s%s",
                     env->rank, waited, env->address, env->port, failed ? ": " : "", failed ? gai_strerror(failed) : "");
}

weir_status meet_follow(struct meeting *meeting)
{
    struct follower f = {.meeting = meeting};
    weir_status status = WEIR_OK;
    while (status == WEIR_OK && !f.done) {
        int64_t now = meet_now_ns();
        if (now >= meeting->deadline_ns) {
            status = too_late(&f);
            break;
        }
        if (f.connected && now >= f.join_at_ns)
            send_join(&f);
        bool again = f.connected && f.join_at_ns < meeting->deadline_ns;
        status = meet_wait(meeting, again ? f.join_at_ns : meeting->deadline_ns);
        take_events(&f);
        if (status == WEIR_OK)
            status = take_all(&f);
    }
    op_list_free(&f.ops);
    return status;
}
