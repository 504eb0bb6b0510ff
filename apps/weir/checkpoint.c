/* weir checkpoint: looks at checkpoints, verifies them, converts them. This file reads them through <weir/checkpoint.h> alone, and so
 * can any program. */
#define _GNU_SOURCE
#include "apps/weir/checkpoint.h"

#include "apps/common/measure.h"
#include "apps/common/options.h"
#include "apps/weir/command.h"
#include "apps/weir/verbs.h"
#include "graph/base/foreign.h"
#include "actors/keep/near.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

int command_checkpoint(int argc, char **argv)
{
#define X(name, arguments, text) VERB(name, arguments, text, checkpoint_)
    static const struct verb list[] = {CHECKPOINT_LIST(X) {.name = NULL}};
#undef X
    static const struct verbs verbs = {"weir checkpoint", "usage: weir checkpoint ls|verify|convert ...\nLook at checkpoints, verify and convert them.", 38,
                                       "`weir checkpoint ls --help` and so on list the options. Programs write checkpoints with weir_session_save().",
                                       "needs ls, verify or convert", list};
    return verbs_run(&verbs, argc, argv);
}

/* ---- finding ---- */

static bool add_path(struct checkpoint_paths *found, const char *folder, const char *name)
{
    if (found->count == found->room) {
        int room = found->room ? 2 * found->room : 16;
        char **path = realloc(found->path, (size_t)room * sizeof *path);
        if (!path)
            return false;
        found->path = path;
        found->room = room;
    }
    char **to = &found->path[found->count];
    if (asprintf(to, "%s%s%s", folder, *name ? "/" : "", name) < 0)
        return false;
    found->count++;
    return true;
}

/* Weir's own index, or that of a model in several .safetensors files. */
static bool has_index(const char *folder, const char *name)
{
    static const char *const indexes[] = {"index.json", "model.safetensors.index.json"};
    char path[4096];
    bool has = false;
    for (int i = 0; i < 2 && !has; i++)
        has = snprintf(path, sizeof path, "%s/%s/%s", folder, name, indexes[i]) < (int)sizeof path &&
              (access(path, F_OK) == 0 || (errno != ENOENT && errno != ENOTDIR));
    return has;
}

/* step-99999999 before step-100000000. */
static int by_name(const void *a, const void *b)
{
    return strverscmp(*(char *const *)a, *(char *const *)b);
}

/* ".NAME.NONCE", which a save was writing or removing, or "NAME.old-NONCE", which it was replacing. */
static bool is_left(const char *name)
{
    enum { DIGITS = 16 };
    size_t length = strlen(name);
    if (length <= DIGITS || strspn(name + length - DIGITS, "0123456789abcdef") != DIGITS)
        return false;
    const char *nonce = name + length - DIGITS;
    return (name[0] == '.' && nonce > name + 2 && nonce[-1] == '.') ||
           (nonce > name + 5 && !strncmp(nonce - 5, ".old-", 5));
}

static bool find_below(const char *path, bool left, struct checkpoint_paths *found)
{
    DIR *folder = opendir(path);
    bool ok = folder;
    for (struct dirent *entry; ok && (entry = readdir(folder));) {
        bool wanted = left ? is_left(entry->d_name)
                           : entry->d_name[0] != '.' && !is_left(entry->d_name) && has_index(path, entry->d_name);
        ok = !wanted || add_path(found, path, entry->d_name);
    }
    if (folder)
        closedir(folder);
    if (found->count)
        qsort(found->path, (size_t)found->count, sizeof *found->path, by_name);
    return ok;
}

bool checkpoint_look(const char *path, struct checkpoint_paths *found)
{
    struct stat stat_of;
    *found = (struct checkpoint_paths){.count = 0};
    if (stat(path, &stat_of))
        return false;
    bool one = !S_ISDIR(stat_of.st_mode) || has_index(path, ".");
    return one ? add_path(found, path, "") : find_below(path, false, found);
}

bool checkpoint_left(const char *path, struct checkpoint_paths *found)
{
    struct stat stat_of;
    *found = (struct checkpoint_paths){.count = 0};
    return stat(path, &stat_of) || !S_ISDIR(stat_of.st_mode) || find_below(path, true, found);
}

int checkpoint_find(const char *program, const char *path, struct checkpoint_paths *found)
{
    if (checkpoint_look(path, found) && found->count)
        return -1;
    char near[KEEP_NEAR_BYTES];
    int status = access(path, R_OK) ? options_wrong(program, "cannot read %s: %s%s", path, strerror(errno),
                                                    keep_near(path, near, sizeof near))
                                    : options_wrong(program, "%s: is no checkpoint, and has none in it", path);
    checkpoint_paths_free(found);
    return status;
}

void checkpoint_paths_free(struct checkpoint_paths *found)
{
    for (int i = 0; i < found->count; i++)
        free(found->path[i]);
    free(found->path);
    *found = (struct checkpoint_paths){.count = 0};
}

/* ---- verify ---- */

static const char verify_program[] = "weir checkpoint verify";

static void tell_fault(void *ctx, const char *sentence)
{
    (void)ctx;
    options_wrong(verify_program, "%s", sentence);
}

static int verify_one(const char *path)
{
    char bytes[32];
    weir_checkpoint *c = weir_checkpoint_open(path);
    if (!c)
        return options_failed(verify_program);
    const weir_checkpoint_info *info = weir_checkpoint_get_info(c);
    int status = weir_checkpoint_verify(c, tell_fault, NULL) ? 1 : 0;
    if (!status)
        foreign_put(stdout, path), printf(": whole; %d tensors in %d files, %s\n", info->tensors, info->files,
                                          measure_bytes_text(info->bytes, bytes));
    weir_checkpoint_close(c);
    return status;
}

int checkpoint_verify(int argc, char **argv)
{
    const char *path = NULL;
    struct checkpoint_paths found;
    const options_entry table[] = {
        {"DIR", OPTIONS_TEXT, &path, .help = "a checkpoint, a folder of checkpoints, a .safetensors or .gguf file, or the index of several"},
        {.name = NULL},
    };
    int status = options_parse(&(options_spec){verify_program, "Read every byte of checkpoints, and report what is not "
                                                               "as it was saved.", table}, argc, argv);
    if (status < 0 && (status = checkpoint_find(verify_program, path, &found)) < 0) {
        status = 0;
        for (int i = 0; i < found.count; i++)
            status |= verify_one(found.path[i]);
        checkpoint_paths_free(&found);
    }
    return status;
}
