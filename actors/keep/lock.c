/* actors/keep/lock.c: one program saves in a root at a time.
 *
 * The locks of the process are in one list, which is found by the identity of the lock's file: two paths may lead to
 * one root. A file that is removed while another process waits for it is another file when that process gets its lock;
 * so whoever has the lock looks whether the name still means the file, and begins anew if not.
 *
 * A child of fork() shares the open file, and so the lock. But the child is another program: the list's
 * entries carry the process that took them, and count for no other.
 */
#define _GNU_SOURCE
#include "actors/keep/lock.h"

#include "actors/keep/format/files.h"
#include "graph/base/error.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define LOOK_MS 20      /* between looks at a lock that another process holds */
#define OURS "weir "    /* begins the text of a lock's file that weir has made */
#define TEXT_BYTES 320

struct weir_checkpoint_lock {
    weir_checkpoint_lock *next;
    struct keep_identity file;
    char *path;  /* owned; of the file */
    int fd;
    pid_t owner;
    int count;   /* of those who have taken it; -1: nobody could */
    bool works;  /* the file system has locks */
    bool made;   /* the file is weir's, and is removed at the end */
    bool saving;
};

static pthread_mutex_t all_lock = PTHREAD_MUTEX_INITIALIZER;
static weir_checkpoint_lock *all; /* by all_lock, and so is what is in them */

/* ---- the file ---- */

/* Opens what is there, or makes it. -1: errno. */
static int open_lock(const char *path, bool *made)
{
    int fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);
    *made = fd >= 0;
    return fd >= 0 || errno != EEXIST ? fd : open(path, O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
}

static weir_status cannot_lock(const char *root)
{
    return error_set(WEIR_E_IO, "%s: nothing can be saved there, as " KEEP_LOCK_NAME " cannot be opened in it: %s",
                     root, strerror(errno));
}

/* "weir 71 host-a weir-gpt", or "" when the text is no such. Letters and digits only: it comes from a file. */
static void read_holder(int fd, char text[TEXT_BYTES])
{
    ssize_t count = pread(fd, text, TEXT_BYTES - 1, 0);
    text[count > 0 ? count : 0] = '\0';
    text[strcspn(text, "\n")] = '\0';
    if (strncmp(text, OURS, strlen(OURS)) != 0)
        text[0] = '\0';
    for (char *at = text; *at; at++)
        if (*at < ' ' || *at > '~')
            *at = '?';
}

static weir_status is_held(const char *root, int fd)
{
    char text[TEXT_BYTES], host[128], program[128];
    int process;
    read_holder(fd, text);
    if (sscanf(text, OURS "%d %127s %127[^\n]", &process, host, program) == 3)
        return error_set(WEIR_E_TIMEOUT, "%s: another program saves there: %s, process %d on %s; give each run a folder of "
                         "its own, or wait until that one ends", root, program, process, host);
    return error_set(WEIR_E_TIMEOUT, "%s: another program saves there; give each run a folder of its own, or wait until that "
                     "one ends", root);
}

/* A file that is not weir's keeps its text. A full disk costs the text only. */
static void write_holder(weir_checkpoint_lock *lock)
{
    char text[TEXT_BYTES], host[128] = "?";
    read_holder(lock->fd, text);
    lock->made |= text[0] != '\0';
    if (!lock->made || gethostname(host, sizeof host - 1))
        return;
    int count = snprintf(text, sizeof text, OURS "%ld %.127s %.127s\n", (long)getpid(), host, program_invocation_short_name);
    if (ftruncate(lock->fd, 0) || pwrite(lock->fd, text, (size_t)count, 0) != count)
        return;
}

/* ---- the system's lock ---- */

/* True, or false with errno; EAGAIN: another holds it. */
static bool set_lock(int fd, short type)
{
    struct flock range = {.l_type = type, .l_whence = SEEK_SET};
    bool ok = fcntl(fd, F_OFD_SETLK, &range) == 0;
    if (!ok && errno == EACCES)
        errno = EAGAIN;
    return ok;
}

static bool is_named(int fd, const char *path, struct keep_identity *id)
{
    struct stat file, name;
    if (fstat(fd, &file) || lstat(path, &name))
        return false;
    *id = (struct keep_identity){file.st_dev, file.st_ino};
    return keep_same(*id, (struct keep_identity){name.st_dev, name.st_ino});
}

/* ---- the list ---- */

static weir_checkpoint_lock *find_lock(const char *path)
{
    struct keep_identity id;
    weir_checkpoint_lock *lock = keep_identify(path, &id) ? all : NULL;
    while (lock && !(keep_same(lock->file, id) && lock->owner == getpid()))
        lock = lock->next;
    return lock;
}

static weir_status add_lock(const char *root, const char *path, weir_checkpoint_lock **to)
{
    weir_checkpoint_lock *lock = calloc(1, sizeof *lock);
    char *copy = strdup(path);
    if (lock && copy) {
        *lock = (weir_checkpoint_lock){.next = all, .path = copy, .fd = -1, .owner = getpid()};
        all = *to = lock;
        return WEIR_OK;
    }
    free(lock);
    free(copy);
    return error_set(WEIR_E_MEMORY, "%s: no memory for its lock", root);
}

/* Opens the file and locks it, anew when the file lost its name in between. E_TIMEOUT: another process holds it. */
static weir_status lock_file(const char *root, weir_checkpoint_lock *lock)
{
    struct stat stat_of;
    do {
        if (lock->fd >= 0)
            close(lock->fd);
        lock->fd = open_lock(lock->path, &lock->made);
        if (lock->fd < 0)
            return cannot_lock(root);
        if (fstat(lock->fd, &stat_of) || !S_ISREG(stat_of.st_mode))
            return error_set(WEIR_E_IO, "%s: nothing can be saved there, as " KEEP_LOCK_NAME " in it is no regular file",
                             root);
        lock->works = set_lock(lock->fd, F_WRLCK);
        if (!lock->works && errno == EAGAIN)
            return is_held(root, lock->fd);
    } while (!is_named(lock->fd, lock->path, &lock->file));
    write_holder(lock);
    return WEIR_OK;
}

/* Takes the entry out of the list and frees it. The file goes while it is locked. */
static void end_lock(weir_checkpoint_lock *lock)
{
    weir_checkpoint_lock **at = &all;
    struct keep_identity id;
    while (*at != lock)
        at = &(*at)->next;
    *at = lock->next;
    if (lock->count >= 0 && lock->made && is_named(lock->fd, lock->path, &id))
        unlink(lock->path);
    if (lock->count >= 0 && lock->works)
        set_lock(lock->fd, F_UNLCK); /* a child of fork() may have the file open, too */
    if (lock->fd >= 0)
        close(lock->fd);
    free(lock->path);
    free(lock);
}

static weir_status try_lock(const char *root, const char *path, weir_checkpoint_lock **to)
{
    weir_status status = WEIR_OK;
    *to = find_lock(path);
    if (!*to)
        status = add_lock(root, path, to);
    if (!status && (*to)->fd < 0)
        status = lock_file(root, *to);
    if (status && *to) {
        (*to)->count = -1; /* it never had the lock */
        end_lock(*to);
        *to = NULL;
    } else if (!status) {
        (*to)->count++;
    }
    return status;
}

/* ---- taking and giving up ---- */

static int64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * INT64_C(1000000000) + now.tv_nsec;
}

static weir_status wait_for_lock(const char *root, const char *path, int64_t wait_ns, weir_checkpoint_lock **lock)
{
    int64_t deadline = now_ns() + wait_ns;
    for (;;) {
        pthread_mutex_lock(&all_lock);
        weir_status status = try_lock(root, path, lock);
        pthread_mutex_unlock(&all_lock);
        if (status != WEIR_E_TIMEOUT)
            return status;
        if (now_ns() >= deadline)
            return error_set(WEIR_E_IO, "%s", weir_error());
        nanosleep(&(struct timespec){.tv_nsec = LOOK_MS * 1000000L}, NULL);
    }
}

weir_status keep_lock_take(const char *root, int64_t wait_ns, weir_checkpoint_lock **lock)
{
    char path[PATH_MAX];
    *lock = NULL;
    if (!keep_make_folders(&keep_files_system, root))
        return error_set(WEIR_E_IO, "%s: cannot be made a folder of checkpoints: %s", root, strerror(errno));
    if (faccessat(AT_FDCWD, root, W_OK | X_OK, AT_EACCESS))
        return error_set(WEIR_E_IO, "%s: nothing can be saved there: %s", root, strerror(errno));
    if (snprintf(path, sizeof path, "%s/" KEEP_LOCK_NAME, root) >= (int)sizeof path)
        return error_set(WEIR_E_IO, "%s: nothing can be saved there: %s", root, strerror(ENAMETOOLONG));
    return wait_for_lock(root, path, wait_ns, lock);
}

void keep_lock_release(weir_checkpoint_lock *lock)
{
    pthread_mutex_lock(&all_lock);
    if (lock && lock->owner == getpid() && --lock->count == 0)
        end_lock(lock);
    pthread_mutex_unlock(&all_lock);
}

bool keep_lock_works(const weir_checkpoint_lock *lock)
{
    return lock->works;
}

bool keep_lock_begin(weir_checkpoint_lock *lock)
{
    pthread_mutex_lock(&all_lock);
    bool was = lock->saving;
    lock->saving = true;
    pthread_mutex_unlock(&all_lock);
    return !was;
}

void keep_lock_end(weir_checkpoint_lock *lock)
{
    pthread_mutex_lock(&all_lock);
    lock->saving = false;
    pthread_mutex_unlock(&all_lock);
}
