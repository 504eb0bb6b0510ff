/* tests/support/folder.c: a folder of a test's own below /tmp, and what is in it. */
#define _GNU_SOURCE
#include "tests/support/folder.h"

#include <criterion/criterion.h>
#include <dirent.h>
#include <ftw.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

static char folder[] = "/tmp/weir-keep-XXXXXX";

void folder_make(void)
{
    cr_assert(mkdtemp(folder), "no folder for the test's files");
}

static int remove_entry(const char *path, const struct stat *stat_of, int kind, struct FTW *place)
{
    (void)stat_of, (void)kind, (void)place;
    return remove(path);
}

void folder_remove(void)
{
    nftw(folder, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
}

const char *folder_path(const char *format, ...)
{
    static char path[8][4096];
    static int turn;
    char *to = path[turn++ % 8];
    int length = snprintf(to, sizeof path[0], "%s%s", folder, *format ? "/" : "");
    va_list args;
    va_start(args, format);
    vsnprintf(to + length, sizeof path[0] - (size_t)length, format, args);
    va_end(args);
    return to;
}

bool folder_has(const char *path)
{
    return access(path, F_OK) == 0;
}

int folder_entries(const char *path)
{
    DIR *open = opendir(path);
    int count = open ? -2 : -1; /* "." and ".." */
    for (struct dirent *entry; open && (entry = readdir(open));)
        count += strcmp(entry->d_name, ".lock") != 0;
    if (open)
        closedir(open);
    return count;
}

void folder_flip(const char *path, long offset)
{
    FILE *file = fopen(path, "r+b");
    cr_assert(file && fseek(file, offset, SEEK_SET) == 0, "cannot open %s", path);
    int byte = fgetc(file);
    cr_assert(byte != EOF && fseek(file, offset, SEEK_SET) == 0 && fputc(byte ^ 0x10, file) != EOF);
    cr_assert(fclose(file) == 0);
}

void folder_cut(const char *path, long bytes)
{
    cr_assert(truncate(path, bytes) == 0, "cannot cut %s", path);
}

long folder_size(const char *path)
{
    struct stat stat_of;
    cr_assert(stat(path, &stat_of) == 0, "there is no %s", path);
    return (long)stat_of.st_size;
}

long folder_links(const char *path)
{
    struct stat stat_of;
    cr_assert(stat(path, &stat_of) == 0, "there is no %s", path);
    return (long)stat_of.st_nlink;
}

void folder_write(const char *path, const void *bytes, size_t count)
{
    FILE *file = fopen(path, "wb");
    cr_assert(file && fwrite(bytes, 1, count, file) == count && fclose(file) == 0, "cannot write %s", path);
}
