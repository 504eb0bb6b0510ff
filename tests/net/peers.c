/* tests/net/peers.c: many ranks of a session in one process, as rank 0 sees them, with nothing behind: they come to the
 * meeting, greet rank 0, give the mark of the round that opens the session and signs of life, and leave when it leaves.
 * So a rank 0 can have a thousand peers on a machine for two. And one that is let in may misbehave.
 *
 *     peers FIRST COUNT SIZE [FAULT]     ranks FIRST .. FIRST + COUNT - 1 of SIZE; MASTER_ADDR, MASTER_PORT as ever
 *
 *     flood       BEATs, as many as go out
 *     claim-R     a connection in the name of rank R, which says HELLO and then FAIL
 *     value       a VALUE that nobody waits for, while the run is under way
 *
 * They own no device that the plan uses, so nothing is sent to them but what the session itself says (docs/wire.md):
 * rank 0 is their only neighbour, and they say all on the channel of life. With a fault they keep the protocol until
 * the run has begun, as rank 0's beats tell. Prints a line for each thing that all have done:
 *
 *     met 3.2              seconds since the start
 *     greeted 3.9
 *     left 20.1            all is well, status 0
 *     end 7.3 TEXT         rank 0 says that it has failed, or is gone: status 1
 *
 * One thread, and ZeroMQ's. A peer has a socket that speaks and one that listens; all listen for what comes at once.
 */
#include "graph/base/base.h"
#include "transport/meet/frames.h"
#include "transport/meet/inside.h"
#include "transport/line/wire.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>
#include <zmq.h>

enum {
    PEERS_MAX = 4096,
    BEAT_MS = 500,
    AGAIN_MS = 5000, /* of silence, after which JOIN is said again */
    LINGER_MS = 2000,
    ID_BYTES = 13    /* a routing id: session, rank, channel */
};

struct peer {
    uint32_t rank;
    void *meeting, *in, *out;
    struct member card;
    uint32_t cards;         /* that have come */
    uint64_t sent;          /* number of the next frame */
    int64_t join_at_ns;
    bool met, greeted, left;
};

struct crowd {
    struct cluster_env env;
    struct keys keys;
    struct report report;
    void *zmq;
    struct peer *peers;     /* owned; `count` of them */
    zmq_pollitem_t *items;  /* owned; one of each peer: the socket that it listens at */
    uint32_t count, met, greeted, left;
    struct member rank0;
    uint64_t session;
    int64_t start_ns, beat_ns;
    const char *fault;
    bool running;           /* rank 0's run is under way */
    struct meet_frame in, out;
    unsigned char bytes[MEET_FRAME_MAX];
};

static _Noreturn void give_up(const struct crowd *c, const char *why)
{
    printf("end %.1f %s\n", (double)(meet_now_ns() - c->start_ns) * 1e-9, why);
    fflush(stdout);
    _exit(1);
}

static void must(const struct crowd *c, bool holds, const char *what)
{
    if (!holds)
        give_up(c, what);
}

static void say(const struct crowd *c, const char *what)
{
    printf("%s %.1f\n", what, (double)(meet_now_ns() - c->start_ns) * 1e-9);
    fflush(stdout);
}

static void *socket_new(const struct crowd *c, int kind)
{
    int linger_ms = LINGER_MS;
    void *socket = zmq_socket(c->zmq, kind);
    must(c, socket && !keys_socket(socket, 1 << 20, c->env.size), "no socket");
    zmq_setsockopt(socket, ZMQ_LINGER, &linger_ms, sizeof linger_ms);
    return socket;
}

/* ---- the meeting ---- */

static void join(struct crowd *c, struct peer *p)
{
    c->out = (struct meet_frame){.kind = MEET_JOIN};
    c->out.join.plan_version = PLAN_VERSION;
    strcpy(c->out.join.name, "net"); /* as tests/net/rank.c calls its sessions */
    c->out.join.rank = p->rank;
    c->out.join.size = c->env.size;
    strcpy(c->out.join.level, c->env.level);
    cluster_carriers_text(c->env.carriers, c->out.join.carriers);
    c->out.join.card = p->card;
    zmq_send(p->meeting, c->bytes, meet_encode(&c->out, c->bytes), ZMQ_DONTWAIT);
    p->join_at_ns = meet_now_ns() + AGAIN_MS * INT64_C(1000000);
}

static void peer_open(struct crowd *c, struct peer *p)
{
    char endpoint[320];
    size_t bytes = sizeof p->card.tcp;
    p->in = socket_new(c, ZMQ_ROUTER);
    must(c, !keys_bus_server(&c->keys, p->in) && !meet_bind_address(&c->env, endpoint, sizeof endpoint) &&
                !zmq_bind(p->in, endpoint) && !zmq_getsockopt(p->in, ZMQ_LAST_ENDPOINT, p->card.tcp, &bytes),
         "cannot listen");
    meet_host(p->card.host, sizeof p->card.host);
    strcpy(p->card.name, "simulated");
    memcpy(p->card.key, c->keys.own_public_key, WEIR_KEY_BYTES);
    p->card.pid = (uint32_t)getpid();
    p->card.devices = c->env.devices;
    p->card.segment_fd = -1;
    p->meeting = socket_new(c, ZMQ_DEALER);
    snprintf(endpoint, sizeof endpoint, "tcp://%s:%u", c->env.address, c->env.port);
    must(c, !keys_client(&c->keys, p->meeting) && !zmq_connect(p->meeting, endpoint), "cannot connect");
    join(c, p);
}

/* A payload is 8 bytes of zeros: the mark of the round that opens a session has that. */
static void frame_send(struct crowd *c, struct peer *p, void *socket, struct wire_frame frame, bool payload)
{
    static const unsigned char zeros[8];
    unsigned char bytes[WIRE_HEADER_MAX];
    frame.session = c->session;
    frame.rank = p->rank;
    frame.number = p->sent++;
    zmq_send(socket, bytes, wire_encode(&frame, bytes), payload ? ZMQ_SNDMORE : 0);
    if (payload)
        zmq_send(socket, zeros, sizeof zeros, 0);
}

static void *connect_as(struct crowd *c, uint32_t rank)
{
    unsigned char id[ID_BYTES] = {0};
    void *socket = socket_new(c, ZMQ_DEALER);
    memcpy(id, &c->session, sizeof c->session);
    memcpy(id + sizeof c->session, &rank, sizeof rank);
    must(c, !zmq_setsockopt(socket, ZMQ_ROUTING_ID, id, sizeof id) &&
                !keys_bus_client(&c->keys, socket, c->rank0.key) && !zmq_connect(socket, c->rank0.tcp),
         "cannot connect to rank 0");
    return socket;
}

static void peer_met(struct crowd *c, struct peer *p)
{
    c->out = (struct meet_frame){.kind = MEET_THANKS};
    zmq_send(p->meeting, c->bytes, meet_encode(&c->out, c->bytes), ZMQ_DONTWAIT);
    zmq_close(p->meeting);
    p->meeting = NULL;
    p->met = true;
    p->out = connect_as(c, p->rank);
    frame_send(c, p, p->out, (struct wire_frame){.kind = WIRE_HELLO}, false);
    c->items[p - c->peers].socket = p->in;
    if (++c->met == c->count)
        say(c, "met");
}

static void take_welcome(struct crowd *c, struct peer *p)
{
    uint32_t first = c->in.welcome.first;
    if (first == 0) {
        p->cards = 0;
        c->rank0 = c->in.welcome.card[0];
        c->session = c->in.welcome.session;
    }
    if (first == p->cards)
        p->cards += c->in.welcome.count;
    if (p->cards == c->env.size)
        peer_met(c, p);
}

static void take_meeting(struct crowd *c, struct peer *p)
{
    int bytes;
    while (!p->met && (bytes = zmq_recv(p->meeting, c->bytes, sizeof c->bytes, ZMQ_DONTWAIT)) >= 0) {
        p->join_at_ns = meet_now_ns() + AGAIN_MS * INT64_C(1000000);
        must(c, !meet_decode(c->bytes, (size_t)bytes, &c->in), weir_error());
        if (c->in.kind == MEET_REFUSE)
            give_up(c, c->in.refuse.text);
        if (c->in.kind == MEET_WELCOME)
            take_welcome(c, p);
    }
}

/* ---- the session ---- */

static void misbehave(struct crowd *c, struct peer *p)
{
    unsigned rank;
    const char *fault = c->fault;
    c->fault = NULL;
    say(c, "fault");
    while (!strcmp(fault, "flood"))
        frame_send(c, p, p->out, (struct wire_frame){.kind = WIRE_BEAT, .beat.actor = UINT32_MAX}, false);
    if (sscanf(fault, "claim-%u", &rank) == 1) {
        struct peer other = {.rank = rank};
        void *socket = connect_as(c, rank);
        frame_send(c, &other, socket, (struct wire_frame){.kind = WIRE_HELLO}, false);
        frame_send(c, &other, socket, (struct wire_frame){.kind = WIRE_FAIL, .fail.text = "a lie"}, false);
        zmq_close(socket);
    } else if (!strcmp(fault, "value")) {
        frame_send(c, p, p->out, (struct wire_frame){.kind = WIRE_VALUE}, true);
    }
}

static void peer_left(struct crowd *c, struct peer *p, int64_t steps)
{
    frame_send(c, p, p->out, (struct wire_frame){.kind = WIRE_BYE, .bye.steps = steps}, false);
    p->left = true;
    if (++c->left == c->count)
        say(c, "left");
}

static void take_frame(struct crowd *c, struct peer *p, const struct wire_frame *frame)
{
    if (frame->kind == WIRE_FAIL)
        give_up(c, frame->fail.text);
    if (frame->kind == WIRE_HELLO && !p->greeted) {
        p->greeted = true;
        if (++c->greeted == c->count)
            say(c, "greeted");
        const struct wire_frame mark = {.kind = WIRE_VALUE, .value = {.shard = WIRE_MARK, .round = 1}};
        frame_send(c, p, p->out, mark, true);
    }
    c->running |= frame->kind == WIRE_BEAT && frame->beat.state == 1 && frame->beat.step > 2;
    if (c->running && c->fault)
        misbehave(c, p);
    if (frame->kind == WIRE_BYE && !p->left)
        peer_left(c, p, frame->bye.steps);
}

/* A message's first part says who sent it, its second is the header; the rest means nothing to who has no device. */
static void take_session(struct crowd *c, struct peer *p)
{
    unsigned char bytes[WIRE_HEADER_MAX];
    int more = 0;
    size_t more_bytes = sizeof more;
    while (!p->left && zmq_recv(p->in, bytes, sizeof bytes, ZMQ_DONTWAIT) >= 0) {
        struct wire_frame frame;
        int count = zmq_recv(p->in, bytes, sizeof bytes, 0);
        must(c, count > 0 && !wire_decode(bytes, (size_t)count, &frame), weir_error());
        while (!zmq_getsockopt(p->in, ZMQ_RCVMORE, &more, &more_bytes) && more)
            zmq_recv(p->in, bytes, sizeof bytes, 0);
        if (frame.rank == 0)
            take_frame(c, p, &frame);
    }
}

static void tick(struct crowd *c)
{
    int64_t now = meet_now_ns();
    if (now < c->beat_ns)
        return;
    c->beat_ns = now + BEAT_MS * INT64_C(1000000);
    for (uint32_t i = 0; i < c->count; i++) {
        struct peer *p = &c->peers[i];
        if (p->greeted && !p->left)
            frame_send(c, p, p->out, (struct wire_frame){.kind = WIRE_BEAT, .beat.actor = UINT32_MAX}, false);
        else if (!p->met && now > p->join_at_ns)
            join(c, p);
    }
}

static void run(struct crowd *c)
{
    while (c->left < c->count) {
        must(c, zmq_poll(c->items, (int)c->count, BEAT_MS / 2) >= 0, "cannot wait");
        for (uint32_t i = 0; i < c->count; i++)
            if (c->items[i].revents)
                (c->peers[i].met ? take_session : take_meeting)(c, &c->peers[i]);
        tick(c);
    }
}

/* ---- all of it ---- */

static void crowd_open(struct crowd *c, uint32_t first)
{
    struct rlimit limit;
    getrlimit(RLIMIT_NOFILE, &limit);
    limit.rlim_cur = limit.rlim_max;
    setrlimit(RLIMIT_NOFILE, &limit);
    c->zmq = zmq_ctx_new();
    zmq_ctx_set(c->zmq, ZMQ_MAX_SOCKETS, (int)(4 * c->count + 64));
    c->peers = calloc(c->count, sizeof *c->peers);
    c->items = calloc(c->count, sizeof *c->items);
    must(c, c->zmq && c->peers && c->items, "no memory");
    for (uint32_t i = 0; i < c->count; i++) {
        c->peers[i].rank = first + i;
        peer_open(c, &c->peers[i]);
        c->items[i] = (zmq_pollitem_t){.socket = c->peers[i].meeting, .events = ZMQ_POLLIN};
    }
}

static void crowd_close(struct crowd *c)
{
    for (uint32_t i = 0; i < c->count; i++) {
        zmq_close(c->peers[i].out);
        zmq_close(c->peers[i].in);
    }
    zmq_ctx_term(c->zmq);
    free(c->peers);
    free(c->items);
}

int main(int argc, char **argv)
{
    static struct crowd c;
    char address[320];
    int first = argc > 3 ? atoi(argv[1]) : 0, count = argc > 3 ? atoi(argv[2]) : 0, size = argc > 3 ? atoi(argv[3]) : 0;
    if (first < 1 || count < 1 || first + count > size || size > PEERS_MAX || !getenv("MASTER_ADDR") ||
        !getenv("MASTER_PORT")) {
        fprintf(stderr, "peers FIRST COUNT SIZE [FAULT]\n");
        return 2;
    }
    snprintf(address, sizeof address, "%s:%s", getenv("MASTER_ADDR"), getenv("MASTER_PORT"));
    c = (struct crowd){.count = (uint32_t)count, .start_ns = meet_now_ns(), .fault = argc > 4 ? argv[4] : NULL};
    weir_cluster_opts opts = {.world_size = size, .rank = first, .address = address};
    must(&c, !cluster_env_read(&opts, &c.env) && !op_level(&c.env.level) && !keys_open(&c.keys, &c.env), weir_error());
    c.env.devices = c.env.devices ? c.env.devices : 1;
    crowd_open(&c, (uint32_t)first);
    run(&c);
    crowd_close(&c);
    return 0;
}
