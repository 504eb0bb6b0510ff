/* graph/model/groups.c: see the header. A graph has some hundred parameters and an optimizer at most WEIR_GROUPS_MAX patterns, so
 * a parameter's group is looked up each time that it is asked for.
 */
#include "graph/model/groups.h"
#include "graph/base/locale.h"
#include "graph/base/names.h"
#include "kernels/optim/optim.h"

#include <math.h>

int groups_count(const weir_optimizer *o)
{
    int count = 0;
    while (count < WEIR_GROUPS_MAX && o->groups[count].match)
        count++;
    return count;
}

int groups_of(const weir_optimizer *o, const weir_tensor *parameter)
{
    const int count = groups_count(o);
    for (int k = 0; k < count; k++)
        if (glob_fits(o->groups[k].match, parameter->name))
            return k;
    return GROUP_NONE;
}

bool groups_clips(const weir_optimizer *o, int group)
{
    const weir_optimizer_group *own = group == GROUP_NONE ? NULL : &o->groups[group];
    return own && (own->clip_norm != 0 || signbit(own->clip_norm));
}

/* ---- checks ---- */

static bool is_trained(const weir_tensor *t)
{
    return !t->node && !t->delay && t->trains;
}

/* How many parameters that train the pattern of group k fits; `own`: that belong to it. Their names go to `names`. */
static int count_matches(const weir_graph *g, const weir_optimizer *o, int k, int *own, struct names *names)
{
    int matches = 0;
    *own = 0;
    for (int i = 0; i < g->tensors.count; i++) {
        const weir_tensor *t = g->tensors.item[i];
        if (!is_trained(t))
            continue;
        names_add(names, t->name);
        matches += glob_fits(o->groups[k].match, t->name);
        *own += groups_of(o, t) == k;
    }
    return matches;
}

static bool matches_ok(weir_graph *g, const weir_optimizer *o, weir_src src, int k)
{
    const char *match = o->groups[k].match;
    struct names names = {.wanted = match};
    char text[NAMES_TEXT_BYTES];
    int own, matches = count_matches(g, o, k, &own, &names);
    if (!matches)
        graph_mistake(g, src, "train: .groups[%d].match \"%s\" fits no parameter that trains%s", k, match,
                      names_text(&names, text, sizeof text));
    else if (!own)
        graph_mistake(g, src, "train: .groups[%d].match \"%s\" fits only parameters of the groups before it; the first group that "
                      "fits a parameter has it, so write this one earlier", k, match);
    return own;
}

static bool numbers_ok(weir_graph *g, const weir_optimizer_group *group, weir_src src, int k)
{
    const struct {
        const char *name;
        double value;
    } list[] = {{"lr", group->lr}, {"weight_decay", group->weight_decay}, {"clip_norm", group->clip_norm}};
    for (size_t i = 0; i < sizeof list / sizeof *list; i++)
        if (!(list[i].value >= 0 && list[i].value < OPTIM_END)) {
            graph_mistake(g, src, "train: .groups[%d].%s is %g; it is 0 or more, and at most 3.4e38", k, list[i].name,
                          list[i].value);
            return false;
        }
    return true;
}

bool groups_ok(weir_graph *g, const weir_optimizer *o, weir_src src)
{
    const int count = groups_count(o);
    for (int k = count; k < WEIR_GROUPS_MAX; k++)
        if (o->groups[k].match) {
            graph_mistake(g, src, "train: .groups[%d] has no .match, and .groups[%d] has one; the first group without .match ends "
                          "the list", count, k);
            return false;
        }
    for (int k = 0; k < count; k++)
        if (!numbers_ok(g, &o->groups[k], src, k) || !matches_ok(g, o, src, k))
            return false;
    return true;
}

/* ---- what a group says ---- */

static bool depends_on_trained(const graph_node *node)
{
    bool trains = false;
    for (int i = 0; i < node->in_count; i++)
        trains |= node->in[i]->trains;
    return trains;
}

void groups_freeze(weir_graph *g, const weir_optimizer *o)
{
    bool any = false;
    for (int i = 0; i < g->tensors.count; i++) {
        weir_tensor *t = g->tensors.item[i];
        const int k = is_trained(t) ? groups_of(o, t) : GROUP_NONE;
        if (k == GROUP_NONE || !o->groups[k].frozen)
            continue;
        t->frozen = any = true;
        t->trains = false;
    }
    for (int n = 0; any && n < g->nodes.count; n++) {
        graph_node *node = g->nodes.item[n];
        for (int i = 0; i < node->out_count; i++)
            node->out[i]->trains &= depends_on_trained(node);
    }
}

weir_optimizer groups_options(const weir_optimizer *o, const weir_tensor *parameter)
{
    weir_optimizer own = *o;
    const int k = groups_of(o, parameter);
    const weir_optimizer_group none = {.match = NULL}, *group = k == GROUP_NONE ? &none : &o->groups[k];
    const double decay = parameter->type.shape.rank >= 2 ? o->weight_decay : 0;
    own.weight_decay = weir_option(group->weight_decay, decay);
    own.lr = weir_option(group->lr, o->lr);
    if (own.lr != o->lr && o->lr > 0)
        own.lr_min *= own.lr / o->lr;
    return own;
}
