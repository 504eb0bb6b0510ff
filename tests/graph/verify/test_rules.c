/* test_rules.c: the rules of the core ops and of products, held against the CPU kernels. The other rules are in
 * test_rules_element.c and test_rules_model.c. */
#include "tests/graph/verify/rule_check.h"

#include "kernels/conv/window.h"
#include "tests/support/blocks.h"

#include "kernels/fused/fused.h"

TestSuite(rules, .timeout = 60);

/* ---- moved elements ---- */

static void make_same(rule_check *c)
{
    const weir_dtype dtype = check_dtype(c);
    const weir_shape shape = check_shape(c, 0, 4);
    check_in(c, dtype, shape);
    check_out(c, dtype, shape);
}

/* The compiler removes each shard, so it has no kernel. */
static void make_shard(rule_check *c)
{
    c->kernel = weir_op_find("copy")->kernel[WEIR_CPU];
    make_same(c);
}

static void make_reshape(rule_check *c)
{
    const weir_dtype dtype = check_dtype(c);
    const int64_t a = check_size(c, 4), b = check_size(c, 4), d = check_size(c, 4);
    const weir_shape shapes[] = {SHAPE(a, b, d), SHAPE(d, a * b), SHAPE(a * b * d), SHAPE(1, b, 1, d * a)};
    check_in(c, dtype, shapes[check_from(c, 0, 3)]);
    check_out(c, dtype, shapes[check_from(c, 0, 3)]);
}

static void make_accumulate(rule_check *c)
{
    const weir_shape shape = check_shape(c, 0, 3);
    c->accumulate = check_coin(c);
    check_in(c, WEIR_F32, shape);
    check_out(c, WEIR_F32, shape);
}

/* Part of a logical tensor: [start, start + size) in each dimension. */
typedef struct part {
    int64_t start[WEIR_DIMS_MAX];
    weir_shape size;
} part;

static part random_part(rule_check *c, const weir_shape *whole)
{
    part p = {.size = *whole};
    for (int d = 0; d < whole->rank; d++) {
        p.start[d] = check_from(c, 0, whole->dim[d]);
        p.size.dim[d] = check_from(c, 0, whole->dim[d] - p.start[d]);
    }
    return p;
}

static part meet(const part *a, const part *b)
{
    part both = *a;
    for (int d = 0; d < a->size.rank; d++) {
        const int64_t a_end = a->start[d] + a->size.dim[d], b_end = b->start[d] + b->size.dim[d];
        const int64_t first = a->start[d] > b->start[d] ? a->start[d] : b->start[d], end = a_end < b_end ? a_end : b_end;
        both.start[d] = first;
        both.size.dim[d] = end > first ? end - first : 0;
    }
    return both;
}

static void place_part(rule_check *c, weir_view *view, const part *p, const weir_shape *whole)
{
    for (int d = 0; d < whole->rank; d++)
        check_place(c, view, d, p->start[d], whole->dim[d]);
}

/* The terms of a group have the same elements of the output. A term that comes from another host has only those. */
static void make_box(rule_check *c)
{
    weir_shape whole = {.rank = (int)check_from(c, 1, 3)};
    const int terms = (int)check_from(c, 1, 3), groups = (int)check_from(c, 1, 4);
    const weir_dtype dtype = terms > 1 ? WEIR_F32 : check_dtype(c);
    for (int d = 0; d < whole.rank; d++)
        whole.dim[d] = check_from(c, 1, 7);
    const part to = random_part(c, &whole);
    check_int(c, "terms", 0, terms);
    check_int(c, "zero", 0, check_coin(c));
    place_part(c, check_out(c, dtype, to.size), &to, &whole);
    for (int g = 0; g < groups; g++) {
        const part from = random_part(c, &whole), both = meet(&from, &to);
        for (int t = 0; t < terms && (t == 0 || g + 1 < groups || check_coin(c)); t++) {
            const part *sent = check_coin(c) ? &from : &both;
            place_part(c, check_in(c, dtype, sent->size), sent, &whole);
        }
    }
}

/* ---- micro-batches ---- */

/* A tensor of as many rows as there are micro-batches; sometimes there is none for this one. */
static weir_shape rows_of_micros(rule_check *c, const weir_shape *row)
{
    weir_shape rows = {.rank = row->rank + 1};
    rows.dim[0] = check_from(c, 1, 4);
    for (int d = 0; d < row->rank; d++)
        rows.dim[d + 1] = row->dim[d];
    c->micros = (int)rows.dim[0] + 1;
    c->micro = (int)check_from(c, 0, rows.dim[0]);
    c->refuses = c->micro == rows.dim[0];
    return rows;
}

static void make_batch(rule_check *c)
{
    const weir_dtype dtype = check_dtype(c);
    const weir_shape row = check_shape(c, 0, 3), rows = rows_of_micros(c, &row);
    check_int(c, "values", 0, rows.dim[0]);
    check_in(c, dtype, row);
    check_out(c, dtype, rows);
}

static void make_unbatch(rule_check *c)
{
    const weir_dtype dtype = check_dtype(c);
    const weir_shape row = check_shape(c, 0, 3), rows = rows_of_micros(c, &row);
    check_in(c, dtype, rows);
    check_out(c, dtype, row);
}

static void make_grad_seed(rule_check *c)
{
    check_real(c, "value", check_between(c, -1, 1));
    check_in(c, WEIR_F32, SHAPE());
    if (check_coin(c))
        check_in(c, WEIR_F32, SHAPE());
    check_out(c, WEIR_F32, SHAPE());
}

/* ---- shapes ---- */

static void make_transpose(rule_check *c)
{
    const weir_dtype dtype = check_dtype(c);
    const weir_shape from = check_shape(c, 0, 5);
    weir_shape to = from;
    int of[WEIR_DIMS_MAX];
    for (int d = 0; d < from.rank; d++) {
        const int other = (int)check_from(c, 0, d);
        of[d] = of[other];
        of[other] = d;
    }
    for (int d = 0; d < from.rank; d++) {
        check_int(c, "perm", d, of[d]);
        to.dim[d] = from.dim[of[d]];
    }
    check_in(c, dtype, from);
    check_out(c, dtype, to);
}

static void make_broadcast_to(rule_check *c)
{
    const weir_shape large = check_shape(c, 0, 4), small = check_small_shape(c, &large);
    check_in(c, WEIR_F32, small);
    check_out(c, WEIR_F32, large);
}

/* Chooses a dimension and sets the attribute. */
static int some_axis(rule_check *c, int rank)
{
    const int axis = (int)check_from(c, 0, rank - 1);
    check_int(c, "axis", 0, check_coin(c) ? axis : axis - rank);
    return axis;
}

static void make_slice(rule_check *c)
{
    const weir_dtype dtype = check_dtype(c);
    weir_shape shape = check_shape(c, 1, 4);
    const int axis = some_axis(c, shape.rank);
    const int64_t first = check_from(c, 0, 3), count = check_from(c, 1, 4);
    check_int(c, "range", 0, first);
    check_int(c, "range", 1, count);
    shape.dim[axis] = first + count + check_from(c, 0, 2);
    check_in(c, dtype, shape);
    shape.dim[axis] = count;
    check_out(c, dtype, shape);
}

static void make_pad(rule_check *c)
{
    const weir_dtype dtype = check_dtype(c);
    weir_shape shape = check_shape(c, 1, 4);
    const int axis = some_axis(c, shape.rank);
    const int64_t before = check_from(c, 0, 3), after = check_from(c, 0, 3);
    check_int(c, "range", 0, before);
    check_int(c, "range", 1, after);
    check_in(c, dtype, shape);
    shape.dim[axis] += before + after;
    check_out(c, dtype, shape);
}

static void make_concat(rule_check *c)
{
    const weir_dtype dtype = check_dtype(c);
    weir_shape shape = check_shape(c, 1, 4);
    const int axis = some_axis(c, shape.rank);
    int64_t all = 0;
    for (int64_t left = check_from(c, 1, 5); left; left--) {
        shape.dim[axis] = check_size(c, 4);
        check_in(c, dtype, shape);
        all += shape.dim[axis];
    }
    shape.dim[axis] = all;
    check_out(c, dtype, shape);
}

static void make_append(rule_check *c)
{
    const weir_dtype dtype = check_dtype(c);
    weir_shape shape = check_shape(c, 2, 4), rows = shape;
    const int axis = shape.rank - 2;
    rows.dim[axis] = check_from(c, 0, shape.dim[axis]);
    const int64_t last = shape.dim[axis] - rows.dim[axis], position = check_from(c, -1, last + 1);
    check_in(c, dtype, shape);
    check_in(c, dtype, rows);
    check_set(check_in(c, WEIR_I32, SHAPE()), (double)position);
    check_out(c, dtype, shape);
    c->refuses = position < 0 || position > last;
}

/* ---- several ops in one pass ---- */

/* The chain that is being made, and where the rows of its operands lie. */
typedef struct chain {
    rule_check *c;
    fused_attrs attrs;
    int words;
    weir_shape like;
    int64_t start[WEIR_DIMS_MAX];
    weir_shape global;
} chain;

static chain chain_new(rule_check *c)
{
    chain made = {.c = c, .attrs = {.rows = check_from(c, 1, 9)}, .like = check_shape(c, 2, 3)};
    made.global = made.like;
    made.like.dim[made.like.rank - 1] = check_from(c, 1, 9);
    for (int d = 0; d < made.like.rank; d++) {
        made.start[d] = check_from(c, 0, 3);
        made.global.dim[d] = made.start[d] + made.like.dim[d] + check_from(c, 0, 3);
    }
    return made;
}

/* An operand that lies as the rows do, or has one value for each. */
static void chain_rows(chain *made, weir_view *view)
{
    for (int d = 0; d < view->shape.rank; d++)
        check_place(made->c, view, d, made->start[d], made->global.dim[d]);
}

static weir_shape chain_per_row(const chain *made)
{
    weir_shape shape = made->like;
    shape.dim[--shape.rank] = 0;
    return shape;
}

static void chain_scratch(chain *made, bool per_row)
{
    const int last = made->like.rank - 1;
    int64_t *type = made->attrs.type[made->attrs.scratch++];
    type[0] = WEIR_F32;
    type[1] = per_row ? -1 : made->like.dim[last];
    type[2] = per_row ? 0 : made->start[last];
    type[3] = per_row ? 0 : made->global.dim[last];
}

static void chain_member(chain *made, const char *op, const double *attr, const char *ins, const char *outs)
{
    fused_member m = {.op = weir_op_find(op), .attrs = attr, .key = made->c->key + (uint64_t)made->words};
    for (; *ins; ins += 2)
        m.in[m.in_count++] = (ins[0] == 's' ? FUSED_SCRATCH : ins[0] == 'o' ? FUSED_OUT : FUSED_IN) + ins[1] - '0';
    for (; *outs; outs += 2)
        m.out[m.out_count++] = (outs[0] == 's' ? FUSED_SCRATCH : FUSED_OUT) + outs[1] - '0';
    made->words = fused_put(&made->attrs, made->words, &m);
    made->attrs.members++;
    cr_assert_gt(made->words, 0);
}

static void chain_end(chain *made)
{
    memcpy(made->c->words, &made->attrs, sizeof made->attrs);
}

/* x + r, and its layernorm. */
static void make_sum_norm(chain *made)
{
    const double eps = 1e-3;
    const weir_shape columns = SHAPE(made->like.dim[made->like.rank - 1]);
    for (int i = 0; i < 2; i++)
        chain_rows(made, check_in(made->c, WEIR_F32, made->like));
    for (int i = 0; i < 2; i++)
        check_in(made->c, WEIR_F32, columns);
    for (int o = 0; o < 4; o++)
        chain_rows(made, check_out(made->c, WEIR_F32, o < 2 ? made->like : chain_per_row(made)));
    chain_member(made, "add", NULL, "i0i1", "o0");
    chain_member(made, "layernorm", &eps, "o0i2i3", "o1o2o3");
}

/* softmax(gelu(x r)) */
static void make_scratch_chain(chain *made)
{
    for (int i = 0; i < 2; i++)
        chain_rows(made, check_in(made->c, WEIR_F32, made->like));
    chain_rows(made, check_out(made->c, WEIR_F32, made->like));
    chain_scratch(made, false);
    chain_scratch(made, false);
    chain_member(made, "mul", NULL, "i0i1", "s0");
    chain_member(made, "gelu", NULL, "s0", "s1");
    chain_member(made, "softmax", NULL, "s1", "o0");
}

/* A dropout, whose elements are numbered in the logical tensor, and a sum over rows. */
static void make_dropout_chain(chain *made)
{
    const double rate = 0.4;
    made->c->step = check_from(made->c, 0, 5);
    chain_rows(made, check_in(made->c, WEIR_F32, made->like));
    chain_rows(made, check_out(made->c, WEIR_F32, made->like));
    chain_rows(made, check_out(made->c, WEIR_U8, made->like));
    check_out(made->c, WEIR_F32, SHAPE(made->like.dim[made->like.rank - 1]));
    chain_scratch(made, false);
    chain_member(made, "neg", NULL, "i0", "s0");
    chain_member(made, "dropout", &rate, "s0", "o0o1");
    chain_member(made, "linear_db", NULL, "o0", "o2");
}

/* A norm whose mean and scale only its gradient reads; the gradients of gain and bias are sums over rows. */
static void make_norm_grad_chain(chain *made)
{
    const double eps = 1e-3;
    const weir_shape columns = SHAPE(made->like.dim[made->like.rank - 1]);
    chain_rows(made, check_in(made->c, WEIR_F32, made->like));
    for (int i = 0; i < 2; i++)
        check_in(made->c, WEIR_F32, columns);
    chain_rows(made, check_out(made->c, WEIR_F32, made->like));
    for (int o = 0; o < 2; o++)
        check_out(made->c, WEIR_F32, columns);
    for (int s = 0; s < 3; s++)
        chain_scratch(made, s > 0);
    chain_member(made, "layernorm", &eps, "i0i1i2", "s0s1s2");
    chain_member(made, "layernorm_grad", &eps, "i0i1s1s2s0", "o0o1o2");
}

static void make_fused(rule_check *c)
{
    void (*const chains[])(chain *) = {make_sum_norm, make_scratch_chain, make_dropout_chain, make_norm_grad_chain};
    chain made = chain_new(c);
    chains[check_from(c, 0, 3)](&made);
    chain_end(&made);
}

/* In these the first output may lie over the first input, and a GPU does them in one kernel. */
static void make_fused_over(rule_check *c)
{
    void (*const chains[])(chain *) = {make_sum_norm, make_scratch_chain, make_dropout_chain};
    chain made = chain_new(c);
    chains[check_from(c, 0, 2)](&made);
    chain_end(&made);
}

static const check_case core_cases[] = {
    {"copy", make_same}, {"shard", make_shard}, {"reshape", make_reshape}, {"accumulate", make_accumulate},
    {"box", make_box}, {"batch", make_batch}, {"unbatch", make_unbatch}, {"grad_seed", make_grad_seed},
    {"transpose", make_transpose}, {"broadcast_to", make_broadcast_to}, {"slice", make_slice}, {"pad", make_pad},
    {"concat", make_concat}, {"append", make_append}, {"fused", make_fused}, {"fused_over", make_fused_over},
    {"fused_launch", make_fused_over}, {"fused_launch_over", make_fused_over},
};

Test(rules, an_op_that_moves_elements_computes_what_its_kernel_computes)
{
    CHECK_TABLE(rules_core, core_cases, check_run);
}

/* ---- products ---- */

static void make_matmul(rule_check *c)
{
    const bool trans_a = check_coin(c), trans_b = check_coin(c), batches_b = check_coin(c);
    const int64_t m = check_size(c, 7), n = check_size(c, 7), k = check_size(c, 7);
    weir_shape a = check_shape(c, 2, 4), b = a, out = a;
    a.dim[a.rank - 2] = trans_a ? k : m;
    a.dim[a.rank - 1] = trans_a ? m : k;
    b.dim[b.rank - 2] = trans_b ? n : k;
    b.dim[b.rank - 1] = trans_b ? k : n;
    out.dim[a.rank - 2] = m;
    out.dim[a.rank - 1] = n;
    for (int d = 0; d + 2 < a.rank && !strcmp(c->op->name, "matmul"); d++) /* where one has the size, the other may be 1 */
        *(check_coin(c) ? &a.dim[d] : &b.dim[d]) = check_coin(c) ? 1 : out.dim[d];
    check_int(c, "trans_a", 0, trans_a);
    check_int(c, "trans_b", 0, trans_b);
    if (!batches_b) {
        memcpy(a.dim, out.dim, sizeof *a.dim * (size_t)(a.rank - 2));
        b = SHAPE(trans_b ? n : k, trans_b ? k : n);
    }
    check_in(c, WEIR_F32, a);
    check_in(c, WEIR_F32, b);
    check_out(c, WEIR_F32, out);
}

static void make_linear(rule_check *c)
{
    const weir_shape x = check_shape(c, 2, 4);
    const int64_t columns = check_size(c, 6);
    check_in(c, WEIR_F32, x);
    check_in(c, WEIR_F32, SHAPE(x.dim[x.rank - 1], columns));
    if (check_coin(c))
        check_in(c, WEIR_F32, SHAPE(columns));
    check_out(c, WEIR_F32, check_columns(x, columns));
}

static void make_linear_dw(rule_check *c)
{
    const weir_shape x = check_shape(c, 2, 4);
    const int64_t columns = check_size(c, 6);
    c->accumulate = check_coin(c);
    check_in(c, WEIR_F32, x);
    check_in(c, WEIR_F32, check_columns(x, columns));
    check_out(c, WEIR_F32, SHAPE(x.dim[x.rank - 1], columns));
}

static void make_linear_db(rule_check *c)
{
    const weir_shape dy = check_shape(c, 2, 4);
    c->accumulate = check_coin(c);
    check_in(c, WEIR_F32, dy);
    check_out(c, WEIR_F32, SHAPE(dy.dim[dy.rank - 1]));
}

/* ---- several products in one call, which no CPU has: the parts, one after the other ---- */

static weir_status run_part(const weir_kernel_args *whole, const char *name, const weir_view *in, int in_count,
                            const weir_view *out)
{
    const weir_op *op = weir_op_find(name);
    weir_type in_type[KERNEL_CHECK_MAX], out_type;
    check_types(in, in_count, in_type);
    check_types(out, 1, &out_type);
    const weir_op_args types = {op, in_type, in_count, &out_type, 1, whole->attrs};
    weir_kernel_args inner = *whole;
    inner.workspace_bytes = op->workspace ? op->workspace(&types, WEIR_CPU) : 0;
    inner.workspace = aligned_alloc(64, (inner.workspace_bytes + 64) / 64 * 64);
    cr_assert_not_null(inner.workspace);
    inner.in = in;
    inner.in_count = in_count;
    inner.out = out;
    inner.out_count = 1;
    const weir_status status = op->kernel[WEIR_CPU](&inner);
    free(inner.workspace);
    return status;
}

static weir_status linear_gelu_parts(const weir_kernel_args *args)
{
    const weir_view *z = &args->out[args->out_count - 1];
    const weir_status status = run_part(args, "linear", args->in, args->in_count, z);
    return status ? status : run_part(args, "gelu", z, 1, &args->out[0]);
}

static void make_linear_gelu(rule_check *c)
{
    make_linear(c);
    c->kernel = linear_gelu_parts;
    if (check_coin(c))
        check_out(c, WEIR_F32, c->out[0].shape);
}

static weir_status matmul_gelu_grad_parts(const weir_kernel_args *args)
{
    const weir_view in[] = {args->in[2], args->out[0]};
    const weir_status status = run_part(args, "matmul", args->in, 2, &args->out[0]);
    return status ? status : run_part(args, "gelu_grad", in, 2, &args->out[0]);
}

static void make_matmul_gelu_grad(rule_check *c)
{
    make_matmul(c);
    c->kernel = matmul_gelu_grad_parts;
    check_in(c, WEIR_F32, c->out[0].shape);
}

static weir_status linear_dw_db_parts(const weir_kernel_args *args)
{
    const weir_status status = run_part(args, "linear_dw", args->in, 2, &args->out[0]);
    return status ? status : run_part(args, "linear_db", &args->in[1], 1, &args->out[1]);
}

static void make_linear_dw_db(rule_check *c)
{
    make_linear_dw(c);
    c->kernel = linear_dw_db_parts;
    c->accumulate = false;
    check_out(c, WEIR_F32, SHAPE(c->out[0].shape.dim[1]));
}

static weir_status each_part(const weir_kernel_args *args, const char *op)
{
    weir_status status = WEIR_OK;
    for (int i = 0; i < args->out_count && !status; i++) {
        const bool biased = args->in_count > 1 + args->out_count;
        const weir_view in[] = {args->in[0], args->in[1 + i], args->in[biased ? 1 + args->out_count + i : 0]};
        status = run_part(args, op, in, biased ? 3 : 2, &args->out[i]);
    }
    return status;
}

static weir_status linear_many_parts(const weir_kernel_args *args)
{
    return each_part(args, "linear");
}

static weir_status linear_dw_many_parts(const weir_kernel_args *args)
{
    return each_part(args, "linear_dw");
}

static void make_linear_many(rule_check *c)
{
    const weir_shape x = check_shape(c, 2, 3);
    const int64_t columns = check_size(c, 5);
    const int products = (int)check_from(c, 1, 4);
    const bool biased = check_coin(c);
    c->kernel = linear_many_parts;
    check_in(c, WEIR_F32, x);
    for (int i = 0; i < products; i++)
        check_in(c, WEIR_F32, SHAPE(x.dim[x.rank - 1], columns));
    for (int i = 0; i < products && biased; i++)
        check_in(c, WEIR_F32, SHAPE(columns));
    for (int i = 0; i < products; i++)
        check_out(c, WEIR_F32, check_columns(x, columns));
}

static void make_linear_dw_many(rule_check *c)
{
    const weir_shape x = check_shape(c, 2, 3);
    const int64_t columns = check_size(c, 5);
    const int products = (int)check_from(c, 1, 4);
    c->kernel = linear_dw_many_parts;
    check_in(c, WEIR_F32, x);
    for (int i = 0; i < products; i++)
        check_in(c, WEIR_F32, check_columns(x, columns));
    for (int i = 0; i < products; i++)
        check_out(c, WEIR_F32, SHAPE(x.dim[x.rank - 1], columns));
}

/* ---- weights as they are stored ---- */

/* Adds a weight [out, columns] in a random format and the format's attribute; returns its columns. In the plan it is a part of one of
 * `all` rows, from `start` on. */
static int64_t make_stored(rule_check *c, int64_t out, int64_t start, int64_t all)
{
    const weir_format format = (weir_format)check_from(c, WEIR_DENSE, WEIR_Q6_K);
    const weir_dtype dense[] = {WEIR_F32, WEIR_F16, WEIR_BF16};
    const int64_t columns = check_size(c, 2) * (format ? block_format_of(format)->elements : 3);
    const weir_type type = blocks_type(format, dense[check_from(c, 0, 2)], out, columns);
    weir_view *w = check_in(c, type.dtype, type.shape);
    if (format)
        blocks_fill(format, type.shape.dim[0] * type.shape.dim[1], w->data, &c->random);
    if (all)
        check_place(c, w, 0, start, all);
    check_int(c, "format", 0, format);
    return columns;
}

/* x and w, or dy and w; x has the weight's columns, so it is made when these are known. */
static void make_stored_product(rule_check *c, bool back)
{
    const int64_t out = check_size(c, 5), rows = check_size(c, 4);
    check_in(c, WEIR_F32, SHAPE(rows, out));
    const int64_t columns = make_stored(c, out, 0, 0);
    check_int(c, "f32_activations", 0, 1);
    if (!back) {
        kernel_view_free(&c->in[0]);
        c->in[0] = kernel_view_new((weir_type){WEIR_F32, SHAPE(rows, columns)}, 0);
        check_fill(c, &c->in[0], -2, 2);
    }
    check_out(c, WEIR_F32, SHAPE(rows, back ? columns : out));
}

static void make_linear_stored(rule_check *c)
{
    make_stored_product(c, false);
}

static void make_linear_stored_dx(rule_check *c)
{
    make_stored_product(c, true);
}

static void make_embedding_stored(rule_check *c)
{
    const int64_t vocab = check_from(c, 1, 9), start = check_from(c, 0, vocab), ids = check_size(c, 4);
    const weir_view *id = check_in(c, WEIR_I32, SHAPE(ids));
    check_fill(c, id, 0, (double)vocab);
    if (ids && !check_from(c, 0, 9)) {
        kernel_set(id, check_from(c, 0, ids - 1), check_coin(c) ? -1 : (double)vocab);
        c->refuses = true;
    }
    check_out(c, WEIR_F32, SHAPE(ids, make_stored(c, check_from(c, 0, vocab - start), start, vocab)));
}

static const check_case product_cases[] = {
    {"matmul", make_matmul}, {"linear", make_linear}, {"linear_by_row", make_linear}, {"linear_dw", make_linear_dw},
    {"linear_db", make_linear_db}, {"linear_gelu", make_linear_gelu}, {"matmul_gelu_grad", make_matmul_gelu_grad},
    {"linear_dw_db", make_linear_dw_db}, {"linear_many", make_linear_many}, {"linear_dw_many", make_linear_dw_many},
    {"linear_stored", make_linear_stored}, {"linear_stored_dx", make_linear_stored_dx}, {"embedding_stored", make_embedding_stored},
};

Test(rules, a_product_computes_what_its_kernel_computes)
{
    CHECK_TABLE(rules_product, product_cases, check_run);
}

/* ---- convolutions and pools ---- */

/* A window over `dims` dimensions, with pads less than it spans; as attributes too. Returns the shape of the large side. */
static weir_shape make_window(rule_check *c, int dims, window_attrs *w)
{
    weir_shape large = {2 + dims, {check_from(c, 0, 2), 1}};
    *w = (window_attrs){0};
    for (int d = 0; d < dims; d++) {
        w->kernel[d] = check_from(c, 1, 3);
        w->stride[d] = check_from(c, 1, 3);
        w->dilation[d] = check_from(c, 1, 2);
        const int64_t span = w->dilation[d] * (w->kernel[d] - 1) + 1;
        w->pad[d] = check_from(c, 0, (span - 1) / 2);
        w->pad_end[d] = check_from(c, 0, (span - 1) / 2);
        large.dim[d + 2] = span + check_from(c, 0, 4);
    }
    for (int d = 0; d < WINDOW_DIMS; d++) {
        check_int(c, "kernel", d, w->kernel[d]);
        check_int(c, "stride", d, w->stride[d]);
        check_int(c, "dilation", d, w->dilation[d]);
        check_int(c, "pad", d, w->pad[d]);
        check_int(c, "pad_end", d, w->pad_end[d]);
    }
    return large;
}

static weir_shape small_side(weir_shape large, const window_attrs *w, int64_t channels)
{
    for (int d = 0; d + 2 < large.rank; d++)
        large.dim[d + 2] = (large.dim[d + 2] + w->pad[d] + w->pad_end[d] - w->dilation[d] * (w->kernel[d] - 1) - 1) / w->stride[d] + 1;
    large.dim[1] = channels;
    return large;
}

/* The two sides and the weight of a convolution. */
static void make_sides(rule_check *c, weir_shape *large, weir_shape *small, weir_shape *weight)
{
    window_attrs w;
    *large = make_window(c, (int)check_from(c, 1, 3), &w);
    const int64_t groups = check_from(c, 1, 3), ins = check_from(c, 1, 3), outs = check_from(c, 1, 3);
    large->dim[1] = groups * ins;
    *small = small_side(*large, &w, groups * outs);
    *weight = (weir_shape){large->rank, {groups * outs, ins}};
    memcpy(weight->dim + 2, w.kernel, (size_t)(large->rank - 2) * sizeof *weight->dim);
    check_int(c, "groups", 0, groups);
    for (int d = 0; d + 2 < large->rank && !strcmp(c->op->name, "conv_transpose"); d++)
        check_int(c, "output_pad", d, large->dim[d + 2] + w.pad[d] + w.pad_end[d] - w.dilation[d] * (w.kernel[d] - 1) - 1 -
                                          (small->dim[d + 2] - 1) * w.stride[d]);
}

static void make_conv(rule_check *c)
{
    weir_shape large, small, weight;
    make_sides(c, &large, &small, &weight);
    check_in(c, WEIR_F32, large);
    check_in(c, WEIR_F32, weight);
    if (check_coin(c))
        check_in(c, WEIR_F32, SHAPE(small.dim[1]));
    check_out(c, WEIR_F32, small);
}

static void make_conv_transpose(rule_check *c)
{
    weir_shape large, small, weight;
    make_sides(c, &large, &small, &weight);
    check_in(c, WEIR_F32, small);
    check_in(c, WEIR_F32, weight);
    if (check_coin(c))
        check_in(c, WEIR_F32, SHAPE(large.dim[1]));
    check_out(c, WEIR_F32, large);
}

static void make_conv_dw(rule_check *c)
{
    weir_shape large, small, weight;
    make_sides(c, &large, &small, &weight);
    c->accumulate = check_coin(c);
    check_in(c, WEIR_F32, large);
    check_in(c, WEIR_F32, small);
    check_out(c, WEIR_F32, weight);
}

static void make_pool(rule_check *c)
{
    window_attrs w;
    weir_shape large = make_window(c, (int)check_from(c, 1, 3), &w);
    const bool back = strstr(c->op->name, "_grad");
    large.dim[1] = check_from(c, 0, 2);
    const weir_shape small = small_side(large, &w, large.dim[1]);
    check_int(c, "count_pad", 0, check_coin(c));
    for (int d = 0; d + 2 < large.rank; d++)
        check_int(c, "size", d, large.dim[d + 2]);
    if (strcmp(c->op->name, "average_pool_grad"))
        check_in(c, WEIR_F32, large);
    if (back)
        check_in(c, WEIR_F32, small);
    check_out(c, WEIR_F32, back ? large : small);
}

static const check_case conv_cases[] = {
    {"conv", make_conv}, {"conv_transpose", make_conv_transpose}, {"conv_dw", make_conv_dw}, {"max_pool", make_pool},
    {"max_pool_grad", make_pool}, {"average_pool", make_pool}, {"average_pool_grad", make_pool},
};

Test(rules, a_window_computes_what_its_kernel_computes)
{
    CHECK_TABLE(rules_conv, conv_cases, check_run);
}

/* ---- all tables ---- */

Test(rules, no_rule_writes_behind_its_operands_when_sizes_do_not_fit)
{
    CHECK_TABLE(rules_core, core_cases, check_shaken);
    CHECK_TABLE(rules_product, product_cases, check_shaken);
    CHECK_TABLE(rules_conv, conv_cases, check_shaken);
}

/* Here, or in another suite. */
Test(rules, each_table_is_held_against_kernels)
{
    const rule_entry *const held[] = {rules_core, rules_product, rules_conv, rules_element, rules_reduce, rules_model, rules_loss,
                                      rules_update, rules_index, rules_attention};
    cr_assert_eq(sizeof tables, sizeof held, "a table of rules has no cases here");
    for (size_t t = 0; t < sizeof held / sizeof *held; t++)
        cr_expect_eq(tables[t], held[t]);
}
