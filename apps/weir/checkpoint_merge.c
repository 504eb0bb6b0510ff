/* apps/weir/checkpoint_merge.c: see the header. */
#include "apps/weir/checkpoint_merge.h"
#include "actors/keep/format/gguf.h"
#include "apps/common/model/adapter_lm.h"
#include "graph/base/reading.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

typedef struct merge {
    struct tensors *to;
    struct tensors from;  /* owned: the adapter's */
    adapter adapter;
    lm_config config;     /* of the base, */
    bool described;       /* if it has a description; else names are transformers' own */
} merge;

/* ---- which weight ---- */

static bool is_folder(const char *path)
{
    struct stat found;
    return !stat(path, &found) && S_ISDIR(found.st_mode);
}

static bool has_config(const char *folder)
{
    char path[PATHS_BYTES];
    return snprintf(path, sizeof path, "%s/config.json", folder) < (int)sizeof path && !access(path, F_OK);
}

/* The name of a module's weight in the base. */
static bool weight_name(const merge *m, const char *module, char name[LM_NAME_BYTES])
{
    char theirs[LM_NAME_BYTES];
    if (!m->described)
        return snprintf(name, LM_NAME_BYTES, "%s.weight", module) < LM_NAME_BYTES;
    for (int part = LM_HEAD; part < LM_PARTS; part++)
        for (int block = part < LM_BLOCK_PARTS ? -1 : 0; block < (part < LM_BLOCK_PARTS ? 0 : m->config.layers); block++) {
            weir_shape shape;
            if (!lm_shape(&m->config, (lm_part)part, false, &shape) || strcmp(lm_adapter_module(&m->config, (lm_part)part, block, theirs), module) != 0)
                continue;
            lm_name(&m->config, (lm_part)part, block, false, name);
            return true;
        }
    return false;
}

/* ---- the sum ---- */

/* `to` [out, in], or transposed, += scale B A. */
static void add_product(float *to, const struct tensor *a, const struct tensor *b, float scale, bool transposed)
{
    const int64_t rank = a->value.shape.dim[0], in = a->value.shape.dim[1], out = b->value.shape.dim[0];
    const float *of_a = a->value.data, *of_b = b->value.data;
    for (int64_t o = 0; o < out; o++)
        for (int64_t k = 0; k < rank; k++) {
            const float by = scale * of_b[o * rank + k];
            for (int64_t i = 0; i < in; i++)
                to[transposed ? i * out + o : o * in + i] += by * of_a[k * in + i];
        }
}

static bool add_to(const merge *m, struct tensor *w, const struct tensor *a, const struct tensor *b)
{
    const weir_shape *shape = &w->value.shape;
    const bool turned = m->adapter.fan_in_fan_out;
    const int64_t out = b->value.shape.dim[0], in = a->value.shape.dim[1], count = weir_shape_count(shape);
    if (shape->rank != 2 || shape->dim[turned] != out || shape->dim[!turned] != in)
        return tensors_failed("%s has another shape than the adapter's product, [%lld, %lld]", w->name, (long long)(turned ? in : out),
                              (long long)(turned ? out : in));
    float *sum = malloc((size_t)count * sizeof *sum + 1), *change = calloc((size_t)count + 1, sizeof *change);
    if (sum && change) {
        weir_to_f32(w->value.dtype, w->value.data, count, sum);
        add_product(change, a, b, (float)(m->adapter.alpha / m->adapter.rank), turned);
        for (int64_t i = 0; i < count; i++)
            sum[i] += change[i];
        weir_from_f32(sum, count, w->value.dtype, w->value.data);
    }
    const bool ok = sum && change;
    free(sum);
    free(change);
    return ok || tensors_failed("no memory for %s", w->name);
}

static bool is_real(weir_dtype dtype)
{
    return dtype == WEIR_F32 || dtype == WEIR_F16 || dtype == WEIR_BF16;
}

/* A of a layer, found: with its B into the base's weight. */
static bool merge_layer(merge *m, const struct tensor *a, const char *module)
{
    char name[LM_NAME_BYTES], b_name[ADAPTER_NAME_BYTES + 64];
    snprintf(b_name, sizeof b_name, "%s%s.lora_B.weight", ADAPTER_PREFIX, module);
    struct tensor *b = tensors_find(&m->from, b_name), *w = weight_name(m, module, name) ? tensors_find(m->to, name) : NULL;
    if (!b)
        return tensors_failed("the adapter has no %s", b_name);
    if (!w || !is_real(w->value.dtype))
        return tensors_failed("the base has no weight for %s of the adapter", module);
    if (a->value.shape.rank != 2 || b->value.shape.rank != 2 || a->value.shape.dim[0] != m->adapter.rank || b->value.shape.dim[1] != m->adapter.rank)
        return tensors_failed("A and B of %s do not have the rank %d of adapter_config.json", module, m->adapter.rank);
    if (m->described && !lm_adapter_order(&m->config, module, &b->value, true))
        return tensors_failed("no memory for %s", b_name);
    return add_to(m, w, a, b);
}

/* Halves of the adapter become f32. */
static bool widen(struct tensor *t)
{
    const int64_t count = weir_shape_count(&t->value.shape);
    if (t->value.dtype == WEIR_F32)
        return true;
    float *wide = is_real(t->value.dtype) ? malloc((size_t)count * sizeof *wide + 1) : NULL;
    if (!wide)
        return tensors_failed("%s cannot be read as f32", t->name);
    weir_to_f32(t->value.dtype, t->value.data, count, wide);
    free(t->value.data);
    t->value.data = wide;
    t->value.dtype = WEIR_F32;
    return true;
}

static bool merge_layers(merge *m)
{
    char module[ADAPTER_NAME_BYTES];
    bool is_b, ok = true;
    for (int i = 0; i < m->from.count && ok; i++)
        ok = widen(&m->from.item[i]);
    for (int i = 0; i < m->from.count && ok; i++) {
        const struct tensor *t = &m->from.item[i];
        if (!adapter_module(t->name, module, &is_b))
            ok = tensors_failed("its tensor %.200s is not of a LoRA adapter", t->name);
        else if (!is_b)
            ok = merge_layer(m, t, module);
    }
    return ok;
}

/* ---- quantised weights ---- */

static bool narrow(struct tensor *t)
{
    const int64_t count = weir_shape_count(&t->value.shape);
    void *half = malloc((size_t)count * 2 + 1);
    if (!half)
        return tensors_failed("no memory for %s", t->name);
    weir_from_f32(t->value.data, count, WEIR_BF16, half);
    free(t->value.data);
    t->value.data = half;
    t->value.dtype = WEIR_BF16;
    return true;
}

/* Weights that were read as f32 from blocks become bf16. */
static bool narrow_blocks(struct tensors *t, const char *base)
{
    char path[PATHS_BYTES];
    if (!checkpoint_merge_weights(base, path))
        return false;
    weir_checkpoint *file = weir_checkpoint_open(path);
    bool ok = file || tensors_failed("%s", weir_error());
    for (int i = 0; i < t->count && ok; i++) {
        const weir_checkpoint_tensor *stored = weir_checkpoint_find(file, t->item[i].name);
        if (stored && stored->dtype == WEIR_F32 && stored->stored[0] == 'Q')
            ok = narrow(&t->item[i]);
    }
    weir_checkpoint_close(file);
    return ok;
}

/* ---- all of it ---- */

static bool open_adapter(merge *m, const char *base, const char *folder)
{
    char why[1024], path[PATHS_BYTES];
    m->described = keep_gguf_is(base) || has_config(base);
    if (!adapter_read(folder, &m->adapter, why, sizeof why) || (m->described && !lm_read(base, &m->config, why, sizeof why)))
        return tensors_failed("%s", why);
    if (m->described)
        m->adapter.fan_in_fan_out = m->config.in_first;
    if (snprintf(path, sizeof path, "%s/adapter_model.safetensors", folder) >= (int)sizeof path)
        return tensors_failed("%.64s...: the name is too long", folder);
    return tensors_read(&m->from, path, false);
}

bool checkpoint_merge(struct tensors *t, const char *base, const char *folder, bool narrows)
{
    char why[1024];
    merge *m = calloc(1, sizeof *m);
    if (!m)
        return tensors_failed("no memory");
    m->to = t;
    bool ok = open_adapter(m, base, folder);
    if (ok && !merge_layers(m)) {
        snprintf(why, sizeof why, "%s", tensors_error());
        ok = tensors_failed("--merge %s: %s", folder, why);
    }
    tensors_free(&m->from);
    free(m);
    return ok && (!narrows || narrow_blocks(t, base));
}

bool checkpoint_merge_weights(const char *base, char path[PATHS_BYTES])
{
    if (snprintf(path, PATHS_BYTES, "%s/model.safetensors", base) >= PATHS_BYTES)
        return tensors_failed("%.64s...: the name is too long", base);
    if (!is_folder(base) || access(path, F_OK))
        snprintf(path, PATHS_BYTES, "%s", base);
    return true;
}

bool checkpoint_merge_path(const char *base, const char *to, char path[PATHS_BYTES])
{
    const char *end = strrchr(to, '.');
    const bool file = end && !strcmp(end, ".safetensors");
    const int bytes = is_folder(base) && has_config(base) && !file ? snprintf(path, PATHS_BYTES, "%s/model.safetensors", to)
                                                                   : snprintf(path, PATHS_BYTES, "%s", to);
    return bytes < PATHS_BYTES || tensors_failed("%.64s...: the name is too long", to);
}

/* ---- the other files of a folder ---- */

static bool has_same_bytes(const char *one, const char *other)
{
    const char *fault;
    FILE *x = reading_file(one, &fault), *y = reading_file(other, &fault);
    char of_x[1 << 13], of_y[sizeof of_x];
    bool same = x && y;
    for (size_t got = 1; same && got;) {
        got = fread(of_x, 1, sizeof of_x, x);
        same = fread(of_y, 1, sizeof of_y, y) == got && !memcmp(of_x, of_y, got) && !ferror(x) && !ferror(y);
    }
    if (x)
        fclose(x);
    if (y)
        fclose(y);
    return same;
}

static bool may_copy(const char *from, const char *to)
{
    return access(to, F_OK) || has_same_bytes(from, to) || tensors_failed("%s: is in the way, and is not a copy of %s", to, from);
}

/* A file that is there is a copy already, or the file itself. */
static bool copy_file(const char *from, const char *to)
{
    const char *fault;
    if (!access(to, F_OK))
        return true;
    FILE *in = reading_file(from, &fault), *out = in ? fopen(to, "wbe") : NULL;
    char part[1 << 14];
    bool ok = in && out;
    for (size_t got; ok && (got = fread(part, 1, sizeof part, in)) > 0;)
        ok = fwrite(part, 1, got, out) == got;
    ok = ok && !ferror(in);
    if (in)
        fclose(in);
    if (out && fclose(out))
        ok = false;
    return ok || tensors_failed("%s cannot be copied to %s: %s", from, to, in ? strerror(errno) : fault);
}

/* Calls take() for each file of a folder of Hugging Face that has no weights, and for its name beside `path`. */
static bool each_other(const char *base, const char *path, bool (*take)(const char *from, const char *to))
{
    static const char *const names[] = {"config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json", "tokenizer.model",
                                        "special_tokens_map.json", "added_tokens.json", "vocab.json", "merges.txt", "tekken.json",
                                        "chat_template.jinja"};
    const char *slash = strrchr(path, '/');
    char from[PATHS_BYTES], to[PATHS_BYTES];
    if (!is_folder(base) || !has_config(base) || !slash || strcmp(slash, "/model.safetensors") != 0)
        return true;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        if (snprintf(from, sizeof from, "%s/%s", base, names[i]) >= (int)sizeof from ||
            snprintf(to, sizeof to, "%.*s/%s", (int)(slash - path), path, names[i]) >= (int)sizeof to)
            return tensors_failed("%.64s...: the name is too long", base);
        if (!access(from, F_OK) && !take(from, to))
            return false;
    }
    return true;
}

bool checkpoint_merge_may(const char *base, const char *path)
{
    return each_other(base, path, may_copy);
}

bool checkpoint_merge_others(const char *base, const char *path)
{
    return each_other(base, path, copy_file);
}
