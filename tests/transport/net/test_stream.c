/* tests/transport/net/test_stream.c: streams over UCX, without a network around them: two in one process, each with a
 * UCX worker of its own. Bytes come as they were sent whatever they are cut into, who sleeps is woken, a peer that says
 * something else is told apart, and a stream that is closed lets go of what it was given. With and without keys. */
#include <criterion/criterion.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>
#include <weir/weir.h>

#include "tests/support/mutate_plan.h"
#include "tests/support/ranks.h"
#include "transport/line/stream.h"

TestSuite(stream, .timeout = 120);

enum { SIDES = 2, BYTES = 3000001, PARTS_MAX = 40, WAIT_MS = 30000 };
#define CLOSE_NS INT64_C(200000000) /* UCX may want the other side to move, which is not always done here */

struct side {
    int epoll_fd;
    struct streams *streams;
    struct stream *stream;
    struct seal_box *out, *in; /* NULL: plain */
    int fd;                    /* a copy of the connection's descriptor */
};

struct pair {
    struct sealing *sealing;
    struct side side[SIDES];
};

static unsigned char said[BYTES], heard[BYTES];

/* ---- two sides ---- */

static struct seal_box *box_of(struct pair *p, int from, bool writes)
{
    const unsigned char key[SEAL_SECRET_BYTES] = {(unsigned char)(1 + from)};
    struct seal_box *box;
    cr_assert_eq(seal_box_new(p->sealing, key, writes, &box), WEIR_OK, "%s", weir_error());
    return box;
}

static void side_open(struct pair *p, int number, int fd, bool sealed)
{
    struct side *side = &p->side[number];
    side->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    cr_assert_eq(streams_ucx(&side->streams, side->epoll_fd), WEIR_OK, "%s", weir_error());
    side->fd = dup(fd);
    side->stream = side->streams->ops->make(side->streams, fd);
    cr_assert(side->stream && side->fd >= 0);
    if (!sealed)
        return;
    side->out = box_of(p, number, true);
    side->in = box_of(p, 1 - number, false);
}

static struct pair *pair_new(bool sealed)
{
    struct pair *p = calloc(1, sizeof *p);
    uint64_t random = 77;
    int fds[SIDES];
    ranks_need_ucx();
    cr_assert(p && !socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds));
    cr_assert_eq(sealing_open(&p->sealing), WEIR_OK, "%s", weir_error());
    for (int i = 0; i < SIDES; i++)
        side_open(p, i, fds[i], sealed);
    for (size_t i = 0; i < BYTES; i++)
        said[i] = (unsigned char)mutate_draw(&random);
    return p;
}

/* As a network does: only where there is nothing to do it sleeps. Whether anything came of it. */
static bool sides_turn(struct pair *p)
{
    bool any = false;
    for (int i = 0; i < SIDES; i++)
        any |= p->side[i].streams && p->side[i].streams->ops->turn(p->side[i].streams);
    return any;
}

static void sides_sleep(struct pair *p)
{
    struct pollfd fds[SIDES] = {{.fd = -1}, {.fd = -1}};
    for (int i = 0; i < SIDES; i++) {
        if (p->side[i].streams && !p->side[i].streams->ops->rest(p->side[i].streams))
            return;
        fds[i] = (struct pollfd){.fd = p->side[i].streams ? p->side[i].epoll_fd : -1, .events = POLLIN};
    }
    cr_assert_gt(poll(fds, SIDES, WAIT_MS), 0, "nobody is woken");
}

static void pair_meet(struct pair *p)
{
    for (bool stands[SIDES] = {false}; !stands[0] || !stands[1];) {
        bool moved = sides_turn(p);
        for (int i = 0; i < SIDES; i++) {
            struct side *side = &p->side[i];
            if (!stands[i])
                cr_assert_eq(side->streams->ops->meet(side->stream, side->out, side->in, &stands[i]), WEIR_OK, "%s",
                             weir_error());
            moved |= stands[i];
        }
        if (!moved)
            ranks_pause(1); /* the connection is in nobody's epoll set here */
    }
}

static void side_close(struct side *side)
{
    if (side->stream)
        side->stream->ops->close(side->stream);
    if (side->streams)
        side->streams->ops->close(side->streams, CLOSE_NS);
    side->stream = NULL;
    side->streams = NULL;
}

static void pair_free(struct pair *p)
{
    for (int i = 0; i < SIDES; i++) {
        side_close(&p->side[i]);
        close(p->side[i].epoll_fd);
        close(p->side[i].fd);
        seal_box_free(p->side[i].out);
        seal_box_free(p->side[i].in);
    }
    sealing_close(p->sealing);
    free(p);
}

/* ---- bytes ---- */

/* Cuts what follows `from` into parts of 1 to `most` bytes. */
static int cut(struct iovec parts[PARTS_MAX], unsigned char *bytes, size_t from, size_t most, uint64_t *random)
{
    int count = 0;
    for (; count < PARTS_MAX && from < BYTES; count++) {
        size_t each = 1 + mutate_draw(random) % most;
        each = each < BYTES - from ? each : BYTES - from;
        parts[count] = (struct iovec){bytes + from, each};
        from += each;
    }
    return count;
}

/* Parts of a write come again as they are until all of them are taken. */
static size_t taken_drop(struct iovec *parts, int *count, size_t bytes)
{
    int first = 0;
    for (size_t left = bytes; left; first += parts[first].iov_len == 0) {
        size_t each = left < parts[first].iov_len ? left : parts[first].iov_len;
        parts[first] = (struct iovec){(char *)parts[first].iov_base + each, parts[first].iov_len - each};
        left -= each;
    }
    memmove(parts, parts + first, (size_t)(*count - first) * sizeof *parts);
    *count -= first;
    return bytes;
}

static void transmit(struct pair *p, size_t out_most, size_t in_most)
{
    struct stream *from = p->side[0].stream, *to = p->side[1].stream;
    struct iovec out[PARTS_MAX], in[PARTS_MAX];
    uint64_t random = out_most + in_most;
    int out_count = 0;
    memset(heard, 0, BYTES);
    for (size_t sent = 0, came = 0; came < BYTES;) {
        if (!out_count)
            out_count = cut(out, said, sent, out_most, &random);
        ssize_t written = out_count ? from->ops->write(from, out, out_count) : 0;
        ssize_t read = to->ops->read(to, in, cut(in, heard, came, in_most, &random));
        cr_assert(written >= 0 && read >= 0);
        sent += taken_drop(out, &out_count, (size_t)written);
        came += (size_t)read;
        if (!sides_turn(p) && !written && !read)
            sides_sleep(p);
    }
    cr_assert(!memcmp(said, heard, BYTES));
}

Test(stream, bytes_come_in_their_order_whatever_they_are_cut_into)
{
    for (int sealed = 0; sealed < 2; sealed++) {
        struct pair *p = pair_new(sealed);
        pair_meet(p);
        transmit(p, 300, 100000);
        transmit(p, 1000000, 1000000);
        transmit(p, 100000, 300);
        pair_free(p);
    }
}

Test(stream, who_sleeps_is_woken_by_each_word)
{
    struct pair *p = pair_new(false);
    struct iovec word = {said, 8}, in = {heard, 8};
    pair_meet(p);
    for (int i = 0; i < 300; i++) {
        struct stream *from = p->side[i % 2].stream, *to = p->side[1 - i % 2].stream;
        size_t came = 0;
        while (sides_turn(p))
            continue;
        ssize_t written = from->ops->write(from, &word, 1);
        cr_assert_geq(written, 0);
        while (came < 8 || !written) {
            ssize_t read = to->ops->read(to, &in, 1);
            cr_assert_geq(read, 0);
            came += (size_t)read;
            if (!written)
                written = from->ops->write(from, &word, 1);
            if (!sides_turn(p) && came < 8)
                sides_sleep(p);
        }
        cr_assert_eq(came, 8);
    }
    pair_free(p);
}

/* ---- ends ---- */

Test(stream, what_was_taken_comes_though_the_sender_has_gone)
{
    struct pair *p = pair_new(false);
    struct iovec out = {said, 1000}, in = {heard, 1000};
    struct side *reader = &p->side[1];
    char none;
    pair_meet(p);
    while (!p->side[0].stream->ops->write(p->side[0].stream, &out, 1))
        sides_turn(p);
    close(p->side[0].fd);
    p->side[0].fd = -1;
    side_close(&p->side[0]);
    cr_expect_eq(recv(reader->fd, &none, 1, 0), 0, "the connection tells that it has gone");
    for (size_t came = 0; came < 1000;) {
        reader->streams->ops->turn(reader->streams);
        ssize_t read = reader->stream->ops->read(reader->stream, &in, 1);
        cr_assert_geq(read, 0);
        came += (size_t)read;
    }
    cr_expect(!memcmp(said, heard, 1000));
    pair_free(p);
}

/* The other takes nothing: what UCX cannot have sent is under way when the memory goes. */
Test(stream, one_that_is_closed_lets_go_of_what_is_under_way)
{
    struct pair *p = pair_new(false);
    struct stream *from = p->side[0].stream;
    size_t bytes = 64 << 20, done = 0;
    char *large = malloc(bytes);
    cr_assert(large);
    memset(large, 1, bytes);
    pair_meet(p);
    for (ssize_t written = 1; written; done += (size_t)written) {
        struct iovec out = {large + done, bytes - done};
        written = from->ops->write(from, &out, 1);
        cr_assert_geq(written, 0);
    }
    cr_expect_lt(done, bytes);
    from->ops->close(from);
    p->side[0].stream = NULL;
    memset(large, 2, bytes);
    free(large);
    pair_free(p);
}

/* ---- others ---- */

/* Side 1 says that in place of an address. */
static void says(struct pair *p, const void *bytes, size_t count, const char *error)
{
    struct side *side = &p->side[0];
    weir_status status = WEIR_OK;
    bool stands = false;
    cr_assert_eq(send(p->side[1].fd, bytes, count, MSG_NOSIGNAL), (ssize_t)count);
    shutdown(p->side[1].fd, SHUT_WR);
    for (int i = 0; i < 3 && !status; i++)
        status = side->streams->ops->meet(side->stream, side->out, side->in, &stands);
    cr_expect(status == WEIR_E_PEER && strstr(weir_error(), error), "%d, %s", status, weir_error());
    cr_expect_not(stands);
    pair_free(p);
}

Test(stream, who_says_something_else_is_no_rank)
{
    static const unsigned char none[4] = {0}, huge[4] = {1, 128, 0, 0}, part[6] = {9, 0, 0, 0, 1, 1};
    static unsigned char record[40] = {20};
    says(pair_new(false), none, 4, "it has no address");
    says(pair_new(false), huge, 4, "its address is too long");
    says(pair_new(false), part, 6, "the connection has ended");
    says(pair_new(false), part, 0, "the connection has ended");
    says(pair_new(true), none, 4, "the connection has ended");
    says(pair_new(true), record, 40, "its address was changed, or made up");
}

/* ---- the plugin ---- */

static void expect_none(const char *plugin, const char *says)
{
    struct streams *streams = NULL;
    setenv("WEIR_UCX_PLUGIN", plugin, 1);
    cr_expect_eq(streams_ucx(&streams, -1), WEIR_E_UNSUPPORTED);
    cr_expect(strstr(weir_error(), says), "%s", weir_error());
}

/* Another may have one: what failed is tried again. */
Test(stream, a_plugin_that_is_not_there_is_named)
{
    expect_none("/nowhere/libweir-ucx.so", "WEIR_CARRIER lists ucx, and there is no plugin for UCX where WEIR_UCX_PLUGIN says: "
                "/nowhere/libweir-ucx.so: cannot open shared object file: No such file or directory");
    expect_none("libweir-ucx.so", "WEIR_UCX_PLUGIN is 'libweir-ucx.so', which is no absolute path");
    unsetenv("WEIR_UCX_PLUGIN");
    ranks_need_ucx();
    struct streams *streams = NULL;
    int epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    cr_assert_eq(streams_ucx(&streams, epoll_fd), WEIR_OK, "%s", weir_error());
    streams->ops->close(streams, 0);
    close(epoll_fd);
}
