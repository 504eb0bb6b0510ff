/* apps/weir/launch/process.h: one rank: starting it, here or through a remote shell, and sending it signals.
 *
 *     here        fork, a process group of its own, the environment, exec
 *     elsewhere   the same with a remote shell (ssh) as the program, and a script on its standard input
 *                 (launch_script.h); signals go as lines on the same way, and its end tells the other side to end
 *
 * Rank 0 shares the launcher's process group when standard input is a terminal, which it could not read otherwise;
 * what the terminal sends (Ctrl-C) it then gets by itself. One thread.
 */
#ifndef APPS_WEIR_LAUNCH_PROCESS_H
#define APPS_WEIR_LAUNCH_PROCESS_H

#include "apps/weir/launch/guard.h"
#include "apps/weir/launch/hosts.h"
#include "apps/weir/launch/snapshots.h"

#include <signal.h>
#include <sys/resource.h>

#define LAUNCH_TOKEN_BYTES 33

/* A variable that all ranks get; `value` NULL: that they do not have. */
typedef struct launch_setting {
    const char *name, *value; /* borrowed */
} launch_setting;

/* A process to be started, and how far it has come. All pointers are borrowed. */
typedef struct launch_job {
    const char *name;       /* of the command, for messages */
    char **argv;            /* the program and its arguments; ends at NULL */
    launch_slot *slots;   /* of the generation that runs, */
    int ranks;              /* and how many it has */
    int generation;         /* how often they have been started anew */
    int restarts;           /* after a loss: how often at most, and how often so far */
    int restarted;
    const launch_setting *settings; /* ends at name NULL */
    launch_snapshots *snapshots; /* folders that ranks are told of */
    const char *key;        /* the file with the session's secret; "": none */
    const char *rates;      /* the text of a file of rates for other hosts; NULL: none */
    void (*tell)(void *ctx, const struct launch_job *job); /* brings them up to date for a generation */
    void *tell_ctx;
    bool prefix;            /* lines say whose they are */
    double grace_s;         /* what the others have to end by themselves when one has failed */
    double patience_s;      /* how long to wait for hosts when too few are left */
    const char *shell;      /* the remote shell, words separated by blanks */
    char token[LAUNCH_TOKEN_BYTES]; /* begins what the script and the ranks' sessions say on stderr: nobody else knows it */
} launch_job;

/* The settings that ranks do not inherit as the launcher has changed them for itself. */
typedef struct launch_origin {
    pid_t launcher;
    sigset_t mask;
    struct sigaction pipe_action;
    struct rlimit files;
} launch_origin;

typedef struct launch_process {
    int rank;
    bool remote;
    pid_t id;           /* 0: never started, or taken leave of */
    bool own_group;
    bool arrived;       /* remote: the other side runs and listens */
    int out, err;       /* what it prints; the caller takes them over */
    int control;        /* remote: the script, then signals; -1: none */
    char *script;       /* owned: what of it is still to be sent lies behind script_sent */
    size_t script_bytes, script_sent;
} launch_process;

/* Becomes the remote shell that runs `command` on `host`; returns when there is no such program, with errno. */
void launch_process_shell(const char *shell, const char *host, const char *command);

/* Returns 0, or errno after reporting; nothing is then left of it. */
int launch_process_start(launch_process *process, const launch_job *job, int rank, const launch_origin *origin,
                         launch_guard *guard);

/* Sends what can be sent of the script without waiting. */
void launch_process_feed(launch_process *process);

/* Passes a signal on. `from_terminal`: all of the launcher's own process group have it already. */
void launch_process_signal(launch_process *process, int sig, bool from_terminal);

/* Ends it and all that it has started, on the other side too, if that still can be reached; then, or at once when
 * `here`, the shell that leads there. */
void launch_process_kill(launch_process *process, bool here);

/* To be called when it has ended and is not reaped yet, so that its number is nobody else's: kills what it has left
 * behind in its group. */
void launch_process_leave(launch_process *process, launch_guard *guard);

#endif
