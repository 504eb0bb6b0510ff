/* graph/model/mesh.c: meshes: lists of devices in an arrangement of one to three axes.
 *
 * Devices are named by kind and index ("cpu:0-3,6"). The list's order is the mesh's row-major order, so a user can put
 * neighbours on an axis next to each other.
 */
#include "graph/base/base.h"
#include "graph/base/names.h"
#include "graph/model/build.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool mesh_takes_fakes;

typedef struct device_list {
    int *device;                   /* in the pool; room for all that can be named */
    bool *listed;                  /* by index */
    int count;
    bool beyond;                   /* an index was too high */
} device_list;

static bool list_new(device_list *list, pool *p)
{
    *list = (device_list){.device = POOL_NEW(p, int, WEIR_DEVICES_MAX), .listed = POOL_NEW(p, bool, WEIR_DEVICES_MAX)};
    return list->device && list->listed;
}

static bool list_add(device_list *list, long first, long last)
{
    list->beyond = last >= WEIR_DEVICES_MAX;
    if (first < 0 || last < first || list->beyond)
        return false;
    for (long d = first; d <= last; d++) {
        if (list->listed[d])
            return false;
        list->listed[d] = true;
        list->device[list->count++] = (int)d;
    }
    return true;
}

/* "0-3,6" */
static bool list_parse(device_list *list, const char *text)
{
    for (;; text++) {
        char *end;
        if (*text < '0' || *text > '9')
            return false;
        long first = strtol(text, &end, 10), last = first;
        if (*end == '-') {
            text = end + 1;
            if (*text < '0' || *text > '9')
                return false;
            last = strtol(text, &end, 10);
        }
        if (!list_add(list, first, last))
            return false;
        text = end;
        if (*text != ',')
            return *text == '\0';
    }
}

/* The others only keep, or are for tests. */
static bool kind_computes(weir_device_kind kind)
{
    return kind != WEIR_DISK && kind != WEIR_PINNED && kind != WEIR_MAPPED && (kind != WEIR_FAKE || mesh_takes_fakes);
}

static bool kind_parse(const char **text, weir_device_kind *kind)
{
    for (int k = 0; k < WEIR_DEVICE_KINDS; k++) {
        const char *name = device_kind_name((weir_device_kind)k);
        if (!kind_computes((weir_device_kind)k))
            continue;
        size_t length = strlen(name);
        if (!strncmp(*text, name, length) && (*text)[length] == ':') {
            *kind = (weir_device_kind)k;
            *text += length + 1;
            return true;
        }
    }
    return false;
}

static weir_mesh *mesh_make(weir_graph *g, weir_device_kind kind, const int *device, int count)
{
    weir_mesh *mesh = POOL_NEW(&g->pool, weir_mesh, 1);
    if (!mesh)
        return NULL;
    *mesh = (weir_mesh){.graph = g, .kind = kind, .count = count, .axes = 1, .shape = {count}};
    mesh->device = pool_copy(&g->pool, device, sizeof *device * (size_t)count);
    return mesh->device ? mesh : NULL;
}

static bool mesh_arrange(weir_mesh *mesh, const int *shape)
{
    if (!shape[0] && !shape[1] && !shape[2])
        return true;
    int64_t count = 1;
    mesh->axes = 0;
    for (int a = 0; a < WEIR_AXES_MAX; a++) {
        bool beyond = a > mesh->axes; /* behind a 0, which ends the shape */
        if (shape[a] && (beyond || shape[a] < 0 || shape[a] > WEIR_DEVICES_MAX))
            return false;
        mesh->axes += shape[a] > 0;
        mesh->shape[a] = shape[a];
        count *= shape[a] ? shape[a] : 1;
    }
    return count == mesh->count;
}

/* Whether the list begins with a word and a colon that are no kind, and not "gpu:", which is told otherwise; the kinds
 * there are then go to `text`. */
static bool no_kind(const char *devices, char *text, size_t bytes)
{
    char word[16];
    const size_t letters = devices ? strspn(devices, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ") : 0;
    if (!letters || letters >= sizeof word || devices[letters] != ':' || !strncmp(devices, "gpu:", 4))
        return false;
    snprintf(word, sizeof word, "%.*s", (int)letters, devices);
    struct names names = {.wanted = word};
    for (int k = 0; k < WEIR_DEVICE_KINDS; k++) {
        const char *name = device_kind_name((weir_device_kind)k);
        if (!kind_computes((weir_device_kind)k))
            continue;
        if (!strcmp(name, word))
            return false;
        names_add(&names, name);
    }
    names_text(&names, text, bytes);
    return true;
}

/* "cpu:0-3,6"; says what is wrong with it. */
static bool devices_parse(weir_graph *graph, weir_src src, const char *devices, weir_device_kind *kind, device_list *list)
{
    const char *text = devices ? devices : "";
    char names[NAMES_TEXT_BYTES];
    if (kind_parse(&text, kind) && list_parse(list, text))
        return true;
    if (list->beyond)
        graph_mistake(graph, src, "mesh: \"%s\" names a device beyond %d, the last that there can be", devices,
                      WEIR_DEVICES_MAX - 1);
    else if (no_kind(devices, names, sizeof names))
        graph_mistake(graph, src, "mesh: \"%s\" is not a list of devices: there is no such kind%s", devices, names);
    else if (!strncmp(devices ? devices : "", "gpu:", 4))
        graph_mistake(graph, src, "mesh: \"%s\" is not a list of devices; a GPU is \"cuda:%.40s\"", devices,
                      devices + 4);
    else
        graph_mistake(graph, src,
                      "mesh: \"%s\" is not a list of devices; write \"cpu:0-3\" or \"cpu:0,2\", each at most once",
                      devices ? devices : "NULL");
    return false;
}

weir_mesh *weir_mesh_new_at(weir_graph *graph, const char *devices, const weir_mesh_opts *given)
{
    weir_mesh_opts opts;
    graph_opts(graph, "mesh", given, &opts, sizeof opts);
    if (!graph) {
        graph_mistake(NULL, opts.src, "mesh: the graph is NULL");
        return NULL;
    }
    pool scratch = {.head = NULL};
    device_list list;
    weir_device_kind kind = WEIR_CPU;
    if (!list_new(&list, &scratch)) {
        pool_free(&scratch);
        graph->pool.failed = true;
        return NULL;
    }
    bool parsed = devices_parse(graph, opts.src, devices, &kind, &list);
    if (!parsed) { /* something to go on with: the mistake is kept */
        list.device[0] = 0;
        list.count = 1;
    }
    weir_mesh *mesh = mesh_make(graph, kind, list.device, list.count);
    pool_free(&scratch);
    weir_mesh **at = mesh ? POOL_PUSH(&graph->pool, &graph->meshes) : NULL;
    if (!at)
        return NULL;
    *at = mesh;
    if (parsed && !mesh_arrange(mesh, opts.shape)) {
        graph_mistake(graph, opts.src, "mesh: the shape {%d, %d, %d} does not hold the %d devices of \"%s\"",
                      opts.shape[0], opts.shape[1], opts.shape[2], list.count, devices);
        *mesh = (weir_mesh){.graph = graph, .kind = kind, .count = mesh->count, .axes = 1, .shape = {mesh->count},
                            .device = mesh->device};
    }
    return mesh;
}

int weir_mesh_size(const weir_mesh *mesh)
{
    return mesh ? mesh->count : 0;
}

const char *mesh_text(const weir_mesh *mesh, char *text, size_t bytes)
{
    size_t at = (size_t)snprintf(text, bytes, "\"%s:", device_kind_name(mesh->kind));
    for (int i = 0, last; i < mesh->count && at < bytes; i = last + 1) {
        for (last = i; last + 1 < mesh->count && mesh->device[last + 1] == mesh->device[last] + 1;)
            last++;
        at += (size_t)snprintf(text + at, bytes - at, i ? ",%d" : "%d", mesh->device[i]);
        if (last > i && at < bytes)
            at += (size_t)snprintf(text + at, bytes - at, "-%d", mesh->device[last]);
    }
    if (at >= bytes - 1) /* a long list */
        at = bytes - 5, at += (size_t)snprintf(text + at, bytes - at, "...");
    snprintf(text + at, bytes - at, "\"");
    return text;
}

weir_mesh *mesh_first(weir_mesh *mesh)
{
    if (mesh->count == 1 && mesh->axes == 1)
        return mesh;
    return mesh_make(mesh->graph, mesh->kind, mesh->device, 1);
}

bool mesh_equal(const weir_mesh *a, const weir_mesh *b)
{
    return a == b || (a->kind == b->kind && a->axes == b->axes && a->count == b->count && !a->home == !b->home &&
                      !a->whole == !b->whole &&
                      !memcmp(a->shape, b->shape, sizeof a->shape) && !memcmp(a->cut, b->cut, sizeof a->cut) &&
                      !memcmp(a->home_axis, b->home_axis, sizeof a->home_axis) &&
                      (a->device == b->device ||
                       !memcmp(a->device, b->device, sizeof *a->device * (size_t)a->count)));
}
