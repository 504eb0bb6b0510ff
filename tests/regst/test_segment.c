/* tests/regst/test_segment.c: memory that processes share (regst/segment.h), and what a session puts in it
 * (transport/net/share.h): who gives it another size, cookie or process gets nothing, and tables of nonsense are
 * refused. */
#define _GNU_SOURCE
#include <criterion/criterion.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "transport/net/share.h"
#include "graph/plan/spread/spread.h"
#include "regst/segment.h"
#include "tests/support/mutate_plan.h"
#include "tests/support/small_plans.h"

TestSuite(segment, .timeout = 60);

enum { SEED = 31001, BYTES = 3 * 4096, ROUNDS = 2000 };

static struct segment made(void)
{
    struct segment segment;
    cr_assert_eq(segment_create(&segment, BYTES), WEIR_OK, "%s", weir_error());
    return segment;
}

static weir_status map_as(const struct segment *of, uint32_t pid, int fd, uint64_t bytes, uint64_t cookie)
{
    struct segment segment;
    weir_status status = segment_map(&segment, pid, fd, bytes, cookie);
    cr_expect(status == WEIR_OK || !segment.base);
    cr_expect(status == WEIR_OK || weir_error()[0]);
    if (!status)
        cr_expect(segment.base != of->base && segment.bytes == bytes);
    segment_close(&segment);
    return status;
}

Test(segment, is_zeroed_behind_its_cookie_and_is_seen_by_who_maps_it)
{
    struct segment segment = made(), other;
    uint64_t cookie;
    memcpy(&cookie, segment.base, sizeof cookie);
    cr_expect(cookie && cookie == segment.cookie);
    for (int i = sizeof cookie; i < BYTES; i++)
        cr_assert_eq(segment.base[i], 0);
    cr_assert_eq(segment_map(&other, (uint32_t)getpid(), segment.fd, BYTES, segment.cookie), WEIR_OK);
    segment.base[SEGMENT_HEAD_BYTES] = 7;
    cr_expect_eq(other.base[SEGMENT_HEAD_BYTES], 7);
    other.base[BYTES - 1] = 9;
    cr_expect_eq(segment.base[BYTES - 1], 9);
    segment_close(&other);
    segment_close(&segment);
}

/* 0: as it should be. */
static int in_another_process(const struct segment *segment)
{
    struct segment mine;
    if (segment_map(&mine, (uint32_t)getppid(), segment->fd, BYTES, segment->cookie))
        return 1;
    mine.base[100]++;
    segment_close(&mine);
    return 0;
}

Test(segment, is_mapped_by_another_process_and_lives_as_long_as_one_has_it)
{
    struct segment segment = made();
    pid_t pid = fork();
    int status;
    cr_assert_geq(pid, 0);
    if (!pid)
        _exit(in_another_process(&segment));
    cr_assert_eq(waitpid(pid, &status, 0), pid);
    cr_expect(WIFEXITED(status) && !WEXITSTATUS(status));
    cr_expect_eq(segment.base[100], 1);
    segment_close(&segment);
}

Test(segment, is_gone_when_all_have_closed_it)
{
    struct segment segment = made(), other;
    uint64_t cookie = segment.cookie;
    int fd = segment.fd;
    cr_assert_eq(segment_map(&other, (uint32_t)getpid(), fd, BYTES, cookie), WEIR_OK);
    segment_close(&segment);
    cr_expect_eq(fcntl(fd, F_GETFD), -1, "the descriptor is open");
    memset(other.base, 1, BYTES); /* who has it mapped keeps it */
    segment_close(&other);
    cr_expect_eq(map_as(&segment, (uint32_t)getpid(), fd, BYTES, cookie), WEIR_E_UNSUPPORTED);
    segment_close(&segment); /* closing again does nothing */
}

Test(segment, is_refused_with_another_cookie_size_process_or_descriptor)
{
    struct segment s = made();
    uint32_t me = (uint32_t)getpid();
    int pipes[2];
    cr_assert_eq(pipe(pipes), 0);
    cr_expect_eq(map_as(&s, me, s.fd, BYTES, s.cookie), WEIR_OK);
    cr_expect_eq(map_as(&s, me, s.fd, BYTES, s.cookie + 1), WEIR_E_UNSUPPORTED);
    cr_expect_eq(map_as(&s, me, s.fd, BYTES, 0), WEIR_E_UNSUPPORTED);
    cr_expect_eq(map_as(&s, me, s.fd, BYTES + 4096, s.cookie), WEIR_E_UNSUPPORTED);
    cr_expect_eq(map_as(&s, me, s.fd, BYTES - 4096, s.cookie), WEIR_E_UNSUPPORTED);
    cr_expect_eq(map_as(&s, me, s.fd, 0, s.cookie), WEIR_E_UNSUPPORTED);
    cr_expect_eq(map_as(&s, me, s.fd, UINT64_MAX, s.cookie), WEIR_E_UNSUPPORTED);
    cr_expect_eq(map_as(&s, me, pipes[0], BYTES, s.cookie), WEIR_E_UNSUPPORTED);
    cr_expect_eq(map_as(&s, me, -1, BYTES, s.cookie), WEIR_E_UNSUPPORTED);
    cr_expect_eq(map_as(&s, 0, s.fd, BYTES, s.cookie), WEIR_E_UNSUPPORTED);
    cr_expect_eq(map_as(&s, UINT32_MAX, s.fd, BYTES, s.cookie), WEIR_E_UNSUPPORTED);
    close(pipes[0]);
    close(pipes[1]);
    segment_close(&s);
}

/* Its owner could take the pages away from under who reads them. */
Test(segment, that_is_not_sealed_is_refused)
{
    struct segment s = made();
    const int seals[] = {0, F_SEAL_SHRINK, F_SEAL_GROW, F_SEAL_SHRINK | F_SEAL_GROW};
    for (int i = 0; i < 4; i++) {
        int fd = memfd_create("other", MFD_CLOEXEC | MFD_ALLOW_SEALING);
        cr_assert(fd >= 0 && !ftruncate(fd, BYTES) && pwrite(fd, &s.cookie, sizeof s.cookie, 0) == sizeof s.cookie);
        cr_assert_eq(fcntl(fd, F_ADD_SEALS, seals[i]), 0);
        cr_expect_eq(map_as(&s, (uint32_t)getpid(), fd, BYTES, s.cookie), WEIR_E_UNSUPPORTED, "seals %#x", seals[i]);
        close(fd);
    }
    cr_expect_neq(ftruncate(s.fd, 0), 0, "a segment can be cut");
    segment_close(&s);
}

Test(segment, that_cannot_be_is_an_error)
{
    struct segment segment;
    cr_expect_neq(segment_create(&segment, UINT64_C(1) << 63), WEIR_OK);
    cr_expect(weir_error()[0]);
    cr_expect_null(segment.base);
    segment_close(&segment);
}

/* ---- a session's ---- */

enum { RANKS = 2, RINGS = 3 };

/* The share of rank 0 of two: its spaces, three rings. */
struct sample {
    weir_plan *plan;
    struct share share;
};

static struct sample sample_new(void)
{
    struct sample sample = {0};
    weir_plan *plan = small_plan(1);
    const uint64_t capacities[RINGS] = {5, 100, 1000};
    sample.plan = plan_spread(plan, RANKS, 0);
    cr_assert_not_null(sample.plan, "%s", weir_error());
    weir_plan_free(plan);
    bool *here = calloc(sample.plan->spaces_count, sizeof *here);
    uint32_t *ring_of = calloc(sample.plan->actors_count, sizeof *ring_of);
    cr_assert(here && ring_of);
    for (uint32_t i = 0; i < sample.plan->spaces_count; i++)
        here[i] = sample.plan->spaces[i].rank == 0;
    for (uint32_t a = 0; a < sample.plan->actors_count; a++)
        ring_of[a] = plan_rank_of(sample.plan, a) == 0 ? a % RINGS : UINT32_MAX;
    cr_assert_eq(share_create(&sample.share, sample.plan, here, capacities, RINGS, ring_of), WEIR_OK, "%s", weir_error());
    free(here);
    free(ring_of);
    return sample;
}

static void sample_free(struct sample *sample)
{
    share_close(&sample->share);
    weir_plan_free(sample->plan);
}

static weir_status sample_map(const struct sample *sample, struct share *share)
{
    const struct segment *segment = &sample->share.segment;
    return share_map(share, sample->plan, 0, (uint32_t)getpid(), segment->fd, segment->bytes, segment->cookie);
}

static bool part_is_inside(const struct share *share, const char *at, uint64_t bytes)
{
    return at >= share->segment.base && bytes <= share->segment.bytes &&
           at <= share->segment.base + (share->segment.bytes - bytes);
}

/* Everything that a peer would use lies within what it mapped. */
static void expect_inside(const struct sample *sample, const struct share *share)
{
    for (uint32_t i = 0; i < sample->plan->spaces_count; i++)
        if (sample->plan->spaces[i].rank == 0)
            cr_assert(part_is_inside(share, share_arena(share, i), sample->plan->spaces[i].bytes));
    for (uint32_t a = 0; a < sample->plan->actors_count; a++)
        if (plan_rank_of(sample->plan, a) == 0)
            cr_assert_lt(share->ring_of[a], share->ring_count);
    for (uint32_t i = 0; i < share->ring_count; i++)
        cr_assert(part_is_inside(share, share_ring(share, i), mailbox_ring_bytes(share->rings[i].capacity)));
}

Test(segment, shared_arenas_and_mailboxes_are_found_by_a_peer)
{
    struct sample sample = sample_new();
    struct share share;
    struct mailbox box;
    struct message message = {.edge = 3, .kind = MESSAGE_READY, .count = 2}, got;
    cr_assert_eq(sample_map(&sample, &share), WEIR_OK, "%s", weir_error());
    expect_inside(&sample, &share);
    for (uint32_t i = 0; i < sample.plan->spaces_count; i++) {
        char *arena = share_arena(&sample.share, i);
        cr_assert_eq(arena != NULL, sample.plan->spaces[i].rank == 0);
        if (!arena || !sample.plan->spaces[i].bytes)
            continue;
        arena[sample.plan->spaces[i].bytes - 1] = (char)(i + 1);
        cr_expect_eq(share_arena(&share, i)[sample.plan->spaces[i].bytes - 1], (char)(i + 1));
    }
    mailbox_share(&box, share_ring(&sample.share, 1), 100, spin_fixed(0));
    share.senders[1].end.post(&share.senders[1].end, message);
    cr_assert(mailbox_take(&box, &got) && !memcmp(&got, &message, sizeof got));
    share_close(&share);
    sample_free(&sample);
}

/* Random bytes where the tables are: mostly refused; what passes is sound. */
Test(segment, tables_of_nonsense_are_refused_or_stay_inside)
{
    struct sample sample = sample_new();
    uint64_t tables = (uint64_t)((char *)(sample.share.rings + RINGS) - sample.share.segment.base);
    char *before = malloc(tables);
    uint64_t random = SEED;
    int refused = 0;
    cr_log_info("seed %d", SEED);
    cr_assert(before);
    memcpy(before, sample.share.segment.base, tables);
    for (int round = 0; round < ROUNDS; round++) {
        struct share share;
        for (int i = 0; i <= round % 4; i++) {
            uint64_t at = 16 + mutate_draw(&random) % (tables - 16), value = mutate_draw(&random);
            int bits = (int)(mutate_draw(&random) % 64);
            value >>= bits;
            uint64_t bytes = tables - at < 8 ? tables - at : mutate_draw(&random) % 8 + 1;
            memcpy(sample.share.segment.base + at, &value, bytes);
        }
        weir_status status = sample_map(&sample, &share);
        refused += status == WEIR_E_UNSUPPORTED;
        cr_assert(status == WEIR_OK || status == WEIR_E_UNSUPPORTED, "round %d: %s", round, weir_error());
        if (!status)
            expect_inside(&sample, &share);
        share_close(&share);
        memcpy(sample.share.segment.base, before, tables);
    }
    cr_expect_gt(refused, ROUNDS / 4, "%d of %d were refused", refused, ROUNDS);
    cr_expect_lt(refused, ROUNDS);
    free(before);
    sample_free(&sample);
}

Test(segment, of_another_plan_is_refused)
{
    struct sample sample = sample_new();
    weir_plan *small = small_plan(0), *other = plan_spread(small, RANKS, 0);
    const struct segment *segment = &sample.share.segment;
    struct share share;
    cr_assert_not_null(other);
    weir_status status =
        share_map(&share, other, 1, (uint32_t)getpid(), segment->fd, segment->bytes, segment->cookie);
    cr_expect_eq(status, WEIR_E_UNSUPPORTED, "status %d", status);
    share_close(&share);
    weir_plan_free(small);
    weir_plan_free(other);
    sample_free(&sample);
}
