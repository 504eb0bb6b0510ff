/* graph/plan/show/picture.c: a plan as a picture that stays readable: what the kernels of a stage do, rather than each actor
 * (that is weir_plan_dot()).
 *
 * A box per stage; in it one node for what its devices do in a phase in numbered layers (h0 .. h11), with what comes before
 * and after, and one for all updates. A conversion between layouts belongs to who reads the result. Arrows are the sums of
 * what is read over a step, on all devices: those between devices are blue. Main alone is drawn.
 *
 * Nodes are few (some for each stage), so they are looked up one by one.
 */
#define _GNU_SOURCE
#include "graph/base/error.h"
#include "graph/base/foreign.h"
#include "graph/base/locale.h"
#include "graph/plan/show/layouts.h"
#include "graph/plan/show/show_inside.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { NAME_BYTES = 48, OPS_MAX = 16, OPS_SHOWN = 4, SINGLES_SHOWN = 3, SINGLES_MAX = 12 };

typedef struct part { /* a name, and how often it was there */
    char name[NAME_BYTES];
    uint32_t count;
} part;

/* Nodes of a stage are in this order in each phase. */
typedef enum place { BEFORE, LAYERS, AFTER, HOST } place;

typedef struct node {
    uint32_t stage, phase;
    place place;
    char base[NAME_BYTES]; /* "h" of h0, h1; of a host, and where no layer has a number, the whole name */
    uint32_t low, high;    /* numbers of layers */
    part op[OPS_MAX];      /* that its first device runs */
    part single[SINGLES_MAX];
    uint32_t space;        /* that device */
    uint32_t kernels, fires;
    uint64_t moved;        /* bytes that its devices read of each other, within it, in a step */
} node;

typedef struct edge {
    uint32_t from, to;
    bool full, between;    /* what starts full; from device to device */
    uint64_t bytes;        /* a step, on all devices */
} edge;

typedef struct picture {
    const weir_plan *plan;
    layouts layouts;
    uint32_t *of_kernel;   /* owned: the node, or PLAN_NONE */
    uint32_t *maker;       /* owned: of each tensor the node that makes it, or PLAN_NONE */
    uint32_t *reader;      /* owned: of each tensor the first kernel that reads it, or PLAN_NONE */
    node *node;            /* owned */
    edge *edge;            /* owned */
    bool *layers_seen;     /* owned: of each space and phase */
    uint32_t node_count, node_room, edge_count, edge_room;
    bool numbered;         /* some layers have numbers */
    bool failed;           /* no memory */
} picture;

/* ---- names ---- */

/* "h0" of "h0/attention", "ln" of "ln.grad/layernorm_grad", "h1" of "fused(add, layernorm) h1/add1..h1/ln2" */
static void first_part(const char *name, char to[NAME_BYTES])
{
    size_t fused = show_fused(name);
    name += fused && name[fused] == ' ' ? fused + 1 : 0;
    snprintf(to, NAME_BYTES, "%.*s", (int)strcspn(name, "/>.:"), name);
}

/* Whether the name ends in a number, which is taken off. */
static bool take_number(char name[NAME_BYTES], uint32_t *number)
{
    size_t length = strlen(name), from = length;
    while (from && is_digit(name[from - 1]))
        from--;
    if (!from || from == length || length - from > 6 || name[from - 1] == '_')
        return false;
    *number = (uint32_t)strtoul(name + from, NULL, 10);
    name[from] = '\0';
    return true;
}

/* The members of a fused kernel, else its op. */
static void op_name(const weir_plan *plan, const plan_kernel *kernel, char name[NAME_BYTES])
{
    const char *whole = plan_text(plan, kernel->name);
    size_t fused = show_fused(whole);
    if (fused)
        snprintf(name, NAME_BYTES, "%.*s", (int)fused - 7, whole + 6);
    else
        snprintf(name, NAME_BYTES, "%s", plan_text(plan, kernel->op));
}

static void count_in(part *list, int room, const char *name)
{
    for (int i = 0; i < room; i++)
        if (!list[i].count || !strcmp(list[i].name, name)) {
            snprintf(list[i].name, NAME_BYTES, "%s", name);
            list[i].count++;
            return;
        }
}

/* ---- which node a kernel belongs to ---- */

static bool converts(const weir_plan *plan, const plan_kernel *kernel)
{
    const char *op = plan_text(plan, kernel->op);
    return !strcmp(op, "box") || !strcmp(op, "copy") || !strcmp(op, "collective");
}

static bool is_main(const plan_actor *actor)
{
    return actor->program.i == 0;
}

/* `list`, with room for one more than `count`; NULL: no memory. */
static void *grow(void *list, uint32_t count, uint32_t *room, size_t item_bytes)
{
    if (count < *room)
        return list;
    uint32_t wanted = *room ? 2 * *room : 64;
    void *more = realloc(list, wanted * item_bytes);
    *room = more ? wanted : *room;
    return more;
}

/* The node that is so, or a new one. */
static uint32_t find_node(picture *p, const node *like)
{
    for (uint32_t n = 0; n < p->node_count; n++) {
        const node *have = &p->node[n];
        if (have->stage == like->stage && have->phase == like->phase && have->place == like->place &&
            !strcmp(have->base, like->base))
            return n;
    }
    node *more = grow(p->node, p->node_count, &p->node_room, sizeof *more);
    p->failed |= !more;
    if (!more)
        return PLAN_NONE;
    p->node = more;
    p->node[p->node_count] = *like;
    return p->node_count++;
}

static bool has_single(const node *n, const char *name)
{
    for (int i = 0; i < SINGLES_MAX && n->single[i].count; i++)
        if (!strcmp(n->single[i].name, name))
            return true;
    return false;
}

/* Before or after the layers with numbers: as the device calls them, but what was before once is so again (a gradient
 * that is added up later). */
static place place_single(const picture *p, const node *like, const char *name)
{
    bool layers = p->layers_seen[like->space * PLAN_PHASES + like->phase];
    for (uint32_t n = 0; n < p->node_count && layers; n++)
        if (p->node[n].stage == like->stage && p->node[n].phase == like->phase && p->node[n].place == BEFORE &&
            has_single(&p->node[n], name))
            layers = false;
    return layers ? AFTER : BEFORE;
}

static void place_kernel(picture *p, uint32_t k)
{
    const weir_plan *plan = p->plan;
    const plan_kernel *kernel = &plan->kernels[k];
    const plan_actor *actor = &plan->actors[kernel->actor.i];
    char name[NAME_BYTES], op[NAME_BYTES];
    uint32_t space = plan_actor_space(plan, kernel->actor.i).i, number = 0;
    node like = {.stage = p->layouts.stage[space], .phase = actor->phase, .space = space, .fires = actor->fires};
    first_part(plan_text(plan, kernel->name), name);
    snprintf(like.base, sizeof like.base, "%s", name);
    if (kernel->host != PLAN_NONE) {
        like.place = HOST;
        snprintf(like.base, sizeof like.base, "%.47s", plan_text(plan, plan->hosts[kernel->host].name));
    } else if (actor->phase == PLAN_UPDATE) {
        like.base[0] = '\0';
    } else if (take_number(like.base, &number)) {
        like.place = LAYERS;
        like.low = like.high = number;
        p->layers_seen[space * PLAN_PHASES + actor->phase] = true;
    } else if (p->numbered) {
        like.place = place_single(p, &like, name);
        like.base[0] = '\0';
    }
    uint32_t n = p->of_kernel[k] = find_node(p, &like);
    if (n == PLAN_NONE)
        return;
    node *to = &p->node[n];
    to->low = number < to->low ? number : to->low;
    to->high = number > to->high ? number : to->high;
    to->fires = actor->fires > to->fires ? actor->fires : to->fires;
    if (space != to->space)
        return;
    op_name(plan, kernel, op);
    count_in(to->op, OPS_MAX, op);
    count_in(to->single, SINGLES_MAX, name);
    to->kernels++;
}

/* A conversion goes to who reads it, through others if need be. */
static uint32_t reader_node(const picture *p, uint32_t k, int hops)
{
    const plan_range *out = &p->plan->kernels[k].out;
    if (p->of_kernel[k] != PLAN_NONE || !hops)
        return p->of_kernel[k];
    for (uint32_t o = out->first; o < out->first + out->count; o++) {
        uint32_t reader = p->reader[p->plan->operands[o].tensor.i];
        uint32_t n = reader == PLAN_NONE ? PLAN_NONE : reader_node(p, reader, hops - 1);
        if (n != PLAN_NONE)
            return n;
    }
    return PLAN_NONE;
}

/* Kernels phase by phase, in the order in which a device calls them: actors by priority. */
static int compare_kernels(const void *a, const void *b, void *of)
{
    const weir_plan *plan = of;
    const plan_kernel *x = &plan->kernels[*(const uint32_t *)a], *y = &plan->kernels[*(const uint32_t *)b];
    int order = show_order(&plan->actors[x->actor.i], &plan->actors[y->actor.i]);
    return order ? order : (x > y) - (x < y);
}

static void find_numbers(picture *p)
{
    char name[NAME_BYTES];
    uint32_t number;
    for (uint32_t k = 0; k < p->plan->kernels_count && !p->numbered; k++) {
        first_part(plan_text(p->plan, p->plan->kernels[k].name), name);
        p->numbered = take_number(name, &number);
    }
}

static bool place_all(picture *p)
{
    const weir_plan *plan = p->plan;
    uint32_t *order = malloc((plan->kernels_count + (size_t)1) * sizeof *order);
    for (uint32_t k = 0; order && k < plan->kernels_count; k++)
        order[k] = k;
    if (!order)
        return false;
    qsort_r(order, plan->kernels_count, sizeof *order, compare_kernels, (void *)plan);
    find_numbers(p);
    for (uint32_t i = 0; i < plan->kernels_count; i++) {
        const plan_kernel *kernel = &plan->kernels[order[i]];
        const plan_actor *actor = &plan->actors[kernel->actor.i];
        bool own = actor->phase == PLAN_UPDATE || kernel->host != PLAN_NONE || !converts(plan, kernel);
        if (own && is_main(actor))
            place_kernel(p, order[i]);
        for (uint32_t o = kernel->in.first; o < kernel->in.first + kernel->in.count && is_main(actor); o++)
            if (p->reader[plan->operands[o].tensor.i] == PLAN_NONE)
                p->reader[plan->operands[o].tensor.i] = order[i];
    }
    for (uint32_t i = 0; i < plan->kernels_count; i++) {
        const plan_kernel *kernel = &plan->kernels[order[i]];
        if (!is_main(&plan->actors[kernel->actor.i]) || p->of_kernel[order[i]] != PLAN_NONE)
            continue;
        p->of_kernel[order[i]] = reader_node(p, order[i], 8);
        if (p->of_kernel[order[i]] == PLAN_NONE)
            place_kernel(p, order[i]);
    }
    free(order);
    return !p->failed;
}

/* The node of an end without a kernel. */
static uint32_t end_node(picture *p, const plan_host *host)
{
    uint32_t space = plan_actor_space(p->plan, host->actor.i).i;
    node like = {.stage = p->layouts.stage[space], .place = HOST, .space = space,
                 .fires = p->plan->actors[host->actor.i].fires};
    snprintf(like.base, sizeof like.base, "%.47s", plan_text(p->plan, host->name));
    return find_node(p, &like);
}

/* Ends without a kernel: pushes and pulls. */
static void place_ends(picture *p)
{
    const weir_plan *plan = p->plan;
    for (uint32_t h = 0; h < plan->hosts_count; h++) {
        const plan_host *host = &plan->hosts[h];
        const plan_actor *actor = &plan->actors[host->actor.i];
        if ((host->kind != PLAN_PUSH && host->kind != PLAN_PULL) || !is_main(actor))
            continue;
        uint32_t n = end_node(p, host);
        for (uint32_t r = actor->regsts.first; r < actor->regsts.first + actor->regsts.count; r++)
            for (uint32_t t = 0; t < plan->regsts[r].tensors.count; t++)
                p->maker[plan->regsts[r].tensors.first + t] = n;
    }
}

/* ---- arrows ---- */

static void add_edge(picture *p, const edge *one)
{
    for (uint32_t e = 0; e < p->edge_count; e++) {
        edge *have = &p->edge[e];
        if (have->from == one->from && have->to == one->to && have->full == one->full) {
            have->bytes += one->bytes;
            have->between |= one->between;
            return;
        }
    }
    edge *more = grow(p->edge, p->edge_count, &p->edge_room, sizeof *more);
    p->failed |= !more;
    if (!more)
        return;
    p->edge = more;
    p->edge[p->edge_count++] = *one;
}

/* `to`, on this space, reads the tensor so often a step. */
static void add_read(picture *p, uint32_t t, uint32_t to, uint32_t space, uint32_t fires)
{
    const plan_tensor *tensor = &p->plan->tensors[t];
    uint32_t from = p->maker[t];
    if (from == PLAN_NONE || to == PLAN_NONE)
        return;
    bool between = plan_tensor_space(p->plan, tensor).i != space;
    bool full = tensor->home == PLAN_IN_REGST && p->plan->regsts[tensor->owner].initial;
    uint64_t bytes = plan_tensor_bytes(tensor) * fires;
    if (from != to)
        add_edge(p, &(edge){from, to, full, between, bytes});
    else if (between)
        p->node[to].moved += bytes;
}

static void read_kernel(picture *p, uint32_t k)
{
    const weir_plan *plan = p->plan;
    const plan_kernel *kernel = &plan->kernels[k];
    for (uint32_t o = kernel->in.first; o < kernel->in.first + kernel->in.count; o++)
        add_read(p, plan->operands[o].tensor.i, p->of_kernel[k], plan_actor_space(plan, kernel->actor.i).i,
                 plan->actors[kernel->actor.i].fires);
}

/* The tensors that a pull takes. */
static void read_pull(picture *p, const plan_host *host)
{
    const weir_plan *plan = p->plan;
    const plan_actor *actor = &plan->actors[host->actor.i];
    if (host->kind != PLAN_PULL || !is_main(actor) || !actor->ports.count)
        return;
    const plan_range *tensors = &plan->regsts[plan->ports[actor->ports.first].regst.i].tensors;
    for (uint32_t t = tensors->first; t < tensors->first + tensors->count; t++)
        add_read(p, t, end_node(p, host), plan_actor_space(plan, host->actor.i).i, actor->fires);
}

/* The tensors that others give to members of collectives. */
static void read_collective(picture *p, const plan_collective *of)
{
    const weir_plan *plan = p->plan;
    for (uint32_t m = of->moves.first; m < of->moves.first + of->moves.count; m++) {
        const plan_actor *from = plan_member(plan, of, plan->moves[m].from);
        const plan_actor *to = plan_member(plan, of, plan->moves[m].to);
        if (!from->kernels.count || !to->kernels.count || !is_main(from))
            continue;
        uint32_t give = plan->operands[plan->kernels[from->kernels.first].in.first + plan->moves[m].give].tensor.i;
        add_read(p, give, p->of_kernel[to->kernels.first], plan->queues[to->queue.i].space.i, to->fires);
    }
}

static void connect_all(picture *p)
{
    const weir_plan *plan = p->plan;
    for (uint32_t k = 0; k < plan->kernels_count; k++)
        for (uint32_t o = plan->kernels[k].out.first; o < plan->kernels[k].out.first + plan->kernels[k].out.count; o++)
            if (p->of_kernel[k] != PLAN_NONE)
                p->maker[plan->operands[o].tensor.i] = p->of_kernel[k];
    for (uint32_t k = 0; k < plan->kernels_count; k++)
        read_kernel(p, k);
    for (uint32_t h = 0; h < plan->hosts_count; h++)
        read_pull(p, &plan->hosts[h]);
    for (uint32_t c = 0; c < plan->collectives_count; c++)
        read_collective(p, &plan->collectives[c]);
}

/* ---- as text for graphviz ---- */

static void put_text(FILE *to, const char *text)
{
    foreign_put_dot(to, text, INT32_MAX);
}

static int compare_parts(const void *a, const void *b)
{
    const part *x = a, *y = b;
    return (x->count < y->count) - (x->count > y->count);
}

static void put_ops(FILE *to, node *n)
{
    int shown = 0;
    qsort(n->op, OPS_MAX, sizeof *n->op, compare_parts);
    for (int i = 0; i < OPS_MAX && n->op[i].count && shown < OPS_SHOWN; i++) {
        if (!strcmp(n->op[i].name, "box") || !strcmp(n->op[i].name, "copy"))
            continue;
        fputs(shown++ ? ", " : "", to);
        put_text(to, n->op[i].name);
        if (n->op[i].count > 1)
            fprintf(to, " x%" PRIu32, n->op[i].count);
    }
}

/* "h0 .. h3", "embed, ln", "update" */
static void put_title(FILE *to, const node *n)
{
    if (n->place == HOST)
        put_text(to, n->base);
    else if (n->phase == PLAN_UPDATE)
        fputs("update", to);
    else if (n->place == LAYERS) {
        put_text(to, n->base);
        fprintf(to, "%" PRIu32, n->low);
        if (n->high > n->low) {
            fputs(" .. ", to);
            put_text(to, n->base);
            fprintf(to, "%" PRIu32, n->high);
        }
    } else {
        for (int i = 0; i < SINGLES_SHOWN && n->single[i].count; i++) {
            fputs(i ? ", " : "", to);
            put_text(to, n->single[i].name);
        }
        fputs(n->single[SINGLES_SHOWN].count ? ", .." : "", to);
    }
}

static void put_node(const picture *p, FILE *to, uint32_t i)
{
    static const char *const fill[PLAN_PHASES] = {"#d6e8fa", "#fde3c8", "#d8f0d3"};
    static const char *const word[PLAN_PHASES] = {"forward", "backward", ""};
    node *n = &p->node[i];
    char bytes[PLAN_TEXT_BYTES];
    fprintf(to, "    n%" PRIu32 " [label=\"", i);
    put_title(to, n);
    if (n->place == HOST) {
        fputs("\", shape=ellipse, fillcolor=\"#f2f2f2\"];\n", to);
        return;
    }
    if (*word[n->phase])
        fprintf(to, "  %s", word[n->phase]);
    fputs("\\n", to);
    put_ops(to, n);
    fprintf(to, "\\n%" PRIu32 " kernel%s a device", n->kernels, n->kernels == 1 ? "" : "s");
    if (n->fires > 1)
        fprintf(to, ", %" PRIu32 " times a step", n->fires);
    if (n->moved)
        fprintf(to, "\\n%s between its devices", bytes_text(n->moved, bytes));
    fprintf(to, "\", fillcolor=\"%s\"];\n", fill[n->phase]);
}

/* "cpu:0-3", and the most bytes that one of them has. */
static void put_stage_label(const picture *p, FILE *to, uint32_t stage)
{
    const weir_plan *plan = p->plan;
    const plan_space *first = NULL, *last = NULL;
    uint64_t most = 0;
    char bytes[PLAN_TEXT_BYTES];
    for (uint32_t s = 0; s < plan->spaces_count; s++) {
        const plan_space *space = &plan->spaces[s];
        if (p->layouts.stage[s] != stage || space->kind == WEIR_DISK || space->kind == WEIR_PINNED || space->kind == WEIR_MAPPED)
            continue;
        first = first ? first : space;
        last = space;
        most = space->bytes > most ? space->bytes : most;
    }
    if (p->layouts.stage_count > 1)
        fprintf(to, "stage %" PRIu32 ": ", stage);
    if (first)
        put_text(to, plan_text(plan, first->name));
    if (first != last) {
        fputs(" .. ", to);
        put_text(to, plan_text(plan, last->name));
    }
    fprintf(to, ", %s%s", bytes_text(most, bytes), first != last ? " each" : "");
}

#define UNSEEN "style=invis, shape=point, width=0, height=0, label=\"\""

/* The stages begin beside each other, the first on the left: dot keeps the order of arrows that leave one node. */
static void put_order(const picture *p, FILE *to)
{
    fputs("  order [" UNSEEN ", ordering=out];\n  edge [style=invis];\n", to);
    for (uint32_t stage = 1; stage <= p->layouts.stage_count; stage++) {
        uint32_t first = 0;
        while (first < p->node_count && (p->node[first].stage != stage || p->node[first].place == HOST))
            first++;
        fprintf(to, "  order -> s%" PRIu32 ";\n", stage);
        if (first < p->node_count)
            fprintf(to, "  s%" PRIu32 " -> n%" PRIu32 " [weight=0];\n", stage, first);
    }
}

static void put_stage(const picture *p, FILE *to, uint32_t stage)
{
    fprintf(to, "  subgraph cluster_%" PRIu32 " {\n    style=\"rounded,filled\"; color=\"#bbbbbb\"; fillcolor=\"#fafafa\"; labeljust=l;\n"
                "    label=\"", stage);
    put_stage_label(p, to, stage);
    fprintf(to, "\";\n    s%" PRIu32 " [" UNSEEN "];\n", stage);
    for (uint32_t n = 0; n < p->node_count; n++)
        if (p->node[n].stage == stage && p->node[n].place != HOST)
            put_node(p, to, n);
    fputs("  }\n", to);
    for (uint32_t n = 0; n < p->node_count; n++)
        if (p->node[n].stage == stage && p->node[n].place == HOST)
            put_node(p, to, n);
}

/* The arrow the other way, where the two nodes exchange values in one phase: they lie side by side, and so would both. */
static const edge *opposite(const picture *p, const edge *e)
{
    for (uint32_t i = 0; i < p->edge_count; i++)
        if (p->edge[i].from == e->to && p->edge[i].to == e->from && p->edge[i].full == e->full)
            return &p->edge[i];
    return NULL;
}

/* An arrow of what starts full leads backwards in time, and does not push its ends apart. */
static void put_edge(const picture *p, FILE *to, const edge *e)
{
    char bytes[PLAN_TEXT_BYTES];
    const char *color = e->full ? "#5b8c4f" : e->between ? "#2f62b5" : "#777777";
    const edge *back = opposite(p, e);
    if (back && back < e)
        return; /* that one is both */
    fprintf(to, "  n%" PRIu32 " -> n%" PRIu32 " [label=\" %s", e->from, e->to, bytes_text(e->bytes, bytes));
    if (back && back->bytes != e->bytes)
        fprintf(to, ", back %s", bytes_text(back->bytes, bytes));
    fprintf(to, " \", color=\"%s\", fontcolor=\"%s\"%s%s%s];\n", color, color,
            e->between && !e->full ? ", penwidth=1.8" : "", e->full ? ", style=dashed" : "",
            back ? ", dir=both, constraint=false" : e->full ? ", constraint=false" : "");
}

static void put_legend(FILE *to)
{
    fputs("  legend [shape=plaintext, style=\"\", fontsize=10, label=<<table border=\"0\" cellborder=\"0\" cellspacing=\"3\">"
          "<tr><td bgcolor=\"#d6e8fa\">forward</td><td bgcolor=\"#fde3c8\">backward</td>"
          "<td bgcolor=\"#d8f0d3\">update</td><td bgcolor=\"#f2f2f2\">the program's</td></tr>"
          "<tr><td colspan=\"4\" align=\"left\">arrows: bytes read in a step, on all devices together</td></tr>"
          "<tr><td colspan=\"4\" align=\"left\"><font color=\"#777777\">&#8594; on a device</font>   "
          "<font color=\"#2f62b5\">&#8594; between devices</font>   "
          "<font color=\"#5b8c4f\">&#8674; parameters, for the next step</font></td></tr></table>>];\n",
          to);
}

static void put_all(const picture *p, FILE *to)
{
    char bytes[PLAN_TEXT_BYTES];
    const weir_plan *plan = p->plan;
    fputs("digraph plan {\n  graph [label=\"", to);
    put_text(to, plan_text(plan, plan->name));
    fprintf(to, ": %" PRIu32 " device%s, %" PRIu32 " micro-batch%s a step, %s", plan_devices(plan),
            plan_devices(plan) == 1 ? "" : "s", plan->micro_batches, plan->micro_batches == 1 ? "" : "es",
            bytes_text(weir_plan_bytes(plan, -1), bytes));
    fputs(plan->programs_count > 1 ? " (its main program)" : "", to);
    fputs("\", labelloc=t, fontname=\"Helvetica\", fontsize=15, rankdir=TB, nodesep=0.45, ranksep=0.5];\n"
          "  node [shape=box, style=\"filled,rounded\", color=\"#666666\", fontname=\"Helvetica\", fontsize=11];\n"
          "  edge [fontname=\"Helvetica\", fontsize=9, arrowsize=0.7];\n",
          to);
    for (uint32_t s = 1; s <= p->layouts.stage_count; s++)
        put_stage(p, to, s);
    for (uint32_t e = 0; e < p->edge_count; e++)
        put_edge(p, to, &p->edge[e]);
    put_legend(to);
    put_order(p, to);
    fputs("}\n", to);
}

static uint32_t *nones(uint32_t count)
{
    uint32_t *list = malloc((count + (size_t)1) * sizeof *list);
    if (list)
        memset(list, 0xff, (count + (size_t)1) * sizeof *list);
    return list;
}

weir_status weir_plan_picture(const weir_plan *plan, FILE *to)
{
    if (error_null(plan, "weir_plan_picture", "plan") || error_null(to, "weir_plan_picture", "file"))
        return WEIR_E_ARGUMENT;
    picture p = {.plan = plan, .of_kernel = nones(plan->kernels_count), .maker = nones(plan->tensors_count),
                 .reader = nones(plan->tensors_count),
                 .layers_seen = calloc(plan->spaces_count * (size_t)PLAN_PHASES + 1, sizeof(bool))};
    bool ok = layouts_make(&p.layouts, plan) && p.of_kernel && p.maker && p.reader && p.layers_seen && place_all(&p);
    if (ok) {
        place_ends(&p);
        connect_all(&p);
        ok = !p.failed;
    }
    if (ok)
        put_all(&p, to);
    layouts_free(&p.layouts);
    free(p.of_kernel);
    free(p.maker);
    free(p.reader);
    free(p.layers_seen);
    free(p.node);
    free(p.edge);
    if (!ok)
        return error_set(WEIR_E_MEMORY, "no memory to draw the plan");
    return show_end(to);
}
