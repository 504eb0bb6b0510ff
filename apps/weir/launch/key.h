/* apps/weir/launch/key.h: a session's secret from a file that `weir keygen` wrote: one line, for its owner's eyes
 * alone. */
#ifndef APPS_WEIR_LAUNCH_KEY_H
#define APPS_WEIR_LAUNCH_KEY_H

#include <weir/cluster.h>

/* Returns -1, or an exit status after reporting for `program`. */
int launch_key_read(const char *program, const char *path, char secret[WEIR_KEY_BYTES]);

#endif
