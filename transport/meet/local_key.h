/* transport/meet/local_key.h: the key of sessions on one host that were given none.
 *
 *     $XDG_RUNTIME_DIR/weir.key                  if that is a folder of the user's alone (mode 0700)
 *     ${TMPDIR:-/tmp}/weir-UID/weir.key          else; the folder is made, with that mode
 *
 * Loopback is open to every user of a host, and so would be a session there. Its ranks need a secret, and what only
 * this user's processes have in common is what only this user may read.
 *
 * There is one file per user and host, not one per session: who could read one could read all of them. So it is never
 * out of date: the first rank of the first session makes it, all others read it, whichever comes first, and it stays
 * until the system empties the folder (at logout, or when the machine starts). Nothing is left by a session that
 * crashed, and nothing is to be removed when one ends, while the next may just be reading it. The keys of a session's ranks
 * differ from session to session (transport/meet/keys.h).
 *
 * It appears whole: written under another name, then linked. If several make one at the same time, the first wins, and all
 * read that. A folder or a file that belongs to somebody else, is open to others or is a symbolic link is not used; a process
 * that may write nowhere gets an error that says what to do instead.
 */
#ifndef TRANSPORT_MEET_LOCAL_KEY_H
#define TRANSPORT_MEET_LOCAL_KEY_H

#include <weir/cluster.h>

/* Reads the user's key, and makes it before if there is none. E_IO names the folder and what is wrong with it. Any
 * thread of any process. */
weir_status local_key(char secret[WEIR_KEY_BYTES]);

#endif
