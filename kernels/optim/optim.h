/* kernels/optim/optim.h: what changes parameters, and the clipping of gradients before it.
 *
 *     gradient ---> square_sum ---.
 *     gradient ---> square_sum ---+--> (sum) --> clip_scale --> scale
 *                                                                |
 *     gradient, scale ---> sgd or adamw ---> the parameter, changed in place
 *
 * op_sgd and op_adamw take in[0] = the gradient and, if there is one, in[1] = a scalar that the gradient is
 * multiplied by; where that is NaN, the update changes nothing, states included. out[0] has the gradient's type and is
 * the parameter itself: the view holds the old value when the kernel is called and the new one when it returns. States:
 * adamw has m, v, and an i32 that counts the updates which are in them, for the correction of their bias; sgd has v when
 * its momentum is not 0, else none. States start as zeros. The number of the step, for the schedule, is args->step + 1.
 *
 * op_square_sum: x -> the sum of its squares, as two floats (formula.h), so that it holds all that gradients of f32 give.
 * op_clip_scale: that sum s, and, of gradients that are sums over `count` terms, this count c [1] -> min(1, max_norm /
 * (sqrt(s) / c)) / c, NaN where s is not finite or c is 0; its state counts those steps. A max_norm of 0 clips nothing.
 * op_clip_norm: the sum s of some gradients and the factor f of all of them -> the factor min(f, f max_norm / n) for these, and
 * their norm n = f sqrt(s). op_loss_scale takes its place where the loss is scaled (scale.c).
 *
 * op_sgd_moved and op_adamw_moved (moved.c) take the states that are as large as the parameter as further inputs and give
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

#endif
