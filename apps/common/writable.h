/* apps/common/writable.h: whether a file could be written, before there is something to write. Keeps no state. */
#ifndef APPS_COMMON_WRITABLE_H
#define APPS_COMMON_WRITABLE_H

#include <stdbool.h>

/* Whether `path` can be opened for writing, or be made, as far as permissions tell: nothing is opened or made, so no
 * file appears, no link is lost, and nobody at the other end of a FIFO sees it closed. `replaced`: it will be replaced by
 * a new file (weir_plan_save()), which its folder has to take. False with errno set. */
bool writable(const char *path, bool replaced);

#endif
