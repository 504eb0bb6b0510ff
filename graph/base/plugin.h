/* graph/base/plugin.h: parts of weir that come in shared objects of their own, found when they are needed: the driver of
 * CUDA devices (regst/plugin.h) and lines over UCX (transport/line/stream_plugin.c).
 *
 * So one build of weir runs where their libraries are, and where they are not. A plugin links nothing of libweir: what it
 * calls it gets as functions. Both sides say for which version of their header they were built, and one that differs is
 * refused: they are parts of one build. A plugin stays for the life of the process.
 *
 * It is looked for as: what its variable says, an absolute path, and then nowhere else; beside the file that this library
 * is a part of (the program, or libweir.so); in ../lib and ../lib/x86_64-linux-gnu of there; where the system looks for
 * libraries. It is never looked for in the current directory (graph/base/library.h).
 */
#ifndef GRAPH_BASE_PLUGIN_H
#define GRAPH_BASE_PLUGIN_H

struct plugin {
    const char *file, *variable; /* "libweir-cuda.so", "WEIR_CUDA_PLUGIN" */
    const char *brings, *open;   /* "CUDA devices", for errors; its one function */
    const char *needs;           /* "libucx-dev": it is built where this is; for errors */
};

/* Its function, of the object that is loaded. NULL: an error is set, E_UNSUPPORTED, which says where it was looked for. */
void *plugin_load(const struct plugin *plugin, void **object);

/* One whose function has refused. */
void plugin_unload(void *object);

#endif
