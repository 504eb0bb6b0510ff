/* apps/common/model/lm.h: language models that people have, as weir graphs: read from a Hugging Face folder or a GGUF file, written with
 * and trained.
 *
 *     DIR/config.json, DIR/model.safetensors        gpt2, llama (2, 3, SmolLM), mistral, qwen2, qwen3, smollm3
 *     FILE.gguf                                     gpt2, llama (mistral, too), qwen2, qwen3
 *
 *          tokens [+ positions] -> block 0 -> ... -> block n-1 -> norm -> head -> logits
 *          block: x + O(attention(rope(Q), rope(K), V of norm(x))), then x + down(act(gate) * up) of norm(x)
 *
 * lm_config describes a model by its sizes and by what its blocks have: biases, norms of q and k, a window, positions by rope or
 * learned. One graph is built from that, whatever the architecture is called. lm_read() fills it in. It refuses in one sentence each
 * setting of a file that changes the result and is not supported, and each tensor that is missing, has another shape, or is not part
 * of the model.
 *
 * Parameters are called as in the file and have its shapes (model.layers.0.self_attn.q_proj.weight [out, in]; GPT-2's folders have
 * [in, out]), so a session loads the file itself. With .stored, matrices that nothing trains stay in the file: they are mapped, which
 * only CPUs can read, and products read them in the type that they have there, quantised or not. The rest (norms, biases, GPT-2's
 * positions, its weights of blocks in a folder, F64, values that are not aligned in the file) is loaded as f32. Keys and values of
 * earlier tokens are states, c->room rows of each block.
 *
 * A graph that writes has two programs over the same parameters and states:
 *
 *     main     one token: inputs `token` i32 [1, 1] and `position` i32 []; fetches `logits` f32 [1, vocab]. The step keeps the token's
 *              keys and values.
 *     prompt   c->chunk tokens at once (none if that is 0): inputs `prompt/token` i32 [1, chunk], `prompt/position` and `prompt/last`
 *              i32 []; fetches `prompt/logits` f32 [1, vocab] of the row `last`. Rows behind `last` may hold any token: no other row
 *              sees them. lm_keep() then keeps the rows that are real.
 *
 * One program alone may set a state, and main is that one. So prompt leaves its keys and values in states of its own
 * (blk.0.keys.new), and lm_keep() copies as many rows as are real into the states of main, in place: nothing behind the last real row
 * is ever kept. A chunk needs room for all of its rows: position + chunk <= room. Tokens near the end of the room go through main.
 *
 * A graph is built by one thread. lm_keep() needs a session at rest, and is called on every rank. Texts in lm_config are its own.
 */
#ifndef APPS_COMMON_MODEL_LM_H
#define APPS_COMMON_MODEL_LM_H

#include "apps/common/train/layout.h"

#include <weir/weir.h>

enum { LM_LAYERS_MAX = 512, LM_ENDS_MAX = 16, LM_PATH_BYTES = 4096, LM_NAME_BYTES = 160 };

/* The parameters of a model: the first four exist once, the others in each block. */
typedef enum lm_part {
    LM_TOKENS, LM_POSITIONS, LM_OUT_NORM, LM_HEAD,
    LM_ATTENTION_NORM, LM_BLOCK_PARTS = LM_ATTENTION_NORM, LM_Q, LM_K, LM_V, LM_QKV, LM_O, LM_Q_NORM, LM_K_NORM, LM_FFN_NORM, LM_GATE, LM_UP, LM_DOWN,
    LM_PARTS
} lm_part;

typedef enum lm_activation { LM_SILU, LM_GELU_TANH, LM_GELU_ERF, LM_RELU, LM_ACTIVATIONS } lm_activation;

/* A product with a weight of the model, for an adapter beside it. */
typedef struct lm_product {
    lm_part part;
    int block;        /* -1: the head */
    const char *name; /* of the layer: "model.layers.0.self_attn.q_proj"; borrowed for the call */
    bool splits_out, splits_in; /* the weight's outputs, or inputs, are split over TP */
} lm_product;
/* Returns the product as the model goes on with it: `base`, or weir_lora(x, base, ...). */
typedef weir_tensor *(*lm_adapt_fn)(void *ctx, weir_tensor *x, weir_tensor *base, const lm_product *of);

typedef struct lm_config {
    char weights[LM_PATH_BYTES]; /* the file of the parameters, or its index of shards */
    int names;        /* of the file: a row of a table of lm_parts.c */
    const char *prefix; /* before the names of all but the head: "model."; static */
    int layers, dim, heads, kv_heads, head_dim, ffn, vocab;
    int context;      /* tokens that the model was trained to see */
    int room;         /* tokens that are kept, at most `context` */
    int chunk;        /* tokens of the program "prompt"; 0: there is none. At most `room` */
    int window;       /* of blocks with .windowed: a token sees so many, itself among them; 0: all */
    double eps;       /* of the norms */
    double rope_base;
    weir_rope_scaling rope_scaling;
    int rotary_dim;   /* columns of each head that turn */
    lm_activation activation;
    int begin;        /* the token that begins a text; -1: none */
    int ends[LM_ENDS_MAX], ends_count; /* tokens that end a text */
    bool learned;     /* positions are a table, and nothing turns */
    bool interleaved; /* a pair that turns is columns 2i and 2i + 1 */
    bool centred;     /* norms subtract the mean and have a bias */
    bool gated;       /* down(act(gate) * up), else down(act(up)) */
    bool joined;      /* one weight for q, k and v */
    bool in_first;    /* weights of blocks are [in, out] */
    bool qkv_bias, o_bias, ffn_bias, qk_norm;
    bool tied;        /* the table of tokens is the head's weight, too */
    struct { bool turns, windowed; } layer[LM_LAYERS_MAX];
    struct lm_type { uint8_t dtype, format; } type[LM_PARTS][LM_LAYERS_MAX]; /* of each matrix in the file: weir_dtype (none: it
                                                                                cannot be mapped), weir_format */
    weir_dtype kept;  /* of keys and values [WEIR_F32] */
    bool stored;      /* matrices are used as they are stored, see above */
    bool f32_activations; /* products with stored matrices do not round the other factor */
    int tp;           /* of graphs that write: devices that share each matrix [1] */
    lm_adapt_fn adapt; /* [none] */
    void *adapt_ctx;
} lm_config;

/* Reads the sizes of a GGUF file, or of a folder, and compares the tensors of its files with them. `room` is `context` then, and
 * `chunk` 0. False: `why` is a sentence that names the file. */
bool lm_read(const char *path, lm_config *c, char *why, size_t why_bytes);
bool lm_is_end(const lm_config *c, int64_t token);

/* Whether the part's weights are [in, out]. */
static inline bool lm_in_first(const lm_config *c, lm_part part)
{
    return c->in_first && part >= LM_BLOCK_PARTS;
}

/* The shape of a parameter in the file. False: the model has none. */
bool lm_shape(const lm_config *c, lm_part part, bool bias, weir_shape *shape);
/* Its name. `block` is -1 for those that exist once. */
const char *lm_name(const lm_config *c, lm_part part, int block, bool bias, char name[LM_NAME_BYTES]);

/* The state of a block's keys, or values: "blk.0.keys". */
const char *lm_state_name(int block, bool values, char name[LM_NAME_BYTES]);

/* A graph that writes, as above. Owned by the caller. NULL and weir_error(). */
weir_graph *lm_graph(const lm_config *c);

/* The path for weir_session_open(.weights); NULL: the graph maps nothing. */
const char *lm_mapped(const lm_config *c);

/* Reads the parameters that are not mapped; what an adapter added stays as it is. */
weir_status lm_load(weir_session *session, const lm_config *c);

/* Keeps the first `rows` of the last run of "prompt", which began at `position`. */
weir_status lm_keep(weir_session *session, const lm_config *c, int position, int rows);

/* ---- training ---- */

#define LM_EVAL "eval"                 /* the program that evaluates */
#define LM_EVAL_LOSS "validation_loss" /* the state that it adds to */
enum { LM_IGNORED = -1 };              /* a label that does not count */

typedef struct lm_training {
    int batch, seq;            /* rows of a step, over all micro-batches and devices, and tokens of each; at most `context` */
    layout layout;
    const char *device;        /* kind of device; NULL: "cpu" */
    bool frozen;               /* the parameters of the file are not trained; those that .adapt adds are */
    bool recompute;
    weir_optimizer optimizer;
    const char *norm;          /* the norm of all gradients is fetched under this name; NULL: it is not */
    weir_source_fn tokens, labels; /* i32 [rows of a micro-batch, seq]; NULL: they are pushed */
    weir_source_fn eval_tokens, eval_labels; /* of the program LM_EVAL; NULL: there is none */
    weir_source_save_fn save;  /* of `tokens` [none] */
    weir_source_restore_fn restore;
    void *ctx;                 /* of all of them; borrowed as long as sessions of the plan run */
} lm_training;

/* A graph that trains: inputs `tokens` and `labels`, and the fetches `loss`, the sum over the labels that are not LM_IGNORED, and
 * `count`, their number, both once per micro-batch. The gradient is that of the sum over a step divided by the count of the step.
 * A label belongs to the token of its own row and column: it is the token that comes next. LM_EVAL adds {sum, count} to the state
 * LM_EVAL_LOSS [2]. To be compiled with .micro_batches = layout.micro. */
weir_graph *lm_train_graph(const lm_config *c, const lm_training *t);

#endif
