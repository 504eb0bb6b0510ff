/* kernels/embedding/embedding.c: rows of a table, picked by ids, and the gradient of the table.
 *
 *     ids i32 [...], weight [vocab, dim] -> [..., dim]
 *
 * Over a mesh axis the table may be split by columns, or by rows: then a device knows from its view which rows it
 * holds, gives zeros for ids that lie elsewhere, and the results are terms of a sum. An id outside the whole table
 * fails on every device alike.
 *
 * The table and the result are f32, f16 or bf16, each by itself: rows are converted as they are copied. The gradient of
 * either is f32.
 *
 * The gradient is dense. Each row of the table adds its rows of dy in double, in the order of the ids: a chain through
 * the workspace links the places where an id is. So the bits do not depend on timing, and an id that comes millions of
 * times loses no digits. The gradient accumulates over micro-batches: then only the rows that were used are touched, where
 * otherwise the others are filled with zeros.
 */
#include "kernels/embedding/embedding.h"
#include "kernels/common/lanes.h"
#include "kernels/common/ops.h"
#include "kernels/common/opts.h"
#include "kernels/common/param.h"
#include "kernels/common/position.h"
#include "kernels/common/real.h"

#include <string.h>
#include <weir/ops.h>

static const weir_field embedding_fields[] = {WEIR_FIELD_INT(struct embedding_attrs, vocab)};

/* ---- rules ---- */

bool embedding_ids_fit(const weir_type *ids, char *error, size_t error_bytes)
{
    if (ids->dtype != WEIR_I32)
        return REFUSE("ids are %s, not i32", weir_dtype_name(ids->dtype));
    if (ids->shape.rank >= WEIR_DIMS_MAX)
        return REFUSE("ids have %d dimensions; the result would have more than %d", ids->shape.rank, WEIR_DIMS_MAX);
    return true;
}

static bool embedding_infer(weir_op_args *args, char *error, size_t error_bytes)
{
    const weir_type *ids = &args->in[0], *weight = &args->in[1];
    if (!embedding_ids_fit(ids, error, error_bytes))
        return false;
    if (!weir_dtype_real(weight->dtype) || weight->shape.rank != 2)
        return REFUSE("the weight is %s with %d dimensions; it needs to be f32, f16 or bf16 with two",
                      weir_dtype_name(weight->dtype), weight->shape.rank);
    args->out[0] = (weir_type){weight->dtype, ids->shape};
    args->out[0].shape.dim[args->out[0].shape.rank++] = weight->shape.dim[1];
    return true;
}

static bool embedding_fits(const weir_op_args *local, char *error, size_t error_bytes)
{
    weir_type rows;
    weir_op_args args = *local;
    args.out = &rows;
    if (!embedding_infer(&args, error, error_bytes))
        return false;
    return (weir_dtype_real(local->out[0].dtype) && weir_shape_equal(&rows.shape, &local->out[0].shape)) ||
           REFUSE("the output does not consist of a row of real numbers for each id");
}

static void signature(weir_signature_list *list, weir_sbp a, weir_sbp b, weir_sbp out)
{
    weir_signature *s = weir_signature_new(list);
    s->in[0] = a;
    s->in[1] = b;
    s->out[0] = out;
}

static void embedding_signatures(const weir_op_args *args, weir_signature_list *list)
{
    int rank = args->in[0].shape.rank;
    for (int d = 0; d < rank; d++)
        signature(list, WEIR_S(d), WEIR_B, WEIR_S(d));
    signature(list, WEIR_B, WEIR_S(1), WEIR_S(rank));
    signature(list, WEIR_B, WEIR_S(0), WEIR_P);
    signature(list, WEIR_B, WEIR_P, WEIR_P);
}

static void embedding_cost(const weir_op_args *args, weir_cost *cost)
{
    cost->flops = 0;
    cost->bytes = 2.0 * (double)type_bytes(&args->out[0]) + (double)type_bytes(&args->in[0]);
}

static bool embedding_grad_infer(weir_op_args *args, char *error, size_t error_bytes)
{
    const struct embedding_attrs *attrs = args->attrs;
    const weir_shape *ids = &args->in[0].shape, *dy = &args->in[1].shape;
    if (!embedding_ids_fit(&args->in[0], error, error_bytes))
        return false;
    weir_shape rows = *dy;
    rows.rank = ids->rank;
    if (!weir_dtype_real(args->in[1].dtype) || dy->rank != ids->rank + 1 || !weir_shape_equal(&rows, ids))
        return REFUSE("dy does not have one row of f32, f16 or bf16 per id");
    if (attrs->vocab < 1)
        return REFUSE("the table has %lld rows", (long long)attrs->vocab);
    args->out[0] = (weir_type){WEIR_F32, {2, {attrs->vocab, shape_last(dy)}}};
    return true;
}

/* The output may be some of the table's rows. */
static bool embedding_grad_fits(const weir_op_args *local, char *error, size_t error_bytes)
{
    weir_type whole, *out = local->out;
    weir_op_args args = *local;
    args.out = &whole;
    if (!embedding_grad_infer(&args, error, error_bytes))
        return false;
    if (out->dtype != WEIR_F32 || out->shape.rank != 2 || out->shape.dim[1] != whole.shape.dim[1])
        return REFUSE("the output does not consist of rows of %lld f32", (long long)whole.shape.dim[1]);
    return true;
}

static void embedding_grad_signatures(const weir_op_args *args, weir_signature_list *list)
{
    int rank = args->in[0].shape.rank;
    for (int d = 0; d < rank; d++)
        signature(list, WEIR_S(d), WEIR_S(d), WEIR_P);
    signature(list, WEIR_B, WEIR_S(rank), WEIR_S(1));
    signature(list, WEIR_B, WEIR_B, WEIR_S(0));
    signature(list, WEIR_B, WEIR_P, WEIR_P);
}

static void embedding_grad_cost(const weir_op_args *args, weir_cost *cost)
{
    cost->flops = (double)weir_shape_count(&args->in[1].shape);
    cost->bytes = 3.0 * (double)type_bytes(&args->in[1]) + (double)type_bytes(&args->out[0]);
}

/* ---- kernels ---- */

static weir_status id_refused(const weir_kernel_args *args, int64_t at, int32_t id, int64_t vocab)
{
    char text[POSITION_TEXT];
    return KERNEL_FAIL(args, "id %d at %s is not in 0..%lld", id, position_text(&args->in[0], at, text),
                       (long long)vocab - 1);
}

weir_status embedding_refused(const weir_kernel_args *args, int64_t at, int32_t id)
{
    return id_refused(args, at, id, args->in[1].global.dim[0]);
}

static weir_status embedding_grad_refused(const weir_kernel_args *args, int64_t at, int32_t id)
{
    return id_refused(args, at, id, ((const struct embedding_attrs *)args->attrs)->vocab);
}

/* Elements [at, at + count) of the table to the output's from `to` on. */
static void copy_row(const weir_view *weight, int64_t at, const weir_view *out, int64_t to, int64_t count)
{
    const size_t bytes = weir_dtype_bytes(out->dtype);
    float block[REAL_BLOCK];
    if (weight->dtype == out->dtype) {
        memcpy((char *)out->data + (size_t)to * bytes, (const char *)weight->data + (size_t)at * bytes,
               (size_t)count * bytes);
        return;
    }
    for (int64_t i = 0, part; i < count; i += part) {
        part = count - i < REAL_BLOCK ? count - i : REAL_BLOCK;
        weir_from_f32(real_in(weight, at + i, part, block), part, out->dtype,
                      (char *)out->data + (size_t)(to + i) * bytes);
    }
}

static weir_status embedding_cpu(const weir_kernel_args *args)
{
    const weir_view *weight = &args->in[1];
    const int32_t *ids = view_i32(&args->in[0]);
    const int64_t count = view_count(&args->in[0]), dim = weight->shape.dim[1], rows = weight->shape.dim[0];
    const int64_t vocab = weight->global.dim[0], first = weight->offset[0];
    const size_t bytes = (size_t)dim * weir_dtype_bytes(args->out[0].dtype);

    for (int64_t i = 0; i < count; i++) {
        if (!id_known(ids[i], vocab))
            return embedding_refused(args, i, ids[i]);
        const int64_t row = row_at(ids[i], first, rows);
        if (row >= 0)
            copy_row(weight, row * dim, &args->out[0], i * dim, dim);
        else
            memset((char *)args->out[0].data + (size_t)i * bytes, 0, bytes);
    }
    return WEIR_OK;
}

/* For each row of the output the first place among the ids that has it, and for each of these the next one; -1: there is
 * none. */
typedef struct id_chains {
    int64_t *first, *next;
} id_chains;

/* For shapes that no memory can hold it is more than any memory, too. */
static size_t embedding_grad_workspace(const weir_op_args *args, weir_device_kind kind)
{
    const int64_t most = INT64_C(1) << 48, rows = args->out[0].shape.dim[0], count = weir_shape_count(&args->in[0].shape);
    const size_t places = (size_t)(rows < most ? rows : most) + (size_t)(count < most ? count : most);
    return kind == WEIR_CUDA ? 0 : places * sizeof(int64_t);
}

static id_chains chains_of(const weir_kernel_args *args)
{
    const int32_t *ids = view_i32(&args->in[0]);
    const int64_t count = view_count(&args->in[0]), rows = args->out[0].shape.dim[0];
    const id_chains chains = {args->workspace, (int64_t *)args->workspace + rows};
    for (int64_t row = 0; row < rows; row++)
        chains.first[row] = -1;
    for (int64_t i = count - 1; i >= 0; i--) {
        const int64_t row = row_at(ids[i], args->out[0].offset[0], rows);
        if (row < 0)
            continue;
        chains.next[i] = chains.first[row];
        chains.first[row] = i;
    }
    return chains;
}

/* Adds columns [column, column + width) of the rows of dy in the chain that begins at `first`. */
static void add_chain(const weir_view *dy, const int64_t *next, int64_t first, int64_t column, int64_t width,
                      double *restrict sum)
{
    float block[LANES_ROWS][REAL_BLOCK];
    const float *row[LANES_ROWS];
    int have = 0;
    for (int64_t i = first; i >= 0; i = next[i]) {
        row[have] = real_in(dy, i * shape_last(&dy->shape) + column, width, block[have]);
        if (++have < LANES_ROWS)
            continue;
        rows_add(row, width, sum);
        have = 0;
    }
    for (int k = 0; k < have; k++)
        row_add(row[k], width, sum);
}

/* The gradient of a row of the table that some ids have. */
static void sum_chain(const weir_kernel_args *args, const id_chains *chains, int64_t row)
{
    const int64_t dim = args->out[0].shape.dim[1];
    float *dw = view_f32(&args->out[0]) + row * dim;
    double sum[REAL_BLOCK];
    for (int64_t at = 0, part; at < dim; at += part) {
        part = dim - at < REAL_BLOCK ? dim - at : REAL_BLOCK;
        for (int64_t i = 0; i < part; i++)
            sum[i] = args->accumulate ? (double)dw[at + i] : 0;
        add_chain(&args->in[1], chains->next, chains->first[row], at, part, sum);
        for (int64_t i = 0; i < part; i++)
            dw[at + i] = (float)sum[i];
    }
}

static weir_status embedding_grad_cpu(const weir_kernel_args *args)
{
    const struct embedding_attrs *attrs = args->attrs;
    const int32_t *ids = view_i32(&args->in[0]);
    const int64_t count = view_count(&args->in[0]), rows = args->out[0].shape.dim[0], dim = args->out[0].shape.dim[1];
    for (int64_t i = 0; i < count; i++)
        if (!id_known(ids[i], attrs->vocab))
            return embedding_grad_refused(args, i, ids[i]);
    const id_chains chains = chains_of(args);
    for (int64_t row = 0; row < rows; row++)
        if (chains.first[row] >= 0)
            sum_chain(args, &chains, row);
        else if (!args->accumulate)
            memset(view_f32(&args->out[0]) + row * dim, 0, (size_t)dim * sizeof(float));
    return WEIR_OK;
}

static void embedding_backward(weir_grad_args *args)
{
    struct embedding_attrs attrs = {weir_tensor_type(args->in[1]).shape.dim[0]};
    weir_tensor *in[2] = {args->in[0], args->dout[0]};
    if (args->needed[1])
        args->din[1] = weir_op_apply(&(weir_apply){args->src, NULL, &op_embedding_grad, NULL, in, 2, &attrs}, NULL);
}

const weir_op op_embedding = {
    .name = "embedding",
    .in_min = 2,
    .in_max = 2,
    .out_count = 1,
    .infer = embedding_infer,
    .fits = embedding_fits,
    .signatures = embedding_signatures,
    .grad = embedding_backward,
    .cost = embedding_cost,
    .kernel = {[WEIR_CPU] = embedding_cpu},
    .refused = embedding_refused,
    .half = WEIR_HALF_WANT,
    .either_in = 1 << 1,
    .either_out = true,
};

const weir_op op_embedding_grad = {
    .name = "embedding_grad",
    .fields = embedding_fields,
    .field_count = 1,
    .attrs_bytes = sizeof(struct embedding_attrs),
    .in_min = 2,
    .in_max = 2,
    .out_count = 1,
    .infer = embedding_grad_infer,
    .fits = embedding_grad_fits,
    .signatures = embedding_grad_signatures,
    .cost = embedding_grad_cost,
    .workspace = embedding_grad_workspace,
    .kernel = {[WEIR_CPU] = embedding_grad_cpu},
    .refused = embedding_grad_refused,
    .accumulates = true,
    .half = WEIR_HALF_FOLLOW,
};

/* ---- the DSL ---- */

weir_tensor *weir_embedding_with_at(weir_tensor *ids, weir_tensor *weight, const weir_op_opts *given)
{
    weir_op_opts opts;
    ids = op_opts(ids, "embedding_with", given, &opts, sizeof opts);
    weir_tensor *in[2] = {ids, weight};
    return weir_op_apply(&(weir_apply){opts.src, opts.name, &op_embedding, NULL, in, 2, NULL}, NULL);
}

weir_tensor *weir_embedding_at(weir_tensor *ids, int64_t vocab, int64_t dim, const weir_embedding_opts *given)
{
    weir_embedding_opts opts;
    ids = op_opts(ids, "embedding", given, &opts, sizeof opts);
    if (weir_tensor_poisoned(ids))
        return op_of_none(&op_embedding, ids, opts.src);
    if (vocab < 1 || dim < 1 || vocab > INT32_MAX)
        return weir_mistake(ids, opts.src, "embedding: a table of %lld rows of %lld; it needs 1 to 2^31 - 1 rows of at least 1",
                            (long long)vocab, (long long)dim);
    const char *name = weir_name_for(ids, opts.name, "embedding");
    weir_param_opts param = {.shape = {vocab, dim}, .src = opts.src, .frozen = opts.frozen};
    param.init = init_or(opts.init, (weir_init)WEIR_NORMAL(0.02));
    memcpy(param.sbp, opts.weight, sizeof param.sbp);
    return weir_embedding_with_at(ids, op_param(ids, name, "weight", param),
                                  WEIR_OPTS_AT(opts.src, weir_op_opts, .name = name));
}
