/* Files that take the place of others: links stay, devices stay, and the old file or the new one is there, whole. */
#define _GNU_SOURCE
#include "graph/base/replaced.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/support/folder.h"

TestSuite(replaced, .init = folder_make, .fini = folder_remove, .timeout = 60);

static bool put(const char *path, const char *text)
{
    struct replaced r;
    bool ok = replaced_open(&r, path);
    ok = ok && replaced_write(&r, text, strlen(text));
    return replaced_close(&r, ok);
}

static const char *content(const char *path)
{
    static char text[256];
    FILE *file = fopen(path, "r");
    text[file ? fread(text, 1, sizeof text - 1, file) : 0] = '\0';
    if (file)
        fclose(file);
    return text;
}

static bool is_link(const char *path)
{
    struct stat info;
    return !lstat(path, &info) && S_ISLNK(info.st_mode);
}

Test(replaced, a_file_is_made_and_replaced_and_nothing_else_is_left)
{
    const char *path = folder_path("a");
    cr_assert(put(path, "first, which is longer"));
    cr_assert_str_eq(content(path), "first, which is longer");
    cr_assert(put(path, "second"));
    cr_assert_str_eq(content(path), "second");
    cr_assert_eq(folder_entries(folder_path(".")), 1);
}

Test(replaced, what_is_not_whole_leaves_the_old_file)
{
    struct replaced r;
    const char *path = folder_path("a");
    cr_assert(put(path, "old"));
    cr_assert(replaced_open(&r, path) && replaced_write(&r, "ne", 2));
    cr_assert_str_eq(content(path), "old");
    errno = EDQUOT;
    cr_assert_not(replaced_close(&r, false));
    cr_assert_eq(errno, EDQUOT);
    cr_assert_str_eq(content(path), "old");
    cr_assert_eq(folder_entries(folder_path(".")), 1);
}

Test(replaced, of_a_chain_of_links_the_file_at_its_end_is_replaced)
{
    cr_assert(!mkdir(folder_path("d"), 0777) && put(folder_path("d/file"), "old"));
    cr_assert(!symlink("d/file", folder_path("one")) && !symlink(folder_path("one"), folder_path("two")));
    cr_assert(put(folder_path("two"), "new"));
    cr_assert(is_link(folder_path("two")) && is_link(folder_path("one")) && !is_link(folder_path("d/file")));
    cr_assert_str_eq(content(folder_path("d/file")), "new");
}

Test(replaced, a_link_that_leads_nowhere_makes_its_file)
{
    cr_assert(!mkdir(folder_path("d"), 0777));
    cr_assert(!symlink("d/file", folder_path("one")) && !symlink("one", folder_path("two")));
    cr_assert(put(folder_path("two"), "new"));
    cr_assert(is_link(folder_path("two")) && is_link(folder_path("one")));
    cr_assert_str_eq(content(folder_path("d/file")), "new");
    cr_assert(!symlink("gone/file", folder_path("three")));
    cr_assert_not(put(folder_path("three"), "new"));
    cr_assert_eq(errno, ENOENT);
    cr_assert(!symlink("round", folder_path("round")));
    cr_assert_not(put(folder_path("round"), "new"));
    cr_assert_eq(errno, ELOOP);
}

Test(replaced, a_folder_is_refused_and_stays)
{
    cr_assert(!mkdir(folder_path("d"), 0777) && !symlink("d", folder_path("link")));
    cr_assert_not(put(folder_path("d"), "new"));
    cr_assert_eq(errno, EISDIR);
    cr_assert_not(put(folder_path("link"), "new"));
    cr_assert_eq(errno, EISDIR);
    cr_assert_eq(folder_entries(folder_path("d")), 0);
}

Test(replaced, permissions_stay_and_hard_links_keep_what_they_had)
{
    struct stat info;
    cr_assert(put(folder_path("a"), "old") && !chmod(folder_path("a"), 0640) && !link(folder_path("a"), folder_path("b")));
    cr_assert(put(folder_path("a"), "new"));
    cr_assert(!stat(folder_path("a"), &info));
    cr_assert_eq(info.st_mode & 07777, 0640);
    cr_assert_str_eq(content(folder_path("b")), "old");
}

static void *read_fifo(void *path)
{
    return strdup(content(path));
}

Test(replaced, a_fifo_is_written_and_stays)
{
    struct stat info;
    pthread_t reader;
    void *got = NULL;
    char path[256];
    snprintf(path, sizeof path, "%s", folder_path("fifo"));
    cr_assert(!mkfifo(path, 0600) && !pthread_create(&reader, NULL, read_fifo, path));
    cr_assert(put(path, "through"));
    pthread_join(reader, &got);
    cr_assert_str_eq(got, "through");
    free(got);
    cr_assert(!stat(path, &info) && S_ISFIFO(info.st_mode));
}

Test(replaced, a_device_is_written_and_stays)
{
    struct stat info;
    cr_assert(!symlink("/dev/full", folder_path("full")));
    cr_assert_not(put(folder_path("full"), "new"));
    cr_assert_eq(errno, ENOSPC);
    cr_assert(is_link(folder_path("full")) && !stat("/dev/full", &info) && S_ISCHR(info.st_mode));
    cr_assert(put("/dev/null", "new"));
    cr_assert(!stat("/dev/null", &info) && S_ISCHR(info.st_mode));
}

Test(replaced, the_file_of_standard_output_is_written_where_the_stream_stands)
{
    const char *path = folder_path("out");
    int own = dup(STDOUT_FILENO), fd = open(path, O_WRONLY | O_CREAT, 0666);
    cr_assert(own >= 0 && fd >= 0);
    fflush(stdout);
    dup2(fd, STDOUT_FILENO);
    bool ok = write(STDOUT_FILENO, "before ", 7) == 7 && put("/dev/stdout", "new") && put(path, ", again") &&
              write(STDOUT_FILENO, ", after", 7) == 7;
    dup2(own, STDOUT_FILENO);
    close(own);
    close(fd);
    cr_assert(ok);
    cr_assert_str_eq(content(path), "before new, again, after");
}

Test(replaced, a_write_that_fails_leaves_the_old_file)
{
    const char *path = folder_path("a");
    struct replaced r;
    cr_assert(put(path, "old"));
    cr_assert(replaced_open(&r, path));
    close(r.fd);
    r.fd = open("/dev/full", O_WRONLY);
    bool ok = replaced_write(&r, "new", 3);
    cr_assert_not(ok);
    cr_assert_eq(errno, ENOSPC);
    cr_assert_not(replaced_close(&r, ok));
    cr_assert_eq(errno, ENOSPC);
    cr_assert_str_eq(content(path), "old");
    cr_assert_eq(folder_entries(folder_path(".")), 1);
}
