/* apps/weir/launch/script.c: what the shell on another host is told to do.
 *
 * It is all one compound command: shells read a script from a pipe by line or by block, and this one has to be read
 * whole before the rest of the pipe is for the listener.
 *
 * The shell, the listener and the program are one process group (the remote shell's session, or the group that the
 * launcher made), and `kill ... 0` reaches just that: no number is kept that could be somebody else's by then. The
 * shell catches what it passes on, the listener ignores it, the program begins with neither. The program runs in the
 * foreground, as shells let background programs ignore SIGINT.
 */
#define _GNU_SOURCE
#include "apps/weir/launch/script.h"
#include "apps/weir/launch/key.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SIGNALS "HUP INT QUIT TERM USR1 USR2"

/* The one that makes the folder has come by a connection of its own. */
#define AWAIT_SNAPSHOTS                                              \
    "turns=50\n"                                                     \
    "while [ ! -d \"$WEIR_SNAPSHOTS\" ] && [ $turns -gt 0 ]; do\n"    \
    "    sleep 0.1\n"                                                \
    "    turns=$((turns - 1))\n"                                     \
    "done\n"

extern char **environ;

/* The script as far as it is written. The key is in it, so no copy is left behind when it grows. */
struct growing {
    char *bytes; /* owned */
    size_t count, room;
};

static ssize_t grow(void *cookie, const char *bytes, size_t count)
{
    struct growing *g = cookie;
    if (count > g->room - g->count) {
        size_t room = 2 * (g->room + count);
        char *larger = malloc(room);
        if (!larger)
            return 0;
        launch_key_copy(larger, g->bytes, g->count);
        explicit_bzero(g->bytes, g->count);
        free(g->bytes);
        g->bytes = larger;
        g->room = room;
    }
    memcpy(g->bytes + g->count, bytes, count);
    g->count += count;
    return (ssize_t)count;
}

/* In single quotes every byte is itself, but a single quote. */
static void quote(FILE *to, const char *text)
{
    fputc('\'', to);
    for (const char *c = text; *c; c++)
        if (*c == '\'')
            fputs("'\\''", to);
        else
            fputc(*c, to);
    fputc('\'', to);
}

static void export(FILE *to, const char *name, const char *value)
{
    fprintf(to, "export %s=", name);
    quote(to, value);
    fputc('\n', to);
}

static void export_number(FILE *to, const char *name, int value)
{
    fprintf(to, "export %s=%d\n", name, value);
}

/* Whether `entry` is NAME=VALUE with a name that a shell takes, one of weir's, or of UCX's, that the job does not
 * set itself. */
static bool is_inherited(const launch_job *job, const char *entry)
{
    size_t length = strcspn(entry, "=");
    if ((strncmp(entry, "WEIR_", 5) && strncmp(entry, "UCX_", 4)) || !strncmp(entry, "WEIR_RSH=", 9) || !entry[length])
        return false;
    for (size_t i = 0; i < length; i++)
        if (!isalnum((unsigned char)entry[i]) && entry[i] != '_')
            return false;
    for (const launch_setting *s = job->settings; s->name; s++)
        if (strlen(s->name) == length && !strncmp(s->name, entry, length))
            return false;
    return true;
}

static void write_environment(FILE *to, const launch_job *job, int rank)
{
    char snapshots[LAUNCH_SNAPSHOTS_BYTES];
    for (char **entry = environ; *entry; entry++)
        if (is_inherited(job, *entry)) {
            size_t length = strcspn(*entry, "=");
            fprintf(to, "export %.*s=", (int)length, *entry);
            quote(to, *entry + length + 1);
            fputc('\n', to);
        }
    for (const launch_setting *s = job->settings; s->name; s++)
        if (s->value)
            export(to, s->name, s->value);
        else
            fprintf(to, "unset %s\n", s->name);
    if (*launch_snapshots_path(job->snapshots, &job->slots[rank], snapshots)) {
        export(to, "WEIR_SNAPSHOTS", snapshots);
        fputs(AWAIT_SNAPSHOTS, to);
    }
    export_number(to, "RANK", rank);
    export_number(to, "WORLD_SIZE", job->ranks);
    export_number(to, "LOCAL_RANK", job->slots[rank].local_rank);
    export_number(to, "LOCAL_WORLD_SIZE", job->slots[rank].local_size);
}

/* `echo` is the shell's own, so no list of processes shows the secret, in which it finds nothing to replace. The file lies in the
 * folder of a keeper, where there is one to be: it goes with that also when all that the script has started is killed. */
static void write_key(FILE *to, const launch_job *job)
{
    char secret[WEIR_KEY_BYTES] = "";
    fputs("weir_key= weir_rates=\n", to);
    if (*job->key && launch_key_read(job->name, job->key, secret) < 0) {
        fputs("weir_key=$(mktemp \"${WEIR_SNAPSHOTS:-/dev/shm}/weir-key-XXXXXX\" 2>/dev/null || mktemp)\necho ", to);
        quote(to, secret);
        fputs(" >\"$weir_key\"\nexport WEIR_KEY_FILE=\"$weir_key\"\n", to);
    }
    explicit_bzero(secret, sizeof secret);
}

/* A file beside that of the key. No line of rates is like the one that ends them here. */
static void write_rates(FILE *to, const launch_job *job)
{
    if (!job->rates)
        return;
    fputs("weir_rates=$(mktemp \"${WEIR_SNAPSHOTS:-/dev/shm}/weir-rates-XXXXXX\" 2>/dev/null || mktemp)\n"
          "cat >\"$weir_rates\" <<'weir rates end'\n", to);
    fputs(job->rates, to);
    fputs("weir rates end\nexport WEIR_RATES=\"$weir_rates\"\n", to);
}

static void write_directory(FILE *to)
{
    char *path = getcwd(NULL, 0);
    if (path) {
        fputs("cd ", to);
        quote(to, path);
        fputs(" 2>/dev/null\n", to);
    }
    free(path);
}

/* Descriptor 3 is what the launcher says, 4 is standard error: the shell itself has none, as it would comment on how
 * the program ended. */
static void write_program(FILE *to, const launch_job *job)
{
    fputs("exec 3<&0 4>&2 2>/dev/null\n"
          "trap : " SIGNALS "\n"
          "( trap '' " SIGNALS "\n"
          "while read -r signal; do kill -s \"$signal\" 0; done\n"
          "rm -f \"$weir_key\" \"$weir_rates\"\n"
          "kill -s KILL 0 ) <&3 >/dev/null 3<&- 4>&- &\n",
          to);
    fprintf(to, "( exec sh -c 'echo \"%s pid $$\" >&2; exec \"$@\"' sh", job->token);
    for (char **argument = job->argv; *argument; argument++) {
        fputc(' ', to);
        quote(to, *argument);
    }
    fputs(" </dev/null 2>&4 3<&- 4>&- )\n"
          "status=$?\n"
          "rm -f \"$weir_key\" \"$weir_rates\"\n",
          to);
    fprintf(to, "echo \"%s status $status\" >&4\nexit $status\n", job->token);
}

char *launch_script_write(const launch_job *job, int rank, size_t *bytes)
{
    struct growing script = {.bytes = malloc(1), .room = 1};
    FILE *to = script.bytes ? fopencookie(&script, "w", (cookie_io_functions_t){.write = grow}) : NULL;
    if (!to) {
        free(script.bytes);
        return NULL;
    }
    setvbuf(to, NULL, _IONBF, 0); /* a buffer would keep the key */
    fputs("{\n", to);
    write_directory(to);
    write_environment(to, job, rank);
    write_key(to, job);
    write_rates(to, job);
    write_program(to, job);
    fputs("}\n", to);
    bool failed = ferror(to);
    if (fclose(to) || failed) {
        explicit_bzero(script.bytes, script.count);
        free(script.bytes);
        return NULL;
    }
    *bytes = script.count;
    return script.bytes;
}
