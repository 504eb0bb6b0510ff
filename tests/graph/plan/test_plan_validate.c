/* tests/graph/plan/test_plan_validate.c: which plans are refused, and what the error says of them. */
#define _GNU_SOURCE
#include "graph/plan/prove/check.h"
#include "graph/base/error.h"
#include "graph/plan/form/build.h"
#include "graph/plan/form/fields.h"
#include "tests/support/sample_plan.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define assert_error_has(part) cr_assert(strstr(weir_error(), part), "'%s' lacks '%s'", weir_error(), part)

/* ---- valid or refused ---- */

typedef struct fault {
    plan_array array;
    uint32_t item;
    const char *field;
    uint32_t value_index;
    uint64_t value;
    const char *error; /* a part of what is said */
} fault;

static const plan_field *field_named(const plan_table *table, const char *name)
{
    for (uint32_t f = 0; f < table->field_count; f++)
        if (!strcmp(table->fields[f].name, name))
            return &table->fields[f];
    cr_assert_fail("no field %s", name);
    return NULL;
}

#define AT(array) PLAN_ARRAY_##array

/* Of sample_plan(4, 2). Its actors are 0 x, 1 forward, 2 labels, 3 loss, 4 backward, 5 update, 6 loss (the pull); its
 * registers 0 seed, 1 x, 2 w, 3 h, 4 labels, 5 loss, 6 dh, 7 dw; its tensors 0 to 3 as these, 4 product, then 5 labels
 * to 8 dw, 9 w/m. */
static const fault faults[] = {
    {AT(spaces), 0, "kind", 0, 9, "spaces[0].kind: 9 of 6"},
    {AT(spaces), 0, "kind", 0, WEIR_FAKE, "queues[2].kind: the host's functions cannot run on cpu:0, an accelerator"},
    {AT(spaces), 0, "kind", 0, WEIR_DISK, "kernels[0] (forward/product): sample_mix has no kernel for disk"},
    {AT(spaces), 1, "kind", 0, WEIR_FAKE, "kernels[2] (labels): source: a host function on cpu:1, an accelerator"},
    {AT(spaces), 0, "name", 0, 1u << 20, "spaces[0].name: 1048576 of "},
    {AT(spaces), 0, "path", 0, 1u << 20, "spaces[0].path: 1048576 of "},
    {AT(spaces), 0, "bytes", 0, 64, "of 64"},
    {AT(spaces), 0, "bytes", 0, UINT64_MAX, "more than there can be"},
    {AT(queues), 1, "space", 0, 2, "queues[1].space: 2 of 2"},
    {AT(queues), 1, "kind", 0, PLAN_QUEUE_KINDS, "queues[1].kind: 6 of 6"},
    {AT(queues), 1, "kind", 0, PLAN_COPY_IN, "queues[1].kind: only accelerators have such queues, cpu:1 is none"},
    {AT(queues), 1, "kind", 0, PLAN_COPY_OUT, "queues[1].kind: only accelerators have such queues, cpu:1 is none"},
    {AT(queues), 1, "kind", 0, PLAN_COLLECTIVE, "queues[1].kind: only accelerators have such queues, cpu:1 is none"},
    {AT(queues), 0, "workspace_bytes", 0, UINT64_MAX, "queues[0].workspace_offset: "},
    {AT(queues), 0, "workspace_offset", 0, 2048, "regsts[0] and kernels[0] overlap in the arena of spaces[0], and may be needed at"},
    {AT(queues), 0, "workspace_bytes", 0, 1024, "tensors[4].offset: 1024 bytes at 1024, of 1024"},
    {AT(queues), 0, "workspace_offset", 0, 8, "queues[0].workspace_offset: 8 is not a multiple of 64"},
    {AT(queues), 2, "workspace_bytes", 0, 64, "nothing runs on an outside queue"},
    {AT(queues), 2, "kind", 0, PLAN_COMPUTE, "is on the wrong kind of queue"},
    {AT(actors), 3, "queue", 0, 7, "actors[3].queue: 7 of 3"},
    {AT(actors), 3, "phase", 0, 3, "actors[3].phase: 3 of 3"},
    {AT(actors), 3, "fires", 0, 3, "actors[3].fires: 3, must be 1 or 4"},
    {AT(actors), 3, "fires", 0, 1, "frees 1 slots a step of register 3, into which 4 are published"},
    {AT(actors), 4, "priority", 0, 1, "actors[4].priority: the same as that of actors[1]"},
    {AT(actors), 3, "ports", 1, UINT32_MAX, "actors[3].ports: 3 and 4294967295 from there, of 9 ports"},
    {AT(actors), 3, "ports", 1, 1, "ports[4]: not in the range of its owner"},
    {AT(actors), 3, "ports", 1, 3, "ports[5] belongs to another"},
    {AT(actors), 1, "kernels", 1, 1, "kernels[1]: not in the range of its owner"},
    {AT(actors), 1, "regsts", 0, 0, "regsts[3]: not in the range of its owner"},
    {AT(actors), 1, "temps", 1, 0, "tensors[4]: not in the range of its owner"},
    {AT(actors), 1, "states", 1, 2, "belongs to another"},
    {AT(actors), 6, "queue", 0, 1, "is on the wrong kind of queue"},
    {AT(ports), 0, "actor", 0, 3, "ports[0]: not in the range of its owner"},
    {AT(ports), 0, "regst", 0, 8, "ports[0].regst: 8 of 8"},
    {AT(ports), 0, "regst", 0, 2, "ports[1].regst: 2 is read through another port of the actor"},
    {AT(ports), 0, "regst", 0, 4, "operands[0].tensor: 1 is not in the register of port 0"},
    {AT(ports), 1, "hold", 0, 0, "ports[1].hold: 0 does not divide"},
    {AT(ports), 1, "hold", 0, 3, "ports[1].hold: 3 does not divide the 4 firings of its reader"},
    {AT(ports), 1, "hold", 0, 2, "ports[1].hold: frees 2 slots a step of register 2, into which 1 are published"},
    {AT(regsts), 3, "producer", 0, 7, "regsts[3].producer: 7 of 7"},
    {AT(regsts), 3, "producer", 0, PLAN_NONE, "regsts[3].producer: none, but actors[1] has it"},
    {AT(regsts), 3, "producer", 0, 2, "regsts[3]: not in the range of its owner"},
    {AT(regsts), 3, "space", 0, 2, "regsts[3].space: 2 of 2"},
    {AT(regsts), 3, "space", 0, 1, "of 5120"},
    {AT(regsts), 3, "kind", 0, PLAN_MEMS, "regsts[3].kind: 10 of 10"},
    {AT(regsts), 3, "slots", 0, 0, "regsts[3].slots: 0"},
    {AT(regsts), 3, "slots", 0, 3, "overlap in the arena of spaces[0]"},
    {AT(regsts), 3, "slots", 0, UINT32_MAX, "regsts[3].offset: 4294967295 slots of 1024 bytes"},
    {AT(regsts), 3, "slot_bytes", 0, UINT64_MAX - 63, "regsts[3].offset: 2 slots of "},
    {AT(regsts), 3, "slot_bytes", 0, 0, "tensors[3].offset: 1024 bytes at 0, of 0"},
    {AT(regsts), 3, "slot_bytes", 0, 100, "is not a multiple of 64"},
    {AT(regsts), 3, "slot_bytes", 0, 512, "tensors[3].offset: 1024 bytes at 0, of 512"},
    {AT(regsts), 3, "offset", 0, 1, "is not a multiple of 64"},
    {AT(regsts), 3, "offset", 0, 0, "overlap in the arena of spaces[0]"},
    {AT(regsts), 3, "offset", 0, UINT64_MAX - 63, "regsts[3].offset: 2 slots of 1024 bytes at "},
    {AT(regsts), 3, "initial", 0, 3, "regsts[3].initial: 3 of 2 slots"},
    {AT(regsts), 0, "initial", 0, 0, "regsts[0].initial: 0 in a constant"},
    {AT(regsts), 2, "initial", 0, 0, "neither a state nor starts full"},
    {AT(regsts), 7, "fill", 0, 3, "regsts[7].fill: 3 does not divide the 4 firings of its producer"},
    {AT(regsts), 7, "fill", 0, 0, "regsts[7].fill: 0 does not divide"},
    {AT(regsts), 3, "fixed", 0, 2, "regsts[3].fixed: 2 of 2"},
    {AT(regsts), 3, "tensors", 0, 10, "regsts[3].tensors: 10 and 1 from there, of 10 tensors"},
    {AT(regsts), 3, "tensors", 1, 0, "tensors[3]: not in the range of its owner"},
    {AT(tensors), 3, "home", 0, 3, "tensors[3].home: 3 of 3"},
    {AT(tensors), 3, "home", 0, PLAN_IN_STATE, "tensors[3]: not in the range of its owner"},
    {AT(tensors), 3, "owner", 0, 99, "tensors[3].owner: 99 of 8"},
    {AT(tensors), 3, "owner", 0, 4, "tensors[3]: not in the range of its owner"},
    {AT(tensors), 3, "dtype", 0, WEIR_DTYPES, "tensors[3].dtype: 8 of 8"},
    {AT(tensors), 3, "dtype", 0, 0, "tensors[3].dtype: none"},
    {AT(tensors), 3, "rank", 0, 7, "tensors[3].rank: 7 of 7"},
    {AT(tensors), 3, "offset", 0, 64, "tensors[3].offset: 1024 bytes at 64, of 1024"},
    {AT(tensors), 3, "offset", 0, 4, "tensors[3].offset: 4 is not a multiple of 64"},
    {AT(tensors), 3, "offset", 0, UINT64_MAX - 63, "tensors[3].offset: 1024 bytes at "},
    {AT(tensors), 3, "shape", 0, (uint64_t)-1, "tensors[3]: a negative size in dimension 0"},
    {AT(tensors), 3, "start", 1, 1, "tensors[3].shape: 32 from 1 on, of 32 in dimension 1"},
    {AT(tensors), 3, "start", 1, INT64_MAX, "tensors[3].shape: 32 from 9223372036854775807 on"},
    {AT(tensors), 3, "global", 0, INT64_MAX, "tensors[3].shape: more bytes than there can be"},
    {AT(tensors), 9, "offset", 0, 0, "overlap in the arena of spaces[0]"},
    {AT(tensors), 9, "shape", 0, 7, "not of the type that sample_update keeps there"},
    {AT(kernels), 0, "actor", 0, 3, "kernels[0]: not in the range of its owner"},
    {AT(kernels), 0, "op", 0, 0, "kernels[0] (forward/product): there is no op "},
    {AT(kernels), 0, "host", 0, 1, "kernels[0] (forward/product): host: 1 is not for sample_mix"},
    {AT(kernels), 2, "host", 0, PLAN_NONE, "kernels[2] (labels): source without a host function"},
    {AT(kernels), 2, "host", 0, 0, "kernels[2] (labels): host: 0 is not for source"},
    {AT(kernels), 6, "accumulate", 0, 1, "kernels[6] (w): sample_update cannot accumulate"},
    {AT(kernels), 0, "in", 1, 0, "kernels[0] (forward/product): 0 inputs, sample_mix takes 1 to 4"},
    {AT(kernels), 0, "out", 1, 0, "kernels[0] (forward/product): 0 outputs, sample_mix has 1"},
    {AT(kernels), 0, "in", 0, 4, "belongs to another"},
    {AT(kernels), 0, "attrs", 1, 3, "kernels[0] (forward/product): 3 attribute words, sample_mix has 4"},
    {AT(kernels), 6, "state", 1, 0, "kernels[6] (w): 0 states, sample_update has 1"},
    {AT(kernels), 0, "workspace_bytes", 0, 4096, "kernels[0] (forward/product): workspace: 4096 bytes at 0, of 2048"},
    {AT(kernels), 0, "workspace_offset", 0, 32, "kernels[0] (forward/product): workspace: 1024 bytes at 32"},
    {AT(kernels), 0, "workspace_bytes", 0, 2048, "kernels[0] (forward/product): workspace: lies over operands[3]"},
    {AT(kernels), 0, "workspace_offset", 0, 1024, "kernels[0] (forward/product): workspace: lies over operands[3]"},
    {AT(tensors), 3, "shape", 0, 7, "sample_mix: output 0 is f32 [7, 32], of these inputs it would be f32 [8, 32]"},
    {AT(words), 8, "bits", 0, 0, "kernels[2] (labels): source: there is no dtype 0"},
    {AT(words), 10, "bits", 0, 7, "kernels[2] (labels): source: dimension 0 is 8 of 7"},
    {AT(operands), 0, "port", 0, 4, "operands[0].port: 4 is a port of another actor"},
    {AT(operands), 0, "port", 0, PLAN_NONE, "operands[0].tensor: 1 is another actor's, and no port is named"},
    {AT(operands), 0, "tensor", 0, 0, "operands[0].tensor: 0 is not in the register of port 0"},
    {AT(operands), 3, "tensor", 0, 2, "operands[3].tensor: 2 is not the actor's to write"},
    {AT(operands), 3, "port", 0, 0, "nothing is written through a port"},
    {AT(operands), 3, "tensor", 0, 3, "operands[4].tensor: 4 is read before it is written"},
    {AT(inits), 0, "kind", 0, 5, "inits[0].kind: 5 of 5"},
    {AT(inits), 0, "kind", 0, WEIR_INIT_DEFAULT, "inits[0].kind: none"},
    {AT(inits), 0, "tensor", 0, 3, "inits[0].tensor: 3 is neither a state nor starts full"},
    {AT(inits), 0, "a", 0, UINT64_C(0x7ff0000000000000), "inits[0]: not a finite number"},
    {AT(params), 0, "shards", 1, 0, "params[0] (w): has no shards"},
    {AT(params), 0, "shards", 1, 2, "params[0].shards: 0 and 2 from there, of 1 shards"},
    {AT(shards), 0, "tensor", 0, 3, "params[0] (w): shards[0] is neither a state nor starts full"},
    {AT(hosts), 0, "kind", 0, PLAN_HOST_KINDS, "hosts[0].kind: 5 of 5"},
    {AT(hosts), 0, "kind", 0, PLAN_PULL, "hosts[0] (x): its actor is not one register's, at a rate of one"},
    {AT(hosts), 0, "kind", 0, PLAN_SINK, "hosts[0].actor: 0 is on the wrong kind of queue"},
    {AT(hosts), 0, "actor", 0, 1, "hosts[0].actor: 1 is on the wrong kind of queue"},
    {AT(hosts), 1, "actor", 0, 1, "host: 1 is one of another actor"},
};

Test(plan_validate, accepts_the_sample, .timeout = 120)
{
    for (uint32_t micro = 1; micro < 5; micro++) {
        weir_plan *plan = sample_plan(micro, micro);
        cr_expect_eq(plan_validate(plan), WEIR_OK, "%s", weir_error());
        weir_plan_free(plan);
    }
}

Test(plan_validate, refuses_each_kind_of_fault_and_says_where_it_is, .timeout = 120)
{
    weir_plan *plan = sample_plan(4, 2);
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++) {
        const fault *f = &faults[i];
        const plan_table *table = &plan_tables[f->array];
        const plan_field *field = field_named(table, f->field);
        cr_assert_lt(f->item, plan_table_count(plan, table));
        void *item = item_of(plan, table, f->item);
        uint64_t was = plan_field_get(field, item, f->value_index);
        plan_field_set(field, item, f->value_index, f->value);
        cr_expect_eq(plan_validate(plan), WEIR_E_PLAN, "%s[%u].%s = %lu", table->name, f->item, f->field,
                     (unsigned long)f->value);
        cr_expect(strstr(weir_error(), f->error), "'%s' lacks '%s'", weir_error(), f->error);
        plan_field_set(field, item, f->value_index, was);
    }
    cr_expect_eq(plan_validate(plan), WEIR_OK, "%s", weir_error());
    weir_plan_free(plan);
}

/* Each member is made larger, whatever the plan has room for. */
Test(plan_validate, refuses_memory_that_nothing_lies_in, .timeout = 120)
{
    weir_plan *plan = sample_plan(4, 2);
    uint64_t was = plan->spaces[0].bytes;
    plan->spaces[0].bytes = UINT64_C(1) << 32;
    cr_expect_eq(plan_validate(plan), WEIR_E_PLAN);
    assert_error_has("spaces[0].bytes: 4294967296, but its contents end at ");
    plan->spaces[0].bytes = was + 64;
    cr_expect_eq(plan_validate(plan), WEIR_E_PLAN);
    plan->spaces[0].bytes = UINT64_C(1) << 33;
    plan->queues[0].workspace_bytes += UINT64_C(1) << 32;
    cr_expect_eq(plan_validate(plan), WEIR_E_PLAN);
    assert_error_has("queues[0].workspace_bytes: ");
    plan->queues[0].workspace_bytes -= UINT64_C(1) << 32;
    plan->spaces[0].bytes = was;
    cr_expect_eq(plan_validate(plan), WEIR_OK, "%s", weir_error());
    for (uint32_t s = 0; s < plan->spaces_count; s++)
        plan->spaces[s].bytes += UINT64_C(1) << 40;
    uint32_t last = 0;
    for (uint32_t r = 0; r < plan->regsts_count; r++)
        if (plan->regsts[r].slot_bytes)
            last = r;
    plan->regsts[last].offset = was;
    plan->regsts[last].slot_bytes += UINT64_C(1) << 32;
    cr_expect_eq(plan_validate(plan), WEIR_E_PLAN);
    assert_error_has("].slot_bytes: ");
    weir_plan_free(plan);
}

Test(plan_validate, refuses_wrong_scalars_and_strings, .timeout = 120)
{
    weir_plan *plan = sample_plan(4, 2);
    plan->version = 1;
    cr_expect_eq(plan_validate(plan), WEIR_E_PLAN);
    assert_error_has("version 1 of plans: this weir reads version 8");
    plan->version = PLAN_VERSION;
    plan->micro_batches = 0;
    cr_expect_eq(plan_validate(plan), WEIR_E_PLAN);
    assert_error_has("micro_batches: 0");
    plan->micro_batches = 4;
    plan->ranks = 0;
    cr_expect_eq(plan_validate(plan), WEIR_E_PLAN);
    assert_error_has("ranks: 0, must be 1 to 4096");
    plan->ranks = PLAN_RANKS_MAX + 1;
    cr_expect_eq(plan_validate(plan), WEIR_E_PLAN);
    assert_error_has("ranks: 4097");
    plan->ranks = 1;
    plan->part = 2;
    cr_expect_eq(plan_validate(plan), WEIR_E_PLAN);
    assert_error_has("part: 2 of 1");
    plan->part = 0;
    plan->whole = 1;
    cr_expect_eq(plan_validate(plan), WEIR_E_PLAN);
    assert_error_has("but this is no part");
    plan->whole = 0;
    plan->spaces[1].rank = 1;
    cr_expect_eq(plan_validate(plan), WEIR_E_PLAN);
    assert_error_has("spaces[1].rank: 1 of 1");
    plan->spaces[1].rank = 0;
    plan->strings[plan->strings_count - 1] = 'x';
    cr_expect_eq(plan_validate(plan), WEIR_E_PLAN);
    assert_error_has("strings: do not end with a zero byte");
    weir_plan_free(plan);
    plan = plan_builder_finish(plan_builder_new(), NULL);
    cr_expect_eq(plan_validate(plan), WEIR_OK, "an empty plan is one: %s", weir_error());
    plan->strings_count = 0;
    cr_expect_eq(plan_validate(plan), WEIR_E_PLAN);
    weir_plan_free(plan);
}

Test(plan_validate, refuses_two_parameters_or_two_ends_of_one_name, .timeout = 120)
{
    weir_plan *plan = sample_plan(4, 2);
    plan_param *params = malloc(2 * sizeof *params);
    plan_tensor_id *shards = malloc(2 * sizeof *shards);
    params[0] = plan->params[0];
    params[1] = (plan_param){.name = params[0].name, .shards = {1, 1}};
    shards[0] = shards[1] = plan->shards[0];
    free(plan->params);
    free(plan->shards);
    plan->params = params;
    plan->shards = shards;
    plan->params_count = plan->shards_count = 2;
    cr_expect_eq(plan_validate(plan), WEIR_E_PLAN);
    assert_error_has("].name: w is also that of params[");
    weir_plan_free(plan);
}

Test(plan_validate, refuses_a_host_function_that_nothing_calls, .timeout = 120)
{
    weir_plan *plan = sample_plan(4, 2);
    plan->hosts = realloc(plan->hosts, (plan->hosts_count + 1) * sizeof *plan->hosts);
    plan->hosts[plan->hosts_count] = plan->hosts[1];
    plan->hosts_count++;
    cr_expect_eq(plan_validate(plan), WEIR_E_PLAN);
    assert_error_has("hosts[3] (labels): no kernel calls it");
    weir_plan_free(plan);
}

Test(plan_validate, refuses_integers_that_start_with_what_they_cannot_hold, .timeout = 120)
{
    weir_plan *plan = sample_plan(4, 2);
    for (uint32_t t = 0; t < plan->tensors_count; t++)
        plan->tensors[t].dtype = WEIR_I32;
    plan->words[8].i = WEIR_I32; /* what the source makes */
    plan->inits[2].kind = WEIR_INIT_ZERO;
    plan->inits[0].a = -1;
    cr_expect_eq(plan_validate(plan), WEIR_OK, "%s", weir_error());
    plan->inits[0].a = 0x1p31;
    cr_expect_eq(plan_validate(plan), WEIR_E_PLAN);
    assert_error_has("inits[0].a: 2.14748e+09 is no i32");
    weir_plan_free(plan);
}

/* Everything that reads plans, on one that passed: there must be nothing for a sanitizer to see. */
static void use(const weir_plan *plan)
{
    check_result result;
    char *text = NULL;
    size_t bytes;
    FILE *to = open_memstream(&text, &bytes);
    cr_assert_eq(check_play(plan, &result), WEIR_OK);
    cr_assert_eq(weir_plan_show(plan, to), WEIR_OK);
    cr_assert_eq(weir_plan_json(plan, to), WEIR_OK);
    cr_assert_eq(weir_plan_dot(plan, to), WEIR_OK);
    fclose(to);
    free(text);
}

static uint64_t random_value(uint64_t was)
{
    switch (rand() % 8) {
    case 0:
        return was + 1;
    case 1:
        return was - 1;
    case 2:
        return (uint64_t)rand() % 10;
    case 3:
        return UINT64_C(1) << rand() % 64;
    case 4:
        return UINT64_MAX - (uint64_t)rand() % 3;
    case 5:
        return was + PLAN_ALIGN;
    case 6:
        return was ^ UINT64_C(1) << rand() % 64;
    default:
        return 0;
    }
}

static void mutate(weir_plan *plan)
{
    const plan_table *table;
    uint32_t count;
    do {
        table = &plan_tables[rand() % PLAN_RUN_ARRAYS];
        count = plan_table_count(plan, table);
    } while (!count);
    if (!table->fields) {
        plan->strings[(uint32_t)rand() % count] = (char)rand();
        return;
    }
    const plan_field *field = &table->fields[(uint32_t)rand() % table->field_count];
    void *item = item_of(plan, table, (uint32_t)rand() % count);
    uint32_t v = (uint32_t)rand() % field->values;
    plan_field_set(field, item, v, random_value(plan_field_get(field, item, v)));
}

Test(plan_validate, whatever_is_changed_at_random_is_refused_or_still_a_plan, .timeout = 60)
{
    enum { SEED = 4711, ROUNDS = 20000 };
    weir_plan *plan = sample_plan(4, 2);
    uint32_t accepted = 0;
    srand(SEED);
    cr_log_info("seed %d", SEED);
    for (int round = 0; round < ROUNDS; round++) {
        weir_plan *changed = plan_copy(plan);
        for (int i = rand() % 3; i >= 0; i--)
            mutate(changed);
        if (plan_validate(changed) == WEIR_OK) {
            if (accepted++ % 8 == 0)
                use(changed);
        } else {
            cr_assert_neq(weir_error()[0], '\0', "seed %d, round %d", SEED, round);
        }
        weir_plan_free(changed);
    }
    cr_assert(accepted > ROUNDS / 20 && accepted < ROUNDS * 19 / 20, "%u accepted", accepted);
    weir_plan_free(plan);
}
