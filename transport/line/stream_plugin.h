/* transport/line/stream_plugin.h: libweir-ucx.so, the plugin that makes streams over UCX (graph/base/plugin.h). */
#ifndef TRANSPORT_LINE_STREAM_PLUGIN_H
#define TRANSPORT_LINE_STREAM_PLUGIN_H

#include <pthread.h>

#include "transport/line/stream.h"

enum { STREAM_PLUGIN_VERSION = 1 };

/* The functions of weir that the plugin calls. */
struct stream_host {
    uint32_t version; /* STREAM_PLUGIN_VERSION */
    weir_status (*error_set)(weir_status status, const char *format, ...) __attribute__((format(printf, 2, 3)));
    const char *(*error)(void);
    int64_t (*now_ns)(void);
    bool (*thread)(pthread_t *thread, const char *name, void *(*run)(void *), void *argument);
    bool (*seal_write)(struct seal_box *box, const struct iovec *parts, int count, size_t bytes, unsigned char *to);
    bool (*seal_read)(struct seal_box *box, const unsigned char *record, size_t bytes, unsigned char *to);
    uint32_t (*seal_record_bytes)(const unsigned char *record);
};

typedef weir_status (*streams_open_fn)(struct streams **streams, int epoll_fd);

/* The plugin's one function: how streams are made (as streams_ucx()). Fails for another version of this header. Once. */
typedef weir_status (*stream_plugin_fn)(const struct stream_host *host, streams_open_fn *open);

/* Within the plugin: what it gives. */
weir_status streams_open(struct streams **streams, int epoll_fd);

#endif
