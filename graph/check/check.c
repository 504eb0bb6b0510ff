/* graph/check/check.c: weir_op_check(). See check.h.
 *
 * For each output that may have a gradient there is a graph: parameters that hold the inputs, the op, and the backward
 * graph from random weights of that output on. Its nodes are played in order on whole tensors, and each is a trial. So the
 * ops that a gradient is made of are tried with the values that they get there. The signatures come from the compiler's own
 * collector.
 */
#include "graph/check/check.h"

#include "graph/base/base.h"
#include "graph/base/error.h"
#include "graph/base/locale.h"
#include "graph/base/opts.h"
#include "graph/compile/ir/ir.h"
#include "kernels/common/ops.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { DEVICES = 4, DEVICES_MAX = 16 };

typedef struct study {
    const weir_op *op;
    const weir_op_check_opts *opts;
    weir_status *status;      /* what the call returns */
    int in_count;
    int output;               /* of which the gradient is built; -1: none */
    weir_graph *graph;        /* owned */
    compile ir;               /* owned: its pool. Signatures, by node */
    pool pool;                /* of values */
    weir_view *value;         /* by tensor id */
    weir_tensor *in[WEIR_CHECK_IN_MAX], *gradient[WEIR_CHECK_IN_MAX];
    weir_tensor *weights;
    const graph_node *node;   /* of the op */
    trial trial;              /* of it, when it has been played */
} study;

__attribute__((format(printf, 2, 3))) static bool refuse(const study *s, const char *format, ...)
{
    char text[400];
    va_list args;
    va_start(args, format);
    text_vprint(text, sizeof text, format, args);
    va_end(args);
    *s->status = error_set(WEIR_E_ARGUMENT, "%s:%d: op_check: %s: %s", s->opts->src.file, s->opts->src.line, s->op->name,
                           text);
    return false;
}

static bool study_memory(const study *s)
{
    *s->status = error_set(WEIR_E_MEMORY, "%s:%d: op_check: no memory to try %s", s->opts->src.file, s->opts->src.line,
                           s->op->name);
    return false;
}

/* ---- the graph ---- */

static weir_tensor *param_new(const study *s, weir_dtype dtype, const weir_shape *shape, const char *name)
{
    weir_param_opts opts = {.size = sizeof opts, .src = s->opts->src, .name = name};
    for (int d = 0; d < shape->rank; d++)
        opts.shape[d] = shape->dim[d];
    return weir_param_at(s->graph, dtype, &opts);
}

static bool graph_is_right(const study *s)
{
    const char *mistake = s->graph ? weir_graph_mistake(s->graph) : NULL;
    if (!s->graph)
        return study_memory(s);
    if (mistake)
        *s->status = error_set(WEIR_E_ARGUMENT, "%s", mistake);
    return !mistake;
}

static void take(void *ctx, weir_tensor *parameter, weir_tensor *gradient)
{
    study *s = ctx;
    for (int i = 0; i < s->in_count; i++)
        if (s->in[i] == parameter)
            s->gradient[i] = gradient;
}

/* The backward graph of the output, if it is to have one. */
static bool backward_build(study *s)
{
    if (s->output < 0)
        return true;
    weir_tensor *y = s->node->out[s->output];
    s->weights = param_new(s, WEIR_F32, &y->type.shape, "weights");
    s->weights->frozen = true;
    s->weights->trains = false;
    if (!graph_is_right(s))
        return false;
    autograd(y, s->weights, take, s);
    const char *mistake = weir_graph_mistake(s->graph);
    if (mistake)
        *s->status = error_set(WEIR_E_KERNEL, "%s", mistake);
    return !mistake;
}

static bool graph_build(study *s)
{
    s->graph = weir_graph_new("op_check");
    for (int i = 0; i < s->in_count && s->graph; i++) {
        char name[16];
        snprintf(name, sizeof name, "in%d", i);
        s->in[i] = param_new(s, s->opts->inputs[i]->dtype, &s->opts->inputs[i]->shape, name);
    }
    if (!graph_is_right(s))
        return false;
    weir_op_apply(&(weir_apply){.src = s->opts->src, .op = s->op, .graph = s->graph, .in = s->in, .in_count = s->in_count,
                                .attrs = s->opts->attrs}, NULL);
    if (!graph_is_right(s))
        return false;
    s->node = s->graph->nodes.item[s->graph->nodes.count - 1];
    if (s->output >= s->node->out_count || (s->output >= 0 && s->node->out[s->output]->type.dtype != WEIR_F32))
        s->output = -1; /* there is no gradient of it to be tried */
    if (!backward_build(s))
        return false;
    s->ir.graph = s->graph;
    s->ir.micro = 1;
    return (ir_new(&s->ir) && pass_rules(&s->ir)) || study_memory(s);
}

/* ---- values ---- */

static double random_value(weir_dtype dtype, uint64_t key, int64_t i)
{
    if (!weir_dtype_real(dtype))
        return floor((double)weir_random_uniform(key, (uint64_t)i) * (dtype == WEIR_U8 ? 2 : 10));
    return (double)weir_random_normal(key, (uint64_t)i);
}

static void value_fill(const study *s, const weir_view *view, const weir_array *given, uint64_t stream)
{
    const uint64_t key = name_key(s->opts->seed + stream, "op_check");
    if (given && given->data)
        memcpy(view->data, given->data, view_bytes(view));
    for (int64_t i = 0; i < weir_shape_count(&view->shape) && !(given && given->data); i++)
        view_set(view, i, random_value(view->dtype, key, i));
}

static bool values_make(study *s)
{
    s->value = POOL_NEW(&s->pool, weir_view, s->graph->tensors.count + 1);
    for (int t = 0; t < s->graph->tensors.count && s->value; t++) {
        const weir_tensor *tensor = s->graph->tensors.item[t];
        weir_view *view = &s->value[t];
        *view = (weir_view){.dtype = tensor->type.dtype, .shape = tensor->type.shape, .global = tensor->type.shape};
        if (!tensor->node)
            view->data = pool_alloc(&s->pool, view_bytes(view) + 1);
    }
    if (!s->value || s->pool.failed)
        return study_memory(s);
    for (int i = 0; i < s->in_count; i++)
        value_fill(s, &s->value[s->in[i]->id], s->opts->inputs[i], (uint64_t)i);
    if (s->weights)
        value_fill(s, &s->value[s->weights->id], NULL, WEIR_CHECK_IN_MAX + (uint64_t)s->output);
    return true;
}

/* ---- playing ---- */

size_t trial_margin(const trial *t)
{
    enum { LEAST = 64, MOST = 1 << 20 };
    size_t most = LEAST;
    for (int i = 0; i < t->in_count + t->out_count; i++) {
        const size_t bytes = view_bytes(i < t->in_count ? &t->in[i] : &t->out[i - t->in_count]);
        most = bytes > most ? bytes : most;
    }
    most = most < MOST ? most : MOST;
    return (most + LEAST - 1) / LEAST * LEAST;
}

static bool trial_new(study *s, const graph_node *node, trial *t)
{
    *t = (trial){.op = node->op, .attrs = node->attrs, .src = s->opts->src, .status = s->status, .asked = s->op->name,
                 .tolerance = weir_option(s->opts->tolerance, 1e-4), .key = name_key(s->opts->seed, "op_check"),
                 .kernel = op_kernel(node->op, WEIR_CPU), .kind = WEIR_CPU,
                 .in_count = node->in_count, .out_count = node->out_count};
    t->in = POOL_NEW(&s->pool, weir_view, node->in_count + 1);
    t->out = POOL_NEW(&s->pool, weir_view, node->out_count + 1);
    if (s->pool.failed)
        return study_memory(s);
    for (int i = 0; i < node->in_count; i++)
        t->in[i] = s->value[node->in[i]->id];
    for (int o = 0; o < node->out_count; o++)
        t->out[o] = s->value[node->out[o]->id];
    t->margin = trial_margin(t);
    return true;
}

static bool try_signatures(const study *s, const ir_node *node, const trial *t)
{
    const int most = s->opts->devices ? s->opts->devices : DEVICES;
    for (int n = 1; n < node->signature_count; n++)
        for (int devices = 2; devices <= most; devices++) {
            const weir_signature *signature = &node->signature[n];
            if (signature->granules && signature->granules % devices)
                continue;
            if (!trial_split(t, signature, n, devices))
                return false;
        }
    return true;
}

/* Plays a node: all that holds for its op, unless another study has tried that. */
static bool node_play(study *s, const graph_node *node, bool tried)
{
    trial t;
    if (node->op == &op_shard) { /* it has no kernel: on one device it is its input */
        s->value[node->out[0]->id].data = s->value[node->in[0]->id].data;
        return true;
    }
    if (!trial_new(s, node, &t))
        return false;
    if (!t.kernel)
        return trial_broken(&t, "it has no kernel for the CPU");
    if (!(tried ? trial_run(&t, &s->pool) : trial_hold(&t, &s->pool)))
        return false;
    for (int o = 0; o < node->out_count; o++)
        s->value[node->out[o]->id] = t.out[o];
    if (node == s->node)
        s->trial = t;
    return tried || try_signatures(s, &s->ir.ir.node[node->id], &t);
}

static bool try_slopes(const study *s)
{
    for (int i = 0; i < s->in_count && s->output >= 0; i++) {
        const slope tried = {i, s->output, &s->value[s->weights->id],
                             s->gradient[i] ? &s->value[s->gradient[i]->id] : NULL,
                             weir_option(s->opts->gradient_tolerance, 0.005)};
        if (s->in[i]->type.dtype == WEIR_F32 && !trial_slope(&s->trial, &tried))
            return false;
    }
    return true;
}

/* One graph; `again` when the op by itself has been tried already. Says how many outputs there are. */
static bool study_run(study *s, bool again, int *outputs)
{
    bool ok = graph_build(s) && values_make(s);
    for (int n = 0; ok && n < s->graph->nodes.count; n++)
        ok = node_play(s, s->graph->nodes.item[n], again && s->graph->nodes.item[n] == s->node);
    ok = ok && try_slopes(s);
    *outputs = s->node ? s->node->out_count : 0;
    pool_free(&s->ir.pool);
    pool_free(&s->pool);
    weir_graph_free(s->graph);
    return ok;
}

/* ---- the call ---- */

static bool number_ok(double x)
{
    return x >= 0; /* not of NaN */
}

static bool opts_ok(const study *s)
{
    const weir_op_check_opts *o = s->opts;
    if (op_fault(s->op))
        return refuse(s, "the op %s", op_fault(s->op));
    if (!number_ok(o->tolerance) || !number_ok(o->gradient_tolerance))
        return refuse(s, "a tolerance of %g; it is 0 or more", number_ok(o->tolerance) ? o->gradient_tolerance : o->tolerance);
    if (o->devices && (o->devices < 2 || o->devices > DEVICES_MAX))
        return refuse(s, ".devices is %d; from 2 to %d can be", o->devices, DEVICES_MAX);
    if (o->gradient_outputs < 0)
        return refuse(s, ".gradient_outputs is %d; it is 0 or more", o->gradient_outputs);
    if (s->op->attrs_bytes && !o->attrs)
        return refuse(s, "it has attributes, and .attrs is left out");
    return true;
}

static bool inputs_ok(study *s)
{
    while (s->in_count < WEIR_CHECK_IN_MAX && s->opts->inputs[s->in_count]) {
        const weir_array *a = s->opts->inputs[s->in_count];
        if ((int)a->dtype <= WEIR_DTYPE_NONE || a->dtype >= WEIR_DTYPES)
            return refuse(s, "input %d has no dtype", s->in_count);
        if (a->shape.rank < 0 || a->shape.rank > WEIR_DIMS_MAX)
            return refuse(s, "input %d has %d dimensions; %d are the most", s->in_count, a->shape.rank, WEIR_DIMS_MAX);
        for (int d = 0; d < a->shape.rank; d++)
            if (a->shape.dim[d] < 1)
                return refuse(s, "input %d has a dimension of %lld; sizes are 1 or more", s->in_count,
                              (long long)a->shape.dim[d]);
        s->in_count++;
    }
    return (s->in_count >= s->op->in_min && s->in_count <= s->op->in_max) ||
           refuse(s, "%d inputs; it takes %d to %d", s->in_count, s->op->in_min, s->op->in_max);
}

weir_status weir_op_check_at(const weir_op *op, const weir_op_check_opts *given)
{
    weir_op_check_opts opts;
    weir_status status = opts_read(&opts, sizeof opts, given, "op_check");
    if (status)
        return status;
    if (!op || !op->name || !*op->name)
        return error_set(WEIR_E_ARGUMENT, "%s:%d: op_check: the op is NULL or has no name", opts.src.file, opts.src.line);
    study first = {.op = op, .opts = &opts, .status = &status, .output = -1};
    if (!opts_ok(&first) || !inputs_ok(&first))
        return status;
    if (!op_kernel(op, WEIR_CPU))
        return error_set(WEIR_E_UNSUPPORTED, "%s:%d: op_check: %s has no kernel for the CPU, which is the one that is tried",
                         opts.src.file, opts.src.line, op->name);
    int outputs = 1;
    for (int o = 0; o < outputs && !status; o++) {
        study s = first;
        s.output = op->grad && o < op->out_count ? o : -1;
        study_run(&s, o > 0, &outputs);
        outputs = op->grad ? outputs : 1;
        outputs = opts.gradient_outputs && opts.gradient_outputs < outputs ? opts.gradient_outputs : outputs;
    }
    return status;
}
