/* regst/arena.c: see the header. Addresses are computed here alone, so that the plan's rules for offsets are in one
 * place. */
#include "regst/arena.h"

#include <string.h>

#include "graph/base/error.h"
#include "regst/local.h"
#include "regst/plugin.h"

/* A space without bytes gets an address all the same: its empty tensors go to kernels, and memcpy() takes no NULL. */
static uint64_t mapped_bytes(const struct arena *arena)
{
    return arena->bytes ? arena->bytes : 1;
}

/* The number that a device told names it, unless the plan has another number for it. */
static weir_status said_of(const char *name, weir_status status)
{
    return !status || strstr(weir_error(), name) ? status : error_set(status, "%s: %s", name, weir_error());
}

/* Shared memory of this process's own, which queues of the device beside are to reach. */
static weir_status adopt(struct arena *arena, const char *name)
{
    if (!arena->device->space_adopt || !arena->bytes)
        return WEIR_OK;
    weir_status status = arena->device->space_adopt(arena->base, arena->bytes);
    arena->adopted = !status;
    return said_of(name, status);
}

/* Which of this machine's devices it is, of a kind that can tell how many there are. */
static void find_device(struct arena *arena, const weir_plan *plan, const bool *elsewhere, uint32_t space)
{
    uint32_t count = 0;
    if (arena->device->count && !arena->device->count(&count))
        arena->index = local_index(plan, elsewhere, space, count, local_rank());
}

/* `others`: spaces of other processes, or NULL. */
static weir_status arena_open(struct arena *arena, const weir_plan *plan, uint32_t at, char *base, const bool *others,
                              const char *directory)
{
    const plan_space *space = &plan->spaces[at];
    const char *name = plan_text(plan, space->name);
    const bool elsewhere = others && others[at];
    *arena = (struct arena){.base = base,
                            .bytes = space->bytes,
                            .device = device_find(space->kind),
                            .index = space->index,
                            .borrowed = base || elsewhere};
    if (elsewhere)
        return WEIR_OK;
    if (arena->borrowed && arena->device)
        return adopt(arena, name);
    if (!arena->device)
        return error_set(WEIR_E_UNSUPPORTED, "%s: this build of weir has no devices of that kind", name);
    find_device(arena, plan, others, at);
    void *made = NULL;
    const char *path = directory ? directory : plan_text(plan, space->path);
    weir_status status = arena->device->space_new(path, arena->index, mapped_bytes(arena), &made);
    arena->base = made;
    return said_of(name, status);
}

weir_status arenas_open(struct arena *arenas, const weir_plan *plan, char *const *bases, const bool *elsewhere,
                        const char *directory)
{
    weir_status status = WEIR_OK;
    memset(arenas, 0, plan->spaces_count * sizeof *arenas);
    for (uint32_t i = 0; !status && i < plan->spaces_count; i++)
        if (!elsewhere || !elsewhere[i])
            status = plugin_need(plan->spaces[i].kind);
    for (int pinned = 0; pinned < 2; pinned++)
        for (uint32_t i = 0; !status && i < plan->spaces_count; i++)
            if ((plan->spaces[i].kind == WEIR_PINNED) == pinned)
                status = arena_open(&arenas[i], plan, i, bases ? bases[i] : NULL, elsewhere, directory);
    if (status)
        arenas_close(arenas, plan->spaces_count);
    return status;
}

void arenas_close(struct arena *arenas, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        if (arenas[i].adopted)
            arenas[i].device->space_leave(arenas[i].base, arenas[i].bytes);
        if (arenas[i].base && !arenas[i].borrowed)
            arenas[i].device->space_free(arenas[i].base, mapped_bytes(&arenas[i]));
        arenas[i].adopted = false;
        arenas[i].base = NULL;
    }
}

char *arena_tensor(const struct arena *arenas, const weir_plan *plan, const plan_tensor *tensor, uint32_t slot)
{
    const struct arena *arena = &arenas[plan_tensor_space(plan, tensor).i];
    uint64_t offset = tensor->offset;
    if (arena->places)
        return arena->places[tensor->owner];
    if (tensor->home == PLAN_IN_REGST)
        offset += plan->regsts[tensor->owner].offset + slot * plan->regsts[tensor->owner].slot_bytes;
    if (tensor->home == PLAN_IN_TEMP)
        offset += plan->queues[plan->actors[tensor->owner].queue.i].workspace_offset;
    return arena->base + offset;
}
