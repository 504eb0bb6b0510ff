/* apps/common/model/adapter_lm.h: a LoRA adapter (adapter.h) beside the products of a language model (lm.h).
 *
 *     lm_adapter beside = {.adapter = &a, .config = &config};
 *     config.adapt = lm_adapter_adapt, config.adapt_ctx = &beside;
 *     weir_graph *g = lm_train_graph(&config, ...);             // base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight
 *     if (!lm_adapter_used(&beside, why, sizeof why)) ...       // a target that no layer of the model has
 *
 * Names are those that transformers gives the layers, also where the file has others (GGUF). GGUF files of a Llama have the rows of q and k
 * in another order, pairs that turn side by side: the rows of B follow the file in a session, and transformers in an adapter's file.
 */
#ifndef APPS_COMMON_MODEL_ADAPTER_LM_H
#define APPS_COMMON_MODEL_ADAPTER_LM_H

#include "apps/common/model/adapter.h"
#include "apps/common/model/lm.h"

typedef struct lm_adapter {
    const adapter *adapter;  /* borrowed */
    const lm_config *config; /* borrowed: of the base */
    bool frozen;             /* A and B are not trained */
    bool used[ADAPTER_TARGETS_MAX]; /* which targets are the ends of names */
} lm_adapter;

/* For lm_config.adapt; `ctx` is an lm_adapter. */
weir_tensor *lm_adapter_adapt(void *ctx, weir_tensor *x, weir_tensor *base, const lm_product *of);

/* After the graph was built: whether each target was found. False: a sentence without a file's name. */
bool lm_adapter_used(const lm_adapter *beside, char *why, size_t why_bytes);

/* The name of the layer in transformers: "model.layers.0.self_attn.q_proj". */
const char *lm_adapter_module(const lm_config *c, lm_part part, int block, char name[LM_NAME_BYTES]);

/* For adapter_files; `ctx` is the lm_config. */
bool lm_adapter_order(void *ctx, const char *module, weir_array *value, bool reading);

/* The targets where the user names none: all products of the blocks. */
const char *lm_adapter_targets(const lm_config *c);

#endif
