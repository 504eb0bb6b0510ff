/* kernels/random/dropout.cu: dropout and its gradient on a GPU; dropout.c has the rules and says which word an element draws.
 * A thread does one element; its place in the logical tensor follows from its index in the shard.
 */
#include "kernels/cuda/rows.h"
#include "kernels/random/dropout.h"

enum { DROP_THREADS = 256, DROP_BLOCKS = 1 << 14 };

/* Where a shard's elements lie in the logical tensor. */
struct drop_place {
    int rank;
    int64_t dim[WEIR_DIMS_MAX], stride[WEIR_DIMS_MAX], first;
};

static drop_place place_of(const weir_view *view)
{
    drop_place place = {};
    place.rank = view->shape.rank;
    int64_t stride = 1;
    for (int d = place.rank - 1; d >= 0; d--) {
        place.dim[d] = view->shape.dim[d];
        place.stride[d] = stride;
        place.first += view->offset[d] * stride;
        stride *= view->global.dim[d];
    }
    return place;
}

DEVICE uint64_t logical_index(const drop_place &place, int64_t at)
{
    int64_t index = place.first;
    UNROLL
    for (int d = WEIR_DIMS_MAX - 1; d >= 0; d--)
        if (d < place.rank) {
            index += at % place.dim[d] * place.stride[d];
            at /= place.dim[d];
        }
    return (uint64_t)index;
}

template <class T>
KERNEL_OF(drop, DROP_THREADS)(dropout_attrs attrs, drop_place place, uint64_t key, const weir_clock *clock, const T *x,
                              int64_t count, T *y, uint8_t *mask)
{
    const uint32_t threshold = dropout_threshold(&attrs);
    const float scale = dropout_scale(&attrs);
    const uint64_t firing = (uint64_t)clock->firing;
    for (int64_t i = THREAD; i < count; i += THREADS) {
        const uint64_t g = logical_index(place, i);
        const bool kept = philox_word(key, dropout_counter(g), firing, dropout_word(g)) >= threshold;
        mask[i] = kept;
        real_store(y + i, dropout_value(real_load(x + i), scale, kept));
    }
}

static int64_t blocks_for(int64_t count)
{
    const int64_t blocks = (count + DROP_THREADS - 1) / DROP_THREADS;
    return blocks < DROP_BLOCKS ? blocks : (int64_t)DROP_BLOCKS;
}

extern "C" weir_status op_dropout_cuda(const weir_kernel_args *args)
{
    const weir_view *out = &args->out[0];
    const int64_t count = count_of(&out->shape);
    WITH_REAL(out->dtype, T,
              LAUNCH((drop<T>), blocks_for(count), DROP_THREADS, args->queue, *(const dropout_attrs *)args->attrs,
                     place_of(out), args->key, args->clock, data_of<T>(&args->in[0]), count, data_of<T>(out),
                     data_of<uint8_t>(&args->out[1])));
    return launched(args);
}

template <class T>
KERNEL_OF(drop_grad, DROP_THREADS)(dropout_attrs attrs, const uint8_t *mask, const T *dy, int64_t count, T *dx)
{
    const float scale = dropout_scale(&attrs);
    for (int64_t i = THREAD; i < count; i += THREADS)
        real_store(dx + i, dropout_value(real_load(dy + i), scale, mask[i]));
}

extern "C" weir_status op_dropout_grad_cuda(const weir_kernel_args *args)
{
    const weir_view *out = &args->out[0];
    const int64_t count = count_of(&out->shape);
    WITH_REAL(out->dtype, T,
              LAUNCH((drop_grad<T>), blocks_for(count), DROP_THREADS, args->queue, *(const dropout_attrs *)args->attrs,
                     data_of<uint8_t>(&args->in[0]), data_of<T>(&args->in[1]), count, data_of<T>(out)));
    return launched(args);
}
