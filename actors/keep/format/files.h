/* actors/keep/format/files.h: what this room does to the disk.
 *
 * Everything that changes a disk goes through a table of file operations, so that a test may count them, end the
 * process at the k-th, or have one fail; a library that is used has the system's own. Reading needs no table.
 *
 * All functions return false (or -1) with errno set; who calls them knows the sentence. Any thread; keeps no state.
 */
#ifndef ACTORS_KEEP_FORMAT_FILES_H
#define ACTORS_KEEP_FORMAT_FILES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* As the system calls of these names; `exchange` lets two names change places at once (errno EINVAL or ENOSYS where a
 * file system cannot). */
struct keep_files {
    int (*open)(const char *path, int flags, mode_t mode);
    ssize_t (*write)(int fd, const void *bytes, size_t count);
    int (*fsync)(int fd);
    int (*close)(int fd);
    int (*mkdir)(const char *path, mode_t mode);
    int (*rename)(const char *from, const char *to);
    int (*exchange)(const char *a, const char *b);
    int (*link)(const char *from, const char *to);
    int (*unlinkat)(int folder, const char *name, int flags);
};
extern const struct keep_files keep_files_system;

/* All of it, whatever is cut short or interrupted. */
bool keep_write_all(const struct keep_files *files, int fd, const void *bytes, size_t count);
bool keep_read_all(int fd, uint64_t offset, void *bytes, size_t count); /* errno 0: the file is shorter */
const char *keep_read_fault(void); /* what keep_read_all() left in errno, as a sentence's end */

bool keep_sync(const struct keep_files *files, int fd); /* the file's bytes are on the disk */

/* A new file with these bytes, which are on the disk when it returns. */
bool keep_write_file(const struct keep_files *files, const char *path, const void *bytes, size_t count);

/* The whole regular file, with a zero byte behind it; freed by the caller. NULL: *why is what a sentence ends with; also
 * when there is more than `limit`. */
char *keep_read_file(const char *path, size_t limit, size_t *count, const char **why);

/* Syncs the folder: files created, renamed or removed in it are so on the disk. */
bool keep_sync_folder(const struct keep_files *files, const char *path);

/* The folder and those above it, as far as they are not there; on the disk. */
bool keep_make_folders(const struct keep_files *files, const char *path);

/* Which file this is, whatever its name becomes. False: not there. */
struct keep_identity {
    dev_t device;
    ino_t inode;
};
bool keep_identify(const char *path, struct keep_identity *id);
static inline bool keep_same(struct keep_identity a, struct keep_identity b)
{
    return a.device == b.device && a.inode == b.inode;
}

#endif
