/* apps/weir/launch/pool.c: the slots that ranks can have.
 *
 * The file is read again and again rather than watched (inotify): it may be on a network file system, or be replaced by
 * a rename, and it is a few bytes five times a second.
 */
#define _GNU_SOURCE
#include "apps/weir/launch/pool.h"
#include "apps/common/measure.h"
#include "apps/common/options.h"
#include "apps/weir/launch/process.h"
#include "graph/base/reading.h"

#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#define LOOK_SECONDS 0.2
#define PROBE_SECONDS 5.0

/* ---- hosts ---- */

static const char *name_of(const launch_pool *pool, const launch_host *host)
{
    return pool->slots[host->slot].host;
}

static launch_host *find_host(const launch_pool *pool, const launch_slot *slot)
{
    for (int i = 0; slot->remote && i < pool->hosts_count; i++)
        if (!strcmp(name_of(pool, &pool->hosts[i]), slot->host))
            return &pool->hosts[i];
    return NULL;
}

static bool is_there(const launch_pool *pool, const launch_slot *slot)
{
    const launch_host *host = find_host(pool, slot);
    return !host || !host->gone;
}

/* Asks whether it can be reached: a child that says nothing, and dies with the launcher. */
static void start_probe(launch_pool *pool, launch_host *host)
{
    sigset_t none;
    sigemptyset(&none);
    host->probe_at = measure_seconds() + PROBE_SECONDS;
    host->probe = fork();
    if (host->probe > 0)
        return;
    if (host->probe < 0) {
        host->probe = 0;
        return;
    }
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    int null = open("/dev/null", O_RDWR);
    for (int fd = 0; fd <= 2; fd++)
        dup2(null, fd);
    sigprocmask(SIG_SETMASK, &none, NULL);
    launch_process_shell(pool->shell, name_of(pool, host), "true");
    _exit(127);
}

void launch_pool_lose(launch_pool *pool, const launch_slot *slot)
{
    launch_host *host = find_host(pool, slot);
    if (!pool->least || !host || host->gone)
        return;
    host->gone = true;
    host->probe_at = 0;
}

void launch_pool_probed(launch_pool *pool, pid_t id, int status)
{
    for (int i = 0; i < pool->hosts_count; i++)
        if (pool->hosts[i].probe == id) {
            pool->hosts[i].probe = 0;
            pool->hosts[i].gone &= status != 0;
        }
}

static void ask_hosts(launch_pool *pool)
{
    for (int i = 0; i < pool->hosts_count; i++) {
        launch_host *host = &pool->hosts[i];
        if (host->gone && !host->probe && measure_seconds() >= host->probe_at)
            start_probe(pool, host);
    }
}

const char *launch_pool_gone(const launch_pool *pool, char *text, size_t bytes)
{
    size_t used = 0;
    text[0] = '\0';
    for (int i = 0; i < pool->hosts_count; i++)
        if (pool->hosts[i].gone && used < bytes)
            used += (size_t)snprintf(text + used, bytes - used, used ? ", %s" : "%s", name_of(pool, &pool->hosts[i]));
    return text;
}

/* ---- how many ---- */

int launch_pool_count(const launch_pool *pool)
{
    int there = 0;
    for (int i = 0; i < pool->room && there < pool->wanted; i++)
        there += is_there(pool, &pool->slots[i]);
    return there;
}

bool launch_pool_is_enough(const launch_pool *pool)
{
    int least = pool->least && pool->least < pool->wanted ? pool->least : pool->wanted;
    return launch_pool_count(pool) >= least;
}

int launch_pool_take(const launch_pool *pool, launch_slot *slots)
{
    int ranks = 0;
    for (int i = 0; i < pool->room && ranks < pool->wanted; i++)
        if (is_there(pool, &pool->slots[i]))
            slots[ranks++] = pool->slots[i];
    launch_hosts_count(slots, ranks);
    return ranks;
}

/* Its first line; "" when there is none (yet: whoever writes it empties it first). */
static void read_file(const char *path, char *text, size_t bytes)
{
    const char *why;
    FILE *file = reading_file(path, &why);
    text[0] = '\0';
    if (!file)
        return;
    if (!fgets(text, (int)bytes, file))
        text[0] = '\0';
    text[strcspn(text, "\r\n")] = '\0';
    fclose(file);
}

/* True: it says another number than is wanted so far. An answer that is no number is told once. */
static bool look_at_file(launch_pool *pool)
{
    char text[sizeof pool->last], *end;
    read_file(pool->file, text, sizeof text);
    if (!text[0] || !strcmp(text, pool->last))
        return false;
    memcpy(pool->last, text, sizeof text);
    long value = strtol(text, &end, 10);
    if (end == text || *end || value < 1 || value > pool->room) {
        options_wrong(pool->program, "%s says \"%s\", which is no number of ranks between 1 and %d", pool->file, text,
                      pool->room);
        return false;
    }
    bool changed = value != pool->wanted;
    pool->wanted = (int)value;
    return changed;
}

/* ---- both ---- */

bool launch_pool_look(launch_pool *pool)
{
    double now = measure_seconds();
    ask_hosts(pool);
    if (!pool->file || now < pool->look_at)
        return false;
    pool->look_at = now + LOOK_SECONDS;
    return look_at_file(pool);
}

double launch_pool_pause(const launch_pool *pool)
{
    double at = pool->file ? pool->look_at : INFINITY;
    for (int i = 0; i < pool->hosts_count; i++)
        if (pool->hosts[i].gone && !pool->hosts[i].probe)
            at = fmin(at, pool->hosts[i].probe_at);
    return fmax(at - measure_seconds(), 0);
}

int launch_pool_open(launch_pool *pool)
{
    pool->hosts = calloc((size_t)pool->room, sizeof *pool->hosts);
    if (!pool->hosts)
        return options_wrong(pool->program, "out of memory") - 1;
    for (int i = 0; i < pool->room; i++)
        if (pool->slots[i].remote && !find_host(pool, &pool->slots[i]))
            pool->hosts[pool->hosts_count++].slot = i;
    if (pool->file)
        look_at_file(pool);
    if (!pool->wanted)
        return options_wrong(pool->program, "%s says no number of ranks, and there is no -n N", pool->file);
    if (pool->least > pool->wanted)
        return options_wrong(pool->program, "--min-ranks %d is more than the %d ranks", pool->least, pool->wanted);
    return -1;
}

void launch_pool_close(launch_pool *pool)
{
    free(pool->hosts);
    free(pool->slots);
    pool->hosts = NULL;
    pool->slots = NULL;
}
