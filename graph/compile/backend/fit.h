/* graph/compile/backend/fit.h: slots are taken away until each device is within its limit. */
#ifndef GRAPH_COMPILE_BACKEND_FIT_H
#define GRAPH_COMPILE_BACKEND_FIT_H

#include "graph/compile/backend/backend.h"

/* The device that needs the most bytes of those that the limit is about; these, and whether it is over the limit. */
backend_outcome fit_outcome(const compile *c);

/* Takes slots away where a device is over the limit, going by what offsets were found for; false: none may go. */
bool fit_lower(compile *c);

#endif
