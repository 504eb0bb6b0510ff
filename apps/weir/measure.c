/* weir measure: how long the kernels of some plans, and messages, take on this machine. */
#include "apps/common/measure.h"
#include "apps/weir/command.h"
#include "apps/weir/shapes.h"

#include <unistd.h>

static const char program[] = "weir measure";

static void show_done(void *ctx, int done, int count)
{
    (void)ctx;
    if (isatty(STDERR_FILENO))
        fprintf(stderr, "\r%s: %d of %d calls%s", program, done, count, done == count ? "\n" : "");
}

static int measure(const weir_plan *const *plans, int count, const char *to, bool noisy)
{
    char time[32];
    const double start = measure_seconds();
    weir_rates *rates = weir_measure(plans, count, .noisy = noisy, .progress = show_done);
    int status = rates && !weir_rates_save(rates, to) ? 0 : options_failed(program);
    weir_rates_free(rates);
    if (!status)
        printf("%s: rates of this machine, measured in %s\n", to, measure_time_text(measure_seconds() - start, time));
    return status;
}

enum { PLANS_MAX = OPTIONS_LIST_MAX + 64 };

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
    options_list paths = {0}, objects = {0};
    const char *to = NULL;
    bool noisy = false, grid = false;
    const options_entry table[] = {
        {"PLAN", OPTIONS_LIST, &paths, .file = OPTIONS_READS, .several = true, .help = "saved plans"},
        {"-o", OPTIONS_TEXT, &to, .value = "RATES", .file = OPTIONS_WRITES, .help = "the file to write"},
        {"--grid", OPTIONS_FLAG, &grid,
         .help = "measure also calls of 24 blocks of transformers, to predict other shapes from; about half a minute"},
        {"--noisy", OPTIONS_FLAG, &noisy, .help = "measure although other programs disturb the machine; the file says so"},
        COMMAND_OPS_OPTION(objects),
        {.name = NULL},
    };
    int status = options_parse(&(options_spec){program, "Measure this machine for weir predict. Best alone, as chrt -f 50 weir measure ...", table}, argc, argv);
    if (status < 0 && !to)
        status = options_wrong(program, "needs -o RATES, the file to write");
    if (status < 0)
        status = command_load_ops(program, &objects);
    const weir_plan *plans[PLANS_MAX];
    int count = 0;
    for (; status < 0 && count < paths.count; count++)
        if (!(plans[count] = command_load(program, paths.value[count], &status)))
            break;
    if (status < 0 && grid && !add_grid(plans, &count))
        status = options_failed(program);
    if (status < 0)
        status = measure(plans, count, to, noisy);
    while (count)
        weir_plan_free((weir_plan *)plans[--count]);
    return status;
}
