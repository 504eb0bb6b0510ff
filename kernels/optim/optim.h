/* kernels/optim/optim.h: what changes parameters, and the clipping of gradients before it.
 *
 *     gradient ---> square_sum ---.
 *     gradient ---> square_sum ---+--> (sum) --> clip_scale --> scale
 *                                                                |
 *     gradient, scale ---> sgd, adamw, ... ---> the parameter, changed in place
 *                               |
 *     (the program's rate) ---> schedule
 *
 * Updates (sgd, nesterov, adamw, adam, adagrad, lion) take in[0] = the gradient and, if there is one, a scalar that the gradient
 * is multiplied by, and behind it, if there is one, a number that the rate is multiplied by (scalars.h); where one of these is
 * NaN, the update changes nothing, states included. out[0] has the gradient's type and is
 * the parameter itself: the view holds the old value when the kernel is called and the new one when it returns. States:
 * adamw and adam have m, v, and an i32 that counts the updates which are in them, for the correction of their bias; sgd has one
 * when its momentum is not 0, else none; the others have one. States start as zeros. The number of the step, for the schedule, is
 * args->step + 1.
 *
 * LAMB is three ops (lamb.c), as it needs norms of whole parameters:
 *
 *     gradient [, scale] [, rate], p ---> lamb ---> u ---> square_sum ---.
 *                                p -------------> square_sum ---+
 *                                u, their sums [, rate] ------- lamb_apply ---> p, changed in place
 *
 * op_schedule (schedule.c): the factor of the rate by the step, times the program's rate if there is one. op_ema (ema.c) changes
 * an average of a parameter.
 *
 * op_square_sum: x -> the sum of its squares, as two floats (formula.h), so that it holds all that gradients of f32 give.
 * op_clip_scale: that sum s, and, of gradients that are sums over `count` terms, this count c [1] -> min(1, max_norm /
 * (sqrt(s) / c)) / c, NaN where s is not finite or c is 0; its state counts those steps. A max_norm of 0 clips nothing.
 * op_clip_norm: the sum s of some gradients and the factor f of all of them -> the factor min(f, f max_norm / n) for these, and
 * their norm n = f sqrt(s). Where the loss is scaled, op_loss_scale takes the place of op_clip_scale (scale.c).
 *
 * op_sgd_moved and so on (moved.c) take the states that are as large as the parameter as further inputs and give
 * the new ones as further outputs.
 *
 * An update is elementwise, so a shard of a parameter needs nothing but the same shard of its gradient and state.
 */
#ifndef KERNELS_OPTIM_OPTIM_H
#define KERNELS_OPTIM_OPTIM_H

#include "kernels/common/ops.h"
#include "kernels/optim/formula.h"

#define OPTIM_END 0x1.ffffffp127 /* from here on a number is infinite in f32, in which kernels compute */

enum { OPTIM_FIELD_COUNT = 9 };
extern const weir_field optim_fields[OPTIM_FIELD_COUNT];
#define OPTIM_FIELDS .fields = optim_fields, .field_count = OPTIM_FIELD_COUNT, .attrs_bytes = sizeof(struct optim_attrs)

/* The op that an update is when its states are moved, and back; NULL: there is none. */
const weir_op *optim_moved(const weir_op *update);
const weir_op *optim_unmoved(const weir_op *moved);

#endif
