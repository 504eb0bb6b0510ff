/* kernels/shape/fill.cu: constants and ranges on a GPU; fill.c has the rules. */
#include "kernels/shape/fill.h"

#include "kernels/cuda/packs.h"

DEVICE void fill_store(float *to, double x) { *to = (float)x; }
DEVICE void fill_store(__half *to, double x) { *to = __float2half_rn((float)x); }
DEVICE void fill_store(__nv_bfloat16 *to, double x) { *to = __float2bfloat16_rn((float)x); }
DEVICE void fill_store(int32_t *to, double x) { *to = (int32_t)x; }
DEVICE void fill_store(uint8_t *to, double x) { *to = (uint8_t)x; }
DEVICE void fill_store(int8_t *to, double x) { *to = (int8_t)x; }
DEVICE void fill_store(int64_t *to, double x) { *to = (int64_t)x; }

/* Element i is start + step i; of a constant the step is 0. */
template <class T> struct fill_of {
    T *to;
    double start, step;
    int64_t first;
    template <int N> METHOD void at(int64_t i) const
    {
        const double product = step * (double)(first + i);
        fill_store(to + i, start + product);
    }
};

template <class T>
static void fill_launch(const weir_kernel_args *args, double start, double step, int64_t first)
{
    const fill_of<T> f = {data_of<T>(&args->out[0]), start, step, first};
    each<1>(args, f, count_of(&args->out[0].shape), false);
}

static weir_status fill(const weir_kernel_args *args, double start, double step, int64_t first)
{
    const weir_dtype dtype = args->out[0].dtype;
    if (dtype == WEIR_I32)
        fill_launch<int32_t>(args, start, step, first);
    else if (dtype == WEIR_U8)
        fill_launch<uint8_t>(args, start, step, first);
    else if (dtype == WEIR_I8)
        fill_launch<int8_t>(args, start, step, first);
    else if (dtype == WEIR_I64)
        fill_launch<int64_t>(args, start, step, first);
    else
        WITH_REAL(dtype, T, fill_launch<T>(args, start, step, first));
    return launched(args);
}

extern "C" weir_status op_constant_cuda(const weir_kernel_args *args)
{
    return fill(args, ((const constant_attrs *)args->attrs)->value, 0, 0);
}

extern "C" weir_status op_range_cuda(const weir_kernel_args *args)
{
    const steps_attrs *attrs = (const steps_attrs *)args->attrs;
    return fill(args, attrs->start, attrs->step, args->out[0].offset[0]);
}
