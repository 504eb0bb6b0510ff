/* weir measure: how long the kernels of some plans, and messages, take on this machine. */
#include "apps/common/measure.h"
#include "apps/weir/command.h"
#include "apps/weir/measure_link.h"
#include "apps/weir/shapes.h"
#include "graph/base/error.h"
#include "graph/base/locale.h"

#include <unistd.h>

static const char program[] = "weir measure";

enum { PLANS_MAX = OPTIONS_LIST_MAX + 64 };

typedef struct measuring {
    const char *to;
    bool noisy, no_links, between, grid;
    options_list paths, objects, others;
    const weir_plan *plans[PLANS_MAX]; /* owned */
    int count;
    weir_rates *rates;     /* owned */
} measuring;

static void show_done(void *ctx, int done, int count)
{
    (void)ctx;
    if (isatty(STDERR_FILENO))
        fprintf(stderr, "\r%s: %d of %d calls%s", program, done, count, done == count ? "\n" : "");
}

static weir_status merge_files(measuring *m)
{
    char why[512];
    weir_status status = WEIR_OK;
    for (int i = 0; i < m->others.count && !status; i++) {
        weir_rates *other = weir_rates_load(m->others.value[i]);
        status = other ? weir_rates_merge(m->rates, other) : WEIR_E_IO; /* the sentence is there */
        weir_rates_free(other);
        if (other && status) {
            text_print(why, sizeof why, "%s", weir_error());
            error_set(status, "%s: %s", m->others.value[i], why);
        }
    }
    return status;
}

/* Links first: they fork, and kernels may start threads. */
static weir_status measure(measuring *m)
{
    const bool machine = m->count || (!m->others.count && !m->between);
    weir_status status = m->rates ? WEIR_OK : error_set(WEIR_E_MEMORY, "no memory for rates");
    if (machine && !m->no_links)
        status = status ? status : measure_links(m->rates);
    const uint64_t process = m->rates ? m->rates->process : 0;
    if (machine && !status && !weir_measure(m->plans, m->count, .noisy = m->noisy, .progress = show_done, .add_to = m->rates))
        status = WEIR_E_STATE;
    if (process)
        m->rates->process = process;
    status = status ? status : merge_files(m);
    return status || !m->between ? status : measure_link_between(m->rates);
}

/* Rank 0 writes the link of two hosts; both ranks know it. */
static int save(const measuring *m, double start)
{
    char time[32];
    if (m->between && weir_rank())
        return 0;
    if (weir_rates_save(m->rates, m->to))
        return options_failed(program);
    printf("%s: rates of %s, in %s\n", m->to, m->between ? "two hosts" : m->count || !m->others.count ? "this machine" : "several hosts",
           measure_time_text(measure_seconds() - start, time));
    return 0;
}

static int check(const measuring *m)
{
    if (!m->to)
        return options_wrong(program, "needs -o RATES, the file to write");
    if (m->between && (m->paths.count || m->grid))
        return options_wrong(program, "--between measures the link alone; measure plans on each host without it");
    return -1;
}

/* Compiles the blocks of the grid behind the other plans. False: it failed. */
static bool add_grid(const weir_plan **plans, int *count)
{
    shapes s;
    for (int i = 0; *count < PLANS_MAX && shapes_grid(i, &s); i++, ++*count)
        if (!(plans[*count] = shapes_plan(&s)))
            return false;
    return true;
}

int command_measure(int argc, char **argv)
{
    measuring m = {.to = NULL};
    const double start = measure_seconds();
    const options_entry table[] = {
        {"PLAN", OPTIONS_LIST, &m.paths, .file = OPTIONS_READS, .several = true, .optional = true, .help = "saved plans, whose kernels are measured"},
        {"-o", OPTIONS_TEXT, &m.to, .value = "RATES", .file = OPTIONS_WRITES, .help = "the file to write"},
        {"--merge", OPTIONS_LIST, &m.others, .value = "RATES", .file = OPTIONS_READS,
         .help = "add the rates of another host: of two times the longer counts"},
        {"--no-links", OPTIONS_FLAG, &m.no_links, .help = "measure no links between processes, which takes ten seconds"},
        {"--between", OPTIONS_FLAG, &m.between, .help = "measure only the link of two hosts: weir launch --hosts A,B -- weir measure --between ..."},
        {"--grid", OPTIONS_FLAG, &m.grid,
         .help = "measure also calls of 24 blocks of transformers, to predict other shapes from; about half a minute"},
        {"--noisy", OPTIONS_FLAG, &m.noisy, .help = "measure although other programs disturb the machine; the file says so"},
        COMMAND_OPS_OPTION(m.objects),
        {.name = NULL},
    };
    int status = options_parse(&(options_spec){program, "Measure this machine for weir predict. Best alone, as chrt -f 50 weir measure ...", table}, argc, argv);
    if (status < 0)
        status = check(&m);
    if (status < 0)
        status = command_load_ops(program, &m.objects);
    for (; status < 0 && m.count < m.paths.count; m.count++)
        if (!(m.plans[m.count] = command_load(program, m.paths.value[m.count], &status)))
            break;
    if (status < 0 && m.grid && !add_grid(m.plans, &m.count))
        status = options_failed(program);
    m.rates = rates_new();
    if (status < 0)
        status = measure(&m) ? options_failed(program) : save(&m, start);
    while (m.count)
        weir_plan_free((weir_plan *)m.plans[--m.count]);
    weir_rates_free(m.rates);
    return status;
}
