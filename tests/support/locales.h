/* tests/support/locales.h: locales that are not installed, made by `localedef` in a folder of the test's.
 *
 *     for (int l = 0; l < LOCALES; l++) {
 *         if (!locales_enter(l))
 *             continue;                     the sources of locales are not here (Debian: `locales`)
 *         ... as in a program that called setlocale(LC_ALL, locales[l].name) ...
 *         locales_leave();
 *     }
 *
 * In a test with a folder (tests/support/folder.h).
 */
#ifndef TESTS_SUPPORT_LOCALES_H
#define TESTS_SUPPORT_LOCALES_H

#include <stdbool.h>

enum { LOCALES = 4 };

struct locale_source {
    const char *name;            /* for setlocale() */
    const char *source, *charset; /* for localedef */
};
extern const struct locale_source locales[LOCALES];

/* Makes it if it is not there, and calls setlocale(). False, and a line on stderr: it cannot be made here. */
bool locales_enter(int which);
void locales_leave(void); /* back to "C" */

#endif
