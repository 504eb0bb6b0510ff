/* graph/plan/show/json.c: the whole plan as one JSON object, for programs. Ids are indexes into the arrays of the same
 * object.
 *
 * Numbers of 64 bits that mean no quantity (hash, keys) are texts in hexadecimal, because many readers keep numbers as
 * doubles. Texts are made valid UTF-8: a byte that is none becomes U+FFFD.
 */
#include "graph/base/base.h"
#include "graph/base/error.h"
#include "graph/base/foreign.h"
#include "graph/base/locale.h"
#include "graph/plan/show/json_inside.h"
#include "graph/plan/show/moved.h"
#include "graph/plan/show/show_inside.h"
#include "graph/plan/lives/window.h"

#include <inttypes.h>
#include <math.h>
#include <weir/op.h>

/* ---- writing JSON ---- */

/* Writes what stands before a value: a comma, and the key inside of objects (NULL inside of arrays). */
static void put_key(json *j, const char *key)
{
    if (j->more)
        fputs(",", j->to);
    if (key) {
        foreign_put_json(j->to, key);
        fputs(":", j->to);
    }
    j->more = true;
}

void plan_json_open(json *j, const char *key, char bracket)
{
    put_key(j, key);
    fputc(bracket, j->to);
    j->more = false;
}

void plan_json_shut(json *j, char bracket)
{
    fputc(bracket, j->to);
    j->more = true;
}

void plan_json_number(json *j, const char *key, uint64_t value)
{
    put_key(j, key);
    fprintf(j->to, "%" PRIu64, value);
}

static void put_int(json *j, const char *key, int64_t value)
{
    put_key(j, key);
    fprintf(j->to, "%" PRId64, value);
}

static void put_hex(json *j, const char *key, uint64_t value)
{
    put_key(j, key);
    fprintf(j->to, "\"%016" PRIx64 "\"", value);
}

static void put_real(json *j, const char *key, double value)
{
    char text[32];
    text_print(text, sizeof text, "%.17g", value);
    put_key(j, key);
    if (isfinite(value))
        fputs(text, j->to);
    else
        fputs("null", j->to);
}

static void put_bool(json *j, const char *key, bool value)
{
    put_key(j, key);
    fputs(value ? "true" : "false", j->to);
}

void plan_json_string(json *j, const char *key, const char *text)
{
    put_key(j, key);
    foreign_put_json(j->to, text);
}

static void put_id(json *j, const char *key, uint32_t id)
{
    if (id == PLAN_NONE) {
        put_key(j, key);
        fputs("null", j->to);
    } else {
        plan_json_number(j, key, id);
    }
}

static void put_ids(json *j, const char *key, const plan_range *range)
{
    plan_json_open(j, key, '[');
    for (uint32_t i = 0; i < range->count; i++)
        plan_json_number(j, NULL, range->first + i);
    plan_json_shut(j, ']');
}

static void put_dims(json *j, const char *key, const int64_t *dim, uint32_t rank)
{
    plan_json_open(j, key, '[');
    for (uint32_t d = 0; d < rank; d++)
        put_int(j, NULL, dim[d]);
    plan_json_shut(j, ']');
}

/* Begins an element of a list of the plan: each on a line of its own. */
static void open_item(json *j)
{
    put_key(j, NULL);
    fputs("\n{", j->to);
    j->more = false;
}

/* ---- the parts of a plan ---- */

static void put_device(json *j, const weir_plan *plan, uint32_t s)
{
    const plan_space *space = &plan->spaces[s];
    uint64_t bytes[PLAN_MEMS];
    plan_bytes_by_kind(plan, (plan_space_id){s}, bytes);
    plan_json_string(j, "name", plan_text(plan, space->name));
    plan_json_string(j, "kind", device_kind_name((weir_device_kind)space->kind));
    plan_json_number(j, "index", space->index);
    plan_json_number(j, "rank", space->rank);
    plan_json_number(j, "bytes", space->bytes);
    plan_json_open(j, "bytes_by_kind", '{');
    for (uint32_t kind = 0; kind < PLAN_MEMS; kind++)
        plan_json_number(j, mem_text(kind), bytes[kind]);
    plan_json_shut(j, '}');
    plan_json_number(j, "bytes_shared", plan_bytes_shared(plan, (plan_space_id){s}));
}

static void put_moved(json *j, plan_moved moved)
{
    plan_json_number(j, "bytes_read", moved.read);
    plan_json_number(j, "bytes_written", moved.written);
    plan_json_number(j, "bytes_transferred", moved.transferred);
}

static void put_queue(json *j, const weir_plan *plan, uint32_t q)
{
    const plan_queue *queue = &plan->queues[q];
    plan_json_string(j, "name", plan_text(plan, queue->name));
    plan_json_number(j, "device", queue->space.i);
    plan_json_string(j, "kind", queue_kind_text(queue->kind));
    plan_json_number(j, "workspace_offset", queue->workspace_offset);
    plan_json_number(j, "workspace_bytes", queue->workspace_bytes);
    put_moved(j, plan_queue_moved(plan, q));
}

static void put_words(json *j, const weir_field *field, const plan_word *words)
{
    const char *key = field->count == 1 ? field->name : NULL;
    if (!key)
        plan_json_open(j, field->name, '[');
    for (int i = 0; i < field->count; i++) {
        if (field->real)
            put_real(j, key, words[i].r);
        else
            put_int(j, key, words[i].i);
    }
    if (!key)
        plan_json_shut(j, ']');
}

static void put_attrs(json *j, const weir_plan *plan, const plan_kernel *kernel)
{
    const weir_op *op = weir_op_find(plan_text(plan, kernel->op));
    plan_json_open(j, "attrs", '{');
    for (int f = 0; op && f < op->field_count; f++)
        put_words(j, &op->fields[f], plan->words + kernel->attrs.first + op->fields[f].offset / 8);
    plan_json_shut(j, '}');
}

static void put_operands(json *j, const char *key, const weir_plan *plan, const plan_range *range)
{
    plan_json_open(j, key, '[');
    for (uint32_t o = range->first; o < range->first + range->count; o++) {
        plan_json_open(j, NULL, '{');
        plan_json_number(j, "tensor", plan->operands[o].tensor.i);
        put_id(j, "port", plan->operands[o].port.i);
        plan_json_shut(j, '}');
    }
    plan_json_shut(j, ']');
}

static void put_kernel(json *j, const weir_plan *plan, uint32_t k)
{
    const plan_kernel *kernel = &plan->kernels[k];
    plan_json_string(j, "op", plan_text(plan, kernel->op));
    plan_json_string(j, "name", plan_text(plan, kernel->name));
    plan_json_string(j, "file", plan_text(plan, kernel->file));
    plan_json_number(j, "line", kernel->line);
    put_id(j, "host", kernel->host);
    put_bool(j, "accumulate", kernel->accumulate);
    put_hex(j, "key", kernel->key);
    put_operands(j, "in", plan, &kernel->in);
    put_operands(j, "out", plan, &kernel->out);
    put_operands(j, "state", plan, &kernel->state);
    put_attrs(j, plan, kernel);
    plan_json_number(j, "workspace_offset", kernel->workspace_offset);
    plan_json_number(j, "workspace_bytes", kernel->workspace_bytes);
    put_moved(j, plan_kernel_moved(plan, k));
}

static void put_program(json *j, const weir_plan *plan, uint32_t p)
{
    plan_json_string(j, "name", plan_text(plan, plan->programs[p].name));
}

static void put_actor(json *j, const weir_plan *plan, uint32_t a)
{
    const plan_actor *actor = &plan->actors[a];
    plan_json_string(j, "name", plan_text(plan, actor->name));
    plan_json_number(j, "queue", actor->queue.i);
    plan_json_number(j, "program", actor->program.i);
    plan_json_string(j, "phase", phase_text(actor->phase));
    plan_json_number(j, "fires", actor->fires);
    plan_json_number(j, "priority", actor->priority);
    put_ids(j, "ports", &actor->ports);
    put_ids(j, "registers", &actor->regsts);
    put_ids(j, "states", &actor->states);
    put_ids(j, "temps", &actor->temps);
    put_ids(j, "kernels", &actor->kernels);
    put_moved(j, plan_actor_moved(plan, a));
}

static void put_port(json *j, const weir_plan *plan, uint32_t p)
{
    plan_json_number(j, "actor", plan->ports[p].actor.i);
    plan_json_number(j, "register", plan->ports[p].regst.i);
    plan_json_number(j, "hold", plan->ports[p].hold);
}

static void put_register(json *j, const weir_plan *plan, uint32_t r)
{
    const plan_regst *regst = &plan->regsts[r];
    char text[PLAN_TEXT_BYTES];
    plan_json_string(j, "name", regst_text(plan, (plan_regst_id){r}, text));
    put_id(j, "producer", regst->producer.i);
    plan_json_number(j, "device", regst->space.i);
    plan_json_string(j, "kind", mem_text(regst->kind));
    plan_json_number(j, "slots", regst->slots);
    plan_json_number(j, "fill", regst->fill);
    plan_json_number(j, "initial", regst->initial);
    put_bool(j, "fixed", regst->fixed);
    plan_json_number(j, "offset", regst->offset);
    plan_json_number(j, "slot_bytes", regst->slot_bytes);
    put_ids(j, "tensors", &regst->tensors);
}

static void put_tensor(json *j, const weir_plan *plan, uint32_t t)
{
    static const char *const home[] = {"register", "state", "temp"};
    const plan_tensor *tensor = &plan->tensors[t];
    plan_json_string(j, "name", plan_text(plan, tensor->name));
    plan_json_string(j, "home", home[tensor->home]);
    plan_json_number(j, "owner", tensor->owner);
    plan_json_string(j, "dtype", weir_dtype_name((weir_dtype)tensor->dtype));
    plan_json_number(j, "offset", tensor->offset);
    plan_json_number(j, "bytes", plan_tensor_bytes(tensor));
    put_dims(j, "shape", tensor->shape, tensor->rank);
    put_dims(j, "start", tensor->start, tensor->rank);
    put_dims(j, "global", tensor->global, tensor->rank);
    plan_json_string(j, "file", plan_text(plan, tensor->file));
    plan_json_number(j, "line", tensor->line);
}

static void put_init(json *j, const weir_plan *plan, uint32_t i)
{
    static const char *const kind[] = {"none", "zero", "value", "normal", "uniform"};
    const plan_init *init = &plan->inits[i];
    plan_json_number(j, "tensor", init->tensor.i);
    plan_json_string(j, "kind", kind[init->kind]);
    put_real(j, "a", init->a);
    put_real(j, "b", init->b);
    put_hex(j, "key", init->key);
}

static void put_param(json *j, const weir_plan *plan, uint32_t p)
{
    const plan_range *shards = &plan->params[p].shards;
    plan_json_string(j, "name", plan_text(plan, plan->params[p].name));
    plan_json_string(j, "kind", keep_text(plan->params[p].kind));
    put_bool(j, "frozen", plan->params[p].frozen);
    plan_json_open(j, "shards", '[');
    for (uint32_t s = shards->first; s < shards->first + shards->count; s++)
        plan_json_number(j, NULL, plan->shards[s].i);
    plan_json_shut(j, ']');
}

static void put_host(json *j, const weir_plan *plan, uint32_t h)
{
    const plan_host *host = &plan->hosts[h];
    plan_json_string(j, "name", plan_text(plan, host->name));
    plan_json_string(j, "kind", host_kind_text(host->kind));
    plan_json_number(j, "actor", host->actor.i);
    plan_json_string(j, "file", plan_text(plan, host->file));
    plan_json_number(j, "line", host->line);
}

static void put_collective(json *j, const weir_plan *plan, uint32_t c)
{
    const plan_collective *of = &plan->collectives[c];
    plan_json_string(j, "kind", collective_text(of->kind));
    plan_json_number(j, "group", of->group);
    plan_json_open(j, "members", '[');
    for (uint32_t m = of->members.first; m < of->members.first + of->members.count; m++)
        plan_json_number(j, NULL, plan->members[m].i);
    plan_json_shut(j, ']');
    plan_json_open(j, "moves", '[');
    for (uint32_t m = of->moves.first; m < of->moves.first + of->moves.count; m++) {
        open_item(j);
        plan_json_number(j, "from", plan->moves[m].from);
        plan_json_number(j, "to", plan->moves[m].to);
        plan_json_number(j, "give", plan->moves[m].give);
        plan_json_number(j, "take", plan->moves[m].take);
        plan_json_number(j, "bytes", plan->moves[m].bytes);
        plan_json_shut(j, '}');
    }
    plan_json_shut(j, ']');
}

static void put_limit(json *j, const weir_plan *plan, uint32_t l)
{
    const plan_limit *limit = &plan->limits[l];
    plan_json_number(j, "bytes", limit->bytes);
    plan_json_number(j, "whole", limit->whole);
    plan_json_number(j, "moved", limit->moved);
    plan_json_number(j, "again", limit->again);
    plan_json_number(j, "slots", limit->slots);
    put_real(j, "longer", limit->longer);
}

/* key in JSON, array of the plan, how an element is written */
#define LISTS(X)                            \
    X("devices", spaces, put_device)        \
    X("queues", queues, put_queue)          \
    X("programs", programs, put_program)    \
    X("actors", actors, put_actor)          \
    X("ports", ports, put_port)             \
    X("registers", regsts, put_register)    \
    X("tensors", tensors, put_tensor)       \
    X("kernels", kernels, put_kernel)       \
    X("inits", inits, put_init)             \
    X("params", params, put_param)          \
    X("hosts", hosts, put_host)             \
    X("collectives", collectives, put_collective) \
    X("limits", limits, put_limit)

weir_status weir_plan_json(const weir_plan *plan, FILE *to)
{
    json j = {.to = to};
    if (error_null(plan, "weir_plan_json", "plan") || error_null(to, "weir_plan_json", "file"))
        return WEIR_E_ARGUMENT;
    plan_json_open(&j, NULL, '{');
    plan_json_string(&j, "name", plan_text(plan, plan->name));
    plan_json_number(&j, "version", plan->version);
    put_hex(&j, "hash", plan->hash);
    put_hex(&j, "graph", plan->graph);
    plan_json_number(&j, "seed", plan->seed);
    plan_json_number(&j, "micro_batches", plan->micro_batches);
    plan_json_number(&j, "ranks", plan->ranks);
    if (plan->part) {
        plan_json_number(&j, "part", plan->part - 1);
        put_hex(&j, "whole", plan->whole);
    }
    if (plan->rates)
        put_hex(&j, "rates", plan->rates);
    if (plan->table_version)
        plan_json_number(&j, "graph_nodes", plan->graph_nodes_count);
    plan_json_number(&j, "bytes", weir_plan_bytes(plan, -1));
    plan_json_number(&j, "bytes_mapped", plan_bytes_mapped(plan));
    plan_json_number(&j, "ordering_edges", plan_ordering_edges(plan));
    plan_json_number(&j, "bytes_in_place", window_bytes(plan));
    plan_json_number(&j, "fast_sums", plan_fast_sums(plan));
#define X(key, member, put)                               \
    plan_json_open(&j, key, '[');                                \
    for (uint32_t i = 0; i < plan->member##_count; i++) { \
        open_item(&j);                                    \
        put(&j, plan, i);                                 \
        plan_json_shut(&j, '}');                                    \
    }                                                     \
    plan_json_shut(&j, ']');
    LISTS(X)
#undef X
    plan_json_open(&j, "turns", '[');
    for (uint32_t t = 0; t < plan->turns_count; t++)
        plan_json_number(&j, NULL, plan->turns[t].i);
    plan_json_shut(&j, ']');
    plan_json_shut(&j, '}');
    fputs("\n", to);
    return show_end(to);
}
