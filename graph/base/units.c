/* graph/base/units.c: see the header. */
#include "graph/base/units.h"

#include <stddef.h>
#include <string.h>

typedef struct unit {
    const char *name;
    double factor;
} unit;

bool number_take(const char **text, double *value)
{
    const char *at = *text;
    double place = 1;
    for (*value = 0; *at >= '0' && *at <= '9'; at++)
        *value = 10 * *value + (*at - '0');
    bool ok = at != *text;
    if (ok && *at == '.')
        for (ok = at[1] >= '0' && at[1] <= '9', at++; *at >= '0' && *at <= '9'; at++)
            *value += (place /= 10) * (*at - '0');
    *text = at;
    return ok;
}

static bool unit_take(const char **text, const unit *units, double *value)
{
    for (; units->name; units++) {
        size_t length = strlen(units->name);
        if (strncmp(*text, units->name, length) || ((*text)[length] && (*text)[length] != ' '))
            continue;
        *text += length;
        *value *= units->factor;
        return true;
    }
    return false;
}

bool rate_take(const char **text, double *bits_s)
{
    static const unit rates[] = {{"bit", 1}, {"kbit", 1e3}, {"Kbit", 1e3}, {"mbit", 1e6}, {"Mbit", 1e6},
                                 {"gbit", 1e9}, {"Gbit", 1e9}, {"tbit", 1e12}, {"Tbit", 1e12}, {NULL, 0}};
    return number_take(text, bits_s) && unit_take(text, rates, bits_s);
}

bool time_take(const char **text, double *seconds)
{
    static const unit times[] = {{"s", 1}, {"ms", 1e-3}, {"us", 1e-6}, {NULL, 0}};
    return number_take(text, seconds) && unit_take(text, times, seconds);
}
