/* kernels/conv/sizes.h: what the three ops of a convolution have in common.
 *
 *     large [batch, groups large_channels, ...]   weight [groups small_channels, large_channels, k...]
 *     small [batch, groups small_channels, ...]
 *
 *     conv       small = weight * large
 *     conv_dx    large = weight^T * small       the gradient of conv by large, and the transposed convolution
 *     conv_dw    weight = small * large         the gradient of both by the weight
 *
 * The number of groups in a call follows from the shapes of its shards: a device that has some of the groups has as many
 * channels fewer. Header-only; any thread.
 */
#ifndef KERNELS_CONV_SIZES_H
#define KERNELS_CONV_SIZES_H

#include "kernels/conv/room.h"
#include "kernels/conv/window.h"

typedef struct conv_sizes {
    window w;
    int64_t batch, groups;
    int64_t small_channels, large_channels; /* of a group */
    int64_t taps, small, large;             /* elements of the window, and of a channel on either side */
} conv_sizes;

static inline conv_sizes conv_sizes_of(const window_attrs *attrs, const weir_shape *large, const weir_shape *small,
                                       const weir_shape *weight)
{
    conv_sizes s;
    s.w = window_of(attrs, large, small);
    s.batch = large->dim[0];
    s.large_channels = weight->dim[1];
    s.groups = s.large_channels ? large->dim[1] / s.large_channels : 1;
    s.small_channels = s.groups ? weight->dim[0] / s.groups : 0;
    s.taps = window_taps(&s.w);
    s.small = window_small(&s.w);
    s.large = window_large(&s.w);
    return s;
}

/* The kernels and their workspaces, on CPUs. */
size_t conv_workspace(const weir_op_args *args, weir_device_kind kind);
weir_status conv_cpu(const weir_kernel_args *args);
size_t conv_dx_workspace(const weir_op_args *args, weir_device_kind kind);
weir_status conv_dx_cpu(const weir_kernel_args *args);
size_t conv_dw_workspace(const weir_op_args *args, weir_device_kind kind);
weir_status conv_dw_cpu(const weir_kernel_args *args);

#endif
