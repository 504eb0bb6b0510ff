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
#include "graph/model/optimizer.h"
#include "kernels/core/core.h"
#include "kernels/common/ops.h"

#include <string.h>

typedef struct trained {
    weir_tensor *parameter;
    weir_tensor *gradient; /* accumulated */
    int part;              /* of the gradients, see "clipping" */
} trained;

enum { PARTS = WEIR_GROUPS_MAX + 1 }; /* of the gradients: each has a norm of its own */

typedef struct training {
    weir_graph *graph;
    weir_src src;
    weir_optimizer optimizer;
    weir_tensor *count; /* of what the loss is a sum over, in all micro-batches; NULL: it is a mean */
    weir_tensor *factor[PARTS]; /* that the gradients of a part are scaled by */
    const char *norm;   /* under which the norm of all of them is fetched; NULL: it is not */
    weir_tensor *rate;  /* that the rate is multiplied by; NULL: there is none */
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

static bool clips_alone(const training *t, int part)
{
    return part && groups_clips(&t->optimizer, part - 1);
}

/* The name under which the norm of a part is fetched; NULL: it is not. */
static const char *part_called(const training *t, int part)
{
    return part ? t->optimizer.groups[part - 1].norm : NULL;
}

static int part_of(const training *t, const weir_tensor *parameter)
{
    const int part = 1 + groups_of(&t->optimizer, parameter);
    return clips_alone(t, part) || part_called(t, part) ? part : 0;
}

static void gradient_done(void *ctx, weir_tensor *parameter, weir_tensor *gradient)
{
    training *t = ctx;
    weir_graph *g = t->graph;
    if (gradient->poisoned)
        return;
    gradient = graph_step_sum(gradient, pool_text(&g->pool, "%s.grad", parameter->name));
    trained *item = gradient ? POOL_PUSH(&g->pool, &t->list) : NULL;
    if (item)
        *item = (trained){parameter, gradient, part_of(t, parameter)};
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
 * A group with a .clip_norm or a .norm of its own is a part, and all other parameters are part 0:
 *
 *     squares of parts -> (+) -> clip_scale -> base           leaves out a step, and divides by the count
 *     squares of a part with its own .clip_norm ----------> clip_norm(, base) -> the part's factor, its norm
 *     squares of all other parts -> (+) ------------------> clip_norm(, base) -> their factor
 *
 * Where there is part 0 alone and no norm is fetched, clip_scale makes its factor.
 */

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
        if (item->part == part && mesh_equal(item->parameter->mesh, mesh))
            list_add(t, &squares, apply_on(t->graph, mesh, gradient->src, NULL, &op_square_sum, &gradient, 1, NULL));
    }
    return sum_all(t, mesh, NULL, squares);
}

/* Whether a parameter of the part before the i-th is on the same mesh. */
static bool mesh_seen(const training *t, int i, int part)
{
    for (int k = 0; k < i; k++)
        if (t->list.item[k].part == part && mesh_equal(t->list.item[k].parameter->mesh, t->list.item[i].parameter->mesh))
            return true;
    return false;
}

/* The same over all meshes; NULL: no parameter is in the part. */
static weir_tensor *part_squares(training *t, weir_mesh *where, int part)
{
    tensor_list sums = {0};
    for (int i = 0; i < t->list.count; i++)
        if (t->list.item[i].part == part && !mesh_seen(t, i, part))
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

static void fetch_norm(training *t, weir_tensor *norm, const char *called)
{
    if (called)
        weir_fetch_at(norm, WEIR_OPTS_AT(t->src, weir_fetch_opts, .name = called));
}

/* The factor of the gradients whose squares these are; their norm is fetched as `called`, if that is not NULL. */
static weir_tensor *clip_some(training *t, const char *name, weir_tensor *squares, weir_tensor *base, double max_norm,
                              const char *called)
{
    struct clip_attrs attrs = {.max_norm = max_norm};
    weir_tensor *in[2] = {squares, base};
    weir_tensor *factor = apply_on(t->graph, base->mesh, t->src, name, &op_clip_norm, in, 2, &attrs);
    if (!factor->poisoned)
        fetch_norm(t, factor->node->out[1], called);
    return factor;
}

/* Whether anything needs the squares of the gradients. */
static bool needs_squares(const training *t)
{
    bool needs = t->count || t->norm;
    for (int part = 0; part < PARTS; part++)
        needs |= part_norm(t, part) > 0 || part_called(t, part);
    return needs;
}

/* Their sum, of which one is the sum of itself; NULL: there is none. */
static weir_tensor *sum_parts(training *t, weir_mesh *where, const char *name, tensor_list list)
{
    return list.count > 1 ? sum_all(t, where, name, list) : list.count ? list.item[0] : NULL;
}

/* Fills t->factor behind `base`. `shared`: the squares of the parts that are clipped together; NULL: there is none. */
static void part_factors(training *t, weir_tensor **squares, weir_tensor *all, weir_tensor *shared, weir_tensor *base)
{
    weir_tensor *factor = base;
    const double most = t->optimizer.clip_norm;
    if (shared && (most > 0 || (shared == all && t->norm)))
        factor = clip_some(t, "grad_norm/clip.shared", shared, base, most, shared == all ? t->norm : NULL);
    if (shared != all && t->norm)
        clip_some(t, "grad_norm/norm", all, base, 0, t->norm);
    t->factor[0] = factor;
    for (int part = 1; part < PARTS; part++) {
        const bool alone = clips_alone(t, part);
        const char *name = pool_text(&t->graph->pool, "grad_norm/clip.%d", part - 1);
        weir_tensor *own = base;
        if (squares[part] && (part_norm(t, part) > 0 || part_called(t, part)))
            own = clip_some(t, name, squares[part], base, alone ? part_norm(t, part) : 0, part_called(t, part));
        t->factor[part] = alone ? own : factor;
    }
}

/* Fills t->factor, by part: NULL when there is no clipping, and nothing to divide by. */
static void clip_factors(training *t, weir_mesh *where)
{
    weir_tensor *squares[PARTS] = {NULL};
    tensor_list every = {0}, shared = {0};
    for (int part = 0; part < PARTS && needs_squares(t); part++) {
        squares[part] = part_squares(t, where, part);
        if (squares[part])
            list_add(t, &every, squares[part]);
        if (squares[part] && !clips_alone(t, part))
            list_add(t, &shared, squares[part]);
    }
    if (!every.count || weir_graph_mistake(t->graph))
        return;
    const bool plain = every.count == 1 && squares[0] && !t->norm;
    weir_tensor *all = sum_parts(t, where, "grad_norm/all", every);
    weir_tensor *of_shared = shared.count == every.count ? all : sum_parts(t, where, "grad_norm/shared", shared);
    weir_tensor *base = clip_all(t, where, all, plain ? t->optimizer.clip_norm : 0);
    if (plain)
        t->factor[0] = base;
    else if (!base->poisoned)
        part_factors(t, squares, all, of_shared, base);
}

/* ---- updates ---- */

/* The op changes the parameter in place. */
static void update_by(training *t, weir_tensor *parameter, const weir_op *op, weir_tensor **in, int in_count, const void *attrs)
{
    const char *name = pool_text(&t->graph->pool, "%s.update", parameter->name);
    weir_tensor *out = apply_on(t->graph, parameter->mesh, t->src, name, op, in, in_count, attrs);
    if (out->poisoned)
        return;
    out->node->updates = parameter;
    parameter->update = out->node;
}

/* LAMB's update: a direction, whose norm is taken beside that of the parameter (kernels/optim/lamb.c). `in`: the gradient, and
 * what it is scaled by. */
static void update_lamb(training *t, weir_tensor *p, weir_tensor **in, int in_count, const struct optim_attrs *attrs)
{
    pool *names = &t->graph->pool;
    in[in_count] = p;
    weir_tensor *u = apply_on(t->graph, p->mesh, t->src, pool_text(names, "%s.lamb", p->name), &op_lamb, in, in_count + 1, attrs);
    weir_tensor *to[4] = {u, NULL, NULL, t->rate}, *const of[2] = {u, p};
    for (int i = 0; i < 2; i++)
        to[1 + i] = apply_on(t->graph, p->mesh, t->src, pool_text(names, i ? "%s.square" : "%s.lamb.square", p->name),
                             &op_square_sum, (weir_tensor *[]){of[i]}, 1, NULL);
    update_by(t, p, &op_lamb_apply, to, t->rate ? 4 : 3, attrs);
}

static void update(training *t, const trained *item)
{
    const weir_optimizer own = groups_options(&t->optimizer, item->parameter);
    const struct optim_attrs attrs = optimizer_attrs(&own);
    weir_tensor *factor = t->factor[item->part], *in[4] = {item->gradient};
    int count = 1;
    if (factor)
        in[count++] = factor;
    if (t->rate)
        in[count++] = t->rate;
    if (own.kind == WEIR_LAMB)
        update_lamb(t, item->parameter, in, count, &attrs);
    else
        update_by(t, item->parameter, optimizer_op(&own), in, count, &attrs);
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
    return !weir_graph_mistake(g) && optimizer_ok(g, o, src) && groups_ok(g, o, src);
}

static bool opts_ok(weir_graph *g, const weir_train_opts *opts)
{
    if (!(opts->ema >= 0 && opts->ema < 1))
        graph_mistake(g, opts->src, "train: .ema is %g; it is more than 0 and less than 1, or 0 for no averages", opts->ema);
    return !weir_graph_mistake(g);
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

/* Keeps an average of the parameter, which lies as the parameter does. It reads the parameter before the update, which therefore
 * comes later in the graph. */
static void average(training *t, weir_tensor *p, double decay)
{
    const struct ema_attrs attrs = {.decay = decay};
    weir_state_opts opts = {.size = sizeof opts, .src = t->src, .mesh = p->mesh, .name = pool_text(&t->graph->pool, "%s.ema", p->name)};
    memcpy(opts.shape, p->type.shape.dim, sizeof opts.shape);
    memcpy(opts.sbp, p->sbp, sizeof opts.sbp);
    weir_scope scope = graph_scope_absolute(t->graph, p->mesh, "");
    weir_tensor *state = opts.name ? weir_state_at(t->graph, WEIR_F32, &opts) : &t->graph->poison;
    weir_scope_leave(&scope);
    if (state->poisoned || !graph_use(state, t->src))
        return;
    for (int i = 0; i < t->graph->programs.count; i++)
        if (t->graph->programs.item[i].averages && p->used >> i & 1)
            graph_mistake(t->graph, t->src, "train: the program %s reads averages and was built before weir_train(.ema), so it "
                          "has \"%s\" itself; build it afterwards", t->graph->programs.item[i].name, p->name);
    memcpy(state->zero, p->zero, sizeof state->zero);
    const char *name = pool_text(&t->graph->pool, "%s.ema.update", p->name);
    weir_tensor *out = apply_on(t->graph, p->mesh, t->src, name, &op_ema, &p, 1, &attrs);
    if (out->poisoned)
        return;
    out->node->updates = state;
    state->update = out->node;
    p->average = state;
}

/* All that comes behind the gradients. */
static void build_updates(training *t, const weir_train_opts *opts)
{
    weir_mesh *where = t->graph->loss->mesh;
    clip_factors(t, where);
    t->rate = optimizer_rate(t->graph, &t->optimizer, where, t->src);
    for (int i = 0; i < t->list.count; i++)
        for (int a = 0; a < WEIR_AXES_MAX; a++)
            if (opts->zero[a])
                zero_split(t->list.item[i].parameter, a);
    for (int i = 0; opts->ema > 0 && i < t->list.count; i++)
        average(t, t->list.item[i].parameter, opts->ema);
    for (int i = 0; i < t->list.count; i++)
        update(t, &t->list.item[i]);
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
    if (!loss || loss->poisoned || !train_ok(loss, &optimizer, opts.src) || !count_ok(loss, opts.count, opts.src) ||
        !opts_ok(g, &opts))
        return;
    optimizer_defaults(&optimizer);
    groups_freeze(g, &optimizer);
    if (!loss->trains) {
        graph_mistake(g, opts.src, "train: all parameters that \"%s\" depends on are in groups with .frozen", loss->name);
        return;
    }
    training t = {.graph = g, .src = opts.src, .optimizer = optimizer, .norm = opts.norm};
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
    t.count = built && opts.count ? graph_step_sum(opts.count, "grad_norm/count") : NULL;
    built &= !opts.count || t.count;
    g->phase = PLAN_UPDATE;
    if (built)
        build_updates(&t, &opts);
    g->phase = PLAN_FORWARD;
}
