/* actors/keep/own.c: which folders a save may remove or replace.
 *
 * One predicate decides what belongs to a save, for the proof and for the removal: so a file that appears between the
 * two is not removed, and rmdir() then fails, as the folder is not empty.
 */
#define _GNU_SOURCE
#include "actors/keep/own.h"

#include "actors/keep/format/index.h"
#include "graph/base/error.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define DIGITS "0123456789"

struct contents {
    struct keep_index index; /* when it is a checkpoint */
    bool indexed, marked;
};

static bool is_in(int folder, const char *name)
{
    struct stat stat_of;
    return fstatat(folder, name, &stat_of, AT_SYMLINK_NOFOLLOW) == 0;
}

/* The thread's error stays as it was: here an index that cannot be read is an answer. */
static bool reads_index(struct keep_index *index, const char *path)
{
    char error[1024];
    snprintf(error, sizeof error, "%s", weir_error());
    bool ok = keep_index_read_part(index, path) == WEIR_OK;
    if (!ok)
        error_set(WEIR_OK, "%s", error);
    return ok;
}

static struct contents contents_of(int folder, const char *path)
{
    struct contents c = {.marked = is_in(folder, KEEP_MARK_NAME)};
    c.indexed = is_in(folder, KEEP_INDEX_NAME) && reads_index(&c.index, path);
    return c;
}

/* "rank-0000.safetensors", "frozen-0000.safetensors", "rank-0000.json", "rank-0000.part" */
static bool is_of_save(const char *name)
{
    size_t kind = !strncmp(name, "rank-", 5) ? 5 : !strncmp(name, "frozen-", 7) ? 7 : 0;
    size_t digits = kind ? strspn(name + kind, DIGITS) : 0;
    const char *ending = name + kind + digits;
    return digits >= 4 && (!strcmp(ending, ".safetensors") || !strcmp(ending, ".json") || !strcmp(ending, ".part"));
}

static bool is_of_index(const struct keep_index *index, const char *name)
{
    for (int i = 0; i < index->files.count; i++)
        if (!strcmp(index->files.item[i].name, name))
            return true;
    return false;
}

/* An entry that went since its name was read belongs: there is nothing to lose. */
static bool belongs(const struct contents *c, int folder, const char *name)
{
    struct stat stat_of;
    if (fstatat(folder, name, &stat_of, AT_SYMLINK_NOFOLLOW))
        return errno == ENOENT;
    if (S_ISDIR(stat_of.st_mode))
        return false;
    if (!strcmp(name, KEEP_MARK_NAME))
        return c->marked;
    if (!strcmp(name, KEEP_INDEX_NAME))
        return c->indexed || c->marked;
    return c->indexed ? is_of_index(&c->index, name) : c->marked && is_of_save(name);
}

/* The next entry; NULL: there is none. */
static const char *next_of(DIR *entries)
{
    struct dirent *entry;
    do
        entry = readdir(entries);
    while (entry && (!strcmp(entry->d_name, ".") || !strcmp(entry->d_name, "..")));
    return entry ? entry->d_name : NULL;
}

/* Opens the folder itself, never one that a link leads to. */
static DIR *open_entries(const char *path)
{
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    DIR *entries = fd < 0 ? NULL : fdopendir(fd);
    if (fd >= 0 && !entries)
        close(fd);
    return entries;
}

/* ---- whose it is ---- */

/* The first entry that does not belong; NULL: all do. Their number goes to *count. */
static const char *find_foreign(const struct contents *c, DIR *entries, int *count)
{
    const char *name;
    for (*count = 0; (name = next_of(entries)) && belongs(c, dirfd(entries), name);)
        ++*count;
    return name;
}

static enum keep_owner owner_of_entries(const struct contents *c, DIR *entries, char *why, size_t why_bytes)
{
    int count;
    const char *foreign = find_foreign(c, entries, &count);
    if (foreign)
        snprintf(why, why_bytes, "it has %s in it%s", foreign,
                 c->indexed || c->marked ? ", which is not a checkpoint's" : "");
    return foreign ? KEEP_FOREIGN : count ? KEEP_OURS : KEEP_EMPTY;
}

static enum keep_owner owner_of_folder(const char *path, char *why, size_t why_bytes)
{
    DIR *entries = open_entries(path);
    if (!entries) {
        snprintf(why, why_bytes, "it cannot be read: %s", strerror(errno));
        return KEEP_FOREIGN;
    }
    struct contents c = contents_of(dirfd(entries), path);
    enum keep_owner owner = owner_of_entries(&c, entries, why, why_bytes);
    keep_index_free(&c.index);
    closedir(entries);
    return owner;
}

/* A link may go when it leads to a checkpoint: everything in that stays. */
static enum keep_owner owner_of_link(const char *path, char *why, size_t why_bytes)
{
    struct keep_index index = {.nonce = 0};
    bool ours = reads_index(&index, path);
    keep_index_free(&index);
    if (!ours)
        snprintf(why, why_bytes, "it is a symbolic link, and not one to a checkpoint");
    return ours ? KEEP_OURS : KEEP_FOREIGN;
}

enum keep_owner keep_owner_of(const char *path, char *why, size_t why_bytes)
{
    struct stat stat_of;
    char unused[1];
    why_bytes = why ? why_bytes : sizeof unused;
    why = why ? why : unused;
    *why = '\0';
    if (lstat(path, &stat_of) == 0 && S_ISLNK(stat_of.st_mode))
        return owner_of_link(path, why, why_bytes);
    if (lstat(path, &stat_of) == 0 && S_ISDIR(stat_of.st_mode))
        return owner_of_folder(path, why, why_bytes);
    if (lstat(path, &stat_of) && errno == ENOENT)
        return KEEP_NONE;
    snprintf(why, why_bytes, "it is no folder");
    return KEEP_FOREIGN;
}

/* ---- removing ---- */

/* Goes through the entries once more; the proof goes last, and only when nothing else is left. The number of entries
 * that were there; -1 with errno: one stays. */
static int remove_entries(const struct keep_files *files, const struct contents *c, DIR *entries)
{
    const char *proof = c->indexed ? KEEP_INDEX_NAME : c->marked ? KEEP_MARK_NAME : NULL;
    int folder = dirfd(entries), why = 0, count = 0;
    rewinddir(entries);
    for (const char *name; (name = next_of(entries)); count++) {
        if (proof && !strcmp(name, proof))
            continue;
        if (!belongs(c, folder, name))
            why = ENOTEMPTY;
        else if (files->unlinkat(folder, name, 0) && errno != ENOENT)
            why = errno;
    }
    if (!why && proof && files->unlinkat(folder, proof, 0) && errno != ENOENT)
        why = errno;
    errno = why;
    return why ? -1 : count;
}

/* Another rank of the save may make its file while the folder goes: then the entries go once more. */
static bool remove_opened(const struct keep_files *files, const struct contents *c, DIR *entries, const char *path)
{
    bool gone;
    int count;
    do {
        count = remove_entries(files, c, entries);
        gone = count >= 0 && files->unlinkat(AT_FDCWD, path, AT_REMOVEDIR) == 0;
    } while (!gone && count > 0 && errno == ENOTEMPTY);
    return gone;
}

static bool remove_folder(const struct keep_files *files, const char *path)
{
    DIR *entries = open_entries(path);
    if (!entries)
        return false;
    struct contents c = contents_of(dirfd(entries), path);
    bool ours = owner_of_entries(&c, entries, NULL, 0) != KEEP_FOREIGN;
    errno = ENOTEMPTY;
    bool gone = ours && remove_opened(files, &c, entries, path);
    int why = errno;
    keep_index_free(&c.index);
    closedir(entries);
    errno = why;
    return gone;
}

bool keep_remove_own(const struct keep_files *files, const char *path)
{
    struct stat stat_of;
    if (lstat(path, &stat_of))
        return errno == ENOENT;
    if (!S_ISLNK(stat_of.st_mode))
        return remove_folder(files, path);
    errno = ENOTEMPTY;
    return keep_owner_of(path, NULL, 0) == KEEP_OURS && files->unlinkat(AT_FDCWD, path, 0) == 0;
}
