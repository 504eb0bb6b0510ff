/* tests/net/cable.c: an Ethernet switch in user space, for kernels without netem: what goes through it can be late, be
 * lost, or have to pass a bottleneck.
 *
 *     cable tap0 tap1 tap2          makes these TAP devices, says "ready", and carries frames between them
 *
 * until its standard input ends. Lines there change what it does to frames that come from then on:
 *
 *     delay 200        milliseconds from one port to another
 *     loss 2           percent of the frames
 *     rate 40          Mbit/s that leave a port; 0: no limit
 *     queue 100        milliseconds that a frame waits for its turn at such a port, at most
 *     hold 1 2000      nothing leaves port 1 for so many milliseconds; what comes for it waits
 *     duplicate 5      percent of the frames that come twice
 *     truncate 1       percent of the frames that lose their end
 *     drop 1 2 600     frames of at least so many bytes from port 1 to port 2 are lost, but no others;
 *     drop 1 2 0 4711  of them only those from or to this TCP port. Eight such rules at most
 *     carry            none is lost by a rule any more
 *
 * Its caller moves the devices to where they belong and gives port k the address 02:00:00:00:00:0k, so that nothing has
 * to be learnt; frames to other addresses go to all ports.
 *
 * As in a real switch each port has a queue of its own for what leaves it, so ports do not hold each other up, and
 * frames keep their order. A rate is that of a token bucket without a burst: a frame takes its bytes' time on the line,
 * after those before it, and then is late by the delay. A frame that would wait too long for the line, or finds no
 * room, is lost (drop-tail). One thread.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/if.h>
#include <linux/if_tun.h>
#include <poll.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

#define PORTS_MAX 8
#define FRAME_BYTES 1600
#define QUEUE_FRAMES 16384
#define RULES_MAX 8
#define ETHERNET_BYTES 14

struct frame {
    int64_t due_ns;
    uint16_t bytes;
    unsigned char data[FRAME_BYTES];
};

/* A frame that leaves a port. */
struct port {
    struct frame *queue; /* owned; a ring */
    uint64_t first, end;
    int64_t line_ns;     /* when the line is free */
    int64_t last_due_ns;
    int64_t held_ns;     /* nothing leaves before */
};

/* Frames that go one way. */
struct rule {
    int from, to, least, tcp_port; /* 0: any */
};

struct cable {
    struct pollfd fds[PORTS_MAX + 1]; /* the last one in use is standard input */
    struct port port[PORTS_MAX];
    int ports;
    int64_t delay_ns, wait_max_ns;
    double ns_per_byte;               /* 0: no limit */
    uint32_t loss_of_2_32, twice_of_2_32, cut_of_2_32; /* it happens when a random number is below */
    struct rule rule[RULES_MAX];
    int rules;
    uint64_t random;
};

static int64_t clock_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * INT64_C(1000000000) + now.tv_nsec;
}

static int open_port(const char *name)
{
    struct ifreq request = {.ifr_flags = IFF_TAP | IFF_NO_PI};
    snprintf(request.ifr_name, sizeof request.ifr_name, "%s", name);
    int fd = open("/dev/net/tun", O_RDWR | O_NONBLOCK | O_CLOEXEC);
    if (fd >= 0 && ioctl(fd, TUNSETIFF, &request) == 0)
        return fd;
    fprintf(stderr, "cable: /dev/net/tun: %s\n", strerror(errno));
    return -1;
}

/* xorshift64 (Marsaglia 2003). */
static bool happens(struct cable *c, uint32_t of_2_32)
{
    c->random ^= c->random << 13;
    c->random ^= c->random >> 7;
    c->random ^= c->random << 17;
    return (uint32_t)(c->random >> 32) < of_2_32;
}

/* Whether it is TCP over IPv4, from or to the port. */
static bool has_tcp_port(const unsigned char *data, size_t bytes, int tcp_port)
{
    const unsigned char *ip = data + ETHERNET_BYTES, *tcp = ip + 4 * (ip[0] & 15);
    if (bytes < ETHERNET_BYTES + 40 || data[12] != 8 || data[13] != 0 || ip[9] != 6 || tcp + 4 > data + bytes)
        return false;
    return (tcp[0] << 8 | tcp[1]) == tcp_port || (tcp[2] << 8 | tcp[3]) == tcp_port;
}

static bool is_dropped(const struct cable *c, int from, int to, const unsigned char *data, size_t bytes)
{
    for (int i = 0; i < c->rules; i++) {
        const struct rule *rule = &c->rule[i];
        if (rule->from == from && rule->to == to && bytes >= (size_t)rule->least &&
            (!rule->tcp_port || has_tcp_port(data, bytes, rule->tcp_port)))
            return true;
    }
    return false;
}

/* When the frame has passed the port's line, and the delay; -1: it is not let in. */
static int64_t due_ns(const struct cable *c, struct port *port, size_t bytes)
{
    int64_t now_ns = clock_ns();
    int64_t begin_ns = port->line_ns > now_ns ? port->line_ns : now_ns;
    if (c->ns_per_byte > 0 && begin_ns - now_ns > c->wait_max_ns)
        return -1;
    port->line_ns = begin_ns + (int64_t)(c->ns_per_byte * (double)bytes);
    int64_t due = port->line_ns + c->delay_ns;
    return due > port->last_due_ns ? due : port->last_due_ns;
}

static void enqueue(struct cable *c, struct port *port, const unsigned char *data, size_t bytes)
{
    bool room = port->end - port->first < QUEUE_FRAMES;
    int64_t due = room ? due_ns(c, port, bytes) : -1;
    if (due < 0)
        return;
    struct frame *f = &port->queue[port->end++ % QUEUE_FRAMES];
    f->due_ns = port->last_due_ns = due;
    f->bytes = (uint16_t)bytes;
    memcpy(f->data, data, bytes);
}

/* All that has come in at a port. */
static void take(struct cable *c, int from)
{
    static const unsigned char prefix[5] = {2};
    unsigned char data[FRAME_BYTES];
    ssize_t bytes;
    while ((bytes = read(c->fds[from].fd, data, sizeof data)) > 0) {
        if (bytes < ETHERNET_BYTES || happens(c, c->loss_of_2_32))
            continue;
        int copies = happens(c, c->twice_of_2_32) ? 2 : 1;
        size_t kept = happens(c, c->cut_of_2_32) ? ETHERNET_BYTES + (size_t)(bytes - ETHERNET_BYTES) / 2 : (size_t)bytes;
        int to = memcmp(data, prefix, sizeof prefix) == 0 ? data[5] : -1;
        for (int port = 0; port < c->ports; port++)
            for (int copy = 0; copy < copies && port != from && (to < 0 || to == port); copy++)
                if (!is_dropped(c, from, port, data, (size_t)bytes))
                    enqueue(c, &c->port[port], data, kept);
    }
}

/* Delivers what is due at a port; returns the nanoseconds until the next is, or -1. */
static int64_t deliver_port(struct cable *c, int to)
{
    struct port *port = &c->port[to];
    for (; port->first < port->end; port->first++) {
        const struct frame *f = &port->queue[port->first % QUEUE_FRAMES];
        int64_t when_ns = f->due_ns > port->held_ns ? f->due_ns : port->held_ns;
        int64_t wait_ns = when_ns - clock_ns();
        if (wait_ns > 0)
            return wait_ns;
        (void)!write(c->fds[to].fd, f->data, f->bytes); /* a port that is down takes nothing: lost */
    }
    port->first = port->end = 0; /* an empty ring begins anew, where memory is warm */
    return -1;
}

/* Returns the milliseconds until a frame is due, or -1. */
static int deliver_due(struct cable *c)
{
    int64_t least_ns = -1;
    for (int port = 0; port < c->ports; port++) {
        int64_t wait_ns = deliver_port(c, port);
        least_ns = wait_ns >= 0 && (least_ns < 0 || wait_ns < least_ns) ? wait_ns : least_ns;
    }
    return least_ns < 0 ? -1 : (int)((least_ns + 999999) / 1000000);
}

static uint32_t of_2_32(double percent)
{
    return (uint32_t)(percent / 100 * 4294967295.0);
}

static void obey_line(struct cable *c, const char *line)
{
    double ms, rate;
    int port;
    struct rule rule = {.tcp_port = 0};
    if (sscanf(line, "delay %lf", &ms) == 1)
        c->delay_ns = (int64_t)(ms * 1e6);
    else if (sscanf(line, "queue %lf", &ms) == 1)
        c->wait_max_ns = (int64_t)(ms * 1e6);
    else if (sscanf(line, "loss %lf", &rate) == 1)
        c->loss_of_2_32 = of_2_32(rate);
    else if (sscanf(line, "duplicate %lf", &rate) == 1)
        c->twice_of_2_32 = of_2_32(rate);
    else if (sscanf(line, "truncate %lf", &rate) == 1)
        c->cut_of_2_32 = of_2_32(rate);
    else if (sscanf(line, "drop %d %d %d %d", &rule.from, &rule.to, &rule.least, &rule.tcp_port) >= 3 && c->rules < RULES_MAX)
        c->rule[c->rules++] = rule;
    else if (!strncmp(line, "carry", 5))
        c->rules = 0;
    else if (sscanf(line, "rate %lf", &rate) == 1)
        c->ns_per_byte = rate > 0 ? 8e3 / rate : 0;
    else if (sscanf(line, "hold %d %lf", &port, &ms) == 2 && port >= 0 && port < c->ports)
        c->port[port].held_ns = clock_ns() + (int64_t)(ms * 1e6);
}

/* False: standard input has ended. Commands are short, and come one at a time: a read has whole lines. */
static bool obey(struct cable *c)
{
    char text[256];
    ssize_t bytes = read(STDIN_FILENO, text, sizeof text - 1);
    if (bytes <= 0)
        return false;
    text[bytes] = 0;
    char *rest = NULL;
    for (char *line = strtok_r(text, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest))
        obey_line(c, line);
    return true;
}

static void carry(struct cable *c)
{
    struct pollfd *commands = &c->fds[c->ports];
    for (;;) {
        int wait_ms = deliver_due(c);
        if (poll(c->fds, (nfds_t)c->ports + 1, wait_ms) < 0 && errno != EINTR)
            return;
        for (int port = 0; port < c->ports; port++) {
            if (c->fds[port].revents & POLLIN)
                take(c, port);
            else if (c->fds[port].revents) /* the device is down, which poll() says again and again */
                nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
        }
        if (commands->revents && !obey(c))
            return;
    }
}

static bool open_ports(struct cable *c, char **names)
{
    for (int port = 0; port < c->ports; port++) {
        c->fds[port] = (struct pollfd){open_port(names[port]), POLLIN, 0};
        c->port[port].queue = malloc(QUEUE_FRAMES * sizeof *c->port[port].queue);
        if (c->fds[port].fd < 0 || !c->port[port].queue)
            return false;
    }
    c->fds[c->ports] = (struct pollfd){STDIN_FILENO, POLLIN, 0};
    return true;
}

int main(int argc, char **argv)
{
    static struct cable c = {.random = 88172645463325252, .wait_max_ns = 100000000};
    c.ports = argc - 1;
    if (c.ports < 2 || c.ports > PORTS_MAX) {
        fprintf(stderr, "cable: 2 to %d ports\n", PORTS_MAX);
        return 2;
    }
    bool opened = open_ports(&c, argv + 1);
    if (opened) {
        puts("ready");
        fflush(stdout);
        carry(&c);
    }
    for (int port = 0; port < c.ports; port++)
        free(c.port[port].queue);
    return opened ? 0 : 1;
}
