/* tests/fuzz/fuzz_run.c: a plan that nobody compiled, loaded and run.
 *
 * The input is how an enemy makes the plan: the first byte chooses a compiled one, or one that is spread over two ranks,
 * or the part of either, or one that keeps its graph; and each eight bytes after it are the seed of one change
 * (tests/support/mutate_plan.h), of the plan or of the graph that it keeps. Bytes of a plan file would hardly ever pass
 * plan_validate(), and would be stale with every change of the format; fuzz_plan.c takes those. A plan that passes goes
 * through the file format and is then run, between guards and in a session, and held against the graph that it keeps.
 */
#include "graph/plan/spread/spread.h"
#include "tests/fuzz/fuzz.h"
#include "tests/support/mutate_plan.h"
#include "tests/support/sample_plan.h"
#include "tests/support/small_plans.h"
#include "tests/support/untrusted.h"

#include <stdlib.h>
#include <string.h>

enum { CHANGES_MAX = 16 };
enum { WHOLE, SPREAD, PART_0, PART_1, WITH_GRAPH, FORMS };

const char *const fuzz_corpus = "tests/fuzz/corpus/run";

/* Takes the plan over. */
static weir_plan *in_form(weir_plan *plan, int form)
{
    weir_plan *spread = form == WHOLE || form == WITH_GRAPH ? NULL : plan_spread(plan, 2, 0);
    weir_plan *part = spread && form != SPREAD ? plan_part(spread, form == PART_1) : NULL;
    if (!spread)
        return plan;
    weir_plan_free(plan);
    if (form == SPREAD)
        return spread;
    weir_plan_free(spread);
    return part;
}

/* Made once: the plan that is changed. */
static const weir_plan *base_plan(int choice)
{
    static weir_plan *bases[FORMS][SMALL_PLANS];
    int which = choice % SMALL_PLANS, form = choice / SMALL_PLANS % FORMS;
    if (!bases[form][which]) {
        weir_plan *formed = in_form(form == WITH_GRAPH ? small_plan_with_graph(which) : small_plan(which), form);
        bases[form][which] = formed ? mutate_room(formed) : NULL;
        weir_plan_free(formed);
    }
    if (!bases[form][which])
        __builtin_trap();
    return bases[form][which];
}

static weir_plan *changed_plan(const uint8_t *data, size_t size)
{
    weir_plan *plan = plan_copy(base_plan(size ? data[0] : 0));
    size_t changes = size / 8 < CHANGES_MAX ? size / 8 : CHANGES_MAX;
    for (size_t i = 0; i < changes; i++) {
        uint64_t random = 0;
        size_t first = 1 + 8 * i;
        memcpy(&random, data + first, size - first < 8 ? size - first : 8);
        (plan->table_version && random % 2 ? mutate_table : mutate_plan)(plan, &random);
    }
    plan->hash = plan_hash(plan);
    plan->table_hash = plan->table_version ? plan_table_hash(plan) : 0;
    return plan;
}

/* The plan as it comes back from a file. */
static weir_plan *loaded(const weir_plan *plan)
{
    void *bytes = NULL;
    size_t count = 0;
    if (plan_encode(plan, &bytes, &count) != WEIR_OK)
        return NULL;
    weir_plan *again = plan_decode(bytes, count);
    if (!again || again->hash != plan->hash)
        __builtin_trap();
    free(bytes);
    return again;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    weir_plan *plan = changed_plan(data, size);
    weir_plan *again = mutate_tighten(plan) && untrusted_small(plan) ? loaded(plan) : NULL;
    if (again) {
        untrusted_calls(again, size);
        untrusted_run(again, size);
        untrusted_proof(again);
    }
    weir_plan_free(again);
    weir_plan_free(plan);
    return 0;
}
