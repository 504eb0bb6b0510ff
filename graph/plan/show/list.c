/* graph/plan/show/list.c: what is asked for of a plan: actors, or logical tensors, by name, device and stage. */
#define _GNU_SOURCE
#include "graph/base/error.h"
#include "graph/base/foreign.h"
#include "graph/base/locale.h"
#include "graph/base/names.h"
#include "graph/base/opts.h"
#include "graph/plan/show/json_inside.h"
#include "graph/plan/show/layouts.h"
#include "graph/plan/show/show_inside.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { TEXT_BYTES = 512 };

typedef struct list {
    const weir_plan *plan;
    const weir_list_opts *opts;
    layouts layouts;
    bool *there;      /* of each space: it is asked for; owned */
    uint32_t count;   /* that were listed */
    FILE *table;
    json json;
} list;

static bool name_fits(const list *l, plan_str name)
{
    return !l->opts->filter || glob_fits(l->opts->filter, plan_text(l->plan, name));
}

static bool find_spaces(list *l)
{
    l->there = calloc(l->plan->spaces_count + (size_t)1, sizeof *l->there);
    for (uint32_t s = 0; l->there && s < l->plan->spaces_count; s++)
        l->there[s] = (!l->opts->device || glob_fits(l->opts->device, plan_text(l->plan, l->plan->spaces[s].name))) &&
                      (!l->opts->stage || l->layouts.stage[s] == (uint32_t)l->opts->stage);
    return l->there;
}

/* ---- tensors ---- */

static const plan_tensor *first_shard(const list *l, const logical *of)
{
    return &l->plan->tensors[l->layouts.shard[of->first]];
}

static uint32_t stage_of(const list *l, const logical *of)
{
    return l->layouts.stage[plan_tensor_space(l->plan, first_shard(l, of)).i];
}

static const char *global_text(const plan_tensor *tensor, char text[PLAN_TEXT_BYTES])
{
    plan_tensor whole = *tensor;
    for (uint32_t d = 0; d < tensor->rank; d++)
        whole.shape[d] = tensor->global[d];
    return tensor_text(&whole, text);
}

static const char *kind_of(const list *l, const plan_tensor *tensor)
{
    return mem_text(tensor->home == PLAN_IN_REGST  ? l->plan->regsts[tensor->owner].kind
                    : tensor->home == PLAN_IN_STATE ? (uint32_t)PLAN_STATE
                                                    : (uint32_t)PLAN_WORKSPACE);
}

static void tensor_line(list *l, const logical *of)
{
    char type[PLAN_TEXT_BYTES], devices[TEXT_BYTES], layout[TEXT_BYTES];
    const plan_tensor *tensor = first_shard(l, of);
    show_text(l->table, plan_text(l->plan, tensor->name));
    fprintf(l->table, "\t%s\t", global_text(tensor, type));
    foreign_put(l->table, layouts_devices(&l->layouts, of, devices, sizeof devices));
    fprintf(l->table, "\t%s\t%" PRIu32 "\t%s", layouts_text(of, layout, sizeof layout),
            stage_of(l, of), kind_of(l, tensor));
    show_bytes(l->table, plan_tensor_bytes(tensor));
    fputs("\t", l->table);
    if (of->line) {
        show_text(l->table, of->file);
        fprintf(l->table, ":%" PRIu32, of->line);
    }
    fputs("\n", l->table);
}

static void tensor_object(list *l, const logical *of)
{
    json *j = &l->json;
    char text[TEXT_BYTES];
    const plan_tensor *tensor = first_shard(l, of);
    plan_json_open(j, NULL, '{');
    plan_json_string(j, "name", plan_text(l->plan, tensor->name));
    plan_json_string(j, "dtype", weir_dtype_name((weir_dtype)tensor->dtype));
    plan_json_open(j, "shape", '[');
    for (uint32_t d = 0; d < tensor->rank; d++)
        plan_json_number(j, NULL, (uint64_t)tensor->global[d]);
    plan_json_shut(j, ']');
    plan_json_string(j, "devices", layouts_devices(&l->layouts, of, text, sizeof text));
    plan_json_string(j, "layout", layouts_text(of, text, sizeof text));
    plan_json_open(j, "parts", '[');
    for (uint32_t d = 0; d < tensor->rank; d++)
        plan_json_number(j, NULL, of->parts[d]);
    plan_json_shut(j, ']');
    plan_json_number(j, "terms", of->terms);
    plan_json_number(j, "alike", of->alike);
    plan_json_number(j, "stage", stage_of(l, of));
    plan_json_string(j, "kind", kind_of(l, tensor));
    plan_json_number(j, "shard_bytes", plan_tensor_bytes(tensor));
    plan_json_string(j, "file", of->file);
    plan_json_number(j, "line", of->line);
    plan_json_shut(j, '}');
}

static void list_tensors(list *l)
{
    if (!l->opts->json)
        fputs("tensor\ttype\tdevices\tlayout\tstage\tkind\ta shard\tmade at\n", l->table);
    for (uint32_t t = 0; t < l->layouts.tensor_count; t++) {
        const logical *of = &l->layouts.tensor[t];
        if (!name_fits(l, first_shard(l, of)->name) || !layouts_there(&l->layouts, of, l->there))
            continue;
        l->count++;
        (l->opts->json ? tensor_object : tensor_line)(l, of);
    }
}

/* ---- actors ---- */

static bool actor_fits(const list *l, const plan_actor *actor)
{
    bool fits = name_fits(l, actor->name);
    for (uint32_t k = actor->kernels.first; k < actor->kernels.first + actor->kernels.count && !fits; k++)
        fits = name_fits(l, l->plan->kernels[k].name) || name_fits(l, l->plan->kernels[k].op);
    return fits && l->there[l->plan->queues[actor->queue.i].space.i];
}

static void actor_object(list *l, uint32_t a)
{
    json *j = &l->json;
    const weir_plan *plan = l->plan;
    const plan_actor *actor = &plan->actors[a];
    uint32_t space = plan->queues[actor->queue.i].space.i;
    plan_json_open(j, NULL, '{');
    plan_json_number(j, "actor", a);
    plan_json_string(j, "name", plan_text(plan, actor->name));
    plan_json_string(j, "device", plan_text(plan, plan->spaces[space].name));
    plan_json_number(j, "stage", l->layouts.stage[space]);
    plan_json_string(j, "queue", plan_text(plan, plan->queues[actor->queue.i].name));
    plan_json_string(j, "program", plan_text(plan, plan->programs[actor->program.i].name));
    plan_json_string(j, "phase", phase_text(actor->phase));
    plan_json_number(j, "fires", actor->fires);
    plan_json_open(j, "kernels", '[');
    for (uint32_t k = actor->kernels.first; k < actor->kernels.first + actor->kernels.count; k++)
        plan_json_string(j, NULL, plan_text(plan, plan->kernels[k].name));
    plan_json_shut(j, ']');
    plan_json_shut(j, '}');
}

/* Lists the actors of a queue, behind its name. */
static void list_queue(list *l, uint32_t queue)
{
    bool head = false;
    for (uint32_t a = 0; a < l->plan->actors_count; a++) {
        if (l->plan->actors[a].queue.i != queue || !actor_fits(l, &l->plan->actors[a]))
            continue;
        l->count++;
        if (!l->opts->json && !head) {
            show_text(l->table, plan_text(l->plan, l->plan->queues[queue].name));
            fputs(SHOW_ACTOR_HEAD, l->table);
            head = true;
        }
        if (l->opts->json)
            actor_object(l, a);
        else
            show_actor(l->plan, l->table, a);
    }
}

static void list_actors(list *l)
{
    for (uint32_t q = 0; q < l->plan->queues_count; q++)
        list_queue(l, q);
}

/* ---- all ---- */

/* The table is written into memory, and then in columns. */
static weir_status list_all(list *l, FILE *to)
{
    char *text = NULL;
    size_t bytes = 0;
    l->table = open_memstream(&text, &bytes);
    if (!l->table)
        return error_set(WEIR_E_MEMORY, "no memory to list the plan");
    l->json = (json){.to = l->table};
    if (l->opts->json)
        plan_json_open(&l->json, NULL, '[');
    (l->opts->tensors ? list_tensors : list_actors)(l);
    if (l->opts->json)
        plan_json_shut(&l->json, ']');
    bool failed = ferror(l->table) != 0;
    failed = fclose(l->table) || failed;
    if (!failed && l->count && l->opts->json)
        fprintf(to, "%s\n", text);
    else if (!failed && l->count)
        show_table(text, l->opts->tensors ? SHOW_LEFT(0) | SHOW_LEFT(1) | SHOW_LEFT(2) | SHOW_LEFT(3) | SHOW_LEFT(5) |
                                                SHOW_LEFT(7)
                                          : SHOW_ACTOR_LEFT, to);
    free(text);
    if (failed)
        return error_set(WEIR_E_MEMORY, "no memory to list the plan");
    return show_end(to);
}

/* The names that a filter could have had. */
static void add_names(const list *l, struct names *names)
{
    for (uint32_t t = 0; l->opts->tensors && t < l->layouts.tensor_count; t++)
        if (layouts_there(&l->layouts, &l->layouts.tensor[t], l->there))
            names_add(names, plan_text(l->plan, first_shard(l, &l->layouts.tensor[t])->name));
    for (uint32_t a = 0; !l->opts->tensors && a < l->plan->actors_count; a++)
        if (l->there[plan_actor_space(l->plan, a).i])
            names_add(names, plan_text(l->plan, l->plan->actors[a].name));
}

static weir_status nothing(const list *l)
{
    uint32_t there = 0;
    const char *wanted = l->opts->filter ? l->opts->filter : "*";
    struct names names = {.wanted = l->opts->filter}, devices = {.wanted = l->opts->device};
    char text[NAMES_TEXT_BYTES];
    for (uint32_t s = 0; s < l->plan->spaces_count; s++)
        there += l->there[s];
    if (l->opts->stage > (int)l->layouts.stage_count)
        return error_set(WEIR_E_ARGUMENT, "the plan has no stage %d, but %" PRIu32, l->opts->stage, l->layouts.stage_count);
    for (uint32_t s = 0; !there && s < l->plan->spaces_count; s++)
        if (!l->opts->stage || l->layouts.stage[s] == (uint32_t)l->opts->stage)
            names_add(&devices, plan_text(l->plan, l->plan->spaces[s].name));
    if (!there)
        return error_set(WEIR_E_ARGUMENT, "no device%s is called \"%s\"%s", l->opts->stage ? " of that stage" : "",
                         l->opts->device ? l->opts->device : "", names_text(&devices, text, sizeof text));
    add_names(l, &names);
    return error_set(WEIR_E_ARGUMENT, "no %s there is called \"%s\"%s",
                     l->opts->tensors ? "tensor" : "actor, and no kernel,", wanted, names_text(&names, text, sizeof text));
}

weir_status weir_plan_list_at(const weir_plan *plan, FILE *to, const weir_list_opts *given)
{
    weir_list_opts opts;
    list l = {.plan = plan, .opts = &opts};
    if (error_null(plan, "weir_plan_list", "plan") || error_null(to, "weir_plan_list", "file"))
        return WEIR_E_ARGUMENT;
    weir_status status = opts_read(&opts, sizeof opts, given, "weir_plan_list");
    if (status)
        return status;
    status = layouts_make(&l.layouts, plan) && find_spaces(&l)
                             ? list_all(&l, to)
                             : error_set(WEIR_E_MEMORY, "no memory to list the plan");
    if (!status && !l.count)
        status = nothing(&l);
    layouts_free(&l.layouts);
    free(l.there);
    return status;
}
