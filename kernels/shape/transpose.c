/* transpose.c: a permutation of the dimensions.
 *
 * The output is walked in memory order and the input through permuted strides. When the last dimension stays last, the
 * walk is a copy of rows. Otherwise one input dimension runs fastest where the output's does not: those two are walked
 * in square tiles that fit the cache, so that neither side is read or written a line per element.
 */
#include "kernels/common/nest.h"
#include "kernels/common/ops.h"
#include "kernels/common/opts.h"
#include "kernels/common/rules.h"
#include "kernels/shape/shape.h"
#include "kernels/common/view.h"

#include <string.h>
#include <weir/ops.h>

static const weir_field transpose_fields[] = {WEIR_FIELD_INT(transpose_attrs, perm)};

static bool transpose_infer(weir_op_args *args, char *error, size_t error_bytes)
{
    const transpose_attrs *attrs = args->attrs;
    const weir_shape *in = &args->in[0].shape;
    unsigned seen = 0;
    args->out[0] = (weir_type){args->in[0].dtype, {.rank = in->rank}};
    for (int d = 0; d < in->rank; d++) {
        int64_t from = attrs->perm[d];
        if (from < 0 || from >= in->rank)
            return REFUSE("there is no dimension %lld among the %d", (long long)from, in->rank);
        if (seen >> from & 1)
            return REFUSE("dimension %lld is used twice", (long long)from);
        seen |= 1u << from;
        args->out[0].shape.dim[d] = in->dim[from];
    }
    return true;
}

static void transpose_signatures(const weir_op_args *args, weir_signature_list *list)
{
    const transpose_attrs *attrs = args->attrs;
    for (int d = 0; d < args->in[0].shape.rank; d++) {
        weir_signature *s = weir_signature_new(list);
        s->in[0] = WEIR_S((int)attrs->perm[d]);
        s->out[0] = WEIR_S(d);
    }
    if (weir_dtype_real(args->in[0].dtype))
        sign_linear(args, list);
}

/* ---- kernel ---- */

enum { TILE = 32 };

/* y[i * step_y + j] = x[i + j * step_x] for a tile of up to TILE x TILE. */
#define TILE_OF(name, type)                                                                                     \
    static void tile_##name(const type *x, int64_t step_x, type *y, int64_t step_y, int64_t rows, int64_t columns) \
    {                                                                                                           \
        type tile[TILE][TILE];                                                                                  \
        for (int64_t j = 0; j < columns; j++)                                                                   \
            for (int64_t i = 0; i < rows; i++)                                                                  \
                tile[i][j] = x[i + j * step_x];                                                                 \
        for (int64_t i = 0; i < rows; i++)                                                                      \
            memcpy(y + i * step_y, tile[i], (size_t)columns * sizeof *y);                                       \
    }
TILE_OF(8, uint64_t)
TILE_OF(4, uint32_t)
TILE_OF(2, uint16_t)
TILE_OF(1, uint8_t)

/* A walk over the output: operand 0 is the input, operand 1 the output. `fast` is the dimension in which the input is
 * contiguous; it is moved to be the last but one, the output's own fastest stays last. */
static void copy_tiles(const nest *n, const char *x, char *y, size_t bytes)
{
    int last = n->rank - 1, fast = last - 1;
    int64_t rows = n->dim[fast], columns = n->dim[last], outer = 1;
    int64_t step_x = n->stride[0][last], step_y = n->stride[1][fast];
    for (int d = 0; d < fast; d++)
        outer *= n->dim[d];
    nest_pos pos = {0};
    for (int64_t o = 0; o < outer; o++, nest_step_outside(n, &pos, 2))
        for (int64_t i = 0; i < rows; i += TILE)
            for (int64_t j = 0; j < columns; j += TILE) {
                int64_t height = rows - i < TILE ? rows - i : TILE, width = columns - j < TILE ? columns - j : TILE;
                const char *from = x + (size_t)(pos.at[0] + i + j * step_x) * bytes;
                char *to = y + (size_t)(pos.at[1] + i * step_y + j) * bytes;
                if (bytes == 8)
                    tile_8((const uint64_t *)from, step_x, (uint64_t *)to, step_y, height, width);
                else if (bytes == 4)
                    tile_4((const uint32_t *)from, step_x, (uint32_t *)to, step_y, height, width);
                else if (bytes == 2)
                    tile_2((const uint16_t *)from, step_x, (uint16_t *)to, step_y, height, width);
                else
                    tile_1((const uint8_t *)from, step_x, (uint8_t *)to, step_y, height, width);
            }
}

static void copy_rows(const nest *n, const char *x, char *y, size_t bytes)
{
    int64_t rows = nest_rows(n), inner = nest_inner(n);
    nest_pos pos = {0};
    for (int64_t r = 0; r < rows; r++, nest_step(n, &pos))
        memcpy(y + (size_t)pos.at[1] * bytes, x + (size_t)pos.at[0] * bytes, (size_t)inner * bytes);
}

static void swap_dims(nest *n, int a, int b)
{
    int64_t dim = n->dim[a];
    n->dim[a] = n->dim[b];
    n->dim[b] = dim;
    for (int k = 0; k < n->operands; k++) {
        int64_t stride = n->stride[k][a];
        n->stride[k][a] = n->stride[k][b];
        n->stride[k][b] = stride;
    }
}

/* The dimension in which operand 0 has a stride of 1. */
static int fast_dim(const nest *n)
{
    for (int d = n->rank - 1; d > 0; d--)
        if (n->stride[0][d] == 1)
            return d;
    return 0;
}

static weir_status transpose_kernel(const weir_kernel_args *args)
{
    const transpose_attrs *attrs = args->attrs;
    const weir_view *in = &args->in[0], *out = &args->out[0];
    size_t bytes = weir_dtype_bytes(out->dtype);
    int64_t from[WEIR_DIMS_MAX], stride[WEIR_DIMS_MAX] = {0}, own[WEIR_DIMS_MAX];
    if (!view_count(out))
        return WEIR_OK;
    nest_strides(&in->shape, from);
    nest_strides(&out->shape, own);
    for (int d = 0; d < out->shape.rank; d++)
        stride[d] = from[attrs->perm[d]];
    nest n = nest_over(&out->shape);
    nest_operand(&n, stride);
    nest_operand(&n, own);
    nest_collapse(&n);
    if (n.rank == 1 || fast_dim(&n) == n.rank - 1) {
        copy_rows(&n, in->data, out->data, bytes);
        return WEIR_OK;
    }
    swap_dims(&n, fast_dim(&n), n.rank - 2);
    copy_tiles(&n, in->data, out->data, bytes);
    return WEIR_OK;
}

static void transpose_backward(weir_grad_args *args)
{
    const transpose_attrs *attrs = args->attrs;
    weir_dims_opts opts = {.size = sizeof opts, .src = args->src};
    for (int d = 0; d < weir_tensor_type(args->in[0]).shape.rank; d++)
        opts.dims[attrs->perm[d]] = d;
    args->din[0] = weir_transpose_at(args->dout[0], &opts);
}

const weir_op op_transpose = {
    .name = "transpose",
    .fields = transpose_fields,
    .field_count = 1,
    .attrs_bytes = sizeof(transpose_attrs),
    .in_min = 1,
    .in_max = 1,
    .out_count = 1,
    .infer = transpose_infer,
    .signatures = transpose_signatures,
    .grad = transpose_backward,
    .kernel = {[WEIR_CPU] = transpose_kernel},
    .half = WEIR_HALF_FOLLOW,
};

weir_tensor *weir_transpose_at(weir_tensor *x, const weir_dims_opts *given)
{
    weir_dims_opts opts;
    x = op_opts(x, "transpose", given, &opts, sizeof opts);
    transpose_attrs attrs = {0};
    const int rank = weir_tensor_type(x).shape.rank;
    for (int d = rank; d < WEIR_DIMS_MAX && !weir_tensor_poisoned(x); d++)
        if (opts.dims[d])
            return weir_mistake(x, opts.src, "transpose: dimension %lld is named, as number %d of %d",
                                (long long)opts.dims[d], d + 1, rank);
    memcpy(attrs.perm, opts.dims, sizeof attrs.perm);
    return weir_op_apply(&(weir_apply){opts.src, opts.name, &op_transpose, NULL, &x, 1, &attrs}, NULL);
}
