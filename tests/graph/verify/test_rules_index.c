/* test_rules_index.c: the rules of constants, ranges and elements by index, held against the CPU kernels. */
#include "tests/graph/verify/rule_check.h"

TestSuite(rules_of_indexes, .timeout = 60);

/* ---- without inputs ---- */

static void make_constant(rule_check *c)
{
    const weir_dtype dtype = check_dtype(c);
    const weir_shape shape = check_shape(c, 0, 4);
    check_int(c, "rank", 0, shape.rank);
    check_int(c, "dtype", 0, dtype);
    check_real(c, "value", weir_dtype_real(dtype) ? check_between(c, -2, 2) : (double)check_from(c, 0, 9));
    if (dtype == WEIR_F16 || dtype == WEIR_BF16)
        check_real(c, "value", 0.25 * (double)check_from(c, -9, 9));
    for (int d = 0; d < shape.rank; d++)
        check_int(c, "dim", d, shape.dim[d] + 1);
    check_out(c, dtype, shape);
}

/* A part of a range. */
static void make_range(rule_check *c)
{
    const weir_dtype dtype = check_dtype(c);
    const int64_t all = check_from(c, 1, 9), start = check_from(c, 0, all), count = check_from(c, 0, all - start);
    check_int(c, "dtype", 0, dtype);
    check_int(c, "count", 0, all);
    check_real(c, "start", (double)check_from(c, 0, 5));
    check_real(c, "step", dtype == WEIR_F32 ? check_between(c, -2, 2) : (double)check_from(c, 0, 3));
    check_place(c, check_out(c, dtype, SHAPE(count)), 0, start, all);
}

/* ---- slices by steps ---- */

static void make_step(rule_check *c, bool places)
{
    const weir_dtype dtype = check_dtype(c);
    weir_shape few = check_shape(c, 1, 4), many;
    const int axis = (int)check_from(c, 0, few.rank - 1);
    const int64_t count = check_from(c, 1, 4), step = check_from(c, 1, 3), ends = check_from(c, 0, 2);
    const int64_t size = (count - 1) * step + 1 + ends, first = check_from(c, 0, ends);
    const bool back = check_coin(c);
    few.dim[axis] = count;
    many = few;
    many.dim[axis] = size;
    check_int(c, "axis", 0, check_coin(c) ? axis : axis - few.rank);
    check_int(c, "first", 0, back ? first + (count - 1) * step : first);
    check_int(c, "count", 0, count);
    check_int(c, "step", 0, back ? -step : step);
    check_int(c, "size", 0, size);
    check_in(c, dtype, places ? few : many);
    check_out(c, dtype, places ? many : few);
}

static void make_slice_step(rule_check *c)
{
    make_step(c, false);
}

static void make_place_step(rule_check *c)
{
    make_step(c, true);
}

/* ---- products of elements ---- */

static void make_prod(rule_check *c)
{
    const weir_shape in = check_shape(c, 0, 3);
    const unsigned reduced = in.rank ? (unsigned)check_from(c, 1, (1 << in.rank) - 1) : 0;
    const bool keep = check_coin(c);
    weir_shape out = {0};
    int count = 0;
    for (int d = 0; d < in.rank; d++) {
        if (reduced >> d & 1)
            check_int(c, "axes", count++, check_coin(c) ? d : d - in.rank);
        if (!(reduced >> d & 1) || keep)
            out.dim[out.rank++] = reduced >> d & 1 ? 1 : in.dim[d];
    }
    check_int(c, "axis_count", 0, count);
    check_int(c, "keep", 0, keep);
    check_fill(c, check_in(c, WEIR_F32, in), -1.2, 1.2);
    check_out(c, WEIR_F32, out);
}

static void make_prod_grad(rule_check *c)
{
    rule_check forward = check_new("prod", c->seed);
    make_prod(&forward);
    memcpy(c->words, forward.words, sizeof c->words);
    check_in_of(c, &forward.in[0]);
    check_in(c, WEIR_F32, forward.out[0].shape);
    check_out(c, WEIR_F32, forward.in[0].shape);
    check_free(&forward);
}

/* ---- elements and slices by ids ---- */

/* Ids of places among `size`, from the end in part; in some calls one of them is wrong, and then the call is refused. */
static void fill_ids(rule_check *c, const weir_view *ids, int64_t size)
{
    const int64_t count = weir_shape_count(&ids->shape);
    check_fill(c, ids, (double)-size, (double)size);
    if (!count || check_from(c, 0, 9))
        return;
    kernel_set(ids, check_from(c, 0, count - 1), check_coin(c) ? (double)-size - 1 : (double)size);
    c->refuses = true;
}

static weir_shape dims_of(weir_shape to, const weir_shape *from, int first, int end)
{
    for (int d = first; d < end; d++)
        to.dim[to.rank++] = from->dim[d];
    return to;
}

/* Sets the attributes of a gradient, if it is one, and adds the operands in their order. Along the axis x is a part of `all`. */
static void add_indexed(rule_check *c, const char *axis_name, int64_t axis, weir_shape x, weir_shape ids, weir_shape y, int64_t all)
{
    const bool grad = strstr(c->op->name, "_grad") != NULL, nd = axis_name[0] == 'b';
    const int at = (int)(axis < 0 ? axis + x.rank : axis);
    check_int(c, axis_name, 0, axis);
    weir_view *id = NULL;
    if (grad) {
        check_int(c, "rank", 0, x.rank);
        for (int d = 0; d < x.rank; d++)
            check_int(c, "dim", d, d == at && !nd ? all : x.dim[d] + (x.dim[d] == 0));
        c->accumulate = check_coin(c);
        id = check_in(c, WEIR_I32, ids);
        check_in(c, WEIR_F32, y);
    }
    weir_view *view = grad ? check_out(c, WEIR_F32, x) : check_in(c, WEIR_F32, x);
    if (!grad) {
        id = check_in(c, WEIR_I32, ids);
        check_out(c, WEIR_F32, y);
    }
    if (!nd)
        check_place(c, view, at, check_from(c, 0, all - x.dim[at]), all);
    fill_ids(c, id, all);
}

static void make_gather(rule_check *c)
{
    weir_shape x = check_shape(c, 1, 3);
    const weir_shape ids = check_shape(c, 0, 3);
    const int axis = (int)check_from(c, 0, x.rank - 1);
    const int64_t all = check_from(c, 1, 6);
    x.dim[axis] = check_from(c, 0, all);
    weir_shape y = dims_of((weir_shape){0}, &x, 0, axis);
    y = dims_of(dims_of(y, &ids, 0, ids.rank), &x, axis + 1, x.rank);
    add_indexed(c, "axis", check_coin(c) ? axis : axis - x.rank, x, ids, y, all);
}

/* All indexed dimensions have one size, so that any of the ids is right, or wrong, in any. */
static void make_gather_nd(rule_check *c)
{
    const int batch = (int)check_from(c, 0, 1), parts = (int)check_from(c, 1, 2), rest = (int)check_from(c, 0, 2);
    const int64_t size = check_from(c, 1, 5);
    weir_shape x = check_shape(c, batch + parts + rest, batch + parts + rest), y, ids = {0};
    for (int p = 0; p < parts; p++)
        x.dim[batch + p] = size;
    ids = dims_of(ids, &x, 0, batch);
    for (int left = (int)check_from(c, 0, 2); left; left--)
        ids.dim[ids.rank++] = check_size(c, 4);
    y = dims_of(ids, &x, batch + parts, x.rank);
    ids.dim[ids.rank++] = parts;
    add_indexed(c, "batch_dims", batch, x, ids, y, size);
}

static void make_gather_elements(rule_check *c)
{
    weir_shape x = check_shape(c, 1, 4), ids = x;
    const int axis = (int)check_from(c, 0, x.rank - 1);
    const int64_t all = check_from(c, 1, 6);
    for (int d = 0; d < x.rank; d++)
        ids.dim[d] = check_coin(c) ? x.dim[d] : check_from(c, 0, x.dim[d]);
    ids.dim[axis] = check_size(c, 7);
    x.dim[axis] = check_from(c, 0, all);
    add_indexed(c, "axis", check_coin(c) ? axis : axis - x.rank, x, ids, ids, all);
}

/* ---- other sizes ---- */

static void make_resize(rule_check *c)
{
    const bool grad = strstr(c->op->name, "_grad") != NULL;
    weir_shape few = check_shape(c, 1, 3), many = few;
    const int axis = (int)check_from(c, 0, few.rank - 1);
    const int64_t size = check_from(c, 1, 7), count = check_from(c, 1, 9);
    const double scales[] = {(double)count / (double)size, 0.6, 2.5};
    few.dim[axis] = size;
    many.dim[axis] = count;
    check_int(c, "axis", 0, check_coin(c) ? axis : axis - few.rank);
    check_int(c, "size", 0, size);
    check_int(c, "count", 0, count);
    check_int(c, "mode", 0, check_from(c, 0, 1));
    check_int(c, "coordinates", 0, check_from(c, 0, 3));
    check_int(c, "round", 0, check_from(c, 0, 3));
    check_real(c, "scale", scales[check_from(c, 0, 2)]);
    check_in(c, WEIR_F32, grad ? many : few);
    check_out(c, WEIR_F32, grad ? few : many);
}

/* ---- lines along an axis ---- */

static void make_cumsum(rule_check *c)
{
    const weir_shape shape = check_shape(c, 1, 3);
    const weir_dtype dtype = check_coin(c) ? WEIR_F32 : WEIR_I32;
    check_int(c, "axis", 0, check_from(c, -shape.rank, shape.rank - 1));
    check_int(c, "exclusive", 0, check_coin(c));
    check_int(c, "reverse", 0, check_coin(c));
    check_in(c, dtype, shape);
    check_out(c, dtype, shape);
}

/* Values of a grid, so that several are equal. */
static void make_top_k(rule_check *c)
{
    weir_shape x = check_shape(c, 1, 3), y = x;
    const int axis = (int)check_from(c, 0, x.rank - 1);
    x.dim[axis] = check_from(c, 1, 8);
    y.dim[axis] = check_from(c, 1, x.dim[axis]);
    check_int(c, "axis", 0, check_coin(c) ? axis : axis - x.rank);
    check_int(c, "count", 0, y.dim[axis]);
    const weir_view *in = check_in(c, WEIR_F32, x);
    for (int64_t i = 0; i < weir_shape_count(&x); i++)
        kernel_set(in, i, (double)check_from(c, -3, 3));
    check_out(c, WEIR_F32, y);
    check_out(c, WEIR_I32, y);
}

static const check_case index_cases[] = {
    {"constant", make_constant}, {"range", make_range}, {"slice_step", make_slice_step}, {"place_step", make_place_step},
    {"prod", make_prod}, {"prod_grad", make_prod_grad}, {"gather", make_gather}, {"gather_grad", make_gather},
    {"gather_nd", make_gather_nd}, {"gather_nd_grad", make_gather_nd}, {"gather_elements", make_gather_elements},
    {"gather_elements_grad", make_gather_elements}, {"resize", make_resize}, {"resize_grad", make_resize},
    {"cumsum", make_cumsum}, {"top_k", make_top_k},
};

Test(rules_of_indexes, an_op_computes_what_its_kernel_computes)
{
    CHECK_TABLE(rules_index, index_cases, check_run);
}

Test(rules_of_indexes, no_rule_writes_behind_its_operands_when_sizes_do_not_fit)
{
    CHECK_TABLE(rules_index, index_cases, check_shaken);
}
