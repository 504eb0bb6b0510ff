/* tests/net/cable.c: an Ethernet switch in user space, for kernels without netem: what goes through it can be late, or
 * be lost.
 *
 *     cable tap0 tap1 tap2          makes these TAP devices, says "ready", and carries frames between them
 *
 * until its standard input ends. Lines there change what it does to frames that come from then on:
 *
 *     delay 200        milliseconds from one port to another
 *     loss 2           percent of the frames
 *
 * Whoever starts it moves the devices to where they belong and gives port k the address 02:00:00:00:00:0k, so that
 * nothing has to be learnt; other addresses go to all ports. Frames keep their order, as on a cable. The queue is
 * bounded; what does not fit is lost, as in a switch. One thread.
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

struct frame {
    int64_t due_ns;
    uint16_t from, bytes;
    unsigned char data[FRAME_BYTES];
};

struct cable {
    struct pollfd fds[PORTS_MAX + 1]; /* the last one in use is standard input */
    int ports;
    int64_t delay_ns, last_due_ns;
    uint32_t loss_of_2_32;            /* lost when a random number is below it */
    uint64_t random;
    struct frame *queue;              /* owned; a ring */
    uint64_t first, end;
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
static bool is_lost(struct cable *c)
{
    c->random ^= c->random << 13;
    c->random ^= c->random >> 7;
    c->random ^= c->random << 17;
    return (uint32_t)(c->random >> 32) < c->loss_of_2_32;
}

/* All that has come in at a port; frames that are lost, or find no room, are read and forgotten. */
static void take(struct cable *c, int port)
{
    for (;;) {
        struct frame *f = &c->queue[c->end % QUEUE_FRAMES], spare;
        bool room = c->end - c->first < QUEUE_FRAMES;
        ssize_t bytes = read(c->fds[port].fd, room ? f->data : spare.data, FRAME_BYTES);
        if (bytes <= 0)
            return;
        if (!room || bytes < 14 || is_lost(c))
            continue;
        int64_t due_ns = clock_ns() + c->delay_ns;
        c->last_due_ns = due_ns > c->last_due_ns ? due_ns : c->last_due_ns;
        f->due_ns = c->last_due_ns;
        f->from = (uint16_t)port;
        f->bytes = (uint16_t)bytes;
        c->end++;
    }
}

static void deliver(struct cable *c, const struct frame *f)
{
    static const unsigned char prefix[5] = {2};
    int to = memcmp(f->data, prefix, sizeof prefix) == 0 ? f->data[5] : -1;
    for (int port = 0; port < c->ports; port++)
        if (port != f->from && (to < 0 || to == port))
            (void)!write(c->fds[port].fd, f->data, f->bytes); /* a port that is down takes nothing: lost */
}

/* Delivers what is due; returns the milliseconds until the next is, or -1. */
static int deliver_due(struct cable *c)
{
    for (; c->first < c->end; c->first++) {
        const struct frame *f = &c->queue[c->first % QUEUE_FRAMES];
        int64_t wait_ns = f->due_ns - clock_ns();
        if (wait_ns > 0)
            return (int)((wait_ns + 999999) / 1000000);
        deliver(c, f);
    }
    return -1;
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
    for (char *line = strtok_r(text, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest)) {
        if (!strncmp(line, "delay ", 6))
            c->delay_ns = (int64_t)(strtod(line + 6, NULL) * 1e6);
        if (!strncmp(line, "loss ", 5))
            c->loss_of_2_32 = (uint32_t)(strtod(line + 5, NULL) / 100 * 4294967295.0);
    }
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

int main(int argc, char **argv)
{
    struct cable c = {.ports = argc - 1, .random = 88172645463325252};
    if (c.ports < 2 || c.ports > PORTS_MAX) {
        fprintf(stderr, "cable: 2 to %d ports\n", PORTS_MAX);
        return 2;
    }
    for (int port = 0; port < c.ports; port++) {
        c.fds[port] = (struct pollfd){open_port(argv[1 + port]), POLLIN, 0};
        if (c.fds[port].fd < 0)
            return 1;
    }
    c.fds[c.ports] = (struct pollfd){STDIN_FILENO, POLLIN, 0};
    c.queue = malloc(QUEUE_FRAMES * sizeof *c.queue);
    if (!c.queue)
        return 1;
    puts("ready");
    fflush(stdout);
    carry(&c);
    free(c.queue);
    return 0;
}
