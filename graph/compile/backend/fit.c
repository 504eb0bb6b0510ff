/* graph/compile/backend/fit.c: slots are taken away until each device is within its limit.
 *
 * A register that loses a slot is counted as if it shared no bytes, until offsets are found again: so fewer slots may be taken
 * than are needed, and then all is asked again.
 */
#include "graph/compile/backend/fit.h"

#include "graph/compile/actors/hosts.h"

/* Whether micro-batches are under way because of it: saved by forward for a later phase. */
bool backend_feeds_pipeline(const compile *c, const reg *r)
{
    const phys *p = &c->phys;
    if (c->micro == 1 || r->kind == PLAN_IO || p->group.item[r->group].phase != PLAN_FORWARD)
        return false;
    for (int i = 0; i < r->readers.count; i++)
        if (p->group.item[r->readers.item[i]].phase != PLAN_FORWARD)
            return true;
    return false;
}

/* Whether taking a slot from `a` is better than from `b`: from those that a link between hosts
 * asks for, where these have the most bytes; from what costs a transfer's time rather than from what makes a pipeline; one
 * slot that is enough, and no larger than it must be, rather than several; else the larger. */
static bool lowers_better(const compile *c, const reg *a, const reg *b, uint64_t over)
{
    if (!b)
        return true;
    if (a->ahead || b->ahead)
        return (uint64_t)a->ahead * a->slot_bytes > (uint64_t)b->ahead * b->slot_bytes;
    bool feeds = backend_feeds_pipeline(c, a), enough = a->slot_bytes >= over && b->slot_bytes >= over;
    if (feeds != backend_feeds_pipeline(c, b))
        return !feeds;
    return enough ? a->slot_bytes < b->slot_bytes : a->slot_bytes > b->slot_bytes;
}

/* Bytes that the limit is about. */
static uint64_t device_needs(const compile *c, int device)
{
    return c->phys.device.item[device].bytes + c->phys.device.item[device].arriving;
}

static bool is_over(const compile *c, int device)
{
    return device_is_limited(&c->phys.device.item[device]) && device_needs(c, device) > c->memory_max;
}

/* The register that the device, which is `over` bytes too large, takes a slot from; NULL when none can lose one. */
static reg *reg_to_lower(compile *c, int device, uint64_t over)
{
    reg *best = NULL;
    for (int i = 0; i < c->phys.reg.count; i++) {
        reg *r = &c->phys.reg.item[i];
        if (!r->fixed && !r->needed && r->slots > 1 && r->slots > r->initial && r->slot_bytes &&
            (r->device == device || hosts_send(c, r, device)) && lowers_better(c, r, best, over))
            best = r;
    }
    return best;
}

static void give(uint64_t *has, uint64_t bytes)
{
    *has -= bytes < *has ? bytes : *has;
}

/* The bytes that devices need less when the register loses that much, if it shares nothing; until they are laid out again. */
static void bytes_lower(compile *c, const reg *r, uint64_t bytes)
{
    give(&c->phys.device.item[r->device].bytes, bytes);
    for (int d = 0; c->link && d < c->phys.device.count; d++)
        if (hosts_send(c, r, d))
            give(&c->phys.device.item[d].arriving, bytes);
}

/* Takes one slot, or of those that a link asks for up to half, so that registers of one way lose alike. */
static void reg_lower(compile *c, reg *r, uint64_t over)
{
    uint64_t most = r->ahead ? ((uint64_t)r->ahead + 1) / 2 : 1, wanted = over / r->slot_bytes + (over % r->slot_bytes > 0);
    int taken = (int)(wanted < most ? wanted : most);
    r->slots -= taken;
    r->ahead -= r->ahead ? taken : 0;
    bytes_lower(c, r, (uint64_t)taken * r->slot_bytes);
}

/* Takes slots away from a device until it is within the limit, or would be if its registers shared no bytes; false when
 * it has none to lose. */
static bool lower_device(compile *c, int device)
{
    bool lowered = false;
    for (reg *r; is_over(c, device); lowered = true) {
        uint64_t over = device_needs(c, device) - c->memory_max;
        if (!(r = reg_to_lower(c, device, over)))
            return lowered;
        reg_lower(c, r, over);
    }
    return lowered;
}

/* Takes all slots that may go, on all devices: what may share bytes on one depends on the slots of another, too. */
static bool lower_all(compile *c)
{
    bool lowered = false;
    for (int d = 0; d < c->phys.device.count; d++)
        for (reg *r; device_is_limited(&c->phys.device.item[d]) && (r = reg_to_lower(c, d, UINT64_MAX)); lowered = true)
            reg_lower(c, r, UINT64_MAX);
    return lowered;
}

bool fit_lower(compile *c)
{
    bool lowered = false;
    for (int d = 0; d < c->phys.device.count; d++)
        if (is_over(c, d))
            lowered |= lower_device(c, d);
    return lowered || lower_all(c);
}

backend_outcome fit_outcome(const compile *c)
{
    backend_outcome o = {.over = false};
    for (int d = 0; d < c->phys.device.count; d++)
        if (device_is_limited(&c->phys.device.item[d]) && device_needs(c, d) > o.bytes)
            o = (backend_outcome){.over = is_over(c, d), .bytes = device_needs(c, d), .device = d};
    return o;
}

int backend_slots_taken(const compile *c)
{
    int taken = 0;
    for (int i = 0; i < c->phys.reg.count; i++)
        if (c->phys.reg.item[i].wanted > c->phys.reg.item[i].slots)
            taken += c->phys.reg.item[i].wanted - c->phys.reg.item[i].slots;
    return taken;
}
