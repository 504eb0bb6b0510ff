/* graph/compile/options.h: the options of weir_compile(), and whether the graph can be compiled at all. */
#ifndef GRAPH_COMPILE_OPTIONS_H
#define GRAPH_COMPILE_OPTIONS_H

#include "graph/compile/ir/ir.h"

/* Enters c->opts in the fields that follow from them. False: one is wrong, or the graph is, and the error is set. */
bool options_take(compile *c);

/* "10Gbit 200us": the bytes that are under way when such a link is full, at least 0. False: it is no link. */
bool link_parse(const char *text, double *bytes);

#endif
