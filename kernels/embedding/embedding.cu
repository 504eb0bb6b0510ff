/* kernels/embedding/embedding.cu: rows of a table on a GPU, and the gradient of the table (table.h); embedding.c has their rules. An
 * id that is not in the whole table is refused: its row is NaN, and its gradient goes nowhere.
 */
#include "kernels/embedding/formula.h"
#include "kernels/embedding/table.h"

enum { COPY_THREADS = 256 };

template <class T, class U>
KERNEL_OF(embedding_row, COPY_THREADS)(refusals say, const int32_t *ids, const T *table, int64_t vocab, int64_t first,
                                       int64_t rows, int64_t dim, U *out)
{
    const int32_t id = ids[blockIdx.x];
    const bool known = id_known(id, vocab);
    if (!known && threadIdx.x == 0)
        refuse(say, blockIdx.x, id);
    const int64_t row = known ? row_at(id, first, rows) : -1;
    const float other = known ? 0 : NAN;
    out += blockIdx.x * dim;
    for (int64_t i = threadIdx.x; i < dim; i += blockDim.x)
        real_store(out + i, row < 0 ? other : real_load(table + row * dim + i));
}

extern "C" weir_status op_embedding_cuda(const weir_kernel_args *args)
{
    const weir_view *table = &args->in[1], *out = &args->out[0];
    const int64_t count = count_of(&args->in[0].shape), rows = table->shape.dim[0], dim = table->shape.dim[1];
    WITH_REAL(table->dtype, T,
              WITH_REAL(out->dtype, U,
                        LAUNCH((embedding_row<T, U>), count, threads_for(dim, COPY_THREADS), args->queue,
                               refusing(args), view_i32(&args->in[0]), data_of<T>(table), table->global.dim[0],
                               table->offset[0], rows, dim, data_of<U>(out))));
    return launched(args);
}

/* An id that is not in the whole table belongs to no row. */
struct embedding_rows {
    refusals say;
    const int32_t *ids;
    int64_t vocab, first, rows;
    METHOD int64_t row(int64_t, int64_t i) const
    {
        const int32_t id = ids[i];
        if (id_known(id, vocab))
            return row_at(id, first, rows);
        refuse(say, i, id);
        return -1;
    }
};

extern "C" weir_status op_embedding_grad_cuda(const weir_kernel_args *args)
{
    const weir_view *out = &args->out[0], *dy = &args->in[1];
    const embedding_rows rows = {refusing(args), view_i32(&args->in[0]), ((const embedding_attrs *)args->attrs)->vocab,
                                 out->offset[0], out->shape.dim[0]};
    const table_grad<embedding_rows> g = {rows, dy->data, view_f32(out), 1, count_of(&args->in[0].shape), out->shape.dim[0],
                                          out->shape.dim[1], args->accumulate};
    return table_grad_run(args, g, dy->dtype);
}
