/* tests/fuzz/fuzz_plan.c: bytes that claim to be a plan.
 *
 * A mutated file almost never has the right hash, so the plan is read without that check first; what then passes
 * plan_validate() must survive everything that reads plans, a proof against the graph that it keeps among them, and come back
 * from its own encoding unchanged. Spread over ranks and cut into parts it must stay valid, and live if it was.
 */
#include "graph/plan/prove/check.h"
#include "graph/plan/form/file.h"
#include "graph/plan/spread/spread.h"
#include "tests/fuzz/fuzz.h"
#include "tests/support/sample_plan.h"
#include "tests/support/untrusted.h"

#include <stdlib.h>

#define FIRINGS_PLAYED_MAX 100000 /* larger plans are valid, and slow to play */
#define RANKS 3

const char *const fuzz_corpus = "tests/fuzz/corpus/plan";

static uint64_t firings(const weir_plan *plan)
{
    uint64_t sum = 0;
    for (uint32_t a = 0; a < plan->actors_count; a++)
        sum += plan->actors[a].fires;
    return sum;
}

static void view(const weir_plan *plan)
{
    char *text = NULL;
    size_t bytes;
    FILE *to = open_memstream(&text, &bytes);
    if (!to)
        return;
    weir_plan_show(plan, to);
    weir_plan_json(plan, to);
    weir_plan_dot(plan, to);
    weir_plan_picture(plan, to);
    weir_plan_list(plan, to, .tensors = true);
    weir_plan_list(plan, to, .json = true, .stage = 1);
    fclose(to);
    free(text);
}

static void encode_again(weir_plan *plan)
{
    void *bytes = NULL;
    size_t count = 0;
    plan->hash = plan_hash(plan);
    plan->table_hash = plan->table_version ? plan_table_hash(plan) : 0;
    if (plan_encode(plan, &bytes, &count) != WEIR_OK)
        return;
    weir_plan *again = plan_decode(bytes, count);
    if (!again || again->hash != plan->hash || again->table_hash != plan->table_hash)
        __builtin_trap();
    weir_plan_free(again);
    free(bytes);
}

static bool live(const weir_plan *plan)
{
    check_result result;
    return firings(plan) > FIRINGS_PLAYED_MAX || check_play(plan, &result) != WEIR_OK || result.live;
}

static void check_part(const weir_plan *spread, uint32_t rank, bool was_live)
{
    weir_plan *part = plan_part(spread, rank);
    if (!part || (was_live && !live(part)))
        __builtin_trap();
    view(part);
    encode_again(part);
    weir_plan_free(part);
}

/* Not every plan can be spread: its firings may become too many, or an actor write to a device far away. */
static void spread_and_part(const weir_plan *plan)
{
    bool was_live = live(plan);
    uint32_t ranks = plan->ranks > 1 ? plan->ranks : RANKS;
    weir_plan *spread = plan->part || ranks > RANKS ? NULL : plan_spread(plan, ranks, 0);
    if (spread && was_live && !live(spread))
        __builtin_trap();
    for (uint32_t rank = 0; spread && rank < spread->ranks; rank++)
        check_part(spread, rank, was_live);
    weir_plan_free(spread);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    check_result result;
    sample_ops_register();
    weir_plan_free(plan_decode(data, size));
    weir_plan *plan = plan_read(data, size);
    if (plan && plan_validate(plan) == WEIR_OK) {
        if (firings(plan) <= FIRINGS_PLAYED_MAX)
            check_play(plan, &result);
        view(plan);
        encode_again(plan);
        spread_and_part(plan);
        if (untrusted_small(plan))
            untrusted_proof(plan);
    }
    weir_plan_free(plan);
    return 0;
}
