/* apps/common/evaluate.c: see the header. The graph that evaluates runs on one device of each process: what it costs is
 * a third of as many steps of training. */
#include "apps/common/evaluate.h"
#include "apps/common/params.h"

static weir_status open_session(evaluation *e)
{
    const gpt_config *c = e->config;
    weir_graph *graph = gpt_eval_graph(c);
    if (!graph)
        return WEIR_E_MEMORY;
    e->plan = weir_compile(graph, .micro_batches = layout_full(c->layout).micro);
    weir_graph_free(graph);
    e->session = e->plan ? weir_session_open(e->plan, .cluster = {.alone = true}) : NULL;
    return e->session ? WEIR_OK : WEIR_E_STATE;
}

static weir_status mean_loss(evaluation *e, double *loss)
{
    const int steps = gpt_eval_steps(e->config), losses = steps * weir_plan_micro_batches(e->plan);
    weir_status status = weir_session_start(e->session, steps);
    *loss = 0;
    for (int i = 0; !status && i < losses; i++) {
        float value = 0;
        status = weir_session_pull(e->session, "loss", &(weir_array){&value, WEIR_F32, {0}}, -1);
        *loss += (double)value / losses;
    }
    return status ? status : weir_session_wait(e->session, -1);
}

weir_status evaluate(void *ctx, weir_session *trained, double *loss)
{
    evaluation *e = ctx;
    weir_status status = e->session ? WEIR_OK : open_session(e);
    status = status ? status : params_copy(trained, e->session, e->plan);
    return status ? status : mean_loss(e, loss);
}

void evaluation_end(evaluation *e)
{
    weir_session_close(e->session);
    weir_plan_free(e->plan);
    e->session = NULL;
    e->plan = NULL;
}
