/* apps/common/options_files.c: files that a command line names, and whether two of them are one.
 *
 * A file that exists is known by its device and inode, so another path, a symbolic link and a hard link are seen. One
 * that does not exist yet is known by the deepest folder above it that does, and the names that follow: a link that
 * leads nowhere is followed, because opening it for writing makes the file that it leads to.
 *
 * Character devices are never too many outputs' (/dev/null takes any number), and folders are no files.
 */
#include "apps/common/options_files.h"
#include "apps/common/paths.h"
#include "apps/common/ranks.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define LINKS_MAX 64 /* steps until a path is given up: links that are followed, folders that are not there */

typedef struct named {
    const char *what;  /* "--log"; borrowed */
    char *value;       /* owned: as it is shown; NULL: what says it all */
    bool writes;
    dev_t device;      /* of the file, or of the deepest folder that exists */
    ino_t inode;
    char *rest;        /* owned: what follows that folder; "": it is the file */
} named;

typedef struct names {
    named *item;       /* owned */
    int count, room;
} names;

/* ---- which file it is ---- */

/* Moves the last name of `path` to the front of `rest`. False: there is none. */
static bool go_up(char path[PATHS_BYTES], char rest[PATHS_BYTES])
{
    char below[PATHS_BYTES];
    size_t length = strlen(path);
    while (length > 1 && path[length - 1] == '/')
        path[--length] = '\0';
    char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    if (!*name || (!slash && !strcmp(path, ".")))
        return false;
    snprintf(below, sizeof below, "%s", rest);
    if (strcmp(name, ".") != 0 &&
        snprintf(rest, PATHS_BYTES, *below ? "%s/%s" : "%s%s", name, below) >= PATHS_BYTES)
        return false;
    if (!slash)
        strcpy(path, ".");
    else
        slash[slash == path ? 1 : 0] = '\0';
    return true;
}

/* Finds out which file `text` names. False: it is a folder, or nobody can know. */
static bool identify(named *n, const char *text)
{
    char path[PATHS_BYTES], rest[PATHS_BYTES] = "";
    struct stat info;
    if (snprintf(path, sizeof path, "%s", text) >= (int)sizeof path)
        return false;
    int left = LINKS_MAX;
    while (left-- && stat(path, &info))
        if (!paths_follow(path) && !go_up(path, rest))
            return false;
    if (left < 0 || (!*rest && (S_ISDIR(info.st_mode) || S_ISCHR(info.st_mode))))
        return false;
    n->device = info.st_dev;
    n->inode = info.st_ino;
    n->rest = strdup(rest);
    return n->rest;
}

static bool is_same(const named *a, const named *b)
{
    return a->device == b->device && a->inode == b->inode && !strcmp(a->rest, b->rest);
}

/* ---- all that a command line names ---- */

static void drop(named *n)
{
    free(n->value);
    free(n->rest);
}

static void free_names(names *list)
{
    for (int i = 0; i < list->count; i++)
        drop(&list->item[i]);
    free(list->item);
}

/* Takes `n`, whose file is known. False: no memory. */
static bool add(names *list, named n)
{
    if (list->count == list->room) {
        int room = list->room ? 2 * list->room : 16;
        named *item = realloc(list->item, sizeof *item * (size_t)room);
        if (!item)
            return drop(&n), false;
        list->item = item;
        list->room = room;
    }
    list->item[list->count++] = n;
    return true;
}

/* `value` is shown, `path` looked up. */
static bool add_path(names *list, const char *what, const char *value, const char *path, bool writes)
{
    named n = {.what = what, .value = strdup(value), .writes = writes};
    if (!n.value)
        return false;
    if (!identify(&n, path))
        return drop(&n), true;
    return add(list, n);
}

/* A stream that leads to a file: a shell has opened it, by whatever name. */
static bool add_stream(names *list, const char *what, int fd, bool writes)
{
    struct stat info;
    if (fstat(fd, &info) || !S_ISREG(info.st_mode))
        return true;
    return add(list, (named){.what = what, .writes = writes, .device = info.st_dev, .inode = info.st_ino,
                             .rest = strdup("")});
}

static bool add_ranks(names *list, const char *what, const char *path)
{
    char own[PATHS_BYTES];
    bool ok = true;
    for (int rank = 0; rank < weir_world_size() && ok; rank++) {
        ranks_path_of(path, rank, own);
        ok = add_path(list, what, own, own, true);
    }
    return ok;
}

static bool add_value(names *list, const options_entry *entry, const char *value)
{
    bool writes = entry->file >= OPTIONS_WRITES;
    bool has_name = entry->file == OPTIONS_READS_NAMED || entry->file == OPTIONS_WRITES_NAMED;
    const char *equals = has_name ? strchr(value, '=') : NULL;
    if (entry->file == OPTIONS_WRITES_RANKS)
        return add_ranks(list, entry->name, value);
    if (equals && !strcmp(equals + 1, "-")) /* standard output is in the list already */
        return writes || add_stream(list, "standard input", STDIN_FILENO, false);
    return add_path(list, entry->name, value, equals ? equals + 1 : value, writes);
}

static bool add_entry(names *list, const options_entry *entry)
{
    const options_list *values = entry->to;
    bool ok = true;
    if (entry->kind == OPTIONS_LIST)
        for (int i = 0; i < values->count && ok; i++)
            ok = add_value(list, entry, values->value[i]);
    else if (entry->kind == OPTIONS_TEXT && *(const char **)entry->to)
        ok = add_value(list, entry, *(const char **)entry->to);
    return ok;
}

static bool collect(names *list, const options_spec *spec)
{
    bool ok = true;
    for (const options_entry *e = spec->table; e->name && ok; e++)
        if (e->file)
            ok = add_entry(list, e);
    return ok;
}

/* ---- which of them may not be one ---- */

/* "--log run.json", "standard output" */
static const char *shown(const named *n, char *text, size_t bytes)
{
    snprintf(text, bytes, "%s%s%s", n->what, n->value ? " " : "", n->value ? n->value : "");
    return text;
}

static int wrong_pair(const char *program, const named *a, const named *b)
{
    char first[512], second[512];
    return options_wrong(program, "%s and %s are one file; %s", shown(a, first, sizeof first),
                         shown(b, second, sizeof second),
                         a->writes && b->writes ? "each output needs one of its own"
                                                : "an output must not be an input too");
}

/* The first `fixed` names may be one among themselves. */
static int check_pairs(const char *program, const names *list, int fixed)
{
    for (int b = fixed; b < list->count; b++)
        for (int a = 0; a < b; a++) {
            const named *x = &list->item[a], *y = &list->item[b];
            if ((x->writes || y->writes) && is_same(x, y))
                return wrong_pair(program, x, y);
        }
    return -1;
}

int options_check_files(const options_spec *spec)
{
    names list = {.count = 0};
    bool ok = add_stream(&list, "standard output", STDOUT_FILENO, true) &&
              add_stream(&list, "standard error", STDERR_FILENO, true);
    int streams = list.count;
    ok = ok && collect(&list, spec);
    int status = ok ? check_pairs(spec->program, &list, streams) : options_wrong(spec->program, "out of memory");
    free_names(&list);
    return status;
}

int options_check_input(const options_spec *spec, const char *path)
{
    names list = {.count = 0};
    bool ok = collect(&list, spec);
    int given = list.count;
    ok = ok && add_path(&list, "its input", path, path, false);
    int status = ok ? check_pairs(spec->program, &list, given) : options_wrong(spec->program, "out of memory");
    free_names(&list);
    return status;
}
