/* test_gradients_b.c: the gradient builders of products, norms, attention, embedding and losses against finite
 * differences, built in the DSL as a user would. */
#include "tests/support/gradient_check.h"

#include <criterion/criterion.h>
#include <string.h>

#define SEED 4711 /* of all random values here */
#define TOLERANCE 2e-3

static weir_tensor *param(weir_graph *g, const char *name, int64_t a, int64_t b, int64_t c)
{
    return weir_param(g, WEIR_F32, {a, b, c}, .name = name);
}

/* ---- products ---- */

static weir_tensor *linear_stack(weir_graph *g)
{
    weir_tensor *x = param(g, "x", 2, 3, 5);
    return weir_linear(weir_linear(x, 7), 4, .no_bias = true);
}

Test(linear, gradient, .timeout = 120)
{
    gradient_check(linear_stack, SEED, TOLERANCE);
}

static weir_tensor *matmul_nn(weir_graph *g)
{
    return weir_matmul(param(g, "a", 3, 4, 0), param(g, "b", 4, 5, 0));
}
static weir_tensor *matmul_tn(weir_graph *g)
{
    return weir_matmul(param(g, "a", 4, 3, 0), param(g, "b", 4, 5, 0), .trans_a = true);
}
static weir_tensor *matmul_nt(weir_graph *g)
{
    return weir_matmul(param(g, "a", 3, 4, 0), param(g, "b", 5, 4, 0), .trans_b = true);
}
static weir_tensor *matmul_tt(weir_graph *g)
{
    return weir_matmul(param(g, "a", 4, 3, 0), param(g, "b", 5, 4, 0), .trans_a = true, .trans_b = true);
}

#define BROADCAST_MODEL(name, a, b, ...)                                                                          \
    static weir_tensor *name(weir_graph *g)                                                                       \
    {                                                                                                             \
        return weir_matmul(weir_reshape(param(g, "a", 2, 3, 4), a), weir_reshape(param(g, "b", 3, 4, 5), b), __VA_ARGS__); \
    }
#define DIMS(...) {__VA_ARGS__}
BROADCAST_MODEL(broadcast_both, DIMS(2, 1, 3, 4), DIMS(3, 4, 5), .trans_a = false)
BROADCAST_MODEL(broadcast_a, DIMS(6, 4), DIMS(3, 4, 5), .trans_a = false)
BROADCAST_MODEL(broadcast_b, DIMS(2, 3, 4), DIMS(1, 4, 15), .trans_a = false)
BROADCAST_MODEL(broadcast_tn, DIMS(2, 1, 4, 3), DIMS(3, 4, 5), .trans_a = true)
BROADCAST_MODEL(broadcast_nt, DIMS(2, 1, 3, 4), DIMS(3, 5, 4), .trans_b = true)
BROADCAST_MODEL(broadcast_tt, DIMS(4, 6), DIMS(3, 5, 4), .trans_a = true, .trans_b = true)

Test(matmul, gradient_of_batches_that_broadcast, .timeout = 120)
{
    const gradient_model models[] = {broadcast_both, broadcast_a, broadcast_b, broadcast_tn, broadcast_nt, broadcast_tt};
    for (size_t m = 0; m < sizeof models / sizeof *models; m++)
        gradient_check(models[m], SEED, TOLERANCE);
}

Test(matmul, gradient, .timeout = 120)
{
    gradient_check(matmul_nn, SEED, TOLERANCE);
    gradient_check(matmul_tn, SEED, TOLERANCE);
    gradient_check(matmul_nt, SEED, TOLERANCE);
    gradient_check(matmul_tt, SEED, TOLERANCE);
}

static weir_tensor *batched_nn(weir_graph *g)
{
    return weir_matmul(param(g, "a", 2, 3, 4), param(g, "b", 2, 4, 5));
}
static weir_tensor *batched_tn(weir_graph *g)
{
    return weir_matmul(param(g, "a", 2, 4, 3), param(g, "b", 2, 4, 5), .trans_a = true);
}
static weir_tensor *batched_nt(weir_graph *g)
{
    return weir_matmul(param(g, "a", 2, 3, 4), param(g, "b", 2, 5, 4), .trans_b = true);
}
static weir_tensor *batched_tt(weir_graph *g)
{
    return weir_matmul(param(g, "a", 2, 4, 3), param(g, "b", 2, 5, 4), .trans_a = true, .trans_b = true);
}

Test(matmul, gradient_of_batches, .timeout = 120)
{
    gradient_check(batched_nn, SEED, TOLERANCE);
    gradient_check(batched_tn, SEED, TOLERANCE);
    gradient_check(batched_nt, SEED, TOLERANCE);
    gradient_check(batched_tt, SEED, TOLERANCE);
}

static weir_tensor *shared_nn(weir_graph *g)
{
    return weir_matmul(param(g, "a", 2, 3, 4), param(g, "b", 4, 5, 0));
}
static weir_tensor *shared_tn(weir_graph *g)
{
    return weir_matmul(param(g, "a", 2, 4, 3), param(g, "b", 4, 5, 0), .trans_a = true);
}
static weir_tensor *shared_nt(weir_graph *g)
{
    return weir_matmul(param(g, "a", 2, 3, 4), param(g, "b", 5, 4, 0), .trans_b = true);
}
static weir_tensor *shared_tt(weir_graph *g)
{
    return weir_matmul(param(g, "a", 2, 4, 3), param(g, "b", 5, 4, 0), .trans_a = true, .trans_b = true);
}

Test(matmul, gradient_of_one_b_for_all_batches, .timeout = 120)
{
    gradient_check(shared_nn, SEED, TOLERANCE);
    gradient_check(shared_tn, SEED, TOLERANCE);
    gradient_check(shared_nt, SEED, TOLERANCE);
    gradient_check(shared_tt, SEED, TOLERANCE);
}

/* ---- norms ---- */

static weir_tensor *layernorm(weir_graph *g)
{
    return weir_layernorm(param(g, "x", 2, 3, 20));
}
static weir_tensor *rmsnorm(weir_graph *g)
{
    return weir_rmsnorm(param(g, "x", 2, 3, 20));
}

Test(norm, gradient, .timeout = 120)
{
    gradient_check(layernorm, SEED, TOLERANCE);
    gradient_check(rmsnorm, SEED, TOLERANCE);
}

/* ---- language models ---- */

static weir_tensor *attention(weir_graph *g)
{
    return weir_attention(param(g, "q", 2, 5, 6), param(g, "k", 2, 7, 6), param(g, "v", 2, 7, 6), .heads = 3);
}
static weir_tensor *attention_causal(weir_graph *g)
{
    return weir_attention(param(g, "q", 1, 9, 8), param(g, "k", 1, 9, 8), param(g, "v", 1, 9, 8), .heads = 2,
                          .causal = true);
}

static weir_tensor *attention_of_groups(weir_graph *g)
{
    return weir_attention(param(g, "q", 2, 5, 12), param(g, "k", 2, 7, 4), param(g, "v", 2, 7, 4), .heads = 6, .kv_heads = 2);
}
static weir_tensor *attention_in_a_window(weir_graph *g)
{
    return weir_attention(param(g, "q", 1, 9, 8), param(g, "k", 1, 9, 4), param(g, "v", 1, 9, 4), .heads = 2, .kv_heads = 1,
                          .causal = true, .window = 3);
}
/* Row 0 of a sequence whose first ids are 0 sees nothing. */
static weir_tensor *attention_masked(weir_graph *g)
{
    weir_tensor *ids = weir_input(g, WEIR_I32, {2, 7}, .name = "ids"), *zero = weir_constant(g, WEIR_I32, {1});
    return weir_attention(param(g, "q", 2, 7, 6), param(g, "k", 2, 7, 6), param(g, "v", 2, 7, 6), .heads = 3, .causal = true,
                          .mask = weir_greater(ids, zero));
}
static weir_tensor *attention_biased(weir_graph *g)
{
    weir_tensor *bias = weir_range(g, WEIR_F32, 30, .start = -1, .step = 0.1);
    return weir_attention(param(g, "q", 2, 5, 6), param(g, "k", 2, 3, 6), param(g, "v", 2, 3, 6), .heads = 2,
                          .mask = weir_reshape(bias, {1, 2, 5, 3}));
}

Test(attention, gradient, .timeout = 120)
{
    gradient_check(attention, SEED, TOLERANCE);
    gradient_check(attention_causal, SEED, TOLERANCE);
    gradient_check(attention_of_groups, SEED, TOLERANCE);
    gradient_check(attention_in_a_window, SEED, TOLERANCE);
    gradient_check(attention_masked, SEED, TOLERANCE);
    gradient_check(attention_biased, SEED, TOLERANCE);
}

static weir_tensor *rope(weir_graph *g)
{
    return weir_rope(param(g, "x", 2, 5, 12), NULL, .heads = 3, .base = 100);
}
static weir_tensor *rope_of_pairs(weir_graph *g)
{
    weir_tensor *places = weir_input(g, WEIR_I32, {2, 5}, .name = "ids");
    return weir_rope(param(g, "x", 2, 5, 12), places, .heads = 2, .rotary_dim = 4, .interleaved = true,
                     .scaling = {.factor = 4, .low_freq_factor = 1, .high_freq_factor = 4, .original_max_position = 12});
}

Test(rope, gradient, .timeout = 120)
{
    gradient_check(rope, SEED, TOLERANCE);
    gradient_check(rope_of_pairs, SEED, TOLERANCE);
}

static weir_tensor *embedding(weir_graph *g)
{
    weir_tensor *ids = weir_input(g, WEIR_I32, {2, 4}, .name = "ids");
    return weir_embedding(ids, 10, 3);
}

Test(embedding, gradient, .timeout = 120)
{
    gradient_check(embedding, SEED, TOLERANCE);
}

static weir_tensor *cross_entropy(weir_graph *g)
{
    weir_tensor *labels = weir_input(g, WEIR_I32, {3, 4}, .name = "labels");
    return weir_cross_entropy(param(g, "logits", 3, 4, 10), labels);
}
static weir_tensor *cross_entropy_ignore(weir_graph *g)
{
    weir_tensor *labels = weir_input(g, WEIR_I32, {30}, .name = "labels");
    return weir_cross_entropy(param(g, "logits", 30, 10, 0), labels, .ignore = true, .ignore_index = 3);
}

static weir_tensor *mse(weir_graph *g)
{
    return weir_mse(param(g, "x", 3, 5, 0), param(g, "y", 5, 0, 0));
}
static weir_tensor *binary_cross_entropy(weir_graph *g)
{
    return weir_binary_cross_entropy(param(g, "x", 3, 5, 0), weir_sigmoid(param(g, "t", 3, 5, 0)), .sum = true);
}
static weir_tensor *tied(weir_graph *g)
{
    weir_tensor *ids = weir_input(g, WEIR_I32, {4, 3}, .name = "ids");
    weir_tensor *h = weir_embedding(ids, 10, 6, .name = "table"), *up = weir_linear(weir_tanh(h), 5, .name = "up");
    return weir_add(weir_mean(weir_tied(weir_tanh(h), h)), weir_mean(weir_tied(weir_tanh(up), up)));
}

Test(losses_of_elements, gradient, .timeout = 120)
{
    gradient_check(mse, SEED, TOLERANCE);
    gradient_check(binary_cross_entropy, SEED, TOLERANCE);
}

Test(tied, gradient, .timeout = 120)
{
    gradient_check(tied, SEED, TOLERANCE);
}

Test(cross_entropy, gradient, .timeout = 120)
{
    gradient_check(cross_entropy, SEED, TOLERANCE);
    gradient_check(cross_entropy_ignore, SEED, TOLERANCE);
}

/* ---- together ---- */

static weir_tensor *block(weir_graph *g)
{
    weir_tensor *ids = weir_input(g, WEIR_I32, {2, 6}, .name = "ids");
    weir_tensor *x = weir_embedding(ids, 10, 8, .init = WEIR_NORMAL(1));
    weir_tensor *h = weir_layernorm(x);
    weir_tensor *q = weir_linear(h, 8), *k = weir_linear(h, 8), *v = weir_linear(h, 8);
    weir_tensor *a = weir_attention(q, k, v, .heads = 2, .causal = true);
    x = weir_add(x, weir_linear(a, 8));
    x = weir_add(x, weir_linear(weir_gelu(weir_linear(weir_rmsnorm(x), 16)), 8));
    return weir_cross_entropy(weir_linear(x, 10), ids);
}

Test(model, gradient_of_a_transformer_block, .timeout = 120)
{
    gradient_check(block, SEED, TOLERANCE);
}

/* ---- mistakes ---- */

static void expect_mistake(weir_graph *g, const char *sentence)
{
    const char *mistake = weir_graph_mistake(g);
    cr_assert_not_null(mistake);
    cr_assert_not_null(strstr(mistake, sentence), "%s", mistake);
    weir_graph_free(g);
}

Test(dsl, mistakes_are_named_and_stick, .timeout = 120)
{
    weir_graph *g = weir_graph_new("wrong");
    weir_tensor *y = weir_linear(param(g, "x", 3, 0, 0), 4);
    cr_assert(weir_tensor_poisoned(weir_layernorm(weir_linear(weir_embedding(y, 3, 3), 5))));
    expect_mistake(g, "linear: x has 1 dimensions");
    g = weir_graph_new("wrong");
    weir_linear(param(g, "x", 3, 4, 0), 0);
    expect_mistake(g, "linear: the size of the output is 0");
    g = weir_graph_new("wrong");
    weir_tensor *x = param(g, "x", 1, 3, 8);
    weir_attention(x, x, x, .heads = 3);
    expect_mistake(g, "attention: 3 heads do not divide dim 8");
    g = weir_graph_new("wrong");
    x = param(g, "x", 1, 3, 8);
    weir_attention(x, x, x, .heads = 4, .kv_heads = 3);
    expect_mistake(g, "attention: .kv_heads is 3; it needs to divide .heads, 4");
    g = weir_graph_new("wrong");
    x = param(g, "x", 1, 3, 8);
    weir_attention(x, x, x, .heads = 4, .kv_heads = 2);
    expect_mistake(g, "attention: dim of k is 8; 2 heads of 2 need 4. Fewer heads of k need .kv_heads");
    g = weir_graph_new("wrong");
    x = param(g, "x", 1, 3, 8);
    weir_attention(x, x, x, .window = 2);
    expect_mistake(g, "attention: .window needs .causal = true");
    g = weir_graph_new("wrong");
    x = param(g, "x", 1, 3, 8);
    weir_attention(x, x, x, .window = -2);
    expect_mistake(g, "attention: .window is -2; it needs to be above 0");
    g = weir_graph_new("wrong");
    x = param(g, "x", 1, 3, 8);
    weir_train(weir_mean(weir_attention(x, x, x, .mask = param(g, "bias", 1, 3, 0))), weir_sgd());
    expect_mistake(g, "attention: no gradient flows through a mask");
    g = weir_graph_new("wrong");
    weir_rope(param(g, "x", 1, 3, 8), NULL, .heads = 3);
    expect_mistake(g, "rope: 3 heads do not divide dim 8");
    g = weir_graph_new("wrong");
    weir_rope(param(g, "x", 1, 3, 8), NULL, .rotary_dim = 5);
    expect_mistake(g, "rope: 5 columns of heads of 8 turn; it needs to be an even number from 2 to that");
    g = weir_graph_new("wrong");
    weir_rope(param(g, "x", 1, 3, 8), NULL, .base = -1);
    expect_mistake(g, "rope: .base is -1; it needs to be above 0");
    g = weir_graph_new("wrong");
    weir_rope(param(g, "x", 1, 3, 8), NULL, .scaling = {.low_freq_factor = 1});
    expect_mistake(g, "rope: .scaling needs a .factor above 0");
    g = weir_graph_new("wrong");
    weir_rope(param(g, "x", 1, 3, 8), NULL, .scaling = {.factor = 8, .low_freq_factor = 1});
    expect_mistake(g, "rope: .scaling by frequencies needs a .low_freq_factor above 0");
    g = weir_graph_new("wrong");
    weir_embedding(param(g, "x", 1, 3, 8), 5, 5);
    expect_mistake(g, "embedding: ids are f32, not i32");
    g = weir_graph_new("wrong");
    weir_tensor *labels = weir_input(g, WEIR_I32, {5}, .name = "labels");
    weir_cross_entropy(param(g, "x", 4, 8, 0), labels);
    expect_mistake(g, "cross_entropy: labels have shape [5] where logits have [4, 8]");
}
