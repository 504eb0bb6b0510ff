/* apps/common/model/gpt_checkpoint.c: see the header. This file looks at the shapes that sizes follow from; that every
 * parameter is there in its own shape is seen when it is loaded. */
#include "apps/common/model/gpt_checkpoint.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define REFUSE(...) (snprintf(why, why_bytes, __VA_ARGS__), false)

static bool is_matrix(const weir_checkpoint_tensor *t)
{
    return t && t->shape.rank == 2 && t->shape.dim[0] >= 1 && t->shape.dim[1] >= 1 && t->shape.dim[0] <= INT32_MAX &&
           t->shape.dim[1] <= INT32_MAX / 4;
}

static int count_layers(const weir_checkpoint *from)
{
    char name[32] = "h0/ln1/gain";
    int layers = 0;
    while (weir_checkpoint_find(from, name))
        snprintf(name, sizeof name, "h%d/ln1/gain", ++layers);
    return layers;
}

/* The heads that weir-gpt has noted; 0: nothing. */
static int noted_heads(const weir_checkpoint *from)
{
    for (int i = 0; i < weir_checkpoint_get_info(from)->sources; i++) {
        const weir_checkpoint_source *s = weir_checkpoint_get_source(from, i);
        gpt_note note;
        if (!strcmp(s->name, "tokens") && gpt_note_read(&note, s->bytes, s->count))
            return note.heads;
    }
    return 0;
}

static bool set_heads(const weir_checkpoint *from, gpt_config *config, char *why, size_t why_bytes)
{
    const char *path = weir_checkpoint_get_info(from)->path;
    const int noted = noted_heads(from);
    if (noted && config->heads && noted != config->heads)
        return REFUSE("%s has %d heads, not %d", path, noted, config->heads);
    if (noted)
        config->heads = noted;
    if (!config->heads && config->dim % 64 == 0)
        config->heads = config->dim / 64;
    if (!config->heads)
        return REFUSE("%s does not say how many heads the model has: give --heads", path);
    if (config->dim % config->heads)
        return REFUSE("%s: width %d cannot be cut into %d heads", path, config->dim, config->heads);
    return true;
}

bool gpt_sizes(const weir_checkpoint *from, gpt_config *config, char *why, size_t why_bytes)
{
    const char *path = weir_checkpoint_get_info(from)->path;
    const weir_checkpoint_tensor *wte = weir_checkpoint_find(from, "wte/weight");
    const weir_checkpoint_tensor *wpe = weir_checkpoint_find(from, "wpe");
    if (weir_checkpoint_find(from, "wte.weight") || weir_checkpoint_find(from, "transformer.wte.weight"))
        return REFUSE("%s has Hugging Face's names; weir checkpoint convert --map gives it those of weir-gpt", path);
    if (!is_matrix(wte) || !is_matrix(wpe) || wpe->shape.dim[1] != wte->shape.dim[1])
        return REFUSE("%s has no wte/weight [%d, dim] and wpe [seq, dim]: it is not of weir-gpt", path, GPT_VOCAB);
    if (config->vocab ? wte->shape.dim[0] < config->vocab || wte->shape.dim[0] > INT32_MAX : wte->shape.dim[0] != GPT_VOCAB)
        return REFUSE("%s has a vocabulary of %lld; %s %d", path, (long long)wte->shape.dim[0],
                      config->vocab ? "the tokenizer has" : "without --tokenizer that of weir-gpt is bytes,", config->vocab ? config->vocab : GPT_VOCAB);
    config->vocab = (int)wte->shape.dim[0];
    config->dim = (int)wpe->shape.dim[1];
    config->seq = (int)wpe->shape.dim[0];
    config->layers = count_layers(from);
    if (!config->layers)
        return REFUSE("%s has no layer h0: it is not of weir-gpt", path);
    return set_heads(from, config, why, why_bytes);
}

static bool load_parameter(weir_checkpoint *from, weir_session *to, const weir_param_info *info, char *why,
                           size_t why_bytes)
{
    const weir_checkpoint_tensor *t = weir_checkpoint_find(from, info->name);
    const char *path = weir_checkpoint_get_info(from)->path;
    if (!t || !weir_checkpoint_reads_as(t, info->type.dtype) || !weir_shape_equal(&t->shape, &info->type.shape))
        return REFUSE("%s has no %s of the shape that the model has", path, info->name);
    weir_array value = {.dtype = info->type.dtype, .shape = info->type.shape};
    value.data = malloc((size_t)weir_shape_count(&value.shape) * weir_dtype_bytes(value.dtype));
    if (!value.data)
        return REFUSE("out of memory");
    bool ok = !weir_checkpoint_read(from, t, 0, NULL, &value) && !weir_session_write(to, info->name, &value);
    free(value.data);
    return ok || REFUSE("%s", weir_error());
}

bool gpt_load(weir_checkpoint *from, weir_session *to, const weir_plan *to_plan, char *why, size_t why_bytes)
{
    for (int i = 0; i < weir_plan_param_count(to_plan); i++) {
        weir_param_info info;
        if (weir_plan_param(to_plan, i, &info))
            return REFUSE("%s", weir_error());
        if (info.kind == WEIR_PARAMETER && !load_parameter(from, to, &info, why, why_bytes))
            return false;
    }
    return true;
}
