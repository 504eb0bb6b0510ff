/* graph/verify/gradients.c: the gradients of a graph against the graph. See docs/design/proof.md.
 *
 *     values      the whole step, forward and backward, with nothing moving
 *     slopes      the forward pass once more: each parameter moves along a random direction, and the loss with it
 *
 *         slope of the loss  =  sum over parameters of <gradient that its update reads, direction>
 *
 * An op that has no rule cannot be followed. Its outputs move along directions of their own, as parameters do, and what it gives
 * back to its inputs is taken as it is:
 *
 *         slope of the loss + sum of <what such ops give back, slope of their inputs>
 *                           =  sum over parameters and outputs of such ops of <gradient, direction>
 *
 * So all other gradients are proven: they are right if those of such ops are.
 *
 * If the two sides differ, halves of the directions are tried until one tensor is left. Then each node is held alone against the
 * gradients of its outputs, from the loss on. The first that fails is to blame.
 */
#include "graph/verify/dual.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "graph/base/error.h"
#include "graph/base/locale.h"
#include "graph/base/opts.h"
#include "graph/verify/author.h"
#include "graph/verify/proof.h"
#include "kernels/core/core.h" /* seed_attrs */

enum { ROUNDS = 2, MICROS = 2, TEXT_BYTES = 1024 };

typedef struct trial {
    const weir_graph *graph;
    const weir_gradients_verify_opts *opts;
    int program, micros;
    bool *open;                 /* owned; by node: it cannot be followed */
    const weir_tensor **moved;  /* owned; the tensors that have a direction */
    int moved_count;
    author *author;
    uint64_t seed;              /* of the round */
    char text[TEXT_BYTES];      /* what is wrong */
} trial;

/* ---- what can be followed ---- */

/* A node of the forward pass of what trains, through which gradients may flow. */
static bool carries(const trial *p, const graph_node *node)
{
    bool trains = false;
    for (int o = 0; o < node->out_count; o++)
        trains |= node->out[o]->trains;
    return trains && node->phase == PLAN_FORWARD && node->program == p->program;
}

/* An op with states is another function in each step. */
static bool can_follow(const weir_op *op)
{
    return rule_exists(op->name) && !op->states;
}

static void find_open(trial *p)
{
    for (int n = 0; n < p->graph->nodes.count; n++) {
        const graph_node *node = p->graph->nodes.item[n];
        if (carries(p, node) && !can_follow(node->op))
            p->open[n] = true;
        if (node->forward && !can_follow(node->op))
            p->open[node->forward->id] = true;
    }
}

static void tell_open(const trial *p)
{
    for (int n = 0; p->opts->not_covered && n < p->graph->nodes.count; n++) {
        const graph_node *node = p->graph->nodes.item[n];
        if (p->open[n] && node->gradients)
            p->opts->not_covered(p->opts->ctx, node->name, node->op->name, node->src);
    }
}

/* Parameters that train, and outputs of ops that cannot be followed. */
static void find_moved(trial *p)
{
    for (int t = 0; t < p->graph->tensors.count; t++) {
        const weir_tensor *tensor = p->graph->tensors.item[t];
        const graph_node *node = tensor->node;
        if (tensor->trains && !tensor->delay && (!node || (carries(p, node) && p->open[node->id])))
            p->moved[p->moved_count++] = tensor;
    }
}

/* ---- numbers ---- */

/* How often there is a product of the two in a step. */
static int times(const trial *p, const weir_tensor *a, const weir_tensor *b)
{
    return a->micro || b->micro ? p->micros : 1;
}

/* <values of a, slopes of b>, over all micro-batches. */
static dual_value product(const trial *p, const weir_tensor *a, const weir_tensor *b)
{
    dual_value sum = dual_int(0);
    for (int micro = 0; micro < times(p, a, b); micro++) {
        const rule_array x = author_tensor(p->author, a, micro), y = author_tensor(p->author, b, micro);
        for (int64_t i = 0; i < x.count; i++)
            sum = dual_add(sum, dual_mul(dual_const(x.at[i].value), dual_const(y.at[i].slope)));
    }
    return sum;
}

/* Sets the slopes of a tensor: a random direction, or 0. */
static void set_slopes(const trial *p, const weir_tensor *tensor, bool moves)
{
    const dual_value none = dual_int(0);
    for (int micro = 0; micro < times(p, tensor, tensor); micro++) {
        const rule_array array = author_tensor(p->author, tensor, micro);
        for (int64_t i = 0; i < array.count; i++) {
            const int64_t numbers[] = {tensor->id, micro, i};
            array.at[i].slope = moves ? dual_draw(p->seed, "direction", numbers, 3).value : none.value;
        }
    }
}

/* ---- the two sides ---- */

/* The gradient that the parameter's update reads; LAMB's reads a direction, which reads it. */
static const weir_tensor *gradient_read(const graph_node *update)
{
    const weir_tensor *in = update ? update->in[0] : NULL;
    return in && in->node && !strcmp(in->node->op->name, "lamb") ? in->node->in[0] : in;
}

/* The tensor that says how the loss changes with this one; NULL: there is none, and the loss should not change. */
static const weir_tensor *gradient_of(const weir_tensor *tensor)
{
    if (tensor->node)
        return tensor->gradient;
    return gradient_read(tensor->update);
}

/* The loss of a step is the mean over its micro-batches, to which each has this share; or their sum, which the update divides
 * by a count. */
static dual_value loss_share(const trial *p)
{
    bool whole = !p->graph->loss->micro;
    for (int n = 0; n < p->graph->nodes.count; n++) {
        const graph_node *node = p->graph->nodes.item[n];
        if (!strcmp(node->op->name, "grad_seed"))
            whole |= ((const seed_attrs *)node->attrs)->whole;
    }
    return dual_inverse(dual_int(whole ? 1 : p->micros));
}

static dual_value loss_slope(const trial *p)
{
    const weir_tensor *loss = p->graph->loss;
    dual_value sum = dual_int(0);
    for (int micro = 0; micro < times(p, loss, loss); micro++)
        sum = dual_add(sum, dual_const(author_tensor(p->author, loss, micro).at[0].slope));
    return dual_mul(loss_share(p), sum);
}

/* The forward pass, in which the tensors [first, end) of those with a direction move. */
static weir_status move_on(trial *p, int first, int end)
{
    weir_status status = WEIR_OK;
    for (int i = 0; i < p->moved_count; i++)
        set_slopes(p, p->moved[i], i >= first && i < end);
    for (int n = 0; !status && n < p->graph->nodes.count; n++) {
        const graph_node *node = p->graph->nodes.item[n];
        if (!carries(p, node) || p->open[n])
            continue;
        status = author_node(p->author, node);
        for (int o = 0; o < node->out_count; o++)
            if (!node->out[o]->trains) /* gradients end there */
                set_slopes(p, node->out[o], false);
    }
    return status;
}

/* Whether the gradients of the tensors [first, end) are right. */
static weir_status try_moved(trial *p, int first, int end, bool *right)
{
    weir_status status = move_on(p, first, end);
    dual_value left = loss_slope(p), gradients = dual_int(0);
    for (int n = 0; !status && n < p->graph->nodes.count; n++) {
        const graph_node *node = p->graph->nodes.item[n];
        for (int i = 0; i < node->in_count && p->open[n] && node->gradients; i++)
            if (node->gradients[i])
                left = dual_add(left, product(p, node->gradients[i], node->in[i]));
    }
    for (int i = first; !status && i < end; i++)
        if (gradient_of(p->moved[i]))
            gradients = dual_add(gradients, product(p, gradient_of(p->moved[i]), p->moved[i]));
    *right = dual_equal(left, gradients);
    return status;
}

/* ---- blame ---- */

/* Adds what all readers of the tensor give back to it, for a micro-batch. */
static void add_given(const trial *p, const weir_tensor *tensor, int micro, dual_value *sum)
{
    for (int n = 0; n < p->graph->nodes.count; n++) {
        const graph_node *node = p->graph->nodes.item[n];
        for (int i = 0; i < node->in_count && node->gradients; i++) {
            if (node->in[i] != tensor || !node->gradients[i])
                continue;
            const rule_array given = author_tensor(p->author, node->gradients[i], micro);
            for (int64_t e = 0; e < given.count; e++)
                sum[e] = dual_add(sum[e], given.at[e]);
        }
    }
}

/* Whether a tensor's gradient is the sum of what its readers give back. The loss has its own. True without memory to tell. */
static bool adds_up(const trial *p, const weir_tensor *tensor)
{
    const weir_tensor *gradient = tensor->gradient;
    bool same = true;
    for (int micro = 0; same && gradient && tensor != p->graph->loss && micro < times(p, gradient, gradient); micro++) {
        const rule_array sum = author_tensor(p->author, gradient, micro);
        dual_value *given = calloc((size_t)sum.count + 1, sizeof *given);
        if (!given)
            return true;
        add_given(p, tensor, micro, given);
        for (int64_t e = 0; e < sum.count; e++)
            same &= dual_equal(given[e], sum.at[e]);
        free(given);
    }
    return same;
}

/* Whether the update of a parameter reads the sum of its gradient over the micro-batches. */
static bool accumulates(const trial *p, const weir_tensor *parameter)
{
    const weir_tensor *each = parameter->gradient, *all = gradient_read(parameter->update);
    if (!each || !all)
        return false;
    bool same = true;
    const rule_array sum = author_tensor(p->author, all, 0);
    for (int64_t e = 0; e < sum.count; e++) {
        dual_value of_all = dual_int(0);
        for (int micro = 0; micro < times(p, each, each); micro++)
            of_all = dual_add(of_all, author_tensor(p->author, each, micro).at[e]);
        same &= dual_equal(of_all, sum.at[e]);
    }
    return same;
}

/* Whether a node gives back the right gradient to one of its inputs: only that moves. */
static weir_status try_input(const trial *p, const graph_node *node, int input, bool *right)
{
    dual_value out = dual_int(0), in = dual_int(0);
    for (int i = 0; i < node->in_count; i++)
        set_slopes(p, node->in[i], node->in[i] == node->in[input]);
    weir_status status = author_node(p->author, node);
    for (int o = 0; o < node->out_count; o++)
        if (node->out[o]->gradient)
            out = dual_add(out, product(p, node->out[o]->gradient, node->out[o]));
    for (int i = 0; i < node->in_count; i++)
        if (node->in[i] == node->in[input] && node->gradients[i])
            in = dual_add(in, product(p, node->gradients[i], node->in[i]));
    *right = dual_equal(out, in);
    return status;
}

/* The line of the node, and what is wrong with it. */
__attribute__((format(printf, 3, 4))) static void say(trial *p, const graph_node *node, const char *format, ...)
{
    va_list args;
    const int used = snprintf(p->text, sizeof p->text, "%.200s:%d: ", node->src.file ? node->src.file : "?", node->src.line);
    va_start(args, format);
    text_vprint(p->text + used, sizeof p->text - (size_t)used, format, args);
    va_end(args);
}

static weir_status blame_node(trial *p, const graph_node *node, bool *found)
{
    weir_status status = WEIR_OK;
    for (int o = 0; o < node->out_count && !*found; o++) {
        *found = !adds_up(p, node->out[o]);
        if (*found)
            say(p, node, "the gradients that the readers of \"%s\" give back are not added up", node->out[o]->name);
    }
    for (int i = 0; i < node->in_count && !status && !*found && !p->open[node->id]; i++) {
        bool right = true;
        if (node->gradients && node->gradients[i])
            status = try_input(p, node, i, &right);
        *found = !status && !right;
        if (*found)
            say(p, node, "%s (%s) gives back a wrong gradient to its input %d, \"%s\"; mend .grad of the op %s, or an op that it "
                "builds (weir_op_check() tries them)", node->name, node->op->name, i, node->in[i]->name, node->op->name);
    }
    return status;
}

/* Whether the backward pass begins as it should. */
static bool seeds(const trial *p)
{
    const weir_tensor *loss = p->graph->loss;
    bool same = loss->gradient != NULL;
    for (int micro = 0; same && micro < times(p, loss, loss); micro++)
        same = dual_equal(author_tensor(p->author, loss->gradient, micro).at[0], loss_share(p));
    return same;
}

/* The reason for a wrong gradient of a tensor, if no op alone is wrong. */
static const char *wrong_between(const trial *p, const weir_tensor *tensor)
{
    if (!gradient_of(tensor))
        return "the loss depends on it, and it has no gradient";
    if (!seeds(p))
        return "the backward pass begins with another number than 1, or 1 / the number of micro-batches of a mean";
    if (!adds_up(p, tensor))
        return "the gradients that its readers give back are not added up";
    if (!tensor->node && !accumulates(p, tensor))
        return "its update does not read the sum over the micro-batches";
    return "no op alone is wrong; the graph between them is";
}

/* Some of the tensors [first, end) have a wrong gradient: finds one of them, and why. */
static weir_status find_blame(trial *p, int first, int end)
{
    weir_status status = WEIR_OK;
    bool found = false;
    while (!status && end - first > 1) {
        const int half = first + (end - first) / 2;
        bool right;
        status = try_moved(p, first, half, &right);
        first = right ? half : first;
        end = right ? end : half;
    }
    for (int n = p->graph->loss->node->id; n >= 0 && !status && !found; n--)
        if (carries(p, p->graph->nodes.item[n]))
            status = blame_node(p, p->graph->nodes.item[n], &found);
    if (status)
        return status;
    const weir_tensor *wrong = p->moved[first];
    return error_set(WEIR_E_WRONG, "%s:%d: the gradient of \"%s\" is not that of the loss: %s",
                     wrong->src.file ? wrong->src.file : "?", wrong->src.line, wrong->name,
                     found ? p->text : wrong_between(p, wrong));
}

/* ---- a round ---- */

static weir_status prove_round(trial *p)
{
    bool right = false;
    weir_status status = author_open(&p->author, p->graph, p->micros, p->opts->seed, p->seed);
    for (int n = 0; !status && n < p->graph->nodes.count; n++) {
        const graph_node *node = p->graph->nodes.item[n];
        if (node->program == p->program && node->phase != PLAN_UPDATE)
            status = author_node(p->author, node);
    }
    if (!status)
        status = try_moved(p, 0, p->moved_count, &right);
    if (!status && !right)
        status = find_blame(p, 0, p->moved_count);
    author_close(p->author);
    p->author = NULL;
    return status;
}

static bool trial_open(trial *p)
{
    const size_t nodes = (size_t)p->graph->nodes.count, tensors = (size_t)p->graph->tensors.count;
    p->open = calloc(nodes + 1, sizeof *p->open);
    p->moved = calloc(tensors + 1, sizeof(const weir_tensor *));
    return p->open && p->moved;
}

static weir_status prove(const weir_graph *graph, const weir_gradients_verify_opts *opts)
{
    const int rounds = opts->rounds > 0 ? opts->rounds : ROUNDS;
    trial p = {.graph = graph, .opts = opts, .program = graph->loss->node->program,
               .micros = opts->micro_batches > 0 ? opts->micro_batches : MICROS};
    const uint64_t need = author_bytes(graph, p.micros);
    weir_status status = proof_fits("weir_gradients_verify", opts->src, graph->name, opts->memory, need, "");
    if (!status && !trial_open(&p))
        status = error_set(WEIR_E_MEMORY, "no memory to prove the gradients of \"%s\"", graph->name);
    if (!status) {
        find_open(&p);
        find_moved(&p);
        tell_open(&p);
    }
    for (int64_t round = 0; !status && round < rounds; round++) {
        p.seed = field_bits(opts->seed, "round of gradients", &round, 1);
        status = prove_round(&p);
    }
    free(p.open);
    free(p.moved);
    return status;
}

weir_status weir_gradients_verify_at(const weir_graph *graph, const weir_gradients_verify_opts *given)
{
    weir_gradients_verify_opts opts;
    weir_status status = opts_read(&opts, sizeof opts, given, "weir_gradients_verify");
    if (status)
        return status;
    if (error_null(graph, "weir_gradients_verify", "graph"))
        return WEIR_E_ARGUMENT;
    if (weir_graph_mistake(graph))
        return error_set(WEIR_E_GRAPH, "%s", weir_graph_mistake(graph));
    opts.src = opts_src(&opts);
    if (!graph->loss)
        return error_set(WEIR_E_ARGUMENT, "%s:%d: weir_gradients_verify: the graph \"%s\" has no gradients; call weir_train() "
                         "before", opts.src.file, opts.src.line, graph->name);
    return prove(graph, &opts);
}
