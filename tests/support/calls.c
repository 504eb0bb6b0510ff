/* calls.c: see the header. */
#include "tests/support/calls.h"

#include <criterion/criterion.h>
#include <stdlib.h>

#include "regst/device.h"

enum { OPERANDS = 16 };

static void call_with(const weir_op *op, const void *attrs, weir_device_kind kind, weir_kernel_fn kernel,
                      const weir_view *in, int in_count, const weir_view *out, int out_count)
{
    weir_type types[2 * OPERANDS];
    char error[256] = "";
    for (int i = 0; i < in_count + out_count; i++) {
        const weir_view *view = i < in_count ? &in[i] : &out[i - in_count];
        types[i] = (weir_type){view->dtype, view->shape};
    }
    const weir_op_args local = {op, types, in_count, types + in_count, out_count, attrs};
    const size_t bytes = op->workspace ? op->workspace(&local, kind) : 0;
    void *workspace = aligned_alloc(256, bytes / 256 * 256 + 256);
    cr_assert(!op->fits || op->fits(&local, error, sizeof error), "%s: %s", op->name, error);
    const weir_kernel_args args = {.in = in, .in_count = in_count, .out = out, .out_count = out_count, .attrs = attrs,
                                   .workspace = workspace, .workspace_bytes = bytes, .error = error,
                                   .error_bytes = sizeof error};
    cr_assert_eq(kernel(&args), WEIR_OK, "%s: %s", op->name, error);
    free(workspace);
}

void call_on_cpu(const weir_op *op, const void *attrs, const weir_view *in, int in_count, const weir_view *out)
{
    call_with(op, attrs, WEIR_CPU, op->kernel[WEIR_CPU], in, in_count, out, 1);
}

void call_on_card(const weir_op *op, const void *attrs, const weir_view *in, int in_count, const weir_view *out,
                    int out_count)
{
    call_with(op, attrs, WEIR_CUDA, device_find(WEIR_CUDA)->kernel(op), in, in_count, out, out_count);
}

weir_view view_blank(weir_dtype dtype, weir_shape shape)
{
    return kernel_view_new((weir_type){dtype, shape}, KERNEL_GARBAGE);
}

weir_view view_drawn(weir_dtype dtype, weir_shape shape, uint64_t *random)
{
    weir_view view = view_blank(dtype, shape);
    for (int64_t i = 0; i < weir_shape_count(&shape); i++)
        kernel_set(&view, i, kernel_round(dtype, kernel_random_normal(random)));
    return view;
}
