/* weir checkpoint ls: which checkpoints a folder has, or what one has: for people as a table, for programs as JSON. */
#define _GNU_SOURCE
#include "apps/common/measure.h"
#include "apps/common/options.h"
#include "apps/weir/checkpoint.h"
#include "apps/weir/command.h"
#include "graph/base/foreign.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static const char program[] = "weir checkpoint ls";
static const char *const kinds[] = {[WEIR_PARAMETER] = "parameter", [WEIR_OPTIMIZER_STATE] = "optimizer",
                                    [WEIR_STATE] = "state"};

enum { NAME_WIDTH = 32 };

/* ---- texts ---- */

static const char *when_text(int64_t saved_s, char text[32])
{
    time_t seconds = (time_t)saved_s;
    struct tm tm;
    if (!saved_s || !localtime_r(&seconds, &tm) || !strftime(text, 32, "%Y-%m-%d %H:%M:%S", &tm))
        strcpy(text, "-");
    return text;
}

static const char *step_text(int64_t step, char text[32])
{
    snprintf(text, 32, step < 0 ? "-" : "%" PRId64, step);
    return text;
}

/* The file's own shape, of any number of dimensions. */
static const int64_t *dims_of(const weir_checkpoint_tensor *t, int *dims)
{
    *dims = t->stored_dim ? t->stored_dims : t->shape.rank;
    return t->stored_dim ? t->stored_dim : t->shape.dim;
}

enum { SHAPE_BYTES = 1600 }; /* of 64 dimensions of 20 digits */

static const char *shape_text(const weir_checkpoint_tensor *t, char text[SHAPE_BYTES])
{
    int dims, length = snprintf(text, SHAPE_BYTES, "[");
    const int64_t *dim = dims_of(t, &dims);
    for (int d = 0; d < dims && length < SHAPE_BYTES - 32; d++)
        length += snprintf(text + length, SHAPE_BYTES - (size_t)length, "%s%" PRId64, d ? ", " : "", dim[d]);
    snprintf(text + length, SHAPE_BYTES - (size_t)length, "]");
    return text;
}

static int by_number(const void *a, const void *b)
{
    const int64_t *x = a, *y = b;
    return (*x > *y) - (*x < *y);
}

/* How many different first elements the shards have in dimension d: into how many the dimension is cut. */
static int cuts(const weir_checkpoint_tensor *t, int d)
{
    int count = 0;
    int64_t *start = malloc((size_t)t->shard_count * sizeof *start + 1);
    for (int i = 0; start && i < t->shard_count; i++)
        start[i] = t->shard[i].start[d];
    if (start)
        qsort(start, (size_t)t->shard_count, sizeof *start, by_number);
    for (int i = 0; start && i < t->shard_count; i++)
        count += !i || start[i] != start[i - 1];
    free(start);
    return count;
}

/* "whole", "2 x 1", "7 shards": into how many parts each dimension is cut, when they make a grid. */
static const char *layout_text(const weir_checkpoint_tensor *t, char text[160])
{
    int length = 0;
    double product = 1; /* of six times as many as shards */
    for (int d = 0; d < t->shape.rank && length < 100; d++) {
        int parts = cuts(t, d);
        product *= parts;
        length += snprintf(text + length, 160 - (size_t)length, "%s%d", d ? " x " : "", parts);
    }
    if (t->shard_count <= t->slots)
        strcpy(text, "whole");
    else if (product * t->slots != t->shard_count)
        snprintf(text, 160, "%d shards", t->shard_count);
    return text;
}

/* ---- for people ---- */

static void print_line(const char *path, const weir_checkpoint_info *info)
{
    char step[32], when[32], bytes[32];
    const char *name = strrchr(path, '/');
    printf("%10s  %-19s  %10s  %5d  ", step_text(info->step, step), when_text(info->saved_s, when),
           measure_bytes_text(info->bytes, bytes), info->ranks);
    foreign_put(stdout, name ? name + 1 : path);
    putchar('\n');
}

static void print_tensor(const weir_checkpoint_tensor *t)
{
    char shape[SHAPE_BYTES], layout[160], slots[32] = "";
    if (t->slots > 1)
        snprintf(slots, sizeof slots, "  %d values", t->slots);
    printf("  ");
    foreign_put_cell(stdout, t->name, NAME_WIDTH);
    printf("  %-9s  ", kinds[t->kind]);
    foreign_put_cell(stdout, t->stored, 4);
    printf("  %-18s  %s%s%s%s\n", shape_text(t, shape), layout_text(t, layout), t->frozen ? "  frozen" : "", slots,
           t->dtype ? "" : "  not read");
}

static void print_whole(const weir_checkpoint *c)
{
    char step[32], when[32], bytes[32];
    const weir_checkpoint_info *info = weir_checkpoint_get_info(c);
    foreign_put(stdout, info->path);
    printf(": step %s, saved %s by ", step_text(info->step, step), when_text(info->saved_s, when));
    foreign_put(stdout, *info->program ? info->program : "-");
    printf(", seed %" PRIu64 "\n", info->seed);
    printf("plan %016" PRIx64 ", graph %016" PRIx64 "; %s of %d ranks in %d files\n", info->plan_hash,
           info->graph_hash, measure_bytes_text(info->bytes, bytes), info->ranks, info->files);
    if (info->architecture) {
        printf("architecture ");
        foreign_put(stdout, info->architecture);
        putchar('\n');
    }
    for (int i = 0; i < info->files; i++) {
        const weir_checkpoint_file *file = weir_checkpoint_get_file(c, i);
        printf("  ");
        foreign_put_cell(stdout, file->name, NAME_WIDTH);
        printf("  %s\n", measure_bytes_text(file->bytes, bytes));
    }
    printf("%d tensors: name, kind, type, shape, into how many parts it is cut\n", info->tensors);
    for (int i = 0; i < info->tensors; i++)
        print_tensor(weir_checkpoint_get_tensor(c, i));
    for (int i = 0; i < info->sources; i++) {
        const weir_checkpoint_source *s = weir_checkpoint_get_source(c, i);
        printf("  source ");
        foreign_put(stdout, s->name);
        printf(" of rank %d, %zu bytes\n", s->rank, s->count);
    }
}

/* ---- for programs ---- */

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

/* Everything else is from JSON; a path may be no UTF-8. */
static json_t *path_json(const char *path)
{
    char *text = NULL;
    size_t bytes = 0;
    FILE *to = open_memstream(&text, &bytes);
    if (to)
        foreign_put_json(to, path);
    bool made = to && fclose(to) == 0;
    json_t *json = made ? json_loads(text, JSON_DECODE_ANY, NULL) : NULL;
    free(text);
    return json;
}

static json_t *info_json(const weir_checkpoint_info *info)
{
    return json_pack("{s:o, s:I, s:o, s:o, s:o, s:s, s:I, s:i, s:I}", "path", path_json(info->path), "step",
                     (json_int_t)info->step, "seed", hex_json(info->seed), "plan", hex_json(info->plan_hash), "graph",
                     hex_json(info->graph_hash), "program", info->program, "saved", (json_int_t)info->saved_s, "ranks",
                     info->ranks, "bytes", (json_int_t)info->bytes);
}

static json_t *shards_json(const weir_checkpoint *c, const weir_checkpoint_tensor *t)
{
    json_t *shards = json_array();
    for (int i = 0; i < t->shard_count; i++) {
        const weir_checkpoint_shard *s = &t->shard[i];
        json_array_append_new(
            shards, json_pack("{s:s, s:s, s:i, s:I, s:I, s:o, s:o}", "file", weir_checkpoint_get_file(c, s->file)->name,
                              "key", s->key, "slot", s->slot, "offset", (json_int_t)s->offset, "bytes",
                              (json_int_t)s->bytes, "start", numbers_json(s->shape.rank, s->start), "shape",
                              numbers_json(s->shape.rank, s->shape.dim)));
    }
    return shards;
}

static json_t *whole_json(const weir_checkpoint *c)
{
    const weir_checkpoint_info *info = weir_checkpoint_get_info(c);
    json_t *json = info_json(info), *tensors = json_array(), *files = json_array(), *sources = json_array();
    for (int i = 0; i < info->files; i++) {
        const weir_checkpoint_file *f = weir_checkpoint_get_file(c, i);
        json_array_append_new(files, json_pack("{s:s, s:I}", "name", f->name, "bytes", (json_int_t)f->bytes));
    }
    for (int i = 0; i < info->tensors; i++) {
        const weir_checkpoint_tensor *t = weir_checkpoint_get_tensor(c, i);
        int dims;
        const int64_t *dim = dims_of(t, &dims);
        json_array_append_new(tensors,
                              json_pack("{s:s, s:s, s:s, s:b, s:o, s:b, s:i, s:o}", "name", t->name, "kind",
                                        kinds[t->kind], "type", t->stored, "read", t->dtype != WEIR_DTYPE_NONE, "shape",
                                        numbers_json(dims, dim), "frozen", (int)t->frozen, "slots", t->slots, "shards",
                                        shards_json(c, t)));
    }
    for (int i = 0; i < info->sources; i++) {
        const weir_checkpoint_source *s = weir_checkpoint_get_source(c, i);
        json_array_append_new(sources, json_pack("{s:s, s:i, s:I}", "name", s->name, "rank", s->rank, "bytes",
                                                 (json_int_t)s->count));
    }
    if (info->architecture)
        json_object_set_new(json, "architecture", json_string(info->architecture));
    json_object_set_new(json, "files", files);
    json_object_set_new(json, "tensors", tensors);
    json_object_set_new(json, "sources", sources);
    return json;
}

/* ASCII alone: names may have characters that a terminal obeys. */
static void print_json(json_t *json)
{
    json_dumpf(json, stdout, JSON_INDENT(1) | JSON_ENSURE_ASCII);
    putchar('\n');
    json_decref(json);
}

/* ---- the verb ---- */

/* A checkpoint that cannot be opened is told, and the rest is listed. */
static int list_all(const struct checkpoint_paths *found, bool json)
{
    int status = 0;
    json_t *array = json_array();
    if (!json)
        printf("%10s  %-19s  %10s  %5s  name\n", "step", "saved", "bytes", "ranks");
    for (int i = 0; i < found->count; i++) {
        weir_checkpoint *c = weir_checkpoint_open(found->path[i]);
        if (!c)
            status = options_failed(program);
        else if (json)
            json_array_append_new(array, info_json(weir_checkpoint_get_info(c)));
        else
            print_line(found->path[i], weir_checkpoint_get_info(c));
        weir_checkpoint_close(c);
    }
    if (json)
        print_json(array);
    else
        json_decref(array);
    return status;
}

/* Folders that saves have left: nothing else shows the hidden ones. In JSON's place they go to stderr. */
static void list_left(const struct checkpoint_paths *left, FILE *to)
{
    for (int i = 0; i < left->count; i++) {
        weir_checkpoint *c = weir_checkpoint_open(left->path[i]);
        fprintf(to, c ? "%s: a checkpoint that a save is replacing or removing, or was when it was interrupted; the next "
                        "save of its name removes it or puts it back\n"
                      : "%s: not a whole checkpoint: a save writes it or was interrupted, or an older build has moved "
                        "it out of its way; look into it before you remove it\n", left->path[i]);
        weir_checkpoint_close(c);
    }
}

static int list_one(const char *path, bool json)
{
    weir_checkpoint *c = weir_checkpoint_open(path);
    if (!c)
        return options_failed(program);
    if (json)
        print_json(whole_json(c));
    else
        print_whole(c);
    weir_checkpoint_close(c);
    return 0;
}

int checkpoint_ls(int argc, char **argv)
{
    const char *path = NULL;
    bool json = false;
    struct checkpoint_paths found, left = {.count = 0};
    const options_entry table[] = {
        {"DIR", OPTIONS_TEXT, &path, .help = "a checkpoint, a folder of checkpoints, a .safetensors or .gguf file, or the index of several"},
        {"--json", OPTIONS_FLAG, &json, .help = "print a JSON object, or an array of them"},
        {.name = NULL},
    };
    int status = options_parse(&(options_spec){program, "List the checkpoints of a folder, or the contents of one.", table},
                               argc, argv);
    if (status < 0 && checkpoint_left(path, &left))
        list_left(&left, json ? stderr : stdout);
    if (status < 0 && (status = checkpoint_find(program, path, &found)) < 0) {
        bool one = !strcmp(found.path[0], path);
        status = one ? list_one(path, json) : list_all(&found, json);
        checkpoint_paths_free(&found);
    }
    checkpoint_paths_free(&left);
    return status;
}
