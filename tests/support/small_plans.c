/* tests/support/small_plans.c: see the header. */
#include "graph/compile/actors/passes.h"
#include "tests/support/small_plans.h"

#include "graph/compile/budget/offload.h"
#include "graph/verify/table.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <weir/weir.h>

static weir_status give_nothing(void *ctx, const weir_view *dst, int64_t step, int micro)
{
    (void)ctx, (void)dst, (void)step, (void)micro;
    return WEIR_OK;
}

static weir_status take_nothing(void *ctx, const weir_view *value, int64_t step, int micro)
{
    (void)ctx, (void)value, (void)step, (void)micro;
    return WEIR_OK;
}

static weir_status call_nothing(const weir_kernel_args *args)
{
    (void)args;
    return WEIR_OK;
}

/* ---- mlp ---- */

static weir_plan *mlp(weir_graph *g)
{
    WEIR_ON(weir_mesh_new(g, "cpu:0-2"))
    {
        weir_tensor *x = weir_input(g, WEIR_F32, {7, 5}, .name = "x", .sbp = {S(0)}, .micro = true);
        weir_tensor *labels =
            weir_input(g, WEIR_I32, {7}, .name = "labels", .sbp = {S(0)}, .micro = true, .source = give_nothing);
        weir_tensor *h = weir_relu(weir_linear(x, 6, .name = "up"));
        h = weir_tanh(weir_linear(h, 7, .name = "middle", .weight = {S(1)}));
        weir_tensor *logits = weir_linear(h, 3, .name = "down");
        weir_tensor *loss = weir_cross_entropy(logits, labels, .name = "loss", .ignore = true, .ignore_index = 2);
        weir_fetch(loss, .name = "loss");
        weir_fetch(weir_argmax(logits), .name = "guess", .sink = take_nothing);
        weir_train(loss, weir_adamw(.clip_norm = 1, .weight_decay = 0.1, .warmup = 2, .total = 9), .zero = {true});
    }
    return weir_compile(g, .micro_batches = 2);
}

/* ---- gpt ---- */

enum { BATCH = 4, SEQ = 3, VOCAB = 32, DIM = 8 }; /* so many classes that two devices share them */

static weir_tensor *gpt_block(weir_tensor *x)
{
    weir_tensor *h = weir_layernorm(x, .name = "ln1");
    weir_tensor *q = weir_linear(h, DIM, .name = "q", .weight = {S(1)});
    weir_tensor *k = weir_linear(h, DIM, .name = "k", .weight = {S(1)});
    weir_tensor *v = weir_linear(h, DIM, .name = "v", .weight = {S(1)});
    weir_tensor *a = weir_attention(q, k, v, .heads = 2, .causal = true);
    x = weir_add(x, weir_dropout(weir_linear(a, DIM, .name = "o", .weight = {S(0)}), 0.25));
    h = weir_gelu(weir_linear(weir_rmsnorm(x, .name = "ln2"), 2 * DIM, .name = "up", .weight = {S(1)}));
    return weir_add(x, weir_linear(h, DIM, .name = "down", .weight = {S(0)}));
}

static void gpt_graph(weir_graph *g)
{
    weir_mesh *stage[2] = {weir_mesh_new(g, "cpu:0-1"), weir_mesh_new(g, "cpu:2-3")};
    weir_tensor *x = NULL, *loss = NULL;
    WEIR_ON(stage[0])
    {
        weir_tensor *tokens =
            weir_input(g, WEIR_I32, {BATCH, SEQ}, .name = "tokens", .micro = true, .source = give_nothing);
        x = weir_embedding(tokens, VOCAB, DIM, .name = "wte", .weight = {S(0)});
        x = weir_add(x, weir_param(g, WEIR_F32, {SEQ, DIM}, .name = "wpe", .init = WEIR_NORMAL(0.02)));
        x = gpt_block(x);
    }
    WEIR_ON(stage[1], .name = "h1")
    {
        weir_tensor *labels = weir_input(g, WEIR_I32, {BATCH, SEQ}, .name = "labels", .micro = true);
        weir_tensor *logits = weir_linear(weir_layernorm(gpt_block(x)), VOCAB, .name = "head", .weight = {S(1)});
        loss = weir_cross_entropy(logits, labels, .name = "loss");
    }
    weir_fetch(loss, .name = "loss");
    weir_train(loss, weir_sgd(.momentum = 0.9, .lr = 0.1));
}

static weir_plan *gpt(weir_graph *g)
{
    gpt_graph(g);
    return weir_compile(g, .micro_batches = 2);
}

/* ---- zoo ---- */

static weir_tensor *zoo_elementwise(weir_tensor *p, weir_tensor *row, weir_tensor *column)
{
    weir_tensor *e = weir_exp(weir_mul(p, row)), *s = weir_sigmoid(weir_sub(p, column));
    weir_tensor *a = weir_add(weir_log(weir_affine(e, 1, .shift = 1)), weir_sqrt(weir_affine(s, 2, .shift = 1)));
    weir_tensor *b = weir_div(weir_silu(weir_neg(p)), weir_affine(weir_softmax(a), 1, .shift = 2));
    weir_tensor *many[3] = {a, b, weir_shard(weir_gelu(p), .sbp = {S(0)})};
    return weir_add_many_at(many, 3, WEIR_OPTS(weir_op_opts));
}

/* x [5, 4] */
static weir_tensor *zoo_shapes(weir_tensor *x)
{
    weir_tensor *t = weir_transpose(weir_reshape(x, {5, 2, 2}), {2, 0, 1});            /* [2, 5, 2] */
    weir_tensor *m = weir_matmul(t, weir_reshape(x, {2, 5, 2}), .trans_b = true);      /* [2, 5, 5] */
    weir_tensor *c = weir_concat(2, {m, weir_slice(m, 2, 1, 3)});                      /* [2, 5, 8] */
    return weir_max(c, .axes = {-1}, .axis_count = 1, .keep = true);                   /* [2, 5, 1] */
}

/* x [5, 4] */
static weir_tensor *zoo_windows(weir_graph *g, weir_tensor *x)
{
    weir_tensor *back = weir_param(g, WEIR_F32, {3, 2, 1, 2}, .name = "back", .init = WEIR_NORMAL(0.5));
    weir_tensor *y = weir_conv(weir_reshape(x, {2, 2, 5, 1}), 3, {3, 1}, .pad = {1, 0}, .name = "conv");  /* [2, 3, 5, 1] */
    y = weir_conv_transpose_with(y, back, NULL, .stride = {1, 2}, .output_pad = {0, 1});                 /* [2, 2, 5, 3] */
    y = weir_average_pool(weir_max_pool(y, {2, 2}, .stride = {2, 1}), {2, 1}, .stride = {1, 1});         /* [2, 2, 1, 2] */
    return weir_mean(y);
}

/* x [5, 4]: its rows behind kept ones, from one of the first four positions on. */
static weir_tensor *zoo_rows(weir_tensor *x)
{
    weir_tensor *rows = weir_linear(weir_reshape(x, {1, 5, 4}), 4, .name = "rows", .by_row = true);
    weir_tensor *position = weir_argmax(weir_slice(x, 0, 0, 1)), *kept = weir_concat(1, {rows, rows});
    weir_tensor *half = weir_cast(rows, WEIR_BF16), *halves = weir_concat(1, {half, half});
    weir_tensor *seen = weir_attention_kept(rows, rows, rows, kept, kept, position, .heads = 2);
    return weir_append(kept, weir_add(seen, weir_attention_kept(rows, half, half, halves, halves, position, .heads = 2)), position);
}

/* Values of later steps, one of them three steps later; and rows that are written where they are kept. */
static void zoo_states(weir_graph *g, weir_tensor *p)
{
    weir_tensor *late = weir_state(g, WEIR_F32, {5, 4}, .name = "late", .delay = 3, .init = WEIR_VALUE(1));
    weir_tensor *rows = weir_state(g, WEIR_F32, {9, 4}, .name = "rows_kept", .sbp = {S(1)});
    weir_tensor *place = weir_state(g, WEIR_I32, {0}, .name = "place");
    weir_state_set(late, weir_sub(p, late));
    weir_state_set(place, weir_input(g, WEIR_I32, {0}, .name = "next_place"));
    weir_state_append(rows, late, place);
    weir_fetch(rows, .name = "rows_kept");
}

/* Values that vary in size, on one device and on the other; and all micro-batches at once. */
static void zoo_calls(weir_graph *g, weir_tensor *x)
{
    weir_tensor *some[2], *all = weir_batch(x, 2);
    weir_call_many(some, call_nothing, {x, all}, .name = "some", .queue = "aside",
                   .out = {{WEIR_U8, {7, 2}, .varies = true}, {WEIR_F32, {3}}});
    WEIR_ON(weir_mesh_new(g, "cpu:1"))
        weir_call_many(NULL, call_nothing, {some[0], some[1]}, .name = "none");
    weir_fetch(weir_call(call_nothing, {some[0]}, .name = "fewer", .dtype = WEIR_I32, .shape = {4}, .varies = true,
                         .skips = true), .name = "fewer", .sink = take_nothing);
    weir_fetch(weir_unbatch(all), .name = "each");
    weir_fetch(weir_call(call_nothing, {x}, .name = "part", .dtype = WEIR_F32, .shape = {5}, .sbp = {WEIR_P},
                         .in_sbp = {{WEIR_S(0)}}), .name = "part");
}

static weir_plan *zoo(weir_graph *g)
{
    WEIR_ON(weir_mesh_new(g, "cpu:0-1"))
    {
        weir_tensor *x = weir_input(g, WEIR_F32, {5, 4}, .name = "x", .micro = true);
        weir_tensor *p = weir_param(g, WEIR_F32, {5, 4}, .name = "p", .init = WEIR_UNIFORM(-1, 1));
        weir_tensor *row = weir_param(g, WEIR_F32, {4}, .name = "row", .init = WEIR_VALUE(0.5));
        weir_tensor *column = weir_param(g, WEIR_F32, {5, 1}, .name = "column", .init = WEIR_NORMAL(1));
        weir_tensor *y = zoo_elementwise(weir_add(x, p), row, column);
        weir_tensor *loss = weir_add(weir_mean(y), weir_sum(zoo_shapes(weir_tanh(y))));
        loss = weir_add(loss, zoo_windows(g, y));
        weir_fetch(weir_cast(y, WEIR_U8), .name = "bytes");
        weir_fetch(zoo_rows(x), .name = "rows");
        zoo_states(g, p);
        zoo_calls(g, x);
        weir_fetch(weir_call(call_nothing, {x}, .name = "call", .dtype = WEIR_I32, .shape = {3}), .name = "called",
                   .sink = take_nothing);
        weir_train(loss, weir_sgd(.lr = 0.1));
    }
    return weir_compile(g, .micro_batches = 2);
}

/* ---- choices ---- */

static weir_tensor *choices_functions(weir_tensor *x)
{
    weir_tensor *all[] = {weir_abs(x),        weir_sin(x),      weir_cos(x),   weir_erf(x),  weir_gelu_erf(x), weir_reciprocal(x),
                          weir_softplus(x),   weir_floor(x),    weir_ceil(x),  weir_round(x), weir_sign(x)};
    return weir_add_many_at(all, sizeof all / sizeof *all, WEIR_OPTS(weir_op_opts));
}

/* Functions of elements, comparisons, and what goes by them. */
static weir_plan *choices(weir_graph *g)
{
    WEIR_ON(weir_mesh_new(g, "cpu:0-1"))
    {
        weir_tensor *x = weir_input(g, WEIR_F32, {3, 4}, .name = "x", .sbp = {S(0)}, .micro = true);
        weir_tensor *id = weir_input(g, WEIR_I64, {4}, .name = "id");
        weir_tensor *p = weir_param(g, WEIR_F32, {3, 4}, .name = "p", .init = WEIR_UNIFORM(1, 2));
        weir_tensor *row = weir_param(g, WEIR_F32, {4}, .name = "row", .init = WEIR_VALUE(0.5));
        weir_tensor *some = weir_or(weir_less(x, p), weir_and(weir_not(weir_equal(id, weir_abs(id))), weir_is_nan(x)));
        some = weir_xor(some, weir_less_equal(x, row));
        weir_tensor *y = weir_where(some, choices_functions(p), weir_pow(p, row));
        weir_fetch(weir_where(some, id, weir_neg(id)), .name = "chosen");
        weir_train(weir_mean(weir_min2(weir_clip(y, .hi = 2), weir_max2(weir_add(x, p), row))), weir_sgd());
    }
    return weir_compile(g, .micro_batches = 2);
}

/* ---- elements by index ---- */

/* Values without inputs, parts by steps and ids, other sizes, sums and the largest along a line. */
static weir_plan *indexes(weir_graph *g)
{
    WEIR_ON(weir_mesh_new(g, "cpu:0-1"))
    {
        weir_tensor *x = weir_input(g, WEIR_F32, {4, 3}, .name = "x", .sbp = {S(0)}, .micro = true), *at;
        weir_tensor *p = weir_param(g, WEIR_F32, {4, 3}, .name = "p", .init = WEIR_UNIFORM(1, 2));
        weir_tensor *h = weir_mul(x, weir_add(p, weir_add(weir_range(g, WEIR_F32, 3), weir_constant(g, WEIR_F32, {4, 1}, .value = 0.5))));
        weir_tensor *best = weir_top_k(weir_slice(h, 0, 3, 2, .step = -2), 2, -1, &at), *ids = weir_argmax(h, .axis = 1); /* [2, 2] and [4] */
        weir_tensor *wide = weir_resize(weir_cumsum(h, 1), {4, 5}, .mode = WEIR_RESIZE_LINEAR);
        weir_tensor *all = weir_add(weir_sum(weir_gather(h, ids, 0)), weir_sum(weir_gather_nd(h, weir_reshape(ids, {4, 1}), 0)));
        all = weir_add(all, weir_sum(weir_gather_elements(h, weir_reshape(ids, {4, 1}), 1)));
        all = weir_add(all, weir_add(weir_mean(wide), weir_mean(weir_prod(h, .axes = {1}, .axis_count = 1))));
        weir_fetch(at, .name = "where");
        weir_train(weir_add(all, weir_sum(best)), weir_sgd());
    }
    return weir_compile(g, .micro_batches = 2);
}

/* ---- llama ---- */

/* Attention of queries and keys that turn by their positions. */
static weir_tensor *llama_linear(weir_tensor *x, int64_t out, weir_sbp weight)
{
    return weir_linear(x, out, .no_bias = true, .weight = {weight});
}

static weir_tensor *llama_block(weir_tensor *x, weir_tensor *places, weir_tensor *mask)
{
    weir_tensor *h = weir_rmsnorm(x), *q = weir_rope(llama_linear(h, DIM, S(1)), NULL, .heads = 4);
    weir_tensor *k = weir_rope(llama_linear(h, DIM / 2, S(1)), places, .heads = 2, .interleaved = true);
    weir_tensor *v = llama_linear(h, DIM / 2, S(1));
    weir_tensor *a = weir_attention(q, k, v, .heads = 4, .kv_heads = 2, .causal = true, .window = 2, .mask = mask);
    x = weir_add(x, llama_linear(a, DIM, S(0)));
    return weir_add(x, llama_linear(weir_silu(llama_linear(weir_rmsnorm(x), 2 * DIM, S(1))), DIM, S(0)));
}

/* Products with weights as they are stored, x [.., DIM]. */
static weir_tensor *llama_stored(weir_graph *g, weir_tensor *x, weir_tensor *tokens)
{
    weir_tensor *up = weir_input(g, WEIR_U8, {DIM, 1, 20}, .name = "up", .source = give_nothing);
    weir_tensor *table = weir_input(g, WEIR_U8, {VOCAB, 1, 34}, .name = "table", .source = give_nothing);
    weir_tensor *wide = weir_concat(2, {x, x, x, x}); /* a block */
    x = weir_add(x, weir_linear_stored(wide, weir_shard(up, .sbp = {S(0)}), .format = WEIR_Q4_1));
    return weir_add(x, weir_slice(weir_embedding_stored(tokens, table, .format = WEIR_Q8_0), 2, 0, DIM));
}

static weir_plan *llama(weir_graph *g)
{
    WEIR_ON(weir_mesh_new(g, "cpu:0-1"))
    {
        weir_tensor *tokens = weir_input(g, WEIR_I32, {BATCH, SEQ}, .name = "tokens", .micro = true);
        weir_tensor *places = weir_input(g, WEIR_I32, {BATCH, SEQ}, .name = "places", .micro = true);
        weir_tensor *mask = weir_input(g, WEIR_F32, {BATCH, SEQ}, .name = "mask", .micro = true);
        weir_tensor *x = llama_block(llama_block(weir_embedding(tokens, VOCAB, DIM), places, mask), places, mask);
        x = llama_stored(g, x, tokens);
        weir_tensor *row = weir_slice(x, 1, 0, 1), *few = weir_slice(x, 2, 0, DIM / 2), *first = weir_slice(few, 1, 0, 1);
        weir_tensor *at = weir_argmax(weir_slice(weir_reshape(mask, {BATCH * SEQ}), 0, 0, SEQ));
        weir_fetch(weir_attention_kept(row, first, first, few, few, at, .heads = 4, .kv_heads = 2, .window = 2), .name = "next");
        weir_train(weir_cross_entropy(weir_linear(weir_rmsnorm(x), VOCAB, .no_bias = true), tokens), weir_adamw(.clip_norm = 1));
    }
    return weir_compile(g, .micro_batches = 2);
}

/* ---- optimizers ---- */

static weir_plan *updated(weir_graph *g, weir_optimizer optimizer)
{
    WEIR_ON(weir_mesh_new(g, "cpu:0-1"))
    {
        weir_tensor *x = weir_input(g, WEIR_F32, {2, 3}, .name = "x", .sbp = {S(0)}, .micro = true), *y = weir_linear(x, 4);
        weir_train(weir_mean(weir_mul(y, y)), optimizer, .ema = 0.9, .norm = "norm");
    }
    return weir_compile(g);
}

static weir_plan *adam(weir_graph *g)
{
    return updated(g, weir_adam(.warmup = 2, .total = 5, .schedule = WEIR_SCHEDULE_LINEAR, .groups = {{.match = "*bias", .clip_norm = 1}}));
}

static weir_plan *adagrad(weir_graph *g)
{
    return updated(g, weir_adagrad());
}

static weir_plan *lion(weir_graph *g)
{
    return updated(g, weir_lion(.weight_decay = 0.1));
}

static weir_plan *lamb(weir_graph *g)
{
    return updated(g, weir_lamb(.clip_norm = 1));
}

static weir_plan *nesterov(weir_graph *g)
{
    return updated(g, weir_sgd(.momentum = 0.9, .nesterov = true));
}

/* ---- pair ---- */

static weir_tensor *pair_model(weir_graph *g, int64_t rows)
{
    weir_tensor *x = weir_input(g, WEIR_F32, {rows, 5}, .name = "x", .sbp = {S(0)}, .micro = true);
    weir_tensor *h = weir_tanh(weir_linear(weir_dropout(x, 0.25), 6, .name = "up", .weight = {S(1)}));
    weir_tensor *y = weir_linear(h, 3, .name = "down");
    weir_fetch(y, .name = "y");
    return weir_mean(weir_mul(y, y));
}

/* Two programs over the same parameters, each of which reads a state that the other sets; in f16. */
static weir_plan *pair(weir_graph *g)
{
    WEIR_ON(weir_mesh_new(g, "cpu:0-1"))
    {
        weir_tensor *mine = weir_state(g, WEIR_F32, {4}, .name = "mine", .init = WEIR_VALUE(1));
        weir_tensor *theirs = weir_state(g, WEIR_F32, {4}, .name = "theirs");
        weir_train(pair_model(g, 7), weir_adamw(), .zero = {true});
        weir_state_set(mine, weir_add(mine, theirs));
        WEIR_PROGRAM(g, "look")
        {
            weir_fetch(pair_model(g, 4), .name = "loss");
            weir_state_set(theirs, weir_sub(theirs, mine));
            weir_fetch(mine, .name = "mine");
        }
    }
    return weir_compile(g, .micro_batches = 2, .precision = WEIR_F16);
}

/* The zoo again, with whatever can be done in one pass done so, however small. */
static weir_plan *chains(weir_graph *g)
{
    uint64_t min = fuse_bytes_min;
    fuse_bytes_min = 1;
    weir_plan *plan = zoo(g);
    fuse_bytes_min = min;
    return plan;
}

/* In as little memory as can be, with all that may wait on a disk there. */
static weir_plan *filed(weir_graph *g)
{
    uint64_t own = group_own_bytes;
    double window = offload_window;
    char limit[32] = "1";
    weir_plan *plan = NULL;
    group_own_bytes = PLAN_ALIGN;
    offload_window = 0;
    for (int i = 0; i < 2 && !plan; i++) {
        plan = weir_compile(g, .micro_batches = 2, .memory = limit, .offload = "disk:/tmp");
        const char *least = plan ? NULL : strstr(weir_error(), "would do is ");
        if (least)
            snprintf(limit, sizeof limit, "%llu", strtoull(least + strlen("would do is "), NULL, 10));
    }
    group_own_bytes = own;
    offload_window = window;
    return plan;
}

/* A network of which most is states of the optimizer's. */
static weir_plan *filed_states(weir_graph *g, weir_optimizer optimizer)
{
    WEIR_ON(weir_mesh_new(g, "cpu:0-1"))
    {
        weir_tensor *x = weir_input(g, WEIR_F32, {2, 24}, .name = "x", .sbp = {S(0)}, .micro = true);
        for (int layer = 0; layer < 5; layer++)
            x = weir_tanh(weir_linear(x, 24));
        weir_train(weir_mean(weir_mul(x, x)), optimizer, .zero = {true});
    }
    return filed(g);
}

static weir_plan *filed_adamw(weir_graph *g)
{
    return filed_states(g, weir_adamw(.clip_norm = 1));
}

static weir_plan *filed_sgd(weir_graph *g)
{
    return filed_states(g, weir_sgd(.momentum = 0.9, .lr = 0.1));
}

static weir_plan *filed_adam(weir_graph *g)
{
    return filed_states(g, weir_adam());
}

static weir_plan *filed_adagrad(weir_graph *g)
{
    return filed_states(g, weir_adagrad());
}

static weir_plan *filed_lion(weir_graph *g)
{
    return filed_states(g, weir_lion());
}

static weir_plan *filed_nesterov(weir_graph *g)
{
    return filed_states(g, weir_sgd(.momentum = 0.9, .nesterov = true));
}

static weir_plan *filed_gpt(weir_graph *g)
{
    gpt_graph(g);
    return filed(g);
}

static weir_plan *make(int which, bool with_graph)
{
    static weir_plan *(*const makers[SMALL_PLANS])(weir_graph *g) = {mlp, gpt, zoo, pair, chains, filed_adamw,
                                                                        filed_gpt, filed_sgd, choices, indexes, adam, adagrad, lion, lamb,
                                                                        nesterov, filed_adam, filed_adagrad, filed_lion, filed_nesterov, llama};
    weir_graph *g = weir_graph_new("small");
    weir_plan *plan = g ? makers[which](g) : NULL;
    if (!plan || (with_graph && table_keep(plan, g))) {
        fprintf(stderr, "small plan %d: %s\n", which, weir_error());
        abort();
    }
    weir_graph_free(g);
    free(plan->bindings);
    plan->bindings = NULL;
    return plan;
}

weir_plan *small_plan(int which)
{
    return make(which, false);
}

weir_plan *small_plan_with_graph(int which)
{
    return make(which, true);
}
