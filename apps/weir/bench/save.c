/* apps/weir/bench/save.c: `weir bench save`.
 *
 * Each round does everything once: a step alone, a save while steps go on, one that is waited for, and the same
 * bytes by hand. A slow spell of the machine then hits all of them, and medians of the rounds compare. The writer
 * has a thread of its own beside the one worker: on a machine of one core the rest of a save's cost is its whole work.
 *
 * By hand: as `dd bs=1M conv=fsync` does it, from memory that has been touched.
 */
#include "apps/weir/bench/save.h"
#include "apps/common/measure.h"
#include "apps/common/paths.h"
#include "apps/weir/bench/gpt.h"
#include "apps/weir/launch/snapshots.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define WARM_ROUNDS 1
#define ROUNDS 9
#define STEPS_MAX 1000 /* that a save may take */
#define PART (1 << 20)

typedef enum figure {
    STEP_MS,        /* a step */
    COPY_MS,        /* what a save holds training up */
    REST_PERCENT,   /* what steps beside the writing take longer, in parts of a step */
    WRITTEN_MS,     /* from the call until it is on the disk, while steps run */
    SAVE_MS,        /* a save that is waited for */
    DISK_MS,        /* the same bytes by hand */
    FIGURES
} figure;

typedef struct bench {
    char folder[PATHS_BYTES];
    gpt_config config;
    weir_plan *plan;       /* owned */
    weir_session *session; /* owned */
    double bytes;          /* of a checkpoint's shards */
    double value[FIGURES][ROUNDS];
} bench;

static weir_status step(bench *b)
{
    float loss;
    weir_status status = weir_session_start(b->session, 1);
    status = status ? status : weir_session_pull(b->session, "loss", WEIR_ARRAY(&loss, WEIR_F32), -1);
    return status ? status : weir_session_wait(b->session, -1);
}

static weir_status bench_open(bench *b, const text *corpus)
{
    const char *above = getenv("TMPDIR");
    snprintf(b->folder, sizeof b->folder, "%s/weir-save-XXXXXX", above && *above ? above : "/tmp");
    if (!mkdtemp(b->folder))
        return b->folder[0] = '\0', WEIR_E_IO;
    b->config = bench_gpt_config(corpus, 1, 1);
    weir_graph *graph = gpt_train_graph(&b->config);
    b->plan = graph ? weir_compile(graph, .snapshot = true) : NULL;
    weir_graph_free(graph);
    b->session = b->plan ? weir_session_open(b->plan, .cluster = {.alone = true}) : NULL;
    return b->session ? WEIR_OK : WEIR_E_STATE;
}

static void bench_close(bench *b)
{
    weir_session_close(b->session);
    weir_plan_free(b->plan);
    launch_snapshots_remove(b->folder);
}

/* ---- one round ---- */

/* How long the same bytes take by hand; negative with errno set when they cannot be written. */
static double write_by_hand(const bench *b)
{
    char path[PATHS_BYTES + 8], *part = malloc(PART);
    snprintf(path, sizeof path, "%s/plain", b->folder);
    int fd = part ? open(path, O_WRONLY | O_CREAT | O_TRUNC, 0666) : -1;
    bool ok = fd >= 0;
    if (part)
        memset(part, 'w', PART);
    double start = measure_seconds();
    for (double rest = b->bytes; ok && rest > 0; rest -= PART)
        ok = write(fd, part, rest < PART ? (size_t)rest : PART) > 0;
    ok = ok && !fsync(fd);
    double seconds = measure_seconds() - start;
    if (fd >= 0)
        close(fd);
    unlink(path);
    free(part);
    return ok ? seconds : -1;
}

/* A save that is written while steps go on, until it is. */
static weir_status save_beside_steps(bench *b, double value[FIGURES])
{
    double start = measure_seconds();
    weir_status status = weir_session_save(b->session, b->folder, .async = true, .keep = 1);
    double copied = measure_seconds(), steps = 0;
    value[COPY_MS] = 1e3 * (copied - start);
    weir_status written = WEIR_E_TIMEOUT;
    while (!status && written == WEIR_E_TIMEOUT && steps < STEPS_MAX) {
        status = step(b);
        steps++;
        written = weir_session_save_wait(b->session, 0);
    }
    double now = measure_seconds();
    value[WRITTEN_MS] = 1e3 * (now - start); /* to within a step: not a rate */
    value[REST_PERCENT] = 100 * (1e3 * (now - copied) / value[STEP_MS] - steps);
    return status ? status : written;
}

static weir_status play_round(bench *b, double value[FIGURES])
{
    double start = measure_seconds();
    weir_status status = step(b);
    value[STEP_MS] = 1e3 * (measure_seconds() - start);
    if (!status)
        status = save_beside_steps(b, value);
    if (!status)
        status = step(b); /* so that the next is of another step */
    start = measure_seconds();
    if (!status)
        status = weir_session_save(b->session, b->folder, .keep = 1);
    value[SAVE_MS] = 1e3 * (measure_seconds() - start);
    if (status)
        return status;
    weir_checkpoint *c = weir_checkpoint_open(b->folder);
    b->bytes = c ? (double)weir_checkpoint_get_info(c)->bytes : 0;
    weir_checkpoint_close(c);
    value[DISK_MS] = 1e3 * write_by_hand(b);
    return c && value[DISK_MS] > 0 ? WEIR_OK : WEIR_E_IO;
}

/* ---- what it found ---- */

static void write_json(const bench *b, const double m[FIGURES], int rounds, FILE *to)
{
    fprintf(to, "{\"rounds\": %d, \"bytes\": %.0f, \"step_ms\": %.2f, \"copy_ms\": %.2f, \"rest_percent\": %.2f",
            rounds, b->bytes, m[STEP_MS], m[COPY_MS], m[REST_PERCENT]);
    fprintf(to, ", \"written_ms\": %.2f, \"save_ms\": %.2f, \"save_mb_per_s\": %.1f", m[WRITTEN_MS], m[SAVE_MS],
            b->bytes / m[SAVE_MS] / 1e3);
    fprintf(to, ", \"disk_ms\": %.2f, \"disk_mb_per_s\": %.1f, \"save_of_disk\": %.3f}\n", m[DISK_MS],
            b->bytes / m[DISK_MS] / 1e3, m[DISK_MS] / m[SAVE_MS]);
}

static void write_text(const bench *b, const double m[FIGURES], int rounds, FILE *to)
{
    char bytes[32];
    fprintf(to, "the GPT of bench gpt, one device; a checkpoint is %s; medians of %d rounds\n",
            measure_bytes_text((uint64_t)b->bytes, bytes), rounds);
    fprintf(to, "a step                           %8.1f ms\n", m[STEP_MS]);
    fprintf(to, "a save beside steps, the copy    %8.1f ms\n", m[COPY_MS]);
    fprintf(to, "the rest of its cost             %8.1f %% of a step\n", m[REST_PERCENT]);
    fprintf(to, "a save that is waited for        %8.1f ms, %.0f MB/s\n", m[SAVE_MS], b->bytes / m[SAVE_MS] / 1e3);
    fprintf(to, "the same bytes by hand, and fsync%8.1f ms, %.0f MB/s\n", m[DISK_MS], b->bytes / m[DISK_MS] / 1e3);
}

static weir_status play(bench *b, int rounds, double median[FIGURES])
{
    weir_status status = WEIR_OK;
    for (int round = -WARM_ROUNDS; round < rounds && !status; round++) {
        double value[FIGURES] = {0};
        status = play_round(b, value);
        for (int f = 0; f < FIGURES && round >= 0; f++)
            b->value[f][round] = value[f];
    }
    for (int f = 0; f < FIGURES; f++)
        median[f] = measure_median(b->value[f], rounds);
    return status;
}

weir_status bench_save(bool json, bool quick, FILE *to)
{
    text corpus = bench_gpt_corpus();
    bench *b = calloc(1, sizeof *b);
    double median[FIGURES];
    int rounds = quick ? 1 : ROUNDS;
    weir_status status = corpus.bytes && b ? bench_open(b, &corpus) : WEIR_E_MEMORY;
    if (!status)
        status = play(b, rounds, median);
    if (!status)
        (json ? write_json : write_text)(b, median, rounds, to);
    if (b)
        bench_close(b);
    free(b);
    text_free(&corpus);
    return status;
}
