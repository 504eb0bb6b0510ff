/* graph/model/train.c: weir_train(): backward graph, accumulation over micro-batches, clipping, updates.
 *
 *     loss -> grad_seed -> backward ... -> gradient -> accumulate -+-> square_sum -> (+) -> clip_scale -+
 *                                                                  +------------------------------------+-> update
 *
 * Parameters of a group may have other options, and a norm of their own (groups.h).
 * The seed is 1 / M, so accumulated gradients are those of the mean over the micro-batches. With a count it is 1, and
 * clip_scale divides by what all micro-batches count, too. With one micro-batch the
 * lower pass drops the accumulations. Squares are summed per mesh before they travel, so clipping costs one number
 * per stage.
 */
#include "graph/base/base.h"
#include "graph/model/build.h"
#include "graph/model/groups.h"
#include "kernels/core/core.h"
#include "kernels/common/ops.h"
#include "kernels/optim/optim.h"

#include <math.h>

typedef struct trained {
    weir_tensor *parameter;
    weir_tensor *gradient; /* accumulated */
} trained;

enum { PARTS = WEIR_GROUPS_MAX + 1 }; /* of the gradients: each has a norm of its own */

typedef struct training {
    weir_graph *graph;
    weir_src src;
    weir_optimizer optimizer;
    weir_tensor *count; /* of what the loss is a sum over, in all micro-batches; NULL: it is a mean */
    weir_tensor *factor[PARTS]; /* that the gradients of a part are scaled by */
    POOL_LIST(trained) list;
} training;

static weir_tensor *apply_on(weir_graph *g, weir_mesh *mesh, weir_src src, const char *name, const weir_op *op,
                             weir_tensor **in, int in_count, const void *attrs)
{
    weir_scope scope = graph_scope_absolute(g, mesh, "");
    graph_node *node = graph_apply(&(weir_apply){
        .src = src, .name = name, .op = op, .graph = g, .in = in, .in_count = in_count, .attrs = attrs});
    weir_scope_leave(&scope);
    return node ? node->out[0] : &g->poison;
}

/* The sum over the micro-batches of a step: published once a step. NULL: no memory, or a mistake. */
static weir_tensor *step_sum(weir_tensor *each, const char *name)
{
    if (!each->micro)
        return each;
    weir_scope scope = graph_scope_absolute(each->graph, each->mesh, "");
    graph_node *node =
        graph_apply(&(weir_apply){.src = each->src, .name = name, .op = &op_accumulate, .in = &each, .in_count = 1});
    weir_scope_leave(&scope);
    if (!node)
        return NULL;
    node->fills = true;
    node->out[0]->micro = false;
    return node->out[0];
}

static void gradient_done(void *ctx, weir_tensor *parameter, weir_tensor *gradient)
{
    training *t = ctx;
    weir_graph *g = t->graph;
    if (gradient->poisoned)
        return;
    gradient = step_sum(gradient, pool_text(&g->pool, "%s.grad", parameter->name));
    trained *item = gradient ? POOL_PUSH(&g->pool, &t->list) : NULL;
    if (item)
        *item = (trained){parameter, gradient};
}

typedef POOL_LIST(weir_tensor *) tensor_list;

static void list_add(training *t, tensor_list *list, weir_tensor *tensor)
{
    weir_tensor **at = POOL_PUSH(&t->graph->pool, list);
    if (at)
        *at = tensor;
}

static weir_tensor *sum_of(training *t, weir_mesh *mesh, const char *name, weir_tensor **in, int count)
{
    return apply_on(t->graph, mesh, t->src, name, weir_op_find("add_many"), in, count, NULL);
}

/* Their sum on `mesh`: as many at a time as an op takes, then the sums of those. */
static weir_tensor *sum_all(training *t, weir_mesh *mesh, const char *name, tensor_list list)
{
    while (list.count > WEIR_ARGS_MAX) {
        tensor_list sums = {0};
        for (int i = 0; i < list.count; i += WEIR_ARGS_MAX) {
            int count = list.count - i < WEIR_ARGS_MAX ? list.count - i : WEIR_ARGS_MAX;
            list_add(t, &sums, sum_of(t, mesh, NULL, list.item + i, count));
        }
        list = sums;
    }
    return list.count ? sum_of(t, mesh, name, list.item, list.count) : &t->graph->poison; /* no memory */
}

/* ---- clipping ----
 *
 * A group with a .clip_norm is a part of its own, and all other parameters are part 0:
 *
 *     squares of a part -> (+) --+-----------> clip_norm(, base) -> the part's factor
 *                                +-> (+) -> clip_scale -> base
 *
 * Where there is part 0 alone, clip_scale makes its factor.
 */

static int part_of(const training *t, const trained *item)
{
    const int group = groups_of(&t->optimizer, item->parameter);
    return groups_clips(&t->optimizer, group) ? 1 + group : 0;
}

static double part_norm(const training *t, int part)
{
    return part ? t->optimizer.groups[part - 1].clip_norm : t->optimizer.clip_norm;
}

/* The sum of squares of the gradients of a part on `mesh`, as the two floats of a square_sum there. */
static weir_tensor *mesh_squares(training *t, weir_mesh *mesh, int part)
{
    tensor_list squares = {0};
    for (int i = 0; i < t->list.count; i++) {
        const trained *item = &t->list.item[i];
        weir_tensor *gradient = item->gradient;
        if (part_of(t, item) == part && mesh_equal(item->parameter->mesh, mesh))
            list_add(t, &squares, apply_on(t->graph, mesh, gradient->src, NULL, &op_square_sum, &gradient, 1, NULL));
    }
    return sum_all(t, mesh, NULL, squares);
}

/* Whether a parameter of the part before the i-th is on the same mesh. */
static bool mesh_seen(const training *t, int i, int part)
{
    for (int k = 0; k < i; k++)
        if (part_of(t, &t->list.item[k]) == part && mesh_equal(t->list.item[k].parameter->mesh, t->list.item[i].parameter->mesh))
            return true;
    return false;
}

/* The same over all meshes; NULL: no parameter is in the part. */
static weir_tensor *part_squares(training *t, weir_mesh *where, int part)
{
    tensor_list sums = {0};
    for (int i = 0; i < t->list.count; i++)
        if (part_of(t, &t->list.item[i]) == part && !mesh_seen(t, i, part))
            list_add(t, &sums, mesh_squares(t, t->list.item[i].parameter->mesh, part));
    const char *name = part ? pool_text(&t->graph->pool, "grad_norm/sum.%d", part - 1) : "grad_norm/sum";
    return sums.count > 1 ? sum_all(t, where, name, sums) : sums.count ? sums.item[0] : NULL;
}

/* The factor of all gradients; a step whose squares are not finite is left out by it. */
static weir_tensor *clip_all(training *t, weir_mesh *where, weir_tensor *squares, double max_norm)
{
    struct clip_attrs attrs = {.max_norm = max_norm};
    weir_tensor *in[2] = {squares, t->count};
    return apply_on(t->graph, where, t->src, "grad_norm/clip", &op_clip_scale, in, t->count ? 2 : 1, &attrs);
}

static weir_tensor *clip_part_of(training *t, weir_mesh *where, int part, weir_tensor *squares, weir_tensor *base)
{
    struct clip_attrs attrs = {.max_norm = part_norm(t, part)};
    weir_tensor *in[2] = {squares, base};
    const char *name = pool_text(&t->graph->pool, part ? "grad_norm/clip.%d" : "grad_norm/clip.rest", part - 1);
    return apply_on(t->graph, where, t->src, name, &op_clip_norm, in, 2, &attrs);
}

/* Fills t->factor, by part: NULL when there is no clipping, and nothing to divide by. */
static void clip_factors(training *t, weir_mesh *where)
{
    weir_tensor *squares[PARTS];
    tensor_list sums = {0};
    bool clips = t->count != NULL;
    for (int part = 0; part < PARTS; part++)
        clips |= part_norm(t, part) > 0;
    for (int part = 0; part < PARTS && clips; part++) {
        squares[part] = part_squares(t, where, part);
        if (squares[part])
            list_add(t, &sums, squares[part]);
    }
    if (!clips || weir_graph_mistake(t->graph) || !sums.count)
        return;
    const bool alone = sums.count == 1 && squares[0];
    weir_tensor *all = sums.count > 1 ? sum_all(t, where, "grad_norm/all", sums) : sums.item[0];
    weir_tensor *base = clip_all(t, where, all, alone ? t->optimizer.clip_norm : 0);
    for (int part = 0; part < PARTS; part++)
        if (squares[part])
            t->factor[part] = alone || part_norm(t, part) <= 0 ? base : clip_part_of(t, where, part, squares[part], base);
}

/* ---- updates ---- */

static struct optim_attrs update_attrs(const weir_optimizer *o)
{
    return (struct optim_attrs){
        .lr = o->lr,
        .lr_min = o->lr_min,
        .momentum = o->momentum,
        .beta1 = weir_option(o->beta1, 0.9),
        .beta2 = weir_option(o->beta2, 0.999),
        .eps = weir_option(o->eps, 1e-8),
        .weight_decay = o->weight_decay,
        .warmup = o->warmup,
        .total = o->total,
    };
}

static void update(training *t, const trained *item)
{
    weir_graph *g = t->graph;
    weir_tensor *factor = t->factor[part_of(t, item)];
    const weir_optimizer own = groups_options(&t->optimizer, item->parameter);
    struct optim_attrs attrs = update_attrs(&own);
    weir_tensor *in[2] = {item->gradient, factor};
    const char *name = pool_text(&g->pool, "%s.update", item->parameter->name);
    weir_scope scope = graph_scope_absolute(g, item->parameter->mesh, "");
    graph_node *node = graph_apply(&(weir_apply){.src = t->src,
                                                 .name = name,
                                                 .op = t->optimizer.kind == WEIR_SGD ? &op_sgd : &op_adamw,
                                                 .in = in,
                                                 .in_count = factor ? 2 : 1,
                                                 .attrs = &attrs});
    weir_scope_leave(&scope);
    if (!node)
        return;
    node->updates = item->parameter;
    item->parameter->update = node;
}

/* The dimension over which a parameter's master copy is split: the first one that gives every device something. */
static void zero_split(weir_tensor *parameter, int axis)
{
    const weir_shape *shape = &parameter->type.shape;
    if (axis >= parameter->mesh->axes || WEIR_IS_S(parameter->sbp[axis]))
        return;
    for (int d = 0; d < shape->rank; d++)
        if (shape->dim[d] >= parameter->mesh->shape[axis]) {
            parameter->sbp[axis] = WEIR_S(d);
            parameter->zero[axis] = true;
            return;
        }
}

/* One option of the optimizer, and from where to where it may be. */
typedef struct option {
    const char *name;
    double value, below; /* from 0 up to, but not including this */
} option;

static bool options_ok(weir_graph *g, const weir_optimizer *o, weir_src src)
{
    const option list[] = {{"lr", o->lr, OPTIM_END},         {"lr_min", o->lr_min, OPTIM_END},
                           {"momentum", o->momentum, 1},   {"beta1", o->beta1, 1},
                           {"beta2", o->beta2, 1},         {"eps", o->eps, OPTIM_END},
                           {"clip_norm", o->clip_norm, OPTIM_END}, {"weight_decay", o->weight_decay, OPTIM_END}};
    for (size_t i = 0; i < sizeof list / sizeof *list; i++)
        if (!(list[i].value >= 0 && list[i].value < list[i].below)) {
            graph_mistake(g, src, "train: .%s of the optimizer is %g; it is 0 or more, and %s", list[i].name,
                          list[i].value, list[i].below == 1 ? "less than 1" : "at most 3.4e38");
            return false;
        }
    if (o->kind != WEIR_SGD && o->kind != WEIR_ADAMW)
        graph_mistake(g, src, "train: there is no optimizer with the number %d; there are WEIR_SGD and WEIR_ADAMW", (int)o->kind);
    else if (o->kind == WEIR_ADAMW && o->momentum > 0)
        graph_mistake(g, src, "train: .momentum is SGD's; AdamW has .beta1");
    else if (o->kind == WEIR_SGD && (o->beta1 != 0 || o->beta2 != 0 || o->eps != 0))
        graph_mistake(g, src, "train: .beta1, .beta2 and .eps are AdamW's; SGD has .momentum");
    else if (o->warmup < 0 || o->total < 0 || (o->total && o->total <= o->warmup))
        graph_mistake(g, src, "train: .warmup is %lld and .total is %lld; neither may be negative, and .warmup must be less "
                      "than a .total that is given", (long long)o->warmup,
                      (long long)o->total);
    return !weir_graph_mistake(g);
}

static bool train_ok(const weir_tensor *loss, const weir_optimizer *o, weir_src src)
{
    weir_graph *g = loss->graph;
    char text[160];
    if (g->loss)
        graph_mistake(g, src, "train: the graph is trained already, at %s:%d",
                      g->loss_src.file ? g->loss_src.file : "?", g->loss_src.line);
    else if (!weir_graph_trains(g))
        graph_mistake(g, src, "train: the program %s was made without .train = true, so it cannot train (and its dropout is off)",
                      g->programs.item[g->program].name);
    else if (loss->type.shape.rank || loss->type.dtype != WEIR_F32)
        graph_mistake(g, src, "train: the loss must be one f32 number; \"%s\" is %s %s", loss->name,
                      weir_dtype_name(loss->type.dtype), shape_text(&loss->type.shape, text, sizeof text));
    else if (!loss->node || !loss->trains)
        graph_mistake(g, src, "train: \"%s\" depends on no parameter that trains", loss->name);
    return !weir_graph_mistake(g) && options_ok(g, o, src) && groups_ok(g, o, src);
}

static bool count_ok(const weir_tensor *loss, const weir_tensor *count, weir_src src)
{
    weir_graph *g = loss->graph;
    char text[160];
    if (!count || count->poisoned)
        return !count;
    if (count->graph != g)
        graph_mistake(g, src, "train: .count \"%s\" is of another graph than the loss", count->name);
    else if (count->type.shape.rank || count->type.dtype != WEIR_F32)
        graph_mistake(g, src, "train: .count must be one f32 number, as weir_label_count() makes; \"%s\" is %s %s", count->name,
                      weir_dtype_name(count->type.dtype), shape_text(&count->type.shape, text, sizeof text));
    else if (count->micro != loss->micro)
        graph_mistake(g, src, "train: the loss exists once per %s, but .count \"%s\" once per %s; both must be alike",
                      loss->micro ? "micro-batch" : "step", count->name, count->micro ? "micro-batch" : "step");
    return !weir_graph_mistake(g);
}

void weir_train_at(weir_tensor *loss, const weir_optimizer *by, const weir_train_opts *given)
{
    weir_train_opts opts;
    weir_optimizer optimizer;
    weir_graph *g = loss ? loss->graph : NULL;
    if (!graph_opts(g, "train", given, &opts, sizeof opts) || !graph_opts(g, "optimizer", by, &optimizer, sizeof optimizer))
        return;
    if (!loss)
        graph_mistake(NULL, opts.src, "train: the loss is NULL");
    if (!loss || loss->poisoned || !train_ok(loss, &optimizer, opts.src) || !count_ok(loss, opts.count, opts.src))
        return;
    optimizer.lr = weir_option(optimizer.lr, optimizer.kind == WEIR_SGD ? 0.01 : 0.001);
    groups_freeze(g, &optimizer);
    if (!loss->trains) {
        graph_mistake(g, opts.src, "train: all parameters that \"%s\" depends on are in groups with .frozen", loss->name);
        return;
    }
    training t = {.graph = g, .src = opts.src, .optimizer = optimizer};
    g->loss = loss;
    g->loss_src = opts.src;
    g->recompute = opts.recompute;
    g->phase = PLAN_BACKWARD;
    weir_scope scope = graph_scope_absolute(g, loss->mesh, "");
    seed_attrs attrs = {.value = 1, .whole = opts.count != NULL};
    weir_tensor *seed = weir_op_apply(&(weir_apply){.src = loss->src, .name = "grad_seed", .op = &op_grad_seed,
                                                    .in = &loss, .in_count = 1, .attrs = &attrs}, NULL);
    weir_scope_leave(&scope);
    bool built = !seed->poisoned && autograd(loss, seed, gradient_done, &t);
    t.count = built && opts.count ? step_sum(opts.count, "grad_norm/count") : NULL;
    built &= !opts.count || t.count;
    g->phase = PLAN_UPDATE;
    if (built)
        clip_factors(&t, loss->mesh);
    for (int i = 0; built && i < t.list.count; i++) {
        for (int a = 0; a < WEIR_AXES_MAX; a++)
            if (opts.zero[a])
                zero_split(t.list.item[i].parameter, a);
        update(&t, &t.list.item[i]);
    }
    g->phase = PLAN_FORWARD;
}
