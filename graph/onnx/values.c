/* graph/onnx/values.c: the values of names, and what operators ask of them: their readers, elements, sizes and attributes; and how a
 * known value becomes a tensor of the graph.
 */
#include "graph/onnx/fold.h"

#include "graph/base/base.h"
#include "graph/base/error.h"
#include "graph/model/build.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- values ---- */

static onnx_value **slot_of(const onnx_names *names, const char *name)
{
    uint64_t mask = (uint64_t)names->room - 1, at = name_hash(name) & mask;
    while (names->slot[at] && strcmp(names->slot[at]->name, name) != 0)
        at = (at + 1) & mask;
    return &names->slot[at];
}

static bool make_room(onnx_importer *im, onnx_names *names)
{
    if (names->count * 2 < names->room)
        return true;
    onnx_names larger = {.count = names->count, .room = names->room ? names->room * 2 : 256};
    larger.slot = POOL_NEW(im->pool, onnx_value *, larger.room);
    for (int i = 0; larger.slot && i < names->room; i++)
        if (names->slot[i])
            *slot_of(&larger, names->slot[i]->name) = names->slot[i];
    if (!larger.slot)
        return onnx_no_memory(im);
    *names = larger;
    return true;
}

/* The entry of a name, which may be new. NULL: no memory. */
static onnx_value *entry(onnx_importer *im, onnx_names *names, const char *name)
{
    if (!make_room(im, names))
        return NULL;
    onnx_value **slot = slot_of(names, name);
    if (!*slot) {
        *slot = POOL_NEW(im->pool, onnx_value, 1);
        names->count += *slot != NULL;
        if (*slot)
            (*slot)->name = name;
        else
            onnx_no_memory(im);
    }
    return *slot;
}

onnx_value *onnx_value_find(onnx_importer *im, const char *name)
{
    return im->values.room ? *slot_of(&im->values, name) : NULL;
}

onnx_value *onnx_value_make(onnx_importer *im, const char *name)
{
    onnx_value *value = entry(im, &im->values, name);
    if (value)
        *value = (onnx_value){.name = name};
    return value;
}

/* ---- readers ---- */

static bool read_by(onnx_importer *im, const char *name, const onnx_node *node, int times)
{
    onnx_value *value = *name ? entry(im, &im->readers, name) : NULL;
    if (value) {
        value->reader = node;
        value->readers += times;
    }
    return value || !*name;
}

/* Counts the readers of all names, in graphs inside of nodes too. An output or a state counts twice, so it has no only reader. */
bool onnx_count_readers(onnx_importer *im, const onnx_graph *graph)
{
    bool ok = true;
    for (int i = 0; i < graph->nodes.count && ok; i++) {
        const onnx_node *node = &graph->nodes.item[i];
        for (int k = 0; k < node->in.count && ok; k++)
            ok = read_by(im, node->in.item[k], node, 1);
        for (int k = 0; k < node->attributes.count && ok; k++)
            if (node->attributes.item[k].g)
                ok = onnx_count_readers(im, node->attributes.item[k].g);
    }
    for (int i = 0; i < graph->outputs.count && ok; i++)
        ok = read_by(im, graph->outputs.item[i].name, NULL, 2);
    for (int i = 0; i < WEIR_ONNX_NAMES_MAX && im->opts->state[i].out && ok; i++)
        ok = read_by(im, im->opts->state[i].out, NULL, 2);
    return ok;
}

static const onnx_value *readers_of(onnx_importer *im, const char *name)
{
    return *name && im->readers.room ? *slot_of(&im->readers, name) : NULL;
}

int onnx_readers(onnx_importer *im, const char *name)
{
    const onnx_value *value = readers_of(im, name);
    return value ? value->readers : 0;
}

const onnx_node *onnx_only_reader(onnx_importer *im, int k)
{
    const onnx_value *value = readers_of(im, k < im->node->out.count ? im->node->out.item[k] : "");
    return value && value->readers == 1 ? value->reader : NULL;
}

bool onnx_has_in(const onnx_node *node, int i)
{
    return i < node->in.count && *node->in.item[i];
}

onnx_value *onnx_in(onnx_importer *im, int i)
{
    return onnx_has_in(im->node, i) ? onnx_value_find(im, im->node->in.item[i]) : NULL;
}

/* ---- names ---- */

const char *onnx_fresh_name(onnx_importer *im, const char *base)
{
    const char *name = base;
    for (int i = 1; name && graph_name_used(im->graph, name); i++)
        name = pool_text(im->pool, "%s#%d", base, i);
    return name ? name : base;
}

static const char *first_out(const onnx_node *node)
{
    for (int i = 0; i < node->out.count; i++)
        if (*node->out.item[i])
            return node->out.item[i];
    return *node->name ? node->name : node->op;
}

const char *onnx_name(onnx_importer *im)
{
    const char *base = im->node ? first_out(im->node) : "value";
    const char *name = pool_text(im->pool, "%s#%d", base, ++im->made);
    return onnx_fresh_name(im, name ? name : base);
}

const char *onnx_out_name(onnx_importer *im, int out)
{
    const bool there = out < im->node->out.count && *im->node->out.item[out];
    return there ? onnx_fresh_name(im, im->node->out.item[out]) : onnx_name(im);
}

/* ---- constants of the graph ---- */

weir_dtype onnx_dtype(int type)
{
    switch (type) {
    case ONNX_FLOAT: return WEIR_F32;
    case ONNX_FLOAT16: return WEIR_F16;
    case ONNX_BFLOAT16: return WEIR_BF16;
    case ONNX_INT32: return WEIR_I32;
    case ONNX_INT64: return WEIR_I64;
    case ONNX_INT8: return WEIR_I8;
    case ONNX_UINT8:
    case ONNX_BOOL: return WEIR_U8;
    default: return WEIR_DTYPE_NONE;
    }
}

bool onnx_shape_of(onnx_importer *im, const char *name, int rank, const int64_t *dim, weir_shape *shape)
{
    if (rank > WEIR_DIMS_MAX)
        return ONNX_UNSUPPORTED(im, "%s has %d dimensions; weir has at most %d", name, rank, WEIR_DIMS_MAX);
    shape->rank = rank;
    for (int d = 0; d < rank; d++) {
        if (dim[d] <= 0)
            return ONNX_UNSUPPORTED(im, "%s has no elements: its dimension %d is %lld; weir has no empty tensors", name, d,
                                    (long long)dim[d]);
        shape->dim[d] = dim[d];
    }
    return true;
}

/* Whether all elements are equal, and a double has them. */
static bool uniform(const onnx_array *a)
{
    const size_t bytes = onnx_type_bytes(a->type), count = (size_t)array_count(a);
    const char *data = a->data;
    return !memcmp(data, data + bytes, (count - 1) * bytes) &&
           (onnx_type_real(a->type) ? isfinite(array_real(a, 0)) : llabs(array_integer(a, 0)) < INT64_C(1) << 53);
}

/* A constant whose elements are equal needs no bytes in a file. */
static weir_tensor *filled(onnx_importer *im, const char *name, const onnx_array *array, weir_dtype dtype, const weir_shape *shape)
{
    weir_constant_opts opts = {.size = sizeof opts, .src = im->src, .name = onnx_fresh_name(im, name), .value = array_real(array, 0)};
    memcpy(opts.dims, shape->dim, sizeof(int64_t) * (size_t)shape->rank);
    return weir_constant_at(im->graph, dtype, &opts);
}

weir_tensor *onnx_parameter(onnx_importer *im, const char *name, const onnx_array *array, bool trains)
{
    weir_shape shape = {0};
    const weir_dtype dtype = onnx_dtype(array->type);
    if (!dtype) {
        ONNX_UNSUPPORTED(im, "%s is of %s, which no tensor of weir has", name, onnx_type_name(array->type));
        return NULL;
    }
    if (!onnx_shape_of(im, name, array->rank, array->dim, &shape))
        return NULL;
    if (!trains && uniform(array))
        return filled(im, name, array, dtype, &shape);
    weir_param_opts opts = {.size = sizeof opts, .src = im->src, .name = onnx_fresh_name(im, name), .frozen = !trains};
    memcpy(opts.shape, shape.dim, sizeof(int64_t) * (size_t)shape.rank);
    weir_tensor *tensor = weir_param_at(im->graph, dtype, &opts);
    graph_value *value = tensor && !tensor->poisoned ? POOL_PUSH(im->pool, &im->graph->values) : NULL;
    if (!value) {
        weir_graph_mistake(im->graph) ? onnx_refuse(im, WEIR_E_GRAPH, "%s", weir_graph_mistake(im->graph)) : onnx_no_memory(im);
        return NULL;
    }
    *value = (graph_value){tensor, array->data};
    return tensor;
}

weir_tensor *onnx_constant(onnx_importer *im, const onnx_array *array)
{
    return onnx_parameter(im, onnx_name(im), array, false);
}

weir_tensor *onnx_tensor(onnx_importer *im, onnx_value *value)
{
    if (!value->tensor && value->known)
        value->tensor = onnx_parameter(im, value->name, value->known, value->weight);
    return value->tensor;
}

weir_tensor *onnx_tensor_in(onnx_importer *im, int i)
{
    onnx_value *value = onnx_in(im, i);
    if (value)
        return onnx_tensor(im, value);
    ONNX_WRONG(im, "input %d is missing", i);
    return NULL;
}

/* ---- known values ---- */

const onnx_array *onnx_known_in(onnx_importer *im, int i)
{
    const onnx_value *value = onnx_in(im, i);
    if (value && value->known)
        return value->known;
    if (value)
        ONNX_UNSUPPORTED(im, "input %d, %s, must be known at import, as sizes depend on it; if it comes from an input of the model, "
                             "give that one's value (--value NAME=VALUE, .value)", i, value->name);
    else
        ONNX_WRONG(im, "input %d is missing", i);
    return NULL;
}

int onnx_integers_in(onnx_importer *im, int i, int64_t *list, int room)
{
    const onnx_array *a = onnx_known_in(im, i);
    const int64_t count = a ? array_count(a) : -1;
    if (count > room) {
        ONNX_UNSUPPORTED(im, "input %d has %lld elements; at most %d can be", i, (long long)count, room);
        return -1;
    }
    for (int64_t k = 0; k < count; k++)
        list[k] = array_integer(a, k);
    return (int)count;
}

weir_shape onnx_shape(onnx_importer *im, const onnx_value *value)
{
    weir_shape shape = {0};
    if (!value->known)
        return weir_tensor_type(value->tensor).shape;
    onnx_shape_of(im, value->name, value->known->rank, value->known->dim, &shape);
    return shape;
}

onnx_array *onnx_array_new(onnx_importer *im, int type, int rank, const int64_t *dim)
{
    onnx_array *a = POOL_NEW(im->pool, onnx_array, 1);
    int64_t count = 1; /* without sizes of 0, so that no product of sizes overflows later */
    bool fits = rank <= ONNX_DIMS_MAX && onnx_type_bytes(type), empty = false;
    for (int d = 0; d < rank && fits; d++) {
        empty |= !dim[d];
        fits = dim[d] >= 0 && !__builtin_mul_overflow(count, dim[d] ? dim[d] : 1, &count) && count <= ONNX_ELEMENTS_MAX;
    }
    if (!fits) {
        ONNX_UNSUPPORTED(im, "it makes a constant of %s with %d dimensions that is negative, or has more than %lld elements",
                         onnx_type_name(type), rank, (long long)ONNX_ELEMENTS_MAX);
        return NULL;
    }
    void *data = a ? pool_alloc(im->pool, (empty ? 0 : (size_t)count * onnx_type_bytes(type)) + 8) : NULL;
    if (!data) {
        onnx_no_memory(im);
        return NULL;
    }
    *a = (onnx_array){.type = type, .rank = rank, .data = data};
    for (int d = 0; d < rank; d++)
        a->dim[d] = dim[d];
    return a;
}

onnx_array *onnx_scalar(onnx_importer *im, int type, double value)
{
    onnx_array *a = onnx_array_new(im, type, 0, NULL);
    if (a)
        array_set_real(a, 0, value);
    return a;
}

/* ---- outputs ---- */

static onnx_value *out_value(onnx_importer *im, int out)
{
    return onnx_value_make(im, out < im->node->out.count && *im->node->out.item[out] ? im->node->out.item[out] : onnx_name(im));
}

bool onnx_set_tensor(onnx_importer *im, int out, weir_tensor *tensor, int type)
{
    if (weir_graph_mistake(im->graph)) {
        im->status = im->status ? im->status : error_set(WEIR_E_GRAPH, "%s", weir_graph_mistake(im->graph));
        return false;
    }
    if (!tensor)
        return im->status ? false : onnx_no_memory(im);
    onnx_value *value = out_value(im, out);
    if (value) {
        value->tensor = tensor;
        value->type = type;
    }
    return value;
}

bool onnx_set_alike(onnx_importer *im, weir_tensor *tensor)
{
    return onnx_set_tensor(im, 0, tensor, onnx_in(im, 0)->type);
}

bool onnx_set_known(onnx_importer *im, int out, const onnx_array *array)
{
    onnx_value *value = array ? out_value(im, out) : NULL;
    if (value) {
        value->known = array;
        value->type = array->type;
    }
    return value;
}

bool onnx_set_value(onnx_importer *im, int out, const onnx_value *from)
{
    const onnx_value same = *from; /* the output may have the input's name */
    onnx_value *value = out_value(im, out);
    if (value)
        *value = (onnx_value){.name = value->name, .known = same.known, .tensor = same.tensor, .type = same.type, .weight = same.weight};
    return value;
}

bool onnx_set_same(onnx_importer *im, int out, int in)
{
    const onnx_value *from = onnx_in(im, in);
    return from ? onnx_set_value(im, out, from) : ONNX_WRONG(im, "input %d is missing", in);
}

/* ---- attributes ---- */

int64_t onnx_int(onnx_importer *im, const char *name, int64_t by_default)
{
    const onnx_attribute *a = onnx_attribute_find(im->node, name);
    return a ? a->i : by_default;
}

double onnx_real(onnx_importer *im, const char *name, double by_default)
{
    const onnx_attribute *a = onnx_attribute_find(im->node, name);
    return a ? a->f : by_default;
}

const char *onnx_text(onnx_importer *im, const char *name, const char *by_default)
{
    const onnx_attribute *a = onnx_attribute_find(im->node, name);
    return a && a->s ? a->s : by_default;
}

int onnx_ints(onnx_importer *im, const char *name, int64_t *list, int room)
{
    const onnx_attribute *a = onnx_attribute_find(im->node, name);
    const int count = a ? a->ints.count < room ? a->ints.count : room : 0;
    for (int i = 0; i < count; i++)
        list[i] = a->ints.item[i];
    return count;
}

int onnx_axis(onnx_importer *im, int64_t axis, int rank)
{
    const int64_t from = axis < 0 ? axis + rank : axis;
    if (from < 0 || from >= rank) {
        ONNX_WRONG(im, "axis %lld is not one of %d dimensions", (long long)axis, rank);
        return -1;
    }
    return (int)from;
}
