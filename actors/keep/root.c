/* actors/keep/root.c: a folder of checkpoints.
 *
 * Nothing is removed or replaced here that own.h does not prove to be weir's.
 *
 * A name that does not begin with a dot is a promise that the folder is whole. So what goes is renamed to a hidden name
 * before its files are removed, and what comes has one until it is whole; a crash leaves hidden folders, which the next
 * save removes.
 *
 * Replacing a checkpoint of the same name (`best`) takes two names that change places. Where a file system has no such
 * operation the old one steps aside to a name that is not hidden, because for a moment it is the only one; whoever
 * finds it there later puts it back, or removes it when the new one has come.
 */
#define _GNU_SOURCE
#include "actors/keep/root.h"

#include "actors/keep/format/index.h"
#include "actors/keep/own.h"
#include "actors/keep/part.h"
#include "actors/keep/save.h"
#include "graph/base/locale.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define NONCE_DIGITS 16
#define OLD ".old-"

const char *keep_step_name(int64_t step, char name[KEEP_STEP_NAME_BYTES])
{
    snprintf(name, KEEP_STEP_NAME_BYTES, "step-%08" PRId64, step);
    return name;
}

int64_t keep_step_of(const char *name)
{
    char again[KEEP_STEP_NAME_BYTES], *end;
    if (strncmp(name, "step-", 5) != 0 || !is_digit(name[5]))
        return -1;
    int64_t step = strtoll(name + 5, &end, 10);
    return !*end && !strcmp(keep_step_name(step, again), name) ? step : -1;
}

static bool ends_with_nonce(const char *name, const char *before)
{
    size_t length = strlen(name), mark = strlen(before);
    return length > NONCE_DIGITS + mark && !strncmp(name + length - NONCE_DIGITS - mark, before, mark) &&
           strspn(name + length - NONCE_DIGITS, "0123456789abcdef") == NONCE_DIGITS;
}

/* A symbolic link is there, wherever it leads. */
static bool is_there(const char *path)
{
    struct stat stat_of;
    return lstat(path, &stat_of) == 0;
}

bool keep_root_remove(const struct keep_files *files, const char *path, const char *aside)
{
    if (keep_owner_of(path, NULL, 0) == KEEP_FOREIGN)
        return errno = ENOTEMPTY, false;
    return files->rename(path, aside) == 0 && keep_remove_own(files, aside);
}

/* ---- after crashes ---- */

/* best.old-NONCE: put back when it is the only one. One that is no checkpoint is the user's, and stays. */
static void put_back(const struct keep_files *files, struct pool *p, const char *root, const char *entry)
{
    int length = (int)(strlen(entry) - NONCE_DIGITS - strlen(OLD));
    const char *nonce = entry + length + strlen(OLD);
    const char *old = pool_text(p, "%s/%s", root, entry), *now = pool_text(p, "%s/%.*s", root, length, entry);
    const char *aside = pool_text(p, "%s/.%.*s.%s", root, length, entry, nonce);
    if (!old || !now || !aside || keep_owner_of(old, NULL, 0) != KEEP_OURS)
        return;
    if (is_there(now))
        keep_root_remove(files, old, aside);
    else
        files->rename(old, now);
}

/* Whether what is in the middle of ".step-00000100.NONCE" or "best.old-NONCE" is of the saves that are meant. */
static bool is_of(const char *middle, size_t length, const char *name)
{
    char step[KEEP_STEP_NAME_BYTES];
    if (length == strlen(name) && !memcmp(middle, name, length))
        return true;
    snprintf(step, sizeof step, "%.*s", (int)length, middle);
    return keep_step_of(name) >= 0 && keep_step_of(step) >= 0;
}

static void clean_entry(const struct keep_files *files, struct pool *p, const char *root, const char *entry,
                        const char *name)
{
    bool hidden = entry[0] == '.' && ends_with_nonce(entry, "."), aside = !hidden && ends_with_nonce(entry, OLD);
    size_t length = strlen(entry);
    const char *path = hidden || aside ? pool_text(p, "%s/%s", root, entry) : NULL;
    if (hidden && path && is_of(entry + 1, length - NONCE_DIGITS - 2, name))
        keep_remove_own(files, path);
    if (aside && path && is_of(entry, length - NONCE_DIGITS - strlen(OLD), name))
        put_back(files, p, root, entry);
}

void keep_root_clean(const struct keep_files *files, const char *root, const char *name)
{
    struct pool p = {0};
    DIR *folder = opendir(root);
    for (struct dirent *entry; folder && (entry = readdir(folder));)
        clean_entry(files, &p, root, entry->d_name, name);
    if (folder)
        closedir(folder);
    pool_free(&p);
}

/* ---- what is there ---- */

static int ascending(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

int keep_root_steps(struct pool *p, const char *root, int64_t **steps)
{
    POOL_LIST(int64_t) list = {0};
    DIR *folder = opendir(root);
    if (!folder)
        return -1;
    for (struct dirent *entry; (entry = readdir(folder));) {
        int64_t step = keep_step_of(entry->d_name);
        const char *index = step < 0 ? NULL : pool_text(p, "%s/%s/" KEEP_INDEX_NAME, root, entry->d_name);
        int64_t *to = index && access(index, F_OK) == 0 ? POOL_PUSH(p, &list) : NULL;
        if (to)
            *to = step;
    }
    closedir(folder);
    if (list.item)
        qsort(list.item, (size_t)list.count, sizeof *list.item, ascending);
    *steps = list.item;
    return list.count;
}

/* ---- coming and going ---- */

/* Two renames for one exchange. */
static bool replace_in_steps(const struct keep_files *files, const char *temporary, const char *path, const char *old)
{
    if (files->rename(path, old))
        return false;
    if (files->rename(temporary, path) == 0) {
        files->rename(old, temporary); /* or the next save finds it where it is */
        return true;
    }
    int why = errno;
    files->rename(old, path);
    errno = why;
    return false;
}

/* `path` becomes what `temporary` was; and `temporary` what `path` was, if there was something. */
static bool swap(const struct keep_files *files, const char *temporary, const char *path, const char *old)
{
    if (!is_there(path))
        return files->rename(temporary, path) == 0;
    if (files->exchange(temporary, path) == 0)
        return true;
    bool cannot = errno == EINVAL || errno == ENOSYS || errno == ENOTSUP;
    return cannot && replace_in_steps(files, temporary, path, old);
}

/* The name is given, but whether it would be there after a loss of power is not known: takes it back. */
static void take_back(const struct keep_files *files, const char *temporary, const char *path, const char *old)
{
    int why = errno;
    if (is_there(temporary))
        swap(files, temporary, path, old);
    else if (files->rename(path, temporary) == 0 && is_there(old))
        files->rename(old, path);
    errno = why;
}

bool keep_root_publish(const struct keep_files *files, const char *root, const char *temporary, const char *name,
                       uint64_t nonce)
{
    struct pool p = {0};
    const char *path = pool_text(&p, "%s/%s", root, name);
    const char *old = pool_text(&p, "%s/%s" OLD "%016" PRIx64, root, name, nonce);
    errno = ENOMEM;
    bool ok = path && old && swap(files, temporary, path, old);
    if (ok && !keep_sync_folder(files, root)) {
        take_back(files, temporary, path, old);
        ok = false;
    }
    int why = errno;
    if (ok && !keep_remove_own(files, temporary) && errno == ENOTEMPTY)
        files->rename(temporary, old); /* something came into it at the last moment: it is not to be hidden */
    pool_free(&p);
    errno = why;
    return ok;
}

/* Tells why something stays: errno, or something else in it. */
static void tell_stays(const struct keep_prune *prune, const char *path)
{
    const char *error = strerror(errno);
    char why[512], sentence[1024];
    if (!prune->tell)
        return;
    bool foreign = errno == ENOTEMPTY && keep_owner_of(path, why, sizeof why) == KEEP_FOREIGN;
    snprintf(sentence, sizeof sentence, "%s: an older checkpoint stays here, because %s", path,
             foreign ? why : error);
    prune->tell(prune->tell_ctx, sentence);
}

void keep_root_prune(const struct keep_files *files, const char *root, const struct keep_prune *prune)
{
    struct pool p = {0};
    char name[KEEP_STEP_NAME_BYTES];
    int64_t *steps = NULL;
    int count = keep_root_steps(&p, root, &steps);
    if (count < 0)
        tell_stays(prune, root);
    while (count > 0 && steps[count - 1] > prune->step)
        count--;
    for (int i = 0; steps && i < count - prune->keep; i++) {
        const char *path = pool_text(&p, "%s/%s", root, keep_step_name(steps[i], name));
        const char *aside = pool_text(&p, "%s/.%s.%016" PRIx64, root, name, prune->nonce);
        /* One that stays is told when it is the newest of those that are to go: the others were, before. */
        if (path && aside && !keep_root_remove(files, path, aside) && i == count - prune->keep - 1)
            tell_stays(prune, path);
    }
    pool_free(&p);
}

/* ---- parts ---- */

int keep_part_steps(const char *root, int64_t *steps, int room)
{
    struct pool p = {0};
    int64_t *all = NULL;
    int count = keep_root_steps(&p, root, &all), given = 0;
    while (given < room && given < count)
        steps[given] = all[count - 1 - given], given++;
    pool_free(&p);
    return given;
}

void keep_part_prune(const struct keep_files *files, const char *root, int64_t step)
{
    struct pool p = {0};
    char name[KEEP_STEP_NAME_BYTES];
    int64_t *steps = NULL;
    int count = keep_root_steps(&p, root, &steps);
    for (int i = 0; i < count; i++) {
        const char *path = pool_text(&p, "%s/%s", root, keep_step_name(steps[i], name));
        const char *aside = pool_text(&p, "%s/.%s.%016x", root, name, 0);
        if (steps[i] != step && path && aside)
            keep_root_remove(files, path, aside);
    }
    pool_free(&p);
}
