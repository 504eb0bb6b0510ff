/* actors/session/callbacks.c: the ends of a plan at the program: its functions (bindings), its values (push), its
 * results (pull).
 *
 * A push or pull is an actor on a lane of its own that the calling thread runs for a moment: it takes what is in the
 * lane's mailbox, waits until the actor may fire, copies, and lets it fire like any other. Backpressure is the
 * actor's credit; there is no second mechanism and no buffer but the register's slots.
 */
#include <stdlib.h>
#include <string.h>

#include "actors/session/session.h"
#include "graph/base/error.h"
#include "graph/base/names.h"
#include "graph/base/opts.h"
#include "transport/mail/park.h"

/* ---- bindings ---- */

static const char *const kind_names[PLAN_HOST_KINDS] = {
    [PLAN_SOURCE] = "source", [PLAN_SINK] = "sink", [PLAN_CALL] = "call", [PLAN_PUSH] = "push", [PLAN_PULL] = "pull"};

/* Whether the binding has a function, and only one, of the host's kind; if so it goes to *to. */
static bool binding_take(const weir_binding *from, uint32_t kind, callback_binding *to)
{
    if ((from->source != NULL) + (from->sink != NULL) + (from->call != NULL) != 1 || (from->close && !from->open) ||
        (from->open && !from->call))
        return false;
    to->ctx = from->ctx;
    to->save = from->save;
    to->restore = from->restore;
    to->open = from->open;
    to->close = from->close;
    if (kind == PLAN_SOURCE && from->source)
        return (to->fn.source = from->source) != NULL;
    if (kind == PLAN_SINK && from->sink)
        return (to->fn.sink = from->sink) != NULL;
    if (kind == PLAN_CALL && from->call)
        return (to->fn.call = from->call) != NULL;
    return false;
}

static weir_status bind_one(struct weir_session *s, const weir_binding *binding)
{
    const weir_plan *plan = s->plan;
    bool found = false;
    for (uint32_t h = 0; h < plan->hosts_count; h++) {
        const plan_host *host = &plan->hosts[h];
        if (strcmp(plan_text(plan, host->name), binding->name) || host->kind > PLAN_CALL)
            continue;
        if (!binding_take(binding, host->kind, &s->callbacks.bindings[h]))
            return error_set(WEIR_E_ARGUMENT, "%s:%u: %s is a %s; its binding must set .%s and no other function (a call may also "
                             "set .open and .close)", plan_text(plan, host->file), host->line, binding->name,
                             kind_names[host->kind], kind_names[host->kind]);
        found = true;
    }
    if (found)
        return WEIR_OK;
    struct names names = {.wanted = binding->name};
    char text[NAMES_TEXT_BYTES];
    for (uint32_t h = 0; h < plan->hosts_count; h++)
        if (plan->hosts[h].kind <= PLAN_CALL)
            names_add(&names, plan_text(plan, plan->hosts[h].name));
    return error_set(WEIR_E_ARGUMENT, "weir_session_open: the plan has no source, sink or call named '%s' to bind%s",
                     binding->name, names_text(&names, text, sizeof(text)));
}

static weir_status check_bound(const struct weir_session *s)
{
    const weir_plan *plan = s->plan;
    for (uint32_t h = 0; h < plan->hosts_count; h++) {
        const plan_host *host = &plan->hosts[h];
        if (host->kind <= PLAN_CALL && built_runs(&s->built, host->actor.i) && !s->callbacks.bindings[h].fn.call)
            return error_set(WEIR_E_ARGUMENT, "%s:%u: the %s '%s' has no function; give it one with .bindings",
                             plan_text(plan, host->file), host->line, kind_names[host->kind],
                             plan_text(plan, host->name));
    }
    return WEIR_OK;
}

weir_status session_bind(struct weir_session *s, const weir_session_opts *opts)
{
    const char *next = (const char *)opts->bindings;
    uint32_t count = s->plan->hosts_count;
    s->callbacks.bindings = calloc(count + 1, sizeof(*s->callbacks.bindings));
    if (!s->callbacks.bindings)
        return error_set(WEIR_E_MEMORY, "no memory for %u bindings", count);
    if (s->plan->bindings && count)
        memcpy(s->callbacks.bindings, s->plan->bindings, count * sizeof(*s->callbacks.bindings));
    for (; next; next += opts->binding_size) {
        weir_binding binding;
        const char *wrong = opts_copy(&binding, sizeof(binding), next, opts->binding_size);
        if (wrong)
            return error_set(WEIR_E_ARGUMENT, "%s:%d: weir_session_open: bindings: %s",
                             opts->src.file, opts->src.line, wrong);
        if (!binding.name)
            break;
        weir_status status = bind_one(s, &binding);
        if (status)
            return status;
    }
    return check_bound(s);
}

/* ---- what calls keep ---- */

/* The functions that open and close the state of a kernel's calls, and their bindings. */
typedef struct keeper {
    weir_open_fn open;
    weir_close_fn close;
    void *host;
} keeper;

static keeper keeper_of(const struct weir_session *s, const plan_kernel *kernel)
{
    const callback_binding *bound = kernel->host == PLAN_NONE ? NULL : &s->callbacks.bindings[kernel->host];
    const weir_op *op = bound ? NULL : weir_op_find(plan_text(s->plan, kernel->op));
    if (bound)
        return (keeper){bound->open, bound->close, bound->ctx};
    return op ? (keeper){op->open, op->close, op->ctx} : (keeper){0};
}

/* Types and places of the operands, without data: not all of it is there yet. */
static const weir_view *views_without_data(const struct weir_session *s, const plan_range *operands, weir_view *views)
{
    for (uint32_t i = 0; i < operands->count; i++)
        views[i] = built_type_view(&s->plan->tensors[s->plan->operands[operands->first + i].tensor.i]);
    return views;
}

static weir_status open_call(struct weir_session *s, uint32_t k, const keeper *by)
{
    const weir_plan *plan = s->plan;
    const plan_kernel *kernel = &plan->kernels[k];
    weir_view in[WEIR_ARGS_MAX], out[WEIR_ARGS_MAX];
    char error[320] = "";
    const weir_kernel_args args = {
        .in = views_without_data(s, &kernel->in, in),
        .in_count = (int)kernel->in.count,
        .out = views_without_data(s, &kernel->out, out),
        .out_count = (int)kernel->out.count,
        .attrs = kernel->attrs.count ? plan->words + kernel->attrs.first : NULL,
        .key = kernel->key,
        .host = by->host,
        .error = error,
        .error_bytes = sizeof(error),
    };
    weir_status status = by->open(&args, &s->built.kernels[k].args.host_state);
    if (!status)
        return WEIR_OK;
    error[sizeof(error) - 1] = 0;
    status = status > WEIR_END && status <= WEIR_E_CANCELLED ? status : WEIR_E_KERNEL;
    return error_set(status, "%s:%u: %s: cannot be opened: %s", plan_text(plan, kernel->file), kernel->line,
                     plan_text(plan, kernel->name), *error ? error : weir_status_name(status));
}

weir_status session_open_calls(struct weir_session *s)
{
    for (uint32_t k = 0; s->callbacks.keeps && k < s->plan->kernels_count; k++) {
        keeper by = keeper_of(s, &s->plan->kernels[k]);
        bool opens = by.open && built_runs(&s->built, s->plan->kernels[k].actor.i);
        weir_status status = opens ? open_call(s, k, &by) : WEIR_OK;
        if (status && s->built.cluster)
            session_fail_open(s, status, weir_error()); /* the others wait for this one */
        if (status)
            return status;
        s->callbacks.opened = k + 1;
    }
    return WEIR_OK;
}

void session_close_calls(struct weir_session *s)
{
    while (s->callbacks.opened) {
        uint32_t k = --s->callbacks.opened;
        keeper by = keeper_of(s, &s->plan->kernels[k]);
        if (by.close && built_runs(&s->built, s->plan->kernels[k].actor.i))
            by.close(by.host, s->built.kernels[k].args.host_state);
    }
}

/* ---- push and pull ---- */

static weir_status find_host(const struct weir_session *s, const char *verb, const char *name, uint32_t kind,
                             const plan_host **host)
{
    const weir_plan *plan = s->plan;
    struct names names = {.wanted = name};
    char text[NAMES_TEXT_BYTES];
    for (uint32_t h = 0; name && h < plan->hosts_count; h++) {
        const plan_host *candidate = &plan->hosts[h];
        if (candidate->kind != kind || strcmp(plan_text(plan, candidate->name), name))
            continue;
        *host = candidate; /* this rank's, if it has one */
        if (built_runs(&s->built, candidate->actor.i))
            break;
    }
    if (*host)
        return WEIR_OK;
    for (uint32_t h = 0; h < plan->hosts_count; h++)
        if (plan->hosts[h].kind == kind)
            names_add(&names, plan_text(plan, plan->hosts[h].name));
    return error_set(WEIR_E_ARGUMENT, "weir_session_%s: there is no '%s' to %s%s", verb, name ? name : "", verb,
                     names_text(&names, text, sizeof(text)));
}

/* The one tensor that a push fills or a pull empties; plan_validate() saw to it that it is one, and whole. */
static const plan_tensor *host_tensor(const weir_plan *plan, const plan_host *host)
{
    const plan_actor *actor = &plan->actors[host->actor.i];
    uint32_t regst = host->kind == PLAN_PUSH ? actor->regsts.first : plan->ports[actor->ports.first].regst.i;
    return &plan->tensors[plan->regsts[regst].tensors.first];
}

static weir_status check_value(const weir_plan *plan, const char *verb, const plan_host *host,
                               const plan_tensor *tensor, const weir_array *value)
{
    char what[512];
    snprintf(what, sizeof(what), "%s:%u: weir_session_%s: '%s'", plan_text(plan, host->file), host->line, verb,
             plan_text(plan, host->name));
    return session_check_array(what, tensor, value);
}

/* A push or pull that may have to wait. */
struct turn {
    struct actor *actor;
    const char *verb, *name;
    int timeout_ms;
};

/* Whether the actor's next firing is among those that the runs before this step ask for, or the register's slots leave
 * room for beyond them. */
static bool turn_before(const struct weir_session *s, const struct actor *actor, int64_t step)
{
    const plan_actor *from = &s->plan->actors[actor->id];
    int64_t beyond;
    if (actor->out_count) {
        const plan_regst *regst = &s->plan->regsts[from->regsts.first];
        beyond = (int64_t)(regst->slots - regst->initial) * (regst->fill ? regst->fill : 1);
    } else {
        const plan_port *port = &s->plan->ports[from->ports.first];
        beyond = (int64_t)s->plan->regsts[port->regst.i].initial * port->hold;
    }
    int64_t firings; /* more than there can be: of a last step that is not known */
    return __builtin_mul_overflow(step, (int64_t)actor->fires, &firings) || actor->firing - beyond < firings;
}

/* Whether the turn is one for what main does before its end: a pull of what is made there, or a push while no end is
 * known. */
static bool turn_before_end(const struct weir_session *s, const struct actor *actor)
{
    int64_t end = atomic_load_explicit(&s->ending.end, memory_order_relaxed);
    return LIKELY(end == INT64_MAX) || actor->program || (!actor->out_count && turn_before(s, actor, end));
}

/* Why the turn may not be taken, though the actor may fire. A value that has arrived may be pulled after a failure, but for
 * a cancel; those that were made before a source failed may still be waited for. */
static weir_status turn_refused(struct weir_session *s, const struct turn *turn)
{
    weir_status status = session_closes(s, turn->verb);
    if (status)
        return status;
    if (!turn_before_end(s, turn->actor))
        return ending_ended(&s->ending, built_rank(&s->built));
    if (turn->actor->out_count)
        return ending_failure(&s->ending);
    bool arrived = !turn->actor->unmet && ending_state(&s->ending) != ENDING_CANCELLED;
    return arrived ? WEIR_OK : ending_failure_for_pull(&s->ending);
}

/* Why it will not come without another run. A caller with a timeout may wait for that. */
static weir_status turn_hopeless(struct weir_session *s, const struct turn *turn)
{
    if (turn->timeout_ms >= 0 || !session_at_rest(s) ||
        turn_before(s, turn->actor, s->run.first_step + session_steps_of(s, turn->actor->program)))
        return WEIR_OK;
    weir_status status = turn_refused(s, turn); /* the values may have come to their end since it was asked last */
    if (status)
        return status;
    return error_set(WEIR_E_STATE, "weir_session_%s: there is %s for '%s', and the session is at rest", turn->verb,
                     turn->actor->out_count ? "no room" : "no value", turn->name);
}

bool session_turn_comes(struct weir_session *s, struct actor *actor, const char *verb, weir_status *status)
{
    mailbox_orders(&actor->lane->mailbox); /* what they tell of is looked at here */
    lane_drain(actor->lane, s->built.ends);
    *status = turn_refused(s, &(struct turn){.actor = actor, .verb = verb});
    return *status || !actor->unmet;
}

/* Runs the actor's lane until it may fire. */
static weir_status await_turn(struct weir_session *s, const struct turn *turn)
{
    struct actor *actor = turn->actor;
    int64_t deadline = park_deadline(turn->timeout_ms);
    weir_status status;
    bool in_time = true;
    for (;;) {
        if (session_turn_comes(s, actor, turn->verb, &status) || (status = turn_hopeless(s, turn)) || !in_time)
            break;
        /* relaxed: for a report */
        atomic_store_explicit(&actor->lane->waiting, actor->step + 1, memory_order_relaxed);
        in_time = mailbox_wait(&actor->lane->mailbox, deadline);
    }
    atomic_store_explicit(&actor->lane->waiting, 0, memory_order_relaxed);
    if (!status && actor->unmet)
        status = error_set(WEIR_E_TIMEOUT, "weir_session_%s: %s for '%s' within %d ms", turn->verb,
                           actor->out_count ? "no room" : "no value", turn->name, turn->timeout_ms);
    return status;
}

static void fire_outside(struct actor *actor)
{
    actor_fired(actor);
    lane_flush(actor->lane, false);
}

/* By one thread at a time. */
static weir_status take_turn(struct weir_session *s, const struct turn *turn)
{
    if (!session_take_lane(turn->actor->lane))
        return error_set(WEIR_E_STATE, "weir_session_%s: another thread is in weir_session_%s for '%s'", turn->verb,
                         turn->verb, turn->name);
    weir_status status = await_turn(s, turn);
    if (status)
        session_let_go(s, turn->actor);
    return status;
}

static weir_status push(struct weir_session *s, const char *name, const weir_array *value, int timeout_ms)
{
    const plan_host *host = NULL;
    weir_status status = ending_failure(&s->ending);
    if (!status)
        status = find_host(s, "push", name, PLAN_PUSH, &host);
    if (status)
        return status;
    const plan_tensor *tensor = host_tensor(s->plan, host);
    struct actor *actor = &s->built.actors[host->actor.i];
    status = check_value(s->plan, "push", host, tensor, value);
    if (!status)
        status = debug_pushed(&s->debug, name, value);
    if (!status && !built_runs(&s->built, host->actor.i))
        return WEIR_OK; /* the rank that runs it pushes the same */
    if (!status)
        status = take_turn(s, &(struct turn){actor, "push", name, timeout_ms});
    if (status)
        return status;
    const struct arena *arena = &s->built.arenas[plan_tensor_space(s->plan, tensor).i];
    char *to = arena_tensor(s->built.arenas, s->plan, tensor, actor->outs->regst.slot);
    uint64_t bytes = plan_tensor_bytes(tensor);
    status = bytes ? arena->device->copy_in(to, value->data, bytes) : WEIR_OK;
    if (!status)
        fire_outside(actor);
    session_let_go(s, actor);
    return status;
}

static weir_status pull(struct weir_session *s, const char *name, weir_array *value, int timeout_ms)
{
    const plan_host *host = NULL;
    weir_status status = find_host(s, "pull", name, PLAN_PULL, &host);
    if (status)
        return status;
    const plan_tensor *tensor = host_tensor(s->plan, host);
    struct actor *actor = &s->built.actors[host->actor.i];
    status = check_value(s->plan, "pull", host, tensor, value);
    if (!status && !built_runs(&s->built, host->actor.i))
        status = ending_failure(&s->ending);
    if (!status && !built_runs(&s->built, host->actor.i))
        status = error_set(WEIR_E_ARGUMENT, "weir_session_pull: this rank has no device, and so no '%s'", name);
    if (!status)
        status = take_turn(s, &(struct turn){actor, "pull", name, timeout_ms});
    if (status)
        return status;
    const struct arena *arena = &s->built.arenas[plan_tensor_space(s->plan, tensor).i];
    uint32_t slot = actor->port_count ? actor->ports->reader.slot : 0; /* no port is counted for a constant */
    uint64_t bytes = plan_tensor_bytes(tensor);
    if (bytes) /* of an empty tensor nothing has come from another host */
        status = arena->device->copy_out(
            value->data, built_port_data(&s->built, s->plan->actors[actor->id].ports.first, tensor, slot), bytes);
    int64_t step = actor->step;
    if (!status)
        fire_outside(actor);
    session_let_go(s, actor);
    return status ? status : debug_pulled(&s->debug, name, value, step);
}

/* A worker that waited for ever might wait for itself. */
static weir_status enter(struct weir_session *s, const char *verb, int timeout_ms)
{
    return timeout_ms < 0 ? session_enter_outside(s, verb) : session_enter(s, verb);
}

weir_status weir_session_push(weir_session *s, const char *name, const weir_array *value, int timeout_ms)
{
    weir_status status = enter(s, "push", timeout_ms);
    if (status)
        return status;
    status = push(s, name, value, timeout_ms);
    session_exit(s);
    return status;
}

weir_status weir_session_pull(weir_session *s, const char *name, weir_array *value, int timeout_ms)
{
    weir_status status = enter(s, "pull", timeout_ms);
    if (status)
        return status;
    status = pull(s, name, value, timeout_ms);
    session_exit(s);
    return status;
}

/* ---- what nobody pulled ---- */

/* Whether what the pull takes is made on another rank. */
static bool pulls_from_afar(const struct weir_session *s, const plan_host *host)
{
    if (host->kind != PLAN_PULL || !built_runs(&s->built, host->actor.i))
        return false; /* what is no pull may have no port */
    const plan_port *port = &s->plan->ports[s->plan->actors[host->actor.i].ports.first];
    uint32_t producer = s->plan->regsts[port->regst.i].producer.i;
    return producer != PLAN_NONE && !built_runs(&s->built, producer);
}

void session_drop_pulls(struct weir_session *s)
{
    for (uint32_t h = 0; h < s->plan->hosts_count; h++) {
        const plan_host *host = &s->plan->hosts[h];
        struct actor *actor = &s->built.actors[host->actor.i];
        int64_t end = s->run.first_step + session_steps_of(s, actor->program);
        while (pulls_from_afar(s, host) && actor->step < end) {
            if (await_turn(s, &(struct turn){actor, "pull", plan_text(s->plan, host->name), -1}))
                return; /* the session has failed */
            fire_outside(actor);
        }
    }
}
