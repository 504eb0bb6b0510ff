/* tests/cuda/again.c: linked with a suite of kernels, it runs the same tests on the CUDA kernels.
 *
 * Kernels of the emulated plugin (tests/support/card.h) run at once, on the test's own memory: args->queue is NULL. On
 * a card operands are copied to a space of the device, the call is launched on a queue, and its outputs are copied
 * back. A refusal of the kernel is a failure of the call, in the op's words, as in sessions.
 */
#include <criterion/criterion.h>
#include <sched.h>

#include "graph/base/base.h"
#include "regst/plugin.h"
#include "tests/support/card.h"
#include "tests/support/kernel_check.h"

static const struct device_ops *cuda;
static const weir_op *op;     /* of the call that comes next, */
static weir_kernel_fn kernel; /* and its kernel */

/* The refusal of the kernel of the call. */
static weir_status refused(const weir_kernel_args *args, const weir_refusal *said)
{
    if (!said->call)
        return WEIR_OK;
    cr_assert_not_null(op->refused, "%s refuses without a sentence", op->name);
    return op->refused(args, (int64_t)(said->least >> 32), (int32_t)said->least);
}

/* ---- on a card ---- */

enum { OPERANDS = 3 * KERNEL_CHECK_MAX, ALIGNED = 256, LONGEST_S = 60 };

/* The memory of a call's operand; operands that share memory are one. */
static struct operand {
    void *host;
    uint64_t bytes, at;
} operands[OPERANDS];
static int operand_count;
static uint64_t space_bytes;

static uint64_t view_bytes(const weir_view *view)
{
    return (uint64_t)weir_shape_count(&view->shape) * weir_dtype_bytes(view->dtype);
}

static uint64_t place(void *host, uint64_t bytes)
{
    for (int i = 0; i < operand_count; i++)
        if (operands[i].host == host) {
            cr_assert_leq(bytes, operands[i].bytes);
            return operands[i].at;
        }
    cr_assert_lt(operand_count, OPERANDS);
    const uint64_t at = space_bytes;
    operands[operand_count++] = (struct operand){host, bytes, at};
    space_bytes += (bytes / ALIGNED + 1) * ALIGNED;
    return at;
}

/* The views with addresses from `base` on. */
static const weir_view *placed(const weir_view *from, int count, char *base, weir_view *to)
{
    for (int i = 0; i < count; i++) {
        to[i] = from[i];
        to[i].data = base + place(from[i].data, view_bytes(&from[i]));
    }
    return to;
}

static struct device_queue *queue_here(void)
{
    static struct device_queue *queue;
    if (!queue)
        cr_assert_eq(cuda->queue_new(0, DEVICE_COMPUTE, &queue), WEIR_OK, "%s", weir_error());
    return queue;
}

static weir_status launch(const weir_kernel_args *args)
{
    struct device_queue *queue = queue_here();
    weir_status status = cuda->queue_open(0);
    status = status ? status : cuda->launch(queue, kernel, args);
    status = status ? status : cuda->mark(queue);
    while (!status && atomic_load_explicit(queue->done, memory_order_acquire) < queue->marked) {
        status = cuda->health(queue, args->error, args->error_bytes);
        sched_yield();
    }
    return status;
}

static weir_status call_there(const weir_kernel_args *args)
{
    weir_view in[KERNEL_CHECK_MAX], out[KERNEL_CHECK_MAX], state[KERNEL_CHECK_MAX];
    weir_kernel_args there = *args;
    void *space = NULL;
    operand_count = 0;
    space_bytes = 0;
    placed(args->out, args->out_count, NULL, out);
    placed(args->in, args->in_count, NULL, in);
    placed(args->state, args->state_count, NULL, state);
    const uint64_t workspace = place(args->workspace, args->workspace_bytes);
    cr_assert_eq(cuda->space_new("", 0, space_bytes, &space), WEIR_OK, "%s", weir_error());
    for (int i = 0; i < operand_count; i++)
        if (operands[i].bytes)
            cr_assert_eq(cuda->copy_in((char *)space + operands[i].at, operands[i].host, operands[i].bytes), WEIR_OK);
    there.out = placed(args->out, args->out_count, space, out);
    there.in = placed(args->in, args->in_count, space, in);
    there.state = placed(args->state, args->state_count, space, state);
    there.workspace = (char *)space + workspace;
    weir_refusal *said = (weir_refusal *)queue_here()->refusal;
    *said = (weir_refusal){.least = UINT64_MAX};
    there.call = 1;
    weir_status status = launch(&there);
    for (int i = 0; i < operand_count && !status; i++)
        if (operands[i].bytes)
            cr_assert_eq(cuda->copy_out(operands[i].host, (char *)space + operands[i].at, operands[i].bytes), WEIR_OK);
    cuda->space_free(space, space_bytes);
    return status ? status : refused(args, said);
}

/* ---- both ---- */

static weir_status call_here(const weir_kernel_args *args)
{
    weir_refusal said = {.least = UINT64_MAX};
    weir_kernel_args own = *args;
    own.refusal = &said;
    own.call = 1;
    weir_status status = kernel(&own);
    return status ? status : refused(args, &said);
}

weir_device_kind kernel_check_kind(void)
{
    return WEIR_CUDA;
}

weir_kernel_fn kernel_check_kernel(const weir_op *next)
{
    if (!cuda) {
        card_open(NULL);
        cr_assert_eq(plugin_need(WEIR_CUDA), WEIR_OK, "%s", weir_error());
        cuda = device_find(WEIR_CUDA);
    }
    op = next;
    kernel = cuda->kernel(op);
    cr_assert_not_null(kernel, "%s has no kernel for CUDA devices", op->name);
    return card_real() ? call_there : call_here;
}
