/* actors/keep/near.c: see the header. A checkpoint is a folder with an index, or a .safetensors or .gguf file. */
#include "actors/keep/near.h"

#include "actors/keep/format/index.h"
#include "graph/base/names.h"

#include <dirent.h>
#include <stdlib.h>
#include <unistd.h>

#define FOLDER_BYTES 4096

static bool is_checkpoint(const char *folder, const char *name)
{
    char path[FOLDER_BYTES];
    const char *dot = strrchr(name, '.');
    if (name[0] == '.')
        return false;
    return (dot && (!strcmp(dot, ".safetensors") || !strcmp(dot, ".gguf"))) ||
           (snprintf(path, sizeof path, "%s/%s/" KEEP_INDEX_NAME, folder, name) < (int)sizeof path && !access(path, F_OK));
}

/* By bytes, in any locale. */
static int by_name(const struct dirent **a, const struct dirent **b)
{
    return strcmp((*a)->d_name, (*b)->d_name);
}

static const char *list(const char *folder, const char *wanted, char *text, size_t bytes)
{
    struct names names = {.wanted = wanted};
    struct dirent **entry = NULL;
    char found[KEEP_NEAR_BYTES];
    int count = scandir(folder, &entry, NULL, by_name);
    for (int i = 0; i < count; i++)
        if (is_checkpoint(folder, entry[i]->d_name))
            names_add(&names, entry[i]->d_name);
    *text = '\0';
    if (names.count)
        snprintf(text, bytes, "%s in %.100s", names_text(&names, found, NAMES_TEXT_BYTES), folder);
    while (count > 0)
        free(entry[--count]);
    free(entry);
    return text;
}

const char *keep_near(const char *path, char *text, size_t bytes)
{
    char folder[FOLDER_BYTES];
    size_t length = strlen(path);
    while (length && path[length - 1] == '/')
        length--;
    size_t name = length;
    while (name && path[name - 1] != '/')
        name--;
    char wanted[NAMES_LETTERS];
    snprintf(wanted, sizeof wanted, "%.*s", (int)(length - name), path + name);
    if (!name)
        return list(".", wanted, text, bytes);
    if (snprintf(folder, sizeof folder, "%.*s", name > 1 ? (int)name - 1 : 1, path) >= (int)sizeof folder)
        return *text = '\0', text;
    return list(folder, wanted, text, bytes);
}

const char *keep_near_in(const char *folder, char *text, size_t bytes)
{
    return list(folder, "", text, bytes);
}
