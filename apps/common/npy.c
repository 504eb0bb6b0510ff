/* apps/common/npy.c: tensors as NumPy's .npy files.
 *
 * A header is a Python dictionary as text. Only what numpy writes of plain arrays is understood: three keys in any
 * order, a text, True or False, and a tuple of whole numbers; anything else is refused. A file must be exactly as long
 * as its header says. Names of tensors become paths, so names that would lead out of the folder are refused too.
 */
#define _GNU_SOURCE
#include "apps/common/npy.h"
#include "apps/common/paths.h"

#include <dirent.h>
#include "graph/base/reading.h"

#include <errno.h>
#include <fts.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define PATH_BYTES 4096

/* The first of each dtype is what is written. */
static const struct type {
    const char *text;
    weir_dtype dtype; /* that it is read as */
    bool wide;        /* of doubles, of which each is rounded */
} types[] = {{"<f4", WEIR_F32, false}, {"<i4", WEIR_I32, false}, {"|u1", WEIR_U8, false}, {"<f2", WEIR_F16, false},
             {"<i8", WEIR_I64, false}, {"|i1", WEIR_I8, false},  {"<f8", WEIR_F32, true},  {"|b1", WEIR_U8, false}};
enum { TYPES = sizeof types / sizeof *types, WIDE_BYTES = sizeof(double) };

/* ---- headers ---- */

struct header {
    weir_dtype dtype;
    bool wide;
    struct npy_header is;
};

static bool read_dictionary(FILE *file, char *text)
{
    unsigned char start[NPY_START_BYTES];
    const size_t first = NPY_MAGIC_BYTES + 4; /* up to the length of version 1 */
    size_t at, bytes;
    if (fread(start, 1, first, file) != first ||
        (start[NPY_MAGIC_BYTES] != 1 && fread(start + first, 1, sizeof start - first, file) != sizeof start - first) ||
        !npy_start(start, start[NPY_MAGIC_BYTES] == 1 ? first : sizeof start, &at, &bytes) ||
        fread(text, 1, bytes, file) != bytes)
        return false;
    text[bytes] = '\0';
    return strlen(text) == bytes;
}

/* Names the line of Python that makes a file that is read. */
static bool wrong_type(const char *path, const char *descr)
{
    const char *to = npy_converted(descr);
    if (!to)
        return tensors_failed("%s: is of type %s; <f4, <f2, <f8, <i4, <i8, |i1, |u1 and |b1 are read", path, descr);
    return tensors_failed("%s: is of type %s, which is not read; in Python, numpy.save(\"%s\", numpy.load(\"%s\").astype"
                          "(\"%s\")) converts it", path, descr, path, path, to);
}

static bool read_header(FILE *file, const char *path, struct header *h)
{
    static char text[NPY_TEXT_MAX + 1];
    if (!read_dictionary(file, text) || !npy_take_dictionary(text, &h->is))
        return tensors_failed("%s: is not an .npy file that is understood here", path);
    for (int i = 0; i < TYPES; i++)
        if (!strcmp(types[i].text, h->is.descr)) {
            h->dtype = types[i].dtype;
            h->wide = types[i].wide;
        }
    if (!h->dtype)
        return wrong_type(path, h->is.descr);
    if (h->is.fortran && h->is.rank > 1)
        return tensors_failed("%s: is in Fortran's order; in Python, numpy.save(\"%s\", numpy.ascontiguousarray(numpy.load"
                              "(\"%s\"))) converts it", path, path, path);
    return true;
}

/* Bytes of the values; -1: they cannot be counted. */
static int64_t count_bytes(const struct header *h)
{
    int64_t bytes = h->wide ? WIDE_BYTES : (int64_t)weir_dtype_bytes(h->dtype);
    for (int d = 0; d < h->is.rank; d++)
        if (__builtin_mul_overflow(bytes, h->is.dim[d], &bytes))
            return -1;
    return bytes;
}

/* Whether the file ends where its header says. */
static bool is_as_long(FILE *file, const struct header *h)
{
    struct stat stat_of;
    int64_t bytes = count_bytes(h);
    return bytes >= 0 && !fstat(fileno(file), &stat_of) && stat_of.st_size - ftell(file) == bytes;
}

/* ---- reading ---- */

/* f64 as f32, rounded to the nearest. False: a finite number becomes infinite. */
static bool narrow(const double *from, float *to, size_t count)
{
    bool fits = true;
    for (size_t i = 0; i < count; i++) {
        fits &= !isfinite(from[i]) || isfinite((float)from[i]);
        to[i] = (float)from[i];
    }
    return fits;
}

/* The next elements, as those of the dtype that the type is read as. False: errno; 0, the file ends; ERANGE, one does
 * not fit. */
static bool get_values(FILE *file, bool wide, weir_dtype dtype, void *to, size_t count)
{
    enum { PART = 512 };
    double part[PART];
    errno = 0;
    if (!wide)
        return fread(to, weir_dtype_bytes(dtype), count, file) == count;
    for (size_t at = 0, next; at < count; at += next) {
        next = count - at < PART ? count - at : PART;
        if (fread(part, WIDE_BYTES, next, file) != next)
            return false;
        if (!narrow(part, (float *)to + at, next)) {
            errno = ERANGE;
            return false;
        }
    }
    return true;
}

static bool read_values(struct tensors *t, FILE *file, const char *path, const char *name)
{
    struct header h = {.dtype = WEIR_DTYPE_NONE};
    weir_shape shape;
    if (!read_header(file, path, &h))
        return false;
    if (!is_as_long(file, &h))
        return tensors_failed("%s: tensor %s: the file is not as long as its header says", path, name);
    if (h.is.rank > WEIR_DIMS_MAX)
        return tensors_failed("%s: tensor %s: has more than %d dimensions", path, name, WEIR_DIMS_MAX);
    if (tensors_find(t, name))
        return tensors_failed("%s: tensor %s: is there twice", path, name);
    shape.rank = h.is.rank;
    memcpy(shape.dim, h.is.dim, sizeof shape.dim);
    struct tensor *to = tensors_add(t, name, h.dtype, &shape, 1);
    if (!to)
        return tensors_failed("%s: no memory for it", path);
    if (get_values(file, h.wide, h.dtype, to->value.data, (size_t)weir_shape_count(&shape)))
        return true;
    if (errno == ERANGE)
        return tensors_failed("%s: tensor %s: has a value of %s that %s cannot hold", path, name, h.is.descr,
                              weir_dtype_name(h.dtype));
    return tensors_failed("%s: cannot be read: %s", path, errno ? strerror(errno) : "it is cut short");
}

bool npy_read_file(struct tensors *t, const char *path, const char *name)
{
    const char *why;
    FILE *file = reading_file(path, &why);
    if (!file)
        return tensors_failed("%s: cannot be read: %s", path, why);
    bool ok = read_values(t, file, path, name);
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

/* The header, padded so that the values are aligned to 64 bytes, and to `least` bytes; returns how many it has. */
static long put_header(FILE *to, weir_dtype dtype, int rank, const int64_t *dim, long least)
{
    char text[256];
    int type = 0;
    while (type < TYPES && types[type].dtype != dtype)
        type++;
    type = type < TYPES ? type : 0; /* bf16 is written as f32 */
    int length = snprintf(text, sizeof text, "{'descr': '%s', 'fortran_order': False, 'shape': (",
                          types[type].text);
    for (int d = 0; d < rank; d++)
        length += snprintf(text + length, sizeof text - (size_t)length, "%lld, ", (long long)dim[d]);
    length += snprintf(text + length, sizeof text - (size_t)length, "), }");
    long bytes = (NPY_MAGIC_BYTES + 4 + length + 1 + 63) / 64 * 64;
    bytes = bytes < least ? least : bytes;
    int padded = (int)bytes - NPY_MAGIC_BYTES - 4;
    fwrite(NPY_MAGIC "\1", 1, NPY_MAGIC_BYTES + 2, to); /* version 1, 0 */
    fputc(padded & 255, to);
    fputc(padded >> 8, to);
    fprintf(to, "%-*s\n", padded - 1, text);
    return bytes;
}

/* bf16, which NumPy does not have, as f32. */
static bool put_bf16(FILE *to, const uint16_t *value, size_t count)
{
    bool ok = true;
    for (size_t i = 0; i < count && ok; i++) {
        float f32;
        weir_to_f32(WEIR_BF16, value + i, 1, &f32);
        ok = fwrite(&f32, sizeof f32, 1, to) == 1;
    }
    return ok;
}

static bool put_values(FILE *to, weir_dtype dtype, const void *value, size_t count)
{
    size_t bytes = weir_dtype_bytes(dtype);
    return dtype == WEIR_BF16 ? put_bf16(to, value, count) : fwrite(value, bytes, count, to) == count;
}

/* Several slots become a first dimension. */
static bool put_tensor(FILE *to, const struct tensor *t)
{
    int64_t dim[NPY_DIMS_MAX] = {t->slots};
    int first = t->slots > 1, rank = t->value.shape.rank;
    memcpy(dim + first, t->value.shape.dim, sizeof t->value.shape.dim);
    put_header(to, t->value.dtype, first + rank, dim, 0);
    return put_values(to, t->value.dtype, t->value.data, tensor_bytes(t) / weir_dtype_bytes(t->value.dtype));
}

static bool write_one(const struct tensor *t, const char *folder)
{
    char path[PATH_BYTES];
    int length = snprintf(path, sizeof path, "%s/%s.npy", folder, t->name);
    if (!stays_inside(t->name) || length >= (int)sizeof path)
        return tensors_failed("tensor %s: its name cannot be that of a file in %s", t->name, folder);
    FILE *file = paths_make_above(path) ? fopen(path, "wb") : NULL;
    if (!file)
        return tensors_failed("%s: cannot be written: %s", path, strerror(errno));
    bool ok = put_tensor(file, t);
    ok = fclose(file) == 0 && ok;
    return ok || tensors_failed("%s: cannot be written: %s", path, strerror(errno));
}

bool npy_may_write(const char *path)
{
    struct dirent *entry = NULL;
    DIR *folder = opendir(path);
    if (!folder)
        return errno == ENOENT || tensors_failed("%s: is in the way: %s", path, strerror(errno));
    do
        entry = readdir(folder);
    while (entry && (!strcmp(entry->d_name, ".") || !strcmp(entry->d_name, "..")));
    if (entry)
        tensors_failed("%s: is in the way, and has %s in it; .npy files are written into a new or an empty folder", path,
                       entry->d_name);
    closedir(folder);
    return !entry;
}

bool npy_write_folder(const struct tensors *t, const char *path)
{
    bool ok = npy_may_write(path);
    for (int i = 0; i < t->count && ok; i++)
        ok = write_one(&t->item[i], path);
    return ok;
}

/* ---- values one behind the other ---- */

static bool stream_failed(struct npy *npy)
{
    npy_close(npy);
    return false;
}

static bool is_file(FILE *file)
{
    struct stat stat_of;
    return !fstat(fileno(file), &stat_of) && S_ISREG(stat_of.st_mode);
}

bool npy_open(struct npy *npy, const char *path)
{
    struct header h = {.dtype = WEIR_DTYPE_NONE};
    const char *why = NULL;
    *npy = (struct npy){.file = strcmp(path, "-") ? reading_stream(path, &why) : stdin};
    npy->path = path = npy->file == stdin ? "standard input" : path;
    if (!npy->file)
        return tensors_failed("%s: cannot be read: %s", path, why);
    if (!read_header(npy->file, path, &h))
        return stream_failed(npy);
    if (count_bytes(&h) < 0 || (is_file(npy->file) && !is_as_long(npy->file, &h))) {
        tensors_failed("%s: the file is not as long as its header says", path);
        return stream_failed(npy);
    }
    npy->dtype = h.dtype;
    npy->wide = h.wide;
    npy->rank = h.is.rank;
    npy->header_bytes = ftell(npy->file);
    memcpy(npy->dim, h.is.dim, sizeof h.is.dim);
    return true;
}

bool npy_seek(struct npy *npy, int64_t element)
{
    const size_t bytes = npy->wide ? WIDE_BYTES : weir_dtype_bytes(npy->dtype);
    return !fseeko(npy->file, npy->header_bytes + (off_t)(element * (int64_t)bytes), SEEK_SET);
}

bool npy_gives(const struct npy *npy, weir_dtype dtype)
{
    return npy->dtype == dtype || (npy->dtype == WEIR_F32 && weir_dtype_real(dtype)) ||
           (npy->dtype == WEIR_I64 && dtype == WEIR_I32);
}

/* i64 as i32. False: as get_values(). */
static bool get_i32(struct npy *npy, int32_t *to, size_t count)
{
    size_t got = 0;
    for (int64_t i64; got < count && get_values(npy->file, false, WEIR_I64, &i64, 1); got++) {
        if (i64 < INT32_MIN || i64 > INT32_MAX)
            return errno = ERANGE, false;
        to[got] = (int32_t)i64;
    }
    return got == count;
}

bool npy_get(struct npy *npy, weir_dtype dtype, void *to, size_t count)
{
    size_t got = 0;
    if (dtype == npy->dtype)
        return get_values(npy->file, npy->wide, dtype, to, count);
    if (dtype == WEIR_I32)
        return get_i32(npy, to, count);
    for (float f32; got < count && get_values(npy->file, npy->wide, npy->dtype, &f32, 1); got++)
        weir_from_f32(&f32, 1, dtype, (uint16_t *)to + got);
    return got == count;
}

bool npy_create(struct npy *npy, const char *path, weir_dtype dtype, const weir_shape *shape, int64_t count)
{
    *npy = (struct npy){.file = strcmp(path, "-") ? fopen(path, "wb") : stdout, .dtype = dtype};
    npy->path = path = npy->file == stdout ? "standard output" : path;
    if (!npy->file)
        return tensors_failed("%s: cannot be written: %s", path, strerror(errno));
    npy->rank = shape->rank + 1;
    npy->dim[0] = count;
    memcpy(npy->dim + 1, shape->dim, sizeof shape->dim);
    npy->header_bytes = put_header(npy->file, dtype, npy->rank, npy->dim, 0);
    return true;
}

bool npy_put(struct npy *npy, const void *value, size_t count)
{
    return put_values(npy->file, npy->dtype, value, count);
}

/* The header again, where that can be: with fewer values it is no longer. */
bool npy_finish(struct npy *npy, int64_t count)
{
    if (!npy->file)
        return true;
    if (count != npy->dim[0] && is_file(npy->file) && !fseek(npy->file, 0, SEEK_SET)) {
        npy->dim[0] = count;
        put_header(npy->file, npy->dtype, npy->rank, npy->dim, npy->header_bytes);
    }
    bool ok = npy->file == stdout || (fflush(npy->file) == 0 && !ferror(npy->file));
    if (!ok)
        tensors_failed("%s: cannot be written: %s", npy->path, strerror(errno));
    npy_close(npy);
    return ok;
}

void npy_close(struct npy *npy)
{
    if (npy->file && npy->file != stdin && npy->file != stdout)
        fclose(npy->file);
    npy->file = NULL;
}
