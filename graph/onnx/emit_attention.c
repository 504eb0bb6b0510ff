/* graph/onnx/emit_attention.c: attention and rotary positions, as nodes of an ONNX file.
 *
 * The matrix of scores, [batch, heads, rows, keys], exists there as a whole. Keys that a row does not see have a score of -infinity.
 * A row that sees none would be NaN behind the softmax, so where a mask may hide all keys, hidden ones are set to 0 once more.
 */
#include "graph/onnx/emit.h"

#include "kernels/attention/rope.h"

#include <math.h>
#include <string.h>

/* ---- heads ---- */

static const char *swapped(onnx_exporter *ex, const char *x)
{
    return emit_transpose(ex, NULL, x, (int64_t[]){0, 1, 3, 2}, 4);
}

/* [batch, rows, heads head_dim] as [batch, heads, rows, head_dim]; each head `group` times. A number of rows of -1 is data. */
static const char *by_head(onnx_exporter *ex, const char *x, const weir_shape *shape, int64_t head_dim, int64_t group)
{
    const int64_t heads = shape->dim[2] / head_dim, batch = shape->dim[0];
    const int64_t dim[4] = {batch, shape->dim[1], heads, head_dim};
    x = emit_transpose(ex, NULL, emit_reshape(ex, NULL, x, dim, 4), (int64_t[]){0, 2, 1, 3}, 4);
    if (group == 1)
        return x;
    x = emit_reshape(ex, NULL, x, (int64_t[]){batch, heads, 1, shape->dim[1], head_dim}, 5);
    x = EMIT(ex, NULL, "Expand", x, emit_ints(ex, (int64_t[]){1, 1, group, 1, 1}, 5));
    return emit_reshape(ex, NULL, x, (int64_t[]){batch, heads * group, shape->dim[1], head_dim}, 4);
}

/* ---- the keys that a row sees ---- */

/* All of these hold. */
typedef struct sight {
    const char *seen;  /* a bool that broadcasts to the scores; NULL: all keys are seen */
    const char *added; /* to the scores; NULL: nothing */
    bool none;         /* a row may see no key */
} sight;

static const char *both(onnx_exporter *ex, const char *a, const char *b)
{
    return a ? EMIT(ex, NULL, "And", a, b) : b;
}

/* Row i is at position i, or i + `position`, an i64, and sees the keys up to there, or the last `window` of these. */
static const char *keys_up_to(onnx_exporter *ex, int64_t rows, int64_t keys, const char *position)
{
    const int64_t window = emit_int(ex, "window", 0);
    const char *row = emit_range(ex, WEIR_I64, &(weir_shape){2, {rows, 1}}, 0, 1);
    const char *key = emit_range(ex, WEIR_I64, &(weir_shape){2, {1, keys}}, 0, 1);
    row = position ? EMIT(ex, NULL, "Add", row, position) : row;
    const char *seen = EMIT(ex, NULL, "LessOrEqual", key, row);
    return window ? both(ex, seen, EMIT(ex, NULL, "Greater", key, emit_by_number(ex, NULL, "Sub", row, WEIR_I64, (double)window))) : seen;
}

/* The mask, behind so many inputs: [batch, keys] or four dimensions, cut at the key `end`, if that is data. */
static void take_mask(onnx_exporter *ex, int input, const char *end, sight *s)
{
    if (ex->node->in_count <= input)
        return;
    const weir_type *type = emit_type(ex, input);
    const int64_t four[4] = {type->shape.dim[0], 1, 1, type->shape.dim[1]}, zero = 0, axis = 3;
    const char *mask = emit_in(ex, input);
    if (type->shape.rank == 2)
        mask = emit_reshape(ex, NULL, mask, four, 4);
    if (end)
        mask = EMIT(ex, NULL, "Slice", mask, emit_ints(ex, &zero, 1), end, emit_ints(ex, &axis, 1));
    s->none = true;
    if (type->dtype == WEIR_F32)
        s->added = mask;
    s->seen = both(ex, s->seen, type->dtype == WEIR_F32 ? emit_by_number(ex, NULL, "Greater", mask, WEIR_F32, -INFINITY) : emit_bool(ex, mask));
}

/* ---- attention ---- */

static const char *scores_of(onnx_exporter *ex, const char *q, const char *k, const sight *s)
{
    const weir_dtype dtype = emit_type(ex, 0)->dtype;
    const char *scores = emit_by_number(ex, NULL, "Mul", EMIT(ex, NULL, "MatMul", q, swapped(ex, k)), dtype, emit_real(ex, "scale"));
    if (s->added && dtype != WEIR_F32)
        scores = EMIT(ex, NULL, "Add", scores, emit_cast(ex, NULL, s->added, export_type(dtype)));
    else if (s->added)
        scores = EMIT(ex, NULL, "Add", scores, s->added);
    if (s->seen)
        scores = EMIT(ex, NULL, "Where", s->seen, scores, emit_number(ex, dtype, -INFINITY));
    EMIT_BEGIN(ex, "Softmax", scores);
    emit_set_int(ex, "axis", -1);
    scores = emit_end(ex, NULL);
    return s->none ? EMIT(ex, NULL, "Where", s->seen, scores, emit_number(ex, dtype, 0)) : scores;
}

/* softmax(scale q k^T) v per head; heads of q in groups share a head of k and v. */
static bool attention(onnx_exporter *ex, const char *k, const char *v, const weir_shape *keys, const sight *s)
{
    const weir_shape *shape = emit_shape(ex, 0);
    const int64_t head_dim = emit_int(ex, "head_dim", 0), group = shape->dim[2] / keys->dim[2];
    const char *q = by_head(ex, emit_in(ex, 0), shape, head_dim, 1);
    const char *scores = scores_of(ex, q, by_head(ex, k, keys, head_dim, group), s);
    const char *y = EMIT(ex, NULL, "MatMul", scores, by_head(ex, v, keys, head_dim, group));
    y = emit_transpose(ex, NULL, y, (int64_t[]){0, 2, 1, 3}, 4);
    return emit_reshape(ex, emit_out(ex, 0), y, shape->dim, shape->rank);
}

bool emit_op_attention(onnx_exporter *ex)
{
    const weir_shape *q = emit_shape(ex, 0), *k = emit_shape(ex, 1);
    sight s = {.seen = emit_int(ex, "causal", 0) ? keys_up_to(ex, q->dim[1], k->dim[1], NULL) : NULL};
    take_mask(ex, 3, NULL, &s);
    return attention(ex, emit_in(ex, 1), emit_in(ex, 2), k, &s);
}

/* An input with the dtype of q. */
static const char *as_q(onnx_exporter *ex, int input)
{
    const weir_dtype dtype = emit_type(ex, 0)->dtype;
    return emit_type(ex, input)->dtype == dtype ? emit_in(ex, input) : emit_cast(ex, NULL, emit_in(ex, input), export_type(dtype));
}

/* The rows of `kept` in front of the position, and then the new ones. */
static const char *with_new(onnx_exporter *ex, int kept, int fresh, const char *position)
{
    const int64_t axis = 1, zero = 0;
    const char *before = EMIT(ex, NULL, "Slice", as_q(ex, kept), emit_ints(ex, &zero, 1), position, emit_ints(ex, &axis, 1));
    EMIT_BEGIN(ex, "Concat", before, as_q(ex, fresh));
    emit_set_int(ex, "axis", 1);
    return emit_end(ex, NULL);
}

/* position + n keys, so their number is data, which ONNX allows. */
bool emit_op_attention_kept(onnx_exporter *ex)
{
    const int64_t one = 1, n = emit_shape(ex, 0)->dim[1], zero = 0;
    const weir_shape *kept = emit_shape(ex, 3);
    const char *at = emit_cast(ex, NULL, emit_reshape(ex, NULL, emit_in(ex, 5), &one, 1), ONNX_INT64);
    const char *end = EMIT(ex, NULL, "Add", at, emit_ints(ex, &n, 1));
    sight s = {.seen = EMIT(ex, NULL, "Slice", keys_up_to(ex, n, kept->dim[1], at), emit_ints(ex, &zero, 1), end, emit_ints(ex, &one, 1))};
    take_mask(ex, 6, end, &s);
    const weir_shape keys = {3, {kept->dim[0], -1, kept->dim[2]}}; /* -1: as many as there are */
    return attention(ex, with_new(ex, 3, 1, at), with_new(ex, 4, 2, at), &keys, &s);
}

/* ---- rotary positions ---- */

/* The cosines and the sines, by which each pair of a row turns; they broadcast to [batch, rows, heads, pairs]. */
typedef struct turns {
    const char *cosine, *sine;
} turns;

/* Rows that count from 0: constants. */
static turns known_turns(onnx_exporter *ex, const struct rope_attrs *a, int64_t rows, int64_t pairs)
{
    const weir_shape shape = {3, {rows, 1, pairs}};
    float *table = pool_alloc(&ex->pool, 2 * (size_t)(rows * pairs) * sizeof *table);
    for (int64_t i = 0; table && i < rows * pairs; i++)
        rope_turn((double)(i / pairs) * rope_frequency(a, i % pairs), a->inverse, &table[i], &table[rows * pairs + i]);
    if (!table)
        return export_no_memory(ex), (turns){"", ""};
    return (turns){emit_f32(ex, &shape, table), emit_f32(ex, &shape, table + rows * pairs)};
}

/* In double, with whole turns taken off, as the kernel does it: in f32 a far position would lose the angle. */
static turns data_turns(onnx_exporter *ex, const struct rope_attrs *a, int64_t rows, int64_t pairs)
{
    const weir_shape *given = emit_shape(ex, 1);
    const bool each = weir_shape_count(given) != 1 || given->rank == 2;
    const int64_t dim[4] = {each ? given->dim[0] : 1, each ? rows : 1, 1, 1};
    const char *position = emit_cast(ex, NULL, emit_reshape(ex, NULL, emit_in(ex, 1), dim, 4), ONNX_INT64);
    double *frequency = pool_alloc(&ex->pool, (size_t)pairs * sizeof *frequency);
    for (int64_t i = 0; frequency && i < pairs; i++)
        frequency[i] = rope_frequency(a, i) * (a->inverse ? -1 : 1);
    if (!frequency)
        return export_no_memory(ex), (turns){"", ""};
    if (!each)
        position = EMIT(ex, NULL, "Add", position, emit_range(ex, WEIR_I64, &(weir_shape){4, {1, rows, 1, 1}}, 0, 1));
    const char *angle = EMIT(ex, NULL, "Mul", emit_cast(ex, NULL, position, ONNX_DOUBLE), emit_f64(ex, &(weir_shape){1, {pairs}}, frequency));
    const double turn = 2 * M_PI, part = 1 / turn;
    const weir_shape scalar = {.rank = 0};
    const char *whole = EMIT(ex, NULL, "Round", EMIT(ex, NULL, "Mul", angle, emit_f64(ex, &scalar, &part)));
    angle = EMIT(ex, NULL, "Sub", angle, EMIT(ex, NULL, "Mul", whole, emit_f64(ex, &scalar, &turn)));
    angle = emit_cast(ex, NULL, angle, ONNX_FLOAT);
    return (turns){EMIT(ex, NULL, "Cos", angle), EMIT(ex, NULL, "Sin", angle)};
}

/* Columns first, first + step, ... of the last of four dimensions. */
static const char *columns(onnx_exporter *ex, const char *x, int64_t first, int64_t end, int64_t step)
{
    const int64_t axis = 3;
    return EMIT(ex, NULL, "Slice", x, emit_ints(ex, &first, 1), emit_ints(ex, &end, 1), emit_ints(ex, &axis, 1), emit_ints(ex, &step, 1));
}

static const char *joined(onnx_exporter *ex, const char *a, const char *b)
{
    EMIT_BEGIN(ex, "Concat", a, b);
    emit_set_int(ex, "axis", -1);
    return emit_end(ex, NULL);
}

/* a cos - b sin, and b cos + a sin. */
static const char *turned(onnx_exporter *ex, const struct rope_attrs *a, const char *x, const turns *t, const int64_t dim[4])
{
    const int64_t pairs = a->rotary_dim / 2, step = a->interleaved ? 2 : 1, other = a->interleaved ? 1 : pairs;
    const char *first = columns(ex, x, 0, a->interleaved ? a->rotary_dim : pairs, step), *second = columns(ex, x, other, a->rotary_dim, step);
    const char *one = EMIT(ex, NULL, "Sub", EMIT(ex, NULL, "Mul", first, t->cosine), EMIT(ex, NULL, "Mul", second, t->sine));
    const char *two = EMIT(ex, NULL, "Add", EMIT(ex, NULL, "Mul", second, t->cosine), EMIT(ex, NULL, "Mul", first, t->sine));
    if (!a->interleaved)
        return joined(ex, one, two);
    const int64_t apart[5] = {dim[0], dim[1], dim[2], pairs, 1}, together[4] = {dim[0], dim[1], dim[2], a->rotary_dim};
    return emit_reshape(ex, NULL, joined(ex, emit_reshape(ex, NULL, one, apart, 5), emit_reshape(ex, NULL, two, apart, 5)), together, 4);
}

bool emit_op_rope(onnx_exporter *ex)
{
    const struct rope_attrs *a = ex->node->attrs;
    const weir_shape *shape = emit_shape(ex, 0);
    const int64_t dim[4] = {shape->dim[0], shape->dim[1], shape->dim[2] / a->head_dim, a->head_dim};
    const turns t = ex->node->in_count > 1 ? data_turns(ex, a, dim[1], a->rotary_dim / 2) : known_turns(ex, a, dim[1], a->rotary_dim / 2);
    const char *x = emit_reshape(ex, NULL, emit_in_f32(ex, 0), dim, 4), *y = turned(ex, a, x, &t, dim);
    if (a->rotary_dim < a->head_dim)
        y = joined(ex, y, columns(ex, x, a->rotary_dim, a->head_dim, 1));
    if (emit_type(ex, 0)->dtype == WEIR_F32)
        return emit_reshape(ex, emit_out(ex, 0), y, shape->dim, shape->rank);
    return emit_out_f32(ex, emit_reshape(ex, NULL, y, shape->dim, shape->rank));
}
