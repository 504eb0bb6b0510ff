/* graph/verify/player.h: what the plan does: its kernels in an order that credits allow, over the field, on a shadow of its
 * arenas.
 *
 *     arena   [ element of 4 bytes | element | ... ]          offsets are the plan's
 *     shadow  [ value              | value   | ... ]          one for each smallest element; what a wider one covers
 *                                                              beside its first is spoiled
 *
 * Everything is read and written where the plan says: so values show what overlaps wrongly, what is read from the wrong slot, and
 * what comes too late. The next actor is drawn from those that may fire, and each order prefers a queue, which so
 * runs ahead of the others.
 *
 * It knows the plan alone: names, boxes, attributes. The plan has passed plan_validate(). One thread.
 */
#ifndef GRAPH_VERIFY_PLAYER_H
#define GRAPH_VERIFY_PLAYER_H

#include "graph/verify/rule.h"

typedef struct player player;

/* Functions that give inputs and look at results. NULL: nobody does. */
typedef struct player_ends {
    void *ctx;
    bool (*give)(void *ctx, const char *input, int64_t step, int micro, const rule_array *array); /* false: there is none */
    void (*begin)(void *ctx, const char *kept, const rule_array *array); /* fills what lives from step to step */
    void (*see)(void *ctx, const char *fetch, int64_t step, int micro, const rule_array *array);
    void (*fired)(void *ctx); /* once for each firing */
    void (*made)(void *ctx, uint32_t kernel, const plan_tensor *tensor, int64_t step, int micro, const rule_array *array);
} player_ends;

/* Bytes that it takes for a plan. */
uint64_t player_bytes(const weir_plan *plan);

/* E_MEMORY; E_UNSUPPORTED: this program has none of its ops. */
weir_status player_open(player **to, const weir_plan *plan, uint64_t seed, const player_ends *ends);
void player_close(player *p);

/* So many steps of a program, in an order that `order` decides. E_LIVE: nobody can fire. E_WRONG: a kernel is called with what
 * it cannot take. */
weir_status player_run(player *p, uint32_t program, int64_t steps, uint64_t order);

/* The value that a tensor is a shard of: a state that waits on a disk has another name than its tensors. */
const char *player_kept_name(const weir_plan *plan, uint32_t tensor);

/* A shard of a value that lives from step to step, as it is now; the array is the player's until its next call. NULL: no memory. */
const rule_array *player_kept(player *p, uint32_t tensor);

#endif
