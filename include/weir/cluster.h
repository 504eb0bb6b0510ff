/* weir/cluster.h: one program on many processes.
 *
 *     weir launch -n 4 -- ./program        or   srun -n 4 ./program   or   mpirun -n 4 ./program
 *
 * Every process (a rank) runs the same program and builds the same graph. weir_session_open() finds in the environment
 * how many there are and where rank 0 is, connects to the others, and runs the actors of this rank's devices.
 * Devices are numbered over all ranks, in rank order: with four devices a rank, cpu:0 to cpu:3 are rank 0's and cpu:4 to
 * cpu:7 rank 1's. The results do not depend on which rank has which device.
 *
 *     weir_session *s = weir_session_open(plan); // on every rank: they meet
 *     weir_session_run(s, 100);                  // on every rank: each runs its devices
 *     if (weir_rank() == 0)
 *         printf("%d ranks did 100 steps\n", weir_world_size());
 *     weir_session_close(s);
 *
 * It takes the first group of these that is set: RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT (`weir launch` sets these);
 * Open MPI's OMPI_COMM_WORLD_RANK and _SIZE; Slurm's SLURM_PROCID and SLURM_STEP_NUM_TASKS. These variables, too, count
 * for a session of several ranks ("also alone": for a process without others, too):
 *
 *     WEIR_DEVICES    devices of each rank [the plan's devices divided by the ranks, rounded up, in rank order]
 *     WEIR_KEY_FILE   a file with the session's secret, from `weir keygen` or weir_key_new(), that only its user can read. All
 *                     connections are encrypted (CURVE), and a peer without the secret is refused. `weir launch` makes
 *                     one [the user's key, see below, if rank 0's address is a loopback address; else opening fails]
 *     WEIR_INSECURE   1: a session without a key has plain connections. Anyone who can reach the ports can take part, or
 *                     fill this process's memory
 *     WEIR_LIVENESS   seconds without a sign of life after which a rank counts as lost [5]
 *     WEIR_STALL      seconds in which nothing fires before it is reported [10]; 0: never
 *     WEIR_PIN        1: bind workers to cores, as .pin does (<weir/session.h>); also alone
 *     WEIR_SPIN       how long a thread spins before it sleeps, as .spin; also alone
 *     WEIR_POISON     1: a debug run, as with .poison (<weir/session.h>); also alone
 *     WEIR_OFFLOAD    the directory of offloaded values, as .offload (<weir/session.h>); also alone
 *     WEIR_CPU_LEVEL  v1, v3, v4, v4-bf16 or v4-amx: the processors whose kernels a portable build uses (docs/building.md).
 *                     Levels round differently, so ranks with different levels are refused (WEIR_E_PEER); the error names
 *                     a level that all have. A build for one kind of processor has one level, such as native-v3, and
 *                     native-v3-amx above it; also alone [the highest that the processor has]
 *     WEIR_JOIN       seconds to wait until all ranks have come, and then until those that exchange something with this
 *                     one have connected [60]
 *     WEIR_SNAPSHOTS  a folder in this host's memory that outlives the ranks, from `weir launch --restarts`. The library
 *                     does not read it: programs pass it to weir_session_save() and weir_session_load()
 *     WEIR_GENERATION how often the ranks have been restarted (`weir launch --restarts` counts). All ranks of a session
 *                     have the same generation; an older process that comes late is refused, and ends [0]
 *     WEIR_LAUNCHER   a word that `weir launch` sets: a line on standard error that begins with it names a lost rank to the
 *                     launcher, which does not print that line. Used only if standard error is a pipe
 *     WEIR_CARRIER    the carriers that ranks may use, separated by commas, in any order, the same on all ranks
 *                     [shm,ipc,tcp]
 *
 * A carrier moves the contents of registers. Two ranks that exchange registers use the first of these that WEIR_CARRIER
 * lists and that reaches from one to the other:
 *
 *     shm    shared memory, between processes of one user on one host
 *     ucx    UCX, which uses RDMA if the hosts have it. Each host needs UCX (Debian's libucx0) and the plugin
 *            libweir-ucx.so (WEIR_UCX_PLUGIN may give its absolute path); else opening fails with WEIR_E_UNSUPPORTED.
 *            UCX's own variables (UCX_TLS, UCX_NET_DEVICES, ...) count. Security: UCX does not authenticate peers, so
 *            anyone who can reach its ports can crash the process, or worse. A key protects only the contents of
 *            registers. Use ucx on a trusted network
 *     ipc    Unix sockets, between processes of one host
 *     tcp    TCP
 *
 * If none does, opening fails with WEIR_E_ARGUMENT and names the two ranks: between hosts the list needs tcp or ucx. All
 * other messages between two ranks use a Unix socket if the list has ipc and both are on one host, and else TCP, also if the
 * list does not name tcp.
 *
 * The user's key is a file that only the user can read: $XDG_RUNTIME_DIR/weir.key, or weir-UID/weir.key in $TMPDIR [/tmp]
 * if that directory is not the user's alone. The first session makes the file. It stays for all later sessions of this user
 * on this host; it may be removed while no session opens. Ranks need the same user and the same directory to find it: ranks
 * in containers with a /tmp of their own need WEIR_KEY_FILE. If it cannot be written, or belongs to another user, opening
 * fails with WEIR_E_IO.
 *
 * A session wipes its copies of a key before it frees their memory. ZeroMQ, which encrypts, does not wipe its own copies.
 *
 * In a session of several ranks all ranks make the same calls in the same order: open, run, read, write, save, load, push,
 * pull. A rank that pushes a value for an input of another rank has it checked and dropped. A pull gives every rank the value
 * (but ranks without a device of the plan pull nothing). A close drops values that were not pulled.
 */
#ifndef WEIR_CLUSTER_H
#define WEIR_CLUSTER_H

#include <weir/base.h>

WEIR_C_BEGIN

/* Return this process's rank and the number of ranks, from the environment. 0 and 1 if it sets none, or wrong values (which
 * weir_session_open() reports). */
int weir_rank(void);
int weir_world_size(void);

/* Returns how often the ranks have been restarted (WEIR_GENERATION), and 0 if it is not set or wrong. Above 0 a program should
 * load its last checkpoint. */
int weir_generation(void);

#define WEIR_KEY_BYTES 41 /* with the 0 at the end */

/* Makes a new secret (a CURVE key in ZeroMQ's Z85 letters). E_UNSUPPORTED when libzmq was built without CURVE. */
weir_status weir_key_new(char secret[WEIR_KEY_BYTES]);

/* Receives reports: stalls, lost and refused peers, the last events of a failed run. `text` is a whole report of one or more
 * lines. A thread of weir's calls it, or a function of the session does. It must not call functions of the session other than
 * weir_session_stop(): they return WEIR_E_STATE. It may be slow: only weir_session_wait() and weir_session_close() wait until
 * all reports have been delivered. At most 64 reports wait; later ones are dropped, and a report says how many. */
typedef void (*weir_report_fn)(void *ctx, const char *text);

/* Replaces the environment, for programs that find their peers by themselves, or open several sessions at once.
 *
 * Rank 0 accepts the ranks of one session name at a time at its address; ranks that open another name wait, at most
 * WEIR_JOIN. So threads of each rank may open sessions at the same time and in any order, if their names differ. Sessions
 * of the same name are matched by order: all ranks open them one after the other.
 *
 * This structure never grows; new options become members of weir_session_opts. */
typedef struct weir_cluster_opts {
    int world_size;      /* 0: this and the next two come from the environment */
    int rank;
    const char *address; /* rank 0's, "host:port" */
    const char *name;    /* of the session, the same on all ranks, at most 63 bytes; counts with any world_size [the plan's,
                            which is the graph's] */
    bool alone;          /* this process runs the whole plan; the environment does not count */
} weir_cluster_opts;

WEIR_C_END
#endif
