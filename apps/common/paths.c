/* apps/common/paths.c: where the project's own files are. The programs are built into build/bin of the tree, so the
 * tree is found by going up from the program; an installed one has its files in ../share/weir. Nothing is compiled in: the
 * tree may be moved, and so may what was installed. */
#include "apps/common/paths.h"

#include "graph/base/names.h"

#include <dirent.h>
#include <errno.h>
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

bool paths_make_above(char *path)
{
    for (char *slash = *path ? strchr(path + 1, '/') : NULL; slash; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        const bool ok = mkdir(path, 0777) == 0 || errno == EEXIST;
        *slash = '/';
        if (!ok)
            return false;
    }
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

/* The program's own folder. */
static bool own_folder(char folder[PATHS_BYTES])
{
    ssize_t length = readlink("/proc/self/exe", folder, PATHS_BYTES - 1);
    folder[length > 0 ? length : 0] = '\0';
    return length > 0 && go_up(folder);
}

static bool find_in_tree(const char *file, char path[PATHS_BYTES])
{
    char folder[PATHS_BYTES];
    return own_folder(folder) && find_above(folder, file, path);
}

static bool find_here(const char *file, char path[PATHS_BYTES])
{
    char folder[PATHS_BYTES];
    return getcwd(folder, sizeof folder) && find_above(folder, file, path);
}

/* Where installed files are, if there are any. */
static bool installed_folder(char path[PATHS_BYTES])
{
    char folder[PATHS_BYTES];
    int bytes = -1;
    if (own_folder(folder) && go_up(folder))
        bytes = snprintf(path, PATHS_BYTES, "%s/share/weir", folder[1] ? folder : "");
    return bytes >= 0 && bytes < PATHS_BYTES;
}

static bool find_installed(const char *file, char path[PATHS_BYTES])
{
    char folder[PATHS_BYTES];
    const char *slash = strrchr(file, '/');
    return installed_folder(folder) &&
           snprintf(path, PATHS_BYTES, "%s/%s", folder, slash ? slash + 1 : file) < PATHS_BYTES && !access(path, R_OK);
}

bool paths_of_data(const char *file, char path[PATHS_BYTES])
{
    return find_in_tree(file, path) || find_installed(file, path) || find_here(file, path);
}

const char *paths_looked(const char *file, char *text, size_t bytes)
{
    char own[PATHS_BYTES], installed[PATHS_BYTES], here[PATHS_BYTES];
    const char *slash = strrchr(file, '/');
    const bool has_own = own_folder(own), has_installed = installed_folder(installed), has_here = getcwd(here, sizeof here);
    snprintf(text, bytes, "neither %s/%s, nor %s in %s, %s or a folder above them", has_installed ? installed : "?",
             slash ? slash + 1 : file, file, has_own ? own : "?", has_here ? here : "?");
    return text;
}

const char *paths_meant(const char *path, char text[PATHS_BYTES])
{
    const bool absent = errno == ENOENT;
    const char *slash = strrchr(path, '/'), *meant = NULL;
    const int folder = slash ? (int)(slash - path) + 1 : 0;
    struct names names = {.wanted = path + folder};
    struct dirent **entry = NULL;
    snprintf(text, PATHS_BYTES, "%.*s", folder ? folder : 1, folder ? path : ".");
    int count = absent ? scandir(text, &entry, NULL, alphasort) : 0;
    for (int i = 0; i < count; i++)
        names_add(&names, entry[i]->d_name);
    meant = names_meant(&names);
    snprintf(text, PATHS_BYTES, meant ? " (did you mean %.*s%s?)" : "", folder, path, meant);
    while (count > 0)
        free(entry[--count]);
    free(entry);
    return text;
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
    if (!find_in_tree(marker, root) && !find_here(marker, root))
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
