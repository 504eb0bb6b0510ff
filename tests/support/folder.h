/* tests/support/folder.h: a folder of a test's own below /tmp, and what is in it. */
#ifndef TESTS_SUPPORT_FOLDER_H
#define TESTS_SUPPORT_FOLDER_H

#include <stdbool.h>
#include <stddef.h>

/* Makes the folder; a Criterion test's .init. And removes it with all that is in it: its .fini. */
void folder_make(void);
void folder_remove(void);

/* "/tmp/weir-keep-abcdef" and, from a format, a path in it; of the last eight calls. */
const char *folder_path(const char *format, ...) __attribute__((format(printf, 1, 2)));

bool folder_has(const char *path);
int folder_entries(const char *path); /* hidden ones too, but for a root's lock; -1: it is none */

/* Changes one byte of a file, or makes it so long; fails the test when it cannot. */
void folder_flip(const char *path, long offset);
void folder_cut(const char *path, long bytes);
long folder_size(const char *path); /* of a file */
long folder_links(const char *path); /* names that the file has */
void folder_write(const char *path, const void *bytes, size_t count);

#endif
