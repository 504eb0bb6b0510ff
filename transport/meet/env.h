/* transport/meet/env.h: what the environment says about the cluster (<weir/cluster.h> lists the variables). Read once,
 * when a session opens; everything below it takes this structure. */
#ifndef TRANSPORT_MEET_ENV_H
#define TRANSPORT_MEET_ENV_H

#include <weir/cluster.h>

#define CLUSTER_RANKS_MAX 4096
#define CLUSTER_NAME_BYTES 64 /* of a session's name, with the 0 */
#define CLUSTER_LEVEL_BYTES 32 /* of a level's */
#define CLUSTER_CARRIERS_BYTES 16 /* of a list of carriers, as text */

/* The carriers of WEIR_CARRIER, each a bit (transport/net/carrier.h, stream.h). */
enum cluster_carrier { CLUSTER_SHM = 1, CLUSTER_IPC = 2, CLUSTER_TCP = 4, CLUSTER_UCX = 8 };

struct cluster_env {
    uint32_t rank, size;    /* 0 and 1: alone; nothing else below then counts but stall_ns, pin,
                               spin_ns, poison and offload */
    uint32_t generation;    /* how often the ranks have been started anew; all that meet are of one */
    char address[256];      /* rank 0's host, name or number, without brackets */
    uint16_t port;
    char name[CLUSTER_NAME_BYTES]; /* of the session, as the program gave it; "": its plan's */
    char launcher[64];      /* begins what a launcher is told on stderr; "": nobody listens, or the program chose the ranks */
    const char *from;       /* who says so: "RANK", "Open MPI", "Slurm", "the program" */
    char secret[WEIR_KEY_BYTES]; /* "": no key */
    bool insecure;
    unsigned carriers;      /* bits of enum cluster_carrier: those that this rank may use */
    bool pin;               /* workers are bound to cores */
    int64_t spin_ns;        /* how long a thread spins before it sleeps (transport/mail/spin.h); -1: as wake-ups ask for */
    bool poison;            /* it is a debug run */
    const char *offload;    /* "disk:DIRECTORY", as the environment has it; NULL */
    uint32_t devices;       /* of each rank; 0: as many as the plan needs */
    int64_t liveness_ns, stall_ns, join_ns; /* stall_ns 0: never */

    /* Not of the environment, but of who opens a session: how this process's kernels round, which is the same where the
     * text is; and all that this build can be told to use, each higher than the last, then NULL. NULL: nothing said. */
    const char *level;
    const char *const *levels;
};

/* E_ARGUMENT names the variable that is wrong or missing ("WORLD_SIZE is 4, but MASTER_ADDR is not set"). */
weir_status cluster_env_read(const weir_cluster_opts *opts, struct cluster_env *env);

/* Reads `text`, a number of microseconds or "always", as `name` ("WEIR_SPIN", ".spin") has it. NULL: nothing changes. */
weir_status cluster_spin_read(const char *name, const char *text, int64_t *spin_ns);

/* How long this process waits for one of the generation before it to give up what only one may have: the liveness
 * limit; 0 in the first generation. */
int64_t cluster_patience_ns(void);

/* Copies the environment, the secret letter by letter: memcpy() leaves it in vector registers, and what binds a call late
 * saves those on the stack, below all that is wiped. */
void cluster_env_copy(struct cluster_env *to, const struct cluster_env *from);
void cluster_secret_copy(char to[WEIR_KEY_BYTES], const char *from);

/* Wipes the secret, which nobody needs once keys are open. To be called also when reading has failed. */
void cluster_env_wipe(struct cluster_env *env);

/* "shm,ipc,tcp": the list as WEIR_CARRIER has it, always in this order. Returns `text`. */
const char *cluster_carriers_text(unsigned carriers, char text[CLUSTER_CARRIERS_BYTES]);

#endif
