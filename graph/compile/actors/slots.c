/* graph/compile/actors/slots.c: how many slots each register has at first.
 *
 * One, except:
 *   - what a forward group saves for its backward, with k stages behind it: k + 1, so that many micro-batches may be
 *     under way, and one-forward-one-backward emerges from credits instead of from a schedule;
 *   - what moves between devices or queues, and inputs: two, so that the next transfer overlaps with the use of this one;
 *   - what is fetched: as many as the user said, at least; what calls make for another queue, and read of one: two.
 * Never more than are written in one step, except for these and inputs, which may run ahead of it, and for what is
 * small and read by another device: there the next step's need not wait for the way back of the word that it was read.
 * A register whose slots the user fixed is left alone. Slots for a link between hosts come on top (hosts.h). The loop in
 * backend.c lowers what does not fit and raises what turns out to be too few. With rates, backend/pace.c begins here and looks for
 * better ones.
 *
 * The stages behind a node are how often a path from it moves on to a mesh that shares no device with the one before.
 */
#include "graph/compile/actors/passes.h"
#include "graph/base/error.h"
#include "graph/compile/actors/hosts.h"
#include "kernels/common/ops.h"

enum { SMALL_BYTES = 1 << 16 };

/* The memory beside an accelerator is a part of it. */
static bool kinds_meet(weir_device_kind a, weir_device_kind b)
{
    return a == b || (a == WEIR_PINNED && device_is_accelerator(b)) || (b == WEIR_PINNED && device_is_accelerator(a));
}

static bool meshes_meet(const weir_mesh *a, const weir_mesh *b)
{
    for (int i = 0; i < a->count && kinds_meet(a->kind, b->kind); i++)
        for (int k = 0; k < b->count; k++)
            if (a->device[i] == b->device[k])
                return true;
    return false;
}

void stages_behind(const compile *c, int *behind)
{
    for (int n = c->ir.node_count - 1; n >= 0; n--) {
        const ir_node *node = &c->ir.node[n];
        if (node->phase != PLAN_FORWARD)
            continue;
        for (int i = 0; i < node->in_count; i++) {
            int from = c->ir.tensors.item[node->in[i]].node;
            if (from < 0)
                continue;
            int reach = behind[n] + !meshes_meet(c->ir.node[from].mesh, node->mesh);
            if (reach > behind[from])
                behind[from] = reach;
        }
    }
}

/* The stages behind what is in the register. */
static int reg_behind(const phys *p, const reg *r, const int *behind)
{
    int most = 0;
    for (int t = 0; t < r->tensors.count; t++) {
        int n = p->op.item[p->tensor.item[r->tensors.item[t]].producer].node;
        most = behind[n] > most ? behind[n] : most;
    }
    return most;
}

static bool read_in_phase(const phys *p, const reg *r, plan_phase phase)
{
    for (int i = 0; i < r->readers.count; i++)
        if (p->group.item[r->readers.item[i]].phase == phase)
            return true;
    return false;
}

/* Push and pull run beside the device rather than at the same time as what it makes. */
static plan_queue_kind runs_with(const group *g)
{
    return g->queue == PLAN_OUTSIDE ? PLAN_COMPUTE : g->queue;
}

static bool run_together(const group *a, const group *b)
{
    return runs_with(a) == runs_with(b) && a->io == b->io;
}

/* By another device, or another queue that runs at the same time. */
static bool read_elsewhere(const phys *p, const reg *r)
{
    for (int i = 0; i < r->readers.count; i++) {
        const group *reader = &p->group.item[r->readers.item[i]];
        if (reader->device != r->device || (r->group >= 0 && !run_together(reader, &p->group.item[r->group])))
            return true;
    }
    return false;
}

/* Slots that a fetch among the readers asks for; 0 when there is none. */
static int fetch_slots(const compile *c, const reg *r)
{
    int slots = 0;
    for (int i = 0; i < r->readers.count; i++) {
        const group *g = &c->phys.group.item[r->readers.item[i]];
        const graph_node *node = c->ir.node[c->phys.op.item[g->pops.item[0]].node].origin;
        if (node && node->fetch_slots > slots)
            slots = node->fetch_slots;
    }
    return slots;
}

static bool is_call(const compile *c, const group *g)
{
    return c->ir.node[c->phys.op.item[g->pops.item[0]].node].op == &op_call;
}

/* Whether a call makes or reads what comes from another queue, or goes there. */
static bool passes_call(const compile *c, const reg *r)
{
    bool called = is_call(c, &c->phys.group.item[r->group]);
    for (int i = 0; i < r->readers.count; i++)
        called |= is_call(c, &c->phys.group.item[r->readers.item[i]]);
    return called && read_elsewhere(&c->phys, r);
}

static int reg_slots(const compile *c, const reg *r, const int *behind)
{
    const phys *p = &c->phys;
    const group *g = &p->group.item[r->group];
    int written = reg_writes(c, r), slots = 1, fetched = fetch_slots(c, r);
    if ((r->kind == PLAN_IO && !is_call(c, g)) || passes_call(c, r))
        return fetched > 2 ? fetched : 2;
    if (r->kind == PLAN_TRANSFER || read_elsewhere(p, r))
        slots = 2;
    if (g->phase == PLAN_FORWARD && read_in_phase(p, r, PLAN_BACKWARD)) {
        int ahead = reg_behind(p, r, behind) + 1;
        slots = ahead > slots ? ahead : slots;
    }
    slots = slots < written ? slots : written;
    if (slots < 2 && r->slot_bytes <= SMALL_BYTES && read_elsewhere(p, r))
        slots = 2;
    return fetched > slots ? fetched : slots;
}

bool pass_slots(compile *c)
{
    int *behind = POOL_NEW(&c->pool, int, c->ir.node_count + 1);
    if (!behind)
        return error_set(WEIR_E_MEMORY, "no memory to compile \"%s\"", c->graph->name) == WEIR_OK;
    stages_behind(c, behind);
    for (int i = 0; i < c->phys.reg.count; i++)
        if (slots_are_free(&c->phys.reg.item[i]))
            c->phys.reg.item[i].slots = reg_slots(c, &c->phys.reg.item[i], behind);
    if (!hosts_slots(c))
        return false;
    for (int i = 0; i < c->phys.reg.count; i++)
        c->phys.reg.item[i].wanted = c->phys.reg.item[i].slots;
    return true;
}
