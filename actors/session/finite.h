/* actors/session/finite.h: a run in which the first value that is no number ends it.
 *
 * With `.check_finite` each output of a kernel, and what the kernel keeps (an optimizer's moments), is looked at right
 * after the call, before anybody is told of it: an element that is NaN or infinite is the kernel's failure. So the op
 * that is named had finite inputs, unless one came unseen, as a parameter that was loaded or written, and then the
 * sentence says so. What is pushed is looked at, too, and refused. Integers hold no such values.
 *
 *     on CPUs              every kernel of this rank
 *     on accelerators      nothing: a queue runs ahead of its device. What they compute is looked at where it reaches
 *                          the host, in sinks, calls and pulls: the sentence names that and the step, not the op
 *     with a loss scale    not the backward pass and the updates, whose gradients may overflow: what follows of that is
 *                          the scale's to decide
 *
 * A session that does not check pays nothing: kernels are called through a function that is put in front of them when
 * the session is built. Each rank looks at its own.
 */
#ifndef ACTORS_SESSION_FINITE_H
#define ACTORS_SESSION_FINITE_H

#include "actors/session/session.h"

/* After kernels are built, and before session_poison(), which spoils outputs that nobody reads. session_unfinite()
 * frees what was made for it; without, it is NULL. */
weir_status session_check_finite(struct weir_session *session);
void session_unfinite(struct weir_session *session);

/* Whether all of the view is finite, or holds integers; else writes "NaN at [3, 5] of f32 [8, 16]" to `text`, of the
 * first that is not, by its place in the logical tensor. */
bool finite_view(const weir_view *view, char *text, size_t bytes);

/* The same of what is pushed, or of what is pulled where it was made by a device whose kernels are not looked at: OK, or
 * the error. Without .check_finite: OK. */
weir_status finite_pushed(const struct weir_session *session, const char *name, const weir_array *value);
weir_status finite_pulled(const struct weir_session *session, const char *name, const weir_array *value, int64_t step);

#endif
