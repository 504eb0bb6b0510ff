/* tests/support/compiled.c: see the header. The order is that of graph/compile/compile.c. */
#include "tests/support/compiled.h"
#include "tests/support/random_model.h"

#include <criterion/criterion.h>

static compile_pass *const passes[] = {ir_new,     pass_scale, pass_precision, pass_rules, pass_shard,
                                       pass_casts, pass_fold,  pass_box,       pass_copies, pass_lower,
                                       pass_group, pass_sequence, pass_fuse, pass_tie,     pass_slots, pass_order};

compile *compiled_to(compile_pass *last, uint64_t seed)
{
    static compile c;
    uint64_t model = 1 + seed / 2;
    c = (compile){.graph = random_model(model, seed), .memory_max = UINT64_MAX,
                  .opts = {.micro_batches = random_model_micro(model)}};
    c.micro = random_model_micro(model);
    for (size_t i = 0; i < sizeof passes / sizeof *passes; i++) {
        cr_assert(passes[i](&c), "seed %lu, pass %zu: %s", seed, i, weir_error());
        if (passes[i] == last)
            break;
    }
    return &c;
}

void compiled_free(compile *c)
{
    weir_graph_free((weir_graph *)(uintptr_t)c->graph);
    offsets_forget(c);
    pool_free(&c->pool);
}
