/* actors/session/state.c: what lives from step to step, seen from outside: which step it is, what there is, and visits
 * to each shard in place.
 *
 * How far a value is follows from the actor that changes it: its step is the number of steps that it has done, for this
 * value alone. At rest all have done the same. A session that has failed stops between two firings of each actor, so
 * every value is one that some step left, but for those of the actor that failed: they are torn. Its worker's flight
 * recorder knows which that was. On a queue that ran ahead, firings that were launched and are not known to be done do
 * not count as done, and what they change is torn.
 */
#include <stdlib.h>
#include <string.h>

#include "actors/cluster/cluster.h"
#include "actors/session/session.h"
#include "graph/base/error.h"
#include "graph/base/opts.h"

_Static_assert((int)WEIR_PARAMETER == (int)PLAN_KEEP_PARAMETER &&
                   (int)WEIR_OPTIMIZER_STATE == (int)PLAN_KEEP_OPTIMIZER && (int)WEIR_STATE == (int)PLAN_KEEP_STATE,
               "public and stored kinds are the same numbers");

/* ---- steps ---- */

/* Launches of the actor that were under way when it stopped. */
static int64_t under_way(const struct actor *actor)
{
    const struct ahead_launch *launch;
    int64_t count = 0;
    for (uint64_t n = 0; actor->ahead && (launch = ahead_under_way(actor->ahead->queue, n)); n++)
        count += launch->actor == actor;
    return count;
}

/* Steps that the actor has done, all firings of them. */
static int64_t steps_of(const struct actor *actor)
{
    int64_t launched = under_way(actor);
    return launched ? (actor->firing - launched) / actor->fires : actor->step;
}

/* The first step of main that not all actors of this rank have done. */
static int64_t least_step(const struct weir_session *s)
{
    int64_t least = atomic_load_explicit(&s->ending.end, memory_order_relaxed); /* INT64_MAX: none is known */
    for (uint32_t a = 0; a < s->plan->actors_count; a++)
        if (built_runs(&s->built, a) && !s->built.actors[a].program &&
            s->plan->queues[s->plan->actors[a].queue.i].kind != PLAN_OUTSIDE &&
            steps_of(&s->built.actors[a]) < least)
            least = steps_of(&s->built.actors[a]);
    return least == INT64_MAX ? s->run.first_step + session_steps(s) : least; /* no actor is here */
}

int64_t session_step(const struct weir_session *s)
{
    if (!ending_failed(&s->ending) || caller_check_outside(s, "step"))
        return s->run.first_step + session_steps(s);
    session_await_halted(s);
    return least_step(s);
}

int64_t weir_session_step(const weir_session *s)
{
    return caller_check_open(s, "step") ? -1 : session_step(s);
}

void session_set_step(struct weir_session *s, int64_t step)
{
    int64_t further = step - session_step(s);
    int64_t end = atomic_load_explicit(&s->ending.end, memory_order_relaxed);
    s->run.first_step += further;
    if (end != INT64_MAX) /* a session that has ended stays so */
        atomic_store_explicit(&s->ending.end, end + further, memory_order_relaxed);
    /* pushed values may wait, and pulls be behind: they keep their distance */
    for (uint32_t a = 0; a < s->plan->actors_count; a++) {
        struct actor *actor = &s->built.actors[a];
        if (s->plan->actors[a].program.i) /* other programs count steps of their own */
            continue;
        actor->step += further;
        actor->firing += further * actor->fires;
        actor->measured = actor->run_start = actor->firing;
    }
}

/* The actor that changes the tensor; PLAN_NONE: nothing does. */
static uint32_t changer_of(const weir_plan *plan, const plan_tensor *tensor)
{
    return tensor->home == PLAN_IN_REGST ? plan->regsts[tensor->owner].producer.i : tensor->owner;
}

/* Whether a kernel of the actor failed; or the step, which several firings make, stopped between them. */
static bool actor_torn(const struct weir_session *s, uint32_t actor)
{
    struct flight_row row;
    if (s->built.actors[actor].micro || under_way(&s->built.actors[actor]))
        return true;
    for (uint32_t w = 0; w < s->workers.count; w++)
        if (s->workers.list[w].flight.failed && flight_last(&s->workers.list[w].flight, &row) && row.actor == actor)
            return true;
    return false;
}

bool session_torn(const struct weir_session *s, const plan_tensor *tensor)
{
    uint32_t actor = changer_of(s->plan, tensor);
    return actor != PLAN_NONE && actor_torn(s, actor);
}

static int64_t shard_step(const struct weir_session *s, const plan_tensor *tensor)
{
    uint32_t actor = changer_of(s->plan, tensor);
    return actor == PLAN_NONE ? session_step(s) : steps_of(&s->built.actors[actor]);
}

/* ---- what there is ---- */

weir_status session_check_still(const struct weir_session *s, const char *verb)
{
    weir_status status = caller_check_outside(s, verb);
    if (status)
        return status;
    enum ending_state state = ending_state(&s->ending); /* the shards are as the last step left them */
    if (state == ENDING_RUNNING)
        return error_set(WEIR_E_STATE, "weir_session_%s: a run is under way", verb);
    if (ending_failed(&s->ending))
        session_await_halted(s);
    return WEIR_OK;
}

static void describe(const struct weir_session *s, const plan_param *param, weir_session_param *to)
{
    const weir_plan *plan = s->plan;
    weir_param_info info;
    weir_plan_param(plan, (int)(param - plan->params), &info);
    *to = (weir_session_param){.name = info.name, .kind = info.kind, .type = info.type, .frozen = info.frozen};
    to->slots = (int)plan_kept_slots(plan, built_shard(&s->built, param, 0));
    to->step = INT64_MAX;
    for (uint32_t i = 0; i < param->shards.count; i++) {
        const plan_tensor *shard = built_shard(&s->built, param, i);
        if (!built_owns_tensor(&s->built, shard))
            continue;
        int64_t step = shard_step(s, shard);
        to->shards++;
        to->step = step < to->step ? step : to->step;
        to->step_most = step > to->step_most ? step : to->step_most;
        to->torn |= session_torn(s, shard);
    }
    if (!to->shards)
        to->step = to->step_most = session_step(s);
}

int weir_session_params(const weir_session *s, weir_session_param *list, int room)
{
    if (session_check_still(s, "params"))
        return -1;
    for (uint32_t i = 0; list && i < s->plan->params_count && (int64_t)i < room; i++)
        describe(s, &s->plan->params[i], &list[i]);
    return (int)s->plan->params_count;
}

/* ---- visits ---- */

/* One value of a shard, where the host cannot go: it visits a copy, which goes back, as it may have been changed. */
static weir_status visit_copy(const struct weir_session *s, const plan_tensor *tensor, weir_shard *shard,
                              weir_visit_fn fn, void *ctx)
{
    const struct device_ops *device = s->built.arenas[plan_tensor_space(s->plan, tensor).i].device;
    uint64_t bytes = plan_tensor_bytes(tensor);
    void *there = shard->view.data, *copy = malloc(bytes + 1);
    if (!copy)
        return error_set(WEIR_E_MEMORY, "weir_session_visit: no memory for a copy of '%s'", shard->name);
    weir_status status = bytes ? device->copy_out(copy, there, bytes) : WEIR_OK;
    shard->view.data = copy;
    if (!status) {
        status = fn(ctx, shard);
        weir_status back = bytes ? device->copy_in(there, copy, bytes) : WEIR_OK;
        status = status ? status : back;
    }
    free(copy);
    return status;
}

static weir_status visit_shard(const struct weir_session *s, const plan_param *param, uint32_t i, weir_visit_fn fn,
                               void *ctx)
{
    const plan_tensor *tensor = built_shard(&s->built, param, i);
    weir_status status = WEIR_OK;
    weir_shard shard = {.name = plan_text(s->plan, param->name),
                        .kind = (weir_param_kind)param->kind,
                        .device = plan_text(s->plan, s->plan->spaces[plan_tensor_space(s->plan, tensor).i].name),
                        .again = built_shard_again(&s->built, param, i),
                        .step = shard_step(s, tensor),
                        .torn = session_torn(s, tensor)};
    for (uint32_t k = 0; !status && k < plan_kept_slots(s->plan, tensor); k++) {
        shard.slot = (int)k;
        shard.view = built_view(&s->built, tensor, built_kept_slot(&s->built, tensor, k));
        bool followed = arena_followed(&s->built.arenas[plan_tensor_space(s->plan, tensor).i]);
        status = followed ? fn(ctx, &shard) : visit_copy(s, tensor, &shard, fn, ctx);
    }
    return status;
}

weir_status weir_session_visit(weir_session *s, const char *name, weir_visit_fn fn, void *ctx)
{
    const plan_param *only = NULL;
    weir_status status = session_check_still(s, "visit");
    if (!status && !fn)
        status = error_set(WEIR_E_ARGUMENT, "weir_session_visit: the function is NULL");
    if (!status && name)
        status = session_find_param(s, "visit", name, &only);
    for (uint32_t p = 0; !status && p < s->plan->params_count; p++) {
        const plan_param *param = &s->plan->params[p];
        for (uint32_t i = 0; !status && i < param->shards.count; i++)
            if ((!only || only == param) && built_owns_tensor(&s->built, built_shard(&s->built, param, i)))
                status = visit_shard(s, param, i, fn, ctx);
    }
    return status;
}

/* ---- saved and loaded ---- */

static struct weir_session *session_of(const struct snapshots *snapshots)
{
    return (struct weir_session *)((const char *)snapshots - offsetof(struct weir_session, snapshots));
}

static int64_t step_of(const struct snapshots *snapshots)
{
    return session_step(session_of(snapshots));
}

static void set_step(struct snapshots *snapshots, int64_t step)
{
    session_set_step(session_of(snapshots), step);
}

static void lost(struct snapshots *snapshots, const char *sentence)
{
    struct weir_session *s = session_of(snapshots);
    session_fail_peer(s, s->built.cluster->env.rank, "%s", sentence);
}

static void half_loaded(struct snapshots *snapshots, weir_status status, const char *sentence)
{
    session_fail_load(session_of(snapshots), status, sentence);
}

void session_own_snapshots(struct weir_session *s)
{
    s->snapshots = (struct snapshots){.built = &s->built, .bindings = &s->callbacks.bindings, .ending = &s->ending,
                                      .report = &s->observed.report, .step = step_of, .set_step = set_step,
                                      .lost = lost, .half_loaded = half_loaded};
}

weir_status weir_session_save_at(weir_session *s, const char *dir, const weir_save_opts *given)
{
    weir_save_opts opts;
    weir_status status = session_check_still(s, "save");
    if (!status)
        status = opts_read(&opts, sizeof(opts), given, "weir_session_save");
    return status ? status : snapshot_save(&s->snapshots, dir, &opts);
}

weir_status weir_session_save_wait(weir_session *s, int timeout_ms)
{
    weir_status status = caller_check_outside(s, "save_wait");
    return status ? status : snapshot_save_wait(&s->snapshots, timeout_ms);
}

weir_status weir_session_load_at(weir_session *s, const char *dir, const weir_load_opts *given)
{
    weir_load_opts opts;
    weir_status status = session_check_still(s, "load");
    if (!status)
        status = ending_failure(&s->ending);
    if (!status)
        status = opts_read(&opts, sizeof(opts), given, "weir_session_load");
    if (!status && !opts.memory && session_is_onnx(dir))
        return session_load_onnx(s, dir, &opts);
    return status ? status : snapshot_load(&s->snapshots, dir, &opts);
}
