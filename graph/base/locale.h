/* graph/base/locale.h: texts and numbers in the C locale, whatever the program around the library set.
 *
 *     setlocale(LC_ALL, "de_DE.UTF-8");      the program, GTK or Python:
 *     snprintf(text, n, "%g", 1.5)           "1,5"; JSON has no such number
 *     strtod("1.5GiB", &end)                 1, and ".5GiB" is left over
 *
 * Everything that weir reads and writes has a point and no grouping, and compares bytes. The functions here give the
 * calling thread the C locale for one call of the C library, and its own back. Nothing of the user's runs in between:
 * no callback, and no stream (an fopencookie() stream is a callback), so a number for a stream is made a text first.
 * setlocale() is no way: it changes all threads of the host program.
 *
 * newlocale() makes no object for "C": glibc and musl hand out a constant one, and take no lock for it. So there is no
 * variable to be made once, freed at dlclose(), or lost over a fork().
 *
 * tests/check_locale refuses the C library's own functions elsewhere in the library. Any thread.
 */
#ifndef GRAPH_BASE_LOCALE_H
#define GRAPH_BASE_LOCALE_H

#include <glob.h>
#include <locale.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* snprintf() and vsnprintf(). */
int text_print(char *text, size_t room, const char *format, ...) __attribute__((format(printf, 3, 4)));
int text_vprint(char *text, size_t room, const char *format, va_list args) __attribute__((format(printf, 3, 0)));

/* strtod(). */
double number_read(const char *text, char **end);

/* fnmatch() without flags: whether the glob fits. `?` is one byte, and `[a-z]` a range of bytes. */
bool glob_fits(const char *glob, const char *text);

/* glob(), unsorted: the paths that fit, likewise. */
int glob_paths(const char *pattern, glob_t *found);

/* isdigit() and isalnum(), of ASCII alone. */
static inline bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static inline bool is_alnum(char c)
{
    return is_digit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

/* tolower(), of ASCII alone. */
static inline char to_lower(char c)
{
    return c >= 'A' && c <= 'Z' ? (char)(c - 'A' + 'a') : c;
}

/* For a call of another library that reads or writes numbers: the thread has the C locale from the first to the
 * second. Between them stands that call and nothing else. Without memory for a locale the thread's own stays. */
struct c_locale {
    locale_t c, before;
};

static inline struct c_locale c_locale_begin(void)
{
    struct c_locale locale = {newlocale(LC_ALL_MASK, "C", (locale_t)0), (locale_t)0};
    if (locale.c)
        locale.before = uselocale(locale.c);
    return locale;
}

static inline void c_locale_end(struct c_locale locale)
{
    if (!locale.c)
        return;
    uselocale(locale.before);
    freelocale(locale.c);
}

#ifdef __cplusplus
}
#endif

#endif
