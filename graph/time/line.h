/* graph/time/line.h: how long messages between workers take: in one process, between processes of a host, and over a link.
 *
 * With a bandwidth, values for another rank pass over a line, one after the other, each way for itself; a value that several
 * readers of a queue there read passes once. A message that a slot is free takes the latency alone.
 */
#ifndef GRAPH_TIME_LINE_H
#define GRAPH_TIME_LINE_H

#include "graph/time/change.h"
#include "graph/time/rates.h"

typedef struct lines {
    const weir_plan *plan;     /* borrowed, as the next two */
    const weir_rates *rates;
    const changes *changes;
    uint32_t *first;           /* owned, as what follows; by port: the first of its branch (graph/plan/spread/branch.h) */
    uint64_t *arrives;         /* by port: when the value that is under way is there */
    uint64_t *free_at;         /* by two ranks: when the line is free again */
} lines;

/* E_MEMORY. */
weir_status lines_open(lines *l, const weir_plan *plan, const weir_rates *rates, const changes *set);
void lines_close(lines *l);

/* How long a message of a port takes that is sent now; and without any other on its line. Picoseconds. */
uint64_t lines_message(lines *l, uint32_t port, bool freed, uint64_t now);
uint64_t lines_alone(const lines *l, uint32_t port, bool freed);

#endif
