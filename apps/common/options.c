/* apps/common/options.c: command lines, from a table.
 *
 * Not getopt_long(): its messages name neither the range nor the value, and the table here is at once the parser, the
 * checks and the help text, so that none of them can disagree. Numbers are read to their last character; "1e3" is a
 * whole number too when it has no fraction, because people write step counts so.
 */
#include "apps/common/options.h"
#include "apps/common/options_files.h"

#include "graph/base/foreign.h"
#include "graph/base/locale.h"
#include "graph/base/names.h"

#include <math.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <weir/weir.h>

int options_wrong(const char *program, const char *format, ...)
{
    char text[2048], shown[1024];
    va_list list;
    va_start(list, format);
    vsnprintf(text, sizeof text, format, list);
    va_end(list);
    fflush(stdout);
    fprintf(stderr, "%s: %s\n", program, foreign_text(text, shown, sizeof shown));
    return OPTIONS_WRONG;
}

/* Whether a path is of the sources that the program is made of. */
static bool is_own(const char *program, const char *path)
{
    const char *const common = "apps/common/", *const apps = "apps/";
    const size_t letters = strcspn(program, " ");
    if (!strncmp(path, common, strlen(common)))
        return true;
    return !strncmp(path, apps, strlen(apps)) && !strncmp(path + strlen(apps), program, letters) &&
           path[strlen(apps) + letters] == '/';
}

const char *options_error(const char *program)
{
    const char *error = weir_error();
    const size_t path = strcspn(error, ": "), digits = error[path] == ':' ? strspn(error + path + 1, "0123456789") : 0;
    const char *rest = error + path + 1 + digits;
    return digits && !strncmp(rest, ": ", 2) && is_own(program, error) ? rest + 2 : error;
}

int options_failed(const char *program)
{
    options_wrong(program, "%s", options_error(program));
    return 1;
}

static bool is_positional(const options_entry *entry)
{
    return entry->name[0] != '-';
}

/* ---- help ---- */

static const char *value_name(const options_entry *entry)
{
    static const char *const names[] = {
#define X(kind, type, value) value,
        OPTIONS_KIND_LIST(X)
#undef X
    };
    return entry->value ? entry->value : names[entry->kind];
}

static void print_default(const options_entry *entry)
{
    if (entry->kind == OPTIONS_INT && *(int *)entry->to > 0)
        printf(" [%d]", *(int *)entry->to);
    else if (entry->kind == OPTIONS_REAL && *(double *)entry->to != 0 && !isnan(*(double *)entry->to))
        printf(" [%g]", *(double *)entry->to);
    else if (entry->kind == OPTIONS_TEXT && *(const char **)entry->to && !is_positional(entry))
        printf(" [%s]", *(const char **)entry->to);
}

static int print_help(const options_spec *spec)
{
    printf("usage: %s", spec->program);
    for (const options_entry *e = spec->table; e->name; e++)
        if (is_positional(e))
            printf(e->optional ? " [%s]" : " %s", e->name);
    printf(" [options]\n%s\n\n", spec->about);
    for (const options_entry *e = spec->table; e->name; e++) {
        char left[64];
        snprintf(left, sizeof left, is_positional(e) ? "%s" : "%s %s", e->name, value_name(e));
        printf("  %-20s %s", left, e->help);
        print_default(e);
        putchar('\n');
    }
    printf("  %-20s this text\n", "--help");
    return 0;
}

/* ---- values ---- */

static int wrong_range(const options_spec *spec, const options_entry *entry, const char *text)
{
    if (entry->max >= 1e9)
        return options_wrong(spec->program, "%s must be at least %g, not %s", entry->name, entry->min, text);
    return options_wrong(spec->program, "%s must be between %g and %g, not %s", entry->name, entry->min, entry->max,
                         text);
}

static int set_number(const options_spec *spec, const options_entry *entry, const char *text)
{
    char *end;
    double value = strtod(text, &end);
    bool whole = entry->kind == OPTIONS_INT;
    if (end == text || *end || !isfinite(value) || (whole && value != floor(value)))
        return options_wrong(spec->program, "%s takes a %s, not \"%s\"", entry->name,
                             whole ? "whole number" : "number", text);
    bool limited = entry->min != 0 || entry->max != 0;
    if ((limited && (value < entry->min || value > entry->max)) || (whole && fabs(value) > INT32_MAX))
        return wrong_range(spec, entry, text);
    if (whole)
        *(int *)entry->to = (int)value;
    else
        *(double *)entry->to = value;
    return -1;
}

static int set_u64(const options_spec *spec, const options_entry *entry, const char *text)
{
    char *end;
    uint64_t value = strtoull(text, &end, 0);
    if (end == text || *end || text[0] == '-')
        return options_wrong(spec->program, "%s takes a whole number from 0 up, not \"%s\"", entry->name, text);
    *(uint64_t *)entry->to = value;
    return -1;
}

static int add_value(const options_spec *spec, const options_entry *entry, const char *text)
{
    options_list *list = entry->to;
    if (list->count == OPTIONS_LIST_MAX)
        return options_wrong(spec->program, "%s takes at most %d values", entry->name, OPTIONS_LIST_MAX);
    list->value[list->count++] = text;
    return -1;
}

static int set_value(const options_spec *spec, const options_entry *entry, const char *text)
{
    switch (entry->kind) {
    case OPTIONS_INT:
    case OPTIONS_REAL:
        return set_number(spec, entry, text);
    case OPTIONS_U64:
        return set_u64(spec, entry, text);
    case OPTIONS_LIST:
        return add_value(spec, entry, text);
    case OPTIONS_TEXT:
        *(const char **)entry->to = text;
        return -1;
    case OPTIONS_FLAG:
        *(bool *)entry->to = true;
        return -1;
    }
    return -1;
}

/* ---- finding entries ---- */

static const options_entry *find_option(const options_spec *spec, const char *name, size_t length)
{
    for (const options_entry *e = spec->table; e->name; e++)
        if (!is_positional(e) && strlen(e->name) == length && !memcmp(e->name, name, length))
            return e;
    return NULL;
}

static const options_entry *positional(const options_spec *spec, int index)
{
    for (const options_entry *e = spec->table; e->name; e++)
        if (is_positional(e) && (index-- == 0 || e->several))
            return e;
    return NULL;
}

static int wrong_option(const options_spec *spec, const char *text)
{
    char name[NAMES_LETTERS], list[NAMES_TEXT_BYTES];
    struct names names = {.wanted = name};
    snprintf(name, sizeof name, "%.*s", (int)strcspn(text, "="), text);
    for (const options_entry *e = spec->table; e->name; e++)
        if (!is_positional(e))
            names_add(&names, e->name);
    const char *meant = names_meant(&names);
    if (meant)
        return options_wrong(spec->program, "unknown option %s (did you mean %s?); --help lists all", name, meant);
    return options_wrong(spec->program, "there is no option %s%s; --help lists all", name, names_text(&names, list, sizeof list));
}

/* ---- the command line ---- */

/* Takes the option at argv[*at] with its values and moves *at past them. */
static int take_option(const options_spec *spec, int argc, char **argv, int *at)
{
    const char *text = argv[(*at)++];
    const char *equals = strchr(text, '=');
    const options_entry *entry = find_option(spec, text, equals ? (size_t)(equals - text) : strlen(text));
    if (!entry)
        return wrong_option(spec, text);
    if (entry->kind == OPTIONS_FLAG)
        return equals ? options_wrong(spec->program, "%s takes no value", entry->name) : set_value(spec, entry, NULL);
    if (equals)
        return set_value(spec, entry, equals + 1);
    if (*at >= argc || !strncmp(argv[*at], "--", 2)) {
        if (entry->kind == OPTIONS_LIST && entry->optional) {
            ((options_list *)entry->to)->bare = true;
            return -1;
        }
        return options_wrong(spec->program, "%s needs a value", entry->name);
    }
    int status = set_value(spec, entry, argv[(*at)++]);
    while (status < 0 && entry->several && *at < argc && argv[*at][0] != '-')
        status = set_value(spec, entry, argv[(*at)++]);
    return status;
}

static int take_positional(const options_spec *spec, const char *text, int index)
{
    const options_entry *entry = positional(spec, index);
    if (!entry)
        return options_wrong(spec->program, "takes no further argument, but got \"%s\"; --help lists the arguments", text);
    return set_value(spec, entry, text);
}

int options_end(const options_spec *spec, int argc, char **argv)
{
    int at = 1;
    while (at < argc && argv[at][0] == '-' && strcmp(argv[at], "--") != 0) {
        const char *text = argv[at++];
        const options_entry *entry = strchr(text, '=') ? NULL : find_option(spec, text, strlen(text));
        if (entry && entry->kind != OPTIONS_FLAG && at < argc && strncmp(argv[at], "--", 2) != 0)
            at++;
        while (entry && entry->several && at < argc && argv[at][0] != '-')
            at++;
    }
    return at;
}

int options_parse(const options_spec *spec, int argc, char **argv)
{
    c_locale_begin();
    for (int i = 1; i < argc; i++)
        if (!strcmp(argv[i], "--help") || !strcmp(argv[i], "-h"))
            return print_help(spec);
    int taken = 0, status = -1;
    for (int at = 1; at < argc && status < 0;)
        status = argv[at][0] == '-' && argv[at][1] ? take_option(spec, argc, argv, &at)
                                    : take_positional(spec, argv[at++], taken++);
    if (status >= 0)
        return status;
    const options_entry *missing = positional(spec, taken);
    const bool has_some = missing && missing->several && ((const options_list *)missing->to)->count;
    if (missing && !missing->optional && !has_some)
        return options_wrong(spec->program, "needs %s; --help tells more", missing->name);
    return options_check_files(spec);
}
