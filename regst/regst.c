/* regst/regst.c: how registers start, and what must hold of them. The hot path while they run is inline in the header: it is
 * a handful of instructions on the hot path.
 *
 * Counters rather than queues of slot numbers: a queue would have to carry what order already says.
 */
#include "regst/regst.h"

void regst_init(struct regst *regst, uint32_t slots, uint32_t fill, uint32_t initial, uint32_t readers,
                uint32_t *pending)
{
    assert(slots > 0 && fill > 0 && initial <= slots);
    assert(readers < 2 || pending);
    *regst = (struct regst){
        .credits = readers ? slots - initial : slots,
        .slots = slots,
        .fill = fill,
        .slot = initial % slots,
        .readers = readers,
        .pending = pending,
    };
    for (uint32_t i = 0; readers > 1 && i < slots; i++)
        pending[i] = i < initial ? readers : 0;
}

void reader_init(struct regst_reader *reader, uint32_t slots, uint32_t hold, uint32_t initial)
{
    assert(slots > 0 && hold > 0 && initial <= slots);
    *reader = (struct regst_reader){.arrived = initial, .hold = hold, .slots = slots};
}

void regst_check(const struct regst *regst)
{
    assert(regst->credits <= regst->slots);
    assert(regst->filled < regst->fill);
    assert(regst->slot < regst->slots);
    uint32_t taken = 0;
    for (uint32_t i = 0; regst->readers > 1 && i < regst->slots; i++) {
        assert(regst->pending[i] <= regst->readers);
        taken += regst->pending[i] > 0;
    }
    assert(regst->readers < 2 || taken + regst->credits == regst->slots);
    (void)taken;
}

void reader_check(const struct regst_reader *reader)
{
    assert(reader->arrived <= reader->slots);
    assert(reader->held < reader->hold);
    assert(reader->slot < reader->slots);
    (void)reader;
}
