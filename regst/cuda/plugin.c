/* regst/cuda/plugin.c: the plugin's tables, and which kernels it has. */
#include <stdio.h>
#include <string.h>

#include "kernels/cuda/list.h"
#include "regst/cuda/driver.h"

/* From and to the host's pinned memory it is the copy engine's work; and within the device the driver's, too. */
static weir_status copy_kernel(const weir_kernel_args *args)
{
    const weir_view *view = &args->out[0];
    const uint64_t bytes = view_bytes(view);
    if (!bytes || view->data == args->in[0].data)
        return WEIR_OK;
    cudaError_t error = cudaMemcpyAsync(view->data, args->in[0].data, bytes, cudaMemcpyDefault, args->queue);
    if (!error)
        return WEIR_OK;
    cudaGetLastError();
    if (args->error_bytes)
        snprintf(args->error, args->error_bytes, "cudaMemcpyAsync: %s", cudaGetErrorString(error));
    return WEIR_E_KERNEL;
}

/* The kernels of the list that are linked. */
#define X(name) extern weir_status op_##name##_cuda(const weir_kernel_args *args) __attribute__((weak));
CUDA_OPS(X)
#undef X

static weir_kernel_fn find_builtin(const char *op)
{
#define X(name)            \
    if (!strcmp(op, #name)) \
        return op_##name##_cuda;
    CUDA_OPS(X)
#undef X
    return NULL;
}

/* A program's op has its own. */
static weir_kernel_fn find_kernel(const weir_op *op)
{
    if (op->kernel[WEIR_CUDA])
        return op->kernel[WEIR_CUDA];
    return strcmp(op->name, "copy") ? find_builtin(op->name) : copy_kernel;
}

#define X(name) extern weir_status op_##name##_cuda_prepare(const weir_kernel_args *args) __attribute__((weak));
CUDA_PREPARED(X)
#undef X

static weir_status prepare(struct device_queue *queue, weir_kernel_fn call, const weir_kernel_args *args)
{
#define X(name)                   \
    if (call == op_##name##_cuda) \
        return queue_prepare(queue, op_##name##_cuda_prepare, args);
    CUDA_PREPARED(X)
#undef X
    return WEIR_OK;
}

/* ---- several calls by one launch ---- */

typedef weir_status (*many_fn)(const weir_kernel_args *const *args, int count);
_Static_assert((int)JOINED_MAX == (int)DEVICE_JOINED_MAX, "kernels take what they may be given");

#define X(name) extern weir_status op_##name##_cuda_many(const weir_kernel_args *const *args, int count) __attribute__((weak));
CUDA_JOINED(X)
#undef X

static many_fn find_many(weir_kernel_fn call)
{
#define X(name)                   \
    if (call == op_##name##_cuda) \
        return op_##name##_cuda_many;
    CUDA_JOINED(X)
#undef X
    return NULL;
}

static bool joins(weir_kernel_fn call)
{
    return find_many(call) != NULL;
}

static weir_status launch_many(struct device_queue *queue, weir_kernel_fn call, const weir_kernel_args *const *args,
                               uint32_t count)
{
    return queue_launch_many(queue, find_many(call), args, count);
}

const struct device_ops cuda_ops = {
    .name = "cuda",
    .space_new = space_new,
    .space_free = space_free,
    .copy_in = space_copy_in,
    .copy_out = space_copy_out,
    .count = cards_count,
    .describe = cards_describe,
    .link = cards_link,
    .queue_open = queue_open,
    .queue_new = queue_new,
    .queue_free = queue_free,
    .kernel = find_kernel,
    .prepare = prepare,
    .launch = queue_launch,
    .joins = joins,
    .launch_many = launch_many,
    .mark = queue_mark,
    .await = queue_await,
    .group_new = group_new,
    .group_free = group_free,
    .group_key = group_key,
    .group_join = group_join,
    .meet = group_meet,
    .times = queue_times,
    .health = queue_health,
    .abort = queue_abort,
};

static struct device_ops pinned_ops; /* the host's table, but for the memory */

__attribute__((visibility("default"))) weir_status weir_plugin_cuda(const struct plugin_host *host,
                                                                    struct plugin_kinds *kinds);

weir_status weir_plugin_cuda(const struct plugin_host *host, struct plugin_kinds *kinds)
{
    if (host->version != PLUGIN_VERSION || host->table_bytes != sizeof(struct device_ops))
        return host->error_set(WEIR_E_UNSUPPORTED,
                               "the plugin for CUDA devices is of another build of weir: version %u, and not %u",
                               PLUGIN_VERSION, host->version);
    the.host = host;
    cards_find();
    pinned_ops = *host->pinned;
    pinned_ops.space_new = pinned_new;
    pinned_ops.space_free = pinned_free;
    pinned_ops.space_adopt = pinned_adopt;
    pinned_ops.space_leave = pinned_leave;
    kinds->ops[WEIR_CUDA] = &cuda_ops;
    kinds->ops[WEIR_PINNED] = &pinned_ops;
    return WEIR_OK;
}
