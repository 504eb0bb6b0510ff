/* regst/arena.h: the memory of a plan: one arena per space, of exactly the planned bytes, allocated before the first
 * step.
 *
 * Everything that a run touches lies in an arena at an offset that the plan fixed: the slots of registers, states,
 * and one workspace per queue. Owner: the session. The arenas do not move; any thread may compute addresses.
 */
#ifndef REGST_ARENA_H
#define REGST_ARENA_H

#include "graph/plan/form/plan.h"
#include "regst/device.h"

struct arena {
    char *base; /* owned */
    uint64_t bytes;
    const struct device_ops *device; /* borrowed */
    uint32_t index;                  /* of the device within its kind */
    char *const *places;             /* by register: where its tensor lies, of a space of kind MAPPED; borrowed, and NULL until the
                                        files are mapped and in all other spaces */
    bool borrowed;                   /* `base` is somebody else's: a part of a shared segment, */
    bool adopted;                    /* which the device was told of */
};

/* Opens `spaces_count` arenas. Where `bases` is not NULL, and for a space neither, the arena is there: zeroed and real
 * memory of the caller's. Spaces for which `elsewhere` (NULL: none) is set belong to other processes: they get no
 * memory, and a base only when that process shares its own. A disk's file is made in `directory` (NULL: in the
 * plan's). E_MEMORY, E_IO or E_UNSUPPORTED (no such kind of device) names the device; then nothing stays allocated. */
weir_status arenas_open(struct arena *arenas, const weir_plan *plan, char *const *bases, const bool *elsewhere,
                        const char *directory);
void arenas_close(struct arena *arenas, uint32_t count);

/* Where a tensor lies, which in a MAPPED space is a file, without alignment: of slot `slot` for one in a register. */
char *arena_tensor(const struct arena *arenas, const weir_plan *plan, const plan_tensor *tensor, uint32_t slot);

/* Whether the host may follow pointers into the arena while nothing runs; else bytes go in and out by the device's
 * copies. */
static inline bool arena_followed(const struct arena *arena)
{
    return arena->device->host || arena->device->mapped;
}

#endif
