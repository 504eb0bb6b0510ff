/* weir/exact.h: the numbers of a proof, for the rule `exact` of an op of your own (weir/op.h).
 *
 * weir_plan_verify() and weir_gradients_verify() (weir/plan.h) compute with exact numbers in the place of f32: elements of a
 * finite field, in which sums, products and quotients do not round. Without .exact an op of your own is a random function of
 * all that it reads. A plan that splits it is then called wrong, and gradients that pass through it are not covered. With
 * .exact the op is what its rule says.
 *
 * The rule has the type of a kernel, and the same arguments: shards, which the plan may have split in any way that `signatures`
 * allows. Only the data differs: view->data is an array of weir_exact, for each dtype, dense and row-major. The rule says what
 * the op is over the real numbers, in the plainest way:
 *
 *     const weir_exact *from = args->in[0].data; // the body of the rule of y = x exp(x); apps/examples/prelu has two rules
 *     weir_exact *to = args->out[0].data;
 *     for (int64_t i = 0; i < weir_shape_count(&args->in[0].shape); i++)
 *         to[i] = weir_exact_mul(from[i], weir_exact_oracle(args, "exp", &from[i], 1));
 *
 * Functions. exp, gelu and all functions that are not made of sums, products and quotients are *oracles*: random functions that
 * have nothing but a name. Equal arguments give equal values. So a rule must call an oracle with arguments that do not depend
 * on how the op is split, and may use no property of the function: exp(a + b) is not exp(a) exp(b) here. The built-in ops have
 * the oracles "exp", "log", "sqrt", "rsqrt" (1 / sqrt), "tanh", "sigmoid", "gelu", "silu", "abs", "sin", "cos", "erf", "gelu_erf" and
 * "softplus". An op whose gradient is made of built-in ops uses these.
 *
 * Order. Exact numbers have none. weir_exact_larger() is a random order, the same one for all ops.
 *
 * Derivatives. A number also carries its derivative, and all functions of this header keep it right; so the same rule serves the
 * proof of gradients. A gradient op calls weir_exact_slope() where the function calls weir_exact_oracle().
 *
 * All functions are pure; any thread. `args` are those that the rule was given.
 */
#ifndef WEIR_EXACT_H
#define WEIR_EXACT_H

#include <weir/op.h>

WEIR_C_BEGIN

/* A number. All zeros is 0. Its members are the library's. */
typedef struct weir_exact {
    uint64_t of[4];
} weir_exact;

/* An integer; a real constant, as the simplest rational number near it: 0.1 is 1 / 10. Infinity and NaN are numbers of their
 * own. */
weir_exact weir_exact_int(int64_t number);
weir_exact weir_exact_real(double number);

weir_exact weir_exact_add(weir_exact a, weir_exact b);
weir_exact weir_exact_sub(weir_exact a, weir_exact b);
weir_exact weir_exact_mul(weir_exact a, weir_exact b);
weir_exact weir_exact_div(weir_exact a, weir_exact b); /* a / 0 is 0 */

/* The value of the oracle `function` at `count` arguments (1 or more). */
weir_exact weir_exact_oracle(const weir_kernel_args *args, const char *function, const weir_exact *at, int count);

/* The derivative of that oracle by argument `by` (from 0 on), at the same arguments. "exp" has itself, "log" 1 / x, and "rsqrt"
 * -rsqrt^3 / 2; the others have another oracle each. */
weir_exact weir_exact_slope(const weir_kernel_args *args, const char *function, const weir_exact *at, int count, int by);

/* Whether a comes behind b in the random order. */
bool weir_exact_larger(const weir_kernel_args *args, weir_exact a, weir_exact b);

bool weir_exact_equal(weir_exact a, weir_exact b);

/* True, and the number, if it is an integer of 32 bits: an id, a label. Elements of i64, i32, i8 and u8 tensors are integers. */
bool weir_exact_is_int(weir_exact a, int64_t *number);

WEIR_C_END
#endif
