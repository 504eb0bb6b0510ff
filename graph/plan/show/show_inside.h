/* graph/plan/show/show_inside.h: what the files of weir_plan_show() share. A section writes lines of cells to `table`. */
#ifndef GRAPH_PLAN_SHOW_SHOW_INSIDE_H
#define GRAPH_PLAN_SHOW_SHOW_INSIDE_H

#include "graph/plan/form/text.h"

/* How each form ends: E_IO when something could not be written. */
weir_status show_end(FILE *to);

/* The order in which a device calls its actors: by phase, then by priority. */
int show_order(const plan_actor *x, const plan_actor *y);

/* How long the "fused(add, layernorm)" is that the name of a kernel begins with which is several in one. 0: it is none. */
size_t show_fused(const char *name);

/* A name, cut; a number of bytes behind a tab, "" for none. */
void show_text(FILE *table, const char *text);
void show_bytes(FILE *table, uint64_t bytes);

/* Prints lines of cells in aligned columns. `left`: of the columns that are aligned to the left. */
#define SHOW_LEFT(column) (1 << (column))
void show_table(const char *text, int left, FILE *to);

/* An actor's line, whose first cell is its priority; and what stands above, behind a first cell. */
#define SHOW_ACTOR_HEAD "\tactor\tphase\tfires\tkernels\tread a step\twritten\tmakes (slots x bytes)\treads\n"
#define SHOW_ACTOR_LEFT (SHOW_LEFT(1) | SHOW_LEFT(2) | SHOW_LEFT(7) | SHOW_LEFT(8))
void show_actor(const weir_plan *plan, FILE *table, uint32_t a);

/* One line per collective, by its first turn. */
void show_collectives(const weir_plan *plan, FILE *table, uint32_t index);

/* "40 collectives of 2 groups, 12 MiB": how often they fire in a step, and what they move. 0: there are none. */
uint64_t show_collectives_sum(const weir_plan *plan, const char *before, FILE *to);

#endif
