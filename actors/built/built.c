/* actors/built/built.c: see the header. */
#include "actors/built/built.h"

#include <string.h>

#include "actors/cluster/cluster.h"

uint32_t built_rank(const struct built *b)
{
    return b->cluster ? b->cluster->env.rank : 0;
}

bool built_owns(const struct built *b, uint32_t space)
{
    return !b->cluster || b->plan->spaces[space].rank == b->cluster->env.rank;
}

bool built_runs(const struct built *b, uint32_t actor)
{
    return built_owns(b, plan_actor_space(b->plan, actor).i);
}

bool built_owns_tensor(const struct built *b, const plan_tensor *tensor)
{
    return built_owns(b, plan_tensor_space(b->plan, tensor).i);
}

const plan_tensor *built_shard(const struct built *b, const plan_param *param, uint32_t i)
{
    return &b->plan->tensors[b->plan->shards[param->shards.first + i].i];
}

bool built_shard_again(const struct built *b, const plan_param *param, uint32_t i)
{
    for (uint32_t k = 0; k < i; k++)
        if (plan_same_part(built_shard(b, param, i), built_shard(b, param, k)))
            return true;
    return false;
}

/* Behind the slot published last comes the oldest of those that are published, when all are. */
uint32_t built_kept_slot(const struct built *b, const plan_tensor *tensor, uint32_t k)
{
    if (tensor->home != PLAN_IN_REGST)
        return 0;
    const struct regst *regst = &b->outs[tensor->owner].regst;
    uint32_t kept = plan_kept_slots(b->plan, tensor);
    return (regst->slot + regst->slots - kept + k) % regst->slots;
}

const struct transfer *built_transfer(const struct built *b, uint32_t port)
{
    const struct transfer *transfer = b->cluster && port != PLAN_NONE ? links_find(&b->cluster->links, port) : NULL;
    return transfer && transfer->to == b->cluster->env.rank ? transfer : NULL;
}

bool built_comes_in_place(const struct built *b, uint32_t port)
{
    const struct transfer *transfer = built_transfer(b, port);
    return transfer && transfer->in_place;
}

const char *built_port_data(const struct built *b, uint32_t port, const plan_tensor *tensor, uint32_t slot)
{
    const struct transfer *transfer = built_transfer(b, port);
    if (!transfer)
        return arena_tensor(b->arenas, b->plan, tensor, slot);
    const struct piece *piece = &b->cluster->links.pieces[transfer->pieces.first];
    while (&b->plan->tensors[piece->tensor] != tensor)
        piece++; /* an outside reader has a piece of each */
    return links_receive(transfer, &b->cluster->links.spans[transfer->spans.first + piece->span], slot) +
           piece->span_offset;
}

weir_view built_type_view(const plan_tensor *tensor)
{
    weir_view view = {.dtype = (weir_dtype)tensor->dtype};
    view.shape.rank = view.global.rank = (int)tensor->rank;
    memcpy(view.shape.dim, tensor->shape, sizeof(tensor->shape));
    memcpy(view.global.dim, tensor->global, sizeof(tensor->global));
    memcpy(view.offset, tensor->start, sizeof(tensor->start));
    return view;
}

weir_view built_view(const struct built *b, const plan_tensor *tensor, uint32_t slot)
{
    weir_view view = built_type_view(tensor);
    view.data = arena_tensor(b->arenas, b->plan, tensor, slot);
    return view;
}
