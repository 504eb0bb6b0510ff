/* apps/common/tensors.c: a model's tensors in memory. */
#define _GNU_SOURCE
#include "apps/common/tensors.h"

#include <search.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static char error[1024];

bool tensors_failed(const char *format, ...)
{
    va_list list;
    va_start(list, format);
    vsnprintf(error, sizeof error, format, list);
    va_end(list);
    return false;
}

const char *tensors_error(void)
{
    return error;
}

static bool weir_failed(void)
{
    return tensors_failed("%s", weir_error());
}

/* A name, and whose it is: tensors move when there are more. A tree, as names that a stranger chose may all have one
 * hash. */
struct named {
    const char *name; /* borrowed, of the tensor */
    int tensor;
};

static int by_name(const void *a, const void *b)
{
    return strcmp(((const struct named *)a)->name, ((const struct named *)b)->name);
}

void tensors_free(struct tensors *t)
{
    tdestroy(t->named, free);
    for (int i = 0; i < t->count; i++) {
        free(t->item[i].name);
        free(t->item[i].value.data);
    }
    for (int i = 0; i < t->source_count; i++) {
        free((void *)t->source[i].name);
        free((void *)t->source[i].bytes);
    }
    free((void *)t->facts.program);
    free(t->item);
    free(t->source);
    *t = (struct tensors){.count = 0};
}

size_t tensor_bytes(const struct tensor *t)
{
    return (size_t)weir_shape_count(&t->value.shape) * weir_dtype_bytes(t->value.dtype) * (size_t)t->slots;
}

static bool grow(struct tensors *t)
{
    int room = t->room ? 2 * t->room : 64;
    struct tensor *item = t->count < t->room ? t->item : realloc(t->item, (size_t)room * sizeof *item);
    if (item && item != t->item)
        t->item = item;
    if (item && t->count == t->room)
        t->room = room;
    return item;
}

struct tensor *tensors_add(struct tensors *t, const char *name, weir_dtype dtype, const weir_shape *shape, int slots)
{
    struct tensor new = {.slots = slots, .value = {.dtype = dtype, .shape = *shape}};
    if (!grow(t))
        return NULL;
    new.kind = strchr(name, ':') ? WEIR_OPTIMIZER_STATE : WEIR_PARAMETER; /* until somebody knows better */
    new.name = strdup(name);
    new.value.data = malloc(tensor_bytes(&new) + 1);
    struct named *entry = new.name && new.value.data ? malloc(sizeof *entry) : NULL;
    if (entry)
        *entry = (struct named){new.name, t->count};
    struct named **found = entry ? tsearch(entry, &t->named, by_name) : NULL;
    if (!found) {
        free(entry);
        free(new.name);
        free(new.value.data);
        return NULL;
    }
    if (*found != entry)
        free(entry); /* the first of that name is found */
    t->item[t->count] = new;
    return &t->item[t->count++];
}

struct tensor *tensors_find(const struct tensors *t, const char *name)
{
    const struct named wanted = {.name = name};
    struct named *const *found = tfind(&wanted, &t->named, by_name);
    return found ? &t->item[(*found)->tensor] : NULL;
}

/* ---- checkpoints ---- */

static bool read_one(struct tensors *t, weir_checkpoint *c, const weir_checkpoint_tensor *from)
{
    if (!from->dtype && t->skip_unread) {
        if (!t->skipped++)
            snprintf(t->first_skipped, sizeof t->first_skipped, "%s: %s", from->name, from->unread);
        return true;
    }
    if (!from->dtype)
        return tensors_failed("%s: tensor %s: %s; --skip-unread leaves out such tensors",
                              weir_checkpoint_get_info(c)->path, from->name, from->unread);
    struct tensor *to = tensors_add(t, from->name, from->dtype, &from->shape, from->slots);
    if (!to)
        return tensors_failed("no memory for tensor %s", from->name);
    size_t slot_bytes = tensor_bytes(to) / (size_t)to->slots;
    to->kind = from->kind;
    to->frozen = from->frozen;
    for (int slot = 0; slot < to->slots; slot++) {
        weir_array value = to->value;
        value.data = (char *)value.data + (size_t)slot * slot_bytes;
        if (weir_checkpoint_read(c, from, slot, NULL, &value))
            return weir_failed();
    }
    return true;
}

static bool copy_sources(struct tensors *t, const weir_checkpoint *c, int count)
{
    t->source = calloc((size_t)count + 1, sizeof *t->source);
    for (int i = 0; i < count && t->source; i++) {
        weir_checkpoint_source s = *weir_checkpoint_get_source(c, i);
        void *bytes = malloc(s.count + 1);
        if (bytes)
            memcpy(bytes, s.bytes, s.count);
        s.bytes = bytes;
        s.name = strdup(s.name);
        t->source[t->source_count++] = s;
        if (!s.bytes || !s.name)
            return tensors_failed("no memory for sources");
    }
    return t->source || tensors_failed("no memory for sources");
}

static bool read_open(struct tensors *t, weir_checkpoint *c, bool all)
{
    const weir_checkpoint_info *info = weir_checkpoint_get_info(c);
    t->facts = (weir_checkpoint_create_opts){.step = info->step, .seed = info->seed, .plan_hash = info->plan_hash,
                                             .graph_hash = info->graph_hash, .program = strdup(info->program)};
    for (int i = 0; i < info->tensors; i++) {
        const weir_checkpoint_tensor *from = weir_checkpoint_get_tensor(c, i);
        if ((all || from->kind == WEIR_PARAMETER) && !read_one(t, c, from))
            return false;
    }
    return !all || copy_sources(t, c, info->sources);
}

bool tensors_read(struct tensors *t, const char *path, bool all)
{
    weir_checkpoint *c = weir_checkpoint_open(path);
    bool ok = c ? read_open(t, c, all) : weir_failed();
    weir_checkpoint_close(c);
    return ok;
}

static bool write_open(const struct tensors *t, weir_checkpoint_writer *w)
{
    for (int i = 0; i < t->count; i++) {
        const struct tensor *from = &t->item[i];
        weir_checkpoint_value value = {from->name, from->kind, from->frozen, from->slots, from->value};
        if (weir_checkpoint_add(w, &value))
            return weir_failed();
    }
    for (int i = 0; i < t->source_count; i++)
        if (weir_checkpoint_add_source(w, &t->source[i]))
            return weir_failed();
    return true;
}

bool tensors_write(const struct tensors *t, const char *path)
{
    weir_checkpoint_create_opts facts = t->facts; /* zeros where they come from no checkpoint */
    facts.size = sizeof facts;
    weir_checkpoint_writer *w = weir_checkpoint_create_at(path, &facts);
    if (!w)
        return weir_failed();
    if (write_open(t, w))
        return weir_checkpoint_finish(w) == WEIR_OK || weir_failed();
    weir_checkpoint_abandon(w);
    return false;
}

/* ---- boxes ---- */

static int64_t index_of(const weir_shape *shape, const int64_t *start, const int64_t *at)
{
    int64_t index = 0;
    for (int d = 0; d < shape->rank; d++)
        index = index * shape->dim[d] + start[d] + at[d];
    return index;
}

/* Moves on to the next element of a box; false after the last. */
static bool step(const weir_shape *shape, int64_t *at)
{
    for (int d = shape->rank - 1; d >= 0; d--) {
        if (++at[d] < shape->dim[d])
            return true;
        at[d] = 0;
    }
    return false;
}

void tensor_copy_box(const void *from, const weir_shape *from_shape, const int64_t *from_start, void *to,
                     const weir_shape *to_shape, const int64_t *to_start, const weir_shape *shape, bool transposed,
                     size_t element)
{
    int64_t at[WEIR_DIMS_MAX] = {0};
    if (weir_shape_count(shape) == 0)
        return;
    do {
        const int64_t turned[WEIR_DIMS_MAX] = {at[1], at[0]};
        int64_t read = index_of(from_shape, from_start, at);
        int64_t written = index_of(to_shape, to_start, transposed ? turned : at);
        memcpy((char *)to + (size_t)written * element, (const char *)from + (size_t)read * element, element);
    } while (step(shape, at));
}
