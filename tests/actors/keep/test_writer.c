/* tests/actors/keep/test_writer.c: checkpoints that a program writes itself, from whole tensors. */
#include "tests/support/folder.h"

#include <criterion/criterion.h>
#include <string.h>
#include <weir/checkpoint.h>

TestSuite(writer, .init = folder_make, .fini = folder_remove, .timeout = 120);

static weir_checkpoint *must_open(const char *path)
{
    weir_checkpoint *c = weir_checkpoint_open(path);
    cr_assert(c, "%s", weir_error());
    return c;
}

Test(writer, checkpoint_and_single_file_are_made_from_whole_tensors)
{
    float w[6] = {1, 2, 3, 4, 5, 6}, got[6];
    for (int single = 0; single < 2; single++) {
        const char *path = folder_path(single ? "x/w.safetensors" : "x/made");
        weir_checkpoint_writer *writer = weir_checkpoint_create(path, .step = 3, .program = "by hand");
        cr_assert(writer, "%s", weir_error());
        weir_checkpoint_value value = {.name = "w", .value = {w, WEIR_F32, {2, {2, 3}}}};
        cr_expect(weir_checkpoint_add(writer, &value) == WEIR_OK);
        cr_expect(weir_checkpoint_finish(writer) == WEIR_OK, "%s", weir_error());
        weir_checkpoint *c = must_open(path);
        const weir_checkpoint_tensor *t = weir_checkpoint_find(c, "w");
        cr_assert(t);
        cr_expect(weir_checkpoint_read(c, t, 0, NULL, &(weir_array){got, WEIR_F32, {2, {2, 3}}}) == WEIR_OK);
        cr_expect(!memcmp(w, got, sizeof w));
        cr_expect_eq(weir_checkpoint_get_info(c)->step, 3);
        weir_checkpoint_close(c);
    }
    cr_expect_eq(folder_entries(folder_path("x")), 2);
}

/* Everything that a checkpoint says, in both forms. */
static void make_all(const char *path, const float *values)
{
    weir_checkpoint_writer *w = weir_checkpoint_create(path, .step = 3, .seed = 1ull << 63, .plan_hash = 5,
                                                       .graph_hash = 6, .program = "by hand");
    cr_assert(w, "%s", weir_error());
    weir_array matrix = {(void *)(uintptr_t)values, WEIR_F32, {2, {2, 3}}};
    weir_array vector = {(void *)(uintptr_t)values, WEIR_F32, {1, {3}}};
    cr_expect(!weir_checkpoint_add(w, &(weir_checkpoint_value){.name = "w", .frozen = true, .value = matrix}));
    cr_expect(!weir_checkpoint_add(w, &(weir_checkpoint_value){.name = "w:adamw.m", .kind = WEIR_OPTIMIZER_STATE,
                                                               .value = matrix}));
    cr_expect(!weir_checkpoint_add(w, &(weir_checkpoint_value){.name = "past", .kind = WEIR_STATE, .slots = 2,
                                                               .value = vector}));
    cr_expect(!weir_checkpoint_add_source(w, &(weir_checkpoint_source){"tokens", 2, "\1\377", 2}));
    cr_expect(weir_checkpoint_finish(w) == WEIR_OK, "%s", weir_error());
}

Test(writer, facts_kinds_slots_and_sources_come_back_from_a_folder_and_from_a_file)
{
    const float values[6] = {1, 2, 3, 4, 5, 6};
    for (int single = 0; single < 2; single++) {
        float got[3];
        const char *path = folder_path(single ? "x.safetensors" : "made");
        make_all(path, values);
        weir_checkpoint *c = must_open(path);
        const weir_checkpoint_info *info = weir_checkpoint_get_info(c);
        const weir_checkpoint_tensor *past = weir_checkpoint_find(c, "past");
        const weir_checkpoint_source *source = weir_checkpoint_get_source(c, 0);
        cr_expect(info->step == 3 && info->seed == 1ull << 63 && info->plan_hash == 5 && info->graph_hash == 6);
        cr_expect_str_eq(info->program, "by hand");
        cr_expect(weir_checkpoint_find(c, "w")->frozen && !past->frozen);
        cr_expect(weir_checkpoint_find(c, "w:adamw.m")->kind == WEIR_OPTIMIZER_STATE && past->kind == WEIR_STATE);
        cr_assert(past->slots == 2 && past->shape.rank == 1 && source);
        cr_expect(weir_checkpoint_read(c, past, 1, NULL, &(weir_array){got, WEIR_F32, {1, {3}}}) == WEIR_OK, "%s",
                  weir_error());
        cr_expect(!memcmp(got, values + 3, sizeof got));
        cr_expect(!strcmp(source->name, "tokens") && source->rank == 2 && !memcmp(source->bytes, "\1\377", 2));
        cr_expect(weir_checkpoint_verify(c, NULL, NULL) == WEIR_OK, "%s", weir_error());
        weir_checkpoint_close(c);
    }
}
