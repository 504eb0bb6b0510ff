/* tests/support/fakes.c: see the header. */
#include "tests/support/fakes.h"

#include "graph/plan/spread/spread.h"

#include "tests/support/random_model.h"

#include <criterion/criterion.h>
#include <stdio.h>

weir_device_kind fakes_kind = WEIR_FAKE;

bool fakes_all(const weir_mesh *mesh)
{
    return mesh->kind == WEIR_CPU;
}

bool fakes_second_half(const weir_mesh *mesh)
{
    return mesh->device[0] > 0;
}

bool fakes_odd(const weir_mesh *mesh)
{
    return mesh->count % 2;
}

/* Meshes of single devices are in no list of the graph's, but each is that of a node or a tensor. */
static void put(weir_mesh *mesh, fakes_choice on)
{
    if (mesh && mesh->kind == WEIR_CPU && on(mesh))
        mesh->kind = fakes_kind;
}

void fakes_put(weir_graph *graph, fakes_choice on)
{
    for (int n = 0; n < graph->nodes.count; n++)
        put(graph->nodes.item[n]->mesh, on);
    for (int t = 0; t < graph->tensors.count; t++)
        put(graph->tensors.item[t]->mesh, on);
}

weir_plan *fakes_gpt(layout l, fakes_choice on, weir_compile_opts opts)
{
    static text corpus;
    static gpt_config config;
    if (!corpus.bytes)
        corpus = reference_text();
    config = reference_gpt(&corpus, REFERENCE_FULL);
    config.layout = l;
    if (fakes_kind == WEIR_CUDA) { /* whose kernels are emulated, thread by thread */
        config.dim /= 2;
        config.seq /= 2;
    }
    weir_graph *g = gpt_train_graph(&config);
    cr_assert_not_null(g);
    if (on)
        fakes_put(g, on);
    opts.micro_batches = l.micro;
    opts.seed = REFERENCE_SEED;
    opts.size = sizeof opts;
    weir_plan *plan = weir_compile_at(g, &opts);
    weir_graph_free(g);
    return plan;
}

struct fakes_pair fakes_gpt_pair(layout l, fakes_choice on)
{
    struct fakes_pair pair = {.cpu = fakes_gpt(l, NULL, (weir_compile_opts){.seed = 0}),
                              .plan = fakes_gpt(l, on, (weir_compile_opts){.seed = 0})};
    snprintf(pair.what, sizeof pair.what, "dp%d tp%d pp%d micro %d zero %d", l.dp, l.tp, l.pp, l.micro, l.zero);
    cr_assert(pair.plan && pair.cpu, "%s: %s", pair.what, weir_error());
    return pair;
}

weir_plan *fakes_model(uint64_t seed, fakes_choice on, weir_compile_opts opts)
{
    weir_graph *g = random_model(seed / 4, seed + 1);
    if (on)
        fakes_put(g, on);
    opts.micro_batches = random_model_micro(seed / 4);
    opts.seed = seed;
    opts.size = sizeof opts;
    weir_plan *plan = weir_compile_at(g, &opts);
    weir_graph_free(g);
    return plan;
}

struct fakes_pair fakes_model_pair(uint64_t seed, fakes_choice on)
{
    struct fakes_pair pair = {.cpu = fakes_model(seed, NULL, (weir_compile_opts){.seed = 0}),
                              .plan = fakes_model(seed, on, (weir_compile_opts){.seed = 0})};
    snprintf(pair.what, sizeof pair.what, "model %lu", (unsigned long)seed);
    cr_assert(pair.plan && pair.cpu, "%s: %s", pair.what, weir_error());
    return pair;
}

void fakes_pair_free(struct fakes_pair *pair)
{
    weir_plan_free(pair->plan);
    weir_plan_free(pair->cpu);
}

weir_plan *fakes_as_cpu(const weir_plan *plan)
{
    weir_plan *same = plan_spread(plan, 1, 0);
    cr_assert_not_null(same, "%s", weir_error());
    for (uint32_t s = 0; s < same->spaces_count; s++)
        if (same->spaces[s].kind == WEIR_FAKE || same->spaces[s].kind == WEIR_PINNED)
            same->spaces[s].kind = WEIR_CPU;
    for (uint32_t q = 0; q < same->queues_count; q++)
        if (same->queues[q].kind == PLAN_COPY_IN || same->queues[q].kind == PLAN_COPY_OUT)
            same->queues[q].kind = PLAN_IO_QUEUE;
    same->hash = plan_hash(same);
    cr_assert_eq(plan_validate(same), WEIR_OK, "%s", weir_error());
    return same;
}
