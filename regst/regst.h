/* regst/regst.h: the counters of a register. They alone decide who may fire; the bytes lie elsewhere (regst/arena.h).
 *
 * A register is a ring of slots with one producer and any number of readers. Both sides walk the ring in order, so
 * neither names a slot to the other: a count is enough.
 *
 *     producer (struct regst)                       reader (struct regst_reader), one per port
 *       credits  slots it may still fill              arrived  published slots that it has not yet freed
 *       filled   firings into the slot at `slot`      held     firings on the slot at `slot`
 *
 *          regst_fire() -- every `fill`-th firing -- published: arrived + 1 --> reader_arrive()
 *          regst_freed() <-- when the last reader has let go --- freed --------- reader_fire(), every `hold`-th firing
 *
 * With several readers a slot counts as free when each has freed it: `pending` holds per slot how many have not.
 * Since every reader frees in order, slots become free in order too; each reader's place is a cursor (edge state of
 * the producer). Each event costs O(1) per slot, however many firings it stands
 * for.
 *
 * Invariants: credits <= slots; filled < fill; held < hold; arrived <= slots. Over all: credits + slots published and
 * not yet freed by all = slots, when no message is under way.
 *
 * Each struct has one owner thread: the worker of the producer, the worker of the reader. No call blocks.
 */
#ifndef REGST_REGST_H
#define REGST_REGST_H

#include <assert.h>
#include <stdbool.h>
#include <stdint.h>

struct regst {
    uint32_t credits;
    uint32_t slots;
    uint32_t fill;
    uint32_t filled;
    uint32_t slot;     /* being filled */
    uint32_t readers;
    uint32_t *pending; /* per slot; borrowed; only looked at when readers > 1 */
};

struct regst_reader {
    uint32_t arrived;
    uint32_t hold;
    uint32_t held;
    uint32_t slot; /* being read */
    uint32_t slots;
};

/* A register of which the first `initial` slots are published. `pending` has `slots` places when readers > 1. */
void regst_init(struct regst *regst, uint32_t slots, uint32_t fill, uint32_t initial, uint32_t readers,
                uint32_t *pending);
void reader_init(struct regst_reader *reader, uint32_t slots, uint32_t hold, uint32_t initial);

/* Asserts the invariants. */
void regst_check(const struct regst *regst);
void reader_check(const struct regst_reader *reader);

/* The slot that comes `count` <= `slots` behind. */
static inline uint32_t slot_after(uint32_t slot, uint32_t count, uint32_t slots)
{
    slot += count;
    return slot >= slots ? slot - slots : slot;
}

/* The slots that so many more firings complete, when each takes `each` of them; `*begun` counts firings on the next one. The
 * compiler sees that one firing completes one slot or none. */
static inline uint32_t slots_complete(uint32_t firings, uint32_t each, uint32_t *begun)
{
    if (each > 1) {
        *begun += firings;
        if (*begun < each)
            return 0;
        if (firings > 1)
            firings = *begun / each;
        *begun -= firings * each;
    }
    return firings;
}

/* How often the producer may fire before it is out of credit. */
static inline uint64_t regst_room(const struct regst *regst)
{
    return (uint64_t)regst->credits * regst->fill - regst->filled;
}

/* The producer fired so often, with credit. Returns how many slots are full now and are published; each costs a credit
 * (unless nobody reads). */
static inline uint32_t regst_fire(struct regst *regst, uint32_t firings)
{
    assert(firings <= regst_room(regst));
    uint32_t full = slots_complete(firings, regst->fill, &regst->filled);
    if (!full)
        return 0;
    if (regst->readers > 1)
        for (uint32_t i = 0; i < full; i++)
            regst->pending[slot_after(regst->slot, i, regst->slots)] = regst->readers;
    if (regst->readers > 0)
        regst->credits -= full;
    regst->slot = slot_after(regst->slot, full, regst->slots);
    return full;
}

/* The reader at `cursor` let go of `count` slots; returns how many of them have now been freed by all, as credits. */
static inline uint32_t regst_freed(struct regst *regst, uint32_t *cursor, uint32_t count)
{
    uint32_t free_now = count;
    if (regst->readers > 1) {
        free_now = 0;
        for (uint32_t i = 0; i < count; i++, *cursor = slot_after(*cursor, 1, regst->slots)) {
            assert(regst->pending[*cursor] > 0);
            free_now += --regst->pending[*cursor] == 0;
        }
    }
    regst->credits += free_now;
    assert(regst->credits <= regst->slots);
    return free_now;
}

static inline void reader_arrive(struct regst_reader *reader, uint32_t count)
{
    reader->arrived += count;
    assert(reader->arrived <= reader->slots);
}

/* How often the reader may fire before it has nothing to read. */
static inline uint64_t reader_room(const struct regst_reader *reader)
{
    return (uint64_t)reader->arrived * reader->hold - reader->held;
}

/* The reader fired so often on what has arrived. Returns how many slots it is done with, which are to be freed. */
static inline uint32_t reader_fire(struct regst_reader *reader, uint32_t firings)
{
    assert(firings <= reader_room(reader));
    uint32_t done = slots_complete(firings, reader->hold, &reader->held);
    if (!done)
        return 0;
    reader->arrived -= done;
    reader->slot = slot_after(reader->slot, done, reader->slots);
    return done;
}

#endif
