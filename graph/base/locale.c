/* graph/base/locale.c: see the header. */
#include "graph/base/locale.h"

#include <fnmatch.h>
#include <stdio.h>
#include <stdlib.h>

int text_vprint(char *text, size_t room, const char *format, va_list args)
{
    struct c_locale locale = c_locale_begin();
    int length = vsnprintf(text, room, format, args);
    c_locale_end(locale);
    return length;
}

int text_print(char *text, size_t room, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    int length = text_vprint(text, room, format, args);
    va_end(args);
    return length;
}

double number_read(const char *text, char **end)
{
    struct c_locale locale = c_locale_begin();
    double value = strtod(text, end);
    c_locale_end(locale);
    return value;
}

bool glob_fits(const char *glob, const char *text)
{
    struct c_locale locale = c_locale_begin();
    bool fits = !fnmatch(glob, text, 0);
    c_locale_end(locale);
    return fits;
}

int glob_paths(const char *pattern, glob_t *found)
{
    struct c_locale locale = c_locale_begin();
    const int status = glob(pattern, GLOB_NOSORT, NULL, found);
    c_locale_end(locale);
    return status;
}
