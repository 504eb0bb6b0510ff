/* tests/support/random_model.h: a small trained model drawn from a seed, and ways to lay it out drawn from another.
 *
 * The model (blocks of linear layers, attention, norms, dropout, residuals; inputs per micro-batch and per step; frozen
 * and tied parameters) depends on `model` alone, so two graphs with one `model` and any `layout` must compute the same.
 * Layout 0 is one device. Others have one to three stages on meshes of one to three axes, which may share devices, and
 * weights and activations that are fixed at random.
 *
 * To be compiled with .micro_batches = random_model_micro(model). Inputs are to be pushed, fetches to be pulled.
 */
#ifndef TESTS_SUPPORT_RANDOM_MODEL_H
#define TESTS_SUPPORT_RANDOM_MODEL_H

#include <weir/weir.h>

weir_graph *random_model(uint64_t model, uint64_t layout);
int random_model_micro(uint64_t model);

#endif
