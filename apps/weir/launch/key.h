/* apps/weir/launch/key.h: a session's secret in a file as `weir keygen` writes it: one line, for its owner's eyes alone.
 *
 * The launcher writes the secret, the user's or a fresh one, into a file in its own folder in memory (snapshots.h), and
 * tells the ranks of this host its path (WEIR_KEY_FILE). The file goes with the folder, also when the launcher is killed.
 * On another host the rank's script writes such a file, into the keeper's folder if there is one, and removes it when the
 * program or the connection ends (script.h). */
#ifndef APPS_WEIR_LAUNCH_KEY_H
#define APPS_WEIR_LAUNCH_KEY_H

#include <weir/cluster.h>

/* Returns -1, or an exit status after reporting for `program`. */
int launch_key_read(const char *program, const char *path, char secret[WEIR_KEY_BYTES]);

/* Byte by byte: memcpy() leaves the secret in vector registers, and a call that is bound late saves those on the stack. */
void launch_key_copy(char *to, const char *from, size_t bytes);

/* Writes a new file. Returns as above. */
int launch_key_write(const char *program, const char *secret, const char *path);

#endif
