/* regst/local.h: which of this machine's devices a plan's device is.
 *
 * A plan counts devices of a kind over all its ranks. In one process they are this machine's, by the same number. With
 * several ranks a machine may have a part of them, or a rank may be shown its own alone (Slurm's --gpus-per-task,
 * CUDA_VISIBLE_DEVICES). The first of these that holds decides:
 *
 *     all of the plan's devices of the kind are this rank's         the plan's number
 *     as many are there as the rank has of the plan's               in the plan's order
 *     the machine has all numbers of the plan's                     the plan's number
 *     it is known which of its machine's ranks this one is          LOCAL_RANK times what the rank has, and in the plan's order
 *
 * else it is the plan's number, and who opens it says that there is no such device. Ranks of a machine have as many devices
 * each, then. Pure functions; any thread.
 */
#ifndef REGST_LOCAL_H
#define REGST_LOCAL_H

#include "graph/plan/form/plan.h"

/* The number of the space's device among those of its kind here. `elsewhere`: spaces of other processes, or NULL; `count`:
 * how many devices of the kind there are here; `rank`: which of its machine's ranks this is, or -1. */
uint32_t local_index(const weir_plan *plan, const bool *elsewhere, uint32_t space, uint32_t count, int rank);

/* As `weir launch`, Open MPI, MPICH and Slurm tell it; -1: they do not. */
int local_rank(void);

#endif
