#define _GNU_SOURCE
#include "tests/support/played.h"

#include <criterion/criterion.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include "graph/base/base.h"
#include "transport/line/bulk.h"
#include "transport/net/inside.h"

/* ---- the meeting ---- */

/* Where nobody asks which keys are good, all are. */
static weir_status router_open(struct played *p, struct member *card)
{
    size_t bytes = sizeof card->tcp;
    p->router = zmq_socket(p->context, ZMQ_ROUTER);
    zmq_setsockopt(p->router, ZMQ_RCVTIMEO, &(int){PLAYED_WAIT_MS}, sizeof(int));
    zmq_setsockopt(p->router, ZMQ_LINGER, &(int){0}, sizeof(int));
    weir_status status = keys_bus_server(&p->keys, p->router);
    bool bound = !zmq_bind(p->router, "tcp://127.0.0.1:*") &&
                 !zmq_getsockopt(p->router, ZMQ_LAST_ENDPOINT, card->tcp, &bytes);
    return status ? status : bound ? WEIR_OK : WEIR_E_PEER;
}

void played_meet(struct played *p)
{
    struct cluster_env env;
    const struct report report = {0};
    weir_cluster_opts opts = {
        .world_size = (int)p->count, .rank = (int)p->rank, .address = p->address, .name = p->name};
    struct member *card = &p->members[p->rank];
    *card = (struct member){.name = "player", .segment_fd = -1};
    p->line = -1;
    p->sent[CHANNEL_BULK] = 1; /* the greeting was the first */
    p->context = zmq_ctx_new();
    weir_status status = cluster_env_read(&opts, &env);
    if (!status)
        status = op_level(&env.level);
    if (!status)
        status = keys_open(&p->keys, &env);
    if (!status)
        status = sealing_open(&p->sealing);
    if (!status)
        status = router_open(p, card);
    memcpy(card->key, p->keys.own_public_key, WEIR_KEY_BYTES);
    struct meet meet = {.zmq_context = p->context, .env = &env, .keys = &p->keys, .report = &report,
                        .members = p->members};
    if (!status)
        status = meet_session(&meet);
    snprintf(p->error, sizeof p->error, "%s", status ? weir_error() : "");
    p->session = meet.session;
    if (getrandom(p->secret, sizeof p->secret, 0) != sizeof p->secret)
        strcpy(p->error, "no random numbers");
}

/* ---- over ZeroMQ ---- */

void *played_connect(struct played *p, enum channel_number number, const struct keys *keys, uint32_t rank)
{
    unsigned char id[NET_ROUTING_ID_BYTES];
    int linger_ms = 0, no_limit = 0; /* rank 0 may be gone while it is flooded */
    void *socket = zmq_socket(p->context, ZMQ_DEALER);
    memcpy(id, &p->session, sizeof p->session);
    memcpy(id + sizeof p->session, &rank, sizeof rank);
    id[NET_ROUTING_ID_BYTES - 1] = (unsigned char)number;
    zmq_setsockopt(socket, ZMQ_LINGER, &linger_ms, sizeof linger_ms);
    zmq_setsockopt(socket, ZMQ_SNDHWM, &no_limit, sizeof no_limit);
    zmq_setsockopt(socket, ZMQ_ROUTING_ID, id, sizeof id);
    cr_assert_eq(keys_bus_client(keys, socket, p->members[0].key), WEIR_OK, "%s", weir_error());
    cr_assert_eq(zmq_connect(socket, p->members[0].tcp), 0);
    return socket;
}

struct wire_frame played_hello(const struct played *p)
{
    struct wire_frame hello = {.kind = WIRE_HELLO, .rank = p->rank};
    memcpy(hello.hello.secret, p->secret, sizeof p->secret);
    return hello;
}

void played_say_on(struct played *p, void *socket, enum channel_number number, struct wire_frame frame,
                   const void *payload, size_t bytes)
{
    unsigned char header[WIRE_HEADER_MAX];
    frame.session = p->session;
    frame.number = p->sent[number]++;
    cr_assert_geq(zmq_send(socket, header, wire_encode(&frame, header), payload ? ZMQ_SNDMORE : 0), 0);
    if (payload)
        cr_assert_geq(zmq_send(socket, payload, bytes, 0), 0);
}

void played_hear(struct played *p)
{
    unsigned char bytes[WIRE_HEADER_MAX];
    cr_assert_eq(zmq_recv(p->router, bytes, sizeof bytes, 0), NET_ROUTING_ID_BYTES, "rank 0 says nothing");
    int count = zmq_recv(p->router, bytes, sizeof bytes, 0);
    cr_assert(count > 0 && !wire_decode(bytes, (size_t)count, &p->hello), "%s", weir_error());
    cr_assert(p->hello.kind == WIRE_HELLO && p->hello.rank == 0);
}

/* ---- to rank 0's door ---- */

int played_knock(const struct played *p)
{
    int epoll_fd = epoll_create1(EPOLL_CLOEXEC), fd = -1;
    cr_assert_eq(door_connect_tcp(epoll_fd, p->members[0].tcp, p->hello.hello.port, &fd), WEIR_OK, "%s", weir_error());
    close(epoll_fd);
    struct pollfd stands = {.fd = fd, .events = POLLOUT};
    cr_assert_eq(poll(&stands, 1, PLAYED_WAIT_MS), 1);
    return fd;
}

static void derive(const struct played *p, const char *label, unsigned char key[SEAL_SECRET_BYTES])
{
    unsigned char secrets[2 * SEAL_SECRET_BYTES];
    memcpy(secrets, p->hello.hello.secret, SEAL_SECRET_BYTES);
    memcpy(secrets + SEAL_SECRET_BYTES, p->secret, SEAL_SECRET_BYTES);
    cr_assert_eq(seal_derive(p->sealing, secrets, p->session, label, p->rank, 0, key), WEIR_OK, "%s", weir_error());
}

struct door_greeting played_greeting(const struct played *p)
{
    struct door_greeting greeting = {.version = WIRE_VERSION, .rank = p->rank, .session = p->session};
    derive(p, "ticket", greeting.ticket);
    return greeting;
}

void played_greet(int fd, const struct door_greeting *greeting)
{
    cr_assert_eq(door_say(fd, greeting), 1);
}

void played_bring(struct played *p)
{
    unsigned char key[SEAL_SECRET_BYTES];
    struct door_greeting greeting = played_greeting(p);
    p->line = played_knock(p);
    played_greet(p->line, &greeting);
    derive(p, "register contents", key);
    if (p->keys.curve)
        cr_assert_eq(seal_box_new(p->sealing, key, true, &p->box), WEIR_OK, "%s", weir_error());
}

/* ---- what it says there ---- */

/* Rank 0 may have heard enough. */
void played_raw(struct played *p, const void *bytes, size_t count)
{
    const char *at = bytes;
    for (ssize_t sent; count; at += sent, count -= (size_t)sent) {
        struct pollfd room = {.fd = p->line, .events = POLLOUT};
        cr_assert_eq(poll(&room, 1, PLAYED_WAIT_MS), 1);
        if ((sent = send(p->line, at, count, MSG_NOSIGNAL | MSG_DONTWAIT)) < 0)
            return;
    }
}

void played_bytes(struct played *p, const void *bytes, size_t count)
{
    static unsigned char record[BULK_RECORD_BYTES + SEAL_OVER_BYTES];
    const char *at = bytes;
    if (!p->box)
        played_raw(p, bytes, count);
    for (size_t each; p->box && count; at += each, count -= each) {
        each = count < BULK_RECORD_BYTES ? count : BULK_RECORD_BYTES;
        cr_assert(seal_write(p->box, &(struct iovec){(void *)at, each}, 1, each, record));
        played_raw(p, record, each + SEAL_OVER_BYTES);
    }
}

void played_head(struct played *p, struct bulk_head head)
{
    unsigned char bytes[BULK_HEAD_BYTES];
    bulk_head_encode(&head, bytes);
    played_bytes(p, bytes, sizeof bytes);
}

void played_say(struct played *p, struct wire_frame frame, const void *payload, size_t bytes)
{
    unsigned char header[WIRE_HEADER_MAX];
    frame.session = p->session;
    frame.rank = p->rank;
    frame.number = p->sent[CHANNEL_BULK]++;
    size_t count = wire_encode(&frame, header);
    played_head(p, (struct bulk_head){.kind = BULK_FRAME, .count = (uint16_t)count, .bytes = count + bytes});
    played_bytes(p, header, count);
    played_bytes(p, payload, bytes);
}

bool played_ends(int fd)
{
    char bytes[4096];
    for (;;) {
        struct pollfd comes = {.fd = fd, .events = POLLIN};
        if (poll(&comes, 1, PLAYED_WAIT_MS) != 1)
            return false;
        if (recv(fd, bytes, sizeof bytes, MSG_DONTWAIT) <= 0)
            return true;
    }
}

void played_close(struct played *p)
{
    if (p->line >= 0)
        close(p->line);
    zmq_close(p->router);
    zmq_ctx_term(p->context);
    seal_box_free(p->box);
    sealing_close(p->sealing);
}
