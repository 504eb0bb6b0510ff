/* tests/support/gradient_check.h: the gradient of a piece of a model against finite differences.
 *
 *     static weir_tensor *mlp(weir_graph *g)
 *     {
 *         weir_tensor *x = weir_param(g, WEIR_F32, {3, 5}, .name = "x");
 *         return weir_relu(weir_linear(x, 4));
 *     }
 *     gradient_check(mlp, 42, 1e-3);
 *
 * Parameters start about as their .init says, and those without one as N(0, 1); i32 inputs get 0..9. The graph, with
 * the backward graph that autograd adds for a random gradient r of the result, is played node by node on whole
 * tensors with the kernels: no compiler, no runtime. Then elements of each parameter are moved up and down, and the
 * change of sum(r * result) is held against the gradient.
 */
#ifndef TESTS_SUPPORT_GRADIENT_CHECK_H
#define TESTS_SUPPORT_GRADIENT_CHECK_H

#include <weir/weir.h>

typedef weir_tensor *(*gradient_model)(weir_graph *graph);

/* Fails the test when a gradient is off by more than tolerance * (1 + |gradient|), or a parameter has none. */
void gradient_check(gradient_model model, uint64_t seed, double tolerance);

#endif
