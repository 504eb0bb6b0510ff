/* graph/compile/sources.h: what a conversion reads on each device of its destination.
 *
 * Of each slice of the source that meets the destination's, one copy (its own, if it can be), or all terms if it is a
 * partial sum, in the order of the devices. That order is the plan's, whatever lies where: it is the same for meshes of
 * any kind of device. Pure functions.
 */
#ifndef GRAPH_COMPILE_SOURCES_H
#define GRAPH_COMPILE_SOURCES_H

#include "graph/compile/ir.h"

/* Which devices of the source a destination device reads, as a set of allowed coordinates per axis. */
typedef struct sources_choice {
    int only[WEIR_AXES_MAX];       /* coordinate to take, or -1: all */
    bool none;                     /* this device holds zeros alone */
    bool zero;                     /* the sources may not cover it */
} sources_choice;

/* For the device `at` of `to`'s mesh. */
sources_choice sources_choose(const ir_tensor *from, const ir_tensor *to, int at);

/* Lists the ptensors of `tensor` that `to` is made of, terms of one slice next to each other; returns how many. The list
 * has room for all of the tensor's. */
int sources_list(const compile *c, int tensor, const ptensor *to, const sources_choice *ch, int *list, int *terms);

/* Whether every device of the destination reads nothing but what it holds itself. */
bool sources_local(const ir_tensor *from, const ir_tensor *to);

#endif
