/* tests/transport/mail/test_quota.c: how many cores control groups are worth, in folders that stand for a system. */
#include <criterion/criterion.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "tests/support/folder.h"
#include "transport/mail/cores.h"
#include "transport/mail/quota.h"

TestSuite(quota, .init = folder_make, .fini = folder_remove, .timeout = 30);

/* Writes a file of the system, with the folders that it is in. */
static void system_has(const char *path, const char *text)
{
    char full[4096];
    snprintf(full, sizeof full, "%s%s", folder_path("."), path);
    for (char *at = full + strlen(folder_path(".")) + 1; (at = strchr(at, '/')); *at++ = '/') {
        *at = '\0';
        mkdir(full, 0700);
    }
    FILE *file = fopen(full, "w");
    cr_assert(file, "%s", full);
    fputs(text, file);
    fclose(file);
}

static int cores(void)
{
    return quota_cores(folder_path("."));
}

#define V1 "33 32 0:29 / /sys/fs/cgroup/cpu,cpuacct rw,nosuid - cgroup cgroup rw,cpu,cpuacct\n"
#define V1_SET "34 32 0:30 / /sys/fs/cgroup/cpuset rw,nosuid - cgroup cgroup rw,cpuset\n"
#define V2 "32 23 0:28 / /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw,nsdelegate\n"
#define V2_UNIFIED "35 32 0:31 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n"
#define OTHERS "23 1 8:1 / / rw - ext4 /dev/sda1 rw\n24 23 0:5 / /proc rw - proc proc rw\n"

static void version_2(const char *group)
{
    char line[256];
    snprintf(line, sizeof line, "0::%s\n", group);
    system_has("/proc/self/cgroup", line);
    system_has("/proc/self/mountinfo", OTHERS V2);
}

static void version_1(const char *group, const char *quota, const char *period)
{
    char path[256];
    snprintf(path, sizeof path, "/sys/fs/cgroup/cpu,cpuacct%s/cpu.cfs_quota_us", group);
    system_has(path, quota);
    snprintf(path, sizeof path, "/sys/fs/cgroup/cpu,cpuacct%s/cpu.cfs_period_us", group);
    system_has(path, period);
}

Test(quota, a_system_without_control_groups_has_none)
{
    cr_expect_eq(cores(), INT_MAX);
    system_has("/proc/self/mountinfo", OTHERS);
    cr_expect_eq(cores(), INT_MAX);
    system_has("/proc/self/cgroup", "");
    cr_expect_eq(cores(), INT_MAX);
    system_has("/proc/self/cgroup", "0::/a\n4:cpu:/a\n");
    cr_expect_eq(cores(), INT_MAX);
}

Test(quota, a_quota_is_rounded_up_to_whole_cores)
{
    static const struct {
        const char *text;
        int cores;
    } quotas[] = {{"200000 100000\n", 2}, {"150000 100000\n", 2}, {"100001 100000\n", 2}, {"100000 100000\n", 1},
                  {"1000 100000\n", 1},   {"50000 50000\n", 1},   {"6400000 100000\n", 64}, {"max 100000\n", INT_MAX},
                  {"9000000000000 1\n", INT_MAX}};
    version_2("/a");
    for (size_t i = 0; i < sizeof quotas / sizeof *quotas; i++) {
        system_has("/sys/fs/cgroup/a/cpu.max", quotas[i].text);
        cr_expect_eq(cores(), quotas[i].cores, "%s: %d", quotas[i].text, cores());
    }
}

Test(quota, what_is_not_understood_is_no_quota)
{
    static const char *const texts[] = {"", "\n", "max", "100000", "100000\n", "100000 \n", "100000 0\n", "0 100000\n",
                                        "-1 100000\n", "+1 100000\n", "1e5 100000\n", "100000 100000 1\n", "100000  100000\n",
                                        " 100000 100000\n", "100000 max\n", "99999999999999999999999 100000\n",
                                        "100000 99999999999999999999999\n", "0x10 100000\n"};
    version_2("/a");
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        system_has("/sys/fs/cgroup/a/cpu.max", texts[i]);
        cr_expect_eq(cores(), INT_MAX, "%s: %d", texts[i], cores());
    }
    static const char *const groups[] = {"0\n", "0:\n", "0::\n", "0::a\n", ":::\n", "0:cpu\n", "\n"};
    system_has("/sys/fs/cgroup/a/cpu.max", "100000 100000\n");
    cr_expect_eq(cores(), 1);
    for (size_t i = 0; i < sizeof groups / sizeof *groups; i++) {
        system_has("/proc/self/cgroup", groups[i]);
        cr_expect_eq(cores(), INT_MAX, "%s: %d", groups[i], cores());
    }
    version_2("/a");
    static const char *const mounts[] = {"", "\n", "32 23 0:28\n", "32 23 0:28 / /sys/fs/cgroup rw\n",
                                         "32 23 0:28 / /sys/fs/cgroup rw - \n", "32 23 0:28 / /sys/fs/cgroup rw - cgroup3 x rw\n"};
    for (size_t i = 0; i < sizeof mounts / sizeof *mounts; i++) {
        system_has("/proc/self/mountinfo", mounts[i]);
        cr_expect_eq(cores(), INT_MAX, "%s: %d", mounts[i], cores());
    }
}

Test(quota, the_smallest_of_all_groups_above_counts)
{
    version_2("/a/b/c");
    system_has("/sys/fs/cgroup/a/b/c/cpu.max", "max 100000\n");
    cr_expect_eq(cores(), INT_MAX);
    system_has("/sys/fs/cgroup/a/cpu.max", "300000 100000\n");
    cr_expect_eq(cores(), 3);
    system_has("/sys/fs/cgroup/a/b/cpu.max", "700000 100000\n");
    cr_expect_eq(cores(), 3);
    system_has("/sys/fs/cgroup/a/b/c/cpu.max", "50000 20000\n");
    cr_expect_eq(cores(), 3);
    system_has("/sys/fs/cgroup/a/b/c/cpu.max", "20000 20000\n");
    cr_expect_eq(cores(), 1);
    system_has("/sys/fs/cgroup/a/b/c/cpu.max", "max 100000\n");
    system_has("/sys/fs/cgroup/cpu.max", "200000 100000\n"); /* as a container has it */
    cr_expect_eq(cores(), 2);
    system_has("/sys/fs/cpu.max", "100000 100000\n"); /* of no group */
    system_has("/sys/fs/cgroup/a/b/c/d/cpu.max", "100000 100000\n");
    system_has("/sys/fs/cgroup/a/b2/cpu.max", "100000 100000\n");
    cr_expect_eq(cores(), 2);
}

Test(quota, version_1_counts_with_the_controller_cpu_alone)
{
    system_has("/proc/self/mountinfo", OTHERS V1_SET V1);
    system_has("/proc/self/cgroup", "12:cpuset:/other\n4:cpuacct,cpu:/a/b\n1:name=systemd:/x\n");
    version_1("/a/b", "-1\n", "100000\n");
    cr_expect_eq(cores(), INT_MAX);
    version_1("/a/b", "250000\n", "100000\n");
    cr_expect_eq(cores(), 3);
    version_1("/a", "150000\n", "100000\n");
    cr_expect_eq(cores(), 2);
    version_1("", "-1\n", "100000\n");
    cr_expect_eq(cores(), 2);
    version_1("/a", "150000\n", "0\n");
    cr_expect_eq(cores(), 3);
    system_has("/proc/self/cgroup", "12:cpuset:/a\n3:cpuacct:/a\n");
    cr_expect_eq(cores(), INT_MAX);
}

Test(quota, both_versions_may_be_mounted)
{
    system_has("/proc/self/mountinfo", OTHERS V2_UNIFIED V1);
    system_has("/proc/self/cgroup", "4:cpu,cpuacct:/a\n0::/b\n");
    version_1("/a", "400000\n", "100000\n");
    cr_expect_eq(cores(), 4);
    system_has("/sys/fs/cgroup/unified/b/cpu.max", "200000 100000\n");
    cr_expect_eq(cores(), 2);
    version_1("/a", "100000\n", "100000\n");
    cr_expect_eq(cores(), 1);
}

/* Without a namespace of its own a container sees the path that its group has on the host, and its part of the tree. */
Test(quota, a_part_of_the_tree_may_be_mounted)
{
    system_has("/proc/self/cgroup", "0::/docker/f00/part\n");
    system_has("/proc/self/mountinfo", OTHERS "32 23 0:28 /docker/f00 /sys/fs/cgroup ro - cgroup2 cgroup rw\n");
    system_has("/sys/fs/cgroup/cpu.max", "200000 100000\n");
    cr_expect_eq(cores(), 2);
    system_has("/sys/fs/cgroup/part/cpu.max", "100000 100000\n");
    cr_expect_eq(cores(), 1);
    system_has("/proc/self/cgroup", "0::/docker/f001\n"); /* another's: what is mounted counts */
    system_has("/sys/fs/cgroup/1/cpu.max", "100000 100000\n");
    cr_expect_eq(cores(), 2);
    system_has("/proc/self/cgroup", "0::/../f001/work\n");
    cr_expect_eq(cores(), 2);
}

Test(quota, names_with_blanks_are_read)
{
    system_has("/proc/self/cgroup", "0::/my job\n");
    system_has("/proc/self/mountinfo", "32 23 0:28 / /the\\040groups rw - cgroup2 none rw\n");
    system_has("/the groups/my job/cpu.max", "300000 100000\n");
    cr_expect_eq(cores(), 3);
}

Test(quota, a_name_that_is_too_long_is_no_quota)
{
    char *line = malloc(10000);
    memset(line, 'x', 9999);
    memcpy(line, "0::/", 4);
    line[9998] = '\n', line[9999] = '\0';
    version_2("/a");
    system_has("/proc/self/cgroup", line);
    cr_expect_eq(cores(), INT_MAX);
    free(line);
}

Test(quota, cores_are_those_of_the_mask_or_fewer)
{
    int quota = quota_cores("");
    cr_expect_eq(cores_of_quota(), quota);
    cr_expect_eq(cores_count(), quota < cores_in_mask() ? quota : cores_in_mask());
    cr_expect(cores_count() >= 1);
}
