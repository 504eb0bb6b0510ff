/* actors/watched.h: tells ThreadSanitizer which bytes a kernel on a CPU reads and writes.
 *
 * Kernels are compiled without ThreadSanitizer (UNWATCHED in the Makefile), because most of the time of its suites would go into
 * their loops. They have no variables (tests/check_variables), and the contract of a call names all bytes that it may touch: inputs,
 * outputs, states and workspace (<weir/op.h>). So the actor declares these before the call, each of them once and whole.
 *
 * A kernel may touch a part of its operands only, which the rules `reads`, `stays` and `onto` of its op name. Other actors may then
 * write the rest, so nothing is declared (actor_kernel.whole is false). box_kernel() is the only one of these; its folder,
 * kernels/core, is watched itself. Without ThreadSanitizer this does nothing.
 */
#ifndef ACTORS_WATCHED_H
#define ACTORS_WATCHED_H

#include "actors/actor.h"

#ifdef __SANITIZE_THREAD__

/* These are functions of the sanitizer's runtime; gcc knows their types. */
void __tsan_read_range(void *first, long bytes);
void __tsan_write_range(void *first, long bytes);

static inline long watched_bytes(const weir_view *view)
{
    return view->data ? weir_shape_count(&view->shape) * (long)weir_dtype_bytes(view->dtype) : 0;
}

/* Before each call. A call with a queue is only a launch: it touches nothing yet. */
static inline void watched_call(const struct actor_kernel *kernel)
{
    const weir_kernel_args *args = &kernel->args;
    if (!kernel->whole || args->queue)
        return;
    for (int i = 0; i < args->in_count; i++)
        __tsan_read_range(args->in[i].data, watched_bytes(&args->in[i]));
    for (int i = 0; i < args->state_count; i++)
        __tsan_write_range(args->state[i].data, watched_bytes(&args->state[i]));
    for (int i = 0; i < args->out_count; i++)
        __tsan_write_range(args->out[i].data, watched_bytes(&args->out[i]));
    __tsan_write_range(args->workspace, args->workspace ? (long)args->workspace_bytes : 0);
}

#else

static inline void watched_call(const struct actor_kernel *kernel)
{
    (void)kernel;
}

#endif

#endif
