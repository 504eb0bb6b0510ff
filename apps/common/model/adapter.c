/* apps/common/model/adapter.c: the parameters of an adapter, between a session and adapter_model.safetensors. */
#include "apps/common/model/adapter.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define REFUSE(...) (snprintf(why, why_bytes, __VA_ARGS__), false)
enum { PATH_ROOM = 4096 };

bool adapter_matches(const adapter *a, const char *module)
{
    const size_t bytes = strlen(module);
    for (int i = 0; i < a->targets; i++) {
        const size_t part = strlen(a->target[i]);
        const char *end = part <= bytes ? module + bytes - part : NULL;
        if (end && !strcmp(end, a->target[i]) && (end == module || end[-1] == '.'))
            return true;
    }
    return false;
}

bool adapter_module(const char *parameter, char module[ADAPTER_NAME_BYTES], bool *is_b)
{
    static const char *const ends[] = {".lora_A.weight", ".lora_B.weight"};
    const size_t bytes = strlen(parameter), prefix = strlen(ADAPTER_PREFIX), end = strlen(ends[0]);
    if (strncmp(parameter, ADAPTER_PREFIX, prefix) != 0 || bytes <= prefix + end || bytes - prefix - end >= ADAPTER_NAME_BYTES)
        return false;
    for (int k = 0; k < 2; k++)
        if (!strcmp(parameter + bytes - end, ends[k])) {
            snprintf(module, ADAPTER_NAME_BYTES, "%.*s", (int)(bytes - prefix - end), parameter + prefix);
            *is_b = k;
            return true;
        }
    return false;
}

/* ---- parameters of a plan ---- */

typedef struct part {
    weir_param_info info;
    char module[ADAPTER_NAME_BYTES];
    bool is_b;
} part;

/* Whether parameter i of the plan is an adapter's. */
static bool find_part(const weir_plan *plan, int i, part *p)
{
    return !weir_plan_param(plan, i, &p->info) && p->info.kind == WEIR_PARAMETER && adapter_module(p->info.name, p->module, &p->is_b);
}

static bool new_value(const part *p, weir_array *value)
{
    *value = (weir_array){.dtype = p->info.type.dtype, .shape = p->info.type.shape};
    value->data = malloc((size_t)weir_shape_count(&value->shape) * weir_dtype_bytes(value->dtype));
    return value->data;
}

static const char *tensors_path(const char *folder, char path[PATH_ROOM])
{
    return snprintf(path, PATH_ROOM, "%s/adapter_model.safetensors", folder) < PATH_ROOM ? path : NULL;
}

/* ---- from a file ---- */

static bool load_part(const adapter_files *from, weir_checkpoint *file, weir_session *session, const part *p, char *why, size_t why_bytes)
{
    const char *path = weir_checkpoint_get_info(file)->path;
    const weir_checkpoint_tensor *t = weir_checkpoint_find(file, p->info.name);
    weir_array value;
    if (!t || !weir_checkpoint_reads_as(t, WEIR_F32) || !weir_shape_equal(&t->shape, &p->info.type.shape))
        return REFUSE("%s: %s %s", path, t ? "it has another shape or type of" : "it has no", p->info.name);
    if (!new_value(p, &value))
        return REFUSE("no memory for %s", p->info.name);
    bool ok = !weir_checkpoint_read(file, t, 0, NULL, &value);
    if (ok && p->is_b && from->order && !from->order(from->ctx, p->module, &value, true)) {
        free(value.data);
        return REFUSE("no memory for %s", p->info.name);
    }
    ok = ok && !weir_session_write(session, p->info.name, &value);
    free(value.data);
    return ok || REFUSE("%s", weir_error());
}

/* A tensor of the file that no parameter took. */
static bool refuse_other(const weir_checkpoint *file, const weir_plan *plan, char *why, size_t why_bytes)
{
    const weir_checkpoint_info *info = weir_checkpoint_get_info(file);
    for (int i = 0; i < info->tensors; i++) {
        const char *name = weir_checkpoint_get_tensor(file, i)->name;
        part p;
        bool found = false;
        for (int k = 0; k < weir_plan_param_count(plan) && !found; k++)
            found = find_part(plan, k, &p) && !strcmp(p.info.name, name);
        if (!found)
            return REFUSE("%s: the model has no layer for its tensor %.200s", info->path, name);
    }
    return true;
}

bool adapter_load(const adapter_files *from, weir_session *session, const weir_plan *plan, char *why, size_t why_bytes)
{
    char path[PATH_ROOM];
    weir_checkpoint *file = tensors_path(from->folder, path) ? weir_checkpoint_open(path) : NULL;
    if (!file)
        return REFUSE("%s", weir_error());
    bool ok = true;
    part p;
    for (int i = 0; i < weir_plan_param_count(plan) && ok; i++)
        if (find_part(plan, i, &p))
            ok = load_part(from, file, session, &p, why, why_bytes);
    ok = ok && refuse_other(file, plan, why, why_bytes);
    weir_checkpoint_close(file);
    return ok;
}

/* ---- to a file ---- */

/* All values, which the writer borrows. */
typedef struct values {
    weir_array *value;
    int count;
} values;

static bool read_values(const adapter_files *to, weir_session *session, const weir_plan *plan, weir_checkpoint_writer *writer, values *all,
                        char *why, size_t why_bytes)
{
    part p;
    for (int i = 0; i < weir_plan_param_count(plan); i++) {
        if (!find_part(plan, i, &p))
            continue;
        weir_array *value = &all->value[all->count];
        if (!new_value(&p, value))
            return REFUSE("no memory for %s", p.info.name);
        all->count++;
        if (weir_session_read(session, p.info.name, value))
            return REFUSE("%s", weir_error());
        if (p.is_b && to->order && !to->order(to->ctx, p.module, value, false))
            return REFUSE("no memory for %s", p.info.name);
        const weir_checkpoint_value tensor = {.name = p.info.name, .kind = WEIR_PARAMETER, .slots = 1, .value = *value};
        if (writer && weir_checkpoint_add(writer, &tensor))
            return REFUSE("%s", weir_error());
    }
    return true;
}

bool adapter_save(const adapter_files *to, const adapter *a, weir_session *session, const weir_plan *plan, bool writes, char *why,
                  size_t why_bytes)
{
    char path[PATH_ROOM];
    if (!tensors_path(to->folder, path))
        return REFUSE("%.64s...: the name is too long", to->folder);
    values all = {calloc((size_t)weir_plan_param_count(plan) + 1, sizeof *all.value), 0};
    weir_checkpoint_writer *writer = writes ? weir_checkpoint_create(path) : NULL;
    bool ok = all.value && (writer || !writes);
    if (!ok)
        ok = REFUSE("%s", all.value ? weir_error() : "no memory");
    ok = ok && read_values(to, session, plan, writer, &all, why, why_bytes);
    if (!ok)
        weir_checkpoint_abandon(writer);
    else if (writer && weir_checkpoint_finish(writer))
        ok = REFUSE("%s", weir_error());
    for (int i = 0; i < all.count; i++)
        free(all.value[i].data);
    free(all.value);
    return ok && (!writes || adapter_write(to->folder, a, why, why_bytes));
}
