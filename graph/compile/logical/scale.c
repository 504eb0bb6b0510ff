/* graph/compile/logical/scale.c: f16 needs a scaled loss; this pass puts the scale into the training program.
 *
 *     grad_seed(loss, scale) ... gradients -> square_sum ... -> (+) -> loss_scale(scale, sum) -+-> scale, next
 *                                                                                             +-> factor -> updates
 *
 * f16 ends at 65504 and, below, at 6e-8, where gradients are; so the loss, and with it every gradient, is multiplied by
 * a scale that is as large as can be (kernels/optim/scale.c). It is a state of the plan: a register that starts full,
 * saved and loaded like any other. One kernel decides, from the sum that clipping needs too, and its word goes to all
 * updates: so a step is done or left out on all devices alike.
 *
 * The graph's author knows nothing of this, so what is added has no origin in his graph. It gets one here: the later
 * passes ask origins for names, types and initial values.
 */
#include "graph/base/error.h"
#include "graph/compile/logical/passes.h"
#include "kernels/core/core.h"
#include "kernels/common/ops.h"
#include "kernels/optim/optim.h"

#include <string.h>

#define SCALE_FIRST 0x1p16
#define SCALE_GOOD_STEPS 2000

typedef struct scaling {
    compile *c;
    const graph_node *seed;
    const char *prefix;            /* of the training program's names */
    int scale;                     /* ir tensor: the state */
    int clip;                      /* the factor that clipping would have made; 0 before its node is met */
    int factor;                    /* takes its place: the one that undoes the scale; 0 before it is there */
    POOL_LIST(ir_node) order;      /* the nodes, with those that are new */
    int added;
} scaling;

static const weir_type scalar = {.dtype = WEIR_F32}, squares_type = {WEIR_F32, {1, {SQUARES}}};

/* The scale is of all gradients, and weir_train() made those. */
static weir_src train_src(const scaling *x)
{
    return x->seed->in_graph->loss_src;
}

/* A tensor of the compiler's own, with an origin. */
static int tensor_new(scaling *x, const char *name, weir_type type, weir_mesh *mesh)
{
    pool *p = &x->c->pool;
    weir_tensor *origin = POOL_NEW(p, weir_tensor, 1);
    ir_tensor *t = POOL_PUSH(p, &x->c->ir.tensors);
    if (!origin || !t)
        return 0;
    *origin = (weir_tensor){.graph = x->seed->in_graph, .id = x->c->ir.tensors.count - 1, .type = type, .mesh = mesh,
                            .name = name, .src = train_src(x)};
    *t = (ir_tensor){.name = name, .src = origin->src, .type = type, .mesh = mesh, .fixed = origin->sbp, .origin = origin, .node = NONE,
                     .update = NONE};
    return origin->id;
}

/* The same node with other inputs: its origin's, too. */
static void inputs_set(scaling *x, ir_node *node, const int *in, int in_count)
{
    pool *p = &x->c->pool;
    graph_node *origin = pool_copy(p, node->origin, sizeof *origin);
    node->in = pool_copy(p, in, sizeof *in * (size_t)in_count);
    weir_tensor **tensors = POOL_NEW(p, weir_tensor *, in_count);
    if (!origin || !node->in || !tensors)
        return;
    for (int i = 0; i < in_count; i++)
        tensors[i] = (weir_tensor *)x->c->ir.tensors.item[in[i]].origin;
    origin->in = tensors;
    origin->in_count = node->in_count = in_count;
    node->origin = origin;
}

/* An op whose outputs are of the type; in the order from here on. Its first output. */
static int node_new(scaling *x, const weir_op *op, weir_mesh *mesh, const char *name, weir_type type, const void *attrs,
                    const int *in, int in_count)
{
    pool *p = &x->c->pool;
    graph_node *origin = POOL_NEW(p, graph_node, 1);
    ir_node *node = POOL_PUSH(p, &x->order);
    int *out = POOL_NEW(p, int, op->out_count);
    weir_tensor **tensors = POOL_NEW(p, weir_tensor *, op->out_count);
    if (!origin || !node || !out || !tensors)
        return 0;
    *origin = (graph_node){.op = op, .name = name, .src = train_src(x), .mesh = mesh, .out = tensors,
                           .attrs = (void *)attrs, .phase = PLAN_UPDATE, .in_graph = x->seed->in_graph,
                           .program = x->seed->program};
    *node = (ir_node){.name = name, .src = origin->src, .op = op, .origin = origin, .mesh = mesh, .attrs = attrs,
                      .phase = PLAN_UPDATE, .program = origin->program, .out_count = op->out_count, .out = out,
                      .sum = NONE, .after = NONE, .updates = NONE, .choice = {NONE, NONE, NONE}};
    inputs_set(x, node, in, in_count);
    for (int o = 0; o < op->out_count; o++) {
        out[o] = tensor_new(x, o ? pool_text(p, "%s:%d", name, o) : name, type, mesh);
        tensors[o] = (weir_tensor *)x->c->ir.tensors.item[out[o]].origin;
        ((weir_tensor *)tensors[o])->node = (graph_node *)node->origin;
    }
    return out[0];
}

static const char *name_new(scaling *x, const char *what)
{
    return pool_text(&x->c->pool, "%sloss_scale/%s_%d", x->prefix, what, x->added++);
}

/* ---- the sum of squares, where there is no clipping ---- */

/* A node that takes the gradient of a parameter, which is its input 0, into the parameter or into means: an update, or lamb. */
static bool takes_gradient(const scaling *x, const ir_node *node)
{
    return node->program == x->seed->program && (optim_moved(node->op) || node->op == &op_lamb);
}

typedef struct scalars {
    int item[WEIR_ARGS_MAX];
    int count;
} scalars;

/* Adds one more; when an op can take no more, their sum takes their place. */
static void scalars_add(scaling *x, scalars *list, int tensor, weir_mesh *mesh)
{
    if (list->count == WEIR_ARGS_MAX) {
        list->item[0] = node_new(x, &op_add_many, mesh, name_new(x, "sum"), squares_type, NULL, list->item, list->count);
        list->count = 1;
    }
    list->item[list->count++] = tensor;
}

/* The sum of squares of the gradients of parameters on this mesh, as the two floats of a square_sum there. */
static int mesh_squares(scaling *x, const ir_node *first, const weir_mesh *mesh)
{
    scalars squares = {.count = 0};
    weir_mesh *where = (weir_mesh *)mesh;
    for (const ir_node *n = first; n < x->c->ir.node + x->c->ir.node_count; n++)
        if (takes_gradient(x, n) && mesh_equal(n->mesh, mesh)) {
            int square = node_new(x, &op_square_sum, where, name_new(x, "square_sum"), squares_type, NULL, n->in, 1);
            scalars_add(x, &squares, square, where);
        }
    return node_new(x, &op_add_many, where, name_new(x, "sum"), squares_type, NULL, squares.item, squares.count);
}

/* Over all meshes. `first` is the first update. */
static int all_squares(scaling *x, const ir_node *first)
{
    scalars sums = {.count = 0};
    for (const ir_node *n = first; n < x->c->ir.node + x->c->ir.node_count; n++) {
        bool seen = !takes_gradient(x, n);
        for (const ir_node *m = first; m < n && !seen; m++)
            seen = takes_gradient(x, m) && mesh_equal(m->mesh, n->mesh);
        if (!seen)
            scalars_add(x, &sums, mesh_squares(x, first, n->mesh), x->seed->mesh);
    }
    return node_new(x, &op_add_many, x->seed->mesh, name_new(x, "sum"), squares_type, NULL, sums.item, sums.count);
}

/* ---- the scale ---- */

static void state_new(scaling *x)
{
    x->scale = tensor_new(x, pool_text(&x->c->pool, "%s", PLAN_LOSS_SCALE), scalar, x->seed->mesh);
    if (x->c->pool.failed)
        return;
    double first = x->c->opts.loss_scale;
    weir_tensor *origin = (weir_tensor *)x->c->ir.tensors.item[x->scale].origin;
    origin->delay = 1;
    origin->frozen = true;
    origin->init = (weir_init){.kind = WEIR_INIT_VALUE, .a = first > 0 ? first : SCALE_FIRST};
    for (int a = 0; a < WEIR_AXES_MAX; a++)
        origin->sbp[a] = WEIR_B;
}

/* Decides on `squares`, and on the count of what the loss is a sum over (0: it is a mean); returns the factor. */
static int decide(scaling *x, int squares, int count, double max_norm)
{
    struct scale_attrs *attrs = POOL_NEW(&x->c->pool, struct scale_attrs, 1);
    if (!attrs)
        return 0;
    int steps = x->c->opts.loss_scale_steps, in[3] = {x->scale, squares, count};
    *attrs = (struct scale_attrs){.max_norm = max_norm, .good_steps = steps > 0 ? steps : SCALE_GOOD_STEPS};
    const char *name = pool_text(&x->c->pool, "%sloss_scale/decide", x->prefix);
    node_new(x, &op_loss_scale, x->seed->mesh, name, scalar, attrs, in, count ? 3 : 2);
    if (x->c->pool.failed)
        return 0;
    ir_node *node = &x->order.item[x->order.count - 1];
    weir_tensor *state = (weir_tensor *)x->c->ir.tensors.item[x->scale].origin;
    node->updates = x->scale;
    state->update = (graph_node *)node->origin;
    return node->out[1];
}

/* The node reads the factor in place of what clipping made. */
static void take_factor(scaling *x, ir_node *node, int clip, int factor)
{
    int in[WEIR_ARGS_MAX];
    bool reads = false;
    for (int i = 0; i < node->in_count; i++) {
        reads |= clip && node->in[i] == clip;
        in[i] = clip && node->in[i] == clip ? factor : node->in[i];
    }
    if (reads)
        inputs_set(x, node, in, node->in_count);
}

/* Whether the gradient has a factor; it is the scalar behind it, and lamb's last input is the parameter. */
static bool has_factor(const scaling *x, const ir_node *node)
{
    const int given = node->in_count - (node->op == &op_lamb);
    return given > 1 && !x->c->ir.tensors.item[node->in[1]].type.shape.rank;
}

/* A gradient without a factor gets one. */
static void give_factor(scaling *x, ir_node *node, int factor)
{
    int in[WEIR_ARGS_MAX] = {node->in[0], factor};
    if (has_factor(x, node))
        return;
    for (int i = 1; i < node->in_count; i++)
        in[i + 1] = node->in[i];
    inputs_set(x, node, in, node->in_count + 1);
}

/* Puts the node into the order; of clipping the scale takes the place. */
static void take(scaling *x, ir_node *node)
{
    bool trains = node->program == x->seed->program && node->phase != PLAN_FORWARD;
    if (trains && node->op == &op_clip_scale) {
        x->clip = node->out[0];
        x->factor = decide(x, node->in[0], node->in_count > 1 ? node->in[1] : 0,
                           ((const struct clip_attrs *)node->attrs)->max_norm);
        x->c->ir.tensors.item[node->out[0]].node = NONE;
        return;
    }
    if (trains && node->op == &op_grad_seed)
        inputs_set(x, node, (int[]){node->in[0], x->scale}, 2);
    if (trains)
        take_factor(x, node, x->clip, x->factor);
    if (takes_gradient(x, node)) {
        if (!x->factor)
            x->factor = decide(x, all_squares(x, node), 0, 0);
        give_factor(x, node, x->factor);
    }
    ir_node *to = POOL_PUSH(&x->c->pool, &x->order);
    if (to)
        *to = *node;
}

static const graph_node *find_seed(const compile *c)
{
    for (int n = 0; n < c->ir.node_count; n++)
        if (c->ir.node[n].op == &op_grad_seed)
            return c->ir.node[n].origin;
    return NULL;
}

bool pass_scale(compile *c)
{
    scaling x = {.c = c, .seed = c->opts.precision == WEIR_F16 ? find_seed(c) : NULL};
    if (!x.seed)
        return true;
    x.prefix = x.seed->in_graph->programs.item[x.seed->program].prefix;
    state_new(&x);
    for (int n = 0; n < c->ir.node_count && !c->pool.failed; n++)
        take(&x, &c->ir.node[n]);
    if (!c->pool.failed)
        ir_renumber(c, x.order.item, x.order.count);
    return ir_had_memory(c);
}
