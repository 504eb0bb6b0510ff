/* weir predict: how long a step of a plan takes on a machine that was measured. */
#include "apps/common/measure.h"
#include "apps/weir/command.h"
#include "apps/weir/traces.h"

#include <inttypes.h>
#include <jansson.h>
#include <string.h>

static const char program[] = "weir predict";

static const char *seconds_text(double seconds, char text[32])
{
    if (seconds < 1e-3)
        snprintf(text, 32, "%.2f us", 1e6 * seconds);
    else if (seconds < 1)
        snprintf(text, 32, "%.3f ms", 1e3 * seconds);
    else
        snprintf(text, 32, "%.3f s", seconds);
    return text;
}

static void print(const weir_prediction *p)
{
    char step[32], first[32];
    printf("a step takes %s%s, the first one %s\n", seconds_text(p->step_s, step), p->steady ? "" : " (a mean: they differ)",
           seconds_text(p->first_s, first));
    for (int w = 0; w < p->workers && w < WEIR_PREDICT_WORKERS; w++)
        printf("rank %d, worker %d: fires %.1f %% of the time\n", p->worker[w].rank, p->worker[w].number, 100 * p->worker[w].busy);
    for (int q = 0; q < p->queues && q < WEIR_PREDICT_QUEUES; q++)
        printf("rank %d, queue %s: runs %.1f %% of the time\n", p->queue[q].rank, p->queue[q].name, 100 * p->queue[q].busy);
    for (int i = 0; i < p->lines && i < WEIR_PREDICT_LINES; i++)
        printf("line from rank %d to rank %d: %s a step, busy %.1f %% of the time\n", p->line[i].from, p->line[i].to,
               measure_bytes_text((uint64_t)p->line[i].bytes, step), 100 * p->line[i].busy);
    if (p->measured < 1)
        printf("%.1f %% of the time of kernels was measured, %.1f %% follows from calls of other sizes, %.1f %% is guessed\n",
               100 * p->measured, 100 * p->scaled, 100 * p->guessed);
}

/* ---- what bounds the step ---- */

static const char *why(const struct weir_predicted_bound *b, const struct weir_predicted_bound *next, char text[256])
{
    if (b->kind == WEIR_BOUND_ORDER)
        snprintf(text, 256, "then %s fires %s", b->queue, next->actor);
    else if (b->kind == WEIR_BOUND_DATA)
        snprintf(text, 256, "then %s reads %s", next->actor, b->regst ? b->regst : "it");
    else
        snprintf(text, 256, "then %s writes %s into the slot that is free", next->actor, b->regst ? b->regst : "it");
    return text;
}

static void explain(const weir_prediction *p)
{
    char text[256], time[32];
    const int shown = p->bounds < WEIR_PREDICT_BOUNDS ? p->bounds : WEIR_PREDICT_BOUNDS;
    printf("no step is shorter than %s, by this cycle of %d firings:\n", seconds_text(p->cycle_s, time), p->bounds);
    for (int i = 0; i < shown; i++) {
        printf("  %10s  %s", seconds_text(p->bound[i].s, time), p->bound[i].actor);
        if (p->bound[i].micro)
            printf(", micro-batch %d", p->bound[i].micro);
        printf(", %s\n", why(&p->bound[i], &p->bound[(i + 1) % shown], text));
    }
    if (shown < p->bounds)
        printf("  and %d more\n", p->bounds - shown);
    int slots = 0;
    for (int i = 0; i < shown; i++)
        if (p->bound[i].kind == WEIR_BOUND_SLOT && p->bound[i].regst)
            printf("%s %s", slots++ ? "," : "another slot may help:", p->bound[i].regst);
    puts(slots ? "" : "another slot of any register does not help");
}

/* ---- fewer and more slots ---- */

static void print_slots(void *ctx, const weir_slots_point *point)
{
    char step[32];
    (void)ctx;
    if (point->planned)
        printf("%16s  %16s  %10s  registers that have other slots than in the line before\n", "fullest device", "all slots", "step");
    printf("%14" PRIu64 " B  %14" PRIu64 " B  %10s  ", point->bytes, point->slot_bytes, seconds_text(point->step_s, step));
    if (point->planned)
        printf("the plan");
    for (int i = 0; i < point->changes && i < WEIR_SLOTS_CHANGES; i++)
        printf("%s%s %d", i ? ", " : point->planned ? " with " : "", point->change[i].regst, point->change[i].slots);
    if (point->changes > WEIR_SLOTS_CHANGES)
        printf(" and %d more", point->changes - WEIR_SLOTS_CHANGES);
    putchar('\n');
}

static weir_status predict_slots(const weir_plan *plan, const weir_rates *rates, weir_predict_opts opts)
{
    opts.size = sizeof opts;
    return weir_predict_slots_at(plan, rates, print_slots, NULL, &opts);
}

/* ---- JSON ---- */

static int print_json(const weir_prediction *p)
{
    json_t *workers = json_array();
    for (int w = 0; w < p->workers && w < WEIR_PREDICT_WORKERS; w++)
        json_array_append_new(workers, json_pack("{s:i, s:i, s:f}", "rank", p->worker[w].rank, "worker", p->worker[w].number, "busy", p->worker[w].busy));
    json_t *queues = json_array();
    for (int q = 0; q < p->queues && q < WEIR_PREDICT_QUEUES; q++)
        json_array_append_new(queues, json_pack("{s:i, s:s, s:f}", "rank", p->queue[q].rank, "queue", p->queue[q].name, "busy", p->queue[q].busy));
    json_t *cycle = json_array();
    static const char *const kinds[] = {"data", "slot", "order"};
    for (int i = 0; i < p->bounds && i < WEIR_PREDICT_BOUNDS; i++)
        json_array_append_new(cycle, json_pack("{s:s, s:s, s:i, s:s, s:s?, s:f}", "actor", p->bound[i].actor, "queue", p->bound[i].queue, "micro",
                                               p->bound[i].micro, "kind", kinds[p->bound[i].kind], "register", p->bound[i].regst, "s", p->bound[i].s));
    json_t *lines = json_array();
    for (int i = 0; i < p->lines && i < WEIR_PREDICT_LINES; i++)
        json_array_append_new(lines, json_pack("{s:i, s:i, s:f, s:f}", "from", p->line[i].from, "to", p->line[i].to, "bytes", p->line[i].bytes, "busy",
                                               p->line[i].busy));
    json_t *all = json_pack("{s:f, s:f, s:b, s:f, s:f, s:f, s:I, s:o, s:o, s:o, s:f, s:o}", "step_s", p->step_s, "first_s", p->first_s, "steady", p->steady, "measured",
                            p->measured, "scaled", p->scaled, "guessed", p->guessed, "firings", (json_int_t)p->firings, "workers", workers, "queues", queues, "lines", lines,
                            "cycle_s", p->cycle_s, "cycle", cycle);
    const int status = all ? json_dumpf(all, stdout, JSON_INDENT(2)) : -1;
    putchar('\n');
    json_decref(all);
    return status ? options_wrong(program, "no memory for the answer") : 0;
}

int command_predict(int argc, char **argv)
{
    const char *path = NULL, *rates_path = NULL, *trace = NULL;
    options_list objects = {0}, set = {0};
    weir_predict_opts opts = {.size = sizeof opts, .src = WEIR_HERE};
    bool json = false, explains = false, pareto = false;
    const options_entry table[] = {
        {"PLAN", OPTIONS_TEXT, &path, .file = OPTIONS_READS, .help = "a saved plan"},
        {"--rates", OPTIONS_TEXT, &rates_path, .value = "RATES", .file = OPTIONS_READS, .help = "the file that weir measure wrote"},
        {"--program", OPTIONS_TEXT, &opts.program, .value = "NAME", .help = "a program of the plan [main]"},
        {"--workers", OPTIONS_INT, &opts.workers, .min = 1, .max = 4096, .help = "threads of each rank [one per device, at most the measured cores]"},
        {"--ranks", OPTIONS_INT, &opts.ranks, .min = 1, .max = 4096, .help = "processes, to which devices are dealt in order [the plan's]"},
        {"--per-host", OPTIONS_INT, &opts.per_host, .min = 1, .max = 4096, .help = "ranks of each host [all]"},
        {"--carrier", OPTIONS_TEXT, &opts.carrier, .value = "LIST", .help = "carriers between ranks: a list of shm,ipc,tcp,ucx [shm,tcp]"},
        {"--no-key", OPTIONS_FLAG, &opts.no_key, .help = "lines between ranks are not encrypted, as with WEIR_INSECURE"},
        {"--set", OPTIONS_LIST, &set, .value = "X=VALUE",
         .help = "what if: 'bandwidth=10Gbit', 'latency=200us', 'slots(NAME)=3', 'speed(NAME)=2' of a device, actor, op or kernel, 'workers(RANK)=1'"},
        {"--explain", OPTIONS_FLAG, &explains, .help = "print the cycle of firings that bounds the step"},
        {"--pareto", OPTIONS_FLAG, &pareto, .help = "print bytes and seconds with fewer and more slots, from the fewest to the fastest"},
        {"--trace", OPTIONS_TEXT, &trace, .value = "FILE", .file = OPTIONS_WRITES, .help = "write the predicted firings for ui.perfetto.dev"},
        {"--json", OPTIONS_FLAG, &json, .help = "print JSON"},
        COMMAND_OPS_OPTION(objects),
        {.name = NULL},
    };
    int status = options_parse(&(options_spec){program, "Predict how long a step of a plan takes.", table}, argc, argv);
    if (status < 0 && !rates_path)
        status = options_wrong(program, "needs --rates RATES, which weir measure writes");
    if (status < 0 && pareto && (json || explains || trace))
        status = options_wrong(program, "--pareto: cannot be with --json, --explain or --trace; predict twice");
    if (status < 0)
        status = command_load_ops(program, &objects);
    weir_plan *plan = status < 0 ? command_load(program, path, &status) : NULL;
    weir_rates *rates = plan ? weir_rates_load(rates_path) : NULL;
    weir_prediction p = {0};
    const char *changes[OPTIONS_LIST_MAX + 1] = {NULL};
    memcpy(changes, set.value, (size_t)set.count * sizeof *changes);
    opts.set = changes;
    if (plan && (!rates || (pareto ? predict_slots(plan, rates, opts)
                           : trace ? traces_predict(plan, rates, &opts, trace, &p)
                                   : weir_predict_at(plan, rates, &p, &opts))))
        status = options_failed(program);
    if (plan && status < 0 && pareto)
        status = 0;
    if (plan && status < 0)
        status = json ? print_json(&p) : (print(&p), 0);
    if (plan && !status && explains && !json)
        explain(&p);
    weir_rates_free(rates);
    weir_plan_free(plan);
    return status;
}
