/* apps/weir/bench/link.c: see the header. */
#include "apps/weir/bench/link.h"

#include "apps/weir/bench/figures.h"
#include "apps/weir/bench/link_plan.h"
#include "apps/weir/bench/peers/raw.h"

#define ROUNDS 5
#define ROUND_SECONDS 0.1
#define QUICK_SECONDS 0.01
#define STREAM_BYTES (8 << 20) /* a stream has about as many bytes of slots */
#define STREAM_SLOTS_MIN 2
#define STREAM_SLOTS_MAX 64
#define SLOT_ALIGN 64

static const size_t sizes[] = {64, 64 << 10, 1 << 20, 16 << 20};
#define SIZES (sizeof sizes / sizeof *sizes)

/* ---- the op that reads ---- */

/* Reads every byte, at the speed of memory. */
static weir_status kernel_read(const weir_kernel_args *args)
{
    const weir_view *in = &args->in[0];
    const uint64_t *word = in->data;
    uint64_t sum[8] = {0};
    for (int64_t i = 0; i + 8 <= in->shape.dim[0] / 8; i += 8)
        for (int k = 0; k < 8; k++)
            sum[k] += word[i + k];
    for (int k = 0; k < 8; k++)
        __asm__ volatile("" ::"r"(sum[k])); /* the sums count */
    return WEIR_OK;
}

static const weir_op op_read = BENCH_LINK_OP("bench_link_read", 1, 0, kernel_read);

static weir_status op_register(void)
{
    return weir_op_find(op_read.name) ? WEIR_OK : weir_op_register(&op_read);
}

/* ---- plans ---- */

/* There and back, one slot each way; the way back is full at the start. */
static weir_plan *rally_plan(size_t bytes)
{
    return bench_link_plan(&(bench_link_shape){.bytes = bytes, .slots = 1, .first = &bench_link_pass, .second = &bench_link_pass, .back = true});
}

static uint32_t stream_slots(size_t bytes)
{
    size_t slots = STREAM_BYTES / bytes;
    return slots < STREAM_SLOTS_MIN ? STREAM_SLOTS_MIN : slots > STREAM_SLOTS_MAX ? STREAM_SLOTS_MAX : (uint32_t)slots;
}

/* One way. */
static weir_plan *stream_plan(size_t bytes, const weir_op *reader)
{
    return bench_link_plan(&(bench_link_shape){.bytes = bytes, .slots = stream_slots(bytes), .first = &bench_link_give, .second = reader});
}

weir_plan *bench_link_idle(size_t bytes, bool stream)
{
    return stream ? stream_plan(bytes, &bench_link_take) : rally_plan(bytes);
}

/* ---- measures ---- */

static weir_status time_plan(weir_plan *plan, const struct bench_round *round, enum bench_way way, double *seconds)
{
    struct bench_ranks ranks = {.plan = plan, .round = *round, .way = way};
    weir_status status = plan ? bench_ranks_run(2, &ranks, seconds) : WEIR_E_MEMORY; /* the sentence is there */
    weir_plan_free(plan);
    return status;
}

static weir_status time_rally(const struct bench_round *round, enum bench_way way, double *seconds)
{
    weir_status status = time_plan(rally_plan(round->bytes), round, way, seconds);
    *seconds /= 2;
    return status;
}

static weir_status time_shm(const struct bench_round *round, double *seconds)
{
    return time_rally(round, BENCH_SHM, seconds);
}

static weir_status time_tcp(const struct bench_round *round, double *seconds)
{
    return time_rally(round, BENCH_TCP, seconds);
}

static weir_status time_shm_read(const struct bench_round *round, double *seconds)
{
    return time_plan(stream_plan(round->bytes, &op_read), round, BENCH_SHM, seconds);
}

static weir_status time_tcp_key(const struct bench_round *round, double *seconds)
{
    return time_rally(round, BENCH_TCP_KEY, seconds);
}

static weir_status time_tcp_stream(const struct bench_round *round, double *seconds)
{
    return time_plan(stream_plan(round->bytes, &bench_link_take), round, BENCH_TCP, seconds);
}

static weir_status time_tcp_key_stream(const struct bench_round *round, double *seconds)
{
    return time_plan(stream_plan(round->bytes, &bench_link_take), round, BENCH_TCP_KEY, seconds);
}

/* name, over, function, text */
#define MEASURE_LIST(X)                                                                       \
    X(ring, SHM, bench_raw_ring, "spinning ring")                                             \
    X(shm, SHM, time_shm, "shared memory, bytes not touched")                                 \
    X(copy, SHM, bench_raw_copy, "memcpy from the other process")                             \
    X(shm_read, SHM, time_shm_read, "shared memory, stream, bytes read")                      \
    X(socket, TCP, bench_raw_socket, "TCP: socket")                                           \
    X(spin, TCP, bench_raw_spin, "TCP: socket, both spin")                                    \
    X(zmq, TCP, bench_raw_zmq, "TCP: ZeroMQ")                                                 \
    X(tcp, TCP, time_tcp, "TCP: weir, without a key")                                         \
    X(tcp_key, TCP, time_tcp_key, "TCP: weir, encrypted")                                     \
    X(socket_stream, TCP, bench_raw_socket_stream, "TCP, stream: socket")                     \
    X(spin_stream, TCP, bench_raw_spin_stream, "TCP, stream: socket, both spin")              \
    X(zmq_stream, TCP, bench_raw_zmq_stream, "TCP, stream: ZeroMQ")                           \
    X(tcp_stream, TCP, time_tcp_stream, "TCP, stream: weir, without a key")                   \
    X(tcp_key_stream, TCP, time_tcp_key_stream, "TCP, stream: weir, encrypted")

enum {
#define X(name, over, function, text) MEASURE_##name,
    MEASURE_LIST(X)
#undef X
        MEASURES
};

static const struct bench_measure measures[MEASURES] = {
#define X(name, over, function, text) {#name, text, BENCH_OVER_##over, function},
    MEASURE_LIST(X)
#undef X
};
static const struct bench_ratio ratios[] = {
    {"shm_of_ring", MEASURE_shm, MEASURE_ring},
    {"tcp_of_socket", MEASURE_socket, MEASURE_tcp},
    {"tcp_key_of_socket", MEASURE_socket, MEASURE_tcp_key},
    {"tcp_of_zmq", MEASURE_zmq, MEASURE_tcp},
    {"tcp_key_of_zmq", MEASURE_zmq, MEASURE_tcp_key},
    {"tcp_stream_of_socket", MEASURE_socket_stream, MEASURE_tcp_stream},
    {"tcp_key_stream_of_socket", MEASURE_socket_stream, MEASURE_tcp_key_stream},
    {"tcp_stream_of_zmq", MEASURE_zmq_stream, MEASURE_tcp_stream},
    {"tcp_key_stream_of_zmq", MEASURE_zmq_stream, MEASURE_tcp_key_stream},
};

/* ---- all of it ---- */

static void report_json(const struct bench_figures *f, FILE *to)
{
    fprintf(to, "{\"sizes\": [");
    for (int c = 0; c < f->cell_count; c++) {
        fprintf(to, "%s{\"bytes\": %zu", c ? ", " : "", f->cell[c].round.bytes);
        bench_figures_json(f, &f->cell[c], to);
        fprintf(to, "}");
    }
    fprintf(to, "]}\n");
}

static void report_table(const struct bench_figures *f, FILE *to)
{
    fprintf(to, "%-36s", "us per hand-off of");
    bench_figures_table(f, f->cell, f->cell_count, to);
}

static void choose(struct bench_figures *f, const bench_link_opts *opts, bool quick)
{
    *f = (struct bench_figures){.measures = measures, .measure_count = MEASURES, .ratios = ratios,
                                .ratio_count = sizeof ratios / sizeof *ratios, .rounds = quick ? 1 : ROUNDS,
                                .over = opts->over, .cell_count = opts->bytes ? 1 : SIZES, .unit = "ns",
                                .per_second = 1e9, .decimals = 1, .text_width = 36, .us_decimals = 3};
    for (int s = 0; s < f->cell_count; s++)
        f->cell[s].round = (struct bench_round){
            .bytes = opts->bytes ? ((size_t)opts->bytes + SLOT_ALIGN - 1) / SLOT_ALIGN * SLOT_ALIGN : sizes[s],
            .round_seconds = quick ? QUICK_SECONDS : ROUND_SECONDS};
}

weir_status bench_link_with(const bench_link_opts *opts, bool json, bool quick, FILE *to)
{
    struct bench_figures f;
    choose(&f, opts, quick);
    weir_status status = op_register();
    status = status ? status : bench_figures_take(&f);
    if (!status)
        (json ? report_json : report_table)(&f, to);
    return status;
}

weir_status bench_link(bool json, bool quick, FILE *to)
{
    return bench_link_with(&(bench_link_opts){0}, json, quick, to);
}
