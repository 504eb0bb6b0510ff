/* weir bench: measures this machine. A benchmark is a function in apps/weir/bench/ and a line in BENCH_LIST; `place`,
 * which packs a file, and `scale`, which measures the compiler, stand beside them. */
#include "apps/weir/bench/actors.h"
#include "apps/weir/bench/cards/allreduce_device.h"
#include "apps/weir/bench/fuse.h"
#include "apps/weir/bench/gpt.h"
#include "apps/weir/bench/cards/gpt_device.h"
#include "apps/weir/bench/link.h"
#include "apps/weir/bench/loop.h"
#include "apps/weir/bench/place.h"
#include "apps/weir/bench/predict.h"
#include "apps/weir/bench/save.h"
#include "apps/weir/bench/scale.h"
#include "apps/weir/bench/shapes.h"
#include "apps/weir/bench/stored.h"
#include "apps/weir/bench/time.h"
#include "apps/weir/bench/time_link.h"
#include "apps/weir/bench/peers/team.h"
#include "apps/common/options.h"
#include "apps/weir/command.h"
#include "graph/base/names.h"

#include <string.h>

static const char program[] = "weir bench";

/* Benchmarks that fork come first: before there are threads. name, what it measures */
#define BENCH_LIST(X)                              \
    X(link, "a register to another process")       \
    X(allreduce, "a sum over processes")           \
    X(time_link, "predicted beside measured values to another process over TCP") \
    X(time, "predicted beside measured steps")     \
    X(actors, "messages between actors")           \
    X(loop, "from a push to its value")            \
    X(gpt, "a training step of a GPT")             \
    X(fuse, "kernels in one pass over memory")     \
    X(stored, "products of weights as they are stored") \
    X(save, "what a checkpoint of it costs")       \
    X(shapes, "times of calls that were not measured")

typedef struct bench {
    const char *name;
    weir_status (*run)(bool json, bool quick, FILE *to);
} bench;

static const bench benches[] = {
#define X(name, text) {#name, bench_##name},
    BENCH_LIST(X)
#undef X
};
#define BENCH_HELP(name, text) #name ": " text "; "

/* Its text, and its names in JSON. */
#define ACTORS_HELP(name, text, ...) "\n  " #name "_ns  " text
static const char about[] =
    "Measure this machine.\n\n"
    "place FILE packs the blocks of a CSV file, id,lower,upper,size (alive on [lower, upper)), as a compilation packs\n"
    "memory, and prints the height that it reached and a lower bound.\n\n"
    "predict [RATES] predicts the step of some 60 plans of GPTs and MLPs, and measures it: minutes, at real-time priority\n"
    "(chrt -f 50). It measures calls first, and takes those that the file RATES has, where others are added.\n\n"
    "scale compiles a small GPT for 8 to 1,024 devices, data parallel, and one of 64 layers for 16 x 8 x 8, and prints\n"
    "the seconds of each compilation and of a prediction of its step, how many firings that played, the bytes of the\n"
    "plan's file and its ports; with --layers, --dp, --tp or --pp a plan of that size alone.\n\n"
    "actors --json, in nanoseconds (a chain's per token and actor, columns' per step); raw_NAME_ns is the same by\n"
    "hand, with threads that spin, for chain8_1w, pingpong and all columns:" BENCH_ACTORS_LIST(ACTORS_HELP)
    "\n  raw_handoff_ns  a word there and back between two threads\n"
    "  short_NAME_p50_ns, _p90_ns, _p99_ns  a step of columns in many runs of 5 ms; raw_short_NAME_... by hand, in turns\n"
    "  short_NAME_sleeps_per_s, _sleep_us  how often the workers slept in these runs, and how long each time\n"
    "  shared_cache  the smallest cache of the first two cores: L1 and L2 are near, L3 and none are far\n\n"
    "loop --json, in microseconds, from a push to its value, the workers asleep: pull_us in weir_session_pull(), fd_us in\n"
    "epoll_wait() for weir_session_fd(), sink_us for an eventfd that a sink writes to, echo_us an eventfd there and back by\n"
    "hand; NAME_p99_us is what one in a hundred exceeds.";

#define BENCH_COUNT (sizeof benches / sizeof *benches)

static int wrong_name(const char *name)
{
    struct names names = {.wanted = name};
    char list[NAMES_TEXT_BYTES];
    for (size_t i = 0; i < BENCH_COUNT; i++)
        names_add(&names, benches[i].name);
    names_add(&names, "place");
    names_add(&names, "predict");
    names_add(&names, "scale");
    return options_wrong(program, "there is no benchmark \"%s\"%s; --help tells more", name,
                         names_text(&names, list, sizeof list));
}

static bool is_bench(const char *name)
{
    bool known = !strcmp(name, "place") || !strcmp(name, "predict") || !strcmp(name, "scale");
    for (size_t i = 0; i < BENCH_COUNT && !known; i++)
        known = !strcmp(benches[i].name, name);
    return known;
}

static int run_one(const char *name, bool json, bool quick)
{
    for (size_t i = 0; i < BENCH_COUNT; i++)
        if (!strcmp(benches[i].name, name))
            return benches[i].run(json, quick, stdout) ? options_failed(program) : 0;
    return wrong_name(name);
}

/* All: one JSON object with a member each, or one text after the other. One that fails, as what it compares with may be
 * missing, does not keep the others from being run; it is null. */
static int run_all(bool json, bool quick)
{
    int status = 0;
    for (size_t i = 0; i < BENCH_COUNT; i++) {
        if (json)
            printf("%s\"%s\": ", i ? ", " : "{", benches[i].name);
        else
            printf("%s-- %s\n", i ? "\n" : "", benches[i].name);
        int failed = run_one(benches[i].name, json, quick);
        if (failed && json)
            printf("null");
        status = failed ? failed : status;
    }
    if (json)
        printf("}\n");
    return status;
}

static int run_scale(const bench_scale_opts *opts, bool json, bool quick)
{
    int layers = opts->layers ? opts->layers : BENCH_SCALE_LAYERS;
    if (opts->pp > layers)
        return options_wrong(program, "--pp must be at most the number of layers, %d, not %d", layers, opts->pp);
    return bench_scale(opts, json, quick, stdout) ? options_failed(program) : 0;
}

/* Those between processes, of one size or over one way alone. */
static int run_between(const bench_allreduce_opts *opts, const char *name, bool both, bool json, bool quick)
{
    const bool link = name && !strcmp(name, "link"), sums = name && !strcmp(name, "allreduce");
    if ((!link && !sums) || (link && opts->ranks))
        return options_wrong(program, "--bytes, --shm and --tcp work only with link and allreduce, --ranks only with allreduce");
    if (both)
        return options_wrong(program, "--shm and --tcp do not work together; give one of them");
    const bench_link_opts alone = {.bytes = opts->bytes, .over = opts->over};
    const weir_status status =
        link ? bench_link_with(&alone, json, quick, stdout) : bench_allreduce_with(opts, json, quick, stdout);
    return status ? options_failed(program) : 0;
}

/* Runs the benchmarks of cards. */
static int run_device(const bench_gpt_device_opts *opts, const bench_allreduce_opts *sum, const char *name, bool json,
                      bool quick)
{
    const bool gpt = name && !strcmp(name, "gpt"), actors = name && !strcmp(name, "actors");
    const bool sums = name && !strcmp(name, "allreduce");
    if ((!gpt && !actors && !sums) || (!gpt && (opts->batch || opts->steps || opts->no_fusion)))
        return options_wrong(program, "--device works only with gpt, actors and allreduce; --batch, --steps and "
                             "--no-fusion only with gpt");
    if (!opts->device || strcmp(opts->device, "cuda") != 0)
        return options_wrong(program, "--device must be cuda; --batch, --steps and --no-fusion need it");
    if (sum->over || (!sums && (sum->ranks || sum->bytes)))
        return options_wrong(program, "with --device, --ranks and --bytes work only with allreduce, and --shm and --tcp "
                             "do not work");
    const weir_status status = gpt    ? bench_gpt_device(opts, json, quick, stdout)
                               : sums ? bench_allreduce_device(opts->device, sum, json, quick, stdout)
                                      : bench_actors_device(WEIR_CUDA, json, quick, stdout);
    return status ? options_failed(program) : 0;
}

int command_bench(int argc, char **argv)
{
    const char *name = NULL, *path = NULL;
    bool json = false, quick = false, bf16 = false;
    int micro = 0;
    bench_allreduce_opts sum = {0};
    bool shm = false, tcp = false;
    bench_scale_opts scale = {0};
    bench_gpt_device_opts device = {0};
    const options_entry table[] = {
        {"NAME", OPTIONS_TEXT, &name, .optional = true,
         .help = BENCH_LIST(BENCH_HELP) "all by default; place, predict, scale: see below"},
        {"FILE", OPTIONS_TEXT, &path, .optional = true, .file = OPTIONS_READS, .help = "place: blocks, as CSV; predict: rates"},
        {"--json", OPTIONS_FLAG, &json, .help = "print one JSON object"},
        {"--quick", OPTIONS_FLAG, &quick, .help = "measure one round instead of several"},
        {"--bf16", OPTIONS_FLAG, &bf16, .help = "gpt: measure the step in bf16, beside products in bf16"},
        {"--micro", OPTIONS_INT, &micro, .min = 1, .max = 4,
         .help = "gpt: micro-batches a step, 1, 2 or 4 [2; on two devices 1]"},
        {"--device", OPTIONS_TEXT, &device.device, .value = "cuda",
         .help = "gpt: GPT-2's smallest in bf16 on a card, beside products of large matrices; actors: its queues;"
                 " allreduce: cards, those of all processes of weir launch"},
        {"--batch", OPTIONS_INT, &device.batch, .min = 1, .max = 1e6, .help = "gpt --device: rows a step [64]"},
        {"--steps", OPTIONS_INT, &device.steps, .min = 1, .max = 1e6, .help = "gpt --device: steps a round [10]"},
        {"--no-fusion", OPTIONS_FLAG, &device.no_fusion, .help = "gpt --device: run each op in a kernel of its own"},
        {"--ranks", OPTIONS_INT, &sum.ranks, .min = 2, .max = BENCH_TEAM_MAX, .help = "allreduce: only this many ranks [2 and 4]"},
        {"--bytes", OPTIONS_INT, &sum.bytes, .min = 4, .max = 1 << 30,
         .help = "link, allreduce: only this size [64 B to 16 MiB; 4 B to 64 MiB]"},
        {"--shm", OPTIONS_FLAG, &shm, .help = "link, allreduce: only in shared memory"},
        {"--tcp", OPTIONS_FLAG, &tcp, .help = "link, allreduce: only over TCP"},
        {"--devices", OPTIONS_INT, &scale.devices, .min = 1, .max = 65536,
         .help = "scale: only plans of at most N devices [all]"},
        {"--layers", OPTIONS_INT, &scale.layers, .min = 1, .max = 1000, .help = "scale: transformer blocks [4]"},
        {"--dp", OPTIONS_INT, &scale.dp, .min = 1, .max = 65536, .help = "scale: data parallel devices [1]"},
        {"--tp", OPTIONS_INT, &scale.tp, .min = 1, .max = 1024, .help = "scale: tensor parallel devices [1]"},
        {"--pp", OPTIONS_INT, &scale.pp, .min = 1, .max = LAYOUT_STAGES_MAX, .help = "scale: pipeline stages [1]"},
        {.name = NULL},
    };
    int status = options_parse(&(options_spec){program, about, table}, argc, argv);
    if (status >= 0)
        return status;
    if (name && !is_bench(name))
        return wrong_name(name);
    if (name && !strcmp(name, "place"))
        return path ? bench_place(program, path, json, stdout) : options_wrong(program, "place needs a FILE");
    if (name && !strcmp(name, "predict"))
        return bench_predict(path, json, quick, stdout) ? options_failed(program) : 0;
    if (path)
        return options_wrong(program, "%s takes no file", name);
    sum.over = shm ? BENCH_OVER_SHM : tcp ? BENCH_OVER_TCP : BENCH_OVER_ALL;
    if (device.device || device.batch || device.steps || device.no_fusion)
        return run_device(&device, &sum, name, json, quick);
    if ((bf16 || micro) && (!name || strcmp(name, "gpt") != 0))
        return options_wrong(program, "%s works only with gpt", bf16 ? "--bf16" : "--micro");
    if (sum.ranks || sum.bytes || sum.over)
        return run_between(&sum, name, shm && tcp, json, quick);
    if (name && !strcmp(name, "scale"))
        return run_scale(&scale, json, quick);
    if (scale.devices || scale.layers || scale.dp || scale.tp || scale.pp)
        return options_wrong(program, "--devices, --layers, --dp, --tp and --pp work only with scale");
    if (micro == 3)
        return options_wrong(program, "--micro must be 1, 2 or 4, not 3");
    if (bf16 || micro) {
        const bench_gpt_opts opts = {.precision = bf16 ? WEIR_BF16 : WEIR_F32, .micro = micro};
        return bench_gpt_with(&opts, json, quick, stdout) ? options_failed(program) : 0;
    }
    return name ? run_one(name, json, quick) : run_all(json, quick);
}
