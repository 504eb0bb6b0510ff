/* tests/regst/test_regst.c: the counters of a register against a trivial model that keeps every slot's state, and the
 * arenas. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "regst/arena.h"
#include "regst/regst.h"
#include "tests/support/sdf.h"

Test(regst, producer_waits_when_it_has_no_credit, .timeout = 120)
{
    struct regst regst;
    uint32_t cursor = 0;
    regst_init(&regst, 2, 1, 0, 1, NULL);
    cr_assert(regst_fire(&regst, 1));
    cr_assert(regst_fire(&regst, 1));
    cr_assert_eq(regst.credits, 0);
    cr_assert_eq(regst_freed(&regst, &cursor, 1), 1);
    cr_assert_eq(regst.credits, 1);
    regst_check(&regst);
}

Test(regst, is_published_once_it_has_been_filled, .timeout = 120)
{
    struct regst regst;
    regst_init(&regst, 1, 3, 0, 1, NULL);
    cr_assert_not(regst_fire(&regst, 1));
    cr_assert_not(regst_fire(&regst, 1));
    cr_assert_eq(regst.credits, 1, "a slot that is being filled keeps its credit");
    cr_assert(regst_fire(&regst, 1));
    cr_assert_eq(regst.credits, 0);
}

Test(regst, reader_holds_a_slot_before_it_frees_it, .timeout = 120)
{
    struct regst_reader reader;
    reader_init(&reader, 3, 2, 3);
    cr_assert_not(reader_fire(&reader, 1));
    cr_assert_eq(reader.slot, 0);
    cr_assert(reader_fire(&reader, 1));
    cr_assert_eq(reader.slot, 1);
    cr_assert_eq(reader.arrived, 2);
    reader_check(&reader);
}

Test(regst, that_starts_full_has_no_credit, .timeout = 120)
{
    struct regst regst;
    uint32_t cursor = 0;
    regst_init(&regst, 1, 1, 1, 1, NULL);
    cr_assert_eq(regst.credits, 0);
    cr_assert_eq(regst_freed(&regst, &cursor, 1), 1);
    cr_assert_eq(regst.slot, 0);
}

Test(regst, that_nobody_reads_never_runs_out, .timeout = 120)
{
    struct regst regst;
    regst_init(&regst, 2, 1, 1, 0, NULL);
    for (int i = 0; i < 10; i++)
        cr_assert(regst_fire(&regst, 1));
    cr_assert_eq(regst.credits, 2);
}

/* ---- against a model ---- */

#define SLOTS_MAX 6
#define READERS_MAX 5

/* Every slot knows who has still to free it; every reader its own list of published slots, by number over all time. */
struct model {
    uint32_t slots, readers;
    uint64_t published, freed[READERS_MAX];
};

static uint64_t model_free_slots(const struct model *m)
{
    uint64_t slowest = m->published;
    for (uint32_t r = 0; r < m->readers; r++)
        slowest = m->freed[r] < slowest ? m->freed[r] : slowest;
    return m->slots - (m->published - slowest);
}

struct play {
    struct model model;
    struct regst regst;
    struct regst_reader reader[READERS_MAX];
    uint32_t cursor[READERS_MAX], pending[SLOTS_MAX], owed[READERS_MAX];
    uint64_t fired, read[READERS_MAX];
};

static void play_open(struct play *p, unsigned *seed)
{
    memset(p, 0, sizeof(*p));
    p->model.slots = 1 + (uint32_t)rand_r(seed) % SLOTS_MAX;
    p->model.readers = 1 + (uint32_t)rand_r(seed) % READERS_MAX;
    p->model.published = (uint32_t)rand_r(seed) % (p->model.slots + 1);
    uint32_t initial = (uint32_t)p->model.published;
    regst_init(&p->regst, p->model.slots, 1 + (uint32_t)rand_r(seed) % 3, initial, p->model.readers, p->pending);
    for (uint32_t r = 0; r < p->model.readers; r++)
        reader_init(&p->reader[r], p->model.slots, 1 + (uint32_t)rand_r(seed) % 3, initial);
}

/* A row of at most so many firings, one by one in the model. Returns how many of them complete a slot. */
static uint32_t row(uint64_t *fired, uint32_t each, uint32_t firings)
{
    uint32_t complete = 0;
    while (firings--)
        complete += ++*fired % each == 0;
    return complete;
}

static void play_produce(struct play *p, uint32_t firings)
{
    cr_assert_eq(p->regst.credits, model_free_slots(&p->model));
    if (firings > regst_room(&p->regst))
        return;
    cr_assert_eq(p->regst.slot, p->model.published % p->model.slots);
    uint32_t full = row(&p->fired, p->regst.fill, firings);
    cr_assert_eq(regst_fire(&p->regst, firings), full);
    p->model.published += full;
    for (uint32_t r = 0; r < p->model.readers; r++)
        reader_arrive(&p->reader[r], full);
}

/* Frees are sent late and together, as messages are. */
static void play_read(struct play *p, uint32_t r, uint32_t firings)
{
    if (firings > reader_room(&p->reader[r]))
        return;
    cr_assert_eq(p->reader[r].slot, (p->model.freed[r] + p->owed[r]) % p->model.slots);
    uint32_t done = row(&p->read[r], p->reader[r].hold, firings);
    cr_assert_eq(reader_fire(&p->reader[r], firings), done);
    p->owed[r] += done;
}

static void play_free(struct play *p, uint32_t r)
{
    uint64_t before = model_free_slots(&p->model);
    p->model.freed[r] += p->owed[r];
    cr_assert_eq(regst_freed(&p->regst, &p->cursor[r], p->owed[r]), model_free_slots(&p->model) - before);
    p->owed[r] = 0;
}

Test(regst, counts_as_a_model_that_remembers_everything, .timeout = 120)
{
    unsigned start = (unsigned)time(NULL), seed = start;
    for (int game = 0; game < 300; game++) {
        struct play p;
        play_open(&p, &seed);
        for (int i = 0; i < 300; i++) {
            uint32_t r = (uint32_t)rand_r(&seed) % p.model.readers;
            int what = rand_r(&seed) % 3;
            uint32_t firings = 1 + (uint32_t)rand_r(&seed) % 4;
            if (what == 0)
                play_produce(&p, firings);
            else if (what == 1)
                play_read(&p, r, firings);
            else
                play_free(&p, r);
            regst_check(&p.regst);
            reader_check(&p.reader[r]);
            cr_assert_eq(p.regst.credits, model_free_slots(&p.model), "seed %u", start);
        }
    }
}

/* ---- arenas ---- */

Test(regst, arenas_have_exactly_the_planned_bytes_and_start_as_zeros, .timeout = 120)
{
    sdf *s = sdf_new("arena", 1);
    uint32_t queue = sdf_device(s);
    sdf_device(s); /* has no bytes */
    uint32_t actor = sdf_actor(s, queue, "a");
    sdf_regst(s, actor, .items = 100, .slots = 3);
    weir_plan *plan = sdf_plan(s);
    struct arena arenas[2];
    cr_assert_eq(arenas_open(arenas, plan, NULL, NULL, NULL), WEIR_OK);
    cr_assert_eq(arenas[0].bytes, plan->spaces[0].bytes);
    cr_assert_eq((uintptr_t)arenas[0].base % 64, 0);
    cr_assert_not_null(arenas[1].base, "an arena without bytes has an address");
    for (uint64_t i = 0; i < arenas[0].bytes; i++)
        cr_assert_eq(arenas[0].base[i], 0);
    cr_assert_eq(arena_tensor(arenas, plan, &plan->tensors[0], 2), arenas[0].base + 2 * plan->regsts[0].slot_bytes);
    arenas_close(arenas, 2);
    weir_plan_free(plan);
}

Test(regst, an_arena_that_cannot_be_had_is_an_error_with_its_device_and_size, .timeout = 120)
{
    sdf *s = sdf_new("arena", 1);
    sdf_device(s);
    weir_plan *plan = sdf_plan(s);
    plan->spaces[0].bytes = UINT64_C(1) << 55;
    struct arena arenas[1];
    cr_assert_eq(arenas_open(arenas, plan, NULL, NULL, NULL), WEIR_E_MEMORY);
    cr_assert(strstr(weir_error(), "cpu:0"), "%s", weir_error());
    cr_assert(strstr(weir_error(), "36028797018963968"), "%s", weir_error());
    weir_plan_free(plan);
}
