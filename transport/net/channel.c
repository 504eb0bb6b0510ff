/* transport/net/channel.c: see the header. A profiler's signal may end any call of ZeroMQ's before it has done
 * something (EINTR); it is then made again. */
#define _GNU_SOURCE
#include "transport/net/channel.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "graph/base/error.h"

#define NAME_BYTES 5           /* of a connection within the ROUTER: a letter, as it may not begin with 0; the rank */
#define ENDPOINT_BYTES 160
#define INCOMING_BYTES_MAX 256 /* nobody sends to it but ZeroMQ itself */

/* The monitor's name of a connection. */
struct endpoint {
    char text[ENDPOINT_BYTES];
    uint32_t rank;
};

/* ---- endpoints ---- */

/* The same address is written in several ways: as it was given, and with brackets and as an IPv4 address within IPv6
 * when ZeroMQ has looked it up. */
static void endpoint_text(const char *endpoint, char text[ENDPOINT_BYTES])
{
    static const char mapped[] = "::ffff:";
    size_t used = 0;
    while (*endpoint && used + 1 < ENDPOINT_BYTES) {
        if (!strncmp(endpoint, mapped, sizeof(mapped) - 1))
            endpoint += sizeof(mapped) - 1;
        else if (*endpoint == '[' || *endpoint == ']')
            endpoint++;
        else
            text[used++] = *endpoint++;
    }
    text[used] = 0;
}

/* The first that is not before the text. */
static uint32_t endpoint_place(const struct channel *c, const char *text)
{
    uint32_t first = 0, end = c->endpoints_count;
    while (first < end) {
        uint32_t middle = first + (end - first) / 2;
        if (strcmp(c->endpoints[middle].text, text) < 0)
            first = middle + 1;
        else
            end = middle;
    }
    return first;
}

static void endpoint_add(struct channel *c, uint32_t rank, const char *endpoint)
{
    char text[ENDPOINT_BYTES];
    endpoint_text(endpoint, text);
    uint32_t at = endpoint_place(c, text);
    memmove(&c->endpoints[at + 1], &c->endpoints[at], (c->endpoints_count - at) * sizeof(*c->endpoints));
    memcpy(c->endpoints[at].text, text, sizeof(text));
    c->endpoints[at].rank = rank;
    c->endpoints_count++;
}

static uint32_t endpoint_rank(const struct channel *c, const char *endpoint)
{
    char text[ENDPOINT_BYTES];
    endpoint_text(endpoint, text);
    uint32_t at = endpoint_place(c, text);
    return at < c->endpoints_count && !strcmp(c->endpoints[at].text, text) ? c->endpoints[at].rank : UINT32_MAX;
}

/* ---- life ---- */

static weir_status zmq_failed(const char *what)
{
    bool descriptors = zmq_errno() == EMFILE;
    return error_set(WEIR_E_PEER, "%s: %s%s", what, zmq_strerror(zmq_errno()),
                     descriptors ? " (a rank needs up to three for each other; ulimit -n raises their number)" : "");
}

static bool set_int(void *socket, int option, int value)
{
    return zmq_setsockopt(socket, option, &value, sizeof(value)) == 0;
}

/* Its events wait without a limit, of which there are a few for each connection: ZeroMQ would stop for a full queue. */
static bool monitor_open(struct channel *c, const struct channel_opts *opts)
{
    char name[64];
    snprintf(name, sizeof(name), "inproc://weir-monitor-%d", opts->number);
    if (zmq_socket_monitor(c->socket, name, ZMQ_EVENT_CONNECTED | ZMQ_EVENT_HANDSHAKE_SUCCEEDED | ZMQ_EVENT_DISCONNECTED))
        return false;
    c->monitor = zmq_socket(opts->zmq, ZMQ_PAIR);
    return c->monitor && set_int(c->monitor, ZMQ_LINGER, 0) && set_int(c->monitor, ZMQ_RCVHWM, 0) &&
           !zmq_connect(c->monitor, name);
}

weir_status channel_open(struct channel *c, const struct channel_opts *opts)
{
    *c = (struct channel){.ranks = opts->ranks, .keys = opts->keys};
    c->endpoints = calloc(opts->ranks + (size_t)1, sizeof(*c->endpoints));
    c->address = calloc(opts->ranks, sizeof(*c->address));
    c->stood = calloc(opts->ranks, sizeof(*c->stood));
    c->connection = calloc(opts->ranks, sizeof(*c->connection));
    if (!c->endpoints || !c->address || !c->stood || !c->connection)
        return error_set(WEIR_E_MEMORY, "no memory for connections to %u ranks", opts->ranks);
    for (uint32_t r = 0; r < opts->ranks; r++)
        c->connection[r].fd = -1;
    c->socket = zmq_socket(opts->zmq, ZMQ_ROUTER);
    if (!c->socket)
        return zmq_failed("no socket");
    weir_status status = keys_socket(c->socket, INCOMING_BYTES_MAX, opts->ranks);
    if (!status && (!set_int(c->socket, ZMQ_SNDHWM, opts->frames_max) || !set_int(c->socket, ZMQ_RCVHWM, 1) ||
                    !set_int(c->socket, ZMQ_ROUTER_MANDATORY, 1) ||
                    zmq_setsockopt(c->socket, ZMQ_ROUTING_ID, opts->routing_id, opts->routing_id_bytes) ||
                    !monitor_open(c, opts)))
        status = zmq_failed("cannot set up a channel");
    return status;
}

void channel_close(struct channel *c)
{
    if (c->socket)
        zmq_socket_monitor(c->socket, NULL, 0);
    if (c->monitor)
        zmq_close(c->monitor);
    if (c->socket)
        zmq_close(c->socket);
    for (uint32_t r = 0; c->address && r < c->ranks; r++)
        free(c->address[r]);
    free(c->address);
    free(c->endpoints);
    free(c->stood);
    free(c->connection);
    *c = (struct channel){.socket = NULL};
}

/* ---- connections ---- */

static void name_of(uint32_t rank, char name[NAME_BYTES])
{
    name[0] = 'r';
    memcpy(name + 1, &rank, sizeof(rank));
}

weir_status channel_connect(struct channel *c, uint32_t rank, const char *endpoint, const char *key)
{
    char name[NAME_BYTES];
    name_of(rank, name);
    if (c->address[rank])
        return WEIR_OK;
    weir_status status = keys_bus_client(c->keys, c->socket, key);
    if (status)
        return status;
    char *address = strdup(endpoint);
    if (!address)
        return error_set(WEIR_E_MEMORY, "no memory for the address of rank %u", rank);
    if (zmq_setsockopt(c->socket, ZMQ_CONNECT_ROUTING_ID, name, sizeof(name)) || zmq_connect(c->socket, endpoint)) {
        free(address);
        return zmq_failed(endpoint);
    }
    c->address[rank] = address;
    endpoint_add(c, rank, endpoint);
    return WEIR_OK;
}

void channel_drop(struct channel *c, uint32_t rank)
{
    if (!c->address || !c->address[rank])
        return;
    zmq_disconnect(c->socket, c->address[rank]);
    free(c->address[rank]);
    c->address[rank] = NULL; /* its endpoint stays: the end of the connection is still told */
}

/* An event comes in two parts: its number, in 16 bits, and its value, in 32 bits; and an address. */
static bool event_take(struct channel *c, uint16_t *event, uint32_t *value, char *endpoint, size_t bytes)
{
    char head[64];
    int count = TEMP_FAILURE_RETRY(zmq_recv(c->monitor, head, sizeof(head), ZMQ_DONTWAIT));
    if (count < (int)(sizeof(*event) + sizeof(*value)))
        return false;
    memcpy(event, head, sizeof(*event));
    memcpy(value, head + sizeof(*event), sizeof(*value));
    count = TEMP_FAILURE_RETRY(zmq_recv(c->monitor, endpoint, bytes - 1, ZMQ_DONTWAIT));
    endpoint[count < 0 ? 0 : (size_t)count < bytes ? (size_t)count : bytes - 1] = 0;
    return true;
}

uint32_t channel_ended(struct channel *c)
{
    uint16_t event;
    uint32_t value;
    char endpoint[2 * ENDPOINT_BYTES];
    while (c->monitor && event_take(c, &event, &value, endpoint, sizeof(endpoint))) {
        uint32_t rank = endpoint_rank(c, endpoint);
        if (rank == UINT32_MAX)
            continue;
        if (event == ZMQ_EVENT_CONNECTED)
            watch_connection(&c->connection[rank], (int)value);
        else if (event == ZMQ_EVENT_HANDSHAKE_SUCCEEDED)
            c->stood[rank] = true;
        else if (event == ZMQ_EVENT_DISCONNECTED && c->stood[rank])
            return rank;
    }
    return UINT32_MAX;
}

int64_t channel_sent_ns(const struct channel *c, uint32_t rank, int64_t now)
{
    return watched_sent_ns(&c->connection[rank], now);
}

/* ---- messages ---- */

bool channel_begin(struct channel *c, uint32_t rank)
{
    char name[NAME_BYTES];
    name_of(rank, name);
    return TEMP_FAILURE_RETRY(zmq_send(c->socket, name, sizeof(name), ZMQ_DONTWAIT | ZMQ_SNDMORE)) >= 0;
}

bool channel_part(struct channel *c, zmq_msg_t *part, bool more)
{
    if (TEMP_FAILURE_RETRY(zmq_msg_send(part, c->socket, ZMQ_DONTWAIT | (more ? ZMQ_SNDMORE : 0))) >= 0)
        return true;
    int error = errno;
    zmq_msg_close(part);
    errno = error;
    return false;
}

bool channel_bytes(struct channel *c, const void *bytes, size_t count, bool more)
{
    zmq_msg_t part;
    if (zmq_msg_init_size(&part, count)) {
        channel_abort(c);
        return false;
    }
    if (count)
        memcpy(zmq_msg_data(&part), bytes, count);
    return channel_part(c, &part, more);
}

void channel_abort(struct channel *c)
{
    int error = errno;
    (void)TEMP_FAILURE_RETRY(zmq_send(c->socket, "", 0, ZMQ_DONTWAIT));
    errno = error;
}
