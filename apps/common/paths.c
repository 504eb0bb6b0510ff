/* apps/common/paths.c: where the project's own files are. The programs are built into build/bin of the tree, so the
 * tree is found by going up from the program; nothing is compiled in, and the tree may be moved. */
#include "apps/common/paths.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Cuts the last component off; false when there is none left. */
static bool go_up(char *path)
{
    char *slash = strrchr(path, '/');
    if (!slash || !path[1])
        return false;
    slash[slash == path] = '\0';
    return true;
}

static bool find_above(char *folder, const char *file, char path[PATHS_BYTES])
{
    do {
        if (snprintf(path, PATHS_BYTES, "%s/%s", folder, file) < PATHS_BYTES && access(path, R_OK) == 0)
            return true;
    } while (go_up(folder));
    return false;
}

bool paths_in_project(const char *file, char path[PATHS_BYTES])
{
    char folder[PATHS_BYTES];
    ssize_t length = readlink("/proc/self/exe", folder, sizeof folder - 1);
    if (length > 0) {
        folder[length] = '\0';
        if (go_up(folder) && find_above(folder, file, path))
            return true;
    }
    return getcwd(folder, sizeof folder) && find_above(folder, file, path);
}

static bool is_text(const char *name)
{
    const char *dot = strrchr(name, '.');
    return dot && (!strcmp(dot, ".c") || !strcmp(dot, ".h") || !strcmp(dot, ".md"));
}

static void add_path(paths_list *list, const char *path)
{
    char **grown = realloc(list->path, (size_t)(list->count + 1) * sizeof *grown);
    if (!grown)
        return;
    list->path = grown;
    if ((grown[list->count] = strdup(path)))
        list->count++;
}

static void add_folder(paths_list *list, const char *folder, int depth)
{
    DIR *dir = depth < 8 ? opendir(folder) : NULL;
    for (struct dirent *entry; dir && (entry = readdir(dir));) {
        char path[PATHS_BYTES];
        struct stat info;
        if (entry->d_name[0] == '.' || !strcmp(entry->d_name, "build") ||
            snprintf(path, sizeof path, "%s/%s", folder, entry->d_name) >= PATHS_BYTES || lstat(path, &info))
            continue;
        if (S_ISDIR(info.st_mode))
            add_folder(list, path, depth + 1);
        else if (S_ISREG(info.st_mode) && is_text(entry->d_name))
            add_path(list, path);
    }
    if (dir)
        closedir(dir);
}

static int by_name(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

void paths_sources(paths_list *list)
{
    static const char marker[] = "include/weir/weir.h";
    char root[PATHS_BYTES];
    *list = (paths_list){0};
    if (!paths_in_project(marker, root))
        return;
    root[strlen(root) - sizeof marker] = '\0';
    add_folder(list, root, 0);
    qsort(list->path, (size_t)list->count, sizeof *list->path, by_name);
}

void paths_free(paths_list *list)
{
    for (int i = 0; i < list->count; i++)
        free(list->path[i]);
    free(list->path);
    *list = (paths_list){0};
}

/* ---- links ---- */

bool paths_follow(char path[PATHS_BYTES])
{
    char target[PATHS_BYTES], joined[2 * PATHS_BYTES];
    ssize_t bytes = readlink(path, target, sizeof target - 1);
    if (bytes <= 0)
        return false;
    target[bytes] = '\0';
    const char *slash = strrchr(path, '/');
    int folder = target[0] == '/' || !slash ? 0 : (int)(slash + 1 - path);
    snprintf(joined, sizeof joined, "%.*s%s", folder, path, target);
    return snprintf(path, PATHS_BYTES, "%s", joined) < PATHS_BYTES;
}
