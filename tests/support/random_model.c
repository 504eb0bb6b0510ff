/* random_model.c: see the header. Two generators run side by side: what is computed is drawn from one, where and how it
 * lies from the other. */
#include "tests/support/random_model.h"

#include "tests/support/run.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

enum { STAGES_MAX = 3, BATCH = 6, SEQ = 4, DIM = 8, HEADS = 2, BLOCKS_MAX = 4 };

typedef struct drawn {
    uint64_t key, next;
} drawn;

typedef struct model {
    weir_graph *graph;
    drawn what, where;
    bool alone;                     /* one device */
    weir_mesh *stage[STAGES_MAX];
    int axes[STAGES_MAX];           /* of the meshes */
    int stages;
    int here;                       /* the stage that is being built */
    weir_tensor *tied;              /* a bias that every block adds */
} model;

static int draw(drawn *d, int below)
{
    return (int)(weir_random_uniform(d->key, d->next++) * (float)below);
}

int random_model_micro(uint64_t seed)
{
    return 1 + (int)(seed % 4);
}

/* ---- where ---- */

static weir_mesh *random_mesh(model *m, int stage, int first)
{
    static const int shapes[][WEIR_AXES_MAX] = {{1}, {2}, {3}, {4}, {2, 2}, {1, 2}, {3, 2}, {2, 1, 2}};
    const int *shape = shapes[draw(&m->where, sizeof shapes / sizeof *shapes)];
    int count = shape[0] * (shape[1] ? shape[1] : 1) * (shape[2] ? shape[2] : 1);
    char devices[32];
    snprintf(devices, sizeof devices, "cpu:%d-%d", first, first + count - 1);
    m->axes[stage] = 1 + (shape[1] > 0) + (shape[2] > 0);
    return weir_mesh_new(m->graph, devices, .shape = {shape[0], shape[1], shape[2]});
}

static void random_meshes(model *m)
{
    m->stages = m->alone ? 1 : 1 + draw(&m->where, STAGES_MAX);
    for (int s = 0; s < m->stages; s++)
        m->stage[s] = m->alone ? weir_mesh_new(m->graph, "cpu:0") : random_mesh(m, s, s * (2 + draw(&m->where, 4)));
}

/* A layout of a tensor of `rank` dimensions on an axis of the stage's mesh: often left open. */
static weir_sbp random_sbp(model *m, int axis, int rank)
{
    int kind = m->alone || axis >= m->axes[m->here] ? 9 : draw(&m->where, 8);
    return kind < rank ? WEIR_S(kind) : kind == 3 ? WEIR_B : WEIR_AUTO;
}

static weir_tensor *random_shard(model *m, weir_tensor *x)
{
    if (m->alone || draw(&m->where, 3))
        return x;
    weir_sbp first = draw(&m->where, 6) ? random_sbp(m, 0, 3) : WEIR_P;
    return weir_shard(x, .sbp = {first, random_sbp(m, 1, 3), random_sbp(m, 2, 3)});
}

/* ---- what ---- */

static weir_tensor *linear(model *m, weir_tensor *x, int64_t out, const char *name)
{
    return weir_linear(x, out, .name = name, .init = WEIR_NORMAL(0.3),
                       .weight = {random_sbp(m, 0, 2), random_sbp(m, 1, 2), random_sbp(m, 2, 2)});
}

static weir_tensor *mlp(model *m, weir_tensor *x)
{
    weir_tensor *h = linear(m, weir_layernorm(x, .name = "ln"), 12, "up");
    h = draw(&m->what, 2) ? weir_gelu(h) : weir_silu(h);
    if (draw(&m->what, 3) == 0)
        h = weir_dropout(h, 0.25, .name = "dropout");
    return linear(m, random_shard(m, h), DIM, "down");
}

static weir_tensor *attention(model *m, weir_tensor *x)
{
    weir_tensor *h = draw(&m->what, 2) ? weir_rmsnorm(x, .name = "ln") : weir_layernorm(x, .name = "ln");
    weir_tensor *q = linear(m, h, DIM, "q"), *k = linear(m, h, DIM, "k"), *v = linear(m, h, DIM, "v");
    return linear(m, weir_attention(q, k, v, .heads = HEADS, .causal = true), DIM, "o");
}

static weir_tensor *block(model *m, weir_tensor *x, weir_tensor *scale)
{
    weir_tensor *h = draw(&m->what, 2) ? mlp(m, x) : attention(m, x);
    x = random_shard(m, weir_add(x, h));
    if (draw(&m->what, 2))
        x = weir_add(x, m->tied);
    return draw(&m->what, 2) ? weir_mul(x, scale) : x;
}

static weir_tensor *classify(model *m, weir_tensor *x)
{
    weir_tensor *labels = weir_input(m->graph, WEIR_I32, {BATCH, SEQ}, .name = "labels", .micro = true,
                                     .sbp = {random_sbp(m, 0, 2), random_sbp(m, 1, 2)});
    weir_tensor *logits = linear(m, x, RUN_CLASSES, "head");
    weir_fetch(weir_argmax(logits), .name = "guess");
    return weir_cross_entropy(logits, labels, .name = "loss");
}

/* Adam's large eps keeps gradients that are zero but for rounding (the bias of a key) from becoming steps. */
static void train(model *m, weir_tensor *loss)
{
    double clip = draw(&m->what, 2) ? 0.5 : 0;
    weir_optimizer adamw = weir_adamw(.lr = 0.1, .eps = 0.01, .clip_norm = clip, .weight_decay = 0.1);
    weir_optimizer sgd = weir_sgd(.lr = 0.05, .clip_norm = clip, .momentum = 0.9);
    weir_optimizer optimizer = draw(&m->what, 2) ? adamw : sgd;
    bool zero = !m->alone && draw(&m->where, 2), recompute = !m->alone && draw(&m->where, 2);
    weir_train(loss, optimizer, .zero = {zero, zero && draw(&m->where, 2)}, .recompute = recompute);
}

weir_graph *random_model(uint64_t seed, uint64_t layout)
{
    model m = {.graph = weir_graph_new("random"), .what = {.key = seed}, .where = {.key = layout + 1000},
               .alone = layout == 0};
    cr_assert_not_null(m.graph);
    random_meshes(&m);
    weir_tensor *x = weir_input(m.graph, WEIR_F32, {BATCH, SEQ, DIM}, .name = "x", .micro = true,
                                .sbp = {random_sbp(&m, 0, 3), random_sbp(&m, 1, 3)});
    weir_tensor *scale = weir_input(m.graph, WEIR_F32, {DIM}, .name = "scale"); /* once a step */
    m.tied = weir_param(m.graph, WEIR_F32, {DIM}, .name = "tied", .init = WEIR_NORMAL(0.5));
    weir_tensor *frozen = weir_param(m.graph, WEIR_F32, {SEQ, DIM}, .name = "frozen", .frozen = true,
                                     .init = WEIR_UNIFORM(-1, 1));
    x = weir_add(x, frozen);
    int blocks = 1 + draw(&m.what, BLOCKS_MAX);
    for (int i = 0; i < blocks; i++) {
        m.here = i * m.stages / blocks;
        WEIR_ON(m.stage[m.here], .name = "h%d", i)
            x = block(&m, x, scale);
    }
    weir_tensor *loss = NULL;
    m.here = m.stages - 1;
    WEIR_ON(m.stage[m.here])
        loss = classify(&m, x);
    train(&m, loss);
    weir_fetch(loss, .name = "loss");
    weir_fetch(weir_sum(scale), .name = "scales");
    cr_assert_null(weir_graph_mistake(m.graph), "%s", weir_graph_mistake(m.graph));
    return m.graph;
}
