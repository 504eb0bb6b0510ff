/* graph/base/names.h: a name that nothing has, and those that there are: for errors. The nearest come first, and no more
 * than fit into a sentence.
 *
 *     struct names names = {.wanted = "lss"};
 *     for (...)
 *         names_add(&names, name_of(i));
 *     error_set(WEIR_E_ARGUMENT, "there is no '%s'%s", "lss", names_text(&names, text, sizeof text));
 *
 * says "there is no 'lss'; did you mean 'loss'? There are 'loss', 'lr', 'x' and 12 more". Borrows the names until the text
 * is made. A name that is added again counts once while it is shown, or when it comes right behind itself. Inline, so that
 * programs have it too: they see nothing but weir_* of the library. Pure but for the structure; any thread. */
#ifndef GRAPH_BASE_NAMES_H
#define GRAPH_BASE_NAMES_H

#include "graph/base/locale.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#define NAMES_NEAR 10        /* names that are shown at most */
#define NAMES_TEXT_BYTES 400 /* a text of them that fits into an error beside what else it says */
#define NAMES_LETTERS 128    /* of a name that count for its distance */

struct names {
    const char *wanted;           /* NULL: as "" */
    const char *near[NAMES_NEAR]; /* nearest first; of those as near, the first one that was added */
    int distance[NAMES_NEAR];
    int kept;                     /* of `near` */
    size_t count;                 /* names added */
    const char *last;             /* the last of them */
};

/* How many letters have to be changed, added, taken away or swapped with the next to make `a` of `b` (optimal string
 * alignment). Capitals are no difference. */
static inline int names_distance(const char *a, const char *b)
{
    int rows[3][NAMES_LETTERS + 1], *before = rows[0], *last = rows[1], *row = rows[2];
    const int length = (int)strnlen(b, NAMES_LETTERS);
    for (int j = 0; j <= length; j++)
        last[j] = j;
    for (int i = 0; i < NAMES_LETTERS && a[i]; i++) {
        row[0] = i + 1;
        for (int j = 0; j < length; j++) {
            const char x = to_lower(a[i]), y = to_lower(b[j]);
            int least = last[j] + (x != y);
            least = last[j + 1] + 1 < least ? last[j + 1] + 1 : least;
            least = row[j] + 1 < least ? row[j] + 1 : least;
            if (i && j && x == to_lower(b[j - 1]) && y == to_lower(a[i - 1]) &&
                before[j - 1] + 1 < least)
                least = before[j - 1] + 1;
            row[j + 1] = least;
        }
        int *const oldest = before;
        before = last, last = row, row = oldest;
    }
    return last[length];
}

/* The same, but a name with the other as a part of it is near: "weight" and "h0/up/weight". */
static inline int names_far(const char *wanted, const char *name)
{
    const int distance = names_distance(wanted, name);
    const bool part = strlen(wanted) > 1 && *name && (strstr(name, wanted) || (name[1] && strstr(wanted, name)));
    return part && distance > 2 ? 2 : distance;
}

static inline void names_add(struct names *names, const char *name)
{
    const int distance = names_far(names->wanted ? names->wanted : "", name);
    int at = names->kept;
    for (int i = 0; i < names->kept; i++)
        if (!strcmp(names->near[i], name))
            return;
    if (names->last && !strcmp(names->last, name))
        return;
    names->last = name;
    names->count++;
    while (at > 0 && names->distance[at - 1] > distance)
        at--;
    if (at == NAMES_NEAR)
        return;
    names->kept += names->kept < NAMES_NEAR;
    for (int i = names->kept - 1; i > at; i--) {
        names->near[i] = names->near[i - 1];
        names->distance[i] = names->distance[i - 1];
    }
    names->near[at] = name;
    names->distance[at] = distance;
}

/* The name that was most likely meant; NULL: none is near enough. */
static inline const char *names_meant(const struct names *names)
{
    const size_t letters = names->wanted ? strlen(names->wanted) : 0;
    const int most = letters < 2 ? 0 : letters < 4 ? 1 : letters < 6 ? 2 : 3;
    return names->kept && letters && names->distance[0] <= most ? names->near[0] : NULL;
}

/* "'loss', 'lr' and 12 more"; "none". A name that does not fit is among those that are only counted. */
static inline const char *names_list(const struct names *names, char *list, size_t bytes)
{
    const size_t tail = sizeof " and 18446744073709551615 more";
    size_t used = 0, shown = 0;
    for (bool fits = true; shown < (size_t)names->kept && fits; shown += fits) {
        const char *name = names->near[shown];
        const size_t wanted = name ? strlen(name) + 4 : bytes;
        fits = used + wanted + tail <= bytes;
        if (fits)
            used += (size_t)snprintf(list + used, bytes - used, "%s'%s'",
                                     !shown ? "" : shown + 1 == names->count ? " and " : ", ", name);
    }
    if (shown < names->count)
        snprintf(list + used, bytes - used, shown ? " and %zu more" : "%zu with longer names", names->count - shown);
    else if (!names->count)
        snprintf(list, bytes, "none");
    return list;
}

/* "; did you mean 'loss'? There are 'loss', 'lr' and 12 more": goes on from a sentence that says what there is not. */
static inline const char *names_text(const struct names *names, char *list, size_t bytes)
{
    const char *meant = names_meant(names);
    size_t used = 0;
    if (meant && names->count > 1 && strlen(meant) + 64 < bytes)
        used = (size_t)snprintf(list, bytes, "; did you mean '%s'? There are ", meant);
    else
        used = (size_t)snprintf(list, bytes, names->count == 1 ? "; there is " : names->count ? "; there are " : "; there is ");
    names_list(names, list + used, bytes - used);
    return list;
}

/* For an error about another dtype. */
#define DTYPES_TEXT "WEIR_F32, WEIR_I32, WEIR_U8, WEIR_F16, WEIR_BF16, WEIR_I64 and WEIR_I8"

/* "; did you mean 'relu'? There are 'relu', ... and 60 more": the ops that are known, for an error about `name`, which none
 * has. Returns `text`, of NAMES_TEXT_BYTES at least. It is where the ops are, as weir_op_find() (kernels/table/registry.c). */
const char *op_near(const char *name, char *text, size_t bytes);

#endif
