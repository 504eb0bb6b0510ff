/* transport/meet/keys.c: key pairs, and the thread that keeps others out.
 *
 * In the meeting every rank derives the same public key from the session's secret and uses the pair on both ends of a
 * connection. So a server's key proves the secret to a client, and the other way round; there are no certificates to
 * hand out. A client that does not know the secret knows no server key either and fails in ZeroMQ's handshake; what
 * remains for ZAP to refuse is one that got hold of the public key. Both are reported.
 *
 * On the bus every rank has its own pair. A server's key stands in its card, which only the ranks of the session have
 * seen, so who does not belong to them fails in the handshake here, too. A rank that connects under another's name has
 * a key that is not that rank's, which shows with each message: the key is what ZAP calls the user's id.
 *
 *     sockets' I/O thread -- inproc://zeromq.zap.01: may this key in? --> zap thread -- report_say()
 *                         -- inproc monitor: accepted, failed, closed ->
 *     the session's thread - inproc control: watch this, end ---------->
 *
 * An event of a failed handshake does not say whose; the events of one connection follow each other, so the address is
 * that of the descriptor which is closed next. With several I/O threads it may be another's that failed at the same time.
 *
 * ZeroMQ's I/O thread blocks while a monitor's queue is full. The thread does nothing but read it and, once a second,
 * report.
 */
#define _GNU_SOURCE
#include "transport/meet/keys.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>
#include <zmq.h>

#include "graph/base/error.h"
#include "transport/mail/park.h"
#include "transport/meet/local_key.h"

enum {
    KEY_BYTES = 32,
    HANDSHAKE_MS = 2000, /* that a peer has, */
    HANDSHAKE_EACH_MS = 10, /* and for each rank, as all may come at once to few cores */
    BACKLOG = 4096,
    WATCHES_MAX = 4,    /* sockets at a time */
    WATCHED_MAX = 8,    /* and those that have stopped, which the thread has yet to notice */
    DESCRIPTORS = 1024, /* of which the address is known, the latest of each number */
    ADDRESS_BYTES = 72
};

#define ZAP_ENDPOINT "inproc://zeromq.zap.01"
#define ZAP_DOMAIN "weir"
#define BUS_DOMAIN "weir-bus"

/* ---- keys ---- */

static weir_status zmq_failed(const char *what)
{
    return error_set(WEIR_E_IO, "%s: %s", what, zmq_strerror(zmq_errno()));
}

weir_status weir_key_new(char secret[WEIR_KEY_BYTES])
{
    char public_key[WEIR_KEY_BYTES];
    if (error_null(secret, "weir_key_new", "secret"))
        return WEIR_E_ARGUMENT;
    secret[0] = '\0';
    if (!zmq_has("curve") || zmq_curve_keypair(public_key, secret))
        return error_set(WEIR_E_UNSUPPORTED, "no key can be made: this libzmq was built without CURVE");
    return WEIR_OK;
}

bool address_is_loopback(const char *address)
{
    struct in_addr four;
    struct in6_addr six;
    if (inet_pton(AF_INET, address, &four) == 1)
        return ntohl(four.s_addr) >> 24 == 127;
    if (inet_pton(AF_INET6, address, &six) == 1)
        return IN6_IS_ADDR_LOOPBACK(&six);
    return !strcmp(address, "localhost");
}

const char *address_for_people(const char *address)
{
    static const char mapped[] = "::ffff:";
    return strncmp(address, mapped, sizeof mapped - 1) ? address : address + sizeof mapped - 1;
}

static weir_status key_find(const struct cluster_env *env, char secret[WEIR_KEY_BYTES])
{
    if (!env->secret[0] && !address_is_loopback(env->address))
        return error_set(WEIR_E_ARGUMENT,
                         "rank 0 is at %s, off loopback, and there is no key: make one (weir keygen) and name its file "
                         "in WEIR_KEY_FILE on every rank, or set WEIR_INSECURE=1 (weir launch --insecure) on a "
                         "network where all others are trusted", env->address);
    if (!zmq_has("curve"))
        return error_set(WEIR_E_UNSUPPORTED,
                         "this libzmq was built without CURVE, so no session can be kept from others: set "
                         "WEIR_INSECURE=1, and no key, where all others are trusted");
    if (!env->secret[0])
        return local_key(secret);
    cluster_secret_copy(secret, env->secret);
    return WEIR_OK;
}

weir_status keys_open(struct keys *keys, const struct cluster_env *env)
{
    *keys = (struct keys){.curve = env->secret[0] || !env->insecure};
    if (!keys->curve)
        return WEIR_OK;
    weir_status status = key_find(env, keys->secret);
    if (status != WEIR_OK)
        return status;
    if (zmq_curve_public(keys->public_key, keys->secret))
        return error_set(WEIR_E_ARGUMENT, env->secret[0]
                                              ? "WEIR_KEY_FILE holds no key: weir keygen makes one"
                                              : "the file with this user's key holds none: remove it");
    if (zmq_curve_keypair(keys->own_public_key, keys->own_secret))
        return zmq_failed("this rank's own key cannot be made");
    return WEIR_OK;
}

void keys_close(struct keys *keys)
{
    explicit_bzero(keys, sizeof *keys);
}

/* ---- sockets ---- */

static int set_int(void *socket, int option, int value)
{
    return zmq_setsockopt(socket, option, &value, sizeof value);
}

weir_status keys_socket(void *socket, int64_t frame_bytes_max, uint32_t ranks)
{
    int patience_ms = HANDSHAKE_MS + HANDSHAKE_EACH_MS * (int)ranks;
    if (set_int(socket, ZMQ_IPV6, 1) || set_int(socket, ZMQ_LINGER, 0) || set_int(socket, ZMQ_BACKLOG, BACKLOG) ||
        set_int(socket, ZMQ_HANDSHAKE_IVL, patience_ms) ||
        zmq_setsockopt(socket, ZMQ_MAXMSGSIZE, &frame_bytes_max, sizeof frame_bytes_max))
        return zmq_failed("a socket's options cannot be set");
    return WEIR_OK;
}

static int set_key(void *socket, int option, const char *key)
{
    return zmq_setsockopt(socket, option, key, WEIR_KEY_BYTES);
}

static int set_domain(void *socket, const char *domain)
{
    return zmq_setsockopt(socket, ZMQ_ZAP_DOMAIN, domain, strlen(domain));
}

static weir_status set_server(void *socket, const char *secret, const char *domain)
{
    if (set_int(socket, ZMQ_CURVE_SERVER, 1) || set_key(socket, ZMQ_CURVE_SECRETKEY, secret) ||
        set_domain(socket, domain))
        return zmq_failed("a socket cannot be encrypted");
    return WEIR_OK;
}

/* Without keys nobody answers ZeroMQ's questions, and all may come; but a socket with a domain takes no peer that speaks
 * versions 1 or 2 of its protocol, in which garbage that ends at the wrong time makes libzmq abort (zmtp_engine.cpp,
 * process_routing_id_msg(), of 4.3.4). */
static weir_status set_open_server(void *socket, const char *domain)
{
    return set_domain(socket, domain) ? zmq_failed("a socket's options cannot be set") : WEIR_OK;
}

static weir_status set_client(void *socket, const char *server_key, const char *public_key, const char *secret)
{
    if (set_key(socket, ZMQ_CURVE_SERVERKEY, server_key) || set_key(socket, ZMQ_CURVE_PUBLICKEY, public_key) ||
        set_key(socket, ZMQ_CURVE_SECRETKEY, secret))
        return zmq_failed("a socket cannot be encrypted");
    return WEIR_OK;
}

weir_status keys_server(const struct keys *keys, void *socket)
{
    return keys->curve ? set_server(socket, keys->secret, ZAP_DOMAIN) : set_open_server(socket, ZAP_DOMAIN);
}

weir_status keys_client(const struct keys *keys, void *socket)
{
    return keys->curve ? set_client(socket, keys->public_key, keys->public_key, keys->secret) : WEIR_OK;
}

weir_status keys_bus_server(const struct keys *keys, void *socket)
{
    return keys->curve ? set_server(socket, keys->own_secret, BUS_DOMAIN) : set_open_server(socket, BUS_DOMAIN);
}

weir_status keys_bus_client(const struct keys *keys, void *socket, const char peer_key[WEIR_KEY_BYTES])
{
    return keys->curve ? set_client(socket, peer_key, keys->own_public_key, keys->own_secret) : WEIR_OK;
}

bool keys_sender_is(const struct keys *keys, zmq_msg_t *message, const char key[WEIR_KEY_BYTES])
{
    const char *sender = keys->curve ? zmq_msg_gets(message, "User-Id") : NULL;
    return !keys->curve || (sender && !strcmp(sender, key));
}

/* ---- the thread ---- */

struct watched {
    void *events;       /* owned: the end of the monitor that is read; NULL: none */
    const char *reason; /* of the failure whose connection is about to be closed */
};

/* The keys of all ranks, public. */
struct member_keys {
    uint32_t count;
    uint8_t key[][KEY_BYTES];
};

struct zap {
    void *context;  /* borrowed */
    const struct report *report;
    uint8_t key[KEY_BYTES]; /* the session's, public */
    struct member_keys *_Atomic members; /* owned; NULL: they have not met */
    void *control;  /* owned by the session's thread: a socket to watch, or NULL for the end */
    int watches;    /* likewise: sockets watched */
    void *commands; /* the thread's end of it, as all below */
    void *questions;
    struct watched watched[WATCHED_MAX];
    char (*address)[ADDRESS_BYTES]; /* of the peer behind a descriptor; owned */
    int64_t reported_ns;
    uint64_t left_out; /* refused since then and not reported */
    pthread_t thread;
};

static int64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * INT64_C(1000000000) + now.tv_nsec;
}

static void refuse(struct zap *zap, const char *address, const char *reason)
{
    char others[64] = "";
    int64_t now = now_ns();
    if (zap->reported_ns && now - zap->reported_ns < INT64_C(1000000000)) {
        zap->left_out++;
        return;
    }
    if (zap->left_out)
        snprintf(others, sizeof others, " (and %llu more since the last report)", (unsigned long long)zap->left_out);
    report_say(zap->report, "refused a peer at %s: %s%s", address_for_people(address), reason, others);
    zap->reported_ns = now;
    zap->left_out = 0;
}

/* ---- questions: RFC 27 ---- */

enum { ZAP_VERSION, ZAP_REQUEST, ZAP_DOMAIN_NAME, ZAP_ADDRESS, ZAP_IDENTITY, ZAP_MECHANISM, ZAP_CREDENTIALS, ZAP_FRAMES };

struct part {
    char bytes[256];
    size_t count;
};

/* Frames of a message; those beyond `most` are read and dropped. */
static int receive_parts(void *socket, struct part *parts, int most)
{
    int count = 0, more = 1;
    struct part dropped;
    while (more) {
        struct part *part = count < most ? &parts[count] : &dropped;
        size_t more_bytes = sizeof more;
        int bytes = (int)TEMP_FAILURE_RETRY(zmq_recv(socket, part->bytes, sizeof part->bytes - 1, ZMQ_DONTWAIT));
        if (bytes < 0 || zmq_getsockopt(socket, ZMQ_RCVMORE, &more, &more_bytes))
            return -1;
        part->count = (size_t)bytes < sizeof part->bytes ? (size_t)bytes : sizeof part->bytes - 1;
        part->bytes[part->count] = '\0';
        count++;
    }
    return count;
}

/* In a time that does not tell where they differ. */
static bool same_key(const uint8_t *a, const void *b)
{
    const uint8_t *other = b;
    unsigned differs = 0;
    for (int i = 0; i < KEY_BYTES; i++)
        differs |= a[i] ^ other[i];
    return differs == 0;
}

/* Before they have met all who know this rank's own key are members. */
static bool is_member(const struct zap *zap, const void *key)
{
    /* acquire: pairs with the store in zap_members() */
    const struct member_keys *members = atomic_load_explicit(&zap->members, memory_order_acquire);
    bool found = !members;
    for (uint32_t r = 0; members && !found && r < members->count; r++)
        found = !memcmp(members->key[r], key, KEY_BYTES);
    return found;
}

static const char *reason_against(const struct zap *zap, const struct part *parts)
{
    const struct part *key = &parts[ZAP_CREDENTIALS];
    if (strcmp(parts[ZAP_MECHANISM].bytes, "CURVE") != 0)
        return "it came without a key";
    if (!strcmp(parts[ZAP_DOMAIN_NAME].bytes, BUS_DOMAIN))
        return key->count == KEY_BYTES && is_member(zap, key->bytes) ? NULL : "its key is that of no rank";
    return key->count == KEY_BYTES && same_key(zap->key, key->bytes) ? NULL : "its key is not the session's";
}

/* A signal of the program's may end the call before it has done something. */
static void send_part(void *socket, const void *bytes, size_t count, bool more)
{
    (void)TEMP_FAILURE_RETRY(zmq_send(socket, bytes, count, more ? ZMQ_SNDMORE : 0));
}

static void reply(struct zap *zap, const struct part *request, const char *status, const char *user)
{
    const char *text = *status == '2' ? "OK" : "not of this session";
    send_part(zap->questions, "1.0", 3, true);
    send_part(zap->questions, request->bytes, request->count, true);
    send_part(zap->questions, status, 3, true);
    send_part(zap->questions, text, strlen(text), true);
    send_part(zap->questions, user, strlen(user), true);
    send_part(zap->questions, "", 0, false);
}

static void answer(struct zap *zap)
{
    char user[WEIR_KEY_BYTES] = "";
    struct part parts[ZAP_FRAMES] = {{.count = 0}};
    int count = receive_parts(zap->questions, parts, ZAP_FRAMES);
    if (count < 0)
        return;
    const char *reason = count < ZAP_CREDENTIALS ? "ZeroMQ's question about it is not understood"
                                                 : reason_against(zap, parts);
    if (!reason)
        zmq_z85_encode(user, (const uint8_t *)parts[ZAP_CREDENTIALS].bytes, KEY_BYTES);
    reply(zap, &parts[ZAP_REQUEST], reason ? "400" : "200", user);
    if (reason)
        refuse(zap, parts[ZAP_ADDRESS].bytes, reason);
}

/* ---- events: failed handshakes ---- */

/* "10.0.0.7:40123" of the other end of a connection. One that was closed since it was accepted has none any more. */
static void address_find(int fd, char *text)
{
    struct sockaddr_storage peer;
    socklen_t bytes = sizeof peer;
    char host[INET6_ADDRSTRLEN + 8] = "", port[8] = "";
    if (!getpeername(fd, (struct sockaddr *)&peer, &bytes) &&
        !getnameinfo((struct sockaddr *)&peer, bytes, host, sizeof host, port, sizeof port,
                     NI_NUMERICHOST | NI_NUMERICSERV))
        snprintf(text, ADDRESS_BYTES, "%s:%s", host, port);
    else
        snprintf(text, ADDRESS_BYTES, "an unknown address");
}

static const char *failure_text(uint32_t code)
{
    if (code == ZMQ_PROTOCOL_ERROR_ZMTP_MECHANISM_MISMATCH)
        return "it came without a key";
    return code == ZMQ_PROTOCOL_ERROR_ZMTP_CRYPTOGRAPHIC ? "its key is not the session's" : "it does not speak ZeroMQ";
}

static void take_event(struct zap *zap, struct watched *watched, uint16_t event, uint32_t value)
{
    char *address = zap->address[value % DESCRIPTORS];
    if (event == ZMQ_EVENT_ACCEPTED) {
        address_find((int)value, address);
    } else if (event == ZMQ_EVENT_HANDSHAKE_FAILED_PROTOCOL) {
        watched->reason = failure_text(value);
    } else if (event == ZMQ_EVENT_HANDSHAKE_FAILED_NO_DETAIL) {
        watched->reason = "it said nothing or broke off the handshake, as one without a key does";
    } else if (event == ZMQ_EVENT_DISCONNECTED && watched->reason) {
        refuse(zap, *address ? address : "an unknown address", watched->reason);
        watched->reason = NULL;
    }
}

static void watched_close(struct watched *watched)
{
    if (watched->events)
        zmq_close(watched->events);
    *watched = (struct watched){.events = NULL};
}

static void take_events(struct zap *zap, struct watched *watched)
{
    struct part parts[2];
    while (receive_parts(watched->events, parts, 2) == 2) {
        uint16_t event;
        uint32_t value;
        memcpy(&event, parts[0].bytes, sizeof event);
        memcpy(&value, parts[0].bytes + sizeof event, sizeof value);
        if (event == ZMQ_EVENT_MONITOR_STOPPED) {
            watched_close(watched);
            return;
        }
        take_event(zap, watched, event, value);
    }
}

/* ---- the loop ---- */

/* False at the end. */
static bool take_command(struct zap *zap)
{
    void *events = NULL;
    if (zmq_recv(zap->commands, &events, sizeof events, ZMQ_DONTWAIT) != (int)sizeof events)
        return zmq_errno() != ETERM;
    for (int w = 0; events && w < WATCHED_MAX; w++)
        if (!zap->watched[w].events) {
            zap->watched[w].events = events;
            return true;
        }
    if (events)
        zmq_close(events); /* four sockets came and went faster than the thread was run */
    return events != NULL;
}

static void *zap_run(void *arg)
{
    struct zap *zap = arg;
    bool runs = true;
    while (runs) {
        zmq_pollitem_t items[2 + WATCHED_MAX] = {{.socket = zap->commands, .events = ZMQ_POLLIN},
                                                 {.socket = zap->questions, .events = ZMQ_POLLIN}};
        struct watched *of[2 + WATCHED_MAX] = {NULL};
        int count = 2;
        for (int w = 0; w < WATCHED_MAX; w++)
            if (zap->watched[w].events) {
                of[count] = &zap->watched[w];
                items[count++] = (zmq_pollitem_t){.socket = zap->watched[w].events, .events = ZMQ_POLLIN};
            }
        if (zmq_poll(items, count, -1) < 0 && zmq_errno() != EINTR)
            break;
        for (int i = 2; i < count; i++)
            if (items[i].revents)
                take_events(zap, of[i]);
        if (items[1].revents)
            answer(zap);
        if (items[0].revents)
            runs = take_command(zap);
    }
    return NULL;
}

/* ---- its life ---- */

static void *socket_open(void *context, int kind, const char *endpoint, bool binds)
{
    void *socket = zmq_socket(context, kind);
    if (socket && (set_int(socket, ZMQ_LINGER, 0) ||
                   (binds ? zmq_bind(socket, endpoint) : zmq_connect(socket, endpoint)))) {
        zmq_close(socket);
        socket = NULL;
    }
    return socket;
}

static void zap_free(struct zap *zap)
{
    void *sockets[] = {zap->control, zap->commands, zap->questions};
    for (int s = 0; s < 3; s++)
        if (sockets[s])
            zmq_close(sockets[s]);
    for (int w = 0; w < WATCHED_MAX; w++)
        watched_close(&zap->watched[w]);
    free(zap->address);
    free(atomic_load(&zap->members));
    free(zap);
}

weir_status zap_open(struct zap **opened, void *context, const struct keys *keys, const struct report *report)
{
    char control[64];
    *opened = NULL;
    if (!keys->curve)
        return WEIR_OK;
    struct zap *zap = calloc(1, sizeof *zap);
    if (!zap)
        return error_set(WEIR_E_MEMORY, "no memory for the thread that checks keys");
    weir_status status = WEIR_OK;
    snprintf(control, sizeof control, "inproc://weir-zap-%p", (void *)zap);
    zap->context = context;
    zap->report = report;
    zap->address = calloc(DESCRIPTORS, sizeof *zap->address);
    zap->commands = socket_open(context, ZMQ_PAIR, control, true);
    zap->control = zap->commands ? socket_open(context, ZMQ_PAIR, control, false) : NULL;
    zap->questions = zap->control ? socket_open(context, ZMQ_REP, ZAP_ENDPOINT, true) : NULL;
    if (!zap->address || !zmq_z85_decode(zap->key, keys->public_key))
        status = error_set(WEIR_E_MEMORY, "no memory for the thread that checks keys");
    else if (!zap->questions)
        status = zmq_failed("the check of keys cannot be set up");
    else if (!park_thread(&zap->thread, "weir-keys", zap_run, zap))
        status = error_set(WEIR_E_MEMORY, "no thread for the check of keys");
    if (status == WEIR_OK)
        *opened = zap;
    else
        zap_free(zap);
    return status;
}

void zap_close(struct zap *zap)
{
    static void *const end = NULL;
    if (!zap)
        return;
    send_part(zap->control, &end, sizeof end, false);
    pthread_join(zap->thread, NULL);
    zap_free(zap);
}

weir_status zap_members(struct zap *zap, const char *keys, size_t stride, uint32_t count)
{
    if (!zap)
        return WEIR_OK;
    struct member_keys *members = malloc(sizeof *members + count * sizeof *members->key);
    if (!members)
        return error_set(WEIR_E_MEMORY, "no memory for the keys of %u ranks", count);
    members->count = count;
    for (uint32_t r = 0; r < count; r++)
        if (strnlen(keys + r * stride, WEIR_KEY_BYTES) != WEIR_KEY_BYTES - 1 ||
            !zmq_z85_decode(members->key[r], keys + r * stride)) {
            free(members);
            return error_set(WEIR_E_PEER, "the card of rank %u holds no key", r);
        }
    /* release: pairs with the load in is_member() */
    atomic_store_explicit(&zap->members, members, memory_order_release);
    return WEIR_OK;
}

weir_status zap_watch(struct zap *zap, void *socket)
{
    char endpoint[64];
    if (!zap)
        return WEIR_OK;
    if (zap->watches == WATCHES_MAX)
        return error_set(WEIR_E_STATE, "%d sockets are watched already", WATCHES_MAX);
    const int events = ZMQ_EVENT_ACCEPTED | ZMQ_EVENT_HANDSHAKE_FAILED_PROTOCOL | ZMQ_EVENT_DISCONNECTED |
                       ZMQ_EVENT_HANDSHAKE_FAILED_NO_DETAIL | ZMQ_EVENT_MONITOR_STOPPED;
    snprintf(endpoint, sizeof endpoint, "inproc://weir-watch-%p", socket);
    if (zmq_socket_monitor(socket, endpoint, events))
        return zmq_failed("a socket cannot be watched");
    void *reader = socket_open(zap->context, ZMQ_PAIR, endpoint, false);
    if (!reader) {
        weir_status status = zmq_failed("a socket cannot be watched");
        zmq_socket_monitor(socket, NULL, 0);
        return status;
    }
    send_part(zap->control, &reader, sizeof(void *), false);
    zap->watches++;
    return WEIR_OK;
}

void zap_unwatch(struct zap *zap, void *socket)
{
    if (!zap)
        return;
    zmq_socket_monitor(socket, NULL, 0);
    zap->watches--;
}
