/* tests/kernels/test_op_calls.c: each op's rule for shards is as careful as its kernel needs.
 *
 * Plans of one actor with one kernel are made up: an op, operands of random ranks, sizes (0 too), dtypes and places
 * in their logical tensors, random attributes. Sizes come from few numbers and shapes from each other, so that they
 * often fit; outputs are mostly what the op would make. Every plan that plan_validate() accepts is called between
 * guards. That covers cases that changed models (test_plan_run.c) do not reach: every op by itself, thousands of times.
 */
#include "graph/base/blocks.h"
#include "graph/base/base.h"
#include "graph/base/error.h"
#include "graph/plan/form/plan.h"
#include "kernels/common/ops.h"
#include "kernels/conv/window.h"
#include "tests/support/mutate_plan.h"
#include "tests/support/untrusted.h"

#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

enum {
    SEED = 6007,
    ROUNDS = 3000,         /* per op */
    TRIES = 30,            /* to find inputs that the op takes */
    INPUTS_MAX = 8,
    TENSORS_MAX = INPUTS_MAX + 8 + 4,
    WORDS_MAX = 32,
    PLACE_BYTES = 1 << 14  /* room for one tensor */
};

static const weir_op *const ops[] = {
#define X(name) &op_##name,
    OPS_LIST(X)
#undef X
};
enum { OPS = sizeof ops / sizeof *ops };

/* A plan in one piece. */
typedef struct lone_call {
    uint64_t random;
    weir_plan plan;
    plan_space space;
    plan_queue queue;
    plan_program program;
    plan_actor actor;
    plan_kernel kernel;
    plan_tensor tensor[TENSORS_MAX];
    plan_operand operand[TENSORS_MAX];
    plan_word word[WORDS_MAX];
    char strings[64];
    weir_type in[INPUTS_MAX], out[8];
} lone_call;

static uint32_t below(lone_call *c, uint32_t limit)
{
    return (uint32_t)(mutate_draw(&c->random) % limit);
}

static bool one_in(lone_call *c, uint32_t count)
{
    return below(c, count) == 0;
}

/* ---- types ---- */

static weir_dtype any_dtype(lone_call *c)
{
    return one_in(c, 4) ? (weir_dtype)(1 + below(c, WEIR_DTYPES - 1)) : WEIR_F32;
}

static int64_t any_dim(lone_call *c)
{
    static const int64_t dims[] = {0, 1, 2, 2, 3, 4, 4, 5};
    return one_in(c, 40) ? 37 : dims[below(c, 8)];
}

static weir_shape any_shape(lone_call *c)
{
    weir_shape shape = {.rank = (int)(one_in(c, 3) ? below(c, WEIR_DIMS_MAX + 1) : 2 + below(c, 2))};
    for (int d = 0; d < shape.rank; d++)
        shape.dim[d] = any_dim(c);
    return shape;
}

/* A shape that an op might want beside `like`. */
static weir_shape shape_beside(lone_call *c, const weir_shape *like)
{
    weir_shape shape = *like;
    int last = like->rank - 1;
    switch (last < 0 ? 9 : below(c, 10)) {
    case 0: /* a value per row */
        shape.rank--;
        break;
    case 1: /* a row */
        return (weir_shape){1, {like->dim[last]}};
    case 2: /* a matrix to the right of it */
        return (weir_shape){2, {like->dim[last], any_dim(c)}};
    case 3: /* more rows, or longer ones */
        shape.dim[below(c, (uint32_t)like->rank)] = any_dim(c);
        break;
    case 4: /* a scalar */
        return (weir_shape){0};
    case 5: /* a value per row and half of the columns: the heads of an attention layer */
        if (last == 2)
            return (weir_shape){3, {like->dim[0], like->dim[2] / 2, like->dim[1]}};
        break;
    case 9:
        return any_shape(c);
    default:
        break;
    }
    return shape;
}

/* Attributes: small numbers, now and then one that breaks arithmetic. */
static void any_words(lone_call *c, const weir_op *op)
{
    static const double wild[] = {NAN, INFINITY, -1, 1e300, 0};
    static const int64_t odd[] = {INT64_MIN, INT64_MAX, -1, INT64_C(1) << 40};
    for (int f = 0; f < op->field_count; f++)
        for (int i = 0; i < op->fields[f].count; i++) {
            plan_word *word = &c->word[op->fields[f].offset / 8 + (size_t)i];
            if (op->fields[f].real)
                word->r = one_in(c, 8) ? wild[below(c, 5)] : 0.25 * (1 + below(c, 3));
            else
                word->i = one_in(c, 16) ? odd[below(c, 4)] : (int64_t)below(c, 6) - one_in(c, 4);
        }
}

/* Random numbers are hardly ever those of a window: small ones, for the dimensions that x has, and for convolutions a weight. */
static void any_window(lone_call *c, const weir_op *op)
{
    if (!op->field_count || strcmp(op->fields[0].name, "kernel") || one_in(c, 8))
        return;
    const bool pool = op->attrs_bytes == sizeof(pool_attrs);
    weir_shape *x = &c->in[0].shape, weight = {.rank = x->rank, .dim = {1 + below(c, 4), x->rank > 1 ? x->dim[1] : 1}};
    window_attrs *w = (window_attrs *)c->word;
    for (int d = 0; d < WINDOW_DIMS; d++) {
        const bool own = d + 2 < x->rank;
        w->kernel[d] = own ? 1 + below(c, 3) : 0;
        w->stride[d] = own ? 1 + below(c, 3) : 0;
        w->dilation[d] = own ? 1 + below(c, 2) : 0;
        w->pad[d] = own ? below(c, 2) : 0;
        w->pad_end[d] = own ? below(c, 2) : 0;
        (pool ? ((pool_attrs *)w)->size : ((conv_attrs *)w)->output_pad)[d] = own && pool ? x->dim[d + 2] : 0;
        weight.dim[2 + d] = w->kernel[d];
    }
    if (!pool) {
        ((conv_attrs *)w)->groups = 1 + below(c, 2);
        weight.dim[0] = op == &op_conv_transpose ? x->dim[1] : weight.dim[0];
        c->in[1] = (weir_type){c->in[0].dtype, weight};
    }
}

/* A weight of blocks, and x or dy that fits it. */
static void any_stored(lone_call *c, const weir_op *op)
{
    const block_format *is = block_format_of(c->word[0].i);
    if ((op != &op_linear_stored && op != &op_linear_stored_dx && op != &op_embedding_stored) || !is)
        return;
    const int64_t out = below(c, 20), blocks = below(c, 3);
    c->in[1] = (weir_type){WEIR_U8, {3, {out, blocks, is->bytes}}};
    if (op != &op_embedding_stored && c->in[0].shape.rank)
        c->in[0].shape.dim[c->in[0].shape.rank - 1] = op == &op_linear_stored ? blocks * is->elements : out;
}

/* Inputs that random types hardly ever match, taken from another op: its input i, or its output o as ~o, or POSITION:
 * one i32, or SCALAR: one f32, or PAIR: two, or MASK: a value for each row of input 1. */
enum { POSITION = 100, SCALAR, PAIR, MASK };
typedef struct recipe {
    const weir_op *grad, *forward;
    int count, from[7];
} recipe;
static const recipe recipes[] = {
    {&op_attention_grad, &op_attention, 6, {0, 1, 2, ~0, ~1, ~0}},
    {&op_attention_kept, &op_attention, 6, {0, 0, 0, 1, 1, POSITION}},
    {&op_attention_masked, &op_attention, 4, {0, 1, 2, MASK}},
    {&op_attention_masked_grad, &op_attention_masked, 7, {0, 1, 2, ~0, ~1, ~0, MASK}},
    {&op_attention_kept_masked, &op_attention, 7, {0, 0, 0, 1, 1, POSITION, MASK}},
    {&op_cross_entropy_grad, &op_cross_entropy, 4, {0, 1, ~1, ~0}},
    {&op_class_lse_grad, &op_cross_entropy, 5, {0, 1, 0, 0, ~1}},
    {&op_class_loss, &op_cross_entropy, 3, {0, ~1, 1}},
    {&op_class_loss_grad, &op_cross_entropy, 3, {0, 1, SCALAR}},
    {&op_layernorm_grad, &op_layernorm, 5, {0, 1, ~1, ~2, ~0}},
    {&op_rmsnorm_grad, &op_rmsnorm, 4, {0, 1, ~1, ~0}},
    {&op_embedding_grad, &op_embedding, 2, {0, ~0}},
    {&op_max_grad, &op_max, 3, {0, ~0, ~0}},
    {&op_conv_dw, &op_conv, 2, {0, ~0}},
    {&op_max_pool_grad, &op_max_pool, 2, {0, ~0}},
    {&op_average_pool_grad, &op_average_pool, 1, {~0}},
    {&op_loss_scale, &op_square_sum, 2, {SCALAR, PAIR}},
    {&op_clip_norm, &op_square_sum, 2, {PAIR, SCALAR}},
};

static const recipe *recipe_for(const weir_op *op)
{
    for (size_t i = 0; i < sizeof recipes / sizeof *recipes; i++)
        if (recipes[i].grad == op)
            return &recipes[i];
    return NULL;
}

static bool infers(lone_call *c, const weir_op *op, int in_count)
{
    char error[256];
    weir_op_args args = {op, c->in, in_count, c->out, op->out_count, c->word};
    memset(c->out, 0, sizeof c->out);
    return op->infer(&args, error, sizeof error);
}

/* Inputs, and what the op makes of them. False if it refuses them. */
static bool try_inputs(lone_call *c, const weir_op *op, int in_count)
{
    for (int i = 0; i < in_count; i++) {
        const weir_shape *like = &c->in[i && one_in(c, 2) ? i - 1 : 0].shape;
        c->in[i] = (weir_type){any_dtype(c), i ? shape_beside(c, like) : any_shape(c)};
    }
    any_words(c, op);
    any_window(c, op);
    any_stored(c, op);
    return infers(c, op, in_count);
}

static bool try_recipe(lone_call *c, const recipe *r)
{
    weir_type in[7] = {0};
    any_words(c, r->grad);
    for (int i = 0; i < r->forward->in_min; i++)
        c->in[i] = (weir_type){any_dtype(c), i ? shape_beside(c, &c->in[0].shape) : any_shape(c)};
    any_window(c, r->forward);
    if (!infers(c, r->forward, r->forward->in_min))
        return false;
    for (int i = 0; i < r->count; i++)
        in[i] = r->from[i] == POSITION ? (weir_type){WEIR_I32, {0}}
                : r->from[i] == SCALAR ? (weir_type){WEIR_F32, {0}}
                : r->from[i] == PAIR   ? (weir_type){WEIR_F32, {1, {2}}}
                : r->from[i] == MASK   ? (weir_type){one_in(c, 2) ? WEIR_U8 : WEIR_F32, {2, {c->in[0].shape.dim[0], c->in[1].shape.dim[1]}}}
                : r->from[i] < 0       ? c->out[~r->from[i]]
                                       : c->in[r->from[i]];
    memcpy(c->in, in, sizeof in);
    return infers(c, r->grad, r->count);
}

/* Makes f32 operands half, except those that the op wants as f32, if it accepts that. */
static bool try_half(lone_call *c, const weir_op *op, int in_count)
{
    weir_type in[INPUTS_MAX];
    const weir_dtype half = one_in(c, 2) ? WEIR_BF16 : WEIR_F16;
    memcpy(in, c->in, sizeof in);
    for (int i = 0; i < in_count; i++)
        if (in[i].dtype == WEIR_F32 && !(op->full_in >> i & 1))
            c->in[i].dtype = half;
    if (infers(c, op, in_count))
        return true;
    memcpy(c->in, in, sizeof in);
    return infers(c, op, in_count);
}

/* Types that the op takes, mostly; then perhaps one of them is changed. Returns how many inputs there are. */
static int any_types(lone_call *c, const weir_op *op)
{
    const recipe *r = recipe_for(op);
    int most = op->in_max < INPUTS_MAX ? op->in_max : INPUTS_MAX;
    int in_count = r ? r->count : op->in_min + (int)below(c, (uint32_t)(most - op->in_min + 1));
    bool made = false;
    for (int tries = 0; tries < TRIES && !made; tries++)
        made = r ? try_recipe(c, r) : try_inputs(c, op, in_count);
    if (made && one_in(c, 2))
        made = try_half(c, op, in_count);
    if (made && op->either_out && one_in(c, 4))
        c->out[0].dtype = WEIR_F32;
    for (int o = 0; o < op->out_count; o++)
        if (!made || one_in(c, 10))
            c->out[o] = (weir_type){any_dtype(c), shape_beside(c, &c->in[0].shape)};
    if (in_count && one_in(c, 3)) {
        weir_type *in = &c->in[below(c, (uint32_t)in_count)];
        if (one_in(c, 2))
            in->dtype = (weir_dtype)(1 + below(c, WEIR_DTYPES - 1));
        else
            in->shape = shape_beside(c, &in->shape);
    }
    return in_count;
}

/* ---- the plan ---- */

static void add_tensor(lone_call *c, const weir_type *type, plan_home home)
{
    uint32_t t = c->plan.tensors_count++;
    plan_tensor *to = &c->tensor[t];
    *to = (plan_tensor){.home = home, .dtype = type->dtype, .rank = (uint32_t)type->shape.rank};
    for (int d = 0; d < type->shape.rank; d++) {
        to->shape[d] = type->shape.dim[d];
        to->global[d] = to->shape[d];
        if (to->shape[d] > PLACE_BYTES || one_in(c, 2))
            continue; /* whole in this dimension */
        to->start[d] = (int64_t)below(c, 4);
        to->global[d] += to->start[d] + (int64_t)below(c, 4);
    }
    to->offset = (uint64_t)t * PLACE_BYTES + (home == PLAN_IN_STATE ? c->queue.workspace_bytes : 0);
    c->operand[c->plan.operands_count++] = (plan_operand){{t}, {PLAN_NONE}};
}

/* Inputs are states, outputs temporaries, or an input where the op may work in place. */
static void add_operands(lone_call *c, const weir_op *op, int in_count)
{
    weir_type state[4];
    weir_op_args args = {op, c->in, in_count, c->out, op->out_count, c->word};
    int states = op->states ? op->states(&args, state) : 0;
    c->kernel.in = (plan_range){0, (uint32_t)in_count};
    for (int i = 0; i < in_count; i++)
        add_tensor(c, &c->in[i], PLAN_IN_STATE);
    c->kernel.state = (plan_range){c->plan.operands_count, (uint32_t)states};
    for (int i = 0; i < states; i++)
        add_tensor(c, &state[i], PLAN_IN_STATE);
    c->actor.states = (plan_range){0, c->plan.tensors_count};
    c->kernel.out = (plan_range){c->plan.operands_count, (uint32_t)op->out_count};
    for (int o = 0; o < op->out_count; o++)
        add_tensor(c, &c->out[o], PLAN_IN_TEMP);
    c->actor.temps = (plan_range){c->actor.states.count, (uint32_t)op->out_count};
    if (in_count > 1 && one_in(c, 8))
        c->operand[1] = c->operand[0];
    if (op->inplace && op->inplace <= in_count && one_in(c, 4))
        c->operand[c->kernel.out.first] = c->operand[op->inplace - 1];
}

static size_t scratch_for(lone_call *c, const weir_op *op, int in_count)
{
    weir_op_args args = {op, c->in, in_count, c->out, op->out_count, c->word};
    char error[256];
    weir_type made[8] = {0};
    weir_op_args as_inferred = {op, c->in, in_count, made, op->out_count, c->word};
    bool ok = op->fits ? op->fits(&args, error, sizeof error) : op->infer(&as_inferred, error, sizeof error);
    size_t bytes = ok && op->workspace ? op->workspace(&args, WEIR_CPU) : 0;
    return one_in(c, 10) ? bytes / 2 : bytes;
}

static void make_call(lone_call *c, const weir_op *op, uint64_t random)
{
    enum { WORKSPACE = TENSORS_MAX * PLACE_BYTES, SCRATCH = 1 << 18 };
    *c = (lone_call){.random = random};
    int in_count = any_types(c, op);
    snprintf(c->strings + 1, sizeof c->strings - 1, "%s", op->name);
    c->queue = (plan_queue){.workspace_bytes = WORKSPACE + SCRATCH};
    c->space.bytes = 2 * WORKSPACE + SCRATCH;
    c->actor = (plan_actor){.fires = 1, .kernels = {0, 1}};
    c->kernel = (plan_kernel){.op = {1}, .host = PLAN_NONE, .attrs = {0, (uint32_t)(op->attrs_bytes / 8)},
                              .accumulate = op->accumulates && one_in(c, 2), .key = c->random,
                              .workspace_offset = WORKSPACE};
    add_operands(c, op, in_count);
    c->kernel.workspace_bytes = scratch_for(c, op, in_count);
    c->plan = (weir_plan){.version = PLAN_VERSION, .micro_batches = 1, .ranks = 1,
                          .spaces = &c->space, .spaces_count = 1, .queues = &c->queue, .queues_count = 1,
                          .programs = &c->program, .programs_count = 1,
                          .actors = &c->actor, .actors_count = 1,
                          .kernels = &c->kernel, .kernels_count = 1, .tensors = c->tensor,
                          .tensors_count = c->plan.tensors_count, .operands = c->operand,
                          .operands_count = c->plan.operands_count, .words = c->word, .words_count = WORDS_MAX,
                          .strings = c->strings, .strings_count = sizeof c->strings};
}

/* Returns how many calls were made. */
static int call_often(const weir_op *op, uint64_t seed)
{
    static lone_call c;
    int calls = 0;
    for (int round = 0; round < ROUNDS; round++) {
        make_call(&c, op, seed + (uint64_t)round);
        if (mutate_tighten(&c.plan) && untrusted_small(&c.plan))
            calls += untrusted_calls(&c.plan, c.random);
    }
    return calls;
}

/* Gradients by ids have three inputs whose shapes depend on each other: few random ones do. */
static int least_calls(const weir_op *op)
{
    const bool by_ids = op == &op_gather_grad || op == &op_gather_nd_grad || op == &op_gather_elements_grad;
    return by_ids ? ROUNDS / 1000 : ROUNDS / 100;
}

Test(op_calls, what_the_rules_accept_the_kernels_can_take, .timeout = 120)
{
    cr_log_info("seed %d", SEED);
    for (int i = 0; i < OPS; i++) {
        bool host = ops[i] == &op_source || ops[i] == &op_sink || ops[i] == &op_call || ops[i]->out_fewer || /* call others */
                    !ops[i]->kernel[WEIR_CPU];
        int calls = host ? 0 : call_often(ops[i], name_key(SEED, ops[i]->name));
        cr_expect(host || calls >= least_calls(ops[i]), "%s was called only %d times", ops[i]->name, calls);
    }
}
