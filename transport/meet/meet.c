/* transport/meet/meet.c: sockets of a meeting, and what both sides do with them. Rank 0's side is lead.c, the
 * others' follow.c.
 *
 * Rank 0's port is open to everybody, so nothing that comes in makes it wait or allocate: connections that say nothing
 * are dropped after some seconds (keys_socket()), messages are small, and everything that may get lost with a
 * connection is asked for again by whoever misses it. So no message needs to be waited for when it is sent, and rank 0
 * keeps nothing of a peer but its card.
 *
 * The sockets linger for a second when they are closed: the last frame of each side is on its way then.
 */
#define _GNU_SOURCE
#include "transport/meet/meet.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

#include "graph/base/error.h"
#include "transport/meet/inside.h"
#include "transport/meet/ops.h"

enum {
    LINGER_MS = 1000,
    RECONNECT_MS = 50,
    RECONNECT_MAX_MS = 500,
    QUEUE_FRAMES = 256, /* of one connection */
    CURVE_EXTRA = 64,   /* bytes that encryption adds to a frame, and some more */
    BIND_PAUSE_MS = 50,
    BIND_REPORT_S = 3,  /* after which somebody should know */
    YIELD_MS = 200
};

int64_t meet_now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * INT64_C(1000000000) + now.tv_nsec;
}

/* ---- frames ----
 *
 * The calling thread is the program's, and so are its signals: one may end any call of ZeroMQ's before it has done
 * something (EINTR). It is then made again, or half a message would stay behind. */

/* Takes the frames behind the last that is wanted. */
static void drop_rest(void *socket, zmq_msg_t *last)
{
    while (zmq_msg_more(last) && TEMP_FAILURE_RETRY(zmq_msg_recv(last, socket, ZMQ_DONTWAIT)) >= 0)
        ;
}

static bool receive_id(struct meeting *meeting)
{
    int bytes = (int)TEMP_FAILURE_RETRY(zmq_recv(meeting->socket, meeting->id, sizeof meeting->id, ZMQ_DONTWAIT));
    meeting->id_bytes = bytes < 0 ? 0 : (size_t)bytes;
    return bytes >= 0;
}

static void note_sender(struct meeting *meeting, zmq_msg_t *frame)
{
    const char *address = zmq_msg_gets(frame, "Peer-Address");
    snprintf(meeting->from, sizeof meeting->from, "%s", address ? address_for_people(address) : "an unknown address");
}

enum meet_got meet_receive(struct meeting *meeting)
{
    zmq_msg_t frame;
    enum meet_got got = MEET_NOTHING;
    bool leads = meeting->meet->env->rank == 0;
    if (leads && !receive_id(meeting))
        return MEET_NOTHING;
    zmq_msg_init(&frame);
    if (TEMP_FAILURE_RETRY(zmq_msg_recv(&frame, meeting->socket, ZMQ_DONTWAIT)) >= 0) {
        note_sender(meeting, &frame);
        zmq_msg_close(&meeting->payload);
        zmq_msg_init(&meeting->payload);
        if (zmq_msg_more(&frame) &&
            TEMP_FAILURE_RETRY(zmq_msg_recv(&meeting->payload, meeting->socket, ZMQ_DONTWAIT)) >= 0)
            drop_rest(meeting->socket, &meeting->payload);
        weir_status status = meet_decode(zmq_msg_data(&frame), zmq_msg_size(&frame), &meeting->in);
        got = status == WEIR_OK ? MEET_FRAME : MEET_INVALID;
    }
    zmq_msg_close(&frame);
    return got;
}

bool meet_send(struct meeting *meeting, const void *id, size_t id_bytes, const void *payload, size_t payload_count)
{
    size_t count = meet_encode(&meeting->out, meeting->bytes);
    if (id && TEMP_FAILURE_RETRY(zmq_send(meeting->socket, id, id_bytes, ZMQ_SNDMORE | ZMQ_DONTWAIT)) < 0)
        return false;
    int flags = ZMQ_DONTWAIT | (payload ? ZMQ_SNDMORE : 0);
    if (TEMP_FAILURE_RETRY(zmq_send(meeting->socket, meeting->bytes, count, flags)) < 0)
        return false;
    return !payload || TEMP_FAILURE_RETRY(zmq_send(meeting->socket, payload, payload_count, ZMQ_DONTWAIT)) >= 0;
}

weir_status meet_wait(struct meeting *meeting, int64_t until_ns)
{
    zmq_pollitem_t items[2] = {{.socket = meeting->socket, .events = ZMQ_POLLIN},
                               {.socket = meeting->events, .events = ZMQ_POLLIN}};
    int64_t left_ns = until_ns - meet_now_ns();
    long left_ms = left_ns > 0 ? (long)((left_ns + 999999) / 1000000) : 0;
    if (zmq_poll(items, meeting->events ? 2 : 1, left_ms) < 0 && zmq_errno() == ETERM)
        return error_set(WEIR_E_STATE, "the meeting was ended: its ZeroMQ context is being closed");
    return WEIR_OK;
}

/* ---- sockets ---- */

static int set_int(void *socket, int option, int value)
{
    return zmq_setsockopt(socket, option, &value, sizeof value);
}

static weir_status socket_failed(const struct cluster_env *env, const char *what)
{
    return error_set(WEIR_E_IO, "rank %u cannot %s %s, port %u: %s", env->rank, what, env->address, env->port,
                     zmq_strerror(zmq_errno()));
}

static void pause_ms(long time_ms)
{
    struct timespec pause = {.tv_nsec = time_ms * 1000000};
    nanosleep(&pause, NULL);
}

/* Another session of this rank may be meeting at the port; the last one's socket may still be on its way out, as it is
 * closed by another thread. */
static int bind_patiently(struct meeting *meeting, const char *endpoint)
{
    const struct meet *meet = meeting->meet;
    int64_t report_ns = meet_now_ns() + BIND_REPORT_S * INT64_C(1000000000);
    int failed = zmq_bind(meeting->socket, endpoint);
    while (failed && zmq_errno() == EADDRINUSE && meet_now_ns() < meeting->deadline_ns) {
        if (meet_now_ns() > report_ns) {
            report_say(meet->report, "rank 0 waits to meet for '%s': port %u is another session's or program's",
                       meeting->name, meet->env->port);
            report_ns = meeting->deadline_ns;
        }
        pause_ms(BIND_PAUSE_MS);
        failed = zmq_bind(meeting->socket, endpoint);
    }
    return failed;
}

/* At its own address if that is one of this host's; else rank 0 is behind a name or a translated address: everywhere. */
static weir_status lead_bind(struct meeting *meeting)
{
    char endpoint[320];
    const struct cluster_env *env = meeting->meet->env;
    if (meet_home(env, endpoint, sizeof endpoint)) {
        if (!bind_patiently(meeting, endpoint))
            return WEIR_OK;
        if (zmq_errno() != EADDRNOTAVAIL && zmq_errno() != ENODEV)
            return socket_failed(env, "listen at");
    }
    snprintf(endpoint, sizeof endpoint, "tcp://*:%u", env->port);
    return bind_patiently(meeting, endpoint) ? socket_failed(env, "listen on all interfaces for") : WEIR_OK;
}

static weir_status lead_open(struct meeting *meeting, struct zap *zap)
{
    const struct cluster_env *env = meeting->meet->env;
    const struct keys *keys = meeting->meet->keys;
    weir_status status = keys_socket(meeting->socket, MEET_FRAME_MAX + CURVE_EXTRA, env->size);
    if (status == WEIR_OK)
        status = keys_server(keys, meeting->socket);
    if (status == WEIR_OK)
        status = zap_watch(zap, meeting->socket);
    return status == WEIR_OK ? lead_bind(meeting) : status;
}

/* Rank 0's patience is not ours: it may have thousands of silent connections to get rid of before it comes to this. */
static weir_status follow_open(struct meeting *meeting)
{
    char endpoint[320];
    const struct cluster_env *env = meeting->meet->env;
    void *socket = meeting->socket;
    snprintf(endpoint, sizeof endpoint, strchr(env->address, ':') ? "tcp://[%s]:%u" : "tcp://%s:%u", env->address,
             env->port);
    weir_status status = keys_socket(socket, MEET_PART_BYTES + MEET_FRAME_MAX + CURVE_EXTRA, env->size);
    if (status == WEIR_OK)
        status = keys_client(meeting->meet->keys, socket);
    if (status != WEIR_OK)
        return status;
    if (set_int(socket, ZMQ_HANDSHAKE_IVL, 30000) || set_int(socket, ZMQ_RECONNECT_IVL, RECONNECT_MS) ||
        set_int(socket, ZMQ_RECONNECT_IVL_MAX, RECONNECT_MAX_MS))
        return socket_failed(env, "connect to");
    char watch[64];
    const int events = ZMQ_EVENT_CONNECTED | ZMQ_EVENT_HANDSHAKE_SUCCEEDED | ZMQ_EVENT_DISCONNECTED;
    snprintf(watch, sizeof watch, "inproc://weir-meet-%p", socket);
    meeting->events = zmq_socket(meeting->meet->zmq_context, ZMQ_PAIR);
    if (!meeting->events || set_int(meeting->events, ZMQ_LINGER, 0) ||
        zmq_socket_monitor(socket, watch, events) || zmq_connect(meeting->events, watch) ||
        zmq_connect(socket, endpoint))
        return socket_failed(env, "connect to");
    return WEIR_OK;
}

static weir_status meet_open(struct meeting *meeting, struct zap *zap)
{
    bool leads = meeting->meet->env->rank == 0;
    meeting->socket = zmq_socket(meeting->meet->zmq_context, leads ? ZMQ_ROUTER : ZMQ_DEALER);
    if (!meeting->socket || set_int(meeting->socket, ZMQ_RCVHWM, QUEUE_FRAMES) ||
        set_int(meeting->socket, ZMQ_SNDHWM, QUEUE_FRAMES))
        return socket_failed(meeting->meet->env, "open a socket for");
    return leads ? lead_open(meeting, zap) : follow_open(meeting);
}

/* The monitor ends before its reader does: ZeroMQ's thread would wait for one for ever. */
static void meet_close(struct meeting *meeting, struct zap *zap)
{
    if (meeting->socket) {
        zap_unwatch(zap, meeting->socket);
        if (meeting->events)
            zmq_socket_monitor(meeting->socket, NULL, 0);
        set_int(meeting->socket, ZMQ_LINGER, LINGER_MS);
        zmq_close(meeting->socket);
    }
    if (meeting->events)
        zmq_close(meeting->events);
    meeting->socket = meeting->events = NULL;
}

/* Rank 0 may have to meet for several sessions that open at the same time; one whose ranks do not come lets others go
 * first, as they may be what its own ranks wait for. */
static weir_status meet_in_turn(struct meeting *meeting, struct zap *zap)
{
    weir_status status;
    do {
        if (meeting->yields)
            pause_ms(YIELD_MS);
        meeting->yields = false;
        status = meet_open(meeting, zap);
        if (status == WEIR_OK)
            status = meeting->meet->env->rank == 0 ? meet_lead(meeting) : meet_follow(meeting);
        meet_close(meeting, zap);
    } while (status == WEIR_OK && meeting->yields);
    return status;
}

weir_status meet_run(struct meeting *meeting)
{
    const struct meet *meet = meeting->meet;
    const struct cluster_env *env = meet->env;
    struct zap *zap = meet->zap, *own = NULL;
    weir_status status = WEIR_OK;
    zmq_msg_init(&meeting->payload);
    meeting->deadline_ns = meet_now_ns() + env->join_ns;
    if (env->rank == 0 && !zap) {
        status = zap_open(&own, meet->zmq_context, meet->keys, meet->report);
        zap = own;
    }
    if (status == WEIR_OK)
        status = meet_in_turn(meeting, zap);
    zmq_msg_close(&meeting->payload);
    zap_close(own);
    return status;
}

/* ---- the call ---- */

/* Its lowest byte is the first of a routing id (transport/line/wire.h), and ZMTP keeps those that begin with 0 for
 * itself. */
static uint64_t random_session(void)
{
    uint64_t number = 0;
    if (getrandom(&number, sizeof number, 0) != sizeof number)
        number = (uint64_t)meet_now_ns() ^ (uint64_t)getpid() << 40;
    return number & 0xff ? number : number | 1; /* ZeroMQ keeps names that begin with a 0 for itself */
}

weir_status meet_session(struct meet *meet)
{
    if (meet->env->rank == 0)
        meet->session = random_session();
    if (meet->env->size <= 1)
        return WEIR_OK;
    struct meeting *meeting = calloc(1, sizeof *meeting);
    if (!meeting)
        return error_set(WEIR_E_MEMORY, "no memory to meet %u ranks", meet->env->size);
    meeting->meet = meet;
    meeting->plan = meet_plan_of(meet->plan);
    bool given = meet->env->name[0] || !meet->plan;
    meet_name(meeting->name, given ? meet->env->name : plan_text(meet->plan, meet->plan->name));
    weir_status status = meet_run(meeting);
    free(meeting);
    return status;
}
