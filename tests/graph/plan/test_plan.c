/* Plans as data: building, hashing, saving and loading, and that nothing but a valid plan is ever accepted. */
#define _GNU_SOURCE
#include "graph/plan/prove/check.h"
#include "graph/base/error.h"
#include "graph/plan/form/build.h"
#include "graph/plan/form/fields.h"
#include "graph/plan/form/file.h"
#include "graph/plan/spread/spread.h"
#include "graph/verify/table.h"
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
    callback_binding *bindings = calloc(1, sizeof *bindings);
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

/* The sample with a graph of some model's beside it, without lines, which change with this file. */
static weir_plan *sample_with_graph(void)
{
    weir_plan *plan = sample_plan(1, 1);
    weir_graph *g = weir_graph_new("sample");
    weir_tensor *x = weir_input(g, WEIR_F32, {4, 3}, .name = "x", .micro = true);
    weir_tensor *labels = weir_input(g, WEIR_I32, {4}, .name = "labels", .micro = true);
    weir_tensor *late = weir_state(g, WEIR_F32, {0}, .name = "late", .delay = 2);
    weir_tensor *loss = weir_cross_entropy(weir_linear(x, 5, .name = "up"), labels);
    weir_train(loss, weir_sgd(.lr = 0.1, .clip_norm = 1));
    weir_fetch(loss, .name = "loss");
    weir_state_set(late, weir_affine(late, 2));
    cr_assert_eq(table_keep(plan, g), WEIR_OK, "%s", weir_error());
    for (uint32_t t = 0; t < plan->graph_tensors_count; t++)
        plan->graph_tensors[t].line = 1;
    for (uint32_t n = 0; n < plan->graph_nodes_count; n++)
        plan->graph_nodes[n].line = 1;
    plan->graph_losses[0].line = 1;
    plan->graph = graph_hash(g);
    plan->hash = plan_hash(plan);
    plan->table_hash = plan_table_hash(plan);
    cr_assert_eq(plan_validate(plan), WEIR_OK, "%s", weir_error());
    weir_graph_free(g);
    return plan;
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
    is_in_corpus("with-graph", sample_with_graph());
    is_in_corpus("dead", sample_plan(1, 0));
    is_in_corpus("empty", plan_builder_finish(plan_builder_new(), NULL));
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
