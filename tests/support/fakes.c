/* tests/support/fakes.c: see the header. */
#include "tests/support/fakes.h"

#include "graph/plan/spread.h"

#include <criterion/criterion.h>

bool fakes_all(const weir_mesh *mesh)
{
    return mesh->kind == WEIR_CPU;
}

/* Meshes of single devices are in no list of the graph's, but each is that of a node or a tensor. */
static void put(weir_mesh *mesh, fakes_choice on)
{
    if (mesh && mesh->kind == WEIR_CPU && on(mesh))
        mesh->kind = WEIR_FAKE;
}

void fakes_put(weir_graph *graph, fakes_choice on)
{
    for (int n = 0; n < graph->nodes.count; n++)
        put(graph->nodes.item[n]->mesh, on);
    for (int t = 0; t < graph->tensors.count; t++)
        put(graph->tensors.item[t]->mesh, on);
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
