/* actors/debug/debug.h: runs that look at the values that kernels compute, or spoil bytes that nobody needs.
 *
 *     finite.c   .check_finite: a run ends at the first value that is no number
 *     poison.c   WEIR_POISON: what is not needed is filled with NaN
 */
#ifndef ACTORS_DEBUG_DEBUG_H
#define ACTORS_DEBUG_DEBUG_H

#include <weir/session.h>

#include "actors/built/built.h"

struct poison;
struct finite;

struct session_debug {
    bool poisons;          /* it is a debug run */
    bool checks_finite;    /* what kernels compute is looked at */
    struct poison *poison; /* owned; NULL: it is no debug run */
    struct finite *finite; /* owned; NULL: nothing is looked at */
};

/* Both put a function in front of kernels, when kernels, ports and registers are built, in this order: the second spoils
 * outputs that nobody reads. E_MEMORY. */
weir_status debug_check_finite(struct session_debug *debug, struct built *built);
weir_status debug_poison(struct session_debug *debug, struct built *built);

void finite_close(struct finite *finite); /* NULL is allowed */

/* After the last call of a kernel. */
void debug_close(struct session_debug *debug);

/* OK, or the error: for a pushed value, and for a pulled one that was made by a device whose kernels are not looked at.
 * Without .check_finite: OK. */
weir_status debug_pushed(const struct session_debug *debug, const char *name, const weir_array *value);
weir_status debug_pulled(const struct session_debug *debug, const char *name, const weir_array *value, int64_t step);

#endif
