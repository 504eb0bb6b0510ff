/* graph/time/line.c: see the header. */
#include "graph/time/line.h"

#include "graph/base/base.h"
#include "graph/base/error.h"
#include "graph/plan/form/view.h"
#include "graph/time/clock.h"

#include <stdlib.h>
#include <string.h>

#define PS_MOST (UINT64_MAX >> 8)
#define FLUSH_BYTES (UINT64_C(256) << 10) /* a worker writes so many itself (transport/net/out.c) */

/* ---- the link of two ranks ---- */

static bool on_one_host(const lines_spec *s, uint32_t a, uint32_t b)
{
    return !s->per_host || a / s->per_host == b / s->per_host;
}

static const char *after_comma(const char *list)
{
    const char *comma = strchr(list, ',');
    return comma ? comma + 1 : NULL;
}

/* Whether the list names this carrier; without one it is "shm,tcp". */
static bool may_use(const lines_spec *s, const char *carrier)
{
    const size_t length = strlen(carrier);
    for (const char *at = s->carrier ? s->carrier : "shm,tcp"; at; at = after_comma(at))
        if (strcspn(at, ",") == length && !strncmp(at, carrier, length))
            return true;
    return false;
}

static bool share_memory(const lines_spec *s, uint32_t a, uint32_t b)
{
    return on_one_host(s, a, b) && may_use(s, "shm");
}

static time_carrier carrier_of(const lines_spec *s)
{
    const bool ucx = may_use(s, "ucx");
    return s->no_key ? (ucx ? TIME_UCX : TIME_TCP) : ucx ? TIME_UCX_KEY : TIME_TCP_KEY;
}

/* As it was measured; NULL: it was not, or is no link. */
static const time_link *measured(const lines_spec *s, uint32_t a, uint32_t b)
{
    const time_link *link = &s->rates->links[on_one_host(s, a, b) ? TIME_LOOPBACK : TIME_HOSTS][carrier_of(s)];
    return share_memory(s, a, b) || !link->once.count ? NULL : link;
}

static uint64_t passing(const changes *c, uint64_t bytes)
{
    const double ps = 8 * (double)bytes * TIME_PS_S / (double)c->bits_s;
    return ps < (double)PS_MOST ? (uint64_t)ps : PS_MOST;
}

/* From the end of the producer's firing to the reader's on an idle line; all of it, whoever pays. */
static uint64_t once(const lines *l, uint32_t at, uint64_t bytes)
{
    const changes *c = l->spec.changes;
    const time_link *link = measured(&l->spec, l->lines[at].from, l->lines[at].to);
    const uint64_t least = link ? curve_at(&link->once, 0) : l->spec.rates->process;
    return (c->has_latency ? c->latency_ps : least) + (c->bits_s ? passing(c, bytes) : link ? curve_at(&link->once, bytes) - least : 0);
}

static uint64_t smaller(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static uint64_t occupies(const lines *l, uint32_t at, uint64_t bytes)
{
    const changes *c = l->spec.changes;
    const time_link *link = measured(&l->spec, l->lines[at].from, l->lines[at].to);
    return c->bits_s ? passing(c, bytes) : link ? curve_at(&link->stream, bytes) : 0;
}

/* The same, of a value behind others. */
static uint64_t behind_others(const lines *l, uint32_t at, uint64_t bytes)
{
    return smaller(once(l, at, bytes), once(l, at, 0) + occupies(l, at, bytes));
}

/* ---- messages ---- */

/* Threads of the program are not among those that are predicted. */
static bool is_outside(const weir_plan *plan, uint32_t actor)
{
    return plan->queues[plan->actors[actor].queue.i].kind == PLAN_OUTSIDE;
}

static uint64_t later(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

uint64_t lines_alone(const lines *l, uint32_t port, bool freed)
{
    if (l->way[port] != LINE_QUEUED)
        return l->way[port] == LINE_IN_RANK ? l->spec.rates->worker : l->spec.rates->process;
    const struct crossing *c = &l->port[port], *leader = &l->port[c->leader];
    if (freed)
        return once(l, c->back, 0);
    const uint64_t all = behind_others(l, c->there, leader->bytes);
    return all > leader->sends ? all - leader->sends : 0;
}

static uint32_t slots_of(const lines *l, uint32_t port)
{
    return l->slots[l->spec.plan->ports[port].regst.i];
}

/* When the value number `value` of those that were sent to a leader is there. */
static uint64_t *arrival(const lines *l, uint32_t leader, uint64_t value)
{
    return &l->arrives[l->port[leader].first + value % slots_of(l, leader)];
}

/* The producer's worker has written what it pays for, so on an idle line the value has begun to pass before. True: all of it has passed. */
static bool begin_before(lines *l, const struct crossing *c, uint64_t now, flow_value *value)
{
    flow *on = &l->flows.of[c->there];
    uint64_t done = flows_idle(&l->flows, c->there) && now > on->idle_since ? smaller(c->sends, now - on->idle_since) : 0;
    uint64_t *const parts[] = {&value->work, &value->behind};
    value->rest -= done > value->work ? (int64_t)(done - value->work) : 0;
    for (int i = 0; i < 2; i++) {
        const uint64_t part = smaller(*parts[i], done);
        *parts[i] -= part;
        done -= part;
    }
    if (!flows_idle(&l->flows, c->there) || value->from > now || value->work || value->behind)
        return false;
    on->idle_since = now - done;
    return true;
}

/* The value is on its line no more. Returns how much later its ports hear of it. */
static uint64_t arrive(lines *l, const flow_value *value, uint64_t now)
{
    struct crossing *c = &l->port[value->port];
    line *x = &l->lines[c->there];
    x->arrived = later(value->rest < 0 && (uint64_t)-value->rest > now ? 0 : now + (uint64_t)value->rest, x->arrived);
    *arrival(l, value->port, c->came++) = x->arrived;
    return x->arrived > now ? x->arrived - now : 0;
}

/* It keeps the line for so long, and is there at its own time. */
static void send_value(lines *l, uint32_t leader, uint64_t now, uint64_t from)
{
    struct crossing *c = &l->port[leader];
    line *x = &l->lines[c->there];
    const uint64_t takes = occupies(l, c->there, c->bytes);
    const bool alone = !x->unfreed++ && x->freed <= now;
    const uint64_t all = alone ? once(l, c->there, c->bytes) : behind_others(l, c->there, c->bytes), work = smaller(all, takes);
    flow_value value = {from, work, takes - work, (int64_t)(all - work), leader, false};
    c->told_in = CLOCK_LATER;
    if (begin_before(l, c, now, &value))
        c->told_in = arrive(l, &value, now);
    else
        l->failed |= !flows_send(&l->flows, c->there, value, now);
}

static uint64_t free_arrives(lines *l, uint32_t port, uint64_t when)
{
    const struct crossing *c = &l->port[port];
    line *x = &l->lines[c->back], *there = &l->lines[c->there];
    x->arrived = later(when + once(l, c->back, 0), x->arrived);
    there->unfreed -= c->leader == port && there->unfreed;
    there->freed = x->arrived;
    return x->arrived;
}

uint64_t lines_message(lines *l, uint32_t port, bool freed, uint64_t now, uint64_t from)
{
    if (l->way[port] != LINE_QUEUED)
        return lines_alone(l, port, freed) + (from - now);
    const struct crossing *c = &l->port[port];
    if (freed && flows_idle(&l->flows, c->back))
        return free_arrives(l, port, from) - now;
    if (freed)
        l->failed |= !flows_send(&l->flows, c->back, (flow_value){.from = from, .port = port, .freed = true}, now);
    else if (c->leader == port)
        send_value(l, port, now, from);
    return freed ? CLOCK_LATER : l->port[c->leader].told_in;
}

uint64_t lines_next(lines *l, uint64_t now)
{
    return l->count ? flows_next(&l->flows, now) : FLOW_NONE;
}

/* All ports that read a value hear of it. */
bool lines_take(lines *l, uint64_t now, uint32_t *port, bool *freed, uint64_t *takes)
{
    flow_value value;
    uint32_t at;
    *freed = false;
    if (l->told == PLAN_NONE) {
        if (!flows_take(&l->flows, now, &at, &value))
            return false;
        *freed = value.freed;
        *port = value.port;
        if (value.freed) {
            *takes = free_arrives(l, value.port, now) - now;
            return true;
        }
        l->told = value.port;
        l->port[value.port].told_in = arrive(l, &value, now);
    }
    *port = l->told;
    *takes = l->port[l->port[l->told].leader].told_in;
    l->told = l->port[l->told].next;
    return true;
}

void lines_count(const lines *l, uint64_t now, uint64_t *messages, uint64_t *rest)
{
    if (l->count)
        flows_count(&l->flows, now, messages, rest);
}

/* The reader's firing takes a value: its worker pays for it, but for the time in which it had nothing else to do. */
static uint64_t receive(const lines *l, uint32_t port, uint32_t firing)
{
    const struct crossing *c = &l->port[port];
    const uint64_t value = firing / l->spec.plan->ports[port].hold, initial = l->spec.plan->regsts[l->spec.plan->ports[port].regst.i].initial;
    if (c->leader != port || !c->receives || value < initial || firing % l->spec.plan->ports[port].hold)
        return 0;
    const uint64_t arrives = *arrival(l, port, value - initial), ended = l->ended[l->spec.worker[l->spec.plan->actors[l->spec.plan->ports[port].actor.i].queue.i]];
    const uint64_t idle = arrives > ended ? arrives - ended : 0;
    return c->receives > idle ? c->receives - idle : 0;
}

uint64_t lines_firing(const lines *l, uint32_t actor, uint32_t firing)
{
    const plan_actor *of = &l->spec.plan->actors[actor];
    uint64_t ps = 0;
    if (!l->count)
        return 0;
    for (uint32_t r = of->regsts.first; r < of->regsts.first + of->regsts.count; r++)
        ps += (firing + 1) % l->spec.plan->regsts[r].fill ? 0 : l->sends[r];
    for (uint32_t p = of->ports.first; p < of->ports.first + of->ports.count; p++)
        ps += receive(l, p, firing);
    return ps;
}

void lines_ended(lines *l, uint32_t actor, uint64_t now)
{
    if (!is_outside(l->spec.plan, actor))
        l->ended[l->spec.worker[l->spec.plan->actors[actor].queue.i]] = now;
}

/* ---- what a port reads ---- */

/* Parts of tensors, each once. */
typedef struct parts {
    uint64_t *hash;        /* owned */
    uint32_t count, room;
    uint64_t bytes;        /* of all */
    bool failed;           /* no memory */
} parts;

static void add_part(parts *p, uint32_t tensor, const weir_view *part)
{
    const uint64_t bytes = (uint64_t)weir_shape_count(&part->shape) * weir_dtype_bytes(part->dtype);
    uint64_t hash = hash_more(HASH_START, &tensor, sizeof tensor);
    hash = hash_more(hash, part->offset, (size_t)part->shape.rank * sizeof *part->offset);
    hash = hash_more(hash, part->shape.dim, (size_t)part->shape.rank * sizeof *part->shape.dim);
    for (uint32_t i = 0; i < p->count; i++)
        if (p->hash[i] == hash)
            return;
    if (p->count == p->room) {
        const uint32_t room = p->room ? 2 * p->room : 16;
        uint64_t *grown = realloc(p->hash, room * sizeof *grown);
        p->failed |= !grown;
        if (!grown)
            return;
        p->hash = grown;
        p->room = room;
    }
    p->hash[p->count] = hash;
    p->count += bytes > 0;
    p->bytes += bytes;
}

static void add_kernel(parts *to, const weir_plan *plan, uint32_t kernel, uint32_t port)
{
    const plan_kernel *of = &plan->kernels[kernel];
    const weir_op *op = weir_op_find(plan_text(plan, of->op));
    plan_call call;
    plan_call_begin(&call, plan, of);
    for (uint32_t i = 0; i < of->in.count; i++) {
        const plan_operand *operand = &plan->operands[of->in.first + i];
        if (operand->port.i != port || plan->tensors[operand->tensor.i].home != PLAN_IN_REGST)
            continue;
        weir_view part = call.in[i];
        if (op && op->reads)
            op->reads(&call.args, (int)i, &part);
        part.shape.rank = call.in[i].shape.rank;
        add_part(to, operand->tensor.i, plan_view_within(&part, &call.in[i]) ? &part : &call.in[i]);
    }
}

/* A function of the program reads all. */
static void add_port(parts *to, const weir_plan *plan, uint32_t port)
{
    const plan_actor *actor = &plan->actors[plan->ports[port].actor.i];
    const plan_range *tensors = &plan->regsts[plan->ports[port].regst.i].tensors;
    to->count = 0;
    to->bytes = 0;
    for (uint32_t k = actor->kernels.first; k < actor->kernels.first + actor->kernels.count; k++)
        add_kernel(to, plan, k, port);
    for (uint32_t t = tensors->first; plan->queues[actor->queue.i].kind == PLAN_OUTSIDE && t < tensors->first + tensors->count; t++) {
        const weir_view whole = plan_view_of(&plan->tensors[t]);
        add_part(to, t, &whole);
    }
}

/* ---- which lines there are ---- */

typedef struct ends {
    uint32_t from, to;     /* ranks */
} ends;

static ends ends_of(const weir_plan *plan, uint32_t port)
{
    const plan_port *of = &plan->ports[port];
    return (ends){plan_rank_of(plan, plan->regsts[of->regst.i].producer.i), plan_rank_of(plan, of->actor.i)};
}

/* With a change of the link also values between ranks that could share memory pass over a line. */
static line_way way_of(const lines_spec *s, uint32_t port)
{
    const plan_port *of = &s->plan->ports[port];
    if (!plan_port_counts(s->plan, of) || s->plan->actors[of->actor.i].program.i != s->program)
        return LINE_IN_RANK;
    const ends e = ends_of(s->plan, port);
    if (e.from == e.to)
        return LINE_IN_RANK;
    if (of->regst.i >= s->regsts)
        return LINE_IN_MEMORY;
    return s->changes->bits_s || s->changes->has_latency || !share_memory(s, e.from, e.to) ? LINE_QUEUED : LINE_IN_MEMORY;
}

static int compare_lines(const void *a, const void *b)
{
    const line *x = a, *y = b;
    if (x->from != y->from)
        return x->from < y->from ? -1 : 1;
    return x->to < y->to ? -1 : x->to > y->to;
}

static bool number_lines(lines *l)
{
    const weir_plan *plan = l->spec.plan;
    uint32_t kept = 0;
    for (uint32_t p = 0; p < plan->ports_count; p++) {
        l->way[p] = (uint8_t)way_of(&l->spec, p);
        l->count += 2 * (l->way[p] == LINE_QUEUED);
    }
    l->lines = calloc(l->count + (size_t)1, sizeof *l->lines);
    for (uint32_t p = 0, i = 0; l->lines && p < plan->ports_count; p++) {
        if (l->way[p] != LINE_QUEUED)
            continue;
        const ends e = ends_of(plan, p);
        l->lines[i++] = (line){.from = e.from, .to = e.to};
        l->lines[i++] = (line){.from = e.to, .to = e.from};
    }
    if (l->lines && l->count)
        qsort(l->lines, l->count, sizeof *l->lines, compare_lines);
    for (uint32_t i = 0; l->lines && i < l->count; i++)
        if (!kept || compare_lines(&l->lines[kept - 1], &l->lines[i]))
            l->lines[kept++] = l->lines[i];
    l->count = kept;
    return l->lines;
}

static uint32_t line_of(const lines *l, uint32_t from, uint32_t to)
{
    const line key = {.from = from, .to = to};
    return (uint32_t)((const line *)bsearch(&key, l->lines, l->count, sizeof *l->lines, compare_lines) - l->lines);
}

/* ---- who pays for bytes ---- */

/* Whether the workers of the ranks on a host have all of its cores, so that none is left for threads of the network. */
static bool cores_are_full(const lines_spec *s, uint32_t rank)
{
    const uint64_t ranks = s->per_host && s->per_host < s->plan->ranks ? s->per_host : s->plan->ranks;
    return ranks * s->computing[rank] >= (s->rates->cores ? s->rates->cores : 1);
}

static void set_costs(lines *l, uint32_t port)
{
    struct crossing *c = &l->port[port];
    const lines_spec *s = &l->spec;
    const plan_regst *regst = &s->plan->regsts[s->plan->ports[port].regst.i];
    const ends e = ends_of(s->plan, port);
    const time_link *link = measured(s, e.from, e.to);
    const uint64_t written = cores_are_full(s, e.from) || c->bytes < FLUSH_BYTES ? c->bytes : FLUSH_BYTES;
    if (link && !is_outside(s->plan, regst->producer.i))
        c->sends = curve_at(&link->sends, written);
    if (link && !is_outside(s->plan, s->plan->ports[port].actor.i) && cores_are_full(s, e.to))
        c->receives = curve_at(&link->receives, c->bytes);
    l->sends[s->plan->ports[port].regst.i] += c->sends;
    const double values = (double)(s->plan->actors[regst->producer.i].fires / regst->fill);
    l->lines[c->there].bytes += values * (double)c->bytes;
    l->lines[c->there].busy += values * (double)occupies(l, c->there, c->bytes);
}

/* ---- life ---- */

/* The leader of a port that reads the same as an earlier one; earlier[p] is the port before it that reads the register. */
static uint32_t leader_of(const lines *l, uint32_t port, const uint32_t *earlier, const uint64_t *reads)
{
    for (uint32_t p = earlier[port]; p != PLAN_NONE; p = earlier[p])
        if (l->way[p] == LINE_QUEUED && l->port[p].there == l->port[port].there && reads[p] == reads[port])
            return l->port[p].leader;
    return port;
}

static void set_crossing(lines *l, uint32_t port, parts *read, const uint32_t *earlier, uint64_t *reads)
{
    struct crossing *c = &l->port[port];
    const ends e = ends_of(l->spec.plan, port);
    c->there = line_of(l, e.from, e.to);
    c->back = line_of(l, e.to, e.from);
    add_port(read, l->spec.plan, port);
    reads[port] = hash_more(HASH_START, read->hash, read->count * sizeof *read->hash);
    c->leader = leader_of(l, port, earlier, reads);
    c->next = PLAN_NONE;
    if (c->leader != port) {
        c->next = l->port[c->leader].next;
        l->port[c->leader].next = port;
    }
    c->bytes = read->bytes;
    if (c->leader == port)
        set_costs(l, port);
}

static bool set_crossings(lines *l)
{
    const weir_plan *plan = l->spec.plan;
    parts read = {.hash = NULL};
    l->port = calloc(plan->ports_count + (size_t)1, sizeof *l->port);
    uint32_t *last = malloc((plan->regsts_count + (size_t)1) * sizeof *last), *earlier = malloc((plan->ports_count + (size_t)1) * sizeof *earlier);
    uint64_t *reads = calloc(plan->ports_count + (size_t)1, sizeof *reads);
    bool ok = l->port && last && earlier && reads;
    if (ok)
        memset(last, 0xff, plan->regsts_count * sizeof *last);
    for (uint32_t p = 0; ok && p < plan->ports_count; p++) {
        earlier[p] = last[plan->ports[p].regst.i];
        last[plan->ports[p].regst.i] = p;
        if (l->way[p] == LINE_QUEUED)
            set_crossing(l, p, &read, earlier, reads);
        ok = !read.failed;
    }
    free(last);
    free(earlier);
    free(reads);
    free(read.hash);
    return ok;
}

/* A line whose link nobody measured needs a change that says all of it. */
static weir_status check_links(const lines *l)
{
    const lines_spec *s = &l->spec;
    for (uint32_t i = 0; i < l->count; i++) {
        const uint32_t from = l->lines[i].from, to = l->lines[i].to;
        const bool near = on_one_host(s, from, to);
        if (!near && !may_use(s, "tcp") && !may_use(s, "ucx"))
            return error_set(WEIR_E_ARGUMENT, "%s: shared memory does not reach from rank %u to rank %u on another host; choose tcp or ucx", s->call,
                             from, to);
        if (share_memory(s, from, to) || measured(s, from, to) || (s->changes->bits_s && s->changes->has_latency))
            continue;
        return error_set(WEIR_E_ARGUMENT, "%s: the rates have no link %s %s from rank %u to rank %u: %s, or set bandwidth= and latency=", s->call,
                         time_apart_names[near ? TIME_LOOPBACK : TIME_HOSTS], time_carrier_names[carrier_of(s)], from, to,
                         near ? "weir measure measures it, where the carrier is" : "weir measure --between measures it");
    }
    return WEIR_OK;
}

static weir_status check_carrier(const lines_spec *s)
{
    static const char *const names[] = {"shm", "ipc", "tcp", "ucx"};
    for (const char *at = s->carrier; at; at = after_comma(at)) {
        const size_t length = strcspn(at, ",");
        bool found = false;
        for (size_t i = 0; i < sizeof names / sizeof *names; i++)
            found |= strlen(names[i]) == length && !strncmp(at, names[i], length);
        if (!found)
            return error_set(WEIR_E_ARGUMENT, "%s: there is no carrier \"%.*s\"; allowed: shm, ipc, tcp, ucx", s->call, (int)length, at);
    }
    return WEIR_OK;
}

/* Links of hosts come in pairs: out, and in. */
static bool open_flows(lines *l)
{
    const lines_spec *s = &l->spec;
    if (!flows_open(&l->flows, l->count, l->count && s->per_host ? 2 * ((s->plan->ranks - 1) / s->per_host + 1) : 0))
        return false;
    for (uint32_t i = 0; i < l->count; i++) {
        const bool near = on_one_host(s, l->lines[i].from, l->lines[i].to);
        l->flows.of[i].links[0] = near ? UINT32_MAX : 2 * (l->lines[i].from / s->per_host);
        l->flows.of[i].links[1] = near ? UINT32_MAX : 2 * (l->lines[i].to / s->per_host) + 1;
    }
    return true;
}

weir_status lines_open(lines *l, const lines_spec *spec)
{
    *l = (lines){.spec = *spec, .told = PLAN_NONE};
    weir_status status = check_carrier(spec);
    if (status)
        return status;
    l->way = calloc(spec->plan->ports_count + (size_t)1, sizeof *l->way);
    l->sends = calloc(spec->plan->regsts_count + (size_t)1, sizeof *l->sends);
    l->ended = calloc(spec->workers + (size_t)1, sizeof *l->ended);
    if (!l->way || !l->sends || !l->ended || !number_lines(l) || !open_flows(l))
        status = error_set(WEIR_E_MEMORY, "no memory for the lines of %u ranks", spec->plan->ranks);
    status = status ? status : check_links(l);
    if (!status && l->count && !set_crossings(l))
        status = error_set(WEIR_E_MEMORY, "no memory for the lines of %u ranks", spec->plan->ranks);
    if (status)
        lines_close(l);
    return status;
}

weir_status lines_begin(lines *l, const uint32_t *slots)
{
    const weir_plan *plan = l->spec.plan;
    uint64_t room = 0;
    l->slots = slots;
    memset(l->ended, 0, l->spec.workers * sizeof *l->ended);
    flows_begin(&l->flows);
    l->told = PLAN_NONE;
    for (uint32_t i = 0; i < l->count; i++)
        l->lines[i].arrived = l->lines[i].unfreed = l->lines[i].freed = 0;
    for (uint32_t p = 0; l->count && p < plan->ports_count; p++) {
        if (l->way[p] != LINE_QUEUED || l->port[p].leader != p)
            continue;
        l->port[p].first = room;
        l->port[p].came = 0;
        room += slots_of(l, p);
    }
    free(l->arrives);
    l->arrives = calloc(room + 1, sizeof *l->arrives);
    return l->arrives ? WEIR_OK : error_set(WEIR_E_MEMORY, "no memory for the lines of %u ranks", plan->ranks);
}

void lines_close(lines *l)
{
    free(l->lines);
    free(l->way);
    free(l->port);
    free(l->arrives);
    free(l->sends);
    free(l->ended);
    flows_close(&l->flows);
    *l = (lines){.lines = NULL};
}
