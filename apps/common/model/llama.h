/* apps/common/model/llama.h: a Llama (Touvron et al. 2023) as a weir graph that goes on with a text, one token a step.
 *
 *     token -> token_embd -> block 0 -> ... -> block n-1 -> output_norm -> output -> logits -> next
 *     block: x + o(attention(rope(q), rope(k), v of attn_norm(x))), then x + down(silu(gate) * up) of ffn_norm(x)
 *
 * Parameters have the names and shapes of a GGUF file (blk.0.attn_q.weight [out, in]), so a session loads the file itself. They are
 * frozen. Keys and values of earlier tokens are states.
 */
#ifndef APPS_COMMON_MODEL_LLAMA_H
#define APPS_COMMON_MODEL_LLAMA_H

#include <weir/weir.h>

typedef struct llama_config {
    int layers, dim, heads, kv_heads, ffn, vocab;
    int context;        /* tokens that the model was trained to see */
    int room;           /* tokens that are kept, at most `context` */
    double eps;         /* of the norms */
    double rope_base;
    int last;           /* the token that ends a text; -1: the file names none */
    bool tied;          /* token_embd is the output's weight, too */
    bool logits;        /* they are fetched */
} llama_config;

/* Reads the sizes from the metadata of a GGUF file. False: `why` is a sentence that names the file. */
bool llama_read(const char *path, llama_config *c, char *why, size_t why_bytes);

/* Inputs `token` i32 [1, 1] and `position` i32; fetches `next` i32 [1, 1], the likeliest token, and `logits` f32 [1, 1, vocab] if they are
 * wanted. Owned by the caller. NULL and weir_error(). */
weir_graph *llama_graph(const llama_config *c);

#endif
