/* tests/support/halls.c: see the header. */
#include "tests/support/halls.h"

#include <criterion/criterion.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>

/* ---- devices ---- */

struct halls halls_open(const fake_options *options, uint32_t first, uint32_t count)
{
    struct halls h = {.first = first, .count = count};
    fake_open(options);
    h.device = device_find(WEIR_FAKE);
    for (uint32_t d = 0; d < count; d++) {
        void *space;
        cr_assert_eq(h.device->space_new("", first + d, BENCH_SPACE_BYTES, &space), WEIR_OK);
        h.space[d] = space;
        cr_assert_eq(h.device->queue_new(first + d, DEVICE_COMPUTE, &h.compute[d]), WEIR_OK);
        cr_assert_eq(h.device->queue_new(first + d, DEVICE_COLLECTIVE, &h.queue[d]), WEIR_OK);
    }
    return h;
}

void halls_free(struct halls *h)
{
    for (int g = 0; g < h->group_count; g++)
        h->device->group_free(h->groups[g]);
    for (uint32_t d = 0; d < h->count; d++) {
        h->device->queue_free(h->compute[d]);
        h->device->queue_free(h->queue[d]);
        h->device->space_free(h->space[d], BENCH_SPACE_BYTES);
    }
}

void halls_close(struct halls *h)
{
    halls_free(h);
    fake_close_well();
}

void halls_expect_misuse(struct halls *h, const char *part)
{
    halls_free(h);
    fake_seen seen = fake_close();
    cr_expect_geq(seen.misuses, 1);
    cr_expect(strstr(seen.misuse, part), "'%s' is said of: %s", seen.misuse, part);
}

float *halls_slot(const struct halls *h, uint32_t device, uint32_t i)
{
    return (float *)((uintptr_t)h->space[device] + (uintptr_t)i * BENCH_BYTES);
}

struct device_group *halls_join(struct halls *h, uint32_t device, uint32_t number, uint32_t place, uint32_t count)
{
    struct device_group_id id = {.session = 0x5e55, .number = number};
    struct device_group *group = NULL;
    cr_assert_eq(h->device->group_new(h->queue[device], &id, place, count, count, &group), WEIR_OK, "%s", weir_error());
    cr_assert(group->self == place && group->count == count && group->device == h->device);
    return h->groups[h->group_count++] = group;
}

/* All devices are members, in their order: device d's is the d-th one from there. */
struct device_group **halls_join_all(struct halls *h, uint32_t number)
{
    struct device_group **groups = &h->groups[h->group_count];
    for (uint32_t d = 0; d < h->count; d++)
        halls_join(h, d, number, d, h->count);
    return groups;
}

uint64_t halls_done(const struct halls *h)
{
    uint64_t done = 0;
    for (uint32_t d = 0; d < h->count; d++)
        done += bench_done(h->queue[d]);
    return done;
}

void halls_finish(struct halls *h)
{
    uint64_t tickets[HALLS_MAX];
    for (uint32_t d = 0; d < h->count; d++)
        tickets[d] = bench_mark(h->queue[d]);
    for (uint32_t d = 0; d < h->count; d++)
        bench_wait(h->queue[d], tickets[d]);
}

void halls_abort(struct halls *h)
{
    for (uint32_t d = 0; d < h->count; d++) {
        h->device->abort(h->compute[d]);
        h->device->abort(h->queue[d]);
    }
}

void halls_put(struct halls *h, uint32_t device, uint32_t i, float value)
{
    float host[BENCH_ITEMS];
    for (int j = 0; j < BENCH_ITEMS; j++)
        host[j] = value;
    h->device->copy_in(halls_slot(h, device, i), host, BENCH_BYTES);
}

float halls_get(const struct halls *h, uint32_t device, uint32_t i)
{
    return bench_first(halls_slot(h, device, i));
}

/* ---- calls ---- */

weir_status halls_meet(struct device_queue *queue, const struct device_meeting *meeting, weir_view *in, int in_count,
                        weir_view *out, int out_count)
{
    struct device_meeting copy = *meeting;
    char error[100] = "";
    weir_kernel_args args = {.in = in, .in_count = in_count, .out = out, .out_count = out_count, .error = error,
                             .error_bytes = sizeof error};
    weir_status status = queue->device->meet(queue, &copy, &args);
    explicit_bzero(&copy, sizeof copy); /* all that it was given is the caller's again */
    explicit_bzero(&args, sizeof args);
    if (in_count)
        explicit_bzero(in, (size_t)in_count * sizeof *in);
    if (out_count)
        explicit_bzero(out, (size_t)out_count * sizeof *out);
    cr_assert(status == WEIR_E_KERNEL || !error[0]);
    return status;
}

/* For each peer, that of the views that it is given or gives: the first. */
const struct device_move halls_to_peer[] = {{0, 0}, {1, 0}, {2, 0}, {3, 0}, {4, 0}, {5, 0}};

/* Gives one slot to the peer `to`, and takes another from `from`. */
weir_status halls_pass_on(struct halls *h, uint32_t device, struct device_group *group, uint32_t number, uint32_t to,
                           uint32_t from, float *give, float *take)
{
    weir_view in = bench_view(give), out = bench_view(take);
    struct device_meeting meeting = {.group = group, .number = number, .gives = &halls_to_peer[to], .give_count = 1,
                                     .takes = &halls_to_peer[from], .take_count = 1};
    return halls_meet(h->queue[device], &meeting, &in, 1, &out, 1);
}

/* Each gives slot `give` to the next one, and takes slot `take` from the one before. */
void halls_ring(struct halls *h, struct device_group **groups, uint32_t number, uint32_t give, uint32_t take)
{
    for (uint32_t d = 0; d < h->count; d++)
        cr_assert_eq(halls_pass_on(h, d, groups[d], number, (d + 1) % h->count, (d + h->count - 1) % h->count,
                             halls_slot(h, d, give), halls_slot(h, d, take)), WEIR_OK, "%s", weir_error());
}

fake_options halls_drawn(uint64_t seed)
{
    return (fake_options){.seed = seed, .delay_us = seed % 2 ? 20 : 0, .marks_max = 16};
}

void halls_expect_ill(struct device_queue *queue, const char *part)
{
    char error[200] = "";
    while (!queue->device->health(queue, error, sizeof error))
        sched_yield();
    cr_expect(strstr(error, part), "'%s' is said of: %s", error, part);
}

weir_view halls_vector(float *data, weir_dtype dtype, int64_t items)
{
    return (weir_view){.data = data, .dtype = dtype, .shape = {.rank = 1, .dim = {items}},
                       .global = {.rank = 1, .dim = {items}}};
}
