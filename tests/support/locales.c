/* tests/support/locales.c: see the header. */
#define _GNU_SOURCE
#include "tests/support/locales.h"

#include "tests/support/folder.h"

#include <criterion/criterion.h>
#include <locale.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A comma; letters beyond ASCII that are one byte; an i whose capital is not I; a decimal point of two bytes. */
const struct locale_source locales[LOCALES] = {
    {"de_DE.UTF-8", "de_DE", "UTF-8"},
    {"de_DE.ISO-8859-1", "de_DE", "ISO-8859-1"},
    {"tr_TR.UTF-8", "tr_TR", "UTF-8"},
    {"ps_AF.UTF-8", "ps_AF", "UTF-8"},
};

static bool made(const struct locale_source *l)
{
    char command[1024];
    const char *folder = folder_path("%s", l->name);
    if (folder_has(folder))
        return true;
    snprintf(command, sizeof command, "localedef -i %s -f %s %s >/dev/null 2>&1",
             l->source, l->charset, folder);
    return system(command) == 0 || folder_has(folder_path("%s/LC_NUMERIC", l->name));
}

bool locales_enter(int which)
{
    const struct locale_source *l = &locales[which];
    setenv("LOCPATH", folder_path("."), 1);
    if (!made(l) || !setlocale(LC_ALL, l->name)) {
        fprintf(stderr, "no locale %s can be made here: that takes localedef and its sources (Debian: locales)\n",
                l->name);
        return false;
    }
    char text[32];
    snprintf(text, sizeof text, "%.1f", 1.5);
    cr_assert(strcmp(text, "1.5") != 0, "%s has a decimal point like C's", l->name);
    return true;
}

void locales_leave(void)
{
    setlocale(LC_ALL, "C");
}
