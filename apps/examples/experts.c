/* experts.c: a block of a mixture of experts, split over devices by expert.
 *
 *     experts [DEVICES [STEPS]]     trains it on one device, or on 2, 4 or 8
 *
 * A gate gives each token to its two best experts (Shazeer et al. 2017). An expert takes at most ROOM tokens of a batch, the first
 * choices before the second ones; a token above that is dropped, and the block passes it on unchanged. An auxiliary loss keeps the
 * load even (Fedus et al. 2021). Only the weights of the experts have a layout here; the compiler deduces the rest. Numbers of devices
 * differ in rounding; `weir launch -n 2 -- experts 2` gives the bits of `experts 2`.
 */
#include <stdio.h>
#include <stdlib.h>
#include <weir/weir.h>

enum { TOKENS = 256, DIM = 16, HIDDEN = 32, EXPERTS = 8, ROOM = 80, KINDS = 8, STEPS = 400 };

typedef struct block {
    weir_tensor *out;     /* [TOKENS, DIM] */
    weir_tensor *balance; /* auxiliary loss: 1 if all experts get the same */
    weir_tensor *kept;    /* how many of the 2 TOKENS choices found room */
} block;

/* Feed-forward nets, one each: [EXPERTS, ROOM, DIM] -> the same shape. A device has the weights of its experts alone. */
static weir_tensor *experts(weir_graph *g, weir_tensor *x)
{
    weir_tensor *up = weir_param(g, WEIR_F32, {EXPERTS, DIM, HIDDEN}, .name = "up", .sbp = {WEIR_S(0)}, .init = WEIR_NORMAL(0.25));
    weir_tensor *down = weir_param(g, WEIR_F32, {EXPERTS, HIDDEN, DIM}, .name = "down", .sbp = {WEIR_S(0)}, .init = WEIR_NORMAL(0.18));
    x = weir_shard(weir_reshape(x, {EXPERTS, ROOM, DIM}), .sbp = {WEIR_S(0)});
    return weir_matmul(weir_relu(weir_matmul(x, up)), down);
}

/* The rows 0 .. TOKENS - 1 have first choices, the rest second ones. Returns the place of each choice among all places of experts,
 * expert * ROOM + place in it, or EXPERTS * ROOM, which is none, if its expert is full. */
static weir_tensor *places(weir_graph *g, weir_tensor *chosen)
{
    weir_tensor *room = weir_constant(g, WEIR_I32, {1}, .value = ROOM), *none = weir_constant(g, WEIR_I32, {1}, .value = EXPERTS * ROOM);
    weir_tensor *ones = weir_cast(weir_one_hot(chosen, EXPERTS, -1), WEIR_I32);
    weir_tensor *before = weir_cumsum(ones, 0, .exclusive = true); /* choices of each expert by the rows above */
    weir_tensor *column = weir_reshape(chosen, {2 * TOKENS, 1});
    weir_tensor *place = weir_gather_elements(before, column, 1);
    weir_tensor *at = weir_add(weir_mul(column, room), place);
    return weir_reshape(weir_where(weir_less(place, room), at, none), {2 * TOKENS});
}

/* Column k of x [TOKENS, 2], for k = 0 and 1, in one column. */
static weir_tensor *stacked(weir_tensor *x)
{
    return weir_concat(0, {weir_slice(x, 1, 0, 1), weir_slice(x, 1, 1, 1)});
}

static block mixture(weir_graph *g, weir_tensor *x)
{
    weir_tensor *normed = weir_layernorm(x, .name = "ln"), *ids = NULL;
    weir_tensor *share = weir_softmax(weir_linear(normed, EXPERTS, .name = "gate", .no_bias = true));
    weir_tensor *best = weir_top_k(share, 2, -1, &ids);
    weir_tensor *weight = weir_div(best, weir_sum(best, .axes = {1}, .axis_count = 1, .keep = true));
    weir_tensor *chosen = weir_reshape(stacked(ids), {2 * TOKENS});

    /* Row i has a 1 at the place of choice i, or none. So these products copy rows, and add up two of them at most. */
    weir_tensor *at = weir_one_hot(places(g, chosen), EXPERTS * ROOM, -1);
    weir_tensor *both = weir_add(weir_slice(at, 0, 0, TOKENS), weir_slice(at, 0, TOKENS, TOKENS));
    weir_tensor *made = weir_reshape(experts(g, weir_matmul(both, normed, .trans_a = true)), {EXPERTS * ROOM, DIM});
    weir_tensor *back = weir_mul(weir_matmul(at, made), stacked(weight));

    weir_tensor *first = weir_one_hot(weir_slice(chosen, 0, 0, TOKENS), EXPERTS, -1);
    weir_tensor *load = weir_mean(first, .axes = {0}, .axis_count = 1), *wish = weir_mean(share, .axes = {0}, .axis_count = 1);
    return (block){
        .out = weir_add(x, weir_add(weir_slice(back, 0, 0, TOKENS), weir_slice(back, 0, TOKENS, TOKENS))),
        .balance = weir_affine(weir_sum(weir_mul(load, wish)), EXPERTS),
        .kept = weir_sum(at),
    };
}

/* Tokens are of KINDS kinds, each around a point of its own. */
static weir_status draw(void *ctx, const weir_view *x, int64_t step, int micro)
{
    (void)ctx, (void)micro;
    for (int i = 0; i < TOKENS * DIM; i++) {
        const uint64_t kind = (uint64_t)(weir_random_uniform((uint64_t)step, (uint64_t)(i / DIM)) * KINDS);
        ((float *)x->data)[i] = weir_random_normal(1000 + kind, (uint64_t)i % DIM) + 0.5f * weir_random_normal(~(uint64_t)step, (uint64_t)i);
    }
    return WEIR_OK;
}

/* What is learned: to add a turned copy to the token, turned further and with another sign for each kind. */
static weir_status want(void *ctx, const weir_view *y, int64_t step, int micro)
{
    float x[TOKENS * DIM];
    weir_view view = *y;
    view.data = x;
    draw(ctx, &view, step, micro);
    for (int i = 0; i < TOKENS * DIM; i++) {
        const int kind = (int)(weir_random_uniform((uint64_t)step, (uint64_t)(i / DIM)) * KINDS), token = i / DIM * DIM;
        ((float *)y->data)[i] = x[i] + (kind % 2 ? 1.0f : -1.0f) * x[token + (i + 1 + kind) % DIM];
    }
    return WEIR_OK;
}

static weir_graph *build(int devices)
{
    char list[32];
    snprintf(list, sizeof list, "cpu:0-%d", devices - 1);
    weir_graph *g = weir_graph_new("experts");
    weir_mesh_new(g, list);
    weir_tensor *x = weir_input(g, WEIR_F32, {TOKENS, DIM}, .name = "x", .source = draw);
    weir_tensor *y = weir_input(g, WEIR_F32, {TOKENS, DIM}, .name = "y", .source = want);
    block b = mixture(g, x);
    weir_tensor *loss = weir_mse(b.out, y);
    weir_fetch(weir_concat(0, {weir_reshape(loss, {1}), weir_reshape(b.balance, {1}), weir_reshape(b.kept, {1})}), .name = "told");
    weir_train(weir_add(loss, weir_affine(b.balance, 0.01)), weir_adamw(.lr = 0.005));
    return g;
}

/* All bits of the parameters, as one number (FNV-1a). */
static weir_status print_bits(const weir_plan *plan, weir_session *s)
{
    static float value[EXPERTS * DIM * HIDDEN];
    uint64_t hash = 0xcbf29ce484222325;
    weir_status status = WEIR_OK;
    for (int p = 0; p < weir_plan_param_count(plan) && !status; p++) {
        weir_param_info info;
        status = weir_plan_param(plan, p, &info);
        weir_array to = {value, info.type.dtype, info.type.shape};
        if (!status && info.kind == WEIR_PARAMETER)
            status = weir_session_read(s, info.name, &to);
        for (int64_t i = 0; !status && info.kind == WEIR_PARAMETER && i < 4 * weir_shape_count(&to.shape); i++)
            hash = (hash ^ ((unsigned char *)value)[i]) * 0x100000001b3;
    }
    if (!status && !weir_rank())
        printf("parameters %016llx\n", (unsigned long long)hash);
    return status;
}

static weir_status train(const weir_plan *plan, weir_session *s, int steps)
{
    weir_status status = weir_session_start(s, steps);
    for (int i = 1; i <= steps && !status; i++) {
        float told[3];
        status = weir_session_pull(s, "told", WEIR_ARRAY(told, WEIR_F32, 3), -1);
        if (!status && !weir_rank() && (i == 1 || i % 100 == 0 || i == steps))
            printf("step %d: loss %.4f, balance %.3f, %.1f%% dropped\n", i, (double)told[0], (double)told[1], 100 - 50 * (double)told[2] / TOKENS);
    }
    status = status ? status : weir_session_wait(s, -1);
    return status ? status : print_bits(plan, s);
}

int main(int argc, char **argv)
{
    const int devices = argc > 1 ? atoi(argv[1]) : 1, steps = argc > 2 ? atoi(argv[2]) : STEPS;
    if (devices < 1 || EXPERTS % devices || steps < 1)
        return fputs("usage: experts [DEVICES [STEPS]], where DEVICES is 1, 2, 4 or 8\n", stderr), 2;
    weir_graph *g = build(devices);
    weir_plan *plan = weir_compile(g);
    weir_session *s = plan ? weir_session_open(plan) : NULL;
    const weir_status status = s ? train(plan, s, steps) : WEIR_E_ARGUMENT;
    if (status)
        fprintf(stderr, "experts: %s\n", weir_error());
    weir_session_close(s);
    weir_plan_free(plan);
    weir_graph_free(g);
    return status ? 1 : 0;
}
