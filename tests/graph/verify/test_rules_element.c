/* test_rules_element.c: the rules of functions of elements, reductions, norms and dropout, held against the CPU kernels. */
#include "tests/graph/verify/rule_check.h"

TestSuite(rules_of_elements, .timeout = 60);

/* ---- functions of elements ---- */

static void make_function(rule_check *c)
{
    const weir_shape shape = check_shape(c, 0, 4);
    check_in(c, WEIR_F32, shape);
    check_out(c, WEIR_F32, shape);
}

static void make_function_of_positive(rule_check *c)
{
    make_function(c);
    check_fill(c, &c->in[0], 0.1, 3);
}

static void make_slope(rule_check *c)
{
    make_function(c);
    check_in(c, WEIR_F32, c->in[0].shape);
}

static void make_slope_of_positive(rule_check *c)
{
    make_slope(c);
    check_fill(c, &c->in[0], 0.1, 3);
}

/* The saved value is relu's result: about half of the elements are 0. */
static void make_relu_grad(rule_check *c)
{
    make_slope(c);
    for (int64_t i = 0; i < weir_shape_count(&c->in[0].shape); i++)
        kernel_set(&c->in[0], i, fmax(0, kernel_at(&c->in[0], i)));
}

/* Two shapes that broadcast to a third. */
static void make_pair(rule_check *c)
{
    const weir_shape out = check_shape(c, 0, 4);
    const bool first = check_coin(c);
    weir_shape a = out, b = check_small_shape(c, &out);
    for (int d = 0; d < b.rank; d++) { /* where b has the size, a may be 1 */
        const int own = d + a.rank - b.rank;
        a.dim[own] = b.dim[d] == out.dim[own] && check_coin(c) ? 1 : a.dim[own];
    }
    check_in(c, WEIR_F32, first ? a : b);
    check_in(c, WEIR_F32, first ? b : a);
    check_out(c, WEIR_F32, out);
}

static void make_div(rule_check *c)
{
    make_pair(c);
    check_fill(c, &c->in[1], 0.5, 2);
}

/* Of integers from -1 to 2, so that many are equal. */
static void make_pair_of_few(rule_check *c)
{
    make_pair(c);
    for (int k = 0; k < 2; k++)
        check_fill(c, &c->in[k], -2, 3);
    for (int k = 0; k < 2; k++)
        for (int64_t i = 0; i < weir_shape_count(&c->in[k].shape); i++)
            kernel_set(&c->in[k], i, floor(kernel_at(&c->in[k], i)));
}

static void make_power(rule_check *c)
{
    make_pair(c);
    check_fill(c, &c->in[0], 0.1, 2);
}

/* The operands are of these dtypes, where make_pair() gives f32. */
static void retype(rule_check *c, weir_view *view, weir_dtype dtype)
{
    const weir_view of = kernel_view_new((weir_type){dtype, view->shape}, 0);
    check_fill(c, &of, 0, 3);
    kernel_view_free(view);
    *view = of;
}

static void make_test(rule_check *c)
{
    make_pair_of_few(c);
    retype(c, &c->out[0], WEIR_U8);
}

static void make_bytes(rule_check *c)
{
    make_test(c);
    retype(c, &c->in[0], WEIR_U8);
    retype(c, &c->in[1], WEIR_U8);
}

static void make_truth(rule_check *c)
{
    make_function(c);
    retype(c, &c->out[0], WEIR_U8);
}

static void make_not(rule_check *c)
{
    make_truth(c);
    retype(c, &c->in[0], WEIR_U8);
}

static void make_masked(rule_check *c)
{
    make_pair(c);
    retype(c, &c->in[0], WEIR_U8);
    check_int(c, "inverted", 0, check_coin(c));
}

static void make_where(rule_check *c)
{
    make_pair(c);
    retype(c, &c->in[0], WEIR_U8);
    check_in(c, WEIR_F32, check_coin(c) ? c->out[0].shape : (weir_shape){0});
}

static void make_clip(rule_check *c)
{
    make_function(c);
    check_real(c, "lo", check_coin(c) ? check_between(c, -1, 0) : -INFINITY);
    check_real(c, "hi", check_coin(c) ? check_between(c, 0, 1) : INFINITY);
}

static void make_clip_grad(rule_check *c)
{
    make_clip(c);
    check_in(c, WEIR_F32, c->in[0].shape);
}

static void make_add_many(rule_check *c)
{
    const weir_dtype dtype = check_coin(c) ? WEIR_F32 : WEIR_I32;
    const weir_shape shape = check_shape(c, 0, 4);
    for (int64_t left = check_from(c, 1, 6); left; left--)
        check_in(c, dtype, shape);
    check_out(c, dtype, shape);
}

static void make_affine(rule_check *c)
{
    make_function(c);
    check_real(c, "scale", check_between(c, -2, 2));
    check_real(c, "shift", check_between(c, -2, 2));
}

/* Small integers, which all dtypes have. */
static void make_cast(rule_check *c)
{
    const weir_dtype to = check_dtype(c);
    const weir_shape shape = check_shape(c, 0, 4);
    const weir_view *x = check_in(c, check_dtype(c), shape);
    check_out(c, to, shape);
    check_int(c, "dtype", 0, to);
    for (int64_t i = 0; i < weir_shape_count(&shape); i++)
        kernel_set(x, i, (double)check_from(c, 0, 9));
}

/* ---- reductions ---- */

/* Sets the attributes: some dimensions, in any order and counted from either end; or all. Returns the shape of the result. */
static weir_shape some_reduction(rule_check *c, const weir_shape *in)
{
    const bool keep = check_coin(c);
    weir_shape out = {0};
    unsigned reduced = (unsigned)check_from(c, 0, (1 << in->rank) - 1);
    int count = 0;
    for (int d = in->rank; d-- > 0;)
        if (reduced >> d & 1)
            check_int(c, "axes", count++, check_coin(c) ? d : d - in->rank);
    check_int(c, "axis_count", 0, count);
    check_int(c, "keep", 0, keep);
    reduced = count ? reduced : (1u << in->rank) - 1;
    for (int d = 0; d < in->rank; d++)
        if (!(reduced >> d & 1) || keep)
            out.dim[out.rank++] = reduced >> d & 1 ? 1 : in->dim[d];
    return out;
}

static void make_sum(rule_check *c)
{
    const weir_shape in = check_shape(c, 0, 4), out = some_reduction(c, &in);
    c->accumulate = check_coin(c);
    check_in(c, WEIR_F32, in);
    check_out(c, WEIR_F32, out);
}

/* The shards are parts of larger tensors; the mean is that of the logical elements. */
static void make_mean(rule_check *c)
{
    const weir_shape in = check_shape(c, 0, 4), out = some_reduction(c, &in);
    weir_view *x = check_in(c, WEIR_F32, in), *y = check_out(c, WEIR_F32, out);
    for (int d = 0; d < in.rank; d++)
        check_place(c, x, d, check_from(c, 0, 3), 10);
    for (int d = 0; d < out.rank; d++)
        check_place(c, y, d, 0, out.dim[d] == 1 ? 1 : 10);
}

static weir_shape full_shape(rule_check *c, int rank_least, int rank_most)
{
    weir_shape shape = check_shape(c, rank_least, rank_most);
    for (int d = 0; d < shape.rank; d++)
        shape.dim[d] += shape.dim[d] == 0;
    return shape;
}

/* Values of a grid, so that several are the largest. */
static void use_grid(const weir_view *view)
{
    for (int64_t i = 0; i < weir_shape_count(&view->shape); i++)
        kernel_set(view, i, rint(kernel_at(view, i)));
}

static void make_max(rule_check *c)
{
    const weir_shape in = full_shape(c, 0, 4), out = some_reduction(c, &in);
    check_in(c, WEIR_F32, in);
    check_out(c, WEIR_F32, out);
    use_grid(&c->in[0]);
}

static void make_max_grad(rule_check *c)
{
    rule_check max = check_new("max", c->seed);
    make_max(&max);
    check_run(&max);
    memcpy(c->words, max.words, sizeof c->words);
    check_in_of(c, &max.in[0]);
    check_in_of(c, &max.out[0]);
    check_in(c, WEIR_F32, max.out[0].shape);
    check_out(c, WEIR_F32, max.in[0].shape);
    check_free(&max);
}

static void make_sum_to(rule_check *c)
{
    const weir_shape in = check_shape(c, 0, 4), out = check_small_shape(c, &in);
    c->accumulate = check_coin(c);
    check_in(c, WEIR_F32, in);
    check_out(c, WEIR_F32, out);
}

/* ---- rows ---- */

static void make_argmax(rule_check *c)
{
    const weir_shape in = check_shape(c, 1, 4);
    weir_shape x = check_columns(in, check_from(c, 1, 6)), rows = x;
    rows.dim[--rows.rank] = 0;
    check_in(c, WEIR_F32, x);
    check_out(c, WEIR_I32, rows);
    use_grid(&c->in[0]);
}

static void make_softmax(rule_check *c)
{
    const weir_shape shape = check_shape(c, 1, 4);
    check_in(c, WEIR_F32, shape);
    check_out(c, WEIR_F32, shape);
}

static void make_softmax_grad(rule_check *c)
{
    make_softmax(c);
    check_in(c, WEIR_F32, c->in[0].shape);
}

/* x, gain, of layernorm bias -> y, of layernorm the mean, rstd */
static void make_norm(rule_check *c)
{
    const bool centred = !strcmp(c->op->name, "layernorm");
    const weir_shape x = check_columns(check_shape(c, 1, 4), check_from(c, 1, 7));
    weir_shape rows = x;
    rows.dim[--rows.rank] = 0;
    check_real(c, "eps", check_between(c, 1e-3, 1e-2));
    check_in(c, WEIR_F32, x);
    for (int i = 0; i < 1 + centred; i++)
        check_in(c, WEIR_F32, SHAPE(x.dim[x.rank - 1]));
    check_out(c, WEIR_F32, x);
    for (int o = 0; o < 1 + centred; o++)
        check_out(c, WEIR_F32, rows);
}

/* x, gain, of layernorm the mean, rstd, dy -> dx, dgain, of layernorm dbias */
static void make_norm_grad(rule_check *c)
{
    const bool centred = !strcmp(c->op->name, "layernorm_grad");
    const weir_shape x = check_columns(check_shape(c, 1, 4), check_from(c, 1, 7)), columns = SHAPE(x.dim[x.rank - 1]);
    weir_shape rows = x;
    rows.dim[--rows.rank] = 0;
    check_in(c, WEIR_F32, x);
    check_in(c, WEIR_F32, columns);
    for (int i = 0; i < 1 + centred; i++)
        check_in(c, WEIR_F32, rows);
    check_in(c, WEIR_F32, x);
    check_out(c, WEIR_F32, x);
    for (int o = 0; o < 1 + centred; o++)
        check_out(c, WEIR_F32, columns);
}

/* ---- dropout ---- */

/* Elements are numbered in the logical tensor. */
static void make_dropout(rule_check *c)
{
    const weir_shape shape = check_shape(c, 0, 3);
    weir_view *x = check_in(c, WEIR_F32, shape), *y = check_out(c, WEIR_F32, shape), *mask = check_out(c, WEIR_U8, shape);
    weir_view *const views[] = {x, y, mask};
    check_real(c, "rate", check_coin(c) ? check_between(c, 0, 0.95) : 0);
    c->micros = (int)check_from(c, 1, 4);
    c->micro = (int)check_from(c, 0, c->micros - 1);
    c->step = check_from(c, 0, 100);
    for (int d = 0; d < shape.rank; d++) {
        const int64_t start = check_from(c, 0, 50), global = start + shape.dim[d] + check_from(c, 0, 50);
        for (int v = 0; v < 3; v++)
            check_place(c, views[v], d, start, global);
    }
}

static void make_dropout_grad(rule_check *c)
{
    const weir_shape shape = check_shape(c, 0, 4);
    check_real(c, "rate", check_between(c, 0, 0.95));
    check_fill(c, check_in(c, WEIR_U8, shape), 0, 2);
    check_in(c, WEIR_F32, shape);
    check_out(c, WEIR_F32, shape);
}

static const check_case element_cases[] = {
    {"neg", make_function}, {"exp", make_function}, {"log", make_function_of_positive}, {"sqrt", make_function_of_positive},
    {"tanh", make_function}, {"sigmoid", make_function}, {"relu", make_function}, {"gelu", make_function},
    {"silu", make_function}, {"sqrt_grad", make_slope_of_positive}, {"tanh_grad", make_slope}, {"sigmoid_grad", make_slope},
    {"abs", make_function}, {"sin", make_function}, {"cos", make_function}, {"erf", make_function}, {"gelu_erf", make_function},
    {"softplus", make_function}, {"reciprocal", make_function_of_positive}, {"floor", make_function}, {"ceil", make_function},
    {"round", make_function}, {"sign", make_function}, {"abs_grad", make_slope}, {"sin_grad", make_slope}, {"cos_grad", make_slope},
    {"erf_grad", make_slope}, {"gelu_erf_grad", make_slope}, {"softplus_grad", make_slope}, {"reciprocal_grad", make_slope},
    {"relu_grad", make_relu_grad}, {"gelu_grad", make_slope}, {"silu_grad", make_slope}, {"add", make_pair},
    {"sub", make_pair}, {"mul", make_pair}, {"div", make_div},
    {"min2", make_pair_of_few}, {"max2", make_pair_of_few}, {"pow", make_power}, {"pow_da", make_power}, {"pow_db", make_power},
    {"equal", make_test}, {"less", make_test}, {"less_equal", make_test}, {"logical_and", make_bytes},
    {"logical_or", make_bytes}, {"logical_xor", make_bytes}, {"logical_not", make_not}, {"is_nan", make_truth},
    {"where", make_where}, {"masked", make_masked}, {"clip", make_clip}, {"clip_grad", make_clip_grad}, {"add_many", make_add_many}, {"affine", make_affine},
    {"cast", make_cast}, {"sum", make_sum}, {"mean", make_mean}, {"max", make_max}, {"max_grad", make_max_grad},
    {"sum_to", make_sum_to}, {"argmax", make_argmax}, {"softmax", make_softmax}, {"softmax_grad", make_softmax_grad},
    {"layernorm", make_norm}, {"layernorm_grad", make_norm_grad}, {"rmsnorm", make_norm}, {"rmsnorm_grad", make_norm_grad},
    {"dropout", make_dropout}, {"dropout_grad", make_dropout_grad},
};

Test(rules_of_elements, a_function_of_elements_computes_what_its_kernel_computes)
{
    CHECK_TABLE(rules_element, element_cases, check_run);
}

Test(rules_of_elements, no_rule_writes_behind_its_operands_when_sizes_do_not_fit)
{
    CHECK_TABLE(rules_element, element_cases, check_shaken);
}
