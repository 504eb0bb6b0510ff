/* graph/plan/form/file.h: what graph/plan/form/file.c has beyond graph/plan/form/plan.h. */
#ifndef GRAPH_PLAN_FORM_FILE_H
#define GRAPH_PLAN_FORM_FILE_H

#include "graph/plan/form/plan.h"

#define PLAN_FILE_BYTES_MAX (UINT32_C(1) << 30)

/* plan_decode() without its second half: takes the bytes apart, but neither compares the hash nor validates. For
 * tests, which want to see what happens to a plan that nobody has checked. */
weir_plan *plan_read(const void *bytes, size_t bytes_count);

#endif
