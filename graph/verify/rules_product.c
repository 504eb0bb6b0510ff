/* graph/verify/rules_product.c: products of matrices. See rule.h. */
#include "graph/base/blocks.h"
#include "graph/verify/rule.h"

/* A matrix in an array: element (i, j) lies at first + i * row + j * column. */
struct matrix {
    const field_value *first;
    int64_t row, column;
};

static struct matrix matrix_of(const field_value *first, int64_t columns, bool transposed)
{
    return transposed ? (struct matrix){first, 1, columns} : (struct matrix){first, columns, 1};
}

/* out[m, n] = or += a[m, k] b[k, n]. A column of b is read for each row of a, so it is copied to where its elements lie together,
 * a part at a time. */
static void multiply(struct matrix a, struct matrix b, int64_t m, int64_t n, int64_t k, field_value *out, bool adds)
{
    enum { PART = 256 };
    field_value column[PART];
    for (int64_t i = 0; i < m * n && !adds; i++)
        out[i] = field_int(0);
    for (int64_t j = 0; j < n; j++)
        for (int64_t done = 0; done < k; done += PART) {
            const int64_t count = k - done < PART ? k - done : PART;
            for (int64_t l = 0; l < count; l++)
                column[l] = b.first[(done + l) * b.row + j * b.column];
            for (int64_t i = 0; i < m; i++)
                out[i * n + j] = field_dot(out[i * n + j], a.first + i * a.row + done * a.column, a.column, column, 1, count);
        }
}

static bool sizes_differ(const rule_call *call)
{
    return rule_refuse(call, "the sizes of its operands do not fit each other");
}

/* The number of the matrix of a factor that meets batch `i` of the result: a batch dimension of 1, or a missing one, is repeated.
 * -1: the sizes do not broadcast. */
static int64_t matrix_at(const rule_array *factor, const rule_array *out, int64_t i)
{
    int64_t at = 0, step = 1;
    for (int d = out->rank - 2, own = factor->rank - 2; d-- > 0 && own-- > 0; step *= factor->shape[own]) {
        if (factor->shape[own] != 1 && factor->shape[own] != out->shape[d])
            return -1;
        at += factor->shape[own] == 1 ? 0 : i % out->shape[d] * step;
        i /= out->shape[d];
    }
    return at;
}

static bool matmul(const rule_call *call)
{
    const rule_array *a = &call->in[0], *b = &call->in[1], *out = &call->out[0];
    const bool trans_a = rule_int(call, "trans_a", 0), trans_b = rule_int(call, "trans_b", 0);
    if (a->rank < 2 || b->rank < 2 || out->rank != (a->rank > b->rank ? a->rank : b->rank))
        return sizes_differ(call);
    const int64_t *ad = a->shape + a->rank - 2, *bd = b->shape + b->rank - 2, *od = out->shape + out->rank - 2;
    const int64_t m = ad[trans_a], k = ad[!trans_a], n = bd[!trans_b], batches = rule_size(out, 0, out->rank - 2);
    if (bd[trans_b] != k || od[0] != m || od[1] != n)
        return sizes_differ(call);
    for (int64_t i = 0; i < batches; i++) {
        const int64_t from_a = matrix_at(a, out, i), from_b = matrix_at(b, out, i);
        if (from_a < 0 || from_b < 0)
            return sizes_differ(call);
        multiply(matrix_of(a->at + from_a * m * k, ad[1], trans_a), matrix_of(b->at + from_b * k * n, bd[1], trans_b), m, n, k,
                 out->at + i * m * n, false);
    }
    return true;
}

static bool linear(const rule_call *call)
{
    const rule_array *x = &call->in[0], *w = &call->in[1], *y = &call->out[0];
    const int64_t rows = rule_rows(x), in = rule_columns(x), out = rule_columns(y);
    if (w->rank != 2 || w->shape[0] != in || w->shape[1] != out || y->count != rows * out ||
        (call->in_count > 2 && call->in[2].count != out))
        return sizes_differ(call);
    multiply(matrix_of(x->at, in, false), matrix_of(w->at, out, false), rows, out, in, y->at, false);
    for (int64_t i = 0; call->in_count > 2 && i < y->count; i++)
        y->at[i] = field_add(y->at[i], call->in[2].at[i % out]);
    return true;
}

static bool linear_dw(const rule_call *call)
{
    const rule_array *x = &call->in[0], *dy = &call->in[1], *dw = &call->out[0];
    const int64_t rows = rule_rows(x), in = rule_columns(x), out = rule_columns(dy);
    if (rule_rows(dy) != rows || dw->count != in * out)
        return sizes_differ(call);
    multiply(matrix_of(x->at, in, true), matrix_of(dy->at, out, false), in, out, rows, dw->at, call->accumulate);
    return true;
}

static bool linear_db(const rule_call *call)
{
    const rule_array *dy = &call->in[0], *db = &call->out[0];
    const int64_t columns = rule_columns(dy);
    if (db->count != columns)
        return sizes_differ(call);
    for (int64_t i = 0; i < columns && !call->accumulate; i++)
        db->at[i] = field_int(0);
    for (int64_t i = 0; i < dy->count; i++)
        db->at[i % columns] = field_add(db->at[i % columns], dy->at[i]);
    return true;
}

/* ---- weights as they are stored ---- */

/* Element `element` of block `block` of row `row`: of a dense weight a number, else a random function of the block's bytes. */
static field_value stored_element(const rule_call *call, const rule_array *w, int64_t row, int64_t block, int64_t element)
{
    const block_format *is = block_format_of(rule_int(call, "format", 0));
    field_value arguments[BLOCK_BYTES_MAX + 1];
    if (!is)
        return w->at[row * w->shape[1] + block];
    memcpy(arguments, w->at + (row * w->shape[1] + block) * is->bytes, (size_t)is->bytes * sizeof *arguments);
    arguments[is->bytes] = field_int(element);
    return field_oracle(call->seed, is->name, arguments, is->bytes + 1);
}

/* Elements of a block of the weight, in[1]; 0: its sizes do not fit its format. */
static int64_t stored_elements(const rule_call *call)
{
    const rule_array *w = &call->in[1];
    const int64_t format = rule_int(call, "format", 0);
    const block_format *is = block_format_of(format);
    if (!is)
        return format == WEIR_DENSE && w->rank == 2;
    return w->rank == 3 && w->shape[2] == is->bytes ? is->elements : 0;
}

/* x and the transpose of w, or dy and w. */
static bool stored_product(const rule_call *call, bool back)
{
    if (!rule_has_operands(call, 2, 1))
        return false;
    const rule_array *x = &call->in[0], *w = &call->in[1], *y = &call->out[0];
    const int64_t elements = stored_elements(call), rows = rule_rows(x), columns = rule_columns(x);
    if (!elements || rule_rows(y) != rows)
        return sizes_differ(call);
    const int64_t out = w->shape[0], in = w->shape[1] * elements;
    if (columns != (back ? out : in) || y->count != rows * (back ? in : out))
        return sizes_differ(call);
    for (int64_t i = 0; i < y->count; i++)
        y->at[i] = field_int(0);
    for (int64_t o = 0; o < out; o++)
        for (int64_t i = 0; i < in; i++) {
            const field_value value = stored_element(call, w, o, i / elements, i % elements);
            for (int64_t r = 0; r < rows; r++) {
                field_value *to = back ? &y->at[r * in + i] : &y->at[r * out + o];
                *to = field_add(*to, field_mul(value, x->at[r * columns + (back ? o : i)]));
            }
        }
    return true;
}

static bool linear_stored(const rule_call *call)
{
    return stored_product(call, false);
}

static bool linear_stored_dx(const rule_call *call)
{
    return stored_product(call, true);
}

/* ids [...], w -> [..., in]: rows of the weight, or of a part of it */
static bool embedding_stored(const rule_call *call)
{
    if (!rule_has_operands(call, 2, 1))
        return false;
    const rule_array *ids = &call->in[0], *w = &call->in[1], *out = &call->out[0];
    const int64_t elements = stored_elements(call), in = elements ? w->shape[1] * elements : 0;
    if (!elements || out->count != ids->count * in)
        return sizes_differ(call);
    for (int64_t n = 0; n < ids->count; n++) {
        int64_t id;
        if (!field_is_int(ids->at[n], &id) || id < 0 || id >= w->global[0])
            return rule_refuse(call, "element %lld is no row of the weight", (long long)n);
        const int64_t row = id - w->start[0];
        for (int64_t i = 0; i < in; i++)
            out->at[n * in + i] =
                row >= 0 && row < w->shape[0] ? stored_element(call, w, row, i / elements, i % elements) : field_int(0);
    }
    return true;
}

/* ---- several in one call ---- */

/* One of them: an op of that name, without attributes or with those of the call. */
static bool part_of(const rule_call *call, const char *op, const rule_array *in, int in_count, const rule_array *out)
{
    rule_call part = *call;
    part.op = weir_op_find(op);
    part.in = in;
    part.in_count = in_count;
    part.out = out;
    part.out_count = 1;
    return part.op && rule_part(&part);
}

/* The product goes to the output that keeps it for the gradient, or to where its gelu then is. */
static bool linear_gelu(const rule_call *call)
{
    const rule_array *product = &call->out[call->out_count - 1];
    if (product->count != call->out[0].count)
        return sizes_differ(call);
    return part_of(call, "linear", call->in, call->in_count, product) && part_of(call, "gelu", product, 1, &call->out[0]);
}

static bool matmul_gelu_grad(const rule_call *call)
{
    const rule_array saved[] = {call->in[2], call->out[0]};
    return part_of(call, "matmul", call->in, 2, &call->out[0]) && part_of(call, "gelu_grad", saved, 2, &call->out[0]);
}

static bool linear_dw_db(const rule_call *call)
{
    return part_of(call, "linear_dw", call->in, 2, &call->out[0]) && part_of(call, "linear_db", &call->in[1], 1, &call->out[1]);
}

static bool each_product(const rule_call *call, const char *op)
{
    const int products = call->out_count;
    const bool biased = call->in_count > 1 + products;
    if (call->in_count != 1 + products && call->in_count != 1 + 2 * products)
        return sizes_differ(call);
    for (int i = 0; i < products; i++) {
        const rule_array in[] = {call->in[0], call->in[1 + i], biased ? call->in[1 + products + i] : call->in[0]};
        if (!part_of(call, op, in, biased ? 3 : 2, &call->out[i]))
            return false;
    }
    return true;
}

static bool linear_many(const rule_call *call)
{
    return each_product(call, "linear");
}

static bool linear_dw_many(const rule_call *call)
{
    return each_product(call, "linear_dw");
}

const rule_entry rules_product[] = {{"matmul", matmul},
                                    {"linear", linear},
                                    {"linear_by_row", linear},
                                    {"linear_dw", linear_dw},
                                    {"linear_db", linear_db},
                                    {"linear_gelu", linear_gelu},
                                    {"matmul_gelu_grad", matmul_gelu_grad},
                                    {"linear_dw_db", linear_dw_db},
                                    {"linear_many", linear_many},
                                    {"linear_dw_many", linear_dw_many},
                                    {"linear_stored", linear_stored},
                                    {"linear_stored_dx", linear_stored_dx},
                                    {"embedding_stored", embedding_stored},
                                    {NULL, NULL}};
