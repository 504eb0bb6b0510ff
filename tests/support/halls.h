/* tests/support/halls.h: for suites that drive groups of the fake accelerator by hand: some devices of this process, whose
 * members meet.
 *
 *     struct halls h = halls_open(&options, 0, 3);                 fake:0 to fake:2
 *     struct device_group **groups = halls_join_all(&h, 1);        group 1 has them all
 *     halls_put(&h, 0, 0, 5);                                      fake:0's slot 0 is all 5
 *     halls_ring(&h, groups, 9, 0, 1);                             collective 9: fake:1's slot 1 is all 5
 *     halls_finish(&h);
 *     halls_close(&h);
 */
#ifndef TESTS_SUPPORT_HALLS_H
#define TESTS_SUPPORT_HALLS_H

#include "tests/support/fake_bench.h"

enum { HALLS_MAX = 4 };

/* Some devices of this process, each with a space, a queue of kind compute and one of kind collective. */
struct halls {
    const struct device_ops *device;
    uint32_t first, count;
    float *space[HALLS_MAX];
    struct device_queue *compute[HALLS_MAX], *queue[HALLS_MAX];
    struct device_group *groups[32];
    int group_count;
};

/* Devices `first` on; also opens the fake. halls_free() leaves groups, queues and spaces; halls_close() also closes the fake, and
 * fails the test on misuse and races; halls_expect_misuse() fails it unless that is what is said of the first misuse. */
struct halls halls_open(const fake_options *options, uint32_t first, uint32_t count);
void halls_free(struct halls *h);
void halls_close(struct halls *h);
void halls_expect_misuse(struct halls *h, const char *part);

/* Options of a seed: with delays and without. */
fake_options halls_drawn(uint64_t seed);

/* A slot of BENCH_ITEMS floats, for a device; all its values, set, and the first, read, when nothing runs. */
float *halls_slot(const struct halls *h, uint32_t device, uint32_t i);
void halls_put(struct halls *h, uint32_t device, uint32_t i, float value);
float halls_get(const struct halls *h, uint32_t device, uint32_t i);
weir_view halls_vector(float *data, weir_dtype dtype, int64_t items);

/* Makes a device a member of the group; or all, in their order: device d's is the d-th one from there. */
struct device_group *halls_join(struct halls *h, uint32_t device, uint32_t number, uint32_t place, uint32_t count);
struct device_group **halls_join_all(struct halls *h, uint32_t number);

/* Marks that the queues for collectives have passed, all together. Marks all of them and waits. Aborts all queues. Waits until
 * health() of one says something, with that part. */
uint64_t halls_done(const struct halls *h);
void halls_finish(struct halls *h);
void halls_abort(struct halls *h);
void halls_expect_ill(struct device_queue *queue, const char *part);

/* For each peer, that of the views that it is given or gives: the first. */
extern const struct device_move halls_to_peer[];

/* A meeting; all that it was given is overwritten when it returns. */
weir_status halls_meet(struct device_queue *queue, const struct device_meeting *meeting, weir_view *in, int in_count,
                       weir_view *out, int out_count);
/* Gives one slot to the peer `to`, and takes another from `from`. */
weir_status halls_pass_on(struct halls *h, uint32_t device, struct device_group *group, uint32_t number, uint32_t to,
                          uint32_t from, float *give, float *take);
/* Each device gives slot `give` to the next one, and takes slot `take` from the one before. */
void halls_ring(struct halls *h, struct device_group **groups, uint32_t number, uint32_t give, uint32_t take);

#endif
