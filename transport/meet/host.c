/* transport/meet/host.c: which host this is, and under which address others reach it.
 *
 * Names are resolved here alone. A host's own name often stands for a loopback address on that host and for a real one
 * elsewhere (127.0.1.1 in Debian's /etc/hosts), so what a name resolves to never decides whether a session is on
 * loopback (address_is_loopback()), and a loopback address found for a name is not used.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "graph/base/error.h"
#include "transport/meet/inside.h"

/* ---- which host ---- */

/* Hexadecimal digits of the boot id, or what comes closest. */
static void boot_id(char *id, size_t bytes)
{
    char line[64] = "";
    FILE *file = fopen("/proc/sys/kernel/random/boot_id", "re");
    if (!file || !fgets(line, sizeof line, file))
        gethostname(line, sizeof line - 1);
    if (file)
        fclose(file);
    size_t count = 0;
    for (const char *at = line; *at > ' ' && count < bytes - 1; at++)
        if (*at != '-')
            id[count++] = *at;
    id[count] = '\0';
}

/* A namespace's number; 0 where it cannot be seen. */
static unsigned namespace_of(const char *path)
{
    struct stat info;
    return stat(path, &info) ? 0 : (unsigned)info.st_ino;
}

/* Sockets are shared within a network namespace, /proc/PID within a pid namespace, and only the same user may open
 * what lies there. */
void meet_host(char *host, size_t bytes)
{
    char boot[33];
    boot_id(boot, sizeof boot);
    snprintf(host, bytes, "%s.%x.%x.%x", boot, namespace_of("/proc/self/ns/net"), namespace_of("/proc/self/ns/pid"),
             (unsigned)geteuid());
}

/* ---- which address ---- */

static bool is_loopback(const struct sockaddr *address)
{
    char text[INET6_ADDRSTRLEN] = "";
    if (address->sa_family == AF_INET)
        inet_ntop(AF_INET, &((const struct sockaddr_in *)address)->sin_addr, text, sizeof text);
    else
        inet_ntop(AF_INET6, &((const struct sockaddr_in6 *)address)->sin6_addr, text, sizeof text);
    return address_is_loopback(text);
}

/* "tcp://10.0.0.2:" and a port; "tcp://[fd00::2]:". */
static bool endpoint_write(const struct sockaddr *address, socklen_t bytes, const char *port, char *endpoint,
                           size_t endpoint_bytes)
{
    char host[INET6_ADDRSTRLEN + IF_NAMESIZE + 1];
    if (getnameinfo(address, bytes, host, sizeof host, NULL, 0, NI_NUMERICHOST))
        return false;
    int count = snprintf(endpoint, endpoint_bytes, strchr(host, ':') ? "tcp://[%s]:%s" : "tcp://%s:%s", host, port);
    return count > 0 && (size_t)count < endpoint_bytes;
}

static struct addrinfo *resolve(const struct cluster_env *env)
{
    char port[8];
    struct addrinfo *found = NULL;
    struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_DGRAM};
    snprintf(port, sizeof port, "%u", env->port);
    return getaddrinfo(env->address, port, &hints, &found) ? NULL : found;
}

/* This host's address on the way to `to`: a datagram socket that is connected has one, and nothing is sent. */
static bool source_towards(const struct addrinfo *to, struct sockaddr_storage *source, socklen_t *bytes)
{
    int fd = socket(to->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    *bytes = sizeof *source;
    bool found = fd >= 0 && !connect(fd, to->ai_addr, to->ai_addrlen) &&
                 !getsockname(fd, (struct sockaddr *)source, bytes) && !is_loopback((struct sockaddr *)source);
    if (fd >= 0)
        close(fd);
    return found;
}

/* The first interface's that is up and leads off this host; IPv4 rather than IPv6, and no link-local ones. */
static bool any_address(const char *port, char *endpoint, size_t bytes)
{
    struct ifaddrs *all = NULL;
    bool found = false;
    if (getifaddrs(&all))
        return false;
    for (int family = AF_INET; !found && family; family = family == AF_INET ? AF_INET6 : 0)
        for (struct ifaddrs *one = all; one && !found; one = one->ifa_next) {
            if (!one->ifa_addr || one->ifa_addr->sa_family != family || !(one->ifa_flags & IFF_UP) ||
                is_loopback(one->ifa_addr))
                continue;
            const struct sockaddr_in6 *six = (const struct sockaddr_in6 *)(const void *)one->ifa_addr;
            if (family == AF_INET6 && IN6_IS_ADDR_LINKLOCAL(&six->sin6_addr))
                continue;
            socklen_t size = family == AF_INET ? sizeof(struct sockaddr_in) : sizeof(struct sockaddr_in6);
            found = endpoint_write(one->ifa_addr, size, port, endpoint, bytes);
        }
    freeifaddrs(all);
    return found;
}

weir_status meet_bind_address(const struct cluster_env *env, char *endpoint, size_t bytes)
{
    struct sockaddr_storage source;
    socklen_t source_bytes;
    bool found = false;
    if (address_is_loopback(env->address)) {
        snprintf(endpoint, bytes, strchr(env->address, ':') ? "tcp://[::1]:*" : "tcp://127.0.0.1:*");
        return WEIR_OK;
    }
    struct addrinfo *all = resolve(env);
    for (const struct addrinfo *one = all; one && !found; one = one->ai_next)
        found = source_towards(one, &source, &source_bytes) &&
                endpoint_write((struct sockaddr *)&source, source_bytes, "*", endpoint, bytes);
    if (all)
        freeaddrinfo(all);
    if (!found && !any_address("*", endpoint, bytes))
        return error_set(WEIR_E_IO, "rank %u has no address on the way to rank 0 at %s: no network interface is up",
                         env->rank, env->address);
    return WEIR_OK;
}

/* Where rank 0 may be at home, in `endpoint`; false: it has to listen on all interfaces. Whether the address is this
 * host's shows when it is bound. */
bool meet_home(const struct cluster_env *env, char *endpoint, size_t bytes)
{
    char port[8];
    bool found = false, literal = address_is_loopback(env->address);
    struct addrinfo *all = resolve(env);
    snprintf(port, sizeof port, "%u", env->port);
    for (const struct addrinfo *one = all; one && !found; one = one->ai_next)
        found = (literal || !is_loopback(one->ai_addr)) &&
                endpoint_write(one->ai_addr, one->ai_addrlen, port, endpoint, bytes);
    if (all)
        freeaddrinfo(all);
    return found;
}
