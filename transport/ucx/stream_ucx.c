/* transport/ucx/stream_ucx.c: streams over UCX: RDMA, shared memory, TCP, what UCX finds and the user lets it.
 *
 *     the connection      n, the UCX address of the sender, as a record where all is encrypted; then nothing but its end
 *     UCP stream          "WEIRLINE", then the bytes of the line
 *
 * One context and one worker serve a network; a stream is an endpoint of UCP's stream API, which is what a line asks for:
 * bytes in order, sent from where they lie. (Messages with tags or handlers have bounds of their own, and would be cut
 * to no purpose: what a line says is framed already.) UCP has no pushing back on a stream, and keeps what has come until
 * it is read; credit bounds that.
 *
 * Sending. A write posts what it is given as it lies, up to UCX_SENDS at a time. Bytes count as taken when UCX is done with
 * them, in their order; until then they come again, and are passed over.
 *
 * Moving. Everything happens in ucp_worker_progress(), also what belongs to other streams, and a transport that has been
 * read does not wake anybody again. So only turn() calls it, behind which all streams are read; who has to call it
 * elsewhere (a stream that closes) signals the worker, which wakes who sleeps, and keeps who is about to from it.
 *
 * Ends. The connection tells that the peer has gone, whatever UCX's transport finds out, and closes after UCX has sent
 * what it had taken. A stream that is closed while UCX has bytes of others' memory under way is cut off at once, and not
 * left before UCX has let go of them.
 */
#define _GNU_SOURCE
#include "transport/ucx/ucx.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "graph/base/error.h"
#include "graph/base/locale.h"
#include "transport/line/stream_plugin.h"
#include "transport/mail/park.h"

#define UCX_SENDS 8                  /* under way in a stream */
#define UCX_PARTS 16                 /* of one */
#define UCX_SEND_BYTES (256u << 10)  /* of one: what is done with is counted while the rest goes on */
#define UCX_ADDRESS_BYTES 32768      /* no more than a record holds */
#define UCX_CUT_NS INT64_C(5000000000) /* for a stream that was cut off to let go of what was under way */
#define LOOK_MS 10

static const char greeting[8] = {'W', 'E', 'I', 'R', 'L', 'I', 'N', 'E'};

struct ucx_streams {
    struct streams base;
    const struct ucx *ucx;   /* borrowed */
    ucp_context_h context;   /* owned, as the worker and its address */
    ucp_worker_h worker;
    ucp_address_t *address;
    size_t address_bytes;
    int worker_fd;           /* readable when the worker has something to do; the worker's */
    uint32_t closing;        /* endpoints that send what they had taken */
    struct ucx_stream *all;  /* owned; UCX may speak of one that is closed */
};

struct ucx_send {
    struct ucx_stream *of;
    void *request;               /* UCX's, until it is done with it; NULL */
    size_t bytes;
    ucp_dt_iov_t parts[UCX_PARTS];
};

struct ucx_stream {
    struct stream base;
    struct ucx_streams *streams; /* borrowed */
    struct ucx_stream *next;
    ucp_ep_h endpoint;           /* owned; NULL: not yet, or closed */
    ucs_status_t failed;         /* UCS_OK: it has not */
    struct ucx_send sends[UCX_SENDS]; /* a ring */
    uint32_t sends_first, sends_count;
    uint32_t under_way;          /* of them, those with which UCX is not done */
    void *closes;                /* UCX's: the request to close it, until that is done; NULL */
    char *came;                  /* UCX's: what is being read; NULL: nothing */
    size_t came_first, came_end;

    /* Until the endpoint is ready: the greetings to and from the other side, owned, and their bytes sent and received. */
    unsigned char *outgoing, *incoming;
    size_t outgoing_first, outgoing_end, incoming_bytes;
    size_t greeted;
    bool greeted_sent;
};

static struct ucx_stream *of_stream(struct stream *stream)
{
    return (struct ucx_stream *)stream;
}

static struct ucx_streams *of_streams(struct streams *streams)
{
    return (struct ucx_streams *)streams;
}

/* ---- writing ---- */

static void send_done(void *request, ucs_status_t status, void *context)
{
    struct ucx_send *send = context;
    (void)status; /* the endpoint has failed then, which its handler is told */
    send->of->streams->ucx->ucp_request_free(request);
    send->of->under_way--;
    send->request = NULL;
}

/* The parts that follow `skip` bytes, as many as one send takes. */
static size_t send_fill(struct ucx_send *send, const struct iovec *parts, int count, size_t skip, size_t *used)
{
    size_t bytes = 0;
    *used = 0;
    for (int i = 0; i < count && *used < UCX_PARTS && bytes < UCX_SEND_BYTES; i++) {
        size_t past = skip < parts[i].iov_len ? skip : parts[i].iov_len, left = parts[i].iov_len - past;
        skip -= past;
        left = left < UCX_SEND_BYTES - bytes ? left : UCX_SEND_BYTES - bytes;
        if (!left)
            continue;
        send->parts[(*used)++] = (ucp_dt_iov_t){(char *)parts[i].iov_base + past, left};
        bytes += left;
    }
    return bytes;
}

/* Gives UCX what follows `skip` bytes; false: there is nothing, or it cannot be. */
static bool send_post(struct ucx_stream *stream, const struct iovec *parts, int count, size_t skip)
{
    struct ucx_send *send = &stream->sends[(stream->sends_first + stream->sends_count) % UCX_SENDS];
    size_t used;
    send->bytes = send_fill(send, parts, count, skip, &used);
    if (!used)
        return false;
    const ucp_request_param_t how = {
        .op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA | UCP_OP_ATTR_FIELD_DATATYPE |
                        UCP_OP_ATTR_FIELD_MEMORY_TYPE,
        .cb.send = send_done,
        .user_data = send,
        .datatype = used > 1 ? ucp_dt_make_iov() : ucp_dt_make_contig(1),
        .memory_type = UCS_MEMORY_TYPE_HOST};
    send->of = stream;
    ucs_status_ptr_t sent = stream->streams->ucx->ucp_stream_send_nbx(
        stream->endpoint, used > 1 ? (void *)send->parts : send->parts->buffer, used > 1 ? used : send->bytes, &how);
    if (UCS_PTR_IS_ERR(sent)) {
        stream->failed = UCS_PTR_STATUS(sent);
        return false;
    }
    send->request = sent;
    stream->under_way += sent != NULL;
    stream->sends_count++;
    return true;
}

/* Bytes of those that UCX is done with, up to the first with which it is not. */
static size_t sends_over(struct ucx_stream *stream)
{
    size_t bytes = 0;
    for (; stream->sends_count && !stream->sends[stream->sends_first].request; stream->sends_count--) {
        bytes += stream->sends[stream->sends_first].bytes;
        stream->sends_first = (stream->sends_first + 1) % UCX_SENDS;
    }
    return bytes;
}

static ssize_t write_parts(struct ucx_stream *stream, const struct iovec *parts, int count)
{
    size_t posted = 0;
    for (uint32_t i = 0; i < stream->sends_count; i++)
        posted += stream->sends[(stream->sends_first + i) % UCX_SENDS].bytes;
    while (!stream->failed && stream->sends_count < UCX_SENDS && send_post(stream, parts, count, posted))
        posted += stream->sends[(stream->sends_first + stream->sends_count - 1) % UCX_SENDS].bytes;
    if (stream->failed && !stream->under_way)
        return -1;
    return stream->failed ? 0 : (ssize_t)sends_over(stream);
}

static ssize_t ucx_write(struct stream *base, const struct iovec *parts, int count)
{
    ucx_quiet();
    ssize_t done = write_parts(of_stream(base), parts, count);
    ucx_loud();
    return done;
}

/* ---- reading ---- */

static void came_release(struct ucx_stream *stream)
{
    if (stream->came)
        stream->streams->ucx->ucp_stream_data_release(stream->endpoint, stream->came);
    stream->came = NULL;
}

/* Whether there is something to be read. */
static bool came_next(struct ucx_stream *stream)
{
    size_t bytes = 0;
    if (stream->came)
        return true;
    ucs_status_ptr_t data = stream->streams->ucx->ucp_stream_recv_data_nb(stream->endpoint, &bytes);
    if (UCS_PTR_IS_ERR(data)) {
        stream->failed = UCS_PTR_STATUS(data);
        return false;
    }
    stream->came = data;
    stream->came_first = 0;
    stream->came_end = bytes;
    return data;
}

static size_t read_part(struct ucx_stream *stream, const struct iovec *part)
{
    size_t done = 0;
    while (done < part->iov_len && came_next(stream)) {
        size_t left = stream->came_end - stream->came_first, room = part->iov_len - done;
        size_t bytes = left < room ? left : room;
        memcpy((char *)part->iov_base + done, stream->came + stream->came_first, bytes);
        done += bytes;
        stream->came_first += bytes;
        if (stream->came_first == stream->came_end)
            came_release(stream);
    }
    return done;
}

static ssize_t ucx_read(struct stream *base, const struct iovec *parts, int count)
{
    struct ucx_stream *stream = of_stream(base);
    size_t done = 0;
    ucx_quiet();
    for (int i = 0; i < count; i++) {
        size_t bytes = read_part(stream, &parts[i]);
        done += bytes;
        if (bytes < parts[i].iov_len)
            break;
    }
    ucx_loud();
    return !done && stream->failed ? -1 : (ssize_t)done;
}

/* ---- moving ---- */

static bool ucx_turn(struct streams *base)
{
    struct ucx_streams *streams = of_streams(base);
    ucx_quiet();
    bool moved = streams->ucx->ucp_worker_progress(streams->worker);
    ucx_loud();
    return moved;
}

/* The work to be done may be for UCX's own thread, which takes connections: where this one has a real-time priority, and its
 * descriptor is readable all the time, that one would not run. */
static bool ucx_rest(struct streams *base)
{
    struct ucx_streams *streams = of_streams(base);
    ucx_quiet();
    bool armed = streams->ucx->ucp_worker_arm(streams->worker) == UCS_OK;
    ucx_loud();
    sched_yield();
    return armed;
}

/* Where streams are not read behind it: who sleeps comes to read them. */
static void move_elsewhere(struct ucx_streams *streams)
{
    if (streams->ucx->ucp_worker_progress(streams->worker))
        streams->ucx->ucp_worker_signal(streams->worker);
}

/* ---- ends ---- */

static void connection_close(struct ucx_stream *stream)
{
    if (stream->base.fd >= 0)
        close(stream->base.fd);
    stream->base.fd = -1;
}

static void close_done(void *request, ucs_status_t status, void *context)
{
    struct ucx_stream *stream = context;
    (void)status;
    stream->streams->ucx->ucp_request_free(request);
    stream->streams->closing--;
    stream->closes = NULL;
    connection_close(stream);
}

static void endpoint_close(struct ucx_stream *stream, bool cut)
{
    struct ucx_streams *streams = stream->streams;
    const ucp_request_param_t how = {
        .op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA | UCP_OP_ATTR_FIELD_FLAGS,
        .flags = cut ? UCP_EP_CLOSE_FLAG_FORCE : 0,
        .cb.send = close_done,
        .user_data = stream};
    ucp_ep_h endpoint = stream->endpoint;
    stream->endpoint = NULL;
    streams->closing++;
    ucs_status_ptr_t closes = streams->ucx->ucp_ep_close_nbx(endpoint, &how);
    if (UCS_PTR_IS_PTR(closes)) {
        stream->closes = closes;
        return;
    }
    streams->closing--;
    connection_close(stream);
}

static void ucx_close(struct stream *base)
{
    struct ucx_stream *stream = of_stream(base);
    int64_t until_ns = park_now_ns() + UCX_CUT_NS;
    ucx_quiet();
    if (stream->endpoint) {
        came_release(stream);
        endpoint_close(stream, stream->under_way || stream->failed);
    } else {
        connection_close(stream);
    }
    while (stream->under_way && park_now_ns() < until_ns)
        move_elsewhere(stream->streams);
    ucx_loud();
}

static void ended(void *context, ucp_ep_h endpoint, ucs_status_t status)
{
    (void)endpoint;
    ((struct ucx_stream *)context)->failed = status;
}

/* ---- meeting ---- */

static weir_status unlike(const char *what)
{
    return error_set(WEIR_E_PEER, "the other end does not speak as a rank over UCX does: %s", what);
}

/* The sentence about this rank's UCX. */
static weir_status tell_begin(struct ucx_stream *stream, struct seal_box *box)
{
    const struct ucx_streams *streams = stream->streams;
    uint32_t bytes = (uint32_t)streams->address_bytes;
    struct iovec address = {streams->address, bytes};
    stream->outgoing_end = bytes + (box ? SEAL_OVER_BYTES : SEAL_HEAD_BYTES);
    stream->outgoing = malloc(stream->outgoing_end);
    if (!stream->outgoing)
        return error_set(WEIR_E_MEMORY, "no memory for an address");
    memcpy(stream->outgoing, &bytes, sizeof bytes);
    memcpy(stream->outgoing + sizeof bytes, streams->address, bytes);
    if (box && !seal_write(box, &address, 1, bytes, stream->outgoing))
        return error_set(WEIR_E_PEER, "an address cannot be encrypted");
    return WEIR_OK;
}

static weir_status tell(struct ucx_stream *stream, struct seal_box *box)
{
    weir_status status = stream->outgoing ? WEIR_OK : tell_begin(stream, box);
    if (status || stream->outgoing_first == stream->outgoing_end)
        return status;
    ssize_t sent = TEMP_FAILURE_RETRY(send(stream->base.fd, stream->outgoing + stream->outgoing_first,
                                           stream->outgoing_end - stream->outgoing_first, MSG_DONTWAIT | MSG_NOSIGNAL));
    if (sent < 0 && errno != EAGAIN)
        return error_set(WEIR_E_PEER, "%s", strerror(errno));
    stream->outgoing_first += sent > 0 ? (size_t)sent : 0;
    return WEIR_OK;
}

/* The bytes of the other side's greeting, or of its head until that has come. */
static size_t incoming_due(const struct ucx_stream *stream, bool sealed)
{
    if (stream->incoming_bytes < SEAL_HEAD_BYTES)
        return SEAL_HEAD_BYTES;
    return seal_record_bytes(stream->incoming) + (sealed ? SEAL_OVER_BYTES : SEAL_HEAD_BYTES);
}

/* Takes no byte beyond it. */
static weir_status hear(struct ucx_stream *stream, bool sealed)
{
    size_t due;
    if (!stream->incoming && !(stream->incoming = malloc(UCX_ADDRESS_BYTES + SEAL_OVER_BYTES)))
        return error_set(WEIR_E_MEMORY, "no memory for an address");
    while (stream->incoming_bytes < (due = incoming_due(stream, sealed))) {
        if (stream->incoming_bytes >= SEAL_HEAD_BYTES && seal_record_bytes(stream->incoming) > UCX_ADDRESS_BYTES)
            return unlike("its address is too long");
        ssize_t came = TEMP_FAILURE_RETRY(
            recv(stream->base.fd, stream->incoming + stream->incoming_bytes, due - stream->incoming_bytes, MSG_DONTWAIT));
        if (came < 0 && errno == EAGAIN)
            return WEIR_OK;
        if (came <= 0)
            return error_set(WEIR_E_PEER, "%s", came ? strerror(errno) : "the connection has ended");
        stream->incoming_bytes += (size_t)came;
    }
    return WEIR_OK;
}

static weir_status endpoint_open(struct ucx_stream *stream, const unsigned char *address)
{
    const ucp_ep_params_t params = {
        .field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE |
                      UCP_EP_PARAM_FIELD_ERR_HANDLER,
        .address = (const ucp_address_t *)address,
        .err_mode = UCP_ERR_HANDLING_MODE_PEER,
        .err_handler = {.cb = ended, .arg = stream}};
    const struct ucx *ucx = stream->streams->ucx;
    ucs_status_t status = ucx->ucp_ep_create(stream->streams->worker, &params, &stream->endpoint);
    if (!status)
        return WEIR_OK;
    stream->endpoint = NULL;
    return error_set(WEIR_E_PEER, "UCX: %s (%s)", *ucx_last_error() ? ucx_last_error() : "no connection",
                     ucx->ucs_status_string(status));
}

/* An address says by itself where it ends. */
static weir_status connect_heard(struct ucx_stream *stream, struct seal_box *box)
{
    size_t bytes = stream->incoming_bytes < SEAL_HEAD_BYTES ? 0 : seal_record_bytes(stream->incoming);
    if (stream->incoming_bytes < incoming_due(stream, box))
        return WEIR_OK;
    unsigned char *address = bytes ? malloc(bytes) : NULL;
    if (!address)
        return bytes ? error_set(WEIR_E_MEMORY, "no memory for an address") : unlike("it has no address");
    weir_status status = WEIR_OK;
    memcpy(address, stream->incoming + SEAL_HEAD_BYTES, bytes);
    if (box && !seal_read(box, stream->incoming, bytes, address))
        status = unlike("its address was changed, or made up");
    if (!status)
        status = endpoint_open(stream, address);
    free(address);
    return status;
}

/* The first bytes each way: with them UCX has made its connection. */
static weir_status greet(struct ucx_stream *stream, bool *stands)
{
    char came[sizeof greeting];
    struct iovec say = {(char *)greeting, sizeof greeting};
    struct iovec listen = {came, sizeof came - stream->greeted};
    ssize_t greeted_sent = stream->greeted_sent ? 0 : write_parts(stream, &say, 1);
    size_t bytes = read_part(stream, &listen);
    stream->greeted_sent |= greeted_sent > 0;
    if (memcmp(came, greeting + stream->greeted, bytes) != 0)
        return unlike("other bytes than its greeting come");
    stream->greeted += bytes;
    *stands = stream->greeted_sent && stream->greeted == sizeof greeting;
    return stream->failed ? error_set(WEIR_E_PEER, "UCX: %s (%s)", *ucx_last_error() ? ucx_last_error() : "no connection",
                                      stream->streams->ucx->ucs_status_string(stream->failed))
                          : WEIR_OK;
}

static weir_status ucx_meet(struct stream *base, struct seal_box *out, struct seal_box *in, bool *stands)
{
    struct ucx_stream *stream = of_stream(base);
    ucx_quiet();
    weir_status status = tell(stream, out);
    if (!status && !stream->endpoint)
        status = hear(stream, in);
    if (!status && !stream->endpoint)
        status = connect_heard(stream, in);
    if (!status && stream->endpoint)
        status = greet(stream, stands);
    ucx_loud();
    return status;
}

/* ---- life ---- */

static const struct stream_ops stream_ops = {.write = ucx_write, .read = ucx_read, .close = ucx_close};

static struct stream *ucx_make(struct streams *base, int fd)
{
    struct ucx_streams *streams = of_streams(base);
    struct ucx_stream *stream = calloc(1, sizeof *stream);
    if (!stream) {
        close(fd);
        return NULL;
    }
    stream->base = (struct stream){.ops = &stream_ops, .fd = fd};
    stream->streams = streams;
    stream->next = streams->all;
    streams->all = stream;
    return &stream->base;
}

static void worker_wait(struct ucx_streams *streams)
{
    struct pollfd wakes = {.fd = streams->worker_fd, .events = POLLIN};
    if (!streams->ucx->ucp_worker_progress(streams->worker) &&
        streams->ucx->ucp_worker_arm(streams->worker) == UCS_OK)
        poll(&wakes, 1, LOOK_MS);
}

/* A request that is not done by now will not be reported any more: UCX does not let go of a worker with requests that somebody
 * has. */
static void requests_forget(struct ucx_stream *stream)
{
    const struct ucx *ucx = stream->streams->ucx;
    if (stream->closes)
        ucx->ucp_request_free(stream->closes);
    for (int i = 0; i < UCX_SENDS; i++)
        if (stream->sends[i].request)
            ucx->ucp_request_free(stream->sends[i].request);
}

static void streams_free(struct ucx_streams *streams)
{
    for (struct ucx_stream *stream = streams->all; stream; stream = stream->next)
        requests_forget(stream);
    if (streams->address)
        streams->ucx->ucp_worker_release_address(streams->worker, streams->address);
    if (streams->worker)
        streams->ucx->ucp_worker_destroy(streams->worker);
    if (streams->context)
        streams->ucx->ucp_cleanup(streams->context);
    for (struct ucx_stream *stream; (stream = streams->all);) {
        streams->all = stream->next;
        connection_close(stream);
        free(stream->outgoing);
        free(stream->incoming);
        free(stream);
    }
    free(streams);
}

static void ucx_streams_close(struct streams *base, int64_t most_ns)
{
    struct ucx_streams *streams = of_streams(base);
    int64_t until_ns = park_now_ns() + most_ns;
    ucx_quiet();
    while (streams->closing && park_now_ns() < until_ns)
        worker_wait(streams);
    streams_free(streams);
    ucx_loud();
}

static const struct streams_ops streams_ops = {
    .make = ucx_make, .meet = ucx_meet, .turn = ucx_turn, .rest = ucx_rest, .close = ucx_streams_close};

static ucs_status_t context_open(struct ucx_streams *streams)
{
    const struct ucx *ucx = streams->ucx;
    const ucp_params_t params = {.field_mask = UCP_PARAM_FIELD_FEATURES,
                                 .features = UCP_FEATURE_STREAM | UCP_FEATURE_WAKEUP};
    ucp_config_t *config = NULL;
    ucs_status_t status = ucx->ucp_config_read(NULL, NULL, &config); /* what UCX_... variables say */
    if (!status)
        status = ucx->ucp_init_version(UCP_API_MAJOR, UCP_API_MINOR, &params, config, &streams->context);
    if (config)
        ucx->ucp_config_release(config);
    return status;
}

static ucs_status_t worker_open(struct ucx_streams *streams)
{
    const struct ucx *ucx = streams->ucx;
    const ucp_worker_params_t params = {.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE,
                                        .thread_mode = UCS_THREAD_MODE_SERIALIZED};
    ucs_status_t status = ucx->ucp_worker_create(streams->context, &params, &streams->worker);
    if (!status)
        status = ucx->ucp_worker_get_address(streams->worker, &streams->address, &streams->address_bytes);
    return status ? status : ucx->ucp_worker_get_efd(streams->worker, &streams->worker_fd);
}

struct opening {
    struct ucx_streams *streams;
    weir_status status;
    char why[256];
};

static void start(struct opening *opening)
{
    struct ucx_streams *streams = opening->streams;
    ucx_quiet();
    ucs_status_t status = context_open(streams);
    if (!status)
        status = worker_open(streams);
    if (status || streams->address_bytes > UCX_ADDRESS_BYTES) {
        opening->status = WEIR_E_UNSUPPORTED;
        snprintf(opening->why, sizeof opening->why, "WEIR_CARRIER lists ucx, and UCX does not start: %s (%s)",
                 *ucx_last_error() ? ucx_last_error() : "its address is too long", streams->ucx->ucs_status_string(status));
    }
    ucx_loud();
}

/* UCX reads its settings, among them "0.5us" and the like of its own, by the thread's locale. */
static void *open_all(void *argument)
{
    struct opening *opening = argument;
    struct c_locale locale = c_locale_begin();
    opening->status = ucx_load(&opening->streams->ucx);
    if (opening->status)
        snprintf(opening->why, sizeof opening->why, "%s", weir_error());
    else
        start(opening);
    c_locale_end(locale);
    return NULL;
}

/* In a thread of its own: UCX's threads inherit which signals are blocked and which cores there are. */
static weir_status open_apart(struct ucx_streams *streams)
{
    struct opening opening = {.streams = streams};
    pthread_t thread;
    if (!park_thread(&thread, "weir-ucx", open_all, &opening))
        return error_set(WEIR_E_MEMORY, "no thread to start UCX");
    pthread_join(thread, NULL);
    return opening.status ? error_set(opening.status, "%s", opening.why) : WEIR_OK;
}

weir_status streams_open(struct streams **to, int epoll_fd)
{
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = NULL};
    struct ucx_streams *streams = calloc(1, sizeof *streams);
    if (!streams)
        return error_set(WEIR_E_MEMORY, "no memory for UCX");
    streams->base.ops = &streams_ops;
    weir_status status = open_apart(streams);
    if (!status && epoll_ctl(epoll_fd, EPOLL_CTL_ADD, streams->worker_fd, &event))
        status = error_set(WEIR_E_MEMORY, "no memory to wait for UCX");
    if (status) {
        streams_free(streams);
        return status;
    }
    *to = &streams->base;
    return WEIR_OK;
}
