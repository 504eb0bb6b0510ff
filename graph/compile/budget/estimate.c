/* graph/compile/budget/estimate.c: see the header. */
#include "graph/compile/budget/estimate.h"
#include "kernels/common/ops.h"

#include <string.h>

enum { CLASSES_MAX = 64 };

/* ---- devices ---- */

static uint64_t mesh_bit(estimate *of, const weir_mesh *mesh)
{
    int m = 0;
    while (m < of->meshes.count && !mesh_equal(of->meshes.item[m], mesh))
        m++;
    if (m == of->meshes.count) {
        const weir_mesh **at = POOL_PUSH(&of->x->c->pool, &of->meshes);
        if (at)
            *at = mesh;
    }
    return UINT64_C(1) << (m < CLASSES_MAX ? m : CLASSES_MAX - 1);
}

static int position(const weir_mesh *mesh, weir_device_kind kind, int index)
{
    for (int at = 0; at < mesh->count && mesh->kind == kind; at++)
        if (mesh->device[at] == index)
            return at;
    return NONE;
}

static void place_enter(estimate *of, weir_device_kind kind, int index)
{
    uint64_t meshes = 0;
    for (int m = 0; m < of->meshes.count; m++)
        if (position(of->meshes.item[m], kind, index) >= 0)
            meshes |= mesh_bit(of, of->meshes.item[m]);
    for (int p = 0; p < of->classes.count; p++)
        if (of->classes.item[p].meshes == meshes)
            return;
    device_class *to = of->classes.count < CLASSES_MAX ? POOL_PUSH(&of->x->c->pool, &of->classes) : NULL;
    if (to)
        *to = (device_class){.kind = kind, .index = index, .meshes = meshes};
}

/* No rung changes the bytes of a parameter, or of an input's register. */
static bool counts(const ir_graph *base, const ir_tensor *t)
{
    return t->node >= 0 && base->node[t->node].updates < 0 && base->node[t->node].op != &op_source;
}

static void class_bytes(estimate *of, device_class *p)
{
    const ir_graph *base = &of->x->base;
    p->bytes = POOL_NEW(&of->x->c->pool, double, base->tensors.count + 1);
    for (int t = 0; p->bytes && t < base->tensors.count; t++) {
        const ir_tensor *from = &base->tensors.item[t];
        int at = position(from->mesh, p->kind, p->index);
        if (at >= 0 && of->x->root[t] == t && counts(base, from))
            p->bytes[t] = (double)shard_bytes(from, at);
    }
}

static void find_places(estimate *of)
{
    const ir_graph *base = &of->x->base;
    for (int t = 0; t < base->tensors.count; t++)
        mesh_bit(of, mesh_user(base->tensors.item[t].mesh));
    for (int m = 0; m < of->meshes.count; m++)
        for (int at = 0; at < of->meshes.item[m]->count; at++)
            place_enter(of, of->meshes.item[m]->kind, of->meshes.item[m]->device[at]);
    for (int p = 0; p < of->classes.count; p++)
        class_bytes(of, &of->classes.item[p]);
}
bool estimate_begin(estimate *of, recompute *x)
{
    pool *p = &x->c->pool;
    int tensors = x->base.tensors.count + 1;
    int *behind = POOL_NEW(p, int, x->base.node_count + 1);
    *of = (estimate){.x = x};
    of->slots = POOL_NEW(p, int, tensors);
    of->stays = POOL_NEW(p, stay, 2 * tensors);
    of->change = POOL_NEW(p, double, x->event_max + 1);
    find_places(of);
    if (p->failed)
        return false;
    stages_behind(x->c, behind);
    for (int n = 0; n < x->base.node_count; n++) {
        const ir_node *node = &x->base.node[n];
        int ahead = node->phase == PLAN_FORWARD ? behind[n] + 1 : 1;
        for (int o = 0; o < node->out_count; o++)
            of->slots[node->out[o]] = !node->micro ? 1 : ahead < x->c->micro ? ahead : x->c->micro;
    }
    return true;
}

/* ---- what a device needs ---- */

/* The stay of what the event reads or makes. */
static stay *stay_of(const estimate *of, int t, bool again)
{
    return &of->stays[of->x->root[t] + (again ? of->x->base.tensors.count : 0)];
}

static plan_phase phase_of(const recompute *x, const again_event *e)
{
    return e->again || e->move == MOVE_FETCH ? PLAN_BACKWARD : x->base.node[e->node].phase;
}

static void find_stays(estimate *of)
{
    const recompute *x = of->x;
    for (int s = 0; s < 2 * x->base.tensors.count; s++)
        of->stays[s] = (stay){.born = NONE, .died = NONE};
    for (int k = 0; k < x->event_count; k++) {
        const again_event *e = &x->event[k];
        const ir_node *node = &x->base.node[e->node];
        if (e->move > MOVE_FETCH)
            continue;
        if (e->move) {
            stay *s = stay_of(of, e->tensor, e->move == MOVE_FETCH);
            *s = (stay){.born = e->move == MOVE_FETCH ? k : s->born, .died = k};
            continue;
        }
        bool once = x->c->micro > 1 && (!node->micro || (node->origin && node->origin->fills));
        for (int i = 0; i < node->in_count; i++) {
            stay *s = stay_of(of, node->in[i], recompute_reads_again(x, e, node->in[i]));
            s->died = k;
            s->crosses |= s->born >= 0 && phase_of(x, &x->event[s->born]) != phase_of(x, e);
        }
        for (int o = 0; o < node->out_count && node->op != &op_shard; o++)
            *stay_of(of, node->out[o], e->again) = (stay){.born = k, .died = k, .always = once};
    }
    for (int t = 0; t < x->base.tensors.count; t++)
        of->stays[t].always |= of->stays[t].crosses && of->slots[t] > 1;
}

/* A kernel that works in place takes over the bytes of an input that dies with it. */
static void share_in_place(estimate *of)
{
    for (int k = 0; k < of->x->event_count; k++) {
        const again_event *e = &of->x->event[k];
        if (e->move)
            continue;
        const ir_node *node = &of->x->base.node[e->node];
        int in = node->op->inplace - 1;
        if (in < 0 || in >= node->in_count)
            continue;
        stay *s = stay_of(of, node->in[in], recompute_reads_again(of->x, e, node->in[in]));
        if (s->died == k && !s->crosses && s->born >= 0 && s->born < k)
            s->died = k - 1;
    }
}

static void class_count(estimate *of, device_class *p)
{
    int tensors = of->x->base.tensors.count, events = of->x->event_count;
    double always = 0, now = 0, most = -1;
    memset(of->change, 0, sizeof *of->change * (size_t)(events + 1));
    for (int s = 0; s < 2 * tensors; s++) {
        double bytes = p->bytes[s % tensors];
        if (!bytes || of->stays[s].born < 0)
            continue;
        if (of->stays[s].always) {
            always += bytes * of->slots[s % tensors];
            continue;
        }
        of->change[of->stays[s].born] += bytes;
        of->change[of->stays[s].died + 1] -= bytes;
    }
    for (int k = 0; k < events; k++) {
        now += of->change[k];
        if (now > most) {
            most = now;
            p->peak = k;
        }
    }
    p->needs = always + most;
}

const device_class *estimate_count(estimate *of)
{
    const device_class *worst = NULL;
    recompute_order(of->x);
    of->effort += of->x->event_count;
    find_stays(of);
    share_in_place(of);
    for (int p = 0; p < of->classes.count; p++) {
        class_count(of, &of->classes.item[p]);
        if (!worst || of->classes.item[p].needs > worst->needs)
            worst = &of->classes.item[p];
    }
    return worst;
}
