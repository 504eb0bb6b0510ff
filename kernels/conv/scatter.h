/* kernels/conv/scatter.h: the way back through a window: what its taps give to the large side. Any thread. */
#ifndef KERNELS_CONV_SCATTER_H
#define KERNELS_CONV_SCATTER_H

#include "kernels/conv/window.h"

/* Adds to a channel of the large side what tap `tap` has for the small positions [first, first + count): `by` from[0 ...]. It
 * drops elements that fall into a pad. */
void scatter_tap(const window *w, const int64_t tap[WINDOW_DIMS], int64_t first, int64_t count, const float *from, float by,
                 float *large);

#endif
