/* shard_check.c: see the header. The signatures come from the compiler's own collector (ir_new), which is asked about a
 * graph of this one op. Shards are cut as slice_of() in graph/compile/ir.c cuts them: the first ones are one longer.
 */
#include "tests/support/shard_check.h"

#include "graph/compile/ir.h"

#include <criterion/criterion.h>
#include <string.h>

/* Everything about one device of one signature. */
typedef struct shard {
    weir_view in[KERNEL_CHECK_MAX], out[KERNEL_CHECK_MAX], state[KERNEL_CHECK_MAX];
} shard;

enum { DEVICES_MAX = 4 };

/* ---- cutting ---- */

/* The view of a shard of `whole`, without memory. */
static weir_view part_of(const weir_view *whole, weir_sbp sbp, int device, int devices)
{
    weir_view part = *whole;
    part.data = NULL;
    if (WEIR_IS_S(sbp)) {
        int d = WEIR_S_DIM(sbp);
        cr_assert(d >= 0 && d < whole->shape.rank, "S(%d) of %d dimensions", d, whole->shape.rank);
        int64_t size = whole->shape.dim[d], each = size / devices, longer = size % devices;
        part.shape.dim[d] = each + (device < longer);
        part.offset[d] = device * each + (device < longer ? device : longer);
    }
    return part;
}

static void allocate(weir_view *part, int fill)
{
    weir_view made = kernel_view_new((weir_type){part->dtype, part->shape}, fill);
    part->data = made.data;
}

/* Index in the whole of element i of the part. */
static int64_t index_in_whole(const weir_view *part, int64_t i)
{
    int64_t at = 0, step = 1;
    for (int d = part->shape.rank - 1; d >= 0; d--) {
        at += (i % part->shape.dim[d] + part->offset[d]) * step;
        i /= part->shape.dim[d];
        step *= part->global.dim[d];
    }
    return at;
}

static void copy_in(const weir_view *whole, const weir_view *part)
{
    size_t bytes = weir_dtype_bytes(part->dtype);
    for (int64_t i = 0; i < weir_shape_count(&part->shape); i++)
        memcpy((char *)part->data + (size_t)i * bytes,
               (const char *)whole->data + (size_t)index_in_whole(part, i) * bytes, bytes);
}

/* Of halves, which would not hold what is left: 2x, -2x, 2x, ... and x or -x. */
static void split_halves(const weir_view *whole, shard *at, int input, int devices)
{
    for (int64_t i = 0; i < weir_shape_count(&whole->shape); i++)
        for (int k = 0; k < devices; k++) {
            const double x = kernel_at(whole, i), sign = k % 2 ? -1 : 1;
            kernel_set(&at[k].in[input], i, k + 1 < devices ? 2 * sign * x : sign * x);
        }
}

/* Random terms of which the sum is the whole. */
static void split_terms(const weir_view *whole, shard *at, int input, int devices, uint64_t *random)
{
    cr_assert(weir_dtype_real(whole->dtype), "P of %s", weir_dtype_name(whole->dtype));
    if (whole->dtype != WEIR_F32) {
        split_halves(whole, at, input, devices);
        return;
    }
    for (int64_t i = 0; i < weir_shape_count(&whole->shape); i++) {
        double rest = kernel_at(whole, i);
        for (int k = 1; k < devices; k++) {
            kernel_set(&at[k].in[input], i, kernel_random_normal(random));
            rest -= kernel_at(&at[k].in[input], i);
        }
        kernel_set(&at[0].in[input], i, rest);
    }
}

static void deal_inputs(const kernel_check *c, const weir_signature *s, shard *at, int devices)
{
    uint64_t random = c->random;
    for (int i = 0; i < c->in_count; i++) {
        for (int k = 0; k < devices; k++) {
            at[k].in[i] = part_of(&c->in[i], s->in[i], k, devices);
            allocate(&at[k].in[i], 0);
            if (s->in[i] != WEIR_P)
                copy_in(&c->in[i], &at[k].in[i]);
        }
        if (s->in[i] == WEIR_P)
            split_terms(&c->in[i], at, i, devices, &random);
    }
}

/* ---- one device ---- */

static void make_states(const kernel_check *c, shard *at)
{
    weir_type in[KERNEL_CHECK_MAX], out[KERNEL_CHECK_MAX], state[4];
    for (int i = 0; i < c->in_count; i++)
        in[i] = (weir_type){at->in[i].dtype, at->in[i].shape};
    for (int i = 0; i < c->out_count; i++)
        out[i] = (weir_type){at->out[i].dtype, at->out[i].shape};
    weir_op_args rule = {c->op, in, c->in_count, out, c->out_count, c->attrs};
    int count = c->op->states ? c->op->states(&rule, state) : 0;
    for (int i = 0; i < count; i++)
        at->state[i] = kernel_view_new(state[i], 0);
}

static void run_device(const kernel_check *c, const weir_signature *s, shard *at, int device, int devices)
{
    for (int o = 0; o < c->out_count; o++) {
        at->out[o] = part_of(&c->out[o], s->out[o], device, devices);
        allocate(&at->out[o], KERNEL_GARBAGE);
    }
    make_states(c, at);
    kernel_check_call(c, at->in, at->out, at->state, false);
}

static void free_device(const kernel_check *c, shard *at)
{
    for (int i = 0; i < c->in_count; i++)
        kernel_view_free(&at->in[i]);
    for (int o = 0; o < c->out_count; o++)
        kernel_view_free(&at->out[o]);
    for (int i = 0; i < c->state_count; i++)
        kernel_view_free(&at->state[i]);
}

/* ---- putting together ---- */

static const char *text_of(const kernel_check *c, const weir_signature *s, int devices, char *text, size_t bytes)
{
    char one[8];
    size_t at = (size_t)snprintf(text, bytes, "%s on %d devices,", c->op->name, devices);
    for (int i = 0; i < c->in_count; i++)
        at += (size_t)snprintf(text + at, bytes - at, " %s", weir_sbp_text(s->in[i], one));
    at += (size_t)snprintf(text + at, bytes - at, " ->");
    for (int o = 0; o < c->out_count; o++)
        at += (size_t)snprintf(text + at, bytes - at, " %s", weir_sbp_text(s->out[o], one));
    return text;
}

static void compare(const kernel_check *c, const weir_signature *s, int out, double got, int64_t at, int devices,
                    double tolerance)
{
    char text[256];
    double want = kernel_at(&c->out[out], at);
    if (tolerance > 0) /* the whole and each term may be rounded to another side */
        tolerance += 4 * devices * c->in_count * kernel_digit(c->out[out].dtype);
    cr_assert(kernel_near(got, want, tolerance), "%s: output %d is %.9g at %ld, not %.9g",
              text_of(c, s, devices, text, sizeof text), out, got, (long)at, want);
}

static void check_terms(const kernel_check *c, const weir_signature *s, const shard *at, int out, int devices,
                        double tolerance)
{
    for (int64_t i = 0; i < weir_shape_count(&c->out[out].shape); i++) {
        double sum = 0;
        for (int k = 0; k < devices; k++)
            sum += kernel_at(&at[k].out[out], i);
        compare(c, s, out, sum, i, devices, tolerance);
    }
}

static void check_parts(const kernel_check *c, const weir_signature *s, const shard *at, int out, int devices,
                        double tolerance)
{
    for (int k = 0; k < devices; k++) {
        const weir_view *part = &at[k].out[out];
        for (int64_t i = 0; i < weir_shape_count(&part->shape); i++)
            compare(c, s, out, kernel_at(part, i), index_in_whole(part, i), devices, tolerance);
    }
}

static void check_signature(const kernel_check *c, const weir_signature *s, int devices, double tolerance)
{
    shard at[DEVICES_MAX] = {0};
    deal_inputs(c, s, at, devices);
    for (int k = 0; k < devices; k++)
        run_device(c, s, &at[k], k, devices);
    for (int o = 0; o < c->out_count; o++) {
        if (s->out[o] == WEIR_P)
            check_terms(c, s, at, o, devices, tolerance);
        else
            check_parts(c, s, at, o, devices, tolerance);
    }
    for (int k = 0; k < devices; k++)
        free_device(c, &at[k]);
}

/* ---- the signatures ---- */

static weir_graph *graph_of(const kernel_check *c)
{
    weir_graph *graph = weir_graph_new("shard_check");
    weir_tensor *in[KERNEL_CHECK_MAX];
    cr_assert_not_null(graph);
    for (int i = 0; i < c->in_count; i++) {
        weir_input_opts opts = {.size = sizeof opts, .src = WEIR_HERE};
        for (int d = 0; d < c->in[i].shape.rank; d++)
            opts.shape[d] = c->in[i].shape.dim[d];
        in[i] = weir_input_at(graph, c->in[i].dtype, &opts);
    }
    weir_op_apply(&(weir_apply){.src = WEIR_HERE, .op = c->op, .graph = graph, .in = in, .in_count = c->in_count,
                                .attrs = c->attrs}, NULL);
    cr_assert_null(weir_graph_mistake(graph), "%s", weir_graph_mistake(graph));
    return graph;
}

int shard_check(const kernel_check *c, int devices, double tolerance)
{
    cr_assert_leq(devices, DEVICES_MAX);
    weir_graph *graph = graph_of(c);
    compile ir = {.graph = graph, .micro = 1};
    cr_assert(ir_new(&ir) && pass_rules(&ir), "%s", weir_error());
    const ir_node *node = &ir.ir.node[ir.ir.node_count - 1];
    cr_assert_eq(node->op, c->op);
    int played = 0;
    for (int n = 1; n < node->signature_count; n++) {
        const weir_signature *s = &node->signature[n];
        if (s->granules && s->granules % devices)
            continue;
        check_signature(c, s, devices, tolerance);
        played++;
    }
    pool_free(&ir.pool);
    weir_graph_free(graph);
    return played;
}
