/* actors/keep/format/index_json.c: the index as a JSON text, and back.
 *
 * The text is meant to be looked at too: members one a line, and in the arrays one file, tensor or source a line.
 * Numbers of 64 bits that are not counts (seed, hashes, checksums) are hexadecimal texts, as many JSON readers know
 * only 53 bits.
 */
#define _GNU_SOURCE
#include "actors/keep/format/checksum.h"
#include "actors/keep/format/files.h"
#include "actors/keep/format/index.h"
#include "actors/keep/format/json.h"
#include "actors/keep/format/safetensors.h"
#include "graph/base/base.h"
#include "graph/base/error.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static const char format_name[] = "weir checkpoint";
#define SEAL_FORMAT ",\n \"xxh3\": \"%016" PRIx64 "\"\n}\n"
#define SEAL_BYTES 32 /* that it prints */

static const char *const kind_names[] = {"parameter", "optimizer", "state"};

const char *keep_kind_name(weir_param_kind kind)
{
    return kind_names[kind];
}

/* ---- encoding ---- */

static json_t *hex_json(uint64_t value)
{
    return json_sprintf("%016" PRIx64, value);
}

static json_t *numbers_json(int count, const int64_t *number)
{
    json_t *array = json_array();
    for (int i = 0; i < count; i++)
        json_array_append_new(array, json_integer(number[i]));
    return array;
}

static json_t *shard_json(const weir_checkpoint_shard *s)
{
    return json_pack("{s:i, s:s, s:i, s:I, s:o, s:o, s:o}", "file", s->file, "key", s->key, "slot", s->slot, "offset",
                     (json_int_t)s->offset, "start", numbers_json(s->shape.rank, s->start), "shape",
                     numbers_json(s->shape.rank, s->shape.dim), "xxh3", hex_json(s->checksum));
}

static json_t *tensor_json(const struct keep_tensor *tensor)
{
    const weir_checkpoint_tensor *t = &tensor->is;
    json_t *shards = json_array();
    for (int i = 0; i < tensor->shards.count; i++)
        json_array_append_new(shards, shard_json(&tensor->shards.item[i]));
    return json_pack("{s:s, s:s, s:s, s:o, s:b, s:i, s:o}", "name", t->name, "kind", keep_kind_name(t->kind), "dtype",
                     weir_dtype_name(t->dtype), "shape", numbers_json(t->shape.rank, t->shape.dim), "frozen",
                     (int)t->frozen, "slots", t->slots, "shards", shards);
}

static json_t *file_json(const weir_checkpoint_file *file)
{
    return json_pack("{s:s, s:I, s:o}", "name", file->name, "bytes", (json_int_t)file->bytes, "header_xxh3",
                     hex_json(file->checksum));
}

static json_t *source_json(const weir_checkpoint_source *source)
{
    char *hex = malloc(2 * source->count + 1);
    if (hex)
        *hex = '\0';
    for (size_t i = 0; hex && i < source->count; i++)
        snprintf(hex + 2 * i, 3, "%02x", ((const unsigned char *)source->bytes)[i]);
    json_t *json = hex ? json_pack("{s:s, s:i, s:s}", "name", source->name, "rank", source->rank, "bytes", hex) : NULL;
    free(hex);
    return json;
}

static json_t *facts_json(const struct keep_index *index)
{
    const weir_checkpoint_info *info = &index->info;
    return json_pack("{s:s, s:i, s:o, s:I, s:o, s:o, s:o, s:s, s:I, s:i}", "format", format_name, "version",
                     KEEP_VERSION, "nonce", hex_json(index->nonce), "step", (json_int_t)info->step, "seed",
                     hex_json(info->seed), "plan", hex_json(info->plan_hash), "graph", hex_json(info->graph_hash),
                     "program", info->program ? info->program : "", "saved", (json_int_t)info->saved_s, "ranks",
                     info->ranks);
}

/* Prints one value, and frees it. */
static bool print(FILE *to, json_t *json, const char *before, const char *behind)
{
    fputs(before, to);
    bool ok = json && json_dumpf(json, to, JSON_COMPACT | JSON_ENCODE_ANY) == 0;
    fputs(behind, to);
    json_decref(json);
    return ok;
}

static bool print_facts(FILE *to, const struct keep_index *index)
{
    json_t *facts = facts_json(index), *value;
    const char *key;
    bool ok = facts;
    json_object_foreach(facts, key, value)
    {
        ok = print(to, json_string(key), " ", ": ") && print(to, json_incref(value), "", ",\n") && ok;
    }
    json_decref(facts);
    return ok;
}

static const char *comma(int index, int count)
{
    return index + 1 < count ? ",\n" : "\n";
}

static bool print_index(FILE *to, const struct keep_index *index)
{
    fputs("{\n", to);
    bool ok = print_facts(to, index);
    fputs(" \"files\": [\n", to);
    for (int i = 0; i < index->files.count; i++)
        ok = print(to, file_json(&index->files.item[i]), "  ", comma(i, index->files.count)) && ok;
    fputs(" ],\n \"tensors\": [\n", to);
    for (int i = 0; i < index->tensors.count; i++)
        ok = print(to, tensor_json(&index->tensors.item[i]), "  ", comma(i, index->tensors.count)) && ok;
    fputs(" ],\n \"sources\": [\n", to);
    for (int i = 0; i < index->sources.count; i++)
        ok = print(to, source_json(&index->sources.item[i]), "  ", comma(i, index->sources.count)) && ok;
    fputs(" ]", to);
    return ok;
}

/* The last member is the checksum of everything before its line's comma. */
static bool print_sealed(FILE *to, char *const *text, const size_t *count, const struct keep_index *index)
{
    if (!print_index(to, index) || fflush(to))
        return false;
    return fprintf(to, SEAL_FORMAT, keep_sum_of(*text, *count)) == SEAL_BYTES;
}

char *keep_index_encode(const struct keep_index *index, size_t *count)
{
    char *text = NULL;
    FILE *to = open_memstream(&text, count);
    bool ok = to && print_sealed(to, &text, count, index);
    if (to)
        ok = fclose(to) == 0 && ok;
    if (ok)
        return text;
    free(text);
    error_set(WEIR_E_MEMORY, "no memory for a checkpoint's index, or a name in it is not UTF-8");
    return NULL;
}

/* ---- decoding ---- */

static weir_status take_file(struct keep_index *index, const char *where, const json_t *json)
{
    struct keep_object o = {.json = json, .where = where};
    const char *name = keep_json_text(&o, "name");
    uint64_t bytes = (uint64_t)keep_json_int(&o, "bytes", 0, INT64_MAX);
    uint64_t checksum = keep_json_hex(&o, "header_xxh3");
    if (keep_json_end(&o))
        return o.status;
    if (!keep_name_is_plain(name))
        return error_set(WEIR_E_IO, "%s: \"%s\" is not the name of a file in the folder", where, name);
    return keep_index_add_file(index, name, bytes, checksum);
}

static weir_status take_shard(struct keep_index *index, const char *where, const json_t *json, struct keep_tensor *to)
{
    struct keep_object o = {.json = json, .where = where};
    weir_checkpoint_shard s = {.shape.rank = to->is.shape.rank};
    s.file = (int)keep_json_int(&o, "file", 0, (int64_t)index->files.count - 1);
    s.key = keep_json_text(&o, "key");
    s.slot = (int)keep_json_int(&o, "slot", 0, to->is.slots - 1);
    s.offset = (uint64_t)keep_json_int(&o, "offset", 0, INT64_MAX);
    keep_json_numbers(&o, "start", to->is.shape.rank, s.start);
    keep_json_numbers(&o, "shape", to->is.shape.rank, s.shape.dim);
    s.checksum = keep_json_hex(&o, "xxh3");
    if (keep_json_end(&o))
        return o.status;
    if (!shape_countable(&s.shape))
        return error_set(WEIR_E_IO, "%s: shard %s: has more elements than can be counted", where, s.key);
    s.bytes = (uint64_t)weir_shape_count(&s.shape) * weir_dtype_bytes(to->is.dtype);
    return keep_index_add_shard(index, to, &s);
}

bool keep_kind_of(const char *name, weir_param_kind *kind)
{
    for (int i = 0; i < (int)(sizeof kind_names / sizeof *kind_names); i++)
        if (!strcmp(kind_names[i], name)) {
            *kind = (weir_param_kind)i;
            return true;
        }
    return false;
}

static weir_dtype dtype_of(const char *name)
{
    int dtype = WEIR_DTYPES - 1;
    while (dtype > WEIR_DTYPE_NONE && strcmp(weir_dtype_name((weir_dtype)dtype), name) != 0)
        dtype--;
    return (weir_dtype)dtype;
}

static weir_status take_tensor_facts(struct keep_object *o, weir_checkpoint_tensor *t, const json_t **shards)
{
    t->name = keep_json_text(o, "name");
    const char *kind = keep_json_text(o, "kind"), *dtype = keep_json_text(o, "dtype");
    keep_json_shape(o, "shape", &t->shape);
    t->frozen = keep_json_bool(o, "frozen");
    t->slots = (int)keep_json_int(o, "slots", 1, KEEP_SLOTS_MAX);
    *shards = keep_json_array(o, "shards");
    if (keep_json_end(o))
        return o->status;
    t->dtype = dtype_of(dtype);
    t->stored = safetensors_dtype_name(safetensors_dtype_of(t->dtype));
    if (!keep_kind_of(kind, &t->kind))
        return error_set(WEIR_E_IO, "%s: tensor %s: \"%s\" is not a kind", o->where, t->name, kind);
    if (!t->dtype)
        return error_set(WEIR_E_IO, "%s: tensor %s: \"%s\" is not a type", o->where, t->name, dtype);
    if (!shape_countable(&t->shape))
        return error_set(WEIR_E_IO, "%s: tensor %s: has more elements than can be counted", o->where, t->name);
    return WEIR_OK;
}

/* A name twice is found when the index is settled: here every tensor is a new one. */
static weir_status take_tensor(struct keep_index *index, const char *where, const json_t *json)
{
    char which[512];
    weir_checkpoint_tensor tensor = {.slots = 1};
    const json_t *shards;
    struct keep_object o = {.json = json, .where = where};
    weir_status status = take_tensor_facts(&o, &tensor, &shards);
    struct keep_tensor *to = status ? NULL : POOL_PUSH(&index->pool, &index->tensors);
    if (!to)
        return status ? status : error_set(WEIR_E_MEMORY, "%s: no memory for it", where);
    to->is = tensor;
    to->is.name = pool_text(&index->pool, "%s", tensor.name);
    if (!to->is.name || !POOL_ROOM(&index->pool, &to->shards, (int64_t)json_array_size(shards)))
        return error_set(WEIR_E_MEMORY, "%s: no memory for it", where);
    snprintf(which, sizeof which, "%s: tensor %s", where, tensor.name);
    for (size_t i = 0; i < json_array_size(shards) && !status; i++)
        status = take_shard(index, which, json_array_get(shards, i), to);
    return status;
}

bool keep_unhex(const char *text, unsigned char *to)
{
    static const char digits[] = "0123456789abcdef";
    size_t length = strlen(text);
    if (length % 2 || strspn(text, digits) != length)
        return false;
    for (size_t i = 0; i < length / 2; i++)
        to[i] = (unsigned char)((strchr(digits, text[2 * i]) - digits) << 4 | (strchr(digits, text[2 * i + 1]) - digits));
    return true;
}

static weir_status take_source(struct keep_index *index, const char *where, const json_t *json)
{
    struct keep_object o = {.json = json, .where = where};
    weir_checkpoint_source source = {.name = keep_json_text(&o, "name")};
    source.rank = (int)keep_json_int(&o, "rank", 0, INT32_MAX);
    const char *hex = keep_json_text(&o, "bytes");
    if (keep_json_end(&o))
        return o.status;
    unsigned char *bytes = malloc(strlen(hex) / 2 + 1);
    source.bytes = bytes;
    source.count = strlen(hex) / 2;
    weir_status status = !bytes ? error_set(WEIR_E_MEMORY, "%s: no memory for it", where)
                         : !keep_unhex(hex, bytes)
                             ? error_set(WEIR_E_IO, "%s: source %s: \"bytes\" is not hexadecimal", where, source.name)
                             : keep_index_add_source(index, &source);
    free(bytes);
    return status;
}

static weir_status take_facts(struct keep_index *index, struct keep_object *o)
{
    weir_checkpoint_info *info = &index->info;
    const char *format = keep_json_text(o, "format");
    if (!o->status && strcmp(format, format_name) != 0)
        return o->status = error_set(WEIR_E_IO, "%s: is not a checkpoint: its format is \"%s\"", o->where, format);
    int64_t version = keep_json_int(o, "version", 0, INT32_MAX);
    if (!o->status && version != KEEP_VERSION)
        return o->status = error_set(WEIR_E_IO, "%s: is of version %" PRId64 ", this reads %d", o->where, version,
                                     KEEP_VERSION);
    index->nonce = keep_json_hex(o, "nonce");
    info->step = keep_json_int(o, "step", -1, INT64_MAX);
    info->seed = keep_json_hex(o, "seed");
    info->plan_hash = keep_json_hex(o, "plan");
    info->graph_hash = keep_json_hex(o, "graph");
    info->program = pool_text(&index->pool, "%s", keep_json_text(o, "program"));
    info->saved_s = keep_json_int(o, "saved", 0, INT64_MAX);
    info->ranks = (int)keep_json_int(o, "ranks", 1, INT32_MAX);
    return info->program ? o->status : WEIR_E_MEMORY;
}

typedef weir_status (*take_fn)(struct keep_index *index, const char *where, const json_t *json);

static weir_status take_all(struct keep_index *index, struct keep_object *o, const char *key, take_fn take)
{
    char where[512];
    const json_t *array = keep_json_array(o, key);
    weir_status status = o->status;
    for (size_t i = 0; i < json_array_size(array) && !status; i++) {
        snprintf(where, sizeof where, "%s: %s[%zu]", o->where, key, i);
        const json_t *json = json_array_get(array, i);
        status = json_is_object(json) ? take(index, take == take_tensor ? o->where : where, json)
                                      : error_set(WEIR_E_IO, "%s: is not an object", where);
    }
    return o->status = status;
}

weir_status keep_index_decode(struct keep_index *index, const char *where, const char *text, size_t count)
{
    char seal[SEAL_BYTES + 1] = "";
    *index = (struct keep_index){.nonce = 0};
    if (count > SEAL_BYTES)
        snprintf(seal, sizeof seal, SEAL_FORMAT, keep_sum_of(text, count - SEAL_BYTES));
    if (count <= SEAL_BYTES || memcmp(seal, text + count - SEAL_BYTES, SEAL_BYTES) != 0)
        return error_set(WEIR_E_IO, "%s: is not as it was written: its checksum differs", where);
    return keep_index_decode_unsealed(index, where, text, count);
}

weir_status keep_index_decode_unsealed(struct keep_index *index, const char *where, const char *text, size_t count)
{
    *index = (struct keep_index){.nonce = 0};
    json_t *json = keep_json_parse(where, text, count);
    struct keep_object o = {.json = json, .where = where};
    if (!json)
        return WEIR_E_IO;
    weir_status status = take_facts(index, &o);
    if (!status && !(status = take_all(index, &o, "files", take_file)) &&
        !(status = take_all(index, &o, "tensors", take_tensor)) &&
        !(status = take_all(index, &o, "sources", take_source))) {
        keep_json_hex(&o, "xxh3");
        status = keep_json_end(&o);
    }
    json_decref(json);
    return status;
}

static weir_status read_index(struct keep_index *index, const char *folder, bool part)
{
    size_t count = 0;
    const char *why = "no memory for its name";
    struct pool names = {0};
    *index = (struct keep_index){.nonce = 0};
    const char *path = pool_text(&names, "%s/" KEEP_INDEX_NAME, folder);
    char *text = path ? keep_read_file(path, KEEP_INDEX_BYTES_MAX, &count, &why) : NULL;
    weir_status status = text ? keep_index_decode(index, path, text, count)
                              : error_set(WEIR_E_IO, "%s: cannot be read: %s", path ? path : folder, why);
    if (!status)
        status = part ? keep_index_settle_part(index, path) : keep_index_settle(index, path);
    index->info.path = index->folder = pool_text(&index->pool, "%s", folder);
    pool_free(&names);
    free(text);
    return status;
}

weir_status keep_index_read(struct keep_index *index, const char *folder)
{
    return read_index(index, folder, false);
}

weir_status keep_index_read_part(struct keep_index *index, const char *folder)
{
    return read_index(index, folder, true);
}
