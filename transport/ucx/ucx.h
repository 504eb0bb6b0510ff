/* transport/ucx/ucx.h: UCX's libraries, which are loaded when somebody asks for them and not before.
 *
 * A program that wants nothing of UCX gets nothing of it: the plugin is not linked with it. Once loaded both
 * stay for the life of the process. Weir undoes its effects on the process where that is possible: it
 * removes signal handlers that its constructors install, and its messages go nowhere but into the error
 * of the call that failed (ucx_last_error()), as far as weir's own calls bring it about.
 *
 * Any thread.
 */
#ifndef TRANSPORT_UCX_UCX_H
#define TRANSPORT_UCX_UCX_H

#include <ucp/api/ucp.h>
#include <weir/base.h>

/* The functions of libucp, and of libucs on which it rests. */
#define UCX_FUNCTIONS(X)                                                                                                \
    X(ucp_config_read)                                                                                                 \
    X(ucp_config_release)                                                                                              \
    X(ucp_init_version)                                                                                                \
    X(ucp_cleanup)                                                                                                     \
    X(ucp_worker_create)                                                                                               \
    X(ucp_worker_destroy)                                                                                              \
    X(ucp_worker_get_address)                                                                                          \
    X(ucp_worker_release_address)                                                                                      \
    X(ucp_worker_get_efd)                                                                                              \
    X(ucp_worker_arm)                                                                                                  \
    X(ucp_worker_signal)                                                                                               \
    X(ucp_worker_progress)                                                                                             \
    X(ucp_ep_create)                                                                                                   \
    X(ucp_ep_close_nbx)                                                                                                \
    X(ucp_stream_send_nbx)                                                                                             \
    X(ucp_stream_recv_data_nb)                                                                                         \
    X(ucp_stream_data_release)                                                                                         \
    X(ucp_request_free)                                                                                                \
    X(ucs_status_string)

#define UCX_DECLARE(name) __typeof__(name) *name;
struct ucx {
    UCX_FUNCTIONS(UCX_DECLARE)
};
#undef UCX_DECLARE

/* The functions. E_UNSUPPORTED: the libraries are not there, or lack some. */
weir_status ucx_load(const struct ucx **ucx);

/* Around calls into UCX: what it says meanwhile on this thread is not printed. ucx_quiet() begins; calls do not nest. */
void ucx_quiet(void);
void ucx_loud(void);

/* The last error that it said, since ucx_quiet() of this thread; "": nothing. */
const char *ucx_last_error(void);

#endif
