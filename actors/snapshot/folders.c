/* actors/snapshot/folders.c: snapshots in the memory of several hosts: the survey. See folders.h.
 *
 * Folders are told apart by what the system calls them (device and inode) and by the machine's boot id, which the cards
 * of the meeting begin with: containers of one machine may see one folder, and paths say nothing.
 *
 * Statements are numbers as they lie in memory, one behind the other; texts and bytes with their lengths before them.
 * They come from members, who are known, but nothing is read beyond what came: one that ends early says nothing.
 */
#include "actors/snapshot/folders.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "actors/keep/part.h"
#include "actors/keep/save.h"
#include "actors/snapshot/snapshot.h"
#include "graph/base/base.h"
#include "graph/base/error.h"

enum { SNAPSHOTS_MAX = 2 }; /* of a folder: the one that stays, and the one that was being written last */

/* ---- statements ---- */

struct writer {
    char *bytes; /* owned */
    size_t count, room;
    bool failed; /* no memory, or too much */
};

static void put(struct writer *w, const void *from, size_t count)
{
    size_t room = w->room ? w->room : 4096;
    while (room - w->count < count && room <= NET_STATEMENT_BYTES)
        room *= 2;
    char *grown = w->failed || room > NET_STATEMENT_BYTES ? NULL : realloc(w->bytes, room);
    w->failed |= !grown;
    if (!grown)
        return;
    w->bytes = grown;
    w->room = room;
    if (count)
        memcpy(w->bytes + w->count, from, count);
    w->count += count;
}

static void put_number(struct writer *w, uint64_t value)
{
    put(w, &value, sizeof(value));
}

static void put_bytes(struct writer *w, const void *from, size_t count)
{
    put_number(w, count);
    put(w, from, count);
}

static void put_source(struct writer *w, const weir_checkpoint_source *source)
{
    put_number(w, (uint64_t)source->rank);
    put_bytes(w, source->name, strlen(source->name) + 1);
    put_bytes(w, source->bytes, source->count);
}

struct reader {
    const char *at;
    size_t left;
    bool failed; /* something wanted more than there was; then all that follows is 0, too */
};

static const void *get(struct reader *r, uint64_t count)
{
    const char *at = r->at;
    r->failed |= count > r->left;
    if (r->failed)
        return NULL;
    r->at += count;
    r->left -= (size_t)count;
    return at;
}

static uint64_t get_number(struct reader *r)
{
    uint64_t value = 0;
    const void *from = get(r, sizeof(value));
    if (from)
        memcpy(&value, from, sizeof(value));
    return value;
}

static const void *get_bytes(struct reader *r, size_t *count)
{
    *count = (size_t)get_number(r);
    return get(r, *count);
}

/* Its texts and bytes are the statement's. */
static bool get_source(struct reader *r, weir_checkpoint_source *source)
{
    size_t length;
    *source = (weir_checkpoint_source){.rank = (int)(uint32_t)get_number(r)};
    source->name = get_bytes(r, &length);
    source->bytes = get_bytes(r, &source->count);
    r->failed |= r->failed || !length || source->name[length - 1] || source->count > WEIR_SOURCE_BYTES_MAX;
    return !r->failed;
}

/* ---- what a rank says: folder, snapshots (step, nonce, bits, sources), its own sources ---- */

static size_t bits_bytes(const weir_plan *plan)
{
    return (plan->shards_count + (size_t)7) / 8;
}

/* 0: there is none. */
static uint64_t folder_id(const struct snapshots *s, const char *dir)
{
    const char *host = s->built->cluster ? s->built->cluster->members[s->built->cluster->env.rank].host : "";
    struct stat is;
    if (stat(dir, &is))
        return 0;
    uint64_t names[2] = {is.st_dev, is.st_ino};
    uint64_t hash = hash_more(hash_more(HASH_START, host, strcspn(host, ".")), names, sizeof(names));
    return hash + !hash;
}

static bool has_shard(const struct snapshots *s, const weir_checkpoint *part, const plan_param *param, uint32_t i)
{
    const plan_tensor *shard = built_shard(s->built, param, i);
    const weir_checkpoint_tensor *tensor = weir_checkpoint_find(part, plan_text(s->built->plan, param->name));
    weir_view view = built_view(s->built, shard, 0);
    if (!weir_shape_count(&view.shape) || plan_is_mapped(s->built->plan, param)) /* nothing is needed of it */
        return true;
    return tensor && tensor->dtype == view.dtype && weir_shape_equal(&tensor->shape, &view.global) &&
           (uint32_t)tensor->slots == plan_kept_slots(s->built->plan, shard) &&
           keep_part_has(tensor, view.offset, &view.shape);
}

static void put_bits(struct writer *w, const struct snapshots *s, const weir_checkpoint *part)
{
    unsigned char *bits = calloc(bits_bytes(s->built->plan) + 1, 1);
    for (uint32_t p = 0; bits && p < s->built->plan->params_count; p++) {
        const plan_param *param = &s->built->plan->params[p];
        for (uint32_t i = 0; i < param->shards.count; i++)
            if (has_shard(s, part, param, i))
                bits[(param->shards.first + i) / 8] |= (unsigned char)(1u << (param->shards.first + i) % 8);
    }
    w->failed |= !bits;
    if (bits)
        put(w, bits, bits_bytes(s->built->plan));
    free(bits);
}

static void put_snapshot(struct writer *w, const struct snapshots *s, const weir_checkpoint *part)
{
    const weir_checkpoint_info *info = weir_checkpoint_get_info(part);
    put_number(w, (uint64_t)info->step);
    put_number(w, keep_part_nonce(part));
    put_bits(w, s, part);
    put_number(w, (uint64_t)info->sources);
    for (int i = 0; i < info->sources; i++)
        put_source(w, weir_checkpoint_get_source(part, i));
}

static weir_checkpoint *open_step(const char *dir, int64_t step)
{
    struct pool p = {0};
    char name[KEEP_STEP_NAME_BYTES];
    const char *path = pool_text(&p, "%s/%s", dir, keep_step_name(step, name));
    weir_checkpoint *part = path ? keep_part_open(path) : NULL;
    pool_free(&p);
    return part;
}

static void put_statement(struct writer *w, const struct snapshots *s, const struct folders_ask *ask)
{
    int64_t steps[SNAPSHOTS_MAX];
    int count = keep_part_steps(ask->dir, steps, SNAPSHOTS_MAX);
    weir_checkpoint *parts[SNAPSHOTS_MAX] = {NULL};
    uint64_t there = 0;
    for (int i = 0; i < count; i++)
        there += !!(parts[i] = open_step(ask->dir, steps[i]));
    put_number(w, folder_id(s, ask->dir));
    put_number(w, there);
    for (int i = 0; i < count; i++)
        if (parts[i])
            put_snapshot(w, s, parts[i]);
    put_number(w, (uint64_t)ask->sources_count);
    for (int i = 0; i < ask->sources_count; i++)
        put_source(w, &ask->sources[i]);
    for (int i = 0; i < count; i++)
        weir_checkpoint_close(parts[i]);
}

struct snapshot {
    int64_t step;
    uint64_t nonce;
    const unsigned char *bits;
    struct reader sources; /* so many as its first number says */
};

/* Of one rank. A folder that cannot be read has nothing. */
struct statement {
    uint64_t folder;
    int snapshots_count;
    struct snapshot snapshots[SNAPSHOTS_MAX];
    struct reader sources;
    void *copy; /* owned: what came is gone after its round */
};

static struct reader get_sources(struct reader *r)
{
    struct reader sources = *r;
    weir_checkpoint_source source;
    for (uint64_t count = get_number(r); count && get_source(r, &source); count--)
        continue;
    return sources;
}

static bool get_statement(struct reader r, const weir_plan *plan, struct statement *to)
{
    to->folder = get_number(&r);
    uint64_t count = get_number(&r);
    for (uint64_t i = 0; i < count && i < SNAPSHOTS_MAX && !r.failed; i++) {
        struct snapshot *snapshot = &to->snapshots[to->snapshots_count++];
        snapshot->step = (int64_t)get_number(&r);
        snapshot->nonce = get_number(&r);
        snapshot->bits = get(&r, bits_bytes(plan));
        snapshot->sources = get_sources(&r);
    }
    to->sources = get_sources(&r);
    return !r.failed && count <= SNAPSHOTS_MAX;
}

/* ---- rank 0 judges ---- */

struct judge {
    struct snapshots *s;
    const struct folders_ask *ask;
    struct folders *folders;
    uint32_t ranks;
    struct statement *of; /* owned; by rank */
    const struct snapshot **now; /* owned; by rank: what it has of the snapshot that is looked at; or NULL */
};

static void hear(void *ctx, uint32_t rank, const void *data, size_t bytes)
{
    struct judge *j = ctx;
    struct statement *statement = &j->of[rank];
    statement->copy = malloc(bytes + 1);
    if (statement->copy)
        memcpy(statement->copy, data, bytes);
    struct reader reader = {.at = statement->copy, .left = statement->copy ? bytes : 0};
    if (!get_statement(reader, j->s->built->plan, statement))
        *statement = (struct statement){.copy = statement->copy};
}

static void find_leaders(struct judge *j)
{
    for (uint32_t r = 0; r < j->ranks; r++) {
        uint32_t first = 0;
        while (first < r && (!j->of[r].folder || j->of[first].folder != j->of[r].folder))
            first++;
        j->folders->leader[r] = first;
    }
}

static bool has(const struct snapshot *snapshot, uint32_t shard)
{
    return snapshot && snapshot->bits[shard / 8] >> shard % 8 & 1;
}

/* A sender begins with another rank for each shard, so that it is not always the same. */
static uint32_t find_sender(const struct judge *j, uint32_t shard)
{
    for (uint32_t i = 0; i < j->ranks; i++)
        if (has(j->now[(shard + i) % j->ranks], shard))
            return (shard + i) % j->ranks;
    return FOLDERS_NOBODY;
}

/* Whether an earlier shard of the same rank has the same elements: what goes to that goes to this one, too. */
static bool goes_with_another(const struct judge *j, const plan_param *param, uint32_t i)
{
    for (uint32_t k = 0; k < i; k++)
        if (folders_holder(j->s, param, k) == folders_holder(j->s, param, i) &&
            plan_same_part(built_shard(j->s->built, param, k), built_shard(j->s->built, param, i)))
            return true;
    return false;
}

/* "h0/q/weight[0:16,32:64]" */
static void say_lost(struct judge *j, const plan_param *param, uint32_t i, int64_t step)
{
    const plan_tensor *shard = built_shard(j->s->built, param, i);
    struct folders *f = j->folders;
    size_t used = (size_t)snprintf(f->lost, sizeof(f->lost), "%.200s", plan_text(j->s->built->plan, param->name));
    for (uint32_t d = 0; d < shard->rank && used < sizeof(f->lost); d++)
        used += (size_t)snprintf(f->lost + used, sizeof(f->lost) - used, "%s%lld:%lld%s", d ? "," : "[",
                                 (long long)shard->start[d], (long long)(shard->start[d] + shard->shape[d]),
                                 d + 1 == shard->rank ? "]" : "");
    f->lost_step = step;
}

/* Whether somebody has every shard; then who sends what. */
static bool is_complete(struct judge *j, int64_t step)
{
    for (uint32_t p = 0; p < j->s->built->plan->params_count; p++) {
        const plan_param *param = &j->s->built->plan->params[p];
        for (uint32_t i = 0; i < param->shards.count; i++) {
            uint32_t shard = param->shards.first + i, holder = folders_holder(j->s, param, i);
            uint32_t sender = has(j->now[holder], shard) ? holder : find_sender(j, shard);
            if (sender == FOLDERS_NOBODY && j->folders->lost_step < 0)
                say_lost(j, param, i, step);
            if (sender == FOLDERS_NOBODY)
                return false;
            bool sent = sender != holder && !goes_with_another(j, param, i);
            j->folders->sender[shard] = sent ? sender : FOLDERS_NOBODY;
        }
    }
    return true;
}

/* Makes `now` what each rank has of this snapshot. */
static void look_at(struct judge *j, const struct snapshot *snapshot)
{
    for (uint32_t r = 0; r < j->ranks; r++) {
        j->now[r] = NULL;
        for (int i = 0; i < j->of[r].snapshots_count; i++)
            if (j->of[r].snapshots[i].step == snapshot->step && j->of[r].snapshots[i].nonce == snapshot->nonce)
                j->now[r] = &j->of[r].snapshots[i];
    }
}

/* The newest that is older than `limit`, and later than what is wanted at least; NULL: none. */
static const struct snapshot *next_newest(const struct judge *j, const struct snapshot *limit)
{
    const struct snapshot *best = NULL;
    for (uint32_t r = 0; r < j->ranks; r++)
        for (int i = 0; i < j->of[r].snapshots_count; i++) {
            const struct snapshot *one = &j->of[r].snapshots[i];
            bool before = !limit || one->step < limit->step ||
                          (one->step == limit->step && one->nonce < limit->nonce);
            bool better = !best || one->step > best->step || (one->step == best->step && one->nonce > best->nonce);
            if (one->step > j->ask->after && before && better)
                best = one;
        }
    return best;
}

static void choose(struct judge *j)
{
    const struct snapshot *snapshot = next_newest(j, NULL);
    j->folders->step = -1;
    while (snapshot && j->folders->step < 0) {
        look_at(j, snapshot);
        if (is_complete(j, snapshot->step))
            j->folders->step = snapshot->step, j->folders->nonce = snapshot->nonce;
        else
            snapshot = next_newest(j, snapshot);
    }
}

static bool knows_source(const struct folders *f, const weir_checkpoint_source *source)
{
    for (int i = 0; i < f->sources.count; i++)
        if (f->sources.item[i].rank == source->rank && !strcmp(f->sources.item[i].name, source->name))
            return true;
    return false;
}

static void add_sources(struct folders *f, struct reader from)
{
    weir_checkpoint_source source;
    for (uint64_t count = get_number(&from); count && get_source(&from, &source); count--) {
        weir_checkpoint_source *to = knows_source(f, &source) ? NULL : POOL_PUSH(&f->pool, &f->sources);
        if (!to)
            continue;
        *to = source;
        to->name = pool_text(&f->pool, "%s", source.name);
        to->bytes = pool_copy(&f->pool, source.bytes, source.count);
    }
}

/* Gathers the sources that are told for a save, and those of the snapshot for a load. */
static void gather_sources(struct judge *j)
{
    for (uint32_t r = 0; r < j->ranks; r++)
        if (j->ask->kind == ROUND_SAVE)
            add_sources(j->folders, j->of[r].sources);
        else if (j->folders->step >= 0 && j->now[r])
            add_sources(j->folders, j->now[r]->sources);
}

/* ---- what it says to all ---- */

static void put_verdict(struct writer *w, const struct snapshots *s, uint32_t ranks, const struct folders *f)
{
    put_number(w, f->asked);
    put_number(w, (uint64_t)f->step);
    put_number(w, f->nonce);
    put(w, f->leader, ranks * sizeof(*f->leader));
    put(w, f->sender, s->built->plan->shards_count * sizeof(*f->sender));
    put_number(w, (uint64_t)f->sources.count);
    for (int i = 0; i < f->sources.count; i++)
        put_source(w, &f->sources.item[i]);
}

struct verdict {
    struct snapshots *s;
    struct folders *folders;
    bool heard;
};

/* Ranks in it are ranks. */
static bool verdict_fits(const struct snapshots *s, const struct folders *f)
{
    uint32_t ranks = s->built->cluster->env.size;
    bool fits = true;
    for (uint32_t r = 0; r < ranks; r++)
        fits &= f->leader[r] <= r && f->leader[f->leader[r]] == f->leader[r];
    for (uint32_t i = 0; i < s->built->plan->shards_count; i++)
        fits &= f->sender[i] < ranks || f->sender[i] == FOLDERS_NOBODY;
    return fits;
}

static void hear_verdict(void *ctx, uint32_t rank, const void *data, size_t bytes)
{
    struct verdict *v = ctx;
    struct folders *f = v->folders;
    struct reader r = {.at = data, .left = bytes};
    size_t leaders = v->s->built->cluster->env.size * sizeof(*f->leader);
    size_t senders = v->s->built->plan->shards_count * sizeof(*f->sender);
    (void)rank;
    f->asked = get_number(&r);
    f->step = (int64_t)get_number(&r);
    f->nonce = get_number(&r);
    const void *leader = get(&r, leaders), *sender = get(&r, senders);
    if (leader && sender) {
        memcpy(f->leader, leader, leaders);
        memcpy(f->sender, sender, senders);
        add_sources(f, get_sources(&r));
        v->heard = !r.failed && verdict_fits(v->s, f);
    }
}

/* ---- the survey ---- */

static weir_status no_memory(void)
{
    return error_set(WEIR_E_MEMORY, "no memory to find out what snapshots there are");
}

/* On rank 0: all statements become a verdict, in *out. An empty statement tells a failure. */
static void judge_all(struct judge *j, struct writer *out)
{
    struct folders *f = j->folders;
    f->asked = j->ask->nonce;
    f->lost_step = -1;
    find_leaders(j);
    choose(j);
    gather_sources(j);
    put_verdict(out, j->s, j->ranks, f);
    if (out->failed || f->pool.failed)
        out->count = 0;
}

static weir_status survey_first(struct judge *j, const struct writer *mine)
{
    struct cluster *c = j->s->built->cluster;
    struct writer out = {0};
    hear(j, 0, mine->bytes, mine->failed ? 0 : mine->count);
    weir_status status =
        c ? cluster_collect(c, j->ask->kind, mine->bytes, mine->count, hear, j) : WEIR_OK;
    if (!status)
        judge_all(j, &out);
    if (!status && c)
        status = cluster_spread(c, j->ask->kind, out.bytes ? out.bytes : "", out.count, NULL, NULL);
    if (!status && !out.count)
        status = no_memory();
    free(out.bytes);
    return status;
}

static weir_status survey_other(struct judge *j, const struct writer *mine)
{
    struct cluster *c = j->s->built->cluster;
    struct verdict verdict = {.s = j->s, .folders = j->folders};
    weir_status status = cluster_collect(c, j->ask->kind, mine->bytes ? mine->bytes : "",
                                         mine->failed ? 0 : mine->count, NULL, NULL);
    if (!status)
        status = cluster_spread(c, j->ask->kind, NULL, 0, hear_verdict, &verdict);
    return status || verdict.heard ? status : error_set(WEIR_E_PEER, "rank 0 failed while it compared the snapshots of all ranks; its own error says why");
}

weir_status folders_survey(struct snapshots *s, const struct folders_ask *ask, struct folders *f)
{
    struct judge j = {.s = s, .ask = ask, .folders = f, .ranks = s->built->cluster ? s->built->cluster->env.size : 1};
    struct writer mine = {0};
    *f = (struct folders){.step = -1, .lost_step = -1};
    f->leader = POOL_NEW(&f->pool, uint32_t, j.ranks + 1);
    f->sender = POOL_NEW(&f->pool, uint32_t, s->built->plan->shards_count + 1);
    j.of = calloc(j.ranks, sizeof(*j.of));
    j.now = calloc(j.ranks, sizeof(*j.now));
    weir_status status = f->leader && f->sender && j.of && j.now ? WEIR_OK : no_memory();
    if (!status)
        put_statement(&mine, s, ask);
    if (status && s->built->cluster) /* the others would wait */
        s->lost(s, weir_error());
    if (!status)
        status = built_rank(s->built) ? survey_other(&j, &mine) : survey_first(&j, &mine);
    for (uint32_t r = 0; j.of && r < j.ranks; r++)
        free(j.of[r].copy);
    free(j.of);
    free(j.now);
    free(mine.bytes);
    return status;
}

void folders_free(struct folders *f)
{
    pool_free(&f->pool);
    *f = (struct folders){.step = -1};
}

/* ---- who writes what ---- */

uint32_t folders_holder(const struct snapshots *s, const plan_param *param, uint32_t i)
{
    const weir_plan *plan = s->built->plan;
    return s->built->cluster ? plan->spaces[plan_tensor_space(plan, built_shard(s->built, param, i)).i].rank : 0;
}

uint32_t folders_place(const struct snapshots *s, const struct folders *f, uint32_t *count)
{
    uint32_t me = built_rank(s->built), ranks = s->built->cluster ? s->built->cluster->env.size : 1, before = 0;
    *count = 0;
    for (uint32_t r = 0; r < ranks; r++) {
        bool same = f->leader[r] == f->leader[me];
        *count += same;
        before += same && r < me;
    }
    return before;
}

bool folders_writes(const struct snapshots *s, const struct folders *f, const plan_param *param, uint32_t i)
{
    uint32_t here = f->leader[built_rank(s->built)], holders = 0, before = 0;
    for (uint32_t k = 0; k < param->shards.count; k++) {
        bool same = f->leader[folders_holder(s, param, k)] == here &&
                    plan_same_part(built_shard(s->built, param, k), built_shard(s->built, param, i));
        holders += same;
        before += same && k < i;
    }
    return holders && built_owns_tensor(s->built, built_shard(s->built, param, i)) &&
           before == (uint32_t)(param - s->built->plan->params) % holders;
}
