/* graph/compile/budget/ladder.c: in which order saved tensors are dropped, see recompute.h.
 *
 * Step by step: of the device that needs the most, find where in the step that is; of the saved tensors that are there
 * then, take the one whose repetition costs the fewest seconds for each of its bytes, given what is repeated already;
 * and keep it if the device then needs less. Others that cost about as much are dropped with it, in one batch, as far as no
 * two of them are in one *segment*: nodes of which one reads what another makes again, which are there at the same time.
 * Small segments are joined before large ones, so of n equal layers those that are kept are at equal distances, and
 * about 2 sqrt(n) are there at once (Chen et al. 2016). A batch that does not help is halved until it does.
 *
 * A tensor that does not help alone may help together with others like it, the same of other layers: the first of them
 * pays for the bytes that a repetition takes, and the others share them. So then all of those are tried, and all but
 * every k-th, of which the kept ones part the network into segments. A tensor that is of no use is asked about again
 * when all others have been, as it may be of use once its neighbours are gone; twice at most.
 *
 * When nothing helps any more, the device may need the most for what is made again together. So some of that is kept after
 * all, one tensor or a batch, that with which the least is needed after another climb; and so on while it helps.
 *
 * How much a device needs is an estimate (estimate.h).
 */
#include "graph/compile/actors/passes.h"
#include "graph/compile/budget/estimate.h"
#include "graph/compile/sbp/machine.h"
#include "graph/base/error.h"
#include "kernels/common/ops.h"

#include <string.h>

enum { ROUNDS = 3, KEPT_TIMES = 16, KEPT_BATCHES = 16 };

#define EFFORT_MAX 3e7 /* events counted: then nothing more is kept after all */
#define ABOUT_AS_MUCH 0.03 /* of what is cheapest: so much more is no reason to drop one before another */

typedef struct climbing {
    recompute *x;
    estimate e;
    double *seconds;               /* by node, a step */
    bool *refused;                 /* by tensor: did not help */
    int *alike, alike_count;       /* tensors that are asked together */
    double *rate;                  /* by tensor that is a candidate: seconds for each byte */
    bool *by_move;                 /* by the same: it would be moved */
    int *segment;                  /* by node that is repeated: another of its segment; itself, if it stands for all */
    double *segment_bytes;         /* by node that stands for a segment */
    int *behind;                   /* by tensor: the largest segment that reads it, or -1 */
    int *in_batch;                 /* by tensor: the number of the last batch that it was listed in */
    int *batch_of;                 /* by tensor that is dropped: the batch of the ladder that did so */
    int *touched, batch;           /* by node: the number of the batch that has it, or the segment that it stands for */
    double repeats, moves;         /* seconds, so far, of what is made again, and of what is moved */
    double step;                   /* seconds of a step, on one device */
    double filed;                  /* bytes that go to the disk and back, a step, so far */
    double *most_bytes;            /* by tensor: of the device that holds the most of it */
    double *most;                  /* by tensor that is movable: bytes a step of the device that holds the most of it */
    bool *movable;                 /* by tensor: to a disk */
    int *walk, walked;             /* nodes that the last question was about */
    int *seen;                     /* by node: in which question */
    int question;
} climbing;

/* Marks the tensors that may wait on a disk: large enough, and made as often as it is read. */
static void find_movable(climbing *y)
{
    const recompute *x = y->x;
    for (int t = 0; t < x->base.tensors.count && x->c->offload; t++) {
        if (!x->saved[t] || y->most_bytes[t] <= 0)
            continue;
        const ir_node *maker = &x->base.node[x->base.tensors.item[t].node];
        y->movable[t] = y->most_bytes[t] >= (double)group_own_bytes && maker->micro == x->micro &&
                        !(maker->origin && (maker->origin->fills || maker->origin->host));
        y->most[t] = y->most_bytes[t] * (maker->micro ? x->c->micro : 1);
    }
}

static bool climbing_begin(climbing *y, recompute *x)
{
    pool *p = &x->c->pool;
    int nodes = x->base.node_count + 1, tensors = x->base.tensors.count + 1;
    *y = (climbing){.x = x};
    y->seconds = POOL_NEW(p, double, nodes);
    y->refused = POOL_NEW(p, bool, tensors);
    y->alike = POOL_NEW(p, int, tensors);
    y->rate = POOL_NEW(p, double, tensors);
    y->by_move = POOL_NEW(p, bool, tensors);
    y->segment = POOL_NEW(p, int, nodes);
    y->segment_bytes = POOL_NEW(p, double, nodes);
    y->behind = POOL_NEW(p, int, tensors);
    y->in_batch = POOL_NEW(p, int, tensors);
    y->batch_of = POOL_NEW(p, int, tensors);
    y->touched = POOL_NEW(p, int, nodes);
    y->most_bytes = POOL_NEW(p, double, tensors);
    y->most = POOL_NEW(p, double, tensors);
    y->movable = POOL_NEW(p, bool, tensors);
    y->walk = POOL_NEW(p, int, nodes);
    y->seen = POOL_NEW(p, int, nodes);
    if (!estimate_begin(&y->e, x) || p->failed)
        return false;
    for (int n = 0; n < x->base.node_count; n++) {
        const ir_node *node = &x->base.node[n];
        y->seconds[n] = node_seconds(x->c->rates, &x->base, node) * (node->micro ? x->c->micro : 1);
        y->step += y->seconds[n];
    }
    for (int t = 0; t < x->base.tensors.count; t++)
        for (int i = 0; i < y->e.classes.count; i++)
            if (y->e.classes.item[i].bytes[t] > y->most_bytes[t])
                y->most_bytes[t] = y->e.classes.item[i].bytes[t];
    find_movable(y);
    return true;
}

/* ---- what is dropped next ---- */

/* The price of dropping one more tensor. */
typedef struct drop_cost {
    double seconds;                /* that a step takes longer */
    double segment;                /* bytes of the segment that the tensor would be in */
    bool apart;                    /* no other of this batch is in it */
} drop_cost;

static int segment_of(const climbing *y, int node)
{
    while (y->segment[node] != node)
        node = y->segment[node] = y->segment[y->segment[node]];
    return node;
}

/* Adds a segment, or those that the tensor would join. `touch`: they are in the batch from here on. */
static void join_segment(climbing *y, int stands, bool touch, drop_cost *cost)
{
    if (y->seen[stands] == -y->question)
        return;
    y->seen[stands] = -y->question;
    cost->segment += y->segment_bytes[stands];
    cost->apart &= y->touched[stands] != y->batch;
    if (touch)
        y->touched[stands] = y->batch;
}

/* Once others of the batch count as dropped, nothing else is known of a tensor that is not apart. */
static drop_cost cost_more(climbing *y, int t, bool touch)
{
    const recompute *x = y->x;
    int from = x->base.tensors.item[t].node;
    drop_cost cost = {.segment = y->most_bytes[t], .apart = true};
    y->question++;
    y->walked = 0;
    if (!x->again[from])
        y->walk[y->walked++] = from;
    y->seen[from] = y->question;
    for (int k = 0; k < y->walked; k++) {
        int at = y->walk[k];
        const ir_node *node = &x->base.node[at];
        cost.seconds += y->seconds[at];
        if (y->touched[at] == y->batch)
            return (drop_cost){.apart = false};
        for (int i = 0; i < node->in_count; i++) {
            int in = x->base.tensors.item[node->in[i]].node;
            if (!recompute_repeats(x, node->in[i]) || x->moved[x->root[node->in[i]]] || y->seen[in] == y->question)
                continue;
            if (x->again[in]) {
                join_segment(y, segment_of(y, in), touch, &cost);
                continue;
            }
            y->seen[in] = y->question;
            y->walk[y->walked++] = in;
        }
    }
    if (y->behind[t] >= 0)
        join_segment(y, y->behind[t], touch, &cost);
    if (touch)
        y->touched[from] = y->batch;
    return cost;
}

/* Seconds that a step takes longer when the tensor is dropped besides: made again, or moved to a disk. */
static double seconds_dropped(climbing *y, int t, bool moved)
{
    return moved ? offload_seconds(y->x->c->rates, y->step, y->filed, y->most[t]) : cost_more(y, t, false).seconds;
}

/* Whether moving it is possible, and cheaper than making it again. */
static bool better_moved(climbing *y, int t)
{
    const recompute *x = y->x;
    if (!y->movable[t] || !x->repeatable[x->base.tensors.item[t].node])
        return y->movable[t];
    return seconds_dropped(y, t, true) < seconds_dropped(y, t, false);
}

static bool is_there(const climbing *y, int t, const device_class *p)
{
    const stay *s = &y->e.stays[t];
    return s->always || (s->born <= p->peak && p->peak <= s->died);
}

static bool is_candidate(const climbing *y, int t, const device_class *p)
{
    const recompute *x = y->x;
    return x->saved[t] && !x->dropped[t] && !y->refused[t] && p->bytes[t] && is_there(y, t, p) &&
           (y->movable[t] || x->repeatable[x->base.tensors.item[t].node]);
}

/* Finds the segments of what is repeated now: nodes of which one reads what another makes again. */
static void find_segments(climbing *y)
{
    const recompute *x = y->x;
    const ir_graph *base = &x->base;
    for (int t = 0; t < base->tensors.count; t++)
        y->behind[t] = NONE;
    for (int n = 0; n < base->node_count; n++) {
        const ir_node *node = &base->node[n];
        y->segment[n] = n;
        y->segment_bytes[n] = 0;
        for (int o = 0; o < node->out_count && x->again[n]; o++)
            y->segment_bytes[n] += x->dropped[node->out[o]] ? y->most_bytes[node->out[o]] : 0;
        for (int i = 0; i < node->in_count && x->again[n]; i++) {
            int from = base->tensors.item[node->in[i]].node;
            if (from < 0 || !x->again[from] || !recompute_repeats(x, node->in[i]))
                continue;
            int one = segment_of(y, n), other = segment_of(y, from);
            y->segment_bytes[other] += one == other ? 0 : y->segment_bytes[one];
            y->segment[one] = other;
        }
    }
    for (int n = 0; n < base->node_count; n++)
        for (int i = 0; i < base->node[n].in_count && x->again[n]; i++) {
            int *behind = &y->behind[x->root[base->node[n].in[i]]], stands = segment_of(y, n);
            if (*behind < 0 || y->segment_bytes[stands] > y->segment_bytes[*behind])
                *behind = stands;
        }
}

/* Finds what each candidate costs for each of its bytes, and how it is dropped; the one that costs the least, or -1:
 * there is none. */
static int cheapest(climbing *y, const device_class *p)
{
    int best = NONE;
    for (int t = 0; t < y->x->base.tensors.count; t++) {
        if (!is_candidate(y, t, p))
            continue;
        y->by_move[t] = better_moved(y, t);
        y->rate[t] = seconds_dropped(y, t, y->by_move[t]) / (p->bytes[t] * y->e.slots[t]);
        if (best < 0 || y->rate[t] < y->rate[best])
            best = t;
    }
    return best;
}

/* Lists those that cost about as much as `best` and are dropped in the same way, none of them in the segment of
 * another. The segments that they make are about as large as the smallest of them. */
static void list_batch(climbing *y, int best, const device_class *p)
{
    double least = -1;
    y->batch++;
    y->alike_count = 0;
    for (int pass = 0; pass < 2; pass++)
        for (int t = 0; t < y->x->base.tensors.count; t++) {
            if (!is_candidate(y, t, p) || y->by_move[t] != y->by_move[best] ||
                y->rate[t] > y->rate[best] * (1 + ABOUT_AS_MUCH))
                continue;
            drop_cost cost = cost_more(y, t, false);
            if (!pass) {
                least = least < 0 || cost.segment < least ? cost.segment : least;
            } else if (cost.apart && cost.segment <= 2 * least) {
                cost_more(y, t, true);
                y->x->dropped[t] = true; /* for those behind it to see */
                y->alike[y->alike_count++] = t;
                y->in_batch[t] = y->batch + 1;
            }
        }
    for (int i = 0; i < y->alike_count; i++)
        y->x->dropped[y->alike[i]] = false;
    y->batch++; /* the list is closed: what is asked from here on is asked of each alone */
}

/* Lists `t` and those like it: as large, made by the same op, there at the same time, and dropped in the same way. */
static void list_alike(climbing *y, int t, bool moved, const device_class *p)
{
    const ir_graph *base = &y->x->base;
    y->alike_count = 0;
    for (int i = 0; i < base->tensors.count; i++)
        if (is_candidate(y, i, p) && p->bytes[i] == p->bytes[t] &&
            base->node[base->tensors.item[i].node].op == base->node[base->tensors.item[t].node].op &&
            (moved ? y->movable[i] : y->x->repeatable[base->tensors.item[i].node]))
            y->alike[y->alike_count++] = i;
}

static void drop_one(climbing *y, int t, bool drop, bool moved)
{
    y->x->dropped[t] = drop;
    y->x->moved[t] = drop && moved;
}

/* Drops those that are listed, but for every `keep`-th (0: all), or takes that back; the bytes that are needed then. */
static double drop_alike(climbing *y, int keep, bool drop, bool moved)
{
    for (int i = 0; i < y->alike_count; i++)
        if (!keep || i % keep != keep - 1)
            drop_one(y, y->alike[i], drop, moved);
    return estimate_count(&y->e)->needs;
}

/* Kept tensors part the network into segments. Every how many of them to keep for the least bytes, or -1: none of it is of
 * any use. */
static int best_segments(climbing *y, double needs, bool moved)
{
    static const int keeps[] = {0, 8, 4, 3, 2};
    int best = NONE;
    for (size_t k = 0; k < sizeof keeps / sizeof *keeps && y->alike_count > 1; k++) {
        double then = drop_alike(y, keeps[k], true, moved);
        drop_alike(y, keeps[k], false, moved);
        if (then < needs) {
            needs = then;
            best = keeps[k];
        }
    }
    return best;
}

static bool push(climbing *y, again_rung rung)
{
    again_rung *r = POOL_PUSH(&y->x->c->pool, &y->x->ladder);
    rung.seconds = y->repeats + y->moves;
    if (r)
        *r = rung;
    return r;
}

static bool enter(climbing *y, int t, bool moved)
{
    *(moved ? &y->moves : &y->repeats) += seconds_dropped(y, t, moved);
    y->filed += moved ? y->most[t] : 0;
    if (!moved) {
        cost_more(y, t, false);
        for (int i = 0; i < y->walked; i++) /* as recompute_order() would */
            y->x->again[y->walk[i]] = true;
    }
    drop_one(y, t, true, moved);
    return push(y, (again_rung){.tensor = t, .moved = moved, .update = NONE});
}

static bool enter_all(climbing *y, int keep, bool moved)
{
    for (int i = 0; i < y->alike_count; i++)
        if ((!keep || i % keep != keep - 1) && !enter(y, y->alike[i], moved))
            return false;
    return true;
}

/* Whether the device needs less without those that are listed. */
static bool helps(climbing *y, double needs, bool moved)
{
    bool less = drop_alike(y, 0, true, moved) < needs;
    drop_alike(y, 0, false, moved);
    return less;
}

/* Drops what is cheapest, with others that cost as much, alone, or with others like it; or refuses it. False when
 * nothing is left to be asked. */
static bool climb(climbing *y, bool *helped)
{
    const device_class *p = estimate_count(&y->e);
    double needs = p ? p->needs : 0;
    int rungs = y->x->ladder.count;
    *(rungs ? &y->x->ladder.item[rungs - 1].needs : &y->x->needs) = needs;
    find_segments(y);
    int t = p ? cheapest(y, p) : NONE, keep = 0;
    if (t < 0)
        return false;
    bool moved = y->by_move[t];
    list_batch(y, t, p);
    while (!helps(y, needs, moved) && y->alike_count > 1)
        y->alike_count /= 2;
    if (y->alike_count == 1 && !helps(y, needs, moved)) {
        list_alike(y, t, moved, p);
        keep = best_segments(y, needs, moved);
    }
    recompute_order(y->x);
    if (keep >= 0) {
        *helped = true;
        return enter_all(y, keep, moved);
    }
    for (int i = 0; i < y->alike_count; i++)
        y->refused[y->alike[i]] = true;
    for (int i = 0; i < y->x->base.tensors.count; i++)
        y->refused[i] |= y->in_batch[i] == y->batch;
    return true;
}

/* Climbs until nothing helps; the bytes that are needed then. */
static double climb_all(climbing *y)
{
    bool helped = true;
    for (int round = 0; round < ROUNDS && helped; round++) {
        helped = false;
        memset(y->refused, 0, sizeof *y->refused * (size_t)y->x->base.tensors.count);
        while (climb(y, &helped))
            ;
    }
    const device_class *p = estimate_count(&y->e);
    return p ? p->needs : 0;
}

/* ---- what is kept after all ---- */

/* Lists `t`, or all that were dropped in one batch with it and still are. */
static void list_again(climbing *y, int t, bool batch)
{
    const recompute *x = y->x;
    y->alike_count = 0;
    for (int i = 0; i < x->base.tensors.count; i++)
        if (i == t || (batch && x->dropped[i] && !x->moved[i] && y->batch_of[i] == y->batch_of[t]))
            y->alike[y->alike_count++] = i;
}

/* A batch ends where it is known how much is needed. */
static void number_batches(climbing *y)
{
    const recompute *x = y->x;
    int batch = 0;
    for (int r = 0; r < x->ladder.count; r++) {
        y->batch_of[x->ladder.item[r].tensor] = batch;
        batch += x->ladder.item[r].needs > 0;
    }
}

/* The bytes that the device needs if `t` is kept. */
static double needs_with(climbing *y, int t)
{
    y->x->dropped[t] = false;
    double needs = estimate_count(&y->e)->needs;
    y->x->dropped[t] = true;
    return needs;
}

/* Lists, in `kept`, one of each batch that is made again and is there when the device needs the most; behind them the one
 * that is best kept alone. How many batches there are. */
static int list_there(climbing *y, int *kept)
{
    const recompute *x = y->x;
    const device_class *p = estimate_count(&y->e);
    int tensors = x->base.tensors.count, batches = 0, best = NONE;
    double least = 0;
    bool *there = y->refused; /* nothing is asked about any more */
    number_batches(y);
    for (int t = 0; t < tensors; t++) {
        const stay *s = &y->e.stays[t + tensors];
        there[t] = x->dropped[t] && !x->moved[t] && s->born >= 0 && s->born <= p->peak && p->peak <= s->died;
    }
    for (int t = 0; t < tensors; t++) {
        bool first = there[t] && batches < KEPT_BATCHES;
        double needs = there[t] ? needs_with(y, t) : 0;
        for (int i = 0; i < batches; i++)
            first &= y->batch_of[kept[i]] != y->batch_of[t];
        if (first)
            kept[batches++] = t;
        if (there[t] && (best < 0 || needs < least)) {
            least = needs;
            best = t;
        }
    }
    kept[batches] = best;
    return batches;
}

/* Keeps `t`, or its batch, and climbs on from there; what is needed then. */
static double climb_with(climbing *y, int t, bool batch)
{
    list_again(y, t, batch);
    for (int i = 0; i < y->alike_count; i++)
        y->x->dropped[y->alike[i]] = false;
    recompute_order(y->x);
    y->repeats = 0;
    for (int n = 0; n < y->x->base.node_count; n++)
        y->repeats += y->x->again[n] ? y->seconds[n] : 0;
    for (int i = 0; i < y->alike_count; i++)
        push(y, (again_rung){.tensor = y->alike[i], .kept = true, .update = NONE});
    return climb_all(y);
}

/* Values that are made again together are there together, and at last the device may need the most for them. So some are
 * kept after all, as dropping others may be of use then: those with which the least is needed in the end. False: nothing
 * helps. */
static bool climb_again(climbing *y, double *needs)
{
    const climbing before = *y;
    int rungs = y->x->ladder.count, kept[KEPT_BATCHES + 1], batches = list_there(y, kept), best = NONE;
    for (int i = 0; i <= batches && batches; i++) {
        double then = climb_with(y, kept[i], i < batches);
        best = then < *needs ? i : best;
        *needs = then < *needs ? then : *needs;
        y->x->ladder.count = rungs;
        recompute_drop(y->x, rungs);
        y->repeats = before.repeats;
        y->moves = before.moves;
        y->filed = before.filed;
    }
    if (best >= 0)
        climb_with(y, kept[best], best < batches);
    return best >= 0;
}

bool recompute_ladder(recompute *x)
{
    climbing y;
    bool goes = climbing_begin(&y, x);
    double needs = goes ? climb_all(&y) : 0;
    for (int i = 0; i < KEPT_TIMES && goes && needs > 0 && y.e.effort < EFFORT_MAX; i++)
        goes = climb_again(&y, &needs);
    return !x->c->pool.failed || error_set(WEIR_E_MEMORY, "no memory to compile \"%s\"", x->c->graph->name) == WEIR_OK;
}

/* ---- states ---- */

static double state_bytes(const recompute *x, int n)
{
    const ir_node *node = &x->base.node[n];
    int states = node->updates < 0 || node->program || x->filed[n] ? 0 : offload_states(node);
    uint64_t bytes = states ? shard_bytes(&x->base.tensors.item[node->updates], 0) : 0;
    return bytes < group_own_bytes ? 0 : (double)bytes * states;
}

static int largest_state(const recompute *x)
{
    int largest = NONE;
    for (int n = 0; n < x->base.node_count; n++)
        if (state_bytes(x, n) > (largest < 0 ? 0 : state_bytes(x, largest)))
            largest = n;
    return largest;
}

/* They are needed in the update alone, where there is little to compute meanwhile, so the step takes as much longer as
 * the disk does. */
bool recompute_states(recompute *x, int rungs)
{
    double seconds = rungs ? x->ladder.item[rungs - 1].seconds : 0;
    x->ladder.count = rungs;
    recompute_drop(x, rungs);
    for (int n; (n = largest_state(x)) >= 0;) {
        again_rung *r = POOL_PUSH(&x->c->pool, &x->ladder);
        if (!r)
            break;
        seconds += 2 * disk_seconds((uint64_t)state_bytes(x, n));
        x->filed[n] = true;
        *r = (again_rung){.tensor = NONE, .update = n, .seconds = seconds};
    }
    return !x->c->pool.failed || error_set(WEIR_E_MEMORY, "no memory to compile \"%s\"", x->c->graph->name) == WEIR_OK;
}
