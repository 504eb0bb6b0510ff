/* actors/session/poison.h: a debug run, in which bytes that nobody needs hold nothing that anybody could use.
 *
 * Parts of an arena lie on the same bytes when the plan proves that they are never needed at the same time. With
 * `.poison` (or WEIR_POISON=1) a session acts on that proof: whatever begins to be needed is filled with ones, which is
 * NaN to a float of any width, before the kernel that first writes it, and what is needed no longer right after the
 * kernel that last reads it. So a proof that is wrong, a kernel that reads what it never wrote, or more than its op says,
 * shows as NaN in what is computed, or as an index out of range, instead of as a value that may happen to be right.
 *
 *     temporaries, scratch    before their first kernel, after their last
 *     slots of registers      before the kernel that first writes them; after the last kernel of their reader, where
 *                             they have one, and it sees the bytes themselves (others cannot tell who is last)
 *
 * What starts full, states and snapshots are left alone; so is memory that the host cannot reach. Results are the same
 * bits as without. A session that is not poisoned pays nothing: kernels are called through a function that is put in
 * front of them when the session is built.
 */
#ifndef ACTORS_SESSION_POISON_H
#define ACTORS_SESSION_POISON_H

#include "actors/session/session.h"

/* After kernels, ports and registers are built. session_unpoison() frees what was made for it; without, it is NULL. */
weir_status session_poison(struct weir_session *session);
void session_unpoison(struct weir_session *session);

#endif
