/* graph/base/error.h: the calling thread's last error, behind weir_error(). Each thread has its own text; nothing is
 * shared. */
#ifndef GRAPH_BASE_ERROR_H
#define GRAPH_BASE_ERROR_H

#include <weir/base.h>

/* Sets the thread's error text (at most 1023 bytes are kept) and returns `status`. Arguments may refer to the old
 * text. A sentence often names what a file or another program calls something, so it is kept as graph/base/foreign.h
 * shows texts: one line, valid UTF-8, nothing that a terminal obeys. */
weir_status error_set(weir_status status, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Whether `given` is NULL; then the thread's error is "weir_plan_save: the plan is NULL". */
bool error_null(const void *given, const char *function, const char *what);

/* Tells a static analyser what it cannot see from the declaration. */
#ifdef __clang_analyzer__
#define error_set(status, ...) ((error_set)((status), __VA_ARGS__), (status))
#endif

#endif
