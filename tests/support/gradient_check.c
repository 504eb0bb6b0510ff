/* gradient_check.c: see the header. Values are f32, so a difference quotient has an error of about 1e-7 |result| /
 * STEP from rounding and STEP^2 from curvature; sums are taken in double so as not to add to it. */
#include "tests/support/gradient_check.h"

#include "graph/model/build.h"
#include "kernels/common/ops.h"
#include "tests/support/kernel_check.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#define STEP 1e-2
#define ELEMENTS 40 /* of a parameter that are tried */

enum { PARAMETERS_MAX = 32 };

typedef struct player {
    weir_graph *graph;
    weir_view *value;   /* by tensor id */
    uint64_t random;
    weir_tensor *result;
    weir_tensor *weights; /* r */
    weir_tensor *parameter[PARAMETERS_MAX], *gradient[PARAMETERS_MAX];
    int gradients;
} player;

/* ---- playing a graph ---- */

/* A parameter that begins as all ones or all zeros would hide mistakes, so those are spread too. */
static double random_value(const weir_init *init, uint64_t *random)
{
    double normal = kernel_random_normal(random);
    if (init->kind == WEIR_INIT_VALUE)
        return init->a + 0.3 * normal;
    return init->kind == WEIR_INIT_NORMAL ? init->a * normal : normal;
}

static void fill(const weir_view *view, const weir_init *init, uint64_t *random)
{
    for (int64_t i = 0; i < weir_shape_count(&view->shape); i++) {
        if (view->dtype == WEIR_F32)
            ((float *)view->data)[i] = (float)random_value(init, random);
        else
            ((int32_t *)view->data)[i] = (int32_t)(kernel_random(random) * 10);
    }
}

static void make_values(player *p)
{
    p->value = calloc((size_t)p->graph->tensors.count, sizeof *p->value);
    for (int t = 0; t < p->graph->tensors.count; t++) {
        const weir_tensor *tensor = p->graph->tensors.item[t];
        p->value[t] = kernel_view_new(tensor->type, KERNEL_GARBAGE);
        if (!tensor->node || tensor->node->op == &op_source)
            fill(&p->value[t], &tensor->init, &p->random);
    }
}

static void play_node(const player *p, const graph_node *node)
{
    weir_view in[KERNEL_CHECK_MAX], out[KERNEL_CHECK_MAX];
    if (node->op == &op_source)
        return;
    kernel_check c = kernel_check_new(node->op, node->attrs, 7);
    c.in_count = node->in_count;
    c.out_count = node->op->out_count;
    cr_assert_leq(c.in_count, KERNEL_CHECK_MAX);
    for (int i = 0; i < c.in_count; i++)
        in[i] = p->value[node->in[i]->id];
    for (int o = 0; o < c.out_count; o++)
        out[o] = p->value[node->out[o]->id];
    if (node->op == &op_shard)
        memcpy(out[0].data, in[0].data, (size_t)weir_shape_count(&in[0].shape) * weir_dtype_bytes(in[0].dtype));
    else
        kernel_check_call(&c, in, out, NULL, false);
}

static void play(const player *p, int nodes)
{
    for (int n = 0; n < nodes; n++)
        play_node(p, p->graph->nodes.item[n]);
}

/* ---- the check ---- */

static void take(void *ctx, weir_tensor *parameter, weir_tensor *gradient)
{
    player *p = ctx;
    cr_assert_lt(p->gradients, PARAMETERS_MAX);
    p->parameter[p->gradients] = parameter;
    p->gradient[p->gradients++] = gradient;
}

static weir_tensor *make_weights(weir_graph *graph, const weir_tensor *result)
{
    weir_param_opts opts = {.size = sizeof opts, .src = WEIR_HERE, .name = "gradient_check", .frozen = true};
    memcpy(opts.shape, result->type.shape.dim, sizeof opts.shape);
    return weir_param_at(graph, WEIR_F32, &opts);
}

/* sum(r * result) as the parameters are now */
static double loss(const player *p)
{
    const weir_view *y = &p->value[p->result->id], *r = &p->value[p->weights->id];
    double sum = 0;
    play(p, p->result->node->id + 1);
    for (int64_t i = 0; i < weir_shape_count(&y->shape); i++)
        sum += kernel_at(y, i) * kernel_at(r, i);
    return sum;
}

static double difference(const player *p, float *element)
{
    const float old = *element, up = old + (float)STEP, down = old - (float)STEP;
    *element = up;
    double above = loss(p);
    *element = down;
    double below = loss(p);
    *element = old;
    return (above - below) / ((double)up - (double)down);
}

static void check_parameter(player *p, int which, double tolerance)
{
    const weir_view *x = &p->value[p->parameter[which]->id], *dx = &p->value[p->gradient[which]->id];
    const int64_t count = weir_shape_count(&x->shape);
    cr_assert(weir_shape_equal(&x->shape, &dx->shape), "the gradient of %s has another shape",
              p->parameter[which]->name);
    for (int64_t tried = 0; tried < count && tried < ELEMENTS; tried++) {
        int64_t i = count <= ELEMENTS ? tried : (int64_t)(kernel_random(&p->random) * (double)count);
        double want = difference(p, (float *)x->data + i), got = kernel_at(dx, i);
        cr_assert(kernel_near(got, want, tolerance), "gradient of %s: %.6g at %ld, but the difference is %.6g",
                  p->parameter[which]->name, got, (long)i, want);
    }
}

static int trained_parameters(const weir_graph *graph)
{
    int count = 0;
    for (int t = 0; t < graph->tensors.count; t++)
        count += !graph->tensors.item[t]->node && graph->tensors.item[t]->trains;
    return count;
}

void gradient_check(gradient_model model, uint64_t seed, double tolerance)
{
    player p = {.graph = weir_graph_new("gradient_check"), .random = seed};
    p.result = model(p.graph);
    cr_assert_null(weir_graph_mistake(p.graph), "%s", weir_graph_mistake(p.graph));
    p.weights = make_weights(p.graph, p.result);
    autograd(p.result, p.weights, take, &p);
    cr_assert_null(weir_graph_mistake(p.graph), "%s", weir_graph_mistake(p.graph));
    cr_assert_eq(p.gradients, trained_parameters(p.graph), "a parameter has no gradient");
    make_values(&p);
    play(&p, p.graph->nodes.count);
    for (int i = 0; i < p.gradients; i++)
        check_parameter(&p, i, tolerance);
    for (int t = 0; t < p.graph->tensors.count; t++)
        kernel_view_free(&p.value[t]);
    free(p.value);
    weir_graph_free(p.graph);
}
