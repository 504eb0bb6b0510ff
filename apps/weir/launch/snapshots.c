/* apps/weir/launch/snapshots.c: see the header. */
#define _GNU_SOURCE
#include "apps/weir/launch/snapshots.h"
#include "apps/common/measure.h"
#include "apps/weir/launch/process.h"

#include <dirent.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define MEMORY "/dev/shm"
#define NAME "weir-snapshots-"
#define HIDDEN_SECONDS 60 /* in which a folder has its name, or its maker is gone */
#define CLOSE_SECONDS 5 /* for keepers to remove what they keep */

/* ---- removing ---- */

static int open_folder(int in, const char *name)
{
    return openat(in, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
}

static void remove_entry(int in, const char *name);

/* Each thing is removed below the descriptor of the folder that it is in, and no link is followed. Closes it. */
static void remove_entries(int fd)
{
    DIR *folder = fdopendir(fd);
    if (!folder) {
        close(fd);
        return;
    }
    for (struct dirent *entry; (entry = readdir(folder));)
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
            remove_entry(fd, entry->d_name);
    closedir(folder);
}

static void remove_entry(int in, const char *name)
{
    if (!unlinkat(in, name, 0))
        return;
    int fd = open_folder(in, name);
    if (fd >= 0)
        remove_entries(fd);
    unlinkat(in, name, AT_REMOVEDIR);
}

void launch_snapshots_remove(const char *path)
{
    int fd = *path ? open_folder(AT_FDCWD, path) : -1;
    if (fd < 0)
        return;
    remove_entries(fd);
    rmdir(path);
}

/* ---- what was left behind ---- */

/* Whether launchers and keepers give folders such names: "aBcDeF", or a token of 16 digits and a slot's number. */
static bool is_ours(const char *name)
{
    static const char digits[] = "0123456789", letters[] = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
    name += *name == '.';
    if (strncmp(name, NAME, strlen(NAME)) != 0)
        return false;
    const char *rest = name + strlen(NAME);
    size_t count = strspn(rest, letters), more = rest[count] == '-' ? strspn(rest + count + 1, digits) : 0;
    return more ? count == LAUNCH_SNAPSHOTS_TOKEN && !rest[count + 1 + more] : count == strlen("XXXXXX") && !rest[count];
}

/* Whether it is as they make it, and nobody holds it any more. A hidden one may be about to be locked. */
static bool is_stale(int fd, bool hidden)
{
    struct stat is;
    return !fstat(fd, &is) && is.st_uid == geteuid() && (is.st_mode & 07777) == S_IRWXU &&
           (!hidden || is.st_mtime < time(NULL) - HIDDEN_SECONDS) && !flock(fd, LOCK_EX | LOCK_NB);
}

void launch_snapshots_remove_stale(void)
{
    DIR *folder = opendir(MEMORY);
    for (struct dirent *entry; folder && (entry = readdir(folder));) {
        int fd = is_ours(entry->d_name) ? open_folder(dirfd(folder), entry->d_name) : -1;
        if (fd >= 0 && is_stale(fd, *entry->d_name == '.'))
            remove_entry(dirfd(folder), entry->d_name);
        if (fd >= 0)
            close(fd);
    }
    if (folder)
        closedir(folder);
}

/* ---- this host's ---- */

/* It has a hidden name until it is locked, so that nobody takes it for stale. */
static bool make_here(launch_snapshots *s)
{
    char hidden[] = MEMORY "/." NAME "XXXXXX";
    struct statfs system;
    s->lock = -1;
    if (statfs(MEMORY, &system) || system.f_type != TMPFS_MAGIC || !mkdtemp(hidden))
        return false;
    snprintf(s->here, sizeof s->here, "%s/%s", MEMORY, hidden + strlen(MEMORY "/."));
    s->lock = open(hidden, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (s->lock >= 0 && !flock(s->lock, LOCK_SH) && !rename(hidden, s->here))
        return true;
    launch_snapshots_remove(hidden);
    if (s->lock >= 0)
        close(s->lock);
    s->lock = -1;
    s->here[0] = '\0';
    return false;
}

void launch_snapshots_open(launch_snapshots *s, const char *token)
{
    bool in_memory = make_here(s);
    s->told = in_memory && token;
    if (!in_memory && !mkdtemp(strcpy(s->here, "/tmp/" NAME "XXXXXX")))
        s->here[0] = '\0';
    if (token)
        snprintf(s->elsewhere, sizeof s->elsewhere, "%s/%s%.32s", MEMORY, NAME, token);
}

const char *launch_snapshots_path(const launch_snapshots *s, const launch_slot *slot,
                                  char path[LAUNCH_SNAPSHOTS_BYTES])
{
    if (!slot->remote || !*s->elsewhere)
        snprintf(path, LAUNCH_SNAPSHOTS_BYTES, "%s", s->told ? s->here : "");
    else
        snprintf(path, LAUNCH_SNAPSHOTS_BYTES, "%.70s-%d", s->elsewhere, slot->number);
    return path;
}

/* ---- elsewhere ---- */

static launch_keeper *find_keeper(const launch_snapshots *s, int slot)
{
    for (int i = 0; i < s->keepers_count; i++)
        if (s->keepers[i].slot == slot)
            return &s->keepers[i];
    return NULL;
}

static launch_keeper *add_keeper(launch_snapshots *s, int slot)
{
    if (s->keepers_count == s->keepers_room) {
        int room = s->keepers_room ? 2 * s->keepers_room : 8;
        launch_keeper *grown = realloc(s->keepers, (size_t)room * sizeof *grown);
        if (!grown)
            return NULL;
        s->keepers = grown;
        s->keepers_room = room;
    }
    s->keepers[s->keepers_count] = (launch_keeper){.slot = slot, .fd = -1};
    return &s->keepers[s->keepers_count++];
}

/* All one command, which the shell reads whole before it begins; what follows is for `read`: "end" when all ranks have
 * ended, or nothing, and then they are being killed at this moment. Where there is no flock nothing stale is removed. */
static void write_script(int fd, const char *path)
{
    const char script[] =
        "{\n"
        "new=%1$s\n"
        "for old in %2$s/%3$s* %2$s/.%3$s*; do\n"
        "    name=${old##*/} rest=${old##*/*%3$s}\n"
        "    case $rest in *[!0-9A-Za-z-]*) continue ;; *-*) [ ${#rest} -gt 17 ] || continue ;; *) [ ${#rest} = 6 ] || continue ;; esac\n"
        "    [ -d \"$old\" ] && [ ! -L \"$old\" ] && [ -O \"$old\" ] && [ \"$(stat -c %%a \"$old\")\" = 700 ] || continue\n"
        "    [ \"$name\" = \"${name#.}\" ] || [ -n \"$(find \"$old\" -prune -mmin +1)\" ] || continue\n"
        "    (flock -n 8 && rm -rf \"$old\") 8<\"$old\"\n"
        "done\n"
        "hidden=%2$s/.${new##*/}\n"
        "mkdir -m 700 \"$hidden\" && exec 9<\"$hidden\" && { flock -s 9; mv \"$hidden\" \"$new\"; }\n"
        "trap 'rm -rf \"$new\"; exit' HUP INT TERM\n"
        "while read -r line && [ \"$line\" != end ]; do :; done\n"
        "[ \"$line\" = end ] || { rm -rf \"$new\"; sleep 1; }\n"
        "rm -rf \"$new\"\n"
        "exit\n"
        "}\n";
    dprintf(fd, script, path, MEMORY, NAME);
}

static void become_keeper(int in, const char *shell, const char *host)
{
    sigset_t none;
    sigemptyset(&none);
    int null = open("/dev/null", O_RDWR);
    setpgid(0, 0); /* the terminal's Ctrl-C is not for it: the ranks may still save */
    dup2(in, STDIN_FILENO);
    dup2(null, STDOUT_FILENO);
    dup2(null, STDERR_FILENO);
    sigprocmask(SIG_SETMASK, &none, NULL);
    launch_process_shell(shell, host, "exec sh -s");
    _exit(127);
}

static void start_keeper(launch_snapshots *s, launch_keeper *keeper, const launch_slot *slot, const char *shell)
{
    char path[LAUNCH_SNAPSHOTS_BYTES];
    int ends[2];
    if (pipe2(ends, O_CLOEXEC))
        return;
    keeper->id = fork();
    if (keeper->id == 0)
        become_keeper(ends[0], shell, slot->host);
    close(ends[0]);
    keeper->fd = ends[1];
    if (keeper->id > 0)
        write_script(keeper->fd, launch_snapshots_path(s, slot, path));
    else
        launch_snapshots_ended(s, keeper->id = 0);
}

void launch_snapshots_keep(launch_snapshots *s, const launch_slot *slots, int ranks, const char *shell)
{
    for (int i = 0; i < ranks && *s->elsewhere; i++) {
        launch_keeper *keeper = slots[i].remote ? find_keeper(s, slots[i].number) : NULL;
        if (slots[i].remote && !keeper)
            keeper = add_keeper(s, slots[i].number);
        if (keeper && !keeper->id)
            start_keeper(s, keeper, &slots[i], shell);
    }
}

bool launch_snapshots_is_keeper(const launch_snapshots *s, pid_t id)
{
    for (int i = 0; i < s->keepers_count; i++)
        if (s->keepers[i].id == id)
            return id > 0;
    return false;
}

void launch_snapshots_ended(launch_snapshots *s, pid_t id)
{
    for (int i = 0; i < s->keepers_count; i++)
        if (s->keepers[i].id == id && s->keepers[i].fd >= 0) {
            close(s->keepers[i].fd);
            s->keepers[i] = (launch_keeper){.slot = s->keepers[i].slot, .fd = -1};
        }
}

/* ---- the end ---- */

static bool has_ended(launch_keeper *keeper, double deadline)
{
    while (waitpid(keeper->id, NULL, WNOHANG) == 0) {
        if (measure_seconds() >= deadline)
            return false;
        nanosleep(&(struct timespec){.tv_nsec = 5000000}, NULL);
    }
    return true;
}

void launch_snapshots_close(launch_snapshots *s)
{
    double deadline = measure_seconds() + CLOSE_SECONDS;
    for (int i = 0; i < s->keepers_count; i++)
        if (s->keepers[i].id > 0) {
            dprintf(s->keepers[i].fd, "end\n");
            close(s->keepers[i].fd);
        }
    for (int i = 0; i < s->keepers_count; i++)
        if (s->keepers[i].id > 0 && !has_ended(&s->keepers[i], deadline)) {
            kill(s->keepers[i].id, SIGKILL);
            waitpid(s->keepers[i].id, NULL, 0);
        }
    launch_snapshots_remove(s->here);
    if (*s->here && s->lock >= 0)
        close(s->lock);
    free(s->keepers);
    *s = (launch_snapshots){.keepers = NULL};
}
