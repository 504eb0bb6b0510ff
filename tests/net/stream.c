/* tests/net/stream.c: a stream of values from one rank to another, and how long a step of it takes.
 *
 *     stream --bytes 102400 --slots 3 --plan FILE      saves the plan, and ends
 *     stream --bytes 102400 --slots 3 --out /tmp/run   as a rank of two: writes seconds of a step to /tmp/run.RANK; rank 1's count
 */
#include "apps/common/measure.h"
#include "apps/common/options.h"

#include <stdio.h>
#include <string.h>
#include <weir/weir.h>

static const char program[] = "stream";

enum { STEPS = 14, SOURCE_SLOTS = 32 };

static weir_status give_zeros(void *ctx, const weir_view *value, int64_t step, int micro)
{
    (void)ctx, (void)step, (void)micro;
    memset(value->data, 0, (size_t)weir_shape_count(&value->shape) * sizeof(float));
    return WEIR_OK;
}

static weir_status drop(void *ctx, const weir_view *value, int64_t step, int micro)
{
    (void)ctx, (void)value, (void)step, (void)micro;
    return WEIR_OK;
}

static weir_plan *stream_plan(int bytes, int slots)
{
    weir_graph *g = weir_graph_new("stream");
    weir_tensor *x = NULL;
    WEIR_ON(weir_mesh_new(g, "cpu:0"))
    {
        x = weir_input(g, WEIR_F32, {bytes / (int)sizeof(float)}, .name = "x", .source = give_zeros);
        weir_slots(x, SOURCE_SLOTS);
        x = weir_relu(x, .name = "made");
        weir_slots(x, slots);
    }
    WEIR_ON(weir_mesh_new(g, "cpu:1"))
        weir_fetch(weir_tanh(x, .name = "taken"), .name = "y", .sink = drop);
    weir_plan *plan = weir_compile(g);
    weir_graph_free(g);
    return plan;
}

/* Rank 1 has all values at the end of a run; rank 0 goes on with the next one meanwhile. */
static weir_status time_steps(weir_session *session, double *seconds)
{
    weir_status status = weir_session_run(session, STEPS);
    const double start = measure_seconds();
    status = status ? status : weir_session_run(session, 4 * STEPS);
    *seconds = (measure_seconds() - start) / (4 * STEPS);
    return status;
}

static int run(const weir_plan *plan, const char *out)
{
    double seconds = 0;
    char path[4096];
    weir_session *session = weir_session_open(plan);
    weir_status status = session ? time_steps(session, &seconds) : WEIR_E_PEER;
    weir_session_close(session);
    snprintf(path, sizeof path, "%s.%d", out, weir_rank());
    FILE *to = status ? NULL : fopen(path, "w");
    if (to)
        fprintf(to, "%.6f\n", seconds);
    return to && !fclose(to) ? 0 : options_failed(program);
}

int main(int argc, char **argv)
{
    int bytes = 1 << 16, slots = 1;
    const char *saved = NULL, *out = "run";
    const options_entry table[] = {
        {"--bytes", OPTIONS_INT, &bytes, .min = 64, .max = 1 << 30, .help = "of a value"},
        {"--slots", OPTIONS_INT, &slots, .min = 1, .max = 64, .help = "of its register"},
        {"--plan", OPTIONS_TEXT, &saved, .help = "file for the plan, which is not run then"},
        {"--out", OPTIONS_TEXT, &out, .help = "where the result goes, with .RANK behind it"},
        {.name = NULL},
    };
    int status = options_parse(&(options_spec){program, "Pass values from rank 0 to rank 1.", table}, argc, argv);
    if (status >= 0)
        return status;
    weir_plan *plan = stream_plan(bytes, slots);
    if (!plan || (saved && weir_plan_save(plan, saved)))
        status = options_failed(program);
    else
        status = saved ? 0 : run(plan, out);
    weir_plan_free(plan);
    return status;
}
