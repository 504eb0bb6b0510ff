/* tests/transport/meet/test_env.c: what the environment says about the cluster: tables of environments and what comes
 * out. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "transport/meet/env.h"
#include "transport/meet/keys.h"
#include "transport/mail/spin.h"

TestSuite(env, .timeout = 120);

#define KEY "Yne@$w-vo<fVvi]a<NY6T1ed:M$fCG*[IaLV{hID"

/* ---- environments ---- */

static const char *const known[] = {"RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "OMPI_COMM_WORLD_RANK",
                                    "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE", "OMPI_MCA_orte_hnp_uri",
                                    "OMPI_MCA_ess_base_jobid", "PMIX_NAMESPACE", "SLURM_PROCID",
                                    "SLURM_STEP_NUM_TASKS", "SLURM_STEP_NUM_NODES", "SLURM_STEP_NODELIST",
                                    "SLURM_NTASKS", "SLURM_JOB_ID", "SLURM_STEP_ID", "WEIR_DEVICES", "WEIR_KEY",
                                    "WEIR_KEY_FILE", "WEIR_INSECURE", "WEIR_LIVENESS", "WEIR_STALL", "WEIR_SPIN", "WEIR_JOIN",
                                    "WEIR_SHM", "WEIR_IPC", "WEIR_CARRIER"};

/* "RANK=1 WORLD_SIZE=2", and nothing else that weir knows. */
static void set_all(const char *text)
{
    char copy[1024], *rest = copy;
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        unsetenv(known[i]);
    snprintf(copy, sizeof copy, "%s", text);
    for (char *one; (one = strsep(&rest, " "));) {
        char *value = strchr(one, '=');
        if (!value)
            continue;
        *value = '\0';
        setenv(one, value + 1, 1);
    }
}

static struct cluster_env read_good(const char *text)
{
    struct cluster_env env;
    set_all(text);
    cr_assert_eq(cluster_env_read(NULL, &env), WEIR_OK, "%s: %s", text, weir_error());
    return env;
}

static void expect_error(const weir_cluster_opts *opts, const char *text, const char *error)
{
    struct cluster_env env;
    set_all(text);
    cr_expect_eq(cluster_env_read(opts, &env), WEIR_E_ARGUMENT, "%s: is taken", text);
    cr_expect(strstr(weir_error(), error), "%s: '%s' does not say '%s'", text, weir_error(), error);
}

#define PLAIN "RANK=1 WORLD_SIZE=4 MASTER_ADDR=127.0.0.1 MASTER_PORT=29500 "
#define MPI "OMPI_COMM_WORLD_RANK=3 OMPI_COMM_WORLD_SIZE=4 PMIX_NAMESPACE=1557135361 "
#define SLURM "SLURM_PROCID=2 SLURM_STEP_NUM_TASKS=4 SLURM_JOB_ID=71 SLURM_STEP_ID=0 "

/* port 0: any from 20000 to 29999 */
static const struct place {
    const char *text;
    uint32_t rank, size;
    const char *address;
    uint16_t port;
    const char *from;
} places[] = {
    {"", 0, 1, "", 0, "nobody"},
    {"WORLD_SIZE=", 0, 1, "", 0, "nobody"},
    {"WORLD_SIZE=1", 0, 1, "", 0, "RANK"},
    {"RANK=0 WORLD_SIZE=1 WEIR_KEY_FILE=/nowhere/key", 0, 1, "", 0, "RANK"},
    {PLAIN, 1, 4, "127.0.0.1", 29500, "RANK"},
    {PLAIN MPI SLURM, 1, 4, "127.0.0.1", 29500, "RANK"},
    {"RANK=0 WORLD_SIZE=2 MASTER_ADDR=[fd00::2] MASTER_PORT=1", 0, 2, "fd00::2", 1, "RANK"},
    {"RANK=0 WORLD_SIZE=2 MASTER_ADDR=::1 MASTER_PORT=65535", 0, 2, "::1", 65535, "RANK"},
    {"RANK=0 WORLD_SIZE=2 MASTER_ADDR=node-1.a_b MASTER_PORT=7", 0, 2, "node-1.a_b", 7, "RANK"},
    {MPI "OMPI_COMM_WORLD_LOCAL_SIZE=4", 3, 4, "127.0.0.1", 0, "Open MPI"},
    {MPI "OMPI_COMM_WORLD_LOCAL_SIZE=4 " SLURM, 3, 4, "127.0.0.1", 0, "Open MPI"},
    {MPI "OMPI_COMM_WORLD_LOCAL_SIZE=2 MASTER_ADDR=a MASTER_PORT=9", 3, 4, "a", 9, "Open MPI"},
    {MPI "OMPI_COMM_WORLD_LOCAL_SIZE=2 OMPI_MCA_orte_hnp_uri=15.0;tcp://192.0.2.2,10.0.0.1:42745;tcp6://[fd00::2]:5",
     3, 4, "192.0.2.2", 0, "Open MPI"},
    {SLURM "SLURM_STEP_NUM_NODES=1 SLURM_STEP_NODELIST=node3", 2, 4, "127.0.0.1", 0, "Slurm"},
    {SLURM "SLURM_STEP_NUM_NODES=2 SLURM_STEP_NODELIST=node3,b", 2, 4, "node3", 0, "Slurm"},
    {SLURM "SLURM_STEP_NUM_NODES=5 SLURM_STEP_NODELIST=node[03-05,9],b", 2, 4, "node03", 0, "Slurm"},
    {SLURM "SLURM_STEP_NUM_NODES=5 SLURM_STEP_NODELIST=r[7,9]n[12-13]-ib,b[1-2]", 2, 4, "r7n12-ib", 0, "Slurm"},
    {SLURM "SLURM_STEP_NODELIST=node[5] MASTER_PORT=4000", 2, 4, "node5", 4000, "Slurm"},
    {SLURM "MASTER_ADDR=10.0.0.9", 2, 4, "10.0.0.9", 0, "Slurm"},
    {"SLURM_PROCID=0 SLURM_NTASKS=4 SLURM_JOB_ID=71", 0, 1, "", 0, "nobody"}, /* a batch script */
    {"SLURM_PROCID=0 SLURM_STEP_NUM_TASKS=1", 0, 1, "", 0, "Slurm"},
};

Test(env, says_where_rank_and_rank_0_are)
{
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        const struct place *place = &places[i];
        struct cluster_env env = read_good(place->text);
        cr_expect_eq(env.rank, place->rank, "%s: rank %u", place->text, env.rank);
        cr_expect_eq(env.size, place->size, "%s: size %u", place->text, env.size);
        cr_expect_str_eq(env.address, place->address, "%s: at %s", place->text, env.address);
        cr_expect_str_eq(env.from, place->from, "%s: from %s", place->text, env.from);
        if (place->port || place->size == 1)
            cr_expect_eq(env.port, place->port, "%s: port %u", place->text, env.port);
        else
            cr_expect(env.port >= 20000 && env.port <= 29999, "%s: port %u", place->text, env.port);
        cr_expect_eq(weir_rank(), (int)place->rank, "%s", place->text);
        cr_expect_eq(weir_world_size(), (int)place->size, "%s", place->text);
    }
}

Test(env, gives_ranks_of_one_job_one_port_and_other_jobs_another)
{
    uint16_t first = read_good(SLURM "SLURM_STEP_NUM_NODES=1").port;
    cr_expect_eq(first, read_good("SLURM_PROCID=0 SLURM_STEP_NUM_TASKS=4 SLURM_JOB_ID=71 SLURM_STEP_ID=0 "
                                  "SLURM_STEP_NUM_NODES=1").port);
    cr_expect_neq(first, read_good("SLURM_PROCID=0 SLURM_STEP_NUM_TASKS=4 SLURM_JOB_ID=71 SLURM_STEP_ID=1 "
                                   "SLURM_STEP_NUM_NODES=1").port);
    cr_expect_neq(first, read_good("SLURM_PROCID=0 SLURM_STEP_NUM_TASKS=4 SLURM_JOB_ID=72 SLURM_STEP_ID=0 "
                                   "SLURM_STEP_NUM_NODES=1").port);
}

static const struct { const char *text, *error; } wrong[] = {
    {"RANK=1", "RANK is '1', but WORLD_SIZE is not set"},
    {"WORLD_SIZE=2", "WORLD_SIZE is 2, but RANK is not set"},
    {"WORLD_SIZE=0", "WORLD_SIZE is '0', which is no number from 1 to 4096"},
    {"WORLD_SIZE=4097 RANK=0", "WORLD_SIZE is '4097'"},
    {"WORLD_SIZE=two RANK=0", "WORLD_SIZE is 'two'"},
    {"WORLD_SIZE=2x RANK=0", "WORLD_SIZE is '2x'"},
    {"WORLD_SIZE=+2 RANK=0", "WORLD_SIZE is '+2'"},
    {"WORLD_SIZE=99999999999999999999999 RANK=0", "WORLD_SIZE is '9999"},
    {"WORLD_SIZE=1 RANK=1", "RANK is '1', which is no number from 0 to 0"},
    {"WORLD_SIZE=4 RANK=4", "RANK is '4', which is no number from 0 to 3"},
    {"WORLD_SIZE=4 RANK=-1", "RANK is '-1'"},
    {"WORLD_SIZE=4 RANK=0", "WORLD_SIZE is 4, but MASTER_ADDR is not set"},
    {"WORLD_SIZE=4 RANK=0 MASTER_ADDR=a", "WORLD_SIZE is 4, but MASTER_PORT is not set"},
    {"WORLD_SIZE=4 RANK=0 MASTER_ADDR=a MASTER_PORT=0", "MASTER_PORT is '0', which is no number from 1 to 65535"},
    {"WORLD_SIZE=4 RANK=0 MASTER_ADDR=a MASTER_PORT=65536", "MASTER_PORT is '65536'"},
    {"WORLD_SIZE=4 RANK=0 MASTER_ADDR=a:5 MASTER_PORT=5", "MASTER_ADDR is 'a:5', which is no host's name or address"},
    {"WORLD_SIZE=4 RANK=0 MASTER_ADDR=[] MASTER_PORT=5", "MASTER_ADDR is '[]'"},
    {"WORLD_SIZE=4 RANK=0 MASTER_ADDR=x;y MASTER_PORT=5", "MASTER_ADDR is 'x;y'"},
    {MPI, "set MASTER_ADDR"},
    {MPI "OMPI_COMM_WORLD_LOCAL_SIZE=2 OMPI_MCA_orte_hnp_uri=15.0;usock", "set MASTER_ADDR"},
    {MPI "OMPI_COMM_WORLD_LOCAL_SIZE=none", "OMPI_COMM_WORLD_LOCAL_SIZE is 'none'"},
    {"OMPI_COMM_WORLD_RANK=3 OMPI_COMM_WORLD_SIZE=4 OMPI_COMM_WORLD_LOCAL_SIZE=4", "set MASTER_PORT"},
    {"OMPI_COMM_WORLD_SIZE=4", "OMPI_COMM_WORLD_SIZE is 4, but OMPI_COMM_WORLD_RANK is not set"},
    {SLURM "SLURM_STEP_NUM_NODES=2", "SLURM_STEP_NODELIST is not set"},
    {SLURM "SLURM_STEP_NODELIST=node[", "SLURM_STEP_NODELIST is 'node['"},
    {SLURM "SLURM_STEP_NODELIST=node[]", "SLURM_STEP_NODELIST is 'node[]'"},
    {SLURM "SLURM_STEP_NODELIST=node[a-b]", "SLURM_STEP_NODELIST is 'node[a-b]'"},
    {SLURM "SLURM_STEP_NODELIST=,b", "SLURM_STEP_NODELIST is ',b'"},
    {"SLURM_PROCID=0 SLURM_STEP_NUM_TASKS=2 SLURM_STEP_NUM_NODES=1", "SLURM_JOB_ID is not set"},
    {"SLURM_PROCID=0 SLURM_STEP_NUM_TASKS=2 SLURM_STEP_NUM_NODES=1 SLURM_JOB_ID=1", "SLURM_STEP_ID is not set"},
    {"SLURM_STEP_NUM_TASKS=2", "SLURM_STEP_NUM_TASKS is 2, but SLURM_PROCID is not set"},
    {PLAIN "WEIR_DEVICES=0", "WEIR_DEVICES is '0', which is no number from 1 to"},
    {PLAIN "WEIR_INSECURE=yes", "WEIR_INSECURE is 'yes'; it should be 0 or 1"},
    {"WEIR_SHM=0", "WEIR_SHM=0 is no longer read: unset it and set WEIR_CARRIER=ipc,tcp"},
    {"WEIR_SHM=1", "WEIR_SHM=1 is no longer read: unset it and set WEIR_CARRIER=shm,ipc,tcp"},
    {PLAIN "WEIR_IPC=0", "WEIR_IPC=0 is no longer read: unset it and set WEIR_CARRIER=shm,tcp"},
    {PLAIN "WEIR_SHM=0 WEIR_IPC=0", "WEIR_SHM=0 and WEIR_IPC=0 are no longer read: unset them and set WEIR_CARRIER=tcp"},
    {PLAIN "WEIR_SHM=0 WEIR_CARRIER=ucx", "unset it and set WEIR_CARRIER=ipc,ucx"},
    {PLAIN "WEIR_CARRIER=rdma", "WEIR_CARRIER is 'rdma', where 'rdma' is no carrier: list the carriers that this rank may "
                                "use, each of shm, ipc, tcp and ucx at most once, with a comma between two"},
    {PLAIN "WEIR_CARRIER=shm,UCX", "WEIR_CARRIER is 'shm,UCX', where 'UCX' is no carrier"},
    {PLAIN "WEIR_CARRIER=shm, tcp", "WEIR_CARRIER is 'shm,', where '' is empty"},
    {PLAIN "WEIR_CARRIER=,tcp", "where '' is empty"},
    {PLAIN "WEIR_CARRIER=shm,,tcp", "where '' is empty"},
    {PLAIN "WEIR_CARRIER=shm,tcp,shm", "WEIR_CARRIER is 'shm,tcp,shm', where 'shm' is repeated"},
    {PLAIN "WEIR_LIVENESS=0", "WEIR_LIVENESS is '0', which is no number of seconds above 0"},
    {PLAIN "WEIR_LIVENESS=-1", "WEIR_LIVENESS is '-1'"},
    {PLAIN "WEIR_JOIN=1e3", "WEIR_JOIN is '1e3'"},
    {PLAIN "WEIR_JOIN=.", "WEIR_JOIN is '.'"},
    {PLAIN "WEIR_JOIN=1000000000000", "WEIR_JOIN is '1000000000000'"},
    {"WEIR_SPIN=never", "WEIR_SPIN is 'never': give the microseconds that a thread spins before it sleeps (0: it sleeps at "
                        "once), or 'always'"},
    {"WEIR_SPIN=-1", "WEIR_SPIN is '-1'"},
    {"WEIR_STALL=soon", "WEIR_STALL is 'soon', which is no number of seconds"},
    {PLAIN "WEIR_GENERATION=-1", "WEIR_GENERATION is '-1', which is no number from 0 to 2147483647"},
    {"WEIR_KEY=" KEY, "WEIR_KEY is no longer read: unset it, keep the key in a file that only you can read (mode 600), and "
                      "set WEIR_KEY_FILE to its path"},
    {PLAIN "WEIR_KEY_FILE=/nowhere/key", "WEIR_KEY_FILE is '/nowhere/key', which cannot be opened: No such file"},
    {PLAIN "WEIR_KEY_FILE=/tmp", "WEIR_KEY_FILE is '/tmp', which cannot be opened: it is a folder, not a regular file"},
};

Test(env, names_the_variable_that_is_wrong)
{
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        expect_error(NULL, wrong[i].text, wrong[i].error);
}

Test(env, says_nothing_of_a_key_that_is_wrong)
{
    struct cluster_env env;
    set_all(PLAIN "WEIR_KEY=secretsecret");
    cr_assert_eq(cluster_env_read(NULL, &env), WEIR_E_ARGUMENT);
    cr_assert_not(strstr(weir_error(), "secret"), "%s", weir_error());
}

Test(env, knows_what_ranks_agree_on)
{
    struct cluster_env env = read_good(PLAIN);
    cr_assert_eq(env.devices, 0);
    cr_assert_eq(env.generation, 0);
    cr_assert_eq(env.liveness_ns, 5000000000);
    cr_assert_eq(env.stall_ns, 10000000000);
    cr_assert_eq(env.join_ns, 60000000000);
    cr_assert(!env.insecure && !env.secret[0]);
    env = read_good(PLAIN "WEIR_DEVICES=3 WEIR_LIVENESS=.25 WEIR_STALL=0 WEIR_JOIN=2.000000001 "
                          "WEIR_INSECURE=1 WEIR_GENERATION=7");
    cr_assert_eq(env.generation, 7);
    cr_assert_eq(weir_generation(), 7);
    cr_assert_eq(env.devices, 3);
    cr_assert_eq(env.liveness_ns, 250000000);
    cr_assert_eq(env.stall_ns, 0);
    cr_assert_eq(env.join_ns, 2000000001);
    cr_assert(env.insecure);
}

Test(env, lists_the_carriers_that_a_rank_may_use)
{
    static const struct { const char *text, *list; } lists[] = {
        {PLAIN, "shm,ipc,tcp"},
        {PLAIN "WEIR_CARRIER=", "shm,ipc,tcp"},
        {PLAIN "WEIR_CARRIER=ucx", "ucx"},
        {PLAIN "WEIR_CARRIER=ucx,tcp,shm,ipc", "shm,ipc,tcp,ucx"},
        {PLAIN "WEIR_CARRIER=tcp,ipc", "ipc,tcp"},
    };
    char list[CLUSTER_CARRIERS_BYTES];
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++)
        cr_expect_str_eq(cluster_carriers_text(read_good(lists[i].text).carriers, list), lists[i].list, "%s: %s",
                         lists[i].text, list);
}

Test(env, reports_stalls_also_of_a_process_that_is_alone)
{
    cr_assert_eq(read_good("WEIR_STALL=1.5 WEIR_JOIN=nonsense").stall_ns, 1500000000);
    cr_expect_eq(read_good("").spin_ns, -1);
    cr_expect_eq(read_good("WEIR_SPIN=0").spin_ns, 0);
    cr_expect_eq(read_good("WEIR_SPIN=12.5").spin_ns, 12500);
    cr_expect_eq(read_good("WEIR_SPIN=always").spin_ns, SPIN_ALWAYS);
}

Test(env, lets_the_program_decide)
{
    struct cluster_env env;
    set_all(PLAIN "WEIR_DEVICES=2");
    weir_cluster_opts opts = {.alone = true, .world_size = 2};
    cr_assert_eq(cluster_env_read(&opts, &env), WEIR_OK, "%s", weir_error());
    cr_assert(env.rank == 0 && env.size == 1 && env.devices == 0);
    opts = (weir_cluster_opts){.world_size = 3, .rank = 2, .address = "[::1]:4000"};
    cr_assert_eq(cluster_env_read(&opts, &env), WEIR_OK, "%s", weir_error());
    cr_assert(env.rank == 2 && env.size == 3 && env.port == 4000 && env.devices == 2);
    cr_assert_str_eq(env.address, "::1");
    cr_assert_str_eq(env.from, "the program");
}

Test(env, checks_what_the_program_says)
{
    expect_error(&(weir_cluster_opts){.world_size = -2}, "", "cluster.world_size is -2");
    expect_error(&(weir_cluster_opts){.world_size = 2, .rank = 2}, "", "cluster.rank is 2");
    expect_error(&(weir_cluster_opts){.world_size = 2, .rank = -1}, "", "cluster.rank is -1");
    expect_error(&(weir_cluster_opts){.world_size = 2}, "", "cluster.address is ''");
    expect_error(&(weir_cluster_opts){.world_size = 2, .address = "host"}, "", "it should be \"host:port\"");
    expect_error(&(weir_cluster_opts){.world_size = 2, .address = "host:"}, "", "it should be \"host:port\"");
    expect_error(&(weir_cluster_opts){.world_size = 2, .address = "host:70000"}, "", "a port is a number");
    expect_error(&(weir_cluster_opts){.world_size = 2, .address = "a b:7"}, "", "no host's name or address");
}

Test(env, queries_leave_the_last_error_alone)
{
    struct cluster_env env;
    set_all("WEIR_STALL=soon");
    cr_assert_eq(cluster_env_read(NULL, &env), WEIR_E_ARGUMENT);
    char before[1024];
    snprintf(before, sizeof before, "%s", weir_error());
    set_all("WORLD_SIZE=nonsense RANK=3");
    cr_assert_eq(weir_rank(), 0);
    cr_assert_eq(weir_world_size(), 1);
    cr_assert_str_eq(weir_error(), before);
}

/* ---- key files ---- */

static void write_key_file(const char *path, const char *text, mode_t mode)
{
    unlink(path);
    FILE *file = fopen(path, "w");
    cr_assert(file);
    fputs(text, file);
    fclose(file);
    cr_assert_eq(chmod(path, mode), 0);
}

Test(env, takes_a_key_from_a_file_that_is_the_users_alone)
{
    char path[] = "/tmp/weir_test_key_XXXXXX", text[256];
    int fd = mkstemp(path);
    cr_assert(fd >= 0);
    close(fd);
    snprintf(text, sizeof text, PLAIN "WEIR_KEY_FILE=%s", path);
    write_key_file(path, KEY "\n", 0600);
    cr_expect_str_eq(read_good(text).secret, KEY);
    write_key_file(path, KEY, 0400);
    cr_expect_str_eq(read_good(text).secret, KEY);
    write_key_file(path, KEY "\n", 0640);
    expect_error(NULL, text, "which is open to others (mode 640): chmod 600 it");
    write_key_file(path, KEY "more\n", 0600);
    expect_error(NULL, text, "WEIR_KEY_FILE holds 44 letters, a key has 40");
    write_key_file(path, "", 0600);
    expect_error(NULL, text, "WEIR_KEY_FILE holds 0 letters");
    unlink(path);
}

/* ---- keys ---- */

Test(env, makes_keys_that_open)
{
    struct cluster_env env = {.address = "10.0.0.1"};
    struct keys keys, again;
    cr_assert_eq(weir_key_new(env.secret), WEIR_OK, "%s", weir_error());
    cr_assert_eq(strlen(env.secret), 40u);
    cr_assert_eq(keys_open(&keys, &env), WEIR_OK, "%s", weir_error());
    cr_assert_eq(keys_open(&again, &env), WEIR_OK, "%s", weir_error());
    cr_assert(keys.curve);
    cr_assert_str_eq(keys.public_key, again.public_key);
    cr_assert(strcmp(keys.public_key, keys.secret) != 0);
}

Test(env, refuses_what_is_no_key)
{
    struct cluster_env env = {.address = "10.0.0.1"};
    struct keys keys;
    memset(env.secret, '~', 40);
    cr_assert_eq(keys_open(&keys, &env), WEIR_E_ARGUMENT);
    cr_assert(strstr(weir_error(), "weir keygen"), "%s", weir_error());
}

Test(env, wants_a_key_off_loopback)
{
    struct keys keys;
    static const char *const near[] = {"127.0.0.1", "127.8.0.1", "::1", "localhost"};
    static const char *const far[] = {"10.0.0.1", "fd00::2", "0.0.0.0", "node1", "127.node", "localhost.example"};
    for (size_t i = 0; i < sizeof near / sizeof *near; i++) {
        struct cluster_env env = {.size = 2};
        strcpy(env.address, near[i]);
        cr_expect_eq(keys_open(&keys, &env), WEIR_OK, "%s: %s", near[i], weir_error());
        cr_expect(keys.curve);
    }
    for (size_t i = 0; i < sizeof far / sizeof *far; i++) {
        struct cluster_env env = {.size = 2};
        strcpy(env.address, far[i]);
        cr_expect_eq(keys_open(&keys, &env), WEIR_E_ARGUMENT, "%s", far[i]);
        cr_expect(strstr(weir_error(), "weir keygen") && strstr(weir_error(), "WEIR_INSECURE=1"), "%s", weir_error());
        env.insecure = true;
        cr_expect_eq(keys_open(&keys, &env), WEIR_OK, "%s", weir_error());
        cr_expect_not(keys.curve);
    }
}
