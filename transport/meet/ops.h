/* transport/meet/ops.h: how the plans of two ranks differ, in words.
 *
 * A plan's logical ops are its kernels without repetition: those of several devices are one, conversions between
 * layouts (box) are none, and how parameters start is one each. In plan order, forward phase first. So the list says
 * what the user wrote, whatever devices and micro-batches it was compiled for.
 */
#ifndef TRANSPORT_MEET_OPS_H
#define TRANSPORT_MEET_OPS_H

#include "transport/meet/frames.h"

struct op_list {
    struct meet_op *ops; /* owned */
    uint32_t count, room;
};

/* The part of a JOIN that describes a plan; all 0 of NULL. */
struct meet_plan meet_plan_of(const weir_plan *plan);

/* At most MEET_OPS_MAX of them. E_MEMORY. */
weir_status op_list_of(const weir_plan *plan, struct op_list *list);
weir_status op_list_add(struct op_list *list, const struct meet_op *ops, uint32_t count);
void op_list_free(struct op_list *list);

/* The whole sentence: "rank 2's graph is not rank 0's: the first op that differs is ...". A list is compared in this order:
 * the first op of ours that is missing or does something else; one more at theirs; another place in the source; at last the
 * numbers of the two plans. */
void difference_text(const struct op_list *ours, const struct meet_plan *our_plan, const struct op_list *theirs,
                     const struct meet_plan *their_plan, uint32_t their_rank, char text[MEET_TEXT_MAX + 1]);

#endif
