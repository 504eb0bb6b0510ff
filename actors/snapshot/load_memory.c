/* actors/snapshot/load_memory.c: a snapshot in the memory of several hosts becomes the state of a session.
 *
 * Each rank reads what it holds from its own host's folder. The rank that the survey has named sends what is missing there,
 * which it reads from its own folder: a round for each parameter of which something has to be sent, so that no more than one
 * is under way; and none where every host has what it needs, which is so when all of them are still there.
 *
 * Senders prove what they will send before anything is changed, as everybody proves what it will read.
 */
#include <stdlib.h>
#include <string.h>

#include "actors/keep/part.h"
#include "actors/keep/prove.h"
#include "actors/keep/save.h"
#include "actors/snapshot/loading.h"
#include "actors/snapshot/snapshot.h"
#include "graph/base/error.h"

/* ---- which ---- */

/* The step of the newest checkpoint on disk; -1: none. */
static int64_t step_of(const char *dir)
{
    weir_checkpoint *c = dir ? weir_checkpoint_open(dir) : NULL;
    int64_t step = c ? weir_checkpoint_get_info(c)->step : -1;
    weir_checkpoint_close(c);
    return step;
}

static void report_lost(const struct loading *l, const char *dir, int64_t on_disk)
{
    char instead[64] = "";
    if (on_disk >= 0)
        snprintf(instead, sizeof(instead), "step %lld of ", (long long)on_disk);
    else if (!dir)
        snprintf(instead, sizeof(instead), "nothing");
    report_say(l->s->report,
               "weir_session_load: the snapshot of step %lld is not complete any more: no host has %s; loads %s%s",
               (long long)l->folders.lost_step, l->folders.lost, instead, dir ? dir : "");
}

weir_status load_choose(struct loading *l, const char *dir)
{
    int64_t on_disk = built_rank(l->s->built) ? -1 : step_of(dir);
    struct folders_ask ask = {.dir = l->opts->memory, .kind = ROUND_LOAD, .after = on_disk};
    weir_status status = folders_survey(l->s, &ask, &l->folders);
    if (!status && l->folders.step < 0 && l->folders.lost_step >= 0)
        report_lost(l, dir, on_disk);
    return status;
}

weir_status load_open_part(struct loading *l)
{
    char name[KEEP_STEP_NAME_BYTES];
    l->step = l->folders.step;
    l->path = l->path_text;
    snprintf(l->path_text, sizeof(l->path_text), "%s/%s", l->opts->memory, keep_step_name(l->step, name));
    l->from = keep_part_open(l->path);
    if (!l->from || keep_part_nonce(l->from) == l->folders.nonce)
        return WEIR_OK;
    weir_checkpoint_close(l->from);
    l->from = NULL;
    return WEIR_OK;
}

/* ---- what this rank does with a shard ---- */

enum duty { NOTHING, READS, SENDS, GETS };

static enum duty duty_of(const struct loading *l, const plan_param *param, uint32_t i)
{
    uint32_t sender = l->folders.sender[param->shards.first + i];
    bool stands = load_stands(l, param, i);
    if (!plan_tensor_bytes(built_shard(l->s->built, param, i)) || !load_wants(l, param))
        return NOTHING;
    if (sender != FOLDERS_NOBODY)
        return stands ? GETS : sender == built_rank(l->s->built) ? SENDS : NOTHING;
    return stands ? READS : NOTHING;
}

/* Whether something of the parameter has to be sent: all ranks see it alike. */
static bool is_sent(const struct loading *l, const plan_param *param)
{
    bool sent = false;
    for (uint32_t i = 0; i < param->shards.count && load_wants(l, param); i++)
        sent |= l->folders.sender[param->shards.first + i] != FOLDERS_NOBODY &&
                plan_tensor_bytes(built_shard(l->s->built, param, i));
    return sent;
}

static uint64_t kept_bytes(const struct loading *l, const plan_tensor *shard)
{
    return plan_kept_slots(l->s->built->plan, shard) * plan_tensor_bytes(shard);
}

static const weir_checkpoint_tensor *find(const struct loading *l, const plan_param *param)
{
    return l->from ? weir_checkpoint_find(l->from, plan_text(l->s->built->plan, param->name)) : NULL;
}

/* ---- prove ---- */

static weir_status prove(struct loading *l, const plan_param *param, const plan_tensor *shard)
{
    const weir_checkpoint_tensor *tensor = find(l, param);
    weir_view view = built_view(l->s->built, shard, 0);
    weir_status status = WEIR_OK;
    if (!tensor || !keep_part_has(tensor, view.offset, &view.shape))
        return error_set(WEIR_E_IO, "weir_session_load: %s has lost shards of '%s' since it was listed", l->path,
                         plan_text(l->s->built->plan, param->name));
    for (int slot = 0; !status && slot < tensor->slots; slot++)
        status = keep_checkpoint_prove(l->from, tensor, slot, view.offset, &view.shape, view.dtype);
    return status;
}

weir_status load_prove_parts(struct loading *l)
{
    const weir_plan *plan = l->s->built->plan;
    weir_status status = WEIR_OK;
    for (uint32_t p = 0; !status && p < plan->params_count; p++)
        for (uint32_t i = 0; !status && i < plan->params[p].shards.count; i++) {
            const plan_tensor *shard = built_shard(l->s->built, &plan->params[p], i);
            enum duty duty = duty_of(l, &plan->params[p], i);
            if (duty == READS || duty == SENDS)
                status = prove(l, &plan->params[p], shard);
            if (duty != NOTHING && kept_bytes(l, shard) > l->buffer_bytes)
                l->buffer_bytes = kept_bytes(l, shard);
        }
    return status;
}

/* ---- copy ---- */

/* All kept slots, one behind the other. */
static weir_status read_slots(struct loading *l, const plan_param *param, uint32_t i)
{
    const plan_tensor *shard = built_shard(l->s->built, param, i);
    const weir_checkpoint_tensor *tensor = find(l, param);
    weir_view view = built_view(l->s->built, shard, 0);
    weir_status status = WEIR_OK;
    for (uint32_t slot = 0; !status && slot < plan_kept_slots(l->s->built->plan, shard); slot++) {
        char *to = (char *)l->buffer + slot * plan_tensor_bytes(shard);
        status = weir_checkpoint_read(l->from, tensor, (int)slot, view.offset,
                                      &(weir_array){to, view.dtype, view.shape});
    }
    return status;
}

static weir_status put_slots(struct loading *l, const plan_param *param, uint32_t i, const void *data)
{
    const plan_tensor *shard = built_shard(l->s->built, param, i);
    weir_status status = WEIR_OK;
    for (uint32_t slot = 0; !status && slot < plan_kept_slots(l->s->built->plan, shard); slot++)
        status = load_put(l, param, i, slot, (const char *)data + slot * plan_tensor_bytes(shard));
    return status;
}

static weir_status read_here(struct loading *l, const plan_param *param)
{
    weir_status status = WEIR_OK;
    for (uint32_t i = 0; !status && i < param->shards.count; i++)
        if (duty_of(l, param, i) == READS && !(status = read_slots(l, param, i)))
            status = put_slots(l, param, i, l->buffer);
    return status;
}

static weir_status send_shards(struct loading *l, const plan_param *param, uint32_t *awaited)
{
    weir_status status = WEIR_OK;
    for (uint32_t i = 0; !status && i < param->shards.count; i++) {
        enum duty duty = duty_of(l, param, i);
        *awaited += duty == GETS;
        if (duty == SENDS && !(status = read_slots(l, param, i)))
            status = cluster_round_send_to(l->s->built->cluster, folders_holder(l->s, param, i),
                                           l->s->built->plan->shards_count + param->shards.first + i, l->buffer,
                                           kept_bytes(l, built_shard(l->s->built, param, i)));
    }
    return status;
}

static weir_status take_shards(struct loading *l, const plan_param *param)
{
    weir_status status = WEIR_OK;
    for (uint32_t i = 0; !status && i < param->shards.count; i++) {
        uint32_t shard = param->shards.first + i;
        if (duty_of(l, param, i) != GETS)
            continue;
        const struct arrival *arrival =
            cluster_round_find(l->s->built->cluster, l->folders.sender[shard], l->s->built->plan->shards_count + shard);
        if (!arrival)
            return error_set(WEIR_E_PEER, "rank %u sent no shard of %s", l->folders.sender[shard],
                             plan_text(l->s->built->plan, param->name));
        status = put_slots(l, param, i, arrival->data);
    }
    return status;
}

static weir_status exchange(struct loading *l, const plan_param *param)
{
    struct cluster *c = l->s->built->cluster;
    uint32_t awaited = 0;
    cluster_round_begin(c, ROUND_LOAD, ROUND_SURVEY + 1 + (uint32_t)(param - l->s->built->plan->params));
    weir_status status = send_shards(l, param, &awaited);
    if (!status)
        status = cluster_round_end(c, awaited);
    if (!status)
        status = take_shards(l, param);
    cluster_round_close(c);
    return status;
}

weir_status load_copy_parts(struct loading *l)
{
    const weir_plan *plan = l->s->built->plan;
    weir_status status = WEIR_OK;
    for (uint32_t p = 0; !status && p < plan->params_count; p++) {
        status = read_here(l, &plan->params[p]);
        if (!status && is_sent(l, &plan->params[p]))
            status = exchange(l, &plan->params[p]);
    }
    return status;
}
