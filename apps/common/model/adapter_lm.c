/* apps/common/model/adapter_lm.c: see the header. */
#include "apps/common/model/adapter_lm.h"
#include "apps/common/model/lm_inside.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* One row of the table of names is transformers' own, whatever the file's is. */
const char *lm_adapter_module(const lm_config *c, lm_part part, int block, char name[LM_NAME_BYTES])
{
    lm_config theirs = *c;
    theirs.names = c->learned ? LM_NAMES_GPT2 : LM_NAMES_LLAMA;
    theirs.prefix = c->learned ? "transformer." : "model.";
    lm_name(&theirs, part, block, false, name);
    *strrchr(name, '.') = '\0';
    return name;
}

weir_tensor *lm_adapter_adapt(void *ctx, weir_tensor *x, weir_tensor *base, const lm_product *of)
{
    lm_adapter *l = ctx;
    char module[LM_NAME_BYTES], name[LM_NAME_BYTES + sizeof ADAPTER_PREFIX];
    lm_adapter_module(l->config, of->part, of->block, module);
    if (!adapter_matches(l->adapter, module))
        return base;
    for (int i = 0; i < l->adapter->targets; i++) {
        adapter one = {.targets = 1};
        memcpy(one.target[0], l->adapter->target[i], sizeof one.target[0]);
        l->used[i] |= adapter_matches(&one, module);
    }
    snprintf(name, sizeof name, "%s%s", ADAPTER_PREFIX, module);
    return weir_lora(x, base, l->adapter->rank, l->adapter->alpha, .name = name, .dropout = l->adapter->dropout, .frozen = l->frozen,
                     .a = {[TP] = of->splits_in ? WEIR_S(1) : WEIR_AUTO}, .b = {[TP] = of->splits_out ? WEIR_S(0) : WEIR_AUTO});
}

bool lm_adapter_used(const lm_adapter *l, char *why, size_t why_bytes)
{
    for (int i = 0; i < l->adapter->targets; i++)
        if (!l->used[i]) {
            snprintf(why, why_bytes, "no layer of the model is called %s; it has %s", l->adapter->target[i], lm_adapter_targets(l->config));
            return false;
        }
    return true;
}

const char *lm_adapter_targets(const lm_config *c)
{
    return c->learned ? "c_attn,c_proj,c_fc" : c->gated ? "q_proj,k_proj,v_proj,o_proj,gate_proj,up_proj,down_proj"
                                             : "q_proj,k_proj,v_proj,o_proj,up_proj,down_proj";
}

/* ---- the order of rows ---- */

/* Row 2i + h of a head in the file is its row h half + i in transformers' weight. */
bool lm_adapter_order(void *ctx, const char *module, weir_array *value, bool reading)
{
    const lm_config *c = ctx;
    const bool q = lm_ends_with(module, "q_proj"), k = lm_ends_with(module, "k_proj");
    if (!c->interleaved || (!q && !k))
        return true;
    const int64_t half = c->head_dim / 2, rows = value->shape.dim[0], columns = value->shape.dim[1];
    float *data = value->data, *head = malloc((size_t)(2 * half * columns) * sizeof *head);
    for (int64_t first = 0; head && first + 2 * half <= rows; first += 2 * half) {
        memcpy(head, data + first * columns, (size_t)(2 * half * columns) * sizeof *head);
        for (int64_t i = 0; i < 2 * half; i++) {
            const int64_t file = 2 * (i % half) + i / half, to = reading ? file : i, from = reading ? i : file;
            memcpy(data + (first + to) * columns, head + from * columns, (size_t)columns * sizeof *data);
        }
    }
    free(head);
    return head != NULL;
}
