/* transport/line/door.c: see the header.
 *
 *     greeting: 0 "WEIRBULK" | 8 version u32 | 12 rank u32 | 16 session u64 | 24 ticket, 32 bytes
 */
#define _GNU_SOURCE
#include "transport/line/door.h"

#include <errno.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "graph/base/error.h"
#include "transport/mail/park.h"

#define BACKLOG 1024
#define HOST_BYTES 160

static const char magic[8] = {'W', 'E', 'I', 'R', 'B', 'U', 'L', 'K'};

void door_greeting_encode(const struct door_greeting *greeting, unsigned char bytes[DOOR_GREETING_BYTES])
{
    memcpy(bytes, magic, sizeof(magic));
    memcpy(bytes + 8, &greeting->version, 4);
    memcpy(bytes + 12, &greeting->rank, 4);
    memcpy(bytes + 16, &greeting->session, 8);
    memcpy(bytes + 24, greeting->ticket, sizeof(greeting->ticket));
}

bool door_greeting_decode(const unsigned char bytes[DOOR_GREETING_BYTES], struct door_greeting *greeting)
{
    memcpy(&greeting->version, bytes + 8, 4);
    memcpy(&greeting->rank, bytes + 12, 4);
    memcpy(&greeting->session, bytes + 16, 8);
    memcpy(greeting->ticket, bytes + 24, sizeof(greeting->ticket));
    return !memcmp(bytes, magic, sizeof(magic));
}

/* ---- addresses ---- */

/* The host of "tcp://host:port", "tcp://[host]:port". */
static bool host_of(const char *endpoint, char host[HOST_BYTES])
{
    const char *at = strncmp(endpoint, "tcp://", 6) ? NULL : endpoint + 6, *end = at ? strrchr(at, ':') : NULL;
    if (end && *at == '[' && end[-1] == ']') {
        at++;
        end--;
    }
    if (!end || (size_t)(end - at) >= HOST_BYTES)
        return false;
    memcpy(host, at, (size_t)(end - at));
    host[end - at] = 0;
    return true;
}

static weir_status address_of(const char *endpoint, uint32_t port, struct sockaddr_storage *to, socklen_t *bytes)
{
    char host[HOST_BYTES], service[16];
    const struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM,
                                   .ai_flags = AI_NUMERICHOST | AI_NUMERICSERV | AI_PASSIVE};
    struct addrinfo *found = NULL;
    snprintf(service, sizeof(service), "%u", port);
    if (!host_of(endpoint, host) || getaddrinfo(host, service, &hints, &found) || !found)
        return error_set(WEIR_E_PEER, "%s is no address", endpoint);
    memcpy(to, found->ai_addr, found->ai_addrlen);
    *bytes = found->ai_addrlen;
    freeaddrinfo(found);
    return WEIR_OK;
}

static socklen_t local_address(uint64_t name, struct sockaddr_un *to)
{
    *to = (struct sockaddr_un){.sun_family = AF_UNIX};
    int count = snprintf(to->sun_path + 1, sizeof(to->sun_path) - 1, "weir-bulk-%016llx", (unsigned long long)name);
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)count);
}

static bool watch(int epoll_fd, int fd, uint32_t events)
{
    struct epoll_event event = {.events = events, .data.ptr = NULL}; /* no line's */
    return !epoll_ctl(epoll_fd, EPOLL_CTL_ADD, fd, &event);
}

static void drop(int epoll_fd, int fd)
{
    if (fd < 0)
        return;
    epoll_ctl(epoll_fd, EPOLL_CTL_DEL, fd, NULL);
    close(fd);
}

/* ---- this rank's ---- */

static int listen_at(int epoll_fd, const void *address, socklen_t bytes)
{
    int fd = socket(((const struct sockaddr *)address)->sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd >= 0 && !bind(fd, address, bytes) && !listen(fd, BACKLOG) && watch(epoll_fd, fd, EPOLLIN))
        return fd;
    int error = errno;
    if (fd >= 0)
        close(fd);
    errno = error;
    return -1;
}

static weir_status listen_tcp(struct door *door, const char *endpoint)
{
    struct sockaddr_storage address;
    char service[16];
    socklen_t bytes = 0;
    weir_status status = address_of(endpoint, 0, &address, &bytes);
    if (status)
        return status;
    door->tcp_fd = listen_at(door->epoll_fd, &address, bytes);
    bytes = sizeof(address);
    if (door->tcp_fd < 0 || getsockname(door->tcp_fd, (struct sockaddr *)&address, &bytes) ||
        getnameinfo((struct sockaddr *)&address, bytes, NULL, 0, service, sizeof(service), NI_NUMERICSERV))
        return error_set(WEIR_E_PEER, "cannot listen at a second port of %s: %s", endpoint, strerror(errno));
    door->port = (uint32_t)strtoul(service, NULL, 10);
    return WEIR_OK;
}

/* Where there is none TCP will do. */
static void listen_local(struct door *door)
{
    struct sockaddr_un address;
    uint64_t name = 0;
    if (getrandom(&name, sizeof(name), 0) != sizeof(name) || !name)
        return;
    door->local_fd = listen_at(door->epoll_fd, &address, local_address(name, &address));
    door->name = door->local_fd >= 0 ? name : 0;
}

weir_status door_open(struct door *door, int epoll_fd, const char *endpoint, bool local)
{
    *door = (struct door){.epoll_fd = epoll_fd, .tcp_fd = -1, .local_fd = -1};
    if (local)
        listen_local(door);
    return listen_tcp(door, endpoint);
}

void door_close(struct door *door)
{
    for (uint32_t i = 0; i < door->guests_count; i++)
        drop(door->epoll_fd, door->guests[i].fd);
    door->guests_count = 0;
    drop(door->epoll_fd, door->tcp_fd);
    drop(door->epoll_fd, door->local_fd);
    door->tcp_fd = door->local_fd = -1;
}

static void guest_forget(struct door *door, uint32_t number)
{
    memmove(&door->guests[number], &door->guests[number + 1],
            (--door->guests_count - number) * sizeof(*door->guests));
}

static void guest_add(struct door *door, int fd)
{
    if (watch(door->epoll_fd, fd, EPOLLIN))
        door->guests[door->guests_count++] = (struct door_guest){.fd = fd, .since_ns = park_now_ns()};
    else
        close(fd);
}

static void guests_come(struct door *door, int listener)
{
    int fd;
    while (listener >= 0 && door->guests_count < DOOR_WAITING &&
           (fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC)) >= 0)
        guest_add(door, fd);
}

/* The oldest gives way, when all have been listened to. */
static void guests_yield(struct door *door, const char **refused)
{
    if (door->guests_count < DOOR_WAITING)
        return;
    drop(door->epoll_fd, door->guests[0].fd);
    guest_forget(door, 0);
    *refused = "a connection that says nothing";
}

/* 1: it has said all; 0: not yet; -1: it has ended, or takes too long. */
static int guest_listen(struct door_guest *guest)
{
    ssize_t count = TEMP_FAILURE_RETRY(read(guest->fd, guest->greeting_bytes + guest->bytes, sizeof(guest->greeting_bytes) - guest->bytes));
    bool later = count < 0 && errno == EAGAIN;
    guest->bytes += count > 0 ? (uint32_t)count : 0;
    if (guest->bytes == sizeof(guest->greeting_bytes))
        return 1;
    return (count > 0 || later) && park_now_ns() - guest->since_ns < DOOR_NS ? 0 : -1;
}

int door_take(struct door *door, struct door_greeting *greeting, const char **refused)
{
    *refused = NULL;
    guests_come(door, door->local_fd);
    guests_come(door, door->tcp_fd);
    for (uint32_t i = 0; i < door->guests_count;) {
        struct door_guest *guest = &door->guests[i];
        int greeting_bytes = guest_listen(guest), fd = guest->fd;
        if (!greeting_bytes) {
            i++;
            continue;
        }
        bool good = greeting_bytes > 0 && door_greeting_decode(guest->greeting_bytes, greeting);
        guest_forget(door, i);
        if (good) {
            epoll_ctl(door->epoll_fd, EPOLL_CTL_DEL, fd, NULL);
            return fd;
        }
        drop(door->epoll_fd, fd);
        *refused = "a connection that does not greet as a rank does";
    }
    guests_yield(door, refused);
    return -1;
}

/* ---- another's ---- */

static weir_status connect_to(int epoll_fd, const void *address, socklen_t bytes, int *to)
{
    int fd = socket(((const struct sockaddr *)address)->sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    bool begun = fd >= 0 && (!connect(fd, address, bytes) || errno == EINPROGRESS || errno == EINTR);
    if (begun && watch(epoll_fd, fd, EPOLLOUT)) {
        *to = fd;
        return WEIR_OK;
    }
    int error = errno;
    if (fd >= 0)
        close(fd);
    return error_set(WEIR_E_PEER, "%s", strerror(error));
}

weir_status door_connect_tcp(int epoll_fd, const char *endpoint, uint32_t port, int *fd)
{
    struct sockaddr_storage address;
    socklen_t bytes = 0;
    weir_status status = address_of(endpoint, port, &address, &bytes);
    return status ? status : connect_to(epoll_fd, &address, bytes, fd);
}

weir_status door_connect_local(int epoll_fd, uint64_t name, int *fd)
{
    struct sockaddr_un address;
    return connect_to(epoll_fd, &address, local_address(name, &address), fd);
}

/* A greeting fits into the buffer of a connection that has sent nothing. */
int door_say(int fd, const struct door_greeting *greeting)
{
    unsigned char bytes[DOOR_GREETING_BYTES];
    int error = 0;
    socklen_t error_bytes = sizeof(error);
    if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &error_bytes) || error) {
        errno = error ? error : errno;
        return -1;
    }
    door_greeting_encode(greeting, bytes);
    ssize_t sent = TEMP_FAILURE_RETRY(send(fd, bytes, sizeof(bytes), MSG_NOSIGNAL | MSG_DONTWAIT));
    if (sent == (ssize_t)sizeof(bytes))
        return 1;
    return sent < 0 && (errno == EAGAIN || errno == ENOTCONN) ? 0 : -1;
}
