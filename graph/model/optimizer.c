/* graph/model/optimizer.c: see the header. A kind of optimizer is a line of the table. */
#include "graph/model/optimizer.h"
#include "graph/base/base.h"
#include "kernels/common/ops.h"

#include <math.h>

typedef struct kind {
    const char *name, *other; /* another option that it has, for a mistake about .momentum */
    double lr, beta2, eps;    /* defaults */
    bool betas, has_eps;      /* whether it has these options */
} kind;

static const kind kinds[] = {
    [WEIR_SGD] = {"SGD", ".momentum", 0.01, 0.999, 1e-8, false, false},
    [WEIR_ADAMW] = {"AdamW", ".beta1", 0.001, 0.999, 1e-8, true, true},
    [WEIR_ADAM] = {"Adam", ".beta1", 0.001, 0.999, 1e-8, true, true},
    [WEIR_ADAGRAD] = {"Adagrad", ".eps", 0.01, 0.999, 1e-10, false, true},
    [WEIR_LION] = {"Lion", ".beta1", 0.0001, 0.99, 0, true, false},
    [WEIR_LAMB] = {"LAMB", ".beta1", 0.001, 0.999, 1e-6, true, true},
};
enum { KINDS = sizeof kinds / sizeof *kinds };

/* ---- checks ---- */

/* One option of the optimizer, and from where to where it may be. */
typedef struct option {
    const char *name;
    double value, below; /* from 0 up to, but not including this */
} option;

static bool numbers_ok(weir_graph *g, const weir_optimizer *o, weir_src src)
{
    const option list[] = {{"lr", o->lr, OPTIM_END},         {"lr_min", o->lr_min, OPTIM_END},
                           {"momentum", o->momentum, 1},     {"beta1", o->beta1, 1},
                           {"beta2", o->beta2, 1},           {"eps", o->eps, OPTIM_END},
                           {"clip_norm", o->clip_norm, OPTIM_END}, {"weight_decay", o->weight_decay, OPTIM_END}};
    for (size_t i = 0; i < sizeof list / sizeof *list; i++)
        if (!(list[i].value >= 0 && list[i].value < list[i].below)) {
            graph_mistake(g, src, "train: .%s of the optimizer is %g; it is 0 or more, and %s", list[i].name,
                          list[i].value, list[i].below == 1 ? "less than 1" : "at most 3.4e38");
            return false;
        }
    return true;
}

/* Whether options are of the kind. */
static bool kind_ok(weir_graph *g, const weir_optimizer *o, weir_src src)
{
    const bool known = (int)o->kind >= 0 && (int)o->kind < KINDS;
    const kind *k = &kinds[known ? o->kind : 0];
    if (!known)
        graph_mistake(g, src, "train: there is no optimizer with the number %d; there are WEIR_SGD, WEIR_ADAMW, WEIR_ADAM, "
                      "WEIR_ADAGRAD, WEIR_LION and WEIR_LAMB", (int)o->kind);
    else if (o->kind != WEIR_SGD && o->momentum > 0)
        graph_mistake(g, src, "train: .momentum is SGD's; %s has %s", k->name, k->other);
    else if (o->kind == WEIR_SGD && (o->beta1 != 0 || o->beta2 != 0 || o->eps != 0))
        graph_mistake(g, src, "train: .beta1, .beta2 and .eps are AdamW's; SGD has .momentum");
    else if (!k->betas && (o->beta1 != 0 || o->beta2 != 0))
        graph_mistake(g, src, "train: %s has no .beta1 and no .beta2; it has %s", k->name, k->other);
    else if (!k->has_eps && o->eps != 0)
        graph_mistake(g, src, "train: %s has no .eps; it has .beta1 and .beta2", k->name);
    else if (o->nesterov && !(o->kind == WEIR_SGD && o->momentum > 0))
        graph_mistake(g, src, "train: .nesterov needs weir_sgd() with a .momentum, as .momentum = 0.9");
    return !weir_graph_mistake(g);
}

static bool falls_along_a_line(const weir_optimizer *o)
{
    return o->schedule == WEIR_SCHEDULE_LINEAR || o->schedule == WEIR_SCHEDULE_STABLE;
}

static bool schedule_ok(weir_graph *g, const weir_optimizer *o, weir_src src)
{
    if (o->warmup < 0 || o->total < 0 || (o->total && o->total <= o->warmup))
        graph_mistake(g, src, "train: .warmup is %lld and .total is %lld; neither may be negative, and .warmup must be less "
                      "than a .total that is given", (long long)o->warmup,
                      (long long)o->total);
    else if ((int)o->schedule < 0 || o->schedule > WEIR_SCHEDULE_STABLE)
        graph_mistake(g, src, "train: there is no .schedule with the number %d; there are WEIR_SCHEDULE_CONSTANT, "
                      "WEIR_SCHEDULE_COSINE, WEIR_SCHEDULE_LINEAR and WEIR_SCHEDULE_STABLE", (int)o->schedule);
    else if (o->schedule == WEIR_SCHEDULE_CONSTANT && o->total)
        graph_mistake(g, src, "train: .total is %lld, but with WEIR_SCHEDULE_CONSTANT the rate never falls; leave .total out, or "
                      "choose another .schedule", (long long)o->total);
    else if (o->schedule > WEIR_SCHEDULE_CONSTANT && !o->total)
        graph_mistake(g, src, "train: the .schedule needs a .total, the step from which the rate is .lr_min");
    else if (falls_along_a_line(o) && o->lr_min > o->lr && !(o->lr == 0 && !signbit(o->lr)))
        graph_mistake(g, src, "train: .lr_min is %g and .lr is %g; with this .schedule .lr_min is at most .lr", o->lr_min, o->lr);
    else if (o->decay && o->schedule != WEIR_SCHEDULE_STABLE)
        graph_mistake(g, src, "train: .decay is of WEIR_SCHEDULE_STABLE; the other schedules fall from .warmup to .total");
    else if (o->decay && (o->decay < 0 || o->decay > o->total - o->warmup))
        graph_mistake(g, src, "train: .decay is %lld; it is 1 or more, and at most the %lld steps from .warmup to .total",
                      (long long)o->decay, (long long)(o->total - o->warmup));
    return !weir_graph_mistake(g);
}

static bool rate_ok(weir_graph *g, const weir_tensor *rate, weir_src src)
{
    char text[160];
    if (!rate || rate->poisoned)
        return !rate;
    if (rate->graph != g)
        graph_mistake(g, src, "train: .rate \"%s\" is of another graph than the loss", rate->name);
    else if (rate->type.shape.rank || rate->type.dtype != WEIR_F32)
        graph_mistake(g, src, "train: .rate must be one f32 number; \"%s\" is %s %s", rate->name,
                      weir_dtype_name(rate->type.dtype), shape_text(&rate->type.shape, text, sizeof text));
    else if (rate->micro)
        graph_mistake(g, src, "train: .rate \"%s\" exists once for every micro-batch, but a step has one rate", rate->name);
    return !weir_graph_mistake(g);
}

bool optimizer_ok(weir_graph *g, const weir_optimizer *o, weir_src src)
{
    return numbers_ok(g, o, src) && kind_ok(g, o, src) && schedule_ok(g, o, src) && rate_ok(g, o->rate, src);
}

/* ---- what it means ---- */

void optimizer_defaults(weir_optimizer *o)
{
    const kind *k = &kinds[o->kind];
    o->lr = weir_option(o->lr, k->lr);
    o->beta1 = weir_option(o->beta1, 0.9);
    o->beta2 = weir_option(o->beta2, k->beta2);
    o->eps = weir_option(o->eps, k->eps);
    if (o->schedule == WEIR_SCHEDULE_STABLE && !o->decay) {
        const int64_t tenth = o->total < 10 ? 1 : o->total / 10, most = o->total - o->warmup;
        o->decay = tenth < most ? tenth : most;
    }
}

const weir_op *optimizer_op(const weir_optimizer *o)
{
    static const weir_op *const ops[] = {
        [WEIR_SGD] = &op_sgd,         [WEIR_ADAMW] = &op_adamw, [WEIR_ADAM] = &op_adam,
        [WEIR_ADAGRAD] = &op_adagrad, [WEIR_LION] = &op_lion,   [WEIR_LAMB] = &op_lamb_apply,
    };
    return o->nesterov ? &op_nesterov : ops[o->kind];
}

struct optim_attrs optimizer_attrs(const weir_optimizer *o)
{
    const bool elsewhere = falls_along_a_line(o);
    return (struct optim_attrs){
        .lr = o->lr,
        .lr_min = elsewhere ? 0 : o->lr_min,
        .momentum = o->momentum,
        .beta1 = o->beta1,
        .beta2 = o->beta2,
        .eps = o->eps,
        .weight_decay = o->weight_decay,
        .warmup = elsewhere ? 0 : o->warmup,
        .total = elsewhere ? 0 : o->total,
    };
}

/* In `attrs` all is 0 if the updates know the schedule by themselves. */
static struct schedule_attrs schedule_of(const weir_optimizer *o)
{
    const int64_t hold = o->schedule == WEIR_SCHEDULE_STABLE ? o->total - o->decay : o->warmup;
    const double least = o->lr > 0 ? o->lr_min / o->lr : 0;
    return falls_along_a_line(o) ? (struct schedule_attrs){least, o->warmup, hold, o->total} : (struct schedule_attrs){.total = 0};
}

weir_tensor *optimizer_rate(weir_graph *g, const weir_optimizer *o, weir_mesh *where, weir_src src)
{
    const struct schedule_attrs attrs = schedule_of(o);
    weir_tensor *in[] = {o->rate};
    if (!o->rate && !falls_along_a_line(o))
        return NULL;
    weir_scope scope = graph_scope_absolute(g, where, "");
    graph_node *node = graph_apply(&(weir_apply){.src = src, .name = "learning_rate", .op = &op_schedule, .graph = g, .in = in,
                                                 .in_count = o->rate ? 1 : 0, .attrs = &attrs});
    weir_scope_leave(&scope);
    return node ? node->out[0] : &g->poison;
}
