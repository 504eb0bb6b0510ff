/* apps/common/model/adapter.h: a LoRA adapter (weir_lora()) as the Python package peft keeps it.
 *
 *     DIR/adapter_config.json          {"peft_type": "LORA", "r": 8, "lora_alpha": 16, "target_modules": ["q_proj", ...], ...}
 *     DIR/adapter_model.safetensors    base_model.model.MODULE.lora_A.weight [r, in], ...lora_B.weight [out, r]
 *
 * MODULE is a layer's name in the model that transformers has, such as model.layers.0.self_attn.q_proj. A target is the end of such
 * names: "q_proj", or "self_attn.q_proj". adapter_config.json is read strictly: each setting that changes a result and is not
 * supported is refused by its name, and so is a setting that this file does not know, unless it is off (null, false, empty).
 *
 * Functions that fail leave a sentence in `why`, which names the file. One thread.
 */
#ifndef APPS_COMMON_MODEL_ADAPTER_H
#define APPS_COMMON_MODEL_ADAPTER_H

#include <stdbool.h>
#include <stddef.h>
#include <weir/weir.h>

enum { ADAPTER_TARGETS_MAX = 32, ADAPTER_TARGET_BYTES = 64, ADAPTER_NAME_BYTES = 256, ADAPTER_BASE_BYTES = 1024, ADAPTER_RANK_MAX = 4096 };
#define ADAPTER_PREFIX "base_model.model."

typedef struct adapter {
    int rank;
    double alpha, dropout;
    char target[ADAPTER_TARGETS_MAX][ADAPTER_TARGET_BYTES];
    int targets;
    char base[ADAPTER_BASE_BYTES]; /* the model that it was trained beside; "": not known */
    bool fan_in_fan_out;           /* weights of the base are [in, out], as in GPT-2's folders */
} adapter;

/* Reads DIR/adapter_config.json, or a file by its path. */
bool adapter_read(const char *folder, adapter *a, char *why, size_t why_bytes);
bool adapter_read_config(const char *path, adapter *a, char *why, size_t why_bytes);

/* Writes DIR/adapter_config.json, which replaces one that is there when all of it is on the disk. */
bool adapter_write(const char *folder, const adapter *a, char *why, size_t why_bytes);

/* Takes targets from a text as "q_proj,v_proj". `why` names no file. */
bool adapter_take_targets(adapter *a, const char *list, char *why, size_t why_bytes);

/* Whether the layer has an addend. */
bool adapter_matches(const adapter *a, const char *module);

/* The module of a parameter of an adapter, "model.layers.0.self_attn.q_proj", and whether the parameter is B. False: the name is none
 * of an adapter's. */
bool adapter_module(const char *parameter, char module[ADAPTER_NAME_BYTES], bool *is_b);

/* Changes the order of a B's rows on their way to a file (`reading` false) or from it: `value` is f32 [out, rank]. False:
 * no memory. */
typedef bool (*adapter_order_fn)(void *ctx, const char *module, weir_array *value, bool reading);

typedef struct adapter_files {
    const char *folder;
    adapter_order_fn order; /* NULL: rows stay */
    void *ctx;
} adapter_files;

/* Writes the session's values of all parameters of an adapter from DIR/adapter_model.safetensors. The file must have each of them in its
 * shape, and nothing else. The session is at rest; each rank calls this. */
bool adapter_load(const adapter_files *from, weir_session *session, const weir_plan *plan, char *why, size_t why_bytes);

/* Writes both files, the tensors first. DIR exists. Each rank calls this, as the values are read from all; the one
 * with `writes` writes. */
bool adapter_save(const adapter_files *to, const adapter *a, weir_session *session, const weir_plan *plan, bool writes, char *why,
                  size_t why_bytes);

#endif
