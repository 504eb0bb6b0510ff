/* actors/cluster/gathers.c: see the header. */
#include "actors/cluster/gathers.h"

#include <stdlib.h>

#include "graph/base/error.h"

/* Moves of one input come by giver, then by taker. */
struct input_moves {
    uint64_t count, bytes;
    bool others; /* it is not as above */
};

static void look_at_moves(const weir_plan *plan, const plan_collective *collective, struct input_moves *inputs)
{
    for (uint32_t i = collective->moves.first; i < collective->moves.first + collective->moves.count; i++) {
        const plan_move *move = &plan->moves[i];
        struct input_moves *input = move->give < WEIR_ARGS_MAX ? &inputs[move->give] : NULL;
        if (!input)
            continue;
        input->bytes = input->count ? input->bytes : move->bytes;
        input->others |= move->bytes != input->bytes ||
                         (uint64_t)move->from * collective->members.count + move->to != input->count;
        input->count++;
    }
}

static void add_gathers(struct gathers *gathers, const weir_plan *plan, uint32_t c)
{
    struct input_moves inputs[WEIR_ARGS_MAX] = {{.count = 0}};
    uint64_t members = plan->collectives[c].members.count;
    look_at_moves(plan, &plan->collectives[c], inputs);
    for (uint32_t give = 0; !gathers->full && give < WEIR_ARGS_MAX; give++) {
        if (inputs[give].others || inputs[give].count != members * members || !inputs[give].bytes)
            continue;
        struct gather *grown = realloc(gathers->of, (gathers->count + (size_t)1) * sizeof(*grown));
        gathers->full = !grown;
        if (!grown)
            return;
        gathers->of = grown;
        grown[gathers->count++] = (struct gather){c, give, inputs[give].bytes};
    }
}

weir_status gathers_find(struct gathers *gathers, const weir_plan *plan)
{
    for (uint32_t c = 0; c < plan->collectives_count; c++)
        if (plan->collectives[c].kind == PLAN_ALL_GATHER)
            add_gathers(gathers, plan, c);
    return gathers->full ? error_set(WEIR_E_MEMORY, "no memory for %u collectives", plan->collectives_count) : WEIR_OK;
}

bool gather_in_one_piece(const weir_plan *plan, const struct gather *gather, uint32_t to, uint32_t *take)
{
    const plan_collective *collective = &plan->collectives[gather->collective];
    const plan_actor *actor = &plan->actors[plan->members[collective->members.first + to].i];
    const plan_tensor *first = NULL;
    bool whole = true;
    for (uint32_t i = collective->moves.first; i < collective->moves.first + collective->moves.count; i++) {
        const plan_move *move = &plan->moves[i];
        if (move->to != to || move->give != gather->give)
            continue;
        uint32_t out = plan->kernels[actor->kernels.first].out.first + move->take;
        const plan_tensor *taken = &plan->tensors[plan->operands[out].tensor.i];
        *take = first ? *take : move->take;
        first = first ? first : taken;
        whole &= taken->home == first->home && taken->owner == first->owner &&
                 taken->offset == first->offset + move->from * gather->bytes;
    }
    return whole;
}
