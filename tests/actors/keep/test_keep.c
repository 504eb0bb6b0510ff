/* tests/actors/keep/test_keep.c: checkpoints as several ranks write them and anybody reads them.
 *
 * The ranks are threads: they know of each other through the folder alone, so nothing else needs to be shared. The
 * value of an element follows from its tensor and its index, so whatever is read can be compared without a copy of what
 * was saved.
 */
#define _GNU_SOURCE
#include "graph/base/dtype.h"
#include "actors/keep/format/index.h"
#include "actors/keep/save.h"
#include "tests/support/folder.h"

#include <criterion/criterion.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <weir/checkpoint.h>

TestSuite(keep, .init = folder_make, .fini = folder_remove, .timeout = 120);

enum { RANKS_MAX = 5, TENSORS = 6, PIECES_MAX = 64 };

/* ---- values ---- */

static float value_at(int tensor, int slot, int64_t index)
{
    return (float)(index % 100003) + 0.25f * (float)tensor + 1000.0f * (float)slot;
}

/* The index in the tensor of the i-th element of a box. */
static int64_t index_in(const weir_shape *shape, const int64_t *start, const weir_shape *box, int64_t i)
{
    int64_t index = 0, stride = 1;
    for (int d = shape->rank - 1; d >= 0; d--) {
        index += (start[d] + i % box->dim[d]) * stride;
        i /= box->dim[d];
        stride *= shape->dim[d];
    }
    return index;
}

static void *fill(weir_dtype dtype, int tensor, int slot, const weir_shape *shape, const int64_t *start,
                  const weir_shape *box)
{
    int64_t count = weir_shape_count(box);
    unsigned char *data = malloc((size_t)count * weir_dtype_bytes(dtype) + 1);
    cr_assert(data);
    for (int64_t i = 0; i < count; i++) {
        const float value = value_at(tensor, slot, index_in(shape, start, box, i));
        if (weir_dtype_bytes(dtype) == 1)
            data[i] = (unsigned char)(int)value;
        else
            dtype_set(dtype, data, i, (double)value);
    }
    return data;
}

/* ---- a save that is dealt out to ranks ---- */

struct job {
    const char *root, *name;
    int ranks, keep;
    uint64_t nonce;
    int64_t step;
    int pieces[RANKS_MAX];
    struct keep_piece piece[RANKS_MAX][PIECES_MAX];
    weir_status status[RANKS_MAX];
    char error[RANKS_MAX][1024];
    bool linked[RANKS_MAX];
    struct keep_save *save[RANKS_MAX];
    _Atomic bool stop;
};

static bool job_stop(void *ctx, bool waits)
{
    return waits && ((struct job *)ctx)->stop;
}

static struct job *new_job(const char *root, int64_t step, int ranks)
{
    static char name[16][KEEP_STEP_NAME_BYTES];
    static int turn;
    struct job *job = calloc(1, sizeof *job);
    cr_assert(job);
    job->root = root;
    job->name = keep_step_name(step, name[turn++ % 16]);
    job->step = step;
    job->ranks = ranks;
    job->nonce = 0xABCD0000 + (uint64_t)step;
    return job;
}

static void free_job(struct job *job)
{
    for (int r = 0; r < job->ranks; r++)
        for (int i = 0; i < job->pieces[r]; i++)
            free((void *)(uintptr_t)job->piece[r][i].data);
    free(job);
}

static struct keep_piece *add_piece(struct job *job, int rank, int tensor, const weir_checkpoint_tensor *t, int slot,
                                    const int64_t *start, const weir_shape *box)
{
    static const int64_t zero[WEIR_DIMS_MAX];
    cr_assert(job->pieces[rank] < PIECES_MAX);
    struct keep_piece *piece = &job->piece[rank][job->pieces[rank]++];
    *piece = (struct keep_piece){.tensor = *t, .slot = slot, .shape = *box};
    memcpy(piece->start, start ? start : zero, sizeof piece->start);
    piece->data = fill(t->dtype, tensor, slot, &t->shape, piece->start, box);
    return piece;
}

static void begin_rank(struct job *job, int rank)
{
    job->save[rank] = keep_save_begin(&(struct keep_save_opts){
        .root = job->root, .name = job->name, .nonce = job->nonce, .rank = rank, .ranks = job->ranks,
        .keep = job->keep, .stop = job_stop, .stop_ctx = job,
        .facts = {.step = job->step, .seed = 7, .plan_hash = 0x1234, .graph_hash = 0xFEDCBA9876543210,
                  .program = "test 1"}});
    cr_assert(job->save[rank], "%s", weir_error());
    for (int i = 0; i < job->pieces[rank]; i++)
        cr_assert(keep_save_add(job->save[rank], &job->piece[rank][i]) == WEIR_OK, "%s", weir_error());
}

struct turn {
    struct job *job;
    int rank;
};

static void *run_rank(void *ctx)
{
    const struct turn *turn = ctx;
    struct job *job = turn->job;
    int r = turn->rank;
    job->status[r] = keep_save_run(job->save[r]);
    if (job->status[r])
        strcpy(job->error[r], weir_error());
    job->linked[r] = keep_save_linked(job->save[r]);
    keep_save_free(job->save[r]);
    return NULL;
}

/* Ranks below `ranks` run; the others began and never come. */
static void run_some(struct job *job, int ranks)
{
    pthread_t thread[RANKS_MAX];
    struct turn turn[RANKS_MAX];
    for (int r = 0; r < job->ranks; r++)
        begin_rank(job, r);
    for (int r = 0; r < ranks; r++) {
        turn[r] = (struct turn){job, r};
        cr_assert(pthread_create(&thread[r], NULL, run_rank, &turn[r]) == 0);
    }
    for (int r = 0; r < ranks; r++)
        pthread_join(thread[r], NULL);
}

static void run_job(struct job *job)
{
    run_some(job, job->ranks);
}

static void must_save(struct job *job)
{
    run_job(job);
    for (int r = 0; r < job->ranks; r++)
        cr_expect(job->status[r] == WEIR_OK, "rank %d: %s", r, job->error[r]);
}

/* ---- what is read back ---- */

static void expect_box(weir_checkpoint *c, int tensor, const weir_checkpoint_tensor *t, int slot, const int64_t *start,
                       const weir_shape *box)
{
    size_t bytes = (size_t)weir_shape_count(box) * weir_dtype_bytes(t->dtype);
    void *want = fill(t->dtype, tensor, slot, &t->shape, start, box), *got = malloc(bytes + 1);
    weir_status status = weir_checkpoint_read(c, t, slot, start, &(weir_array){got, t->dtype, *box});
    cr_expect(status == WEIR_OK, "%s: %s", t->name, weir_error());
    cr_expect(!memcmp(want, got, bytes), "%s: what is read is not what was saved", t->name);
    free(want);
    free(got);
}

static void expect_whole(weir_checkpoint *c, int tensor, const char *name)
{
    static const int64_t zero[WEIR_DIMS_MAX];
    const weir_checkpoint_tensor *t = weir_checkpoint_find(c, name);
    cr_assert(t, "%s is not there", name);
    for (int slot = 0; slot < t->slots; slot++)
        expect_box(c, tensor, t, slot, zero, &t->shape);
}

static weir_checkpoint_tensor tensor_of(const char *name, weir_dtype dtype, weir_shape shape)
{
    return (weir_checkpoint_tensor){.name = name, .dtype = dtype, .shape = shape};
}

/* A matrix by rows over all ranks, and a vector on the last. */
static void add_usual(struct job *job, int64_t rows)
{
    weir_checkpoint_tensor w = tensor_of("w", WEIR_F32, (weir_shape){2, {rows * job->ranks, 3}});
    weir_checkpoint_tensor b = tensor_of("w:adamw.m", WEIR_F32, (weir_shape){1, {5}});
    b.kind = WEIR_OPTIMIZER_STATE;
    for (int r = 0; r < job->ranks; r++)
        add_piece(job, r, 0, &w, 0, (int64_t[WEIR_DIMS_MAX]){r * rows, 0}, &(weir_shape){2, {rows, 3}});
    add_piece(job, job->ranks - 1, 1, &b, 0, NULL, &b.shape);
}

static weir_checkpoint *must_open(const char *path)
{
    weir_checkpoint *c = weir_checkpoint_open(path);
    cr_assert(c, "%s", weir_error());
    return c;
}

static void save_usual(const char *root, int64_t step, int ranks, int keep)
{
    struct job *job = new_job(root, step, ranks);
    job->keep = keep;
    add_usual(job, 4);
    must_save(job);
    free_job(job);
}

/* ---- tests ---- */

Test(keep, what_one_rank_saves_is_read_back)
{
    save_usual(folder_path("runs/a"), 100, 1, 0);
    cr_expect_eq(folder_entries(folder_path("runs/a")), 1, "something was left beside the checkpoint");
    weir_checkpoint *c = must_open(folder_path("runs/a/step-00000100"));
    const weir_checkpoint_info *info = weir_checkpoint_get_info(c);
    cr_expect(info->step == 100 && info->seed == 7 && info->plan_hash == 0x1234 &&
              info->graph_hash == 0xFEDCBA9876543210 && info->ranks == 1 && info->tensors == 2);
    cr_expect_str_eq(info->program, "test 1");
    cr_expect_eq(weir_checkpoint_find(c, "w:adamw.m")->kind, WEIR_OPTIMIZER_STATE);
    cr_expect_null(weir_checkpoint_find(c, "v"));
    expect_whole(c, 0, "w");
    expect_whole(c, 1, "w:adamw.m");
    cr_expect(weir_checkpoint_verify(c, NULL, NULL) == WEIR_OK, "%s", weir_error());
    weir_checkpoint_close(c);
}

Test(keep, ranks_write_shards_and_any_box_is_read_across_them)
{
    save_usual(folder_path("a"), 5, 4, 0);
    weir_checkpoint *c = must_open(folder_path("a"));
    const weir_checkpoint_tensor *w = weir_checkpoint_find(c, "w");
    cr_expect_eq(w->shard_count, 4);
    expect_whole(c, 0, "w");
    expect_box(c, 0, w, 0, (int64_t[]){3, 1}, &(weir_shape){2, {7, 2}});
    weir_checkpoint_close(c);
}

/* Cuts [0, size) into at most `parts` at places drawn; ends[] has their ends. */
static int cut(int64_t size, int parts, int64_t *ends)
{
    int count = 0;
    for (int i = 1; i < parts && size > 1; i++) {
        int64_t at = rand() % size;
        if (at > (count ? ends[count - 1] : 0))
            ends[count++] = at;
    }
    ends[count++] = size;
    return count;
}

/* One tensor cut along up to two dimensions, its pieces dealt out at random; some by two ranks. */
static void add_random(struct job *job, int tensor, weir_checkpoint_tensor *t)
{
    int64_t ends[2][4];
    int count[2] = {1, 1};
    for (int d = 0; d < 2 && d < t->shape.rank; d++)
        count[d] = cut(t->shape.dim[d], 3, ends[d]);
    for (int slot = 0; slot < (t->slots ? t->slots : 1); slot++)
        for (int i = 0; i < count[0] * count[1]; i++) {
            int64_t start[WEIR_DIMS_MAX] = {0};
            weir_shape box = t->shape;
            const int at[2] = {i / count[1], i % count[1]};
            for (int d = 0; d < 2 && d < t->shape.rank; d++) {
                start[d] = at[d] ? ends[d][at[d] - 1] : 0;
                box.dim[d] = ends[d][at[d]] - start[d];
            }
            int rank = rand() % job->ranks;
            add_piece(job, rank, tensor, t, slot, start, &box);
            if (job->ranks > 1 && rand() % 4 == 0)
                add_piece(job, (rank + 1) % job->ranks, tensor, t, slot, start, &box);
        }
}

static void expect_random_boxes(weir_checkpoint *c, int tensor, const weir_checkpoint_tensor *t)
{
    for (int i = 0; i < 8; i++) {
        int64_t start[WEIR_DIMS_MAX] = {0};
        weir_shape box = t->shape;
        for (int d = 0; d < t->shape.rank; d++) {
            start[d] = t->shape.dim[d] ? rand() % t->shape.dim[d] : 0;
            box.dim[d] = t->shape.dim[d] ? 1 + rand() % (t->shape.dim[d] - start[d]) : 0;
        }
        expect_box(c, tensor, t, rand() % t->slots, start, &box);
    }
}

static void save_and_read_random(unsigned seed)
{
    srand(seed);
    static char name[TENSORS][16];
    weir_checkpoint_tensor t[TENSORS];
    struct job *job = new_job(folder_path("seed-%u", seed), 1, 1 + rand() % RANKS_MAX);
    for (int i = 0; i < TENSORS; i++) {
        snprintf(name[i], sizeof name[i], "t%d", i);
        t[i] = tensor_of(name[i], (weir_dtype)(WEIR_F32 + rand() % (WEIR_DTYPES - 1)), (weir_shape){.rank = rand() % 5});
        t[i].frozen = rand() % 3 == 0;
        t[i].slots = rand() % 4 ? 0 : 3;
        for (int d = 0; d < t[i].shape.rank; d++)
            t[i].shape.dim[d] = rand() % 20 ? 1 + rand() % 12 : 0;
        add_random(job, i, &t[i]);
    }
    must_save(job);
    weir_checkpoint *c = must_open(job->root);
    for (int i = 0; i < TENSORS; i++) {
        expect_whole(c, i, name[i]);
        expect_random_boxes(c, i, weir_checkpoint_find(c, name[i]));
    }
    cr_expect(weir_checkpoint_verify(c, NULL, NULL) == WEIR_OK, "seed %u: %s", seed, weir_error());
    weir_checkpoint_close(c);
    free_job(job);
}

Test(keep, random_tensors_cut_at_random_over_ranks_come_back_in_any_box)
{
    for (unsigned seed = 1; seed <= 40; seed++)
        save_and_read_random(seed);
}

Test(keep, columns_of_a_large_matrix_are_read_through_rows)
{
    struct job *job = new_job(folder_path("a"), 1, 2);
    weir_checkpoint_tensor w = tensor_of("w", WEIR_F32, (weir_shape){2, {1000, 1031}});
    add_piece(job, 0, 0, &w, 0, NULL, &(weir_shape){2, {600, 1031}});
    add_piece(job, 1, 0, &w, 0, (int64_t[WEIR_DIMS_MAX]){600, 0}, &(weir_shape){2, {400, 1031}});
    must_save(job);
    weir_checkpoint *c = must_open(job->root);
    const weir_checkpoint_tensor *t = weir_checkpoint_find(c, "w");
    expect_box(c, 0, t, 0, (int64_t[]){0, 17}, &(weir_shape){2, {1000, 3}});
    expect_box(c, 0, t, 0, (int64_t[]){0, 1}, &(weir_shape){2, {1000, 1030}});
    expect_box(c, 0, t, 0, (int64_t[]){100, 0}, &(weir_shape){2, {800, 1031}});
    weir_checkpoint_close(c);
    free_job(job);
}

Test(keep, root_opens_as_its_newest_whole_checkpoint)
{
    for (int64_t step = 8; step <= 12; step++)
        save_usual(folder_path("a"), step, 1, 0);
    folder_flip(folder_path("a/step-00000012/index.json"), 3);
    cr_assert(mkdir(folder_path("a/step-00000099"), 0777) == 0);
    weir_checkpoint *c = must_open(folder_path("a"));
    cr_expect_eq(weir_checkpoint_get_info(c)->step, 11);
    weir_checkpoint_close(c);
}

Test(keep, damaged_checkpoint_exists_and_an_empty_folder_has_none)
{
    cr_assert(!weir_checkpoint_exists(folder_path("a")) && mkdir(folder_path("a"), 0777) == 0);
    cr_expect(!weir_checkpoint_exists(folder_path("a")));
    save_usual(folder_path("a"), 8, 1, 0);
    folder_flip(folder_path("a/step-00000008/index.json"), 3);
    cr_expect(weir_checkpoint_exists(folder_path("a")) && weir_checkpoint_exists(folder_path("a/step-00000008")));
    save_usual(folder_path("a"), 9, 1, 0);
    folder_flip(folder_path("a/step-00000009/index.json"), 3);
    cr_expect_null(weir_checkpoint_open(folder_path("a")));
    cr_expect(strstr(weir_error(), "step-00000009"), "the newest one's error: %s", weir_error());
}

Test(keep, pruning_leaves_the_last_ones_and_those_with_other_names)
{
    struct job *best = new_job(folder_path("a"), 3, 1);
    best->name = "best";
    add_usual(best, 4);
    must_save(best);
    free_job(best);
    for (int64_t step = 1; step <= 5; step++)
        save_usual(folder_path("a"), step, 2, 2);
    cr_expect_eq(folder_entries(folder_path("a")), 3);
    cr_expect(folder_has(folder_path("a/best/index.json")));
    cr_expect(folder_has(folder_path("a/step-00000004/index.json")));
    cr_expect(folder_has(folder_path("a/step-00000005/index.json")));
}

Test(keep, pruning_at_an_earlier_step_leaves_the_new_one_and_later_ones)
{
    for (int64_t step = 10; step <= 30; step += 10)
        save_usual(folder_path("a"), step, 1, 0);
    save_usual(folder_path("a"), 15, 1, 1);
    cr_expect(!folder_has(folder_path("a/step-00000010")));
    cr_expect(folder_has(folder_path("a/step-00000015")) && folder_has(folder_path("a/step-00000020")));
}

Test(keep, name_that_is_taken_is_replaced)
{
    save_usual(folder_path("a"), 7, 2, 0);
    struct job *job = new_job(folder_path("a"), 7, 1);
    weir_checkpoint_tensor x = tensor_of("x", WEIR_I32, (weir_shape){1, {9}});
    job->nonce++;
    add_piece(job, 0, 2, &x, 0, NULL, &x.shape);
    must_save(job);
    cr_expect_eq(folder_entries(folder_path("a")), 1);
    weir_checkpoint *c = must_open(folder_path("a"));
    cr_expect_eq(weir_checkpoint_get_info(c)->tensors, 1);
    expect_whole(c, 2, "x");
    weir_checkpoint_close(c);
    free_job(job);
}

/* ---- frozen ---- */

static void save_frozen(int64_t step, int ranks, int other, bool linked)
{
    struct job *job = new_job(folder_path("a"), step, ranks);
    weir_checkpoint_tensor w = tensor_of("w", WEIR_F32, (weir_shape){1, {64}});
    weir_checkpoint_tensor f = tensor_of("f", WEIR_F32, (weir_shape){2, {8, 16}});
    f.frozen = true;
    add_piece(job, 0, (int)step, &w, 0, NULL, &w.shape);
    for (int r = 0; r < ranks; r++)
        add_piece(job, r, other, &f, 0, (int64_t[WEIR_DIMS_MAX]){r * 8 / ranks, 0}, &(weir_shape){2, {8 / ranks, 16}});
    must_save(job);
    for (int r = 0; r < ranks; r++)
        cr_expect_eq(job->linked[r], linked, "step %d, rank %d", (int)step, r);
    free_job(job);
    weir_checkpoint *c = must_open(folder_path("a"));
    cr_expect_eq(weir_checkpoint_get_info(c)->step, step);
    expect_whole(c, (int)step, "w");
    expect_whole(c, other, "f");
    cr_expect(weir_checkpoint_verify(c, NULL, NULL) == WEIR_OK, "%s", weir_error());
    weir_checkpoint_close(c);
}

Test(keep, frozen_shards_are_linked_until_they_or_the_layout_change)
{
    save_frozen(1, 2, 3, false);
    save_frozen(2, 2, 3, true);
    save_frozen(3, 2, 3, true);
    save_frozen(4, 2, 4, false); /* other values */
    save_frozen(5, 1, 4, false); /* another layout */
    save_frozen(6, 1, 4, true);
    struct stat stat_of;
    cr_assert(stat(folder_path("a/step-00000001/frozen-0001.safetensors"), &stat_of) == 0);
    cr_expect_eq(stat_of.st_nlink, 3);
}

/* ---- saves that must fail ---- */

/* All ranks fail, one with these words; nothing is left. */
static void expect_refused(struct job *job, const char *words)
{
    bool told = false;
    run_job(job);
    for (int r = 0; r < job->ranks; r++) {
        cr_expect(job->status[r] != WEIR_OK, "rank %d saved", r);
        told |= strstr(job->error[r], words) != NULL;
    }
    cr_expect(told, "\"%s\", not \"%s\"", job->error[0], words);
    cr_expect_eq(folder_entries(job->root), 0, "something was left");
    free_job(job);
}

Test(keep, tensor_that_is_not_covered_fails_the_save_on_all_ranks)
{
    struct job *job = new_job(folder_path("a"), 1, 3);
    weir_checkpoint_tensor w = tensor_of("w", WEIR_F32, (weir_shape){1, {30}});
    for (int r = 0; r < 2; r++)
        add_piece(job, r, 0, &w, 0, (int64_t[WEIR_DIMS_MAX]){r * 10}, &(weir_shape){1, {10}});
    expect_refused(job, "tensor w: 10 of its 30 elements are in no shard");
}

Test(keep, replicas_that_differ_fail_the_save)
{
    struct job *job = new_job(folder_path("a"), 1, 2);
    weir_checkpoint_tensor w = tensor_of("w", WEIR_F32, (weir_shape){1, {30}});
    add_piece(job, 0, 0, &w, 0, NULL, &w.shape);
    add_piece(job, 1, 1, &w, 0, NULL, &w.shape);
    expect_refused(job, "tensor w: its shard w in rank-0001.safetensors overlaps another, and they differ");
}

Test(keep, shards_that_overlap_fail_the_save)
{
    struct job *job = new_job(folder_path("a"), 1, 2);
    weir_checkpoint_tensor w = tensor_of("w", WEIR_F32, (weir_shape){1, {30}});
    add_piece(job, 0, 0, &w, 0, NULL, &(weir_shape){1, {20}});
    add_piece(job, 1, 0, &w, 0, (int64_t[WEIR_DIMS_MAX]){10}, &(weir_shape){1, {20}});
    expect_refused(job, "tensor w: its shard w[10:30] in rank-0001.safetensors overlaps");
}

Test(keep, ranks_that_do_not_agree_on_a_shape_fail_the_save)
{
    struct job *job = new_job(folder_path("a"), 1, 2);
    weir_checkpoint_tensor w = tensor_of("w", WEIR_F32, (weir_shape){1, {30}});
    add_piece(job, 0, 0, &w, 0, NULL, &w.shape);
    w.shape.dim[0] = 31;
    add_piece(job, 1, 0, &w, 0, NULL, &w.shape);
    expect_refused(job, "tensor w: shards of it differ in shape, type or kind");
}

Test(keep, rank_that_cannot_write_makes_all_fail)
{
    struct job *job = new_job(folder_path("a"), 1, 3);
    add_usual(job, 4);
    free((void *)(uintptr_t)job->piece[1][0].data);
    job->piece[1][0].data = NULL; /* the system refuses to write from there */
    expect_refused(job, "rank-0001.safetensors: tensor w cannot be written");
}

static void *stop_soon(void *ctx)
{
    usleep(50000);
    ((struct job *)ctx)->stop = true;
    return NULL;
}

Test(keep, who_waits_for_a_rank_that_never_comes_can_be_stopped)
{
    pthread_t thread;
    struct job *job = new_job(folder_path("a"), 1, 3);
    add_usual(job, 4);
    cr_assert(pthread_create(&thread, NULL, stop_soon, job) == 0);
    run_some(job, 2);
    pthread_join(thread, NULL);
    for (int r = 0; r < 2; r++)
        cr_expect(job->status[r] == WEIR_E_CANCELLED || job->status[r] == WEIR_E_IO, "%s", job->error[r]);
    keep_save_free(job->save[2]);
    cr_expect_eq(folder_entries(job->root), 0);
    free_job(job);
}

Test(keep, save_that_never_ran_leaves_nothing)
{
    struct job *job = new_job(folder_path("a"), 1, 1);
    add_usual(job, 4);
    begin_rank(job, 0);
    cr_expect_eq(folder_entries(job->root), 1);
    keep_save_free(job->save[0]);
    cr_expect_eq(folder_entries(job->root), 0);
    free_job(job);
}

Test(keep, second_save_into_one_folder_at_a_time_is_refused_and_the_first_is_whole)
{
    struct job *first = new_job(folder_path("a"), 1, 1);
    add_usual(first, 4);
    begin_rank(first, 0);
    struct keep_save_opts opts = {.root = first->root, .name = "step-00000002", .nonce = 0xBEEF};
    cr_expect_null(keep_save_begin(&opts));
    cr_expect(strstr(weir_error(), "another save of this program is under way"), "%s", weir_error());
    opts.name = "best";
    cr_expect_null(keep_save_begin(&opts));
    cr_assert_eq(keep_save_run(first->save[0]), WEIR_OK, "%s", weir_error());
    keep_save_free(first->save[0]);
    weir_checkpoint_close(must_open(folder_path("a/step-00000001")));
    save_usual(first->root, 2, 1, 0);
    free_job(first);
}

/* The lock of a process ends with it. */
Test(keep, what_a_process_that_died_was_saving_is_removed_by_the_next)
{
    struct job *job = new_job(folder_path("a"), 1, 1);
    add_usual(job, 4);
    pid_t child = fork();
    if (!child) {
        begin_rank(job, 0);
        _exit(0);
    }
    cr_assert_eq(waitpid(child, NULL, 0), child);
    cr_expect_eq(folder_entries(job->root), 1);
    save_usual(job->root, 2, 1, 0);
    cr_expect_eq(folder_entries(job->root), 1);
    free_job(job);
}

Test(keep, names_and_shards_that_make_no_sense_are_refused)
{
    cr_expect_null(keep_save_begin(&(struct keep_save_opts){.root = folder_path("a"), .name = "../b"}));
    cr_expect_null(keep_save_begin(&(struct keep_save_opts){.root = folder_path("a"), .name = ".b"}));
    cr_expect_null(keep_save_begin(&(struct keep_save_opts){.root = folder_path("a"), .name = "b", .rank = 1,
                                                            .ranks = 2}));
    struct keep_save *save = keep_save_begin(&(struct keep_save_opts){.root = folder_path("a"), .name = "b"});
    struct keep_piece piece = {.tensor = tensor_of("w", WEIR_F32, (weir_shape){1, {30}}), .start = {1},
                               .shape = {1, {30}}};
    cr_expect_eq(keep_save_add(save, &piece), WEIR_E_ARGUMENT);
    piece.tensor.dtype = WEIR_DTYPE_NONE;
    cr_expect_eq(keep_save_add(save, &piece), WEIR_E_ARGUMENT);
    keep_save_free(save);
}

/* ---- sources ---- */

Test(keep, positions_of_sources_come_back_by_rank)
{
    struct job *job = new_job(folder_path("a"), 1, 2);
    add_usual(job, 1);
    for (int r = 0; r < 2; r++)
        begin_rank(job, r);
    cr_assert(keep_save_add_source(job->save[0], "tokens", "\0\1\377", 3) == WEIR_OK);
    cr_assert(keep_save_add_source(job->save[1], "tokens", "", 0) == WEIR_OK);
    pthread_t thread;
    struct turn turn[2] = {{job, 0}, {job, 1}};
    cr_assert(pthread_create(&thread, NULL, run_rank, &turn[1]) == 0);
    run_rank(&turn[0]);
    pthread_join(thread, NULL);
    weir_checkpoint *c = must_open(job->root);
    cr_assert_eq(weir_checkpoint_get_info(c)->sources, 2);
    const weir_checkpoint_source *s = weir_checkpoint_get_source(c, 0);
    cr_expect(!strcmp(s->name, "tokens") && s->rank == 0 && s->count == 3 && !memcmp(s->bytes, "\0\1\377", 3));
    cr_expect(weir_checkpoint_get_source(c, 1)->rank == 1 && weir_checkpoint_get_source(c, 1)->count == 0);
    cr_expect_null(weir_checkpoint_get_source(c, 2));
    weir_checkpoint_close(c);
    free_job(job);
}

Test(keep, box_outside_of_a_tensor_or_of_another_type_is_an_argument_error)
{
    float to[64];
    save_usual(folder_path("a"), 1, 1, 0);
    weir_checkpoint *c = must_open(folder_path("a"));
    const weir_checkpoint_tensor *w = weir_checkpoint_find(c, "w");
    cr_expect_eq(weir_checkpoint_read(c, w, 0, (int64_t[]){1, 0}, &(weir_array){to, WEIR_F32, w->shape}),
                 WEIR_E_ARGUMENT);
    cr_expect_eq(weir_checkpoint_read(c, w, 1, NULL, &(weir_array){to, WEIR_F32, w->shape}), WEIR_E_ARGUMENT);
    cr_expect_eq(weir_checkpoint_read(c, w, 0, NULL, &(weir_array){to, WEIR_I32, w->shape}), WEIR_E_ARGUMENT);
    cr_expect_eq(weir_checkpoint_read(c, w, 0, (int64_t[]){-1, 0}, &(weir_array){to, WEIR_F32, {2, {1, 1}}}),
                 WEIR_E_ARGUMENT);
    weir_checkpoint_close(c);
}
