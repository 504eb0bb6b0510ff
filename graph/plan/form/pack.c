/* graph/plan/form/pack.c: a plan as MessagePack, and back. docs/plan.md describes the format for whoever writes another
 * reader.
 *
 * Tables are stored by column: one map per array of the plan, from each member's name to an array with the values of
 * all elements. Names then cost nothing, numbers are small (one byte up to 127), and a reader in another language
 * needs no copy of plan.h. A column that is missing, unknown or of another length than its siblings is refused: each
 * version of the format has its columns.
 *
 * The layout of each op's attribute structure is written along with the plan and compared on reading. Without that a
 * plan from a program whose op has other attributes would be read, and mean something else.
 *
 * Bytes from outside. MessagePack-C allocates as many elements as an array's head claims before it has seen one of
 * them, so the heads are checked first (well_formed): then the objects number at most as many as there are bytes, 24
 * bytes each. The plan itself is smaller than that.
 */
#include "graph/base/error.h"
#include "graph/base/names.h"
#include "graph/plan/form/fields.h"
#include "graph/plan/form/file.h"

#include <inttypes.h>
#include <msgpack.h>
#include <stdlib.h>
#include <string.h>
#include <weir/op.h>

#define FORMAT "weir plan"

/* ---- encoding ---- */

/* Packing fails only for want of memory; `failed` collects that. */
typedef struct packer {
    msgpack_packer out;
    msgpack_sbuffer buffer;
    bool failed;
} packer;

static void pack_array(packer *p, size_t count)
{
    p->failed |= msgpack_pack_array(&p->out, count) != 0;
}

static void pack_map(packer *p, size_t count)
{
    p->failed |= msgpack_pack_map(&p->out, count) != 0;
}

static void pack_text(packer *p, const char *text)
{
    p->failed |= msgpack_pack_str_with_body(&p->out, text, strlen(text)) != 0;
}

static void pack_unsigned(packer *p, uint64_t value)
{
    p->failed |= msgpack_pack_uint64(&p->out, value) != 0;
}

static void pack_value(packer *p, const plan_field *field, uint64_t bits)
{
    double real;
    if (field->type == FIELD_REAL) {
        memcpy(&real, &bits, sizeof real);
        p->failed |= msgpack_pack_double(&p->out, real) != 0;
    } else if (field->type == FIELD_I64) {
        p->failed |= msgpack_pack_int64(&p->out, (int64_t)bits) != 0;
    } else {
        pack_unsigned(p, bits);
    }
}

static void pack_column(packer *p, const plan_field *field, const char *item, uint32_t count, size_t item_bytes)
{
    pack_text(p, field->name);
    pack_array(p, (size_t)count * field->values);
    for (uint32_t i = 0; i < count; i++, item += item_bytes)
        for (uint32_t v = 0; v < field->values; v++)
            pack_value(p, field, plan_field_get(field, item, v));
}

static void pack_table(packer *p, const weir_plan *plan, const plan_table *table)
{
    const char *items = plan_table_items(plan, table);
    uint32_t count = plan_table_count(plan, table);
    pack_text(p, table->name);
    if (!table->fields) {
        p->failed |= msgpack_pack_bin_with_body(&p->out, items, count) != 0;
        return;
    }
    uint32_t fields = table->field_count;
    pack_map(p, fields);
    for (uint32_t f = 0; f < fields; f++)
        pack_column(p, &table->fields[f], items, count, table->item_bytes);
}

static void pack_op(packer *p, const weir_op *op)
{
    pack_text(p, op->name);
    pack_array(p, (size_t)op->field_count);
    for (int f = 0; f < op->field_count; f++) {
        pack_array(p, 3);
        pack_text(p, op->fields[f].name);
        pack_unsigned(p, (uint64_t)op->fields[f].count);
        pack_text(p, op->fields[f].real ? "real" : "int");
    }
}

static uint32_t add_op(const weir_op **ops, uint32_t count, const char *name)
{
    const weir_op *op = weir_op_find(name);
    uint32_t known = 0;
    while (known < count && ops[known] != op)
        known++;
    if (op && known == count)
        ops[count++] = op;
    return count;
}

/* The ops that the plan's kernels are of, and the nodes of the graph that it keeps, each once, in order of first use; returns
 * how many. */
static uint32_t used_ops(const weir_plan *plan, const weir_op **ops)
{
    uint32_t count = 0;
    for (uint32_t k = 0; k < plan->kernels_count; k++)
        count = add_op(ops, count, plan_text(plan, plan->kernels[k].op));
    for (uint32_t n = 0; n < plan->graph_nodes_count; n++)
        count = add_op(ops, count, plan_graph_text(plan, plan->graph_nodes[n].op));
    return count;
}

static void pack_ops(packer *p, const weir_plan *plan)
{
    const weir_op **ops = malloc((plan->kernels_count + (size_t)plan->graph_nodes_count + 1) * sizeof *ops);
    if (!ops) {
        p->failed = true;
        return;
    }
    uint32_t count = used_ops(plan, ops);
    pack_text(p, "ops");
    pack_map(p, count);
    for (uint32_t i = 0; i < count; i++)
        pack_op(p, ops[i]);
    free(ops);
}

/* name in the file, member */
#define SCALARS(X)                    \
    X("version", version)             \
    X("micro_batches", micro_batches) \
    X("seed", seed)                   \
    X("ranks", ranks)                 \
    X("part", part)                   \
    X("whole", whole)                 \
    X("graph", graph)                 \
    X("hash", hash)                   \
    X("name", name.i)
#define X(key, member) +1
enum {
    SCALARS_COUNT = 0 SCALARS(X),
    KEYS_COUNT = SCALARS_COUNT + PLAN_RUN_ARRAYS + 2,       /* format and ops */
    GRAPH_KEYS_COUNT = PLAN_ARRAYS - PLAN_RUN_ARRAYS + 2    /* version and hash */
};
#undef X

#define GRAPH_TABLE "graph_table"
#define RATES "rates" /* a number, which only plans that were compiled with rates have */

/* One key more, which only plans with a graph have: a map of the table's version, hash and arrays. */
static void pack_graph(packer *p, const weir_plan *plan)
{
    pack_text(p, GRAPH_TABLE);
    pack_map(p, GRAPH_KEYS_COUNT);
    pack_text(p, "version");
    pack_unsigned(p, plan->table_version);
    pack_text(p, "hash");
    pack_unsigned(p, plan->table_hash);
    for (int t = PLAN_RUN_ARRAYS; t < PLAN_ARRAYS; t++)
        pack_table(p, plan, &plan_tables[t]);
}

static void pack_plan(packer *p, const weir_plan *plan)
{
    pack_map(p, KEYS_COUNT + (plan->rates > 0) + (plan->table_version > 0));
    pack_text(p, "format");
    pack_text(p, FORMAT);
#define X(key, member)    \
    pack_text(p, key);    \
    pack_unsigned(p, plan->member);
    SCALARS(X)
#undef X
    if (plan->rates) {
        pack_text(p, RATES);
        pack_unsigned(p, plan->rates);
    }
    pack_ops(p, plan);
    for (int t = 0; t < PLAN_RUN_ARRAYS; t++)
        pack_table(p, plan, &plan_tables[t]);
    if (plan->table_version)
        pack_graph(p, plan);
}

weir_status plan_encode(const weir_plan *plan, void **bytes, size_t *bytes_count)
{
    packer p = {.failed = false};
    msgpack_sbuffer_init(&p.buffer);
    msgpack_packer_init(&p.out, &p.buffer, msgpack_sbuffer_write);
    pack_plan(&p, plan);
    if (p.failed) {
        msgpack_sbuffer_destroy(&p.buffer);
        return error_set(WEIR_E_MEMORY, "no memory to encode the plan");
    }
    *bytes_count = p.buffer.size;
    *bytes = msgpack_sbuffer_release(&p.buffer);
    return WEIR_OK;
}

/* ---- is it MessagePack at all? ---- */

/* The kind of an object, by its first byte. */
typedef struct head {
    unsigned length_bytes; /* of the big-endian length that follows, or 0 */
    uint64_t length;       /* when there is none: bytes of the body, or elements */
    unsigned body_extra;   /* bytes of the body on top of the length */
    unsigned objects;      /* objects per element: 0 for no container, 1 array, 2 map */
    bool bad;
} head;

static head read_head(uint8_t first)
{
    static const uint8_t number_bytes[] = {4, 8, 1, 2, 4, 8, 1, 2, 4, 8}; /* 0xca to 0xd3 */
    if (first <= 0x7f || first >= 0xe0)
        return (head){.length = 0};
    if (first <= 0x8f)
        return (head){.length = first & 0x0f, .objects = 2};
    if (first <= 0x9f)
        return (head){.length = first & 0x0f, .objects = 1};
    if (first <= 0xbf)
        return (head){.length = first & 0x1f};
    if (first <= 0xc3)
        return (head){.bad = first == 0xc1};
    if (first <= 0xc6)
        return (head){.length_bytes = 1u << (first - 0xc4)};
    if (first <= 0xc9)
        return (head){.length_bytes = 1u << (first - 0xc7), .body_extra = 1};
    if (first <= 0xd3)
        return (head){.length = number_bytes[first - 0xca]};
    if (first <= 0xd8)
        return (head){.length = (1u << (first - 0xd4)) + 1};
    if (first <= 0xdb)
        return (head){.length_bytes = 1u << (first - 0xd9)};
    if (first <= 0xdd)
        return (head){.length_bytes = 2u << (first - 0xdc), .objects = 1};
    return (head){.length_bytes = 2u << (first - 0xde), .objects = 2};
}

/* One object and nothing else, none of whose heads claims more than there is. Counts the objects still to come; there
 * can never be more of them than bytes. */
static bool well_formed(const uint8_t *at, size_t left)
{
    uint64_t pending = 1;
    while (pending) {
        if (pending > left)
            return false;
        head h = read_head(*at++);
        left--;
        pending--;
        if (h.bad || h.length_bytes > left)
            return false;
        for (unsigned i = 0; i < h.length_bytes; i++, left--)
            h.length = h.length << 8 | *at++;
        if (h.objects) {
            pending += h.length * h.objects;
            continue;
        }
        uint64_t body = h.length + h.body_extra;
        if (body > left)
            return false;
        at += body;
        left -= body;
    }
    return left == 0;
}

/* ---- decoding ---- */

#define REFUSE_FILE(...) (error_set(WEIR_E_PLAN, __VA_ARGS__), false)

static bool text_is(const msgpack_object *object, const char *text)
{
    return object->type == MSGPACK_OBJECT_STR && object->via.str.size == strlen(text) &&
           memcmp(object->via.str.ptr, text, object->via.str.size) == 0;
}

/* The value of the first entry with this key, or NULL. With as many entries as there are keys to be found, none of
 * which is missing, no key can come twice. */
static const msgpack_object *find(const msgpack_object *map, const char *key)
{
    for (uint32_t i = 0; i < map->via.map.size; i++)
        if (text_is(&map->via.map.ptr[i].key, key))
            return &map->via.map.ptr[i].val;
    return NULL;
}

static bool read_scalar(const msgpack_object *root, const char *key, uint64_t max, uint64_t *value)
{
    const msgpack_object *object = find(root, key);
    if (!object)
        return REFUSE_FILE("%s: is missing", key);
    if (object->type != MSGPACK_OBJECT_POSITIVE_INTEGER || object->via.u64 > max)
        return REFUSE_FILE("%s: is no number from 0 to %" PRIu64, key, max);
    *value = object->via.u64;
    return true;
}

static bool read_value(const plan_field *field, const msgpack_object *object, uint64_t *bits)
{
    *bits = object->via.u64;
    if (field->type == FIELD_REAL) {
        memcpy(bits, &object->via.f64, sizeof *bits);
        return object->type == MSGPACK_OBJECT_FLOAT64;
    }
    if (field->type == FIELD_I64 && object->type == MSGPACK_OBJECT_NEGATIVE_INTEGER)
        return true;
    uint64_t max = field->type == FIELD_I64 ? INT64_MAX : plan_field_narrow(field) ? UINT32_MAX : UINT64_MAX;
    return object->type == MSGPACK_OBJECT_POSITIVE_INTEGER && *bits <= max;
}

static const msgpack_object_array *find_column(const plan_table *table, const msgpack_object *map,
                                               const plan_field *field)
{
    const msgpack_object *column = find(map, field->name);
    if (column && column->type == MSGPACK_OBJECT_ARRAY)
        return &column->via.array;
    error_set(WEIR_E_PLAN, "%s.%s: %s", table->name, field->name, column ? "is no array" : "is missing");
    return NULL;
}

static bool read_column(const plan_table *table, const plan_field *field, const msgpack_object_array *column,
                        char *items)
{
    for (uint32_t i = 0; i < column->size; i++) {
        uint64_t bits;
        if (!read_value(field, &column->ptr[i], &bits))
            return REFUSE_FILE("%s[%" PRIu32 "].%s: is no number of the right kind", table->name, i / field->values,
                               field->name);
        plan_field_set(field, items + (size_t)(i / field->values) * table->item_bytes, i % field->values, bits);
    }
    return true;
}

/* Elements that the columns have; false when they do not agree. */
static bool count_rows(const plan_table *table, uint32_t fields, const msgpack_object *map, uint32_t *count)
{
    for (uint32_t f = 0; f < fields; f++) {
        const plan_field *field = &table->fields[f];
        const msgpack_object_array *column = find_column(table, map, field);
        if (!column)
            return false;
        uint32_t rows = column->size / field->values;
        if (column->size % field->values || (f && rows != *count))
            return REFUSE_FILE("%s.%s: %" PRIu32 " values, which is another length than that of %s.%s", table->name,
                               field->name, column->size, table->name, table->fields[0].name);
        *count = rows;
    }
    return true;
}

static bool read_columns(weir_plan *plan, const plan_table *table, const msgpack_object *map)
{
    uint32_t count = 0, fields = table->field_count;
    if (map->type != MSGPACK_OBJECT_MAP || map->via.map.size != fields)
        return REFUSE_FILE("%s: is no map of %" PRIu32 " columns", table->name, fields);
    if (!count_rows(table, fields, map, &count))
        return false;
    char *items = calloc(count + (size_t)1, table->item_bytes);
    if (!items) {
        error_set(WEIR_E_MEMORY, "no memory for the plan");
        return false;
    }
    plan_table_set(plan, table, items, count);
    for (uint32_t f = 0; f < fields; f++)
        if (!read_column(table, &table->fields[f], find_column(table, map, &table->fields[f]), items))
            return false;
    return true;
}

static bool read_strings(weir_plan *plan, const plan_table *table, const msgpack_object *object)
{
    if (object->type != MSGPACK_OBJECT_BIN)
        return REFUSE_FILE("%s: are no bytes", table->name);
    char *copy = malloc(object->via.bin.size + (size_t)1);
    if (!copy) {
        error_set(WEIR_E_MEMORY, "no memory for the plan");
        return false;
    }
    memcpy(copy, object->via.bin.ptr, object->via.bin.size);
    plan_table_set(plan, table, copy, object->via.bin.size);
    return true;
}

static bool read_table(weir_plan *plan, const plan_table *table, const msgpack_object *root)
{
    const msgpack_object *object = find(root, table->name);
    if (!object)
        return REFUSE_FILE("%s: is missing", table->name);
    return table->fields ? read_columns(plan, table, object) : read_strings(plan, table, object);
}

static bool same_field(const weir_field *field, const msgpack_object *object)
{
    if (object->type != MSGPACK_OBJECT_ARRAY || object->via.array.size != 3)
        return false;
    const msgpack_object *part = object->via.array.ptr;
    return text_is(&part[0], field->name) && part[1].type == MSGPACK_OBJECT_POSITIVE_INTEGER &&
           part[1].via.u64 == (uint64_t)field->count && text_is(&part[2], field->real ? "real" : "int");
}

static bool check_op(const msgpack_object_kv *entry)
{
    char name[64], text[NAMES_TEXT_BYTES];
    if (entry->key.type != MSGPACK_OBJECT_STR || entry->key.via.str.size >= sizeof name)
        return REFUSE_FILE("ops: a name is no short text");
    memcpy(name, entry->key.via.str.ptr, entry->key.via.str.size);
    name[entry->key.via.str.size] = '\0';
    const weir_op *op = weir_op_find(name);
    if (!op)
        return REFUSE_FILE("ops.%s: there is no such op in this program; weir_op_load(), or --load, takes it "
                           "from a shared object%s", name, op_near(name, text, sizeof text));
    if (entry->val.type != MSGPACK_OBJECT_ARRAY || entry->val.via.array.size != (uint32_t)op->field_count)
        return REFUSE_FILE("ops.%s: has other attributes than the %s of this program", name, name);
    for (int f = 0; f < op->field_count; f++)
        if (!same_field(&op->fields[f], &entry->val.via.array.ptr[f]))
            return REFUSE_FILE("ops.%s: attribute %d is not %s, as in this program", name, f, op->fields[f].name);
    return true;
}

static bool check_ops(const msgpack_object *root)
{
    const msgpack_object *ops = find(root, "ops");
    if (!ops || ops->type != MSGPACK_OBJECT_MAP)
        return REFUSE_FILE("ops: is no map");
    for (uint32_t i = 0; i < ops->via.map.size; i++)
        if (!check_op(&ops->via.map.ptr[i]))
            return false;
    return true;
}

static bool check_format(const msgpack_object *root)
{
    const msgpack_object *format = root->type == MSGPACK_OBJECT_MAP ? find(root, "format") : NULL;
    if (!format || !text_is(format, FORMAT))
        return REFUSE_FILE("this is not a weir plan");
    uint64_t version;
    if (!read_scalar(root, "version", UINT32_MAX, &version))
        return false;
    if (version != PLAN_VERSION)
        return REFUSE_FILE("version %" PRIu64 " of plans: this weir reads version %d; compile the graph again", version,
                           PLAN_VERSION);
    const uint32_t entries = root->via.map.size - (find(root, GRAPH_TABLE) != NULL) - (find(root, RATES) != NULL);
    return entries == KEYS_COUNT || REFUSE_FILE("%" PRIu32 " entries, a plan has %d", entries, KEYS_COUNT);
}

/* The version comes first: each has its columns. */
static bool read_graph(weir_plan *plan, const msgpack_object *root)
{
    const msgpack_object *table = find(root, GRAPH_TABLE);
    uint64_t version;
    if (!table)
        return true;
    if (table->type != MSGPACK_OBJECT_MAP)
        return REFUSE_FILE(GRAPH_TABLE ": is no map");
    if (!read_scalar(table, "version", UINT32_MAX, &version) || !read_scalar(table, "hash", UINT64_MAX, &plan->table_hash))
        return false;
    if (version != PLAN_TABLE_VERSION)
        return REFUSE_FILE("version %" PRIu64 " of the table of a graph: this weir reads version %d; compile the graph again with "
                           ".keep_graph", version, PLAN_TABLE_VERSION);
    if (table->via.map.size != GRAPH_KEYS_COUNT)
        return REFUSE_FILE(GRAPH_TABLE ": %" PRIu32 " entries, must be %d", table->via.map.size, GRAPH_KEYS_COUNT);
    plan->table_version = (uint32_t)version;
    for (int t = PLAN_RUN_ARRAYS; t < PLAN_ARRAYS; t++)
        if (!read_table(plan, &plan_tables[t], table))
            return false;
    return true;
}

static bool read_root(weir_plan *plan, const msgpack_object *root)
{
    uint64_t value;
    if (!check_format(root) || !check_ops(root))
        return false;
#define X(key, member)                                                                                   \
    if (!read_scalar(root, key, sizeof plan->member == 4 ? UINT32_MAX : UINT64_MAX, &value))            \
        return false;                                                                                    \
    plan->member = (__typeof__(plan->member))value;
    SCALARS(X)
#undef X
    if (find(root, RATES) && !read_scalar(root, RATES, UINT64_MAX, &plan->rates))
        return false;
    for (int t = 0; t < PLAN_RUN_ARRAYS; t++)
        if (!read_table(plan, &plan_tables[t], root))
            return false;
    return read_graph(plan, root);
}

weir_plan *plan_read(const void *bytes, size_t bytes_count)
{
    weir_plan *plan = NULL;
    msgpack_unpacked unpacked;
    msgpack_unpacked_init(&unpacked);
    if (bytes_count > PLAN_FILE_BYTES_MAX || !well_formed(bytes, bytes_count)) {
        error_set(WEIR_E_PLAN, "this is not a weir plan, or a part of one");
        goto end;
    }
    msgpack_unpack_return got = msgpack_unpack_next(&unpacked, bytes, bytes_count, NULL);
    if (got != MSGPACK_UNPACK_SUCCESS) {
        error_set(got == MSGPACK_UNPACK_NOMEM_ERROR ? WEIR_E_MEMORY : WEIR_E_PLAN, "the plan cannot be unpacked");
        goto end;
    }
    plan = calloc(1, sizeof *plan);
    if (!plan) {
        error_set(WEIR_E_MEMORY, "no memory for the plan");
    } else if (!read_root(plan, &unpacked.data)) {
        weir_plan_free(plan);
        plan = NULL;
    }
end:
    msgpack_unpacked_destroy(&unpacked);
    return plan;
}

weir_plan *plan_decode(const void *bytes, size_t bytes_count)
{
    weir_plan *plan = plan_read(bytes, bytes_count);
    if (!plan)
        return NULL;
    if (plan->hash != plan_hash(plan))
        error_set(WEIR_E_PLAN, "hash: does not fit the contents, which have been damaged or changed");
    else if (plan->table_version && plan->table_hash != plan_table_hash(plan))
        error_set(WEIR_E_PLAN, GRAPH_TABLE ".hash: does not fit the contents, which have been damaged or changed");
    else if (plan_validate(plan) == WEIR_OK)
        return plan;
    weir_plan_free(plan);
    return NULL;
}
