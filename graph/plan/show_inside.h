/* graph/plan/show_inside.h: what the files of weir_plan_show() share. A section writes lines of cells to `table`. */
#ifndef GRAPH_PLAN_SHOW_INSIDE_H
#define GRAPH_PLAN_SHOW_INSIDE_H

#include "graph/plan/text.h"

/* A name, cut; a number of bytes behind a tab, "" for none. */
void show_text(FILE *table, const char *text);
void show_bytes(FILE *table, uint64_t bytes);

/* One line per collective, by its first turn. */
void show_collectives(const weir_plan *plan, FILE *table, uint32_t index);

/* "40 collectives of 2 groups, 12 MiB": how often they fire in a step, and what they move. 0: there are none. */
uint64_t show_collectives_sum(const weir_plan *plan, const char *before, FILE *to);

#endif
