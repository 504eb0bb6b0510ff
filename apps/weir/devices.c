/* weir devices: what a plan could run on here: the host's processors, and the CUDA devices of the plugin, or why there are
 * none. Which is no failure: a plan for CPUs needs no others. */
#include <jansson.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "apps/common/options.h"
#include "apps/weir/command.h"
#include "graph/base/base.h"
#include "regst/plugin.h"

static const char program[] = "weir devices";

enum { DEVICES_MAX = 256 };

struct listing {
    struct device_facts cpu;
    uint32_t cores, count;   /* of CUDA devices */
    struct device_facts facts[DEVICES_MAX];
    char missing[512];       /* why there are none */
    const struct device_ops *cuda;
};

/* ---- what there is ---- */

static void find_cpu(struct listing *list)
{
    char line[256];
    FILE *file = fopen("/proc/cpuinfo", "r");
    while (file && fgets(line, sizeof line, file))
        if (sscanf(line, "model name : %95[^\n]", list->cpu.name) == 1)
            break;
    if (file)
        fclose(file);
    long page = sysconf(_SC_PAGESIZE), pages = sysconf(_SC_PHYS_PAGES), free_pages = sysconf(_SC_AVPHYS_PAGES);
    list->cores = (uint32_t)sysconf(_SC_NPROCESSORS_ONLN);
    list->cpu.bytes = (uint64_t)pages * (uint64_t)page;
    list->cpu.free_bytes = (uint64_t)free_pages * (uint64_t)page;
}

static weir_status find_cuda(struct listing *list)
{
    weir_status status = plugin_need(WEIR_CUDA);
    list->cuda = device_find(WEIR_CUDA);
    if (!status && list->cuda->count)
        status = list->cuda->count(&list->count);
    if (status)
        snprintf(list->missing, sizeof list->missing, "%s", weir_error());
    if (status || list->count > DEVICES_MAX)
        list->count = status ? 0 : DEVICES_MAX;
    for (uint32_t d = 0; d < list->count; d++)
        if (list->cuda->describe(d, &list->facts[d]))
            return WEIR_E_UNSUPPORTED;
    return WEIR_OK;
}

/* ---- as text ---- */

static void print_one(const char *device, const struct device_facts *facts)
{
    printf("%-8s %s, %.1f GB, %.1f GB free%s%s\n", device, *facts->name ? facts->name : "processors",
           (double)facts->bytes / 1e9, (double)facts->free_bytes / 1e9, *facts->more ? ", " : "", facts->more);
}

static void print_links(const struct listing *list)
{
    for (uint32_t a = 0; a < list->count; a++)
        for (uint32_t b = a + 1; b < list->count; b++)
            printf("cuda:%u - cuda:%u  %s\n", a, b, list->cuda->link(a, b));
}

static void print(struct listing *list)
{
    snprintf(list->cpu.more, sizeof list->cpu.more, "%u cores", list->cores);
    print_one("cpu", &list->cpu);
    for (uint32_t d = 0; d < list->count; d++) {
        char device[16];
        snprintf(device, sizeof device, "cuda:%u", d);
        print_one(device, &list->facts[d]);
    }
    print_links(list);
    if (*list->missing)
        printf("no CUDA devices: %s\n", list->missing);
}

/* ---- as JSON ---- */

static json_t *json_facts(const char *kind, uint32_t index, const struct device_facts *facts)
{
    return json_pack("{s:s, s:i, s:s, s:I, s:I, s:s}", "kind", kind, "index", (int)index, "name", facts->name, "bytes",
                     (json_int_t)facts->bytes, "free_bytes", (json_int_t)facts->free_bytes, "more", facts->more);
}

static json_t *json_device(const struct listing *list, uint32_t d)
{
    json_t *device = json_facts("cuda", d, &list->facts[d]), *links = json_object();
    for (uint32_t other = 0; other < list->count; other++) {
        char name[16];
        snprintf(name, sizeof name, "cuda:%u", other);
        if (other != d)
            json_object_set_new(links, name, json_string(list->cuda->link(d, other)));
    }
    json_object_set_new(device, "links", links);
    return device;
}

static void print_json(struct listing *list)
{
    json_t *all = json_object(), *devices = json_array(), *cpu = json_facts("cpu", 0, &list->cpu);
    json_object_set_new(cpu, "cores", json_integer(list->cores));
    json_array_append_new(devices, cpu);
    for (uint32_t d = 0; d < list->count; d++)
        json_array_append_new(devices, json_device(list, d));
    json_object_set_new(all, "devices", devices);
    if (*list->missing)
        json_object_set_new(all, "no_cuda", json_string(list->missing));
    json_dumpf(all, stdout, JSON_COMPACT);
    putchar('\n');
    json_decref(all);
}

int command_devices(int argc, char **argv)
{
    static struct listing list; /* large */
    bool json = false;
    const options_entry table[] = {
        {"--json", OPTIONS_FLAG, &json, .help = "print one JSON object"},
        {.name = NULL},
    };
    int status = options_parse(&(options_spec){program, "List the devices of this machine, and how they reach each other.",
                                               table},
                               argc, argv);
    if (status >= 0)
        return status;
    find_cpu(&list);
    if (find_cuda(&list))
        return options_failed(program);
    (json ? print_json : print)(&list);
    return 0;
}
