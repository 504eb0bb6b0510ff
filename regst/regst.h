/* regst/regst.h: the counters of a register. They alone decide who may fire; the bytes lie elsewhere (regst/arena.h).
 *
 * A register is a ring of slots with one producer and any number of readers. Both sides walk the ring in order, so
 * neither names a slot to the other: a count is enough.
 *
 *     producer (struct regst)                       reader (struct regst_reader), one per port
 *       credits  slots it may still fill              arrived  published slots that it has not yet freed
 *       filled   firings into the slot at `slot`      held     firings on the slot at `slot`
 *
 *          regst_fire() -- every `fill`-th time --- published: arrived + 1 ---> reader_arrive()
 *          regst_freed() <-- when the last reader has let go --- freed --------- reader_fire(), every `hold`-th time
 *
 * With several readers a slot counts as free when each has freed it: `pending` holds per slot how many have not.
 * Since every reader frees in order, slots become free in order too; each reader's place is a cursor (edge state of
 * the producer). Each event costs O(1) per slot.
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

static inline uint32_t slot_next(uint32_t slot, uint32_t slots)
{
    return slot + 1 == slots ? 0 : slot + 1;
}

/* The producer fired, with credit. True: the slot is full and is published; a credit is spent (unless nobody reads). */
static inline bool regst_fire(struct regst *regst)
{
    assert(regst->credits > 0);
    if (regst->fill > 1 && ++regst->filled < regst->fill)
        return false;
    regst->filled = 0;
    if (regst->readers > 1)
        regst->pending[regst->slot] = regst->readers;
    if (regst->readers > 0)
        regst->credits--;
    regst->slot = slot_next(regst->slot, regst->slots);
    return true;
}

/* The reader at `cursor` let go of `count` slots; returns how many of them have now been freed by all, as credits. */
static inline uint32_t regst_freed(struct regst *regst, uint32_t *cursor, uint32_t count)
{
    uint32_t free_now = count;
    if (regst->readers > 1) {
        free_now = 0;
        for (uint32_t i = 0; i < count; i++, *cursor = slot_next(*cursor, regst->slots)) {
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

/* The reader fired on its slot. True: it is done with the slot, which is to be freed. */
static inline bool reader_fire(struct regst_reader *reader)
{
    assert(reader->arrived > 0);
    if (reader->hold > 1 && ++reader->held < reader->hold)
        return false;
    reader->held = 0;
    reader->arrived--;
    reader->slot = slot_next(reader->slot, reader->slots);
    return true;
}

#endif
