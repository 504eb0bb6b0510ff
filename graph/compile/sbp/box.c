/* graph/compile/sbp/box.c: make conversions explicit.
 *
 * Where a node wants an input in another layout, or on another mesh, than the tensor has, a node of op `box` is put in
 * between; readers of one program that want the same share it. A conversion stands right behind what it converts,
 * so that it starts as early as it can, one of a parameter in front of its first reader; it belongs to the phase of
 * that.
 *
 * A partial sum that ends up on several devices is scattered first and gathered then (P -> S -> B): each device adds up one
 * slice of the terms instead of all of them. Sums of fewer than SMALL elements go directly: there the second hand-over costs
 * more than the additions. A mapped parameter is never converted: a reader that wants it in another layout, or on another
 * mesh, has another view of the file, which is one more tensor without a producer. Among more than eight devices both go by tiers (teams.h). Sums that accelerators add by
 * themselves are one step instead (sums.h).
 */
#include "graph/compile/sbp/passes.h"
#include "graph/compile/sbp/sums.h"
#include "graph/compile/sbp/teams.h"
#include "graph/base/base.h"
#include "graph/base/error.h"
#include "kernels/core/core.h"
#include "kernels/common/ops.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

enum { SMALL = 4096, LAYOUT_TEXT = 8 * MESH_AXES_MAX };
#define UNEVEN 1.25 /* times the mean: what the busiest device may have of a sum that goes by rows */

typedef struct boxed {             /* of a tensor; -1: there is none */
    int node;                      /* the conversion that makes it, in `made` */
    int first;                     /* tensor that is a conversion of it, */
    int next;                      /* and the next one of the same tensor as this */
} boxed;

typedef struct boxing {
    compile *c;
    teams *teams;
    POOL_LIST(ir_node) made;       /* conversions */
    POOL_LIST(boxed) of;           /* by tensor */
    POOL_LIST(int) views;          /* tensors that are another layout of a mapped parameter */
} boxing;

static boxed *boxed_of(const boxing *b, int tensor)
{
    assert(b->of.item && tensor >= 0 && tensor < b->of.count);
    return &b->of.item[tensor];
}

static bool layout_is(const ir_tensor *t, const weir_mesh *mesh, const weir_sbp *sbp)
{
    return mesh_equal(t->mesh, mesh) && sbp_equal(mesh, t->sbp, sbp);
}

/* Devices that hold the same element in this layout. */
static int copies(const weir_mesh *mesh, const weir_sbp *sbp)
{
    int count = 1;
    for (int a = 0; a < mesh->axes; a++)
        count *= sbp[a] == WEIR_B ? mesh->shape[a] : 1;
    return count;
}

/* The largest part's share when `size` elements are cut into `parts`. */
static double largest_share(int64_t size, int parts)
{
    return size ? (double)((size + parts - 1) / parts) / (double)size : 1;
}

/* The first that shares it about evenly, because its rows lie next to each other, or else the one that does so best. */
int scatter_dimension(const weir_shape *left, int parts)
{
    int best = 0;
    for (int d = 0; d < left->rank; d++) {
        if (largest_share(left->dim[d], parts) * parts <= UNEVEN)
            return d;
        if (largest_share(left->dim[d], parts) < largest_share(left->dim[best], parts))
            best = d;
    }
    return best;
}

/* Leaves what the shortest part has: a device without elements adds nothing. */
static void cut(weir_shape *left, weir_sbp how, int parts)
{
    if (WEIR_IS_S(how))
        left->dim[WEIR_S_DIM(how)] /= parts;
}

bool scatter_pays(const weir_shape *shape)
{
    return shape->rank > 0 && weir_shape_count(shape) >= SMALL;
}

bool scatter_first(const ir_tensor *t, const weir_mesh *mesh, const weir_sbp *sbp, weir_sbp *between)
{
    bool closes = false;
    weir_shape left = t->type.shape;
    if (!scatter_pays(&left) || copies(mesh, sbp) == 1)
        return false;
    for (int a = 0; a < t->mesh->axes; a++)
        cut(&left, t->sbp[a], t->mesh->shape[a]);
    for (int a = 0; a < WEIR_AXES_MAX; a++) {
        bool open = a < t->mesh->axes && t->sbp[a] == WEIR_P;
        bool stays = open && mesh_equal(t->mesh, mesh) && sbp[a] == WEIR_P;
        between[a] = t->sbp[a];
        if (open && !stays) {
            int parts = t->mesh->shape[a];
            between[a] = WEIR_S(scatter_dimension(&left, parts));
            cut(&left, between[a], parts);
            closes |= parts > 1;
        }
    }
    return closes && !layout_is(&(ir_tensor){.mesh = t->mesh, .sbp = {between[0], between[1], between[2]}}, mesh, sbp);
}

/* "S(0),B", or where an axis has tiers, "S(0).P,B": the outermost first. */
static const char *layout_text(const weir_mesh *mesh, const weir_sbp *sbp, char text[LAYOUT_TEXT])
{
    size_t at = 0;
    for (int a = 0; a < mesh->axes; a++) {
        char one[8];
        const char *between = !a ? "" : mesh->home && mesh->home_axis[a] == mesh->home_axis[a - 1] ? "." : ",";
        at += (size_t)snprintf(text + at, LAYOUT_TEXT - at, "%s%s", between, weir_sbp_text(sbp[a], one));
    }
    return text;
}

static int tensor_like(compile *c, int from, const weir_mesh *mesh, const weir_sbp *sbp)
{
    ir_tensor copy = c->ir.tensors.item[from];
    ir_tensor *t = POOL_PUSH(&c->pool, &c->ir.tensors);
    if (!t)
        return from;
    *t = (ir_tensor){.src = copy.src, .type = copy.type, .mesh = mesh, .micro = copy.micro, .update = NONE};
    memcpy(t->sbp, sbp, sizeof *sbp * (size_t)mesh->axes);
    char layout[LAYOUT_TEXT];
    t->name = pool_text(&c->pool, "%s>%s", copy.name, layout_text(mesh, sbp, layout));
    return c->ir.tensors.count - 1;
}

/* Enters a tensor; conversions of one stay in the order in which they were made. */
static void enter(boxing *b, int from, int node)
{
    boxed *entry = POOL_PUSH(&b->c->pool, &b->of);
    if (!entry)
        return;
    *entry = (boxed){.node = node, .first = NONE, .next = NONE};
    if (from < 0)
        return;
    int *last = &boxed_of(b, from)->first;
    while (*last >= 0)
        last = &boxed_of(b, *last)->next;
    *last = b->of.count - 1;
}

static int convert_direct(boxing *b, int from, const ir_node *reader, const weir_mesh *mesh, const weir_sbp *sbp)
{
    compile *c = b->c;
    int to = tensor_like(c, from, mesh, sbp);
    ir_node *node = POOL_PUSH(&c->pool, &b->made);
    if (!node)
        return from;
    const ir_tensor *t = &c->ir.tensors.item[from];
    *node = (ir_node){.name = c->ir.tensors.item[to].name,
                      .src = t->src,
                      .op = &op_box,
                      .mesh = mesh_home(mesh),
                      .phase = reader->phase,
                      .program = reader->program,
                      .micro = t->micro,
                      .in_count = 1,
                      .out_count = 1,
                      .sum = NONE,
                      .after = NONE,
                      .updates = NONE,
                      .choice = {NONE, NONE, NONE}};
    node->in = POOL_NEW(&c->pool, int, 1);
    node->out = POOL_NEW(&c->pool, int, 1);
    if (!node->in || !node->out)
        return from;
    node->in[0] = from;
    node->out[0] = to;
    enter(b, from, b->made.count - 1);
    return c->pool.failed ? from : to;
}

/* A conversion, and those that it is made from, belong to the phase of their first reader. */
static void phase_no_later(boxing *b, int tensor, plan_phase phase)
{
    while (boxed_of(b, tensor)->node >= 0) {
        ir_node *node = &b->made.item[boxed_of(b, tensor)->node];
        if (phase < node->phase)
            node->phase = phase;
        tensor = node->in[0];
    }
}

/* The program's conversion of `from` to this layout; -1: there is none yet. */
static int conversion_of(const boxing *b, int from, int program, const weir_mesh *mesh, const weir_sbp *sbp)
{
    int t = boxed_of(b, from)->first;
    while (t >= 0 && (b->made.item[boxed_of(b, t)->node].program != program ||
                      !layout_is(&b->c->ir.tensors.item[t], mesh, sbp)))
        t = boxed_of(b, t)->next;
    return t;
}

/* The input of such a node is taken from the accelerator anyway. */
static bool calls_host(const ir_node *node)
{
    return node->origin && node->origin->host;
}

/* The mapped parameter `from` in the layout asked for, as a view of the file. */
static int mapped_view(boxing *b, int from, const weir_mesh *mesh, const weir_sbp *sbp)
{
    compile *c = b->c;
    const ir_tensor *t = &c->ir.tensors.item[from];
    if (layout_is(t, mesh, sbp))
        return from;
    const int root = t->mapped - 1;
    for (int i = -1; i < b->views.count; i++) {
        const int at = i < 0 ? root : b->views.item[i];
        if (c->ir.tensors.item[at].mapped == t->mapped && layout_is(&c->ir.tensors.item[at], mesh, sbp))
            return at;
    }
    int made = tensor_like(c, root, mesh, sbp), *view = POOL_PUSH(&c->pool, &b->views);
    if (made == root || !view)
        return from;
    c->ir.tensors.item[made].origin = c->ir.tensors.item[root].origin;
    c->ir.tensors.item[made].mapped = root + 1;
    c->ir.tensors.item[made].node = NONE;
    enter(b, -1, -1);
    *view = made;
    return made;
}

/* Whether the reader may have what is mapped. */
static bool mapped_there(const ir_tensor *t, const ir_node *reader)
{
    if (!t->mapped || reader->mesh->kind == WEIR_CPU)
        return true;
    error_set(WEIR_E_GRAPH, "%s:%d: %s: \"%s\" reads \"%s\" on %s devices, but a parameter that is .mapped is read by CPUs",
              reader->src.file, reader->src.line, reader->op->name, reader->name, t->name, device_kind_name(reader->mesh->kind));
    return false;
}

/* The tensor that is `from` in the layout asked for; made if it is not there. */
static int convert(boxing *b, int from, const ir_node *reader, const weir_mesh *mesh, const weir_sbp *sbp)
{
    const ir_tensor *t = &b->c->ir.tensors.item[from];
    weir_sbp between[MESH_AXES_MAX] = {0};
    if (t->mapped)
        return mapped_view(b, from, mesh, sbp);
    if (layout_is(t, mesh, sbp))
        return from;
    int there = conversion_of(b, from, reader->program, mesh, sbp);
    if (there >= 0) {
        phase_no_later(b, there, reader->phase);
        return there;
    }
    if (!calls_host(reader) && sum_first(b->c, t, mesh, sbp, between)) {
        if (layout_is(&(ir_tensor){.mesh = t->mesh, .sbp = {between[0], between[1], between[2]}}, mesh, sbp))
            return convert_direct(b, from, reader, mesh, sbp);
        int sum = convert(b, from, reader, t->mesh, between);
        return sum == from ? from : convert(b, sum, reader, mesh, sbp);
    }
    const weir_mesh *through = teams_through(b->teams, t, mesh, sbp, between);
    bool step = t->mesh->home || mesh->home || teams_core_is(t->mesh, mesh) || teams_core_is(mesh, t->mesh);
    if (!through && !step && scatter_first(t, mesh, sbp, between))
        through = t->mesh;
    if (!through)
        return convert_direct(b, from, reader, mesh, sbp);
    int halfway = convert(b, from, reader, through, between);
    return halfway == from ? from : convert(b, halfway, reader, mesh, sbp);
}

/* Puts the node, and behind it the conversions of what it makes, into the new order. */
static void place(boxing *b, ir_node *order, int *count, int *new_id, ir_node node, int old_id);

static void place_conversions(boxing *b, ir_node *order, int *count, int *new_id, int tensor)
{
    for (int t = boxed_of(b, tensor)->first; t >= 0; t = boxed_of(b, t)->next)
        place(b, order, count, new_id, b->made.item[boxed_of(b, t)->node], -1);
}

static void place(boxing *b, ir_node *order, int *count, int *new_id, ir_node node, int old_id)
{
    int at = (*count)++;
    order[at] = node;
    if (old_id >= 0)
        new_id[old_id] = at;
    for (int o = 0; o < node.out_count; o++)
        b->c->ir.tensors.item[node.out[o]].node = at;
    for (int o = 0; o < node.out_count; o++)
        if (o || node.updates < 0)
            place_conversions(b, order, count, new_id, node.out[o]);
}

typedef struct ordering {
    boxing *b;
    ir_node *order;
    int count;
    int *new_id;                   /* by node of before */
    int *root;                     /* by tensor: the parameter that it is a conversion of, or -1 */
    bool *placed;                  /* by parameter: its conversions are */
} ordering;

static bool is_parameter(const ir_tensor *t)
{
    return t->origin && !t->origin->node;
}

static bool ordering_begin(ordering *x, boxing *b)
{
    pool *p = &b->c->pool;
    int tensors = b->c->ir.tensors.count, nodes = b->c->ir.node_count;
    *x = (ordering){.b = b,
                    .order = POOL_NEW(p, ir_node, nodes + b->made.count + 1),
                    .new_id = POOL_NEW(p, int, nodes + 1),
                    .root = POOL_NEW(p, int, tensors + 1),
                    .placed = POOL_NEW(p, bool, tensors + 1)};
    for (int t = 0; t < tensors && x->root; t++)
        x->root[t] = boxed_of(b, t)->node >= 0 ? x->root[b->made.item[boxed_of(b, t)->node].in[0]] :
                     is_parameter(&b->c->ir.tensors.item[t]) ? t : NONE;
    return !p->failed;
}

/* Conversions of parameters, which exist from the start, go right in front of the first node that reads one: there they
 * are a part of that actor when they are made for it alone (recompute.h). */
static void place_roots(ordering *x, const ir_node *node)
{
    for (int i = 0; i < node->in_count; i++) {
        int root = x->root[node->in[i]];
        if (root < 0 || x->placed[root])
            continue;
        x->placed[root] = true;
        place_conversions(x->b, x->order, &x->count, x->new_id, root);
    }
}

static bool reorder(boxing *b)
{
    compile *c = b->c;
    ordering x;
    if (!ordering_begin(&x, b))
        return false;
    for (int n = 0; n < c->ir.node_count; n++) {
        place_roots(&x, &c->ir.node[n]);
        place(b, x.order, &x.count, x.new_id, c->ir.node[n], n);
    }
    for (int t = 0; t < c->ir.tensors.count; t++)
        if (c->ir.tensors.item[t].update >= 0)
            c->ir.tensors.item[t].update = x.new_id[c->ir.tensors.item[t].update];
    c->ir.node = x.order;
    c->ir.node_count = x.count;
    return true;
}

bool pass_box(compile *c)
{
    boxing b = {.c = c, .teams = teams_new(c)};
    for (int t = 0; t < c->ir.tensors.count; t++)
        enter(&b, -1, -1);
    for (int n = 0; n < c->ir.node_count && b.teams && !c->pool.failed; n++) {
        ir_node *node = &c->ir.node[n];
        for (int i = 0; i < node->in_count; i++) {
            weir_sbp wish[WEIR_AXES_MAX] = {0};
            for (int a = 0; a < node->mesh->axes; a++)
                wish[a] = node_in_sbp(node, i, a);
            if (!mapped_there(&c->ir.tensors.item[node->in[i]], node))
                return false;
            node->in[i] = convert(&b, node->in[i], node, node->mesh, wish);
        }
    }
    if (c->pool.failed || !reorder(&b)) {
        error_set(WEIR_E_MEMORY, "no memory to compile \"%s\"", c->graph->name);
        return false;
    }
    return true;
}
