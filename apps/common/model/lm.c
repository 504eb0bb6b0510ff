/* apps/common/model/lm.c: reads a model, and moves its values: parameters into a session, and rows of a prompt to where they are kept. */
#include "apps/common/model/lm_inside.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* ---- reading ---- */

bool lm_is_end(const lm_config *c, int64_t token)
{
    for (int i = 0; i < c->ends_count; i++)
        if (c->ends[i] == token)
            return true;
    return false;
}

bool lm_sizes_fit(const lm_config *c, const struct lm_why *why)
{
    if (c->heads % c->kv_heads)
        return lm_wrong(why, "%d heads of keys and values do not divide %d heads", c->kv_heads, c->heads);
    if (c->head_dim > 4096 || (int64_t)c->head_dim * c->heads > LM_SIZE_MAX)
        return lm_wrong(why, "%d heads of %d columns are more than is supported", c->heads, c->head_dim);
    if (c->head_dim < 1 || (c->learned && c->head_dim * c->heads != c->dim))
        return lm_wrong(why, "%d heads do not divide the width %d", c->heads, c->dim);
    if (!c->learned && (c->rotary_dim % 2 || c->rotary_dim > c->head_dim))
        return lm_wrong(why, "%d of a head's %d columns cannot turn in pairs", c->rotary_dim, c->head_dim);
    return true;
}

static bool check(lm_config *c, const struct lm_why *outer)
{
    const struct lm_why why = {c->weights, outer->text, outer->bytes};
    weir_checkpoint *file = weir_checkpoint_open(c->weights);
    if (!file)
        snprintf(outer->text, outer->bytes, "%s", weir_error());
    const bool ok = file && lm_check(c, file, &why);
    weir_checkpoint_close(file);
    return ok;
}

bool lm_read(const char *path, lm_config *c, char *text, size_t bytes)
{
    struct lm_why why = {path, text, bytes};
    struct stat found;
    *c = (lm_config){.rope_base = 10000, .begin = -1, .prefix = ""};
    const bool folder = !stat(path, &found) && S_ISDIR(found.st_mode);
    if (strlen(path) >= LM_PATH_BYTES)
        return lm_wrong(&why, "is too long a path");
    if (!(folder ? lm_read_folder : lm_read_gguf)(path, c, &why) || !check(c, &why))
        return false;
    c->room = c->context;
    return true;
}

const char *lm_mapped(const lm_config *c)
{
    for (int part = 0; part < LM_PARTS; part++)
        for (int block = 0; block < (part < LM_BLOCK_PARTS ? 1 : c->layers); block++)
            if (lm_stays(c, (lm_part)part, block, false))
                return c->weights;
    return NULL;
}

weir_status lm_load(weir_session *session, const lm_config *c)
{
    return weir_session_load(session, c->weights, .parameters = true, .partial = true);
}

/* ---- rows of a prompt ---- */

/* The shards of a state of "prompt" on this rank, one after the other as they are visited. */
struct keeping {
    int position, rows;
    char *bytes;      /* owned */
    size_t count, room, taken;
};

static weir_status take_rows(void *ctx, const weir_shard *shard)
{
    struct keeping *k = ctx;
    const weir_view *from = &shard->view;
    const size_t row = (size_t)from->shape.dim[2] * weir_dtype_bytes(from->dtype), bytes = (size_t)k->rows * row;
    const size_t whole = (size_t)from->shape.dim[1] * row, all = (size_t)from->shape.dim[0] * bytes;
    if (all > k->room - k->count) {
        char *more = realloc(k->bytes, k->room = k->count + all);
        if (!more)
            return WEIR_E_MEMORY;
        k->bytes = more;
    }
    for (int64_t i = 0; i < from->shape.dim[0]; i++, k->count += bytes)
        memcpy(k->bytes + k->count, (const char *)from->data + (size_t)i * whole, bytes);
    return WEIR_OK;
}

/* Main's state has the layout of prompt's: all rows, and on each device the same heads. */
static weir_status put_rows(void *ctx, const weir_shard *shard)
{
    struct keeping *k = ctx;
    const weir_view *to = &shard->view;
    const size_t row = (size_t)to->shape.dim[2] * weir_dtype_bytes(to->dtype), bytes = (size_t)k->rows * row;
    if ((size_t)to->shape.dim[0] * bytes > k->count - k->taken)
        return WEIR_E_ARGUMENT;
    for (int64_t i = 0; i < to->shape.dim[0]; i++, k->taken += bytes)
        memcpy((char *)to->data + (size_t)(i * to->shape.dim[1] + k->position) * row, k->bytes + k->taken, bytes);
    return WEIR_OK;
}

static weir_status keep_state(weir_session *session, struct keeping *k, const char *name)
{
    char from[LM_NAME_BYTES + 4];
    snprintf(from, sizeof from, "%s.new", name);
    k->count = k->taken = 0;
    const weir_status status = weir_session_visit(session, from, take_rows, k);
    return status ? status : weir_session_visit(session, name, put_rows, k);
}

weir_status lm_keep(weir_session *session, const lm_config *c, int position, int rows)
{
    struct keeping k = {.position = position, .rows = rows};
    weir_status status = position < 0 || rows < 0 || rows > c->chunk || rows > c->room - position ? WEIR_E_ARGUMENT : WEIR_OK;
    for (int block = 0; block < c->layers; block++)
        for (int values = 0; values < 2; values++) {
            char name[LM_NAME_BYTES];
            status = status ? status : keep_state(session, &k, lm_state_name(block, values, name));
        }
    free(k.bytes);
    return status;
}
