/* actors/session/params.c: values that do not come from a kernel: what parameters and states start as, and reading and
 * writing logical parameters between runs.
 *
 * All three walk a shard row by row, where a row is a run along the last dimension: it is contiguous in the shard and
 * in the logical tensor, so it is what is copied, and the logical index of its first element is what an initial value
 * needs.
 */
#include <stdlib.h>
#include <string.h>

#include "actors/cluster/cluster.h"
#include "actors/session/session.h"
#include "graph/base/base.h"
#include "graph/base/dtype.h"
#include "graph/base/error.h"
#include "graph/base/names.h"

struct rows {
    const plan_tensor *tensor;
    int64_t length;               /* elements of a row */
    int64_t count, done;          /* rows */
    int64_t index[WEIR_DIMS_MAX]; /* of the row within the shard */
};

static struct rows rows_of(const plan_tensor *tensor)
{
    struct rows rows = {.tensor = tensor, .length = 1, .count = 1};
    if (tensor->rank)
        rows.length = tensor->shape[tensor->rank - 1];
    for (uint32_t d = 0; d + 1 < tensor->rank; d++)
        rows.count *= tensor->shape[d];
    if (!rows.length)
        rows.count = 0;
    return rows;
}

/* Row-major index in the logical tensor of the row's first element. */
static int64_t rows_logical(const struct rows *rows)
{
    const plan_tensor *tensor = rows->tensor;
    int64_t logical = 0;
    for (uint32_t d = 0; d < tensor->rank; d++)
        logical = logical * tensor->global[d] + tensor->start[d] + rows->index[d];
    return logical;
}

/* Byte offset of the row within the shard. */
static uint64_t rows_offset(const struct rows *rows)
{
    return (uint64_t)(rows->done * rows->length) * weir_dtype_bytes((weir_dtype)rows->tensor->dtype);
}

static void rows_next(struct rows *rows)
{
    rows->done++;
    for (int d = (int)rows->tensor->rank - 2; d >= 0; d--) {
        if (++rows->index[d] < rows->tensor->shape[d])
            return;
        rows->index[d] = 0;
    }
}

/* ---- initial values ---- */

static float init_value(const plan_init *init, int64_t index)
{
    switch (init->kind) {
    case WEIR_INIT_VALUE:
        return (float)init->a;
    case WEIR_INIT_NORMAL:
        return (float)(init->a * weir_random_normal(init->key, (uint64_t)index));
    case WEIR_INIT_UNIFORM:
        return (float)(init->a + (init->b - init->a) * weir_random_uniform(init->key, (uint64_t)index));
    default:
        return 0;
    }
}

static void fill_row(const plan_init *init, weir_dtype dtype, int64_t first, int64_t length, void *row)
{
    for (int64_t i = 0; i < length; i++) {
        if (weir_dtype_real(dtype))
            dtype_set(dtype, row, i, (double)init_value(init, first + i));
        else
            dtype_set(dtype, row, i, init->kind == WEIR_INIT_VALUE ? init->a : 0);
    }
}

static weir_status fill_tensor(struct weir_session *s, const plan_init *init)
{
    const plan_tensor *tensor = &s->plan->tensors[init->tensor.i];
    const struct arena *arena = &s->built.arenas[plan_tensor_space(s->plan, tensor).i];
    struct rows rows = rows_of(tensor);
    uint64_t bytes = (uint64_t)rows.length * weir_dtype_bytes((weir_dtype)tensor->dtype);
    void *row = malloc(bytes + 1);
    if (!row)
        return error_set(WEIR_E_MEMORY, "no memory to fill %s", plan_text(s->plan, tensor->name));
    weir_status status = WEIR_OK;
    for (; !status && rows.done < rows.count; rows_next(&rows)) {
        fill_row(init, (weir_dtype)tensor->dtype, rows_logical(&rows), rows.length, row);
        for (uint32_t slot = 0; !status && slot < plan_kept_slots(s->plan, tensor); slot++)
            status = arena->device->copy_in(arena_tensor(s->built.arenas, s->plan, tensor, slot) + rows_offset(&rows), row,
                                            bytes);
    }
    free(row);
    return status;
}

/* Whether the file that a session maps has the value already. */
static bool is_mapped(const struct weir_session *s, const plan_init *init)
{
    return s->plan->spaces[plan_tensor_space(s->plan, &s->plan->tensors[init->tensor.i]).i].kind == WEIR_MAPPED;
}

weir_status session_fill(struct weir_session *s)
{
    weir_status status = WEIR_OK;
    for (uint32_t i = 0; !status && i < s->plan->inits_count; i++)
        if (s->plan->inits[i].kind != WEIR_INIT_ZERO && /* arenas start as zeros */
            built_owns_tensor(&s->built, &s->plan->tensors[s->plan->inits[i].tensor.i]) && !is_mapped(s, &s->plan->inits[i]))
            status = fill_tensor(s, &s->plan->inits[i]);
    return status;
}

/* ---- read and write ---- */

weir_status session_find_param(const struct weir_session *s, const char *verb, const char *name,
                               const plan_param **param)
{
    for (uint32_t i = 0; name && i < s->plan->params_count; i++) {
        *param = &s->plan->params[i];
        if (!strcmp(plan_text(s->plan, (*param)->name), name))
            return WEIR_OK;
    }
    struct names names = {.wanted = name};
    char text[NAMES_TEXT_BYTES];
    for (uint32_t i = 0; i < s->plan->params_count; i++)
        names_add(&names, plan_text(s->plan, s->plan->params[i].name));
    return error_set(WEIR_E_ARGUMENT, "weir_session_%s: the plan has no parameter '%s'%s", verb, name ? name : "",
                     names_text(&names, text, sizeof(text)));
}

weir_status session_check_array(const char *what, const plan_tensor *tensor, const weir_array *value)
{
    char given[128] = "of a wrong rank", wanted[128];
    weir_shape shape = {.rank = (int)tensor->rank};
    memcpy(shape.dim, tensor->global, sizeof(shape.dim));
    if (!value || (!value->data && weir_shape_count(&shape)))
        return error_set(WEIR_E_ARGUMENT, "%s: no array is given", what);
    bool readable = value->shape.rank >= 0 && value->shape.rank <= WEIR_DIMS_MAX;
    if (readable && value->dtype == (weir_dtype)tensor->dtype && weir_shape_equal(&value->shape, &shape))
        return WEIR_OK;
    if (readable)
        shape_text(&value->shape, given, sizeof(given));
    return error_set(WEIR_E_ARGUMENT, "%s is %s %s, the array given is %s %s", what,
                     weir_dtype_name((weir_dtype)tensor->dtype), shape_text(&shape, wanted, sizeof(wanted)),
                     weir_dtype_name(value->dtype), given);
}

/* The slot that a reader that comes now would see. */
static uint32_t newest_slot(const struct weir_session *s, const plan_tensor *tensor)
{
    return built_kept_slot(&s->built, tensor, plan_kept_slots(s->plan, tensor) - 1);
}

static weir_status read_shard(const struct weir_session *s, const plan_tensor *tensor, char *to)
{
    const struct arena *arena = &s->built.arenas[plan_tensor_space(s->plan, tensor).i];
    const char *from = arena_tensor(s->built.arenas, s->plan, tensor, newest_slot(s, tensor));
    uint64_t item = weir_dtype_bytes((weir_dtype)tensor->dtype);
    weir_status status = WEIR_OK;
    for (struct rows rows = rows_of(tensor); !status && rows.done < rows.count; rows_next(&rows))
        status = arena->device->copy_out(to + (uint64_t)rows_logical(&rows) * item, from + rows_offset(&rows),
                                         (uint64_t)rows.length * item);
    return status;
}

/* Into every slot: with several, those that are published and not yet read are all to show the new value. */
static weir_status write_shard(const struct weir_session *s, const plan_tensor *tensor, const char *from)
{
    const struct arena *arena = &s->built.arenas[plan_tensor_space(s->plan, tensor).i];
    uint32_t slots = tensor->home == PLAN_IN_REGST ? s->plan->regsts[tensor->owner].slots : 1;
    uint64_t item = weir_dtype_bytes((weir_dtype)tensor->dtype);
    weir_status status = WEIR_OK;
    for (struct rows rows = rows_of(tensor); !status && rows.done < rows.count; rows_next(&rows))
        for (uint32_t slot = 0; !status && slot < slots; slot++)
            status = arena->device->copy_in(arena_tensor(s->built.arenas, s->plan, tensor, slot) + rows_offset(&rows),
                                            from + (uint64_t)rows_logical(&rows) * item, (uint64_t)rows.length * item);
    return status;
}

/* Checks of read and write before they touch anything. A session that has failed can be read. */
static weir_status param_open(const struct weir_session *s, const char *verb, const char *name, const plan_param **param)
{
    weir_status status = session_check_still(s, verb);
    return status ? status : session_find_param(s, verb, name, param);
}

static weir_status check_fits(const struct weir_session *s, const char *verb, const plan_param *param,
                              const weir_array *value)
{
    char what[256];
    snprintf(what, sizeof(what), "weir_session_%s: '%.200s'", verb, plan_text(s->plan, param->name));
    return session_check_array(what, built_shard(&s->built, param, 0), value);
}

/* ---- after a failure ---- */

/* Whether this rank holds the elements of shard i, there or in a shard of its own. */
static bool elements_here(const struct weir_session *s, const plan_param *param, uint32_t i)
{
    for (uint32_t k = 0; k < param->shards.count; k++)
        if (built_owns_tensor(&s->built, built_shard(&s->built, param, k)) &&
            plan_same_part(built_shard(&s->built, param, i), built_shard(&s->built, param, k)))
            return true;
    return false;
}

/* A shard that is not here cannot be had any more; and what was being changed when its kernel failed is nothing. */
static weir_status check_readable(const struct weir_session *s, const plan_param *param)
{
    const char *name = plan_text(s->plan, param->name);
    for (uint32_t i = 0; i < param->shards.count; i++) {
        const plan_tensor *shard = built_shard(&s->built, param, i);
        const plan_space *space = &s->plan->spaces[plan_tensor_space(s->plan, shard).i];
        if (!elements_here(s, param, i))
            return error_set(WEIR_E_PEER,
                             "weir_session_read: a part of '%s' is on %s of rank %u, which cannot be asked any more, as "
                             "the session has failed; weir_session_visit() gives what is here",
                             name, plan_text(s->plan, space->name), space->rank);
        if (built_owns_tensor(&s->built, shard) && session_torn(s, shard))
            return error_set(WEIR_E_KERNEL, "weir_session_read: the update of '%s' on %s failed half-way: %s", name,
                             plan_text(s->plan, space->name), s->ending.failure.text);
    }
    return WEIR_OK;
}

/* ---- with other ranks ---- */

static weir_status send_shard(struct weir_session *s, uint32_t shard)
{
    const plan_tensor *tensor = &s->plan->tensors[s->plan->shards[shard].i];
    const struct arena *arena = &s->built.arenas[plan_tensor_space(s->plan, tensor).i];
    uint64_t bytes = plan_tensor_bytes(tensor);
    void *copy = malloc(bytes + 1);
    if (!copy)
        return error_set(WEIR_E_MEMORY, "no memory for a shard of %llu bytes", (unsigned long long)bytes);
    weir_status status = WEIR_OK;
    if (bytes)
        status = arena->device->copy_out(copy, arena_tensor(s->built.arenas, s->plan, tensor, newest_slot(s, tensor)), bytes);
    if (!status)
        status = cluster_round_send(s->built.cluster, shard, copy, bytes);
    free(copy);
    return status;
}

/* Copies what came of another rank's shard to its rows. */
static weir_status take_shard(struct weir_session *s, uint32_t shard, char *to)
{
    const plan_tensor *tensor = &s->plan->tensors[s->plan->shards[shard].i];
    uint32_t rank = s->plan->spaces[plan_tensor_space(s->plan, tensor).i].rank;
    const struct arrival *arrival = cluster_round_find(s->built.cluster, rank, shard);
    uint64_t item = weir_dtype_bytes((weir_dtype)tensor->dtype);
    if (!arrival)
        return error_set(WEIR_E_PEER, "rank %u sent no shard of %s", rank,
                         plan_text(s->plan, tensor->name));
    for (struct rows rows = rows_of(tensor); rows.done < rows.count; rows_next(&rows))
        memcpy(to + (uint64_t)rows_logical(&rows) * item, arrival->data + rows_offset(&rows),
               (uint64_t)rows.length * item);
    return WEIR_OK;
}

/* An error in sending to the other ranks ends the session for all. */
static void give_up(struct weir_session *s, weir_status status)
{
    if (status && s->built.cluster)
        session_fail_peer(s, s->built.cluster->env.rank, "%s", weir_error());
}

/* Every rank sends what it owns to all, so that all have the whole; also one whose array does not fit (`mine`), which
 * fails for all: none waits for one that has turned back. */
static weir_status gather_shards(struct weir_session *s, const plan_param *param, weir_status mine, char *to)
{
    weir_status status = WEIR_OK;
    uint32_t missing = 0;
    cluster_round_begin(s->built.cluster, ROUND_READ, (uint32_t)(param - s->plan->params));
    cluster_round_say(s->built.cluster, mine, NULL);
    for (uint32_t i = 0; !status && i < param->shards.count; i++) {
        if (built_shard_again(&s->built, param, i))
            continue;
        bool own = built_owns_tensor(&s->built, built_shard(&s->built, param, i));
        missing += !own;
        if (own)
            status = send_shard(s, param->shards.first + i);
    }
    give_up(s, status); /* without this rank's mark the others would wait */
    if (!status)
        status = cluster_round_end(s->built.cluster, missing);
    if (!status)
        status = cluster_round_said(s->built.cluster, mine, NULL);
    for (uint32_t i = 0; !status && to && i < param->shards.count; i++)
        if (!built_shard_again(&s->built, param, i) && !built_owns_tensor(&s->built, built_shard(&s->built, param, i)))
            status = take_shard(s, param->shards.first + i, to);
    cluster_round_close(s->built.cluster);
    return status;
}

/* Alone `mine`. With other ranks all are at rest and have seen what was sent before, and fail when the array of one does
 * not fit. */
static weir_status all_wait(struct weir_session *s, const plan_param *param, weir_status mine)
{
    struct cluster *c = s->built.cluster;
    return c ? cluster_agree(c, ROUND_WRITE, (uint32_t)(param - s->plan->params), mine, NULL) : mine;
}

weir_status weir_session_read(weir_session *s, const char *name, weir_array *value)
{
    const plan_param *param = NULL;
    weir_status status = param_open(s, "read", name, &param);
    if (status)
        return status;
    bool failed = ending_failed(&s->ending);
    status = check_fits(s, "read", param, value);
    if (s->built.cluster && !failed)
        status = gather_shards(s, param, status, status ? NULL : value->data);
    else if (!status && failed)
        status = check_readable(s, param);
    for (uint32_t i = 0; !status && i < param->shards.count; i++)
        if (built_owns_tensor(&s->built, built_shard(&s->built, param, i)))
            status = read_shard(s, built_shard(&s->built, param, i), value->data);
    return status;
}

/* Ranks that cannot see the register get what is in it now: once, when the last of its shards has been written. */
static weir_status share_shard(struct weir_session *s, const plan_param *param, uint32_t i)
{
    const plan_tensor *tensor = built_shard(&s->built, param, i);
    if (!s->built.cluster || tensor->home != PLAN_IN_REGST)
        return WEIR_OK;
    for (uint32_t k = i + 1; k < param->shards.count; k++) {
        const plan_tensor *other = built_shard(&s->built, param, k);
        if (other->home == PLAN_IN_REGST && other->owner == tensor->owner)
            return WEIR_OK;
    }
    return cluster_share_regst(s->built.cluster, tensor->owner);
}

weir_status weir_session_write(weir_session *s, const char *name, const weir_array *value)
{
    const plan_param *param = NULL;
    weir_status status = caller_check_outside(s, "write");
    if (!status)
        status = ending_failure(&s->ending);
    if (!status)
        status = param_open(s, "write", name, &param);
    if (status)
        return status;
    if (plan_is_mapped(s->plan, param))
        return error_set(WEIR_E_ARGUMENT, "weir_session_write: '%s' is mapped from a file, which is only read", name);
    if (param->frozen)
        snapshot_await(&s->snapshots); /* which writes it from where it lies */
    if (s->built.cluster)
        cluster_sharing(s->built.cluster, true);
    status = check_fits(s, "write", param, value);
    status = all_wait(s, param, status); /* another rank may still read it in its last step */
    for (uint32_t i = 0; !status && i < param->shards.count; i++) {
        const plan_tensor *tensor = built_shard(&s->built, param, i);
        if (!built_owns_tensor(&s->built, tensor))
            continue;
        status = write_shard(s, tensor, value->data);
        if (!status)
            status = share_shard(s, param, i);
        give_up(s, status);
    }
    if (!status)
        status = all_wait(s, param, WEIR_OK);
    if (s->built.cluster)
        cluster_sharing(s->built.cluster, false);
    return status;
}
