/* kernels/reduce/softmax.h: an element of softmax's gradient, for all kinds of devices. Any thread. */
#ifndef KERNELS_REDUCE_SOFTMAX_H
#define KERNELS_REDUCE_SOFTMAX_H

#include "kernels/elementwise/fastmath.h"

/* `dot` is the sum of y dy over the row. */
FORMULA float softmax_dx(float y, float dy, float dot)
{
    return y * (dy - dot);
}

#endif
