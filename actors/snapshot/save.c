/* actors/snapshot/save.c: checkpoints: what this rank holds goes to the disk, by a thread of the session's.
 *
 *     calling thread, at rest                                   writer's thread
 *       wait for the save before it
 *       positions of sources
 *       rank 0 makes the folder; a round tells the others
 *       every shard that this rank saves becomes a piece --->   files, fsync; rank 0: index, rename (actors/keep/save.h)
 *       sync: wait; a round tells what became of it
 *
 * There is one way of writing, whether it is waited for or not. The place of a piece differs: in the arena, where it is as
 * long as nothing runs; or, when the session is to go on at once, in the copy that was made of it in the plan's snapshot
 * slot. A piece where the host cannot go (on an accelerator) is copied out in either case: into the snapshot, which is in the
 * host's memory beside it, or into memory that is there as long as the save is.
 *
 * A save into memory (folders.h) is the same save once in every host's folder, with the ranks that see it in the parts
 * of rank 0 and the others. Its files are the copy: so the calling thread writes them, and the writer's has only to
 * give them their name.
 *
 * The writer knows the session by what it needs while it waits for other ranks: whether they still live. When the
 * session has failed, what ranks that have only failed still write is waited for; whoever does not get ready in time is
 * taken to be gone. A save of a session that is cancelled is given up at once. The session's own state is not touched by it.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "actors/keep/lock.h"
#include "actors/keep/part.h"
#include "actors/keep/save.h"
#include "actors/cluster/cluster.h"
#include "actors/snapshot/folders.h"
#include "actors/snapshot/snapshot.h"
#include "graph/base/error.h"
#include "transport/mail/park.h"

#define GRACE_NS INT64_C(1000000000) /* for the other ranks' writers after the session has failed */

enum saver_state { SAVER_IDLE, SAVER_READY, SAVER_WRITES }; /* ready: there is a thread, which waits for a word */

struct saver {
    struct snapshots *owner; /* borrowed */
    struct keep_save *save;       /* owned, while one is being made */
    struct pool staged;           /* what it writes of spaces that the host cannot go to */
    pthread_t thread;
    bool started;                 /* it is to be joined */
    bool async;
    weir_checkpoint_lock **root;  /* owned; of the roots that it has saved in */
    int roots;
    int64_t failed_ns;            /* by the writer: when it first saw that the session has failed */
    _Atomic uint32_t state;       /* enum saver_state (a futex word) */
    weir_status status;           /* of the last one */
    char sentence[ROUND_NOTE_BYTES];
};

/* ---- the writer's thread ---- */

/* The session has failed because it was cancelled. */
static bool saver_cancelled(const struct saver *saver)
{
    return ending_state(saver->owner->ending) == ENDING_CANCELLED;
}

static bool saver_stops(void *ctx, bool waits)
{
    struct saver *saver = ctx;
    if (saver_cancelled(saver))
        return true;
    if (!waits || !ending_failed(saver->owner->ending))
        return false;
    if (!saver->failed_ns)
        saver->failed_ns = park_now_ns();
    return park_now_ns() - saver->failed_ns > GRACE_NS;
}

static void saver_tell(void *ctx, const char *sentence)
{
    struct saver *saver = ctx;
    report_say(saver->owner->report, "weir_session_save: %s", sentence);
}

static void saver_becomes(struct saver *saver, enum saver_state state)
{
    /* release: pairs with the loads in saver_main() and saver_wait() */
    atomic_store_explicit(&saver->state, state, memory_order_release);
    park_wake(&saver->state);
}

static void *saver_main(void *argument)
{
    struct saver *saver = argument;
    /* acquire: pairs with saver_becomes() */
    while (atomic_load_explicit(&saver->state, memory_order_acquire) == SAVER_READY)
        park_wait(&saver->state, SAVER_READY, PARK_FOREVER);
    if (atomic_load_explicit(&saver->state, memory_order_acquire) != SAVER_WRITES)
        return NULL;
    saver->status = keep_save_run(saver->save);
    snprintf(saver->sentence, sizeof(saver->sentence), "%s", saver->status ? weir_error() : "");
    if (saver->status && saver->async && !saver_cancelled(saver))
        report_say(saver->owner->report, "weir_session_save: %s", saver->sentence);
    saver_becomes(saver, SAVER_IDLE);
    return NULL;
}

/* A thread that is ready to write. */
static weir_status saver_start(struct saver *saver, bool async)
{
    saver->async = async;
    saver->failed_ns = 0;
    atomic_store_explicit(&saver->state, SAVER_READY, memory_order_relaxed); /* the thread that is started sees it */
    saver->started = park_thread(&saver->thread, "weir-save", saver_main, saver);
    if (saver->started)
        return WEIR_OK;
    atomic_store_explicit(&saver->state, SAVER_IDLE, memory_order_relaxed);
    return error_set(WEIR_E_MEMORY, "weir_session_save: no thread to write with");
}

/* False: it is still writing when the deadline is over. */
static bool saver_wait(struct saver *saver, int64_t deadline)
{
    /* acquire: pairs with saver_becomes() */
    while (atomic_load_explicit(&saver->state, memory_order_acquire) == SAVER_WRITES)
        if (!park_wait(&saver->state, SAVER_WRITES, deadline))
            return false;
    if (saver->started)
        pthread_join(saver->thread, NULL);
    saver->started = false;
    keep_save_free(saver->save);
    saver->save = NULL;
    pool_free(&saver->staged);
    saver->staged = (struct pool){.head = NULL};
    return true;
}

static weir_status saver_result(const struct saver *saver)
{
    return saver->status ? error_set(saver->status, "weir_session_save: %s", saver->sentence) : WEIR_OK;
}

/* The session's, which is made with the first save; idle. */
static struct saver *saver_of(struct snapshots *s)
{
    if (!s->saver)
        s->saver = calloc(1, sizeof(*s->saver));
    if (!s->saver) {
        error_set(WEIR_E_MEMORY, "weir_session_save: no memory");
        return NULL;
    }
    saver_wait(s->saver, PARK_FOREVER); /* before anything of it is written: its thread reads it */
    s->saver->owner = s;
    s->saver->status = WEIR_OK;
    return s->saver;
}

void snapshot_await(struct snapshots *s)
{
    if (s->saver)
        saver_wait(s->saver, PARK_FOREVER);
}

/* ---- roots ---- */

static bool has_root(const struct saver *saver, const weir_checkpoint_lock *lock)
{
    for (int i = 0; i < saver->roots; i++)
        if (saver->root[i] == lock)
            return true;
    return false;
}

static weir_status add_root(struct saver *saver, weir_checkpoint_lock *lock)
{
    weir_checkpoint_lock **grown = realloc(saver->root, ((size_t)saver->roots + 1) * sizeof(*grown));
    if (!grown) {
        keep_lock_release(lock);
        return error_set(WEIR_E_MEMORY, "weir_session_save: no memory");
    }
    saver->root = grown;
    saver->root[saver->roots++] = lock;
    return WEIR_OK;
}

/* Keeps the root for this process until the session ends. */
static weir_status hold_root(struct saver *saver, const char *dir)
{
    weir_checkpoint_lock *lock;
    weir_status status = keep_lock_take(dir, cluster_patience_ns(), &lock);
    if (status)
        return status;
    if (has_root(saver, lock)) {
        keep_lock_release(lock);
        return WEIR_OK;
    }
    if (!keep_lock_works(lock))
        report_say(saver->owner->report, "weir_session_save: %s: the file system has no locks, so another program "
                   "that saves there goes unnoticed; give each run a folder of its own", dir);
    return add_root(saver, lock);
}

static void release_roots(struct saver *saver)
{
    for (int i = 0; i < saver->roots; i++)
        keep_lock_release(saver->root[i]);
    free(saver->root);
}

weir_checkpoint_lock *weir_checkpoint_lock_take(const char *root)
{
    weir_checkpoint_lock *lock = NULL;
    if (error_null(root, "weir_checkpoint_lock_take", "root"))
        return NULL;
    return keep_lock_take(root, cluster_patience_ns(), &lock) ? NULL : lock;
}

void weir_checkpoint_lock_release(weir_checkpoint_lock *lock)
{
    keep_lock_release(lock);
}

void snapshot_close(struct snapshots *s)
{
    snapshot_await(s);
    if (s->saver)
        release_roots(s->saver);
    free(s->saver);
    s->saver = NULL;
}

/* ---- what is saved ---- */

/* Copies go into the snapshots one behind the other. */
struct filling {
    const struct snapshots *s;
    struct keep_save *save;
    const struct folders *folders; /* in memory; NULL: on disk */
    bool copies;
    uint64_t *used; /* owned; bytes, by space */
};

/* Where the piece lies while it is written: in the arena itself, or in the copy that is made here. */
static weir_status piece_data(struct filling *f, const plan_param *param, const plan_tensor *tensor, uint32_t slot,
                              const char **data)
{
    const struct snapshots *s = f->s;
    const char *from = arena_tensor(s->built->arenas, s->built->plan, tensor, slot);
    const struct arena *arena = &s->built->arenas[plan_tensor_space(s->built->plan, tensor).i];
    uint32_t space = plan_snapshot_space(s->built->plan, plan_tensor_space(s->built->plan, tensor)).i;
    uint64_t bytes = plan_tensor_bytes(tensor);
    bool copies = f->copies && !param->frozen && space != PLAN_NONE;
    *data = from;
    if (!bytes || (!copies && arena_followed(arena)))
        return WEIR_OK;
    char *to = copies ? s->built->arenas[space].base + s->built->plan->spaces[space].snapshot_offset + f->used[space]
                      : pool_alloc(&s->saver->staged, bytes);
    if (copies)
        f->used[space] += (bytes + PLAN_ALIGN - 1) / PLAN_ALIGN * PLAN_ALIGN;
    *data = to;
    return to ? arena->device->copy_out(to, from, bytes) : error_set(WEIR_E_MEMORY, "weir_session_save: no memory");
}

static weir_status add_shard(struct filling *f, const plan_param *param, const plan_tensor *tensor)
{
    const struct snapshots *s = f->s;
    uint32_t slots = plan_kept_slots(s->built->plan, tensor);
    weir_view view = built_view(s->built, tensor, 0);
    struct keep_piece piece = {.tensor = {.name = plan_text(s->built->plan, param->name),
                                          .kind = (weir_param_kind)param->kind,
                                          .dtype = view.dtype,
                                          .shape = view.global,
                                          .frozen = param->frozen,
                                          .slots = (int)slots},
                               .shape = view.shape};
    weir_status status = WEIR_OK;
    memcpy(piece.start, view.offset, sizeof(piece.start));
    for (uint32_t k = 0; !status && k < slots; k++) {
        piece.slot = (int)k;
        const char *data = NULL;
        status = piece_data(f, param, tensor, built_kept_slot(s->built, tensor, k), &data);
        piece.data = data;
        if (!status)
            status = keep_save_add(f->save, &piece);
    }
    return status;
}

static bool is_written_here(const struct filling *f, const plan_param *param, uint32_t i)
{
    if (f->folders)
        return folders_writes(f->s, f->folders, param, i);
    return plan_saves(f->s->built->plan, param, i) && built_owns_tensor(f->s->built, built_shard(f->s->built, param, i));
}

static weir_status add_shards(struct filling *f)
{
    const struct snapshots *s = f->s;
    weir_status status = WEIR_OK;
    for (uint32_t p = 0; !status && p < s->built->plan->params_count; p++) {
        const plan_param *param = &s->built->plan->params[p];
        const bool stays = plan_is_mapped(s->built->plan, param); /* in its file */
        for (uint32_t i = 0; !status && i < param->shards.count && !stays; i++)
            if (is_written_here(f, param, i))
                status = add_shard(f, param, built_shard(s->built, param, i));
    }
    return status;
}

static weir_status fill(struct snapshots *s, struct keep_save *save, const struct folders *folders, bool copies)
{
    struct filling f = {.s = s, .save = save, .folders = folders, .copies = copies};
    f.used = calloc(s->built->plan->spaces_count + (size_t)1, sizeof(*f.used));
    weir_status status = f.used ? add_shards(&f) : error_set(WEIR_E_MEMORY, "weir_session_save: no memory");
    free(f.used);
    return status;
}

/* Whether the plan has room for the copies. */
static weir_status check_snapshots(const weir_plan *plan, const char *file, int line)
{
    uint64_t *bytes = calloc(plan->spaces_count + (size_t)1, sizeof(*bytes));
    weir_status status = bytes ? plan_snapshot_bytes(plan, bytes) : error_set(WEIR_E_MEMORY, "weir_session_save: no memory");
    for (uint32_t space = 0; space < plan->spaces_count && !status; space++)
        if (plan->spaces[space].snapshot_bytes != bytes[space])
            status = error_set(WEIR_E_ARGUMENT,
                               "%s:%d: weir_session_save: the plan has no room for a copy: weir_compile(.snapshot = true) "
                               "makes it",
                               file, line);
    free(bytes);
    return status;
}

void snapshot_touch(const struct built *built)
{
    for (uint32_t i = 0; i < built->plan->spaces_count; i++) {
        const plan_space *space = &built->plan->spaces[i];
        if (built_owns(built, i) && space->snapshot_bytes)
            memset(built->arenas[i].base + space->snapshot_offset, 0, space->snapshot_bytes);
    }
}

/* Positions of this rank's sources. */
struct positions {
    struct pool pool;
    POOL_LIST(weir_checkpoint_source) list;
};

static weir_status no_memory_for_positions(void)
{
    return error_set(WEIR_E_MEMORY, "no memory for the positions of sources");
}

static weir_status add_position(const struct snapshots *s, struct positions *to, uint32_t h, void *bytes)
{
    const plan_host *host = &s->built->plan->hosts[h];
    size_t count = 0;
    weir_status status = (*s->bindings)[h].save((*s->bindings)[h].ctx, s->step(s), bytes, &count);
    if (status || count > WEIR_SOURCE_BYTES_MAX)
        return error_set(status ? status : WEIR_E_ARGUMENT, "%s:%u: the position of the source '%s' cannot be saved: %s",
                         plan_text(s->built->plan, host->file), host->line, plan_text(s->built->plan, host->name),
                         status ? weir_status_name(status) : "it has too many bytes");
    weir_checkpoint_source *source = POOL_PUSH(&to->pool, &to->list);
    if (source)
        *source = (weir_checkpoint_source){plan_text(s->built->plan, host->name), (int)built_rank(s->built),
                                           pool_copy(&to->pool, bytes, count), count};
    return to->pool.failed ? no_memory_for_positions() : WEIR_OK;
}

bool snapshot_source_here(const struct snapshots *s, uint32_t h)
{
    const weir_plan *plan = s->built->plan;
    bool here = built_runs(s->built, plan->hosts[h].actor.i);
    for (uint32_t before = 0; here && before < h; before++)
        here = plan->hosts[before].kind != PLAN_SOURCE || strcmp(plan_text(plan, plan->hosts[before].name), plan_text(plan, plan->hosts[h].name)) != 0 ||
               !built_runs(s->built, plan->hosts[before].actor.i);
    return here;
}

static weir_status get_positions(const struct snapshots *s, struct positions *to)
{
    void *bytes = malloc(WEIR_SOURCE_BYTES_MAX);
    weir_status status = bytes ? WEIR_OK : no_memory_for_positions();
    for (uint32_t h = 0; !status && h < s->built->plan->hosts_count; h++) {
        if (s->built->plan->hosts[h].kind == PLAN_SOURCE && (*s->bindings)[h].save && snapshot_source_here(s, h))
            status = add_position(s, to, h, bytes);
    }
    free(bytes);
    return status;
}

static weir_status add_sources(struct keep_save *save, const weir_checkpoint_source *sources, int count)
{
    weir_status status = WEIR_OK;
    for (int i = 0; !status && i < count; i++)
        status = keep_save_copy_source(save, &sources[i]);
    return status;
}

/* ---- one save ---- */

/* The purpose of a folder's name. Two saves of one session have different ones, and so have those of two processes. */
static uint64_t nonce_new(const struct snapshots *s)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    uint64_t seed = (uint64_t)now.tv_sec * 1000000007u + (uint64_t)now.tv_nsec;
    uint32_t word[4];
    weir_philox(seed, (uint64_t)getpid(), (uint64_t)(uintptr_t)s, word);
    return (uint64_t)word[0] << 32 | word[1];
}

static struct keep_save_opts keep_opts(struct snapshots *s, const char *dir, const weir_save_opts *opts,
                                       const char *name, uint64_t nonce)
{
    return (struct keep_save_opts){
        .root = dir,
        .name = name,
        .nonce = nonce,
        .rank = (int)built_rank(s->built),
        .ranks = s->built->cluster ? (int)s->built->cluster->env.size : 1,
        .keep = opts->keep,
        .facts = {.step = s->step(s),
                  .seed = s->built->plan->seed,
                  .plan_hash = s->built->plan->part ? s->built->plan->whole : s->built->plan->hash,
                  .graph_hash = s->built->plan->graph,
                  .program = opts->program ? opts->program : ""},
        .stop = saver_stops,
        .stop_ctx = s->saver,
        .tell = saver_tell,
        .tell_ctx = s->saver,
    };
}

/* One save: what it needs beside the session. */
struct saving {
    struct snapshots *s;
    const char *dir;
    const weir_save_opts *opts;
    struct positions positions;
    struct folders folders; /* in memory */
    weir_status begun;      /* whether this rank could say what it had to */
};

/* All ranks have begun, or none. */
static weir_status agree(const struct saving *g, weir_status mine, char *word)
{
    struct snapshots *s = g->s;
    uint32_t which = g->opts->async | (uint32_t)g->opts->memory << 1;
    return s->built->cluster ? cluster_agree(s->built->cluster, ROUND_SAVE, which, mine, word) : mine;
}

/* Rank 0 makes the folder; its nonce goes around, and the others find it by that. */
static weir_status begin_on_disk(struct saving *g, const char *name)
{
    char word[ROUND_NOTE_BYTES];
    struct keep_save_opts keep = keep_opts(g->s, g->dir, g->opts, name, nonce_new(g->s));
    weir_status status = g->begun;
    snprintf(word, sizeof(word), "%llx", (unsigned long long)keep.nonce);
    if (!status && keep.rank == 0)
        status = hold_root(g->s->saver, g->dir);
    if (!status && keep.rank == 0 && !(g->s->saver->save = keep_save_begin(&keep)))
        status = WEIR_E_IO;
    status = agree(g, status, word);
    if (status || keep.rank == 0)
        return status;
    keep.nonce = strtoull(word, NULL, 16);
    g->s->saver->save = keep_save_begin(&keep);
    return WEIR_OK; /* whether it has begun is part of what is agreed on next */
}

/* In each folder the first of the ranks that see it begins. The checkpoint that would be loaded now is all that stays beside
 * it. */
static weir_status begin_in_memory(struct saving *g, const char *name)
{
    struct folders_ask ask = {.dir = g->dir, .kind = ROUND_SAVE, .after = -1, .nonce = nonce_new(g->s),
                              .sources = g->positions.list.item, .sources_count = g->positions.list.count};
    uint32_t here;
    if (!keep_make_folders(&keep_files_system, g->dir) && !g->begun)
        g->begun = error_set(WEIR_E_IO, "%s: cannot be made: %s", g->dir, strerror(errno));
    weir_status status = folders_survey(g->s, &ask, &g->folders);
    if (status)
        return status;
    struct keep_save_opts keep = keep_opts(g->s, g->dir, g->opts, name, g->folders.asked);
    keep.rank = (int)folders_place(g->s, &g->folders, &here);
    keep.ranks = (int)here;
    keep.keep = 0;
    keep.part = true;
    status = g->begun;
    if (!status && keep.rank == 0)
        status = hold_root(g->s->saver, g->dir);
    if (!status && keep.rank == 0)
        keep_part_prune(&keep_files_system, g->dir, g->folders.step);
    if (!status && keep.rank == 0 && !(g->s->saver->save = keep_save_begin(&keep)))
        status = WEIR_E_IO;
    status = agree(g, status, NULL);
    if (!status && keep.rank)
        g->s->saver->save = keep_save_begin(&keep);
    return status;
}

static weir_status save_begin(struct saving *g)
{
    char name[KEEP_STEP_NAME_BYTES];
    keep_step_name(g->s->step(g->s), name);
    g->begun = get_positions(g->s, &g->positions);
    return g->opts->memory ? begin_in_memory(g, name) : begin_on_disk(g, g->opts->name ? g->opts->name : name);
}

/* Fills the index that every folder has: there all positions, as any of the folders may be lost. */
static weir_status fill_index(struct saving *g, struct keep_save *save)
{
    uint32_t here;
    if (!g->opts->memory)
        return add_sources(save, g->positions.list.item, g->positions.list.count);
    bool first = !folders_place(g->s, &g->folders, &here);
    return first ? add_sources(save, g->folders.sources.item, g->folders.sources.count) : WEIR_OK;
}

/* Every rank has what it will write, and a thread to write with, or none writes. A save that has begun and is not run is
 * taken back. */
static weir_status save_fill(struct saving *g)
{
    struct saver *saver = g->s->saver;
    bool memory = g->opts->memory;
    weir_status status = saver->save ? fill_index(g, saver->save) : WEIR_E_IO;
    if (!status)
        status = fill(g->s, saver->save, memory ? &g->folders : NULL, g->opts->async && !memory);
    if (!status && memory)
        status = keep_save_write(saver->save);
    if (!status)
        status = saver_start(saver, g->opts->async);
    status = agree(g, status, NULL);
    saver_becomes(saver, status ? SAVER_IDLE : SAVER_WRITES);
    return status;
}

static weir_status save_write(struct snapshots *s, const char *dir, const weir_save_opts *opts)
{
    struct saving g = {.s = s, .dir = dir, .opts = opts};
    weir_status status = save_begin(&g);
    if (!status)
        status = save_fill(&g);
    if (status || !opts->async)
        saver_wait(s->saver, PARK_FOREVER);
    if (!status && !opts->async)
        status = agree(&g, saver_result(s->saver), NULL);
    folders_free(&g.folders);
    pool_free(&g.positions.pool);
    return status;
}

static weir_status check_save(const struct snapshots *s, const char *dir, const weir_save_opts *opts)
{
    const char *file = opts->src.file ? opts->src.file : "";
    weir_status status = ending_failure(s->ending);
    if (status)
        return status;
    if (!dir || !*dir || opts->keep < 0)
        return error_set(WEIR_E_ARGUMENT, "%s:%d: weir_session_save: %s", file, opts->src.line,
                         opts->keep < 0 ? ".keep is negative; it must be 0 (all) or more" : "there is no folder");
    if (opts->memory && (opts->name || opts->keep))
        return error_set(WEIR_E_ARGUMENT, "%s:%d: weir_session_save: .keep and .name do not work with .memory: a folder in "
                         "memory keeps the newest snapshot, named after its step", file, opts->src.line);
    weir_status room = opts->async && !opts->memory ? check_snapshots(s->built->plan, file, opts->src.line) : WEIR_OK;
    if (room)
        return room;
    if (opts->name && (!*opts->name || *opts->name == '.' || strchr(opts->name, '/')))
        return error_set(WEIR_E_ARGUMENT, "%s:%d: weir_session_save: '%s' is no name for a folder", file, opts->src.line,
                         opts->name);
    return WEIR_OK;
}

weir_status snapshot_save(struct snapshots *s, const char *dir, const weir_save_opts *opts)
{
    weir_status status = check_save(s, dir, opts);
    if (!status && !saver_of(s))
        status = WEIR_E_MEMORY;
    return status ? status : save_write(s, dir, opts);
}

weir_status snapshot_save_wait(struct snapshots *s, int timeout_ms)
{
    if (!s->saver)
        return WEIR_OK;
    if (!saver_wait(s->saver, park_deadline(timeout_ms)))
        return error_set(WEIR_E_TIMEOUT, "weir_session_save_wait: it is still being written after %d ms", timeout_ms);
    return saver_result(s->saver);
}
