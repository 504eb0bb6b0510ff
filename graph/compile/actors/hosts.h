/* graph/compile/actors/hosts.h: hosts, and the link between them, as far as a plan knows of them.
 *
 * A plan knows no ranks. But who compiles may say what lies between its devices: so many are one host's (.per_host), and
 * what goes from one host to another takes a link of such a bandwidth and round trip (.link). A slot that is sent is not
 * free again before a round trip is over; with two of them two go in each, however wide the link is. Bandwidth x round trip
 * fills it, in bytes that are under way:
 *
 *     host 0   a --[slot][slot][slot][slot][slot]---- link ----> b   host 1
 *                   '------- under way or read, and not told to be free yet
 *
 * How many slots a register gets by it: as many firings as fill the link with all that goes over it together, and one
 * more, which is written meanwhile. A register beside such a way, written before it and read behind it, gets as many more as
 * are then under way: a value that waits on its host until another has been there and back, what forward saved for backward.
 * Never more than can be: where what is read leads back to the writer within a step, as in training, no more than a step
 * writes.
 *
 * Slots change no bit, and go first when there is a limit (limit.h). That counts them twice, where they lie and where
 * their contents arrive.
 */
#ifndef GRAPH_COMPILE_ACTORS_HOSTS_H
#define GRAPH_COMPILE_ACTORS_HOSTS_H

#include "graph/compile/ir/ir.h"

/* Which of the hosts the device is on; where nothing is known of hosts, each is one. */
static inline int host_of(const compile *c, int device)
{
    return c->phys.device.item[device].index / (c->opts.per_host ? c->opts.per_host : 1);
}

/* A fetch that is pulled is so on all ranks; each has it come to its first device. */
static inline bool is_pull(const compile *c, const pop *op)
{
    const graph_node *node = c->ir.node[op->node].origin;
    return node && node->host == PLAN_PULL + 1;
}

static inline bool is_first_of_host(const compile *c, int device)
{
    const pdevice *d = &c->phys.device.item[device];
    return device_host_reaches(d->kind) && d->index % (c->opts.per_host ? c->opts.per_host : 1) == 0;
}

/* Gives registers the slots that c->link asks for, which reg.ahead tells; false: no memory, and the error is set. */
bool hosts_slots(compile *c);

/* Enters in pdevice.arriving what of other hosts' registers waits at each device, in all its slots: 0 without c->link. */
void hosts_arriving(compile *c);

/* Whether the register is among that. */
bool hosts_send(const compile *c, const reg *r, int device);

#endif
