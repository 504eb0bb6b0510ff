/* tests/actors/keep/test_crash.c: a save that is cut off anywhere, on disks that are full, fail, or lie.
 *
 * A save is a number of file operations. A child process counts them and ends itself at the k-th, for every k there is;
 * a write is also cut in its middle. In each state of the disk: the newest checkpoint of the root opens, verifies and has the
 * values of either the old or the new step, and the next save succeeds and leaves nothing of the crashed one. The same with
 * every operation failing in turn (EIO, or ENOSPC), in this process: then the save says so, with a sentence, and the root is
 * as it was.
 *
 * Bytes that have been written but not synced may be lost with the power, which a test cannot take away. So the operations
 * are recorded too, and a save is wrong if a name is given to a folder before everything in it was synced.
 */
#define _GNU_SOURCE
#include "actors/keep/own.h"
#include "actors/keep/save.h"
#include "tests/support/folder.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <weir/checkpoint.h>

TestSuite(crash, .init = folder_make, .fini = folder_remove, .timeout = 300);

enum { ELEMENTS = 300, OPS_MAX = 200, NEVER = 1 << 30 };

/* ---- file operations that can be counted, ended and made to fail ---- */

enum mode { COUNT, KILL, KILL_TORN, FAIL, DRIBBLE };

static struct {
    enum mode mode;
    int at;      /* the operation that it happens to */
    int error;   /* that it fails with */
    int count;   /* of operations so far */
    bool no_exchange, no_link;
    int dirty;   /* files written and not synced */
    int names;   /* made since a folder was synced */
    int early;   /* renames that came too soon */
} disk;

/* Whether the operation is to fail; at a KILL it does not return. */
static bool trip(void)
{
    if (disk.count++ != disk.at || disk.mode == COUNT || disk.mode == DRIBBLE)
        return false;
    if (disk.mode == KILL || disk.mode == KILL_TORN)
        kill(getpid(), SIGKILL);
    errno = disk.error;
    return true;
}

static int test_open(const char *path, int flags, mode_t mode)
{
    disk.dirty += (flags & O_CREAT) != 0;
    disk.names += (flags & O_CREAT) != 0;
    return trip() ? -1 : open(path, flags, mode);
}

static ssize_t test_write(int fd, const void *bytes, size_t count)
{
    if (disk.mode == DRIBBLE && disk.count++ % 3 == 0) {
        errno = EINTR;
        return -1;
    }
    if (disk.mode == DRIBBLE)
        return write(fd, bytes, count < 97 ? count : 97);
    if (disk.mode == KILL_TORN && disk.count == disk.at && write(fd, bytes, count / 2) < 0)
        return -1;
    return trip() ? -1 : write(fd, bytes, count);
}

/* Says that it has, without: the disk is not taken away here. */
static int test_fsync(int fd)
{
    struct stat stat_of;
    if (disk.mode == DRIBBLE && disk.count++ % 2 == 0) {
        errno = EINTR;
        return -1;
    }
    if (fstat(fd, &stat_of) == 0 && !S_ISDIR(stat_of.st_mode))
        disk.dirty--;
    else
        disk.names = 0;
    return trip() ? -1 : 0;
}

static int test_close(int fd)
{
    bool fails = trip();
    int status = close(fd), why = disk.error;
    errno = why;
    return fails ? -1 : status;
}

static int test_mkdir(const char *path, mode_t mode)
{
    return trip() ? -1 : mkdir(path, mode);
}

static int test_rename(const char *from, const char *to)
{
    disk.early += disk.dirty > 0 || disk.names > 0;
    disk.names++;
    return trip() ? -1 : rename(from, to);
}

static int test_exchange(const char *a, const char *b)
{
    if (disk.no_exchange) {
        errno = EINVAL;
        return -1;
    }
    disk.early += disk.dirty > 0 || disk.names > 0;
    disk.names++;
    return trip() ? -1 : keep_files_system.exchange(a, b);
}

static int test_link(const char *from, const char *to)
{
    if (disk.no_link) {
        errno = EPERM;
        return -1;
    }
    return trip() ? -1 : link(from, to);
}

/* The mark of a save is gone before it matters whether it is on the disk. */
static int test_unlinkat(int folder, const char *name, int flags)
{
    disk.dirty -= strstr(name, KEEP_MARK_NAME) != NULL;
    return trip() ? -1 : unlinkat(folder, name, flags);
}

static const struct keep_files test_files = {
    .open = test_open, .write = test_write, .fsync = test_fsync, .close = test_close, .mkdir = test_mkdir,
    .rename = test_rename, .exchange = test_exchange, .link = test_link, .unlinkat = test_unlinkat,
};

static void disk_is(enum mode mode, int at, int error)
{
    disk.mode = mode;
    disk.at = at;
    disk.error = error;
    disk.count = disk.dirty = disk.names = disk.early = 0;
}

/* ---- saves ---- */

struct scene {
    const char *what;
    int64_t old;       /* step that was saved before; -1: none */
    const char *name;  /* of the checkpoint, or NULL: by its step */
    int keep;
    bool no_exchange, no_link;
};

static void values(float *to, int64_t step)
{
    for (int i = 0; i < ELEMENTS; i++)
        to[i] = (float)(i + 1000 * step);
}

/* w is another every step; f is frozen. */
static weir_status save_step(const char *root, const char *name, int64_t step, int keep,
                             const struct keep_files *files)
{
    static uint64_t nonce;
    char step_name[KEEP_STEP_NAME_BYTES];
    float w[ELEMENTS], f[ELEMENTS];
    struct keep_save *save = keep_save_begin(&(struct keep_save_opts){
        .root = root, .name = name ? name : keep_step_name(step, step_name),
        .nonce = (uint64_t)getpid() << 20 | ++nonce,
        .keep = keep, .facts = {.step = step}, .files = files});
    if (!save)
        return WEIR_E_IO;
    values(w, step);
    values(f, 0);
    struct keep_piece piece = {.shape = {1, {ELEMENTS}}, .data = w};
    piece.tensor = (weir_checkpoint_tensor){.name = "w", .dtype = WEIR_F32, .shape = piece.shape};
    weir_status status = keep_save_add(save, &piece);
    piece.tensor.name = "f";
    piece.tensor.frozen = true;
    piece.data = f;
    status = status ? status : keep_save_add(save, &piece);
    status = status ? status : keep_save_run(save);
    keep_save_free(save);
    return status;
}

/* The step of what the path opens as, after looking at every byte of it; -1: nothing opens. */
static int64_t step_at(const char *path)
{
    float want[ELEMENTS], got[ELEMENTS];
    weir_checkpoint *c = weir_checkpoint_open(path);
    if (!c)
        return -1;
    int64_t step = weir_checkpoint_get_info(c)->step;
    cr_expect(weir_checkpoint_verify(c, NULL, NULL) == WEIR_OK, "%s: %s", path, weir_error());
    for (int frozen = 0; frozen < 2; frozen++) {
        const weir_checkpoint_tensor *t = weir_checkpoint_find(c, frozen ? "f" : "w");
        cr_assert(t);
        values(want, frozen ? 0 : step);
        cr_expect(weir_checkpoint_read(c, t, 0, NULL, &(weir_array){got, WEIR_F32, t->shape}) == WEIR_OK, "%s",
                  weir_error());
        cr_expect(!memcmp(want, got, sizeof want), "%s: wrong values of step %d", path, (int)step);
    }
    weir_checkpoint_close(c);
    return step;
}

static const struct scene scenes[] = {
    {.what = "first", .old = -1},
    {.what = "second", .old = 10},
    {.what = "second, links forbidden", .old = 10, .no_link = true},
    {.what = "second, pruning the first", .old = 10, .keep = 1},
    {.what = "same name", .old = 10, .name = "best"},
    {.what = "same name, no exchange", .old = 10, .name = "best", .no_exchange = true},
};
enum { SCENES = sizeof scenes / sizeof *scenes };

/* The scene's user loads one of these: a named checkpoint, or the root's newest. */
static const char *loaded(const struct scene *s, const char *root)
{
    static char path[4200];
    snprintf(path, sizeof path, "%s%s%s", root, s->name ? "/" : "", s->name ? s->name : "");
    return path;
}

static const char *set_scene(const struct scene *s, const char *way, int k)
{
    const char *root = folder_path("%s-%d-%d", way, (int)(s - scenes), k);
    disk.no_exchange = s->no_exchange;
    disk.no_link = s->no_link;
    disk_is(COUNT, NEVER, 0);
    if (s->old >= 0)
        cr_assert(save_step(root, s->name, s->old, 0, &test_files) == WEIR_OK, "%s", weir_error());
    return root;
}

/* Saves once more, and there is nothing but what was saved. */
static void expect_next_save(const struct scene *s, const char *root, const char *what, int k)
{
    disk_is(COUNT, NEVER, 0);
    cr_assert(save_step(root, s->name, 30, s->keep, &test_files) == WEIR_OK, "%s: %s", what, weir_error());
    cr_expect_eq(step_at(loaded(s, root)), 30, "%s, %s, operation %d", what, s->what, k);
    const char *last = strrchr(root, '/') + 1;
    int folders = s->name || s->keep == 1 ? 1
                                          : 1 + folder_has(folder_path("%s/step-00000010", last)) +
                                                folder_has(folder_path("%s/step-00000020", last));
    cr_expect_eq(folder_entries(root), folders, "%s, %s, operation %d: %d entries are left, not %d", what, s->what, k,
                 folder_entries(root), folders);
}

/* ---- kills ---- */

/* Whether the child was killed at operation k; false: it had fewer. */
static bool killed_at(const struct scene *s, const char *root, enum mode mode, int k)
{
    int status;
    pid_t child = fork();
    cr_assert(child >= 0);
    if (!child) {
        disk_is(mode, k, 0);
        _exit(save_step(root, s->name, 20, s->keep, &test_files) == WEIR_OK ? 0 : 1);
    }
    cr_assert(waitpid(child, &status, 0) == child);
    cr_expect(WIFSIGNALED(status) || WEXITSTATUS(status) == 0, "%s: the save failed", s->what);
    return WIFSIGNALED(status);
}

/* A checkpoint that has stepped aside is not under its name until the next save: the only case in which a name is
 * missing, on file systems where names cannot change places. */
static void expect_whole(const struct scene *s, const char *root, int k)
{
    int64_t step = step_at(loaded(s, root));
    bool aside = s->no_exchange && step < 0;
    cr_expect(step == s->old || step == 20 || aside, "%s, operation %d: step %d is there: %s", s->what, k, (int)step,
              weir_error());
}

static void kill_everywhere(const struct scene *s, enum mode mode)
{
    int k = 0;
    for (bool killed = true; killed; k++) {
        cr_assert_lt(k, OPS_MAX);
        const char *root = set_scene(s, mode == KILL ? "kill" : "torn", k);
        killed = killed_at(s, root, mode, k);
        if (killed)
            expect_whole(s, root, k);
        else
            cr_expect_eq(step_at(loaded(s, root)), 20);
        expect_next_save(s, root, "killed", k);
    }
    cr_expect_gt(k, 15, "%s: %d operations only", s->what, k);
}

Test(crash, killed_at_any_operation_the_last_good_checkpoint_loads_and_the_next_save_cleans_up)
{
    for (int i = 0; i < SCENES; i++)
        kill_everywhere(&scenes[i], KILL);
}

Test(crash, killed_in_the_middle_of_any_write_the_last_good_checkpoint_loads)
{
    for (int i = 0; i < SCENES; i++)
        kill_everywhere(&scenes[i], KILL_TORN);
}

/* ---- two ranks, one of which is killed ---- */

struct pair {
    const char *root;
    int64_t step;
    int rank;
    int pipe[2];  /* rank 0 tells that it has begun */
    pid_t child;  /* in the parent */
    pid_t parent; /* in the child */
};

/* Whether the other rank has ended, as a session would notice. */
static bool other_has_ended(void *ctx, bool waits)
{
    struct pair *pair = ctx;
    if (!waits)
        return false;
    return pair->child ? waitpid(pair->child, NULL, WNOHANG) != 0 : getppid() != pair->parent;
}

static struct keep_save *begin_pair(const struct pair *pair)
{
    char name[KEEP_STEP_NAME_BYTES], byte = 1;
    if (pair->rank && read(pair->pipe[0], &byte, 1) != 1)
        return NULL;
    struct keep_save *save = keep_save_begin(&(struct keep_save_opts){
        .root = pair->root, .name = keep_step_name(pair->step, name), .nonce = (uint64_t)pair->step, .ranks = 2,
        .rank = pair->rank, .facts = {.step = pair->step}, .files = &test_files, .stop = other_has_ended,
        .stop_ctx = (void *)(uintptr_t)pair});
    if (!pair->rank && write(pair->pipe[1], &byte, 1) != 1)
        return NULL;
    return save;
}

/* Each has a half of w, rank 1 all of f. */
static weir_status save_half(const struct pair *pair)
{
    float w[ELEMENTS], f[ELEMENTS];
    struct keep_save *save = begin_pair(pair);
    if (!save)
        return WEIR_E_IO;
    values(w, pair->step);
    values(f, 0);
    struct keep_piece piece = {.start = {pair->rank * ELEMENTS / 2}, .shape = {1, {ELEMENTS / 2}},
                               .data = w + pair->rank * ELEMENTS / 2};
    piece.tensor = (weir_checkpoint_tensor){.name = "w", .dtype = WEIR_F32, .shape = {1, {ELEMENTS}}};
    weir_status status = keep_save_add(save, &piece);
    piece = (struct keep_piece){.tensor = piece.tensor, .shape = piece.tensor.shape, .data = f};
    piece.tensor.name = "f";
    piece.tensor.frozen = true;
    if (pair->rank && !status)
        status = keep_save_add(save, &piece);
    status = status ? status : keep_save_run(save);
    keep_save_free(save);
    return status;
}

/* The child, rank `killed`, ends at operation k (NEVER: lives); this process is the other. */
static weir_status save_pair(const char *root, int64_t step, int killed, int k)
{
    struct pair pair = {.root = root, .step = step, .parent = getpid()};
    cr_assert(pipe(pair.pipe) == 0);
    disk_is(COUNT, NEVER, 0);
    pid_t child = pair.child = fork();
    cr_assert(child >= 0);
    pair.rank = child ? !killed : killed;
    close(pair.pipe[pair.rank == 0 ? 0 : 1]);
    if (!child) {
        disk_is(KILL, k, 0);
        _exit(save_half(&pair) != WEIR_OK);
    }
    weir_status status = save_half(&pair);
    close(pair.pipe[pair.rank == 0 ? 1 : 0]);
    waitpid(child, NULL, 0);
    return status;
}

static void kill_rank_everywhere(int killed)
{
    int saved = 0, lost = 0;
    for (int k = 0; saved < 2 && k < OPS_MAX; k++) {
        const char *root = folder_path("pair-%d-%d", killed, k);
        cr_assert(save_step(root, NULL, 10, 0, &keep_files_system) == WEIR_OK);
        weir_status status = save_pair(root, 20, killed, k);
        int64_t step = step_at(root);
        cr_expect(step == 20 || (step == 10 && status), "rank %d killed at %d: step %d is there, the other says %s",
                  killed, k, (int)step, weir_status_name(status));
        saved += status == WEIR_OK;
        lost += status != WEIR_OK;
        cr_assert(save_pair(root, 30, killed, NEVER) == WEIR_OK, "rank %d killed at %d: %s", killed, k, weir_error());
        cr_expect_eq(step_at(root), 30);
        cr_expect_eq(folder_entries(root), 2 + (step == 20), "rank %d killed at %d: something is left", killed, k);
    }
    cr_expect(lost > 5 && saved, "rank %d: %d saves were lost, %d not", killed, lost, saved);
}

Test(crash, rank_that_is_killed_at_any_operation_leaves_the_last_good_checkpoint)
{
    kill_rank_everywhere(0);
    kill_rank_everywhere(1);
}

/* ---- failures ---- */

/* The failed operation is a part of the save, which then says so and has changed nothing; or of tidying up, which may
 * fail. */
static void fail_everywhere(const struct scene *s, int error)
{
    char sentence[1024];
    int k = 0, failures = 0;
    for (bool reached = true; reached; k++) {
        cr_assert_lt(k, OPS_MAX);
        const char *root = set_scene(s, "fail", k * 100 + error);
        disk_is(FAIL, k, error);
        weir_status status = save_step(root, s->name, 20, s->keep, &test_files);
        snprintf(sentence, sizeof sentence, "%s", weir_error());
        reached = disk.count > k;
        failures += status != WEIR_OK;
        disk.mode = COUNT;
        if (status) /* step_at() has errors of its own */
            cr_expect(strstr(sentence, strerror(error)) && strstr(sentence, "/tmp/"), "operation %d: %s", k, sentence);
        int64_t step = step_at(loaded(s, root));
        cr_expect_eq(step, status ? s->old : 20, "%s, operation %d, %s: step %d is there", s->what, k,
                     status ? sentence : "saved", (int)step);
        expect_next_save(s, root, strerror(error), k);
    }
    cr_expect_gt(failures, 10, "%s: %d operations failed the save", s->what, failures);
}

Test(crash, any_operation_that_fails_fails_the_save_and_changes_nothing)
{
    for (int i = 0; i < SCENES; i++)
        fail_everywhere(&scenes[i], EIO);
}

Test(crash, disk_that_is_full_at_any_operation_fails_the_save_and_changes_nothing)
{
    for (int i = 0; i < SCENES; i++)
        fail_everywhere(&scenes[i], ENOSPC);
}

Test(crash, writes_that_are_short_or_interrupted_are_gone_on_with)
{
    const char *root = folder_path("a");
    disk_is(DRIBBLE, NEVER, 0);
    cr_expect(save_step(root, NULL, 20, 0, &test_files) == WEIR_OK, "%s", weir_error());
    cr_expect_eq(step_at(root), 20);
}

Test(crash, name_is_given_when_all_files_are_on_the_disk)
{
    disk_is(COUNT, NEVER, 0);
    cr_expect(save_step(folder_path("a"), NULL, 20, 0, &test_files) == WEIR_OK);
    cr_expect_eq(disk.early, 0, "a folder got its name before its files were synced");
    cr_expect_eq(disk.dirty, 0, "files were written and never synced");
    cr_expect_eq(disk.names, 0, "the name was given and never synced");
}

/* ---- disks that are full for once ---- */

/* Runs `fn` in a child, in which it may change what belongs to the process. 77: it could not be tried. */
static int in_child(int (*fn)(const char *root), const char *root)
{
    int status;
    fflush(NULL);
    pid_t child = fork();
    cr_assert(child >= 0);
    if (!child)
        _exit(fn(root));
    cr_assert(waitpid(child, &status, 0) == child);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static int told(const char *a, const char *b)
{
    bool ok = strstr(weir_error(), a) && strstr(weir_error(), b);
    if (!ok)
        fprintf(stderr, "%s\n", weir_error());
    return ok ? 0 : 1;
}

static int save_with_small_files(const char *root)
{
    signal(SIGXFSZ, SIG_IGN);
    setrlimit(RLIMIT_FSIZE, &(struct rlimit){800, 800});
    return save_step(root, NULL, 20, 0, NULL) == WEIR_E_IO ? told("tensor f cannot be written", strerror(EFBIG)) : 1;
}

Test(crash, file_that_may_not_grow_is_named_with_its_tensor)
{
    const char *root = folder_path("a");
    cr_assert(save_step(root, NULL, 10, 0, NULL) == WEIR_OK);
    cr_assert(unlink(folder_path("a/step-00000010/frozen-0000.safetensors")) == 0);
    cr_expect_eq(in_child(save_with_small_files, root), 0);
    cr_expect_eq(folder_entries(root), 1);
}

/* A file system of 32 KiB of this process's own, which two checkpoints fill. */
static int fill_small_disk(const char *root)
{
    bool alone = unshare(CLONE_NEWNS) == 0 || unshare(CLONE_NEWUSER | CLONE_NEWNS) == 0;
    if (!alone || mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) || mkdir(root, 0777) ||
        mount("none", root, "tmpfs", 0, "size=32k"))
        return 77;
    int64_t step = 1;
    while (save_step(root, NULL, step, 0, NULL) == WEIR_OK && step < 100)
        step++;
    if (step < 3 || step == 100 || told(strerror(ENOSPC), root))
        return 1;
    int entries = folder_entries(root);
    return step_at(root) == step - 1 && entries == step - 1 ? 0 : 2;
}

Test(crash, disk_that_is_full_leaves_what_was_saved_before)
{
    int status = in_child(fill_small_disk, folder_path("small"));
    if (status == 77)
        cr_skip_test("no file system of its own is allowed here");
    cr_expect_eq(status, 0);
}

/* ---- places where nothing can be saved ---- */

Test(crash, root_that_is_a_file_is_named)
{
    folder_write(folder_path("a"), "x", 1);
    cr_expect_eq(save_step(folder_path("a"), NULL, 1, 0, NULL), WEIR_E_IO);
    cr_expect(strstr(weir_error(), folder_path("a")) && strstr(weir_error(), strerror(ENOTDIR)), "%s", weir_error());
    cr_expect_eq(save_step(folder_path("a/b"), NULL, 1, 0, NULL), WEIR_E_IO);
    cr_expect(strstr(weir_error(), folder_path("a/b")), "%s", weir_error());
}

static int save_in_read_only_folder(const char *root)
{
    if (geteuid() == 0 && seteuid(65534))
        return 77;
    return save_step(root, NULL, 1, 0, NULL) == WEIR_E_IO ? told(root, strerror(EACCES)) : 1;
}

Test(crash, root_that_cannot_be_written_is_named)
{
    cr_assert(chmod(folder_path("."), 0755) == 0);
    cr_assert(mkdir(folder_path("a"), 0555) == 0);
    int status = in_child(save_in_read_only_folder, folder_path("a"));
    if (status == 77)
        cr_skip_test("root may write everywhere, and cannot be another user here");
    cr_expect_eq(status, 0);
}

Test(crash, missing_root_or_one_without_checkpoints_is_named)
{
    cr_expect_null(weir_checkpoint_open(folder_path("none")));
    cr_expect(strstr(weir_error(), folder_path("none")) && strstr(weir_error(), strerror(ENOENT)), "%s", weir_error());
    cr_assert(mkdir(folder_path("empty"), 0777) == 0);
    cr_expect_null(weir_checkpoint_open(folder_path("empty")));
    cr_expect(strstr(weir_error(), "is no checkpoint, and has none"), "%s", weir_error());
}

/* ---- files that are not what was written ---- */

static const char *const parts[] = {"index.json", "rank-0000.safetensors", "frozen-0000.safetensors"};

/* Opening it, or looking at every byte, fails with a sentence that names the file; and the tensor if `tensor`. */
static void expect_named(const char *file, const char *tensor, const char *how, long at)
{
    weir_checkpoint *c = weir_checkpoint_open(folder_path("a/step-00000020"));
    bool found = !c || weir_checkpoint_verify(c, NULL, NULL) != WEIR_OK;
    cr_expect(found, "%s %s at %ld: nobody noticed", file, how, at);
    cr_expect(!found || strstr(weir_error(), file), "%s %s at %ld: %s", file, how, at, weir_error());
    cr_expect(!found || !tensor || strstr(weir_error(), tensor), "%s %s at %ld: %s", file, how, at, weir_error());
    weir_checkpoint_close(c);
}

static const char *tensor_of_byte(const char *file, long at)
{
    const char *name = !strncmp(file, "rank", 4) ? "tensor w" : "tensor f";
    return strcmp(file, "index.json") != 0 && at >= folder_size(folder_path("a/step-00000020/%s", file)) - 4 * ELEMENTS
               ? name
               : NULL;
}

Test(crash, byte_that_changed_anywhere_is_found_and_named)
{
    cr_assert(save_step(folder_path("a"), NULL, 20, 0, NULL) == WEIR_OK);
    for (int i = 0; i < 3; i++) {
        const char *path = folder_path("a/step-00000020/%s", parts[i]);
        for (long at = 0, size = folder_size(path); at < size; at += at < 300 ? 1 : 7) {
            path = folder_path("a/step-00000020/%s", parts[i]);
            folder_flip(path, at);
            expect_named(parts[i], tensor_of_byte(parts[i], at), "changed", at);
            path = folder_path("a/step-00000020/%s", parts[i]);
            folder_flip(path, at);
        }
    }
    cr_expect_eq(step_at(folder_path("a")), 20);
}

Test(crash, file_that_is_cut_short_anywhere_is_found_and_named)
{
    static char all[1 << 16];
    cr_assert(save_step(folder_path("a"), NULL, 20, 0, NULL) == WEIR_OK);
    for (int i = 0; i < 3; i++) {
        const char *path = folder_path("a/step-00000020/%s", parts[i]);
        FILE *file = fopen(path, "rb");
        size_t count = fread(all, 1, sizeof all, file);
        fclose(file);
        for (long at = (long)count - 1; at >= 0; at -= at < 300 ? 1 : 7) {
            folder_cut(folder_path("a/step-00000020/%s", parts[i]), at);
            expect_named(parts[i], NULL, "cut", at);
        }
        folder_write(folder_path("a/step-00000020/%s", parts[i]), all, count);
    }
    cr_expect_eq(step_at(folder_path("a")), 20);
}

Test(crash, file_that_is_gone_or_changed_is_named_when_it_is_read)
{
    float to[ELEMENTS];
    cr_assert(save_step(folder_path("a"), NULL, 20, 0, NULL) == WEIR_OK);
    folder_flip(folder_path("a/step-00000020/rank-0000.safetensors"),
                folder_size(folder_path("a/step-00000020/rank-0000.safetensors")) - 1);
    cr_assert(unlink(folder_path("a/step-00000020/frozen-0000.safetensors")) == 0);
    weir_checkpoint *c = weir_checkpoint_open(folder_path("a"));
    cr_assert(c, "%s", weir_error());
    for (int part = 0; part < 2; part++) { /* a part of the shard, then all of it */
        weir_array value = {to, WEIR_F32, {1, {part ? ELEMENTS : 10}}};
        cr_expect_eq(weir_checkpoint_read(c, weir_checkpoint_find(c, "w"), 0, NULL, &value), WEIR_E_IO);
        cr_expect(strstr(weir_error(), "rank-0000.safetensors: tensor w: the bytes of w are not those"), "%s",
                  weir_error());
        cr_expect_eq(weir_checkpoint_read(c, weir_checkpoint_find(c, "f"), 0, NULL, &value), WEIR_E_IO);
        cr_expect(strstr(weir_error(), "frozen-0000.safetensors: tensor f: cannot be read"), "%s", weir_error());
    }
    weir_checkpoint_close(c);
}
