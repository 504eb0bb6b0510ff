/* tests/actors/keep/test_own.c: a save removes and replaces nothing but checkpoints, follows no symbolic link where it
 * removes, and shares its root with no other program. */
#define _GNU_SOURCE
#include "actors/keep/lock.h"
#include "actors/keep/own.h"
#include "actors/keep/save.h"
#include "tests/support/folder.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <weir/checkpoint.h>

TestSuite(own, .init = folder_make, .fini = folder_remove, .timeout = 60);

static char told[2048]; /* what saves have told, one behind the other */

static void hear(void *ctx, const char *sentence)
{
    (void)ctx;
    strncat(told, sentence, sizeof told - strlen(told) - 1);
}

/* One tensor of one element: the step. */
static weir_status save_as(const char *root, const char *name, int64_t step, int keep)
{
    static uint64_t nonce;
    char step_name[KEEP_STEP_NAME_BYTES];
    float value = (float)step;
    struct keep_save *save = keep_save_begin(&(struct keep_save_opts){
        .root = root, .name = name ? name : keep_step_name(step, step_name), .nonce = 0xAB000000 + ++nonce,
        .keep = keep, .facts = {.step = step}, .tell = hear});
    if (!save)
        return WEIR_E_IO;
    struct keep_piece piece = {.shape = {1, {1}}, .data = &value};
    piece.tensor = (weir_checkpoint_tensor){.name = "w", .dtype = WEIR_F32, .shape = piece.shape};
    weir_status status = keep_save_add(save, &piece);
    status = status ? status : keep_save_run(save);
    keep_save_free(save);
    return status;
}

static void must_save(const char *root, const char *name, int64_t step, int keep)
{
    cr_assert(save_as(root, name, step, keep) == WEIR_OK, "%s", weir_error());
}

static int64_t step_at(const char *path)
{
    weir_checkpoint *c = weir_checkpoint_open(path);
    int64_t step = c && !weir_checkpoint_verify(c, NULL, NULL) ? weir_checkpoint_get_info(c)->step : -1;
    weir_checkpoint_close(c);
    return step;
}

static void write_text(const char *path, const char *text)
{
    folder_write(path, text, strlen(text));
}

static bool has_text(const char *path, const char *text)
{
    char bytes[256] = "";
    FILE *file = fopen(path, "r");
    size_t count = file ? fread(bytes, 1, sizeof bytes - 1, file) : 0;
    if (file)
        fclose(file);
    return file && count == strlen(text) && !strcmp(bytes, text);
}

#define expect_error(part) cr_expect(strstr(weir_error(), part), "'%s' lacks '%s'", weir_error(), part)

/* ---- what is in the way ---- */

Test(own, save_refuses_a_folder_of_the_user_and_says_what_is_in_it)
{
    cr_assert(!mkdir(folder_path("ws"), 0777) && !mkdir(folder_path("ws/mine"), 0777));
    write_text(folder_path("ws/mine/notes.txt"), "mine");
    cr_expect_eq(save_as(folder_path("ws"), "mine", 1, 0), WEIR_E_IO);
    expect_error("ws/mine: is in the way");
    expect_error("it has notes.txt in it");
    cr_expect(has_text(folder_path("ws/mine/notes.txt"), "mine"));
    cr_expect_eq(folder_entries(folder_path("ws")), 1);
}

Test(own, save_refuses_files_roots_and_folders_with_an_index_of_another_program)
{
    const char *root = folder_path("a");
    must_save(root, NULL, 1, 0);
    must_save(folder_path("a/inner"), NULL, 5, 0); /* a root below the root */
    write_text(folder_path("a/file"), "text");
    cr_assert(!mkdir(folder_path("a/web"), 0777));
    write_text(folder_path("a/web/index.json"), "{\"version\": 1}");
    write_text(folder_path("a/web/rank-0000.safetensors"), "data");
    static const char *const names[] = {"inner", "file", "web"};
    for (int i = 0; i < 3; i++) {
        cr_expect_eq(save_as(root, names[i], 2, 0), WEIR_E_IO, "%s", names[i]);
        expect_error("is in the way");
    }
    cr_expect_eq(step_at(folder_path("a/inner")), 5);
    cr_expect(has_text(folder_path("a/file"), "text"));
    cr_expect(has_text(folder_path("a/web/rank-0000.safetensors"), "data"));
    cr_expect_eq(folder_entries(folder_path("a")), 4);
}

Test(own, checkpoint_with_a_file_of_the_user_in_it_is_neither_replaced_nor_pruned)
{
    const char *root = folder_path("a");
    must_save(root, NULL, 1, 0);
    must_save(root, "best", 1, 0);
    write_text(folder_path("a/step-00000001/notes.txt"), "mine");
    write_text(folder_path("a/best/notes.txt"), "mine");
    must_save(root, NULL, 2, 1);
    cr_expect(strstr(told, "step-00000001: an older checkpoint stays here, because it has notes.txt in it"), "%s", told);
    cr_expect_eq(save_as(root, "best", 2, 0), WEIR_E_IO);
    expect_error("it has notes.txt in it, which is not a checkpoint's");
    cr_expect_eq(step_at(folder_path("a/step-00000001")), 1);
    cr_expect_eq(step_at(folder_path("a/best")), 1);
    told[0] = '\0';
    must_save(root, NULL, 3, 1); /* told once */
    cr_expect_eq(step_at(folder_path("a/step-00000002")), -1);
    cr_expect_str_eq(told, "");
}

Test(own, what_comes_into_a_checkpoint_between_the_proof_and_the_removal_stays)
{
    must_save(folder_path("a"), NULL, 1, 0);
    cr_assert(!mkdir(folder_path("a/step-00000001/sub"), 0777));
    cr_expect_not(keep_remove_own(&keep_files_system, folder_path("a/step-00000001")));
    cr_expect_eq(errno, ENOTEMPTY);
    cr_expect_eq(step_at(folder_path("a")), 1);
    cr_assert(!rmdir(folder_path("a/step-00000001/sub")));
    cr_expect(keep_remove_own(&keep_files_system, folder_path("a/step-00000001")));
    cr_expect_eq(folder_entries(folder_path("a")), 0);
}

/* As another rank of the save does: its part gets its name, or its file comes, while this one removes the folder. */
static int late_turn;
static const char *late_from, *late_to;

static int unlink_beside_a_rank(int folder, const char *name, int flags)
{
    int status = keep_files_system.unlinkat(folder, name, flags);
    if (late_turn-- != 0)
        return status;
    if (late_from)
        renameat(folder, late_from, folder, late_to); /* or it has gone */
    else
        folder_write(folder_path(late_to), "", 0);
    return status;
}

/* A save under way of three ranks; true: nothing is left of it. */
static bool goes_beside_a_rank(int turn)
{
    struct keep_files files = keep_files_system;
    files.unlinkat = unlink_beside_a_rank;
    late_turn = turn;
    cr_assert(!mkdir(folder_path("a"), 0777));
    for (int r = 0; r < 3; r++) {
        char path[64];
        snprintf(path, sizeof path, "a/rank-%04d.part", r);
        write_text(folder_path(path), "");
    }
    write_text(folder_path("a/" KEEP_MARK_NAME), "");
    bool gone = keep_remove_own(&files, folder_path("a"));
    cr_expect_eq(gone, !folder_has(folder_path("a")));
    return gone;
}

Test(own, file_that_another_rank_makes_while_a_save_is_removed_is_removed_too)
{
    late_to = "a/rank-0007.safetensors";
    for (int turn = 0; turn < 4; turn++)
        cr_expect(goes_beside_a_rank(turn), "after %d removals", turn + 1);
}

Test(own, part_that_gets_its_name_while_a_save_is_removed_is_removed_too)
{
    static const char *const part[] = {"rank-0000.part", "rank-0001.part", "rank-0002.part"};
    late_to = "rank-0009.json";
    for (int r = 0; r < 3; r++) {
        late_from = part[r];
        cr_expect(goes_beside_a_rank(0), "%s", part[r]);
    }
}

Test(own, file_of_the_user_that_comes_while_a_save_is_removed_stays)
{
    late_to = "a/notes.txt";
    cr_expect_not(goes_beside_a_rank(1));
    cr_expect(folder_has(folder_path("a/notes.txt")));
}

Test(own, checkpoint_whose_index_is_damaged_stays)
{
    must_save(folder_path("a"), NULL, 1, 0);
    folder_flip(folder_path("a/step-00000001/index.json"), 40);
    must_save(folder_path("a"), NULL, 2, 1);
    cr_expect(folder_has(folder_path("a/step-00000001/rank-0000.safetensors")));
    cr_expect(strstr(told, "step-00000001: an older checkpoint stays here"), "%s", told);
}

Test(own, empty_folder_may_be_replaced)
{
    cr_assert(!mkdir(folder_path("a"), 0777) && !mkdir(folder_path("a/best"), 0777));
    must_save(folder_path("a"), "best", 3, 0);
    cr_expect_eq(step_at(folder_path("a/best")), 3);
    cr_expect_eq(folder_entries(folder_path("a")), 1);
}

/* Older builds hid a folder of the user in this way when they converted a checkpoint to its name. */
Test(own, leftovers_that_are_no_checkpoints_stay_and_those_that_are_go)
{
    cr_assert(!mkdir(folder_path("a"), 0777));
    cr_assert(!mkdir(folder_path("a/.best.0123456789abcdef"), 0777));
    cr_assert(!mkdir(folder_path("a/.best.0123456789abcdef/photos"), 0777));
    cr_assert(!mkdir(folder_path("a/best.old-0123456789abcdef"), 0777));
    write_text(folder_path("a/best.old-0123456789abcdef/notes.txt"), "mine");
    must_save(folder_path("b"), "best", 1, 0);
    cr_assert(!rename(folder_path("b/best"), folder_path("a/.best.0123456789abcde0")));
    must_save(folder_path("b"), "best", 2, 0);
    cr_assert(!rename(folder_path("b/best"), folder_path("a/best.old-0123456789abcde1")));
    must_save(folder_path("a"), "best", 7, 0);
    cr_expect(folder_has(folder_path("a/.best.0123456789abcdef/photos")));
    cr_expect(has_text(folder_path("a/best.old-0123456789abcdef/notes.txt"), "mine"));
    cr_expect_eq(step_at(folder_path("a/best")), 7);
    cr_expect_eq(folder_entries(folder_path("a")), 3, "%d", folder_entries(folder_path("a")));
}

/* ---- symbolic links ---- */

Test(own, link_in_the_place_of_best_is_replaced_and_its_target_stays)
{
    must_save(folder_path("archive"), "best", 1, 0);
    must_save(folder_path("a"), NULL, 1, 0);
    cr_assert(!symlink("../archive/best", folder_path("a/best")));
    must_save(folder_path("a"), "best", 2, 0);
    cr_expect_eq(step_at(folder_path("a/best")), 2);
    cr_expect_eq(step_at(folder_path("archive/best")), 1);
    cr_expect_eq(folder_entries(folder_path("a")), 2);
}

Test(own, step_that_is_a_link_is_pruned_and_its_target_stays)
{
    must_save(folder_path("archive"), NULL, 1, 0);
    cr_assert(!mkdir(folder_path("a"), 0777));
    cr_assert(!symlink("../archive/step-00000001", folder_path("a/step-00000001")));
    must_save(folder_path("a"), NULL, 2, 1);
    cr_expect_eq(step_at(folder_path("archive/step-00000001")), 1);
    cr_expect_not(folder_has(folder_path("a/step-00000001")));
    cr_expect_eq(folder_entries(folder_path("a")), 1);
}

Test(own, link_to_anything_but_a_checkpoint_is_refused)
{
    cr_assert(!mkdir(folder_path("a"), 0777) && !mkdir(folder_path("docs"), 0777));
    write_text(folder_path("docs/notes.txt"), "mine");
    cr_assert(!symlink("../docs", folder_path("a/mine")));
    cr_assert(!symlink("../nowhere", folder_path("a/gone")));
    cr_expect_eq(save_as(folder_path("a"), "mine", 1, 0), WEIR_E_IO);
    expect_error("it is a symbolic link, and not one to a checkpoint");
    cr_expect_eq(save_as(folder_path("a"), "gone", 1, 0), WEIR_E_IO);
    cr_expect(has_text(folder_path("a/mine/notes.txt"), "mine"));
}

Test(own, file_of_a_checkpoint_that_is_a_link_goes_and_its_target_stays)
{
    must_save(folder_path("a"), NULL, 1, 0);
    cr_assert(!rename(folder_path("a/step-00000001/rank-0000.safetensors"), folder_path("moved")));
    cr_assert(!symlink("../../moved", folder_path("a/step-00000001/rank-0000.safetensors")));
    cr_assert_eq(step_at(folder_path("a/step-00000001")), 1);
    must_save(folder_path("a"), NULL, 2, 1);
    cr_expect(folder_has(folder_path("moved")));
    cr_expect_eq(folder_entries(folder_path("a")), 1);
}

Test(own, root_that_is_a_link_is_followed)
{
    cr_assert(!mkdir(folder_path("disk"), 0777));
    cr_assert(!symlink("disk", folder_path("a")));
    must_save(folder_path("a"), NULL, 1, 0);
    must_save(folder_path("a"), NULL, 2, 1);
    cr_expect_eq(step_at(folder_path("disk")), 2);
    cr_expect_eq(folder_entries(folder_path("disk")), 1);
}

/* ---- one program at a time ---- */

/* A child that holds the lock until it is killed. */
static pid_t hold_elsewhere(const char *root)
{
    int ready[2];
    char byte = 0;
    cr_assert(!pipe(ready));
    pid_t child = fork();
    if (!child) {
        weir_checkpoint_lock *lock = NULL;
        byte = keep_lock_take(root, 0, &lock) == WEIR_OK;
        if (write(ready[1], &byte, 1) == 1)
            pause();
        _exit(1);
    }
    cr_assert(read(ready[0], &byte, 1) == 1 && byte);
    close(ready[0]);
    close(ready[1]);
    return child;
}

static void kill_child(pid_t child)
{
    kill(child, SIGKILL);
    cr_assert_eq(waitpid(child, NULL, 0), child);
}

Test(own, save_is_refused_while_another_process_holds_the_root_and_the_error_names_it)
{
    char process[64];
    must_save(folder_path("a"), NULL, 1, 0);
    pid_t child = hold_elsewhere(folder_path("a"));
    cr_expect_eq(save_as(folder_path("a"), NULL, 2, 0), WEIR_E_IO);
    snprintf(process, sizeof process, "process %d on ", (int)child);
    expect_error("another program saves there");
    expect_error(process);
    cr_expect_eq(step_at(folder_path("a")), 1); /* loading takes none */
    kill_child(child);
    must_save(folder_path("a"), NULL, 2, 0);
    cr_expect_not(folder_has(folder_path("a/.lock")));
}

Test(own, process_waits_for_the_root_as_long_as_it_may)
{
    weir_checkpoint_lock *lock;
    pid_t child = hold_elsewhere(folder_path("a")), killer = fork();
    if (!killer) {
        usleep(300000);
        kill(child, SIGKILL);
        _exit(0);
    }
    cr_expect_eq(keep_lock_take(folder_path("a"), 100000000, &lock), WEIR_E_IO);
    cr_expect_eq(keep_lock_take(folder_path("a"), INT64_C(20000000000), &lock), WEIR_OK, "%s", weir_error());
    keep_lock_release(lock);
    waitpid(child, NULL, 0);
    waitpid(killer, NULL, 0);
}

Test(own, lock_is_counted_in_a_process_and_its_file_goes_with_the_last)
{
    weir_checkpoint_lock *a, *b;
    cr_assert_eq(keep_lock_take(folder_path("a"), 0, &a), WEIR_OK);
    cr_assert_eq(keep_lock_take(folder_path("a/../a"), 0, &b), WEIR_OK);
    cr_expect_eq(a, b);
    must_save(folder_path("a"), NULL, 1, 0); /* once more */
    keep_lock_release(a);
    cr_expect(folder_has(folder_path("a/.lock")));
    pid_t child = fork();
    if (!child) /* a child of fork() is another process, also when the parent's lock is in its memory */
        _exit(save_as(folder_path("a"), NULL, 2, 0) == WEIR_OK);
    int status = 0;
    cr_assert_eq(waitpid(child, &status, 0), child);
    cr_expect(WIFEXITED(status) && WEXITSTATUS(status) == 0, "a child saved in its parent's root");
    keep_lock_release(b);
    cr_expect_not(folder_has(folder_path("a/.lock")));
}

Test(own, lock_file_that_somebody_else_has_made_keeps_its_text_and_stays)
{
    cr_assert(!mkdir(folder_path("a"), 0777));
    write_text(folder_path("a/.lock"), "mine");
    must_save(folder_path("a"), NULL, 1, 0);
    cr_expect(has_text(folder_path("a/.lock"), "mine"));
    cr_assert(!mkdir(folder_path("b"), 0777) && !mkdir(folder_path("b/.lock"), 0777));
    cr_expect_eq(save_as(folder_path("b"), NULL, 1, 0), WEIR_E_IO);
    expect_error("b: nothing can be saved there, as .lock");
    cr_assert(!mkdir(folder_path("c"), 0777) && !mkfifo(folder_path("c/.lock"), 0666));
    cr_expect_eq(save_as(folder_path("c"), NULL, 1, 0), WEIR_E_IO);
    cr_assert(!mkdir(folder_path("d"), 0777) && !symlink("../a/.lock", folder_path("d/.lock")));
    cr_expect_eq(save_as(folder_path("d"), NULL, 1, 0), WEIR_E_IO);
    cr_expect_eq(folder_entries(folder_path("d")), 0);
}

/* A save of another process that goes on is never taken for a crashed one. */
Test(own, save_under_way_elsewhere_is_not_cleaned_away)
{
    int ready[2];
    char byte = 1;
    cr_assert(!pipe(ready));
    pid_t child = fork();
    if (!child) {
        struct keep_save *save = keep_save_begin(&(struct keep_save_opts){
            .root = folder_path("a"), .name = "step-00000009", .nonce = 9});
        if (save && write(ready[1], &byte, 1) == 1)
            pause();
        _exit(1);
    }
    cr_assert(read(ready[0], &byte, 1) == 1);
    cr_expect_eq(save_as(folder_path("a"), NULL, 2, 0), WEIR_E_IO);
    cr_expect(folder_has(folder_path("a/.step-00000009.0000000000000009")));
    kill_child(child);
    must_save(folder_path("a"), NULL, 2, 0);
    cr_expect_eq(folder_entries(folder_path("a")), 1);
}

/* ---- single files ---- */

Test(own, file_may_be_replaced_when_weir_has_written_it)
{
    write_text(folder_path("x.safetensors"), "mine");
    cr_expect_eq(weir_checkpoint_may_replace(folder_path("x.safetensors")), WEIR_E_IO);
    expect_error("is in the way, and is no file that weir has written");
    cr_expect_null(weir_checkpoint_create(folder_path("x.safetensors")));
    cr_expect(has_text(folder_path("x.safetensors"), "mine"));
    cr_assert(!mkdir(folder_path("y.safetensors"), 0777));
    cr_expect_eq(weir_checkpoint_may_replace(folder_path("y.safetensors")), WEIR_E_IO);
    for (int i = 0; i < 2; i++) {
        weir_checkpoint_writer *w = weir_checkpoint_create(folder_path("z.safetensors"), .step = i);
        cr_assert(w, "%s", weir_error());
        cr_assert_eq(weir_checkpoint_finish(w), WEIR_OK, "%s", weir_error());
        cr_expect_eq(step_at(folder_path("z.safetensors")), i);
    }
}
