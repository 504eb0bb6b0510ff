/* graph/base/opts.h: options of a program that was compiled with another version of the headers (WEIR_OPTS in
 * <weir/base.h>). Each function of the API that takes options begins with a copy of its own: as many bytes as both know,
 * the rest 0. It reads nothing but the copy. Pure functions; any thread. */
#ifndef GRAPH_BASE_OPTS_H
#define GRAPH_BASE_OPTS_H

#include <weir/base.h>

/* The members that all of them begin with. */
typedef struct opts_head {
    size_t size;
    weir_src src;
} opts_head;

/* Copies to `own`, of own_bytes, what the caller gave: `given` is NULL, or begins with an opts_head. NULL, or what is
 * wrong with it; `own` has nothing but its head then. */
const char *opts_take(void *own, size_t own_bytes, const void *given);

/* The same for a structure without a head, of which the caller knows given_bytes. */
const char *opts_copy(void *own, size_t own_bytes, const void *given, size_t given_bytes);

/* The place in the program that such options hold, ".src"; "?" where none was given. */
weir_src opts_src(const void *own);

/* opts_take() for calls that return a status: E_ARGUMENT and weir_error() "model.c:12: weir_compile: ...". */
weir_status opts_read(void *own, size_t own_bytes, const void *given, const char *call);

#endif
