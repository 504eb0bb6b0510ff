/* graph/plan/json.c: the whole plan as one JSON object, for programs. Ids are indexes into the arrays of the same
 * object.
 *
 * Numbers of 64 bits that mean no quantity (hash, keys) are texts in hexadecimal, because many readers keep numbers as
 * doubles. Texts are made valid UTF-8: a byte that is none becomes U+FFFD.
 */
#include "graph/base/base.h"
#include "graph/base/error.h"
#include "graph/plan/moved.h"
#include "graph/plan/text.h"
#include "graph/plan/window.h"

#include <inttypes.h>
#include <math.h>
#include <weir/op.h>

typedef struct json {
    FILE *to;
    bool more; /* something stands before, so a comma is needed */
} json;

/* ---- writing JSON ---- */

/* Bytes of the UTF-8 sequence at `text`; 0 if there is none (RFC 3629, table of section 4). */
static int utf8_bytes(const unsigned char *text)
{
    if (text[0] < 0x80)
        return 1;
    if (text[0] < 0xc2 || text[0] > 0xf4)
        return 0;
    int bytes = text[0] < 0xe0 ? 2 : text[0] < 0xf0 ? 3 : 4;
    unsigned char low = text[0] == 0xe0 ? 0xa0 : text[0] == 0xf0 ? 0x90 : 0x80;
    unsigned char high = text[0] == 0xed ? 0x9f : text[0] == 0xf4 ? 0x8f : 0xbf;
    if (text[1] < low || text[1] > high)
        return 0;
    for (int i = 2; i < bytes; i++)
        if ((text[i] & 0xc0) != 0x80)
            return 0;
    return bytes;
}

static void quote(FILE *to, const char *text)
{
    const unsigned char *at = (const unsigned char *)text;
    fputc('"', to);
    while (*at) {
        int bytes = utf8_bytes(at);
        if (*at == '"' || *at == '\\')
            fprintf(to, "\\%c", *at);
        else if (*at < 0x20 || *at == 0x7f)
            fprintf(to, "\\u%04x", *at);
        else if (bytes)
            fwrite(at, 1, (size_t)bytes, to);
        else
            fputs("\\ufffd", to);
        at += bytes ? bytes : 1;
    }
    fputc('"', to);
}

/* What stands before a value: a comma, and the key inside of objects (NULL inside of arrays). */
static void put_key(json *j, const char *key)
{
    if (j->more)
        fputs(",", j->to);
    if (key) {
        quote(j->to, key);
        fputs(":", j->to);
    }
    j->more = true;
}

static void open_in(json *j, const char *key, char bracket)
{
    put_key(j, key);
    fputc(bracket, j->to);
    j->more = false;
}

static void shut(json *j, char bracket)
{
    fputc(bracket, j->to);
    j->more = true;
}

static void put_number(json *j, const char *key, uint64_t value)
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
    put_key(j, key);
    if (isfinite(value))
        fprintf(j->to, "%.17g", value);
    else
        fputs("null", j->to);
}

static void put_bool(json *j, const char *key, bool value)
{
    put_key(j, key);
    fputs(value ? "true" : "false", j->to);
}

static void put_string(json *j, const char *key, const char *text)
{
    put_key(j, key);
    quote(j->to, text);
}

static void put_id(json *j, const char *key, uint32_t id)
{
    if (id == PLAN_NONE) {
        put_key(j, key);
        fputs("null", j->to);
    } else {
        put_number(j, key, id);
    }
}

static void put_ids(json *j, const char *key, const plan_range *range)
{
    open_in(j, key, '[');
    for (uint32_t i = 0; i < range->count; i++)
        put_number(j, NULL, range->first + i);
    shut(j, ']');
}

static void put_dims(json *j, const char *key, const int64_t *dim, uint32_t rank)
{
    open_in(j, key, '[');
    for (uint32_t d = 0; d < rank; d++)
        put_int(j, NULL, dim[d]);
    shut(j, ']');
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
    put_string(j, "name", plan_text(plan, space->name));
    put_string(j, "kind", device_kind_name((weir_device_kind)space->kind));
    put_number(j, "index", space->index);
    put_number(j, "rank", space->rank);
    put_number(j, "bytes", space->bytes);
    open_in(j, "bytes_by_kind", '{');
    for (uint32_t kind = 0; kind < PLAN_MEMS; kind++)
        put_number(j, mem_text(kind), bytes[kind]);
    shut(j, '}');
    put_number(j, "bytes_shared", plan_bytes_shared(plan, (plan_space_id){s}));
}

static void put_moved(json *j, plan_moved moved)
{
    put_number(j, "bytes_read", moved.read);
    put_number(j, "bytes_written", moved.written);
    put_number(j, "bytes_transferred", moved.transferred);
}

static void put_queue(json *j, const weir_plan *plan, uint32_t q)
{
    const plan_queue *queue = &plan->queues[q];
    put_string(j, "name", plan_text(plan, queue->name));
    put_number(j, "device", queue->space.i);
    put_string(j, "kind", queue_kind_text(queue->kind));
    put_number(j, "workspace_offset", queue->workspace_offset);
    put_number(j, "workspace_bytes", queue->workspace_bytes);
    put_moved(j, plan_queue_moved(plan, q));
}

static void put_words(json *j, const weir_field *field, const plan_word *words)
{
    const char *key = field->count == 1 ? field->name : NULL;
    if (!key)
        open_in(j, field->name, '[');
    for (int i = 0; i < field->count; i++) {
        if (field->real)
            put_real(j, key, words[i].r);
        else
            put_int(j, key, words[i].i);
    }
    if (!key)
        shut(j, ']');
}

static void put_attrs(json *j, const weir_plan *plan, const plan_kernel *kernel)
{
    const weir_op *op = weir_op_find(plan_text(plan, kernel->op));
    open_in(j, "attrs", '{');
    for (int f = 0; op && f < op->field_count; f++)
        put_words(j, &op->fields[f], plan->words + kernel->attrs.first + op->fields[f].offset / 8);
    shut(j, '}');
}

static void put_operands(json *j, const char *key, const weir_plan *plan, const plan_range *range)
{
    open_in(j, key, '[');
    for (uint32_t o = range->first; o < range->first + range->count; o++) {
        open_in(j, NULL, '{');
        put_number(j, "tensor", plan->operands[o].tensor.i);
        put_id(j, "port", plan->operands[o].port.i);
        shut(j, '}');
    }
    shut(j, ']');
}

static void put_kernel(json *j, const weir_plan *plan, uint32_t k)
{
    const plan_kernel *kernel = &plan->kernels[k];
    put_string(j, "op", plan_text(plan, kernel->op));
    put_string(j, "name", plan_text(plan, kernel->name));
    put_string(j, "file", plan_text(plan, kernel->file));
    put_number(j, "line", kernel->line);
    put_id(j, "host", kernel->host);
    put_bool(j, "accumulate", kernel->accumulate);
    put_hex(j, "key", kernel->key);
    put_operands(j, "in", plan, &kernel->in);
    put_operands(j, "out", plan, &kernel->out);
    put_operands(j, "state", plan, &kernel->state);
    put_attrs(j, plan, kernel);
    put_number(j, "workspace_offset", kernel->workspace_offset);
    put_number(j, "workspace_bytes", kernel->workspace_bytes);
    put_moved(j, plan_kernel_moved(plan, k));
}

static void put_program(json *j, const weir_plan *plan, uint32_t p)
{
    put_string(j, "name", plan_text(plan, plan->programs[p].name));
}

static void put_actor(json *j, const weir_plan *plan, uint32_t a)
{
    const plan_actor *actor = &plan->actors[a];
    put_string(j, "name", plan_text(plan, actor->name));
    put_number(j, "queue", actor->queue.i);
    put_number(j, "program", actor->program.i);
    put_string(j, "phase", phase_text(actor->phase));
    put_number(j, "fires", actor->fires);
    put_number(j, "priority", actor->priority);
    put_ids(j, "ports", &actor->ports);
    put_ids(j, "registers", &actor->regsts);
    put_ids(j, "states", &actor->states);
    put_ids(j, "temps", &actor->temps);
    put_ids(j, "kernels", &actor->kernels);
    put_moved(j, plan_actor_moved(plan, a));
}

static void put_port(json *j, const weir_plan *plan, uint32_t p)
{
    put_number(j, "actor", plan->ports[p].actor.i);
    put_number(j, "register", plan->ports[p].regst.i);
    put_number(j, "hold", plan->ports[p].hold);
}

static void put_register(json *j, const weir_plan *plan, uint32_t r)
{
    const plan_regst *regst = &plan->regsts[r];
    char text[PLAN_TEXT_BYTES];
    put_string(j, "name", regst_text(plan, (plan_regst_id){r}, text));
    put_id(j, "producer", regst->producer.i);
    put_number(j, "device", regst->space.i);
    put_string(j, "kind", mem_text(regst->kind));
    put_number(j, "slots", regst->slots);
    put_number(j, "fill", regst->fill);
    put_number(j, "initial", regst->initial);
    put_bool(j, "fixed", regst->fixed);
    put_number(j, "offset", regst->offset);
    put_number(j, "slot_bytes", regst->slot_bytes);
    put_ids(j, "tensors", &regst->tensors);
}

static void put_tensor(json *j, const weir_plan *plan, uint32_t t)
{
    static const char *const home[] = {"register", "state", "temp"};
    const plan_tensor *tensor = &plan->tensors[t];
    put_string(j, "name", plan_text(plan, tensor->name));
    put_string(j, "home", home[tensor->home]);
    put_number(j, "owner", tensor->owner);
    put_string(j, "dtype", weir_dtype_name((weir_dtype)tensor->dtype));
    put_number(j, "offset", tensor->offset);
    put_number(j, "bytes", plan_tensor_bytes(tensor));
    put_dims(j, "shape", tensor->shape, tensor->rank);
    put_dims(j, "start", tensor->start, tensor->rank);
    put_dims(j, "global", tensor->global, tensor->rank);
}

static void put_init(json *j, const weir_plan *plan, uint32_t i)
{
    static const char *const kind[] = {"none", "zero", "value", "normal", "uniform"};
    const plan_init *init = &plan->inits[i];
    put_number(j, "tensor", init->tensor.i);
    put_string(j, "kind", kind[init->kind]);
    put_real(j, "a", init->a);
    put_real(j, "b", init->b);
    put_hex(j, "key", init->key);
}

static void put_param(json *j, const weir_plan *plan, uint32_t p)
{
    const plan_range *shards = &plan->params[p].shards;
    put_string(j, "name", plan_text(plan, plan->params[p].name));
    put_string(j, "kind", keep_text(plan->params[p].kind));
    put_bool(j, "frozen", plan->params[p].frozen);
    open_in(j, "shards", '[');
    for (uint32_t s = shards->first; s < shards->first + shards->count; s++)
        put_number(j, NULL, plan->shards[s].i);
    shut(j, ']');
}

static void put_host(json *j, const weir_plan *plan, uint32_t h)
{
    const plan_host *host = &plan->hosts[h];
    put_string(j, "name", plan_text(plan, host->name));
    put_string(j, "kind", host_kind_text(host->kind));
    put_number(j, "actor", host->actor.i);
    put_string(j, "file", plan_text(plan, host->file));
    put_number(j, "line", host->line);
}

static void put_collective(json *j, const weir_plan *plan, uint32_t c)
{
    const plan_collective *of = &plan->collectives[c];
    put_string(j, "kind", collective_text(of->kind));
    put_number(j, "group", of->group);
    open_in(j, "members", '[');
    for (uint32_t m = of->members.first; m < of->members.first + of->members.count; m++)
        put_number(j, NULL, plan->members[m].i);
    shut(j, ']');
    open_in(j, "moves", '[');
    for (uint32_t m = of->moves.first; m < of->moves.first + of->moves.count; m++) {
        open_item(j);
        put_number(j, "from", plan->moves[m].from);
        put_number(j, "to", plan->moves[m].to);
        put_number(j, "give", plan->moves[m].give);
        put_number(j, "take", plan->moves[m].take);
        put_number(j, "bytes", plan->moves[m].bytes);
        shut(j, '}');
    }
    shut(j, ']');
}

static void put_limit(json *j, const weir_plan *plan, uint32_t l)
{
    const plan_limit *limit = &plan->limits[l];
    put_number(j, "bytes", limit->bytes);
    put_number(j, "whole", limit->whole);
    put_number(j, "moved", limit->moved);
    put_number(j, "again", limit->again);
    put_number(j, "slots", limit->slots);
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
    open_in(&j, NULL, '{');
    put_string(&j, "name", plan_text(plan, plan->name));
    put_number(&j, "version", plan->version);
    put_hex(&j, "hash", plan->hash);
    put_hex(&j, "graph", plan->graph);
    put_number(&j, "seed", plan->seed);
    put_number(&j, "micro_batches", plan->micro_batches);
    put_number(&j, "ranks", plan->ranks);
    if (plan->part) {
        put_number(&j, "part", plan->part - 1);
        put_hex(&j, "whole", plan->whole);
    }
    put_number(&j, "bytes", weir_plan_bytes(plan, -1));
    put_number(&j, "ordering_edges", plan_ordering_edges(plan));
    put_number(&j, "bytes_in_place", window_bytes(plan));
    put_number(&j, "fast_sums", plan_fast_sums(plan));
#define X(key, member, put)                               \
    open_in(&j, key, '[');                                \
    for (uint32_t i = 0; i < plan->member##_count; i++) { \
        open_item(&j);                                    \
        put(&j, plan, i);                                 \
        shut(&j, '}');                                    \
    }                                                     \
    shut(&j, ']');
    LISTS(X)
#undef X
    open_in(&j, "turns", '[');
    for (uint32_t t = 0; t < plan->turns_count; t++)
        put_number(&j, NULL, plan->turns[t].i);
    shut(&j, ']');
    shut(&j, '}');
    fputs("\n", to);
    return ferror(to) ? error_set(WEIR_E_IO, "the plan cannot be written") : WEIR_OK;
}
