/* tests/net/attacker.c: somebody unknown who knows where a session listens, and tries all that needs no key.
 *
 *     attacker MODE ADDRESS PORT COUNT [SEED]
 *
 *     bytes      COUNT connections one after the other, each says random bytes
 *     greeting   the same, after a greeting as ZMTP (ZeroMQ's protocol, RFC 23) wants it
 *     frames     COUNT messages of a well-behaved ZeroMQ socket without a key: random frames, and headers of the bus
 *                whose numbers are random
 *     keys       COUNT sockets, each with a fresh key of its own; the session's public key is made from
 *                WEIR_KEY_FILE's
 *     door       COUNT connections to where register contents are to come: random bytes, half a greeting, a whole one with
 *                a random ticket, or nothing; the last 100 stay open
 *     silent     COUNT connections that say nothing; prints "open N", and holds them until it is killed
 *     endless    one message of ever more frames, of COUNT MiB together, and never its last; prints how many were
 *                taken, and stays when all were
 *
 * ADDRESS may be a Unix socket in the abstract name space, "@weir-4711", whose PORT does not count.
 *
 * The seed is printed. One thread.
 */
#include "transport/line/door.h"
#include "transport/line/wire.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>
#include <zmq.h>

#define BYTES_MAX 8192

struct target {
    const char *address;
    int port, count;
    uint64_t random;
};

/* splitmix64 (Steele, Lea and Flood 2014). */
static uint64_t draw(struct target *t)
{
    uint64_t z = t->random += 0x9e3779b97f4a7c15;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    return z ^ (z >> 31);
}

static size_t draw_bytes(struct target *t, unsigned char *to, size_t bytes_max)
{
    size_t bytes = draw(t) % (bytes_max + 1);
    for (size_t i = 0; i < bytes; i++)
        to[i] = (unsigned char)draw(t);
    return bytes;
}

static void nap_ms(long ms)
{
    nanosleep(&(struct timespec){.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000}, NULL);
}

static int open_unix(const char *name)
{
    struct sockaddr_un to = {.sun_family = AF_UNIX};
    socklen_t bytes = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + strlen(name));
    strncpy(to.sun_path, name, sizeof to.sun_path - 1);
    to.sun_path[0] = '\0';
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd >= 0 && connect(fd, (struct sockaddr *)&to, bytes)) {
        close(fd);
        fd = -1;
    }
    return fd;
}

static int open_connection(const struct target *t)
{
    if (t->address[0] == '@')
        return open_unix(t->address);
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons((uint16_t)t->port)};
    inet_pton(AF_INET, t->address, &to.sin_addr);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd >= 0 && connect(fd, (struct sockaddr *)&to, sizeof to)) {
        close(fd);
        fd = -1;
    }
    return fd;
}

/* The greeting of both sides of ZMTP 3: 64 bytes. */
static size_t write_greeting(struct target *t, unsigned char *to)
{
    memset(to, 0, 64);
    to[0] = 0xff, to[9] = 0x7f;
    to[10] = 3;
    strncpy((char *)to + 12, draw(t) % 2 ? "CURVE" : "NULL", 20);
    return 64;
}

/* A connection that is reset while it talks was refused, as it should be. */
static int say_bytes(struct target *t, bool greet)
{
    int refused = 0;
    for (int i = 0; i < t->count; i++) {
        unsigned char text[64 + BYTES_MAX];
        size_t bytes = greet ? write_greeting(t, text) : 0;
        bytes += draw_bytes(t, text + bytes, BYTES_MAX);
        int fd = open_connection(t);
        if (fd < 0 || send(fd, text, bytes, MSG_NOSIGNAL) < 0)
            refused++;
        if (draw(t) % 2)
            nap_ms(5);
        if (fd >= 0)
            close(fd);
    }
    printf("said %d, %d of them refused\n", t->count, refused);
    return 0;
}

/* A rank's greeting at a door (transport/line/door.h), without the secret that only the two ranks know. */
static size_t draw_door_greeting(struct target *t, unsigned char *to)
{
    struct door_greeting greeting = {.version = WIRE_VERSION, .rank = (uint32_t)(draw(t) % 4), .session = draw(t)};
    for (int i = 0; i < SEAL_SECRET_BYTES; i++)
        greeting.ticket[i] = (unsigned char)draw(t);
    door_greeting_encode(&greeting, to);
    return DOOR_GREETING_BYTES;
}

static int come_to_door(struct target *t)
{
    enum { KEPT = 100 };
    int kept[KEPT] = {0}, refused = 0;
    for (int i = 0; i < t->count; i++) {
        unsigned char text[BYTES_MAX];
        size_t bytes = draw_door_greeting(t, text);
        int fd = open_connection(t), how = (int)(draw(t) % 4);
        bytes = how == 0 ? draw_bytes(t, text, BYTES_MAX) : how == 1 ? draw(t) % bytes : how == 2 ? bytes : 0;
        if (fd < 0 || (bytes && send(fd, text, bytes, MSG_NOSIGNAL) < 0))
            refused++;
        if (kept[i % KEPT] > 0)
            close(kept[i % KEPT]);
        kept[i % KEPT] = fd;
        nap_ms(2);
    }
    printf("came %d times, %d of them refused\n", t->count, refused);
    return 0;
}

/* A header of the bus that is right in form. */
static size_t draw_header(struct target *t, unsigned char header[WIRE_HEADER_MAX])
{
    static const uint32_t kinds[] = {WIRE_HELLO, WIRE_BEAT, WIRE_FAIL, WIRE_BYE, WIRE_VALUE, WIRE_WAITS, WIRE_HOLD,
                                     WIRE_END};
    struct wire_frame frame = {.version = draw(t) % 4 ? WIRE_VERSION : (uint32_t)draw(t),
                               .kind = kinds[draw(t) % (sizeof kinds / sizeof *kinds)],
                               .rank = (uint32_t)(draw(t) % 5),
                               .session = draw(t),
                               .number = draw(t) % 3};
    if (frame.kind == WIRE_WAITS)
        frame.waits.count = 1 + (uint32_t)(draw(t) % 8);
    if (frame.kind == WIRE_FAIL)
        snprintf(frame.fail.text, sizeof frame.fail.text, "all is lost");
    return wire_encode(&frame, header);
}

static void send_message(struct target *t, void *socket)
{
    unsigned char bytes[BYTES_MAX];
    for (int frames = (int)(draw(t) % 4); frames > 0; frames--)
        zmq_send(socket, bytes, draw_bytes(t, bytes, 256), ZMQ_SNDMORE | ZMQ_DONTWAIT);
    if (draw(t) % 2)
        zmq_send(socket, bytes, draw_header(t, bytes), ZMQ_SNDMORE | ZMQ_DONTWAIT);
    zmq_send(socket, bytes, draw_bytes(t, bytes, BYTES_MAX), ZMQ_DONTWAIT);
}

static void *open_socket(const struct target *t, void *context)
{
    char endpoint[64];
    int linger_ms = 200;
    void *socket = zmq_socket(context, ZMQ_DEALER);
    zmq_setsockopt(socket, ZMQ_LINGER, &linger_ms, sizeof linger_ms);
    if (t->address[0] == '@')
        snprintf(endpoint, sizeof endpoint, "ipc://%s", t->address);
    else
        snprintf(endpoint, sizeof endpoint, "tcp://%s:%d", t->address, t->port);
    FILE *key = getenv("WEIR_KEY_FILE") ? fopen(getenv("WEIR_KEY_FILE"), "r") : NULL;
    if (key) {
        char session_secret[41] = "", session_public[41], own_public[41], own_secret[41];
        if (fread(session_secret, 1, 40, key) == 40)
            zmq_curve_public(session_public, session_secret);
        fclose(key);
        zmq_curve_keypair(own_public, own_secret);
        zmq_setsockopt(socket, ZMQ_CURVE_SERVERKEY, session_public, 41);
        zmq_setsockopt(socket, ZMQ_CURVE_PUBLICKEY, own_public, 41);
        zmq_setsockopt(socket, ZMQ_CURVE_SECRETKEY, own_secret, 41);
    }
    zmq_connect(socket, endpoint);
    return socket;
}

static int say_frames(struct target *t)
{
    void *context = zmq_ctx_new(), *socket = open_socket(t, context);
    for (int i = 0; i < t->count; i++) {
        send_message(t, socket);
        if (i % 50 == 49)
            nap_ms(10);
    }
    zmq_close(socket);
    zmq_ctx_term(context);
    printf("said %d\n", t->count);
    return 0;
}

static int try_keys(struct target *t)
{
    void *context = zmq_ctx_new();
    for (int i = 0; i < t->count; i++) {
        void *socket = open_socket(t, context);
        send_message(t, socket);
        nap_ms(100);
        zmq_close(socket);
    }
    zmq_ctx_term(context);
    printf("tried %d\n", t->count);
    return 0;
}

static int keep_silent(const struct target *t)
{
    struct rlimit limit;
    getrlimit(RLIMIT_NOFILE, &limit);
    limit.rlim_cur = limit.rlim_max;
    setrlimit(RLIMIT_NOFILE, &limit);
    int opened = 0;
    while (opened < t->count && open_connection(t) >= 0)
        opened++;
    printf("open %d%s%s\n", opened, opened < t->count ? ": " : "", opened < t->count ? strerror(errno) : "");
    fflush(stdout);
    while (pause())
        continue;
    return 0;
}

/* Reads exactly so many bytes. */
static bool hear(int fd, void *to, size_t bytes)
{
    return recv(fd, to, bytes, MSG_WAITALL) == (ssize_t)bytes;
}

/* The handshake of a ZeroMQ socket without a key before its first message. */
static bool shake_hands(int fd)
{
    static const unsigned char ready[] = {4, 41, 5, 'R', 'E', 'A', 'D', 'Y', 11, 'S', 'o', 'c', 'k', 'e', 't', '-',
                                          'T', 'y', 'p', 'e', 0, 0, 0, 6, 'D', 'E', 'A', 'L', 'E', 'R', 8, 'I',
                                          'd', 'e', 'n', 't', 'i', 't', 'y', 0, 0, 0, 0};
    unsigned char greeting[64] = {0xff, [9] = 0x7f, [10] = 3}, heard[64], head[2], body[255];
    memcpy(greeting + 12, "NULL", 4);
    return send(fd, greeting, sizeof greeting, MSG_NOSIGNAL) == sizeof greeting && hear(fd, heard, sizeof heard) &&
           !memcmp(heard + 12, "NULL", 5) && send(fd, ready, sizeof ready, MSG_NOSIGNAL) == sizeof ready &&
           hear(fd, head, 2) && head[0] == 4 && hear(fd, body, head[1]);
}

/* Frames of 4096 bytes, each of which says that another one follows. */
static int say_endlessly(const struct target *t)
{
    enum { FRAME = 4096, FRAMES = 16 };
    static unsigned char frames[FRAMES][9 + FRAME];
    int64_t taken = 0, most = (int64_t)t->count << 20;
    for (int i = 0; i < FRAMES; i++)
        frames[i][0] = 3, frames[i][7] = FRAME >> 8; /* long, more; a length of 8 bytes, highest first */
    int fd = open_connection(t);
    bool welcome = fd >= 0 && shake_hands(fd);
    for (ssize_t bytes = 0; welcome && taken < most && bytes >= 0; taken += bytes)
        bytes = send(fd, frames, sizeof frames, MSG_NOSIGNAL);
    printf("%s, took %d MiB\n", welcome ? "let in" : "refused", (int)(taken >> 20));
    fflush(stdout);
    while (taken >= most && pause())
        continue;
    return 0;
}

int main(int argc, char **argv)
{
    if (argc < 5) {
        fprintf(stderr, "attacker bytes|greeting|frames|keys|door|silent|endless ADDRESS PORT COUNT [SEED]\n");
        return 2;
    }
    struct target t = {argv[2], atoi(argv[3]), atoi(argv[4]), 0};
    t.random = argc > 5 ? strtoull(argv[5], NULL, 0) : (uint64_t)time(NULL);
    printf("seed %llu\n", (unsigned long long)t.random);
    signal(SIGPIPE, SIG_IGN);
    if (!strcmp(argv[1], "bytes") || !strcmp(argv[1], "greeting"))
        return say_bytes(&t, argv[1][0] == 'g');
    if (!strcmp(argv[1], "frames"))
        return say_frames(&t);
    if (!strcmp(argv[1], "keys"))
        return try_keys(&t);
    if (!strcmp(argv[1], "door"))
        return come_to_door(&t);
    if (!strcmp(argv[1], "endless"))
        return say_endlessly(&t);
    return keep_silent(&t);
}
