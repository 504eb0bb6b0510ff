/* graph/plan/form/build.h: growing arrays for whoever makes a plan: the compiler, the decoder, the tests.
 *
 *     plan_builder *builder = plan_builder_new();
 *     plan_space_id cpu = {plan_add_spaces(builder, (plan_space){.name = plan_add_text(builder, "cpu:0")})};
 *     ...
 *     plan_builder_plan(builder)->actors[a].regsts.count++;       // what is there may be patched
 *     weir_plan *plan = plan_builder_finish(builder, bindings);   // NULL: no memory
 *
 * Running out of memory sticks: from then on every plan_add_ returns PLAN_NONE and plan_builder_finish() NULL, so a
 * maker may check once, at the end. One who indexes an array by what plan_add_ returned asks plan_builder_failed()
 * before.
 *
 * Nothing is checked here; that is what plan_validate() is for. A builder belongs to one thread.
 */
#ifndef GRAPH_PLAN_FORM_BUILD_H
#define GRAPH_PLAN_FORM_BUILD_H

#include "graph/plan/form/plan.h"

typedef struct plan_builder plan_builder;

/* An empty plan of version PLAN_VERSION; NULL and weir_error() when there is no memory. Owned by the caller until
 * finish or free. */
plan_builder *plan_builder_new(void);
void plan_builder_free(plan_builder *builder); /* also NULL */

/* plan_add_spaces(), plan_add_queues(), ...: append `value` to the array of that name and return its index, or
 * PLAN_NONE when there is no memory. (Text goes through plan_add_text(), not through plan_add_strings(), which appends
 * one byte.) */
#define X(type, member) uint32_t plan_add_##member(plan_builder *builder, type value);
PLAN_ARRAY_LIST(X)
#undef X

/* The place of `text` in the plan's strings: equal texts have equal places, "" and NULL are at 0. `text`
 * must not point into the plan itself: its strings may move. */
plan_str plan_add_text(plan_builder *builder, const char *text);

/* The plan as far as it is made; scalars may be set and elements changed. Array pointers move with the next plan_add_.
 * Never NULL, borrowed. */
weir_plan *plan_builder_plan(plan_builder *builder);

bool plan_builder_failed(const plan_builder *builder);

/* Ends the builder and returns its plan, with its hash. Takes `bindings` (malloc'ed, parallel to hosts, or NULL) over.
 * On failure frees everything, and the error is set. */
weir_plan *plan_builder_finish(plan_builder *builder, callback_binding *bindings);
/* The same without the hash, of a plan that is still to be changed. */
weir_plan *plan_builder_take(plan_builder *builder, callback_binding *bindings);

#endif
