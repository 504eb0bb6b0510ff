/* kernels/random/dropout.cu: dropout and its gradient on a GPU; dropout.c has the rules and says which word an element draws.
 * A thread does one element; its place in the logical tensor follows from its index in the shard.
 */
#include "kernels/random/place.h"

enum { DROP_THREADS = 256, DROP_BLOCKS = 1 << 14 };

template <class T>
KERNEL_OF(drop, DROP_THREADS)(dropout_attrs attrs, drop_place place, uint64_t key, const weir_clock *clock, const T *x,
                              int64_t count, T *y, uint8_t *mask)
{
    const uint32_t threshold = dropout_threshold(&attrs);
    const float scale = dropout_scale(&attrs);
    const uint64_t firing = (uint64_t)clock->firing;
    for (int64_t i = THREAD; i < count; i += THREADS) {
        const bool kept = drop_keeps(place, key, firing, threshold, i);
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
