/* graph/compile/memory/temps.h: what the groups of a compilation have in their workspaces, as blocks.
 *
 * Inside a group a temporary lives from the pop that makes it to the last that reads it. A kernel that may work in place takes
 * over the block of an input that dies with it; the tensors of a family lie in one block. Scratch memory is a block of its pop.
 */
#ifndef GRAPH_COMPILE_MEMORY_TEMPS_H
#define GRAPH_COMPILE_MEMORY_TEMPS_H

#include "graph/compile/ir/ir.h"

typedef struct block {             /* what is placed as one: a register, or temporaries of a group */
    int reg;                       /* or -1: temporaries, which work in place of each other, or scratch */
    int group, from, to;           /* then: whose, and the first and last pop, as positions in the group */
    uint64_t bytes, offset;        /* in the arena */
    bool shares;                   /* of temporaries: place() has put them */
    int tensors;                   /* of temporaries: how many there are in it */
    struct block *guest, *next;    /* what lies within it (windows.h): the first, and the next beside this one */
    struct block *host;            /* what it lies within itself, which lies within nothing, */
    uint64_t at;                   /* and where there */
} block;

typedef struct temps {             /* the compilation's pool owns the lists; -1 in one: no block */
    POOL_LIST(block) list;         /* those of each group beside each other */
    int *of_tensor;                /* by ptensor */
    int *of_scratch;               /* by pop */
    int *of_family;                /* by family: of one whose tensors are all temporaries of one group */
} temps;

/* Finds them once all groups are made; slots don't matter. False: no memory. */
bool temps_find(compile *c, temps *to);

#endif
