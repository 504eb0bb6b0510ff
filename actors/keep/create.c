/* actors/keep/create.c: makes checkpoints and safetensors files from whole tensors: the second half of
 * <weir/checkpoint.h>. A folder is what keep_save writes as the only rank; a file is single.c's. */
#define _GNU_SOURCE
#include "actors/keep/own.h"
#include "actors/keep/save.h"
#include "actors/keep/format/single.h"
#include "graph/base/base.h"
#include "graph/base/error.h"
#include "graph/base/opts.h"

#include <errno.h>
#include <libgen.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

struct weir_checkpoint_writer {
    struct pool pool;
    struct keep_save *save; /* a folder; NULL: a file */
    const char *path;       /* of a file */
    uint64_t nonce;
    struct keep_index index;
    POOL_LIST(const void *) data;
};

static weir_status no_memory(const char *path)
{
    return error_set(WEIR_E_MEMORY, "%s: no memory to write it", path);
}

static bool ends_with(const char *path, const char *ending)
{
    size_t length = strlen(path), end_length = strlen(ending);
    return length > end_length && !strcmp(path + length - end_length, ending);
}

static bool is_single(const char *path)
{
    return ends_with(path, ".safetensors");
}

/* The file itself is looked at, or the one that a link leads to. */
static weir_status may_replace_file(const char *path)
{
    struct stat stat_of;
    if (stat(path, &stat_of))
        return errno == ENOENT ? WEIR_OK : error_set(WEIR_E_IO, "%s: cannot be looked at: %s", path, strerror(errno));
    if (S_ISREG(stat_of.st_mode) && keep_single_is_ours(path))
        return WEIR_OK;
    return error_set(WEIR_E_IO, "%s: is in the way, and is no file that weir has written; name another one, or move it "
                     "away", path);
}

static weir_status may_replace_folder(const char *path)
{
    char why[512];
    if (keep_owner_of(path, why, sizeof why) != KEEP_FOREIGN)
        return WEIR_OK;
    return error_set(WEIR_E_IO, "%s: is in the way, and is no checkpoint: %s; name another folder, or move it away", path,
                     why);
}

weir_status weir_checkpoint_may_replace(const char *path)
{
    if (error_null(path, "weir_checkpoint_may_replace", "path"))
        return WEIR_E_ARGUMENT;
    if (ends_with(path, ".gguf"))
        return error_set(WEIR_E_IO, "%s: a checkpoint cannot be a GGUF file; name a folder, or a file that ends with .safetensors", path);
    return is_single(path) ? may_replace_file(path) : may_replace_folder(path);
}

/* Another one each time, as far as processes of one machine go. */
static uint64_t new_nonce(void)
{
    static _Atomic uint64_t count;
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return ((uint64_t)now.tv_sec << 34) ^ ((uint64_t)now.tv_nsec << 16) ^ ((uint64_t)getpid() << 4) ^ ++count;
}

static weir_status begin_single(weir_checkpoint_writer *w, const char *path, weir_checkpoint_create_opts opts)
{
    const char *program = pool_text(&w->pool, "%s", opts.program ? opts.program : "");
    w->path = pool_text(&w->pool, "%s", path);
    w->index.info = (weir_checkpoint_info){.path = w->path, .step = opts.step, .seed = opts.seed,
                                           .plan_hash = opts.plan_hash, .graph_hash = opts.graph_hash,
                                           .program = program};
    return w->pool.failed ? no_memory(path) : may_replace_file(path);
}

static weir_status begin_folder(weir_checkpoint_writer *w, const char *path, weir_checkpoint_create_opts opts)
{
    char *above = pool_text(&w->pool, "%s", path), *last = pool_text(&w->pool, "%s", path);
    if (!above || !last)
        return no_memory(path);
    w->save = keep_save_begin(&(struct keep_save_opts){
        .root = dirname(above), .name = basename(last), .nonce = w->nonce, .facts = opts});
    return w->save ? WEIR_OK : WEIR_E_IO;
}

weir_checkpoint_writer *weir_checkpoint_create_at(const char *path, const weir_checkpoint_create_opts *given)
{
    weir_checkpoint_create_opts opts;
    if (opts_read(&opts, sizeof opts, given, "weir_checkpoint_create") ||
        error_null(path, "weir_checkpoint_create", "path"))
        return NULL;
    weir_checkpoint_writer *w = calloc(1, sizeof *w);
    if (!w) {
        no_memory(path);
        return NULL;
    }
    w->nonce = new_nonce();
    weir_status status = is_single(path) ? begin_single(w, path, opts) : begin_folder(w, path, opts);
    if (!status)
        return w;
    weir_checkpoint_abandon(w);
    return NULL;
}

/* ---- adding ---- */

static weir_status add_to_single(weir_checkpoint_writer *w, const weir_checkpoint_value *v, int slots)
{
    struct keep_tensor *to;
    const void **data = (const void **)POOL_PUSH(&w->pool, &w->data);
    weir_checkpoint_tensor tensor = {.name = v->name, .kind = v->kind, .dtype = v->value.dtype,
                                     .shape = v->value.shape, .frozen = v->frozen, .slots = slots};
    if (keep_index_look_up(&w->index, v->name))
        return error_set(WEIR_E_ARGUMENT, "%s: tensor %s: is there twice", w->path, v->name);
    if (!data)
        return no_memory(w->path);
    *data = v->value.data;
    return keep_index_add_tensor(&w->index, &tensor, &to);
}

static weir_status add_slots(weir_checkpoint_writer *w, const weir_checkpoint_value *v, int slots)
{
    struct keep_piece piece = {.shape = v->value.shape, .data = v->value.data};
    size_t bytes = (size_t)weir_shape_count(&v->value.shape) * weir_dtype_bytes(v->value.dtype);
    weir_status status = WEIR_OK;
    piece.tensor = (weir_checkpoint_tensor){.name = v->name, .kind = v->kind, .dtype = v->value.dtype,
                                            .shape = v->value.shape, .frozen = v->frozen, .slots = slots};
    for (; piece.slot < slots && !status; piece.slot++) {
        status = keep_save_add(w->save, &piece);
        piece.data = (const char *)piece.data + bytes;
    }
    return status;
}

weir_status weir_checkpoint_add_of(weir_checkpoint_writer *w, const weir_checkpoint_value *given, size_t given_bytes)
{
    weir_checkpoint_value own, *v = &own;
    if (error_null(w, "weir_checkpoint_add", "writer") || error_null(given, "weir_checkpoint_add", "value") ||
        error_null(given->name, "weir_checkpoint_add", "name"))
        return WEIR_E_ARGUMENT;
    const char *wrong = opts_copy(&own, sizeof own, given, given_bytes);
    if (wrong)
        return error_set(WEIR_E_ARGUMENT, "tensor %s: %s", given->name, wrong);
    int slots = v->slots > 0 ? v->slots : 1;
    if (!weir_dtype_bytes(v->value.dtype))
        return error_set(WEIR_E_ARGUMENT, "tensor %s: has no type that can be saved", v->name);
    if (v->value.shape.rank < 0 || v->value.shape.rank > WEIR_DIMS_MAX || !shape_countable(&v->value.shape))
        return error_set(WEIR_E_ARGUMENT, "tensor %s: has a shape that cannot be counted", v->name);
    if (!v->value.data && weir_shape_count(&v->value.shape))
        return error_set(WEIR_E_ARGUMENT, "tensor %s: its data is NULL", v->name);
    return w->save ? add_slots(w, v, slots) : add_to_single(w, v, slots);
}

weir_status weir_checkpoint_add_source(weir_checkpoint_writer *w, const weir_checkpoint_source *source)
{
    if (error_null(w, "weir_checkpoint_add_source", "writer") ||
        error_null(source, "weir_checkpoint_add_source", "source") ||
        error_null(source->name, "weir_checkpoint_add_source", "name") ||
        (source->count && error_null(source->bytes, "weir_checkpoint_add_source", "position")))
        return WEIR_E_ARGUMENT;
    return w->save ? keep_save_copy_source(w->save, source)
                   : keep_index_add_source(&w->index, source);
}

/* ---- the end ---- */

weir_status weir_checkpoint_finish(weir_checkpoint_writer *w)
{
    if (error_null(w, "weir_checkpoint_finish", "writer"))
        return WEIR_E_ARGUMENT;
    weir_status status = w->save ? keep_save_run(w->save) : may_replace_file(w->path);
    if (!status && !w->save)
        status = keep_single_write(&w->index, w->data.item, w->path, w->nonce);
    weir_checkpoint_abandon(w);
    return status;
}

void weir_checkpoint_abandon(weir_checkpoint_writer *w)
{
    if (!w)
        return;
    keep_save_free(w->save);
    keep_index_free(&w->index);
    pool_free(&w->pool);
    free(w);
}
