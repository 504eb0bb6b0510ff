/* weir checkpoint convert: checkpoints to and from one .safetensors file and folders of .npy files, and from .gguf files, with the names of
 * another program if there is a map for them; and models to .gguf files with quantised weights (checkpoint_quantize.c).
 *
 * All of it is in memory at once, but for --quantize: what fits on a machine to be trained fits there to be converted. It never
 * replaces a file or folder that is not weir's: it refuses, or with --force gives that another name. */
#define _GNU_SOURCE /* renameat2 */
#include "apps/common/measure.h"
#include "apps/common/name_map.h"
#include "apps/common/npy.h"
#include "apps/common/options.h"
#include "apps/common/paths.h"
#include "apps/common/tensors.h"
#include "apps/weir/checkpoint.h"
#include "apps/weir/checkpoint_merge.h"
#include "apps/weir/checkpoint_quantize.h"
#include "apps/weir/command.h"
#include "actors/keep/near.h"
#include "graph/base/foreign.h"
#include "graph/base/names.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const char program[] = "weir checkpoint convert";

struct convert {
    const char *from, *to, *map, *merge, *quantize;
    bool all, npy, reverse, force, skip_unread;
    char aside[PATHS_BYTES]; /* where what was in the way is now; "": nowhere */
};

static int failed(void)
{
    options_wrong(program, "%s", tensors_error());
    return 1;
}

/* A folder that is neither a checkpoint nor has some is one of .npy files. */
static bool is_npy_folder(const char *path)
{
    struct stat stat_of;
    struct checkpoint_paths found;
    if (stat(path, &stat_of) || !S_ISDIR(stat_of.st_mode))
        return false;
    bool none = checkpoint_look(path, &found) && !found.count;
    checkpoint_paths_free(&found);
    return none && npy_is_folder(path);
}

/* Puts the tensors in the place of those that the map makes of them. */
static bool rename_tensors(struct tensors *t, const struct convert *c)
{
    struct name_map *map = NULL;
    struct tensors made = {.count = 0};
    bool ok = name_map_read(&map, c->map) && name_map_apply(map, t, &made, c->reverse);
    name_map_free(map);
    made.facts = t->facts;
    made.skipped = t->skipped;
    memcpy(made.first_skipped, t->first_skipped, sizeof made.first_skipped);
    made.facts.plan_hash = made.facts.graph_hash = 0; /* they were those of other tensors */
    t->facts.program = NULL;
    tensors_free(t);
    *t = made;
    return ok;
}

/* ---- maps by name ---- */

/* Adds the maps that lie beside gpt2.map; the list is for names_text(), and to be freed. */
static struct dirent **add_maps(struct names *names, int *count)
{
    char folder[PATHS_BYTES];
    struct dirent **list = NULL;
    bool found = paths_of_data("apps/weir-gpt/gpt2.map", folder);
    if (found)
        *strrchr(folder, '/') = '\0';
    *count = found ? scandir(folder, &list, NULL, alphasort) : 0;
    for (int i = 0; i < *count; i++) {
        const char *dot = strrchr(list[i]->d_name, '.');
        if (dot && !strcmp(dot, ".map"))
            names_add(names, list[i]->d_name);
    }
    return list;
}

static int no_map(const char *name, const char *in_tree)
{
    char text[NAMES_TEXT_BYTES], looked[4 * PATHS_BYTES];
    struct names names = {.wanted = name};
    int count = 0;
    struct dirent **list = add_maps(&names, &count);
    int status = options_wrong(program, "--map: there is no %s here, and %s%s", name,
                               paths_looked(in_tree, looked, sizeof looked), names_text(&names, text, sizeof text));
    while (count > 0)
        free(list[--count]);
    free(list);
    return status;
}

/* A name without a slash that is not in the working directory is one of weir's own maps, whose path goes to `found`. */
static int find_map(struct convert *c, char found[PATHS_BYTES])
{
    char in_tree[PATHS_BYTES];
    if (!c->map || strchr(c->map, '/') || !access(c->map, F_OK))
        return -1;
    if (snprintf(in_tree, sizeof in_tree, "apps/weir-gpt/%s", c->map) >= (int)sizeof in_tree)
        return options_wrong(program, "--map: the name is too long");
    if (!paths_of_data(in_tree, found))
        return no_map(c->map, in_tree);
    c->map = found;
    return -1;
}

/* ---- what is in the way ---- */

static bool may_write(const struct convert *c)
{
    if (c->quantize)
        return access(c->to, F_OK) || tensors_failed("%s: is in the way", c->to);
    if (c->npy)
        return npy_may_write(c->to);
    return !weir_checkpoint_may_replace(c->to) || tensors_failed("%s", weir_error());
}

/* Gives what is in the way another name, so that nothing is lost. */
static bool move_aside(struct convert *c)
{
    size_t length = strlen(c->to);
    while (length > 1 && c->to[length - 1] == '/')
        length--;
    for (int i = 1; i < 10000; i++) {
        if (snprintf(c->aside, sizeof c->aside, "%.*s.before-%d", (int)length, c->to, i) >= (int)sizeof c->aside)
            break;
        if (!renameat2(AT_FDCWD, c->to, AT_FDCWD, c->aside, RENAME_NOREPLACE))
            return true;
        if (errno != EEXIST)
            break;
    }
    int why = errno;
    c->aside[0] = '\0';
    return tensors_failed("%s: cannot be moved out of the way: %s", c->to, strerror(why));
}

static bool make_way(struct convert *c)
{
    if (may_write(c))
        return true;
    if (c->force)
        return move_aside(c);
    char error[1024];
    snprintf(error, sizeof error, "%s", tensors_error());
    return tensors_failed("%s; or --force moves it to %s.before-1", error, c->to);
}

/* ---- converting ---- */

/* Gives what is aside its name back. Returns false. */
static bool unmove(const struct convert *c)
{
    if (c->aside[0] && renameat2(AT_FDCWD, c->aside, AT_FDCWD, c->to, RENAME_NOREPLACE))
        fprintf(stderr, "%s: what was %s is %s now\n", program, c->to, c->aside);
    return false;
}

static void tell_aside(const struct convert *c)
{
    if (!c->aside[0])
        return;
    foreign_put(stdout, c->to);
    printf(": is ");
    foreign_put(stdout, c->aside);
    printf(" now\n");
}

static bool make_way_of(void *ctx)
{
    return make_way(ctx);
}

/* Returns the exit status. */
static int quantize(struct convert *c)
{
    const checkpoint_quantize_opts opts = {c->from, c->to, c->quantize, c->merge};
    if (!checkpoint_quantize_may(&opts))
        return options_wrong(program, "%s", tensors_error());
    if ((!c->force && !make_way(c)) || (!checkpoint_quantize(&opts, make_way_of, c) && !unmove(c)))
        return failed();
    tell_aside(c);
    return 0;
}

static bool convert(struct convert *c, struct tensors *t)
{
    t->skip_unread = c->skip_unread;
    char weights[PATHS_BYTES];
    if (c->merge && !checkpoint_merge_weights(c->from, weights))
        return false;
    const char *from = c->merge ? weights : c->from;
    bool ok = is_npy_folder(from) ? npy_read_folder(t, from) : tensors_read(t, from, c->all);
    if (ok && c->map)
        ok = rename_tensors(t, c);
    if (ok && c->merge)
        ok = checkpoint_merge(t, c->from, c->merge, true);
    if (!ok || !make_way(c))
        return false;
    if (c->npy ? npy_write_folder(t, c->to) : tensors_write(t, c->to) && (!c->merge || checkpoint_merge_others(c->from, c->to)))
        return true;
    return unmove(c);
}

static int report(const struct convert *c, const struct tensors *t)
{
    char text[32];
    uint64_t bytes = 0;
    for (int i = 0; i < t->count; i++)
        bytes += tensor_bytes(&t->item[i]);
    tell_aside(c);
    if (t->skipped)
        options_wrong(program, "%d tensor%s left out; the first is %s", t->skipped, t->skipped == 1 ? " is" : "s are",
                      t->first_skipped);
    foreign_put(stdout, c->to);
    printf(": %d tensors, %s\n", t->count, measure_bytes_text(bytes, text));
    return 0;
}

/* -1: the options go together; else the exit status. */
static int check_options(const struct convert *c)
{
    const char *with = c->map ? "--map" : c->npy ? "--npy" : c->all ? "--all" : c->quantize && c->skip_unread ? "--skip-unread" : NULL;
    if (c->reverse && !c->map)
        return options_wrong(program, "--reverse needs --map");
    if (with && (c->quantize || c->merge))
        return options_wrong(program, "%s writes a model's weights; it cannot be used with %s", c->quantize ? "--quantize" : "--merge", with);
    return -1;
}

int checkpoint_convert(int argc, char **argv)
{
    char found[PATHS_BYTES], merged[PATHS_BYTES], near[KEEP_NEAR_BYTES];
    struct convert c = {.from = NULL};
    struct tensors t = {.count = 0};
    const options_entry table[] = {
        {"FROM", OPTIONS_TEXT, &c.from, .file = OPTIONS_READS, .help = "a checkpoint, a folder of checkpoints (the newest), a .safetensors or "
                                                ".gguf file, the index of several, or a folder of .npy files"},
        {"TO", OPTIONS_TEXT, &c.to, .file = OPTIONS_WRITES, .help = "NAME.safetensors, or the folder of the new checkpoint; with --quantize NAME.gguf"},
        {"--npy", OPTIONS_FLAG, &c.npy, .help = "make TO a folder of .npy files"},
        {"--skip-unread", OPTIONS_FLAG, &c.skip_unread, .help = "leave out tensors whose dtype or shape weir does not read"},
        {"--all", OPTIONS_FLAG, &c.all, .help = "convert all state and source positions; default: parameters only"},
        {"--map", OPTIONS_TEXT, &c.map, .file = OPTIONS_READS, .value = "FILE",
         .help = "map of another program's names: your file, or a map that comes with weir, as gpt2.map"},
        {"--reverse", OPTIONS_FLAG, &c.reverse, .help = "use the map in reverse: from weir's names to the other program's"},
        {"--merge", OPTIONS_TEXT, &c.merge, .file = OPTIONS_READS, .value = "DIR",
         .help = "add the LoRA adapter in DIR to the weights, each rounded once to its dtype, or to bf16 if it is quantised; from a folder "
                 "of Hugging Face to another one"},
        {"--quantize", OPTIONS_TEXT, &c.quantize, .value = "FORMAT",
         .help = "make TO a GGUF file. FORMAT is q8_0, with weights of 8 bits, or q4_0, with weights of 4 bits, and of 8 in the table of tokens "
                 "and the head. FROM is a GGUF file, or a folder of Hugging Face"},
        {"--force", OPTIONS_FLAG, &c.force, .help = "if TO exists, move it to TO.before-1, -2, ..."},
        {.name = NULL},
    };
    int status = options_parse(&(options_spec){program, "Convert checkpoints to other formats and back.", table}, argc,
                               argv);
    if (status >= 0)
        return status;
    if ((status = check_options(&c)) >= 0 || (status = find_map(&c, found)) >= 0)
        return status;
    if (access(c.from, F_OK) && errno != ENOENT)
        return options_wrong(program, "cannot read %s: %s", c.from, strerror(errno));
    if (access(c.from, F_OK))
        return options_wrong(program, "there is no %s%s", c.from, keep_near(c.from, near, sizeof near));
    if (c.quantize)
        return quantize(&c);
    if (c.merge && (!checkpoint_merge_path(c.from, c.to, merged) || !checkpoint_merge_may(c.from, merged)))
        return failed();
    c.to = c.merge ? merged : c.to;
    if (!c.force && !make_way(&c))
        return failed();
    status = convert(&c, &t) ? report(&c, &t) : failed();
    tensors_free(&t);
    return status;
}
