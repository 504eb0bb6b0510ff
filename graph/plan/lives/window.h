/* graph/plan/lives/window.h: registers that share bytes although they are needed at the same time: one that lies within a tensor
 * which is gathered from it and from others, and a sum that is written over a part of a term.
 *
 *     device 0   [ sum of 0 |         ]    the sums are registers; the tensor is another register, or a temporary
 *                     |  ^
 *                     v  |                 each gather copies what is not its own
 *     device 1   [         | sum of 1 ]
 *
 * The two are needed at the same time, and share bytes all the same, because what the one holds there is what the other
 * is to hold there: the op says that its kernel leaves an input be that lies in its place of the output (`stays` in
 * weir/op.h). That is safe when
 *
 *     - nothing else writes these bytes of the tensor: no other kernel of its actor; and of others none can;
 *     - both are in one slot alone, and each firing of the gather reads what one life of the part holds;
 *     - the part's next value is not begun before the last reader of the tensor is done (lives_in_turn()).
 *
 * Readers of the part, on other devices too, go on to read it where it is: readers write nothing. All else that shares bytes
 * with either is held against the life of each, and the tensor's begins before that of its parts ends.
 *
 * The other way round, a sum's register may lie within that of one of its terms: the op says that its kernel reads of
 * this term what is there, before it writes that (`onto`).
 *
 *     device 0   [ terms of 0 : terms of 1 ]  ->  [ sum of 0 : terms of 1 ]  <- which device 1 may still be reading
 *
 * That is safe when
 *
 *     - no other kernel that reads the term, of any actor, reads these bytes of it (`reads`);
 *     - no other kernel writes them in the sum's actor, both are in one slot alone, and each firing makes one value of the
 *       sum of one of the term;
 *     - the term's next value is not begun before the last reader of the sum is done.
 *
 * Terms, their sum and what is gathered of it can so have the bytes of one tensor.
 *
 * Reads a plan whose kernels have been validated; keeps nothing; any thread.
 */
#ifndef GRAPH_PLAN_LIVES_WINDOW_H
#define GRAPH_PLAN_LIVES_WINDOW_H

#include "graph/plan/lives/lives.h"

typedef struct window {
    plan_kernel_id kernel;         /* that gathers */
    uint32_t operand;              /* through which it reads the part */
    plan_tensor_id tensor;         /* that it makes */
    uint64_t at;                   /* byte of that at which the part is to lie */
} window;

/* Whether the register may lie within what a kernel of the actor makes, as far as that does not depend on the order of
 * firings; and where then. Takes time in proportion to the actor's kernels and operands. */
bool window_find(const weir_plan *plan, plan_regst_id part, plan_actor_id actor, window *to);

/* The same of a register of another space, whose value comes into what the actor makes (arrivals.h). */
bool window_comes(const weir_plan *plan, plan_regst_id part, plan_actor_id actor, window *to);

/* Whether who reads through the port may read bytes `at` on of this tensor, which `part` would have there: the two are
 * of one logical tensor, and lie alike in it. */
bool window_is_read(const weir_plan *plan, uint32_t port, plan_tensor_id tensor, uint64_t at, const plan_tensor *part);

/* The same of a sum within a register that has a term of it: fills `to` with the kernel that adds up, with the operand
 * and the tensor of the term, and where in that the sum is to lie. Reads operands of all actors that read the term. */
bool window_onto(const weir_plan *plan, const lives *l, plan_regst_id sum, plan_regst_id term, window *to);

/* The byte of the arena at which the part is to lie. */
uint64_t window_place(const weir_plan *plan, const window *w);

/* Whether it does lie there. */
bool window_lies(const weir_plan *plan, plan_regst_id part, const window *w);

/* Whether the kernel reads this operand where it is to be: it neither reads nor writes these bytes. */
bool window_is(const weir_plan *plan, uint32_t kernel, uint32_t operand);

/* Bytes that the gathers of a step leave where they are. */
uint64_t window_bytes(const weir_plan *plan);

/* Whether the kernel's first output lies within the operand, an input. */
bool window_is_onto(const weir_plan *plan, uint32_t kernel, uint32_t operand);

#endif
