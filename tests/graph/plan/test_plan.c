/* Plans as data: building, hashing, saving and loading, and that nothing but a valid plan is ever accepted. */
#define _GNU_SOURCE
#include "graph/plan/prove/check.h"
#include "graph/base/error.h"
#include "graph/plan/form/build.h"
#include "graph/plan/form/fields.h"
#include "graph/plan/form/file.h"
#include "graph/plan/spread/spread.h"
#include "tests/support/sample_plan.h"

#include <criterion/criterion.h>
#include <dirent.h>
#include <msgpack.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define assert_error_has(part) cr_assert(strstr(weir_error(), part), "'%s' lacks '%s'", weir_error(), part)

/* ---- building ---- */

Test(plan_build, equal_texts_have_one_place_and_the_empty_one_is_first, .timeout = 120)
{
    plan_builder *builder = plan_builder_new();
    cr_expect_eq(plan_add_text(builder, "").i, 0);
    cr_expect_eq(plan_add_text(builder, NULL).i, 0);
    plan_str first = plan_add_text(builder, "h0/q");
    for (int i = 0; i < 1000; i++) {
        char name[16];
        snprintf(name, sizeof name, "h%d/q", i);
        plan_str again = plan_add_text(builder, name);
        cr_assert_str_eq(plan_text(plan_builder_plan(builder), again), name);
        cr_assert_eq(again.i, plan_add_text(builder, name).i);
    }
    cr_expect_eq(plan_add_text(builder, "h0/q").i, first.i);
    cr_expect_not(plan_builder_failed(builder));
    plan_builder_free(builder);
}

Test(plan_build, elements_can_be_patched_until_the_plan_is_finished, .timeout = 120)
{
    plan_builder *builder = plan_builder_new();
    for (uint32_t i = 0; i < 100; i++)
        cr_assert_eq(plan_add_words(builder, (plan_word){.i = i}), i);
    plan_builder_plan(builder)->words[7].i = -7;
    host_binding *bindings = calloc(1, sizeof *bindings);
    weir_plan *plan = plan_builder_finish(builder, bindings);
    cr_assert_eq(plan->words_count, 100);
    cr_assert_eq(plan->words[7].i, -7);
    cr_expect_eq(plan->bindings, bindings);
    cr_expect_eq(plan->hash, plan_hash(plan));
    weir_plan_free(plan);
}

/* ---- sizes and hash ---- */

Test(plan, memory_by_kind_adds_up_to_the_arena, .timeout = 120)
{
    weir_plan *plan = sample_plan(4, 2);
    for (uint32_t s = 0; s < plan->spaces_count; s++) {
        uint64_t bytes[PLAN_MEMS], sum = 0;
        plan_bytes_by_kind(plan, (plan_space_id){s}, bytes);
        for (int kind = 0; kind < PLAN_MEMS; kind++)
            sum += bytes[kind];
        cr_expect_eq(sum, plan->spaces[s].bytes);
        cr_expect_eq(weir_plan_bytes(plan, (int)s), sum);
    }
    cr_expect_eq(weir_plan_bytes(plan, -1), plan->spaces[0].bytes + plan->spaces[1].bytes);
    cr_expect_eq(weir_plan_bytes(plan, 2), 0);
    weir_plan_free(plan);
}

Test(plan, a_tensor_is_as_large_as_its_elements, .timeout = 120)
{
    cr_expect_eq(plan_tensor_bytes(&(plan_tensor){.dtype = WEIR_F32}), 4);
    cr_expect_eq(plan_tensor_bytes(&(plan_tensor){.dtype = WEIR_U8, .rank = 3, .shape = {3, 5, 7, 99}}), 105);
    cr_expect_eq(plan_tensor_bytes(&(plan_tensor){.dtype = WEIR_I32, .rank = 2, .shape = {3, 0}}), 0);
}

/* Calls `change` for every value of every element of the plan's tables, with its field. */
typedef void (*value_fn)(weir_plan *plan, const plan_table *table, const plan_field *field, uint32_t item, uint32_t v);
static void each_value(weir_plan *plan, value_fn visit)
{
    for (int t = 0; t < PLAN_ARRAYS; t++)
        for (uint32_t i = 0; i < plan_table_count(plan, &plan_tables[t]); i++)
            for (uint32_t f = 0; f < plan_tables[t].field_count; f++)
                for (uint32_t v = 0; v < plan_tables[t].fields[f].values; v++)
                    visit(plan, &plan_tables[t], &plan_tables[t].fields[f], i, v);
}

static void *item_of(weir_plan *plan, const plan_table *table, uint32_t item)
{
    return (char *)plan_table_items(plan, table) + item * table->item_bytes;
}

static void expect_hashed(weir_plan *plan, const plan_table *table, const plan_field *field, uint32_t item, uint32_t v)
{
    void *at = item_of(plan, table, item);
    uint64_t value = plan_field_get(field, at, v);
    plan_field_set(field, at, v, value ^ 1);
    cr_expect_neq(plan_hash(plan), plan->hash, "%s[%u].%s", table->name, item, field->name);
    plan_field_set(field, at, v, value);
    cr_assert_eq(plan_hash(plan), plan->hash);
}

Test(plan, the_hash_depends_on_every_member_of_every_element, .timeout = 120)
{
    weir_plan *plan = sample_plan(2, 1);
    each_value(plan, expect_hashed);
    plan->strings[3] ^= 1;
    cr_expect_neq(plan_hash(plan), plan->hash);
    plan->strings[3] ^= 1;
    plan->micro_batches++;
    cr_expect_neq(plan_hash(plan), plan->hash);
    plan->micro_batches--;
    plan->seed++;
    cr_expect_neq(plan_hash(plan), plan->hash);
    plan->seed--;
    plan->ranks++;
    cr_expect_neq(plan_hash(plan), plan->hash);
    plan->ranks--;
    plan->graph++;
    cr_expect_neq(plan_hash(plan), plan->hash);
    plan->graph--;
    plan->part++;
    cr_expect_neq(plan_hash(plan), plan->hash);
    plan->part--;
    plan->whole++;
    cr_expect_neq(plan_hash(plan), plan->hash);
    weir_plan_free(plan);
}

Test(plan, the_hash_does_not_depend_on_padding, .timeout = 120)
{
    weir_plan *plan = sample_plan(2, 1);
    for (uint32_t r = 0; r < plan->regsts_count; r++) {
        plan_regst clean = plan->regsts[r];
        memset(&plan->regsts[r], 0xa5, sizeof clean);
        for (uint32_t f = 0; f < plan_tables[PLAN_ARRAY_regsts].field_count; f++) {
            const plan_field *field = &plan_tables[PLAN_ARRAY_regsts].fields[f];
            for (uint32_t v = 0; v < field->values; v++)
                plan_field_set(field, &plan->regsts[r], v, plan_field_get(field, &clean, v));
        }
    }
    cr_expect_eq(plan_hash(plan), plan->hash);
    weir_plan_free(plan);
}

/* ---- files ---- */

static void assert_same(const weir_plan *a, const weir_plan *b)
{
    cr_assert_eq(a->hash, b->hash);
    cr_assert_eq(a->micro_batches, b->micro_batches);
    cr_assert_eq(a->seed, b->seed);
    cr_assert_str_eq(plan_text(a, a->name), plan_text(b, b->name));
    for (int t = 0; t < PLAN_ARRAYS; t++) {
        const plan_table *table = &plan_tables[t];
        cr_assert_eq(plan_table_count(a, table), plan_table_count(b, table));
        const char *x = plan_table_items(a, table), *y = plan_table_items(b, table);
        for (uint32_t i = 0; i < plan_table_count(a, table); i++, x += table->item_bytes, y += table->item_bytes)
            for (uint32_t f = 0; f < table->field_count; f++)
                for (uint32_t v = 0; v < table->fields[f].values; v++)
                    cr_assert_eq(plan_field_get(&table->fields[f], x, v), plan_field_get(&table->fields[f], y, v));
    }
    cr_assert_eq(memcmp(a->strings, b->strings, a->strings_count), 0);
}

Test(plan_file, what_is_loaded_is_what_was_saved, .timeout = 120)
{
    char path[] = "/tmp/weir-test-plan-XXXXXX";
    close(mkstemp(path));
    weir_plan *plan = sample_plan(4, 2);
    cr_assert_eq(weir_plan_save(plan, path), WEIR_OK, "%s", weir_error());
    weir_plan *loaded = weir_plan_load(path);
    cr_assert_not_null(loaded, "%s", weir_error());
    assert_same(plan, loaded);
    cr_expect_null(loaded->bindings);
    void *first, *second;
    size_t first_count, second_count;
    cr_assert_eq(plan_encode(plan, &first, &first_count), WEIR_OK);
    cr_assert_eq(plan_encode(loaded, &second, &second_count), WEIR_OK);
    cr_expect(first_count == second_count && memcmp(first, second, first_count) == 0);
    free(first);
    free(second);
    weir_plan_free(plan);
    weir_plan_free(loaded);
    remove(path);
}

static uint32_t count_files(const char *folder)
{
    uint32_t count = 0;
    DIR *dir = opendir(folder);
    for (struct dirent *entry; (entry = readdir(dir));)
        count += entry->d_name[0] != '.';
    closedir(dir);
    return count;
}

Test(plan_file, saving_replaces_the_file_and_leaves_nothing_else, .timeout = 120)
{
    char folder[] = "/tmp/weir-test-plan-XXXXXX", path[64];
    cr_assert_not_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/p.plan", folder);
    weir_plan *plan = sample_plan(4, 2), *other = sample_plan(2, 1);
    cr_assert_eq(weir_plan_save(plan, path), WEIR_OK);
    cr_assert_eq(weir_plan_save(other, path), WEIR_OK);
    weir_plan *loaded = weir_plan_load(path);
    cr_assert_not_null(loaded, "%s", weir_error());
    cr_expect_eq(loaded->hash, other->hash);
    cr_expect_eq(count_files(folder), 1);
    weir_plan_free(plan);
    weir_plan_free(other);
    weir_plan_free(loaded);
    remove(path);
    rmdir(folder);
}

Test(plan_file, errors_of_the_file_system_name_the_file, .timeout = 120)
{
    weir_plan *plan = sample_plan(1, 1);
    cr_expect_eq(weir_plan_save(plan, "/nowhere/p.plan"), WEIR_E_IO);
    assert_error_has("/nowhere/p.plan: cannot be written: ");
    cr_expect_null(weir_plan_load("/nowhere/p.plan"));
    assert_error_has("/nowhere/p.plan: cannot be opened: ");
    cr_expect_null(weir_plan_load("/tmp"));
    assert_error_has("/tmp: cannot be opened: it is a folder, not a regular file");
    weir_plan_free(plan);
}

Test(plan_file, a_file_that_is_something_else_is_refused_by_name, .timeout = 120)
{
    char path[] = "/tmp/weir-test-plan-XXXXXX";
    int fd = mkstemp(path);
    cr_assert_eq(write(fd, "hello", 5), 5);
    close(fd);
    cr_expect_null(weir_plan_load(path));
    assert_error_has(path);
    assert_error_has(": this is not a weir plan");
    remove(path);
}

Test(plan_file, every_shorter_file_is_refused, .timeout = 120)
{
    weir_plan *plan = sample_plan(2, 1);
    void *bytes;
    size_t count;
    cr_assert_eq(plan_encode(plan, &bytes, &count), WEIR_OK);
    for (size_t shorter = 0; shorter < count; shorter++) {
        char *part = malloc(shorter + 1); /* so that a sanitizer sees a read behind the end */
        memcpy(part, bytes, shorter);
        part = realloc(part, shorter ? shorter : 1);
        cr_assert_null(plan_decode(part, shorter), "%zu of %zu bytes", shorter, count);
        free(part);
    }
    char *longer = calloc(1, count + 1);
    memcpy(longer, bytes, count);
    cr_assert_null(plan_decode(longer, count + 1));
    free(longer);
    free(bytes);
    weir_plan_free(plan);
}

Test(plan_file, damage_is_noticed_wherever_it_is, .timeout = 120)
{
    weir_plan *plan = sample_plan(2, 1);
    void *bytes;
    size_t count;
    cr_assert_eq(plan_encode(plan, &bytes, &count), WEIR_OK);
    for (size_t i = 0; i < count; i++) {
        ((unsigned char *)bytes)[i] ^= 0x11;
        cr_assert_null(plan_decode(bytes, count), "byte %zu", i);
        ((unsigned char *)bytes)[i] ^= 0x11;
    }
    weir_plan *back = plan_decode(bytes, count);
    cr_assert_not_null(back);
    weir_plan_free(back);
    free(bytes);
    weir_plan_free(plan);
}

Test(plan_file, an_array_that_claims_more_than_the_file_has_allocates_nothing, .timeout = 120)
{
    static const unsigned char huge[][9] = {{0xdd, 0xff, 0xff, 0xff, 0xff}, {0xdf, 0xff, 0xff, 0xff, 0xff},
                                            {0xc6, 0xff, 0xff, 0xff, 0xff}, {0xdb, 0xff, 0xff, 0xff, 0xff},
                                            {0xdc, 0xff, 0xff}, {0xc9, 0xff, 0xff, 0xff, 0xff, 1}, {0xc1}};
    for (size_t i = 0; i < sizeof huge / sizeof *huge; i++) {
        cr_expect_null(plan_read(huge[i], sizeof huge[i]));
        assert_error_has("not a weir plan");
    }
    char nested[4096];
    memset(nested, (char)0x91, sizeof nested); /* arrays of one array of one array */
    nested[sizeof nested - 1] = (char)0xc0;
    cr_expect_null(plan_read(nested, sizeof nested));
}

/* The encoded plan with the first place of `from` replaced by `to`, which is as long. */
static weir_plan *read_replaced(const char *from, const char *to, size_t bytes)
{
    weir_plan *plan = sample_plan(2, 1);
    void *encoded;
    size_t count;
    cr_assert_eq(plan_encode(plan, &encoded, &count), WEIR_OK);
    char *place = memmem(encoded, count, from, bytes);
    cr_assert_not_null(place);
    memcpy(place, to, bytes);
    weir_plan *read = plan_read(encoded, count);
    free(encoded);
    weir_plan_free(plan);
    return read;
}

Test(plan_file, says_which_part_of_a_file_is_wrong, .timeout = 120)
{
    cr_expect_null(read_replaced("weir plan", "weir plum", 9));
    assert_error_has("this is not a weir plan");
    cr_expect_null(read_replaced("version\x08", "version\x01", 8));
    assert_error_has("version 1 of plans: this weir reads version 8");
    cr_expect_null(read_replaced("slot_bytes", "slot_bites", 10));
    assert_error_has("regsts.slot_bytes: is missing");
    cr_expect_null(read_replaced("queues", "kueues", 6));
    assert_error_has("queues: is missing");
    cr_expect_null(read_replaced("priority\x97\x00", "priority\x97\xff", 10));
    assert_error_has("actors[0].priority: is no number of the right kind");
    cr_expect_null(read_replaced("scale\x01\xa4real", "scale\x02\xa4real", 11));
    assert_error_has("ops.sample_mix: attribute 2 is not scale, as in this program");
    cr_expect_null(read_replaced("\xa4""axis\x01", "\xa4""base\x01", 6));
    assert_error_has("ops.sample_mix: attribute 0 is not axis, as in this program");
    cr_expect_null(read_replaced("\xaasample_mix\x93", "\xaasample_max\x93", 12));
    assert_error_has("ops.sample_max: there is no such op in this program");
    cr_expect_null(read_replaced("fires\x97", "fires\x96", 6));
}

static void is_in_corpus(const char *name, weir_plan *plan)
{
    char path[128];
    uint8_t *encoded, found[1 << 14];
    size_t count, bytes = 0;
    snprintf(path, sizeof path, "tests/fuzz/corpus/plan/%s", name);
    cr_assert_eq(plan_encode(plan, (void **)&encoded, &count), WEIR_OK);
    FILE *file = getenv("WEIR_TEST_WRITE") ? fopen(path, "wb") : NULL;
    if (file) {
        cr_assert_eq(fwrite(encoded, 1, count, file), count);
        cr_assert_eq(fclose(file), 0);
    }
    file = fopen(path, "rb");
    cr_assert(file, "%s is not there", path);
    bytes = fread(found, 1, sizeof found, file);
    fclose(file);
    cr_expect(bytes == count && !memcmp(found, encoded, count),
              "%s is of another version: WEIR_TEST_WRITE=1 build/release/tests/test_plan --filter 'plan_file/*'", path);
    free(encoded);
    weir_plan_free(plan);
}

/* A fuzzer that begins with plans that nobody reads finds nothing. */
Test(plan_file, fuzzer_begins_with_plans_of_this_version)
{
    weir_plan *sample = sample_plan(1, 1), *spread = plan_spread(sample, 2, 0);
    cr_assert_not_null(spread);
    is_in_corpus("part-0", plan_part(spread, 0));
    is_in_corpus("spread-2", spread);
    is_in_corpus("sample-1", sample);
    is_in_corpus("sample-3", sample_plan(3, 2));
    is_in_corpus("dead", sample_plan(1, 0));
    is_in_corpus("empty", plan_builder_finish(plan_builder_new(), NULL));
}

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
    {AT(spaces), 0, "kind", 0, 9, "spaces[0].kind: 9 of 5"},
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
    {AT(tensors), 3, "dtype", 0, WEIR_DTYPES, "tensors[3].dtype: 6 of 6"},
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
        table = &plan_tables[rand() % PLAN_ARRAYS];
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

/* ---- views ---- */

typedef weir_status (*view_fn)(const weir_plan *plan, FILE *to);
static char *view(const weir_plan *plan, view_fn write)
{
    char *text = NULL;
    size_t bytes;
    FILE *to = open_memstream(&text, &bytes);
    cr_assert_eq(write(plan, to), WEIR_OK);
    fclose(to);
    return text;
}

#define assert_has(text, part) cr_assert(strstr(text, part), "lacks '%s':\n%s", part, text)

Test(plan_show, tells_memory_by_kind_and_every_actor, .timeout = 120)
{
    weir_plan *plan = sample_plan(4, 2);
    char *text = view(plan, weir_plan_show);
    assert_has(text, "plan sample \"plan\": 2 devices, 4 micro-batches a step, 7 actors, 7 kernels, 15.0 KiB");
    assert_has(text, "\ncpu:0      1.0 KiB          1.0 KiB           -      3.0 KiB    1.0 KiB         -             2.0 KiB    "
                     "2.0 KiB         -                 -       -  10.0 KiB\n");
    assert_has(text, "forward   forward       4        2     16.0 KiB  8.0 KiB  h 2x1.0 KiB            <- x, w (hold 4), "
                     "+1\n");
    assert_has(text, "cpu:0    cpu:0   compute       3        4               9     32.0 KiB  14.0 KiB             4.0 KiB    "
                     "2.0 KiB\n");
    assert_has(text, "dw 1x1.0 KiB (fill 4)");
    assert_has(text, "w 1x1.0 KiB (1 full)");
    cr_expect_null(strstr(text, " \n"), "blanks at the end of a line");
    free(text);
    weir_plan_free(plan);
}

Test(plan_show, control_characters_in_names_reach_no_terminal, .timeout = 120)
{
    weir_plan *plan = sample_plan(1, 1);
    plan->strings[plan->actors[1].name.i] = '\033';
    plan->strings[plan->actors[1].name.i + 1] = '\t';
    view_fn views[] = {weir_plan_show, weir_plan_dot};
    for (int i = 0; i < 2; i++) {
        char *text = view(plan, views[i]);
        cr_expect_null(strchr(text, '\033'));
        assert_has(text, i ? "\\\\x1b\\\\x09rward" : "\\x1b\\x09rward");
        free(text);
    }
    weir_plan_free(plan);
}

Test(plan_json, escapes_texts_and_names_attributes, .timeout = 120)
{
    weir_plan *plan = sample_plan(4, 2);
    char *name = plan->strings + plan->actors[1].name.i;
    memcpy(name, "f\n\xc3\xa4\xff\\d", 7); /* "forward": 7 bytes */
    char *text = view(plan, weir_plan_json);
    assert_has(text, "{\"name\":\"sample \\\"plan\\\"\"");
    assert_has(text, "\"name\":\"f\\u000a\xc3\xa4\\ufffd\\\\d\"");
    assert_has(text, "\"attrs\":{\"axis\":-1,\"dims\":[3,1048576],\"scale\":0.125}");
    assert_has(text, "\"key\":\"123456789abcdef0\"");
    assert_has(text, "\"producer\":null");
    free(text);
    weir_plan_free(plan);
}

/* Counts brackets outside of texts; what is opened is closed, in order. */
static bool balanced(const char *text)
{
    char stack[64];
    int depth = 0;
    for (bool quoted = false; *text; text++) {
        if (*text == '\\' && quoted)
            text++;
        else if (*text == '"')
            quoted = !quoted;
        else if (!quoted && strchr("[{", *text))
            stack[depth++] = *text;
        else if (!quoted && strchr("]}", *text) && (depth == 0 || stack[--depth] != *text - 2))
            return false;
    }
    return depth == 0;
}

Test(plan_json, brackets_are_balanced, .timeout = 120)
{
    weir_plan *plan = sample_plan(4, 2);
    char *text = view(plan, weir_plan_json);
    cr_expect(balanced(text));
    free(text);
    text = view(plan, weir_plan_dot);
    cr_expect(balanced(text));
    assert_has(text, "a1 -> a4 [label=\"  h\\n  2 x 1.0 KiB\"");
    free(text);
    weir_plan_free(plan);
}

Test(plan_view, a_stream_that_cannot_be_written_is_an_error, .timeout = 120)
{
    weir_plan *plan = sample_plan(1, 1);
    view_fn views[] = {weir_plan_show, weir_plan_json, weir_plan_dot, weir_plan_picture};
    for (int i = 0; i < 4; i++) {
        FILE *full = fopen("/dev/full", "w");
        setvbuf(full, NULL, _IONBF, 0);
        cr_expect_eq(views[i](plan, full), WEIR_E_IO);
        fclose(full);
    }
    weir_plan_free(plan);
}
