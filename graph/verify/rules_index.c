/* graph/verify/rules_index.c: constants and ranges, slices by steps, products of elements. See rule.h. */
#include "graph/verify/rule.h"

static bool index_sizes_differ(const rule_call *call)
{
    return rule_refuse(call, "the sizes of its operands do not fit each other");
}

/* Whether there are so many operands. */
static bool index_operands(const rule_call *call, int ins)
{
    return rule_has_operands(call, ins, 1);
}

/* The axis of the op, among `rank` dimensions; -1: there is none. */
static int index_axis(const rule_call *call, int rank)
{
    const int64_t axis = rule_int(call, "axis", 0), own = axis < 0 ? axis + rank : axis;
    return own >= 0 && own < rank ? (int)own : -1;
}

/* Whether the two differ in nothing but dimension `axis`. */
static bool index_alike_but(const rule_array *a, const rule_array *b, int axis)
{
    bool alike = a->rank == b->rank;
    for (int d = 0; alike && d < a->rank; d++)
        alike = d == axis || a->shape[d] == b->shape[d];
    return alike;
}

/* The place of an index in an array. */
static int64_t index_at(const rule_array *array, const int64_t *index)
{
    int64_t at = 0;
    for (int d = 0; d < array->rank; d++)
        at = at * array->shape[d] + index[d];
    return at;
}

/* ---- without inputs ---- */

/* start + step times `at`; integers are computed as integers. */
static field_value number_at(const rule_array *array, double start, double step, int64_t at)
{
    if (weir_dtype_real(array->dtype))
        return field_add(field_real(start), field_mul(field_real(step), field_int(at)));
    return field_add(field_int((int64_t)start), field_mul(field_int((int64_t)step), field_int(at)));
}

/* Integers that come from a file are within those that a double has. */
static bool is_number(const rule_call *call, const char *name)
{
    const double number = rule_real(call, name, 0);
    return weir_dtype_real(call->out[0].dtype) || (number >= -0x1p53 && number <= 0x1p53) ||
           rule_refuse(call, "%s is %g, which is no integer", name, number);
}

static bool constant_rule(const rule_call *call)
{
    if (!index_operands(call, 0) || !is_number(call, "value"))
        return false;
    for (int64_t n = 0; n < call->out[0].count; n++)
        call->out[0].at[n] = number_at(&call->out[0], rule_real(call, "value", 0), 0, 0);
    return true;
}

static bool range_rule(const rule_call *call)
{
    if (!index_operands(call, 0) || !is_number(call, "start") || !is_number(call, "step"))
        return false;
    if (call->out[0].rank != 1)
        return index_sizes_differ(call);
    for (int64_t n = 0; n < call->out[0].count; n++)
        call->out[0].at[n] = number_at(&call->out[0], rule_real(call, "start", 0), rule_real(call, "step", 0),
                                       call->out[0].start[0] + n);
    return true;
}

/* ---- slices by steps ---- */

/* Whether each element of the slice has a place in the other array; a step may be any number where there is but one element. */
static bool steps_are_inside(int64_t first, int64_t count, int64_t step, int64_t size)
{
    bool inside = first >= 0 && first < size && count > 0;
    for (int64_t i = 1, at = first; inside && i < count; i++) {
        inside = step > -size && step < size && at + step >= 0 && at + step < size;
        at += step;
    }
    return inside;
}

/* `few` has the slice, `many` what it is a slice of. */
static bool steps_fit(const rule_call *call, const rule_array *few, const rule_array *many, int *axis)
{
    const int64_t count = rule_int(call, "count", 0), size = rule_int(call, "size", 0);
    *axis = index_axis(call, few->rank);
    return (*axis >= 0 && index_alike_but(few, many, *axis) && few->shape[*axis] == count && many->shape[*axis] == size &&
            steps_are_inside(rule_int(call, "first", 0), count, rule_int(call, "step", 0), size)) ||
           index_sizes_differ(call);
}

/* The place of element i of the slice. */
static int64_t step_place(const rule_call *call, int64_t i)
{
    return rule_int(call, "first", 0) + (i ? i * rule_int(call, "step", 0) : 0);
}

static bool slice_step_rule(const rule_call *call)
{
    int axis;
    if (!index_operands(call, 1) || !steps_fit(call, &call->out[0], &call->in[0], &axis))
        return false;
    for (int64_t n = 0; n < call->out[0].count; n++) {
        int64_t index[WEIR_DIMS_MAX] = {0};
        rule_index(&call->out[0], n, index);
        index[axis] = step_place(call, index[axis]);
        call->out[0].at[n] = call->in[0].at[index_at(&call->in[0], index)];
    }
    return true;
}

static bool place_step_rule(const rule_call *call)
{
    int axis;
    if (!index_operands(call, 1) || !steps_fit(call, &call->in[0], &call->out[0], &axis))
        return false;
    for (int64_t n = 0; n < call->out[0].count; n++)
        call->out[0].at[n] = field_int(0);
    for (int64_t n = 0; n < call->in[0].count; n++) {
        int64_t index[WEIR_DIMS_MAX] = {0};
        rule_index(&call->in[0], n, index);
        index[axis] = step_place(call, index[axis]);
        call->out[0].at[index_at(&call->out[0], index)] = call->in[0].at[n];
    }
    return true;
}

/* ---- products of elements ---- */

/* The dimensions over which the products go, as a bit each, and whether `array` has one element for each product. */
static bool products_fit(const rule_call *call, const rule_array *array, unsigned *reduced)
{
    const rule_array *in = &call->in[0];
    const int64_t axes = rule_int(call, "axis_count", 0), keep = rule_int(call, "keep", 0);
    bool fits = axes >= 0 && axes <= WEIR_DIMS_MAX;
    int own = 0;
    *reduced = axes ? 0 : (1u << in->rank) - 1;
    for (int i = 0; fits && i < axes; i++) {
        const int64_t axis = rule_int(call, "axes", i), at = axis < 0 ? axis + in->rank : axis;
        fits = at >= 0 && at < in->rank;
        *reduced |= fits ? 1u << at : 0;
    }
    for (int d = 0; fits && d < in->rank; d++) {
        const bool gone = *reduced >> d & 1;
        if (!gone || keep)
            fits = own < array->rank && array->shape[own] == (gone ? 1 : in->shape[d]);
        own += !gone || keep;
    }
    return (fits && own == array->rank) || index_sizes_differ(call);
}

/* The product to which the n-th element of the input belongs. */
static int64_t product_at(const rule_array *in, unsigned reduced, int64_t n)
{
    int64_t index[WEIR_DIMS_MAX] = {0}, at = 0;
    rule_index(in, n, index);
    for (int d = 0; d < in->rank; d++)
        at = reduced >> d & 1 ? at : at * in->shape[d] + index[d];
    return at;
}

static bool prod_rule(const rule_call *call)
{
    unsigned reduced;
    if (!index_operands(call, 1) || !products_fit(call, &call->out[0], &reduced))
        return false;
    for (int64_t r = 0; r < call->out[0].count; r++)
        call->out[0].at[r] = field_int(1);
    for (int64_t n = 0; n < call->in[0].count; n++) {
        field_value *to = &call->out[0].at[product_at(&call->in[0], reduced, n)];
        *to = field_mul(*to, call->in[0].at[n]);
    }
    return true;
}

/* x, dy -> dx: the product of all other terms, times dy. */
static bool prod_grad_rule(const rule_call *call)
{
    unsigned reduced;
    if (!index_operands(call, 2) || !products_fit(call, &call->in[1], &reduced))
        return false;
    if (!rule_same_shape(&call->in[0], &call->out[0]))
        return index_sizes_differ(call);
    for (int64_t n = 0; n < call->in[0].count; n++) {
        const int64_t own = product_at(&call->in[0], reduced, n);
        field_value product = call->in[1].at[own];
        for (int64_t m = 0; m < call->in[0].count; m++)
            if (m != n && product_at(&call->in[0], reduced, m) == own)
                product = field_mul(product, call->in[0].at[m]);
        call->out[0].at[n] = product;
    }
    return true;
}

const rule_entry rules_index[] = {
    {"constant", constant_rule},
    {"range", range_rule},
    {"slice_step", slice_step_rule},
    {"place_step", place_step_rule},
    {"prod", prod_rule},
    {"prod_grad", prod_grad_rule},
    {NULL, NULL},
};
