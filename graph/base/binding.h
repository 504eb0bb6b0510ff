/* graph/base/binding.h: a function of the program's that a plan calls: what a host op's kernel finds in args->host.
 *
 * A graph has it from the call that built the op, a plan carries it beside its hosts, a session may be given another;
 * the kernels of the host ops (kernels/core/) call it. All of them know it, and none of them another.
 */
#ifndef GRAPH_BASE_BINDING_H
#define GRAPH_BASE_BINDING_H

#include <weir/graph.h>
#include <weir/op.h>

typedef union callback_fn {
    weir_source_fn source;
    weir_sink_fn sink;
    weir_kernel_fn call;
} callback_fn;

typedef struct callback_binding {
    callback_fn fn;
    void *ctx; /* borrowed */
    weir_source_save_fn save; /* of a source; may be NULL */
    weir_source_restore_fn restore;
    weir_open_fn open; /* of a call; may be NULL */
    weir_close_fn close;
} callback_binding;

#endif
