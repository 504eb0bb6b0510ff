/* graph/base/npy.h: the header of NumPy's .npy files
 * (https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html).
 *
 *     "\x93NUMPY" | version, 2 bytes | length, 2 or 4 bytes | {'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), } | values
 *
 * The middle is a Python dictionary as text. Only the one that numpy writes of plain arrays is understood: three keys in any
 * order, a text, True or False, and a tuple of whole numbers; anything else is refused.
 *
 * Header-only, because programs use it too. Pure functions of untrusted bytes; any thread.
 */
#ifndef GRAPH_BASE_NPY_H
#define GRAPH_BASE_NPY_H

#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <weir/base.h>

#define NPY_MAGIC "\x93NUMPY"
enum {
    NPY_MAGIC_BYTES = 6,
    NPY_START_BYTES = 12,         /* magic, version and the longest length */
    NPY_TEXT_MAX = 65535,         /* bytes of the dictionary */
    NPY_DIMS_MAX = WEIR_DIMS_MAX + 1
};

struct npy_header {
    char descr[32]; /* "<f4" */
    bool fortran;
    int rank;
    int64_t dim[NPY_DIMS_MAX];
};

/* Where the dictionary begins and how many bytes it has, from the first bytes of the file. False: it is no .npy file. */
static inline bool npy_start(const unsigned char *start, size_t count, size_t *text_at, size_t *text_bytes)
{
    if (count < NPY_MAGIC_BYTES + 2 || memcmp(start, NPY_MAGIC, NPY_MAGIC_BYTES) != 0)
        return false;
    const unsigned char version = start[NPY_MAGIC_BYTES], *length = start + NPY_MAGIC_BYTES + 2;
    const size_t bytes = version == 1 ? 2 : 4;
    *text_at = NPY_MAGIC_BYTES + 2 + bytes;
    if (version < 1 || version > 3 || count < *text_at)
        return false;
    *text_bytes = 0;
    for (size_t i = bytes; i-- > 0;)
        *text_bytes = *text_bytes << 8 | length[i];
    return *text_bytes <= NPY_TEXT_MAX;
}

static inline const char *npy_skip(const char *at, const char *set)
{
    return at + strspn(at, set);
}

/* "(3, 4, )": what follows it, or NULL. */
static inline const char *npy_take_tuple(const char *at, struct npy_header *h)
{
    char *end;
    if (*at++ != '(')
        return NULL;
    for (h->rank = 0; *(at = npy_skip(at, " ,")) != ')'; at = end) {
        if (h->rank == NPY_DIMS_MAX || *at < '0' || *at > '9')
            return NULL;
        errno = 0;
        h->dim[h->rank++] = strtoll(at, &end, 10);
        if (errno)
            return NULL;
    }
    return at + 1;
}

static inline const char *npy_take_word(const char *at, const char *word)
{
    size_t length = strlen(word);
    return !strncmp(at, word, length) ? at + length : NULL;
}

/* "'<f4'" */
static inline const char *npy_take_text(const char *at, char *to, size_t bytes)
{
    const char *end = *at == '\'' || *at == '"' ? strchr(at + 1, *at) : NULL;
    if (!end || (size_t)(end - at) > bytes)
        return NULL;
    snprintf(to, bytes, "%.*s", (int)(end - at - 1), at + 1);
    return end + 1;
}

static inline const char *npy_take_value(const char *key, const char *at, struct npy_header *h)
{
    if (!strcmp(key, "descr"))
        return npy_take_text(at, h->descr, sizeof h->descr);
    if (!strcmp(key, "shape"))
        return npy_take_tuple(at, h);
    if (strcmp(key, "fortran_order") != 0)
        return NULL;
    h->fortran = *at == 'T';
    return npy_take_word(at, h->fortran ? "True" : "False");
}

/* Whether all of the text, which ends with a 0, is understood, each of the three keys once. */
static inline bool npy_take_dictionary(const char *at, struct npy_header *h)
{
    char key[32];
    int keys = 0;
    *h = (struct npy_header){.rank = 0};
    if (*at++ != '{')
        return false;
    for (; *(at = npy_skip(at, " ,")) != '}'; keys++) {
        if (!(at = npy_take_text(at, key, sizeof key)))
            return false;
        at = npy_skip(at, " :");
        if (!(at = npy_take_value(key, at, h)))
            return false;
    }
    return keys == 3 && h->descr[0] && !*npy_skip(at + 1, " \n");
}

/* A type that weir reads and that NumPy converts this one to without a loss: the wide ones, whose values are checked when they
 * are read. NULL: there is none. */
static inline const char *npy_converted(const char *descr)
{
    char kind = descr[0] && strchr("<>=|", descr[0]) ? descr[1] : '\0';
    return kind == 'f' ? "<f8" : kind == 'i' || kind == 'u' ? "<i8" : NULL;
}

#endif
