/* apps/weir/quantize.c: which type each tensor gets, and the data, slice by slice. See the header. */
#include "apps/weir/quantize.h"

#include "actors/keep/format/gguf.h"
#include "apps/common/model/lm_inside.h"
#include "graph/base/blocks.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* ---- types ---- */

/* Matrices that llama.cpp's ops read as f32. */
static bool is_matrix(const char *name, const weir_shape *shape)
{
    static const char *const others[] = {"_norm.weight", "position_embd.weight", "token_types.weight", "ffn_gate_inp.weight", "conv1d.weight"};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (lm_ends_with(name, others[i]))
            return false;
    return shape->rank >= 2 && lm_ends_with(name, ".weight");
}

static const struct gguf_type *type_of(const struct quantize *q, const char *name, const weir_shape *shape, const weir_checkpoint_tensor *from)
{
    const bool embeds = !strcmp(name, "token_embd.weight") || !strcmp(name, "output.weight");
    const char *dense = from && from->dtype == WEIR_F16 ? "F16" : from && from->dtype == WEIR_BF16 ? "BF16" : "F32";
    if (from && !weir_checkpoint_reads_as(from, WEIR_F32))
        return gguf_type_named(from->stored);
    if (!is_matrix(name, shape))
        return gguf_type_named("F32");
    return gguf_type_named(shape->dim[shape->rank - 1] % 32 ? dense : block_format_of(embeds ? WEIR_Q8_0 : q->format)->name);
}

struct quantize_tensor *quantize_add(struct quantize *q, const char *name, const weir_shape *shape, const weir_checkpoint_tensor *from)
{
    struct quantize_tensor *t = NULL;
    const struct gguf_type *type = from && !from->dtype ? NULL : type_of(q, name, shape, from);
    if (!type)
        tensors_failed("%s: tensor %s: %s", q->from, name, from && from->unread ? from->unread : "its type is none of a GGUF file");
    else if (!(t = POOL_PUSH(&q->pool, &q->tensors)))
        tensors_failed("no memory for tensor %s", name);
    else
        *t = (struct quantize_tensor){.name = name, .from = from, .type = type, .shape = *shape};
    q->quantized += t && type->blocks != WEIR_DENSE;
    return t;
}

void quantize_put_version(struct quantize *q)
{
    enum { MOSTLY_Q4_0 = 2, MOSTLY_Q8_0 = 7, VERSION = 2 }; /* llama.cpp's llama_ftype, ggml's GGML_QNT_VERSION */
    gguf_write_u32(&q->to, QUANTIZE_FILE_TYPE, q->format == WEIR_Q4_0 ? MOSTLY_Q4_0 : MOSTLY_Q8_0);
    gguf_write_u32(&q->to, QUANTIZE_VERSION, VERSION);
}

/* ---- slices ---- */

/* Rows [first, first + count) of a tensor, and their memory. */
struct slice {
    int64_t first, count, row; /* row: elements of each */
    void *read, *ordered, *blocks; /* owned; the last two may be NULL */
};

static weir_status read_box(struct quantize *q, const struct quantize_tensor *t, const int64_t *start, weir_array *to)
{
    const struct tensor *held = q->held ? tensors_find(q->held, t->from->name) : NULL;
    if (!held)
        return weir_checkpoint_read(q->file, t->from, 0, start, to);
    const int64_t zero[WEIR_DIMS_MAX] = {0};
    const int64_t count = weir_shape_count(&to->shape);
    const size_t each = weir_dtype_bytes(held->value.dtype);
    const bool same = held->value.dtype == to->dtype; /* else it becomes f32 */
    void *part = same ? to->data : malloc((size_t)count * each + 1);
    if (!part)
        return WEIR_E_MEMORY;
    tensor_copy_box(held->value.data, &held->value.shape, start, part, &to->shape, zero, &to->shape, false, each);
    if (!same) {
        weir_to_f32(held->value.dtype, part, count, to->data);
        free(part);
    }
    return WEIR_OK;
}

/* Reads rows of the new tensor as the source has them. */
static bool read_slice(struct quantize *q, const struct quantize_tensor *t, const struct slice *s, weir_dtype dtype)
{
    int64_t start[WEIR_DIMS_MAX] = {s->first};
    weir_array to = {s->read, dtype, t->from->shape};
    if (t->turned) {
        start[0] = 0;
        start[1] = s->first;
        to.shape.dim[1] = s->count;
    } else if (to.shape.rank)
        to.shape.dim[0] = s->count;
    const weir_status status = read_box(q, t, start, &to);
    return !status || tensors_failed("%s", status == WEIR_E_MEMORY ? "no memory" : weir_error());
}

/* Element j of row i of the new tensor is to be element j of the row that goes there, or of the column. */
static void put_in_order(const struct quantize_tensor *t, const struct slice *s)
{
    const float *from = s->read;
    float *to = s->ordered;
    for (int64_t i = 0; i < s->count; i++)
        for (int64_t j = 0; j < s->row && t->turned; j++)
            to[i * s->row + j] = from[j * s->count + i];
    for (int64_t i = 0; i < s->count && t->head; i++) {
        const int64_t in_head = i % t->head, source = i - in_head + in_head % 2 * (t->head / 2) + in_head / 2;
        memcpy(to + i * s->row, from + source * s->row, (size_t)s->row * sizeof *to);
    }
}

static bool cannot_write(const char *path)
{
    return tensors_failed("%s: cannot be written: %s", path, strerror(errno));
}

static bool write_slice(struct quantize *q, const struct quantize_tensor *t, const struct slice *s, const char *path)
{
    const int64_t count = s->count * s->row;
    const void *values = s->ordered ? s->ordered : s->read;
    const bool real = weir_checkpoint_reads_as(t->from, WEIR_F32);
    if (!read_slice(q, t, s, !real ? t->from->dtype : s->ordered || s->blocks ? WEIR_F32 : t->type->read_as))
        return false;
    if (s->ordered)
        put_in_order(t, s);
    if (s->blocks && !block_write_row(t->type->blocks, values, count, s->blocks))
        return tensors_failed("%s: tensor %s: has values that are not finite, or too large for %s", q->from, t->name, t->type->name);
    if (s->ordered && !s->blocks && t->type->read_as != WEIR_F32)
        weir_from_f32(s->ordered, count, t->type->read_as, s->read);
    const void *data = s->blocks ? s->blocks : t->type->read_as != WEIR_F32 ? s->read : values;
    return gguf_write_data(&q->to, data, (size_t)(count / t->type->elements * t->type->bytes)) || cannot_write(path);
}

/* ---- tensors ---- */

/* Rows in a slice: whole heads. */
static int64_t rows_of(const struct quantize_tensor *t, int64_t row)
{
    const int64_t least = t->head ? t->head : 1, rows = row < QUANTIZE_SLICE ? QUANTIZE_SLICE / (row ? row : 1) : 1;
    return rows < least ? least : rows / least * least;
}

static bool write_slices(struct quantize *q, const struct quantize_tensor *t, const char *path)
{
    const int64_t rows = t->shape.rank ? t->shape.dim[0] : 1;
    struct slice s = {.row = rows ? weir_shape_count(&t->shape) / rows : 0};
    const int64_t most = rows_of(t, s.row) < rows ? rows_of(t, s.row) : rows;
    const size_t room = (size_t)(most * s.row) + 1;
    s.read = malloc(room * 8); /* no element is larger */
    s.ordered = t->head || t->turned ? malloc(room * sizeof(float)) : NULL;
    s.blocks = t->type->blocks != WEIR_DENSE ? malloc(room * 2) : NULL;
    bool ok = (s.read && (s.ordered || !(t->head || t->turned)) && (s.blocks || t->type->blocks == WEIR_DENSE)) ||
              tensors_failed("no memory for tensor %s", t->name);
    for (; s.first < rows && ok; s.first += most) {
        s.count = rows - s.first < most ? rows - s.first : most;
        ok = write_slice(q, t, &s, path);
    }
    free(s.read);
    free(s.ordered);
    free(s.blocks);
    return ok;
}

/* Bytes of a tensor that has its type already, as they are. */
static bool copy_blocks(struct quantize *q, const struct quantize_tensor *t, const char *path)
{
    const int64_t rows = t->shape.dim[0], blocks = t->shape.dim[t->shape.rank - 1] / t->type->elements;
    const int64_t row = rows ? weir_shape_count(&t->shape) / rows : 0, most = rows_of(t, row);
    int64_t start[WEIR_DIMS_MAX] = {0};
    weir_array part = {malloc((size_t)(most * row) * 2 + 1), WEIR_U8, t->shape};
    bool ok = part.data || tensors_failed("no memory for tensor %s", t->name);
    part.shape.dim[part.shape.rank - 1] = blocks;
    part.shape.dim[part.shape.rank++] = t->type->bytes;
    for (; start[0] < rows && ok; start[0] += most) {
        part.shape.dim[0] = rows - start[0] < most ? rows - start[0] : most;
        ok = !weir_checkpoint_read(q->file, t->from, 0, start, &part) || tensors_failed("%s", weir_error());
        ok = ok && (gguf_write_data(&q->to, part.data, (size_t)weir_shape_count(&part.shape)) || cannot_write(path));
    }
    free(part.data);
    return ok;
}

static bool write_tensor(struct quantize *q, const struct quantize_tensor *t, const char *path)
{
    const bool same = t->from && t->type->blocks != WEIR_DENSE && !strcmp(t->from->stored, t->type->name);
    if (!t->from)
        return gguf_write_data(&q->to, t->value, (size_t)gguf_write_bytes(t->type, &t->shape)) || cannot_write(path);
    return same && !q->held && t->shape.rank < WEIR_DIMS_MAX ? copy_blocks(q, t, path) : write_slices(q, t, path);
}

bool quantize_write(struct quantize *q, const char *path)
{
    for (int i = 0; i < q->tensors.count; i++)
        gguf_write_tensor(&q->to, q->tensors.item[i].name, q->tensors.item[i].type, &q->tensors.item[i].shape);
    bool ok = gguf_write_open(&q->to, path) || cannot_write(path);
    for (int i = 0; i < q->tensors.count && ok; i++)
        ok = write_tensor(q, &q->tensors.item[i], path) && (gguf_write_end(&q->to) || cannot_write(path));
    return gguf_write_close(&q->to, ok) ? ok : ok && cannot_write(path);
}

/* ---- sources ---- */

bool quantize_may_open(const char *from, bool *folder)
{
    char path[LM_PATH_BYTES];
    struct stat found;
    *folder = !stat(from, &found) && S_ISDIR(found.st_mode);
    if (*folder ? snprintf(path, sizeof path, "%s/config.json", from) < (int)sizeof path && !access(path, F_OK) : keep_gguf_is(from))
        return true;
    return tensors_failed("%s: --quantize needs a GGUF file, or a Hugging Face folder with a config.json", from);
}

bool quantize_open(struct quantize *q, const char *from, weir_format format)
{
    bool folder;
    *q = (struct quantize){.from = from, .format = format};
    return quantize_may_open(from, &folder) && (folder ? quantize_from_folder : quantize_from_gguf)(q);
}

void quantize_close(struct quantize *q)
{
    gguf_write_close(&q->to, false);
    weir_checkpoint_close(q->file);
    pool_free(&q->pool);
}
