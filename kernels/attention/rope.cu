/* kernels/attention/rope.cu: rotary positions on a GPU; rope.c has the rules and says what it computes.
 *
 * A thread has one pair of columns, or one column that does not turn, of ROPE_ROWS rows. It computes a row's cosine and sine once
 * for all heads. Threads beside each other have columns beside each other.
 */
#include "kernels/attention/rope.h"
#include "kernels/cuda/rows.h"

enum { ROPE_THREADS = 128, ROPE_ROWS = 4 };

struct rope_sizes {
    rope_attrs attrs;
    int64_t rows, seq, dim, first; /* rows: of all sequences */
};

template <class T>
KERNEL_OF(rope_rows, ROPE_THREADS)(rope_sizes z, const int32_t *one, const int32_t *each, const T *x, T *y)
{
    const int64_t pairs = z.attrs.rotary_dim / 2, columns = z.attrs.head_dim - pairs, column = THREAD % columns;
    const int64_t start = THREAD / columns * ROPE_ROWS, end = start + ROPE_ROWS < z.rows ? start + ROPE_ROWS : z.rows;
    const bool turns = column < pairs, between = z.attrs.interleaved != 0;
    const int64_t a = !turns ? pairs + column : between ? 2 * column : column, b = a + (!turns ? 0 : between ? 1 : pairs);
    const double frequency = turns ? rope_frequency(&z.attrs, column) : 0;
    const int64_t first = one ? z.first + *one : z.first;
    for (int64_t row = start; row < end; row++) {
        const int64_t position = each ? each[row] : first + row % z.seq;
        float cosine, sine;
        rope_turn((double)position * frequency, z.attrs.inverse != 0, &cosine, &sine);
        for (int64_t at = row * z.dim; at < (row + 1) * z.dim; at += z.attrs.head_dim) {
            const float left = real_load(x + at + a), right = real_load(x + at + b);
            if (turns)
                real_store(y + at + b, right * cosine + left * sine);
            real_store(y + at + a, turns ? left * cosine - right * sine : left);
        }
    }
}

extern "C" weir_status op_rope_cuda(const weir_kernel_args *args)
{
    const weir_view *x = &args->in[0], *position = args->in_count == 2 ? &args->in[1] : nullptr;
    const int64_t *dim = x->shape.dim;
    const rope_sizes z = {*(const rope_attrs *)args->attrs, dim[0] * dim[1], dim[1], dim[2], x->offset[1]};
    const int32_t *const number = position ? view_i32(position) : nullptr;
    const bool each = position && position->shape.rank == 2;
    const int64_t columns = z.dim ? z.attrs.head_dim - z.attrs.rotary_dim / 2 : 0; /* a shard without heads says nothing of their size */
    const int64_t threads = (z.rows + ROPE_ROWS - 1) / ROPE_ROWS * columns;
    WITH_REAL(x->dtype, T,
              LAUNCH((rope_rows<T>), (threads + ROPE_THREADS - 1) / ROPE_THREADS, ROPE_THREADS, args->queue, z,
                     each ? nullptr : number, each ? number : nullptr, data_of<T>(x), data_of<T>(&args->out[0])));
    return launched(args);
}
