/* apps/weir/show_ranks.h: `weir show PLAN --ranks N`: what goes between hosts when each of N ranks is on one of its own,
 * and the memory that it arrives in (transport/line/links.h). */
#ifndef APPS_WEIR_SHOW_RANKS_H
#define APPS_WEIR_SHOW_RANKS_H

#include <stdbool.h>
#include <stdio.h>
#include <weir/weir.h>

/* `devices` of each rank; 0: shared out evenly. E_ARGUMENT: the plan's devices do not fit. */
weir_status show_ranks(const weir_plan *plan, int ranks, int devices, bool json, FILE *to);

#endif
