/* tests/fuzz/fuzz_run.c: a plan that nobody compiled, loaded and run.
 *
 * The input is how an enemy makes the plan: the first byte chooses a compiled one, and each eight bytes after it are
 * the seed of one change (tests/support/mutate_plan.h). Bytes of a plan file would hardly ever pass plan_validate(),
 * and would be stale with every change of the format; fuzz_plan.c takes those. What passes goes through the file
 * format and is then run, between guards and in a session.
 */
#include "tests/fuzz/fuzz.h"
#include "tests/support/mutate_plan.h"
#include "tests/support/sample_plan.h"
#include "tests/support/small_plans.h"
#include "tests/support/untrusted.h"

#include <stdlib.h>
#include <string.h>

enum { CHANGES_MAX = 16 };

const char *const fuzz_corpus = "tests/fuzz/corpus/run";

/* Made once: the plan that is changed. */
static const weir_plan *base_plan(int which)
{
    static weir_plan *bases[SMALL_PLANS];
    if (!bases[which]) {
        weir_plan *compiled = small_plan(which);
        bases[which] = mutate_room(compiled);
        weir_plan_free(compiled);
    }
    return bases[which];
}

static weir_plan *changed_plan(const uint8_t *data, size_t size)
{
    weir_plan *plan = plan_copy(base_plan(size ? data[0] % SMALL_PLANS : 0));
    size_t changes = size / 8 < CHANGES_MAX ? size / 8 : CHANGES_MAX;
    for (size_t i = 0; i < changes; i++) {
        uint64_t random = 0;
        size_t first = 1 + 8 * i;
        memcpy(&random, data + first, size - first < 8 ? size - first : 8);
        mutate_plan(plan, &random);
    }
    plan->hash = plan_hash(plan);
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
    weir_plan *again = plan_validate(plan) == WEIR_OK && untrusted_small(plan) ? loaded(plan) : NULL;
    if (again) {
        untrusted_calls(again, size);
        untrusted_run(again, size);
    }
    weir_plan_free(again);
    weir_plan_free(plan);
    return 0;
}
