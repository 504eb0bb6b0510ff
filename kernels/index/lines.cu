/* kernels/index/lines.cu: cumulative sums and the largest of each line, on a GPU: a thread for each line; lines.c has the rules. */
#include "kernels/index/lines.h"

#include "kernels/cuda/packs.h"

/* Line i of a tensor that is seen as [outside, size, inside]. */
struct line_shape {
    int64_t lines, size, step;
    METHOD int64_t first(int64_t i, int64_t places) const { return i / step * places * step + i % step; }
};

static line_shape lines_of(const weir_shape *x, int64_t given)
{
    const int axis = (int)(given < 0 ? given + x->rank : given);
    line_shape l = {shape_size(x, 0, axis), x->dim[axis], shape_size(x, axis + 1, x->rank)};
    l.lines *= l.step;
    return l;
}

/* ---- cumsum ---- */

DEVICE double term_of(float x) { return x; }
DEVICE double term_of(__half x) { return __half2float(x); }
DEVICE double term_of(__nv_bfloat16 x) { return __bfloat162float(x); }
DEVICE uint64_t term_of(int32_t x) { return (uint64_t)x; }
DEVICE uint64_t term_of(int64_t x) { return (uint64_t)x; }
DEVICE void sum_store(float *to, double sum) { *to = (float)sum; }
DEVICE void sum_store(__half *to, double sum) { *to = __float2half_rn((float)sum); }
DEVICE void sum_store(__nv_bfloat16 *to, double sum) { *to = __float2bfloat16_rn((float)sum); }
DEVICE void sum_store(int32_t *to, uint64_t sum) { *to = (int32_t)sum; }
DEVICE void sum_store(int64_t *to, uint64_t sum) { *to = (int64_t)sum; }

template <class T> struct running_sums {
    line_shape l;
    bool exclusive, reverse;
    const T *x;
    T *y;
    template <int N> METHOD void at(int64_t i) const
    {
        const int64_t step = reverse ? -l.step : l.step;
        int64_t at = l.first(i, l.size) + (reverse ? (l.size - 1) * l.step : 0);
        decltype(term_of(*x)) sum = 0;
#pragma unroll 1 /* so that few registers are needed */
        for (int64_t k = 0; k < l.size; k++, at += step) {
            const auto all = sum + term_of(x[at]);
            sum_store(y + at, exclusive ? sum : all);
            sum = all;
        }
    }
};

template <class T> static void sums_launch(const weir_kernel_args *args)
{
    const cumsum_attrs *attrs = (const cumsum_attrs *)args->attrs;
    const line_shape l = lines_of(&args->in[0].shape, attrs->axis);
    const running_sums<T> f = {l, attrs->exclusive != 0, attrs->reverse != 0, data_of<T>(&args->in[0]), data_of<T>(&args->out[0])};
    each<1>(args, f, l.size ? l.lines : 0, false);
}

extern "C" weir_status op_cumsum_cuda(const weir_kernel_args *args)
{
    const weir_dtype dtype = args->in[0].dtype;
    if (dtype == WEIR_I32)
        sums_launch<int32_t>(args);
    else if (dtype == WEIR_I64)
        sums_launch<int64_t>(args);
    else
        WITH_REAL(dtype, T, sums_launch<T>(args));
    return launched(args);
}

/* ---- top_k: the outputs hold the best so far ---- */

template <class T> struct best_of_lines {
    line_shape l;
    int64_t count;
    const T *x;
    T *values;
    int32_t *indices;
    template <int N> METHOD void at(int64_t i) const
    {
        const int64_t from = l.first(i, l.size), to = l.first(i, count);
        int64_t have = 0;
        for (int64_t k = 0; k < l.size; k++) {
            const float own = real_load(x + from + k * l.step);
            if (have == count && !comes_first(own, real_load(values + to + (count - 1) * l.step)))
                continue;
            int64_t place = have < count ? have++ : count - 1;
            for (; place > 0 && comes_first(own, real_load(values + to + (place - 1) * l.step)); place--) {
                values[to + place * l.step] = values[to + (place - 1) * l.step];
                indices[to + place * l.step] = indices[to + (place - 1) * l.step];
            }
            values[to + place * l.step] = x[from + k * l.step];
            indices[to + place * l.step] = (int32_t)k;
        }
    }
};

template <class T> static void best_launch(const weir_kernel_args *args)
{
    const top_k_attrs *attrs = (const top_k_attrs *)args->attrs;
    const best_of_lines<T> f = {lines_of(&args->in[0].shape, attrs->axis), attrs->count, data_of<T>(&args->in[0]),
                                data_of<T>(&args->out[0]), view_i32(&args->out[1])};
    each<1>(args, f, f.l.lines, false);
}

extern "C" weir_status op_top_k_cuda(const weir_kernel_args *args)
{
    WITH_REAL(args->in[0].dtype, T, best_launch<T>(args));
    return launched(args);
}
