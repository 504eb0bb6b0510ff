/* apps/weir/checkpoint_merge.h: adds a LoRA adapter to the weights that it was trained beside.
 *
 *     W + alpha / r B A, computed in f32 and rounded once to the dtype of W; quantised weights become bf16
 *
 * The base is a folder of Hugging Face, whose other files are copied beside the merged weights; a GGUF file; or a .safetensors file with
 * the names that transformers gives. Functions that fail leave tensors_error() and return false. One thread.
 */
#ifndef APPS_WEIR_CHECKPOINT_MERGE_H
#define APPS_WEIR_CHECKPOINT_MERGE_H

#include "apps/common/paths.h"
#include "apps/common/tensors.h"

/* Where the weights of a base are: its model.safetensors, or the base itself. */
bool checkpoint_merge_weights(const char *base, char path[PATHS_BYTES]);

/* Adds the adapter in the folder `adapter` to `t`, the tensors of `base`. `narrows`: those that are quantised there become bf16; else they
 * are f32. */
bool checkpoint_merge(struct tensors *t, const char *base, const char *adapter, bool narrows);

/* Where merged weights go that are wanted at `to`: its model.safetensors, if that is to be a folder and the base is one of Hugging Face. */
bool checkpoint_merge_path(const char *base, const char *to, char path[PATHS_BYTES]);

/* Whether the files of a folder of Hugging Face that have no weights may be copied to the folder of `path`: a file that is there has the
 * same bytes. True for other bases. */
bool checkpoint_merge_may(const char *base, const char *path);

/* Copies them, but for those that are there. */
bool checkpoint_merge_others(const char *base, const char *path);

#endif
