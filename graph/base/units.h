/* graph/base/units.h: rates and times with their units, as users write them: "10Gbit", "200us". No sign, no exponent, and a point
 * whatever the locale. Pure functions; any thread. */
#ifndef GRAPH_BASE_UNITS_H
#define GRAPH_BASE_UNITS_H

#include <stdbool.h>

/* Take a number and its unit from the front of *text, and move it behind them; a space or the end follows. False: there is none. */
bool rate_take(const char **text, double *bits_s); /* bit, kbit, Mbit, Gbit, Tbit */
bool time_take(const char **text, double *seconds); /* us, ms, s */
bool number_take(const char **text, double *value); /* without a unit */

#endif
