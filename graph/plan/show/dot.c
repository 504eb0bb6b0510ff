/* graph/plan/show/dot.c: the plan as a picture, for graphviz: a box per device, in it its actors, coloured by phase; an
 * arrow from each producer to each of its readers, that tells the slots of the register and their size. Several
 * registers between the same two are one arrow, with their sum: a real plan has too many of them to draw, or to look
 * at.
 *
 * A transfer between accelerators is a dashed arrow from the actor that gives to the one that takes.
 *
 * Arrows of what starts full (parameters) lead backwards in time. They are drawn thin and do not push their ends apart,
 * so that the picture follows the data through one step. A constant is a small box of its own, beside its readers.
 */
#include "graph/base/error.h"
#include "graph/base/foreign.h"
#include "graph/plan/show/show_inside.h"

#include <inttypes.h>
#include <stdlib.h>

#define NAME_SHOWN 40 /* characters of a name */
/* Beyond so many, dot would take most of a minute to place boxes well and to bend arrows around them, in a picture that
 * nobody can take in at once. It then places them less well, and draws straight arrows. */
#define MANY_PORTS 1500

static void put_text(FILE *to, const char *text)
{
    foreign_put_dot(to, text, NAME_SHOWN);
}

static bool outside(const weir_plan *plan, const plan_actor *actor)
{
    return plan->queues[actor->queue.i].kind == PLAN_OUTSIDE;
}

static void put_actor(const weir_plan *plan, FILE *to, uint32_t a)
{
    static const char *const fill[PLAN_PHASES] = {"#d6e8fa", "#fde3c8", "#d8f0d3"};
    const plan_actor *actor = &plan->actors[a];
    fprintf(to, "    a%" PRIu32 " [label=\"", a);
    put_text(to, plan_text(plan, actor->name));
    if (actor->kernels.count)
        fprintf(to, "\\n%" PRIu32 " kernel%s", actor->kernels.count, actor->kernels.count == 1 ? "" : "s");
    if (actor->fires > 1)
        fprintf(to, "%s%" PRIu32 " times a step", actor->kernels.count ? ", " : "\\n", actor->fires);
    if (outside(plan, actor))
        fputs("\", shape=ellipse, fillcolor=\"#f2f2f2\"];\n", to);
    else
        fprintf(to, "\", fillcolor=\"%s\"];\n", fill[actor->phase]);
}

static void put_space(const weir_plan *plan, FILE *to, uint32_t s)
{
    char bytes[PLAN_TEXT_BYTES];
    fprintf(to, "  subgraph cluster_%" PRIu32 " {\n    style=rounded; color=\"#999999\";\n    label=\"", s);
    put_text(to, plan_text(plan, plan->spaces[s].name));
    if (plan->ranks > 1)
        fprintf(to, ", rank %" PRIu32, plan->spaces[s].rank);
    fprintf(to, ", %s\";\n", bytes_text(plan->spaces[s].bytes, bytes));
    for (uint32_t a = 0; a < plan->actors_count; a++)
        if (plan_actor_space(plan, a).i == s)
            put_actor(plan, to, a);
    for (uint32_t r = 0; r < plan->regsts_count; r++) {
        if (plan->regsts[r].producer.i != PLAN_NONE || plan->regsts[r].space.i != s)
            continue;
        fprintf(to, "    r%" PRIu32 " [label=\"", r);
        put_text(to, regst_text(plan, (plan_regst_id){r}, bytes));
        fputs("\", shape=note, fillcolor=\"#ffffff\", fontsize=9];\n", to);
    }
    fputs("  }\n", to);
}

/* The ports of one actor that lead to the same producer, and start full or not. */
typedef struct arrow {
    uint32_t ports;
    uint32_t port; /* the first of them */
    uint64_t bytes;
} arrow;

/* "h" above "2 x 1.0 KiB, hold 4" */
static void put_label(const weir_plan *plan, FILE *to, const plan_port *port)
{
    const plan_regst *regst = &plan->regsts[port->regst.i];
    char text[PLAN_TEXT_BYTES];
    fputs("  ", to); /* away from the line */
    put_text(to, regst_text(plan, port->regst, text));
    fprintf(to, "\\n  %" PRIu32 " x %s", regst->slots, bytes_text(regst->slot_bytes, text));
    if (regst->fill > 1)
        fprintf(to, ", fill %" PRIu32, regst->fill);
    if (port->hold > 1)
        fprintf(to, ", hold %" PRIu32, port->hold);
}

static void put_arrow(const weir_plan *plan, FILE *to, const arrow *from)
{
    const plan_port *port = &plan->ports[from->port];
    const plan_regst *regst = &plan->regsts[port->regst.i];
    bool constant = regst->producer.i == PLAN_NONE;
    char bytes[PLAN_TEXT_BYTES];
    fprintf(to, "  %c%" PRIu32 " -> a%" PRIu32 " [label=\"", constant ? 'r' : 'a',
            constant ? port->regst.i : regst->producer.i, port->actor.i);
    if (from->ports == 1)
        put_label(plan, to, port);
    else
        fprintf(to, "  %" PRIu32 " registers\\n  %s", from->ports, bytes_text(from->bytes, bytes));
    if (constant)
        fputs("\", style=dotted];\n", to);
    else if (regst->initial)
        fputs("\", style=dashed, color=\"#5b8c4f\", fontcolor=\"#5b8c4f\", constraint=false];\n", to);
    else
        fputs("\"];\n", to);
}

/* `arrows` has two per actor of the plan, for what starts empty and full; they are zero before and after. */
static void put_reads(const weir_plan *plan, FILE *to, const plan_range *ports, arrow *arrows)
{
    for (uint32_t p = ports->first; p < ports->first + ports->count; p++) {
        const plan_regst *regst = &plan->regsts[plan->ports[p].regst.i];
        arrow alone = {0, p, 0};
        arrow *to_add = regst->producer.i == PLAN_NONE ? &alone : &arrows[2 * regst->producer.i + (regst->initial > 0)];
        if (!to_add->ports++)
            to_add->port = p;
        to_add->bytes += regst->slots * regst->slot_bytes;
        if (to_add == &alone)
            put_arrow(plan, to, &alone);
    }
    for (uint32_t p = ports->first; p < ports->first + ports->count; p++) {
        const plan_regst *regst = &plan->regsts[plan->ports[p].regst.i];
        arrow *drawn = regst->producer.i == PLAN_NONE ? NULL : &arrows[2 * regst->producer.i + (regst->initial > 0)];
        if (drawn && drawn->ports)
            put_arrow(plan, to, drawn);
        if (drawn)
            *drawn = (arrow){0};
    }
}

/* Moves between the same two members lie together. */
static void put_collective(const weir_plan *plan, FILE *to, const plan_collective *of)
{
    char text[PLAN_TEXT_BYTES];
    const plan_actor_id *members = plan->members + of->members.first;
    for (uint32_t m = of->moves.first, end = m + of->moves.count, next; m < end; m = next) {
        const plan_move *move = &plan->moves[m];
        uint64_t bytes = 0;
        for (next = m; next < end && plan->moves[next].from == move->from && plan->moves[next].to == move->to; next++)
            bytes += plan->moves[next].bytes;
        fprintf(to, "  a%" PRIu32 " -> a%" PRIu32 " [label=\"  %s\\n  %s\", style=dashed, color=\"#3f6fb5\"];\n",
                members[move->from].i, members[move->to].i, collective_text(of->kind), bytes_text(bytes, text));
    }
    for (uint32_t m = 1; !of->moves.count && m < of->members.count; m++)
        fprintf(to, "  a%" PRIu32 " -> a%" PRIu32 " [label=\"  %s\", style=dashed, dir=both, color=\"#3f6fb5\"];\n",
                members[m - 1].i, members[m].i, collective_text(of->kind));
}

weir_status weir_plan_dot(const weir_plan *plan, FILE *to)
{
    if (error_null(plan, "weir_plan_dot", "plan") || error_null(to, "weir_plan_dot", "file"))
        return WEIR_E_ARGUMENT;
    arrow *arrows = calloc(2 * (size_t)plan->actors_count + 1, sizeof *arrows);
    if (!arrows)
        return error_set(WEIR_E_MEMORY, "no memory to draw the plan");
    fputs("digraph plan {\n"
          "  graph [label=\"",
          to);
    put_text(to, plan_text(plan, plan->name));
    fprintf(to, "\", labelloc=t, fontname=\"Helvetica\", fontsize=14, rankdir=TB, nodesep=0.5, ranksep=0.6, newrank=true%s];\n",
            plan->ports_count > MANY_PORTS ? ", nslimit=2, splines=line" : "");
    fputs("  node [shape=box, style=\"filled,rounded\", color=\"#555555\", fontname=\"Helvetica\", fontsize=11];\n"
          "  edge [fontname=\"Helvetica\", fontsize=9, color=\"#555555\", fontcolor=\"#333333\", arrowsize=0.7];\n",
          to);
    for (uint32_t s = 0; s < plan->spaces_count; s++)
        put_space(plan, to, s);
    for (uint32_t a = 0; a < plan->actors_count; a++)
        put_reads(plan, to, &plan->actors[a].ports, arrows);
    for (uint32_t c = 0; c < plan->collectives_count; c++)
        put_collective(plan, to, &plan->collectives[c]);
    fputs("}\n", to);
    free(arrows);
    return show_end(to);
}
