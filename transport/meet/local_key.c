/* transport/meet/local_key.c: see the header. Everything is looked at through the descriptor that is then used, so what
 * was found to be private cannot have become something else. */
#include "transport/meet/local_key.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "graph/base/error.h"

#define KEY_NAME "weir.key"

/* The reason against the file; NULL: it is of this kind, and the user's alone. */
static const char *not_private(int fd, mode_t kind)
{
    struct stat info;
    if (fstat(fd, &info))
        return strerror(errno);
    if ((info.st_mode & S_IFMT) != kind)
        return "it is something else";
    if (info.st_uid != geteuid())
        return "it belongs to another user";
    return info.st_mode & (S_IRWXG | S_IRWXO) ? "it is open to others" : NULL;
}

/* ---- the folder ---- */

static int folder_open(const char *path, const char **why)
{
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    *why = fd < 0 ? strerror(errno) : not_private(fd, S_IFDIR);
    if (fd >= 0 && *why) {
        close(fd);
        fd = -1;
    }
    return fd;
}

/* A runtime folder that is none, or another user's (after su), is passed over: all ranks of the user see the same. */
static int folder_find(char *path, size_t bytes, const char **why)
{
    const char *runtime = getenv("XDG_RUNTIME_DIR"), *temporary = getenv("TMPDIR");
    snprintf(path, bytes, "%s", runtime ? runtime : "");
    int fd = *path ? folder_open(path, why) : -1;
    if (fd >= 0)
        return fd;
    snprintf(path, bytes, "%s/weir-%u", temporary && *temporary ? temporary : "/tmp", (unsigned)geteuid());
    if (mkdir(path, S_IRWXU) && errno != EEXIST) {
        *why = strerror(errno);
        return -1;
    }
    return folder_open(path, why);
}

/* ---- the file ---- */

/* False, and *why is NULL, when there is none. */
static bool key_read(int folder, char secret[WEIR_KEY_BYTES], const char **why)
{
    char line[WEIR_KEY_BYTES + 1]; /* a line end, and what shows that it is too long */
    int fd = openat(folder, KEY_NAME, O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) {
        *why = errno == ENOENT ? NULL : errno == ELOOP ? KEY_NAME " in it is a symbolic link" : strerror(errno);
        return false;
    }
    *why = not_private(fd, S_IFREG) ? KEY_NAME " in it is open to others or not a file of the user's: remove it" : NULL;
    if (!*why && (read(fd, line, sizeof line) != WEIR_KEY_BYTES || line[WEIR_KEY_BYTES - 1] != '\n'))
        *why = KEY_NAME " in it holds no key: remove it";
    close(fd);
    if (!*why) {
        memcpy(secret, line, WEIR_KEY_BYTES - 1);
        secret[WEIR_KEY_BYTES - 1] = '\0';
    }
    explicit_bzero(line, sizeof line);
    return !*why;
}

static bool key_write(int fd)
{
    char line[WEIR_KEY_BYTES];
    bool written = weir_key_new(line) == WEIR_OK;
    line[WEIR_KEY_BYTES - 1] = '\n';
    errno = 0;
    written = written && !fchmod(fd, S_IRUSR | S_IWUSR) && write(fd, line, sizeof line) == sizeof line && !fsync(fd);
    explicit_bzero(line, sizeof line);
    return written;
}

/* Also true when somebody else was faster. */
static bool key_make(int folder, const char **why)
{
    char name[64];
    uint64_t number = 0;
    if (getrandom(&number, sizeof number, 0) < 0)
        number = (uint64_t)getpid();
    snprintf(name, sizeof name, ".%s.%016llx", KEY_NAME, (unsigned long long)number);
    int fd = openat(folder, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, S_IRUSR | S_IWUSR);
    bool made = fd >= 0 && key_write(fd) && (!linkat(folder, name, folder, KEY_NAME, 0) || errno == EEXIST);
    *why = made ? NULL : errno ? strerror(errno) : "a key cannot be written there";
    if (fd >= 0) {
        unlinkat(folder, name, 0);
        close(fd);
    }
    return made;
}

/* ---- the call ---- */

weir_status local_key(char secret[WEIR_KEY_BYTES])
{
    char path[4096];
    const char *why = NULL;
    int folder = folder_find(path, sizeof path, &why);
    bool found = folder >= 0 && key_read(folder, secret, &why);
    if (folder >= 0 && !found && !why && key_make(folder, &why))
        found = key_read(folder, secret, &why);
    if (folder >= 0)
        close(folder);
    if (found)
        return WEIR_OK;
    return error_set(WEIR_E_IO,
                     "no key is given, and weir cannot get the key that ranks of this host share from %s: %s; make a key "
                     "(weir keygen) and name its file in WEIR_KEY_FILE on every rank, or set WEIR_INSECURE=1 where all "
                     "users of this host are trusted", path, why ? why : "it was removed at once");
}
