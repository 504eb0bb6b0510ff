/* graph/data/file.c: see the header. Values that weir stores in the same bits are read where they are wanted; the others go
 * through a part of the stack, as i64 or f64, so that each type is known in one function. */
#include "graph/data/file.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "graph/base/base.h"
#include "graph/base/error.h"
#include "graph/base/npy.h"
#include "graph/base/reading.h"

enum { PART = 1024, WIDEST = 8, LLMC_HEADER = 1024, HASHED_BYTES = 64 };

struct data_type {
    const char *descr;  /* NumPy's word for it */
    int bytes;
    weir_dtype dtype;   /* in which it is read */
    bool same;          /* the bits are the same there */
};

enum { U16, U32, I32, U8, I8, I16, I64, U64, B1, F32, F16, F64, TYPES };
static const struct data_type types[TYPES] = {
    [U16] = {"<u2", 2, WEIR_I32, false}, [U32] = {"<u4", 4, WEIR_I64, false}, [I32] = {"<i4", 4, WEIR_I32, true},
    [U8] = {"|u1", 1, WEIR_U8, true},    [I8] = {"|i1", 1, WEIR_I8, true},    [I16] = {"<i2", 2, WEIR_I32, false},
    [I64] = {"<i8", 8, WEIR_I64, true},  [U64] = {"<u8", 8, WEIR_I64, false}, [B1] = {"|b1", 1, WEIR_U8, true},
    [F32] = {"<f4", 4, WEIR_F32, true},  [F16] = {"<f2", 2, WEIR_F16, true},  [F64] = {"<f8", 8, WEIR_F32, false}};

static bool is_integer(const struct data_type *type)
{
    return type < &types[B1];
}

/* ---- bytes ---- */

/* E_IO: there are fewer. `fd` is the file's. */
static weir_status read_bytes(const struct data_file *file, int fd, int64_t at, size_t count, void *to)
{
    for (size_t done = 0; done < count;) {
        const ssize_t got = pread(fd, (char *)to + done, count - done, (off_t)at + (off_t)done);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            return error_set(WEIR_E_IO, "%s: cannot be read at byte %" PRId64 ": %s", file->path, at + (int64_t)done,
                             got ? strerror(errno) : "the file ends there, and was longer when it was opened");
        done += (size_t)got;
    }
    return WEIR_OK;
}

/* The descriptor to read from, which file_done() takes back. -1: weir_error(). */
static int file_begin(const struct data_file *file)
{
    const char *why = NULL;
    const int fd = file->fd >= 0 ? file->fd : reading_open(file->path, &why);
    if (fd < 0)
        error_set(WEIR_E_IO, "%s: cannot be read: %s", file->path, why);
    return fd;
}

static void file_done(const struct data_file *file, int fd)
{
    if (fd != file->fd)
        close(fd);
}

static weir_status read_elements(const struct data_file *file, int fd, int64_t at, size_t count, void *to)
{
    const int64_t bytes = file->type->bytes;
    return read_bytes(file, fd, file->start + at * bytes, count * (size_t)bytes, to);
}

/* ---- headers ---- */

/* Whether so many elements end where the file ends. `size` is the file's. */
static weir_status check_size(const struct data_file *file, int64_t size)
{
    int64_t bytes;
    if (!__builtin_mul_overflow(file->elements, (int64_t)file->type->bytes, &bytes) && bytes == size - file->start)
        return WEIR_OK;
    return error_set(WEIR_E_IO, "%s: has %" PRId64 " bytes after its header, which says %" PRId64 " elements of %d bytes",
                     file->path, size - file->start, file->elements, file->type->bytes);
}

/* llm.c's header, of which `magic` and `version` are the first two words. */
static weir_status open_llmc(struct data_file *file, int64_t size, const int32_t *word)
{
    const int32_t version = word[0] == 20240520 ? 1 : 7;
    if (size < LLMC_HEADER)
        return error_set(WEIR_E_IO, "%s: begins as a token file of llm.c, but has %" PRId64 " bytes; its header alone has %d", file->path,
                         size, LLMC_HEADER);
    if (word[1] != version)
        return error_set(WEIR_E_UNSUPPORTED, "%s: a token file of llm.c of version %d; with the number %d it must have version %d",
                         file->path, word[1], word[0], version);
    file->type = &types[word[0] == 20240520 ? U16 : U32];
    file->start = LLMC_HEADER;
    file->elements = word[2];
    return check_size(file, size);
}

static weir_status open_raw(struct data_file *file, int64_t size)
{
    file->type = &types[U16];
    file->elements = size / 2;
    if (size % 2)
        return error_set(WEIR_E_IO, "%s: has %" PRId64 " bytes, an odd number; a file of u16 tokens has two bytes for each", file->path,
                         size);
    return WEIR_OK;
}

static weir_status npy_type(struct data_file *file, const struct npy_header *h)
{
    for (int t = 0; t < TYPES; t++)
        if (!strcmp(types[t].descr, h->descr))
            file->type = &types[t];
    const char *to = npy_converted(h->descr);
    if (!file->type && to)
        return error_set(WEIR_E_UNSUPPORTED, "%s: is of type %s, which is not read; in Python, numpy.save(\"%s\", numpy.load(\"%s\")"
                         ".astype(\"%s\")) converts it", file->path, h->descr, file->path, file->path, to);
    if (!file->type)
        return error_set(WEIR_E_UNSUPPORTED, "%s: is of type %s; whole numbers, reals and bool are read", file->path, h->descr);
    if (h->fortran && h->rank > 1)
        return error_set(WEIR_E_UNSUPPORTED, "%s: is in Fortran's order; in Python, numpy.save(\"%s\", numpy.ascontiguousarray(numpy.load"
                         "(\"%s\"))) converts it", file->path, file->path, file->path);
    return WEIR_OK;
}

static weir_status npy_shape(struct data_file *file, const struct npy_header *h)
{
    if (h->rank < 1 || h->rank > WEIR_DIMS_MAX)
        return error_set(WEIR_E_UNSUPPORTED, "%s: has %d dimensions; 1 to %d can be, of which the first counts the samples", file->path,
                         h->rank, WEIR_DIMS_MAX);
    file->elements = 1;
    file->shape.rank = h->rank;
    for (int d = 0; d < h->rank; d++) {
        file->shape.dim[d] = h->dim[d];
        if (__builtin_mul_overflow(file->elements, h->dim[d], &file->elements))
            return error_set(WEIR_E_IO, "%s: its header says more elements than there can be", file->path);
    }
    return WEIR_OK;
}

/* `text` has room for the dictionary. */
static weir_status open_npy(struct data_file *file, int fd, int64_t size, const unsigned char *start, size_t count, char *text)
{
    size_t at, bytes;
    struct npy_header h;
    if (!npy_start(start, count, &at, &bytes) || (int64_t)(at + bytes) > size || read_bytes(file, fd, (int64_t)at, bytes, text))
        return error_set(WEIR_E_IO, "%s: the header of the .npy file is damaged", file->path);
    text[bytes] = '\0';
    if (strlen(text) != bytes || !npy_take_dictionary(text, &h))
        return error_set(WEIR_E_IO, "%s: the header of the .npy file is not one that is understood here", file->path);
    file->start = (int64_t)(at + bytes);
    weir_status status = npy_type(file, &h);
    status = status ? status : npy_shape(file, &h);
    return status ? status : check_size(file, size);
}

static weir_status open_npy_text(struct data_file *file, int fd, int64_t size, const unsigned char *start, size_t count)
{
    char *text = malloc(NPY_TEXT_MAX + 1);
    weir_status status = text ? open_npy(file, fd, size, start, count, text) : error_set(WEIR_E_MEMORY, "%s: no memory", file->path);
    free(text);
    return status;
}

/* The elements of an array are tokens. */
static weir_status check_tokens(const struct data_file *file)
{
    if (!is_integer(file->type))
        return error_set(WEIR_E_ARGUMENT, "%s: is of type %s; tokens are whole numbers", file->path, file->type->descr);
    if (file->shape.rank != 1)
        return error_set(WEIR_E_ARGUMENT, "%s: has %d dimensions; a list of tokens has 1", file->path, file->shape.rank);
    return WEIR_OK;
}

static weir_status read_header(struct data_file *file, int fd, bool tokens)
{
    unsigned char start[NPY_START_BYTES] = {0};
    int32_t word[3];
    struct stat is;
    if (fstat(fd, &is))
        return error_set(WEIR_E_IO, "%s: cannot be read: %s", file->path, strerror(errno));
    const size_t count = is.st_size < (off_t)sizeof start ? (size_t)is.st_size : sizeof start;
    weir_status status = read_bytes(file, fd, 0, count, start);
    memcpy(word, start, sizeof word);
    if (status)
        return status;
    if (count >= NPY_MAGIC_BYTES && !memcmp(start, NPY_MAGIC, NPY_MAGIC_BYTES))
        status = open_npy_text(file, fd, is.st_size, start, count);
    else if (!tokens)
        return error_set(WEIR_E_IO, "%s: is not an .npy file", file->path);
    else if (word[0] == 20240520 || word[0] == 20240801)
        status = open_llmc(file, is.st_size, word);
    else
        status = open_raw(file, is.st_size);
    if (!status && !file->shape.rank)
        file->shape = (weir_shape){1, {file->elements}};
    return status || !tokens ? status : check_tokens(file);
}

static weir_status hash_start(struct data_file *file, int fd)
{
    char first[HASHED_BYTES];
    int64_t count = file->elements < HASHED_BYTES / file->type->bytes ? file->elements : HASHED_BYTES / file->type->bytes;
    weir_status status = read_elements(file, fd, 0, (size_t)count, first);
    file->hash = hash_more(hash_more(HASH_START, &file->elements, sizeof file->elements), file->type->descr, 3);
    file->hash = status ? file->hash : hash_more(file->hash, first, (size_t)count * (size_t)file->type->bytes);
    return status;
}

weir_status data_file_open(struct data_file *file, const char *path, bool tokens, bool kept)
{
    *file = (struct data_file){.path = strdup(path), .fd = -1};
    if (!file->path)
        return error_set(WEIR_E_MEMORY, "no memory for the name of a file");
    const int fd = file_begin(file);
    if (fd < 0)
        return WEIR_E_IO;
    weir_status status = read_header(file, fd, tokens);
    status = status ? status : hash_start(file, fd);
    if (kept && !status)
        file->fd = fd;
    file_done(file, fd);
    return status;
}

void data_file_close(struct data_file *file)
{
    if (file->path && file->fd >= 0)
        close(file->fd);
    free(file->path);
    file->path = NULL;
}

/* ---- values ---- */

weir_dtype data_file_dtype(const struct data_file *file)
{
    return file->type->dtype;
}

#define WIDEN(type, from, to, count)                     \
    for (size_t i = 0; i < (count); i++) {               \
        type v;                                          \
        memcpy(&v, (from) + i * sizeof v, sizeof v);     \
        (to)[i] = (int64_t)v;                            \
    }                                                    \
    break

/* Whole numbers as i64; those of u64 that are too large become negative. */
static void widen(const struct data_type *type, const char *from, int64_t *to, size_t count)
{
    switch ((int)(type - types)) {
    case U16: WIDEN(uint16_t, from, to, count);
    case U32: WIDEN(uint32_t, from, to, count);
    case I32: WIDEN(int32_t, from, to, count);
    case U8: WIDEN(uint8_t, from, to, count);
    case I8: WIDEN(int8_t, from, to, count);
    case I16: WIDEN(int16_t, from, to, count);
    default: WIDEN(int64_t, from, to, count);
    }
}

static weir_status no_fit(const struct data_file *file, int64_t at)
{
    return error_set(WEIR_E_IO, "%s: element %" PRId64 ", of type %s, does not fit %s", file->path, at, file->type->descr,
                     weir_dtype_name(file->type->dtype));
}

static weir_status narrow_reals(const struct data_file *file, const char *from, int64_t at, size_t count, float *to)
{
    for (size_t i = 0; i < count; i++) {
        double v;
        memcpy(&v, from + i * sizeof v, sizeof v);
        to[i] = (float)v;
        if (isfinite(v) && !isfinite(to[i]))
            return no_fit(file, at + (int64_t)i);
    }
    return WEIR_OK;
}

static weir_status narrow_integers(const struct data_file *file, const int64_t *from, int64_t at, size_t count, void *to)
{
    const bool may_be_less = file->type != &types[U64];
    for (size_t i = 0; i < count; i++) {
        if (from[i] < 0 && !may_be_less)
            return no_fit(file, at + (int64_t)i);
        if (file->type->dtype == WEIR_I32)
            ((int32_t *)to)[i] = (int32_t)from[i];
        else
            ((int64_t *)to)[i] = from[i];
    }
    return WEIR_OK;
}

static weir_status to_ids(const struct data_file *file, const int64_t *from, int64_t at, size_t count, int64_t vocab, int32_t *to)
{
    for (size_t i = 0; i < count; i++) {
        if (from[i] < 0 || from[i] >= vocab)
            return error_set(WEIR_E_ARGUMENT, "%s: token %" PRId64 " is %" PRId64 "; with a vocabulary of %" PRId64 " ids are 0 to %" PRId64,
                             file->path, at + (int64_t)i, from[i], vocab, vocab - 1);
        to[i] = (int32_t)from[i];
    }
    return WEIR_OK;
}

/* Elements that are not read in the same bits; vocab > 0: as ids. */
static weir_status read_part(const struct data_file *file, int fd, int64_t at, size_t count, int64_t vocab, void *to)
{
    char raw[PART * WIDEST];
    int64_t wide[PART];
    weir_status status = read_elements(file, fd, at, count, raw);
    if (status)
        return status;
    if (file->type == &types[F64])
        return narrow_reals(file, raw, at, count, to);
    widen(file->type, raw, wide, count);
    return vocab ? to_ids(file, wide, at, count, vocab, to) : narrow_integers(file, wide, at, count, to);
}

static weir_status read_parts(const struct data_file *file, int64_t at, int64_t count, int64_t vocab, size_t bytes, void *to)
{
    const int fd = file_begin(file);
    weir_status status = fd < 0 ? WEIR_E_IO : WEIR_OK;
    if (!status && !vocab && file->type->same)
        status = read_elements(file, fd, at, (size_t)count, to);
    for (int64_t done = 0, part; !status && (vocab || !file->type->same) && done < count; done += part) {
        part = count - done < PART ? count - done : PART;
        status = read_part(file, fd, at + done, (size_t)part, vocab, (char *)to + (size_t)done * bytes);
    }
    if (fd >= 0)
        file_done(file, fd);
    return status;
}

weir_status data_file_read(const struct data_file *file, int64_t at, int64_t count, void *to)
{
    return read_parts(file, at, count, 0, weir_dtype_bytes(file->type->dtype), to);
}

weir_status data_file_read_ids(const struct data_file *file, int64_t at, int64_t count, int64_t vocab, int32_t *to)
{
    return read_parts(file, at, count, vocab, sizeof *to, to);
}
