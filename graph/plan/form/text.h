/* graph/plan/form/text.h: how parts of a plan are called and numbers are written, the same in every message and picture.
 * All functions write into the caller's buffer and return it; any thread.
 */
#ifndef GRAPH_PLAN_FORM_TEXT_H
#define GRAPH_PLAN_FORM_TEXT_H

#include "graph/plan/form/plan.h"

#define PLAN_TEXT_BYTES 160 /* enough for a register's name, shortened if need be */

/* A register is called after the tensors that it holds: "h0/q", "h0/q and 2 more"; without tensors "register 7". */
const char *regst_text(const weir_plan *plan, plan_regst_id regst, char text[PLAN_TEXT_BYTES]);

/* "1.5 MiB", "640 B" */
const char *bytes_text(uint64_t bytes, char text[PLAN_TEXT_BYTES]);

/* "f32 [8, 128]" */
const char *tensor_text(const plan_tensor *tensor, char text[PLAN_TEXT_BYTES]);

const char *phase_text(uint32_t phase);    /* "forward"; plan_phase */
const char *mem_text(uint32_t kind);       /* "activations"; plan_mem */
const char *keep_text(uint32_t kind);      /* "parameter"; plan_keep */
const char *host_kind_text(uint32_t kind); /* "source"; plan_host_kind */
const char *queue_kind_text(uint32_t kind); /* "compute"; plan_queue_kind */
const char *collective_text(uint32_t kind); /* "all_gather"; plan_collective_kind */

#endif
