/* tests/support/learner.c: see the header. */
#include "tests/support/learner.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ROWS = 24, WIDE = 8, CLASSES = 6 };

const struct learner_opts learner_layouts[LEARNER_LAYOUTS] = {
    {.dp = 1},
    {.dp = 2},
    {.dp = 3, .zero = true},
    {.dp = 2, .zero = true, .micro = 3},
    {.tp = 2},
    {.tp = 3, .micro = 2},
    {.dp = 2, .tp = 2},
    {.dp = 2, .tp = 2, .zero = true, .micro = 2},
    {.pp = 2, .micro = 4},
    {.pp = 2, .dp = 2, .zero = true, .micro = 2},
    {.pp = 2, .tp = 2},
};

static int or_one(int value)
{
    return value > 0 ? value : 1;
}

/* ---- the model ---- */

static weir_status draw_rows(void *ctx, const weir_view *dst, int64_t step, int micro)
{
    float *to = dst->data;
    int64_t rows = dst->shape.dim[0], count = weir_shape_count(&dst->shape);
    (void)ctx;
    /* a row is the same whichever micro-batch it is in */
    for (int64_t i = 0; i < count; i++)
        to[i] = weir_random_normal(7, (uint64_t)(step * ROWS * WIDE + micro * rows * WIDE + i));
    return WEIR_OK;
}

static weir_status draw_labels(void *ctx, const weir_view *dst, int64_t step, int micro)
{
    int32_t *to = dst->data;
    int64_t rows = dst->shape.dim[0], fail_at = (int64_t)(intptr_t)ctx;
    if (fail_at && step == fail_at)
        return WEIR_E_IO;
    for (int64_t i = 0; i < rows; i++)
        to[i] = (int32_t)(weir_random_uniform(11, (uint64_t)(step * ROWS + micro * rows + i)) * CLASSES);
    return WEIR_OK;
}

static weir_status drop_loss(void *ctx, const weir_view *value, int64_t step, int micro)
{
    (void)ctx, (void)value, (void)step, (void)micro;
    return WEIR_OK;
}

static weir_mesh *stage_mesh(weir_graph *g, const struct learner_opts *o, int stage)
{
    int each = o->dp * o->tp;
    char devices[32];
    const char *kind = o->fake ? "fake" : o->cuda ? "cuda" : "cpu";
    snprintf(devices, sizeof devices, "%s:%d-%d", kind, stage * each, stage * each + each - 1);
    return weir_mesh_new(g, devices, .shape = {o->dp, o->tp});
}

static weir_tensor *block(const struct learner_opts *o, weir_tensor *x)
{
    weir_tensor *h = weir_layernorm(x, .name = "ln");
    h = weir_gelu(weir_linear(h, o->narrow ? 12 : 16, .name = "up", .weight = {[1] = S(1)}));
    h = o->sure ? h : weir_dropout(h, 0.25, .name = "dropout");
    return weir_add(x, weir_linear(h, WIDE, .name = "down", .weight = {[1] = S(0)}));
}

weir_plan *learner_plan_at(struct learner_opts o)
{
    o.dp = or_one(o.dp), o.tp = or_one(o.tp), o.pp = or_one(o.pp), o.micro = or_one(o.micro);
    weir_graph *g = weir_graph_new("learner");
    weir_mesh *mesh[2] = {stage_mesh(g, &o, 0), stage_mesh(g, &o, o.pp - 1)};
    weir_tensor *loss = NULL, *x = weir_input(g, WEIR_F32, {ROWS / o.micro, WIDE}, .name = "x", .sbp = {S(0)},
                                              .micro = true, .source = draw_rows);
    WEIR_ON(mesh[0], .name = "h0", 0)
    {
        weir_tensor *frozen = weir_param(g, WEIR_F32, {WIDE}, .name = "frozen", .frozen = true, .init = WEIR_UNIFORM(-1, 1));
        x = block(&o, weir_add(x, frozen));
    }
    WEIR_ON(mesh[1], .name = "h1", 0)
    {
        x = block(&o, x);
        weir_tensor *labels = weir_input(g, WEIR_I32, {ROWS / o.micro}, .name = "labels", .sbp = {S(0)}, .micro = true,
                                         .source = draw_labels, .ctx = (void *)(intptr_t)o.fail_at);
        loss = weir_cross_entropy(weir_linear(x, CLASSES, .name = "head"), labels, .name = "loss");
        weir_fetch(loss, .name = "loss", .sink = drop_loss);
        weir_train(loss, o.plain ? weir_sgd(.lr = 0.1)
                                 : weir_adamw(.lr = 0.02, .clip_norm = 0.5, .weight_decay = 0.1, .warmup = 4, .total = 40),
                   .zero = {o.zero});
    }
    o.compile.micro_batches = o.micro;
    o.compile.seed = 3;
    o.compile.size = sizeof o.compile;
    weir_plan *plan = weir_compile_at(g, &o.compile);
    weir_graph_free(g);
    return plan;
}

/* ---- what it has learned ---- */

static int by_name(const void *a, const void *b)
{
    return strcmp(((const struct learned_value *)a)->name, ((const struct learned_value *)b)->name);
}

static weir_status read_value(weir_session *s, const weir_session_param *param, struct learned_value *to)
{
    to->count = weir_shape_count(&param->type.shape);
    to->value = calloc((size_t)to->count + 1, sizeof *to->value);
    to->step = param->step;
    snprintf(to->name, sizeof to->name, "%s", param->name);
    return weir_session_read(s, param->name, &(weir_array){to->value, param->type.dtype, param->type.shape});
}

struct learned learned_read(weir_session *s)
{
    struct learned learned = {0};
    weir_session_param list[LEARNED_MAX];
    int count = weir_session_params(s, list, LEARNED_MAX);
    for (int i = 0; i < count && i < LEARNED_MAX; i++, learned.count++)
        if (read_value(s, &list[i], &learned.of[i])) {
            learned.count = count = i + 1;
            learned_free(&learned);
            break;
        }
    if (count <= 0 || count > LEARNED_MAX || !learned.count)
        learned.count = -1;
    else
        qsort(learned.of, (size_t)learned.count, sizeof *learned.of, by_name);
    return learned;
}

void learned_free(struct learned *learned)
{
    for (int i = 0; i < learned->count; i++)
        free(learned->of[i].value);
    learned->count = 0;
}

const struct learned_value *learned_find(const struct learned *learned, const char *name)
{
    for (int i = 0; i < learned->count; i++)
        if (!strcmp(learned->of[i].name, name))
            return &learned->of[i];
    return NULL;
}

static bool near(float got, float want, double tolerance)
{
    if (tolerance == 0)
        return !memcmp(&got, &want, sizeof got);
    return fabs((double)got - (double)want) <= tolerance * (1 + fabs((double)want));
}

const char *learned_differs(const struct learned *got, const struct learned *want, double tolerance)
{
    static _Thread_local char text[256];
    if (got->count != want->count || got->count < 0) {
        snprintf(text, sizeof text, "%d values, not %d: %s", got->count, want->count, weir_error());
        return text;
    }
    for (int v = 0; v < got->count; v++) {
        const struct learned_value *a = &got->of[v], *b = &want->of[v];
        if (strcmp(a->name, b->name) || a->count != b->count) {
            snprintf(text, sizeof text, "%s of %lld, not %s of %lld", a->name, (long long)a->count, b->name,
                     (long long)b->count);
            return text;
        }
        for (int64_t i = 0; i < a->count; i++)
            if (!near(a->value[i], b->value[i], tolerance)) {
                snprintf(text, sizeof text, "%s[%lld] is %a, not %a", a->name, (long long)i, (double)a->value[i],
                         (double)b->value[i]);
                return text;
            }
    }
    return NULL;
}
