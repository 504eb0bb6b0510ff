/* tests/transport/net/test_measure.c: what is said of a connection by what was sent over it: TCP on the loopback, where a
 * reader that is slow makes a link that is full, and a sender that waits for answers one that is not. */
#include "transport/line/measure.h"

#include <criterion/criterion.h>
#include <arpa/inet.h>
#include <sys/socket.h>
#include <unistd.h>

TestSuite(measure, .timeout = 60);

enum { LOOKS = 20, CHUNK = 1 << 14 };

/* Two ends of one connection. */
static void connection(int family, int ends[2])
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t bytes = sizeof at;
    if (family == AF_UNIX) {
        cr_assert_eq(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
        return;
    }
    int door = socket(AF_INET, SOCK_STREAM, 0);
    cr_assert(!bind(door, (struct sockaddr *)&at, sizeof at) && !listen(door, 1));
    cr_assert_eq(getsockname(door, (struct sockaddr *)&at, &bytes), 0);
    ends[0] = socket(AF_INET, SOCK_STREAM, 0);
    cr_assert_eq(connect(ends[0], (struct sockaddr *)&at, sizeof at), 0);
    ends[1] = accept(door, NULL, NULL);
    cr_assert_geq(ends[1], 0);
    close(door);
}

/* Takes so many bytes. */
static void take(int end, size_t count)
{
    char bytes[CHUNK];
    while (count) {
        ssize_t got = recv(end, bytes, count < sizeof bytes ? count : sizeof bytes, 0);
        cr_assert_gt(got, 0);
        count -= (size_t)got;
    }
}

static const char chunk[CHUNK];

Test(measure, who_always_has_more_to_send_fills_it)
{
    int ends[2];
    struct measure measure = {0};
    size_t waiting = 0;
    connection(AF_INET, ends);
    for (int look = 0; look < LOOKS; look++) {
        for (ssize_t sent; (sent = send(ends[0], chunk, sizeof chunk, MSG_DONTWAIT)) > 0;)
            waiting += (size_t)sent;
        take(ends[1], waiting / 2);
        waiting -= waiting / 2;
        usleep(2000); /* until it is heard of */
        measure_look(&measure, ends[0]);
    }
    cr_expect(measure_full(&measure), "%u looks of %u", measure.looks[1], measure.looks[0] + measure.looks[1]);
    cr_expect_gt(measure.round_trip_us, 0);
    cr_expect_eq(measure_rate(&measure), measure.most[1]);
    cr_expect_gt(measure_rate(&measure), 0);
    close(ends[0]), close(ends[1]);
}

Test(measure, who_waits_for_an_answer_does_not)
{
    int ends[2];
    struct measure measure = {0};
    connection(AF_INET, ends);
    for (int look = 0; look < LOOKS; look++) {
        cr_assert_eq(send(ends[0], chunk, 100, 0), 100);
        take(ends[1], 100);
        cr_assert_eq(send(ends[1], chunk, 100, 0), 100);
        take(ends[0], 100);
        measure_look(&measure, ends[0]);
    }
    cr_expect_not(measure_full(&measure), "%u looks of %u", measure.looks[1], measure.looks[0] + measure.looks[1]);
    cr_expect_gt(measure.round_trip_us, 0);
    cr_expect_gt(measure_rate(&measure), 0);
    uint32_t looks = measure.looks[0] + measure.looks[1];
    measure_look(&measure, ends[0]);
    measure_look(&measure, ends[0]);
    cr_expect_leq(measure.looks[0] + measure.looks[1], looks + 1, "nothing was sent between the two");
    close(ends[0]), close(ends[1]);
}

Test(measure, a_local_socket_is_not_measured)
{
    int ends[2];
    struct measure measure = {0};
    connection(AF_UNIX, ends);
    cr_assert_eq(send(ends[0], chunk, 100, 0), 100);
    take(ends[1], 100);
    measure_look(&measure, ends[0]);
    cr_expect(!measure.round_trip_us && !measure_rate(&measure) && !measure.looks[0] && !measure.looks[1]);
    close(ends[0]), close(ends[1]);
}
