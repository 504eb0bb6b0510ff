/* apps/common/model/lm_parts.c: the parameters of a model, their names and shapes, and whether a file has them.
 *
 * One table says how each kind of file calls the parts, and one function which shape each has. Graphs take both from here, and so does
 * the comparison with a file: a graph is only built of parameters that were found. */
#include "apps/common/model/lm_inside.h"

#include "graph/base/blocks.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

/* "PREFIX PART.weight" and "PREFIX BLOCKS.3.PART.weight". */
static const struct names {
    const char *prefix, *blocks;
    const char *part[LM_PARTS];
} table[] = {
    [LM_NAMES_LLAMA] = {"model.", "layers",
                        {[LM_TOKENS] = "embed_tokens", [LM_OUT_NORM] = "norm", [LM_HEAD] = "lm_head",
                         [LM_ATTENTION_NORM] = "input_layernorm", [LM_Q] = "self_attn.q_proj", [LM_K] = "self_attn.k_proj",
                         [LM_V] = "self_attn.v_proj", [LM_O] = "self_attn.o_proj", [LM_Q_NORM] = "self_attn.q_norm",
                         [LM_K_NORM] = "self_attn.k_norm", [LM_FFN_NORM] = "post_attention_layernorm", [LM_GATE] = "mlp.gate_proj",
                         [LM_UP] = "mlp.up_proj", [LM_DOWN] = "mlp.down_proj"}},
    [LM_NAMES_GPT2] = {"transformer.", "h",
                       {[LM_TOKENS] = "wte", [LM_POSITIONS] = "wpe", [LM_OUT_NORM] = "ln_f", [LM_HEAD] = "lm_head",
                        [LM_ATTENTION_NORM] = "ln_1", [LM_QKV] = "attn.c_attn", [LM_O] = "attn.c_proj", [LM_FFN_NORM] = "ln_2",
                        [LM_UP] = "mlp.c_fc", [LM_DOWN] = "mlp.c_proj"}},
    [LM_NAMES_GGUF] = {"", "blk",
                       {[LM_TOKENS] = "token_embd", [LM_POSITIONS] = "position_embd", [LM_OUT_NORM] = "output_norm",
                        [LM_HEAD] = "output", [LM_ATTENTION_NORM] = "attn_norm", [LM_Q] = "attn_q", [LM_K] = "attn_k",
                        [LM_V] = "attn_v", [LM_QKV] = "attn_qkv", [LM_O] = "attn_output", [LM_Q_NORM] = "attn_q_norm",
                        [LM_K_NORM] = "attn_k_norm", [LM_FFN_NORM] = "ffn_norm", [LM_GATE] = "ffn_gate", [LM_UP] = "ffn_up",
                        [LM_DOWN] = "ffn_down"}},
};

const char *lm_name(const lm_config *c, lm_part part, int block, bool bias, char name[LM_NAME_BYTES])
{
    const struct names *n = &table[c->names];
    const char *prefix = part == LM_HEAD ? "" : c->prefix, *kind = bias ? "bias" : "weight";
    if (block < 0)
        snprintf(name, LM_NAME_BYTES, "%s%s.%s", prefix, n->part[part], kind);
    else
        snprintf(name, LM_NAME_BYTES, "%s%s.%d.%s.%s", prefix, n->blocks, block, n->part[part], kind);
    return name;
}

/* ---- shapes ---- */

static bool is_norm(lm_part part)
{
    return part == LM_OUT_NORM || part == LM_ATTENTION_NORM || part == LM_FFN_NORM;
}

static bool has_part(const lm_config *c, lm_part part)
{
    switch (part) {
    case LM_POSITIONS: return c->learned;
    case LM_HEAD: return !c->tied;
    case LM_Q: case LM_K: case LM_V: return !c->joined;
    case LM_QKV: return c->joined;
    case LM_Q_NORM: case LM_K_NORM: return c->qk_norm;
    case LM_GATE: return c->gated;
    default: return true;
    }
}

static bool has_bias(const lm_config *c, lm_part part)
{
    switch (part) {
    case LM_Q: case LM_K: case LM_V: case LM_QKV: return c->qkv_bias;
    case LM_O: return c->o_bias;
    case LM_GATE: case LM_UP: case LM_DOWN: return c->ffn_bias;
    default: return c->centred && is_norm(part);
    }
}

/* [out, in]; `in` 0: [out]. */
static void sizes(const lm_config *c, lm_part part, int64_t *out, int64_t *in)
{
    const int64_t q = (int64_t)c->heads * c->head_dim, kv = (int64_t)c->kv_heads * c->head_dim;
    *in = c->dim;
    switch (part) {
    case LM_TOKENS: case LM_HEAD: *out = c->vocab; break;
    case LM_POSITIONS: *out = c->context; break;
    case LM_Q: *out = q; break;
    case LM_K: case LM_V: *out = kv; break;
    case LM_QKV: *out = q + 2 * kv; break;
    case LM_O: *out = c->dim, *in = q; break;
    case LM_GATE: case LM_UP: *out = c->ffn; break;
    case LM_DOWN: *out = c->dim, *in = c->ffn; break;
    case LM_Q_NORM: case LM_K_NORM: *out = c->head_dim, *in = 0; break;
    default: *out = c->dim, *in = 0;
    }
}

bool lm_shape(const lm_config *c, lm_part part, bool bias, weir_shape *shape)
{
    int64_t out, in;
    if (!has_part(c, part) || (bias && !has_bias(c, part)))
        return false;
    sizes(c, part, &out, &in);
    if (bias || !in)
        *shape = (weir_shape){1, {out}};
    else if (lm_in_first(c, part))
        *shape = (weir_shape){2, {in, out}};
    else
        *shape = (weir_shape){2, {out, in}};
    return true;
}

/* ---- the file ---- */

typedef struct parameter {
    lm_part part;
    int block; /* -1: there is one */
    bool bias;
    const char *name;
    weir_shape shape;
} parameter;
typedef bool (*visit_fn)(void *ctx, const parameter *p);

/* Calls `visit` for each parameter until it returns false. */
static bool each_parameter(const lm_config *c, visit_fn visit, void *ctx)
{
    char name[LM_NAME_BYTES];
    for (int part = 0; part < LM_PARTS; part++)
        for (int block = part < LM_BLOCK_PARTS ? -1 : 0; block < (part < LM_BLOCK_PARTS ? 0 : c->layers); block++)
            for (int bias = 0; bias < 2; bias++) {
                parameter p = {(lm_part)part, block, bias, lm_name(c, (lm_part)part, block, bias, name), {0}};
                if (lm_shape(c, p.part, bias, &p.shape) && !visit(ctx, &p))
                    return false;
            }
    return true;
}

struct comparison {
    lm_config *config;
    weir_checkpoint *file;
    const struct lm_why *why;
    int found;
};

static const char *shape_text(const weir_shape *shape, char text[96])
{
    size_t at = 0;
    for (int d = 0; d < shape->rank && at < 64; d++)
        at += (size_t)snprintf(text + at, 96 - at, "%s%lld", d ? ", " : "", (long long)shape->dim[d]);
    text[at] = '\0';
    return text;
}

static weir_format format_named(const char *name)
{
    const block_format *is;
    for (int i = WEIR_DENSE + 1; (is = block_format_of(i)); i++)
        if (!strcmp(is->name, name))
            return (weir_format)i;
    return WEIR_DENSE;
}

/* Whether a file that is mapped has the tensor's values where products can read them: as they are, in one piece, and aligned. */
static bool can_be_mapped(const weir_checkpoint_tensor *t)
{
    return !strcasecmp(t->stored, weir_dtype_name(t->dtype)) && t->shard_count == 1 && t->shard->offset % weir_dtype_bytes(t->dtype) == 0;
}

/* Tensors of a quantised type are read as f32, which is not the type that they have. */
static struct lm_type type_of(const weir_checkpoint_tensor *t)
{
    const weir_format format = format_named(t->stored);
    if (format)
        return (struct lm_type){WEIR_U8, (uint8_t)format};
    return (struct lm_type){can_be_mapped(t) ? (uint8_t)t->dtype : WEIR_DTYPE_NONE, WEIR_DENSE};
}

bool lm_stays(const lm_config *c, lm_part part, int block, bool bias)
{
    const struct lm_type type = c->type[part][block < 0 ? 0 : block];
    weir_shape shape;
    if (!c->stored || !lm_shape(c, part, bias, &shape) || shape.rank != 2 || part == LM_POSITIONS || lm_in_first(c, part))
        return false;
    return type.format || type.dtype == WEIR_F32 || type.dtype == WEIR_F16 || type.dtype == WEIR_BF16;
}

static bool compare(void *ctx, const parameter *p)
{
    struct comparison *x = ctx;
    const char *name = p->name;
    const weir_shape *shape = &p->shape;
    const weir_checkpoint_tensor *t = weir_checkpoint_find(x->file, name);
    char has[96], needs[96];
    if (!t)
        return lm_wrong(x->why, "has no tensor %s [%s]", name, shape_text(shape, needs));
    if (!weir_shape_equal(&t->shape, shape))
        return lm_wrong(x->why, "tensor %s has the shape [%s]; [%s] follows from the model's sizes", name, shape_text(&t->shape, has),
                        shape_text(shape, needs));
    if (!weir_checkpoint_reads_as(t, WEIR_F32))
        return lm_wrong(x->why, "tensor %s: %s", name, t->unread ? t->unread : "its type has no values of f32");
    if (!p->bias)
        x->config->type[p->part][p->block < 0 ? 0 : p->block] = type_of(t);
    x->found++;
    return true;
}

static bool differs(void *ctx, const parameter *p)
{
    return strcmp(ctx, p->name) != 0;
}

bool lm_ends_with(const char *text, const char *end)
{
    const size_t a = strlen(text), b = strlen(end);
    return a >= b && !strcmp(text + a - b, end);
}

/* Constants that some programs save beside the parameters, the table of tokens a second time, and rope's factors, which
 * lm_gguf.c has compared. */
static bool is_needless(const lm_config *c, const char *name)
{
    char head[LM_NAME_BYTES];
    return lm_ends_with(name, ".rotary_emb.inv_freq") || lm_ends_with(name, ".attn.bias") || lm_ends_with(name, ".attn.masked_bias") ||
           (c->names == LM_NAMES_GGUF && !strcmp(name, "rope_freqs.weight")) ||
           (c->tied && !strcmp(name, lm_name(c, LM_HEAD, -1, false, head)));
}

static bool has_no_other(const lm_config *c, const struct comparison *x)
{
    const int tensors = weir_checkpoint_get_info(x->file)->tensors;
    for (int i = 0; i < tensors && tensors != x->found; i++) {
        const char *name = weir_checkpoint_get_tensor(x->file, i)->name;
        if (!is_needless(c, name) && each_parameter(c, differs, (void *)name))
            return lm_wrong(x->why, "tensor %.100s is not a part of this model", name);
    }
    return true;
}

bool lm_check(lm_config *c, weir_checkpoint *file, const struct lm_why *why)
{
    char name[LM_NAME_BYTES];
    struct comparison x = {.config = c, .file = file, .why = why};
    c->prefix = "";
    if (!weir_checkpoint_find(file, lm_name(c, LM_TOKENS, -1, false, name)))
        c->prefix = table[c->names].prefix;
    return each_parameter(c, compare, &x) && has_no_other(c, &x);
}
