/* transport/ucx/plugin.c: libweir-ucx.so's one function, and weir's own by the names that its other files know. */
#include "graph/base/error.h"
#include "graph/base/locale.h"
#include "transport/line/stream_plugin.h"
#include "transport/mail/park.h"

static const struct stream_host *weir;

weir_status(error_set)(weir_status status, const char *format, ...)
{
    char text[1024];
    va_list list;
    va_start(list, format);
    text_vprint(text, sizeof text, format, list);
    va_end(list);
    return (weir->error_set)(status, "%s", text);
}

const char *weir_error(void)
{
    return weir->error();
}

int64_t park_now_ns(void)
{
    return weir->now_ns();
}

bool park_thread(pthread_t *thread, const char *name, void *(*run)(void *), void *argument)
{
    return weir->thread(thread, name, run, argument);
}

bool seal_write(struct seal_box *box, const struct iovec *parts, int count, size_t bytes, unsigned char *to)
{
    return weir->seal_write(box, parts, count, bytes, to);
}

bool seal_read(struct seal_box *box, const unsigned char *record, size_t bytes, unsigned char *to)
{
    return weir->seal_read(box, record, bytes, to);
}

uint32_t seal_record_bytes(const unsigned char *record)
{
    return weir->seal_record_bytes(record);
}

__attribute__((visibility("default"))) weir_status weir_plugin_ucx(const struct stream_host *host, streams_open_fn *open);

weir_status weir_plugin_ucx(const struct stream_host *host, streams_open_fn *open)
{
    if (host->version != STREAM_PLUGIN_VERSION)
        return (host->error_set)(WEIR_E_UNSUPPORTED, "the plugin for UCX is of another build of weir: its version is %d, weir's %u",
                               STREAM_PLUGIN_VERSION, host->version);
    weir = host;
    *open = streams_open;
    return WEIR_OK;
}
