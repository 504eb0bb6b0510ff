/* transport/line/stream_plugin.c: streams over UCX are a plugin's, which the first call loads. After a
 * failure the next call tries again. */
#include "transport/line/stream_plugin.h"

#include "graph/base/error.h"
#include "graph/base/plugin.h"
#include "transport/mail/park.h"

static const struct stream_host host = {STREAM_PLUGIN_VERSION, (error_set), weir_error, park_now_ns, park_thread,
                                        seal_write, seal_read, seal_record_bytes};
static pthread_mutex_t loading = PTHREAD_MUTEX_INITIALIZER;
static streams_open_fn open_streams;

static weir_status load(void)
{
    static const struct plugin ucx = {"libweir-ucx.so", "WEIR_UCX_PLUGIN", "UCX", "weir_plugin_ucx", "libucx-dev"};
    void *object;
    stream_plugin_fn plugin = (stream_plugin_fn)plugin_load(&ucx, &object);
    if (!plugin)
        return error_set(WEIR_E_UNSUPPORTED, "WEIR_CARRIER lists ucx, and %s", weir_error());
    weir_status status = plugin(&host, &open_streams);
    if (status)
        plugin_unload(object);
    return status;
}

weir_status streams_ucx(struct streams **streams, int epoll_fd)
{
    pthread_mutex_lock(&loading);
    weir_status status = open_streams ? WEIR_OK : load();
    pthread_mutex_unlock(&loading);
    return status ? status : open_streams(streams, epoll_fd);
}
