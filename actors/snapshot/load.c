/* actors/snapshot/load.c: a checkpoint becomes the state of a session.
 *
 * In two parts, so that what cannot be loaded changes nothing:
 *
 *     prove    open; names, types and shapes; the checksums of all bytes that this rank will read; sources restored
 *     copy     every box of elements that this rank holds is read once and goes to all of its shards that have it, into
 *              the slot of its age; readers on other hosts are sent what registers now hold; then the step
 *
 * The checkpoint knows boxes of logical tensors, and so does the plan: who wrote a box and in which layout does not
 * matter. With several ranks each reads what it holds; rounds make sure that all have proven it before one copies, and
 * that all have copied before one goes on. Rank 0 says which folder it is, as the newest may change meanwhile.
 *
 * A snapshot in the memory of several hosts is loaded by the same two parts; where its shards come from is
 * load_memory.c's.
 */
#include <stdlib.h>
#include <string.h>

#include "actors/keep/prove.h"
#include "actors/keep/stored.h"
#include "actors/snapshot/loading.h"
#include "actors/snapshot/snapshot.h"
#include "graph/base/base.h"
#include "graph/base/error.h"
#include "graph/plan/form/text.h"

weir_status load_agree(struct loading *l, weir_status mine, char *word)
{
    uint32_t which = l->opts->parameters | (uint32_t)l->opts->partial << 1 | (uint32_t)!!l->opts->memory << 2;
    return l->s->built->cluster ? cluster_agree(l->s->built->cluster, ROUND_LOAD, which, mine, word) : mine;
}

bool load_wants(const struct loading *l, const plan_param *param)
{
    return (!l->opts->parameters || param->kind == PLAN_KEEP_PARAMETER) && !plan_is_mapped(l->s->built->plan, param);
}

/* ---- prove ---- */

static weir_status open_at(struct loading *l, const char *path)
{
    l->from = weir_checkpoint_open(path);
    if (!l->from)
        return WEIR_E_IO;
    l->path = weir_checkpoint_get_info(l->from)->path;
    l->step = weir_checkpoint_get_info(l->from)->step;
    return WEIR_OK;
}

/* The part behind the last slash of the checkpoint's path, when that is below `dir`; else "". */
static const char *name_below(const char *dir, const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash && strcmp(dir, path) ? slash + 1 : "";
}

static weir_status load_open(struct loading *l, const char *dir)
{
    bool first = built_rank(l->s->built) == 0;
    char word[ROUND_NOTE_BYTES] = "";
    weir_status status = first ? open_at(l, dir) : WEIR_OK;
    if (!status && first)
        snprintf(word, sizeof(word), "%s", name_below(dir, l->path));
    status = load_agree(l, status, word);
    if (status || first)
        return status;
    snprintf(l->path_text, sizeof(l->path_text), "%s%s%s", dir, *word ? "/" : "", word);
    open_at(l, l->path_text);
    return WEIR_OK; /* whether it is open is part of what is agreed on next */
}

static bool ends_with(const char *name, const char *end)
{
    size_t length = strlen(name), end_length = strlen(end);
    return length > end_length && !strcmp(name + length - end_length, end);
}

/* Whether the session or the checkpoint may be without it: the scale of a loss is of one precision, and the count of
 * skipped steps of a run that clips. */
static bool may_lack(const char *name)
{
    return !strncmp(name, PLAN_LOSS_SCALE, strlen(PLAN_LOSS_SCALE)) || ends_with(name, PLAN_SKIPPED);
}

/* ---- counts of updates that the checkpoint has not ---- */

/* Whether the value counts updates, and an older build has saved the states that they are in without it. */
static bool lacks_count(const struct loading *l, const plan_param *param)
{
    const char *name = plan_text(l->s->built->plan, param->name);
    char mean[PLAN_TEXT_BYTES];
    if (!l->from || !load_wants(l, param) || !ends_with(name, PLAN_ADAMW_UPDATES) ||
        weir_checkpoint_find(l->from, name))
        return false;
    int length = (int)(strlen(name) - strlen("updates"));
    return snprintf(mean, sizeof(mean), "%.*sm", length, name) < (int)sizeof(mean) && weir_checkpoint_find(l->from, mean);
}

/* Steps of the run that are in no state, as the build that saved it has counted them. */
static int64_t steps_left_out(const struct loading *l)
{
    const weir_checkpoint_tensor *t = weir_checkpoint_find(l->from, PLAN_LOSS_SCALE ":loss_scale.left_out");
    float count = 0;
    weir_array value = {&count, WEIR_F32, {0}};
    bool ok = t && !t->shape.rank && t->dtype == WEIR_F32 && !weir_checkpoint_read(l->from, t, 0, NULL, &value);
    return ok && count > 0 && count < (float)INT32_MAX ? (int64_t)count : 0;
}

static int32_t updates_of(const struct loading *l)
{
    int64_t updates = l->step - steps_left_out(l);
    return updates < 0 ? 0 : updates > INT32_MAX ? INT32_MAX : (int32_t)updates;
}

/* ---- names ---- */

enum { NAMED = 4 }; /* others that a sentence names before it counts */

/* Puts the name behind those that the list has, or counts it. */
static void list_name(char *list, size_t bytes, int *count, const char *name)
{
    size_t used = strlen(list);
    if ((*count)++ < NAMED)
        snprintf(list + used, bytes - used, "%s'%s'", used ? ", " : "; nor ", name);
}

static const char *list_end(char *list, size_t bytes, int count)
{
    size_t used = strlen(list);
    if (count > NAMED)
        snprintf(list + used, bytes - used, " and %d more", count - NAMED);
    return list;
}

/* "; nor 'b', 'c' and 3 more": what the checkpoint lacks besides. */
static const char *others_absent(const struct loading *l, const plan_param *first, char *list, size_t bytes)
{
    const weir_plan *plan = l->s->built->plan;
    int count = 0;
    *list = '\0';
    for (const plan_param *p = first + 1; p < plan->params + plan->params_count; p++) {
        const char *name = plan_text(plan, p->name);
        if (load_wants(l, p) && !may_lack(name) && !lacks_count(l, p) && !weir_checkpoint_find(l->from, name))
            list_name(list, bytes, &count, name);
    }
    return list_end(list, bytes, count);
}

/* Whether the value is in the checkpoint, and alike. */
static weir_status check_param(const struct loading *l, const plan_param *param)
{
    const plan_tensor *shard = built_shard(l->s->built, param, 0);
    const char *name = plan_text(l->s->built->plan, param->name);
    const weir_checkpoint_tensor *tensor = weir_checkpoint_find(l->from, name);
    weir_view view = built_view(l->s->built, shard, 0);
    char here[PLAN_TEXT_BYTES], there[PLAN_TEXT_BYTES], shape[128], more[400];
    snprintf(here, sizeof(here), "%s %s", weir_dtype_name(view.dtype), shape_text(&view.global, shape, sizeof(shape)));
    if (!tensor)
        return l->opts->partial || may_lack(name) || lacks_count(l, param)
                   ? WEIR_OK
                   : error_set(WEIR_E_ARGUMENT, "weir_session_load: %s has no '%s', which is %s here%s", l->path, name,
                               here, others_absent(l, param, more, sizeof(more)));
    if (!keep_stored_reads_as(l->from, tensor, view.dtype, &view.global))
        return error_set(WEIR_E_ARGUMENT, "weir_session_load: '%s' is %s here, and %s in %s", name, here,
                         keep_stored_text(tensor, there, sizeof(there)), l->path);
    uint32_t slots = plan_kept_slots(l->s->built->plan, shard);
    if ((uint32_t)tensor->slots != slots)
        return error_set(WEIR_E_ARGUMENT, "weir_session_load: of '%s' %u values are kept here, and %d in %s", name, slots,
                         tensor->slots, l->path);
    return WEIR_OK;
}

static int by_text(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* The names of the plan's parameters, sorted; owned by the caller. NULL: no memory. */
static const char **known_names(const weir_plan *plan)
{
    const char **names = calloc(plan->params_count + (size_t)1, sizeof(*names));
    for (uint32_t p = 0; names && p < plan->params_count; p++)
        names[p] = plan_text(plan, plan->params[p].name);
    if (names)
        qsort(names, plan->params_count, sizeof(*names), by_text);
    return names;
}

/* Whether it is the checkpoint's alone, though it is asked for. */
static bool is_unknown(const struct loading *l, const char *const *known, const weir_checkpoint_tensor *tensor)
{
    const bool wanted = !l->opts->parameters || tensor->kind == WEIR_PARAMETER;
    return wanted && !may_lack(tensor->name) &&
           !bsearch(&tensor->name, known, l->s->built->plan->params_count, sizeof(*known), by_text);
}

/* The session has all that is in the checkpoint. */
static weir_status check_none_left(const struct loading *l)
{
    const char *first = NULL;
    const char **known = known_names(l->s->built->plan);
    char more[400] = "";
    int count = 0;
    for (int t = 0; t < weir_checkpoint_get_info(l->from)->tensors; t++) {
        const weir_checkpoint_tensor *tensor = weir_checkpoint_get_tensor(l->from, t);
        if (!known || !is_unknown(l, known, tensor))
            continue;
        if (first)
            list_name(more, sizeof(more), &count, tensor->name);
        else
            first = tensor->name;
    }
    free(known);
    if (!known)
        return error_set(WEIR_E_MEMORY, "weir_session_load: no memory to compare names");
    return first ? error_set(WEIR_E_ARGUMENT, "weir_session_load: the session has no '%s', which is in %s%s", first,
                             l->path, list_end(more, sizeof(more), count))
                 : WEIR_OK;
}

static weir_status check_names(const struct loading *l)
{
    const weir_plan *plan = l->s->built->plan;
    weir_status status = WEIR_OK;
    for (uint32_t p = 0; !status && p < plan->params_count; p++)
        if (load_wants(l, &plan->params[p]))
            status = check_param(l, &plan->params[p]);
    return status || l->opts->partial ? status : check_none_left(l);
}

/* If shards of this rank have the same elements, the first one stands for all. */
bool load_stands(const struct loading *l, const plan_param *param, uint32_t i)
{
    const struct snapshots *s = l->s;
    if (!built_owns_tensor(s->built, built_shard(s->built, param, i)))
        return false;
    for (uint32_t k = 0; k < i; k++)
        if (built_owns_tensor(s->built, built_shard(s->built, param, k)) &&
            plan_same_part(built_shard(s->built, param, i), built_shard(s->built, param, k)))
            return false;
    return true;
}

typedef weir_status (*box_fn)(struct loading *l, const plan_param *param, uint32_t shard,
                              const weir_checkpoint_tensor *tensor);

/* Calls the function for every box of elements that this rank holds and the checkpoint has. */
static weir_status for_boxes(struct loading *l, box_fn fn)
{
    const weir_plan *plan = l->s->built->plan;
    weir_status status = WEIR_OK;
    for (uint32_t p = 0; !status && p < plan->params_count; p++) {
        const plan_param *param = &plan->params[p];
        const weir_checkpoint_tensor *tensor =
            load_wants(l, param) ? weir_checkpoint_find(l->from, plan_text(plan, param->name)) : NULL;
        for (uint32_t i = 0; tensor && !status && i < param->shards.count; i++)
            if (load_stands(l, param, i))
                status = fn(l, param, i, tensor);
    }
    return status;
}

/* Also finds how large the buffer has to be. */
static weir_status prove_box(struct loading *l, const plan_param *param, uint32_t i,
                             const weir_checkpoint_tensor *tensor)
{
    const plan_tensor *shard = built_shard(l->s->built, param, i);
    weir_view view = built_view(l->s->built, shard, 0);
    weir_status status = WEIR_OK;
    for (int slot = 0; !status && slot < tensor->slots; slot++)
        status = keep_checkpoint_prove(l->from, tensor, slot, view.offset, &view.shape, view.dtype);
    if (plan_tensor_bytes(shard) > l->buffer_bytes)
        l->buffer_bytes = plan_tensor_bytes(shard);
    return status;
}

static const weir_checkpoint_source *find_source(const struct loading *l, const char *name)
{
    bool snapshot = load_is_snapshot(l);
    int count = snapshot ? l->folders.sources.count : weir_checkpoint_get_info(l->from)->sources;
    for (int i = 0; i < count; i++) {
        const weir_checkpoint_source *source =
            snapshot ? &l->folders.sources.item[i] : weir_checkpoint_get_source(l->from, i);
        if (!strcmp(source->name, name))
            return source;
    }
    return NULL;
}

static weir_status restore_source(struct loading *l, uint32_t h)
{
    const plan_host *host = &l->s->built->plan->hosts[h];
    const char *name = plan_text(l->s->built->plan, host->name), *file = plan_text(l->s->built->plan, host->file);
    const callback_binding *bound = &(*l->s->bindings)[h];
    const weir_checkpoint_source *source = find_source(l, name);
    char why[512] = "";
    if (!source)
        return WEIR_OK;
    weir_status status = bound->restore(bound->ctx, l->step, source->bytes, source->count, why, sizeof(why));
    why[sizeof(why) - 1] = 0;
    if (status)
        return error_set(status, "%s:%u: the source '%s' cannot go on from %s: %s", file, host->line, name, l->path,
                         *why ? why : weir_status_name(status));
    if (*why)
        report_say(l->s->report, "%s:%u: the source '%s' goes on from %s: %s", file, host->line, name, l->path, why);
    return WEIR_OK;
}

static weir_status restore_sources(struct loading *l)
{
    const weir_plan *plan = l->s->built->plan;
    weir_status status = WEIR_OK;
    for (uint32_t h = 0; !status && !l->opts->parameters && h < plan->hosts_count; h++)
        if (plan->hosts[h].kind == PLAN_SOURCE && (*l->s->bindings)[h].restore && snapshot_source_here(l->s, h))
            status = restore_source(l, h);
    return status;
}

static weir_status check_step(const struct loading *l)
{
    if (l->opts->parameters || l->step <= INT64_MAX / l->s->built->plan->micro_batches)
        return WEIR_OK;
    return error_set(WEIR_E_ARGUMENT, "weir_session_load: %s has the step %lld, which is too large: times the plan's "
                     "micro-batches it must fit in 63 bits", l->path, (long long)l->step);
}

/* The names in a part were looked at when it was chosen. */
static weir_status prove_all(struct loading *l)
{
    if (load_is_snapshot(l))
        return load_prove_parts(l);
    weir_status status = l->from ? check_names(l) : WEIR_E_IO;
    return status ? status : for_boxes(l, prove_box);
}

static weir_status load_prove(struct loading *l)
{
    weir_status status = prove_all(l);
    if (!status)
        status = check_step(l);
    if (!status)
        status = restore_sources(l);
    l->buffer = malloc(l->buffer_bytes + 1);
    l->shared = calloc(l->s->built->plan->regsts_count + (size_t)1, sizeof(*l->shared));
    if (!status && (!l->shared || !l->buffer))
        status = error_set(WEIR_E_MEMORY, "weir_session_load: no memory");
    return load_agree(l, status, NULL);
}

/* ---- copy ---- */

weir_status load_put(const struct loading *l, const plan_param *param, uint32_t i, uint32_t slot, const void *data)
{
    struct snapshots *s = l->s;
    weir_status status = WEIR_OK;
    for (uint32_t k = i; !status && k < param->shards.count; k++) {
        const plan_tensor *shard = built_shard(s->built, param, k);
        if (!built_owns_tensor(s->built, shard) || !plan_same_part(shard, built_shard(s->built, param, i)))
            continue;
        uint64_t bytes = plan_tensor_bytes(shard);
        if (bytes)
            status = s->built->arenas[plan_tensor_space(s->built->plan, shard).i].device->copy_in(
                arena_tensor(s->built->arenas, s->built->plan, shard, built_kept_slot(s->built, shard, slot)), data, bytes);
        if (shard->home == PLAN_IN_REGST)
            l->shared[shard->owner] = true;
    }
    return status;
}

static weir_status copy_box(struct loading *l, const plan_param *param, uint32_t i,
                            const weir_checkpoint_tensor *tensor)
{
    weir_view view = built_view(l->s->built, built_shard(l->s->built, param, i), 0);
    weir_status status = WEIR_OK;
    for (int slot = 0; !status && slot < tensor->slots; slot++) {
        weir_array array = {l->buffer, view.dtype, view.shape};
        if (weir_shape_count(&view.shape))
            status = weir_checkpoint_read(l->from, tensor, slot, view.offset, &array);
        if (!status)
            status = load_put(l, param, i, (uint32_t)slot, l->buffer);
    }
    return status;
}

static weir_status put_counts(const struct loading *l)
{
    const weir_plan *plan = l->s->built->plan;
    const int32_t updates = l->from ? updates_of(l) : 0;
    weir_status status = WEIR_OK;
    bool told = false;
    for (uint32_t p = 0; !status && p < plan->params_count; p++) {
        if (!lacks_count(l, &plan->params[p]))
            continue;
        if (!told && !built_rank(l->s->built))
            report_say(l->s->report, "weir_session_load: %s does not say how many updates are in AdamW's states, as "
                       "older builds did not; %d are assumed, which is its step less those that it skipped", l->path,
                       updates);
        told = true;
        for (uint32_t i = 0; !status && i < plan->params[p].shards.count; i++)
            if (load_stands(l, &plan->params[p], i))
                status = load_put(l, &plan->params[p], i, 0, &updates);
    }
    return status;
}

/* Ranks that cannot see a register get what is in it now. */
static weir_status share_all(struct loading *l)
{
    weir_status status = WEIR_OK;
    for (uint32_t r = 0; l->s->built->cluster && !status && r < l->s->built->plan->regsts_count; r++)
        if (l->shared[r])
            status = cluster_share_regst(l->s->built->cluster, r);
    return status;
}

static weir_status load_copy(struct loading *l)
{
    bool snapshot = load_is_snapshot(l);
    weir_status status = snapshot ? load_copy_parts(l) : for_boxes(l, copy_box);
    if (!status && !snapshot)
        status = put_counts(l);
    if (!status)
        status = share_all(l);
    if (status) {
        char sentence[ROUND_NOTE_BYTES];
        snprintf(sentence, sizeof(sentence), "%s", weir_error());
        l->s->half_loaded(l->s, status, sentence);
        return ending_failure(l->s->ending);
    }
    if (!l->opts->parameters && l->step >= 0)
        l->s->set_step(l->s, l->step);
    return load_agree(l, WEIR_OK, NULL);
}

static weir_status load_all(struct loading *l, const char *dir)
{
    struct cluster *c = l->s->built->cluster;
    weir_status status = l->opts->memory ? load_choose(l, dir) : WEIR_OK;
    if (!status && !dir && !load_is_snapshot(l))
        return WEIR_OK;
    if (!status)
        status = load_is_snapshot(l) ? load_open_part(l) : load_open(l, dir);
    if (c)
        cluster_sharing(c, true); /* before the mark behind which the first may copy */
    if (!status)
        status = load_prove(l);
    if (!status)
        status = load_copy(l);
    if (c)
        cluster_sharing(c, false);
    return status;
}

weir_status snapshot_load(struct snapshots *s, const char *dir, const weir_load_opts *opts)
{
    struct loading l = {.s = s, .opts = opts, .folders.step = -1};
    if (dir ? !*dir : !opts->memory)
        return error_set(WEIR_E_ARGUMENT, "%s:%d: weir_session_load: there is no folder", opts->src.file, opts->src.line);
    snapshot_await(s); /* the newest may be what is still being written */
    weir_status status = load_all(&l, dir);
    weir_checkpoint_close(l.from);
    free(l.buffer);
    free(l.shared);
    folders_free(&l.folders);
    return status;
}
