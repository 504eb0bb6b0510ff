/* apps/weir/launch/hosts.c: which rank goes where. */
#include "apps/weir/launch/hosts.h"
#include "apps/common/options.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

const char *launch_hosts_name(const launch_slot *slot)
{
    const char *at = strrchr(slot->host, '@');
    return at ? at + 1 : slot->host;
}

/* This host's name, whole or up to its first dot. */
static bool is_own_name(const char *name)
{
    char own[LAUNCH_HOST_BYTES] = "";
    if (gethostname(own, sizeof own - 1))
        return false;
    if (!strcmp(name, own))
        return true;
    own[strcspn(own, ".")] = '\0';
    return !strcmp(name, own);
}

static bool is_this_host(const char *name)
{
    return !strcmp(name, "localhost") || !strcmp(name, "127.0.0.1") || !strcmp(name, "::1") || is_own_name(name);
}

/* A name that a remote shell would take for an option, or for several words, is no host. */
static bool is_host(const char *host)
{
    for (const char *c = host; *c; c++)
        if ((unsigned char)*c <= ' ' || strchr("'\"\\$`;&|<>()", *c))
            return false;
    return *host && *host != '-';
}

/* Reads "HOST", "HOST:COUNT" or "[ADDRESS]:COUNT" of `length` letters. */
static int read_host(const char *program, const char *text, size_t length, launch_slot *slot, int *count)
{
    char entry[LAUNCH_HOST_BYTES], *end;
    if (length >= sizeof entry)
        return options_wrong(program, "--hosts: a name of %zu letters is too long", length);
    memcpy(entry, text, length);
    entry[length] = '\0';
    char *host = entry, *bracket = entry[0] == '[' ? strchr(entry, ']') : NULL;
    char *colon = bracket ? strchr(bracket, ':') : strrchr(entry, ':');
    *count = 1;
    if (colon) {
        long value = strtol(colon + 1, &end, 10);
        if (end == colon + 1 || *end || value < 1 || value > LAUNCH_RANKS_MAX)
            return options_wrong(program, "--hosts: \"%s\" does not end in a count between 1 and %d", entry,
                                 LAUNCH_RANKS_MAX);
        *count = (int)value;
        *colon = '\0';
    }
    if (bracket) {
        *bracket = '\0';
        host++;
    }
    if (!is_host(host))
        return options_wrong(program, "--hosts: \"%s\" is no name of a host", host);
    memmove(slot->host, host, strlen(host) + 1);
    slot->remote = !is_this_host(host);
    return -1;
}

static int add_slots(const char *program, const launch_slot *slot, int count, launch_slot *slots, int *ranks)
{
    if (count > LAUNCH_RANKS_MAX - *ranks)
        return options_wrong(program, "more than %d ranks", LAUNCH_RANKS_MAX);
    for (int i = 0; i < count; i++)
        slots[(*ranks)++] = *slot;
    return -1;
}

static int read_hosts(const char *program, const char *hosts, launch_slot *slots, int *ranks)
{
    int status = -1;
    for (const char *at = hosts; status < 0; at++) {
        size_t length = strcspn(at, ",");
        launch_slot slot = {.host = ""};
        int count = 0;
        status = read_host(program, at, length, &slot, &count);
        if (status < 0)
            status = add_slots(program, &slot, count, slots, ranks);
        at += length;
        if (!*at)
            break;
    }
    return status;
}

/* All ranks of this host are on one, by whatever name. */
static bool is_same_host(const launch_slot *a, const launch_slot *b)
{
    return a->remote ? b->remote && !strcmp(a->host, b->host) : !b->remote;
}

void launch_hosts_count(launch_slot *slots, int ranks)
{
    for (int i = 0; i < ranks; i++) {
        launch_slot *slot = &slots[i];
        slot->local_rank = slot->local_size = 0;
        for (int j = 0; j < ranks; j++) {
            bool same = is_same_host(slot, &slots[j]);
            slot->local_size += same;
            slot->local_rank += same && j < i;
        }
    }
}

static void number_hosts(launch_slot *slots, int count)
{
    for (int i = 0; i < count; i++)
        while (!is_same_host(&slots[i], &slots[slots[i].number]))
            slots[i].number++;
}

int launch_hosts_slots(const char *program, const char *hosts, int count, bool varies, launch_slot **slots,
                       int *room)
{
    int status = -1;
    *room = 0;
    *slots = calloc(LAUNCH_RANKS_MAX, sizeof **slots);
    if (!*slots)
        return options_wrong(program, "out of memory"), 1;
    if (hosts)
        status = read_hosts(program, hosts, *slots, room);
    else if (count || varies)
        status = add_slots(program, &(launch_slot){.host = "localhost"}, varies ? LAUNCH_RANKS_MAX : count, *slots,
                            room);
    else
        status = options_wrong(program, "needs -n N or --hosts A:N,B:N; --help tells more");
    if (status < 0 && count && (varies ? count > *room : count != *room))
        status = options_wrong(program, "-n %d, but --hosts has room for %d", count, *room);
    if (status < 0)
        number_hosts(*slots, *room);
    return status;
}
