/* actors/keep/format/sharded.c: a model in several safetensors files.
 *
 * The map is a stranger's, as headers are: files are plain names, so nothing outside of the folder is opened, and they
 * are counted. Files are opened in the order of their names, whatever the order of the map is.
 */
#define _GNU_SOURCE
#include "actors/keep/format/sharded.h"

#include "actors/keep/format/files.h"
#include "actors/keep/format/json.h"
#include "actors/keep/format/single.h"
#include "graph/base/error.h"

#include <libgen.h>
#include <stdlib.h>
#include <string.h>

/* A tensor and the file that has it; texts are of the JSON. */
struct mapped {
    const char *name, *file;
    bool found;
};

struct map {
    struct mapped *item; /* owned; by name */
    const char **file;   /* owned; by name, each once */
    int count, file_count;
};

static void map_free(struct map *map)
{
    free(map->item);
    free(map->file);
}

bool keep_sharded_is(const char *path)
{
    static const char ending[] = ".safetensors.index.json";
    size_t length = strlen(path);
    return length >= sizeof ending - 1 && !strcmp(path + length - (sizeof ending - 1), ending);
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const struct mapped *)a)->name, ((const struct mapped *)b)->name);
}

static int by_text(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static weir_status list_files(const char *path, struct map *map)
{
    int kept = 0;
    for (int i = 0; i < map->count; i++)
        map->file[i] = map->item[i].file;
    if (map->count)
        qsort(map->file, (size_t)map->count, sizeof *map->file, by_text);
    for (int i = 0; i < map->count; i++)
        if (!kept || strcmp(map->file[kept - 1], map->file[i]) != 0)
            map->file[kept++] = map->file[i];
    map->file_count = kept;
    return kept <= KEEP_SHARDED_FILES_MAX ? WEIR_OK
                                          : error_set(WEIR_E_IO, "%s: \"weight_map\" names %d files; weir reads at most %d",
                                                      path, kept, KEEP_SHARDED_FILES_MAX);
}

static weir_status take_map(const char *path, const json_t *json, struct map *map)
{
    const json_t *weights = json_object_get(json, "weight_map");
    const char *name;
    json_t *file;
    if (!json_is_object(weights))
        return error_set(WEIR_E_IO, "%s: has no \"weight_map\", an object of tensors' names and their files", path);
    size_t count = json_object_size(weights);
    map->item = calloc(count + 1, sizeof *map->item);
    map->file = calloc(count + 1, sizeof *map->file);
    if (!map->item || !map->file || count > INT32_MAX)
        return error_set(WEIR_E_MEMORY, "%s: no memory for it", path);
    json_object_foreach((json_t *)weights, name, file)
    {
        if (!json_is_string(file) || !keep_name_is_plain(json_string_value(file)))
            return error_set(WEIR_E_IO, "%s: \"weight_map\": tensor %s: \"%s\" is not the name of a file in the folder",
                             path, name, json_is_string(file) ? json_string_value(file) : "");
        map->item[map->count++] = (struct mapped){name, json_string_value(file), false};
    }
    if (map->count)
        qsort(map->item, (size_t)map->count, sizeof *map->item, by_name);
    return list_files(path, map);
}

static weir_status read_file(struct keep_index *index, struct map *map, const char *name)
{
    struct safetensors_header header = {.data_at = 0};
    const char *path = pool_text(&index->pool, "%s/%s", index->folder, name);
    int file = index->files.count;
    weir_status status = path ? keep_single_header(index, path, name, &header)
                              : error_set(WEIR_E_MEMORY, "%s: no memory for it", name);
    for (int i = 0; i < header.tensors.count && !status; i++) {
        const struct mapped wanted = {.name = header.tensors.item[i].name};
        struct mapped *of = bsearch(&wanted, map->item, (size_t)map->count, sizeof wanted, by_name);
        if (of && strcmp(of->file, name) != 0)
            continue; /* another file's counts */
        if (of)
            of->found = true;
        status = keep_single_add(index, &header.tensors.item[i], file, header.data_at);
    }
    return status;
}

static weir_status read_files(struct keep_index *index, const char *path, struct map *map)
{
    weir_status status = WEIR_OK;
    for (int i = 0; i < map->file_count && !status; i++)
        status = read_file(index, map, map->file[i]);
    for (int i = 0; i < map->count && !status; i++)
        if (!map->item[i].found)
            status = error_set(WEIR_E_IO, "%s: tensor %s: is not in %s, as \"weight_map\" says", path, map->item[i].name,
                               map->item[i].file);
    return status;
}

weir_status keep_sharded_read(struct keep_index *index, const char *path)
{
    size_t count = 0;
    const char *why;
    struct map map = {.count = 0};
    char *text = keep_read_file(path, KEEP_INDEX_BYTES_MAX, &count, &why);
    char *above = pool_text(&index->pool, "%s", path);
    index->info = (weir_checkpoint_info){.step = -1, .program = "", .ranks = 1};
    index->info.path = pool_text(&index->pool, "%s", path);
    index->unsummed = true;
    if (!text || index->pool.failed) {
        free(text);
        return text ? error_set(WEIR_E_MEMORY, "%s: no memory for it", path)
                    : error_set(WEIR_E_IO, "%s: cannot be read: %s", path, why);
    }
    index->folder = dirname(above);
    json_t *json = keep_json_parse(path, text, count);
    weir_status status = json ? take_map(path, json, &map) : WEIR_E_IO;
    if (!status)
        status = read_files(index, path, &map);
    map_free(&map);
    json_decref(json);
    free(text);
    return status ? status : keep_index_settle(index, path);
}
