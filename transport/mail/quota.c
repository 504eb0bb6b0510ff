/* transport/mail/quota.c: see the header. */
#define _GNU_SOURCE
#include "transport/mail/quota.h"

#include "graph/base/locale.h"

#include <inttypes.h>
#include <limits.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PATH_BYTES = 4096, TEXT_BYTES = 64, MICROSECONDS_MAX = INT32_MAX };

/* A folder of control groups that is mounted. */
struct mount {
    char root[PATH_BYTES], point[PATH_BYTES]; /* which group, and where it is seen */
};

/* Whether `word` is one of those between commas. */
static bool has_word(const char *list, const char *word)
{
    size_t length = strlen(word);
    for (const char *at = list; *at; at += strcspn(at, ","), at += *at == ',')
        if (strcspn(at, ",") == length && !strncmp(at, word, length))
            return true;
    return false;
}

/* ---- limits ---- */

/* The first line; false: there is none. */
static bool read_line(const char *folder, const char *name, char text[TEXT_BYTES])
{
    char path[PATH_BYTES];
    int length = snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = length < PATH_BYTES ? fopen(path, "re") : NULL;
    bool read = file && fgets(text, TEXT_BYTES, file);
    if (file)
        fclose(file);
    return read;
}

/* Digits, then `end`; 0: it is something else. Leaves *text behind that. */
static uint64_t number_take(const char **text, char end)
{
    uint64_t number = 0;
    const char *at = *text;
    for (; is_digit(*at) && number <= INT64_MAX / 10 - 1; at++)
        number = 10 * number + (uint64_t)(*at - '0');
    if (at == *text || *at != end)
        return 0;
    *text = at + 1;
    return number;
}

static int limit_of(uint64_t quota, uint64_t period)
{
    if (!quota || !period || period > MICROSECONDS_MAX)
        return INT_MAX;
    uint64_t cores = quota / period + (quota % period > 0);
    return cores < INT_MAX ? (int)cores : INT_MAX;
}

static int limit_of_version_1(const char *folder)
{
    char quota[TEXT_BYTES], period[TEXT_BYTES];
    const char *quota_at = quota, *period_at = period;
    if (!read_line(folder, "cpu.cfs_quota_us", quota) || !read_line(folder, "cpu.cfs_period_us", period))
        return INT_MAX;
    return limit_of(number_take(&quota_at, '\n'), number_take(&period_at, '\n'));
}

static int limit_of_version_2(const char *folder)
{
    char text[TEXT_BYTES];
    const char *at = text;
    if (!read_line(folder, "cpu.max", text))
        return INT_MAX;
    uint64_t quota = number_take(&at, ' ');
    return limit_of(quota, quota ? number_take(&at, '\n') : 0);
}

/* ---- groups ---- */

/* Takes "\040" and the like, which stand for blanks, as the letters that they are. */
static void unescape(char *text)
{
    char *to = text;
    for (const char *at = text; *at; to++) {
        bool octal = at[0] == '\\' && at[1] >= '0' && at[1] <= '3' && at[2] >= '0' && at[2] <= '7' && at[3] >= '0' && at[3] <= '7';
        *to = octal ? (char)((at[1] - '0') << 6 | (at[2] - '0') << 3 | (at[3] - '0')) : *at;
        at += octal ? 4 : 1;
    }
    *to = '\0';
}

/* Reads "36 35 0:30 ROOT POINT OPTIONS ... - TYPE SOURCE OPTIONS"; false: it is not of this version. */
static bool mount_read(char *line, int version, struct mount *mount)
{
    char type[16], options[256] = "";
    const char *rest = strstr(line, " - ");
    if (sscanf(line, "%*s %*s %*s %4095s %4095s", mount->root, mount->point) != 2 || !rest ||
        sscanf(rest, " - %15s %*s %255s", type, options) < 1)
        return false;
    unescape(mount->root);
    unescape(mount->point);
    return version == 2 ? !strcmp(type, "cgroup2") : !strcmp(type, "cgroup") && has_word(options, "cpu");
}

/* The rest of the group's path, from the mount on; NULL: the group is not in the mount. */
static const char *below(const struct mount *mount, const char *group)
{
    size_t length = strlen(mount->root);
    length -= length && mount->root[length - 1] == '/';
    if (strncmp(group, mount->root, length) != 0 || (group[length] && group[length] != '/') || strstr(group, "/../"))
        return NULL;
    return group + length;
}

/* The smallest limit of the group and of those above it, up to where they are mounted. A group that cannot be seen from
 * here, as in some containers, is taken for the one that is mounted. */
static int limit_in(const char *root, const struct mount *mount, const char *group, int version)
{
    char folder[PATH_BYTES];
    const char *rest = below(mount, group);
    size_t top = strlen(root) + strlen(mount->point);
    int least = INT_MAX, length = snprintf(folder, sizeof folder, "%s%s%s", root, mount->point, rest ? rest : "");
    if (length >= (int)sizeof folder)
        return INT_MAX;
    for (char *end = folder + length; end; end = strrchr(folder, '/')) {
        *end = '\0';
        if (strlen(folder) < top)
            break;
        int limit = version == 2 ? limit_of_version_2(folder) : limit_of_version_1(folder);
        least = limit < least ? limit : least;
    }
    return least;
}

/* The process's group of this version, in `line` of /proc/self/cgroup ("4:cpu,cpuacct:/a/b", "0::/a"); NULL: not this. */
static const char *group_in(char *line, int version)
{
    char *names = strchr(line, ':'), *group = names ? strchr(names + 1, ':') : NULL;
    if (!group)
        return NULL;
    *group++ = '\0';
    group[strcspn(group, "\n")] = '\0';
    bool fits = version == 2 ? !names[1] : has_word(names + 1, "cpu");
    return fits && *group == '/' ? group : NULL;
}

static FILE *open_below(const char *root, const char *name)
{
    char path[PATH_BYTES];
    return snprintf(path, sizeof path, "%s%s", root, name) < PATH_BYTES ? fopen(path, "re") : NULL;
}

static bool find_group(const char *root, int version, char group[PATH_BYTES])
{
    char *line = NULL;
    size_t room = 0;
    bool found = false;
    FILE *file = open_below(root, "/proc/self/cgroup");
    while (file && !found && getline(&line, &room, file) > 0) {
        const char *in = group_in(line, version);
        found = in && snprintf(group, PATH_BYTES, "%s", in) < PATH_BYTES;
    }
    free(line);
    if (file)
        fclose(file);
    return found;
}

/* A hierarchy may be mounted several times, each time another part of it. */
static int limit_of_version(const char *root, int version)
{
    char group[PATH_BYTES], *line = NULL;
    struct mount mount;
    size_t room = 0;
    int least = INT_MAX;
    FILE *file = find_group(root, version, group) ? open_below(root, "/proc/self/mountinfo") : NULL;
    while (file && getline(&line, &room, file) > 0)
        if (mount_read(line, version, &mount)) {
            int limit = limit_in(root, &mount, group, version);
            least = limit < least ? limit : least;
        }
    free(line);
    if (file)
        fclose(file);
    return least;
}

int quota_cores(const char *root)
{
    int first = limit_of_version(root, 1), second = limit_of_version(root, 2);
    return first < second ? first : second;
}
