/* graph/verify/verify.c: a plan against its graph. See docs/design/proof.md.
 *
 *     author   n steps of main, then some of each other program, then main again; what it fetches is kept
 *     player   the same on the plan, in another order in each round; what it fetches is compared, then what lives on
 *
 * Only when something differs all kernels' outputs are looked at, to find the one to blame.
 */
#include <stdlib.h>
#include <string.h>

#include "graph/base/base.h"
#include "graph/base/error.h"
#include "graph/base/opts.h"
#include "graph/verify/author.h"
#include "graph/verify/blame.h"
#include "graph/verify/local.h"
#include "graph/verify/player.h"
#include "graph/verify/proof.h"
#include "graph/verify/verify.h"

enum { TEXT_BYTES = 1024 };

/* A value that the graph fetches. */
struct fetched {
    const char *name;
    int64_t step;
    int micro;
    rule_array array; /* `at` is owned */
};

struct verifying {
    const weir_graph *graph;
    const weir_plan *plan;
    author *author;
    player *player;
    blame *blame;             /* NULL: nothing is known to be wrong */
    struct fetched *fetches;  /* owned */
    size_t fetch_count, fetch_room, seen;
    proof proof;
    bool wrong;
    char text[TEXT_BYTES];    /* what is wrong */
};

/* ---- the two sides meet ---- */

static bool give(void *ctx, const char *input, int64_t step, int micro, const rule_array *array)
{
    const struct verifying *v = ctx;
    return author_input(v->author, input, step, micro, array);
}

static void begin(void *ctx, const char *kept, const rule_array *array)
{
    const struct verifying *v = ctx;
    author_begin(v->author, kept, array);
}

static void note(struct verifying *v, const char *where, const char *name, const rule_array *shard, const rule_array *whole)
{
    char element[128] = "";
    const bool same = rule_same_whole(shard, whole);
    const int64_t wrong = same ? blame_first(shard, whole) : 0;
    if (v->wrong || wrong < 0)
        return;
    if (same)
        blame_element(whole, rule_logical(shard, wrong), element, sizeof element);
    v->wrong = true;
    snprintf(v->text, sizeof v->text, "%s\"%s\" is not what the graph says%s", where, name, element);
}

static void see(void *ctx, const char *name, int64_t step, int micro, const rule_array *array)
{
    struct verifying *v = ctx;
    v->seen++;
    for (size_t i = 0; i < v->fetch_count; i++) {
        const struct fetched *f = &v->fetches[i];
        if (f->step != step || f->micro != micro || strcmp(f->name, name))
            continue;
        note(v, "the fetch ", name, array, &f->array);
        return;
    }
    if (!v->wrong)
        snprintf(v->text, sizeof v->text, "the plan fetches \"%s\" in step %lld, and the graph does not", name, (long long)step);
    v->wrong = true;
}

static void fired(void *ctx)
{
    struct verifying *v = ctx;
    proof_fired(&v->proof);
}

static void made(void *ctx, uint32_t kernel, const plan_tensor *tensor, int64_t step, int micro, const rule_array *array)
{
    const struct verifying *v = ctx;
    blame_add(v->blame, kernel, tensor, step, micro, array);
}

/* ---- the author's side ---- */

static bool keep_fetch(struct verifying *v, const graph_node *node, int64_t step, int micro)
{
    if (v->fetch_count == v->fetch_room) {
        const size_t room = 2 * v->fetch_room + 16;
        struct fetched *more = realloc(v->fetches, room * sizeof *more);
        if (!more)
            return false;
        v->fetches = more;
        v->fetch_room = room;
    }
    struct fetched *f = &v->fetches[v->fetch_count];
    *f = (struct fetched){node->name, step, micro, author_tensor(v->author, node->in[0], micro)};
    const bool kept = rule_copy(&f->array);
    v->fetch_count += kept;
    return kept;
}

static weir_status author_run(struct verifying *v, int program, int64_t first, int64_t steps)
{
    weir_status status = WEIR_OK;
    for (int64_t step = first; !status && step < first + steps; step++) {
        if (v->blame && blame_find_read(v->blame, v->author, step, v->text, sizeof v->text))
            return WEIR_E_WRONG;
        status = author_step(v->author, program);
        if (!status && v->blame && blame_find(v->blame, v->author, step, v->text, sizeof v->text))
            return WEIR_E_WRONG;
        for (int n = 0; !status && n < v->graph->nodes.count; n++) {
            const graph_node *node = v->graph->nodes.item[n];
            const bool fetch = node->host == 1 + PLAN_SINK || node->host == 1 + PLAN_PULL;
            const int times = fetch && node->program == program ? (node->in[0]->micro ? (int)v->plan->micro_batches : 1) : 0;
            for (int micro = 0; !status && micro < times; micro++)
                if (!keep_fetch(v, node, step, micro))
                    status = error_set(WEIR_E_MEMORY, "no memory for what the graph fetches");
        }
    }
    return status;
}

static void forget_fetches(struct verifying *v)
{
    for (size_t i = 0; i < v->fetch_count; i++)
        free(v->fetches[i].array.at);
    v->fetch_count = v->seen = 0;
}

/* ---- a round ---- */

/* Steps of main: as many as a value waits at most, and some more. */
static int64_t steps_of(const weir_graph *graph)
{
    int64_t delay = 0;
    for (int t = 0; t < graph->tensors.count; t++)
        delay = graph->tensors.item[t]->delay > delay ? graph->tensors.item[t]->delay : delay;
    return PROOF_STEPS + delay;
}

/* The plan keeps all that the graph changes from step to step. */
static void compare_names(struct verifying *v)
{
    for (int t = 0; t < v->graph->tensors.count && !v->wrong; t++) {
        const weir_tensor *tensor = v->graph->tensors.item[t];
        bool kept = !tensor->update;
        for (uint32_t p = 0; !kept && p < v->plan->params_count; p++)
            kept = !strcmp(plan_text(v->plan, v->plan->params[p].name), tensor->name) && v->plan->params[p].shards.count;
        v->wrong = !kept;
        if (!kept)
            snprintf(v->text, sizeof v->text, "the graph keeps \"%s\", and the plan does not", tensor->name);
    }
}

static bool has_element(const plan_tensor *shard, const int64_t index[WEIR_DIMS_MAX])
{
    bool has = true;
    for (uint32_t d = 0; has && d < shard->rank; d++)
        has = index[d] >= shard->start[d] && index[d] - shard->start[d] < shard->shape[d];
    return has;
}

/* The shards that the plan names have all elements, so that a checkpoint does. */
static void compare_cover(struct verifying *v, const plan_param *param, const rule_array *whole, const char *where)
{
    int64_t index[WEIR_DIMS_MAX] = {0};
    char element[128];
    for (int64_t n = 0; n < whole->count && !v->wrong; n++) {
        bool has = false;
        rule_index(whole, n, index);
        for (uint32_t s = param->shards.first; !has && s < param->shards.first + param->shards.count; s++)
            has = has_element(&v->plan->tensors[v->plan->shards[s].i], index);
        if (has)
            continue;
        blame_element(whole, n, element, sizeof element);
        v->wrong = true;
        snprintf(v->text, sizeof v->text, "%s\"%s\" has a shard that the plan does not name%s", where,
                 plan_text(v->plan, param->name), element);
    }
}

static void compare_kept(struct verifying *v)
{
    for (uint32_t p = 0; p < v->plan->params_count && !v->wrong; p++) {
        const plan_param *param = &v->plan->params[p];
        const char *name = plan_text(v->plan, param->name);
        weir_src src;
        const rule_array whole = author_kept(v->author, name, &src);
        char where[256] = "";
        if (!whole.at && proof_is_compilers_own(name))
            continue;
        if (!whole.at) {
            v->wrong = true;
            snprintf(v->text, sizeof v->text, "the plan keeps \"%s\", and the graph does not", name);
            return;
        }
        if (src.file)
            snprintf(where, sizeof where, "%s:%d: ", src.file, src.line);
        for (uint32_t s = param->shards.first; s < param->shards.first + param->shards.count && !v->wrong; s++) {
            const rule_array *shard = player_kept(v->player, v->plan->shards[s].i);
            note(v, where, name, shard, &whole);
        }
        compare_cover(v, param, &whole, where);
    }
}

/* How values begin is no matter of values: it is written in the plan as in the graph. */
static void compare_inits(struct verifying *v)
{
    for (uint32_t i = 0; i < v->plan->inits_count && !v->wrong; i++) {
        const plan_init *init = &v->plan->inits[i];
        const char *name = player_kept_name(v->plan, init->tensor.i);
        v->wrong = !author_begins_so(v->graph, v->plan->seed, name, init);
        if (v->wrong)
            snprintf(v->text, sizeof v->text, "\"%s\" does not begin as the graph says", name);
    }
}

/* Both sides run a program. */
static weir_status run_both(struct verifying *v, uint32_t program, int64_t first, int64_t steps, uint64_t order)
{
    forget_fetches(v);
    weir_status status = author_run(v, (int)program, first, steps);
    if (!status)
        status = player_run(v->player, program, steps, order);
    if (!status && !v->wrong && v->seen != v->fetch_count) {
        v->wrong = true;
        snprintf(v->text, sizeof v->text, "the graph fetches %zu values in %lld steps, and the plan %zu", v->fetch_count,
                 (long long)steps, v->seen);
    }
    if (!status)
        compare_kept(v);
    return status;
}

static weir_status play(struct verifying *v, const player_ends *ends, uint64_t seed, uint64_t order)
{
    const int64_t steps = steps_of(v->graph);
    weir_status status = author_open(&v->author, v->graph, (int)v->plan->micro_batches, v->plan->seed, seed);
    if (!status)
        status = player_open(&v->player, v->plan, seed, ends);
    if (!status) {
        compare_names(v);
        compare_inits(v);
    }
    for (uint32_t p = 0; !status && !v->wrong && p < v->plan->programs_count; p++)
        if (proof_runs(&v->proof, v->plan, p))
            status = run_both(v, p, 0, p ? PROOF_STEPS : steps, order + p);
    if (!status && !v->wrong && v->plan->programs_count > 1 && !v->proof.opts.program)
        status = run_both(v, 0, steps, 1, order);
    return status;
}

static void round_close(struct verifying *v)
{
    forget_fetches(v);
    author_close(v->author);
    player_close(v->player);
    v->author = NULL;
    v->player = NULL;
}

/* The same again for main, with a look at everything that kernels make: it tells which is to blame, if that can be told. */
static void find_blame(struct verifying *v, uint64_t seed, uint64_t order)
{
    const player_ends ends = {.ctx = v, .give = give, .begin = begin, .made = made};
    const int64_t steps = steps_of(v->graph);
    char wrong[TEXT_BYTES];
    memcpy(wrong, v->text, sizeof wrong);
    round_close(v);
    v->blame = blame_new(v->plan, v->graph);
    weir_status status = v->blame ? author_open(&v->author, v->graph, (int)v->plan->micro_batches, v->plan->seed, seed) : WEIR_E_MEMORY;
    if (!status)
        status = player_open(&v->player, v->plan, seed, &ends);
    if (!status) {
        blame_find_scale(v->blame, v->author);
        status = player_run(v->player, 0, steps, order);
    }
    if ((status && status != WEIR_E_WRONG) || author_run(v, 0, 0, steps) != WEIR_E_WRONG)
        memcpy(v->text, wrong, sizeof wrong);
    else
        snprintf(v->text + strlen(v->text), sizeof v->text - strlen(v->text), "; so %s", wrong);
    blame_free(v->blame);
}

static weir_status verify_round(struct verifying *v, uint64_t seed)
{
    const player_ends ends = {.ctx = v, .give = give, .begin = begin, .see = see, .fired = fired};
    const uint64_t order = field_bits(seed, "order of firings", NULL, 0);
    weir_status status = play(v, &ends, seed, order);
    if (status == WEIR_E_WRONG && !v->wrong) { /* a kernel refuses what another made */
        v->wrong = true;
        snprintf(v->text, sizeof v->text, "%s", weir_error());
    }
    if ((!status || status == WEIR_E_WRONG) && v->wrong) {
        find_blame(v, seed, order);
        status = error_set(WEIR_E_WRONG, "%s", v->text);
    }
    round_close(v);
    return status;
}

static weir_status verify_local(struct verifying *v)
{
    const weir_verify_opts *opts = &v->proof.opts;
    uint64_t most;
    const weir_status status = proof_memory(v->proof.call, opts_src(opts), opts->memory, &most);
    return status ? status : local_verify(v->graph, v->plan, &v->proof, most);
}

weir_status weir_plan_verify_at(const weir_graph *graph, const weir_plan *plan, const weir_verify_opts *given)
{
    struct verifying v = {.graph = graph, .plan = plan};
    weir_status status = proof_open(&v.proof, given, "weir_plan_verify");
    if (status)
        return status;
    if (error_null(graph, "weir_plan_verify", "graph") || error_null(plan, "weir_plan_verify", "plan"))
        return WEIR_E_ARGUMENT;
    if (weir_graph_mistake(graph))
        return error_set(WEIR_E_GRAPH, "%s", weir_graph_mistake(graph));
    if (plan->graph != graph_hash(graph))
        return proof_refuse(&v.proof, WEIR_E_ARGUMENT, "the plan \"%s\" was not compiled from this graph",
                            plan_text(plan, plan->name));
    status = author_can(graph);
    if (!status)
        status = proof_check_program(&v.proof, plan);
    if (status || v.proof.opts.local)
        return status ? status : verify_local(&v);
    proof_expect(&v.proof, plan, steps_of(graph));
    status = proof_may_take(&v.proof, plan_text(plan, plan->name), player_bytes(plan) + author_bytes(graph, (int)plan->micro_batches));
    for (int round = 0; !status && round < v.proof.opts.rounds; round++)
        status = verify_round(&v, proof_seed(&v.proof, round));
    free(v.fetches);
    return status;
}

weir_status verify_if_wanted(const weir_graph *graph, const weir_plan *plan)
{
    const char *text = getenv("WEIR_VERIFY");
    if (!text || !*text || !strcmp(text, "0"))
        return WEIR_OK;
    if (!strcmp(text, "local"))
        return weir_plan_verify(graph, plan, .local = true);
    if (!strcmp(text, "1")) {
        const weir_status status = weir_plan_verify(graph, plan);
        return status || !graph->loss ? status : weir_gradients_verify(graph);
    }
    return error_set(WEIR_E_ARGUMENT, "WEIR_VERIFY is '%s': give 1, and each plan that is compiled is proven to compute its graph; "
                     "local, and each of its kernels is judged alone; or 0", text);
}
