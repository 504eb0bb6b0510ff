/* tests/support/compiled.c: see the header. The order is that of graph/compile/compile.c. */
#include "tests/support/compiled.h"
#include "tests/support/random_model.h"

#include <criterion/criterion.h>

/* Runs the list as far as `last`, the pass of that function; whether it has it. */
static bool run_to(compile *c, const compile_pass *list, bool (*last)(compile *), uint64_t seed)
{
    for (; list->name; list++) {
        const compile_pass one[] = {*list, {NULL}};
        cr_assert(passes_run(c, one), "seed %lu, pass %s: %s", seed, list->name, weir_error());
        if (list->run == last)
            return true;
    }
    return false;
}

compile *compiled_to(bool (*last)(compile *), uint64_t seed)
{
    static const compile_pass *const lists[] = {logical_passes, layout_passes, cast_passes, conversion_passes,
                                                device_passes, actor_passes};
    static compile c;
    uint64_t model = 1 + seed / 2;
    c = (compile){.graph = random_model(model, seed), .memory_max = UINT64_MAX,
                  .opts = {.micro_batches = random_model_micro(model)}};
    c.micro = random_model_micro(model);
    passes_verified = true;
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++)
        if (run_to(&c, lists[i], last, seed))
            return &c;
    cr_assert_fail("no such pass");
    return NULL;
}

void compiled_free(compile *c)
{
    weir_graph_free((weir_graph *)(uintptr_t)c->graph);
    pool_free(&c->pool);
}
