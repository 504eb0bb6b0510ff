/* graph/base/library.h: shared libraries that are opened by name when they are first needed.
 *
 * The loader looks for a name in LD_LIBRARY_PATH, and an empty or relative entry there stands for the current directory:
 * whoever can write to that could have a library of theirs run here. A trailing colon is enough. weir opens no library
 * from there: where the loader's search has such an entry, weir searches the absolute ones itself, in the same order.
 * The entries of ld.so.cache are then not searched; the error says so.
 *
 * Plugins have copies of this object. Any thread.
 */
#ifndef GRAPH_BASE_LIBRARY_H
#define GRAPH_BASE_LIBRARY_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Opens the library with this file name ("libucp.so.0"), its names to itself; it may be open already. A name with a
 * slash is a path, which must be absolute. `why` is "" then. NULL: it says what is wrong, beginning with the name when
 * there is no such library. */
void *library_open(const char *name, char *why, size_t why_bytes);

#ifdef __cplusplus
}
#endif

#endif
