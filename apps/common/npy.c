/* apps/common/npy.c: tensors as NumPy's .npy files.
 *
 * A header is a Python dictionary as text. Only what numpy writes of plain arrays is understood: three keys in any
 * order, a text, True or False, and a tuple of whole numbers; anything else is refused. A file must be exactly as long
 * as its header says. Names of tensors become paths, so names that would lead out of the folder are refused too.
 */
#define _GNU_SOURCE
#include "apps/common/npy.h"

#include <errno.h>
#include <fts.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define MAGIC "\x93NUMPY"
#define MAGIC_BYTES 6
#define HEADER_MAX 65535 /* bytes of the dictionary */
#define PATH_BYTES 4096

static const struct type {
    const char *text;
    weir_dtype dtype;
} types[] = {{"<f4", WEIR_F32}, {"<i4", WEIR_I32}, {"|u1", WEIR_U8}, {"<f2", WEIR_F16}};
enum { TYPES = sizeof types / sizeof *types };

/* ---- headers ---- */

struct header {
    weir_dtype dtype;
    char descr[32];
    bool fortran;
    weir_shape shape;
};

static const char *skip(const char *at, const char *set)
{
    return at + strspn(at, set);
}

/* "(3, 4, )": what follows it, or NULL. */
static const char *take_tuple(const char *at, weir_shape *shape)
{
    char *end;
    if (*at++ != '(')
        return NULL;
    for (shape->rank = 0; *(at = skip(at, " ,")) != ')'; at = end) {
        if (shape->rank == WEIR_DIMS_MAX || *at < '0' || *at > '9')
            return NULL;
        errno = 0;
        shape->dim[shape->rank++] = strtoll(at, &end, 10);
        if (errno)
            return NULL;
    }
    return at + 1;
}

static const char *take_word(const char *at, const char *word)
{
    size_t length = strlen(word);
    return !strncmp(at, word, length) ? at + length : NULL;
}

/* "'<f4'" */
static const char *take_text(const char *at, char *to, size_t bytes)
{
    const char *end = *at == '\'' || *at == '"' ? strchr(at + 1, *at) : NULL;
    if (!end || (size_t)(end - at) > bytes)
        return NULL;
    snprintf(to, bytes, "%.*s", (int)(end - at - 1), at + 1);
    return end + 1;
}

static const char *take_value(const char *key, const char *at, struct header *h)
{
    if (!strcmp(key, "descr"))
        return take_text(at, h->descr, sizeof h->descr);
    if (!strcmp(key, "shape"))
        return take_tuple(at, &h->shape);
    if (strcmp(key, "fortran_order") != 0)
        return NULL;
    h->fortran = *at == 'T';
    return take_word(at, h->fortran ? "True" : "False");
}

/* Whether all of the text is understood, each of the three keys once. */
static bool take_dictionary(const char *at, struct header *h)
{
    char key[32];
    int keys = 0;
    if (*at++ != '{')
        return false;
    for (; *(at = skip(at, " ,")) != '}'; keys++) {
        if (!(at = take_text(at, key, sizeof key)))
            return false;
        at = skip(at, " :");
        if (!(at = take_value(key, at, h)))
            return false;
    }
    return keys == 3 && h->descr[0] && !*skip(at + 1, " \n");
}

static bool read_dictionary(FILE *file, char *text)
{
    unsigned char start[MAGIC_BYTES + 2], length[4] = {0};
    if (fread(start, 1, sizeof start, file) != sizeof start || memcmp(start, MAGIC, MAGIC_BYTES) != 0)
        return false;
    size_t bytes = start[MAGIC_BYTES] == 1 ? 2 : 4;
    if (start[MAGIC_BYTES] < 1 || start[MAGIC_BYTES] > 3 || fread(length, 1, bytes, file) != bytes)
        return false;
    uint32_t count = length[0] | (uint32_t)length[1] << 8 | (uint32_t)length[2] << 16 | (uint32_t)length[3] << 24;
    if (count > HEADER_MAX || fread(text, 1, count, file) != count)
        return false;
    text[count] = '\0';
    return strlen(text) == count;
}

static bool read_header(FILE *file, const char *path, struct header *h)
{
    static char text[HEADER_MAX + 1];
    if (!read_dictionary(file, text) || !take_dictionary(text, h))
        return tensors_failed("%s: is not an .npy file that is understood here", path);
    for (int i = 0; i < TYPES; i++)
        if (!strcmp(types[i].text, h->descr))
            h->dtype = types[i].dtype;
    if (!h->dtype)
        return tensors_failed("%s: is of type %s; <f4, <i4 and |u1 are read", path, h->descr);
    if (h->fortran && h->shape.rank > 1)
        return tensors_failed("%s: is in Fortran's order; save numpy.ascontiguousarray() of it", path);
    return true;
}

/* Bytes of the values; -1: they cannot be counted. */
static int64_t count_bytes(const struct header *h)
{
    int64_t bytes = (int64_t)weir_dtype_bytes(h->dtype);
    for (int d = 0; d < h->shape.rank; d++)
        if (__builtin_mul_overflow(bytes, h->shape.dim[d], &bytes))
            return -1;
    return bytes;
}

/* ---- reading ---- */

static bool read_values(struct tensors *t, FILE *file, const char *path, const char *name)
{
    struct header h = {.dtype = WEIR_DTYPE_NONE};
    struct stat stat_of;
    if (!read_header(file, path, &h))
        return false;
    int64_t bytes = count_bytes(&h);
    if (fstat(fileno(file), &stat_of) || bytes < 0 || stat_of.st_size - ftell(file) != bytes)
        return tensors_failed("%s: tensor %s: the file is not as long as its header says", path, name);
    if (tensors_find(t, name))
        return tensors_failed("%s: tensor %s: is there twice", path, name);
    struct tensor *to = tensors_add(t, name, h.dtype, &h.shape, 1);
    if (!to)
        return tensors_failed("%s: no memory for it", path);
    if (fread(to->value.data, 1, (size_t)bytes, file) != (size_t)bytes)
        return tensors_failed("%s: cannot be read: %s", path, strerror(errno));
    return true;
}

bool npy_read_file(struct tensors *t, const char *path, const char *name)
{
    FILE *file = fopen(path, "rb");
    bool ok = file ? read_values(t, file, path, name) : tensors_failed("%s: cannot be read: %s", path, strerror(errno));
    if (file)
        fclose(file);
    return ok;
}

/* Without the ".npy" of the name. */
static bool read_entry(struct tensors *t, const char *path, const char *name)
{
    char *copy = strndup(name, strlen(name) - 4);
    bool ok = copy ? npy_read_file(t, path, copy) : tensors_failed("%s: no memory for it", path);
    free(copy);
    return ok;
}

static int by_name(const FTSENT **a, const FTSENT **b)
{
    return strcmp((*a)->fts_name, (*b)->fts_name);
}

/* Calls read_entry() for every .npy file; `t` NULL: ends at the first. Their number, or -1 when one cannot be read. */
static int walk_files(struct tensors *t, const char *path)
{
    int count = 0;
    char *const roots[] = {(char *)path, NULL};
    FTS *walk = fts_open(roots, FTS_PHYSICAL | FTS_NOCHDIR, by_name);
    for (FTSENT *entry; count >= 0 && (t || !count) && walk && (entry = fts_read(walk));) {
        size_t length = strlen(entry->fts_path), root = strlen(path);
        if (entry->fts_info != FTS_F || length <= root + 5 || strcmp(entry->fts_path + length - 4, ".npy") != 0)
            continue;
        const char *name = entry->fts_path + root + strspn(entry->fts_path + root, "/");
        count = !t || read_entry(t, entry->fts_path, name) ? count + 1 : -1;
    }
    if (walk)
        fts_close(walk);
    return count;
}

bool npy_is_folder(const char *path)
{
    return walk_files(NULL, path) > 0;
}

bool npy_read_folder(struct tensors *t, const char *path)
{
    int count = walk_files(t, path);
    return count > 0 || (!count && tensors_failed("%s: there are no .npy files in it", path));
}

/* ---- writing ---- */

/* Every part of the name is the name of a file within a folder. */
static bool stays_inside(const char *name)
{
    for (const char *part = name; part; part = strchr(part, '/') ? strchr(part, '/') + 1 : NULL) {
        size_t length = strcspn(part, "/");
        if (!length || (length == 1 && part[0] == '.') || (length == 2 && !strncmp(part, "..", 2)))
            return false;
    }
    return true;
}

static bool make_folders(char *path)
{
    for (char *slash = strchr(path + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        bool ok = mkdir(path, 0777) == 0 || errno == EEXIST;
        *slash = '/';
        if (!ok)
            return false;
    }
    return true;
}

/* The header, padded so that the values are aligned to 64 bytes. */
static void put_header(FILE *to, const struct tensor *t)
{
    char text[256];
    int type = TYPES - 1;
    while (type && types[type].dtype != t->value.dtype)
        type--; /* bf16 is written as f32 */
    int length = snprintf(text, sizeof text, "{'descr': '%s', 'fortran_order': False, 'shape': (",
                          types[type].text);
    if (t->slots > 1)
        length += snprintf(text + length, sizeof text - (size_t)length, "%d, ", t->slots);
    for (int d = 0; d < t->value.shape.rank; d++)
        length += snprintf(text + length, sizeof text - (size_t)length, "%lld, ", (long long)t->value.shape.dim[d]);
    length += snprintf(text + length, sizeof text - (size_t)length, "), }");
    int padded = (MAGIC_BYTES + 4 + length + 1 + 63) / 64 * 64 - MAGIC_BYTES - 4;
    fwrite(MAGIC "\1", 1, MAGIC_BYTES + 2, to); /* version 1, 0 */
    fputc(padded & 255, to);
    fputc(padded >> 8, to);
    fprintf(to, "%-*s\n", padded - 1, text);
}

/* bf16, which NumPy does not have, as f32. */
static bool put_bf16(FILE *to, const struct tensor *t)
{
    const uint16_t *value = t->value.data;
    bool ok = true;
    for (size_t i = 0; i < tensor_bytes(t) / sizeof *value && ok; i++) {
        float f32;
        weir_to_f32(WEIR_BF16, value + i, 1, &f32);
        ok = fwrite(&f32, sizeof f32, 1, to) == 1;
    }
    return ok;
}

static bool put_values(FILE *to, const struct tensor *t)
{
    return t->value.dtype == WEIR_BF16 ? put_bf16(to, t)
                                       : fwrite(t->value.data, 1, tensor_bytes(t), to) == tensor_bytes(t);
}

static bool write_one(const struct tensor *t, const char *folder)
{
    char path[PATH_BYTES];
    int length = snprintf(path, sizeof path, "%s/%s.npy", folder, t->name);
    if (!stays_inside(t->name) || length >= (int)sizeof path)
        return tensors_failed("tensor %s: its name cannot be that of a file in %s", t->name, folder);
    FILE *file = make_folders(path) ? fopen(path, "wb") : NULL;
    if (!file)
        return tensors_failed("%s: cannot be written: %s", path, strerror(errno));
    put_header(file, t);
    bool ok = put_values(file, t);
    ok = fclose(file) == 0 && ok;
    return ok || tensors_failed("%s: cannot be written: %s", path, strerror(errno));
}

bool npy_write_folder(const struct tensors *t, const char *path)
{
    bool ok = true;
    for (int i = 0; i < t->count && ok; i++)
        ok = write_one(&t->item[i], path);
    return ok;
}
