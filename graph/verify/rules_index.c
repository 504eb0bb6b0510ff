/* graph/verify/rules_index.c: constants and ranges, slices by steps, products of elements, elements by ids. See rule.h. */
#include "graph/verify/rule.h"

#include <math.h>

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

/* ---- elements and slices by ids ---- */

/* Element n of the ids, as one of `size` places. */
static bool place_of_id(const rule_call *call, const rule_array *ids, int64_t n, int64_t size, int64_t *place)
{
    if (!field_is_int(ids->at[n], place))
        return rule_refuse(call, "the id in element %lld is no integer", (long long)n);
    if (*place < -size || *place >= size)
        return rule_refuse(call, "id %lld in element %lld: must be in %lld..%lld", (long long)*place, (long long)n, -(long long)size,
                           (long long)size - 1);
    *place += *place < 0 ? size : 0;
    return true;
}

/* A call of one of these ops: x or its gradient, and what is picked from x or its gradient. */
typedef struct index_call {
    const rule_call *call;
    const rule_array *x, *ids, *y;
    bool grad;
    int axis; /* or the number of batch dimensions */
} index_call;

static bool index_call_of(const rule_call *call, const char *axis, bool grad, index_call *c)
{
    if (!index_operands(call, 2))
        return false;
    *c = (index_call){call, grad ? &call->out[0] : &call->in[0], &call->in[grad ? 0 : 1], grad ? &call->in[1] : &call->out[0], grad, 0};
    const int64_t given = rule_int(call, axis, 0), own = given < 0 && *axis == 'a' ? given + c->x->rank : given;
    c->axis = own >= 0 && own < c->x->rank ? (int)own : -1;
    if (c->axis < 0)
        return rule_refuse(call, "%s is %lld, and x has %d dimensions", axis, (long long)given, c->x->rank);
    for (int64_t n = 0; grad && !call->accumulate && n < c->x->count; n++)
        c->x->at[n] = field_int(0);
    return true;
}

/* The size of the axis in the whole tensor. */
static int64_t whole_axis(const index_call *c)
{
    return c->grad ? rule_int(c->call, "dim", c->axis) : c->x->global[c->axis];
}

/* Element n of y belongs to the place of x; -1: x does not have it here. */
static void index_move(const index_call *c, int64_t n, int64_t place)
{
    if (!c->grad)
        c->y->at[n] = place < 0 ? field_int(0) : c->x->at[place];
    else if (place >= 0)
        c->x->at[place] = field_add(c->x->at[place], c->y->at[n]);
}

/* Puts the place along the axis, of the whole tensor, into the index, and finds the element of x. */
static int64_t index_along(const index_call *c, int64_t *index, int64_t place)
{
    index[c->axis] = place - c->x->start[c->axis];
    return index[c->axis] >= 0 && index[c->axis] < c->x->shape[c->axis] ? index_at(c->x, index) : -1;
}

/* y [x before the axis, ids, x behind the axis] */
static bool gather_fits(const index_call *c)
{
    const int more = c->ids->rank - 1;
    bool fits = c->y->rank == c->x->rank + more;
    for (int d = 0; fits && d < c->x->rank; d++)
        fits = d == c->axis || c->y->shape[d < c->axis ? d : d + more] == c->x->shape[d];
    for (int d = 0; fits && d < c->ids->rank; d++)
        fits = c->y->shape[c->axis + d] == c->ids->shape[d];
    return fits || index_sizes_differ(c->call);
}

static bool gather_of(const rule_call *call, bool grad)
{
    index_call c;
    if (!index_call_of(call, "axis", grad, &c) || !gather_fits(&c))
        return false;
    for (int64_t n = 0; n < c.y->count; n++) {
        int64_t y[WEIR_DIMS_MAX] = {0}, x[WEIR_DIMS_MAX] = {0}, place;
        rule_index(c.y, n, y);
        for (int d = 0; d < c.x->rank; d++)
            x[d] = d == c.axis ? 0 : y[d < c.axis ? d : d + c.ids->rank - 1];
        if (!place_of_id(call, c.ids, index_at(c.ids, y + c.axis), whole_axis(&c), &place))
            return false;
        index_move(&c, n, index_along(&c, x, place));
    }
    for (int64_t n = 0; n < c.ids->count; n++) { /* also those of which x has nothing */
        int64_t place;
        if (!place_of_id(call, c.ids, n, whole_axis(&c), &place))
            return false;
    }
    return true;
}

/* x [batch, parts, rest], ids [batch, i, parts] -> y [batch, i, rest] */
static bool gather_nd_fits(const index_call *c, int parts)
{
    const int lead = c->ids->rank - 1;
    bool fits = c->axis < c->ids->rank && parts >= 1 && c->axis + parts <= c->x->rank && c->y->rank == lead + c->x->rank - c->axis - parts;
    for (int d = 0; fits && d < lead; d++)
        fits = c->y->shape[d] == c->ids->shape[d] && (d >= c->axis || c->x->shape[d] == c->ids->shape[d]);
    for (int d = c->axis + parts; fits && d < c->x->rank; d++)
        fits = c->y->shape[lead + d - c->axis - parts] == c->x->shape[d];
    return fits || index_sizes_differ(c->call);
}

/* The index of x that the ids of a slice tell; it begins with the batch. */
static bool gather_nd_place(const index_call *c, int64_t slice, int parts, int64_t *x)
{
    for (int p = 0; p < parts; p++)
        if (!place_of_id(c->call, c->ids, slice * parts + p, c->x->shape[c->axis + p], &x[c->axis + p]))
            return false;
    return true;
}

static bool gather_nd_of(const rule_call *call, bool grad)
{
    index_call c;
    if (!index_call_of(call, "batch_dims", grad, &c))
        return false;
    const int lead = c.ids->rank - 1;
    const int64_t last = lead >= 0 ? c.ids->shape[lead] : 0;
    const int parts = last <= WEIR_DIMS_MAX ? (int)last : 0;
    if (!gather_nd_fits(&c, parts))
        return false;
    const int64_t rest = rule_size(c.y, lead, c.y->rank), slices = c.ids->count / parts;
    for (int64_t slice = 0; slice < slices; slice++) {
        int64_t lead_index[WEIR_DIMS_MAX] = {0}, x[WEIR_DIMS_MAX] = {0}, left = slice;
        for (int d = lead; d-- > 0; left /= c.ids->shape[d])
            lead_index[d] = left % c.ids->shape[d];
        for (int d = 0; d < c.axis; d++)
            x[d] = lead_index[d];
        if (!gather_nd_place(&c, slice, parts, x))
            return false;
        const int64_t first = index_at(c.x, x);
        for (int64_t i = 0; i < rest; i++)
            index_move(&c, slice * rest + i, first + i);
    }
    return true;
}

static bool gather_elements_of(const rule_call *call, bool grad)
{
    index_call c;
    if (!index_call_of(call, "axis", grad, &c))
        return false;
    bool fits = c.ids->rank == c.x->rank && rule_same_shape(c.ids, c.y);
    for (int d = 0; fits && d < c.x->rank; d++)
        fits = d == c.axis || c.ids->shape[d] <= c.x->shape[d];
    if (!fits)
        return index_sizes_differ(call);
    for (int64_t n = 0; n < c.y->count; n++) {
        int64_t x[WEIR_DIMS_MAX] = {0}, place;
        rule_index(c.y, n, x);
        if (!place_of_id(call, c.ids, n, whole_axis(&c), &place))
            return false;
        index_move(&c, n, index_along(&c, x, place));
    }
    return true;
}

/* ---- other sizes ---- */

/* The coordinate of place j, as ONNX's Resize has it. The numbers are those of weir_resize_opts. */
static double coordinate_of(const rule_call *call, double j)
{
    const double size = (double)rule_int(call, "size", 0), count = (double)rule_int(call, "count", 0), scale = rule_real(call, "scale", 0);
    switch (rule_int(call, "coordinates", 0)) {
    case 1:
        return j / scale;
    case 2:
        return count > 1 ? j * (size - 1) / (count - 1) : 0;
    case 3:
        return count > 1 ? (j + 0.5) / scale - 0.5 : 0;
    default:
        return (j + 0.5) / scale - 0.5;
    }
}

/* The weight that place s of the input has in place j of the output. */
static double resize_weight(const rule_call *call, int64_t s, int64_t j)
{
    const double last = (double)rule_int(call, "size", 0) - 1;
    double at = coordinate_of(call, (double)j);
    if (!rule_int(call, "mode", 0)) {
        const int64_t round = rule_int(call, "round", 0);
        at = round == 0 ? ceil(at - 0.5) : round == 1 ? floor(at + 0.5) : round == 2 ? floor(at) : ceil(at);
    }
    at = fmin(fmax(at, 0), last);
    return fmax(0, 1 - fabs(at - (double)s));
}

static bool resize_of(const rule_call *call, bool grad)
{
    if (!index_operands(call, 1))
        return false;
    const rule_array *from = &call->in[0], *to = &call->out[0];
    const int axis = index_axis(call, from->rank);
    const int64_t size = rule_int(call, "size", 0), count = rule_int(call, "count", 0);
    if (axis < 0 || !index_alike_but(from, to, axis) || from->shape[axis] != (grad ? count : size) ||
        to->shape[axis] != (grad ? size : count))
        return index_sizes_differ(call);
    for (int64_t n = 0; n < to->count; n++) {
        int64_t index[WEIR_DIMS_MAX] = {0};
        rule_index(to, n, index);
        const int64_t own = index[axis];
        to->at[n] = field_int(0);
        for (index[axis] = 0; index[axis] < from->shape[axis]; index[axis]++) {
            const double weight = grad ? resize_weight(call, own, index[axis]) : resize_weight(call, index[axis], own);
            if (weight > 0)
                to->at[n] = field_add(to->at[n], field_mul(field_real(weight), from->at[index_at(from, index)]));
        }
    }
    return true;
}

/* ---- lines along an axis ---- */

static bool cumsum_rule(const rule_call *call)
{
    if (!index_operands(call, 1))
        return false;
    const rule_array *x = &call->in[0], *y = &call->out[0];
    const int axis = index_axis(call, x->rank);
    const bool exclusive = rule_int(call, "exclusive", 0), reverse = rule_int(call, "reverse", 0);
    if (axis < 0 || !rule_same_shape(x, y))
        return index_sizes_differ(call);
    for (int64_t n = 0; n < y->count; n++) {
        int64_t index[WEIR_DIMS_MAX] = {0};
        rule_index(y, n, index);
        const int64_t own = index[axis];
        y->at[n] = field_int(0);
        for (int64_t i = 0; i < x->shape[axis]; i++) {
            index[axis] = i;
            if (i == own ? !exclusive : reverse ? i > own : i < own)
                y->at[n] = field_add(y->at[n], x->at[index_at(x, index)]);
        }
    }
    return true;
}

/* Whether element a of the line comes before element b. */
static bool comes_before(const rule_call *call, const rule_array *x, int64_t *index, int axis, int64_t a, int64_t b)
{
    index[axis] = a;
    const field_value first = x->at[index_at(x, index)];
    index[axis] = b;
    const field_value second = x->at[index_at(x, index)];
    return field_larger(call->seed, first, second) || (!field_larger(call->seed, second, first) && a < b);
}

/* Each element goes to the place that has as many elements before it. */
static bool top_k_rule(const rule_call *call)
{
    if (!rule_has_operands(call, 1, 2))
        return false;
    const rule_array *x = &call->in[0], *values = &call->out[0], *indices = &call->out[1];
    const int axis = index_axis(call, x->rank);
    if (axis < 0 || !index_alike_but(x, values, axis) || !rule_same_shape(values, indices) || values->shape[axis] > x->shape[axis])
        return index_sizes_differ(call);
    for (int64_t n = 0; n < x->count; n++) {
        int64_t index[WEIR_DIMS_MAX] = {0}, place = 0;
        rule_index(x, n, index);
        const int64_t own = index[axis];
        for (int64_t i = 0; i < x->shape[axis]; i++)
            place += i != own && comes_before(call, x, index, axis, i, own);
        index[axis] = place;
        if (place >= values->shape[axis])
            continue;
        values->at[index_at(values, index)] = x->at[n];
        indices->at[index_at(indices, index)] = field_int(own);
    }
    return true;
}

#define INDEX_RULES(name)                                   \
    static bool name##_rule(const rule_call *call)          \
    {                                                       \
        return name##_of(call, false);                      \
    }                                                       \
    static bool name##_grad_rule(const rule_call *call)     \
    {                                                       \
        return name##_of(call, true);                       \
    }
INDEX_RULES(gather)
INDEX_RULES(gather_nd)
INDEX_RULES(gather_elements)
INDEX_RULES(resize)

const rule_entry rules_index[] = {
    {"constant", constant_rule},
    {"range", range_rule},
    {"slice_step", slice_step_rule},
    {"place_step", place_step_rule},
    {"prod", prod_rule},
    {"prod_grad", prod_grad_rule},
    {"gather", gather_rule},
    {"gather_grad", gather_grad_rule},
    {"gather_nd", gather_nd_rule},
    {"gather_nd_grad", gather_nd_grad_rule},
    {"gather_elements", gather_elements_rule},
    {"gather_elements_grad", gather_elements_grad_rule},
    {"resize", resize_rule},
    {"resize_grad", resize_grad_rule},
    {"cumsum", cumsum_rule},
    {"top_k", top_k_rule},
    {NULL, NULL},
};
