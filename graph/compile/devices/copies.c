/* graph/compile/devices/copies.c: see the header. A copy is a node of its own on the accelerators' mesh: as all else it becomes
 * one pop per device, and what nobody reads is swept away by the lower pass. */
#include "graph/compile/devices/passes.h"
#include "graph/compile/devices/copies.h"
#include "graph/base/error.h"
#include "graph/compile/devices/sources.h"
#include "graph/compile/sbp/sums.h"
#include "kernels/common/ops.h"

#include <string.h>

typedef struct host_mesh {         /* a mesh of accelerators, and the one beside it */
    const weir_mesh *of, *beside;
} host_mesh;

typedef struct twin {              /* the copy of a value in the host's memory; 1 + its tensor, 1 + its node */
    int tensor, node;
} twin;

typedef struct copying {
    compile *c;
    const ir_graph *from;
    int tensors;                   /* of `from` */
    POOL_LIST(ir_tensor) tensor;   /* those of `from` first */
    POOL_LIST(ir_node) node;
    POOL_LIST(host_mesh) meshes;
    int *place;                    /* by node of `from`: where it is now */
    int *root;                     /* by tensor of `from`: the one that it is another name of, or itself */
    int *device;                   /* by tensor that is made beside: 1 + its copy on the accelerator; 0 */
    bool *wanted;                  /* by tensor: a node on the accelerator reads it */
    bool *lies;                    /* by tensor: it is made on accelerators, or begins there */
    bool *beside;                  /* by node: on accelerators, and takes place beside them */
    bool *between;                 /* by node: a conversion from accelerator to accelerator (exchange.h, sums.h) */
    twin *out;                     /* by program and tensor on an accelerator */
} copying;

static bool on_accelerator(const weir_mesh *mesh)
{
    return device_is_accelerator(mesh->kind);
}

/* Whether a node on accelerators is a conversion that reads what other devices hold. */
static bool crosses(const ir_graph *ir, const ir_node *node)
{
    return node->op == &op_box && on_accelerator(node->mesh) &&
           !sources_local(&ir->tensors.item[node->in[0]], &ir->tensors.item[node->out[0]]);
}

static bool any_accelerator(const ir_graph *ir)
{
    for (int n = 0; n < ir->node_count; n++)
        if (on_accelerator(ir->node[n].mesh))
            return true;
    return false;
}

/* The mesh of the host's memory beside one of accelerators. */
static const weir_mesh *mesh_beside(copying *x, const weir_mesh *mesh)
{
    for (int i = 0; i < x->meshes.count; i++)
        if (x->meshes.item[i].of == mesh)
            return x->meshes.item[i].beside;
    const weir_mesh *home = mesh->home ? mesh_beside(x, mesh->home) : NULL;
    const weir_mesh *whole = mesh->whole ? mesh_beside(x, mesh->whole) : NULL;
    host_mesh *entry = POOL_PUSH(&x->c->pool, &x->meshes);
    weir_mesh *beside = POOL_NEW(&x->c->pool, weir_mesh, 1);
    if (!entry || !beside)
        return mesh;
    *beside = *mesh;
    beside->kind = WEIR_PINNED;
    beside->home = home;
    beside->whole = whole;
    *entry = (host_mesh){mesh, beside};
    return beside;
}

/* ---- copies ---- */

static const char *copy_name(copying *x, int tensor, plan_queue_kind way)
{
    return pool_text(&x->c->pool, "%s.%s", x->tensor.item[tensor].name, way == PLAN_COPY_IN ? "in" : "out");
}

/* The same value on another mesh; 1 + its number, 0: no memory. */
static int tensor_copy(copying *x, int of, const char *name, const weir_mesh *mesh)
{
    ir_tensor copy = x->tensor.item[of];
    ir_tensor *to = POOL_PUSH(&x->c->pool, &x->tensor);
    if (!to)
        return 0;
    *to = (ir_tensor){.name = name, .src = copy.src, .type = copy.type, .mesh = mesh, .node = NONE, .update = NONE,
                      .micro = copy.micro};
    memcpy(to->sbp, copy.sbp, sizeof to->sbp);
    return x->tensor.count;
}

/* Appends a node that copies `from` to a tensor like it on `to`; 1 + that tensor. `of`: for whose sake. */
static int copy_make(copying *x, const ir_node *of, plan_queue_kind way, int from, const weir_mesh *to)
{
    const weir_mesh *own = way == PLAN_COPY_IN ? to : x->tensor.item[from].mesh;
    const char *name = copy_name(x, from, way);
    int made = tensor_copy(x, from, name, to);
    ir_node *node = POOL_PUSH(&x->c->pool, &x->node);
    int *ends = POOL_NEW(&x->c->pool, int, 2);
    if (!made || !node || !ends)
        return 0;
    ends[0] = from;
    ends[1] = made - 1;
    *node = (ir_node){.name = name,
                      .src = x->tensor.item[from].src,
                      .op = &op_copy,
                      .mesh = own,
                      .phase = of->phase,
                      .program = of->program,
                      .micro = x->tensor.item[from].micro,
                      .copies = way,
                      .sum = NONE,
                      .after = NONE,
                      .in_count = 1,
                      .out_count = 1,
                      .in = ends,
                      .out = ends + 1,
                      .updates = NONE,
                      .choice = {NONE, NONE, NONE}};
    return made;
}

/* The tensor where the host reaches it: copied out in front of its first reader, and in the phase of the earliest. */
static int host_side(copying *x, int t, const ir_node *reader)
{
    t = x->root[t];
    const weir_mesh *mesh = x->tensor.item[t].mesh;
    if (!on_accelerator(mesh))
        return t;
    twin *out = &x->out[reader->program * x->tensors + t];
    if (!out->tensor) {
        out->tensor = copy_make(x, reader, PLAN_COPY_OUT, t, mesh_beside(x, mesh));
        out->node = x->node.count;
    } else if (reader->phase < x->node.item[out->node - 1].phase) {
        x->node.item[out->node - 1].phase = reader->phase;
    }
    return out->tensor ? out->tensor - 1 : t;
}

static int device_side(const copying *x, int t)
{
    return x->device[t] ? x->device[t] - 1 : t;
}

/* ---- nodes ---- */

/* A value that a node of the host's makes for accelerators lies beside them, and is copied in when they read it. */
static void copy_outputs_in(copying *x, const ir_node *node)
{
    for (int o = node->updates >= 0; o < node->out_count; o++) {
        int t = node->out[o];
        const weir_mesh *mesh = x->tensor.item[t].mesh;
        if (!on_accelerator(mesh))
            continue;
        x->tensor.item[t].mesh = mesh_beside(x, mesh);
        if (x->wanted[t])
            x->device[t] = copy_make(x, node, PLAN_COPY_IN, t, mesh);
    }
}

/* A tensor of parts, and the node of `op` that makes it of another tensor; that tensor, or -1: no memory. */
static int parts_make(copying *x, const ir_node *of, const char *what, const weir_op *op, const weir_mesh *mesh, int from)
{
    const char *name = pool_text(&x->c->pool, "%s.%s", of->name, what);
    int made = tensor_copy(x, from, name, mesh);
    ir_node *node = POOL_PUSH(&x->c->pool, &x->node);
    int *ends = POOL_NEW(&x->c->pool, int, 2);
    if (!made || !node || !ends)
        return NONE;
    x->tensor.item[made - 1].parts = true;
    ends[0] = from;
    ends[1] = made - 1;
    *node = *of;
    node->name = name;
    node->op = op;
    node->mesh = mesh;
    node->copies = op == &op_collective ? PLAN_COLLECTIVE : PLAN_COMPUTE;
    node->in = ends;
    node->out = ends + 1;
    return made - 1;
}

/* The conversion reads parts of the tensor, which its devices have taken from those that hold it. */
static int between_accelerators(copying *x, const ir_node *node, int from)
{
    int given = parts_make(x, node, "give", &op_box, x->tensor.item[from].mesh, from);
    return given < 0 ? from : parts_make(x, node, "take", &op_collective, node->mesh, given);
}

/* Where its devices are to add by themselves, the conversion is that. */
static bool becomes_sum(const copying *x, ir_node *node)
{
    plan_collective_kind kind;
    if (!sum_is(x->c, &x->from->tensors.item[node->in[0]], &x->from->tensors.item[node->out[0]], &kind))
        return false;
    node->op = &op_collective;
    node->copies = PLAN_COLLECTIVE;
    node->sum = (int)kind;
    return true;
}

static void node_enter(copying *x, int n)
{
    ir_node node = x->from->node[n];
    bool beside = x->beside[n], host = beside || !on_accelerator(node.mesh);
    int *in = POOL_NEW(&x->c->pool, int, node.in_count + 1);
    for (int i = 0; in && i < node.in_count; i++)
        in[i] = host ? host_side(x, node.in[i], &node) : device_side(x, node.in[i]);
    if (in && x->between[n] && !becomes_sum(x, &node))
        in[0] = between_accelerators(x, &node, in[0]);
    node.in = in;
    if (beside)
        node.mesh = mesh_beside(x, node.mesh);
    ir_node *at = POOL_PUSH(&x->c->pool, &x->node);
    if (!in || !at)
        return;
    *at = node;
    x->place[n] = x->node.count - 1;
    if (host)
        copy_outputs_in(x, &node);
}

/* Where everything takes place, as far as it follows from where the inputs lie. */
static void survey_places(copying *x)
{
    const ir_graph *from = x->from;
    for (int t = 0; t < x->tensors; t++) {
        x->root[t] = t;
        x->lies[t] = on_accelerator(from->tensors.item[t].mesh) && from->tensors.item[t].node < 0;
    }
    for (int n = 0; n < from->node_count; n++) {
        const ir_node *node = &from->node[n];
        bool called = node->origin && node->origin->host, far = crosses(from, node);
        if (node->op == &op_shard)
            x->root[node->out[0]] = x->root[node->in[0]];
        x->between[n] = far && x->lies[node->in[0]] && from->tensors.item[node->in[0]].mesh->kind == node->mesh->kind;
        x->beside[n] = on_accelerator(node->mesh) && (called || far) && !x->between[n];
        for (int o = 0; o < node->out_count; o++)
            x->lies[node->out[o]] = node->op == &op_shard ? x->lies[node->in[0]]
                                                          : on_accelerator(node->mesh) && !x->beside[n];
    }
}

/* Finds the tensors that are read on accelerators. A tensor that only the host reads is converted beside them. */
static void survey(copying *x)
{
    survey_places(x);
    for (int n = x->from->node_count - 1; n >= 0; n--) {
        const ir_node *node = &x->from->node[n];
        if (x->between[n] && !x->wanted[node->out[0]]) {
            x->between[n] = false;
            x->beside[n] = true;
        }
        for (int i = 0; i < node->in_count && on_accelerator(node->mesh) && !x->beside[n]; i++)
            x->wanted[node->in[i]] = x->wanted[x->root[node->in[i]]] = true;
    }
}

/* A node that waits for a value to be on its way to a disk waits until it has left the accelerator. */
static int waited_for(const copying *x, int n)
{
    const ir_node *node = &x->from->node[n];
    bool stores = node->moves && x->from->tensors.item[node->out[0]].mesh->kind == WEIR_DISK;
    int out = stores ? x->out[node->program * x->tensors + x->root[node->in[0]]].node : 0;
    return out ? out - 1 : x->place[n];
}

static void waits_enter(copying *x)
{
    x->c->ir.waits.item = NULL;
    x->c->ir.waits.count = x->c->ir.waits.room = 0;
    for (int w = 0; w < x->from->waits.count; w++) {
        ir_wait *to = POOL_PUSH(&x->c->pool, &x->c->ir.waits);
        if (to)
            *to = (ir_wait){x->place[x->from->waits.item[w].node], waited_for(x, x->from->waits.item[w].on)};
    }
}

static bool copying_begin(copying *x, compile *c, const ir_graph *from)
{
    int tensors = from->tensors.count, programs = c->graph->programs.count;
    *x = (copying){.c = c, .from = from, .tensors = tensors};
    for (int t = 0; t < tensors; t++) {
        ir_tensor *to = POOL_PUSH(&c->pool, &x->tensor);
        if (to)
            *to = from->tensors.item[t];
    }
    x->place = POOL_NEW(&c->pool, int, from->node_count + 1);
    x->root = POOL_NEW(&c->pool, int, tensors + 1);
    x->device = POOL_NEW(&c->pool, int, tensors + 1);
    x->wanted = POOL_NEW(&c->pool, bool, tensors + 1);
    x->lies = POOL_NEW(&c->pool, bool, tensors + 1);
    x->beside = POOL_NEW(&c->pool, bool, from->node_count + 1);
    x->between = POOL_NEW(&c->pool, bool, from->node_count + 1);
    x->out = POOL_NEW(&c->pool, twin, tensors * programs + 1);
    return !c->pool.failed && x->tensor.item;
}

bool pass_copies(compile *c)
{
    if (!any_accelerator(&c->ir))
        return true;
    const ir_graph from = c->ir;
    copying x;
    if (copying_begin(&x, c, &from)) {
        survey(&x);
        for (int n = 0; n < from.node_count && !c->pool.failed; n++)
            node_enter(&x, n);
        for (int n = 0; n < x.node.count; n++)
            if (x.node.item[n].after >= 0)
                x.node.item[n].after = device_side(&x, x.node.item[n].after);
    }
    if (c->pool.failed)
        return error_set(WEIR_E_MEMORY, "no memory to compile \"%s\"", c->graph->name) == WEIR_OK;
    c->ir.tensors.item = x.tensor.item;
    c->ir.tensors.count = x.tensor.count;
    c->ir.tensors.room = x.tensor.room;
    ir_renumber(c, x.node.item, x.node.count);
    waits_enter(&x);
    return !c->pool.failed || error_set(WEIR_E_MEMORY, "no memory to compile \"%s\"", c->graph->name) == WEIR_OK;
}
