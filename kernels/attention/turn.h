/* kernels/attention/turn.h: keys of f32 or halves as columns, in registers.
 *
 * Sixteen rows of sixteen words are turned: word w of row r becomes word r of row w. A word of halves has two columns, which widened()
 * takes apart. Header-only; any thread.
 */
#ifndef KERNELS_ATTENTION_TURN_H
#define KERNELS_ATTENTION_TURN_H

#include "kernels/common/lanes.h"

#include <stdbool.h>

typedef uint16_t halves __attribute__((vector_size(LANES * sizeof(uint16_t))));
typedef uint32_t words __attribute__((vector_size(LANES * sizeof(uint32_t))));

/* The f32 of halves in the lower bits of the lanes; the upper bits are 0. An f16's exponent is brought up by a product, which is exact
 * for subnormals, too. */
static inline __attribute__((always_inline)) lanes widened(words half, bool bf16)
{
    if (bf16)
        return (lanes)(half << 16);
    const lanes magnitude = (lanes)((half & 0x7FFF) << 13) * 0x1p112f;
    const words special = (words)((half & 0x7C00) == 0x7C00) & 0x7F800000;
    return (lanes)((words)magnitude | special | (half & 0x8000) << 16);
}

/* Row i, lane l to row l, lane i. */
static inline __attribute__((always_inline)) void turn(lanes t[LANES])
{
#pragma GCC unroll 4
    for (int w = LANES / 2; w; w /= 2) {
        lane_numbers low, high;
        for (int l = 0; l < LANES; l++) {
            low[l] = l & w ? LANES + l - w : l;
            high[l] = l & w ? LANES + l : l + w;
        }
#pragma GCC unroll 16
        for (int i = 0; i < LANES; i++)
            if (!(i & w)) {
                const lanes a = t[i], b = t[i + w];
                t[i] = lanes_pick(a, b, low);
                t[i + w] = lanes_pick(a, b, high);
            }
    }
}

/* `bytes` of each of up to LANES keys, the first at `from`; 0 for those that are not there. */
static inline __attribute__((always_inline)) void load_keys(const char *from, int64_t apart, int64_t count, lanes t[LANES])
{
#pragma GCC unroll 16
    for (int j = 0; j < LANES; j++) {
        t[j] = (lanes){};
        if (j < count)
            memcpy(&t[j], from + j * apart, sizeof t[j]);
    }
}

#endif
