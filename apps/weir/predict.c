/* weir predict: how long a step of a plan takes on a machine that was measured. */
#include "apps/common/measure.h"
#include "apps/weir/command.h"

#include <jansson.h>

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
    if (p->measured < 1)
        printf("%.1f %% of the time of kernels was measured, %.1f %% follows from calls of other sizes, %.1f %% is guessed\n",
               100 * p->measured, 100 * p->scaled, 100 * p->guessed);
}

static int print_json(const weir_prediction *p)
{
    json_t *workers = json_array();
    for (int w = 0; w < p->workers && w < WEIR_PREDICT_WORKERS; w++)
        json_array_append_new(workers, json_pack("{s:i, s:i, s:f}", "rank", p->worker[w].rank, "worker", p->worker[w].number, "busy", p->worker[w].busy));
    json_t *all = json_pack("{s:f, s:f, s:b, s:f, s:f, s:f, s:I, s:o}", "step_s", p->step_s, "first_s", p->first_s, "steady", p->steady, "measured",
                            p->measured, "scaled", p->scaled, "guessed", p->guessed, "firings", (json_int_t)p->firings, "workers", workers);
    const int status = all ? json_dumpf(all, stdout, JSON_INDENT(2)) : -1;
    putchar('\n');
    json_decref(all);
    return status ? options_wrong(program, "no memory for the answer") : 0;
}

int command_predict(int argc, char **argv)
{
    const char *path = NULL, *rates_path = NULL, *wanted = NULL;
    options_list objects = {0};
    int workers = 0;
    bool json = false;
    const options_entry table[] = {
        {"PLAN", OPTIONS_TEXT, &path, .file = OPTIONS_READS, .help = "a saved plan"},
        {"--rates", OPTIONS_TEXT, &rates_path, .value = "RATES", .file = OPTIONS_READS, .help = "the file that weir measure wrote"},
        {"--program", OPTIONS_TEXT, &wanted, .value = "NAME", .help = "a program of the plan [main]"},
        {"--workers", OPTIONS_INT, &workers, .min = 1, .max = 4096, .help = "threads of each rank [one per device, at most the measured cores]"},
        {"--json", OPTIONS_FLAG, &json, .help = "print JSON"},
        COMMAND_OPS_OPTION(objects),
        {.name = NULL},
    };
    int status = options_parse(&(options_spec){program, "Predict how long a step of a plan takes.", table}, argc, argv);
    if (status < 0 && !rates_path)
        status = options_wrong(program, "needs --rates RATES, which weir measure writes");
    if (status < 0)
        status = command_load_ops(program, &objects);
    weir_plan *plan = status < 0 ? command_load(program, path, &status) : NULL;
    weir_rates *rates = plan ? weir_rates_load(rates_path) : NULL;
    weir_prediction p;
    if (plan && (!rates || weir_predict(plan, rates, &p, .program = wanted, .workers = workers)))
        status = options_failed(program);
    else if (plan)
        status = json ? print_json(&p) : (print(&p), 0);
    weir_rates_free(rates);
    weir_plan_free(plan);
    return status;
}
