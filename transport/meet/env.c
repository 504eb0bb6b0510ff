/* transport/meet/env.c: a place (rank, size, where rank 0 is) from the first of the sources that says something, then
 * what is weir's own.
 *
 * A source is a row in a table: the variables in which it gives rank and size, and how its address and port are found
 * when MASTER_ADDR and MASTER_PORT are not set. All ranks must come to the same address and port without a word between
 * them, so only what is the same on every rank is looked at. A variable that is empty counts as not set. Numbers are
 * decimal digits and nothing else; every error names the variable and what it holds, but never a key.
 */
#include "transport/meet/env.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stddef.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "graph/base/base.h"
#include "graph/base/error.h"
#include "graph/base/reading.h"
#include "graph/base/locale.h"
#include "transport/mail/spin.h"

#define WRONG(...) error_set(WEIR_E_ARGUMENT, __VA_ARGS__)

enum {
    DEVICES_MAX = 65535,
    PORT_FIRST = 20000, /* of those that are derived from a job's number */
    PORTS = 10000,
    GENERATION_MAX = INT32_MAX,
    SECONDS_MAX = 100000000
};

static const int64_t second_ns = 1000000000;
#define LIVENESS_NS (5 * second_ns) /* when the environment says nothing */

/* ---- one variable ---- */

static const char *variable(const char *name)
{
    const char *text = getenv(name);
    return text && *text ? text : NULL;
}

/* Leaves *value alone when the variable is not set. */
static weir_status read_number(const char *name, uint64_t least, uint64_t most, uint64_t *value)
{
    const char *text = variable(name);
    if (!text)
        return WEIR_OK;
    errno = 0;
    unsigned long long number = is_digit(*text) ? strtoull(text, NULL, 10) : 0;
    if (text[strspn(text, "0123456789")] || errno || number < least || number > most)
        return WRONG("%s is '%.64s', which is no number from %" PRIu64 " to %" PRIu64, name, text, least, most);
    *value = number;
    return WEIR_OK;
}

static weir_status read_flag(const char *name, bool *value)
{
    const char *text = variable(name);
    if (text && strcmp(text, "0") != 0 && strcmp(text, "1") != 0)
        return WRONG("%s is '%.64s'; it should be 0 or 1", name, text);
    *value = text ? *text == '1' : *value;
    return WEIR_OK;
}

/* "2" or "0.25"; by hand, since what strtod() takes for a point depends on the locale. */
static bool seconds_parse(const char *text, int64_t *time_ns)
{
    int64_t whole = 0, unit = second_ns;
    const char *at = text;
    for (; is_digit(*at) && whole <= SECONDS_MAX; at++)
        whole = 10 * whole + (*at - '0');
    *time_ns = whole * second_ns;
    bool digits = at > text;
    if (*at == '.')
        for (at++; is_digit(*at); at++, digits = true)
            *time_ns += (*at - '0') * (unit /= 10);
    return digits && !*at && whole <= SECONDS_MAX;
}

static weir_status read_seconds(const char *name, bool zero_means_never, int64_t *time_ns)
{
    const char *text = variable(name);
    if (!text)
        return WEIR_OK;
    if (!seconds_parse(text, time_ns) || (!*time_ns && !zero_means_never))
        return WRONG("%s is '%.64s', which is no number of seconds%s", name, text,
                     zero_means_never ? "" : " above 0");
    return WEIR_OK;
}

weir_status cluster_spin_read(const char *name, const char *text, int64_t *spin_ns)
{
    int64_t as_seconds;
    if (!text)
        return WEIR_OK;
    if (!strcmp(text, "always")) {
        *spin_ns = SPIN_ALWAYS;
        return WEIR_OK;
    }
    if (!seconds_parse(text, &as_seconds))
        return WRONG("%s is '%.64s': give the microseconds that a thread spins before it sleeps (0: it sleeps at once), or "
                     "'always'", name, text);
    *spin_ns = as_seconds / 1000000; /* they are microseconds */
    return WEIR_OK;
}

/* ---- addresses ---- */

/* Letters that a host's name or number may have; others mean something to ZeroMQ or to nobody. */
static bool host_is_plain(const char *host)
{
    struct in6_addr number;
    if (strchr(host, ':'))
        return inet_pton(AF_INET6, host, &number) == 1;
    for (const char *at = host; *at; at++)
        if (!is_alnum(*at) && !strchr("-._", *at))
            return false;
    return *host != '\0';
}

/* Copies without the brackets in which an IPv6 address may come. */
static weir_status set_address(struct cluster_env *env, const char *name, const char *host, size_t bytes)
{
    const char *given = host;
    size_t given_bytes = bytes;
    if (bytes >= 2 && host[0] == '[' && host[bytes - 1] == ']') {
        host++;
        bytes -= 2;
    }
    if (bytes < sizeof env->address) {
        memcpy(env->address, host, bytes);
        env->address[bytes] = '\0';
        if (host_is_plain(env->address))
            return WEIR_OK;
    }
    return WRONG("%s is '%.*s', which is no host's name or address", name, given_bytes > 64 ? 64 : (int)given_bytes,
                 given);
}

/* "host:port", "[::1]:port" */
static weir_status set_endpoint(struct cluster_env *env, const char *name, const char *text)
{
    const char *colon = text ? strrchr(text, ':') : NULL;
    if (!colon || !colon[1] || strlen(colon) > 6 || colon[1 + strspn(colon + 1, "0123456789")])
        return WRONG("%s is '%.64s'; it should be \"host:port\"", name, text ? text : "");
    long port = strtol(colon + 1, NULL, 10);
    if (port < 1 || port > UINT16_MAX)
        return WRONG("%s is '%.64s'; a port is a number from 1 to 65535", name, text);
    env->port = (uint16_t)port;
    return set_address(env, name, text, (size_t)(colon - text));
}

/* The same for all ranks of a job, and for two jobs most likely another. */
static uint16_t port_of_job(const char *job, const char *step)
{
    uint64_t hash = HASH_START;
    const char *parts[] = {job, ".", step};
    for (size_t p = 0; p < sizeof parts / sizeof *parts; p++)
        hash = hash_more(hash, parts[p], strlen(parts[p]));
    return (uint16_t)(PORT_FIRST + (hash ^ hash >> 32) % PORTS);
}

/* ---- sources ---- */

/* Nothing is derived: MASTER_ADDR and MASTER_PORT are part of the same convention. */
static weir_status plain_address(struct cluster_env *env)
{
    return WRONG("WORLD_SIZE is %u, but MASTER_ADDR is not set", env->size);
}

static weir_status plain_port(struct cluster_env *env)
{
    return WRONG("WORLD_SIZE is %u, but MASTER_PORT is not set", env->size);
}

/* "1557135360.0;tcp://192.0.2.2:42745;tcp6://[fd00::2]:55373": the first address, of possibly several between commas.
 * PMIX_SERVER_URI2 and its like look alike, but name each rank's own host. */
static weir_status open_mpi_head(struct cluster_env *env)
{
    static const char name[] = "OMPI_MCA_orte_hnp_uri";
    const char *uri = variable(name);
    const char *at = uri ? strstr(uri, ";tcp://") : NULL;
    if (!at)
        return WRONG("OMPI_COMM_WORLD_SIZE is %u on several hosts, and nothing says which of them has rank 0: set "
                     "MASTER_ADDR (mpirun -x MASTER_ADDR=HOST)", env->size);
    at += strlen(";tcp://");
    return set_address(env, name, at, strcspn(at, ",:;"));
}

static weir_status open_mpi_address(struct cluster_env *env)
{
    uint64_t local = 0;
    weir_status status = read_number("OMPI_COMM_WORLD_LOCAL_SIZE", 1, CLUSTER_RANKS_MAX, &local);
    if (status != WEIR_OK)
        return status;
    return local == env->size ? set_address(env, "", "127.0.0.1", strlen("127.0.0.1")) : open_mpi_head(env);
}

static weir_status open_mpi_port(struct cluster_env *env)
{
    const char *job = variable("PMIX_NAMESPACE");
    job = job ? job : variable("OMPI_MCA_ess_base_jobid");
    if (!job)
        return WRONG("OMPI_COMM_WORLD_SIZE is %u, but neither PMIX_NAMESPACE nor OMPI_MCA_ess_base_jobid is set: set "
                     "MASTER_PORT", env->size);
    env->port = port_of_job(job, "");
    return WEIR_OK;
}

/* The first host of "r[1-2]n[03-05,9],b": of every bracket the first number. False when it is no such list. */
static bool first_host(const char *list, char *host, size_t bytes)
{
    size_t count = 0;
    while (*list && *list != ',') {
        size_t part = 1, skip = 1;
        if (*list == '[') {
            const char *end = strchr(list, ']');
            part = strspn(++list, "0123456789");
            if (!end || !part || !strchr("-,]", list[part]))
                return false;
            skip = (size_t)(end + 1 - list);
        }
        if (part >= bytes - count)
            return false;
        memcpy(host + count, list, part);
        count += part;
        list += skip;
    }
    host[count] = '\0';
    return count > 0;
}

static weir_status slurm_address(struct cluster_env *env)
{
    char host[sizeof env->address];
    uint64_t nodes = 0;
    weir_status status = read_number("SLURM_STEP_NUM_NODES", 1, CLUSTER_RANKS_MAX, &nodes);
    if (status != WEIR_OK)
        return status;
    if (nodes == 1)
        return set_address(env, "", "127.0.0.1", strlen("127.0.0.1"));
    const char *list = variable("SLURM_STEP_NODELIST");
    if (!list)
        return WRONG("SLURM_STEP_NUM_TASKS is %u, but SLURM_STEP_NODELIST is not set: set MASTER_ADDR", env->size);
    if (!first_host(list, host, sizeof host))
        return WRONG("SLURM_STEP_NODELIST is '%.64s', which is no list of hosts: set MASTER_ADDR", list);
    return set_address(env, "SLURM_STEP_NODELIST", host, strlen(host));
}

static weir_status slurm_port(struct cluster_env *env)
{
    const char *job = variable("SLURM_JOB_ID"), *step = variable("SLURM_STEP_ID");
    if (!job || !step)
        return WRONG("SLURM_STEP_NUM_TASKS is %u, but %s is not set: set MASTER_PORT", env->size,
                     job ? "SLURM_STEP_ID" : "SLURM_JOB_ID");
    env->port = port_of_job(job, step);
    return WEIR_OK;
}

/* A batch script under Slurm has SLURM_PROCID and SLURM_NTASKS, but is one process: only a step has the number of its
 * tasks. So a source speaks when its size is set; the first one also when its rank is, since nobody else sets it. */
struct source {
    const char *name, *rank, *size;
    bool rank_speaks;
    weir_status (*address)(struct cluster_env *env);
    weir_status (*port)(struct cluster_env *env);
};

static const struct source sources[] = {
    {"RANK", "RANK", "WORLD_SIZE", true, plain_address, plain_port},
    {"Open MPI", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", false, open_mpi_address, open_mpi_port},
    {"Slurm", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", false, slurm_address, slurm_port},
};

enum { SOURCES = sizeof sources / sizeof *sources };

/* The first that says something; NULL: none. */
static const struct source *source_find(void)
{
    for (int s = 0; s < SOURCES; s++)
        if (variable(sources[s].size) || (sources[s].rank_speaks && variable(sources[s].rank)))
            return &sources[s];
    return NULL;
}

static weir_status read_rank(const struct source *source, struct cluster_env *env)
{
    uint64_t rank = 0, size = 1;
    if (!variable(source->size))
        return WRONG("%s is '%.64s', but %s is not set", source->rank, variable(source->rank), source->size);
    weir_status status = read_number(source->size, 1, CLUSTER_RANKS_MAX, &size);
    if (status == WEIR_OK && size > 1 && !variable(source->rank))
        status = WRONG("%s is %" PRIu64 ", but %s is not set", source->size, size, source->rank);
    if (status == WEIR_OK)
        status = read_number(source->rank, 0, size - 1, &rank);
    if (status == WEIR_OK) {
        env->rank = (uint32_t)rank;
        env->size = (uint32_t)size;
        env->from = source->name;
    }
    return status;
}

static weir_status read_address(const struct source *source, struct cluster_env *env)
{
    uint64_t port = 0;
    const char *host = variable("MASTER_ADDR");
    weir_status status = host ? set_address(env, "MASTER_ADDR", host, strlen(host)) : source->address(env);
    if (status == WEIR_OK)
        status = read_number("MASTER_PORT", 1, UINT16_MAX, &port);
    if (status != WEIR_OK || !port)
        return status == WEIR_OK ? source->port(env) : status;
    env->port = (uint16_t)port;
    return WEIR_OK;
}

static weir_status read_place(struct cluster_env *env)
{
    const struct source *source = source_find();
    if (!source)
        return WEIR_OK;
    weir_status status = read_rank(source, env);
    return status == WEIR_OK && env->size > 1 ? read_address(source, env) : status;
}

static weir_status given_place(const weir_cluster_opts *opts, struct cluster_env *env)
{
    if (opts->world_size < 0 || opts->world_size > CLUSTER_RANKS_MAX)
        return WRONG("cluster.world_size is %d, which is no number from 1 to %d", opts->world_size, CLUSTER_RANKS_MAX);
    if (opts->rank < 0 || opts->rank >= opts->world_size)
        return WRONG("cluster.rank is %d, which is no number from 0 to %d", opts->rank, opts->world_size - 1);
    env->rank = (uint32_t)opts->rank;
    env->size = (uint32_t)opts->world_size;
    env->from = "the program";
    return env->size > 1 ? set_endpoint(env, "cluster.address", opts->address) : WEIR_OK;
}

/* ---- what is weir's own ---- */

/* The first line, of a file that is the user's alone. */
static weir_status read_key_file(const char *path, char *text, size_t bytes)
{
    struct stat info;
    weir_status status = WEIR_OK;
    const char *why;
    int fd = reading_open(path, &why);
    if (fd < 0)
        return WRONG("WEIR_KEY_FILE is '%s', which cannot be opened: %s", path, why);
    ssize_t count = -1;
    if (fstat(fd, &info))
        status = WRONG("WEIR_KEY_FILE is '%s', which cannot be read: %s", path, strerror(errno));
    else if (info.st_mode & (S_IRWXG | S_IRWXO))
        status = WRONG("WEIR_KEY_FILE is '%s', which is open to others (mode %03o): chmod 600 it", path,
                       (unsigned)info.st_mode & 0777);
    else if ((count = read(fd, text, bytes - 1)) < 0)
        status = WRONG("WEIR_KEY_FILE is '%s', which cannot be read: %s", path, strerror(errno));
    close(fd);
    text[count < 0 ? 0 : count] = '\0';
    text[strcspn(text, "\r\n")] = '\0';
    return status;
}

static weir_status read_key(struct cluster_env *env)
{
    char line[WEIR_KEY_BYTES + 64] = "";
    const char *path = variable("WEIR_KEY_FILE");
    weir_status status = path ? read_key_file(path, line, sizeof line) : WEIR_OK;
    if (status == WEIR_OK && path && strlen(line) != WEIR_KEY_BYTES - 1)
        status = WRONG("WEIR_KEY_FILE holds %zu letters, a key has %d (weir keygen makes one)", strlen(line),
                       WEIR_KEY_BYTES - 1);
    else if (status == WEIR_OK && path)
        cluster_secret_copy(env->secret, line);
    explicit_bzero(line, sizeof line);
    return status;
}

static weir_status read_generation(struct cluster_env *env)
{
    uint64_t generation = 0;
    weir_status status = read_number("WEIR_GENERATION", 0, GENERATION_MAX, &generation);
    env->generation = (uint32_t)generation;
    return status;
}

static const char carrier_names[][4] = {"shm", "ipc", "tcp", "ucx"}; /* in the order of their bits */

enum { CARRIERS = sizeof carrier_names / sizeof *carrier_names };

_Static_assert(CARRIERS * sizeof *carrier_names <= CLUSTER_CARRIERS_BYTES, "all names, with what is between them");

const char *cluster_carriers_text(unsigned carriers, char text[CLUSTER_CARRIERS_BYTES])
{
    *text = '\0';
    for (int c = 0; c < CARRIERS; c++)
        if (carriers & 1u << c)
            strcat(strcat(text, *text ? "," : ""), carrier_names[c]);
    return text;
}

/* The carrier of this name; 0: there is none. */
static unsigned carrier_of(const char *name, size_t letters)
{
    for (int c = 0; c < CARRIERS; c++)
        if (strlen(carrier_names[c]) == letters && !strncmp(carrier_names[c], name, letters))
            return 1u << c;
    return 0;
}

static weir_status read_carriers(struct cluster_env *env)
{
    const char *text = variable("WEIR_CARRIER");
    unsigned carriers = 0;
    for (const char *at = text; at; at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL) {
        size_t letters = strcspn(at, ",");
        unsigned carrier = carrier_of(at, letters);
        if (!carrier || carriers & carrier)
            return WRONG("WEIR_CARRIER is '%.64s', where '%.*s' is %s: list the carriers that this rank may use, each of "
                         "shm, ipc, tcp and ucx at most once, with a comma between two", text,
                         letters > 64 ? 64 : (int)letters, at, !letters ? "empty" : carrier ? "repeated" : "no carrier");
        carriers |= carrier;
    }
    env->carriers = text ? carriers : env->carriers;
    return WEIR_OK;
}

/* Names what takes the place of a variable that is still set: a list of carriers says what two of them said. */
static weir_status refuse_removed(void)
{
    const char *shm = variable("WEIR_SHM"), *ipc = variable("WEIR_IPC"), *carrier = variable("WEIR_CARRIER");
    if (variable("WEIR_KEY"))
        return WRONG("WEIR_KEY is no longer read: unset it, keep the key in a file that only you can read (mode 600), and "
                     "set WEIR_KEY_FILE to its path");
    if (!shm && !ipc)
        return WEIR_OK;
    return WRONG("%s%.8s%s%s%.8s %s no longer read: unset %s and set WEIR_CARRIER=%s%s%s", shm ? "WEIR_SHM=" : "",
                 shm ? shm : "", shm && ipc ? " and " : "", ipc ? "WEIR_IPC=" : "", ipc ? ipc : "",
                 shm && ipc ? "are" : "is", shm && ipc ? "them" : "it", shm && *shm == '0' ? "" : "shm,",
                 ipc && *ipc == '0' ? "" : "ipc,", carrier && strstr(carrier, "ucx") ? "ucx" : "tcp");
}

static weir_status read_own(struct cluster_env *env)
{
    uint64_t devices = 0;
    weir_status status = read_key(env);
    if (status == WEIR_OK)
        status = read_generation(env);
    if (status == WEIR_OK)
        status = read_flag("WEIR_INSECURE", &env->insecure);
    if (status == WEIR_OK)
        status = read_carriers(env);
    if (status == WEIR_OK)
        status = read_number("WEIR_DEVICES", 1, DEVICES_MAX, &devices);
    if (status == WEIR_OK)
        status = read_seconds("WEIR_LIVENESS", false, &env->liveness_ns);
    if (status == WEIR_OK)
        status = read_seconds("WEIR_JOIN", false, &env->join_ns);
    env->devices = (uint32_t)devices;
    return status;
}

static weir_status given_name(const weir_cluster_opts *opts, struct cluster_env *env)
{
    size_t count = opts->name ? strlen(opts->name) : 0;
    if (count >= sizeof env->name)
        return WRONG("cluster.name has %zu letters, which are more than %zu", count, sizeof env->name - 1);
    memcpy(env->name, opts->name ? opts->name : "", count);
    return WEIR_OK;
}

/* A word that is too long is none of `weir launch`. */
static void read_launcher(struct cluster_env *env)
{
    const char *word = variable("WEIR_LAUNCHER");
    if (word && strlen(word) < sizeof env->launcher)
        memcpy(env->launcher, word, strlen(word));
}

weir_status cluster_env_read(const weir_cluster_opts *opts, struct cluster_env *env)
{
    static const weir_cluster_opts none = {.alone = false};
    weir_status status = refuse_removed();
    opts = opts ? opts : &none;
    *env = (struct cluster_env){.size = 1,
                                .from = "nobody",
                                .carriers = CLUSTER_SHM | CLUSTER_IPC | CLUSTER_TCP,
                                .liveness_ns = LIVENESS_NS,
                                .stall_ns = 10 * second_ns,
                                .spin_ns = -1,
                                .join_ns = 60 * second_ns};
    if (status == WEIR_OK && !opts->alone)
        status = given_name(opts, env);
    if (status == WEIR_OK && !opts->alone)
        status = opts->world_size ? given_place(opts, env) : read_place(env);
    if (status == WEIR_OK && env->size > 1)
        status = read_own(env);
    if (!opts->world_size)
        read_launcher(env);
    if (status == WEIR_OK)
        status = read_flag("WEIR_PIN", &env->pin);
    if (status == WEIR_OK)
        status = cluster_spin_read("WEIR_SPIN", variable("WEIR_SPIN"), &env->spin_ns);
    if (status == WEIR_OK)
        status = read_flag("WEIR_POISON", &env->poison);
    env->offload = getenv("WEIR_OFFLOAD");
    return status == WEIR_OK ? read_seconds("WEIR_STALL", true, &env->stall_ns) : status;
}

void cluster_secret_copy(char to[WEIR_KEY_BYTES], const char *from)
{
    const volatile char *letters = from;
    for (int i = 0; i < WEIR_KEY_BYTES; i++)
        to[i] = letters[i];
}

void cluster_env_copy(struct cluster_env *to, const struct cluster_env *from)
{
    const size_t before = offsetof(struct cluster_env, secret), behind = before + sizeof to->secret;
    memcpy(to, from, before);
    cluster_secret_copy(to->secret, from->secret);
    memcpy((char *)to + behind, (const char *)from + behind, sizeof *to - behind);
}

void cluster_env_wipe(struct cluster_env *env)
{
    explicit_bzero(env->secret, sizeof env->secret);
}

/* ---- queries ---- */

/* Rank, size, generation and liveness alone. These are questions, not calls that fail: the thread's last error stays as it
 * was. */
static struct cluster_env read_quietly(void)
{
    char error[1024];
    struct cluster_env env = {.size = 1, .liveness_ns = LIVENESS_NS};
    const struct source *source = source_find();
    snprintf(error, sizeof error, "%s", weir_error());
    if ((source && read_rank(source, &env) != WEIR_OK) || read_generation(&env) != WEIR_OK ||
        read_seconds("WEIR_LIVENESS", false, &env.liveness_ns) != WEIR_OK)
        error_set(WEIR_OK, "%s", error);
    return env;
}

int weir_rank(void)
{
    return (int)read_quietly().rank;
}

int weir_world_size(void)
{
    return (int)read_quietly().size;
}

int weir_generation(void)
{
    return (int)read_quietly().generation;
}

int64_t cluster_patience_ns(void)
{
    struct cluster_env env = read_quietly();
    return env.generation ? env.liveness_ns : 0;
}
