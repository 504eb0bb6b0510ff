/* weir/cluster.h: one program on many processes.
 *
 *     weir launch -n 4 -- ./program        or   srun -n 4 ./program   or   mpirun -n 4 ./program
 *
 * Every process (a rank) runs the same program and builds the same graph. weir_session_open() finds in the environment
 * how many there are and where rank 0 is, meets the others there, and runs what belongs to this rank's devices.
 * Devices count over all ranks, in rank order: with four a rank, cpu:0 to cpu:3 are rank 0's and cpu:4 to cpu:7 rank
 * 1's. How devices are spread over ranks changes no result.
 *
 *     weir_session *s = weir_session_open(plan); // on every rank: they meet
 *     weir_session_run(s, 100);                  // on every rank: each runs its devices
 *     if (weir_rank() == 0)
 *         printf("%d ranks did 100 steps\n", weir_world_size());
 *     weir_session_close(s);
 *
 * Where it looks, first come first served: RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT (`weir launch` sets these); Open
 * MPI's OMPI_COMM_WORLD_RANK and _SIZE; Slurm's SLURM_PROCID and SLURM_STEP_NUM_TASKS. And what the ranks have to agree
 * on:
 *
 *     WEIR_DEVICES    devices of each rank [as many as the plan needs, shared out evenly]
 *     WEIR_KEY_FILE   a file that holds the session's secret, from `weir keygen` or weir_key_new(), and that only its user
 *                     can read. All connections are encrypted (CURVE), and a peer without the secret is refused. `weir
 *                     launch` makes one [when rank 0's address is a loopback one: the user's, see below; else there is
 *                     no session]
 *     WEIR_INSECURE   1: without a key, connections are plain: whoever reaches the ports takes part, or can fill
 *                     this process's memory
 *     WEIR_LIVENESS   seconds without a sign of life after which a rank counts as lost [5]
 *     WEIR_STALL      seconds in which nothing fires before it is reported [10]; 0: never
 *     WEIR_PIN        1: binds workers to cores, as .pin does (<weir/session.h>); also of a process that is alone
 *     WEIR_POISON     1: a debug run, as with .poison (<weir/session.h>); also of a process that is alone
 *     WEIR_OFFLOAD    where files of offloaded values are made, as .offload (<weir/session.h>); also of a process that
 *                     is alone
 *     WEIR_CPU_LEVEL  v1, v3, v4, v4-bf16 or v4-amx: the processors whose kernels a portable build uses (docs/building.md);
 *                     levels round differently, so ranks of two are refused (WEIR_E_PEER), with the level that all can be
 *                     given. A build for one kind of processor has one level, as native-v3, and native-v3-amx above it;
 *                     also of a process that is alone [the highest that the processor has]
 *     WEIR_JOIN       seconds to wait for all ranks to come, and then for those with which there is something to
 *                     exchange to say HELLO [60]
 *     WEIR_SNAPSHOTS  a folder in this host's memory that outlives the ranks, from `weir launch --restarts`: for programs,
 *                     which give it to weir_session_save() and _load() (the library does not look at it)
 *     WEIR_GENERATION how often the ranks have been started anew (`weir launch --restarts` counts). All that meet are of
 *                     one generation; an older process that comes late is refused, and ends [0]
 *     WEIR_LAUNCHER   a word of `weir launch`: a line on standard error that begins with it tells the launcher which rank
 *                     was declared lost, and is not shown. Only where that is a pipe
 *     WEIR_CARRIER    the carriers that ranks may use, a list with commas and in any order, the same on all ranks; see
 *                     below [shm,ipc,tcp]
 *
 * Two ranks with registers to exchange use the first of these carriers that WEIR_CARRIER lists and that reaches from one
 * to the other:
 *
 *     shm    shared memory, between processes of one user on one host
 *     ucx    UCX, which uses RDMA where there is some. A list with ucx needs UCX on each host (Debian's libucx0), and
 *            the plugin libweir-ucx.so (WEIR_UCX_PLUGIN may give its absolute path); else opening fails with WEIR_E_UNSUPPORTED. UCX's own variables (UCX_TLS,
 *            UCX_NET_DEVICES, ...) count. UCX believes whoever reaches its ports: a key keeps registers secret and
 *            as they were, but only a network without strangers keeps them from ending the process, or worse
 *     ipc    Unix sockets, between processes of one host
 *     tcp    TCP
 *
 * If none does, opening fails with WEIR_E_ARGUMENT and names the two ranks: between hosts the list needs tcp or ucx. All
 * else that ranks say to each other goes over Unix sockets where the list has ipc and the two are on one host, and else
 * over TCP, which needs no mention for that.
 *
 * The user's key is a file that only the user can read, $XDG_RUNTIME_DIR/weir.key, or weir-UID/weir.key in $TMPDIR
 * [/tmp] where that is no folder of the user's alone. The first session makes it; it stays, for all later ones of this
 * user on this host, and may be removed while no session opens. Ranks find the same one when they are the same user's
 * and see the same folder: those in containers with a /tmp each need WEIR_KEY_FILE. Where it cannot be written or
 * belongs to somebody else opening fails with WEIR_E_IO.
 *
 * A session wipes its copies of a key before it frees their memory. ZeroMQ, which does the encryption, frees its copies
 * as they are.
 *
 * In a session of several ranks all of them make the same calls in the same order: runs, read, write, push, pull.
 * A value that a rank pushes for an input on another rank is checked and dropped; a pull gives every rank the value (but for
 * ranks that own no device of the plan, which pull nothing). Values that a rank has not pulled when it closes are dropped.
 */
#ifndef WEIR_CLUSTER_H
#define WEIR_CLUSTER_H

#include <weir/base.h>

WEIR_C_BEGIN

/* This process in the environment: its rank, of how many. 0 and 1 when it says nothing, or nonsense (which
 * weir_session_open() reports). */
int weir_rank(void);
int weir_world_size(void);

/* How often the ranks have been started anew, as the environment (WEIR_GENERATION) says. Above 0 a program is to go on
 * from what it last saved. 0 when it says nothing, or nonsense. */
int weir_generation(void);

#define WEIR_KEY_BYTES 41 /* with the 0 at the end */

/* Makes a new secret (a CURVE key in ZeroMQ's Z85 letters). E_UNSUPPORTED when libzmq was built without CURVE. */
weir_status weir_key_new(char secret[WEIR_KEY_BYTES]);

/* Gets what weir says beside its results: stalls, lost and refused peers, what a run that failed did last. `text` is a
 * whole report, of one or more lines. Called from a thread of weir's own, or by a function of the session; must
 * not call those: they return WEIR_E_STATE. It may take its time: weir_session_wait() and weir_session_close() return
 * when all reports have been handed over, nothing else waits for it. At most 64 wait; what comes then is dropped, and
 * counted in a report that says so. */
typedef void (*weir_report_fn)(void *ctx, const char *text);

/* Overrides of the environment, for programs that find their peers by themselves, or open several sessions at once.
 *
 * Sessions are told apart by their names when they open: rank 0 meets for one at a time at its address, and ranks that
 * come for another wait for their turn, at most WEIR_JOIN. So threads of each rank may open sessions at the same time
 * and in any order, if their names differ. Sessions of one name are told apart by their order: all ranks open them one
 * after the other.
 *
 * They are a member of weir_session_opts, and as they are: what there is to be said besides becomes a member of that. */
typedef struct weir_cluster_opts {
    int world_size;      /* 0: as the environment says; then what follows counts */
    int rank;
    const char *address; /* rank 0's, "host:port" */
    const char *name;    /* the session's, the same on all ranks, at most 63 bytes; whatever world_size is [the plan's:
                            what the graph was called] */
    bool alone;          /* this process runs the whole plan, whatever the environment says */
} weir_cluster_opts;

WEIR_C_END
#endif
