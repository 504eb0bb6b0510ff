/* apps/weir/launch/launch.c: weir launch: starts a program many times, on this host or on several, and tells each of the
 * processes which one it is (<weir/cluster.h> lists what they are told).
 *
 * Nothing here is needed at run time: ranks find each other by themselves, and any launcher that sets the same
 * variables will do.
 */
#include "apps/common/options.h"
#include "apps/weir/command.h"
#include "apps/weir/launch/key.h"
#include "apps/weir/launch/watch.h"
#include "graph/time/rates.h"

#include <arpa/inet.h>
#include <errno.h>
#include <math.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#define PORT_FIRST 20000 /* below the numbers that systems give to outgoing connections */
#define PORT_COUNT 10000
#define PORT_TRIES 100
#define SETTINGS_MAX 16
#define VALUE_BYTES (LAUNCH_HOST_BYTES + 16)
#define LIVENESS_DEFAULT 5.0 /* s, as <weir/cluster.h> has it */
#define JOIN_DEFAULT 60.0    /* s, likewise */
#define TOKEN_BEGIN "weir-launch-"
#define GRACE_BEYOND 2.0     /* s, to tell of a lost rank after it has been noticed */

static const char program[] = "weir launch";

typedef struct launch_opts {
    int ranks, devices, port, restarts, least;
    const char *hosts, *address, *carriers, *key_file, *ranks_file, *rates;
    double liveness, stall, join; /* NAN: not given */
    bool insecure, no_prefix;
} launch_opts;

/* The variables that all ranks are told. */
typedef struct settings {
    launch_setting list[SETTINGS_MAX + 1]; /* ends at name NULL */
    char value[SETTINGS_MAX][VALUE_BYTES];
    int count;
    int lasting; /* of them: what holds for every generation */
} settings;

static void set_text(settings *s, const char *name, const char *value)
{
    snprintf(s->value[s->count], VALUE_BYTES, "%s", value);
    s->list[s->count] = (launch_setting){name, s->value[s->count]};
    s->count++;
}

static void set_number(settings *s, const char *name, double value)
{
    char text[32];
    snprintf(text, sizeof text, "%.9g", value);
    set_text(s, name, text);
}

static void set_number_given(settings *s, const char *name, double value)
{
    if (!isnan(value))
        set_number(s, name, value);
}

/* ---- where rank 0 is ---- */

static uint32_t draw(void)
{
    uint32_t number = 0;
    while (getrandom(&number, sizeof number, 0) != sizeof number)
        continue;
    return number;
}

static bool is_free(int port)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    bool free_now = fd >= 0 && !bind(fd, (struct sockaddr *)&address, sizeof address);
    if (fd >= 0)
        close(fd);
    return free_now;
}

/* A port for rank 0, drawn; on this host it is free, on another that shows only there. */
static int choose_port(bool remote)
{
    int port = PORT_FIRST + (int)(draw() % PORT_COUNT);
    for (int i = 0; i < PORT_TRIES && !remote && !is_free(port); i++)
        port = PORT_FIRST + (int)(draw() % PORT_COUNT);
    return port;
}

/* The others' name of rank 0's host: as the user does, unless that means something else elsewhere. */
static const char *master_address(const launch_slot *slots, int ranks, char own[LAUNCH_HOST_BYTES])
{
    bool any_remote = false;
    for (int i = 0; i < ranks; i++)
        any_remote |= slots[i].remote;
    if (!any_remote)
        return "127.0.0.1";
    const char *name = launch_hosts_name(&slots[0]);
    bool own_name = slots[0].remote || (strcmp(name, "localhost") && name[0] != '1' && name[0] != ':');
    if (own_name || gethostname(own, LAUNCH_HOST_BYTES - 1))
        return name;
    return own;
}

/* The port is drawn anew each time: the last one may still be a dying process's. */
static void set_meeting(settings *s, const launch_opts *opts, const launch_job *job)
{
    char own[LAUNCH_HOST_BYTES] = "";
    set_text(s, "MASTER_ADDR", opts->address ? opts->address : master_address(job->slots, job->ranks, own));
    set_number(s, "MASTER_PORT", opts->port ? opts->port : choose_port(job->slots[0].remote));
}

/* The variables of one generation. */
typedef struct announcer {
    settings s;
    const launch_opts *opts;
} announcer;

static void tell_generation(void *ctx, const launch_job *job)
{
    announcer *t = ctx;
    settings *s = &t->s;
    s->count = s->lasting;
    set_meeting(s, t->opts, job);
    set_number(s, "WEIR_GENERATION", job->generation);
    set_number(s, "WEIR_RESTARTS", job->restarts - job->restarted);
    s->list[s->count].name = NULL;
}

/* ---- the rest of what ranks are told ---- */

static void set_options(settings *s, const launch_opts *opts)
{
    set_number_given(s, "WEIR_LIVENESS", opts->liveness);
    set_number_given(s, "WEIR_STALL", opts->stall);
    set_number_given(s, "WEIR_JOIN", opts->join);
    if (opts->devices)
        set_number(s, "WEIR_DEVICES", opts->devices);
    if (opts->insecure)
        set_text(s, "WEIR_INSECURE", "1");
    if (opts->carriers)
        set_text(s, "WEIR_CARRIER", opts->carriers);
}

/* Writes the session's secret, the user's or else a fresh one, into a file of the launcher's own, `file`; "": there is to be
 * no key. Returns -1, or the exit status of what was reported. */
static int set_key(settings *s, const launch_opts *opts, const launch_snapshots *folder, char file[VALUE_BYTES])
{
    char secret[WEIR_KEY_BYTES] = "";
    const char *path = opts->key_file ? opts->key_file : getenv("WEIR_KEY_FILE");
    int status = -1;
    if (!opts->key_file && opts->insecure)
        return -1;
    if (path)
        status = launch_key_read(program, path, secret);
    else if (weir_key_new(secret)) {
        options_wrong(program, "warning: %s; connections are plain", options_error(program));
        return -1;
    }
    if (status < 0 && !*folder->here)
        status = options_wrong(program, "cannot make a folder for the session's key in /dev/shm or /tmp");
    snprintf(file, VALUE_BYTES, "%s/.key", folder->here);
    if (status < 0)
        status = launch_key_write(program, secret, file);
    explicit_bzero(secret, sizeof secret);
    set_text(s, "WEIR_KEY_FILE", file);
    return status;
}

/* Reads the file of rates once, the user's or that of WEIR_RATES, and writes it into the launcher's own folder: all generations
 * compile with the same. *text, which the caller frees, is for other hosts; NULL: there is none. Returns as set_key(). */
static int set_rates(settings *s, const launch_opts *opts, const launch_snapshots *folder, char **text)
{
    size_t bytes;
    char file[VALUE_BYTES];
    const char *named = getenv("WEIR_RATES"), *path = opts->rates ? opts->rates : named && *named ? named : NULL;
    if (!path)
        return -1;
    weir_rates *rates = weir_rates_load(path);
    if (!rates)
        return options_wrong(program, "%s: %s", opts->rates ? "--rates" : "WEIR_RATES", options_error(program));
    snprintf(file, sizeof file, "%s/rates", folder->here);
    *text = rates_text(rates, &bytes);
    const bool kept = *text && *folder->here && !weir_rates_save(rates, file);
    weir_rates_free(rates);
    set_text(s, "WEIR_RATES", file);
    return kept ? -1 : options_wrong(program, "cannot keep the rates of %s for the ranks in %s", path, *folder->here ? file : "/dev/shm or /tmp");
}

/* How long a rank takes at most to notice that another is lost. */
static double liveness(const launch_opts *opts)
{
    const char *text = getenv("WEIR_LIVENESS");
    double value = isnan(opts->liveness) && text ? strtod(text, NULL) : opts->liveness;
    return value > 0 && value < 1e6 ? value : LIVENESS_DEFAULT;
}

static void draw_token(char token[LAUNCH_TOKEN_BYTES])
{
    snprintf(token, LAUNCH_TOKEN_BYTES, TOKEN_BEGIN "%08x%08x", draw(), draw());
}

/* How long to wait for hosts that are gone when too few are left: as long as ranks would wait for each other. */
static double patience(const launch_opts *opts)
{
    const char *text = getenv("WEIR_JOIN");
    double value = isnan(opts->join) && text ? strtod(text, NULL) : opts->join;
    return value > 0 && value < 1e9 ? value : JOIN_DEFAULT;
}

static int open_pool(launch_pool *pool, const launch_opts *opts, const char *shell)
{
    bool varies = opts->ranks_file || (opts->hosts && opts->least);
    *pool = (launch_pool){.program = program, .shell = shell, .file = opts->ranks_file, .least = opts->least};
    int status = launch_hosts_slots(program, opts->hosts, opts->ranks, varies, &pool->slots, &pool->room);
    bool all = opts->hosts || !varies;
    pool->wanted = opts->ranks ? opts->ranks : all ? pool->room : 0;
    return status < 0 ? launch_pool_open(pool) : status;
}

static int launch(const launch_opts *opts, char **argv)
{
    const char *shell = getenv("WEIR_RSH");
    launch_snapshots snapshots = {.keepers = NULL};
    char key[VALUE_BYTES] = "", *rates = NULL;
    announcer t = {.opts = opts};
    launch_pool pool;
    launch_job job = {.name = program, .argv = argv, .settings = t.s.list, .prefix = !opts->no_prefix,
                      .grace_s = liveness(opts) + GRACE_BEYOND, .patience_s = patience(opts),
                      .restarts = opts->restarts, .tell = tell_generation, .tell_ctx = &t, .snapshots = &snapshots,
                      .key = key, .shell = shell && *shell ? shell : "ssh -T -o BatchMode=yes"};
    int status = open_pool(&pool, opts, job.shell);
    if (status < 0) {
        draw_token(job.token);
        set_text(&t.s, "WEIR_LAUNCHER", job.token);
        set_options(&t.s, opts);
        launch_snapshots_remove_stale();
        launch_snapshots_open(&snapshots, opts->restarts || opts->ranks_file ? job.token + strlen(TOKEN_BEGIN) : NULL);
        status = set_key(&t.s, opts, &snapshots, key);
        status = status < 0 ? set_rates(&t.s, opts, &snapshots, &rates) : status;
        job.rates = rates;
        t.s.lasting = t.s.count;
    }
    if (status < 0)
        status = launch_watch(&job, &pool);
    launch_pool_close(&pool);
    launch_snapshots_close(&snapshots);
    free(rates);
    return status;
}

int command_launch(int argc, char **argv)
{
    launch_opts o = {.liveness = NAN, .stall = NAN, .join = NAN};
    const options_entry table[] = {
        {"-n", OPTIONS_INT, &o.ranks, .min = 1, .max = LAUNCH_RANKS_MAX, .help = "ranks (processes) to start"},
        {"--hosts", OPTIONS_TEXT, &o.hosts, .value = "A:2,B:2",
         .help = "hosts with their ranks, over ssh (or $WEIR_RSH); default: this host"},
        {"--restarts", OPTIONS_INT, &o.restarts, .min = 0, .max = 1e9,
         .help = "how often to restart all ranks after one is lost; snapshots in memory stay"},
        {"--min-ranks", OPTIONS_INT, &o.least, .min = 1, .max = LAUNCH_RANKS_MAX,
         .help = "continue with at least N ranks after hosts are lost; default: all"},
        {"--ranks-file", OPTIONS_TEXT, &o.ranks_file, .value = "FILE", .file = OPTIONS_READS,
         .help = "file with the wanted number of ranks; they change when it changes"},
        {"--devices", OPTIONS_INT, &o.devices, .min = 1, .max = 4096, .help = "devices per rank; default: as many as the plan needs"},
        {"--liveness", OPTIONS_REAL, &o.liveness, .min = 0.1, .max = 86400,
         .help = "seconds of silence after which a rank is lost"},
        {"--stall", OPTIONS_REAL, &o.stall, .min = 0, .max = 86400,
         .help = "seconds without progress before a report; 0: never"},
        {"--join", OPTIONS_REAL, &o.join, .min = 0.1, .max = 86400, .help = "seconds to wait for all ranks"},
        {"--key", OPTIONS_TEXT, &o.key_file, .value = "FILE", .file = OPTIONS_READS,
         .help = "file with a secret, from weir keygen; default: a new secret"},
        {"--rates", OPTIONS_TEXT, &o.rates, .value = "RATES", .file = OPTIONS_READS,
         .help = "file of weir measure that every rank compiles with, on other hosts too; default: $WEIR_RATES"},
        {"--insecure", OPTIONS_FLAG, &o.insecure, .help = "use no secret: connections are not encrypted, between hosts too"},
        {"--address", OPTIONS_TEXT, &o.address, .value = "HOST", .help = "address of rank 0's host, as other hosts see it"},
        {"--port", OPTIONS_INT, &o.port, .min = 1, .max = 65535, .help = "rank 0's port; default: a random one"},
        {"--carrier", OPTIONS_TEXT, &o.carriers, .value = "LIST", .help = "carriers for registers: a list of shm,ipc,tcp,ucx"},
        {"--no-prefix", OPTIONS_FLAG, &o.no_prefix, .help = "do not prefix lines with the rank that printed them"},
        {.name = NULL},
    };
    const options_spec spec = {program, "Start the ranks of a program: weir launch -n 4 PROGRAM ARGS...\n"
                                        "Put the options of weir launch before PROGRAM, or before a \"--\" in front of it.", table};
    const int end = options_end(&spec, argc, argv), status = options_parse(&spec, end, argv);
    const int first = end + (end < argc && !strcmp(argv[end], "--"));
    if (status >= 0)
        return status;
    if (first >= argc)
        return options_wrong(program, "needs a program to start: weir launch -n 4 PROGRAM ARGS...; --help tells more");
    return launch(&o, argv + first);
}
